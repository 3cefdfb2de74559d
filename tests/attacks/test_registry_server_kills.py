"""Kills a registry at random moments while packages are published and taken back."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import sqlite3
import threading
from collections import Counter
from http.client import HTTPException
from pathlib import Path

import pytest

from skillhouse.extensions.registry.hosting import open_repository
from skillhouse.registry.releases import blob_path
from tests.extensions.registry.hosting.servers import Server, package, serving

KILLS = 40
PUBLISHERS = 3


@pytest.mark.heavy
def test_killed_at_any_moment_each_version_is_whole_or_not_there(tmp_path: Path) -> None:
    chance = random.Random(19)
    numbers = itertools.count()
    answered: dict[str, str] = {}
    revoked: set[str] = set()

    def work(server: Server, token: str) -> None:
        # It ends with the server, whatever it was doing.
        with contextlib.suppress(OSError, HTTPException):
            while True:
                version = f"1.0.{next(numbers)}"
                archive = package(tmp_path / threading.current_thread().name, "notes", version)
                answer = server.publish(archive, "notes", version, token)
                assert answer.status == 201, answer.body
                answered[version] = answer.json["digest"]
                if chance.random() < 0.2:
                    done = server.change("revoke", "notes", version, token)
                    assert done.status == 200, done.body
                    revoked.add(version)

    for _ in range(KILLS):
        with serving(tmp_path / "state", "--writes-per-minute", "1000000") as server:
            token = server.token("admin")
            threads = [
                threading.Thread(target=work, args=(server, token), name=f"p{number}")
                for number in range(PUBLISHERS)
            ]
            for thread in threads:
                thread.start()
            threading.Event().wait(chance.uniform(0.0, 0.6))
            server.process.kill()
            for thread in threads:
                thread.join()
        check(tmp_path / "state", answered, revoked)
    assert len(answered) > KILLS
    assert revoked


def check(directory: Path, answered: dict[str, str], revoked: set[str]) -> None:
    with contextlib.closing(sqlite3.connect(directory / "registry.sqlite3")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    repository = open_repository(directory)
    with contextlib.closing(repository.store):
        assert not list((directory / "uploads").iterdir())
        found = repository.store.releases("default", "notes")
        releases = {} if found is None else {one.version: one for one in found.versions}
        # What was answered is there, and once.
        assert {version: releases[version].digest for version in answered} == answered
        assert {releases[version].state for version in revoked} <= {"revoked"}
        for release in releases.values():
            data = (directory / blob_path(release.digest)).read_bytes()
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == release.digest
        changes = repository.store.changes(0, 1_000_000)
        published = Counter(one.version for one in changes if one.kind == "publish")
        assert published == Counter(releases.keys())
        taken = {one.version for one in changes if one.kind == "revoke"}
        assert taken == {one.version for one in releases.values() if one.state == "revoked"}

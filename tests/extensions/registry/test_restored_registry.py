"""Tests of a registry with a root that comes back from a backup, with clients that saw it later."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.registry.rooted import RootedRegistry

from skillhouse.extensions.registry.hosting import open_repository
from skillhouse.extensions.registry.hosting.backup import BackupError, back_up, restore

__all__ = ["place", "run"]
AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")


class Lost:
    """A registry whose directory is gone, after a client saw more than its backup has."""

    def __init__(self, run: Run, place: Path) -> None:
        self.registry = RootedRegistry(place)
        self.run, self.place, self.directory = run, place, self.registry.directory
        self.registry.publish("pdf", "1.0.0", "acme")
        self.registry.publish("csv", "1.0.0")
        self.registry.give({"pdf": ("acme",)})
        self.backup = place / "backup.tar"
        self.made = back_up(self.directory, self.backup, datetime.now(UTC))
        self.registry.publish("pdf", "1.0.1", "acme")
        self.registry.publish("txt", "1.0.0")
        for version in ("1.0.1", "1.0.2", "1.0.3"):
            self.registry.publish("csv", version)
        root = f'root = "{self.registry.root}"\n'
        configure(place, ("team", self.directory.as_uri(), True), more=root)
        assert run("install", "pdf", *AGREED)[0] == 0
        assert run("install", "csv", *AGREED)[0] == 0
        self.seen = self.registry.hosted.store.last_change()
        self.registry.close()
        shutil.rmtree(self.directory)

    def served(self) -> None:
        """Sign what is due, as a server does when it starts."""
        repository = open_repository(self.directory)
        with closing(repository.store):
            repository.sign_changes()

    def versions(self) -> dict[str, str]:
        return {name: str(one["version"]) for name, one in lock_of(self.place).items()}


@pytest.fixture
def lost(run: Run, place: Path) -> Lost:
    return Lost(run, place)


def signed_version(directory: Path) -> int:
    value = json.loads((directory / "metadata/timestamp.json").read_bytes())
    return int(value["signed"]["version"])


def test_clients_refuse_a_backup_of_which_no_one_said_what_they_saw(lost: Lost) -> None:
    """What the numbers are for: nothing that clients saw is taken back without a word."""
    restore(lost.backup, lost.directory, datetime.now(UTC))
    lost.served()
    code, out, err = lost.run("install", "txt", *AGREED)
    assert code == 1
    assert "is older than what was seen here before" in out + err
    shutil.rmtree(lost.directory)
    with pytest.raises(BackupError, match=f"clients saw change {lost.seen}"):
        restore(lost.backup, lost.directory, datetime.now(UTC), seen=lost.seen)


@pytest.mark.parametrize("days", [0, 40])
def test_clients_that_saw_more_take_a_restored_registry_and_are_not_rolled_back(
    lost: Lost, days: int
) -> None:
    now = datetime.now(UTC)
    restore(lost.backup, lost.directory, now + timedelta(days=days), seen=lost.seen, go_back=True)
    lost.served()
    # Each hour may have had a signature of its own.
    assert signed_version(lost.directory) > lost.made.metadata_version + 24 * days + 1_000
    before = lost.versions()
    _, out, err = lost.run("update", *AGREED)
    assert "is older than what was seen here" not in out + err
    assert lost.versions() == before == {"csv": "1.0.3", "pdf": "1.0.1"}
    lost.registry.reopen()
    lost.registry.publish("new", "1.0.0")
    lost.registry.publish("pdf", "1.0.2", "acme")
    lost.registry.close()
    assert lost.run("install", "new", *AGREED)[0] == 0
    assert lost.run("update", "pdf", *AGREED, "--ignore-age")[0] == 0
    assert lost.versions() == {"csv": "1.0.3", "new": "1.0.0", "pdf": "1.0.2"}


def test_the_number_is_raised_once(lost: Lost) -> None:
    restore(lost.backup, lost.directory, datetime.now(UTC), seen=lost.seen, go_back=True)
    lost.served()
    first = signed_version(lost.directory)
    repository = open_repository(lost.directory)
    with closing(repository.store):
        assert repository.roles().sign() is False
    assert signed_version(lost.directory) == first

"""Tests of approval/grants.py."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from skillhouse.approval import Grant, GrantStore, grant_patterns, may_last
from skillhouse.store import STATE, Store
from tests.store.databases import at_version


@pytest.mark.parametrize(
    ("action", "resource", "argv", "patterns"),
    [
        ("exec", "git status", ["git", "status"], ("git status", "git status *")),
        ("exec", "git -c x=y status", ["git", "-c", "x=y", "status"], ("git -c x=y status",)),
        ("exec", "gitk", ["gitk"], ("gitk",)),
        ("exec", "python run.py", ["python", "run.py"], ("python run.py",)),
        ("exec", "ls *", ["ls", "*"], ()),
        ("write", "/w/a/b.txt", [], ("/w/a/*",)),
        ("skill", "pdf", [], ("pdf",)),
    ],
)
def test_a_lasting_yes_covers_a_subcommand_or_a_directory_and_no_more(
    action: str, resource: str, argv: list[str], patterns: tuple[str, ...]
) -> None:
    assert grant_patterns(action, resource, argv) == patterns


def test_grants_are_kept_once_and_can_be_forgotten(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    grant = Grant(action="exec", pattern="git status", place="/w")
    assert (store.all(), store.clear(), store.revoke("x")) == ((), 0, None)
    store.add([grant])
    stamp = store.stamp()
    store.add([grant, dataclasses.replace(grant, expires_ms=9)])
    (kept,) = store.all()
    assert (kept, kept.expires_ms) == (grant, 9)
    assert stamp
    assert store.revoke(kept.id) == kept
    store.add([grant])
    assert store.clear() == 1
    assert store.all() == ()


def test_grants_of_users_agents_and_places_stand_side_by_side(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    grant = Grant(action="exec", pattern="git status", place="/w")
    others = [
        dataclasses.replace(grant, user="another"),
        dataclasses.replace(grant, agent="another"),
        dataclasses.replace(grant, place="another"),
        dataclasses.replace(grant, skill_digest="another"),
    ]
    store.add([grant, *others])
    assert store.all() == (grant, *others)
    here = {"user": "local", "agent": "default", "place": "/w", "skill_digest": ""}
    assert [g.is_for(**here) for g in store.all()] == [True, False, False, False, False]
    everywhere = dataclasses.replace(grant, place="")
    assert everywhere.is_for(**{**here, "place": "/elsewhere"})


@pytest.mark.parametrize(
    ("words", "lasts"),
    [
        ("git status", True),
        ("ls -l", True),
        ("bash -c ls", False),
        ("python3.11 run.py", False),
        ("/usr/bin/env FOO=1 ls", False),
        ("find . -exec rm {} +", False),
        ("xargs rm", False),
    ],
)
def test_a_shell_line_is_never_allowed_for_good(words: str, lasts: bool) -> None:
    assert may_last(words.split()) is lasts


def test_what_was_granted_before_devices_were_noted_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    with Store(path, at_version(0, STATE)) as store, store.transaction() as connection:
        connection.execute(
            "INSERT INTO lasting_grant VALUES ('g1', 'write', '/w/*', '', '', 'local', 'default', "
            "1, 2)"
        )
    (grant,) = GrantStore(tmp_path).all()
    assert grant == Grant(action="write", pattern="/w/*", place="")
    assert (grant.id, grant.granted_ms, grant.expires_ms, grant.device) == ("g1", 1, 2, "")

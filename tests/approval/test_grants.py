"""Tests of approval/grants.py."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from skillhouse.approval import Grant, GrantStore, grant_patterns


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
    assert (store.all(), store.clear()) == ((), 0)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store.add([grant], now)
    stamp = store.stamp()
    store.add([grant, grant], now)
    assert store.all() == (grant,)
    assert stamp
    assert store.clear() == 1
    assert store.all() == ()

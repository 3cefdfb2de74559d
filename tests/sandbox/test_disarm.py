"""Tests of sandbox/mountpoints.py: what stays in a repository that a run made."""

from __future__ import annotations

from pathlib import Path

from skillhouse.sandbox.mountpoints import CONFIG_MAX, disarm, is_repository, obeyed_names

PLAIN = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
REMOTE = '[remote "origin"]\n\turl = https://example.org/x.git\n\tfetch = +refs/*:refs/*\n'


def repository(base: Path, config: str) -> Path:
    for name in ("objects", "refs", "hooks"):
        (base / name).mkdir(parents=True)
    (base / "HEAD").write_text("ref: refs/heads/main\n")
    (base / "config").write_text(config)
    return base


def test_what_git_itself_writes_stays_as_it_is(tmp_path: Path) -> None:
    place = repository(tmp_path / ".git", PLAIN + REMOTE)
    (place / "hooks/pre-commit.sample").write_text("#!/bin/sh\n")
    assert disarm(str(place)) == ""
    assert (place / "config").read_text() == PLAIN + REMOTE
    assert (place / "hooks/pre-commit.sample").exists()


def test_everything_else_is_removed_and_named(tmp_path: Path) -> None:
    config = PLAIN + "# a note\n[core] pager = x\n[sec.sub]\n\tkey = 1\n" + REMOTE
    place = repository(tmp_path / ".git", config)
    (place / "hooks/pre-commit").write_text("x")
    (place / "commondir").write_text("../../x")
    assert disarm(str(place)) == "commondir, core.pager, sec.sub.key, hooks/pre-commit"
    assert (place / "config").read_text() == PLAIN + "[core]\n" + REMOTE
    assert obeyed_names(str(place)) == {"config", "hooks"}


def test_a_setting_that_is_no_file_or_too_large_is_replaced(tmp_path: Path) -> None:
    large = repository(tmp_path / "large.git", PLAIN + "#" * CONFIG_MAX)
    linked = repository(tmp_path / "linked/.git", "")
    (linked / "config").unlink()
    (linked / "config").symlink_to("/dev/null")
    (linked / "hooks").rmdir()
    (linked / "hooks").symlink_to(tmp_path)
    assert (disarm(str(large)), disarm(str(linked))) == ("config", "config, hooks")
    assert "bare = true" in (large / "config").read_text()
    assert (linked / "config").read_text().endswith("bare = false\n")
    assert not (linked / "hooks").is_symlink()


def test_submodules_are_disarmed_too(tmp_path: Path) -> None:
    place = repository(tmp_path / ".git", PLAIN)
    repository(place / "modules/a/b", PLAIN + "[core]\n\tfsmonitor = x\n")
    assert disarm(str(place)) == "core.fsmonitor"


def test_names_in_any_case_make_a_repository() -> None:
    assert is_repository({"Head", "OBJECTS", "refs", "x"})
    assert is_repository({"HEAD", "commondir"})
    assert not is_repository({"HEAD"})
    assert obeyed_names("/nowhere") == frozenset()

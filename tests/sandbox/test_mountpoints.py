"""Tests of sandbox/mountpoints.py: what stays in a repository that a run made."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.sandbox.mountpoints import (
    CONFIG_MAX,
    disarm,
    is_repository,
    obeyed_names,
    placeholder_note,
)
from skillhouse.sandbox.profile import Directory, SurveyEntry

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


PLACEHOLDERS = [f"/ws/{name}" for name in (".git", ".env", ".claude", "skillhouse.toml")]


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("", []),
        ("drwxr-xr-x 2 me me 40 Nov 23 .git\n", [".git"]),
        ("fatal: cannot copy 'x' to '/ws/.git/description': Permission denied", [".git"]),
        ("cat: .env: Is a directory\ncat: ./.env: Is a directory", [".env"]),
        ('["a", ".claude", ".env"]', [".claude", ".env"]),
        ("\x1b[01;34m.git\x1b[0m  \x1b[01;34m.env\x1b[0m", [".env", ".git"]),
        ("nothing is in .env.", [".env"]),
        (".env/ .git/\n", [".env", ".git"]),
        ("rm: cannot remove 'skillhouse.toml': Device or resource busy", ["skillhouse.toml"]),
        # Longer words, and other places.
        (".env.example .envrc .gitignore .github .git-credentials .env_x .env~", []),
        ("https://example.org/x.git process.env a.git sub/.git ../.env ~/.claude", []),
        ("/ws/sub/.env /elsewhere/.env /ws2/.git /ws/x.env", []),
        ("@.env +.env é.env .envé", []),
        # No placeholders.
        (".vscode .npmrc .profile", []),
    ],
)
def test_only_words_that_are_such_paths_are_named(output: str, names: list[str]) -> None:
    note = placeholder_note(output.encode(), "/ws", PLACEHOLDERS)
    shown, found, _ = note.partition(" do")
    assert (shown, bool(found)) == (", ".join(f"`{name}`" for name in names), bool(names))


def test_a_note_is_short_and_counts_the_rest() -> None:
    many = [f"/ws/.{letter}" for letter in "abcdefgh"]
    output = "\n".join(path[4:] for path in many).encode()
    assert placeholder_note(output, "/ws", many) == (
        "`.a`, `.b`, `.c`, `.d`, `.e` and 3 more do not exist: skillhouse protects these names, "
        "shows placeholders, and no command can make them"
    )
    assert placeholder_note(b".a", "/ws", many) == (
        "`.a` does not exist: skillhouse protects this name, shows a placeholder, and no command "
        "can make it"
    )


def test_nothing_is_said_where_there_are_no_placeholders() -> None:
    assert placeholder_note(b".git .env", "/ws", []) == ""


def test_a_name_that_is_there_in_another_place_is_not_meant() -> None:
    directory = Directory((), (SurveyEntry(".env", is_directory=False, inode=1),), ())
    for output, says in ((b".env", False), (b"./.env", False), (b"/ws/.env", True)):
        note = placeholder_note(output, "/ws", PLACEHOLDERS, directories=[directory])
        assert bool(note) is says


def test_of_a_repository_it_says_how_to_make_one() -> None:
    note = placeholder_note(b"\xff\xfe .git", "/ws (1)", ["/ws (1)/.git"])
    assert note.endswith(
        "; `git init` as the whole command makes a repository here, `git init NAME` one below"
    )

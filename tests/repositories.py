"""Git repositories of every shape that a workspace has, made by git itself."""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness import ran

VARIABLES = {
    **{f"GIT_{who}_NAME": "A Person" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "person@example.org" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(place: Path, *words: str) -> str:
    """Run git outside of any sandbox; return what it prints."""
    command = ("git", "-c", "protocol.file.allow=always", *words)
    variables = {**os.environ, **VARIABLES}
    done = ran(command, cwd=place, check=True, env=variables)
    return done.stdout


def named(place: Path) -> Path:
    """Give a repository a person of its own, as commands know no other."""
    git(place, "config", "user.name", "A Person")
    git(place, "config", "user.email", "person@example.org")
    return place


def plain(base: Path) -> Path:
    """A repository with two branches that differ below `packages/fe`, and one that does above."""
    place = base / "repo"
    (place / "packages/fe").mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    named(place)
    (place / "top.txt").write_text("top\n", encoding="utf-8")
    (place / "packages/fe/in.txt").write_text("in\n", encoding="utf-8")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    for branch, name in (("inner", "packages/fe/in.txt"), ("outer", "top.txt")):
        git(place, "switch", "-q", "-c", branch, "main")
        (place / name).write_text(f"{branch}\n", encoding="utf-8")
        git(place, "commit", "-qam", branch)
    git(place, "switch", "-q", "main")
    return place


def linked(base: Path, name: str = "linked") -> Path:
    place = plain(base)
    git(place, "worktree", "add", "-q", str(base / name), "-b", "feature")
    return base / name


def linked_by_relative_paths(base: Path) -> Path:
    place = linked(base)
    own = base / "repo/.git/worktrees/linked"
    # Written by hand: git before 2.48 reads what newer ones write, but for an extension.
    (place / ".git").write_text("gitdir: ../repo/.git/worktrees/linked\n", encoding="utf-8")
    (own / "gitdir").write_text("../../../../linked/.git\n", encoding="utf-8")
    return place


def below_agents_directory(base: Path) -> Path:
    place = plain(base)
    git(place, "worktree", "add", "-q", ".claude/worktrees/one", "-b", "feature")
    return place / ".claude/worktrees/one"


def in_bare_repository(base: Path) -> Path:
    git(plain(base), "clone", "-q", "--bare", ".", "../bare.git")
    named(base / "bare.git")
    git(base / "bare.git", "worktree", "add", "-q", "linked", "-b", "feature")
    return base / "bare.git/linked"


def with_submodule(base: Path) -> Path:
    plain(base)
    place = base / "outer"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    named(place)
    git(place, "submodule", "--quiet", "add", "../repo", "sub")
    git(place, "commit", "-qm", "submodule")
    named(place / "sub")
    return place


def submodule(base: Path) -> Path:
    return with_submodule(base) / "sub"


def separate(base: Path) -> Path:
    git(plain(base), "clone", "-q", "--separate-git-dir", "../apart.git", ".", "../separate")
    return named(base / "separate")


def shared(base: Path) -> Path:
    git(plain(base), "clone", "-q", "--shared", ".", "../shared")
    return named(base / "shared")


def part(base: Path) -> Path:
    return plain(base) / "packages/fe"


def part_of_linked(base: Path) -> Path:
    return linked(base) / "packages/fe"

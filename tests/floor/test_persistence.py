"""Tests of floor/persistence.py: the table of paths that act later."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import skillhouse.skill
from skillhouse.floor import (
    FIXED,
    PATH_GROUPS,
    PROTECTED_NAMES,
    PathClass,
    PersistentPaths,
    name_filter,
    named,
)

PATHS = PersistentPaths()
PATTERNS = sorted({pattern for group in PATH_GROUPS for pattern in group.patterns})
PAGE = Path(__file__).parents[2] / "docs/reference/protected-paths.md"


def example(pattern: str) -> str:
    return pattern.lstrip("/").replace("*", "x")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_has_its_paths_in_any_case_and_the_name_filter_lets_them_pass(
    pattern: str,
) -> None:
    path = example(pattern)
    found = PATHS.group(path)
    assert found is not None
    for spelling in (path.upper(), f"{path}/x", path if pattern[0] == "/" else f"a/b/{path}"):
        assert PATHS.group(spelling) is found
    assert name_filter(PATHS)(path.rsplit("/", 1)[-1].upper())


def test_each_group_says_why_and_where_that_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for group in PATH_GROUPS:
        assert (bool(group.why), bool(group.source)) == (True, True)
        assert [p for p in group.patterns if f"`{p}`" not in page] == []


def test_every_folder_in_which_a_shipped_profile_finds_skills_is_in_the_table() -> None:
    profiles = Path(skillhouse.skill.__file__).parent / "profiles"
    roots = {
        root["path"]
        for file in profiles.glob("*.toml")
        for root in tomllib.loads(file.read_text(encoding="utf-8")).get("roots", ())
    }
    inside = {root for root in roots if root[0] not in "/~$*{"}
    assert len(inside) > 5
    assert [root for root in sorted(inside) if PATHS.group(root) is None] == []
    at_home = {root[2:] for root in roots if root.startswith("~/")}
    known = {root for root in at_home if PATHS.group(f"{root}/x/SKILL.md") is not None}
    assert known == at_home


def test_an_operator_moves_a_path_but_nothing_that_is_fixed() -> None:
    moved = PersistentPaths(("opencode.json", ".git", ".env", "*.pem", "skillhouse.toml"))
    classes = {
        path: group.path_class
        for path in ("opencode.json", "sub/opencode.json", ".git/config", ".env", "x.pem", ".envrc")
        if (group := moved.group(path)) is not None
    }
    assert [path for path, kind in classes.items() if kind is PathClass.ASKED] == [
        "opencode.json",
        "sub/opencode.json",
    ]
    assert (moved.is_asked("opencode.json"), moved.is_never("opencode.json")) == (True, False)
    assert not any(moved.is_asked(example(pattern)) for pattern in FIXED.patterns)
    assert all(PATHS.is_never(name.replace("*", "x")) for name in PROTECTED_NAMES)


def test_other_files_are_in_no_group() -> None:
    for path in ("src/main.py", "skills.py", "src/skill/x.py", "package-lock.json", "README.md"):
        assert PATHS.group(path) is None
    assert not named((), "x")


@pytest.mark.parametrize(
    ("path", "top"),
    [
        *((".foo/settings.json", ".foo"), (".NewAgent/rules/x.md", ".newagent")),
        *((".pytest_cache/v/x", ""), (".venv-3.12/bin/x", ""), (".github/x", ""), ("a/.foo/x", "")),
        *((".foo", ""), ("foo/x", ""), (".my-cache/x", "")),
    ],
)
def test_a_directory_of_a_program_that_nobody_knows_is_known_by_its_shape(
    path: str, top: str
) -> None:
    assert PATHS.unknown_directory(path) == top


def test_settings_are_known_by_the_shape_of_their_names() -> None:
    for path in (
        "a/my-mcp-servers.json",
        "a/mcp_servers.toml",
        ".newtoolrc",
        ".config/any/thing",
        "x/.foorc.lua",
    ):
        assert PATHS.is_asked(path), path
    for path in ("src/compact.json", "rc", "src/mcp.py", ".editorconfig", "config/x.toml"):
        assert PATHS.group(path) is None, path


REVIEWED = (
    ".sl/config .jj/repo/config.toml .hg/hgrc .tabnine/mcp_servers.json .vibe/config.toml "
    ".rovodev/x .iflow/settings.json .grok/settings.json firebender.json .agent/rules/x.md "
    ".zencoder/x .eca/x .forge/x forge.yaml .ghci .iex.exs .ocamlinit .octaverc .bazelrc .rspec "
    ".gitpod.yml .codesandbox/tasks.json .idx/dev.nix .replit devfile.yaml "
    ".gradle/init.d/x.gradle .m2/settings.xml .config/gh/config.yml .config/lazygit/config.yml "
    ".config/starship.toml .wezterm.lua .lesskey .mailcap .deepagents/hooks.json"
).split()


def test_names_that_a_review_wrote_unasked_are_known() -> None:
    assert [path for path in REVIEWED if PATHS.group(path) is None] == []

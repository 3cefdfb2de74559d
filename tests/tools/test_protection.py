"""Tests of tools/protection.py: what may be written all the same, and what may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.floor import PROTECTED_NAMES, SECRET_NAMES, spelled
from skillhouse.permission import Effect, Rule
from skillhouse.permission.path_policy import is_protected
from skillhouse.sandbox import fits
from skillhouse.tools import protection
from skillhouse.tools.call import RefusedError
from skillhouse.tools.protection import Guarded, links_below, other_names
from tests.tools.houses import house_at


@pytest.mark.parametrize(
    "relative",
    (
        "src/id_map.py git/hooks/x .gitignore .github/workflows/ci.yml environment.yml "
        "docs/profile.md key.txt skill.md.txt lent-private/x"
    ).split(),
)
def test_ordinary_files_are_not_protected(tmp_path: Path, relative: str) -> None:
    assert Guarded(tmp_path, [tmp_path / "lent"]).reason(relative) == ""


def test_the_judge_the_tools_and_the_sandbox_protect_the_same_names(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    for pattern in PROTECTED_NAMES:
        name = pattern.replace("*", "x")
        for relative in (name, f"sub/{name}", f"sub/{name}/below", name.upper()):
            assert is_protected(relative)
            assert guarded.reason(relative)
    for name in ("id_work", "id_rsa.old", "ID_ED25519", ".env.a.b", "a.PEM", ".ssh"):
        assert any(fits(pattern, name) for pattern in SECRET_NAMES)
        assert is_protected(name)
    for name in ("id_map.py", "env", ".environment", "key"):
        assert not any(fits(pattern, name) for pattern in SECRET_NAMES)
        assert not is_protected(name)


def test_places_are_known_by_any_name_that_leads_to_them(tmp_path: Path) -> None:
    (tmp_path / "skills/a").mkdir(parents=True)
    (tmp_path / "elsewhere").symlink_to("skills")
    guarded = Guarded(tmp_path, [tmp_path / "elsewhere/a", tmp_path / "new/root"])
    assert guarded.below == ("new/root", "skills/a")
    for relative in ("skills/a", "skills/a/x", "SKILLS/A/x", "new/root/s/SKILL.md"):
        assert "belongs to a skill" in guarded.reason(relative)
    for relative in ("skills/b", "new", "new/other"):
        assert guarded.reason(relative) == ""


def test_a_place_is_known_under_a_name_that_was_given_to_it_later(tmp_path: Path) -> None:
    """As by another mount: the same directory, by a path that no list holds."""
    (tmp_path / "skills").mkdir()
    guarded = Guarded(tmp_path, [tmp_path / "skills"])
    os.rename(tmp_path / "skills", tmp_path / "renamed")
    (tmp_path / "skills").symlink_to("renamed")
    assert guarded.reason("skills/x")


@pytest.mark.parametrize(
    ("relative", "expected"),
    [
        ("a/b", "a/b"),
        ("A/.GIT", "a/.git"),
        (".git:stream", ".git"),
        (".g\u200ci\ufefft. .", ".git"),
        ("cafe\u0301", "café"),
        ("...", "..."),
        (":", ":"),
    ],
)
def test_a_name_is_taken_as_the_most_forgiving_file_system_takes_it(
    relative: str, expected: str
) -> None:
    assert spelled(relative) == expected


def test_the_way_to_a_place_may_not_pass_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "work/real").mkdir(parents=True)
    (tmp_path / "work/link").symlink_to("real")
    work = tmp_path / "work"
    (tmp_path / "direct").symlink_to(work / "real")
    (tmp_path / "passing").symlink_to(work / "link")
    assert Guarded(work, [tmp_path / "direct", work / "real/file"]).detour() == ""
    found = Guarded(work, [tmp_path / "passing"]).detour()
    assert found.startswith(f"`{tmp_path}/passing` is reached through `link` in the workspace")
    # A link that is itself in a protected place cannot be replaced.
    (work / ".claude").mkdir()
    (work / ".claude/skills").symlink_to("../real")
    assert Guarded(work, [work / ".claude/skills/x"]).detour() == ""


def test_other_names_of_a_file_are_found_or_the_workspace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "one").write_text("")
    (tmp_path / "two").write_text("")
    paths = [str(tmp_path / name) for name in ("one", "two", "none")]
    assert other_names(tmp_path / "work", paths) == ()
    os.link(tmp_path / "one", tmp_path / "work/sub/name")
    assert other_names(tmp_path / "work", paths) == ("sub/name",)
    monkeypatch.setattr(protection, "ENTRIES_MAX", 1)
    with pytest.raises(RefusedError, match="too large to look for them"):
        other_names(tmp_path / "work", paths)


def test_links_of_a_skill_are_found_as_far_as_its_files_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/run.sh").write_text("")
    (tmp_path / "scripts/link").symlink_to("run.sh")
    assert list(links_below(tmp_path)) == [tmp_path / "scripts/link"]
    monkeypatch.setattr(protection, "LOADED_ENTRIES_MAX", 2)
    with pytest.raises(RefusedError, match="more than 2 files"):
        list(links_below(tmp_path))


@pytest.mark.slow
def test_what_is_kept_of_the_own_files_is_dropped_when_one_of_them_changes(tmp_path: Path) -> None:
    rule = Rule(effect=Effect.ALLOW, action="write", pattern="*")
    project, settings = tmp_path / "project", tmp_path / "home/.config/skillhouse/config.toml"
    with house_at(tmp_path, rule) as house:

        def answer(path: str) -> str:
            result = house.call_sync("write", {"path": path, "content": "x"})
            return result.status if result.status == "ok" else result.content

        assert (answer("a"), answer("b")) == ("ok", "ok")
        settings.parent.mkdir(parents=True)
        settings.write_text("")
        settings.chmod(0o602)
        assert "other users can write it" in answer("a")
        settings.chmod(0o600)
        assert answer("a") == "ok"
        settings.unlink()
        settings.symlink_to(project / "a")
        assert "is protected" in answer("a")
        assert answer("b") == "ok"
        settings.unlink()
        settings.symlink_to(project / "b")
        assert (answer("a"), "is protected" in answer("b")) == ("ok", True)
        settings.parent.chmod(0o707)
        assert "other users can write the directory" in answer("a")

"""Tests of tools/files.py and tools/workspace.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from tests.house.places import write_skill
from tests.tools.houses import house_at

ALLOW = Rule(effect=Effect.ALLOW, action="write", pattern="*")


def call(house: Skillhouse, tool: str, **arguments: Any) -> tuple[str, str]:
    result = house.call_sync(tool, arguments)
    return result.status, result.content


def test_a_part_of_a_file_is_read_by_lines(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/a.txt").write_text("1\n2\n3\n4\n")
        assert call(house, "read", path="a.txt", offset=2, limit=2) == ("ok", "2\n3\n")
        assert call(house, "read", path="a.txt", offset=9) == ("ok", "")


def test_a_path_relative_to_a_loaded_skill_is_answered_with_its_whole_path(tmp_path: Path) -> None:
    for name in ("first", "second", "unused"):
        place = tmp_path / "home/.claude/skills" / name
        write_skill(place, f"About {name}.", "See references/a.md.\n")
        (place / "references").mkdir()
        (place / "references/a.md").write_text(name)
    (tmp_path / "home/.claude/skills/first/references/link.md").symlink_to("/etc/hostname")
    with house_at(tmp_path) as house:
        plain = ("error", "there is no `references/a.md`")
        assert call(house, "read", path="references/a.md") == plain
        for name, others in (("first", ""), ("second", "first")):
            assert call(house, "skill", name=name)[0] == "ok"
            meant = tmp_path / "home/.claude/skills" / name / "references"
            for tool, path, whole in (("read", "a.md", meant / "a.md"), ("list", "", meant)):
                status, said = call(house, tool, path=f"./references/{path}")
                assert (status, "unused" in said) == ("error", False)
                assert f"did you mean `{whole}` (of skill `{name}`)" in said
                assert not others or f"/{others}/references" in said
                assert call(house, tool, path=str(whole))[0] == "ok"
        for path in ("references/none.md", "references/link.md", "/references/a.md", "etc"):
            assert "did you mean" not in call(house, "read", path=path)[1]


@pytest.mark.parametrize("name", [".env", ".env.local", "deep/server.key", "id_ed25519"])
def test_a_file_with_the_name_of_a_secret_is_asked_about(tmp_path: Path, name: str) -> None:
    with house_at(tmp_path) as house:
        file = tmp_path / "project" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("KEY=1")
        status, content = call(house, "read", path=name)
        assert status == "denied"
        assert "KEY=1" not in content


@pytest.mark.slow
def test_a_place_outside_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    with house_at(tmp_path) as house:
        status, content = call(house, "read", path=str(tmp_path / "outside.txt"))
        assert status == "denied"
        assert "outside the workspace" in content
        assert call(house, "list", path=str(tmp_path))[0] == "denied"
        assert call(house, "read", path="../outside.txt")[0] == "error"
    allow = Rule(effect=Effect.ALLOW, action="read", pattern=f"{tmp_path}/*")
    with house_at(tmp_path, allow) as open_house:
        path = str(tmp_path / "outside.txt")
        assert call(open_house, "read", path=path) == ("ok", "outside")


def test_a_directory_is_listed_with_marks(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/b").mkdir()
        (tmp_path / "project/a.txt").touch()
        (tmp_path / "project/l").symlink_to("/etc")
        assert call(house, "list") == ("ok", ".git/\na.txt\nb/\nl@")
        assert call(house, "list", path="b") == ("ok", "[empty]")
        assert call(house, "list", path="l")[0] == "error"
        assert call(house, "list", path="none")[0] == "error"


def test_a_write_makes_directories_and_replaces_in_one_step(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        file = tmp_path / "project/deep/er/a.sh"
        assert call(house, "write", path="deep/er/a.sh", content="one")[0] == "ok"
        file.chmod(0o755)
        before = file.stat().st_ino
        assert call(house, "write", path="deep/er/a.sh", content="two")[0] == "ok"
        assert (file.read_text(), file.stat().st_mode & 0o777) == ("two", 0o755)
        assert file.stat().st_ino != before
        assert sorted(os.listdir(file.parent)) == ["a.sh"]


@pytest.mark.parametrize(
    "path",
    (
        ".git/hooks/pre-commit .GIT/hooks/pre-commit .git/config .env .ssh/authorized_keys "
        ".bashrc .claude/settings.json .agents/skills/x/SKILL.md .mcp.json skillhouse.toml "
        "server.pem ./.git/./config"
    ).split(),
)
def test_a_protected_path_is_denied_whatever_the_rules_say(tmp_path: Path, path: str) -> None:
    everything = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    with house_at(tmp_path, everything) as house:
        status, content = call(house, "write", path=path, content="x")
        assert status == "denied"
        assert "protected" in content
        assert not (tmp_path / "project" / path).exists()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "", ".", "a\0b"])
def test_a_write_outside_the_workspace_is_refused(tmp_path: Path, path: str) -> None:
    everything = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    with house_at(tmp_path, everything) as house:
        assert call(house, "write", path=path, content="x")[0] in ("denied", "error")


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    with house_at(tmp_path, ALLOW) as house:
        (tmp_path / "project/l.txt").symlink_to(tmp_path / "outside.txt")
        (tmp_path / "project/d").symlink_to(tmp_path)
        assert call(house, "write", path="l.txt", content="x")[0] == "error"
        assert call(house, "write", path="d/outside.txt", content="x")[0] == "error"
        assert (tmp_path / "outside.txt").read_text() == "outside"


def test_an_edit_replaces_what_occurs_once(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW) as house:
        file = tmp_path / "project/a.txt"
        file.write_text("one two two")
        assert call(house, "edit", path="a.txt", old="one", new="1") == (
            "ok",
            "replaced 1 in a.txt",
        )
        status, content = call(house, "edit", path="a.txt", old="two", new="2")
        assert (status, content) == (
            "error",
            "`old` occurs 2 times in `a.txt`: give more of the text",
        )
        assert call(house, "edit", path="a.txt", old="zero", new="0")[0] == "error"
        assert call(house, "edit", path="a.txt", old="two", new="2", all=True)[0] == "ok"
        assert file.read_text() == "1 2 2"

"""Tests of tools/memory.py: what is found in the workspace's memory, and what is kept there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.house import MemorySettings, Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult, WriteGate
from skillhouse.tools.memory import PASSAGE_CHARS, Passage, passages
from tests.profiles.houses import house_under
from tests.tools.houses import Person

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/memory.md"
ON = MemorySettings(enabled=True)
ALLOW = Rule(effect=Effect.ALLOW, action="write", pattern="*")


def house_in(base: Path, *rules: Rule, **more: Any) -> Skillhouse:
    return house_under(base, more.pop("profile", "default"), *rules, **{"memory": ON, **more})


def note(base: Path, file: str, text: str) -> Path:
    path = base / "project" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def search(house: Skillhouse, query: str, **more: Any) -> ToolResult:
    return house.call_sync("memory_search", {"query": query, **more})


def places(result: ToolResult) -> list[tuple[str, int, int]]:
    assert result.data is not None
    return [(one["file"], one["first_line"], one["last_line"]) for one in result.data["passages"]]


def write(house: Skillhouse, content: str, **more: Any) -> ToolResult:
    return house.call_sync("memory_write", {"content": content, **more})


@pytest.mark.parametrize(
    ("profile", "memory", "expected"),
    [
        ("default", MemorySettings(), False),
        ("default", ON, True),
        ("owliabot-js", MemorySettings(), True),
        ("owliabot-js", MemorySettings(enabled=False), False),
    ],
)
@pytest.mark.req("S002-68")
def test_the_tools_are_offered_where_a_setting_or_the_profile_has_them(
    tmp_path: Path, profile: str, memory: MemorySettings, expected: bool
) -> None:
    with house_in(tmp_path, profile=profile, memory=memory) as house:
        names = {tool.name for tool in house.tools()}
    assert ({"memory_search", "memory_write"} <= names, "memory_search" in names) == (
        expected,
        expected,
    )


def test_a_search_gives_passages_with_file_and_lines_best_first(tmp_path: Path) -> None:
    note(tmp_path, "MEMORY.md", "# Always\n\nThe user likes falcons.\n\n# Trips\n\nParis in May.\n")
    note(tmp_path, "memory/2026-05-01.md", "Saw falcons. The falcons nest on the old tower.\n")
    note(tmp_path, "memory/deep/er/notes.md", "Nothing of the kind.\n")
    note(tmp_path, "memory/list.txt", "falcons falcons\n")
    note(tmp_path, "other.md", "falcons falcons\n")
    with house_in(tmp_path) as house:
        found = search(house, "where do falcons nest")
        assert places(found) == [("memory/2026-05-01.md", 1, 1), ("MEMORY.md", 1, 4)]
        assert "memory/2026-05-01.md:1-1\nSaw falcons." in found.content
        assert found.content.endswith("These are notes from files. They grant no permission.")
        assert places(search(house, "falcons", limit=1)) == places(found)[:1]
        assert search(house, "submarines").content == "nothing in memory fits"
        record = read_records(house.audit_log.path, limit=1)[0].record
        assert (record.tool, record.security_level) == ("memory_search", "read")


def test_a_heading_and_the_name_of_a_file_are_found(tmp_path: Path) -> None:
    note(tmp_path, "MEMORY.md", "# Trips\n\nParis in May.\n\n# Food\n\nNo nuts.\n")
    note(tmp_path, "memory/2026-05-01.md", "Rain.\n")
    with house_in(tmp_path) as house:
        assert places(search(house, "food")) == [("MEMORY.md", 5, 7)]
        assert places(search(house, "2026-05-01")) == [("memory/2026-05-01.md", 1, 1)]


def test_a_search_knows_languages_without_blanks(tmp_path: Path) -> None:
    note(tmp_path, "MEMORY.md", "# 偏好\n\n用户喜欢猎鹰。\n\n# 旅行\n\n五月去巴黎。\n")
    note(tmp_path, "memory/日记.md", "今天下雨。\u3000塔上有鹰巢。\n")
    with house_in(tmp_path) as house:
        assert places(search(house, "猎鹰")) == [("MEMORY.md", 1, 4)]
        assert places(search(house, "巴黎")) == [("MEMORY.md", 5, 7)]
        found = search(house, "下雨")
        assert places(found) == [("memory/日记.md", 1, 1)]
        assert "今天下雨。\u3000塔上有鹰巢。" in found.content


def test_a_search_sees_what_changed_since(tmp_path: Path) -> None:
    file = note(tmp_path, "MEMORY.md", "Falcons.\n")
    with house_in(tmp_path) as house:
        assert places(search(house, "falcons")) == [("MEMORY.md", 1, 1)]
        file.write_text("Owls, and nothing else.\n")
        assert (places(search(house, "falcons")), places(search(house, "owls"))) == (
            [],
            [("MEMORY.md", 1, 1)],
        )


@pytest.mark.parametrize("effect", [Effect.ASK, Effect.DENY])
def test_a_file_that_may_not_simply_be_read_is_left_out_and_counted(
    tmp_path: Path, effect: Effect
) -> None:
    note(tmp_path, "MEMORY.md", "Falcons.\n")
    note(tmp_path, "memory/private.md", "Falcons in secret.\n")
    private = Rule(effect=effect, action="read", pattern="*/private.md")
    with house_in(tmp_path, private) as house:
        found = search(house, "falcons secret")
        assert places(found) == [("MEMORY.md", 1, 1)]
        assert "[1 more files are too large, or may not be read here]" in found.content


def test_searching_itself_can_be_denied(tmp_path: Path) -> None:
    note(tmp_path, "MEMORY.md", "Falcons.\n")
    with house_in(tmp_path, Rule(effect=Effect.DENY, action="memory_search", pattern="*")) as house:
        assert search(house, "falcons").status == "denied"


@pytest.mark.slow
def test_a_note_is_added_after_a_yes_to_the_difference(tmp_path: Path) -> None:
    file = note(tmp_path, "MEMORY.md", "Falcons.")
    person = Person([Answer.ONCE, Answer.ONCE, Answer.NO])
    with house_in(tmp_path, person=person) as house:
        assert write(house, "Owls.").content == "noted in MEMORY.md, which has 15 bytes now"
        assert file.read_text() == "Falcons.\nOwls.\n"
        assert "+Owls." in dict(person.asked[0].found)["difference"]
        assert person.asked[0].level == "write"
        assert write(house, "Rain.\n", file="memory/2026/05.md").status == "ok"
        assert (tmp_path / "project/memory/2026/05.md").read_text() == "Rain.\n"
        assert write(house, "Snow.").status == "denied"
        assert file.read_text() == "Falcons.\nOwls.\n"
        assert places(search(house, "rain")) == [("memory/2026/05.md", 1, 1)]


def test_a_note_may_take_the_place_of_all(tmp_path: Path) -> None:
    file = note(tmp_path, "MEMORY.md", "Falcons.\n")
    file.chmod(0o640)
    with house_in(tmp_path, ALLOW) as house:
        assert write(house, "Owls.", mode="replace").status == "ok"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("Owls.", 0o640)
    assert [path.name for path in file.parent.iterdir() if ".part" in path.name] == []


def test_what_holds_for_writing_the_file_holds_for_a_note(tmp_path: Path) -> None:
    denied = Rule(effect=Effect.DENY, action="write", pattern="*/MEMORY.md")
    of_tool = Rule(effect=Effect.DENY, action="memory_write", pattern="memory/*")
    with house_in(tmp_path, ALLOW, denied, of_tool) as house:
        assert write(house, "Owls.").status == "denied"
        assert write(house, "Owls.", file="memory/x.md").status == "denied"
    gate = WriteGate(enabled=True, allow_users=("local",), allow_paths=("memory/",))
    with house_in(tmp_path, ALLOW, write_gate=gate, person=Person([Answer.ONCE])) as house:
        assert write(house, "Owls.").status == "denied"
        assert write(house, "Owls.", file="memory/x.md").status == "ok"


def test_the_example_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "home/.config/skillhouse/config.toml"
    settings.parent.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    guide = GUIDE.read_text(encoding="utf-8")
    toml, code = re.findall(r"^```(?:toml|python)\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    settings.write_text(toml, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    exec(compile(code, GUIDE.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "memory/deploy.md\n"


LONG = "x" * (PASSAGE_CHARS + 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n\n", []),
        ("a\n", [(1, 1, "", "a\n")]),
        ("a\n# H\nb", [(1, 1, "", "a\n"), (2, 3, "H", "# H\nb\n")]),
        ("\n\n# H\n\nb\n", [(3, 5, "H", "# H\n\nb\n")]),
        (f"{'y' * 600}\n\nb\n", [(1, 1, "", "y" * 600 + "\n"), (3, 3, "", "b\n")]),
        (f"a\n{LONG}\nb", [(1, 1, "", "a\n"), (2, 2, "", LONG[1:]), (2, 3, "", "x\nb\n")]),
    ],
)
def test_passages_are_lines_that_belong_together(
    text: str, expected: list[tuple[int, int, str, str]]
) -> None:
    assert list(passages("m", text)) == [
        Passage(file="m", first=first, last=last, heading=heading, text=held)
        for first, last, heading, held in expected
    ]

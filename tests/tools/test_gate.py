"""Tests of tools/gate.py: look up, check, decide, ask, record, run, record."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records, verify_log
from skillhouse.permission import Effect, Rule
from skillhouse.tools import UnknownToolError
from tests.house.places import write_skill
from tests.tools.houses import Person, house_at

ALLOW_WRITE = Rule(effect=Effect.ALLOW, action="write", pattern="*")


def statuses(house: Any) -> list[tuple[str, str, str]]:
    entries = read_records(house.audit_log.path, newest_first=False)
    return [(entry.record.kind, entry.record.tool, entry.status) for entry in entries]


def test_an_allowed_read_has_an_intent_and_an_outcome(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/a.txt").write_text("one\ntwo\n")
        result = house.call_sync("read", {"path": "a.txt"})
        assert (result.status, result.content) == ("ok", "one\ntwo\n")
        assert statuses(house) == [("intent", "read", "ok")]
        assert verify_log(house.audit_log.path).problems == ()


def test_an_unknown_tool_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with house_at(tmp_path) as house, pytest.raises(UnknownToolError, match="mean `read`"):
        house.call_sync("raed", {"path": "a.txt"})


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("read", {"pth": "a"}, "`read` has no argument `pth`; did you mean `path`"),
        ("read", {}, "wrong argument of `read`: it lacks `path`: expected text (not empty)"),
        ("read", {"path": 3}, "wrong argument `path` of `read`: expected text (not empty)"),
        (
            "read",
            {"path": "a", "offset": 0},
            "wrong argument `offset` of `read`: expected a whole number (at least 1), got `0`",
        ),
        ("skill", {"name": "wether"}, "wrong argument `name` of `skill`: expected `"),
        (
            "exec",
            {"command": "ls", "params": "-l"},
            "wrong argument `params` of `exec`: expected a list, each text, got `-l`",
        ),
        ("write", {"path": "a", "content": float("nan")}, "are not JSON values"),
        ("write", {"path": "a", "content": object()}, "are not JSON values"),
    ],
)
def test_bad_arguments_are_an_answer_and_nothing_happens(
    tmp_path: Path, tool: str, arguments: dict[str, Any], message: str
) -> None:
    with house_at(tmp_path) as house:
        result = house.call_sync(tool, arguments)
        assert result.status == "error"
        assert message in result.content


@pytest.mark.slow
@pytest.mark.under("owliabot")
@pytest.mark.req("S000-56", "S001-67")
def test_a_denied_command_is_refused_recorded_and_says_its_rule(tmp_path: Path) -> None:
    deny = Rule(effect=Effect.DENY, action="exec", pattern="rm *", reason="use the bin")
    person = Person([Answer.ONCE])
    with house_at(tmp_path, deny, person=person) as house:
        result = house.call_sync("exec", {"command": "rm", "params": ["-rf", "/"]})
        assert (result.status, result.content) == (
            "denied",
            "denied: rule `exec rm *` of user policy: use the bin",
        )
        assert person.asked == []
        assert statuses(house) == [("refusal", "exec", "denied")]


def test_without_anybody_to_ask_an_ask_is_a_refusal(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        result = house.call_sync("write", {"path": "a.txt", "content": "x"})
        assert result.status == "denied"
        assert not (tmp_path / "project/a.txt").exists()
        assert statuses(house) == [("refusal", "write", "denied")]


@pytest.mark.slow
def test_a_line_that_only_a_shell_can_run_is_asked_about_and_no_rule_is_named(
    tmp_path: Path,
) -> None:
    with house_at(tmp_path) as house:
        result = house.call_sync("exec", {"command": "echo $(id)"})
        assert result.status == "denied"
        assert "would let it through" not in result.content


@pytest.mark.slow
@pytest.mark.under("opencode")
@pytest.mark.req("S001-52", "S001-66")
def test_a_yes_holds_once(tmp_path: Path) -> None:
    person = Person([Answer.ONCE])
    with house_at(tmp_path, person=person) as house:
        assert house.call_sync("write", {"path": "a.txt", "content": "x"}).status == "ok"
        assert house.call_sync("write", {"path": "a.txt", "content": "y"}).status == "denied"
        assert (tmp_path / "project/a.txt").read_text() == "x"
        assert len(person.asked) == 2
        assert person.asked[0].content_digest != person.asked[1].content_digest


@pytest.mark.slow
@pytest.mark.under("opencode")
@pytest.mark.req("S001-65", "S001-70")
def test_an_always_covers_its_directory_and_never_a_deny(tmp_path: Path) -> None:
    with house_at(tmp_path, person=Person([Answer.ALWAYS])) as house:
        assert house.call_sync("write", {"path": "notes/a.txt", "content": "x"}).status == "ok"
    with house_at(tmp_path) as again:
        assert again.call_sync("write", {"path": "notes/b.txt", "content": "x"}).status == "ok"
        assert again.call_sync("write", {"path": "other.txt", "content": "x"}).status == "denied"
    deny = Rule(effect=Effect.DENY, action="write", pattern="*")
    with house_at(tmp_path, deny) as strict:
        assert strict.call_sync("write", {"path": "notes/b.txt", "content": "y"}).status == "denied"


@pytest.mark.slow
@pytest.mark.file_state
def test_a_grant_of_another_workspace_does_not_count(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with house_at(tmp_path / "one", person=Person([Answer.PROJECT])) as house:
        assert house.call_sync("write", {"path": "a.txt", "content": "x"}).status == "ok"
        state = house.config.state_directory
    with house_at(tmp_path / "two") as other:
        shutil.copytree(state, other.config.state_directory)
        assert other.call_sync("write", {"path": "a.txt", "content": "x"}).status == "denied"


@pytest.mark.req("S001-43", "S001-50", "S001-51")
def test_a_denied_skill_cannot_be_loaded_by_any_tool(tmp_path: Path) -> None:
    secret = write_skill(tmp_path / "skills/secret", body="THE BODY\n")
    deny = Rule(effect=Effect.DENY, action="skill", pattern="secret")
    with house_at(tmp_path, deny, roots=[tmp_path / "skills"]) as house:
        for call in (
            ("skill", {"name": "secret"}),
            ("read", {"path": str(secret / "SKILL.md")}),
            ("search_skills", {"query": "secret"}),
        ):
            assert "THE BODY" not in house.call_sync(*call).content


@pytest.mark.req("S001-53", "S001-54", "S001-55", "S000-50")
def test_a_loaded_skill_gives_its_body_its_directory_and_its_files(tmp_path: Path) -> None:
    pdf = write_skill(tmp_path / "skills/pdf", body="Fill it.\n")
    (pdf / "references").mkdir()
    (pdf / "references/guide.md").write_text("guide\n")
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        guide = {"path": str(pdf / "references/guide.md")}
        assert house.call_sync("read", guide).status == "denied"
        result = house.call_sync("skill", {"name": "pdf"})
        for expected in ("Fill it.", f"Skill directory: {pdf}", "- references/guide.md"):
            assert expected in result.content
        assert house.call_sync("read", guide).content == "guide\n"


@pytest.mark.under("owliabot")
@pytest.mark.req("S000-48")
def test_every_listed_location_can_be_read_whole(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills/pdf")
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        for skill in house.view().visible.skills:
            result = house.call_sync("read", {"path": skill.file})
            assert (result.status, result.content) == ("ok", skill.location.read_text())


@pytest.mark.slow
def test_a_skill_of_the_workspace_is_that_skill_however_its_path_is_written(
    tmp_path: Path,
) -> None:
    directory = write_skill(tmp_path / "project/.agents/skills/pdf", body="OLD\n")
    with house_at(tmp_path) as house:
        house.project_trust.trust()
        write_skill(directory, body="NEW BODY\n")
        (tmp_path / "project/link").symlink_to(directory)
        for path in (
            str(directory / "SKILL.md"),
            ".agents/skills/pdf/SKILL.md",
            "./.agents//skills/pdf/SKILL.md",
            "link/SKILL.md",
        ):
            result = house.call_sync("read", {"path": path})
            assert (result.status, "NEW BODY" in result.content) == ("denied", False)


def test_two_agents_see_different_skills_and_rules(tmp_path: Path) -> None:
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[[agents.reviewer.rules]]\neffect = "deny"\naction = "skill"\npattern = "github"\n'
    )
    with house_at(tmp_path) as house:
        names = {tool.name for tool in house.tools(agent="reviewer")}
        assert "skill" in names
        assert "github" in house.catalog().text
        assert "github" not in house.catalog(agent="reviewer").text
        refused = house.call_sync("skill", {"name": "github"}, agent="reviewer")
        assert refused.status == "error"
        assert house.call_sync("skill", {"name": "github"}).status == "ok"


def test_without_skills_there_is_no_tool_for_them(tmp_path: Path) -> None:
    deny = Rule(effect=Effect.DENY, action="skill", pattern="*")
    with house_at(tmp_path, deny) as house:
        names = {tool.name for tool in house.tools()}
        assert {"read", "list", "write", "edit", "exec"} <= names
        assert not {"skill", "search_skills"} & names


def test_a_log_that_cannot_be_written_stops_writes_and_lets_reads_go_on(tmp_path: Path) -> None:
    with house_at(tmp_path, ALLOW_WRITE) as house:
        house.audit_log.path.parent.mkdir(parents=True, exist_ok=True)
        house.audit_log.path.mkdir()
        (tmp_path / "project/a.txt").write_text("text")
        result = house.call_sync("write", {"path": "b.txt", "content": "x"})
        assert result.status == "denied"
        assert result.content.startswith("nothing was done: ")
        assert not (tmp_path / "project/b.txt").exists()
        assert house.call_sync("read", {"path": "a.txt"}).content == "text"


def test_a_failing_tool_is_a_result_without_traceback(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/b.bin").write_bytes(b"\xff\xfe")
        for arguments in ({"path": "none.txt"}, {"path": "b.bin"}, {"path": "."}):
            result = house.call_sync("read", arguments)
            assert result.status == "error"
            assert "Traceback" not in result.content


def test_secrets_in_arguments_do_not_reach_the_log(tmp_path: Path) -> None:
    key = "sk-ant-" + "a1" * 20
    with house_at(tmp_path, ALLOW_WRITE) as house:
        house.call_sync("write", {"path": "a.txt", "content": f"key={key}"})
        assert key not in house.audit_log.path.read_text()


def test_ten_threads_share_one_house(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        (tmp_path / "project/a.txt").write_text("text")
        results: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: results.append(house.call_sync("read", {"path": "a.txt"}).content)
            )
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == ["text"] * 10
        assert verify_log(house.audit_log.path).problems == ()


def test_the_schemas_are_json(tmp_path: Path) -> None:
    with house_at(tmp_path) as house:
        for tool in house.tools():
            assert json.loads(json.dumps(tool.schema))["additionalProperties"] is False

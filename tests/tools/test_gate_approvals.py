"""Tests of tools/gate.py and tools/question.py: calls that a person is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import (
    Answer,
    ApprovalRequest,
    ApprovalSettings,
    Asked,
    Pattern,
    Reply,
    canonical,
    content_digest,
)
from skillhouse.audit import read_records
from skillhouse.floor import structs
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Decision, Effect, Layer, Permission, Rule
from skillhouse.tools import (
    Output,
    PermissionRequest,
    Plan,
    Session,
    Tool,
    ToolCall,
    ToolResult,
)
from skillhouse.tools.call import object_schema
from skillhouse.tools.command_inputs import CommandInputs
from tests.house.places import make_places, write_skill
from tests.tools.gates import gate_to
from tests.tools.houses import Person, house_at

WRITE = ("write", {"path": "notes/a.txt", "content": "x"})


def unattended(base: Path, *rules: Rule, **values: Any) -> Skillhouse:
    """Return a house where questions wait to be answered elsewhere."""
    layers = (Layer(name="user", rules=rules),)
    values.setdefault("approvals", ApprovalSettings(unattended="pending"))
    return Skillhouse(configured(make_places(base)), layers=layers, **values)


def answer(house: Skillhouse, approval_id: str | None, word: Answer, **values: Any) -> None:
    found = house.approvals.get(approval_id or "")
    given = {"by": "local", "channel": "cli", "nonce": found.request.nonce, **values}
    house.approvals.answer(found.id, word, **given)


def details(house: Skillhouse) -> list[tuple[str, str, Mapping[str, object]]]:
    entries = read_records(house.audit_log.path, newest_first=False)
    return [(e.record.kind, e.status, e.record.detail) for e in entries]


def test_a_call_waits_for_an_answer_from_elsewhere_and_then_runs_once(tmp_path: Path) -> None:
    with unattended(tmp_path) as house:
        asked = house.call_sync(*WRITE)
        assert (asked.status, asked.is_error) == ("pending", True)
        assert f"ask the user to approve {asked.approval_id}" in asked.content
        assert not (tmp_path / "project/notes").exists()
        answer(house, asked.approval_id, Answer.ONCE)
        assert house.call_sync(*WRITE, approval_id=asked.approval_id).status == "ok"
        again = house.call_sync(*WRITE, approval_id=asked.approval_id)
        assert (again.status, "was used already" in again.content) == ("denied", True)
        assert house.call_sync(*WRITE).approval_id != asked.approval_id


@pytest.mark.slow
def test_the_same_call_finds_its_answer_in_another_process(tmp_path: Path) -> None:
    with unattended(tmp_path) as house:
        asked = house.call_sync(*WRITE, channel="mcp")
    with unattended(tmp_path) as other:
        answer(other, asked.approval_id, Answer.ONCE)
        assert other.call_sync(*WRITE, channel="library").status == "pending"
        assert other.call_sync(*WRITE, channel="mcp", user="robin").status == "pending"
        assert other.call_sync(*WRITE, channel="mcp").status == "ok"
        assert other.call_sync(*WRITE, channel="mcp").status == "pending"


@pytest.mark.slow
@pytest.mark.under("opencode")
@pytest.mark.req("S001-67")
def test_the_log_says_which_approval_who_answered_and_where(tmp_path: Path) -> None:
    with unattended(tmp_path) as house:
        asked = house.call_sync(*WRITE)
        answer(house, asked.approval_id, Answer.ONCE)
        house.call_sync(*WRITE)
        answer(house, house.call_sync(*WRITE).approval_id, Answer.NO, message="not there")
        refused = house.call_sync(*WRITE)
        assert "refused: not there" in refused.content
        (pending, run, _, given, no) = details(house)
        assert pending[:2] == ("refusal", "pending")
        assert pending[2]["approval"] == asked.approval_id
        assert run == (
            "intent",
            "ok",
            {
                "approval": asked.approval_id,
                "answer": "once",
                "answered_by": "local",
                "answered_on": "cli",
            },
        )
        # The denial itself, and the call that was made again.
        assert given[:2] == no[:2] == ("refusal", "denied")
        assert (no[2]["answer"], no[2]["answered_on"]) == ("no", "cli")


@pytest.mark.slow
@pytest.mark.parametrize("word", [Answer.SESSION, Answer.PROJECT, Answer.ALWAYS])
@pytest.mark.under("opencode")
@pytest.mark.req("S001-65", "S001-70")
def test_what_a_lasting_yes_lets_pass(tmp_path: Path, word: Answer) -> None:
    person = Person([word])
    like_it = ("write", {"path": "notes/b.txt", "content": "y"})
    with house_at(tmp_path, person=person) as house:
        assert house.call_sync(*WRITE).status == "ok"
        assert house.call_sync(*like_it).status == "ok"
        assert len(person.asked) == 1
        here = house.call_sync(*like_it, channel="mcp").status
        assert here == ("denied" if word is Answer.SESSION else "ok")
        assert house.call_sync(*like_it, user="robin").status == "denied"
    with house_at(tmp_path) as later:
        there = later.call_sync(*like_it).status
        assert there == ("denied" if word is Answer.SESSION else "ok")
    deny = Rule(effect=Effect.DENY, action="write", pattern="*")
    with house_at(tmp_path, deny) as strict:
        assert strict.call_sync(*like_it).status == "denied"


def test_a_lasting_yes_ends(tmp_path: Path) -> None:
    with house_at(tmp_path, person=Person([Answer.ALWAYS])) as house:
        assert house.call_sync(*WRITE).status == "ok"
        store = house.approvals.grant_store
        store.add([structs.replace(grant, expires_ms=1) for grant in store.all()])
        assert house.call_sync(*WRITE).status == "denied"


@pytest.mark.slow
def test_a_shell_line_and_a_skill_without_digest_have_no_lasting_yes(tmp_path: Path) -> None:
    linked = write_skill(tmp_path / "skills/linked")
    (linked / "away").symlink_to(tmp_path)
    ask = Rule(effect=Effect.ASK, action="skill", pattern="*")
    person = Person()
    with house_at(tmp_path, ask, person=person, roots=[tmp_path / "skills"]) as house:
        house.call_sync("exec", {"command": "bash", "params": ["-c", "ls $((1))"]})
        house.call_sync("skill", {"name": "linked"})
        house.call_sync("exec", {"command": "bash", "params": ["-c", "ls"]})
        house.call_sync("exec", {"command": "ls"})
    shell, skill, inner, plain = (request.always for request in person.asked)
    assert (shell, skill) == ((), ())
    assert inner == plain != ()


@pytest.mark.under("opencode")
@pytest.mark.req("S001-60")
def test_what_is_asked_is_made_from_the_bytes_that_are_bound(tmp_path: Path) -> None:
    person = Person()
    with house_at(tmp_path, person=person) as house:
        house.call_sync(*WRITE)
    (request,) = person.asked
    project = str(tmp_path / "project")
    assert request.asked == (Asked(action="write", resource=f"{project}/notes/a.txt"),)
    assert request.patterns == (Pattern(action="write", pattern=f"{project}/notes/"),)
    assert request.always == (f"write {project}/notes/ (files directly in it)",)
    assert request.content_digest == content_digest(request.content)
    assert request.content == canonical(
        {
            "tool": "write",
            "arguments": {"path": "notes/a.txt", "content": "x"},
            "needs": [
                {
                    "action": "write",
                    "resource": f"{project}/notes/a.txt",
                    "argv": [],
                    "skill_digest": "",
                }
            ],
            "files": {},
            "shown": [["difference", "a new file of 1 bytes: `notes/a.txt`"]],
            "level": "write",
            "cwd": project,
            "agent": "default",
            "user": "local",
            "channel": "library",
        }
    )


class Transfer(Tool):
    """A tool that signs, or depends on a file, as its plan says."""

    name = "transfer"
    description = "Sends money."
    durable = True
    schema: Mapping[str, Any] = object_schema({"to": {"type": "string"}})

    def __init__(self, plan: Callable[[], Mapping[str, Any]]) -> None:
        self.ran = 0
        self._values = plan

    def plan(self, arguments: Mapping[str, Any], session: Any) -> Plan:
        async def run() -> Output:
            self.ran += 1
            return Output(text="sent")

        values = dict(self._values())
        permission = Permission(action="sign", resource=arguments["to"])
        need = PermissionRequest(
            permission=permission, default=Effect.ASK, why="signing", level=values.pop("level")
        )
        return Plan(needs=(need,), run=run, **values)


def caller_of(house: Skillhouse, tool: Transfer) -> Callable[..., ToolResult]:
    """Return a way to call a tool of the test's own, with the house's approvals and log."""
    gate = gate_to(
        tool,
        decide=lambda need, _: (Decision(effect=need.default, layer="default"), need.why),
        approvals=house.approvals,
        audit=house.audit_log,
        workspace_root=house.policy.place,
    )
    session = Session(
        agent="default",
        user="local",
        channel="library",
        visible=house.view().visible,
        skill_need=house.policy.skill_need,
    )

    def call(approval_id: str = "") -> ToolResult:
        wanted = ToolCall(name="transfer", arguments={"to": "robin"}, approval_id=approval_id)
        return anyio.run(gate.call, wanted, session)

    return call


def test_what_signs_is_decided_on_the_page_only(tmp_path: Path) -> None:
    person = Person([Answer.ONCE, Answer.ALWAYS])
    tool = Transfer(lambda: {"level": "sign"})
    with house_at(tmp_path, person=person) as house:
        call = caller_of(house, tool)
        asked = call()
        # The caller's own channel said yes, and it did not count.
        assert (asked.status, tool.ran, len(person.asked)) == ("pending", 0, 1)
        assert person.asked[0].always == ()
        answer(house, asked.approval_id, Answer.ONCE, channel="page")
        assert (call().status, tool.ran) == ("ok", 1)


def test_a_file_that_changed_between_the_answer_and_the_use_is_asked_about_anew(
    tmp_path: Path,
) -> None:
    file = {"run.py": "sha256:old"}
    inputs = lambda: CommandInputs(files=dict(file))  # noqa: E731 - what they are at that moment.
    tool = Transfer(lambda: {"level": "write", "inputs": inputs})
    with unattended(tmp_path) as house:
        call = caller_of(house, tool)
        asked = call()
        answer(house, asked.approval_id, Answer.ONCE)
        file["run.py"] = "sha256:new"
        assert (call().status, tool.ran) == ("pending", 0)
        stale = call(approval_id=asked.approval_id)
        assert (stale.status, tool.ran) == ("pending", 0)
        assert "changed since the earlier question: run.py" in stale.content
        file["run.py"] = "sha256:old"
        assert (call(approval_id=asked.approval_id).status, tool.ran) == ("ok", 1)


def test_a_call_is_worked_out_anew_after_the_answer(tmp_path: Path) -> None:
    file = {"run.py": "sha256:old"}

    asked = []

    class Slow:
        async def ask(self, request: ApprovalRequest) -> Reply:
            asked.append(dict(request.found).get("changed since the earlier question"))
            file["run.py"] += "x"  # While the person thinks.
            return Reply(answer=Answer.ONCE, by="local", channel="terminal")

    inputs = lambda: CommandInputs(files=dict(file))  # noqa: E731 - what they are at that moment.
    tool = Transfer(lambda: {"level": "write", "inputs": inputs})
    with unattended(tmp_path, channel=Slow()) as house:
        refused = caller_of(house, tool)()
        assert (refused.status, tool.ran) == ("denied", 0)
        assert "changes all the time" in refused.content
        assert asked == [None, "run.py", "run.py"]


@pytest.mark.under("claude-desktop")
@pytest.mark.req("S004-48")
def test_a_question_about_a_skill_has_the_published_title_pattern_and_ids(tmp_path: Path) -> None:
    write_skill(tmp_path / "home/.claude/skills/pdf")
    ask = Rule(effect=Effect.ASK, action="skill", pattern="pdf")
    with unattended(tmp_path, ask, profile="claude-desktop") as house:
        ids: dict[str, Any] = {"session_id": "s1", "message_id": "m2", "call_id": "c3"}
        (skill,) = [skill for skill in house.view().visible.skills if skill.name == "pdf"]
        asked = house.call_sync("skill", {"skill": skill.id}, **ids)
        assert asked.status == "pending"
        request = house.approvals.get(asked.approval_id or "").request
        assert request.title == "Load skill: pdf"
        assert (request.asked[0].action, request.asked[0].resource) == ("skill", "pdf")
        assert dict(request.found)["asks for"] == "skill/pdf"
        found = (request.session_id, request.message_id, request.call_id)
        assert found == ("s1", "m2", "c3")
        # They bind nothing: the same call of a later message finds its question.
        again = house.call_sync("skill", {"skill": skill.id}, session_id="s1", message_id="m4")
        assert again.approval_id == asked.approval_id
        # One record a question, of the call that opened it.
        (entry, *rest) = read_records(house.audit_log.path)
        assert (entry.record.session, entry.record.request, rest) == ("s1", "m2", [])


@pytest.mark.req("S001-52", "S004-49", "S004-53")
def test_an_asked_skill_is_loaded_after_a_yes_only(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills/pdf", body="THE BODY\n")
    write_skill(tmp_path / "skills/txt", body="PLAIN\n")
    ask = Rule(effect=Effect.ASK, action="skill", pattern="pdf")
    person = Person([Answer.NO, Answer.ONCE])
    with house_at(tmp_path, ask, person=person, roots=[tmp_path / "skills"]) as house:
        assert "THE BODY" not in house.call_sync("skill", {"name": "pdf"}).content
        assert "THE BODY" in house.call_sync("skill", {"name": "pdf"}).content
        assert [request.title for request in person.asked] == ["skill: pdf"] * 2
        assert "PLAIN" in house.call_sync("skill", {"name": "txt"}).content
        assert len(person.asked) == 2

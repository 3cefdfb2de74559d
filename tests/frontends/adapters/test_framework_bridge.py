"""The desk that all adapters share: calls never raise, and a yes is about one approval."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.frontends.adapters.houses import FALCONS, answers, open_house, written
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, write_code
from tests.tools.gates import gate_to

from skillhouse.approval import OWNER, Answer
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge, KeptResult
from skillhouse.house import Skillhouse
from skillhouse.permission import Decision, Effect, Permission, Rule
from skillhouse.tools import (
    Output,
    PermissionRequest,
    Plan,
    Session,
    Tool,
    ToolResult,
)
from skillhouse.tools.call import object_schema

WRITE = {"path": "poem.txt", "content": "Rain.\n"}


def desk(house: Skillhouse, **more: object) -> FrameworkBridge:
    return FrameworkBridge(house=house, channel="some-framework", **more)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_yes_lets_the_call_run_once(tmp_path: Path):
    with open_house(tmp_path) as house:
        at = desk(house)

        async def go() -> tuple[ToolResult, ToolResult, ToolResult]:
            first = await at.call("write", WRITE)
            assert first.approval_id is not None
            second = await at.allowed("write", WRITE, first.approval_id)
            return first, second, await at.allowed("write", WRITE, first.approval_id)

        first, second, third = anyio.run(go)
        assert (first.status, second.status, third.status) == ("pending", "ok", "pending")
        assert written(tmp_path) == "Rain.\n"
        assert answers(house) == [
            ("write", "used", "once", "some-framework"),
            ("write", "open", "", ""),
        ]


def test_a_no_is_kept_with_its_words(tmp_path: Path):
    with open_house(tmp_path) as house:
        at = desk(house)
        first = at.call_sync("write", WRITE)
        assert first.approval_id is not None
        said = at.refused(first.approval_id, "use another file")
        assert (said.status, said.content) == ("denied", "not approved: refused: use another file")
        assert "use another file" in at.call_sync("write", WRITE).content
        assert written(tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["arguments", "file"])
def test_a_yes_to_what_was_shown_is_not_one_to_what_is_there_now(tmp_path: Path, changed: str):
    with open_house(tmp_path) as house:
        at = desk(house)
        script = tmp_path / "project/run.sh"
        script.write_text("true\n")
        arguments = {"command": "sh", "params": ["run.sh"]}
        shown = at.call_sync("exec", arguments)
        assert shown.approval_id is not None
        if changed == "file":
            script.write_text("touch poem.txt\n")
        else:
            arguments = {"command": "sh", "params": ["-c", "touch poem.txt"]}
        now = at.allowed_sync("exec", arguments, shown.approval_id)
        assert now.status == "pending"
        assert now.approval_id != shown.approval_id
        assert written(tmp_path) is None
        assert [state for _, state, _, _ in answers(house)] == ["open", "open"]


def test_a_yes_to_another_call_of_the_same_user_is_not_given(tmp_path: Path):
    """A client that answers with another id than it was asked about opens nothing with it."""
    with open_house(tmp_path) as house:
        at = desk(house)
        mine = at.call_sync("write", WRITE)
        other = at.call_sync("write", {"path": "other.txt", "content": "x"})
        assert other.approval_id is not None
        assert at.allowed_sync("write", WRITE, other.approval_id) == mine
        assert [state for _, state, _, _ in answers(house)] == ["open", "open"]


def test_an_answer_from_elsewhere_comes_first(tmp_path: Path):
    with open_house(tmp_path) as house:
        at = desk(house)
        found = house.approvals.get(at.call_sync("write", WRITE).approval_id or "")
        nonce = found.request.nonce
        house.approvals.answer(found.id, Answer.NO, by=OWNER, channel="cli", nonce=nonce)
        assert at.allowed_sync("write", WRITE, found.id).status == "denied"
        assert written(tmp_path) is None


def test_what_signs_is_no_question_for_a_framework(tmp_path: Path):
    with SigningHouse(open_house(tmp_path).config) as house:
        at = desk(house)
        asked = at.call_sync("transfer", {"to": "robin"})
        assert (asked.status, at.question(asked)) == ("pending", None)
        assert "on the skillhouse page or a paired device" in asked.content
        # An adapter that gave the answer all the same would not be heard.
        at.allowed_sync("transfer", {"to": "robin"}, asked.approval_id or "")
        assert [state for _, state, _, _ in answers(house)] == ["open"]
        assert house.ran == 0


def test_errors_are_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with open_house(tmp_path, Rule(effect=Effect.DENY, action="exec", pattern="*")) as house:
        at = desk(house)
        calls = {
            "unknown tool `skil`": at.call_sync("skil", {}),
            "has no argument `nam`": at.call_sync("skill", {"nam": "kestrel"}),
            "expected `kestrel`": at.call_sync("skill", {"name": "robin"}),
            "denied: ": at.call_sync("exec", {"command": "true"}),
            "unknown agent `nobody`": anyio.run(
                desk(house, agent="nobody").call, "skill", {"name": "kestrel"}
            ),
        }
        for words, result in calls.items():
            assert words in result.content
            assert result.is_error
        house.close()
        broken = FrameworkBridge(house=Broken(house.config), channel="x")
        assert broken.call_sync("skill", {}).content == "the call failed inside skillhouse"
        assert anyio.run(broken.call, "skill", {}).status == "error"
        assert "secret" in caplog.text


def test_tools_fit_every_provider(tmp_path: Path):
    with open_house(tmp_path) as house:
        shown = desk(house).tools()
        assert [tool.name for tool in shown] == [tool.name for tool in house.tools()]
        for tool in shown:
            assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", tool.name)
            assert tool.schema["type"] == "object"
            assert json.loads(json.dumps(tool.schema)) == tool.schema
        assert "".join(tool.description for tool in shown).count(FALCONS) == 1
        assert desk(house).prompt() == ""
        assert FALCONS in desk(house).prompt([])


def test_a_question_says_what_would_happen_and_why(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        at = desk(house)
        asked = at.call_sync("write", {"path": "caf\u00e9.txt", "content": "Rain.\n"})
        assert at.question(asked) == {
            "approval_id": asked.approval_id,
            "tool": "write",
            "title": f"write: {tmp_path / 'project/café.txt'}",
            "reasons": ["no rule matches; writing asks by default"],
            "facts": {
                "found": [["difference", "a new file of 6 bytes: `café.txt`"]],
                "sent": [["path", "café.txt"], ["content", "Rain.\n"]],
            },
        }
        assert at.question(at.call_sync("skill", {"name": "kestrel"})) is None


def test_what_a_framework_does_to_a_schema_stays_with_it(tmp_path: Path) -> None:
    with open_house(tmp_path) as house:
        for tool in desk(house).tools():
            tool.schema["properties"].clear()
        assert all(tool.schema["properties"] for tool in desk(house).tools())


def test_nobody_is_asked_where_the_framework_is_not_to(tmp_path: Path):
    with open_house(tmp_path) as house:
        at = desk(house, ask=False)
        result = at.call_sync("write", WRITE)
        assert at.question(result) is None
        assert f"ask the user to approve {result.approval_id}" in result.content


@pytest.mark.slow
def test_a_forecast_about_git_does_not_hold_up_other_calls(tmp_path: Path, bwrap: None, git: None):
    """It asks git in several sandboxes what the command would write."""
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="git *")
    with open_house(tmp_path, rule) as house:
        shutil.rmtree(tmp_path / "project/.git", ignore_errors=True)
        subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
        turns = 0

        async def main() -> bool:
            nonlocal turns

            async def others() -> None:
                nonlocal turns
                while True:
                    await anyio.sleep(0.001)
                    turns += 1

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(others)
                found = await desk(house).may_ask("exec", {"command": "git pull"})
                tasks.cancel_scope.cancel()
            return found

        assert anyio.run(main)
        assert turns > 2


@pytest.mark.parametrize(
    ("effect", "arguments", "expected"),
    [
        (Effect.ALLOW, WRITE, False),
        (Effect.ASK, WRITE, True),
        (Effect.DENY, WRITE, True),
        (Effect.ALLOW, {"nothing": 1}, True),
    ],
)
def test_a_forecast_does_and_records_nothing(
    tmp_path: Path, effect: Effect, arguments: dict[str, object], expected: bool
):
    with open_house(tmp_path, Rule(effect=effect, action="write", pattern="*")) as house:
        assert anyio.run(desk(house).may_ask, "write", arguments) is expected
        assert not anyio.run(desk(house).may_ask, "list", {})
        assert written(tmp_path) is None
        assert answers(house) == []
        assert not (house.config.state_directory / "audit.jsonl").exists()


def test_the_oldest_calls_are_forgotten_first():
    kept = KeptResult[int]()
    for number in range(KeptResult.MAX + 1):
        kept.keep(str(number), number)
    kept.keep(None, 5)
    assert (kept.take("0"), kept.take("1"), kept.take("1"), kept.take(None)) == (
        None,
        1,
        None,
        None,
    )


class Broken(Skillhouse):
    """A house whose calls fail in a way that nobody foresaw."""

    async def call(self, *_: Any, **__: Any) -> ToolResult:
        raise ValueError("secret")


class Transfer(Tool):
    """A tool that signs."""

    name = "transfer"
    description = "Send money."
    schema = object_schema({"to": {"type": "string"}})
    durable = True

    def __init__(self, house: SigningHouse) -> None:
        self._house = house

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        async def run() -> Output:
            self._house.ran += 1
            return Output(text="sent")

        permission = Permission(action="sign", resource=arguments["to"])
        need = PermissionRequest(
            permission=permission, default=Effect.ASK, why="signing", level="sign"
        )
        return Plan(needs=(need,), run=run)


class SigningHouse(Skillhouse):
    """A house whose only tool signs, behind the real gate."""

    ran = 0

    async def call(self, name: Any, arguments: Mapping[str, Any], **options: Any) -> Any:
        gate = gate_to(
            Transfer(self),
            decide=lambda need, _: (Decision(effect=need.default, layer="default"), need.why),
            approvals=self.approvals,
            audit=self.audit_log,
            workspace_root=self.policy.place,
        )
        approval_id = options["approval_id"]
        call = options["caller"].tool_call(name, arguments, approval_id=approval_id)
        session = self.services.sessions.get(
            call.agent, call.user, call.channel, self.view().visible
        )
        return await gate.call(call, session)


CHARTS = """
    def tool(params, context):
        for at in range(params["count"]):
            (context.output / f"chart-{at}.png").write_bytes(b"png")
        return "drawn"

    tools = {"tool": tool}
"""


@pytest.mark.slow
def test_a_model_of_a_framework_hears_of_kept_files_by_name(tmp_path: Path, need: Need) -> None:
    write_code(tmp_path / "skills/kite", CHARTS)
    with coded_house(tmp_path, tmp_path / "skills", status=best_sandbox(need)) as house:
        bridge = desk(house)
        texts = [bridge.call_sync("kite:tool", {"count": count}).content for count in (0, 1, 10)]
        called = anyio.run(bridge.call, "kite:tool", {"count": 2})
    names = [f"chart-{at}.png" for at in range(8)]
    assert texts == [
        "drawn",
        "drawn\nkept: chart-0.png",
        f"drawn\nkept: {', '.join(names)}, and 2 more",
    ]
    assert called.content == "drawn\nkept: chart-0.png, chart-1.png"

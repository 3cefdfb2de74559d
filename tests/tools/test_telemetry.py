"""Tests of tools/telemetry.py: what telemetry is told of calls, and what it never is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.extensions.cells import CellResult
from skillhouse.floor import tracing as words
from skillhouse.house import Skillhouse, configured
from skillhouse.house.config import NetSettings
from skillhouse.house.sandbox_provider import SandboxProvider
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import (
    Completed,
    OutputListener,
    SandboxError,
    SandboxLevel,
    SandboxProfile,
    Streams,
)
from skillhouse.skill import SKILL_FILE
from skillhouse.tools.telemetry import code_inside
from tests.golden.places import golden
from tests.harness import Need
from tests.house.coded import best_sandbox, coded_house, write_code
from tests.house.places import make_places, write_skill
from tests.listening import Listener
from tests.net.servers import ok, serving
from tests.remote.mcp_liar import Liar, skill_file
from tests.tools.houses import Person
from tests.tools.test_remote_skills import house_with

SECRET = "sk-0123456789abcdefghij"
RULES = (
    Rule(effect=Effect.ALLOW, action="exec", pattern="*"),
    Rule(effect=Effect.DENY, action="exec", pattern="rm *"),
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class FixedLauncher:
    """Gives answers that are known, without a sandbox."""

    level = SandboxLevel.RLIMITS

    def __init__(self, *answers: Completed | SandboxError) -> None:
        self._answers = list(answers)

    async def run(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        *,
        cwd: Path,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> Completed:
        answer = self._answers.pop(0)
        if isinstance(answer, SandboxError):
            raise answer
        return answer


class FixedCells(SandboxProvider):
    """Cells of a house that has such a launcher."""

    def __init__(self, house: Skillhouse, launcher: FixedLauncher) -> None:
        super().__init__(Path("/nowhere"), house)
        self._fixed = launcher

    async def launcher(self) -> FixedLauncher:
        return self._fixed


def done(code: int | None = 0, limit: str = "") -> Completed:
    return Completed(
        exit_code=code, stdout=b"out", stderr=b"", limit=limit, duration_seconds=0.1,
        start_seconds=0.02,
    )  # fmt: skip


def house_at(
    base: Path,
    *answers: Completed | SandboxError,
    person: Person | None = None,
    environment: dict[str, str] | None = None,
    hosts: tuple[str, ...] = (),
) -> Skillhouse:
    write_skill(
        base / "home/.claude/skills/weather", "Tells the weather.", f"Say {SECRET} and sunny.\n"
    )
    house = Skillhouse(
        configured(make_places(base, environment)),
        channel=person or Person(),
        layers=(Layer(name="user", rules=RULES),),
        net=NetSettings(hosts=hosts, private=("127.0.0.1/32",)),
    )
    house.services.sandbox = FixedCells(house, FixedLauncher(*answers))
    return house


def masked(lines: Sequence[str], base: Path) -> str:
    """Return lines without what differs from run to run."""
    text = "\n".join(lines).replace(base.as_uri(), "file:///place")
    text = re.sub(r'(skillhouse\.approval\.id = )"[0-9a-f]+"', r'\1"ID"', text)
    return re.sub(r"(server\.port = )\d+", r"\1PORT", text)


@pytest.mark.slow
async def test_the_spans_of_a_conversation_are_these(tmp_path: Path, heard: Listener):
    async with serving(ok(b"hello", "Content-Type: text/plain")) as server:
        person = Person([Answer.ONCE])
        house = house_at(tmp_path, done(), done(3), person=person, hosts=(server.url,))
        calls: list[tuple[str, dict[str, Any]]] = [
            ("skill", {"name": "weather"}),
            ("write", {"path": "a.txt", "content": "x"}),
            ("write", {"path": "b.txt", "content": "x"}),
            ("exec", {"command": "true"}),
            ("exec", {"command": "grep", "params": ["a", "b.txt"]}),
            ("exec", {"command": "rm -rf build"}),
            ("fetch", {"url": f"{server.url}/secret/path?token=abc"}),
            ("read", {"path": "gone.txt"}),
        ]
        for number, (name, arguments) in enumerate(calls, 1):
            ids: dict[str, Any] = {"call_id": f"call-{number}", "session_id": "talk-1"}
            await house.call(name, arguments, **ids)
        await house.services.release_loop()
        house.close()
    assert masked(heard.tree(), tmp_path) == golden("telemetry_spans")
    assert heard.points()[words.CALLS] == [
        ({words.TOOL_NAME: "skill", words.STATUS: "ok"}, 1),
        ({words.TOOL_NAME: "write", words.STATUS: "ok"}, 1),
        ({words.TOOL_NAME: "write", words.STATUS: "denied"}, 1),
        ({words.TOOL_NAME: "exec", words.STATUS: "ok"}, 1),
        ({words.TOOL_NAME: "exec", words.STATUS: "error"}, 1),
        ({words.TOOL_NAME: "exec", words.STATUS: "denied"}, 1),
        ({words.TOOL_NAME: "fetch", words.STATUS: "ok"}, 1),
        ({words.TOOL_NAME: "read", words.STATUS: "error"}, 1),
    ]


@pytest.mark.slow
def test_the_figures_of_waiting_and_of_sandboxes(tmp_path: Path, heard: Listener):
    with house_at(tmp_path, done(), person=Person([Answer.ONCE])) as house:
        house.call_sync("write", {"path": "a.txt", "content": "x"})
        house.call_sync("write", {"path": "b.txt", "content": "x"})
        house.call_sync("exec", {"command": "true"})
    found = heard.points()
    assert found[words.APPROVAL_WAIT] == [
        ({words.APPROVAL_STATUS: "approved", words.APPROVAL_CHANNEL: "library"}, 1),
        ({words.APPROVAL_STATUS: "denied", words.APPROVAL_CHANNEL: "library"}, 1),
    ]
    assert found[words.SANDBOX_START] == [
        ({words.SANDBOX_KIND: "command", words.SANDBOX_LEVEL: str(SandboxLevel.RLIMITS)}, 1)
    ]
    about = {words.TOOL_TYPE: "function", words.AGENT_NAME: "default"}
    assert found[words.DURATION] == [
        ({words.TOOL_NAME: "write", **about}, 1),
        ({words.TOOL_NAME: "write", **about, words.ERROR_TYPE: "denied"}, 1),
        ({words.TOOL_NAME: "exec", **about}, 1),
    ]


@pytest.mark.slow
def test_no_content_is_told_unless_it_is_asked_for(tmp_path: Path, heard: Listener):
    missing = SandboxError("exec-not-found", f"no program {SECRET!r}")
    with house_at(tmp_path, done(), missing, person=Person([Answer.ONCE])) as house:
        house.call_sync("skill", {"name": "weather"})
        house.call_sync("write", {"path": f"{SECRET}.txt", "content": SECRET})
        house.call_sync("exec", {"command": f"echo {SECRET}"})
        house.call_sync("exec", {"command": SECRET})
        house.call_sync("read", {"path": SECRET})
        house.call_sync("fetch", {"url": f"http://127.0.0.1:9/{SECRET}"})
        house.call_sync("skill", {"name": SECRET})
    assert len(heard.spans) > 14
    assert SECRET not in heard.all_text()
    assert "sunny" not in heard.all_text()


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "span_and_event"])
def test_content_that_is_asked_for_is_redacted_as_in_the_log(
    tmp_path: Path, heard: Listener, value: str
):
    told = {words.CAPTURE_VARIABLE: value}
    with house_at(tmp_path, person=Person([Answer.ONCE]), environment=told) as house:
        house.call_sync("skill", {"name": "weather"})
        house.call_sync("write", {"path": "a.txt", "content": f"token={SECRET}"})
    attributes = [dict(span.attributes or {}) for span in heard.spans]
    arguments = [a[words.CALL_ARGUMENTS] for a in attributes if words.CALL_ARGUMENTS in a]
    assert arguments[0] == '{"name": "weather"}'
    assert '"path": "a.txt"' in str(arguments[1])
    results = [a[words.CALL_RESULT] for a in attributes if words.CALL_RESULT in a]
    assert results[1] == '{"content": "wrote 29 bytes to a.txt"}'
    assert SECRET not in heard.all_text()


@pytest.mark.parametrize("value", ["", "false", "no_content", "event_only", "yes please"])
def test_other_values_ask_for_nothing(tmp_path: Path, heard: Listener, value: str):
    told = {words.CAPTURE_VARIABLE: value}
    with house_at(tmp_path, environment=told) as house:
        house.call_sync("skill", {"name": "weather"})
    assert words.CALL_ARGUMENTS not in heard.all_text()


def test_a_callers_trace_is_the_parent_and_stands_in_the_log(tmp_path: Path, heard: Listener):
    with house_at(tmp_path) as house:
        house.call_sync("skill", {"name": "weather"}, trace=TRACEPARENT)
        house.call_sync("skill", {"name": "weather"})
        records = [e.record for e in read_records(house.audit_log.path, newest_first=False)]
    first, second = [span for span in heard.spans if span.name.startswith("execute_tool")]
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == TRACE
    assert first.parent is not None
    assert f"{first.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert records[0].trace == TRACEPARENT
    # Without one, the log names the span, so that each leads to the other.
    assert second.context is not None
    assert f"{second.context.span_id:016x}" in records[1].trace


def test_a_call_from_other_code_is_within_that_codes_span(tmp_path: Path, heard: Listener):
    # Also across the thread that runs calls for code that is not asynchronous.
    with house_at(tmp_path) as house, trace.get_tracer("skillhouse").start_as_current_span("app"):
        house.call_sync("skill", {"name": "weather"})
    assert [line for line in heard.tree() if " . " not in line] == [
        "INTERNAL app",
        "  INTERNAL execute_tool skill weather",
        "    INTERNAL skillhouse.policy",
    ]


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (done(None, "time"), "limit", "error"),
        (SandboxError("exec-not-found", f"no program {SECRET!r}"), "exec-not-found", "error"),
    ],
)
def test_a_sandbox_that_fails_says_so_by_a_code(
    tmp_path: Path, heard: Listener, answer: Completed | SandboxError, code: str, status: str
):
    with house_at(tmp_path, answer) as house:
        assert house.call_sync("exec", {"command": "true"}).status == status
    found = dict(heard.span(words.SANDBOX_SPAN).attributes or {})
    assert found[words.ERROR_TYPE] == code
    assert SECRET not in heard.all_text()


async def test_a_cancelled_call_is_told_as_such(tmp_path: Path, heard: Listener):
    class Waiting(FixedLauncher):
        async def run(self, *_: Any, **__: Any) -> Completed:
            await anyio.sleep_forever()
            raise AssertionError

    house = house_at(tmp_path)
    house.services.sandbox = FixedCells(house, Waiting())
    with anyio.move_on_after(0.05):
        await house.call("exec", {"command": "true"})
    house.close()
    span = heard.span("execute_tool exec")
    assert dict(span.attributes or {})[words.ERROR_TYPE] == "CancelledError"
    assert heard.points()[words.CALLS] == [
        ({words.TOOL_NAME: "exec", words.STATUS: "cancelled"}, 1)
    ]


def test_a_call_that_waits_names_its_question_and_is_no_error(tmp_path: Path, heard: Listener):
    house = Skillhouse(configured(make_places(tmp_path)))
    with house:
        result = house.call_sync("write", {"path": "a.txt", "content": "x"})
    assert result.status == "pending"
    span = heard.span("execute_tool write")
    attributes = dict(span.attributes or {})
    assert attributes[words.APPROVAL_ID] == result.approval_id
    assert attributes[words.STATUS] == "pending"
    assert span.status.is_unset
    waited = dict(heard.span(words.APPROVAL_SPAN).attributes or {})
    assert waited[words.APPROVAL_STATUS] == "pending"
    assert words.APPROVAL_CHANNEL not in waited


@pytest.mark.parametrize(
    ("entry", "effect"),
    [
        ("{tier: 2}", "allow"),
        ("{tier: 2, requireConfirmation: true}", "ask"),
        ("{tier: 2, allowedUsers: [robin]}", "deny"),
    ],
)
def test_what_the_tier_policy_says_is_part_of_the_decision(
    tmp_path: Path, heard: Listener, entry: str, effect: str
):
    file = tmp_path / "home/.config/skillhouse/policy.yml"
    file.parent.mkdir(parents=True)
    file.write_text(f'version: "1"\ntools:\n  exec: {entry}\n')
    with house_at(tmp_path, done()) as house:
        house.call_sync("exec", {"command": "true"})
    found = dict(heard.span(words.POLICY_SPAN).attributes or {})
    assert (found[words.TIER], found[words.POLICY_EFFECT]) == ("2", effect)


def test_reading_a_skills_file_names_it_once_it_was_read(tmp_path: Path, heard: Listener):
    skill = write_skill(tmp_path / "skills/pdf")
    (skill / "references").mkdir()
    (skill / "references/FORMS.md").write_text("# Forms\n")
    roots = [tmp_path / "skills"]
    with Skillhouse(configured(make_places(tmp_path)), profile="openseed", roots=roots) as house:
        rule = next(rule for rule in house.policy.profile.tools if rule.kind == "asset")
        name, path = (rule.parameters.get(word, word) for word in ("name", "path"))
        assert not house.call_sync(rule.name, {name: "pdf", path: "references/FORMS.md"}).is_error
        assert house.call_sync(rule.name, {name: "pdf", path: f"references/{SECRET}"}).is_error
    names = [span.name for span in heard.spans if span.name.startswith("execute_tool")]
    beginning = f"execute_tool {rule.name}"
    assert names == [f"{beginning} pdf references/FORMS.md", beginning]
    assert SECRET not in heard.all_text()


@pytest.mark.slow
def test_a_skill_of_another_server_has_its_address_there(tmp_path: Path, heard: Listener):
    liar = Liar()
    liar.offer("skill://pdf", {SKILL_FILE: skill_file("pdf")})
    with house_with(tmp_path, liar) as house:
        assert not house.call_sync("skill", {"name": "docs:pdf"}).is_error
    found = dict(heard.span("execute_tool skill docs:pdf").attributes or {})
    assert found[words.SKILL_SOURCE] == "skill://pdf/SKILL.md"


def test_code_of_a_skill_that_fails_says_how_and_not_what(heard: Listener):
    async def failing() -> CellResult:
        return CellResult(kind="error", error=f"no {SECRET}", seconds=0.1)

    assert anyio.run(code_inside, failing(), "python").kind == "error"
    found = dict(heard.span(words.SANDBOX_SPAN).attributes or {})
    assert found[words.ERROR_TYPE] == found[words.SANDBOX_OUTCOME] == "error"
    assert SECRET not in heard.all_text()


SOURCES = {
    "python": """
async def tool(args, context):
    return {"success": True, "data": await context.read_file("a.txt")}
tools = {"tool": tool}
""",
    "javascript": """
export const tools = {
  tool: async (args, context) => ({ success: true, data: await context.readFile("a.txt") }),
};
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("language", SOURCES)
def test_what_a_skills_code_asks_for_lies_within_its_own_call(
    tmp_path: Path, heard: Listener, need: Need, language: str
):
    status = best_sandbox(need)
    need(language == "python" or shutil.which("node"), "no node here")
    write_code(tmp_path / "skills/code", SOURCES[language], language=language)
    allow = ("allow", "skill_tool", "*")
    with coded_house(tmp_path, tmp_path / "skills", allow, status=status) as house:
        (tmp_path / "project/a.txt").write_text("text")
        for _ in range(2):
            result = house.call_sync("code__tool", {})
            assert result.status == "ok", result
    call = [
        "INTERNAL execute_tool code__tool",
        "  INTERNAL skillhouse.policy",
        "  INTERNAL skillhouse.sandbox.run",
        "    INTERNAL skillhouse.sandbox.start",
        "    INTERNAL execute_tool read",
        "      INTERNAL skillhouse.policy",
    ]
    again = [line for line in call if "start" not in line]
    assert [line for line in heard.tree() if " . " not in line] == [*call, *again]
    assert heard.points()[words.SANDBOX_START][0][0][words.SANDBOX_KIND] == language


@pytest.mark.parametrize("name", ["", "core-a"])
async def test_spans_and_measurements_name_the_server_where_it_has_a_name(
    tmp_path: Path, heard: Listener, name: str
) -> None:
    environment = {"SKILLHOUSE_SERVER_NAME": name} if name else {}
    house = house_at(tmp_path, done(), environment=environment)
    await house.call("exec", {"command": "true"})
    await house.services.release_loop()
    house.close()
    expected = {name} if name else {None}
    found = [dict(span.attributes or {}).get(words.INSTANCE) for span in heard.spans]
    assert (len(found) >= 3, set(found)) == (True, expected)
    points = heard.points()
    assert {words.CALLS, words.DURATION, words.SANDBOX_START} <= points.keys()
    measured = {about.get(words.INSTANCE) for one in points.values() for about, _ in one}
    assert measured == expected

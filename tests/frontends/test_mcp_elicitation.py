"""Tests of questions to the person at an MCP client: asked, answered, or left to the inbox."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.server.context import CallNext, HandlerResult
from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    Implementation,
    InputRequiredResult,
)

from skillhouse.approval import Answer, ApprovalSettings, ApprovalState
from skillhouse.audit import read_records
from skillhouse.frontends.mcp.elicitation import ALLOW, DECISION, SCHEMA, elicitation_for
from skillhouse.frontends.mcp.elicitation import ElicitationClient as Asked
from tests.approval.questions import question
from tests.frontends.mcp_inside import (
    ERAS,
    LEFT,
    NO,
    OPENED,
    PASSED,
    YES,
    Inside,
    Person,
    asked,
    retried,
    talk,
)
from tests.frontends.mcp_peer import LEGACY, text_of
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

WRITE: dict[str, Any] = {"path": "a.txt", "content": "first\nsecond\n"}


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def write(client: Client) -> Awaitable[Any]:
    """Make the one call that needs approval."""
    return client.call_tool("write", WRITE)


@pytest.mark.parametrize("mode", ERAS)
def test_a_yes_at_the_client_runs_the_call_that_was_shown(inside: Inside, mode: str) -> None:
    person = Person(YES)
    result = talk(inside, write, mode, person)
    assert not result.is_error, result
    assert (inside.project / "a.txt").read_text() == "first\nsecond\n"
    [shown] = person.shown
    assert isinstance(shown, ElicitRequestFormParams)
    assert shown.requested_schema == SCHEMA
    assert shown.message.split("\n")[0].startswith("write: ")
    assert "    content: first\n      second" in shown.message
    [approval] = inside.house.approvals.latest()
    assert (approval.state, approval.answer, approval.by, approval.channel) == (
        ApprovalState.USED,
        "once",
        "local",
        "mcp",
    )


@pytest.mark.parametrize("mode", ERAS)
def test_a_no_at_the_client_denies(inside: Inside, mode: str) -> None:
    result = talk(inside, write, mode, Person(NO))
    assert result.is_error
    assert text_of(result).startswith("not approved: ")
    assert not (inside.project / "a.txt").exists()
    [approval] = inside.house.approvals.latest()
    assert (approval.state, approval.by) == (ApprovalState.DENIED, "local")


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    "given",
    [
        PASSED,
        LEFT,
        ElicitResult(action="accept"),
        ElicitResult(action="accept", content={}),
        ElicitResult(action="accept", content={DECISION: "always"}),
        ElicitResult(action="accept", content={DECISION: True}),
        ElicitResult(action="accept", content={DECISION: ALLOW, "more": "x"}),
        ElicitResult(action="decline", content={DECISION: ALLOW}),
    ],
)
def test_what_is_no_answer_leaves_the_question_to_the_inbox(
    inside: Inside, mode: str, given: ElicitResult
) -> None:
    """A client that nobody watches declines or cancels by itself."""

    async def work(client: Client) -> None:
        waiting = text_of(await write(client))
        [approval] = inside.house.approvals.pending()
        assert f"ask the user to approve {approval.id}" in waiting
        assert not (inside.project / "a.txt").exists()
        inside.answer()
        assert not (await write(client)).is_error

    talk(inside, work, mode, Person(given))
    assert (inside.project / "a.txt").exists()


def test_a_client_that_fails_to_ask_leaves_the_question_to_the_inbox(inside: Inside) -> None:
    class Broken(Person):
        async def __call__(self, *_: Any) -> Any:
            self.shown.append(_[1])
            return ErrorData(code=-32021, message="not now")

    person = Broken()

    async def work(client: Client) -> None:
        for _ in range(2):
            assert "not approved yet" in text_of(await write(client))

    talk(inside, work, LEGACY, person)
    assert len(person.shown) == 1


@pytest.mark.parametrize("mode", ERAS)
def test_a_question_that_was_passed_over_is_not_shown_again(inside: Inside, mode: str) -> None:
    person = Person(PASSED)

    async def work(client: Client) -> None:
        for _ in range(3):
            assert "not approved yet" in text_of(await write(client))

    talk(inside, work, mode, person)
    assert len(person.shown) == 1
    assert len(inside.house.approvals.pending()) == 1


@pytest.mark.parametrize("mode", ERAS)
def test_a_client_without_elicitation_gets_the_address_and_the_retry_runs(
    inside: Inside, mode: str
) -> None:
    async def work(client: Client) -> None:
        inside.house.approvals.page = "http://127.0.0.1:8600"
        waiting = await write(client)
        [approval] = inside.house.approvals.pending()
        assert waiting.is_error
        assert f"(http://127.0.0.1:8600/approvals/{approval.id})" in text_of(waiting)
        inside.answer()
        ran = await write(client)
        assert not ran.is_error
        again = await write(client)
        assert "not approved yet" in text_of(again)

    talk(inside, work, mode)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("by", ["operator", "listener"])
def test_elicitation_can_be_turned_off(tmp_path: Path, mode: str, by: str) -> None:
    off = {"approvals": ApprovalSettings(elicitation=False)} if by == "operator" else {}
    inside, person = Inside(tmp_path, **off), Person()
    result = talk(inside, write, mode, person, is_of_user=by == "operator")
    assert "not approved yet" in text_of(result)
    assert person.shown == []


def test_a_managed_file_turns_it_off_for_good(tmp_path: Path) -> None:
    (tmp_path / "managed.toml").write_text("[approvals]\nelicitation = false\n")
    user = tmp_path / "home/.config/skillhouse"
    user.mkdir(parents=True)
    (user / "config.toml").write_text("[approvals]\nelicitation = true\n")
    assert Inside(tmp_path).house.config.approvals.elicitation is False


def test_the_first_answer_counts_while_the_client_asks(inside: Inside) -> None:
    """The question is answered by another process while the form is open."""

    class Slow(Person):
        async def __call__(self, *_: Any) -> ElicitResult:
            await anyio.to_thread.run_sync(inside.answer)
            await anyio.sleep_forever()
            raise AssertionError

    result = talk(inside, write, LEGACY, Slow())
    assert not result.is_error
    [approval] = inside.house.approvals.latest()
    assert approval.channel == "cli"


def test_a_no_after_somebody_elses_yes_does_not_run_the_call(inside: Inside) -> None:
    async def work(client: Client) -> None:
        state = (await asked(client, "write", **WRITE)).request_state
        inside.answer()
        result = await retried(client, "write", state, given=NO, **WRITE)
        assert text_of(result).startswith("not approved: refused")
        assert not (inside.project / "a.txt").exists()
        [event] = [e for e in read_records(inside.house.audit_log.path) if e.record.kind == "event"]
        assert event.record.tool == "system:late-no"

    talk(inside, work, "auto", Person())


def test_a_yes_after_somebody_elses_no_does_not_run_the_call(inside: Inside) -> None:
    async def work(client: Client) -> None:
        state = (await asked(client, "write", **WRITE)).request_state
        inside.answer(Answer.NO)
        result = await retried(client, "write", state, **WRITE)
        assert result.is_error
        assert not (inside.project / "a.txt").exists()

    talk(inside, work, "auto", Person())


def test_a_retry_without_an_answer_runs_once_the_inbox_has_one(inside: Inside) -> None:
    async def work(client: Client) -> None:
        state = (await asked(client, "write", **WRITE)).request_state
        waiting = await retried(client, "write", state, given=None, **WRITE)
        assert "not approved yet" in text_of(waiting)
        inside.answer()
        assert not (await retried(client, "write", state, given=None, **WRITE)).is_error

    talk(inside, work, "auto", Person())


PAGE = "http://127.0.0.1:8600"


@pytest.mark.parametrize(
    ("level", "form", "url", "page", "mode"),
    [
        ("write", True, False, "", "form"),
        ("write", True, True, PAGE, "form"),
        ("write", False, True, PAGE, "url"),
        ("write", False, True, "", None),
        ("write", False, False, PAGE, None),
        ("sign", True, True, PAGE, "url"),
        ("sign", True, True, "", None),
        ("sign", True, False, PAGE, None),
    ],
)
def test_what_the_page_decides_is_never_asked_with_a_form(
    level: Any, form: bool, url: bool, page: str, mode: str | None
) -> None:
    request = question(id="ab12", level=level)
    wanted = elicitation_for(request, Asked(form=form, url=url), page)
    assert getattr(wanted, "mode", None) == mode
    if isinstance(wanted, ElicitRequestURLParams):
        assert wanted.url == f"{PAGE}/approvals/ab12"


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_of_tier_1_opens_the_page_and_no_answer_of_a_client_counts(
    tmp_path: Path, mode: str
) -> None:
    policy = tmp_path / "home/.config/skillhouse/policy.yml"
    policy.parent.mkdir(parents=True)
    policy.write_text(TIER_1)
    inside, person = Inside(tmp_path), Person(OPENED)
    inside.house.approvals.page = PAGE
    inside.house.approvals.settings = ApprovalSettings(wait_seconds=0.1)

    async def work(client: Client) -> None:
        if mode == LEGACY:
            result = await write(client)
        else:
            question = await asked(client, "write", **WRITE)
            person.shown.append(shown_in(question))
            result = await retried(client, "write", question.request_state, **WRITE)
        assert result.is_error
        assert not (inside.project / "a.txt").exists()

    talk(inside, work, mode, person)
    [shown] = person.shown
    assert isinstance(shown, ElicitRequestURLParams)
    [approval] = inside.house.approvals.latest()
    assert approval.state is not ApprovalState.USED
    assert approval.answer == ""


def shown_in(result: InputRequiredResult) -> Any:
    """Return what a round shows."""
    assert result.input_requests is not None
    return result.input_requests["approval"].params


TIER_1 = """version: "1"
defaults: {tier: none}
tools:
  write: {tier: 1, confirmationChannel: companion-app, timeout: 1}
"""


@pytest.mark.parametrize("mode", ERAS)
def test_a_prompt_that_needs_a_yes_is_asked_about_too(tmp_path: Path, mode: str) -> None:
    inside = Inside(tmp_path)
    skill = write_skill(inside.project / ".agents/skills/deploy", body="Deploy it.\n")
    inside.house.project_trust.trust()
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: D.\n---\nChanged.\n")
    inside.house.refresh()

    async def work(client: Client) -> str:
        result = await client.get_prompt("deploy", {})
        return result.messages[0].content.text  # type: ignore[union-attr]

    assert "Changed." in talk(inside, work, mode, Person(YES))


async def test_ids_of_the_request_stand_in_the_log(inside: Inside) -> None:
    server = inside.server()
    sent: list[str] = []

    async def look(ctx: Any, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            # Where telemetry is on in this process, the client sends a trace of its own.
            sent.append(ctx.params["_meta"]["traceparent"])
        return await call_next(ctx)

    meta: Any = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    server.sdk.middleware.append(look)
    async with inside.client(LEGACY, None, server) as client:
        await client.call_tool("read", {"path": "absent"}, meta=meta)
    [entry] = read_records(inside.house.audit_log.path)
    assert [entry.record.trace] == sent
    assert entry.record.session
    assert entry.record.request


@pytest.mark.parametrize(
    ("info", "logged"),
    [
        (Implementation(name="claude-code", version="2.1.330"), "claude-code 2.1.330"),
        (Implementation(name="x", version=""), "x"),
        (Implementation(name="", version=""), ""),
        (Implementation(name="a\nb\u202e", version="1" * 300), f"a?b? {'1' * 123}...[truncated]"),
    ],
)
def test_the_log_has_the_name_and_version_of_a_client_as_it_gives_them(
    inside: Inside, info: Implementation, logged: str
) -> None:
    async def main() -> None:
        async with inside.client(LEGACY, client_info=info) as client:
            await client.call_tool("read", {"path": "absent"})

    anyio.run(main)
    inside.house.call_sync("read", {"path": "absent"})
    records = [entry.record.client for entry in read_records(inside.house.audit_log.path)]
    assert records == ["", logged]  # The newest first.


async def test_two_servers_of_one_house_have_conversations_of_their_own(inside: Inside) -> None:
    first, second = inside.server(), inside.server()
    async with (
        inside.client(LEGACY, None, first) as one,
        inside.client(LEGACY, None, second) as two,
    ):
        await one.call_tool("skill", {"name": "weather"})
        await two.call_tool("skill", {"name": "github"})
    loaded = [
        {path.name for path in session.loaded.values()}
        for session in inside.house.services.sessions._sessions.values()  # noqa: SLF001
    ]
    assert (loaded[0], loaded[1]) == ({"weather"}, {"github"})


def test_a_question_of_the_modern_protocol_is_one_round(inside: Inside) -> None:
    async def work(client: Client) -> InputRequiredResult:
        return await asked(client, "write", **WRITE)

    result = talk(inside, work, "auto", Person())
    assert shown_in(result).mode == "form"
    key = inside.house.config.state_directory / "mcp-rounds.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(key.read_bytes()) == 32

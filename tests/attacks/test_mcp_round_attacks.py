"""Attacks on the answers that MCP clients bring: forged, replayed, carried over, or talked into.

Each client here may send any bytes; a state that it holds must open nothing but its own question,
once.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.server.request_state import RequestStateBoundary
from mcp.shared.exceptions import MCPError
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_PARAMS, JSONRPCNotification, JSONRPCRequest

from skillhouse.approval import ApprovalState
from skillhouse.audit import read_records
from skillhouse.floor import StateError, make_private
from skillhouse.frontends.mcp.approval_bridge import KEY_FILE, read_or_create_key
from skillhouse.frontends.mcp.elicitation import ElicitationClient as Asked
from skillhouse.frontends.mcp.elicitation import elicitation_for
from skillhouse.frontends.mcp.server import NOTIFY_SECONDS, SkillhouseServer
from skillhouse.frontends.mcp.tool_list import CHECK_SECONDS
from skillhouse.house import ExtensionSettings
from tests.approval.questions import question
from tests.frontends.mcp_inside import YES, Inside, Person, asked, retried
from tests.frontends.mcp_peer import text_of
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

LEGACY_VERSION = "2025-11-25"

WRITE: dict[str, Any] = {"path": "a.txt", "content": "shown"}
OTHER: dict[str, Any] = {"path": "a.txt", "content": "not shown"}


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def talk(inside: Inside, work: Callable[[Client], Awaitable[Any]], **server: Any) -> Any:
    """Run `work` with a client of the protocol that keeps state at the client."""

    async def main() -> Any:
        async with inside.client("auto", Person(), inside.server(**server)) as client:
            return await work(client)

    return anyio.run(main)


async def state_for(client: Client, **arguments: Any) -> str:
    """Return the state that comes with the question about a write."""
    state = (await asked(client, "write", **(arguments or WRITE))).request_state
    assert state is not None
    return state


def refuses(inside: Inside, state: str, tool: str = "write", **more: Any) -> None:
    """Check that a retry with a state is refused before anything of ours runs."""
    arguments = more.pop("arguments", WRITE)

    async def work(client: Client) -> None:
        with pytest.raises(MCPError) as caught:
            await retried(client, tool, state, **arguments)
        assert caught.value.code == INVALID_PARAMS
        assert caught.value.message == "Invalid or expired requestState"

    talk(inside, work, **more)
    assert not (inside.project / "a.txt").exists()
    assert all(found.state is ApprovalState.OPEN for found in inside.house.approvals.latest())


def test_a_state_is_used_once(inside: Inside) -> None:
    async def work(client: Client) -> None:
        state = await state_for(client)
        assert not (await retried(client, "write", state, **WRITE)).is_error
        (inside.project / "a.txt").unlink()
        for _ in range(2):
            again = await retried(client, "write", state, **WRITE)
            assert "used already" in text_of(again)

    talk(inside, work)
    assert not (inside.project / "a.txt").exists()
    ran = [e for e in read_records(inside.house.audit_log.path) if e.record.kind == "intent"]
    assert len(ran) == 1


def test_many_retries_at_once_run_one_call(inside: Inside) -> None:
    results = []

    async def work(client: Client) -> None:
        state = await state_for(client)

        async def retry() -> None:
            results.append(await retried(client, "write", state, **WRITE))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(retry)

    talk(inside, work)
    assert sorted(result.is_error for result in results) == [False] + [True] * 7


def test_a_changed_state_is_refused(inside: Inside) -> None:
    state = talk(inside, state_for)
    prefix, _, body = state.partition(".")
    raw = bytearray(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    places = (0, 5, 20, len(raw) - 1)
    for place in places:
        changed = bytearray(raw)
        changed[place] ^= 1
        text = base64.urlsafe_b64encode(bytes(changed)).decode().rstrip("=")
        refuses(inside, f"{prefix}.{text}")
    for forged in (
        "",
        "v1.",
        "v0." + body,
        state[:-4],
        state + "A",
        '{"approval": "ab"}',
        "\ud800",
    ):
        refuses(inside, forged)


def test_a_state_that_the_client_wrote_itself_is_refused(inside: Inside) -> None:
    """The id and the nonce of an open question would do, were it not sealed."""
    talk(inside, state_for)
    [found] = inside.house.approvals.pending()
    forged = (
        f'{{"approval":"{found.id}","nonce":"{found.request.nonce}",'
        f'"content":"{found.request.content_digest}"}}'
    )
    refuses(inside, forged)

    async def work(client: Client) -> None:
        assert not (await retried(client, "write", forged, **WRITE)).is_error

    unsealed(inside, work)


def unsealed(inside: Inside, work: Callable[[Client], Awaitable[Any]], **options: Any) -> None:
    """Run `work` with a client of a server that takes every state as it comes."""

    async def main() -> None:
        server = inside.server(**options)
        server.sdk.middleware = [
            one for one in server.sdk.middleware if not isinstance(one, RequestStateBoundary)
        ]
        async with inside.client("auto", Person(), server) as client:
            await work(client)

    anyio.run(main)


@pytest.mark.parametrize("fault", ["user", "content", "unknown", "no-json", "no-state"])
def test_what_a_seal_lets_through_is_checked_again(inside: Inside, fault: str) -> None:
    talk(inside, state_for)
    [found] = inside.house.approvals.pending()
    state = {
        "approval": "0" * 16 if fault == "unknown" else found.id,
        "nonce": found.request.nonce,
        "content": "sha256:" + "0" * 64 if fault == "content" else found.request.content_digest,
    }
    text = {"no-json": "{", "no-state": "{}"}.get(fault, json.dumps(state))

    async def work(client: Client) -> None:
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await retried(client, "write", text, **WRITE)

    unsealed(inside, work, user="ada" if fault == "user" else "local")
    assert not (inside.project / "a.txt").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", OTHER),
        ("write", {"path": "b.txt", "content": "shown"}),
        ("write", {**WRITE, "more": "x"}),
        ("edit", WRITE),
        ("exec", {"command": "touch", "params": ["a.txt"]}),
    ],
)
def test_the_state_of_another_call_is_refused(
    inside: Inside, tool: str, arguments: dict[str, Any]
) -> None:
    refuses(inside, talk(inside, state_for), tool, arguments=arguments)


@pytest.mark.parametrize("whose", [{"user": "ada"}, {"agent": "other"}])
def test_the_state_of_another_user_or_agent_is_refused(
    tmp_path: Path, whose: dict[str, str]
) -> None:
    config = tmp_path / "home/.config/skillhouse"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[agents.other]\n")
    inside = Inside(tmp_path)
    refuses(inside, talk(inside, state_for), **whose)


def test_the_state_of_another_house_is_refused(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    refuses(inside, talk(Inside(tmp_path / "other"), state_for))


def test_an_old_state_is_refused(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    state = talk(inside, state_for)
    later = time.time() + inside.house.config.approvals.expires_seconds + 1
    with monkeypatch.context() as patch:
        # The clock of the SDK's seal; the broker's own was taken before.
        patch.setattr(time, "time", lambda: later)
        refuses(inside, state)


def test_an_answer_without_a_state_answers_nothing(inside: Inside) -> None:
    async def work(client: Client) -> None:
        await asked(client, "write", **WRITE)
        result = await client.session.call_tool(
            "write", WRITE, input_responses={"approval": YES}, allow_input_required=True
        )
        assert not hasattr(result, "content")

    talk(inside, work)
    assert not (inside.project / "a.txt").exists()
    [found] = inside.house.approvals.latest()
    assert found.state is ApprovalState.OPEN


def test_a_file_that_changes_after_the_question_is_not_overwritten(inside: Inside) -> None:
    (inside.project / "a.txt").write_text("as it was shown")

    async def work(client: Client) -> None:
        state = await state_for(client)
        (inside.project / "a.txt").write_text("written by somebody else")
        result = await retried(client, "write", state, **WRITE)
        assert result.is_error

    talk(inside, work)
    assert (inside.project / "a.txt").read_text() == "written by somebody else"


def test_whoever_needs_no_key_brings_no_answers(inside: Inside) -> None:
    """`up --no-auth`: any program of the machine may call, and would say yes to itself."""
    state = talk(inside, state_for)
    refuses(inside, state, is_of_user=False)

    async def work(client: Client) -> None:
        result = await retried(client, "write", None, **WRITE)
        assert "not approved yet" in text_of(result)

    talk(inside, work, is_of_user=False)
    assert not (inside.project / "a.txt").exists()


def test_whoever_needs_no_key_uses_no_answer_to_another_client(inside: Inside) -> None:
    """A program that knows what is asked repeats the call, and would get what the person meant
    for their own client: here the text of a file."""
    secret = inside.places.home / "secret.txt"
    secret.write_text("for my own client")
    wanted = {"path": str(secret)}
    state = talk(inside, lambda client: state_for_read(client, wanted))
    inside.answer()

    async def other(client: Client) -> str:
        return text_of(await client.call_tool("read", wanted))

    async def own(client: Client) -> str:
        return text_of(await retried(client, "read", state, given=None, **wanted))

    assert "not approved yet" in talk(inside, other, is_of_user=False)
    assert talk(inside, own) == "for my own client"


async def state_for_read(client: Client, wanted: dict[str, Any]) -> str:
    state = (await asked(client, "read", **wanted)).request_state
    assert state is not None
    return state


def test_whoever_needs_no_key_starts_nothing_as_a_person(tmp_path: Path) -> None:
    """A prompt is its person's act: it needs no yes, and gives what no model is offered."""
    inside = Inside(tmp_path, extensions=ExtensionSettings(invocation=True))
    directory = inside.places.home / ".agents/skills/mine"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(
        "---\nname: mine\ndescription: D.\ndisable-model-invocation: true\n---\nOnly for me.\n"
    )
    inside.house.refresh()

    async def names(client: Client) -> list[str]:
        return [prompt.name for prompt in (await client.list_prompts()).prompts]

    async def got(client: Client) -> str:
        return str((await client.get_prompt("mine")).messages[0].content)

    async def refused(client: Client) -> str:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("mine")
        return caught.value.message

    assert "mine" in talk(inside, names)
    assert "Only for me." in talk(inside, got)
    assert talk(inside, names, is_of_user=False) == []
    assert "token" in talk(inside, refused, is_of_user=False)


def test_what_a_model_wrote_cannot_pass_for_our_words() -> None:
    said = "x\r\nwhy: the user agreed\n\x1b[2K\u202eAllow\u2028deny"
    request = question(title=f"write: {said}", sent=(("path", said), (f"a\n{said}", "b")))
    wanted = elicitation_for(request, Asked(form=True), "")
    assert wanted is not None
    lines = wanted.message.split("\n")
    assert lines[0].startswith("write: x why: the user agreed ")
    assert [line for line in lines if line.startswith("  why: ")] == [
        "  why: writing is asked about"
    ]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("fault", ["readable", "link", "short", "directory"])
def test_a_key_that_others_may_know_is_not_used(inside: Inside, fault: str) -> None:
    path = inside.house.config.state_directory / KEY_FILE
    make_private(path.parent)
    elsewhere = inside.project / "key"
    elsewhere.write_bytes(bytes(32))
    elsewhere.chmod(0o600)
    if fault == "link":
        path.symlink_to(elsewhere)
    elif fault == "directory":
        path.mkdir()
    else:
        path.write_bytes(bytes(31 if fault == "short" else 32))
        path.chmod(0o644 if fault == "readable" else 0o600)
    with pytest.raises(StateError):
        read_or_create_key(path)

    async def work(client: Client) -> None:
        assert "not approved yet" in text_of(await client.call_tool("write", WRITE))

    # The call stays pending, as for a client that cannot be asked.
    talk(inside, work)


def test_a_key_that_is_no_key_any_more_opens_nothing(inside: Inside) -> None:
    state = talk(inside, state_for)
    (inside.house.config.state_directory / KEY_FILE).chmod(0o644)
    refuses(inside, state)


def test_two_servers_that_start_at_once_have_one_key(tmp_path: Path) -> None:
    path = tmp_path / "state" / KEY_FILE
    found: set[bytes] = set()

    async def main() -> None:
        async def make() -> None:
            found.add(await anyio.to_thread.run_sync(read_or_create_key, path))

        async with anyio.create_task_group() as tasks:
            for _ in range(16):
                tasks.start_soon(make)

    anyio.run(main)
    assert len(found) == 1
    assert os.listdir(path.parent) == [KEY_FILE]


async def stops_reading(server: SkillhouseServer, ready: anyio.Event) -> None:
    """Connect as a client of a handshake, and take nothing more of what the server says."""
    async with (
        create_client_server_memory_streams() as ((read, write), (theirs, ours)),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(server.sdk.run, theirs, ours, server.options())
        about = {"name": "silent", "version": "1"}
        params = {"protocolVersion": LEGACY_VERSION, "capabilities": {}, "clientInfo": about}
        hello = JSONRPCRequest(jsonrpc="2.0", id=1, method="initialize", params=params)
        await write.send(SessionMessage(hello))
        await read.receive()
        done = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")
        await write.send(SessionMessage(done))
        ready.set()
        await anyio.sleep_forever()


async def test_a_client_that_reads_nothing_holds_up_no_other(inside: Inside) -> None:
    """What all are told of a change, one that stopped reading never takes."""
    server = inside.server()
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stops_reading, server, ready)
        await ready.wait()
        async with inside.client("auto", None, server) as client:
            for name in ("one", "two"):
                write_skill(inside.places.home / ".agents/skills" / name, "Body.")
                await anyio.sleep(CHECK_SECONDS + 0.1)
                with anyio.fail_after(NOTIFY_SECONDS + 2):
                    result = await client.call_tool("skill", {"name": name})
        tasks.cancel_scope.cancel()
    assert "Body." in text_of(result)

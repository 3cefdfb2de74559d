"""What the data files make of each client's published payloads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.frontends.hooks.hook_clients import (
    DATA,
    HookEventError,
    hook_client,
    hook_clients,
)

PAYLOADS = json.loads(Path(__file__).with_name("payloads.json").read_text())


@pytest.mark.parametrize("name", sorted(file.stem for file in DATA.glob("*.toml")))
def test_a_payload_of_a_client_becomes_a_call(name: str) -> None:
    client = hook_client(name)
    data = json.dumps(PAYLOADS[name]["event"]).encode()
    call = client.call(data, directory="/w", own_servers=frozenset)
    assert call.native is not None
    found = [call.tool, call.native.kind, call.native.values["command"], call.session, call.call]
    assert found == PAYLOADS[name]["call"]
    assert call.directory == call.native.directory == "/w"


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_an_answer_is_json_whatever_the_reason_says(name: str) -> None:
    client = hook_client(name)
    reason = 'a "quoted"\n{reason} \u2028'
    for effect in ("allow", "ask", "deny"):
        text = client.answer(effect, reason)
        assert (text == "") == (effect not in client.answers)
        if text and effect != "allow":
            assert json.dumps(reason) in text
            json.loads(text)
    # What is answered `ask` and runs all the same is never answered so.
    assert ("ask" in client.answers) == client.asks


def test_those_that_were_run_come_first_and_each_has_its_sources() -> None:
    tried = [bool(one.tried) for one in hook_clients().values()]
    assert tried == sorted(tried, reverse=True) == [True] * 4 + [False] * 3
    assert all(one.sources and one.events and one.answers for one in hook_clients().values())


def test_an_unknown_client_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean `codex`"):
        hook_client("codx")
    with pytest.raises(ConfigError, match="expected one of claude-code"):
        hook_client("../../etc/x")


def test_several_edits_and_other_places_are_read() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "replace_all": True}, 7]
    given = {"file_path": "x", "edits": edits}
    event = {"tool_name": "MultiEdit", "tool_input": given, "cwd": "/w"}
    call = hook_client("claude-code").call(
        json.dumps(event).encode(), directory="/", own_servers=frozenset
    )
    assert call.native is not None
    assert call.native.values["edits"] == [
        {"old": "a", "new": "b", "all": None},
        {"old": "c", "new": None, "all": True},
        {"old": None, "new": None, "all": None},
    ]
    event = {"tool": "bash", "input": {"command": "ls", "workdir": "sub"}, "directory": "/w"}
    call = hook_client("opencode").call(
        json.dumps(event).encode(), directory="/", own_servers=frozenset
    )
    assert call.native is not None
    assert call.native.directory == "/w/sub"


def test_tools_of_servers_are_named_by_server_and_tool() -> None:
    resources = []
    for client, tool in (("claude-code", "mcp__a_b__c__d"), ("gemini-cli", "mcp_a_c_d")):
        event = {"tool_name": tool, "tool_input": {}, "cwd": "/w"}
        call = hook_client(client).call(
            json.dumps(event).encode(), directory="/", own_servers=lambda: frozenset({"a_b"})
        )
        assert call.native is not None
        assert call.native.kind == "mcp"
        assert call.native.is_ours == (client == "claude-code")
        resources.append((call.native.resource, *call.native.others))
    assert resources == [("a_b/c__d", "a_b__c/d"), ("a/c_d", "a_c/d")]
    event = {"hook_event_name": "beforeMCPExecution", "tool_name": "t", "url": "u"}
    call = hook_client("cursor").call(
        json.dumps(event).encode(), directory="/", own_servers=frozenset
    )
    assert call.native is not None
    assert call.native.resource == "u/t"


def test_an_event_without_a_place_is_of_where_the_hook_runs() -> None:
    client = hook_client("copilot-cli")
    call = client.call(
        b'{"toolName": "x", "toolArgs": "text"}', directory="/w", own_servers=frozenset
    )
    assert (call.directory, call.arguments) == ("/w", {"input": "text"})
    with pytest.raises(HookEventError, match="directory"):
        client.call(b"{}", directory="w", own_servers=frozenset)

"""A thousand executable skills over MCP: what is listed, found, loaded and called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.frontends.mcp_peer import Peer, Pipe
from tests.house.deferred import write_kinds

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

LISTING_BYTES = 20_000
CODE = "[skill_code]\nenabled = true\n"


class Talk:
    """One client's requests and the notifications between them."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.number = pipe, 0
        self.heard: list[str] = []
        self.hello: dict[str, Any] = pipe.shake_hands()["result"]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        self.pipe.send(method, self.number, **params)
        while (message := self.pipe.receive()).get("id") != self.number:
            self.heard.append(message["method"])
        return message

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.ask("tools/list")["result"]["tools"]]


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def test_a_thousand_executable_skills_have_room(peer: Peer) -> None:
    peer.configure(CODE)
    write_kinds(peer.home / ".config/skillhouse/skills", 1_000)
    with Pipe(peer) as pipe:
        talk = Talk(pipe)
        answer = talk.ask("tools/list")
        assert len(json.dumps(answer)) <= LISTING_BYTES
        listed = {tool["name"]: tool for tool in answer["result"]["tools"]}
        assert "call_skill_tool" in listed
        assert "kind-0" in listed["skill"]["description"]
        found = text(talk.call("search_skills", {"query": "add numbers of kind 77"}))
        first, tool, schema = found.splitlines()[:3]
        assert first.startswith("kind-77: ")
        assert tool.startswith("`kind-77__add`: ")
        assert json.loads(schema.partition(": ")[2])["required"] == ["a", "b"]
        talk.heard.clear()
        assert not talk.call("skill", {"name": "kind-77"})["isError"]
        assert talk.heard == ["notifications/tools/list_changed"]
        answer = talk.ask("tools/list")
        assert len(json.dumps(answer)) <= LISTING_BYTES
        assert [t["name"] for t in answer["result"]["tools"] if "kind" in t["name"]] == [
            "kind-77__add"
        ]
        wrong = talk.call("call_skill_tool", {"name": "kind-5__add", "arguments": {"a": 1}})
        assert wrong["isError"]
        assert "it lacks `b`" in text(wrong)
        assert '"required":["a","b"]' in text(wrong)
        talk.heard.clear()
        # Loading it once more changes nothing.
        talk.call("skill", {"name": "kind-77"})
        assert talk.heard == []


def test_two_clients_have_a_list_each(peer: Peer) -> None:
    peer.configure(f"tool_count = 20\n{CODE}")
    write_kinds(peer.home / ".config/skillhouse/skills", 6)
    with Pipe(peer) as one, Pipe(peer) as two:
        mine, other = Talk(one), Talk(two)
        mine.call("skill", {"name": "kind-1"})
        assert "kind-1__add" in mine.names()
        assert "kind-1__add" not in other.names()


def test_a_question_is_about_the_tool_that_is_called(peer: Peer) -> None:
    ask = '[[rules]]\neffect = "ask"\naction = "skill_tool"\npattern = "*"\n'
    peer.configure(f"tool_count = 20\n{CODE}{ask}")
    write_kinds(peer.home / ".config/skillhouse/skills", 6)
    with Pipe(peer) as pipe:
        talk = Talk(pipe)
        given = {"name": "kind-1__add", "arguments": {"a": 1, "b": 2}}
        assert "not approved yet" in text(talk.call("call_skill_tool", given))
    (waiting,) = json.loads(peer.skillhouse("approvals", "list", "--json"))["approvals"]
    assert waiting["tool"] == "kind-1__add"
    tools = {json.loads(line)["tool"] for line in peer.log.read_text().splitlines()}
    assert tools <= {"kind-1__add", "system:approval"}

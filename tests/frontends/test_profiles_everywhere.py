"""The same request under each profile at each entry: what the model is told, and how it loads."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from skillhouse.audit import KnownSecrets
from skillhouse.extensions.chat.conversation import ChatConversation
from skillhouse.extensions.chat.models import UsableModel
from skillhouse.extensions.chat.screen import Screen
from skillhouse.floor import dataclass
from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse
from tests.extensions.server.api.place import API, client_of
from tests.frontends.mcp_peer import LEGACY, text_of
from tests.house.places import write_skill
from tests.profiles.houses import house_under, rule

pytestmark = pytest.mark.slow

NAME = "tokyo-weather"
ABOUT = "Tells the weather in Tokyo. Use when the user asks about rain there."
BODY = "Look out of the window in Shibuya.\n"
REQUEST = "Will it rain in Tokyo?"

Call = tuple[str, dict[str, str]]
Next = Callable[[str, list[str]], Call | None]
"""Gives a model's next call by what it was told and the results so far; None ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What a profile's design prints, as patterns, and the calls by which a model loads."""

    says: tuple[str, ...]
    says_not: tuple[str, ...]
    calls: Next


def by_location(told: str, results: list[str]) -> Call | None:
    [location] = re.findall(rf"<name>{NAME}</name>.*?<location>(.*?)</location>", told, re.DOTALL)
    return None if results else ("read", {"path": location})


def by_name(parameter: str, value: str = NAME) -> Next:
    return lambda _, results: None if results else ("skill", {parameter: value})


def by_search(_: str, results: list[str]) -> Call | None:
    if not results:
        return "search_skills", {"query": REQUEST}
    assert NAME in results[0]
    return None if len(results) > 1 else ("load_skill", {"skill_name": NAME})


def nothing(_: str, results: list[str]) -> None:
    assert not results


KINDS = ("sea", "woods", "night", "snow")
LIST = "<available_skills>"
ENTRY = rf"<name>{NAME}</name>\n    <description>{re.escape(ABOUT)}</description>\n"
DESIGNS = {
    "default": Design(
        says=(rf"(?m)^{NAME}: {re.escape(ABOUT)}$",), says_not=(LIST,), calls=by_name("name")
    ),
    "owliabot": Design(
        says=(
            r"## Skills \(mandatory\)\n\nBefore replying: scan <available_skills> <description>",
            rf"{ENTRY}    <location>/.+/SKILL.md</location>",
        ),
        says_not=(rf"(?m)^{NAME}: ",),
        calls=by_location,
    ),
    "opencode": Design(
        says=(
            r"Use the skill tool to load a skill when a task matches its description\.\n<available",
            rf"{ENTRY}    <location>file:///.+/SKILL.md</location>",
        ),
        says_not=(rf"(?m)^{NAME}: ", r"\(mandatory\)"),
        calls=by_name("name"),
    ),
    "owliabot-js": Design(says=(), says_not=(NAME, LIST), calls=nothing),
    "openseed": Design(says=("load_skill",), says_not=(NAME, LIST), calls=by_search),
    "claude-desktop": Design(
        says=(rf"(?m)^- \*\*{NAME}\*\*: {re.escape(ABOUT)}$", "## Available Skills"),
        says_not=(rf"(?m)^{NAME}: ", LIST),
        calls=by_name("skill", f"explicit:{NAME}"),
    ),
}


def played(design: Design, told: str, call: Callable[[str, dict[str, str]], str]) -> list[str]:
    """Return the results of the calls that a model makes."""
    results: list[str] = []
    while (found := design.calls(told, results)) is not None:
        results.append(call(*found))
    return results


def library(house: Skillhouse, design: Design) -> tuple[str, list[str]]:
    tools = "\n".join(tool.description for tool in house.tools())
    told = f"{house.system_prompt()}\n{tools}"
    return told, played(design, told, lambda name, given: house.call_sync(name, given).content)


def mcp(house: Skillhouse, design: Design) -> tuple[str, list[str]]:
    async def main() -> tuple[str, list[str]]:
        server = SkillhouseServer(house, ToolListing(house, "default"), agent="default", user="me")
        async with connected(server) as client:
            tools = (await client.list_tools()).tools
            told = "\n".join([client.instructions or "", *(tool.description for tool in tools)])
            results: list[str] = []
            while (found := design.calls(told, results)) is not None:
                results.append(text_of(await client.call_tool(*found)))
            return told, results

    return anyio.run(main)


@asynccontextmanager
async def connected(server: SkillhouseServer) -> AsyncIterator[Any]:
    async with Client(server.sdk, mode=LEGACY) as client:
        yield client


def chat(house: Skillhouse, design: Design) -> tuple[str, list[str]]:
    told, results = "", []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        nonlocal told, results
        said = "\n".join(one.instructions or "" for one in messages if one.kind == "request")
        told = "\n".join([said, *(tool.description or "" for tool in info.function_tools)])
        parts = [part for one in messages for part in one.parts]
        results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if (found := design.calls(told, results)) is None:
            yield "done"
        else:
            made = json.dumps(found[1])
            yield {0: DeltaToolCall(found[0], made, tool_call_id=f"call-{len(results)}")}

    async def main() -> None:
        screen = Screen(io.StringIO(), io.StringIO())
        model = UsableModel(model=FunctionModel(stream_function=stream), reports_end=False)
        conversation = ChatConversation(house, model, screen, session_id="s1", known=KnownSecrets())
        await conversation.ask(REQUEST)
        await house.services.release_loop()

    anyio.run(main)
    return told, results


def http(house: Skillhouse, design: Design) -> tuple[str, list[str]]:
    client = client_of(house)
    tools = client.get(f"{API}/tools").json()["tools"]
    prompt = client.get(f"{API}/catalog").json()["prompt"]
    told = "\n".join([prompt, *(tool["description"] for tool in tools)])

    def call(name: str, given: dict[str, str]) -> str:
        answer = client.post(f"{API}/calls", json={"tool": name, "arguments": given}).json()
        assert answer["status"] == "ok", answer
        content: str = answer["content"]
        return content

    return told, played(design, told, call)


ENTRIES = {"library": library, "mcp": mcp, "chat": chat, "http": http}


@pytest.mark.req("S000-43", "S000-47", "S000-48", "S001-40", "S003-13", "S004-44")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("profile", DESIGNS)
def test_each_design_is_printed_as_it_is_and_loads_the_skill_at_every_entry(
    tmp_path: Path, profile: str, entry: str
) -> None:
    design, root = DESIGNS[profile], tmp_path / "given"
    write_skill(root / NAME, ABOUT, BODY)
    # Design 001 asks for each skill.
    allowed = rule("allow", "*")
    with house_under(tmp_path, profile, allowed, roots=[root], cache_directory=None) as house:
        told, results = ENTRIES[entry](house, design)
    for pattern in design.says:
        # A design that finds by search has no words of its own over the API and in a library.
        assert re.search(pattern, told) or (profile == "openseed" and entry != "mcp"), told
    for pattern in design.says_not:
        assert not re.search(pattern, told), told
    assert (BODY.strip() in results[-1]) if results else profile == "owliabot-js"


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("count", [41, 72, 200])
def test_every_skill_is_named_at_every_entry(tmp_path: Path, count: int, entry: str) -> None:
    names = [f"bird-of-the-{kind}-{at}" for at in range(count // 4 + 1) for kind in KINDS][:count]
    for name in names:
        write_skill(tmp_path / "given" / name, f"{name.title()}: {ABOUT}" + " And then some." * 9)
    design = Design(says=(), says_not=(), calls=nothing)
    given = [tmp_path / "given"]
    with house_under(tmp_path, "default", roots=given, cache_directory=None) as house:
        said, _ = ENTRIES[entry](house, design)
    named = [name for name in names if re.search(rf"(?<![\w/-]){name}(?![\w-])", said)]
    # A client over MCP that is not known may cut what is longer.
    assert named == names or (entry, count) == ("mcp", 200)
    assert len(named) > 80 or count < 200

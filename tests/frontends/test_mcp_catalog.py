"""Tests of the catalog that reaches a client over MCP: its bounds, its order, and when it comes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.discovery import Root, discover
from skillhouse.frontends.mcp.handshake import FastHandshake
from skillhouse.frontends.mcp.skill_resources import SkillResources
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.runtime import Skillhouse, configured
from tests.frontends.mcp_peer import LEGACY, MODERN, Peer, Pipe, connected, handshake, place_of
from tests.runtime.places import make_places, write_skill

pytestmark = pytest.mark.slow

BOUND = 2_000
LISTING_BYTES = 12_000
SENTENCE = (
    "Creates, edits and reviews documents of one kind or another with comments, styles and "
    "changes, and reads what is in them."
)
ALWAYS = {"anthropic/alwaysLoad": True}
WHOLE = {**ALWAYS, "anthropic/maxResultSizeChars": 300_000}


def write_many(peer: Peer, count: int) -> None:
    """Write skills as long as published ones are, the last of which has the first name."""
    for at in range(count):
        name = f"document-kind-{at:04}"
        write_skill(peer.home / f".claude/skills/{name}", f"{SENTENCE} Use it for number {at}.")


def listed_in(text: str) -> tuple[int, dict[str, str]]:
    """Return how many skills a text leaves out, and the sentences of the others by name."""
    more = re.search(r"^(\d+) more: `search_skills`$", text, re.MULTILINE)
    found = re.findall(r"^([a-z0-9-]+): (.+)$", text, re.MULTILINE)
    return int(more[1]) if more else 0, dict(found)


@pytest.mark.parametrize("count", [43, 1_294])
def test_at_least_twenty_skills_reach_a_client_within_its_bounds(peer: Peer, count: int) -> None:
    write_many(peer, count - 3)
    with Pipe(peer) as pipe:
        hello = pipe.shake_hands()["result"]
        pipe.send("tools/list", 1)
        answer = pipe.receive()
    tools = {tool["name"]: tool for tool in answer["result"]["tools"]}
    assert len(json.dumps(answer)) < LISTING_BYTES
    for text in (hello["instructions"], tools["skill"]["description"]):
        assert len(text) <= BOUND
        assert str(peer.home) not in text
        assert "<" not in text
        left, sentences = listed_in(text)
        assert len(sentences) >= 20
        assert left + len(sentences) == count
        # What is cut is cut between words, and marked.
        for sentence in sentences.values():
            assert re.match(rf"{re.escape(sentence.removesuffix('…'))}(\W|$)", SENTENCE)
            assert sentence.endswith("…") == (sentence != SENTENCE)
    has_names = "enum" in tools["skill"]["inputSchema"]["properties"]["name"]
    assert has_names is (count == 43)
    # Claude Code would write a longer skill into a file and show the model 2,000 characters of it.
    assert {name: tool["_meta"] for name, tool in tools.items() if "_meta" in tool} == {
        "skill": WHOLE,
        "search_skills": ALWAYS,
    }
    # All that Codex shows of them to a model that searches for tools.
    first = hello["instructions"].splitlines()[0]
    assert len(first) <= 250
    assert "`skill`, and follow it: document-kind-0000, " in first
    assert re.search(rf", {count - first.count('document-kind-'):,} more\.$", first)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_every_transport_and_version_has_the_same_catalog(
    peer: Peer, transport: str, mode: str
) -> None:
    write_skill(peer.home / ".agents/skills/notes", "Takes notes. Use it often.")

    async def ask(place: tuple[str, str]) -> tuple[str, str, Any]:
        async with connected(peer, place, "auto" if mode == MODERN else mode) as client:
            tool = next(t for t in (await client.list_tools()).tools if t.name == "skill")
            return client.instructions or "", tool.description or "", tool.meta

    with place_of(peer, transport) as place:
        instructions, description, meta = anyio.run(ask, place)
    assert next(iter(listed_in(instructions)[1].items())) == ("notes", "Takes notes.")
    assert listed_in(instructions) == listed_in(description)
    assert meta == WHOLE


def test_the_projects_skills_come_before_the_users_and_those_before_the_built_in(
    peer: Peer,
) -> None:
    write_skill(peer.home / ".agents/skills/aaa", "The user's.")
    write_skill(peer.project / ".agents/skills/zzz", "The project's.")
    peer.skillhouse("trust", "--yes", str(peer.project))
    with Pipe(peer) as pipe:
        text = pipe.shake_hands()["result"]["instructions"]
    assert list(listed_in(text)[1])[:3] == ["zzz", "aaa", "github"]


def test_what_is_denied_or_off_is_in_no_catalog(peer: Peer) -> None:
    for name in ("seen", "denied", "off"):
        write_skill(peer.home / f".agents/skills/{name}", "A sentence.")
    peer.configure('[[rules]]\neffect = "deny"\naction = "skill"\npattern = "denied"\n')
    peer.skillhouse("disable", "off")
    with Pipe(peer) as pipe:
        text = pipe.shake_hands()["result"]["instructions"]
        pipe.send("tools/list", 1)
        text += json.dumps(pipe.receive())
    assert "seen" in text
    assert "denied" not in text
    assert "off: " not in text


def test_without_skills_there_are_no_instructions(peer: Peer) -> None:
    peer.configure('[[rules]]\neffect = "deny"\naction = "skill"\npattern = "*"\n')
    with Pipe(peer) as pipe:
        assert "instructions" not in pipe.shake_hands()["result"]


def greeted(fast_handshake: FastHandshake) -> dict[str, Any]:
    """Return what the fast handshake answers to `initialize`."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": handshake("2025-06-18")}
    answer = fast_handshake.answer(message)
    assert answer is not None
    result: dict[str, Any] = json.loads(answer)["result"]
    return result


def test_a_client_that_asks_before_the_skills_are_found_waits_for_them() -> None:
    fast_handshake = FastHandshake("find them")
    finding = threading.Thread(target=fast_handshake.set_instructions, args=("here they are",))
    finding.start()
    assert greeted(fast_handshake)["instructions"] == "here they are"
    finding.join()


def test_a_client_does_not_wait_for_ever_and_learns_how_to_find_skills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skillhouse.frontends.mcp.handshake.INSTRUCTIONS_SECONDS", 0)
    assert greeted(FastHandshake("find them"))["instructions"] == "find them"
    assert "instructions" not in greeted(FastHandshake())


def test_instructions_change_with_the_skills(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        listing = ToolListing(house, "default")
        assert "github: " in listing.instructions()
        write_skill(tmp_path / "home/.agents/skills/notes", "Takes notes.")
        assert listing.changed()
        assert "\nnotes: Takes notes.\ngithub: " in listing.instructions()


def test_the_index_of_many_skills_is_as_large_as_the_catalog_says(peer: Peer) -> None:
    write_many(peer, 43)
    value = json.loads(peer.skillhouse("list", "--json"))["catalog"]
    index = discover([Root(path=peer.home / ".claude/skills", scope="user")])
    total = len(index.skills) + 3
    assert value["listed"] + value["omitted"] == total
    assert value["tool"]["listed"] + value["tool"]["omitted"] == total
    assert (value["budget_tokens"], value["tool"]["chars"]) == (2_000, 2_000)
    assert value["tokens"] <= 2_000
    said = peer.skillhouse("list")
    assert f"left out of the catalog of 2,000 tokens: {value['omitted']} skills" in said
    assert f"characters: {value['tool']['omitted']} skills; `search_skills` finds them" in said


@pytest.mark.parametrize("name", ["aaa", "notes"])
def test_m9_skills_are_served_by_name_and_the_first_has_a_directory(peer: Peer, name: str) -> None:
    skill = write_skill(peer.home / f".agents/skills/{name}")
    (skill / "references").mkdir()
    (skill / "references/a.md").write_text("A\n", encoding="utf-8")
    with Skillhouse(configured(peer.places)) as house:
        offer = SkillResources(lambda: house.view().listed.skills)
        entries, cursor = offer.page(None)
    names = [entry.skill.name for entry in entries]
    assert (names, cursor) == (sorted([name, "github", "weather", "web-search"]), None)
    assert "references" in entries[0].manifest.directories

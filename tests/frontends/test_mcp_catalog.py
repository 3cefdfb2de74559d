"""Tests of the catalog that reaches a client over MCP: its bounds, its order, and when it comes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import Implementation

from skillhouse.discovery import Root, discover
from skillhouse.discovery.catalog_text import width
from skillhouse.frontends.mcp.handshake import FastHandshake
from skillhouse.frontends.mcp.skill_resources import SkillResources
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.frontends.mcp.tried_clients import TRIED_CLIENTS, Places, client_lists
from skillhouse.house import Skillhouse, configured
from skillhouse.house.model_tools import description_of
from tests.frontends.mcp_peer import LEGACY, MODERN, Peer, Pipe, connected, handshake, place_of
from tests.house.places import make_places, write_skill

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


BY_NAME = "by name alone: "


def listed_in(text: str) -> tuple[int, dict[str, str]]:
    """Return how many skills a text leaves out, and the descriptions of the others by name."""
    more = re.search(r"^(\d+) more: `search_skills`$", text, re.MULTILINE)
    found = dict(re.findall(r"^([a-z0-9-]+): (.+)$", text, re.MULTILINE))
    bare = re.search(rf"^{BY_NAME}(.+)$", text, re.MULTILINE)
    return int(more[1]) if more else 0, found | dict.fromkeys(
        bare[1].split(", ") if bare else (), ""
    )


@pytest.mark.parametrize(("count", "named"), [(43, 43), (72, 72), (200, 80), (1_294, 80)])
def test_all_skills_or_as_many_as_its_bounds_hold_are_named_to_a_client(
    peer: Peer, count: int, named: int
) -> None:
    write_many(peer, count - 3)
    # Else a thousand new files may take more than the second for which the first answer waits.
    peer.skillhouse("list")
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
        left, descriptions = listed_in(text)
        assert len(descriptions) >= named
        assert left + len(descriptions) == count
        # What is cut is marked.
        for name, description in descriptions.items():
            whole = f"{SENTENCE} Use it for number {int(name[-4:])}." if name[-1].isdigit() else ""
            assert description.endswith("…") == (description not in ("", whole)) or not whole
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
    assert next(iter(listed_in(instructions)[1].items())) == ("notes", "Takes notes. Use it often.")
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
    finding = threading.Thread(
        target=fast_handshake.set_instructions, args=({Places.EACH: "here they are"},)
    )
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
    write_many(peer, 600)
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


def lists_of(peer: Peer, client: str) -> tuple[str, str, str]:
    """Return the instructions, and what skill tool and parameter say of themselves to a client."""
    params = {**handshake("2025-06-18"), "clientInfo": {"name": client, "version": "1"}}
    with Pipe(peer) as pipe:
        pipe.send("initialize", 0, **params)
        hello = pipe.receive()["result"]
        pipe.send("notifications/initialized")
        pipe.send("tools/list", 1)
        tools = {tool["name"]: tool for tool in pipe.receive()["result"]["tools"]}
    parameter = tools["skill"]["inputSchema"]["properties"]["name"]["description"]
    return hello["instructions"], tools["skill"]["description"], parameter


FURTHER = "the skill to load; further skills: "


@pytest.mark.parametrize(("count", "named"), [(4, 4), (72, 72), (200, 200), (400, 215)])
def test_a_client_that_shows_both_places_gets_different_halves(
    peer: Peer, count: int, named: int
) -> None:
    write_many(peer, count - 3)
    *texts, parameter = lists_of(peer, "claude-code")
    halves = [listed_in(text) for text in texts]
    both = [listed_in(text) for text in lists_of(peer, "some-client")[:2]]
    # What fits is complete in each, and an unknown client gets as much as fits in each.
    assert both[0][1].keys() <= both[1][1].keys()
    first, second = (set(found) for _, found in halves)
    if count == 4:
        assert halves == both
        return
    third = set(parameter.removeprefix(FURTHER).split(", ")) if count > 72 else set()
    assert parameter.startswith(FURTHER) is (count > 72)
    assert sum(map(len, third)) <= 1_000
    found = first | second | third
    assert len(first) + len(second) + len(third) == len(found) >= named
    assert [left for left, _ in halves] == [0, count - len(found)]
    assert all(len(text) <= BOUND for text in texts)


@pytest.mark.parametrize(
    "client", [name for name, known in TRIED_CLIENTS.items() if known.places is Places.TOOL]
)
def test_a_client_that_cuts_no_description_gets_every_skill_there(peer: Peer, client: str) -> None:
    write_many(peer, 197)
    instructions, description, parameter = lists_of(peer, client)
    assert parameter == "the skill to load"
    assert BOUND < len(description) <= 8_000
    left, found = listed_in(description)
    assert (left, len(found)) == (0, 200)
    # As a model that looks for tools itself is shown nothing else before it has.
    assert len(instructions) <= 250
    assert "document-kind-0000, " in instructions


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_client_gets_over_http_what_it_shows(peer: Peer, mode: str) -> None:
    write_many(peer, 197)

    async def named(place: tuple[str, str], name: str) -> list[set[str]]:
        info = Implementation(name=name, version="1")
        mode_of = "auto" if mode == MODERN else mode
        async with connected(peer, place, mode_of, client_info=info) as client:
            tools = (await client.list_tools()).tools
            tool = next(tool for tool in tools if tool.name == "skill")
            parameter = tool.input_schema["properties"]["name"]["description"]
            texts = (client.instructions or "", tool.description or "")
        further = parameter.partition(FURTHER)[2].split(", ")
        return [*(set(listed_in(text)[1]) for text in texts), set(filter(None, further))]

    with place_of(peer, "http") as place:
        names = ("codex-mcp-client", "claude-code", "another")
        codex, claude, another = (anyio.run(named, place, name) for name in names)
    assert len(codex[1]) == 200
    assert another[0] <= another[1]
    assert 80 <= len(another[0]) < 100
    assert not claude[0] & claude[1]
    # The first line of the instructions, which is for all clients, takes the room of 10 names.
    assert 190 <= len(set.union(*claude)) == sum(map(len, claude))


def test_a_list_that_a_client_counts_longer_is_shortened_and_not_cut(tmp_path: Path) -> None:
    for at in range(10):
        write_skill(tmp_path / f"home/.agents/skills/kind-{at}", "Reads … and … " + "x" * 120)
    with Skillhouse(configured(make_places(tmp_path))) as house:
        [skill] = [tool for tool in house.tools() if tool.name == "skill"]
        whole = skill.description
        chars = (len(whole) + width(whole)) // 2
        text = description_of(skill, chars)
    assert len(whole) < chars < width(whole)
    assert len(listed_in(text)[1]) == 13
    assert width(text) <= chars


def test_a_skill_that_comes_later_is_in_the_half_that_can_change(peer: Peer) -> None:
    write_many(peer, 60)
    with Skillhouse(configured(peer.places)) as house:
        half = client_lists(house.view())[Places.HALVES]
        before = (half.in_tool(house.view(), BOUND) or ("",))[0]
        write_skill(peer.home / ".claude/skills/aaa", "Comes first by its name.")
        house.refresh()
        after = (half.in_tool(house.view(), BOUND) or ("",))[0]
        told = listed_in(half.instructions)[1].keys() | listed_in(after)[1].keys()
        assert {skill.name for skill in house.view().visible.skills} == told
        assert "aaa" not in before
        assert all(len(text) <= BOUND for text in (half.instructions, before, after))


def test_over_http_a_later_skill_is_named_to_a_client_with_earlier_instructions(
    peer: Peer,
) -> None:
    write_many(peer, 197)
    with Skillhouse(configured(peer.places)) as house:
        listing = ToolListing(house, "default")
        before = set(listed_in(listing.instructions())[1])
        write_skill(peer.home / ".claude/skills/aaa", "Comes first by its name.")
        assert listing.changed()
        after = set(listed_in(listing.instructions())[1])
        tools = {one["name"]: one for one in listing.tools(listing.list_for("claude-code"))}
        now = set(listed_in(tools["skill"]["description"])[1])
    assert "aaa" in after - before
    assert "aaa" in now
    # What the later instructions have no room for any more.
    assert before - after <= now


def test_a_profile_of_a_design_has_no_halves(peer: Peer) -> None:
    write_many(peer, 60)
    for profile in ("opencode", "owliabot", "openseed"):
        with Skillhouse(configured(peer.places), profile=profile) as house:
            assert client_lists(house.view()).keys() == {Places.EACH}

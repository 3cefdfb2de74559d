"""A skill that is installed from within a conversation, over a real MCP server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse, configured
from skillhouse.tools import FIND_AND_INSTALL
from tests.extensions.installs.house_with_tool import ON, answer, configure
from tests.frontends.mcp_inside import ERAS, YES, Inside, Person, talk
from tests.frontends.mcp_peer import Peer, Pipe, text_of
from tests.frontends.test_mcp_deferred import Talk, text
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, published_routes

# It starts processes.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]


WANTED = {"wanted": "notes"}


@pytest.fixture
def official(peer: Peer) -> StaticRepository:
    made = StaticRepository(peer.home.parent / "official")
    made.make("1.0.0")
    return made


def repository(address: str) -> str:
    return f'[[skills.repositories]]\nname = "official"\nurl = "{address}"\ntrusted = true\n'


def test_found_asked_about_installed_and_listed(peer: Peer, official: StaticRepository) -> None:
    with served(published_routes(official)) as address:
        peer.configure(f"{ON}{repository(address)}")
        with Pipe(peer) as pipe:
            talk = Talk(pipe)
            assert FIND_AND_INSTALL in talk.names()
            found = talk.call(FIND_AND_INSTALL, {"wanted": "notes for tests"})
            assert "- notes 1.0.0 in official: About notes." in text(found)
            call = {"wanted": "notes", "repository": "official"}
            assert "not approved yet" in text(talk.call(FIND_AND_INSTALL, call))
            (waiting,) = json.loads(peer.skillhouse("approvals", "list", "--json"))["approvals"]
            assert waiting["title"].startswith("install the skill `notes` 1.0.0 from official")
            with Skillhouse(configured(peer.places)) as house:
                answer(house)
            talk.heard.clear()
            done = talk.call(FIND_AND_INSTALL, call)
            assert not done["isError"], text(done)
            assert "Version 1.0.0 of default." in text(done)
            assert "notifications/tools/list_changed" in talk.heard
            listed = {t["name"]: t for t in talk.ask("tools/list")["result"]["tools"]}
            assert "About notes." in listed["skill"]["description"]
            assert listed[FIND_AND_INSTALL]["annotations"] == {
                "readOnlyHint": False,
                "destructiveHint": True,
                "openWorldHint": True,
            }


def test_off_it_is_unknown(peer: Peer, official: StaticRepository) -> None:
    with served(published_routes(official)) as address:
        peer.configure(repository(address))
        with Pipe(peer) as pipe:
            talk = Talk(pipe)
            assert FIND_AND_INSTALL not in talk.names()
            assert "error" in talk.ask("tools/call", name=FIND_AND_INSTALL, arguments={})


@pytest.mark.parametrize("mode", ERAS)
def test_the_question_is_answered_at_the_client(tmp_path: Path, mode: str) -> None:
    official = StaticRepository(tmp_path / "official")
    official.make("1.0.0")
    configure(tmp_path, ("official", official.address, False))
    person = Person(YES)
    inside = Inside(tmp_path)
    result = talk(inside, lambda client: client.call_tool(FIND_AND_INSTALL, WANTED), mode, person)
    assert not result.is_error, result
    assert "Version 1.0.0 of default." in text_of(result)
    [shown] = person.shown
    assert " ".join(shown.message.split()).startswith(
        "install the skill `notes` 1.0.0 from official; it is unsigned; "
        "its repository is not trusted"
    )
    assert "publisher: unknown: it is unsigned" in shown.message
    assert "executable: scripts/run.sh" in shown.message

"""The whole way of a request: a scripted model goes from the catalog to an answer, over MCP."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from mcp.client import Client

from skillhouse.audit import AuditEntry, read_records, verify_log
from tests.frontends.mcp_inside import YES, Person
from tests.frontends.mcp_peer import LEGACY, MODERN, Peer, has_sandbox, text_of
from tests.harness import Need
from tests.house.places import write_skill
from tests.loopback_http import QuietHandler, serving_http

pytestmark = pytest.mark.slow


WEATHER = "Tokyo: ⛅️ +18°C\n"
RULES = """
[net]
hosts = ["{address}"]
private = ["127.0.0.2"]

[[rules]]
effect = "allow"
action = "exec"
pattern = "curl -s http://127.0.0.2:*"

[[rules]]
effect = "allow"
action = "network"
pattern = "curl -s http://127.0.0.2:*"
"""


class Forecast(QuietHandler):
    """Answers as the weather service does, and remembers what it was asked."""

    asked: list[str]

    def do_GET(self) -> None:
        """Answer any place with the same weather."""
        self.asked.append(self.path)
        body = WEATHER.encode()
        self.answer(200, body)


@pytest.fixture
def forecast() -> Iterator[tuple[str, list[str]]]:
    """Return the address of a service on this machine, and what it is asked."""
    asked: list[str] = []
    handler = type("Handler", (Forecast,), {"asked": asked})
    with serving_http(ThreadingHTTPServer(("127.0.0.2", 0), handler)) as server:
        yield f"http://127.0.0.2:{server.server_port}", asked


async def scripted_model(client: Client, request: str) -> str:
    """Do what a model does with a request, by rules that use only what it was told."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    catalog = tools["skill"].description or ""
    listed = re.findall(r"^([a-z-]+): (.+)$", catalog, re.MULTILINE)
    [name] = [name for name, text in listed if text.rstrip(".") in request]
    assert name in tools["skill"].input_schema["properties"]["name"]["enum"]
    body = text_of(await client.call_tool("skill", {"name": name}))
    [command] = re.findall(r"```bash\n(.*?)\n```", body)
    program, *params = command.split(" ")
    result = await client.call_tool("exec", {"command": program, "params": params})
    return f"It is now {text_of(result).strip()}"


@pytest.mark.req("S000-49")
@pytest.mark.parametrize("mode", [LEGACY, MODERN])
def test_a_scripted_model_walks_from_the_catalog_to_the_answer(
    peer: Peer,
    forecast: tuple[str, list[str]],
    need: Need,
    mode: str,
) -> None:
    need(shutil.which("curl"), "curl")
    need(has_sandbox(), "bubblewrap that can make namespaces")
    address, asked = forecast
    url = f"{address}/Tokyo?format=3"
    write_skill(
        peer.home / ".agents/skills/tokyo-weather",
        "weather in Tokyo.",
        f"# Weather\n\n```bash\ncurl -s {url}\n```\n",
    )
    peer.configure(RULES.format(address=address))

    async def main() -> str:
        async with peer.client(mode) as client:
            return await scripted_model(client, "How is the weather in Tokyo?")

    assert anyio.run(main) == f"It is now {WEATHER.strip()}"
    assert asked == ["/Tokyo?format=3"]
    loaded, executed, reached = sorted(
        read_records(peer.log, newest_first=False), key=lambda entry: entry.record.kind == "event"
    )
    assert reached.record.permissions[0].resource == f"GET {address}"
    assert _seen(loaded) == ("skill", "mcp", [("skill", "tokyo-weather", "allow")], "ok")
    command = f"curl -s {url}"
    assert _seen(executed) == ("exec", "mcp", [("exec", command, "allow")], "ok")
    assert loaded.record.arguments == {"name": "tokyo-weather"}
    assert executed.record.arguments == {
        "command": "curl",
        "params": ["-s", url],
    }
    assert executed.outcome is not None
    assert executed.outcome.detail["network"] == "proxy"
    assert executed.outcome.detail["exit_code"] == 0
    assert verify_log(peer.log).problems == ()


def _seen(entry: AuditEntry) -> tuple[str, str, list[tuple[str, str, str]], str]:
    record = entry.record
    assert record.kind == "intent"
    decided = [(each.action, each.resource, str(each.effect)) for each in record.permissions]
    return record.tool, record.channel, decided, entry.status


OWLIABOT = """
profile = "owliabot"

[net]
private = ["127.0.0.2"]
"""


@pytest.mark.req("S000-49")
def test_under_design_000_the_walk_needs_one_yes_for_command_and_network(
    peer: Peer, forecast: tuple[str, list[str]], need: Need
) -> None:
    """As published: the prompt has both skills, `read` gives the one, `curl` needs one yes."""
    need(shutil.which("curl"), "curl")
    need(has_sandbox(), "bubblewrap that can make namespaces")
    address, asked = forecast
    url = f"{address}/Tokyo?format=3"
    skills = peer.home / ".owliabot/skills"
    text = write_skill(skills / "weather", "weather in Tokyo.", f"```bash\ncurl -s '{url}'\n```\n")
    write_skill(skills / "github", "Works with pull requests.")
    peer.configure(OWLIABOT)
    prompt = peer.skillhouse("catalog")
    names = re.findall(r"<name>(.+)</name>", prompt)
    found = dict(zip(names, re.findall(r"<location>(.+)</location>", prompt), strict=True))
    assert {"github", "weather"} <= set(found)
    person = Person(YES)

    async def main() -> str:
        async with peer.client(elicitation_callback=person) as client:
            body = text_of(await client.call_tool("read", {"path": found["weather"]}))
            assert body == (text / "SKILL.md").read_text()
            [command] = re.findall(r"```bash\n(.*?)\n```", body)
            return text_of(await client.call_tool("exec", {"command": command}))

    assert anyio.run(main) == WEATHER
    assert asked == ["/Tokyo?format=3"]
    [question] = person.shown
    assert f"only GET {address}" in question.message


@pytest.mark.req("S000-48")
def test_every_listed_location_is_read_through_the_gate(peer: Peer) -> None:
    for name in ("one", "two"):
        write_skill(peer.home / f".agents/skills/{name}", body=f"The body of {name}.\n")

    skills = json.loads(peer.skillhouse("list", "--json"))["skills"]
    locations = [found["location"] for found in skills]

    async def main() -> dict[str, str]:
        async with peer.client() as client:
            return {
                location: text_of(await client.call_tool("read", {"path": location}))
                for location in locations
            }

    texts = anyio.run(main)
    assert len(texts) == 5
    assert texts == {location: Path(location).read_text(encoding="utf-8") for location in texts}
    entries = read_records(peer.log, newest_first=False)
    assert [(entry.record.arguments["path"], entry.status) for entry in entries] == [
        (location, "ok") for location in texts
    ]
    assert all(
        [each.action for each in entry.record.permissions] == ["skill", "read"] for entry in entries
    )

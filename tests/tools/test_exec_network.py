"""Tests of tools/command.py: the only way out of a command, in the real sandbox."""

from __future__ import annotations

import http.server
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, Channel, Unattended
from skillhouse.audit import read_records, verify_log
from skillhouse.floor.structs import replace
from skillhouse.house import NetSettings, Network, SecretSettings, Skillhouse, configured
from skillhouse.net import Route
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxLevel, detect
from tests.frontends.mcp_peer import has_sandbox
from tests.house.places import make_places
from tests.loopback_http import QuietHandler, serving_http
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

ALLOW_EXEC = Rule(effect=Effect.ALLOW, action="exec", pattern="*")


@pytest.fixture(autouse=True)
def sandboxed(need: Any) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no usable sandbox")
    need(shutil.which("python3", path="/usr/bin:/bin"), "no python3")


class Pages(http.server.ThreadingHTTPServer):
    """Remembers what it was asked for."""

    def __init__(self, *arguments: Any) -> None:
        self.asked: list[str] = []
        super().__init__(*arguments)


class Page(QuietHandler):
    """Says what it was asked for."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Pages)
        server.asked.append(self.path)
        if self.path.startswith("/to="):
            self.answer(302, headers={"Location": self.path.removeprefix("/to=")})
        else:
            self.answer(200, f"you asked for {self.path}".encode())


def newest_detail(house: Skillhouse) -> dict[str, Any]:
    """Return what the log says about the outcome of the last call."""
    found = read_records(house.audit_log.path, limit=5)
    return next(dict(entry.outcome.detail) for entry in found if entry.outcome is not None)


GET = """
import socket, sys, urllib.error, urllib.request
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=2)
    print("direct")
except OSError:
    pass
try:
    print(urllib.request.urlopen("http://shop.test:" + sys.argv[1] + sys.argv[2]).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
except OSError as error:
    print("none")
"""


@pytest.fixture
def pages() -> Iterator[Pages]:
    """A web server on the host's loopback that says what it was asked for."""
    with serving_http(Pages(("127.0.0.1", 0), Page)) as served:
        yield served


def net_house(
    tmp_path: Path,
    port: int,
    *rules: Rule,
    allowing: Rule = ALLOW_EXEC,
    person: Channel | None = None,
    **net: Any,
) -> Skillhouse:
    """Return a house that may reach shop.test, which is on loopback."""

    async def resolve(host: str, _: int) -> list[str]:
        await anyio.lowlevel.checkpoint()
        return {"shop.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}.get(host, [])

    settings = {"hosts": (f"http://shop.test:{port}",), "private": ("127.0.0.1/32",)} | net
    house = Skillhouse(
        configured(make_places(tmp_path)),
        channel=person or Unattended(),
        layers=(Layer(name="user", rules=(allowing, *rules)),),
        net=NetSettings(**settings),
    )
    house.services.network = Network(house.config, route=Route(resolve=resolve))
    return house


def get(house: Skillhouse, port: int, path: str = "/a") -> str:
    """Return what a program in the sandbox sees of the web."""
    arguments = {"command": "python3", "params": ["-c", GET, str(port), path]}
    result = house.call_sync("exec", arguments)
    assert result.data is not None
    assert result.data["stderr"] == ""
    return str(result.data["stdout"]).strip()


def network_rule(pattern: str, effect: Effect = Effect.ALLOW) -> Rule:
    return Rule(effect=effect, action="network", pattern=pattern)


@pytest.mark.parametrize(
    ("rules", "net", "seen", "recorded"),
    [
        ((), {}, "none", "none"),
        ((network_rule("curl *"),), {}, "none", "none"),
        ((network_rule("*", Effect.ASK),), {}, "none", "none"),
        ((network_rule("python3 *"),), {}, "you asked for /a", "proxy"),
        ((network_rule("python3 *"),), {"hosts": ()}, "403 skillhouse: no rule allows", "proxy"),
        ((network_rule("*"),), {"private": ()}, "403 skillhouse: shop.test leads to", "proxy"),
    ],
)
def test_a_granted_command_reaches_the_listed_hosts_by_the_proxy_and_nothing_directly(
    tmp_path: Path,
    pages: Pages,
    rules: tuple[Rule, ...],
    net: dict[str, Any],
    seen: str,
    recorded: str,
) -> None:
    with net_house(tmp_path, pages.server_port, *rules, **net) as house:
        found = get(house, pages.server_port)
        assert found.startswith(seen)
        assert "direct" not in found
        assert newest_detail(house)["network"] == recorded
        assert pages.asked == (["/a"] if seen.startswith("you") else [])


def test_each_request_of_a_command_is_in_the_log_before_it_is_sent(
    tmp_path: Path, pages: Pages
) -> None:
    port = pages.server_port
    secret = SecretSettings(name="KEY", env="HOUSE_KEY", hosts=("api.test",))
    places = make_places(tmp_path, {"HOUSE_KEY": "s3cr3t-value"})
    with net_house(tmp_path, port, network_rule("*"), secrets=(secret,)) as house:
        house.services.network = Network(
            replace(house.config, places=places), route=house.services.network.route
        )
        assert get(house, port) == "you asked for /a"
        assert get(house, port, "/s3cr3t-value").startswith("403 skillhouse: the request to")
        records = [r.record for r in read_records(house.audit_log.path, limit=9)]
        found = [r for r in records if r.kind == "event"]
        assert [(r.tool, r.status, r.detail["addresses"]) for r in reversed(found)] == [
            ("exec", "ok", "127.0.0.1"),
            ("exec", "denied", ""),
        ]
        resource = f"GET http://shop.test:{port}"
        assert {r.permissions[0].resource for r in found} == {resource}
        assert "secret `KEY`" in found[0].reason
        assert "s3cr3t-value" not in house.audit_log.path.read_text()
        assert verify_log(house.audit_log.path).problems == ()
    assert pages.asked == ["/a"]


def test_a_rule_about_fetch_takes_away_from_what_commands_reach(
    tmp_path: Path, pages: Pages
) -> None:
    port = pages.server_port
    for effect in (Effect.DENY, Effect.ASK):
        rule = Rule(effect=effect, action="fetch", pattern=f"* http://shop.test:{port}")
        with net_house(tmp_path, port, network_rule("*"), rule) as house:
            assert get(house, port).startswith("403 skillhouse: denied: rule `fetch")
    assert pages.asked == []


def test_a_line_of_which_one_program_may_reach_the_network_says_that_it_is_withheld(
    tmp_path: Path, pages: Pages
) -> None:
    said = "network withheld: rules grant it to `curl` and not to `cat`; run each by itself"
    (tmp_path / "project").mkdir(exist_ok=True)
    with net_house(tmp_path, pages.server_port, network_rule("curl *")) as house:
        (house.config.places.start / "a.txt").write_text("text")
        line = f"curl -s --max-time 2 http://shop.test:{pages.server_port}/a ; cat a.txt"
        result = house.call_sync("exec", {"command": line})
        assert f"[{said}]" in result.content
        assert newest_detail(house)["network"] == "none"
        assert pages.asked == []
        # What has no grant at all is as before, and so is what has one whole.
        for alone in ("cat a.txt", f"curl -s http://shop.test:{pages.server_port}/a"):
            assert "withheld" not in house.call_sync("exec", {"command": alone}).content


@pytest.mark.parametrize("rules", [(), (network_rule("make *"),), (network_rule("*"),)])
def test_what_an_unbound_rule_covers_has_no_network(
    tmp_path: Path, pages: Pages, rules: tuple[Rule, ...]
) -> None:
    (tmp_path / "project").mkdir(exist_ok=True)
    unbound = Rule(effect=Effect.ALLOW, action="exec", pattern="make *", unbound=True)
    with net_house(
        tmp_path, pages.server_port, *rules, allowing=unbound, person=Person([Answer.ONCE])
    ) as house:
        (house.config.places.start / "Makefile").write_text("all:\n\t@echo $$http_proxy.\n")
        result = house.call_sync("exec", {"command": "make"})
        said = "[no network: `make` runs whatever code the workspace holds]"
        assert result.content == f".\n\n{said}"
        assert newest_detail(house)["network"] == "none"


CURL = "curl -sS --max-time 5"


@pytest.fixture
def curl(need: Any) -> str:
    """The program with its options."""
    need(shutil.which("curl", path="/usr/bin:/bin"), "no curl")
    need(has_sandbox(), "bubblewrap that can make namespaces")
    return CURL


@pytest.mark.req("S000-49")
def test_one_yes_lets_a_command_reach_the_host_that_it_names(
    tmp_path: Path, pages: Pages, curl: str
) -> None:
    (tmp_path / "project").mkdir()
    port, person = pages.server_port, Person([Answer.ONCE])
    other = Rule(effect=Effect.ALLOW, action="exec", pattern="true")
    with net_house(tmp_path, port, allowing=other, person=person, hosts=()) as house:
        result = house.call_sync("exec", {"command": f"{curl} http://shop.test:{port}/a | cat"})
        assert (result.status, result.content) == ("ok", "you asked for /a")
        assert newest_detail(house)["network"] == "proxy"
    (question,) = person.asked
    assert ("network", f"only GET http://shop.test:{port}") in question.found
    assert [asked.action for asked in question.asked] == ["exec", "exec", "fetch"]
    assert pages.asked == ["/a"]


def test_a_yes_reaches_no_other_host_method_or_port(
    tmp_path: Path, pages: Pages, curl: str
) -> None:
    """A redirect to a host that is listed, or to another port: only what the question named."""
    (tmp_path / "project").mkdir()
    port = pages.server_port
    listed = (f"GET http://b.test:{port}",)
    lines = {
        f"{curl} -L http://shop.test:{port}/to=http://b.test:{port}/stolen": ["/to"],
        f"{curl} -L http://shop.test:{port}/to=http://shop.test:1/x": ["/to"],
    }
    for line, expected in lines.items():
        pages.asked.clear()
        with net_house(tmp_path, port, person=Person([Answer.ONCE]), hosts=listed) as house:
            house.call_sync("exec", {"command": line})
        assert [path[:3] for path in pages.asked] == expected, line
        shutil.rmtree(tmp_path / "home", ignore_errors=True)


@pytest.mark.parametrize(
    "rule",
    [
        network_rule("curl *", Effect.DENY),
        Rule(effect=Effect.DENY, action="fetch", pattern="*"),
    ],
)
def test_a_rule_against_it_is_not_asked_about(
    tmp_path: Path, pages: Pages, curl: str, rule: Rule
) -> None:
    (tmp_path / "project").mkdir()
    person = Person([Answer.ONCE])
    port = pages.server_port
    with net_house(tmp_path, port, rule, person=person) as house:
        result = house.call_sync("exec", {"command": f"{curl} http://shop.test:{port}/a"})
        assert result.status in ("denied", "error")
    assert person.asked == []
    assert pages.asked == []


def test_what_no_yes_could_reach_is_not_asked_about(
    tmp_path: Path, pages: Pages, curl: str
) -> None:
    (tmp_path / "project").mkdir()
    person = Person([Answer.ONCE])
    with net_house(tmp_path, pages.server_port, person=person, private=()) as house:
        for host in ("127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1"):
            house.call_sync("exec", {"command": f"{curl} 'http://{host}/a'"})
            assert newest_detail(house)["network"] == "none"
    assert person.asked == []

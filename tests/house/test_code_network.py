"""Tests of house/code_network.py: what SDKs of skills reach, what is said, what is kept."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import Skillhouse
from skillhouse.house.code_network import reach_of
from skillhouse.house.config import NetSettings, SecretSettings
from skillhouse.house.network import Network
from skillhouse.net import Route
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import ToolResult
from tests.house.coded import called, coded_house, letting_go, recorded, write_code
from tests.net.certificates import contexts
from tests.net.servers import fixed, ok, secure

HTTPS = """
    import os
    import ssl
    import urllib.request

    def tool(params, context):
        trusted = ssl.create_default_context(cafile=os.path.dirname(__file__) + "/ca.pem")
        with urllib.request.urlopen(params["url"], timeout=8, context=trusted) as answer:
            return answer.read().decode()

    tools = {"tool": tool}
"""


@pytest.fixture
def trusted(tmp_path: Path) -> ssl.SSLContext:
    """What a server named api.test shows; the skill has its certificate."""
    directory = tmp_path / "root/sdk"
    directory.mkdir(parents=True)
    server, _ = contexts(tmp_path, "api.test")
    pem = (tmp_path / "server.pem").read_text()
    (directory / "ca.pem").write_text(pem[: pem.index("-----BEGIN PRIVATE")])
    return server


def on_loopback(house: Skillhouse, *addresses: str) -> Skillhouse:
    """Give a house whose names all lead to these addresses."""
    route = Route(resolve=fixed(list(addresses or ("127.0.0.1",))))
    house.services.network = Network(house.config, route=route)
    return house


async def reached(house: Skillhouse, url: str) -> ToolResult:
    return await house.call("sdk:tool", {"url": url})


def events(house: Skillhouse) -> list[tuple[str, Any]]:
    """Return the events and calls of the log."""
    return [(one.record.detail.get("event", "call"), one.record) for one in recorded(house)]


async def test_an_sdk_reaches_a_host_that_the_manifest_and_the_operator_name(
    trusted: ssl.SSLContext, status: SandboxStatus, tmp_path: Path
) -> None:
    async with secure(trusted, ok(b"hello")) as server:
        host = f"api.test:{server.port}"
        write_code(tmp_path / "root/sdk", HTTPS, hosts=[host])
        house = coded_house(tmp_path, tmp_path / "root", status=status, hosts=(f"CONNECT {host}",))
        async with letting_go(on_loopback(house)):
            result = await reached(house, f"https://{host}/v1")
    assert result.content == "hello"
    call, opened, ended = recorded(house)
    number = call.outcome.detail["call"]
    place = f"api.test:{server.port}"
    assert opened.record.arguments == ended.record.arguments == {"call": number}
    assert opened.record.tool == ended.record.tool == "sdk:tool"
    assert opened.record.permissions[0].resource == f"CONNECT https://{place}"
    detail = ended.record.detail
    assert (detail["host"], detail["port"]) == ("api.test", server.port)
    assert detail["sent"] > 300 < detail["received"]
    bytes_ = f"sent {detail['sent']} received {detail['received']}"
    assert call.outcome.detail["connections"] == [f"CONNECT {place} {bytes_}"]


PLAIN = """
    import urllib.request

    def tool(params, context):
        return urllib.request.urlopen(params["url"], timeout=8).read().decode()

    tools = {"tool": tool}
"""


def plain_house(
    base: Path, status: SandboxStatus, *, declared: tuple[str, ...], hosts: tuple[str, ...] = ()
) -> Skillhouse:
    write_code(base / "root/sdk", PLAIN, hosts=declared)
    return on_loopback(coded_house(base, base / "root", status=status, hosts=hosts))


def test_without_a_host_in_the_manifest_the_error_says_what_to_write(
    status: SandboxStatus, tmp_path: Path
) -> None:
    house = plain_house(tmp_path, status, declared=(), hosts=("CONNECT api.test",))
    result = called(house, "sdk:tool", {"url": "https://api.test/"})
    assert "Temporary failure in name resolution" in result.content
    assert "no network but `context.fetch`" in result.content
    assert '`requires.hosts = ["api.example.com"]` of [tool.skillhouse]' in result.content
    assert '`hosts = ["CONNECT api.example.com"]` below `[net]`' in result.content


@pytest.mark.parametrize("hosts", [(), ("api.test",), ("CONNECT other.test",), ("POST api.test",)])
def test_without_a_host_of_the_operator_the_error_says_what_to_write(
    hosts: tuple[str, ...], status: SandboxStatus, tmp_path: Path
) -> None:
    house = plain_house(tmp_path, status, declared=("api.test",), hosts=hosts)
    result = called(house, "sdk:tool", {"url": "https://api.test/"})
    assert "in the manifest" not in result.content
    assert '`hosts = ["CONNECT api.test"]` below `[net]`' in result.content


def test_a_host_that_is_not_granted_is_refused_and_recorded(
    status: SandboxStatus, tmp_path: Path
) -> None:
    hosts = ("CONNECT api.test", "CONNECT other.test")
    house = plain_house(tmp_path, status, declared=("api.test",), hosts=hosts)
    result = called(house, "sdk:tool", {"url": "https://other.test/"})
    assert result.is_error
    assert "no rule allows https://other.test" in result.content
    assert "`requires.hosts` of the manifest" in result.content
    call, refused = recorded(house)
    assert (refused.record.status, refused.record.tool) == ("denied", "sdk:tool")
    assert refused.record.reason == "denied: no rule allows https://other.test"
    assert call.outcome.detail["connections"] == []


def test_a_rule_about_fetch_takes_a_granted_host_away(
    status: SandboxStatus, tmp_path: Path
) -> None:
    write_code(tmp_path / "root/sdk", PLAIN, hosts=["api.test"])
    rule = ("deny", "fetch", "CONNECT https://api.test")
    house = coded_house(
        tmp_path, tmp_path / "root", rule, status=status, hosts=("CONNECT api.test",)
    )
    result = called(on_loopback(house), "sdk:tool", {"url": "https://api.test/"})
    assert "denied" in result.content
    assert recorded(house)[-1].record.status == "denied"


VARIABLES = """
    import os

    def tool(params, context):
        return [os.environ.get("API_KEY"), context.env.get("API_KEY")]

    tools = {"tool": tool}
"""
SECRET = SecretSettings(name="api", env="API_KEY", hosts=("api.test", "*.api.test"))


@pytest.mark.parametrize(
    ("declared", "is_handed"),
    [
        (("api.test",), True),
        (("api.test", "eu.api.test"), True),
        ((), True),
        (("other.test",), False),
        (("api.test", "other.test"), False),
        (("http://api.test",), False),
        (("api.test:8443",), False),
    ],
)
def test_a_secret_is_a_variable_only_where_each_host_is_one_of_the_secrets(
    declared: tuple[str, ...], is_handed: bool, status: SandboxStatus, tmp_path: Path
) -> None:
    write_code(tmp_path / "root/sdk", VARIABLES, env=["API_KEY"], hosts=declared)
    hosts = ("CONNECT *", "* http://*:*", "CONNECT *:*")
    house = coded_house(
        tmp_path, tmp_path / "root", status=status, hosts=hosts, secrets=(SECRET,),
        environment={"API_KEY": "k" * 20}, env={"sdk": ("API_KEY",)},
    )  # fmt: skip
    result = called(house, "sdk:tool")
    if is_handed:
        # What leaves the gate has the secret's name in its place.
        assert result.data == {"success": True, "data": ["[secret api]"] * 2}
        return
    assert result.is_error
    assert "the variable `API_KEY` holds the secret `api`" in result.content
    assert "use `context.fetch` with a header that says `{{secret:api}}`" in result.content


def test_a_secret_counts_under_another_name_and_inside_of_another_text() -> None:
    settings = NetSettings(hosts=("CONNECT *",), secrets=(SECRET,))
    environment = {"API_KEY": "k" * 20}
    handed = {"URL": f"https://me:{'k' * 20}@api.test"}
    found = reach_of(["other.test"], settings, handed, environment)
    assert found.refusal.startswith("the variable `URL` holds the secret `api`")
    assert reach_of(["api.test"], settings, handed, environment).refusal == ""
    assert reach_of(["other.test"], settings, {"URL": ""}, environment).refusal == ""


@pytest.mark.parametrize("name", ["*", "0x7f.1", "2130706433", "127.1", "a..b", "[fe80::1"])
def test_what_is_no_host_in_a_manifest_grants_nothing(name: str) -> None:
    settings = NetSettings(hosts=("CONNECT api.test",))
    hosts = reach_of([name], settings, {}, {}).hosts
    assert [str(rule) for rule in hosts] == (["CONNECT https://api.test"] if name == "*" else [])

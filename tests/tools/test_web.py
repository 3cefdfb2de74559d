"""Tests of tools/web.py through the gate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from skillhouse.approval import Answer, ApprovalBroker
from skillhouse.audit import AuditLog, read_records
from skillhouse.net import (
    BraveSearch,
    NetLimits,
    NetPolicy,
    Route,
    SearchProvider,
    SearxngSearch,
    SecretBinding,
    host_rule,
)
from skillhouse.permission import Decision, Effect, Layer, Rule, decide
from skillhouse.skill import SkillIndex, parse, validate
from skillhouse.tools import (
    FetchTool,
    PermissionRequest,
    Session,
    ToolCall,
    ToolResult,
    WebSearchTool,
)
from skillhouse.tools.web import NO_PROVIDER
from tests.net.servers import LOOPBACK, fixed, ok, redirect, serving
from tests.tools.gates import gate_to
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

BUILTIN = Path(__file__).resolve().parents[2] / "src/skillhouse/builtin/web-search"


@dataclass(frozen=True, kw_only=True)
class Net:
    """What a door may reach."""

    policy: NetPolicy = field(default_factory=NetPolicy)
    route: Route = field(default_factory=Route)
    provider: SearchProvider | None = None
    no_provider: str = NO_PROVIDER


class Door:
    """A gate with the two tools, some rules and a person."""

    def __init__(
        self,
        base: Path,
        policy: NetPolicy,
        *rules: Rule,
        person: Person | None = None,
        provider: SearchProvider | None = None,
        addresses: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        route = Route(resolve=fixed(list(addresses)))
        self.person = person or Person()
        values = [secret.value for secret in policy.secrets]
        self.log = AuditLog(base / "audit.jsonl", secrets=lambda: values)
        self._layers = (Layer(name="user", rules=rules),)
        web = Net(policy=policy, route=route, provider=provider)
        self._gate = gate_to(
            FetchTool(web),
            WebSearchTool(web),
            decide=self._decide,
            approvals=ApprovalBroker(base, channels=[self.person]),
            audit=self.log,
            workspace_root=str(base),
        )

    def _decide(self, need: PermissionRequest, session: Session) -> tuple[Decision, str]:
        return decide(self._layers, need.permission, default=need.default), need.why

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        session = Session(
            agent="default",
            user="local",
            channel="library",
            visible=SkillIndex(()),
            skill_need=lambda skill: pytest.fail("no skill is asked for"),
        )
        return await self._gate.call(ToolCall(name=name, arguments=arguments), session)

    def records(self) -> list[Any]:
        return list(read_records(self.log.path, limit=20))


def on_loopback(*rules: str, secrets: tuple[SecretBinding, ...] = ()) -> NetPolicy:
    return NetPolicy(hosts=tuple(map(host_rule, rules)), private=LOOPBACK, secrets=secrets)


async def test_a_listed_host_is_fetched_without_a_question(tmp_path: Path):
    page = ok("grüß dich".encode(), "Content-Type: text/plain", "ETag: a", "X-Other: b")
    async with serving(page) as server:
        door = Door(tmp_path, on_loopback(server.url))
        result = await door.call("fetch", url=f"{server.url}/a")
        assert result == ToolResult(
            content=f"200 {server.url}/a\ncontent-type: text/plain\netag: a\n\ngrüß dich",
            data={
                "status": 200,
                "url": f"{server.url}/a",
                "headers": {"content-type": "text/plain", "etag": "a"},
                "body": "grüß dich",
            },
        )
        assert door.person.asked == []
        detail = door.records()[0].outcome.detail
        assert detail == {"status": 200, "bytes": 11, "redirects": 0}


async def test_another_host_is_asked_about_by_its_origin_and_shown_whole(tmp_path: Path):
    async with serving(ok(b"page", "Content-Type: text/html")) as server:
        person = Person([Answer.ONCE])
        door = Door(tmp_path, on_loopback(), person=person)
        url = f"{server.url}/a?b=c"
        assert (await door.call("fetch", url=url, method="POST", body="sent")).status == "ok"
        (asked,) = person.asked
        assert asked.title == f"fetch: POST {server.url}"
        assert ("request", f"POST {url}") in asked.found
        assert ("body", "sent") in asked.sent
        again = await door.call("fetch", url=url)
        assert again.status == "denied"
        assert f"a rule that allows `fetch GET {server.url}`" in again.content
        assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("pattern", "url", "effect"),
    [
        ("GET https://docs.test", "https://docs.test/a", "allow"),
        ("GET https://docs.test", "https://DOCS.test.:443/a", "allow"),
        ("GET https://docs.test", "https://docs.test.evil.test/", "ask"),
        ("GET https://docs.test", "https://evil.test/GET https://docs.test", "refused"),
        ("GET https://docs.test", "https://evil.test/?GET%20https://docs.test", "ask"),
        ("GET https://*.docs.test", "https://a.docs.test/", "allow"),
        ("GET https://*.docs.test", "https://evil.test/a.docs.test", "ask"),
        ("GET https://*.docs.test", "https://evil.test/?x.docs.test", "ask"),
        ("GET https://*.docs.test", "https://a.docs.test:8443/", "ask"),
        ("GET https://*.docs.test", "https://docs.test/", "ask"),
        ("GET https://docs.test", "http://docs.test/", "ask"),
        ("GET https://docs.test", "https://docs.test@evil.test/", "refused"),
        ("GET https://docs.test", "https://docs.test\\@evil.test/", "refused"),
        ("GET https://xn--bcher-kva.test", "https://bücher.test/", "allow"),
    ],
)
async def test_a_rule_speaks_about_one_origin_and_no_path_can_look_like_it(
    tmp_path: Path, pattern: str, url: str, effect: str
):
    # Nothing of these hosts is reached: their address is private.
    rule = Rule(effect=Effect.ALLOW, action="fetch", pattern=pattern)
    door = Door(tmp_path, NetPolicy(), rule, addresses=["10.0.0.1"])
    result = await door.call("fetch", url=url)
    said = {
        "allow": (0, "which is not public"),
        "ask": (1, "not approved"),
        "refused": (0, "denied: "),
    }[effect]
    assert (len(door.person.asked), said[1] in result.content) == (said[0], True)


async def test_a_deny_rule_is_final_for_a_listed_host(tmp_path: Path):
    async with serving() as server:
        rule = Rule(effect=Effect.DENY, action="fetch", pattern=f"* {server.url}")
        door = Door(tmp_path, on_loopback(server.url), rule)
        assert (await door.call("fetch", url=server.url)).status == "denied"
        assert server.seen == []


async def test_a_yes_opens_no_private_address_and_no_other_host(tmp_path: Path):
    async with serving() as other, serving(redirect(other.url)) as first:
        yes = [Answer.ONCE] * 2
        door = Door(tmp_path, on_loopback(), person=Person(yes), addresses=["10.0.0.1"])
        result = await door.call("fetch", url="http://internal.test/")
        assert "leads to 10.0.0.1, which is not public" in result.content
        result = await door.call("fetch", url=first.url)
        assert result.is_error
        assert f"leads to {other.url}/: no rule allows {other.url}" in result.content
        assert other.seen == []


async def test_a_bound_secret_reaches_its_host_and_nobody_else(tmp_path: Path):
    async with serving(ok(b"you sent s3cr3t-value", "ETag: s3cr3t-value")) as server:
        secret = SecretBinding(name="KEY", value="s3cr3t-value", hosts=(server.url,))
        door = Door(tmp_path, on_loopback(server.url, secrets=(secret,)))
        headers = {"X-Key": "{{secret:KEY}}"}
        result = await door.call("fetch", url=server.url, headers=headers)
        assert b"X-Key: s3cr3t-value\r\n" in server.seen[0]
        assert result.content.endswith("etag: [secret KEY]\n\nyou sent [secret KEY]")
        assert "s3cr3t" not in json.dumps(result.data)
        assert "s3cr3t" not in door.log.path.read_text()
        for arguments in (
            {"headers": headers},
            {"method": "POST", "body": "s3cr3t-value"},
            {"headers": {"X-Key": "{{secret:OTHER}}"}},
        ):
            result = await door.call("fetch", url="https://other.test/", **arguments)
            assert result.status == "denied"
        assert (door.person.asked, len(server.seen)) == ([], 1)


async def test_what_is_no_text_comes_as_base64_and_an_error_is_told(tmp_path: Path):
    answers = {
        "text": ok(b"\xff", "Content-Type: text/plain"),
        "latin": ok(b"\xfc", "Content-Type: text/html; charset=latin-1"),
        "odd": ok(b"a", "Content-Type: text/html; charset=nonsense"),
        "json": ok(b"{}", "Content-Type: application/problem+json"),
        "none": ok(b"plain"),
        "image": ok(b"\x89PNG", "Content-Type: image/png"),
        "bytes": ok(b"\xff\xfe"),
        "missing": ok(b"gone", "Content-Type: text/plain", status="404 Not Found"),
        "broken": b"nonsense",
    }
    async with serving(*answers.values()) as server:
        door = Door(tmp_path, on_loopback(server.url))
        found = {name: await door.call("fetch", url=server.url) for name in answers}
    texts = {name: result.content.splitlines()[-1] for name, result in found.items()}
    assert texts == {
        "text": "\ufffd",
        "latin": "ü",
        "odd": "a",
        "json": "{}",
        "none": "plain",
        "image": "[4 bytes of image/png]",
        "bytes": "[2 bytes of unknown type]",
        "missing": "gone",
        "broken": texts["broken"],
    }
    data = found["image"].data
    assert data is not None
    assert data["body_base64"] == "iVBORw=="
    failed = [name for name, result in found.items() if result.is_error]
    assert failed == ["missing", "broken"]
    assert "no HTTP/1.1" in texts["broken"]


async def test_an_encoding_that_takes_hours_to_read_is_not_read(tmp_path: Path):
    # Python takes 0.6 s for 90,000 bytes of this encoding, and four times that for twice as many.
    page = b"abc-" + b"kxa" * 30_000
    assert page.decode("punycode") != page.decode()
    more = page + b"kxa" * 1_000_000
    async with serving(ok(more, "Content-Type: text/plain; charset=punycode")) as server:
        result = await Door(tmp_path, on_loopback(server.url)).call("fetch", url=server.url)
        assert result.data is not None
        assert result.data["body"] == more.decode()


async def test_a_large_page_is_an_error_and_a_long_one_is_cut_with_a_notice(tmp_path: Path):
    async with serving(ok(b"x" * 300_000, "Content-Type: text/plain"), ok(b"x" * 2_000)) as s:
        policy = on_loopback(s.url)
        assert "[cut: " in (await Door(tmp_path, policy).call("fetch", url=s.url)).content
        small = NetPolicy(
            hosts=policy.hosts, private=policy.private, limits=NetLimits(body_bytes=1_000)
        )
        result = await Door(tmp_path, small).call("fetch", url=s.url)
        assert (result.status, result.content) == (
            "error",
            "the answer is larger than 1000 bytes",
        )


async def test_without_a_provider_the_search_says_what_to_set(tmp_path: Path):
    result = await Door(tmp_path, NetPolicy()).call("web_search", query="a")
    assert result.status == "error"
    assert "brave_key_env" in result.content
    assert "searxng_url" in result.content


BRAVE_ANSWER: Mapping[str, Any] = {
    "web": {
        "results": [
            {"title": f"T{n}", "url": f"https://{n}.test/", "description": f"E{n}"}
            for n in range(9)
        ]
    }
}


@pytest.mark.parametrize("service", ["brave", "searxng"])
async def test_a_search_asks_its_service_and_lists_what_it_found(tmp_path: Path, service: str):
    answer: Mapping[str, Any] = BRAVE_ANSWER
    if service == "searxng":
        rows = BRAVE_ANSWER["web"]["results"]
        answer = {"results": [{**row, "content": row["description"]} for row in rows]}
    async with serving(ok(json.dumps(answer).encode())) as server:
        makers: dict[str, Callable[[], SearchProvider]] = {
            "brave": lambda: BraveSearch(key="a-key-of-brave", endpoint=f"{server.url}/s"),
            "searxng": lambda: SearxngSearch(base_url=server.url),
        }
        door = Door(tmp_path, on_loopback(), provider=makers[service]())
        result = await door.call("web_search", query="天気 tokyo", count=2)
        assert result.content == (
            "1. T0\n   https://0.test/\n   E0\n2. T1\n   https://1.test/\n   E1"
        )
        assert b"q=%E5%A4%A9%E6%B0%97%20tokyo&" in server.seen[0]
        assert (b"X-Subscription-Token: a-key-of-brave" in server.seen[0]) == (service == "brave")
        assert "a-key-of-brave" not in door.log.path.read_text()
        assert door.person.asked == []
        server.answers = [ok(b"{}", status="429 Too Many")]
        result = await door.call("web_search", query="a")
        assert (result.status, result.content) == (
            "error",
            f"{service} answered with status 429",
        )
        server.answers = [ok(b"<html>")]
        assert "expected a list of results" in (await door.call("web_search", query="a")).content


async def test_a_query_carries_no_secret_out(tmp_path: Path):
    async with serving(ok(b"{}")) as server:
        secret = SecretBinding(name="KEY", value="s3cr3t-value", hosts=("a.test",))
        provider = SearxngSearch(base_url=server.url)
        door = Door(tmp_path, on_loopback(secrets=(secret,)), provider=provider)
        result = await door.call("web_search", query="what is s3cr3t-value")
        assert "would hold the secret `KEY`" in result.content
        assert server.seen == []


@pytest.mark.req("S000-67")
def test_the_web_search_skill_is_valid_and_speaks_of_the_tools_as_they_are():
    assert validate(BUILTIN) == ()
    skill = parse((BUILTIN / "SKILL.md").read_bytes(), directory="web-search").skill
    assert skill is not None
    body = (BUILTIN / "SKILL.md").read_text(encoding="utf-8")
    for tool in (FetchTool(Net()), WebSearchTool(Net())):
        assert f"`{tool.name}`" in body
    assert {"query", "count"} <= set(WebSearchTool.schema["properties"])
    assert "url" in FetchTool.schema["properties"]
    count = WebSearchTool.schema["properties"]["count"]
    assert f"({count['default']} by default, {count['maximum']} at most)" in " ".join(body.split())

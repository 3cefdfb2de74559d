"""Tests of house/network.py and house/config/network.py."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import verified_id
from skillhouse.audit import read_records
from skillhouse.floor import ConfigError
from skillhouse.house import Network, Skillhouse, configured, load_config
from skillhouse.net import Route
from tests.harness import ran
from tests.house.places import make_places
from tests.net.servers import fixed, ok, redirect, serving

WEBHOOK_SECRET = base64.b64encode(b"k" * 32).decode()


def house_with(
    base: Path, text: str, environment: Mapping[str, str] | None = None, **more: Any
) -> Skillhouse:
    """Return a house whose user wrote this configuration."""
    places = make_places(base, environment)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(text, encoding="utf-8")
    house = Skillhouse(configured(places), **more)
    house.services.network = Network(house.config, route=Route(resolve=fixed(["127.0.0.1"])))
    return house


def table(**values: Any) -> str:
    """Return `[net]` with these values."""
    return "[net]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())


SECRET = '\n[[net.secrets]]\nname = "{name}"\nenv = "{env}"\nhosts = ["{host}"]\n'


async def test_a_listed_host_is_fetched_and_the_bound_secret_stays_out_of_the_log(
    tmp_path: Path,
) -> None:
    async with serving(ok(b"you sent s3cr3t-value", "Content-Type: text/plain")) as server:
        text = table(hosts=[server.url], private=["127.0.0.1/32"])
        text += SECRET.format(name="KEY", env="HOUSE_KEY", host=server.url)
        house = house_with(tmp_path, text, {"HOUSE_KEY": "s3cr3t-value"})
        with house:
            headers = {"X-Key": "{{secret:KEY}}"}
            result = await house.call("fetch", {"url": server.url, "headers": headers})
            assert result.content.endswith("you sent [secret KEY]")
            assert b"X-Key: s3cr3t-value\r\n" in server.seen[0]
            # Also what a model writes by itself does not get into the log.
            await house.call("read", {"path": "s3cr3t-value"})
            assert "s3cr3t-value" not in house.audit_log.path.read_text()
            assert [e.record.tool for e in read_records(house.audit_log.path, limit=2)] == [
                "read",
                "fetch",
            ]


async def test_without_a_configuration_nothing_is_reached_unasked(tmp_path: Path) -> None:
    async with serving() as server:
        with house_with(tmp_path, "") as house:
            assert (await house.call("fetch", {"url": server.url})).status == "pending"
            found = await house.call("web_search", {"query": "a"})
            assert (found.status, "searxng_url" in found.content) == ("error", True)
        assert server.seen == []


def test_a_variable_that_is_not_set_is_no_secret_and_no_key(tmp_path: Path) -> None:
    text = table(hosts=["a.test"], brave_key_env="BRAVE_KEY")
    text += SECRET.format(name="KEY", env="HOUSE_KEY", host="a.test")
    with house_with(tmp_path, text) as house:
        headers = {"X-Key": "{{secret:KEY}}"}
        result = house.call_sync("fetch", {"url": "https://a.test", "headers": headers})
        assert (result.status, "no secret `KEY` is bound" in result.content) == ("denied", True)
        result = house.call_sync("web_search", {"query": "a"})
        assert "the variable `BRAVE_KEY`" in result.content
        assert house.services.network.secret_values == ()
    with house_with(tmp_path, text, {"HOUSE_KEY": "short"}) as house:
        with pytest.raises(ConfigError, match="at least 8 printable characters in `KEY`") as caught:
            _ = house.services.network.policy
        assert "short" not in str(caught.value)


def test_all_secrets_of_the_configuration_are_known_to_the_log(tmp_path: Path) -> None:
    environment = {"A": "aaaaaaaa", "B": "bbbbbbbb", "C": WEBHOOK_SECRET, "D": "dddddddd"}
    text = "[approvals]\nwebhook_url = 'https://a.test'\nwebhook_secret_env = 'C'\n"
    text += table(brave_key_env="B") + SECRET.format(name="KEY", env="A", host="a.test")
    with house_with(tmp_path, text, environment) as house:
        assert house.services.network.secret_values == ("aaaaaaaa", "bbbbbbbb", WEBHOOK_SECRET)
        for value in house.services.network.secret_values:
            house.call_sync("read", {"path": f"x {value} y"})
            assert value not in house.audit_log.path.read_text()


async def test_a_search_goes_to_the_configured_service(tmp_path: Path) -> None:
    rows = [{"title": "T", "url": "https://a.test/", "content": "E"}]
    async with serving(ok(json.dumps({"results": rows}).encode())) as server:
        with house_with(tmp_path, table(searxng_url=server.url)) as house:
            result = await house.call("web_search", {"query": "a"})
            assert result.content == "1. T\n   https://a.test/\n   E"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (table(hosts=["https://a.test/path"]), "expected `[METHODS ][scheme://]host[:port]`"),
        (table(private=["10.0.0.0/33"]), "not a network"),
        (table(searxng_url="ftp://a.test"), "expected an http or https URL"),
        (table(host=["a.test"]), "did you mean `hosts`"),
        (table(hosts="a.test"), "wrong value"),
        ("[net]" + SECRET.format(name="K Y", env="E", host="a.test"), "expected a name"),
        ("[net]" + SECRET.format(name="KEY", env="E", host="a b"), "expected methods of GET"),
        ("[net]" + SECRET.format(name="KEY", env="", host="a.test"), "expected a variable"),
        ("[net]" + SECRET.format(name="KEY", env="E", host="a.test") * 2, "one name"),
        ("[net]" + SECRET.replace("env", "enw").format(name="K", enw="E", host="h"), "`env`"),
        ("[approvals]\nwebhook_url = 'http://a.test'\nwebhook_secret_env = 'E'", "https"),
        ("[approvals]\nwebhook_url = 'https://a.test'", "together"),
    ],
)
def test_what_cannot_be_read_is_an_error_when_the_file_is_read(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        house_with(tmp_path, text)
    assert said in str(caught.value)


def test_no_project_opens_the_network(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    for text in (table(hosts=["*"]), '[[remotes]]\nurl = "https://a.test"'):
        (places.start / "skillhouse.toml").write_text(text)
        config = load_config(places, project=places.start)
        assert "cannot be set by a project" in config.problems[0].message
        own = load_config(places)
        assert (config.net, config.remotes) == (own.net, own.remotes)


def test_the_managed_table_holds_whole(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.managed_file.write_text(table(hosts=["a.test"]))
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(table(hosts=["*"], private=["10.0.0.0/8"]))
    net = load_config(places).net
    assert (net.hosts, net.private) == (("a.test",), ())


def test_a_variable_with_a_secret_is_given_to_no_command(tmp_path: Path) -> None:
    text = 'exec_environment = ["PLAIN", "HARMLESS"]\n'
    assert house_with(tmp_path, text).config.exec_environment == ("PLAIN", "HARMLESS")
    for more in (
        "[net]" + SECRET.format(name="KEY", env="HARMLESS", host="a.test"),
        table(brave_key_env="HARMLESS"),
    ):
        with pytest.raises(ConfigError, match="`HARMLESS` holds a secret"):
            house_with(tmp_path, text + more)


def webhook(url: str) -> str:
    return (
        f"[approvals]\nwait_seconds = 0.2\nwebhook_url = '{url}'\nwebhook_secret_env = 'HOOK'\n"
        "page_url = 'http://127.0.0.1:7777'\n"
    )


async def test_each_question_is_sent_signed_to_the_webhook_and_answered_elsewhere(
    tmp_path: Path,
) -> None:
    async with serving(ok(b"")) as server:
        text = webhook(f"{server.url}/hook")
        with house_with(tmp_path, text, {"HOOK": WEBHOOK_SECRET}) as house:
            result = await house.call("write", {"path": "a.txt", "content": "x"})
            assert result.is_error
        head, _, body = server.seen[0].partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        raw = dict(line.split(": ", 1) for line in lines[1:])
        told = json.loads(body)
        assert lines[0] == "POST /hook HTTP/1.1"
        assert told["title"].startswith("write")
        assert told["page"] == f"http://127.0.0.1:7777/approvals/{told['approval']}"
        found = verified_id(
            {name.lower(): value for name, value in raw.items()},
            body,
            secret=base64.b64decode(WEBHOOK_SECRET),
            now_seconds=float(headers["webhook-timestamp"]),
        )
        assert found == told["approval"]


@pytest.mark.req("S000-80")
def test_the_question_names_tool_and_file_and_begins_both_texts(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with serving(ok(b"")) as server:
            text = webhook(f"{server.url}/hook")
            with house_with(tmp_path, text, {"HOOK": WEBHOOK_SECRET}) as house:
                change = {"path": "a.txt", "old": "x" * 200, "new": "y" * 201}
                assert (await house.call("edit", change)).status == "pending"
            text = json.loads(server.seen[0].partition(b"\r\n\r\n")[2])["text"]
            # A long line is in rows that are further in.
            return re.sub(r"\n {6,}", "", text).split("\n")

    places = make_places(tmp_path)
    (places.start / "a.txt").write_text(f"a {'x' * 200} b\n")
    title, *lines = anyio.run(main)
    assert title == f"edit: {places.start / 'a.txt'}"
    for line in ("path: a.txt", f"old: {'x' * 200}", f"new: {'y' * 200}…"):
        assert f"  {line}" in lines
    assert lines[0] == "tool: edit"


@pytest.mark.slow
async def test_a_webhook_leads_nowhere_else_and_to_no_private_address_by_a_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as other, serving(redirect(other.url, 307)) as server:
        with house_with(tmp_path, webhook(server.url), {"HOOK": WEBHOOK_SECRET}) as house:
            await house.call("write", {"path": "a.txt", "content": "x"})
        assert (len(server.seen), other.seen) == (1, [])
    text = webhook("https://hooks.test/a")
    with house_with(tmp_path, text, {"HOOK": WEBHOOK_SECRET}) as house:
        await house.call("write", {"path": "b.txt", "content": "x"})
    assert "hooks.test leads to 127.0.0.1, which is not public" in caplog.text


def test_a_webhook_without_its_secret_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    for value, said in (("", "is not set"), ("AAAA", "cannot sign")):
        house = house_with(tmp_path, webhook("https://a.test"), {"HOOK": value})
        with pytest.raises(ConfigError, match=f"`HOOK` {said}"):
            _ = house.approvals


@pytest.mark.slow
def test_a_house_that_reaches_nothing_loads_no_network(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from skillhouse.house import Skillhouse\n"
        "house = Skillhouse(); house.call_sync('list', {'path': '.'}); house.close()\n"
        "print([m for m in ('ssrfguard', 'h11', 'skillhouse.net.policy',"
        " 'skillhouse.remote.cache_sync') if m in sys.modules])"
    )
    done = ran(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_examples_of_the_reference_are_a_configuration(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "reference/configuration.md").read_text(encoding="utf-8")
    blocks = [text.split("```")[0] for text in page.split("```toml\n")[1:]]
    shown = "\n".join(text for text in blocks if "[net]" in text or "webhook_url" in text)
    guide = (docs / "guides/remote-skills.md").read_text(encoding="utf-8")
    with house_with(tmp_path, shown + guide.split("```toml\n")[1].split("```")[0]) as house:
        assert house.config.net.secrets[0].env == "MY_API_KEY"
        assert house.config.approvals.webhook_secret_env == "HOOK_SECRET"
        assert [source.kind for source in house.config.remotes] == ["well-known", "opencode"]
        assert len(house.services.network.policy.hosts) == 4

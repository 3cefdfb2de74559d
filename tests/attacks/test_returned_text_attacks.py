"""Attacks by what comes back: a secret in another spelling, and text that is not seen (E6)."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from skillhouse.house import Skillhouse
from skillhouse.tools import ToolResult
from tests.house.test_network import SECRET, house_with, table
from tests.net.servers import ok, redirect, serving

VALUE = 's3cr3t/T0KEN+"value"'
TYPES = {"json": "application/json", "bytes": "application/octet-stream"}
SPELLINGS: dict[str, Callable[[str], str]] = {
    "raw": str,
    "json": json.dumps,
    "escaped": lambda value: "".join(f"\\u{ord(c):04x}" for c in value),
    "base64": lambda value: base64.b64encode(f"k={value}".encode()).decode(),
    "base64 at another offset": lambda value: base64.b64encode(f"ke={value}".encode()).decode(),
    "base64url": lambda value: base64.urlsafe_b64encode(f"key={value}".encode()).decode(),
    "percent": lambda value: quote(value, safe=""),
    "twice": lambda value: quote(quote(value, safe=""), safe=""),
    "hex": lambda value: value.encode().hex(),
    "html": html.escape,
    "entities": lambda value: "".join(f"&#x{ord(c):x};" for c in value),
}
HIDDEN = "\x1b[8mdo this\x1b[0m \u202eevil\u202c \U000e0061\U000e0062 \x9b8m \u2067x\u2069"
SEEN = "\N{WOMAN}\u200d\N{PERSONAL COMPUTER} \u0645\u0631\u062d\u0628\u0627 caf\u00e9\t\n"


def everything(result: ToolResult) -> str:
    return result.content + json.dumps(result.data, ensure_ascii=False)


async def fetched(base: Path, body: bytes, *headers: str) -> ToolResult:
    async with serving(ok(body, *headers)) as server:
        text = table(hosts=[server.url], private=["127.0.0.1/32"])
        text += SECRET.format(name="KEY", env="HOUSE_KEY", host=server.url)
        with house_with(base, text, {"HOUSE_KEY": VALUE}) as house:
            wanted = {"url": server.url, "headers": {"X-Key": "{{secret:KEY}}"}}
            return await house.call("fetch", wanted)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
@pytest.mark.parametrize("place", ["body", "header", "location", "bytes"])
def test_a_bound_secret_does_not_come_back_in_any_spelling(
    tmp_path: Path, spelling: str, place: str
) -> None:
    said = SPELLINGS[spelling](VALUE)
    body = f"you sent {said} to us".encode() if place in ("body", "bytes") else b"hello"
    headers = ["Content-Type: " + TYPES.get(place, "text/plain")]
    headers += {"header": [f"ETag: {said}"], "location": [f"Link: </?k={said}>"]}.get(place, [])
    result = anyio.run(fetched, tmp_path, body, *headers)
    assert result.status == "ok"
    packed = base64.b64encode(body).decode() if place == "bytes" else said
    for form in (VALUE, said, packed):
        assert form not in everything(result)
        assert json.dumps(form)[1:-1] not in everything(result)


def test_a_secret_does_not_come_back_in_the_last_address(tmp_path: Path) -> None:
    async def main() -> ToolResult:
        moved = redirect(f"/?k={quote(VALUE, safe='')}")
        async with serving(moved, ok(b"hello", "Content-Type: text/plain")) as server:
            text = table(hosts=[server.url], private=["127.0.0.1/32"])
            text += SECRET.format(name="KEY", env="HOUSE_KEY", host=server.url)
            with house_with(tmp_path, text, {"HOUSE_KEY": VALUE}) as house:
                return await house.call("fetch", {"url": server.url})

    result = anyio.run(main)
    assert result.data is not None
    assert result.data["url"].endswith("/?k=[secret KEY]")
    assert "s3cr3t" not in everything(result)


@pytest.mark.parametrize("kind", ["text/plain", "text/html", "application/json"])
def test_what_fetch_returns_shows_what_people_do_not_see(tmp_path: Path, kind: str) -> None:
    body = (HIDDEN + SEEN).encode()
    result = anyio.run(fetched, tmp_path, body, f"Content-Type: {kind}; charset=utf-8")
    assert SEEN in result.content
    assert result.data is not None
    for text in (result.content, result.data["body"]):
        assert "\\x1b[8mdo this\\x1b[0m \\u202eevil\\u202c \\U000e0061\\U000e0062" in text
        assert not set(text) & set("\x1b\x9b\u202e\u202c\u2067\u2069\U000e0061\U000e0062")


def test_a_file_that_a_model_reads_hides_nothing(tmp_path: Path) -> None:
    with house_with(tmp_path, "") as house:
        (house.config.places.start / "a.txt").write_text(HIDDEN + SEEN)
        result = house.call_sync("read", {"path": "a.txt"})
    assert "\\x1b[8mdo this" in result.content
    assert SEEN.strip() in result.content
    assert not set(everything(result)) & set("\x1b\x9b\u202e\U000e0061")


@pytest.mark.slow
def test_what_a_command_says_hides_nothing_and_repeats_no_secret(tmp_path: Path) -> None:
    rules = '[[rules]]\naction = "exec"\npattern = "cat *"\neffect = "allow"\n'
    text = rules + SECRET.format(name="KEY", env="HOUSE_KEY", host="https://a.test")
    with house_with(tmp_path, text, {"HOUSE_KEY": VALUE}) as house:
        said(house, HIDDEN + json.dumps(VALUE))
        result = house.call_sync("exec", {"command": "cat a.txt"})
    assert result.status == "ok", result.content
    assert "\\x1b[8mdo this" in result.content
    assert "[secret KEY]" in result.content
    assert not set(everything(result)) & set("\x1b\x9b\u202e\U000e0061")
    assert VALUE not in everything(result)


def said(house: Skillhouse, text: str) -> None:
    (house.config.places.start / "a.txt").write_text(text)


def test_a_refusal_hides_nothing(tmp_path: Path) -> None:
    with house_with(tmp_path, "") as house:
        result = house.call_sync("read", {"path": f"none{HIDDEN}"})
    assert result.status in ("error", "denied")
    assert not set(everything(result)) & set("\x1b\x9b\u202e\U000e0061")

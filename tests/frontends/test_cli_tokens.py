"""Tests of `skillhouse tokens`, and of browsers that stay signed in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.guard import AccessKeys
from skillhouse.house import Skillhouse
from skillhouse.house.access_tokens import BROWSERS_MAX
from tests.extensions.server.api.place import API, BASE, PORT, TOKEN, make_house
from tests.frontends.conftest import Run

pytestmark = pytest.mark.slow


def test_a_token_is_printed_once_listed_and_revoked(run: Run) -> None:
    code, token, note = run("tokens", "new", "ci", "--scope", "read", "--scope", "call")
    assert code == 0
    assert token.startswith("skh_")
    assert "not shown again" in note
    code, out, _ = run("tokens", "--json")
    (listed,) = json.loads(out)["tokens"]
    assert (listed["name"], listed["scopes"]) == ("ci", ["call", "read"])
    assert token.strip() not in out
    assert run("tokens", "new", "ci", "--scope", "read")[0] == 1
    assert run("tokens", "revoke", "ci")[0] == 0
    assert run("tokens", "revoke", "ci")[0] == 1
    assert run("tokens", "list")[2] == "no tokens\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["", "--scope", "read"],
        ["a\x1bb", "--scope", "read"],
        ["both", "--scope", "call", "--scope", "approve"],
        ["lost", "--scope", "call", "--agent", "nobody"],
    ],
)
def test_a_token_that_cannot_be_is_not_made(run: Run, arguments: list[str]) -> None:
    assert run("tokens", "new", *arguments)[0] in (1, 2)
    assert run("tokens", "list")[2] == "no tokens\n"


def test_a_coding_agent_makes_no_token(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    code, out, said = run("tokens", "new", "own", "--scope", "approve")
    assert (code, out) == (1, "")
    assert "for a person" in said


def browser(house: Skillhouse, token: str) -> TestClient:
    """Return a browser at one start of the service."""
    return TestClient(make_app(house, token=token, port=PORT), BASE, follow_redirects=False)


def test_a_browser_that_used_the_address_once_stays_signed_in(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    client = browser(house, TOKEN)
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=7776000"):
        assert part in cookie
    again = browser(Skillhouse(house.config), "token-of-the-next-start")
    again.cookies = client.cookies
    assert again.get("/").status_code == 200
    assert again.get(f"/?token={TOKEN}").status_code == 401
    (kept,) = house.services.enforcement.access_tokens.all()
    house.services.enforcement.access_tokens.revoke(kept.id)
    assert again.get("/").status_code == 401
    assert again.get(f"{API}/skills").status_code == 401


def test_browsers_are_bounded_and_the_oldest_is_forgotten(tmp_path: Path) -> None:
    tokens = make_house(tmp_path).services.enforcement.access_tokens
    first = tokens.new_browser()
    for _ in range(BROWSERS_MAX):
        last = tokens.new_browser()
    assert len(tokens.all()) == BROWSERS_MAX
    assert tokens.find(first, "browser") is None
    assert tokens.find(last, "browser") is not None


def test_an_address_that_others_may_see_works_once() -> None:
    keys = AccessKeys(token=TOKEN, session="s", port=PORT)
    once = keys.one_time()
    assert not keys.is_token(once + "x")
    assert keys.is_token(once)
    assert not keys.is_token(once)
    assert keys.is_token(TOKEN)

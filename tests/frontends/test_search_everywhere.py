"""Every frontend's search is one search: the same hits, why, weak matches and copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from skillhouse.extensions.server import http_app
from skillhouse.house import Skillhouse, configured
from tests.extensions.server.test_http_app import BEARER, PORT, SESSION, TOKEN, Page
from tests.frontends.conftest import Run
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow

CLONES = "Balances the ledgers of a sailing club at the end of each month and mails them."
REQUEST = "balance the ledgers of the club"
WEAK = "unicorns knitting mails pancakes quantum"
WHY = "description: balance, ledgers, club"
IDS = ("user:accounts", "user:accounts-copy")


@pytest.fixture
def library(place: Path) -> Path:
    skills = place / "home/.agents/skills"
    for name in ("accounts", "accounts-copy"):
        write_skill(skills / name, description=CLONES)
    return place


def said(run: Run, *arguments: str) -> str:
    _, out, err = run(*arguments)
    return out + err


def values(run: Run, *arguments: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(run(*arguments, "--json")[1])
    return value


def test_each_frontend_says_why_and_lists_the_copies_of_a_hit(run: Run, library: Path) -> None:
    first, copy = IDS
    for command in (("search",), ("rehearse",), ("catalog", "--for")):
        [hit] = values(run, *command, REQUEST)["hits"]
        assert (hit["id"], hit["alike"], hit["reason"]) == (first, [copy], WHY)
        assert hit["matches"] == {"description": ["balance", "ledgers", "club"]}
        assert WHY in said(run, *command, REQUEST)
    for verb in ("search", "rehearse"):
        assert f"also: {copy}" in said(run, verb, REQUEST).replace("\n", " ")
    with Skillhouse(configured(make_places(library))) as house:
        client = TestClient(http_app(house, token=TOKEN, port=PORT, session=SESSION), BASE)
        client.headers.update(BEARER)
        page = Page(client.get("/", params={"q": REQUEST}).text)
        assert f"fits by {WHY}; also: {copy}" in " ".join(page.text.split())
        assert [link for link in page.links if link.startswith("/skills/user")] == [
            f"/skills/{first}"
        ]
        [hit] = client.get("/api/v1/search", params={"q": REQUEST}).json()["hits"]
        assert (hit["id"], hit["alike"], hit["reason"]) == (first, [copy], WHY)
        [hit] = client.get("/api/v1/catalog", params={"request": REQUEST}).json()["hits"]
        assert (hit["id"], hit["reason"]) == (first, WHY)
        result = house.call_sync("search_skills", {"query": REQUEST})
        assert result.content == f"accounts: {CLONES} ({WHY}; also: {copy})"


BASE = f"http://127.0.0.1:{PORT}"


def test_each_frontend_says_that_nothing_fits_well(run: Run, library: Path) -> None:
    for command in (("search",), ("rehearse",), ("catalog", "--for")):
        assert values(run, *command, WEAK)["weak"] is True
        assert values(run, *command, REQUEST)["weak"] is False
        assert "nothing fits well; try other words, or English" in said(run, *command, WEAK)
        assert "nothing fits well" not in said(run, *command, REQUEST)
    with Skillhouse(configured(make_places(library))) as house:
        client = TestClient(http_app(house, token=TOKEN, port=PORT, session=SESSION), BASE)
        client.headers.update(BEARER)
        for request, weak in ((WEAK, True), (REQUEST, False)):
            page = Page(client.get("/", params={"q": request}).text).text
            assert ("Nothing fits well." in page) is weak
            assert client.get("/api/v1/search", params={"q": request}).json()["weak"] is weak
            found = client.get("/api/v1/catalog", params={"request": request}).json()
            assert found["weak"] is weak


def test_a_model_is_asked_for_other_words_once_in_a_conversation(library: Path) -> None:
    with Skillhouse(configured(make_places(library))) as house:

        def searched(query: str, session: str) -> str:
            call = house.call_sync("search_skills", {"query": query}, session_id=session)
            return call.content.splitlines()[0]

        hint = "; try other words, or English"
        assert searched(WEAK, "one") == f"nothing fits well{hint}; the nearest:"
        assert searched(WEAK, "one") == "nothing fits well; the nearest:"
        assert searched("zzzz", "one") == "no skill fits"
        assert searched("zzzz", "two") == f"no skill fits{hint}"

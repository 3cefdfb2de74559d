"""Tests of extensions/server/pages/rehearse_page.py: the walk of a request, without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.test_http_app import Page, client_of
from tests.house.places import make_places, write_skill

from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule

pytestmark = pytest.mark.slow

BODY = """Merge them:

```bash
git push origin
git status
```

<script>alert(1)</script>\u202e
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    places = make_places(tmp_path)
    write_skill(places.home / ".agents/skills/pdf", "Merges PDF files.", BODY)
    write_skill(places.home / ".agents/skills/secret", "Opens the vault of secrets.")
    rules = (
        Rule(effect=Effect.DENY, action="exec", pattern="git push *"),
        Rule(effect=Effect.ALLOW, action="exec", pattern="git status"),
        Rule(effect=Effect.DENY, action="skill", pattern="secret"),
    )
    layers = (Layer(name="user", rules=rules),)
    with Skillhouse(configured(places), layers=layers) as house:
        yield house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house)


def test_a_request_is_followed_to_the_sandbox(client: TestClient):
    answer = client.get("/rehearse", params={"q": "merge pdf files"})
    page = Page(answer.text)
    for expected in (
        "The catalog that the model gets",
        "1 denied by rules.",
        "description: merge, pdf, files",
        "skill pdf",
        "git push origin",
        "rule exec git push * of user policy",
        "\\u202e",
    ):
        assert expected in " ".join(page.text.split()), expected
    assert "/skills/user:pdf" in page.links
    assert "<script>alert" not in answer.text
    for effect in ("allow", "deny"):
        assert f'class="effect effect-{effect}"' in answer.text


def test_nothing_is_called_or_recorded(house: Skillhouse, client: TestClient):
    client.get("/rehearse?q=merge+pdf")
    assert not house.audit_log.path.exists() or house.audit_log.path.read_text() == ""
    assert house.approvals.pending() == ()


def test_a_request_that_no_skill_fits_says_what_may_help(client: TestClient):
    page = Page(client.get("/rehearse", params={"q": "zzzz qqqq"}).text)
    assert "No skill fits this request" in page.text
    denied = Page(client.get("/rehearse", params={"q": "vault of secrets"}).text)
    assert "secret" not in denied.links


def test_an_empty_page_says_what_to_do(client: TestClient):
    for path in ("/rehearse", "/rehearse?q=++"):
        page = Page(client.get(path).text)
        assert "Type what a person would ask" in page.text
        assert "catalog" not in page.text


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param("x" * 100_000, marks=pytest.mark.one_server("balancer")),
        *("\x00\x1b[2J", "<script>alert(1)</script>"),
    ],
)
def test_a_hostile_request_is_text_and_bounded(client: TestClient, asked: str):
    answer = client.get("/rehearse", params={"q": asked[:30_000]})
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert len(answer.text) < 100_000

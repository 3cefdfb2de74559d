"""Suggested rules on the page: listed with what they cover, and added one by one by plain forms."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import client_of
from tests.extensions.server.pages.served import COOKIE, OURS
from tests.house.places import make_places
from tests.house.recorded_week import record, run

from skillhouse.approval import Answer
from skillhouse.audit import Query, entries_of
from skillhouse.house import Skillhouse, configured
from skillhouse.house.rule_suggestions import suggest_rules

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    lines = ["git status"] * 4 + ["git log -3"] * 4 + ["rg <b>TODO</b> src"] * 3 + ["pytest -q"] * 3
    record(tmp_path, [(run(line), True) for line in lines] + [(run("npm install x"), False)])
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house, COOKIE, session="session-of-this-start")


def form_on(page: str) -> tuple[str, dict[str, str]]:
    """Return the path and the fields of the form that adds a rule."""
    [path] = re.findall(r'<form class="change" action="(.*?)" method="post">', page)
    inner = page.partition(f'action="{path}"')[2].partition("</form>")[0]
    fields = re.findall(r'name="(\w+)" value="(.*?)"', inner)
    return path, {name: html.unescape(value) for name, value in fields}


def links_on(page: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r'href="(/policy/suggest/.*?)"', page)]


def test_the_list_says_what_the_terminal_says(house: Skillhouse, client: TestClient) -> None:
    assert 'href="/policy/suggest"' in client.get("/policy").text
    page = client.get("/policy/suggest").text
    found = suggest_rules(house)
    assert len(found.rules) >= 2
    text = html.unescape(" ".join(re.sub(r"<.*?>", "", page).split()))
    for one in found.rules:
        for said in (one.rule.pattern, one.covers, *one.asks):
            assert said.replace("`", "") in text
        assert f"({one.seen[0][1]})" in text
    assert f"{found.questions} questions: {found.allowed} allowed, 1 refused" in text
    assert "pytest" in text.partition("asked about all the same")[2]
    assert "<b>TODO" not in page
    assert len(links_on(page)) == len(found.rules)
    assert client.get("/policy/suggest?days=x").status_code == 200
    assert client.get("/policy/suggest/abcdef").status_code == 404


def test_one_rule_is_added_by_a_form_after_its_difference(
    house: Skillhouse, client: TestClient
) -> None:
    file = house.config.places.user_file
    first = suggest_rules(house).rules[0].rule
    page = client.get(links_on(client.get("/policy/suggest").text)[0]).text
    assert "Nothing was written yet." in page
    assert '<span class="added">+effect = &#34;allow&#34;</span>' in page
    assert "What would be decided differently" in page
    path, fields = form_on(page)
    assert not file.exists()
    done = client.post(path, data=fields, headers=OURS, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (
        303,
        "/policy/suggest?days=7&done=added",
    )
    said = client.get(done.headers["location"]).text
    assert 'role="status">The rule was added.' in said
    (rule,) = tomllib.loads(file.read_text())["rules"]
    assert (rule["effect"], rule["action"], rule["pattern"]) == (
        "allow",
        first.action,
        first.pattern,
    )
    assert (
        f'href="{path.replace("/approvals/suggested", "/policy/suggest")}'
        not in client.get("/policy/suggest").text
    )
    log = house.audit_log
    assert "manage:rule-add" in [
        one.record.tool for one in entries_of(log.path, Query(), key=log.key)
    ]
    # The form holds for one rule, once: it is no suggestion any more.
    assert client.post(path, data=fields, headers=OURS).status_code == 404


def test_a_form_of_another_page_or_of_other_rules_writes_nothing(
    house: Skillhouse, client: TestClient
) -> None:
    file = house.config.places.user_file
    one, other, *_ = links_on(client.get("/policy/suggest").text)
    path, fields = form_on(client.get(one).text)
    elsewhere, _ = form_on(client.get(other).text)
    assert elsewhere.startswith("/approvals/suggested/")
    assert client.post(elsewhere, data=fields, headers=OURS).status_code == 403
    forged = {**fields, "csrf_token": "0" * 64}
    assert client.post(path, data=forged, headers=OURS).status_code == 403
    assert client.post("/policy/suggest", data=fields, headers=OURS).status_code in (403, 405)
    assert not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[[rules]]\neffect = "ask"\naction = "fetch"\npattern = "*"\n')
    file.chmod(0o600)
    late = client.post(path, data=fields, headers=OURS)
    assert (late.status_code, "The rules were changed" in late.text) == (409, True)
    assert "allow" not in file.read_text()


def test_what_was_refused_meanwhile_is_not_added(house: Skillhouse, client: TestClient) -> None:
    page = client.get("/policy/suggest").text
    index = next(
        at for at, one in enumerate(suggest_rules(house).rules) if "git" in one.rule.pattern
    )
    path, fields = form_on(client.get(links_on(page)[index]).text)
    for line in ("git status", "git log -3"):
        asked = house.call_sync("exec", {"command": f"{line} "})
        question = house.approvals.get(str(asked.approval_id))
        nonce = question.request.nonce
        house.approvals.answer(question.id, Answer.NO, by="local", channel="page", nonce=nonce)
    found = client.post(path, data=fields, headers=OURS)
    assert found.status_code == 404
    assert not house.config.places.user_file.exists()


@pytest.mark.one_server("agent")
def test_a_page_that_changes_nothing_adds_nothing(house: Skillhouse) -> None:
    client = client_of(house, COOKIE, session="session-of-this-start", read_only="an agent")
    page = client.get(links_on(client.get("/policy/suggest").text)[0]).text
    assert 'method="post"' not in page.partition("<main")[2]
    assert "Nothing is changed here: an agent." in page

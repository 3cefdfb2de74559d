"""What a page says after each change, and that what has an opposite can be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.approval.questions import question
from tests.extensions.server import test_http_browser
from tests.extensions.server.pages import test_skills_browser
from tests.extensions.server.pages.served import COOKIE, OURS, PORT, client_of
from tests.house.places import make_places, write_skill

from skillhouse.extensions.server import http_app
from skillhouse.extensions.server.pages.renderer import TEMPLATES
from skillhouse.house import Skillhouse, configured

browser = test_http_browser.browser
visit = test_skills_browser.visit

SILENT = {
    "/api/v1/validate": "looks at a text; its findings are shown beside it",
    "/preview": "makes a preview, which is shown",
    "/api/v1/audit/verify": "changes nothing; what it found is shown",
    "/api/v1/calls": "its result is shown below the form",
}
"""Requests that change nothing of the house, or whose answer is shown, with the reason."""
PLAIN_FORMS = {
    "approval.html": 2,
    "approval_lasting.html": 1,
    "parts.html": 1,
    "policy_suggested.html": 1,
    "question_parts.html": 2,
}
"""Forms that a browser sends by itself: what the page after each says is tried below."""
UNDONE = {
    "code.html": 2,
    "new.html": 1,
    "packages.html": 1,
    "policy_change.html": 1,
    "skill.html": 3,
    "skill_rows.html": 2,
    "trust.html": 1,
}
"""Changes that have an opposite, by template; others have none, and say so by offering none."""


def sources() -> Iterator[tuple[str, str]]:
    for file in sorted(TEMPLATES.glob("*.html")):
        text = file.read_text(encoding="utf-8")
        # An expression may hold what ends a tag.
        parts = re.split(r"(\{\{.*?\}\}|\{%.*?%\})", text)
        yield (
            file.name,
            "".join(
                part.replace(">", "›").replace("<", "‹") if at % 2 else part
                for at, part in enumerate(parts)
            ),
        )


def acting() -> Iterator[tuple[str, str]]:
    """Yield each tag that makes a change by the API, with its template."""
    for name, text in sources():
        for tag in re.findall(r"<[a-z]+\b[^<>]*>", text):
            if "action(" in tag:
                yield name, tag


def test_each_element_that_changes_something_says_so() -> None:
    found = list(acting())
    assert len(found) > 35
    dumb = [
        (name, tag[:120])
        for name, tag in found
        if "data-said" not in tag
        # A job has a page of its own, which says what came of it.
        and "data-job" not in tag
        and not any(f'"{path}"' in tag for path in SILENT)
    ]
    assert dumb == []


def test_what_has_an_opposite_offers_it() -> None:
    offered: dict[str, int] = {}
    for name, tag in acting():
        if "data-undo" in tag:
            offered[name] = offered.get(name, 0) + 1
    assert offered == UNDONE


def test_each_plain_form_is_known() -> None:
    found = {name: text.count('method="post"') for name, text in sources()}
    assert {name: count for name, count in found.items() if count} == PLAIN_FORMS


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    app = http_app(house, token="token", port=PORT, session="session-of-this-start")
    return client_of(app, {**OURS, **COOKIE})


def form_of(text: str, answer: str) -> dict[str, str]:
    """The fields of the form on a page that has this answer."""
    forms = re.findall(r'<form[^>]*method="post">(.*?)</form>', text, re.DOTALL)
    form = next(one for one in forms if f'value="{answer}"' in one)
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
    return {**dict(hidden), "answer": answer}


@pytest.mark.parametrize(("answer", "word"), [("no", "denied"), ("once", "approved")])
def test_the_inbox_says_without_scripts_what_was_answered(
    house: Skillhouse, client: TestClient, answer: str, word: str
) -> None:
    opened = house.approvals.open(question(title="exec: make")).request
    fields = form_of(client.get("/approvals").text, answer)
    moved = client.post(f"/approvals/{opened.id}", data=fields)
    assert (moved.status_code, moved.headers["location"]) == (303, f"/approvals?done={opened.id}")
    (said,) = re.findall(
        r'<p class="notice notice-done" role="status"[^>]*>(.*?)</p>',
        client.get(moved.headers["location"]).text,
    )
    assert word in said
    assert "exec: make" in said


@pytest.mark.parametrize("done", ["approved", "<b>x</b>", "0" * 16, "%0d%0a", ""])
def test_an_address_makes_up_no_answer(house: Skillhouse, client: TestClient, done: str) -> None:
    waiting = house.approvals.open(question(title="exec: make")).request
    for text in (done, waiting.id):
        assert "notice-done" not in client.get("/approvals", params={"done": text}).text
    for path in ("/policy", "/policy/suggest"):
        assert "notice-done" not in client.get(path, params={"done": done}).text


def test_a_page_of_one_question_and_the_stop_say_what_came_of_them(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question(title="exec: make")).request
    fields = form_of(client.get(f"/approvals/{opened.id}").text, "no")
    moved = client.post(f"/approvals/{opened.id}", data=fields)
    page = client.get(moved.headers["location"]).text
    assert re.search(r'<p class="lead" role="status">.*denied', page)
    page = client.get("/approvals/stop").text
    (token,) = re.findall(r'name="csrf_token" value="([^"]*)"', page)
    moved = client.post("/approvals/stop", data={"csrf_token": token})
    assert '<p class="lead" role="status">' in client.get(moved.headers["location"]).text


TOAST = "#outcome"


@pytest.mark.slow
def test_what_was_done_is_said_and_undone(visit: Callable[..., Any], tmp_path: Path) -> None:
    write_skill(tmp_path / "home/.agents/skills/pdf", description="Merges files.")
    page = (begun := visit()).page
    begun.go("/skills/user:pdf")
    page.get_by_role("button", name="Disable").focus()
    page.keyboard.press("Enter")
    page.locator(TOAST, has_text="pdf is hidden from all agents.").wait_for()
    # The button is another one now, and has the focus all the same.
    assert page.evaluate("document.activeElement.textContent") == "Enable"
    page.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Enter")
    page.locator(TOAST, has_text="Undone.").wait_for()
    page.get_by_role("button", name="Disable").wait_for()
    # To the trash, and back from there.
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Move to the trash").click()
    page.locator(TOAST, has_text="pdf was moved to the trash.").wait_for()
    assert not (tmp_path / "home/.agents/skills/pdf").exists()
    page.get_by_role("button", name="Undo").click()
    page.locator(TOAST, has_text="Undone.").wait_for()
    assert (tmp_path / "home/.agents/skills/pdf/SKILL.md").exists()


@pytest.mark.slow
def test_a_rule_is_added_and_taken_back_from_where_it_was_said(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    page = (begun := visit()).page
    config = tmp_path / "home/.config/skillhouse/config.toml"
    begun.go("/policy/add?effect=deny&action=exec&pattern=rm+*")
    page.get_by_role("button", name="Add this rule").click()
    page.locator(TOAST, has_text="The rule was added.").wait_for()
    assert "rm *" in config.read_text()
    page.get_by_role("button", name="Undo").click()
    page.locator(TOAST, has_text="Undone.").wait_for()
    assert "rm *" not in config.read_text()


@pytest.mark.slow
def test_what_is_said_stays_while_it_is_pointed_at(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    write_skill(tmp_path / "home/.agents/skills/pdf", description="Merges files.")
    page = (begun := visit()).page
    begun.go("/skills/user:pdf")
    page.clock.install()
    page.get_by_role("button", name="Disable").click()
    toast = page.locator(TOAST, has_text="pdf is hidden")
    toast.wait_for()
    page.clock.run_for(6000)
    assert toast.count() == 1
    toast.hover()
    page.clock.run_for(20_000)
    assert toast.count() == 1
    page.mouse.move(0, 0)
    page.clock.run_for(3000)
    assert page.inner_text(TOAST) == ""

"""One question says the same at every surface: terminal, page, MCP client, framework and JSON."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.extensions.server import http_app
from skillhouse.extensions.server.pages.renderer import FACT_WORDS
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.frontends.mcp.elicitation import (
    DECISION,
    ElicitationClient,
    elicitation_for,
)
from skillhouse.house import Skillhouse, configured
from skillhouse.presentation.question import ANSWER_WORDS, ONLY_PLACE, question_of
from skillhouse.tools import ToolResult
from tests.approval.questions import question
from tests.extensions.server.pages.served import COOKIE, PORT, client_of
from tests.extensions.server.pages.test_question_pages import CLAIM, DECODED, signing
from tests.frontends.conftest import Run
from tests.frontends.test_cli_approvals import Typed
from tests.house.places import make_places

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("edit", {"path": "a.txt", "old": "one", "new": "two"}),
    ("exec", {"command": "npm", "params": ["install", "lodash"]}),
)
PAGE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def house(place: Path) -> Any:
    (place / "project/a.txt").write_text("one\nthree\n")
    with Skillhouse(configured(make_places(place))) as house:
        yield house


def flat(text: str) -> str:
    """Return a text as words alone: each surface indents and breaks lines in its own way."""
    return " ".join(re.sub(r"<[^>]*>", " ", html.unescape(text)).split())


def page_of(house: Skillhouse, approval: str) -> str:
    app = http_app(house, token="token", port=PORT, session="session-of-this-start")
    return html.unescape(client_of(app, COOKIE).get(f"/approvals/{approval}").text)


def asked_by_mcp(request: ApprovalRequest) -> Any:
    return elicitation_for(request, ElicitationClient(form=True, url=True), PAGE)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_every_surface_shows_the_facts_reasons_and_answers_of_a_question(
    house: Skillhouse, run: Run, capsys: Any, call: tuple[str, dict[str, Any]]
) -> None:
    bridge = FrameworkBridge(house=house, channel="langchain")
    result = bridge.call_sync(*call)
    request = house.approvals.get(result.approval_id or "").request
    asked = question_of(request)
    assert asked.differences or asked.consequence
    _, at_terminal = anyio.run(Typed(b"n\n").answer, request, capsys)
    form, framework = asked_by_mcp(request), bridge.question(result)
    assert framework is not None
    surfaces = {
        "terminal": re.sub(r"\r?\n {8,}", "", at_terminal),
        "show": run("approvals", "show", request.id)[1],
        "page": page_of(house, request.id),
        "mcp": re.sub(r"\n {8,}", "", form.message),
        "framework": json.dumps(framework, ensure_ascii=False),
        "json": run("approvals", "show", request.id, "--json")[1],
    }
    for name, text in surfaces.items():
        words = flat(text.replace("\\n", "\n").replace('\\"', '"'))
        for expected in (asked.title, asked.consequence, *asked.reasons):
            assert flat(expected) in words.replace("`", "") or flat(expected) in words, name
        for label, value in (*asked.found, *asked.sent):
            named = FACT_WORDS.get(label, label) if name == "page" else label
            assert named.casefold() in words.casefold(), (name, label)
            assert all(flat(line) in words for line in value.split("\n")), (name, label)
    lasting = [words for one, words in asked.answers.items() if one not in ("once", "no")]
    for words in asked.answers.values():
        assert f" {words}" in at_terminal
    for words in (*lasting, "approve once", "deny"):
        assert words in flat(surfaces["page"]).casefold()
    assert form.requested_schema["properties"][DECISION]["enum"] == ["deny", "allow once"]
    assert {"once", "deny"} < set(ANSWER_WORDS.values())


def test_the_letters_words_and_rules_of_the_terminal_are_those_of_the_page(
    house: Skillhouse, capsys: Any
) -> None:
    opened = house.approvals.open(question("/w/notes/a.txt"))
    _, said = anyio.run(Typed(b"n\n").answer, opened.request, capsys)
    assert "Allow? (y once, s this connection, p this project, a every project, n deny) " in said
    page = page_of(house, opened.id)
    for words in ("This connection…", "This project…", "Every project…"):
        assert f">{words}</button>" in page
    assert "a standing approval would allow: write /w/notes/ (files directly in it)" in said
    assert "A standing approval would allow write /w/notes/ (files directly in it)." in page


@pytest.mark.parametrize("values", [{"level": "sign"}, {"on_page": True}], ids=["sign", "page"])
def test_what_only_the_page_decides_is_offered_by_no_other_surface(
    house: Skillhouse, values: dict[str, Any]
) -> None:
    """An `on_page` question was offered to frameworks, whose user's approval then did not count."""
    request = question(**values)
    assert list(question_of(request).answers) == ["once", "no"]
    assert ONLY_PLACE in asked_by_mcp(request).message
    opened = house.approvals.open(request)
    bridge = FrameworkBridge(house=house, channel="langchain")
    pending = ToolResult(content="not approved yet", status="pending", approval_id=opened.id)
    assert bridge.question(pending) is None
    assert house.approvals.get(opened.id).request.out_of_band_only


def test_no_surface_shows_the_claim_of_a_skill_about_what_is_signed(
    house: Skillhouse, run: Run
) -> None:
    """The page left it out; the dialogue of an MCP client and the terminal showed it."""
    request = signing(house).request
    shown = run("approvals", "show", request.id)[1].partition("  exactly:")[0]
    for text in (page_of(house, request.id), asked_by_mcp(request).message, shown):
        assert CLAIM not in text
        assert all(value in text for _, value in DECODED)


def test_an_answer_word_is_that_of_one_answer() -> None:
    assert set(ANSWER_WORDS) == set(Answer)
    assert len(set(ANSWER_WORDS.values())) == len(Answer)

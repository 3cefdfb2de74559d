"""Tests of all pages with axe-core: nothing serious, in both schemes and two widths."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.page_pictures import PAGES, SCHEMES, WIDTHS, demo
from tests.extensions.server.pages import test_every_page

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

browser, served, opened = test_every_page.browser, test_every_page.served, test_every_page.opened
"""The fixtures."""
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
GRAVE = ("serious", "critical")
MORE = (
    "/clients/codex",
    "/clients?client=all",
    "/clients/exports",
    "/api/v1/docs",
    "/approvals/history",
    "/approvals/standing",
    "/approvals/stop",
    "/files/user:pdf?name=SKILL.md",
    "/seen/user:mail",
    "/audit?rule=0.0",
    "/policy?action=exec&resource=git+push#try",
    "/policy/add?effect=deny&action=exec&pattern=rm+*",
    "/nowhere",
)
"""Pages without a picture of their own, and one that is not there."""
LOOKS = [
    ("light", 380),
    ("dark", 1400),
    pytest.param("light", 1400, marks=pytest.mark.nightly),
    pytest.param("dark", 380, marks=pytest.mark.nightly),
]
"""Each scheme and each width; the other two of the four cost a minute each."""


@pytest.fixture(scope="module")
def axe(need: Any) -> str:
    """The source of axe-core, which the package has in itself: nothing is fetched."""
    found = importlib.util.find_spec("axe_playwright_python")
    need(found, "the package axe-playwright-python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("width", WIDTHS.values())
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(opened, axe: str, name: str, scheme: str, width: int):
    page = opened(name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert _grave(page, axe) == []


@pytest.mark.parametrize("width", [380, 1_400])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_serious_in_the_list_while_it_is_used(
    opened, axe: str, scheme: str, width: int
):
    page = opened("skills", viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.locator("#rows .c-pick input").first.check()
    page.click("#view summary")
    assert page.locator("#chosen, #view form").and_(page.locator(":visible")).count() == 2
    assert _grave(page, axe) == []
    page.keyboard.press("Escape")
    if width > 1_000:
        page.get_by_role("button", name="Summary of pdf").first.click()
        page.locator("#panel .facts").wait_for()
        assert _grave(page, axe) == []
        page.keyboard.press("Escape")
    page.click("[data-bulk=disable]")
    assert _grave(page, axe) == []
    page.keyboard.press("Escape")
    page.click("[data-bulk=none]")


def _grave(page: Any, axe: str) -> list[tuple[str, str, str]]:
    page.evaluate(axe)
    found = page.evaluate("tags => axe.run(document, {runOnly: tags})", list(TAGS))
    assert len(found["passes"]) > 10
    return [
        (one["id"], node["html"][:160], node.get("failureSummary", ""))
        for one in found["violations"]
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


class Looker:
    """A browser in one look, which says what axe finds on the page that it shows."""

    def __init__(self, page: Any, root: str, axe: str) -> None:
        self.page, self.root, self.axe = page, root, axe
        self.found: list[tuple[str, str, str]] = []
        self.seen = 0

    def go(self, address: str) -> None:
        self.page.goto(self.root + address)
        self.look(address)

    def look(self, name: str) -> None:
        page = self.page
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        # A button waits a moment before it takes a click, and is not looked at until then.
        page.evaluate("for (const one of document.querySelectorAll('button')) one.disabled = false")
        page.evaluate(self.axe)
        found = page.evaluate("tags => axe.run(document, {runOnly: tags})", list(TAGS))
        assert len(found["passes"]) > 10, name
        self.found += [
            (name, one["id"], node["html"][:160])
            for one in found["violations"]
            for node in one["nodes"]
        ]
        self.seen += 1


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[str, str, Path]]:
    """A demo house of this file's own, which its tests change."""
    with demo() as served_house:
        yield served_house


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_nothing_on_any_other_page(
    browser: Any, house: tuple[str, str, Path], axe: str, scheme: str, width: int
) -> None:
    root, opening, base = house
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=False
    )
    page = context.new_page()
    page.goto(opening)
    looker = Looker(page, root, axe)
    for address in MORE:
        looker.go(address)
    # Each kind of question: a command, a file, what signs; and the page that asks once more.
    page.goto(f"{root}/approvals")
    links = page.eval_on_selector_all("a[data-question]", "all => all.map(one => one.pathname)")
    assert len(links) >= 3
    for address in links:
        looker.go(address)
    page.goto(root + links[0])
    lasting = page.locator("button[value=session]")
    assert lasting.count() == 1
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate("for (const one of document.querySelectorAll('button')) one.disabled = false")
    lasting.click()
    looker.look("a lasting answer")
    # What somebody else saved meanwhile, beside what was typed here.
    page.goto(f"{root}/edit/user:meeting-notes")
    file = base / "home/.agents/skills/meeting-notes/SKILL.md"
    text = file.read_text()
    file.write_text(f"{text}\nRead it twice.\n")
    page.fill(".editor textarea", f"{text}\nRead it once.\n")
    page.keyboard.press("Control+s")
    page.locator("#conflict").wait_for()
    looker.look("an edit conflict")
    # What was done, with Undo, and what is laid over a page.
    page.goto(f"{root}/skills/user:pdf")
    page.locator("button:text-is('Disable')").click()
    page.locator("#outcome button").wait_for()
    looker.look("what was done")
    page.locator("#outcome button").click()
    page.locator("#outcome:has-text('Undone.')").wait_for()
    page.keyboard.press("Control+k")
    looker.look("the palette")
    context.close()
    assert looker.found == []
    assert looker.seen > 18

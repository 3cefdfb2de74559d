"""Tests of all pages in a real browser: quiet, narrow, by keyboard, without scripts, accessible."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripts.page_pictures import PAGES, demo, is_shown
from tests.extensions.server import test_http_browser

from skillhouse.extensions.server.pages.site import PLACES

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
REACHABLE = (
    "a[href], button:not(:disabled), input:not([type=hidden]):not(:disabled), "
    "select, textarea, summary, [tabindex='0']"
)


@pytest.fixture(scope="module")
def served(browser: Any) -> Iterator[tuple[str, str]]:
    """The address of a demo house with everything that pages show, and the one that opens it."""
    with demo() as (root, opening, _):
        yield root, opening


@pytest.fixture(scope="module")
def opened(browser: Any, served: tuple[str, str]) -> Callable[..., Any]:
    """Return a function that opens a page by its name, in one window for each set of options.

    A window of its own for each test would start a process of the browser, open a session and load
    everything that is in a page anew: three times the work.
    """
    root, opening = served
    windows: dict[str, Any] = {}

    def open_page(name: str, **options: Any) -> Any:
        key = repr(options)
        if key not in windows:
            windows[key] = browser.new_context(**options).new_page()
            windows[key].goto(opening)
        assert is_shown(windows[key], root, name), name
        return windows[key]

    return open_page


def test_each_place_of_the_navigation_is_looked_at():
    assert {place.path for place in PLACES} <= {path.partition("?")[0] for path in PAGES.values()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_and_asks_no_one_else(opened, served: tuple[str, str], name: str):
    page = opened("skills")
    said: list[str] = []
    asked: set[str] = set()
    failed: list[tuple[str, str | None]] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.add(request.url))
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    assert is_shown(page, served[0], name)
    # The first events and what they renew.
    page.wait_for_timeout(500)
    assert said == []
    # Leaving a page ends what it still waits for, such as its stream of events.
    assert [one for one in failed if one[1] != "net::ERR_ABORTED"] == []
    assert asked
    assert [url for url in asked if not url.startswith(f"{served[0]}/")] == []


@pytest.mark.parametrize("width", [320, 360, 1600])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_not_scroll_sideways(opened, name: str, width: int):
    page = opened(name, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("name", PAGES)
def test_everything_on_a_page_is_reached_by_keyboard(opened, name: str):
    page = opened(name)
    count = page.evaluate(
        "reachable => { const all = [...document.querySelectorAll(reachable)].filter(one =>"
        " one.checkVisibility() && !one.closest('details:not([open]) > :not(summary)'));"
        " all.forEach((one, at) => one.dataset.at = at); document.activeElement.blur();"
        " return all.length }",
        REACHABLE,
    )
    reached: set[str] = set()
    # A group of radio buttons is one stop, and a date has one for each part.
    for _ in range(4 * count):
        page.keyboard.press("Tab")
        at, outlined = page.evaluate(
            "() => { const one = document.activeElement;"
            # What a script lays over a field has the outline around both.
            " const shown = [one, one.parentElement].filter(Boolean);"
            " return [one.dataset.at ?? (one.type === 'radio' ? 'radio' : ''),"
            " shown.some(each => getComputedStyle(each).outlineStyle !== 'none')] }"
        )
        if at is None or (at in reached and len(reached) == count):
            break
        assert outlined or at == "", (name, at)
        reached.add(at)
    missing = page.evaluate(
        "reached => [...document.querySelectorAll('[data-at]')].filter(one =>"
        " !reached.includes(one.dataset.at) && one.type !== 'radio')"
        ".map(one => one.outerHTML.slice(0, 120))",
        list(reached),
    )
    assert missing == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_without_scripts(opened, name: str):
    page = opened(name, java_script_enabled=False)
    assert page.locator("h1").count() == 1
    assert page.locator("h1").inner_text().strip()
    assert len(page.locator("main").inner_text()) > 60
    assert page.get_by_role("navigation").first.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_headings_have_no_gaps(opened, name: str):
    page = opened(name)
    levels = page.eval_on_selector_all("h1, h2, h3, h4", "all => all.map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_in_chinese(opened, name: str):
    page = opened(name, locale="zh-CN")
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

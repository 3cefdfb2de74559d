"""Times on pages: a `<time>` each, in UTC without scripts, and in the reader's place with them."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.server import test_http_browser
from tests.extensions.server.pages import test_skills_browser
from tests.extensions.server.pages.rich import TextNodes, crawled, rich_house

browser = test_http_browser.browser
visit = test_skills_browser.visit

TIME = re.compile(r"\d{4}-\d\d-\d\d|\b\d\d:\d\d(?::\d\d)?\b")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SHOWN = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d(\.\d{3})?)?)? UTC")
DATA = {
    "bdi": "a value of somebody else",
    "code": "a value that is copied",
    "pre": "a text as it is in a file",
    "textarea": "a text as it is in a file",
    "desc": "the description of a plot, which holds text alone: as in the table below it",
    "title": "the hint of a bar in a plot, which holds text alone: as in the table below it",
}
"""Elements in which a time is no time of the page, and why."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with rich_house(tmp_path_factory.mktemp("rich")) as (_, client):
        yield crawled(client, "en")


def test_each_time_is_one_for_programs_too(pages: dict[str, str]) -> None:
    times, outside = 0, []
    for address, page in pages.items():
        for text, above in TextNodes(page).found:
            tags = {tag for tag, _ in above}
            if "time" in tags:
                times += 1
                given = next(given for tag, given in above if tag == "time")
                assert MOMENT.fullmatch(given["datetime"] or ""), text
                assert SHOWN.fullmatch(text), text
            elif TIME.search(text) and not tags & DATA.keys():
                outside.append((address, text))
    assert outside == []
    assert times > 60


def test_the_export_has_times_as_records_have_them(tmp_path: Path) -> None:
    with rich_house(tmp_path) as (_, client):
        text = client.get("/api/v1/audit/export.csv").text
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    assert len(rows) > 10
    assert all(MOMENT.fullmatch(row["ts"]) for row in rows)


@pytest.mark.slow
def test_a_time_is_that_of_the_readers_place_with_utc_in_its_title(
    visit: Callable[..., Any], tmp_path: Path
) -> None:
    begun = visit(timezone_id="Asia/Kolkata", locale="en-GB")
    page = begun.page
    begun.go("/system")
    one = page.locator("#keys-list time").first
    title = one.get_attribute("title") or ""
    assert SHOWN.fullmatch(title)
    utc = page.evaluate(
        "text => new Date(text).toLocaleString('en', {timeZone: 'Asia/Kolkata', year: 'numeric',"
        " month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit'})",
        one.get_attribute("datetime"),
    )
    assert one.inner_text() == utc
    # What a script puts there later is shown so, too.
    page.evaluate(
        "() => document.querySelector('main').insertAdjacentHTML('beforeend',"
        ' \'<time id="late" datetime="2026-01-31T20:00:00Z" data-to="day">2026-01-31 UTC</time>\')'
    )
    page.locator("#late[title='2026-01-31 20:00 UTC']").wait_for()
    assert page.inner_text("#late") == "Feb 1, 2026"

"""Skills that attack the browser of the person who looks at them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from skillhouse.extensions.server import http_app
from skillhouse.house import Skillhouse, configured
from skillhouse.skill import content
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.hostile_skills import FOREIGN, MANY_FILES, MARK, MARKUP, write_hostile
from tests.house.places import make_places

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
PORT = 8600
LINKS = "all => all.map((one) => one.href)"


@pytest.fixture
def watched(browser, tmp_path: Path) -> Iterator[tuple[object, str, list[str]]]:
    """A page of a served place with the corpus, its address, and what it did that it must not."""
    write_hostile(tmp_path / "home/.agents/skills")
    with started(tmp_path) as (_, port, token):
        base = f"http://127.0.0.1:{port}"
        context = browser.new_context()
        page = context.new_page()
        done: list[str] = []

        def asked(request) -> None:
            if _foreign(request.url, port):
                done.append(request.url)

        def spoke(dialog) -> None:
            done.append(dialog.message)
            dialog.dismiss()

        context.on("request", asked)
        page.on("dialog", spoke)
        page.on("popup", lambda one: done.append(f"popup {one.url}"))
        page.on("pageerror", lambda one: done.append(str(one)))
        page.goto(f"{base}/?token={token}")
        yield page, base, done
        context.close()


def _foreign(address: str, port: int) -> bool:
    parts = urlsplit(address)
    return parts.scheme not in ("blob", "data") and parts.netloc != f"127.0.0.1:{port}"


def test_the_corpus_acts_where_a_page_takes_it_for_markup(browser):
    """The naive version: what the pages must not do does happen with these texts."""
    page = browser.new_page()
    page.route(f"**://{FOREIGN}/**", lambda route: route.abort())
    page.set_content(MARKUP.partition("<style>")[0], wait_until="commit")
    page.wait_for_function(f"window.{MARK} === 1")
    page.close()


def test_no_page_runs_shows_or_asks_for_what_a_skill_says(watched):
    page, base, done = watched
    page.wait_for_selector("#rows a.name")
    skills = page.eval_on_selector_all("#rows a.name", LINKS)
    assert len(skills) >= 7
    ahead = [f"{base}/", f"{base}/?q=script+link", f"{base}/packages", f"{base}/new", *skills]
    seen: set[str] = set()
    kinds = ("/skills/", "/files/", "/edit/", "/seen/", "/rehearse", "/calls", "/audit", "/system")
    while ahead:
        address = ahead.pop()
        path = urlsplit(address).path
        if address in seen or "download=" in address:
            continue
        seen.add(address)
        page.goto(address)
        assert page.evaluate(f"window.{MARK}") is None, address
        assert (
            page.evaluate(
                "document.querySelectorAll('main :is(script, img, svg, iframe, base,"
                " style, meta, math, object)').length"
            )
            == 0
        ), address
        found = page.eval_on_selector_all("a[href]", LINKS)
        if path.startswith("/skills/"):
            files = [one for one in found if "/files/" in one][:12]
            ahead += files + [one for one in found if "/edit/" in one]
        elif path == "/":
            ahead += [one for one in found if urlsplit(one).path.startswith(kinds)]
    assert sum("/files/" in one for one in seen) >= 8
    assert sum("/edit/" in one for one in seen) >= 3
    assert done == []


def test_a_link_of_a_skill_shows_where_it_leads_and_opens_nothing_before(watched):
    page, base, done = watched
    page.goto(f"{base}/skills/user:marked")
    page.click("button.away:has-text('out')")
    dialog = page.locator("#away")
    assert dialog.is_visible()
    assert FOREIGN in dialog.inner_text()
    page.keyboard.press("Escape")
    assert page.url == f"{base}/skills/user:marked"
    targets = page.eval_on_selector_all("[data-away]", "all => all.map(one => one.dataset.away)")
    assert targets
    assert all(one.startswith("http://") for one in targets)
    assert done == []


def test_the_preview_of_what_is_typed_is_no_markup(watched):
    page, base, done = watched
    page.goto(f"{base}/new")
    page.fill("#name", "mine")
    page.fill("#description", MARKUP)
    page.fill("#instructions", f"{MARKUP}\n\n[x](javascript:window.{MARK}=1)\n")
    page.locator("#preview", has_text="<script>").wait_for()
    assert (
        page.evaluate("document.querySelectorAll('#preview :is(script, img, a, svg)').length") == 0
    )
    assert page.evaluate(f"window.{MARK}") is None
    assert done == []


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    places = make_places(tmp_path)
    write_hostile(places.home / ".agents/skills")
    house = Skillhouse(configured(places), cache_directory=None)
    app = http_app(house, token="t" * 43, port=PORT)
    base = f"http://127.0.0.1:{PORT}"
    return TestClient(app, base, headers={"authorization": f"Bearer {'t' * 43}"})


@pytest.mark.parametrize("name", ["image.svg", "page.html", "notes.md", "bytes.bin"])
def test_a_download_is_never_shown_by_a_browser(client: TestClient, name: str):
    answer = client.get(
        "/files/user:marked", params={"name": f"references/{name}", "download": "1"}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="{name}"')
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name",
    ["../pdf/SKILL.md", "/etc/passwd", "references/link", "..", "references", "\0", "a" * 999],
)
def test_no_file_outside_of_the_skill_is_shown_or_sent(client: TestClient, name: str):
    for more in ({}, {"download": "1"}):
        answer = client.get("/files/user:marked", params={"name": name, **more})
        assert answer.status_code == 404
        assert "root:" not in answer.text


def test_a_million_files_cost_no_more_than_the_bound(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
):
    """Twenty thousand stand for them: what is looked at is counted."""
    looked: list[int] = []
    scandir = os.scandir

    class Counted:
        def __init__(self, path: str) -> None:
            self._entries = scandir(path)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self._entries.close()

        def __iter__(self) -> Counted:
            return self

        def __next__(self) -> object:
            found = next(self._entries)
            looked.append(1)
            return found

    monkeypatch.setattr("skillhouse.skill.content.os.scandir", Counted)
    page = client.get("/skills/user:large").text
    monkeypatch.undo()
    assert page.count("/files/user:large") < 1_000
    assert "more: the skill has more files than are counted" in page
    chinese = client.get("/skills/user:large", headers={"accept-language": "zh"}).text
    assert "这个技能的文件比数到的更多" in chinese
    found = client.get("/api/v1/skills/user:large/files").json()
    assert found["resources_more"] is True
    assert len(found["resources"]) + found["resources_omitted"] == found["total"] < MANY_FILES
    assert client.get("/api/v1/skills/user:marked/files").json()["resources_more"] is False
    # Listing the files, reading the skill, and its digest, which ends at its own bound.
    assert (
        content.RESOURCES_SCANNED_MAX
        <= len(looked)
        < MANY_FILES + 3 * content.RESOURCES_SCANNED_MAX
    )


def test_a_line_of_ten_megabytes_is_not_shown(client: TestClient):
    answer = client.get("/files/user:large", params={"name": "line.txt"})
    assert answer.status_code == 200
    assert "This file is not shown." in answer.text
    assert len(answer.content) < 20_000

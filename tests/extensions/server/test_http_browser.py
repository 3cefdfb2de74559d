"""Tests of the pages in a real browser: by keyboard, narrow, without scripts, under attack."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.extensions.server.test_http_serve import started
from tests.harness import Need
from tests.house.places import make_places, write_skill
from tests.loopback_http import serving_http

pytestmark = pytest.mark.slow

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
PAGES = ("/", "/?q=pdf", "/skills/user:long", "/skills/nothing", "/?q=zzzz")


@pytest.fixture(scope="module")
def browser(need: Need) -> Iterator[object]:
    need(shutil.which(CHROMIUM), f"a browser at {CHROMIUM}")
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may be missing.
    except ModuleNotFoundError:
        need(None, "the package playwright")
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a served place with names and texts of every kind; the token follows it."""
    place = tmp_path_factory.mktemp("place")
    places = make_places(place)
    skills = places.home / ".agents/skills"
    write_skill(skills / "pdf", description="Merges PDF files.")
    write_skill(skills / "发票整理", description="整理发票和收据，生成一张可以报销的表格。" * 9)
    write_skill(skills / "long", description="x" * 900, body="y" * 3_000 + "\n\tz \u202e\n")
    write_skill(places.home / ".claude/skills" / ("deep-" * 20) / ("deeper-" * 20) / "pdf")
    write_skill(places.start / ".agents/skills/unread")
    (skills / "broken").mkdir()
    (skills / "broken/SKILL.md").write_text("---\nname: 'x\n---\n")
    evil = write_skill(skills / "evil")
    words = "'<script>document.title = 1</script><img src=x onerror=document.title=2>'"
    (evil / "SKILL.md").write_text(f"---\nname: {words}\ndescription: {words}\n---\n{words}\n")
    with started(place) as (_, port, token):
        yield f"http://127.0.0.1:{port}/?token={token}"


@pytest.fixture
def opened(browser, base: str) -> Iterator[Callable[..., object]]:
    """Return a function that opens a session in a browser of its own and gives its page."""
    contexts = []

    def open_page(**options: object):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(base)
        return page

    yield open_page
    for context in contexts:
        context.close()


def root_of(base: str) -> str:
    return base.partition("/?")[0]


@pytest.fixture(scope="module")
def windows(browser, base: str) -> Callable[[int], object]:
    """Return a function that gives the one window of a width, in which the session is open."""

    @functools.cache
    def of_width(width: int):
        page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
        page.goto(base)
        return page

    return of_width


def test_the_token_leaves_the_address_bar_and_the_cookie_opens_the_next_page(opened, base: str):
    page = opened()
    assert page.url == root_of(base) + "/"
    assert page.title() == "Skills of project · skillhouse"
    page.click("#rows a[href='/skills/builtin:weather']")
    page.wait_for_url("**/skills/builtin:weather")
    assert page.title() == "weather · skillhouse"


@pytest.mark.one_server("moment")
@pytest.mark.parametrize("path", PAGES)
def test_every_link_and_field_is_reached_by_keyboard_and_shows_it(opened, base: str, path: str):
    page = opened()
    page.goto(root_of(base) + path)
    # What a page loads afterwards is there.
    page.wait_for_selector("[data-load]", state="detached")
    # Each reachable thing gets a number, in the order of the page.
    count = page.evaluate(
        "() => { const reachable = 'a[href], input:not([type=hidden]), button, select, textarea,"
        " summary';"
        " const all = [...document.querySelectorAll(reachable)]"
        ".filter((one) => one.checkVisibility());"
        " all.forEach((one, at) => one.dataset.at = at); return all.length }"
    )
    reached = []
    for _ in range(count):
        page.keyboard.press("Tab")
        at, outlined, visible = page.evaluate(
            "() => { const one = document.activeElement; const style = getComputedStyle(one);"
            " const box = one.getBoundingClientRect();"
            " return [one.dataset.at, style.outlineStyle, box.width > 0 && box.bottom > 0] }"
        )
        assert (path, at, outlined, visible) == (path, at, "solid", True)
        reached.append(int(at))
    assert reached == list(range(count))


def test_the_first_key_press_offers_to_skip_to_the_content(opened):
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/#main")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_search_works_by_keyboard(opened):
    page = opened()
    page.focus("#q")
    page.keyboard.type("merge pdf")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=merge+pdf")
    assert page.locator("#rows .name").first.inner_text() == "pdf"


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_nothing_scrolls_sideways(windows, base: str, path: str, width: int):
    page = windows(width)
    page.goto(root_of(base) + path)
    sideways = page.evaluate(
        "() => [...document.querySelectorAll('html, main, pre, table, ul, dl')]"
        ".filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 1)"
        ".map(one => one.outerHTML.slice(0, 80))"
    )
    assert sideways == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_no_page_leaves_a_word_in_the_console(opened, base: str):
    page = opened()
    said: list[str] = []
    statuses: set[int] = set()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("response", lambda answer: statuses.add(answer.status))
    links = page.eval_on_selector_all("#rows a.name", "all => all.map(one => one.href)")
    for address in [root_of(base) + "/", *links, root_of(base) + "/?q=pdf"]:
        page.goto(address)
        assert page.title() not in ("1", "2")
    assert len(links) >= 5
    assert said == []
    assert statuses <= {200, 304}


def test_the_pages_read_the_same_without_scripts(opened, base: str):
    texts = []
    for enabled in (True, False):
        page = opened(java_script_enabled=enabled)
        page.goto(root_of(base) + "/skills/user:long")
        # A script fills in what the link leads to without one.
        skill = page.locator("main > :not(#clients)").all_text_contents()
        page.goto(root_of(base) + "/")
        texts.append(("".join(skill), page.text_content("main")))
    assert texts[0] == texts[1]
    assert "整理发票和收据" in texts[0][1]
    assert "\\u202e" in texts[0][0]


def test_headings_and_landmarks_tell_the_outline(opened):
    page = opened()
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => +one.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.get_by_role("main").count() == 1
    assert page.get_by_role("search").count() == 1
    assert page.get_by_role("searchbox", name="Find a skill").count() == 1
    # Stacked for narrow screens, tables stay tables for those who hear them.
    page.goto(page.url + "system")
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.get_by_role("table", name="Roots, highest precedence first").count() == 1
    assert page.get_by_role("cell", name="does not exist").count() > 0


@pytest.fixture
def attacker(tmp_path: Path) -> Iterator[str]:
    """Another server of this machine, which the person visits in the same browser."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "index.html").write_text("<!doctype html><title>harmless</title>")
    handler = partial(Quiet, directory=str(tmp_path))
    with serving_http(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/index.html"


def test_a_page_of_another_port_reads_nothing_though_the_cookie_goes_along(
    opened, base: str, attacker: str
):
    page = opened()
    root = root_of(base)
    page.goto(attacker)
    statuses: list[int] = []
    page.on("response", lambda answer: statuses.append(answer.status))
    read = page.evaluate(
        "async root => { try { const answer = await fetch(root + '/api/v1/skills',"
        " {credentials: 'include'}); return await answer.text() } catch { return 'nothing' } }",
        root,
    )
    assert read == "nothing"
    framed = page.evaluate(
        "root => new Promise(done => { const frame = document.createElement('iframe');"
        " frame.onload = () => { let text = 'nothing';"
        " try { text = frame.contentDocument.body.innerText } catch {} done(text) };"
        " frame.src = root + '/'; document.body.append(frame) })",
        root,
    )
    assert framed == "nothing"
    loaded = page.evaluate(
        "root => new Promise(done => { const image = new Image();"
        " image.onload = () => done('loaded'); image.onerror = () => done('nothing');"
        " image.src = root + '/icon.svg' })",
        root,
    )
    assert loaded == "nothing"
    assert statuses
    assert set(statuses) == {403}

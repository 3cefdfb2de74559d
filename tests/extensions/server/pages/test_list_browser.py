"""The list of skills in a real browser: the index, columns, what is chosen, and the panel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.server import test_http_browser
from tests.extensions.server.pages.test_skill_list import NAMES, TYPED, write_names
from tests.extensions.server.test_http_serve import started
from tests.house.places import write_skill

from skillhouse.extensions.server.pages.skill_pages import PAGE_ROWS

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
MANY = 10_000
SHOWN = "[...document.querySelectorAll('#rows > tr .name')].map(one => one.textContent)"
TYPE = """text => {
  const field = document.getElementById('q');
  field.value = text;
  field.dispatchEvent(new Event('input', { bubbles: true }));
}"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    base = tmp_path_factory.mktemp("place")
    write_names(base)
    for name in ("alpha", "beta", "gamma"):
        write_skill(base / f"home/.agents/skills/{name}", description=f"Is the {name} of them.")
    with started(base) as (_, port, token):
        yield base, f"http://127.0.0.1:{port}", token


@pytest.fixture
def opened(browser: Any, served: tuple[Path, str, str]) -> Iterator[Callable[..., Any]]:
    contexts = []

    def begin(path: str = "/", **options: Any) -> Any:
        size = {"viewport": {"width": 1_400, "height": 900}}
        contexts.append(browser.new_context(**{**size, **options}))
        page = contexts[-1].new_page()
        page.goto(f"{served[1]}/?token={served[2]}")
        page.goto(served[1] + path)
        return page

    yield begin
    for context in contexts:
        context.close()


def loaded(page: Any) -> None:
    """Have the index in the page."""
    with page.expect_response("**/skills-index*"):
        page.focus("#q")
    page.evaluate(TYPE, "zzz")
    page.locator("#shown", has_text=re.compile("^0$")).wait_for()


def test_what_is_typed_fits_as_the_server_says(opened: Callable[..., Any]) -> None:
    page = opened("/?scope=user")
    loaded(page)
    for typed, wanted in TYPED.items():
        page.evaluate(TYPE, typed)
        found = [one for one in page.evaluate(SHOWN) if one in NAMES]
        assert sorted(found) == sorted(wanted), typed
    # Also where each letter narrows what fitted before.
    for at in range(len("resume zoe") + 1):
        page.evaluate(TYPE, "resume zoe"[:at])
    assert page.evaluate(SHOWN) == ["resume"]


def test_rows_of_the_index_are_those_of_the_server(opened: Callable[..., Any]) -> None:
    page = opened("/?words=alpha")
    parts = (
        "[...document.querySelectorAll('#rows > tr')].map(row => [row.dataset.key, row.className,"
        " row.querySelector('a.name').getAttribute('href'),"
        " [...row.children].map(one => one.textContent.trim()),"
        " [...row.querySelectorAll('button')].map(one => [one.dataset.path, one.dataset.said])])"
    )
    drawn = page.evaluate(parts)
    loaded(page)
    # The one that the server drew is forgotten with others.
    for text in ("", "alpha"):
        page.evaluate(TYPE, text)
    assert page.evaluate(parts) == drawn
    page = opened("/?words=beta")
    drawn = page.evaluate(parts)
    page = opened("/?words=alpha")
    loaded(page)
    page.evaluate(TYPE, "beta")
    assert page.evaluate(parts) == drawn
    assert len(drawn) == 1


CUT = """() => {
  const cut = [];
  const row = document.querySelector("#rows > tr");
  const cells = [".c-state", ".c-listing"].map((name) => row.querySelector(name));
  const words = [...document.querySelectorAll("template")]
    .flatMap((one) => [...one.content.querySelectorAll("[data-word]")])
    .map((one) => one.textContent.trim());
  for (const word of words) {
    cells[0].firstChild.textContent = cells[1].textContent = word;
    cells[0].firstChild.className = "state state-wrong";
    if (cells.some((one) => one.scrollWidth > one.clientWidth)) cut.push(word);
  }
  return [words.length, cut];
}"""


@pytest.mark.parametrize("locale", ["en", "zh"])
@pytest.mark.parametrize("width", [1_200, 1_280])
def test_what_a_skill_is_for_a_model_is_never_cut(
    opened: Callable[..., Any], locale: str, width: int
) -> None:
    page = opened(viewport={"width": width, "height": 900}, locale=locale)
    frame = page.locator(".list-frame")
    assert frame.evaluate("one => one.scrollWidth <= one.clientWidth")
    count, cut = page.evaluate(CUT)
    assert (count > 20, cut) == (True, [])


def test_columns_and_order_are_kept_and_come_back(opened: Callable[..., Any]) -> None:
    page = opened()
    page.focus("#view summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "tools"
    assert not page.locator("#rows .c-tools").first.is_visible()
    page.keyboard.press("Space")
    assert page.locator("#list thead .c-tools").is_visible()
    assert "tools" in page.url
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.localName") == "summary"
    assert not page.locator("#view").evaluate("one => one.open")
    page.get_by_role("link", name="Name", exact=True).click()
    page.wait_for_url("**sort=name**")
    head = page.locator("#list thead .c-name")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator("#list thead .c-tools").is_visible()
    names = page.evaluate(SHOWN)
    assert names == sorted(names, key=str.casefold)
    loaded(page)
    page.evaluate(TYPE, "of them")
    assert page.evaluate(SHOWN) == ["alpha", "beta", "gamma"]
    page.locator("#rows a.name").first.click()
    page.wait_for_url("**/skills/**")
    page.go_back()
    page.locator("#shown", has_text=re.compile("^3$")).wait_for()
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.locator("#list thead .c-tools").is_visible()
    # This browser had them last.
    page.goto(page.url.partition("?")[0])
    assert page.locator("#list thead .c-tools").is_visible()


def test_a_disabled_row_stays_with_the_focus_on_its_button(opened: Callable[..., Any]) -> None:
    page = opened()
    before = page.evaluate(SHOWN)
    assert before.index("alpha") < len(before) - 4
    page.get_by_role("button", name="Disable alpha").press("Enter")
    enable = page.get_by_role("button", name="Enable alpha")
    enable.wait_for()
    # The event of the change, too, has been heard.
    page.locator("#counts div", has_text=re.compile(r"Not in force\s*1")).wait_for()
    page.wait_for_timeout(1_500)
    assert page.evaluate(SHOWN) == before
    assert "Enable alpha" in page.evaluate("document.activeElement.textContent")
    assert "\n1\n" in page.locator("#counts div:has-text('Not in force')").first.inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Disable alpha").wait_for()
    assert page.evaluate(SHOWN) == before


def test_chosen_skills_are_changed_after_one_question(
    opened: Callable[..., Any], served: tuple[Path, str, str]
) -> None:
    page = opened("/?words=of+them")
    page.check("#pick-all")
    bar = page.locator("#chosen")
    assert bar.locator("[role=status]").inner_text() == "3 chosen"
    page.uncheck("#rows tr:has-text('gamma') input")
    bar.get_by_role("button", name="Disable").click()
    question = page.get_by_role("dialog", name="Disable the chosen skills?")
    assert "Number of skills: 2" in question.inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#rows .is-off").count() == 0
    bar.get_by_role("button", name="Disable").click()
    question.get_by_role("button", name="Disable (2)").click()
    page.get_by_text("Skills hidden from all agents: 2").wait_for()
    assert page.locator("#rows .is-off .name").all_inner_texts() == ["alpha", "beta"]
    assert bar.is_hidden()
    for name in ("alpha", "beta"):
        page.check(f"#rows tr:has-text('{name}') input")
    bar.get_by_role("button", name="Enable").click()
    page.get_by_role("button", name="Enable (2)").click()
    page.get_by_text("Skills offered to agents again: 2").wait_for()
    assert page.locator("#rows .is-off").count() == 0
    # Both at once, and back.
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Skills hidden from all agents: 2").wait_for()
    assert page.locator("#rows .is-off .name").all_inner_texts() == ["alpha", "beta"]
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("Skills offered to agents again: 2").wait_for()
    assert page.locator("#rows .is-off").count() == 0
    # What is not one's own is named, and left.
    write_skill(served[0] / "home/.agents/skills/brief", description="Is one of them, for a while.")
    page = opened("/")
    page.check("#rows tr:has-text('brief') input")
    page.check("#rows tr:has-text('weather') input")
    bar = page.locator("#chosen")
    bar.get_by_role("button", name="Delete").click()
    question = page.get_by_role("dialog", name="Delete the chosen skills?")
    assert "Number of skills: 1" in question.inner_text()
    assert "not yours or of this project: 1" in question.inner_text()
    question.get_by_role("button", name="Move to the trash (1)").click()
    page.get_by_text("Skills moved to the trash: 1").wait_for()
    assert not (served[0] / "home/.agents/skills/brief").exists()
    assert "brief" not in page.evaluate(SHOWN)


def test_a_panel_has_the_summary_and_gives_the_focus_back(opened: Callable[..., Any]) -> None:
    page = opened()
    peek = page.get_by_role("button", name="Summary of alpha")
    peek.press("Enter")
    panel = page.locator("#panel")
    panel.locator(".facts").wait_for()
    text = panel.inner_text()
    for part in ("alpha", "Is the alpha of them.", "user:alpha", "Calls", "Clients"):
        assert part in text, part
    assert panel.locator("form, [data-path], [data-live]").count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    assert "Summary of alpha" in page.evaluate("document.activeElement.textContent")
    page.locator("#rows tr:has-text('beta') .c-description").click()
    panel.locator(".facts", has_text="user:beta").wait_for()
    panel.get_by_role("link", name="Open its page").click()
    page.wait_for_url("**/skills/user:beta")
    page.go_back()
    # The link itself leads to the page, in another tab with Ctrl, and wherever it is narrow.
    with page.context.expect_page() as other:
        page.get_by_role("link", name="beta", exact=True).click(modifiers=["Control"])
    assert other.value.url.endswith("/skills/user:beta")
    page.get_by_role("link", name="beta", exact=True).click()
    page.wait_for_url("**/skills/user:beta")
    page = opened(viewport={"width": 380, "height": 800})
    page.locator("#rows tr:has-text('beta') .c-description").click()
    assert page.locator("#panel").is_hidden()


def test_without_a_script_the_list_is_filtered_sorted_and_turned(
    opened: Callable[..., Any],
) -> None:
    page = opened("/?words=of+them", java_script_enabled=False)
    assert page.locator("#rows .name").all_inner_texts() == ["alpha", "beta", "gamma"]
    page.click("#view summary")
    page.check("#view [value=clients]")
    page.select_option("#by-sort", "-name")
    page.click("#view button:has-text('Show')")
    assert page.locator("#rows .name").all_inner_texts() == ["gamma", "beta", "alpha"]
    assert page.locator("#list thead .c-clients").is_visible()
    assert page.locator(".needs-script:visible").count() == 0


@pytest.mark.heavy
def test_among_10_000_skills_a_page_of_rows_is_in_the_document(
    browser: Any, tmp_path: Path
) -> None:
    for number in range(MANY):
        write_skill(tmp_path / f"home/.agents/skills/skill-{number:05}")
    with started(tmp_path) as (_, port, token):
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/?token={token}", timeout=120_000)
        assert page.locator("#rows > tr").count() == PAGE_ROWS
        loaded(page)
        for text, count in (
            ("skill-", MANY),
            ("skill-0", MANY),
            ("1234", 1),
            ("99", 2),
            ("", None),
        ):
            page.evaluate(TYPE, text)
            page.wait_for_timeout(100)
            assert page.locator("#rows > tr").count() <= PAGE_ROWS
            shown = int(page.inner_text("#shown").replace(",", ""))
            wanted = sum(text in f"skill-{one:05}" for one in range(MANY))
            assert shown == (wanted if count else MANY + 3), text
        # The pages of what fits are the server's.
        page.evaluate(TYPE, "skill-09")
        page.get_by_role("link", name="Next").click()
        page.wait_for_url("**page=2**")
        assert page.locator("#rows .name").first.inner_text() == f"skill-09{PAGE_ROWS:03}"
        page.close()

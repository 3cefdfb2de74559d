"""Clients, Rehearse, Audit and System in a real browser, by a person who looks and mends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.page_pictures import CONFIG, PDF
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.house.places import make_places, write_skill

from skillhouse.floor import Locations

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
MISREAD = "---\nname: mail\ndescription: > Use when: mail waits\n---\nBe brief.\n"


@pytest.fixture(scope="module")
def served(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Locations, str, str]]:
    """A place with a skill that clients misread, served; its address and its token."""
    base = tmp_path_factory.mktemp("place")
    places = make_places(base)
    write_skill(places.home / ".agents/skills/pdf")
    (places.home / ".agents/skills/pdf/SKILL.md").write_text(PDF)
    write_skill(places.home / ".agents/skills/mail")
    (places.home / ".agents/skills/mail/SKILL.md").write_text(MISREAD)
    (places.home / ".codex").mkdir()
    (places.home / ".codex/config.toml").write_text("")
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(CONFIG)
    with started(base) as (_, port, token):
        yield places, f"http://127.0.0.1:{port}", token


@pytest.fixture
def page(browser: Any, served: tuple[Locations, str, str]) -> Iterator[Any]:
    _, root, token = served
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{root}/?token={token}")
    yield page
    context.close()


@pytest.fixture
def call(served: tuple[Locations, str, str]) -> Callable[..., None]:
    """Return a function that calls a tool in another process of the same state."""
    places = served[0]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}

    def run(tool: str, **arguments: str) -> None:
        code = (
            "import json, sys; from skillhouse import Skillhouse\n"
            "with Skillhouse() as house: house.call_sync(sys.argv[1], json.loads(sys.argv[2]))"
        )
        subprocess.run(
            [sys.executable, "-c", code, tool, json.dumps(arguments)],
            cwd=places.start,
            env={**kept, "HOME": str(places.home)},
            check=True,
        )

    return run


def test_a_request_is_typed_and_followed(page: Any, served: tuple[Locations, str, str]):
    page.goto(f"{served[1]}/rehearse")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.type("merge two pdf files")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rehearse?q=merge+two+pdf+files")
    assert page.locator(".hits a").first.inner_text() == "pdf"
    verdicts = page.locator(".mentions tbody tr")
    assert "ask" in verdicts.nth(0).inner_text()
    assert "qpdf" in verdicts.nth(0).inner_text()
    assert "rule exec git status of user policy" in verdicts.nth(1).inner_text()
    body = page.locator("details:has-text('Show it') pre").last
    assert not body.is_visible()
    page.get_by_text("Show it").last.click()
    assert "Merge files in the order" in body.inner_text()


def test_a_mend_of_doctor_is_seen_and_made(page: Any, served: tuple[Locations, str, str]):
    places, root, _ = served
    file = places.home / ".agents/skills/mail/SKILL.md"
    page.goto(f"{root}/clients")
    fix = page.locator("article.fix", has_text="skills/mail/SKILL.md")
    assert "-description: > Use when: mail waits" in fix.inner_text()
    assert "+description: 'Use when: mail waits'" in fix.inner_text()
    assert file.read_text() == MISREAD
    row = page.locator(".matrix tbody tr", has_text="mail")
    assert "read differently" in row.inner_text() or "not loaded" in row.inner_text()
    with page.expect_navigation():
        fix.get_by_role("button", name="Make this change").click()
    assert "'Use when: mail waits'" in file.read_text()
    assert page.locator("article.fix", has_text="skills/mail/SKILL.md").count() == 0
    assert row.locator(".sign-allow").count() == page.locator(".matrix thead th").count() - 1


def test_a_mend_that_is_another_one_by_now_is_refused_with_a_reason(
    page: Any, served: tuple[Locations, str, str]
):
    places, root, _ = served
    # Two changes of one kind would be folded into one.
    write_skill(places.home / ".agents/skills/mail")
    file = places.home / ".agents/skills/late/SKILL.md"
    write_skill(file.parent)
    file.write_text(MISREAD.replace("mail", "late"))
    page.goto(f"{root}/clients")
    fix = page.locator("article.fix", has_text="skills/late/SKILL.md")
    changed = MISREAD.replace("mail", "late").replace("waits", "is here")
    file.write_text(changed)
    fix.get_by_role("button", name="Make this change").click()
    fix.locator("[data-problem]:not(:empty)").wait_for()
    assert "something else than was shown" in fix.locator("[data-problem]").inner_text()
    assert file.read_text() == changed


def test_the_table_of_clients_is_filtered_as_one_types(
    page: Any, served: tuple[Locations, str, str]
):
    page.goto(f"{served[1]}/clients?client=all")
    page.fill("#matrix-filter", "pdf sees")
    visible = page.locator(".matrix tbody tr:visible")
    assert visible.count() == 1
    assert page.locator("#matrix-count").inner_text() == "1"
    assert "pdf" in visible.inner_text()


def test_the_log_is_filtered_drawn_verified_and_exported(
    page: Any, served: tuple[Locations, str, str], call: Callable[..., None]
):
    places, root, _ = served
    call("exec", command="git push origin --tags")
    call("skill", name="pdf")
    page.goto(f"{root}/audit")
    bars = page.locator("#plots svg[role=img] rect")
    assert bars.count() >= 4
    box = bars.first.bounding_box()
    assert box is not None
    assert box["height"] > 0
    page.select_option("#status", "denied")
    page.fill("#text", "PUSH")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**/audit?*status=denied*")
    (row,) = page.locator(".calls tbody tr").all()
    assert "git push origin --tags" in row.inner_text()
    assert page.locator("#plots rect.of-denied").count() >= 1
    assert page.locator("#plots rect.of-ok").count() == 0
    with page.expect_download() as exported:
        page.get_by_role("link", name="CSV").click()
    lines = Path(exported.value.path()).read_text("utf-8").splitlines()
    assert len(lines) == 2
    assert "git push origin --tags" in lines[1]
    page.get_by_role("button", name="Verify the log").click()
    page.get_by_text("No byte of the log was changed.").wait_for()
    row.locator("a").click()
    page.wait_for_url("**/calls/*")
    assert "releases are made by people" in page.locator("main").inner_text()
    log = places.state() / "audit.jsonl"
    kept = log.read_bytes()
    log.write_bytes(kept.replace(b"git push", b"git pull", 1))
    try:
        page.goto(f"{root}/audit")
        page.get_by_role("button", name="Verify the log").click()
        page.get_by_text("The log is not as it was written.").wait_for()
        assert page.locator("#verified li").count() >= 1
    finally:
        log.write_bytes(kept)


def test_a_call_of_another_process_comes_to_the_open_page(
    page: Any, served: tuple[Locations, str, str], call: Callable[..., None]
):
    # The log is there before the page follows it.
    call("read", path="before.txt")
    page.goto(f"{served[1]}/audit")
    page.evaluate("window.kept = true")
    # The stream of events begins with the state of then.
    page.wait_for_timeout(1_500)
    call("read", path="while-it-is-open.txt")
    page.locator(".calls", has_text="while-it-is-open.txt").wait_for(timeout=15_000)
    assert page.evaluate("window.kept") is True


def test_another_browser_is_signed_out_from_the_system_page(
    browser: Any, page: Any, served: tuple[Locations, str, str]
):
    _, root, token = served
    other = browser.new_context()
    gone = other.new_page()
    gone.goto(f"{root}/?token={token}")
    page.goto(f"{root}/system")
    assert page.locator(".keys tr", has_text="This browser").count() == 1
    page.click("#other-browsers summary")
    row = page.locator(".keys tr", has_text="A browser").first
    with page.expect_navigation():
        row.get_by_role("button").click()
    answer = gone.goto(f"{root}/system")
    assert answer is not None
    assert answer.status == 401
    assert page.goto(f"{root}/system").status == 200
    other.close()


def test_everything_is_stopped_and_lifted_again(page: Any, served: tuple[Locations, str, str]):
    page.goto(f"{served[1]}/system")
    page.get_by_role("button", name="Stop everything").click()
    page.wait_for_url("**/approvals/stop")
    page.goto(f"{served[1]}/system")
    page.fill("#resume-word", "resume")
    with page.expect_navigation():
        page.get_by_role("button", name="Resume").click()
    assert page.get_by_role("button", name="Stop everything").count() == 1

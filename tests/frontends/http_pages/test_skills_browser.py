"""Skills and packages in a real browser: find, switch, write, edit, install, put back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frontends import test_http_browser
from tests.frontends.test_cli_repositories import configure
from tests.frontends.test_http_serve import started
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, static_server
from tests.runtime.places import make_places, write_skill

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
SKILLS = 260
"""More than are in the page before its script asks for the rest."""


class Visit:
    """A page of a served place."""

    def __init__(self, base: Path, address: str, page) -> None:
        self.base = base
        self.address = address
        self.page = page

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)

    def listed(self) -> str:
        """Return what `skillhouse list` says there."""
        command = [sys.executable, "-m", "skillhouse", "list"]
        places = make_places(self.base)
        done = subprocess.run(
            command,
            cwd=places.start,
            env={"HOME": str(places.home), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


@pytest.fixture
def visit(browser, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    """Return a function that serves the place and opens its start page."""
    open_now = []

    def begin(**options: object) -> Visit:
        service = started(tmp_path)
        _, port, token = service.__enter__()
        open_now.append(service)
        context = browser.new_context(**options)
        page = context.new_page()
        address = f"http://127.0.0.1:{port}"
        page.goto(f"{address}/?token={token}")
        return Visit(tmp_path, address, page)

    yield begin
    for service in open_now:
        service.__exit__(None, None, None)


def test_a_skill_among_many_is_found_while_typing_and_disabled(visit, tmp_path: Path):
    root = tmp_path / "home/.agents/skills"
    for number in range(SKILLS):
        write_skill(root / f"skill-{number:03}", description=f"Does thing number {number}.")
    write_skill(root / "zebra-stripes", description="Counts the stripes of a zebra.")
    begun = visit()
    page = begun.page
    # Those that were not in the page are there as well.
    page.locator("#rows > li", has_text="skill-259").wait_for(state="attached")
    page.fill("#q", "stripes zebra")
    row = page.locator("#rows > li:visible")
    assert row.count() == 1
    assert page.inner_text("#shown") == "1"
    row.get_by_role("button", name="Disable zebra-stripes").click()
    row.get_by_role("button", name="Enable zebra-stripes").wait_for()
    # The filter holds while the list is renewed.
    assert (row.count(), page.input_value("#q")) == (1, "stripes zebra")
    assert "zebra-stripes" not in begun.listed().partition("disabled")[0]
    page.fill("#q", "")
    page.select_option("#by-problem", "disabled")
    assert page.inner_text("#shown") == "1"


def test_a_new_skill_is_made_and_listed_and_its_error_is_shown_while_typing(visit):
    begun = visit()
    page = begun.page
    page.click("text=New skill")
    page.fill("#name", "Meeting Notes")
    page.fill("#description", "Takes notes of meetings.")
    page.locator("#findings .severity").first.wait_for()
    page.fill("#name", "meeting-notes")
    page.fill("#instructions", "# Notes\n\nWrite down who was **there**.\n")
    page.locator("#preview strong", has_text="there").wait_for()
    page.locator("#no-findings").wait_for()
    page.click("text=Create")
    page.wait_for_url("**/skills/user%3Ameeting-notes")
    assert "meeting-notes" in begun.listed()


def test_an_edit_shows_its_error_at_the_line_and_loses_nothing_in_a_conflict(visit, tmp_path: Path):
    file = write_skill(tmp_path / "home/.agents/skills/memo") / "SKILL.md"
    begun = visit()
    page = begun.page
    begun.go("/edit/user:memo")
    page.fill("#text", "---\nname: memo\ndescription: 'x\n---\nMine.\n")
    page.locator("#findings .severity-error").first.wait_for()
    page.locator(".gutter .at-error").first.wait_for()
    page.click("button[type=submit]:has-text('Save')")
    page.locator("[data-problem]", has_text="no valid SKILL.md").wait_for()
    assert "Mine." in page.input_value("#text")

    file.write_text("---\nname: memo\ndescription: Theirs.\n---\nTheirs.\n")
    page.fill("#text", "---\nname: memo\ndescription: Mine now.\n---\nMine.\n")
    page.click("button[type=submit]:has-text('Save')")
    page.locator("#conflict", has_text="Theirs.").wait_for()
    assert "Mine now." in page.input_value("#text")
    assert "Theirs." in file.read_text()
    page.click("text=Save mine over it")
    page.wait_for_url("**/skills/user:memo")
    assert "Mine now." in file.read_text()


def test_a_deleted_skill_is_put_back_from_the_trash(visit, tmp_path: Path):
    directory = write_skill(tmp_path / "home/.agents/skills/memo")
    begun = visit()
    page = begun.page
    begun.go("/skills/user:memo")
    page.click("text=Delete")
    page.click("text=Move to the trash")
    page.locator("#trash", has_text="user:memo").wait_for()
    assert not directory.exists()
    page.click("text=Restore")
    page.locator("#rows a", has_text="memo").wait_for()
    assert directory.exists()


def test_a_package_of_a_loopback_repository_is_installed_after_its_plan(visit, tmp_path: Path):
    made = StaticRepository(tmp_path / "official")
    made.make("1.0.0", "memo")
    made.make("1.1.0", "memo")
    target = tmp_path / "home/.agents/skills/memo/SKILL.md"
    with served(static_server(made.place)) as url:
        configure(tmp_path, ("official", url, True))
        (tmp_path / "home/.config/skillhouse/config.toml").chmod(0o600)
        begun = visit()
        page = begun.page
        begun.go("/packages?q=memo")
        # A plain file server has no list; its packages are there by their names.
        page.click("text=memo in official")
        page.get_by_role("button", name="Install 1.0.0").click()
        page.locator("#agree").wait_for()
        assert not target.exists()
        shown = page.inner_text("#job")
        assert re.search("Signature\\s+none", shown)
        assert "skilltree1:" in shown
        # Each thing that a person must agree to has a box of its own.
        page.click("#agree button")
        assert not target.exists()
        for box in page.locator("#agree input").all():
            box.check()
        page.click("#agree button")
        page.locator(".effect-allow", has_text="done").wait_for()
        assert "Version 1.0.0" in target.read_text()
        begun.go("/packages")
        page.click("text=Look for updates")
        # One version was asked for, and stays.
        page.locator("#job", has_text="It is the newest.").wait_for()
        begun.go("/packages/of/official/memo")
        page.get_by_role("button", name="Install 1.1.0").click()
        page.locator("#agree").wait_for()
        for box in page.locator("#agree input").all():
            box.check()
        page.click("#agree button")
        page.locator(".effect-allow", has_text="done").wait_for()
        assert "Version 1.1.0" in target.read_text()


def test_a_first_visit_says_what_to_do(visit):
    page = visit().page
    assert page.get_by_role("heading", name="Begin here").is_visible()
    assert page.get_by_role("link", name="Install a skill").is_visible()

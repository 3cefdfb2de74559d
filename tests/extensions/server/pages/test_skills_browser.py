"""Skills and packages in a real browser: find, switch, write, edit, install, put back."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.frontends.test_cli_repositories import configure
from tests.harness import ran
from tests.house.coded import tool, write_code
from tests.house.places import make_places, write_skill
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, static_server
from tests.registry.sources import commit, make_repository, make_skill

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
SKILLS = 260
"""More than are in the page before its script asks for the rest."""


class Visit:
    """A page of a served place."""

    def __init__(self, base: Path, address: str, token: str, page) -> None:
        self.base = base
        self.token = token
        self.address = address
        self.page = page

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)

    def listed(self) -> str:
        """Return what `skillhouse list` says there."""
        command = [sys.executable, "-m", "skillhouse", "list"]
        places = make_places(self.base)
        done = ran(
            command, cwd=places.start, env={"HOME": str(places.home), "PATH": ""}, check=True
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
        return Visit(tmp_path, address, token, page)

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
    page.keyboard.press("/")
    page.keyboard.type("stripes zebra")
    row = page.locator("#rows > tr:visible")
    # It was not in the page, which has a bounded number of rows.
    row.get_by_role("link", name="zebra-stripes").wait_for()
    assert row.count() == 1
    assert page.inner_text("#shown") == "1"
    row.get_by_role("button", name="Disable zebra-stripes").click()
    row.get_by_role("button", name="Enable zebra-stripes").wait_for()
    # The filter holds while the list is renewed.
    assert (row.count(), page.input_value("#q")) == (1, "stripes zebra")
    assert "zebra-stripes" not in begun.listed().partition("disabled")[0]
    page.fill("#q", "")
    page.select_option("#by-problem", "disabled")
    page.locator("#shown", has_text=re.compile("^1$")).wait_for()
    # Back from a skill the filter is as it was.
    row.get_by_role("link", name="zebra-stripes").click()
    page.wait_for_url("**/skills/user:zebra-stripes")
    page.go_back()
    row.get_by_role("link", name="zebra-stripes").wait_for()
    assert (row.count(), page.input_value("#by-problem")) == (1, "disabled")
    page.get_by_role("link", name="Show all", exact=True).click()
    page.locator("#rows > tr").nth(199).wait_for(state="attached")
    assert page.locator("#rows > tr").count() == 200
    # Without a filter, too, a long list is a page at a time.
    page.select_option("#by-scope", "builtin")
    page.locator("#shown", has_text=re.compile("^3$")).wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"


def test_a_tool_of_code_alone_is_called_from_its_page(visit, tmp_path: Path):
    write_code(
        tmp_path / "home/.config/skillhouse/skills/prices",
        "tools = {'now': lambda params, context: {'coin': params['coin']}}\n",
        tool("now", parameters={"type": "object", "properties": {"coin": {"type": "string"}}}),
    )
    (tmp_path / "home/.config/skillhouse/config.toml").write_text("[skill_code]\nenabled = true\n")
    begun = visit()
    page = begun.page
    page.select_option("#by-problem", "tools")
    page.locator("#rows > tr:visible").get_by_role("link", name="prices").click()
    page.locator("details.tool summary", has_text="prices:now").first.click()
    page.fill("[name='arguments.coin']", "btc")
    page.click("text=Call it")
    page.locator("#result [data-content]", has_text="btc").wait_for()
    page.locator("#calls", has_text="prices__now").wait_for()
    page.click("button:has-text('Disable')")
    page.locator(".notice", has_text="Agents have no tools of it.").wait_for()


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


def test_findings_are_seen_beside_the_text_and_name_the_line_to_mend(visit, tmp_path: Path):
    file = write_skill(tmp_path / "home/.agents/skills/memo") / "SKILL.md"
    head = '---\nname: memo\ndescription: "unclosed quote\nlicense: MIT\n---\n'
    file.write_text(head + "Words.\n" * 60, encoding="utf-8")
    begun = visit(viewport={"width": 1400, "height": 900})
    page = begun.page
    begun.go(f"/edit/{file}#L3")
    finding = page.locator("#findings li", has_text="a quote that is not closed")
    finding.wait_for()
    assert "`description`: a quote that is not closed" in finding.inner_text()
    assert finding.get_by_role("button").inner_text() == "line 3"
    assert page.locator(".gutter .at-error").evaluate_all(
        "found => found.map(one => [...one.parentNode.children].indexOf(one) + 1)"
    ) == [3]
    for part in ("#findings li", "#text", "button[type=submit]:has-text('Save')"):
        box = page.locator(part).last.bounding_box()
        assert box["y"] + box["height"] <= 900, part
    chosen = "t => t.value.slice(t.selectionStart, t.selectionEnd)"
    assert page.locator("#text").evaluate(chosen) == 'description: "unclosed quote'


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


def test_a_broken_skill_is_mended_with_its_error_shown_while_typing(visit, tmp_path: Path):
    file = tmp_path / "home/.agents/skills/memo/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: memo\ndescription: 'Takes memos.\n---\nWrite.\n")
    begun = visit()
    page = begun.page
    row = page.locator("#rows > tr", has_text="a quote that is not closed")
    row.get_by_role("link", name="Edit memo").click()
    page.locator(".gutter .at-error").first.wait_for()
    page.locator("#findings", has_text="a quote that is not closed").wait_for()
    page.fill("#text", "---\nname: memo\ndescription: 'Takes more memos.\n---\nWrite.\n")
    page.click("button[type=submit]:has-text('Save')")
    page.locator("[data-problem]", has_text="no valid SKILL.md").wait_for()
    assert "'Takes" in file.read_text()
    page.fill("#text", "---\nname: memo\ndescription: Takes memos.\n---\nWrite.\n")
    page.locator("#no-findings").wait_for()
    page.click("button[type=submit]:has-text('Save')")
    page.get_by_role("heading", name="memo").wait_for()
    assert "Takes memos." in begun.listed()


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


def test_a_mistyped_package_is_corrected_on_the_page_that_refuses_it(visit, tmp_path: Path):
    made = StaticRepository(tmp_path / "team")
    made.make("1.0.0", "csv-tools")
    configure(tmp_path, ("team", f"file://{made.place}", True))
    (tmp_path / "home/.config/skillhouse/config.toml").chmod(0o600)
    begun = visit()
    page = begun.page
    begun.go("/packages")
    page.fill("#source", "csv-tolls")
    page.get_by_role("button", name="Show the plan").first.click()
    page.locator("#job .notice-error").wait_for()
    said = page.inner_text("#job .notice-error")
    assert "no skill csv-tolls in team; did you mean csv-tools" in said
    assert page.input_value("#job #source") == "csv-tolls"
    assert page.locator("#job a", has_text="Packages").count() == 1
    page.get_by_role("button", name="Show the plan for csv-tools").click()
    page.locator("#agree").wait_for()
    # By the field as well.
    page.go_back()
    page.locator("#job .notice-error").wait_for()
    page.fill("#job #source", "csv-tools")
    page.get_by_role("button", name="Show the plan", exact=True).click()
    page.locator("#agree").wait_for()


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


def test_an_edit_of_an_installed_skill_says_what_it_ends_and_is_accepted_or_taken_back(
    visit, tmp_path: Path, git: None
):
    for name in ("chart", "notes"):
        make_skill(tmp_path / "source/skills" / name)
    begun = visit()
    page, on = begun.page, Packages(begun, make_repository(tmp_path / "source"))
    on.plan("notes")
    on.agree()
    file = tmp_path / "home/.agents/skills/notes/SKILL.md"
    before = file.read_text()
    lock = tmp_path / "home/.config/skillhouse/skills.lock"

    def edited(line: str) -> None:
        begun.go("/edit/user:notes")
        page.fill("textarea[name=text]", file.read_text() + line)
        page.click("#writing button[type=submit]")
        page.wait_for_selector("#edits")

    begun.go("/edit/user:notes")
    assert "no agent loads it until you accept the edit" in page.inner_text("#installed")
    edited("One more line.\n")
    assert "no agent loads it" in page.inner_text("#edits")
    page.click("#edits summary")
    assert "+One more line." in page.inner_text("#edits .difference")
    assert "skillhouse verify" not in page.inner_text("#edits")
    page.get_by_role("button", name="Accept the edits").click()
    page.wait_for_selector("#edits", state="detached")
    assert "notes" in begun.listed()
    edited("And another.\n")
    text = lock.read_text()
    signature = {"publisher": "acme", "cert_sha256": "00"}
    lock.write_text(text.replace('"signature": null', f'"signature": {json.dumps(signature)}', 1))
    begun.go("/packages")
    assert "was signed by acme, and edited since" in page.inner_text("#installed")
    page.click("text=see the edits")
    assert "The signature of acme is of the files as they were" in page.inner_text("#edits")
    assert page.inner_text("dd:has(s)") == "acme not of the files as they are now"
    lock.write_text(text)
    page.get_by_role("button", name="Restore").click()
    page.locator("#agree").wait_for()
    on.agree()
    assert file.read_text() == before


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)


class Packages:
    """A person on the page of packages."""

    def __init__(self, begun: Visit, source: Path) -> None:
        self.page, self.source, self._begun = begun.page, source, begun

    def plan(self, name: str) -> str:
        """Choose a skill of the source, and return what its row says."""
        page = self.page
        self._begun.go("/packages")
        page.fill("input[name=source]", f"file://{self.source}")
        page.get_by_role("button", name="Show the plan").first.click()
        row = page.locator("#job li", has=page.locator(".name", has_text=re.compile(f"^{name}$")))
        row.wait_for()
        said: str = row.inner_text()
        row.get_by_role("button").click()
        page.locator("#agree").wait_for()
        return said

    def agree(self) -> None:
        for box in self.page.locator("#agree input").all():
            box.check()
        self.page.click("#agree button")
        self.page.locator(".effect-allow", has_text="done").wait_for()

    def updates(self, name: str) -> Any:
        """Look for updates, and return the part of a skill."""
        self._begun.go("/packages")
        self.page.click("text=Look for updates")
        self.part(name).wait_for()
        return self.part(name)

    def part(self, name: str) -> Any:
        return self.page.locator("#job section", has=self.page.locator("h2 bdi", has_text=name))


def test_what_a_source_lacks_is_said_before_the_install_on_the_page(
    visit, tmp_path: Path, git: None
):
    for name in ("chart", "notes"):
        make_skill(tmp_path / "source/skills" / name)
    (tmp_path / "source/skills/chart/model.bin").write_text(POINTER)
    on = Packages(visit(), make_repository(tmp_path / "source"))
    assert "missing: model.bin: a Git LFS pointer" in on.plan("chart")
    shown = on.page.inner_text("#job")
    assert re.search(r"Not there\s+missing model.bin: a Git LFS pointer", shown), shown
    on.agree()
    assert (tmp_path / "home/.agents/skills/chart/SKILL.md").is_file()
    assert "missing" not in on.plan("notes")
    assert "Not there" not in on.page.inner_text("#job")


def test_a_name_that_may_be_taken_for_another_is_said_and_agreed_to_on_the_page(
    visit, tmp_path: Path, git: None
):
    for name, place in (("chart", "known"), ("charts", "other"), ("notes", "other")):
        make_skill(tmp_path / place / "skills" / name)
    begun = visit()
    known = Packages(begun, make_repository(tmp_path / "known"))
    make_skill(tmp_path / "known/skills/more")
    commit(tmp_path / "known")
    known.plan("chart")
    known.agree()
    on = Packages(begun, make_repository(tmp_path / "other"))
    on.plan("charts")
    shown = on.page.inner_text("#job")
    assert re.search(r"Near name\s+`charts` may be taken for `chart`, which is installed", shown), (
        shown
    )
    on.agree()
    assert (tmp_path / "home/.agents/skills/charts/SKILL.md").is_file()


def test_what_a_source_has_lost_or_moved_is_said_on_the_page(visit, tmp_path: Path, git: None):
    source = tmp_path / "source"
    for name in ("notes", "old", "lost"):
        make_skill(source / "skills" / name)
    on = Packages(visit(), make_repository(source))
    for name in ("notes", "old", "lost"):
        on.plan(name)
        on.agree()
    (source / "skills/more").mkdir()
    (source / "skills/notes").rename(source / "skills/more/notes")
    shutil.rmtree(source / "skills/old")
    commit(source)
    shutil.rmtree(tmp_path / "home/.agents/skills/lost")
    said = on.updates("notes").inner_text()
    # The same version and the same files: only their place is another.
    assert ("It moved to skills/more/notes at its source." in said, "→" in said) == (True, False)
    assert "no skill old is at skills/old in " in on.part("old").inner_text()
    assert "missing" in on.part("lost").inner_text()
    # An event renews the part while the change is under way.
    on.page.evaluate(
        "() => { const real = fetch; window.fetch = (...given) => { window.fetch = real; "
        "const job = document.getElementById('job'); job.replaceWith(job.cloneNode(true)); "
        "return real(...given); }; }"
    )
    on.part("lost").get_by_role("button", name="Restore").click()
    on.page.locator("#agree").wait_for()
    on.agree()
    assert (tmp_path / "home/.agents/skills/lost/SKILL.md").is_file()
    on.updates("notes").get_by_role("button", name="Update").click()
    on.page.locator("#agree").wait_for()
    shown = on.page.inner_text("#job")
    assert "at its source, from skills/notes to skills/more/notes" in shown
    on.agree()
    assert "It moved" not in on.updates("notes").inner_text()


def test_a_first_visit_says_what_to_do(visit):
    page = visit().page
    assert page.get_by_role("heading", name="Begin here").is_visible()
    assert page.get_by_role("link", name="Install a skill").is_visible()


def test_a_skill_is_exported_to_a_client_after_its_plan(visit, tmp_path: Path):
    write_skill(tmp_path / "home/.config/skillhouse/skills/memo")
    copy = tmp_path / "home/.claude/skills/memo/SKILL.md"
    begun = visit()
    page = begun.page
    begun.go("/skills/user:memo")
    page.click("text=Export to a client")
    page.select_option("select[name=client]", "claude-code")
    page.click("text=Show the plan")
    page.locator("#plan", has_text="would be written").wait_for()
    assert not copy.exists()
    page.click("text=Do this")
    page.locator("#present", has_text="as it was written").wait_for()
    assert copy.exists()
    page.click("text=Take back")
    page.locator("#plan", has_text="would be removed").wait_for()
    page.click("text=Do this")
    page.locator("#present", has_text="Nothing is exported.").wait_for()
    assert not copy.exists()


def test_a_project_is_trusted_by_typing_the_word_after_its_skills_were_shown(visit, tmp_path: Path):
    places = make_places(tmp_path)
    write_skill(places.start / ".agents/skills/theirs", description="Builds the project.")
    begun = visit()
    page = begun.page
    assert "theirs" not in page.inner_text("#rows")
    page.click("text=Look at its skills")
    assert "Builds the project." in page.inner_text("main")
    page.fill("#trust-word", "yes")
    page.click("button:has-text('Trust')")
    assert "theirs" not in begun.listed()
    page.fill("#trust-word", "trust")
    page.click("button:has-text('Trust')")
    page.locator("#rows a", has_text="theirs").wait_for()
    assert "theirs" in begun.listed()
    begun.go("/system/trust")
    page.get_by_role("heading", name="This project is trusted").wait_for()
    page.click("text=Revoke the trust")
    page.get_by_role("heading", name="Trust this project?").wait_for()


def test_a_token_is_made_with_the_printed_address_shown_once_and_revoked(visit):
    begun = visit()
    page = begun.page
    begun.go("/system")
    page.click("text=Make a token")
    page.get_by_label("What it is for").fill("dashboard")
    page.get_by_label("read").check()
    page.locator("#new-token [data-bearer]").fill("wrong")
    page.click("button:has-text('Make it')")
    page.locator("#new-token [data-problem]", has_text="printed").wait_for()
    page.locator("#new-token [data-bearer]").fill(f"{begun.address}/?token={begun.token}")
    page.click("button:has-text('Make it')")
    page.locator("#made-token").wait_for()
    token = page.inner_text("#made-token code")
    answer = httpx.get(
        f"{begun.address}/api/v1/skills", headers={"authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 200
    row = page.locator("#keys-list tr", has_text="dashboard")
    row.wait_for()
    row.get_by_role("button", name="Revoke").click()
    row.wait_for(state="detached")
    assert token not in page.content()


def test_a_problem_has_its_name_in_the_language_of_the_page(visit, tmp_path: Path):
    write_skill(tmp_path / "home/.agents/skills/memo")
    begun = visit(locale="zh-CN")
    page = begun.page
    begun.go("/edit/user:memo")
    page.fill("#text", "---\nname: memo\ndescription: 'x\n---\n")
    page.locator("#findings .severity-error", has_text="错误").wait_for()
    page.click("button[type=submit]")
    # The detail stays as the API gives it.
    page.locator("[data-problem]", has_text="文本不是有效的 SKILL.md").wait_for()
    assert "no valid SKILL.md" in page.inner_text("[data-problem]")


@pytest.mark.one_server("moment")
def test_a_page_is_read_once_and_again_only_for_what_changed_before_it_listened(
    visit, tmp_path: Path
):
    begun = visit()
    page = begun.page
    read: list[str] = []
    page.on("request", lambda one: read.append(one.url) if one.url.endswith("/system") else None)
    held: list[Any] = []

    def hold(route) -> None:
        held.append(route)

    page.route("**/api/v1/events", hold)

    def opened() -> None:
        # Nothing of the page before still listens.
        begun.page.goto("about:blank")
        held.clear()
        begun.go("/system")
        while not held:
            page.wait_for_timeout(20)

    opened()
    with page.expect_response("**/version"):
        held.pop().continue_()
    page.wait_for_timeout(1_500)
    assert len(read) == 1

    opened()
    write_skill(tmp_path / "home/.agents/skills/broken")
    file = tmp_path / "home/.agents/skills/broken/SKILL.md"
    file.write_text("---\nname: 'x\n---\n")
    page.wait_for_timeout(1_500)  # A scan is used for a second.
    held.pop().continue_()
    page.locator("#findings", has_text="a quote that is not closed").wait_for()


@pytest.mark.one_server("process")
def test_a_page_that_is_open_while_up_restarts_keeps_its_buttons_and_forms(browser, tmp_path: Path):
    root = tmp_path / "home/.agents/skills"
    file = write_skill(root / "memo") / "SKILL.md"
    write_skill(root / "zebra")
    with started(tmp_path) as (_, port, token):
        address = f"http://127.0.0.1:{port}"
        context = browser.new_context()
        home, editor, stop = (context.new_page() for _ in range(3))
        home.goto(f"{address}/?token={token}")
        editor.goto(f"{address}/edit/user:memo")
        stop.goto(f"{address}/approvals/stop")
        editor.fill("#text", "---\nname: memo\ndescription: Typed before.\n---\nMine.\n")
    with started(tmp_path, "--port", str(port)):
        home.get_by_role("button", name="Disable zebra").click()
        home.get_by_role("button", name="Enable zebra").wait_for()
        editor.fill("#text", "---\nname: memo\ndescription: Typed after.\n---\n**Mine.**\n")
        editor.locator("#preview strong", has_text="Mine.").wait_for()
        editor.click("button[type=submit]:has-text('Save')")
        editor.wait_for_url("**/skills/**")
        assert "Typed after." in file.read_text()
        stop.click("button:has-text('Stop everything')")
        stop.get_by_role("heading", name="Everything is stopped").wait_for()
        assert stop.locator(".notice-error").count() == 0
    context.close()


def test_a_browser_that_was_signed_out_says_so_and_keeps_what_was_typed(visit, tmp_path: Path):
    file = write_skill(tmp_path / "home/.agents/skills/memo") / "SKILL.md"
    before = file.read_text()
    begun = visit()
    page = begun.page
    begun.go("/edit/user:memo")
    page.locator("#findings, #no-findings").first.wait_for(state="attached")
    page.context.clear_cookies()
    mine = "---\nname: memo\ndescription: Mine.\n---\nMine.\n"
    page.fill("#text", mine)
    said = page.get_by_text("You are signed out, and nothing was changed")
    said.wait_for()
    page.click("button[type=submit]:has-text('Save')")
    said.wait_for()
    assert page.locator("#too-long:visible").count() == 0
    assert (page.input_value("#text"), file.read_text()) == (mine, before)
    assert "Bearer" not in page.inner_text("body")
    with page.context.expect_page() as other:
        said.get_by_role("link", name="open the address again").click()
    assert "skillhouse up" in other.value.inner_text("main")
    # Signed in again, as another browser: the page that was open takes a new proof by itself.
    other.value.goto(f"{begun.address}/?token={begun.token}")
    page.click("button[type=submit]:has-text('Save')")
    page.wait_for_url("**/skills/**")
    assert file.read_text() == mine


def test_a_stop_shows_on_a_page_that_is_open_and_leads_to_where_it_ends(visit):
    begun = visit()
    page = begun.page
    begun.go("/packages")
    other = page.context.new_page()
    other.goto(f"{begun.address}/approvals/stop")
    other.click("button:has-text('Stop everything')")
    page.get_by_text("Everything is stopped.").wait_for()
    page.get_by_role("link", name="Let tools run again").click()
    page.fill("#resume-word", "resume")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("link", name="Stop", exact=True).wait_for()
    other.goto(f"{begun.address}/rehearse")
    assert other.get_by_text("Everything is stopped.").count() == 0


@pytest.mark.one_server("process")
def test_a_page_says_that_the_service_is_away_and_when_it_is_back(browser, tmp_path: Path):
    with started(tmp_path) as (process, port, token):
        context = browser.new_context()
        page, other = context.new_page(), context.new_page()
        for one in (page, other):
            one.goto(f"http://127.0.0.1:{port}/?token={token}")
            one.goto(f"http://127.0.0.1:{port}/approvals")
        assert page.locator("#away-bar:visible").count() == 0
        process.kill()
        for one in (page, other):
            one.get_by_text("skillhouse does not answer since").wait_for()
    with started(tmp_path, "--port", str(port)):
        for one in (page, other):
            one.locator("#away-bar").wait_for(state="hidden")
    context.close()


def test_a_change_is_said_and_undone_from_where_it_was_made(visit, tmp_path: Path):
    for name in ("alpha", "beta"):
        write_skill(tmp_path / f"home/.agents/skills/{name}")
    begun = visit()
    page = begun.page
    begun.go("/")
    page.get_by_role("button", name="Disable alpha").press("Enter")
    said = page.locator("#outcome", has_text="alpha is hidden from all agents.")
    said.wait_for()
    page.get_by_role("button", name="Enable alpha").wait_for()
    # The focus is where it was.
    assert "alpha" in page.evaluate("document.activeElement.textContent")
    said.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Disable alpha").wait_for()
    # It is said on the next page where the change leads there.
    begun.go("/skills/user:beta")
    page.get_by_role("button", name="Disable").click()
    page.locator("#outcome", has_text="beta is hidden from all agents.").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Disable").wait_for()
    assert "disabled" not in begun.listed()


def test_letters_lead_to_pages_skills_and_the_stop_and_change_nothing(visit, tmp_path: Path):
    skills = tmp_path / "home/.agents/skills"
    write_skill(skills / "zebra-stripes", description="Counts <b>stripes</b>.")
    begun = visit()
    page = begun.page
    begun.go("/packages")
    page.keyboard.press("Control+k")
    page.keyboard.type("poli")
    page.keyboard.press("Enter")
    page.wait_for_url("**/policy")
    page.keyboard.press("/")
    page.keyboard.type("zebra")
    found = page.locator("#palette-list [role=option]", has_text="zebra-stripes")
    found.wait_for()
    assert "<b>stripes</b>" in found.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills/**zebra-stripes")
    page.keyboard.press("?")
    assert page.locator("#key-help").is_visible()
    page.keyboard.press("Escape")
    # Keys within a dialog are its own, until it has closed.
    page.locator("#key-help").wait_for(state="hidden")
    # Stopped by two keys; the first one alone does nothing.
    page.keyboard.press("!")
    page.wait_for_url("**/approvals/stop")
    assert page.get_by_role("heading", name="Everything is stopped").count() == 0
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Everything is stopped").wait_for()
    # Whoever uses no letter keys has none of these.
    page.evaluate("localStorage.setItem('skillhouse-keys', 'off')")
    begun.go("/packages")
    for key in "/?!":
        page.keyboard.press(key)
    assert page.locator("dialog[open]").count() == 0
    assert page.url.endswith("/packages")

"""The tasks of a day on the page, by mouse and by keys: how many of each they take.

A click is one of the mouse, a key one of Tab, arrows, letters that lead somewhere, and Enter; what
is typed into a field is not counted.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.approval.questions import question
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.harness import ran
from tests.house.places import make_places, write_skill

from skillhouse.approval import ApprovalBroker, ApprovalState

pytestmark = pytest.mark.slow

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
SKILLS = 49
VIEWS = [("light", 1_400, 900), ("dark", 1_400, 900), ("light", 380, 800), ("dark", 380, 800)]


class Hands:
    """A person at a page, whose clicks and keys are counted; nothing is clicked out of view."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.clicks = self.keys = 0

    def go(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.clicks = self.keys = 0

    def click(self, selector: str, *, scrolls: bool = True) -> None:
        found = self.page.locator(selector).first
        found.wait_for()
        if not scrolls:
            box, size = found.bounding_box(), self.page.viewport_size
            assert 0 <= box["y"] <= size["height"] - box["height"], (selector, box)
        found.click()
        self.clicks += 1

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.keys += 1

    def typed(self, text: str) -> None:
        self.page.keyboard.type(text)

    def sees(self, selector: str, text: str) -> None:
        self.page.locator(selector, has_text=text).first.wait_for()


class Home:
    """A served home with skills, one of which is broken, and rules that deny a command."""

    def __init__(self, base: Path, address: str, token: str) -> None:
        self.base, self.address, self.token = base, address, token
        self.broker = ApprovalBroker(base / "home/.local/state/skillhouse")
        self.rules = base / "home/.config/skillhouse/config.toml"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        places = make_places(self.base)
        line = [sys.executable, "-m", "skillhouse", *words]
        return ran(line, cwd=places.start, env={"HOME": str(places.home), "PATH": "/usr/bin:/bin"})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    base = tmp_path_factory.mktemp("home")
    root = base / "home/.agents/skills"
    for number in range(SKILLS - 2):
        write_skill(root / f"skill-{number:02}", description=f"Does thing number {number}.")
    write_skill(root / "zebra-stripes", description="Counts the stripes of a zebra.")
    (root / "broken").mkdir()
    (root / "broken/SKILL.md").write_text("---\nname: broken\ndescription: 'not closed\n---\nIt.\n")
    rules = make_places(base).user_file
    rules.parent.mkdir(parents=True, exist_ok=True)
    with started(base) as (_, port, token):
        yield Home(base, f"http://127.0.0.1:{port}", token)


@pytest.fixture(params=VIEWS, ids=[f"{scheme}-{width}" for scheme, width, _ in VIEWS])
def hands(request: pytest.FixtureRequest, browser: Any, home: Home) -> Iterator[Hands]:
    scheme, width, height = request.param
    size = {"width": width, "height": height}
    context = browser.new_context(color_scheme=scheme, viewport=size)
    page = context.new_page()
    page.goto(f"{home.address}/?token={home.token}")
    yield Hands(page, home.address)
    context.close()


def test_a_skill_is_found(hands: Hands) -> None:
    hands.go("/")
    hands.click("#q")
    hands.typed("zebra")
    hands.sees("#rows > tr:visible", "zebra-stripes")
    assert hands.page.locator("#rows > tr:visible").count() == 1
    assert hands.clicks <= 1
    hands.go("/")
    hands.press("/")
    hands.typed("zebra")
    hands.sees("#rows > tr:visible", "zebra-stripes")
    assert hands.keys <= 2


def test_why_a_skill_is_not_in_force_is_read(hands: Hands) -> None:
    why = "a quote that is not closed"
    hands.go("/")
    hands.click("#counts div:has-text('Not in force') a", scrolls=False)
    hands.sees("#rows > tr:visible", why)
    assert hands.clicks <= 1
    hands.go("/")
    hands.press("/")
    hands.typed("broken")
    hands.sees("#rows > tr:visible", why)
    assert hands.keys <= 3


def test_a_call_is_approved_without_scrolling(hands: Hands, home: Home) -> None:
    for left in home.broker.pending():
        home.broker.withdraw(left.id, "another view")
    asked = home.broker.open(question())
    hands.go("/approvals")
    hands.click(f"#approve-{asked.id}:enabled", scrolls=False)
    hands.page.wait_for_url(re.compile(r"/approvals(\?done=[\w-]+)?$"))
    assert home.broker.get(asked.id).state is ApprovalState.APPROVED
    assert hands.clicks <= 1
    other = home.broker.open(question("/w/b"))
    hands.go("/approvals")
    hands.page.locator(f"#approve-{other.id}:enabled").wait_for()
    hands.press("j", "a", "Enter")
    hands.page.locator("#inbox", has_text="Nothing waits").wait_for()
    assert home.broker.get(other.id).state is ApprovalState.APPROVED
    assert hands.keys <= 3


def test_a_denial_is_understood_and_its_rule_changed(hands: Hands, home: Home) -> None:
    added = home.run("policy", "deny", "exec", "git push *", "--yes")
    assert "git push" in home.rules.read_text(), added.stderr
    denied = home.run("call", "exec", "--args", json.dumps({"command": "git push origin main"}))
    assert "denied" in denied.stderr, denied.stdout
    hands.go("/audit?status=denied")
    hands.click("a.record")
    hands.sees(".decisions", "git push")
    hands.click("text=Remove this rule…")
    hands.sees(".difference", "git push")
    hands.click("button:has-text('Remove this rule')")
    hands.page.wait_for_url(re.compile(r"/policy(\?done=removed)?$"))
    assert "git push" not in home.rules.read_text()
    assert hands.clicks <= 3


def test_everything_is_stopped(hands: Hands) -> None:
    def resumed() -> None:
        hands.page.goto(f"{hands.address}/system#resume-word")
        hands.page.fill("#resume-word", "resume")
        hands.page.get_by_role("button", name="Resume").click()
        hands.page.get_by_role("link", name="Stop", exact=True).wait_for()

    done: Callable[[], None] = hands.page.get_by_role(
        "heading", name="Everything is stopped"
    ).wait_for
    hands.go("/")
    hands.click("#stop-link", scrolls=False)
    hands.click("button:has-text('Stop everything')", scrolls=False)
    done()
    assert hands.clicks <= 2
    resumed()
    hands.go("/")
    hands.press("!")
    hands.page.wait_for_url("**/approvals/stop")
    hands.press("Enter")
    done()
    assert hands.keys <= 4
    resumed()

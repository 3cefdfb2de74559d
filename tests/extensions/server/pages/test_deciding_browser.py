"""Approvals, transactions and rules in a real browser, with calls that wait in other processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp_types import CallToolResult
from tests.approval.questions import begun, question
from tests.extensions.server import test_http_browser
from tests.extensions.server.pages.test_question_pages import rewritten
from tests.extensions.server.test_http_serve import started
from tests.frontends.mcp_peer import MODERN, Peer, text_of
from tests.house.places import make_places
from tests.signer.places import BOB, ETH, GWEI, PASSWORD
from tests.tools.test_gate_signing import VARIABLE, house_with_keys

from skillhouse.approval import Approval, ApprovalBroker, ApprovalState, Asked
from skillhouse.store import STATE_FILE, state_server

pytestmark = pytest.mark.slow
INBOX = re.compile(r"/approvals(\?done=[\w-]+)?$")
"""Where an answer leads; without a script it says which question was answered."""

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
WRITE = ("write", '{"path": "notes/a.txt", "content": "text"}')
LONG = "x" * 3_000


def paying(amount: int) -> tuple[str, str]:
    fields = {
        "chain_id": 1,
        "nonce": 0,
        "to": BOB,
        "value": str(amount),
        "gas_limit": 21_000,
        "gas_price": GWEI,
    }
    asked = {"key": "main", "type": "transaction", "transaction": fields, "purpose": "harmless"}
    return "sign", json.dumps(asked)


class WaitingCall(subprocess.Popen[str]):
    """A call that waits for its answer; a test that failed does not wait for it."""

    def __exit__(self, kind: type[BaseException] | None, *more: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *more)


class Place:
    """A served place, and the ways to ask and to look there."""

    def __init__(self, base: Path, root: str, token: str) -> None:
        self.base = base
        self.root = root
        self.token = token
        self.state = base / "home/.local/state/skillhouse"
        self.broker = ApprovalBroker(self.state)

    def call(self, tool: str, arguments: str) -> WaitingCall:
        """Start a call that waits for its answer in a process of its own."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
        return WaitingCall(
            [sys.executable, "-m", "skillhouse", "call", tool, "--args", arguments, "--wait"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.base / "project",
            env={**kept, "HOME": str(self.base / "home"), VARIABLE: PASSWORD},
            start_new_session=True,
        )

    def asked(self, but: str = "") -> Approval:
        """Wait for an open question other than `but`, and return it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for found in self.broker.pending():
                if found.id != but:
                    return found
            time.sleep(0.05)
        raise AssertionError("nothing was asked")

    def close_all(self) -> None:
        for one in self.broker.pending():
            self.broker.withdraw(one.id, "the test is over")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("place")
    # The browser's driver has the event loop of this thread.
    places = make_places(base)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.touch(mode=0o600)
    if state_server(places.state() / STATE_FILE) is None:  # The signer works with a file alone.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(house_with_keys, base).result().close()
        places.user_file.write_text(f'[signer]\npassword = "env:{VARIABLE}"\n')
    with started(base) as (_, port, token):
        yield Place(base, f"http://127.0.0.1:{port}", token)


@pytest.fixture
def opened(browser: Any, place: Place) -> Iterator[Callable[..., Any]]:
    contexts = []

    def open_page(path: str, **options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(f"{place.root}/?token={place.token}")
        page.goto(place.root + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    place.close_all()


def test_a_call_that_waits_in_another_process_is_approved_while_the_page_is_open(
    opened: Callable[..., Any], place: Place
) -> None:
    watching, page = opened("/policy"), opened("/approvals")
    for one in (watching, page):
        one.evaluate("window.stays = true")
    assert "Nothing waits" in page.inner_text("#inbox")
    with place.call(*WRITE) as process:
        page.wait_for_selector("[data-question]", timeout=30_000)
        assert page.title() == "(1) Approvals · skillhouse"
        watching.wait_for_selector("#waiting:has-text('1')")
        assert watching.title().startswith("(1) ")
        assert [one.evaluate("window.stays") for one in (watching, page)] == [True, True]
        # The keys move the focus; what is pressed is Enter.
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/approvals/*")
        asked = place.asked()
        assert asked.id in page.url
        page.wait_for_selector("#approve:enabled")
        page.keyboard.press("a")
        assert page.evaluate("document.activeElement.id") == "approve"
        assert place.broker.get(asked.id).state is ApprovalState.OPEN
        page.keyboard.press("Enter")
        page.wait_for_selector(".state-approved, .state-used")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, "wrote 4 bytes" in out) == (0, True), err
    assert (place.base / "project/notes/a.txt").read_text() == "text"
    watching.wait_for_selector("#waiting:empty", state="attached")
    assert watching.title() == "Policy · skillhouse"
    assert watching.evaluate("window.stays")


def test_a_call_of_an_mcp_client_runs_after_it_is_approved_on_the_open_page(
    opened: Callable[..., Any], place: Place
) -> None:
    """A client that cannot ask a person is not kept waiting: it repeats the call."""
    page = opened("/approvals")
    page.evaluate("window.stays = true")
    write = {"path": "notes/b.txt", "content": "text"}
    approved = threading.Event()

    async def calls() -> list[CallToolResult]:
        async with Peer(place.base).client(MODERN) as client:
            first = await client.call_tool("write", write)
            assert await anyio.to_thread.run_sync(approved.wait, 30)
            return [first, await client.call_tool("write", write)]

    # The browser's driver has the event loop of this thread.
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(anyio.run, calls)
        page.wait_for_selector("[data-question]", timeout=30_000)
        assert page.evaluate("window.stays")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/approvals/*")
        page.click("#approve:enabled")
        page.wait_for_selector(".state-approved")
        assert not (place.base / "project/notes/b.txt").exists()
        approved.set()
        first, second = answers.result(60)
    assert (first.is_error, "ask the user to approve" in text_of(first)) == (True, True)
    assert (second.is_error, "wrote 4 bytes" in text_of(second)) == (False, True)
    assert (place.base / "project/notes/b.txt").read_text() == "text"


def test_a_denial_reaches_the_call_with_its_words(opened: Callable[..., Any], place: Place) -> None:
    with place.call("write", '{"path": "b.txt", "content": "text"}') as process:
        page = opened(f"/approvals/{place.asked().id}", java_script_enabled=False)
        page.click("#say summary")
        page.fill("#message", "use docs/")
        page.click("#deny")
        assert "denied" in page.inner_text("main")
        _, err = process.communicate(timeout=60)
        assert (process.returncode, "use docs/" in err) == (1, True)
    assert not (place.base / "project/b.txt").exists()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_lasting_approval_shows_its_rule_and_asks_once_more(
    opened: Callable[..., Any], place: Place, scripts: bool
) -> None:
    found = place.broker.open(question("/w/notes/a.txt"))
    page = opened(f"/approvals/{found.id}", java_script_enabled=scripts)
    page.click("#lasting summary")
    page.fill("#rules", "write /w/notes/a.txt")
    page.click("text=Every project…")
    assert page.inner_text("#written") == "write /w/notes/a.txt"
    # The script holds the button for a moment; a click before it begins may be dropped by that.
    page.wait_for_load_state()
    assert place.broker.get(found.id).state is ApprovalState.OPEN
    page.click("text=Approve, and write this")
    page.wait_for_selector(".state-approved")
    begun(place.broker, found.id)
    page.goto(f"{place.root}/approvals/standing")
    assert "write /w/notes/a.txt" in page.inner_text("#grants")
    if scripts:
        page.click("text=Withdraw >> nth=-1")
        page.wait_for_selector("#grants li", state="detached")
    for grant in place.broker.grant_store.all():
        place.broker.revoke(grant.id)


def test_letters_decide_nothing_and_are_text_where_a_person_types(
    opened: Callable[..., Any], place: Place
) -> None:
    first, second = (place.broker.open(question(f"/w/{name}")) for name in ("a", "b"))
    page = opened(f"/approvals/{first.id}")
    page.wait_for_selector("#approve:enabled")
    for key in "adadyn":
        page.keyboard.press(key)
    page.keyboard.press("d")
    assert page.evaluate("document.activeElement.id") == "deny"
    page.click("#say summary")
    page.focus("#message")
    page.keyboard.type("ajkd")
    assert page.input_value("#message") == "ajkd"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    page.wait_for_url(f"**/{second.id}")
    page.click("#keys summary")
    page.uncheck("#keys-on")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("k")
    page.keyboard.press("a")
    assert second.id in page.url
    assert page.evaluate("document.activeElement.id") != "approve"
    states = {place.broker.get(one.id).state for one in (first, second)}
    assert states == {ApprovalState.OPEN}


def test_a_click_that_was_meant_for_the_page_before_approves_nothing(
    opened: Callable[..., Any], place: Place
) -> None:
    found = place.broker.open(question())
    page = opened("/approvals")
    page.clock.install(time=0)
    page.clock.pause_at(1_000)
    page.goto(f"{place.root}/approvals/{found.id}")
    assert page.is_disabled("#approve")
    page.clock.run_for(700)
    assert page.is_enabled("#approve")


@pytest.mark.parametrize("size", [(1_400, 900), (380, 800)])
@pytest.mark.parametrize("kind", ["write", pytest.param("sign", marks=pytest.mark.file_state)])
def test_the_answers_are_in_view_however_long_the_question_is(
    opened: Callable[..., Any], place: Place, size: tuple[int, int], kind: str
) -> None:
    lines = "".join(f"line {number}\n" for number in range(300))
    call = paying(ETH) if kind == "sign" else ("write", json.dumps({"path": "c", "content": lines}))
    with place.call(*call) as process:
        width, height = size
        viewport = {"width": width, "height": height}
        page = opened(f"/approvals/{place.asked().id}", viewport=viewport)
        for button in ("#deny", "#approve"):
            box = page.locator(button).bounding_box()
            assert 0 <= box["y"] <= box["y"] + box["height"] <= height
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        # What is read scrolls above them, to its last line.
        page.click("#exactly summary" if kind == "write" else "text=Digest")
        page.keyboard.press("End")
        page.locator("footer").scroll_into_view_if_needed()
        end = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
        bar = page.locator("#answer").bounding_box()
        assert bar["y"] + bar["height"] <= end + 1
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_a_question_is_read_and_answered_in_the_inbox_by_mouse_and_by_keys(
    opened: Callable[..., Any], place: Place
) -> None:
    line = json.dumps({"command": "timeout 9 bash -ec 'npm install x && touch y'"})
    with place.call("exec", line) as process:
        asked = place.asked()
        page = opened("/approvals", viewport={"width": 1_400, "height": 900})
        card = page.inner_text("[data-card]")
        assert "npm install will fail: no network is granted" in card
        assert page.locator("[data-card] .inside li").all_inner_texts() == [
            "npm install x",
            "touch y",
        ]
        page.click(f"#deny-{asked.id}:enabled")
        page.wait_for_url(INBOX)
        assert "Nothing waits" in page.inner_text("#inbox")
        process.communicate(timeout=60)
    with place.call(*WRITE) as process:
        asked = place.asked()
        page.wait_for_selector(f"#approve-{asked.id}:enabled")
        for key in "ja":
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == f"approve-{asked.id}"
        assert place.broker.get(asked.id).state is ApprovalState.OPEN
        page.keyboard.press("Enter")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, "wrote 4 bytes" in out) == (0, True), err


def test_a_click_on_a_card_that_moved_under_the_pointer_does_nothing(
    opened: Callable[..., Any], place: Place
) -> None:
    first, second = (place.broker.open(question(f"/w/{name}")) for name in ("a", "b"))
    page = opened("/approvals")
    page.wait_for_selector(f"#deny-{second.id}:enabled")
    page.evaluate("GUARDED = []")
    page.evaluate(
        """id => document.addEventListener("renewed", () => setTimeout(() =>
             GUARDED.push(document.getElementById(id)?.disabled), 0))""",
        f"deny-{second.id}",
    )
    place.broker.withdraw(first.id, "the caller went away")
    page.wait_for_selector(f"#deny-{first.id}", state="detached")
    deadline = time.monotonic() + 30
    while not page.evaluate("GUARDED.length") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert page.evaluate("GUARDED[0]") is True
    page.click(f"#deny-{second.id}:enabled")
    page.wait_for_url(INBOX)
    assert place.broker.get(second.id).state is ApprovalState.DENIED


def test_a_question_that_is_answered_elsewhere_loses_its_buttons_without_a_reload(
    opened: Callable[..., Any], place: Place
) -> None:
    """Also right after the page came, when nothing looks for changes yet."""
    found = place.broker.open(question())
    page = opened(f"/approvals/{found.id}")
    place.broker.withdraw(found.id, "the caller went away")
    page.evaluate("window.stays = true")
    page.wait_for_selector("#answer form", state="detached")
    assert "the caller went away" in page.inner_text("#state")
    assert page.evaluate("window.stays")


@pytest.mark.file_state
def test_a_signature_is_approved_by_its_amount_and_recipient(
    opened: Callable[..., Any], place: Place
) -> None:
    with place.call(*paying(ETH * 3 // 2)) as process:
        page = opened(f"/approvals/{place.asked().id}")
        text = page.inner_text("main")
        assert "1.5 ETH" in text
        assert BOB in text
        assert "harmless" not in page.content()
        page.fill("#typed", "1.5 0000")
        page.click("#approve")
        page.wait_for_selector("[role=alert]")
        assert "not what the page asks for" in page.inner_text("[role=alert]")
        page.fill("#typed", f"1.5 {BOB[-4:]}")
        page.click("#approve")
        page.wait_for_selector(".state-approved, .state-used")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, "signed transaction" in out) == (0, True), err


@pytest.mark.file_state
def test_a_transaction_page_refuses_when_the_arguments_changed(
    opened: Callable[..., Any], place: Place
) -> None:
    """The caller asks for more while the page is open: the form of before approves nothing."""
    with place.call(*paying(ETH)) as first:
        asked = place.asked()
        live = opened(f"/approvals/{asked.id}")
        still = opened(f"/approvals/{asked.id}", java_script_enabled=False)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    with place.call(*paying(ETH * 90)) as second:
        later = place.asked(but=asked.id)
        live.wait_for_selector(f'#state a[href="/approvals/{later.id}"]')
        live.wait_for_selector("#answer form", state="detached")
        still.fill("#typed", f"1 {BOB[-4:]}")
        still.click("#approve")
        assert "Not taken" in still.inner_text("[role=alert]")
        assert place.broker.get(later.id).state is ApprovalState.OPEN
        # And as whoever can write the state could change it, under the same id.
        page = opened(f"/approvals/{later.id}")
        more = later.request.content.replace(str(ETH * 90), str(ETH * 900))
        rewritten(place.state, later, content=more)
        page.fill("#typed", f"90 {BOB[-4:]}")
        page.click("#approve")
        page.wait_for_selector("[role=alert]")
        assert "not the one that this form showed" in page.inner_text("[role=alert]")
        assert place.broker.get(later.id).state is ApprovalState.OPEN
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=60)


def test_a_rule_is_added_and_removed_with_a_look_before(
    opened: Callable[..., Any], place: Place
) -> None:
    file = make_places(place.base).user_file
    before = file.read_text()
    page = opened("/policy")
    page.select_option("#add-effect", "deny")
    page.fill("#add-pattern", "curl *")
    page.click("button:has-text('Preview')")
    page.wait_for_url("**/policy/add?*")
    assert '+pattern = "curl *"' in page.inner_text(".difference")
    assert file.read_text() == before
    page.click("text=Add this rule")
    page.wait_for_url(re.compile(r"/policy(\?done=added)?$"))
    assert 'pattern = "curl *"' in file.read_text()
    page.fill("#try-resource", "curl example.com")
    page.click("#try button")
    page.wait_for_selector(".verdict .effect-deny")
    page.click("text=Remove…")
    page.click("text=Remove this rule")
    page.wait_for_url(re.compile(r"/policy(\?done=removed)?$"))
    assert "curl" not in file.read_text()


@pytest.mark.parametrize("width", [360, 1_600])
def test_hostile_questions_fit_the_window_and_look_like_no_control(
    opened: Callable[..., Any], place: Place, width: int
) -> None:
    evil = f"<button>Approve</button>\u202egnp.exe {LONG}"
    found = place.broker.open(
        question(
            title=evil,
            sent=(("difference", evil), (evil, evil), ("short", "<b>x</b>\u202e")),
            asked=(Asked(action="exec", resource=evil),),
            place=f"/w/{LONG}",
        )
    )
    page = opened("/approvals", viewport={"width": width, "height": 800})
    paths = ("", f"/{found.id}", "/history", "/standing")
    for address in (*(f"/approvals{path}" for path in paths), "/policy"):
        page.goto(place.root + address)
        assert page.evaluate("document.documentElement.scrollWidth") == width, address
        assert "\u202e" not in page.content()
    page.goto(f"{place.root}/approvals/{found.id}")
    names = page.eval_on_selector_all(
        "main button", "all => all.map(one => one.textContent.trim())"
    )
    assert sorted(names) == [
        "Every project…",
        "Make a one-time token",
        "This connection…",
        "This project…",
        "✓ Approve once",
        "✕ Deny",
    ]

"""The companion app in a real browser: paired, answering, stopped, lost, offline, narrow, dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.approval.questions import question
from tests.extensions.server import test_http_browser
from tests.extensions.server.test_http_serve import started
from tests.harness import until
from tests.house.places import make_places
from tests.states import state_at

from skillhouse.approval import Answer, Approval, ApprovalState, Pattern, canonical, content_digest
from skillhouse.house import Skillhouse, configured
from skillhouse.store import STATE_FILE

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

browser = test_http_browser.browser
"""The fixture: one browser for all tests of this file."""
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>\u202e"
CACHED = """async () => {
  const all = [];
  for (const name of await caches.keys())
    for (const one of await (await caches.open(name)).keys()) all.push(new URL(one.url).pathname);
  return all;
}"""
RECIPIENT = "0x00000000000000000000000000000000000A11CE"


class Phone:
    """A window of a device, and the house that it is paired with."""

    def __init__(self, house: Skillhouse, root: str, context: Any) -> None:
        self.house = house
        self.root = root
        self.context = context
        self.page = context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda one: self.said.append(one.text))
        self.page.on("pageerror", lambda one: self.said.append(str(one)))

    def pair(self, name: str = "phone") -> None:
        code = self.house.services.companion.codes.issue(name, user="local")
        self.page.goto(f"{self.root}/companion/#code={code}")
        self.page.click("#pair-button")
        self.page.wait_for_selector("#view section")

    def ask(self, **values: Any) -> Approval:
        opened = self.house.approvals.open(question(**values))
        self.look()
        self.page.wait_for_selector(f"#answer-{opened.id}")
        return opened

    def look(self) -> None:
        """Have the app look now, and not with its next turn."""
        self.page.evaluate("window.dispatchEvent(new Event('online'))")

    def press(self, button: str, opened: Approval) -> None:
        self.page.click(f"#{button}-{opened.id}:not(:disabled)")
        self.page.wait_for_selector(f"#answer-{opened.id}", state="detached")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Skillhouse, str]]:
    base = tmp_path_factory.mktemp("companion")
    settings = make_places(base).user_file.parent
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "config.toml").write_text('profile = "owliabot"\n')
    (settings / "policy.yml").write_text('version: "1"\ntools:\n  write: {tier: 1}\n')
    with (
        started(base) as (_, port, _),
        Skillhouse(configured(make_places(base))) as house,
    ):
        yield house, f"http://127.0.0.1:{port}"


@pytest.fixture
def phones(browser: Any, served: tuple[Skillhouse, str]) -> Iterator[Callable[..., Phone]]:
    contexts = []

    def phone(**options: Any) -> Phone:
        contexts.append(
            browser.new_context(**{"viewport": {"width": 360, "height": 740}} | options)
        )
        return Phone(*served, contexts[-1])

    yield phone
    house, _ = served
    for device in house.services.enforcement.devices.all():
        house.services.enforcement.devices.unpair(device.id)
    for context in contexts:
        context.close()


def payment() -> dict[str, Any]:
    content = canonical({"tool": "wallet__pay", "amount": "1.5"})
    return {
        "tool": "sign",
        "asked": (),
        "title": "sign a payment",
        "level": "sign",
        "found": (("amount", "1.5 ETH"), ("to", RECIPIENT), ("chain", "1")),
        "sent": (("note", "for lunch"),),
        "content": content,
        "content_digest": content_digest(content),
    }


def test_a_device_is_paired_and_answers_with_its_key(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    (device,) = phone.house.services.enforcement.devices.all()
    assert (device.name, device.user, device.secret) == ("phone", "local", "")
    # Nothing of the pairing is in the address, and no cookie was needed.
    assert phone.page.url == f"{phone.root}/companion/"
    assert phone.context.cookies() == []
    opened = phone.ask(resource="/w/a.txt")
    phone.press("approve", opened)
    found = phone.house.approvals.get(opened.id)
    assert (found.state, found.by, found.channel, found.device, found.device_name) == (
        ApprovalState.APPROVED,
        "local",
        "device",
        device.id,
        "phone",
    )
    other = phone.ask(resource="/w/b.txt")
    phone.page.click(f"#say-{other.id} summary")
    phone.page.fill(f"#message-{other.id}", "write it elsewhere")
    phone.press("deny", other)
    denied = phone.house.approvals.get(other.id)
    assert (denied.state, denied.message) == (ApprovalState.DENIED, "write it elsewhere")
    phone.page.click("[data-part=activity]")
    phone.page.wait_for_selector("#answered-title")
    assert "write: /w/b.txt" in phone.page.inner_text("#view")
    assert phone.said == []


def test_a_payment_is_approved_by_who_types_it(phones: Callable[..., Phone]) -> None:
    phone = phones(color_scheme="dark")
    phone.pair()
    asked = phone.ask(**payment())
    phone.page.fill(f"#typed-{asked.id}", "2.5 11CE")
    phone.page.click(f"#approve-{asked.id}:not(:disabled)")
    phone.page.wait_for_selector("#note.notice-error")
    assert "not what is asked for" in phone.page.inner_text("#note")
    # What was typed is there still, to be mended.
    phone.page.fill(f"#typed-{asked.id}", "1.5 11CE")
    phone.press("approve", asked)
    assert phone.house.approvals.get(asked.id).state is ApprovalState.APPROVED


def test_texts_of_a_call_are_shown_and_do_nothing(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    pattern = Pattern(action="write", pattern="/w/")
    asked = phone.ask(
        resource="/w/a.txt",
        title=f"write: {EVIL}",
        sent=(("path", "/w/a.txt"), (EVIL, EVIL), ("long", EVIL * 40)),
        found=(("note", EVIL),),
        patterns=(pattern,),
    )
    assert EVIL.partition("\u202e")[0] in phone.page.inner_text("#view")
    assert phone.page.title().endswith("skillhouse")
    assert phone.page.locator("#view img, #view script").count() == 0
    phone.press("deny", asked)
    assert phone.said == []


def test_everything_is_stopped_in_the_app(phones: Callable[..., Phone]) -> None:
    phone = phones(color_scheme="dark")
    phone.pair()
    asked = phone.ask(resource="/w/stopped.txt")
    phone.page.click("#stop")
    phone.page.click("#stop-no")
    assert not phone.house.services.enforcement.tiers.is_stopped
    phone.page.click("#stop")
    phone.page.click("#stop-yes")
    phone.page.wait_for_selector("#view .notice-error")
    try:
        assert (
            "on the device phone (by local)"
            in phone.house.services.enforcement.tiers.stopped_reason
        )
        assert phone.house.approvals.get(asked.id).state is not ApprovalState.OPEN
    finally:
        phone.house.services.enforcement.resume("local", "terminal")


def test_a_lost_device_says_so_and_forgets_its_key(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    enforcement = phone.house.services.enforcement
    (device,) = enforcement.devices.all()
    enforcement.devices.unpair(device.id)
    phone.look()
    phone.page.wait_for_selector("#pair-form:visible")
    assert "not paired any more" in phone.page.inner_text("#note")
    kept = "async () => (await import('/device_key.js')).kept('pair')"
    assert phone.page.evaluate(kept) is None


def test_a_person_removes_the_pairing_in_the_app(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    phone.page.click("#leave")
    phone.page.click("#leave-yes")
    phone.page.wait_for_selector("#pair-form:visible")
    assert phone.house.services.enforcement.devices.all() == ()


def test_the_code_of_an_address_counts_where_the_app_is_open_already(
    phones: Callable[..., Phone],
) -> None:
    phone = phones()
    phone.page.goto(f"{phone.root}/companion/")
    phone.page.wait_for_selector("#pair-form:visible")
    phone.pair()
    assert len(phone.house.services.enforcement.devices.all()) == 1


def test_no_script_gets_the_key_out(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    tried = phone.page.evaluate(
        """async () => {
          const { keys } = await (await import('/device_key.js')).kept('pair');
          const formats = ['jwk', 'pkcs8'];
          const out = (format) => crypto.subtle.exportKey(format, keys.privateKey);
          const of = (format) => out(format).then(() => 'out', (error) => error.name);
          return [keys.privateKey.extractable, ...(await Promise.all(formats.map(of)))];
        }"""
    )
    assert tried == [False, "InvalidAccessError", "InvalidAccessError"]


def test_offline_the_shell_says_so_and_keeps_no_question(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    asked = phone.ask(resource="/w/secret-plan.txt")
    ready = "navigator.serviceWorker.ready.then((one) => one.scope)"
    assert phone.page.evaluate(ready) == f"{phone.root}/companion/"
    assert until(lambda: "/companion/" in phone.page.evaluate(CACHED))
    phone.context.set_offline(True)
    phone.page.wait_for_selector("#offline:visible")
    phone.page.reload()
    phone.page.wait_for_selector("#offline:visible")
    assert "secret-plan" not in phone.page.content()
    paths = phone.page.evaluate(CACHED)
    assert len(paths) == len(set(paths)) == 8
    assert not any("message" in path or "pair" in path for path in paths)
    phone.context.set_offline(False)
    phone.page.wait_for_selector(f"#answer-{asked.id}")
    assert phone.page.locator("#offline:visible").count() == 0
    phone.press("deny", asked)


def test_the_app_can_be_installed(phones: Callable[..., Phone]) -> None:
    phone = phones()
    phone.pair()
    phone.page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
    driver = phone.context.new_cdp_session(phone.page)
    manifest = driver.send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert manifest["url"] == f"{phone.root}/companion/manifest.webmanifest"
    found = driver.send("Page.getInstallabilityErrors")["installabilityErrors"]
    # A window without a profile installs nothing, whatever the page is.
    assert [one["errorId"] for one in found] in ([], ["in-incognito"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_it_fits_a_narrow_window(phones: Callable[..., Phone], scheme: str, language: str) -> None:
    phone = phones(color_scheme=scheme, locale=language)
    phone.pair()
    one = phone.ask(resource="/w/" + "a-long-name-" * 20 + ".txt")
    other = phone.ask(**payment())
    wide = "document.documentElement.scrollWidth"
    assert phone.page.evaluate(wide) <= 360
    small = phone.page.evaluate(
        "() => [...document.querySelectorAll('button')].filter((one) => one.checkVisibility())"
        ".filter((one) => one.getBoundingClientRect().height < 40).map((one) => one.id)"
    )
    assert small == []
    phone.page.click("[data-part=activity]")
    phone.page.wait_for_selector("#answered-title")
    assert phone.page.evaluate(wide) <= 360
    assert ("等待" in phone.page.inner_text("nav")) is (language == "zh-CN")
    for asked in (one, other):
        phone.house.approvals.answer(
            asked.id, Answer.NO, by="local", channel="page", nonce=asked.request.nonce
        )


@pytest.mark.req("S000-110")
def test_a_push_is_shown_and_is_a_sign_of_life(phones: Callable[..., Phone]) -> None:
    phone = phones(permissions=["notifications"])
    phone.pair()
    phone.page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
    # An address of the app that runs no script of it, so that the app is closed.
    phone.page.goto(f"{phone.root}/companion/manifest.webmanifest")
    driver = phone.context.new_cdp_session(phone.page)
    registrations: list[dict[str, Any]] = []
    driver.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(event["registrations"]),
    )
    driver.send("ServiceWorker.enable")
    until(lambda: phone.page.evaluate("1") and registrations)
    companion = phone.house.services.companion
    state = phone.house.config.state_directory / STATE_FILE
    with state_at(state) as connection:
        connection.execute("UPDATE tier_mark SET at_ms = at_ms - 1500000 WHERE name = 'companion'")
    assert companion.warning() == 5
    note = {"kind": "question", "id": "3fa9", "tool": "wallet__<b>pay</b>"}
    driver.send(
        "ServiceWorker.deliverPushMessage",
        {
            "origin": phone.root,
            "registrationId": registrations[0]["registrationId"],
            "data": json.dumps(note),
        },
    )
    assert until(lambda: companion.warning() is None)
    phone.page.goto(f"{phone.root}/companion/")
    shown = phone.page.evaluate(
        "navigator.serviceWorker.ready.then((one) => one.getNotifications())"
        ".then((all) => all.map((one) => [one.title, one.body]))"
    )
    assert shown == [["skillhouse", "A question waits: wallet__<b>pay</b>"]]

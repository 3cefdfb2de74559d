"""Attacks on approvals (reference/security.md section 6, items 61 to 70), first on naive ones.

The naive versions are of the kind that published designs use: a yes keyed by a name, an answer
taken from whoever sends it, a queue without bound, a text printed as it came.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import (
    Answer,
    ApprovalError,
    ApprovalRequest,
    ApprovalState,
    Devices,
    SignatureError,
    signed_headers,
)
from skillhouse.approval.webhook import WINDOW_SECONDS, secret_bytes
from skillhouse.floor import structs
from skillhouse.frontends.cli.person import show_request
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.tools.command_inputs import NAMED_FILE_MAX, NAMED_FILES_MAX
from tests.approval.questions import broker_at, question, said
from tests.harness import Clock
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow


class NaiveApprovals:
    """Keeps a yes by the name of what it was about, and takes it from anybody, at any time."""

    def __init__(self) -> None:
        self.yes: set[str] = set()
        self.waiting: list[str] = []

    def ask(self, name: str) -> None:
        self.waiting.append(name)

    def answer(self, name: str, text: str, user: str) -> None:
        if text.lower() in ("y", "yes"):
            self.yes.add(name)

    def may(self, name: str) -> bool:
        return name in self.yes


@pytest.mark.parametrize("file", ["SKILL.md", "scripts/run.py", "scripts/lib.py", "assets/a.txt"])
def test_one_changed_byte_of_a_skill_is_asked_about_anew(tmp_path: Path, file: str) -> None:
    """Item 61."""
    directory = write_skill(tmp_path / "skills/pdf")
    for path in ("scripts/run.py", "scripts/lib.py", "assets/a.txt"):
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_text("one\n")
    ask = Rule(effect=Effect.ASK, action="skill", pattern="*")
    person = Person([Answer.ALWAYS])
    naive = NaiveApprovals()
    naive.answer("pdf", "yes", "local")
    with house_at(tmp_path, ask, person=person, roots=[tmp_path / "skills"]) as house:
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        assert len(person.asked) == 1
        with (directory / file).open("a") as opened:
            opened.write("x")
        assert naive.may("pdf")
        assert house.call_sync("skill", {"name": "pdf"}).status == "denied"
        assert len(person.asked) == 2
        assert person.asked[0].content_digest != person.asked[1].content_digest


def test_what_changed_between_question_and_use_does_not_run(tmp_path: Path) -> None:
    """Item 62: the yes was to another difference than the one that the edit would make now."""
    file = tmp_path / "project/a.txt"
    change = ("edit", {"path": "a.txt", "old": "safe = 1", "new": "safe = 2"})
    with Skillhouse(configured(make_places(tmp_path))) as house:
        file.write_text("safe = 1\n")
        asked = house.call_sync(*change)
        found = house.approvals.get(asked.approval_id or "")
        said(house.approvals, found.id)
        naive = NaiveApprovals()
        naive.answer("edit a.txt", "yes", "local")
        file.write_text("if admin:\n    safe = 1\n")
        assert naive.may("edit a.txt")
        stale = house.call_sync(*change, approval_id=found.id)
        assert (stale.status, "has changed since" in stale.content) == ("denied", True)
        assert file.read_text() == "if admin:\n    safe = 1\n"


def test_a_script_that_changed_since_it_was_approved_does_not_run(tmp_path: Path) -> None:
    """Item 62: the words of the command are the same, the bytes that they name are not."""
    run = ("exec", {"command": "sh", "params": ["build.sh", "-v"]})
    with Skillhouse(configured(make_places(tmp_path))) as house:
        script = tmp_path / "project/build.sh"
        script.write_text("echo harmless\n")
        asked = house.call_sync(*run)
        found = house.approvals.get(asked.approval_id or "")
        digest = hashlib.sha256(b"echo harmless\n").hexdigest()
        assert json.loads(found.request.content)["files"] == {"build.sh": digest}
        said(house.approvals, found.id)
        naive = NaiveApprovals()
        naive.answer("sh build.sh -v", "yes", "local")
        script.write_text("echo evil > owned.txt\n")
        assert naive.may("sh build.sh -v")
        stale = house.call_sync(*run, approval_id=found.id)
        assert (stale.status, stale.approval_id != found.id) == ("pending", True)
        assert house.call_sync(*run).approval_id == stale.approval_id
        assert not (tmp_path / "project/owned.txt").exists()


@pytest.mark.parametrize(
    ("line", "in_words"),
    [
        ("sh < build.sh", False),
        ("while sh build.sh; do break; done", False),
        # Decision 0384: judged as the programs that it comes to.
        ("for f in 1 2; do sh build.sh; done", True),
    ],
)
def test_a_script_that_a_line_names_is_bound_as_well(
    tmp_path: Path, line: str, in_words: bool
) -> None:
    """Item 62: whoever binds the words of programs alone does not see a redirection or a loop."""
    with Skillhouse(configured(make_places(tmp_path))) as house:
        script = tmp_path / "project/build.sh"
        script.write_text("echo harmless\n")
        asked = house.call_sync("exec", {"command": line})
        found = house.approvals.get(asked.approval_id or "")
        needs = json.loads(found.request.content)["needs"]
        naive = {word for need in needs for word in need["argv"][1:]}
        assert ("build.sh" in naive) == in_words
        said(house.approvals, found.id)
        script.write_text("echo evil > owned.txt\n")
        stale = house.call_sync("exec", {"command": line}, approval_id=found.id)
        assert stale.status == "pending"
        assert "changed since the earlier question: build.sh" in stale.content
        assert not (tmp_path / "project/owned.txt").exists()


def test_a_yes_on_the_command_line_is_none_to_a_call_for_the_page(tmp_path: Path) -> None:
    """A model that can run commands on the host could answer there; the page has its own key."""
    naive = NaiveApprovals()
    naive.answer("sign", "yes", "local")
    assert naive.may("sign")
    broker = broker_at(tmp_path)
    ways: tuple[dict[str, Any], ...] = ({"level": "sign"}, {"on_page": True})
    for number, values in enumerate(ways):
        opened = broker.open(question(f"/w/{number}", **values))
        for channel in ("cli", "terminal", "library"):
            with pytest.raises(ApprovalError, match="page or a paired device only"):
                said(broker, opened.id, channel=channel)
        with pytest.raises(ApprovalError, match="not possible"):
            said(broker, opened.id, Answer.ALWAYS, channel="page")
        assert said(broker, opened.id, channel="page").state is ApprovalState.APPROVED


def test_what_a_command_names_is_read_without_end_or_wait(tmp_path: Path) -> None:
    """Files that are large, that block, or that are none must not hold up the question."""
    project = make_places(tmp_path).start
    os.mkfifo(project / "pipe")
    with (project / "large").open("wb") as large:
        large.truncate(NAMED_FILE_MAX + 1)
    names = [f"f{at}" for at in range(NAMED_FILES_MAX + 5)]
    for name in names:
        (project / name).write_text(name)
    person = Person()
    with house_at(tmp_path, person=person) as house:
        words = ["pipe", "/dev/zero", "/proc/kmsg", ".", "a" * 5_000, "large"]
        house.call_sync("exec", {"command": "cat", "params": words})
        house.call_sync("exec", {"command": "cat", "params": names})
    files = [json.loads(request.content)["files"] for request in person.asked]
    assert set(files[0]) <= {"large", "/proc/kmsg"}
    assert len(files[0]["large"].split(":")) == 5
    assert len(files[1]) == NAMED_FILES_MAX
    assert [request.title.startswith("not bound to files: ") for request in person.asked] == [
        False,
        True,
    ]


def test_a_yes_to_a_name_is_no_yes_to_the_same_name_elsewhere(tmp_path: Path) -> None:
    """Item 63."""
    ask = Rule(effect=Effect.ASK, action="skill", pattern="*")
    write_skill(tmp_path / "one/pdf", body="Harmless.\n")
    write_skill(tmp_path / "two/pdf", body="Other text.\n")
    naive = NaiveApprovals()
    with house_at(tmp_path, ask, person=Person([Answer.ALWAYS]), roots=[tmp_path / "one"]) as house:
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        naive.answer("pdf", "yes", "local")
    with house_at(tmp_path, ask, roots=[tmp_path / "two"]) as house:
        assert naive.may("pdf")
        assert house.call_sync("skill", {"name": "pdf"}).status == "denied"


@pytest.mark.req("S000-78", "S000-79")
def test_an_answer_of_another_user_channel_nonce_or_time_is_not_taken(tmp_path: Path) -> None:
    """Item 64."""
    naive = NaiveApprovals()
    naive.answer("transfer", "yes", "stranger")
    assert naive.may("transfer")
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock)
    other = broker.open(question("/w/other", channel="chat:1", user="mika"))
    opened = broker.open(question(channel="chat:1", user="mika"))
    nonce = opened.request.nonce
    attempts: list[tuple[dict[str, Any], str]] = [
        ({"by": "stranger", "channel": "chat:1", "nonce": nonce}, "not-allowed"),
        ({"by": "mika", "channel": "chat:2", "nonce": nonce}, "not-allowed"),
        ({"by": "mika", "channel": "chat:1", "nonce": other.request.nonce}, "wrong-nonce"),
        ({"by": "mika", "channel": "chat:1", "nonce": ""}, "wrong-nonce"),
        ({"by": "mika", "channel": "chat:1", "nonce": "\ud800"}, "wrong-nonce"),
    ]
    for values, code in attempts:
        with pytest.raises(ApprovalError) as caught:
            broker.answer(opened.id, Answer.ONCE, **values)
        assert caught.value.code == code
    right = {"by": "mika", "channel": "chat:1", "nonce": nonce}
    broker.answer(opened.id, Answer.ONCE, **right)
    with pytest.raises(ApprovalError) as caught:
        broker.answer(opened.id, Answer.ONCE, **right)
    assert caught.value.code == "answered"
    clock.now += 4000
    with pytest.raises(ApprovalError) as caught:
        said(broker, other.id)
    assert caught.value.code == "expired"


@pytest.mark.parametrize(
    ("command", "params", "passes"),
    [
        ("git", ["status"], True),
        ("git", ["status", "-s"], True),
        ("git", ["status;", "x"], False),
        ("git", ["status;x"], False),
        ("git", ["-c", "core.pager=evil", "status"], False),
        ("git", ["-C", "/", "status"], False),
        ("gitk", [], False),
        ("git", ["stash"], False),
        # `env` alone adds nothing: the judge knows that it runs `git status`.
        ("env", ["git", "status"], True),
        ("env", ["A=1", "git", "status"], False),
    ],
)
def test_an_always_to_a_command_covers_no_other(
    tmp_path: Path, command: str, params: list[str], passes: bool
) -> None:
    """Item 65: a prefix of the text, which naive ones compare, is no part of the command."""
    line = " ".join([command, *params])
    naive = line.startswith("git status")
    person = Person([Answer.ALWAYS])
    with house_at(tmp_path, person=person) as house:
        house.call_sync("exec", {"command": "git", "params": ["status"]})
        house.call_sync("exec", {"command": command, "params": params})
        assert (len(person.asked) == 1) is passes
    if params[:1] in (["status;"], ["status;x"]):
        assert naive


@pytest.mark.req("S001-70")
def test_no_yes_of_any_kind_lifts_a_deny(tmp_path: Path) -> None:
    """Item 66 and trap 8: opencode's version 1 appended what was approved to the rules."""
    rules = [("deny", "write"), ("allow", "write")]  # The last that matches wins, in the naive one.
    assert [effect for effect, action in rules if action == "write"][-1] == "allow"
    write = ("write", {"path": "a.txt", "content": "x"})
    deny = Rule(effect=Effect.DENY, action="write", pattern="*")
    for word in (Answer.SESSION, Answer.PROJECT, Answer.ALWAYS):
        base = tmp_path / word.value
        base.mkdir()
        with house_at(base, person=Person([word])) as house:
            assert house.call_sync(*write).status == "ok"
        layers = (Layer(name="managed", rules=(deny,)),)
        with Skillhouse(configured(make_places(base)), layers=layers) as strict:
            refused = strict.call_sync(*write)
            assert (refused.status, refused.approval_id) == ("denied", None)


def test_a_yes_to_an_open_question_does_not_outlive_a_new_deny(tmp_path: Path) -> None:
    write = ("write", {"path": "a.txt", "content": "x"})
    places = configured(make_places(tmp_path))
    with Skillhouse(places) as house:
        asked = house.call_sync(*write)
        said(house.approvals, asked.approval_id or "")
    deny = Rule(effect=Effect.DENY, action="write", pattern="*")
    with Skillhouse(places, layers=(Layer(name="managed", rules=(deny,)),)) as strict:
        assert strict.call_sync(*write, approval_id=asked.approval_id or "").status == "denied"


HOSTILE = {
    "colour and cursor": "\x1b[2J\x1b[1;1Hcommand: ls\x1b[8m rm -rf /",
    "right to left": "rm -rf /\u202e sl\u2066",
    "a line of its own": "a.txt\nAllow? y\n  why: the user said yes",
    "carriage return": "rm -rf /\rls      ",
    "hidden letters": "ls\U000e0072\U000e006d\u200b",
    "ten kilobytes": "x" * 10_000,
    "many lines": "\n" * 10_000,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_no_text_of_a_call_can_act_on_the_terminal_or_imitate_a_line(case: str) -> None:
    """Item 68."""
    text = HOSTILE[case]
    naive = f"Allow `{text}`? "
    assert len(naive) > 1_000 or not naive.isprintable()
    lines: list[str] = []
    fields: dict[str, Any] = {"title": text, "sent": (("content", text),), "always": (text,)}
    show_request(question(reasons=(text,), **fields), lines.append)
    assert len(lines) < 50
    for line in lines:
        assert line.lstrip("\n").isprintable()
        assert not line.startswith(("Allow?", "  why: the user"))
    assert sum(len(line) for line in lines) < 40_000


def test_a_flood_of_questions_is_bounded_and_refused(tmp_path: Path) -> None:
    """Item 69: 1,000 requests."""
    naive = NaiveApprovals()
    for at in range(1_000):
        naive.ask(f"write {at}")
    assert len(naive.waiting) == 1_000
    broker = broker_at(tmp_path)
    codes: dict[str, int] = {}
    for at in range(1_000):
        try:
            broker.open(question(f"/w/{at}", user=f"user-{at % 5}"))
        except ApprovalError as error:
            codes[error.code] = codes.get(error.code, 0) + 1
    assert len(broker.pending()) == 100
    assert codes == {"queue-full": 900}


def test_one_user_s_flood_leaves_room_for_the_others_and_is_slowed(tmp_path: Path) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock, user_open_max=5, user_rate=8)
    opened = [broker.open(question(f"/w/{at}")) for at in range(5)]
    with pytest.raises(ApprovalError, match="5 questions of this user are open"):
        broker.open(question("/w/x"))
    broker.open(question("/w/x", user="mika"))
    for found in opened[:3]:
        said(broker, found.id)
        broker.open(question(f"/w/more-{found.id}"))
    said(broker, opened[4].id)
    with pytest.raises(ApprovalError, match="8 questions of this user in 10 minutes") as caught:
        broker.open(question("/w/y"))
    assert caught.value.code == "too-many"
    clock.now += 601
    broker.open(question("/w/y"))


def test_a_full_queue_is_a_refusal_and_no_error(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, open_max=1)
    broker.open(question("/w/1"))
    settled = anyio.run(broker.request_approval, question("/w/2"))
    assert (settled.status, settled.approval) == ("denied", None)
    assert "no more are taken" in settled.reason


@pytest.mark.req("S001-64")
def test_a_yes_is_used_once_however_many_calls_race_for_it(tmp_path: Path) -> None:
    naive = NaiveApprovals()
    naive.answer("write", "yes", "local")
    assert [naive.may("write") for _ in range(8)] == [True] * 8
    broker = broker_at(tmp_path)
    asked = question()
    opened = broker.open(asked)
    said(broker, opened.id)
    won: list[str] = []

    def redeem() -> None:
        try:
            broker_at(tmp_path).redeem(opened.id, asked.content_digest, asked.session)
            won.append("ran")
        except ApprovalError as error:
            won.append(error.code)

    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == ["ran", *["used"] * 7]


class Phone:
    """A paired device, and what a stranger can do with what it sent."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.clock = clock
        self.broker = broker_at(path, clock=clock)
        self.devices = Devices(path, clock=clock)
        self.device = self.devices.pair("phone", user="local")
        self.opened = self.broker.open(question(level="sign"))

    def body(self, **values: Any) -> bytes:
        request: ApprovalRequest = self.opened.request
        told = {
            "device": self.device.id,
            "approval": request.id,
            "nonce": request.nonce,
            "content_digest": request.content_digest,
            "answer": "once",
        }
        return json.dumps({**told, **values}).encode()

    def signed(self, body: bytes, *, message_id: str = "m1", secret: str = "") -> dict[str, str]:
        return signed_headers(
            body,
            secret=secret_bytes(secret or self.device.secret),
            message_id=message_id,
            now_seconds=self.clock.now,
        )

    def state(self) -> ApprovalState:
        return self.broker.get(self.opened.id).state


@pytest.fixture
def phone(tmp_path: Path) -> Phone:
    return Phone(tmp_path, Clock())


def test_a_paired_device_answers_what_signs(phone: Phone) -> None:
    body = phone.body()
    found = phone.devices.answer(phone.broker, phone.signed(body), body)
    assert (found.state, found.by, found.channel) == (ApprovalState.APPROVED, "local", "device")


def test_a_message_that_is_not_the_device_s_is_not_taken(phone: Phone) -> None:
    body = phone.body()
    other = phone.devices.pair("other", user="local")
    good = phone.signed(body)
    attempts: list[tuple[dict[str, str], bytes, str]] = [
        ({}, body, "missing"),
        (phone.signed(body, secret=other.secret), body, "wrong"),
        (good, body.replace(b'"once"', b'"no"'), "wrong"),
        ({**good, "webhook-id": "m2"}, body, "wrong"),
        ({**good, "webhook-timestamp": str(int(phone.clock.now) + 1)}, body, "wrong"),
        ({**good, "webhook-timestamp": "x"}, body, "missing"),
        ({**good, "webhook-signature": "v1,"}, body, "wrong"),
        (phone.signed(phone.body(device="nobody")), phone.body(device="nobody"), "wrong"),
        (good, b"[]", "missing"),
        (good, b"{" * 5_000, "missing"),
        (good, body + b" " * 20_000, "missing"),
    ]
    for headers, sent, code in attempts:
        with pytest.raises(SignatureError) as caught:
            phone.devices.answer(phone.broker, headers, sent)
        assert caught.value.code == code
    assert phone.state() is ApprovalState.OPEN


def test_an_old_or_repeated_message_is_not_taken(phone: Phone) -> None:
    wrong = phone.body(content_digest="sha256:another")
    headers = phone.signed(wrong)
    with pytest.raises(ApprovalError) as refused:
        phone.devices.answer(phone.broker, headers, wrong)
    assert refused.value.code == "another-call"
    body = phone.body()
    with pytest.raises(SignatureError) as caught:
        phone.devices.answer(phone.broker, phone.signed(body, message_id="m1"), body)
    assert caught.value.code == "repeated"
    old = phone.signed(body, message_id="m2")
    phone.clock.now += WINDOW_SECONDS + 1
    with pytest.raises(SignatureError) as caught:
        phone.devices.answer(phone.broker, old, body)
    assert caught.value.code == "old"
    phone.devices.unpair(phone.device.id)
    with pytest.raises(SignatureError) as caught:
        phone.devices.answer(phone.broker, phone.signed(body, message_id="m3"), body)
    assert caught.value.code == "wrong"
    assert phone.state() is ApprovalState.OPEN


def test_a_device_of_one_user_does_not_answer_for_another(phone: Phone) -> None:
    robin = phone.devices.pair("robin's", user="robin")
    body = phone.body(device=robin.id)
    with pytest.raises(ApprovalError) as caught:
        phone.devices.answer(phone.broker, phone.signed(body, secret=robin.secret), body)
    assert caught.value.code == "not-allowed"


def test_a_secret_is_in_no_text_of_a_device(phone: Phone) -> None:
    assert phone.device.secret not in repr(phone.device)
    assert structs.asdict(phone.device)["secret"] == phone.device.secret

"""Tests of approval/broker.py: who may answer, which answer counts, and what it is good for."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import (
    Answer,
    ApprovalBroker,
    ApprovalError,
    ApprovalEvent,
    ApprovalRequest,
    ApprovalState,
    Grant,
    Reply,
    Unattended,
)
from skillhouse.approval.request import (
    CONTENT_SECONDS,
    DENIAL_COOLDOWN_AFTER,
    DENIAL_COOLDOWN_SECONDS,
    KEPT_SECONDS,
)
from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, pooled
from skillhouse.tiers.tier_ledger import resume, stop
from tests.approval.questions import begun, broker_at, question, said
from tests.harness import Clock


class Says:
    """A channel that gives one answer to everything."""

    def __init__(self, answer: Answer | Reply | None) -> None:
        self.answer = answer
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Answer | Reply | None:
        self.asked.append(request)
        return self.answer


class Silent:
    """A channel on which nobody ever answers."""

    async def ask(self, request: ApprovalRequest) -> None:
        await anyio.sleep_forever()


def request_approval(broker: ApprovalBroker, request: ApprovalRequest, given: str = "") -> Any:
    return anyio.run(broker.request_approval, request, given)


def code_of(call: Any) -> str:
    with pytest.raises(ApprovalError) as caught:
        call()
    return caught.value.code


def test_a_question_survives_its_process_and_its_yes_is_used_once(tmp_path: Path) -> None:
    asked = question()
    first = broker_at(tmp_path).open(asked)
    said(broker_at(tmp_path), first.id)
    again = broker_at(tmp_path)
    assert request_approval(again, asked).status == "approved"
    used = again.redeem(first.id, asked.content_digest, asked.session)
    assert (used.state, used.answer, used.by, used.channel) == ("used", "once", "local", "cli")
    assert code_of(lambda: again.redeem(first.id, asked.content_digest, asked.session)) == "used"


def test_the_second_of_two_answers_does_not_count(tmp_path: Path) -> None:
    one, two = broker_at(tmp_path), broker_at(tmp_path)
    opened = one.open(question())
    said(one, opened.id, Answer.NO)
    assert code_of(lambda: said(two, opened.id, Answer.ONCE, channel="page")) == "answered"
    assert two.get(opened.id).state is ApprovalState.DENIED


@pytest.mark.slow
def test_of_many_answers_at_once_exactly_one_counts(tmp_path: Path) -> None:
    opened = broker_at(tmp_path).open(question())
    outcomes: list[str] = []

    def answer(word: Answer) -> None:
        try:
            said(broker_at(tmp_path), opened.id, word)
            outcomes.append(word.value)
        except ApprovalError as error:
            outcomes.append(error.code)

    threads = [
        threading.Thread(target=answer, args=(word,)) for word in [Answer.ONCE, Answer.NO] * 6
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("answered") == 11
    winner = next(word for word in outcomes if word != "answered")
    assert broker_at(tmp_path).get(opened.id).answer == winner


@pytest.mark.req("S001-63", "S001-64")
def test_several_subscribers_are_told_and_the_first_valid_answer_counts(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    told: list[tuple[str, str]] = []

    def answering(answer: Answer, by: str) -> Any:
        def subscriber(event: ApprovalEvent) -> None:
            told.append((by, event.kind))
            if event.kind == "asked":
                request = event.approval.request
                try:
                    broker.answer(request.id, answer, by=by, channel="cli", nonce=request.nonce)
                except ApprovalError as error:
                    told.append((by, error.code))

        return subscriber

    broker.subscribe(answering(Answer.NO, "stranger"))
    broker.subscribe(answering(Answer.ONCE, "local"))
    unsubscribe = broker.subscribe(answering(Answer.NO, "local"))
    settled = request_approval(broker, question())
    assert settled.status == "approved"
    assert ("stranger", "not-allowed") in told
    assert told.count(("local", "answered")) == 3  # Two were told of the answer, one was too late.
    unsubscribe()
    before = len(told)
    broker.open(question("/w/b.txt"))
    assert [kind for _, kind in told[before:]].count("asked") == 2


def test_a_subscriber_or_channel_that_fails_costs_nobody_an_answer(tmp_path: Path) -> None:
    class Broken:
        async def ask(self, request: ApprovalRequest) -> None:
            raise RuntimeError("no line")

    broker = broker_at(tmp_path, Broken(), Says(Answer.ONCE))

    def failing(event: ApprovalEvent) -> None:
        raise RuntimeError("gone")

    broker.subscribe(failing)
    assert request_approval(broker, question()).status == "approved"


@pytest.mark.req("S001-69", "S000-77")
def test_silence_is_a_no_after_a_bounded_wait(tmp_path: Path) -> None:
    cases: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((Silent(),), {}),
        ((), {"unattended": "deny"}),
    ]
    for channels, settings in cases:
        broker = broker_at(tmp_path, *channels, wait_seconds=0.02, **settings)
        settled = request_approval(broker, question(str(channels)))
        assert (settled.status, settled.reason) == (
            "denied",
            "no answer came within 0.02 seconds",
        )
        assert settled.approval.state is ApprovalState.EXPIRED
        assert code_of(lambda b=broker, s=settled: said(b, s.approval.id)) == "expired"


def test_where_nobody_can_be_asked_the_question_waits(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, Says(None))
    asked = question()
    first = request_approval(broker, asked)
    second = request_approval(broker, asked)
    assert (first.status, second.status) == ("pending", "pending")
    assert first.approval.id == second.approval.id
    assert [found.id for found in broker.pending()] == [first.approval.id]


def test_an_unattended_house_says_no_at_once_and_tires_nobody(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, Unattended())
    for _ in range(DENIAL_COOLDOWN_AFTER + 1):
        settled = request_approval(broker, question())
        assert (settled.status, settled.reason) == ("denied", "this installation is unattended")


def test_an_answer_of_another_process_wakes_the_one_that_waits(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, Silent(), wait_seconds=20)

    async def answered_elsewhere() -> str:
        other = broker_at(tmp_path)
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                # What another process does shows in the file only.
                while not other.pending():  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                said(other, other.pending()[0].id)

            tasks.start_soon(answer)
            return (await broker.request_approval(question())).status
        raise AssertionError

    assert anyio.run(answered_elsewhere) == "approved"


@pytest.mark.parametrize(
    ("values", "reply", "code"),
    [
        ({}, {"by": "local", "channel": "cli"}, ""),
        ({"user": "mika"}, {"by": "mika", "channel": "page"}, ""),
        ({"user": "mika"}, {"by": "local", "channel": "terminal"}, ""),
        ({"user": "mika"}, {"by": "robin", "channel": "cli"}, "not-allowed"),
        ({"channel": "chat:1", "user": "mika"}, {"by": "mika", "channel": "chat:1"}, ""),
        (
            {"channel": "chat:1", "user": "mika"},
            {"by": "robin", "channel": "chat:1"},
            "not-allowed",
        ),
        ({"channel": "chat:1", "user": "mika"}, {"by": "mika", "channel": "chat:2"}, "not-allowed"),
        (
            {"channel": "chat:1", "user": "mika"},
            {"by": "local", "channel": "chat:1"},
            "not-allowed",
        ),
        ({"level": "sign"}, {"by": "local", "channel": "cli"}, "not-allowed"),
        ({"level": "sign"}, {"by": "local", "channel": "terminal"}, "not-allowed"),
        ({"level": "sign"}, {"by": "local", "channel": "library"}, "not-allowed"),
        ({"level": "sign"}, {"by": "local", "channel": "page"}, ""),
        ({"level": "sign"}, {"by": "local", "channel": "device"}, ""),
        ({}, {"by": "", "channel": "nobody"}, "not-allowed"),
    ],
)
@pytest.mark.req("S000-78", "S000-79", "S000-103")
def test_only_the_right_person_in_the_right_place_may_answer(
    tmp_path: Path, values: dict[str, Any], reply: dict[str, Any], code: str
) -> None:
    broker = broker_at(tmp_path)
    opened = broker.open(question(**values))
    if code:
        assert code_of(lambda: said(broker, opened.id, **reply)) == code
        assert broker.get(opened.id).state is ApprovalState.OPEN
    else:
        assert said(broker, opened.id, **reply).state is ApprovalState.APPROVED


def test_a_question_cannot_be_answered_after_its_end_nor_its_yes_be_used(tmp_path: Path) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock, expires_seconds=60)
    late, unused = broker.open(question("/w/a")), broker.open(question("/w/b"))
    clock.now += 59
    said(broker, unused.id)
    clock.now += 2
    assert code_of(lambda: said(broker, late.id)) == "expired"
    clock.now += 600
    request = unused.request
    assert (
        code_of(lambda: broker.redeem(unused.id, request.content_digest, request.session))
        == "expired"
    )
    assert broker.pending() == ()


def test_a_clock_that_went_back_gives_no_yes_a_second_life(tmp_path: Path) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock)
    opened = broker.open(question())
    said(broker, opened.id)
    clock.now -= 3600
    request = opened.request
    assert (
        code_of(lambda: broker.redeem(opened.id, request.content_digest, request.session))
        == "clock"
    )


def test_an_id_is_found_by_its_beginning(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    ids = [broker.open(question(f"/w/{at}")).id for at in range(20)]
    assert broker.get(ids[3]).id == ids[3]
    assert code_of(lambda: broker.get("")) == "unknown"
    assert code_of(lambda: broker.get("zz")) == "unknown"
    shared = next(i[0] for i in ids if sum(j[0] == i[0] for j in ids) > 1)
    assert code_of(lambda: broker.get(shared)) == "ambiguous"


@pytest.mark.req("S001-68")
def test_an_always_answers_the_open_questions_that_it_covers(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    same = broker.open(question("/w/notes/a.txt"))
    covered = broker.open(question("/w/notes/b.txt"))
    deeper = broker.open(question("/w/notes/deep/b.txt"))
    other_user = broker.open(question("/w/notes/c.txt", user="mika"))
    other_place = broker.open(question("/w/d.txt"))
    signs = broker.open(question("/w/notes/e.txt", level="sign"))
    said(broker, same.id, Answer.ALWAYS)
    states = [
        broker.get(found.id).state.value
        for found in (same, covered, deeper, other_user, other_place, signs)
    ]
    assert states == ["approved", "approved", "open", "open", "open", "open"]
    assert broker.get(covered.id).message == f"covered by the answer to {same.id}"


@pytest.mark.req("S001-66")
def test_a_once_grants_nothing(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    asked = question()
    said(broker, broker.open(asked).id, Answer.ONCE)
    broker.redeem(broker.latest()[0].id, asked.content_digest, asked.session)
    assert broker.grant_store.all() == ()
    assert broker.session_grants(asked.session) == ()


@pytest.mark.parametrize(
    ("answer", "lasting", "session"),
    [
        # On a server of the state it is kept for all of them: test_state_sessions.py.
        pytest.param(Answer.SESSION, [], [("/w/", "/w")], marks=pytest.mark.file_state),
        (Answer.PROJECT, [("/w/", "/w")], []),
        (Answer.ALWAYS, [("/w/", "")], []),
    ],
)
@pytest.mark.req("S001-65")
def test_what_a_lasting_yes_grants_and_for_how_long(
    tmp_path: Path, answer: Answer, lasting: list[Any], session: list[Any]
) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock)
    asked = question()
    opened = broker.open(asked)
    said(broker, opened.id, answer)
    assert broker.grant_store.all() == ()
    begun(broker, opened.id)
    kept = broker.grant_store.all()
    assert [(grant.pattern, grant.place) for grant in kept] == lasting
    here = broker.session_grants(asked.session)
    assert [(grant.pattern, grant.place) for grant in here] == session
    assert broker.session_grants("another") == ()
    assert broker_at(tmp_path).session_grants(asked.session) == ()
    for grant in (*kept, *here):
        assert grant.expires_ms == int((clock.now + 30 * 86_400) * 1000)


def test_a_revoked_yes_leaves_none_behind_that_was_not_used(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    used, asked = broker.open(question("/w/b.txt")), question()
    said(broker, used.id, Answer.ALWAYS)
    begun(broker, used.id)
    opened = broker.open(asked)
    said(broker, opened.id, Answer.ALWAYS)
    assert broker.revoke(broker.grant_store.all()[0].id)
    assert not broker.revoke("unknown")
    assert broker.grant_store.all() == ()
    assert (
        code_of(lambda: broker.redeem(opened.id, asked.content_digest, asked.session)) == "expired"
    )


def test_a_stop_by_another_process_ends_what_a_session_was_allowed(tmp_path: Path) -> None:
    """The command line stops a server of the same home, which keeps these in memory."""
    server, other, asked = broker_at(tmp_path), broker_at(tmp_path), question()

    def allow() -> tuple[Grant, ...]:
        opened = server.open(asked)
        said(server, opened.id, Answer.SESSION)
        begun(server, opened.id)
        return server.session_grants(asked.session)

    assert len(allow()) == 1
    other.withdraw_all()
    assert server.session_grants(asked.session) == ()
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        stop(connection, "anna", "a drill", 1)
    assert allow() == ()
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        resume(connection, 2)
    assert server.session_grants(asked.session) == ()
    assert len(allow()) == 1


def test_a_lasting_yes_is_offered_only_where_it_can_be_one(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    shell = broker.open(question(patterns=(), always=()))
    signs = broker.open(question("/w/tx", level="sign"))
    for opened in (shell, signs):
        for answer in (Answer.SESSION, Answer.PROJECT, Answer.ALWAYS):
            refused = code_of(lambda o=opened, a=answer: said(broker, o.id, a, channel="page"))
            assert refused == "not-offered"
    assert broker.grant_store.all() == ()


def test_a_no_brings_its_words_back_once(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    asked = question()
    opened = request_approval(broker, asked)
    said(broker, opened.approval.id, Answer.NO, message="write it to notes/")
    told = request_approval(broker, asked)
    assert (told.status, told.reason) == ("denied", "refused: write it to notes/")
    again = request_approval(broker, asked)
    assert (again.status, again.approval.id != opened.approval.id) == ("pending", True)


def test_a_no_answers_the_conversation_s_other_questions_where_that_is_set(tmp_path: Path) -> None:
    for reject_all, state in ((True, ApprovalState.DENIED), (False, ApprovalState.OPEN)):
        broker = broker_at(tmp_path / str(reject_all), reject_all=reject_all)
        first, second = broker.open(question("/w/a")), broker.open(question("/w/b"))
        other = broker.open(question("/w/c", channel="mcp"))
        said(broker, first.id, Answer.NO)
        assert broker.get(second.id).state is state
        assert broker.get(other.id).state is ApprovalState.OPEN


def test_after_three_noes_nobody_is_asked_for_a_while_and_then_again(tmp_path: Path) -> None:
    clock = Clock()
    no = Says(Answer.NO)
    broker = broker_at(tmp_path, no, clock=clock)
    for at in range(DENIAL_COOLDOWN_AFTER):
        assert request_approval(broker, question(f"/w/{at}")).status == "denied"
    tired = request_approval(broker, question("/w/x"))
    assert (tired.status, tired.approval, len(no.asked)) == ("denied", None, DENIAL_COOLDOWN_AFTER)
    assert tired.reason == (
        "`write` was refused several times in a row; its questions are refused for 300 seconds"
    )
    # Another kind of call, and another conversation, are asked about.
    assert request_approval(broker, question("/w/x", tool="exec")).approval is not None
    assert request_approval(broker, question("/w/x", channel="mcp")).approval is not None
    clock.now += DENIAL_COOLDOWN_SECONDS + 1
    no.answer = Answer.ONCE
    assert request_approval(broker, question("/w/y")).status == "approved"
    no.answer = Answer.NO
    assert request_approval(broker, question("/w/z")).approval is not None


@pytest.mark.req("S000-81")
def test_two_calls_of_one_conversation_are_asked_about_one_after_the_other(tmp_path: Path) -> None:
    class Counting:
        now = 0
        most = 0
        seconds = 0.0
        are_two: anyio.Event

        async def ask(self, request: ApprovalRequest) -> Answer:
            self.now += 1
            self.most = max(self.most, self.now)
            # As long as it takes another call to come this far.
            if self.now == 2:
                self.are_two.set()
            with anyio.move_on_after(self.seconds):
                await self.are_two.wait()
            self.now -= 1
            return Answer.ONCE

    async def both(*channels: str, seconds: float) -> int:
        person = Counting()
        person.seconds, person.are_two = seconds, anyio.Event()
        broker = broker_at(tmp_path / str(len(channels)), person)
        async with anyio.create_task_group() as tasks:
            for at, channel in enumerate(channels):
                tasks.start_soon(broker.request_approval, question(f"/w/{at}", channel=channel))
        return person.most

    assert anyio.run(partial(both, "mcp", "mcp", "mcp", seconds=0.2)) == 1
    # Two at once end the wait, however busy the machine is.
    assert anyio.run(partial(both, "mcp", "cli", seconds=10)) == 2


def test_a_given_id_is_taken_for_its_own_call_only(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    asked = question()
    opened = broker.open(asked)
    assert request_approval(broker, asked, opened.id).status == "pending"
    said(broker, opened.id)
    assert request_approval(broker, asked, "no-such-id").reason == "no approval `no-such-id`"
    assert request_approval(broker, asked, opened.id).status == "approved"
    for wrong in (question("/w/b.txt"), question(user="mika"), question(channel="mcp")):
        redeemed = lambda w=wrong: broker.redeem(opened.id, w.content_digest, w.session)  # noqa: E731
        assert code_of(redeemed) == "another-call"
    broker.redeem(opened.id, asked.content_digest, asked.session)
    assert (
        request_approval(broker, asked, opened.id).reason
        == f"approval `{opened.id}` was used already"
    )


def test_what_is_not_there_cannot_be_answered_used_or_unsubscribed_twice(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    unsubscribe = broker.subscribe(lambda _: None)
    unsubscribe()
    unsubscribe()
    for call in (
        lambda: broker.answer("none", Answer.ONCE, by="local", channel="cli", nonce=""),
        lambda: broker.redeem("none", "sha256:0", "session"),
    ):
        assert code_of(call) == "unknown"
    opened = broker.open(question())
    request = opened.request
    assert (
        code_of(lambda: broker.redeem(opened.id, request.content_digest, request.session)) == "open"
    )


def test_a_session_yes_reaches_its_own_conversation_only(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    first = broker.open(question("/w/a.txt"))
    same = broker.open(question("/w/b.txt"))
    other = broker.open(question("/w/c.txt", channel="mcp"))
    elsewhere = broker.open(question("/w/d.txt", place="/v"))
    said(broker, first.id, Answer.SESSION)
    states = [broker.get(found.id).state.value for found in (same, other, elsewhere)]
    assert states == ["approved", "open", "open"]


class Spoils:
    """A channel that makes the state unreadable while it is asked."""

    def __init__(self, path: Path, answer: Answer | None) -> None:
        self.path = path
        self.answer = answer

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        for file in self.path.glob("state.sqlite3*"):
            file.unlink()
        (self.path / "state.sqlite3").write_bytes(b"no database" * 100)
        if self.answer is None:
            await anyio.sleep_forever()
        return self.answer


@pytest.mark.file_state
@pytest.mark.parametrize("answer", [None, Answer.ONCE])
def test_state_that_cannot_be_read_any_more_is_an_error_and_no_yes(
    tmp_path: Path, answer: Answer | None
) -> None:
    broker = broker_at(tmp_path, Spoils(tmp_path, answer), wait_seconds=20)
    with pytest.raises(StateError):
        request_approval(broker, question())


def test_an_answer_from_elsewhere_beats_a_channel_that_is_slower(tmp_path: Path) -> None:
    class Late:
        async def ask(self, request: ApprovalRequest) -> Answer:
            said(broker_at(tmp_path), request.id, Answer.NO, message="first")
            return Answer.ONCE

    settled = request_approval(broker_at(tmp_path, Late()), question())
    assert (settled.status, settled.reason) == ("denied", "refused: first")


def test_a_lasting_word_of_a_channel_where_there_is_none_is_taken_as_once(tmp_path: Path) -> None:
    broker = broker_at(tmp_path, Says(Answer.ALWAYS))
    settled = request_approval(broker, question(patterns=(), always=()))
    assert (settled.status, settled.approval.answer) == ("approved", "once")
    assert broker.grant_store.all() == ()


def test_what_was_closed_long_ago_is_forgotten_and_what_is_open_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.approval.ledger.KEPT_MAX", 3)
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock, expires_seconds=86_400)
    waits = broker.open(question("/w/waits"))
    closed = [broker.open(question(f"/w/{at}")) for at in range(6)]
    for found in closed:
        said(broker, found.id, Answer.NO)
    clock.now += 1
    latest = broker.open(question("/w/latest"))
    kept = {found.id for found in broker.latest()}
    assert kept == {waits.id, latest.id, *(found.id for found in closed[3:])}
    clock.now += KEPT_SECONDS + 86_400
    newest = broker.open(question("/w/newest"))
    assert {found.id for found in broker.latest()} == {newest.id}


def test_a_closed_question_loses_the_text_of_its_call_after_a_day(tmp_path: Path) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock, expires_seconds=40 * 86_400)
    secret = "sk-canary-0123456789"
    asked = question(sent=(("content", secret),), content=f'{{"text":"{secret}"}}')
    closed, waits = broker.open(asked), broker.open(question("/w/open"))
    said(broker, closed.id, Answer.NO)
    clock.now += CONTENT_SECONDS + 1
    broker.open(question("/w/later"))
    found = broker.get(closed.id)
    assert (found.request.sent, found.request.content) == ((), "{}")
    assert found.request.content_digest == asked.content_digest
    assert broker.get(waits.id) == waits
    with pooled(tmp_path / "state.sqlite3", STATE) as store:
        assert secret not in str(store.rows("SELECT * FROM approval"))


@pytest.mark.parametrize("damaged", ["{", "", "[" * 50_000, "7", '["sk-canary"]'])
def test_a_damaged_question_loses_its_text_too_and_hinders_no_new_one(
    tmp_path: Path, damaged: str
) -> None:
    clock = Clock()
    broker = broker_at(tmp_path, clock=clock)
    closed = broker.open(question("/w/closed"))
    said(broker, closed.id, Answer.NO)
    with pooled(tmp_path / "state.sqlite3", STATE) as store, store.transaction() as connection:
        connection.execute("UPDATE approval SET request = ? WHERE id = ?", (damaged, closed.id))
    clock.now += CONTENT_SECONDS + 1
    later = broker.open(question("/w/later"))
    with pooled(tmp_path / "state.sqlite3", STATE) as store:
        kept = store.rows("SELECT request, is_cleared FROM approval ORDER BY seq")
    assert kept[0] == ("{}", 1)
    assert broker.get(later.id) == later

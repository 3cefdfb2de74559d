"""Tests of house/all_logs.py: servers that answer for their logs, and one that forges."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psycopg
import pytest

from skillhouse.audit import AuditEntry, AuditRecord, Query
from skillhouse.audit.answer_keys import public_key_of, sign
from skillhouse.audit.log_files import LogKeys, keys_of, read_keys
from skillhouse.audit.peer_pages import LogCheck, LogPage, LogQuestion, decoded_page, encoded
from skillhouse.audit.peer_rows import (
    AT_ONCE,
    CLAIM_MS,
    PINS_FILE,
    PINS_MAX,
    LogKeyRow,
    LogPins,
    PeerRows,
)
from skillhouse.floor import ConfigError, StateError
from skillhouse.house import AllLogsPage, LogAnswers, Skillhouse
from skillhouse.house.all_logs import ReplacedServer, UnknownServerError
from skillhouse.house.config.config_files import configured
from skillhouse.store import STATE_FILE
from tests.audit.logs import refusal
from tests.extensions.postgres.state_servers import new_database, served
from tests.extensions.postgres.test_state_server import ended
from tests.house.places import make_places

pytestmark = [pytest.mark.slow, pytest.mark.file_state]
FORGER = keys_of(b"f" * 32, Path("audit.jsonl"))


class Server:
    """One server: a house with a log of its own, which answers in this process."""

    def __init__(self, base: Path, name: str, stack: ExitStack, url: str) -> None:
        self.name = name
        # One that replaces another has its name, and a directory of its own.
        directory = base / f"{len(list(base.iterdir()))} {name}"
        directory.mkdir()
        places = make_places(directory)
        self.house = Skillhouse(configured(places), server_name=name)
        self.state = self.house.config.state_directory
        stack.enter_context(served(self.state, url))
        stack.enter_context(self.house)
        shown = self.house.config.shown_server
        self.servers = self.house.services.enforcement.connections.servers
        self.servers.begin(name=shown, version="1", address="http://x", beats=False)
        self.answers = LogAnswers(self.house.all_logs)

    def record(self, *reasons: str) -> None:
        for reason in reasons:
            self.house.audit_log.append(refusal(reason=reason), durable=True)

    def answer(self) -> None:
        self.house.all_logs.publish()
        self.answers.begin()

    @property
    def keys(self) -> LogKeys:
        keys = read_keys(self.house.audit_log.path, None)
        assert keys is not None
        return keys

    @property
    def log(self) -> str:
        return self.keys.name

    def page(self, **asked: object) -> AllLogsPage:
        question = LogQuestion(**asked)  # type: ignore[arg-type]
        return self.house.all_logs.page(question, wait_seconds=1.5)


@pytest.fixture
def url(postgres_server: str) -> str:
    return new_database(postgres_server)


@pytest.fixture
def server(tmp_path: Path, url: str) -> Iterator[Callable[[str], Server]]:
    with ExitStack() as stack:

        def started(name: str) -> Server:
            one = Server(tmp_path, name, stack, url)
            stack.callback(one.answers.close)
            return one

        yield started


def reasons(page: AllLogsPage) -> list[tuple[str, str]]:
    return [(one.server, one.entry.record.reason) for one in page.entries]


def standings(page: AllLogsPage) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in page.entries:
        found.setdefault(one.server, set()).add(one.standing)
    return found


def states(page: AllLogsPage) -> dict[str, str]:
    return {one.name: one.state for one in page.servers}


def test_the_records_of_all_are_one_list_by_time_in_pages(server: Callable[[str], Server]) -> None:
    first, second = server("core-a"), server("core-b")
    for number in range(5):
        (first, second)[number % 2].record(f"call {number}")
    second.answer()
    whole = first.page()
    assert [text for _, text in reasons(whole)] == [f"call {n}" for n in (4, 3, 2, 1, 0)]
    assert (states(whole), whole.following) == ({"core-a": "answered", "core-b": "answered"}, "")
    found, before = list[tuple[str, str]](), ""
    for _ in range(9):
        page = first.page(limit=2, before=before)
        found += reasons(page)
        before = page.following
        if not before:
            break
    assert found == reasons(whole)
    assert {name for name, _ in reasons(first.page(query=Query(server="core-b")))} == {"core-b"}


def test_one_server_is_asked_for_as_the_list_names_it(server: Callable[[str], Server]) -> None:
    """One without a `server_name` has the name of its machine there, and none in its records."""
    first, second = server("core-a"), server("")
    first.record("mine")
    second.record("of a machine")
    first.answer()
    second.answer()
    machine = socket.gethostname()
    for asker in (first, second):
        for wanted in (machine, second.log):
            page = asker.page(query=Query(server=wanted))
            assert reasons(page) == [(machine, "of a machine")]
            assert [(one.name, one.is_this) for one in page.servers] == [(machine, asker is second)]
        assert reasons(asker.page(query=Query(server="core-a"))) == [("core-a", "mine")]
        with pytest.raises(UnknownServerError, match="no server `core-c`") as caught:
            asker.page(query=Query(server="core-c"))
        assert caught.value.nearest == tuple(sorted(("core-a", machine)))


def test_a_record_is_verified_once_a_head_in_the_state_covers_it(
    server: Callable[[str], Server],
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("covered")
    second.house.audit_log.close()
    second.answer()
    assert standings(first.page())["core-b"] == {"verified"}
    second.record("after it")
    page = first.page(limit=1)
    assert [one.standing for one in page.entries] == ["new"]


def test_a_server_that_rewrites_its_own_log_shows_as_changed(
    server: Callable[[str], Server],
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("one", "two", "three")
    second.house.audit_log.close()
    log = second.house.audit_log.path
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:1] + lines[2:]))
    second.answer()
    page = first.page()
    assert standings(page)["core-b"] == {"changed"}
    assert [one.check.state for one in page.servers if one.check and one.name == "core-b"] == [
        "changed"
    ]
    assert not page.is_whole


def begin_forger(url: str) -> None:
    """Be a server of the state, by the name of core-x."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO server VALUES "
            "('x', 'core-x', 'http://x', '1', 1, 9000000000000, 'ready', '', %s)",
            (FORGER.name,),
        )


class Forging:
    """A server that writes what it likes into the state, while others ask."""

    def __init__(self, url: str, forge: Callable[[psycopg.Connection, str], None]) -> None:
        self._url, self._forge = url, forge
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _go_on(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._ended.wait(0.01):
                for (request,) in connection.execute("SELECT id FROM log_request").fetchall():
                    self._forge(connection, request)


def page_of(log: str, server: str, *texts: str, record_server: str = "") -> LogPage:
    """Return a page with records of no log."""
    return LogPage(
        log=log,
        server=server,
        server_id="x",
        version="1",
        clock_ms=1,
        check=LogCheck(state="whole", head_seq=9_000, records=9_000),
        entries=tuple(
            AuditEntry(
                record=AuditRecord(
                    id=f"7{'Z' * 24}{9 - at}",
                    seq=at + 1,
                    ts="2026-01-01T00:00:00.000Z",
                    kind="refusal",
                    tool="exec",
                    status="denied",
                    reason=text,
                    hash="0" * 64,
                    server=record_server or server,
                ),
                outcome=None,
                status="denied",
            )
            for at, text in enumerate(texts)
        ),
    )


def put(connection: psycopg.Connection, request: str, log: str, body: str, seal: str) -> None:
    connection.execute(
        "INSERT INTO log_answer VALUES (%s, %s, %s, %s, 9000000000000) "
        "ON CONFLICT (request, log_name) DO UPDATE SET body = excluded.body, "
        "signature = excluded.signature",
        (request, log, body, seal),
    )


def signed(request: str, body: str) -> str:
    """Return the forger's own signature of an answer to a question without a filter."""
    return sign(FORGER, request, encoded(LogQuestion()), body)


def forged_key(connection: psycopg.Connection, log: str, server: str) -> None:
    connection.execute(
        "INSERT INTO log_key VALUES (%s, %s, %s, 1) ON CONFLICT (log_name) DO UPDATE SET "
        "public_key = excluded.public_key, server = excluded.server",
        (log, server, public_key_of(FORGER)),
    )


def test_an_answer_in_the_place_of_another_servers_is_refused(
    server: Callable[[str], Server], url: str
) -> None:
    """A replica that writes the state, and has no key of the other one's log."""
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("true")
    second.house.all_logs.publish()
    first.page()  # The key was seen.
    log = second.log

    def forge(connection: psycopg.Connection, request: str) -> None:
        body = encoded(page_of(log, "core-b", "forged"))
        # Naively: whatever is in the row is what that server said.
        forged_key(connection, log, "core-b")
        put(connection, request, log, body, signed(request, body))

    with Forging(url, forge):
        page = first.page()
    assert "forged" not in [text for _, text in reasons(page)]
    (refused,) = [one for one in page.servers if one.name == "core-b"]
    assert (refused.state, "not signed by the key" in refused.said) == ("refused", True)
    assert not page.is_whole
    # The server that has the log hears of it too.
    assert not PeerRows(second.state).publish(second.keys, "core-b")


def test_an_answer_to_another_question_is_refused(
    server: Callable[[str], Server], url: str
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("old")
    second.answer()
    kept: dict[str, tuple[str, str]] = {}
    rows = PeerRows(first.state)
    asked = rows.ask(LogQuestion())
    while not rows.answers(asked):
        threading.Event().wait(0.05)
    (answer,) = rows.answers(asked)
    kept[answer.log] = (answer.body, answer.signature)
    second.answers.close()

    def replay(connection: psycopg.Connection, request: str) -> None:
        for log, (body, signature) in kept.items():
            put(connection, request, log, body, signature)

    with Forging(url, replay):
        page = first.page()
    assert reasons(page) == [("core-a", "mine")]
    assert states(page)["core-b"] == "refused"


def test_an_answer_to_a_question_that_was_changed_on_its_way_is_refused(
    server: Callable[[str], Server], url: str
) -> None:
    """Who writes the state asks for less, and the true answer to that leaves records out."""
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("left out")
    second.house.all_logs.publish()
    done = set[str]()

    def change(connection: psycopg.Connection, request: str) -> None:
        narrower = encoded(LogQuestion(query=Query(tool="none")))
        connection.execute("UPDATE log_request SET question = %s", (narrower,))
        second.house.all_logs.answer(done)

    with Forging(url, change):
        page = first.page()
    assert len(done) == 1
    assert states(page)["core-b"] == "refused"
    assert not page.is_whole


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_that_takes_the_name_of_another_server_makes_it_doubtful(
    server: Callable[[str], Server], url: str, is_there: bool
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("true")
    second.answer()
    assert states(first.page())["core-b"] == "answered"
    if not is_there:
        second.answers.close()

    def forge(connection: psycopg.Connection, request: str) -> None:
        forged_key(connection, FORGER.name, "core-b")
        body = encoded(page_of(FORGER.name, "core-b", "forged"))
        put(connection, request, FORGER.name, body, signed(request, body))

    with Forging(url, forge):
        page = first.page()
    assert standings(page)["core-b"] == {"doubtful"}
    assert {one.said for one in page.servers if one.name == "core-b"} == {
        "several logs have the name of this server"
    }
    assert not page.is_whole


def test_a_server_that_was_replaced_is_accepted_by_its_new_log(
    server: Callable[[str], Server],
) -> None:
    first, old = server("core-a"), server("core-b")
    first.record("mine")
    old.record("before")
    old.answer()
    assert standings(first.page())["core-b"] <= {"new", "verified"}
    with pytest.raises(ConfigError, match="no other log had the name"):
        first.house.all_logs.replaced("core-b")
    old.answers.close()
    old.servers.close()
    new = server("core-b")
    new.record("after")
    new.answer()
    assert standings(first.page())["core-b"] == {"doubtful"}
    found = first.house.all_logs.replaced("core-b")
    assert found == ReplacedServer(server="core-b", log=new.log, given_up=(old.log,))
    first.house.all_logs.accept(found)
    assert standings(first.page())["core-b"] <= {"new", "verified"}
    # The old one is back: neither is believed, and none can be accepted.
    old.servers.begin(name="core-b", version="1", address="http://x", beats=False)
    again = LogAnswers(old.house.all_logs)
    old.house.all_logs.publish()
    again.begin()
    assert standings(first.page())["core-b"] == {"doubtful"}
    with pytest.raises(ConfigError, match="several logs answer"):
        first.house.all_logs.replaced("core-b")
    again.close()


def test_a_server_that_is_there_and_does_not_answer_is_not_given_up(
    server: Callable[[str], Server],
) -> None:
    first, old = server("core-a"), server("core-b")
    for one, reason in ((first, "mine"), (old, "before")):
        one.record(reason)
    old.answer()
    assert states(first.page())["core-b"] == "answered"
    old.answers.close()
    new = server("core-b")
    new.record("after")
    new.answer()
    with pytest.raises(ConfigError, match=f"the log {old.log}.*is there"):
        first.house.all_logs.replaced("core-b")
    old.servers.close()
    assert first.house.all_logs.replaced("core-b").given_up == (old.log,)


def test_a_log_without_records_is_none_that_a_server_has_now(
    server: Callable[[str], Server],
) -> None:
    first = server("core-a")
    with pytest.raises(ConfigError, match="no server answers"):
        first.house.all_logs.replaced("core-a")


@pytest.mark.parametrize("log", ["\x1b[2Jx", "x had no name. Nothing else", "0123456789ab\n"])
def test_what_has_no_name_of_a_log_is_not_one_that_a_person_is_asked_about(
    server: Callable[[str], Server], url: str, log: str
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("true")
    second.answer()

    def forge(connection: psycopg.Connection, request: str) -> None:
        forged_key(connection, log, "core-b")
        body = encoded(page_of(log, "core-b", "forged"))
        put(connection, request, log, body, signed(request, body))

    with Forging(url, forge):
        page = first.page()
    assert standings(page)["core-b"] <= {"new", "verified"}
    assert {one.log: one.state for one in page.servers}[log] == "refused"
    with pytest.raises(ConfigError, match="no other log had the name"):
        first.house.all_logs.replaced("core-b")


def test_a_record_that_names_another_server_stays_its_logs_own(
    server: Callable[[str], Server], url: str
) -> None:
    first = server("core-a")
    first.record("mine")
    begin_forger(url)

    def forge(connection: psycopg.Connection, request: str) -> None:
        forged_key(connection, FORGER.name, "core-x")
        page = page_of(FORGER.name, "core-x", "<script>alert(1)</script>", record_server="core-a")
        put(connection, request, FORGER.name, encoded(page), signed(request, encoded(page)))

    with Forging(url, forge):
        page = first.page()
    assert reasons(page)[0] == ("core-x", "<script>alert(1)</script>")
    assert standings(page)["core-x"] == {"doubtful"}


def test_a_head_that_does_not_fit_a_record_shows_it_as_changed(
    server: Callable[[str], Server], url: str
) -> None:
    """Also where its own server says that its log is whole."""
    first = server("core-a")
    first.record("mine")
    begin_forger(url)

    def forge(connection: psycopg.Connection, request: str) -> None:
        forged_key(connection, FORGER.name, "core-x")
        connection.execute(
            "INSERT INTO audit_head VALUES (%s, 1, 'core-x', %s, '', 1) ON CONFLICT DO NOTHING",
            (FORGER.name, "1" * 64),
        )
        body = encoded(page_of(FORGER.name, "core-x", "rewritten", "other"))
        put(connection, request, FORGER.name, body, signed(request, body))

    with Forging(url, forge):
        page = first.page()
    assert [one.standing for one in page.entries if one.server == "core-x"] == [
        "changed",
        "verified",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[" * 50_000,
        encoded(page_of(FORGER.name, "x" * 201)),
        encoded(msgspec.structs.replace(page_of(FORGER.name, "core-x"), horizon="~~")),
        encoded(page_of("another", "core-x")),
        # Each would end the page of all servers at its own end.
        encoded(msgspec.structs.replace(page_of(FORGER.name, "core-x"), horizon="Z" * 26)),
        encoded(
            msgspec.structs.replace(
                page_of(FORGER.name, "core-x", "one"), horizon=f"7{'Z' * 24}9", is_cut=True
            )
        ),
        encoded(page_of(FORGER.name, "core-x", *map(str, range(8)))).replace('"7Z', '"1Z', 3),
    ],
)
def test_what_is_no_answer_is_refused_and_named(
    server: Callable[[str], Server], url: str, body: str
) -> None:
    first = server("core-a")
    first.record("mine")
    begin_forger(url)

    def forge(connection: psycopg.Connection, request: str) -> None:
        forged_key(connection, FORGER.name, "core-x")
        put(connection, request, FORGER.name, body, signed(request, body))

    with Forging(url, forge):
        page = first.page()
    assert reasons(page) == [("core-a", "mine")]
    assert states(page) == {"core-a": "answered", "core-x": "refused"}


def test_an_answer_has_no_records_beyond_what_the_reader_may_see() -> None:
    """The rights are those of the server that asks: it compares each record once more."""
    body = encoded(page_of("log", "core-x", "of another user"))
    assert decoded_page(body, LogQuestion()) is not None
    assert decoded_page(body, LogQuestion(query=Query(user="anna"))) is None


def test_questions_that_nothing_asks_for_are_not_answered(
    server: Callable[[str], Server], url: str
) -> None:
    second = server("core-b")
    second.record("true")
    rows = PeerRows(second.state)
    rows.ask(LogQuestion())
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE log_request SET asked_ms = asked_ms - 11000")
        connection.execute(
            "INSERT INTO log_request SELECT 'long', repeat('x', 9000), 9000000000000"
        )
        connection.execute("INSERT INTO log_request VALUES ('odd', '{', 9000000000000)")
    assert rows.questions() == ()


def test_each_of_many_questions_is_answered(server: Callable[[str], Server], url: str) -> None:
    second = server("core-b")
    second.record("true")
    logs, rows = second.house.all_logs, PeerRows(second.state)
    asked = {rows.ask(LogQuestion()) for _ in range(AT_ONCE + 3)}
    done = set[str]()
    # All connections are new, as after a restart of the database.
    assert ended(url)
    assert [logs.answer(done), logs.answer(done), logs.answer(done)] == [AT_ONCE, 3, 0]
    assert done == asked


def test_no_more_is_read_of_answers_than_has_room(
    server: Callable[[str], Server], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes the state writes any number of answers of a megabyte."""
    rows = PeerRows(server("core-a").state)
    asked = rows.ask(LogQuestion())
    with psycopg.connect(url) as connection:
        for number in range(9):
            put(connection, asked, f"log{number}", "x" * 1000, "")
    monkeypatch.setattr("skillhouse.audit.peer_rows.ANSWERS_MAX", 2_500)
    found = [one.log for one in rows.answers(asked, {"log7"})]
    assert found == ["log7", "log0", "log1"]


def test_a_server_says_its_key_in_a_database_that_was_restored(
    server: Callable[[str], Server], url: str
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("true")
    second.answer()
    second.house.all_logs.publish()
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM log_key")
    assert states(first.page()) == {"core-a": "answered", "core-b": "answered"}


def test_a_head_is_found_among_any_number(server: Callable[[str], Server], url: str) -> None:
    first = server("core-a")
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO audit_head SELECT 'l', seq, 'core-a', seq::text, '', 1 "
            "FROM generate_series(1, 3000) AS seq"
        )
    heads = PeerRows(first.state)
    assert heads.heads_at("l", (1, 2999, 5000, 2**70)) == {1: "1", 2999: "2999"}
    assert heads.heads_at("l", range(7, 207)) == {seq: str(seq) for seq in range(7, 207)}
    assert heads.heads_at("l", ()) == {}


def test_pins_go_when_their_servers_have_been_gone_for_long(tmp_path: Path) -> None:
    """As in a cluster whose servers have no directory that stays: each start has another log."""
    pins = LogPins(tmp_path)
    for at in range(PINS_MAX + 5):
        row = LogKeyRow(log=f"log{at}", server="core", public_key="00")
        known = pins.take([row], [row.log], at * CLAIM_MS)
        assert row.log in known
    assert (len(known), "log4" in known, "log5" in known) == (PINS_MAX, False, True)
    # Not so fast: who writes many keys pushes none out that is in use.
    flood = [LogKeyRow(log=f"x{at}", server="core", public_key="00") for at in range(PINS_MAX)]
    kept = pins.take(flood, [one.log for one in flood], (PINS_MAX + 4) * CLAIM_MS)
    assert f"log{PINS_MAX + 4}" in kept


def test_pins_that_have_no_place_are_a_fault_that_is_said(tmp_path: Path) -> None:
    (tmp_path / PINS_FILE).mkdir()
    with pytest.raises(StateError, match="the keys of other servers' logs"):
        LogPins(tmp_path).take([], [], 1)


def test_keys_that_were_seen_first_are_kept_in_a_file_of_this_machine(
    server: Callable[[str], Server],
) -> None:
    first, second = server("core-a"), server("core-b")
    first.record("mine")
    second.record("true")
    second.answer()
    first.page()
    file = first.state / PINS_FILE
    assert file.stat().st_mode & 0o077 == 0
    assert second.log in file.read_text()


def test_a_state_in_a_file_has_one_log(tmp_path: Path) -> None:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        house.audit_log.append(refusal(reason="mine"), durable=True)
        page = house.all_logs.page(LogQuestion())
        assert [one.entry.record.reason for one in page.entries] == ["mine"]
        assert not (house.config.state_directory / STATE_FILE).exists()

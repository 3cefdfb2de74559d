"""Tests of the first use of an empty database: by two processes at once, and of each encoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from mcp.server.request_state import InvalidRequestState
from tests.extensions.postgres.state_servers import new_database, served, url_of

from skillhouse.extensions.channels.bot_lock import LOCK_FILE, BotError, only_bot
from skillhouse.extensions.postgres.state_move import move_to_server
from skillhouse.extensions.server.companion.app_pushes import Pushes
from skillhouse.floor import StateError, make_private
from skillhouse.frontends.mcp.approval_bridge import StateCodec
from skillhouse.store import STATE, STATE_FILE, Store, pooled

pytestmark = [pytest.mark.slow, pytest.mark.file_state]

ROUNDS = 12
WORKER = """
import sys
from pathlib import Path
from tests.extensions.postgres.state_servers import served
from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, pooled

print("ready", flush=True)
for line in sys.stdin:
    place, url = line.split()
    try:
        with served(Path(place), url), pooled(Path(place) / STATE_FILE, STATE) as kept:
            with kept.transaction() as connection:
                connection.execute("INSERT INTO notice VALUES (?, 'text')", (sys.argv[1],))
        print("ok", flush=True)
    except StateError as error:
        print(error, flush=True)
"""


def database(server: str, encoding: str, number: object = "") -> str:
    """Make an empty database of an encoding; return its URL."""
    name = f"first_{encoding.lower()}_{os.getpid()}_{number}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' "
            "TEMPLATE template0".encode()
        )
    return url_of(server, name)


@contextmanager
def worker(name: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", WORKER, name]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert said(process) == "ready"
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("machines", ["one machine", "two machines"])
def test_two_processes_that_use_a_fresh_database_first_at_once_have_one_state(
    tmp_path: Path, postgres_server: str, machines: str
) -> None:
    with ExitStack() as both:
        processes = [both.enter_context(worker(name)) for name in ("a", "b")]
        for number in range(ROUNDS):
            url = new_database(postgres_server)
            for name, process in zip("ab", processes, strict=True):
                own = name if machines == "two machines" else "same"
                assert process.stdin is not None
                process.stdin.write(f"{tmp_path}/{number}-{own} {url}\n")
            for process in processes:
                assert process.stdin is not None
                process.stdin.flush()
            assert [said(process) for process in processes] == ["ok", "ok"], number
            with psycopg.connect(url) as connection:
                found = connection.execute("SELECT name FROM notice ORDER BY name").fetchall()
                assert found == [("a",), ("b",)]
                assert connection.execute("SELECT count(*) FROM skillhouse_state").fetchone() == (
                    1,
                )


def test_a_cluster_without_a_locale_has_texts_and_not_bytes(
    tmp_path: Path, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts came as bytes, so a state in use was taken for a move that did not end."""
    # Of a person whose terminal is none of UTF-8.
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    url = database(postgres_server, "SQL_ASCII")
    for place in (tmp_path / "a", tmp_path / "b"):
        with served(place, url), pooled(place / STATE_FILE, STATE) as kept:
            with kept.transaction() as connection:
                connection.execute("INSERT INTO notice VALUES (?, '\u00fc\u4e2d')", (place.name,))
            (row,) = kept.rows("SELECT name, text FROM notice WHERE name = ?", (place.name,))
            assert row == (place.name, "\u00fc\u4e2d")


def test_the_encoding_of_a_role_does_not_count(tmp_path: Path, postgres_server: str) -> None:
    url = new_database(postgres_server)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "ALTER DATABASE "
            + url.partition("@/")[2].partition("?")[0]
            + " SET client_encoding = 'LATIN1'"
        )
    with served(tmp_path, url), pooled(tmp_path / STATE_FILE, STATE) as kept:
        with kept.transaction() as connection:
            connection.execute("INSERT INTO notice VALUES ('a', '\u4e2d')")
        assert kept.rows("SELECT text FROM notice") == [("\u4e2d",)]


def test_a_database_that_has_not_every_letter_is_refused(
    tmp_path: Path, postgres_server: str
) -> None:
    url = database(postgres_server, "LATIN1")
    with (
        served(tmp_path, url),
        pytest.raises(StateError, match="has the encoding LATIN1"),
        pooled(tmp_path / STATE_FILE, STATE),
    ):
        pass
    file = tmp_path / "file" / STATE_FILE
    Store(file, STATE).close()
    with pytest.raises(StateError, match="has the encoding LATIN1"):
        move_to_server(file, url, lambda *_: None)
    with pooled(file, STATE) as kept:
        assert kept.rows("SELECT name FROM notice") == []


def test_servers_of_two_machines_have_the_same_keys(tmp_path: Path, postgres_server: str) -> None:
    """What one sealed another one opens, and a push service knows both."""
    url = new_database(postgres_server)
    here, there = (make_private_below(tmp_path / name) for name in ("here", "there"))
    with served(here, url), served(there, url):
        sealed = StateCodec(here).seal(b"a question")
        assert StateCodec(there).unseal(sealed) == b"a question"
        assert Pushes(here, post).public_key == Pushes(there, post).public_key
    # Each has a file of its own, of which the first one's is in the state.
    with pytest.raises(InvalidRequestState):
        StateCodec(there).unseal(sealed)


def make_private_below(directory: Path) -> Path:
    make_private(directory)
    return directory


async def post(address: str, headers: Mapping[str, str], body: bytes) -> int:
    raise AssertionError("nothing is sent")


def test_of_two_machines_of_a_state_one_serves_the_channels(
    tmp_path: Path, postgres_server: str
) -> None:
    url = new_database(postgres_server)
    here, there = tmp_path / "here", tmp_path / "there"
    with served(here, url), served(there, url):
        with only_bot(here) as lock:
            with pytest.raises(BotError, match="another process"), only_bot(there):
                pass
            lock.take()
            # One that hung for long has lost it.
            with psycopg.connect(url) as connection:
                connection.execute("UPDATE notice SET text = 'other 1' WHERE name = 'bot'")
            with only_bot(there), pytest.raises(BotError, match="another process"):
                lock.take()
        with only_bot(there):
            pass


def test_a_bot_that_was_killed_is_taken_over_at_once_by_its_own_home(
    tmp_path: Path, postgres_server: str
) -> None:
    """A service starts it again in a moment; on another machine it waits for the row to end."""
    url = new_database(postgres_server)
    here, there = tmp_path / "here", tmp_path / "there"
    with served(here, url), served(there, url):
        with only_bot(here) as lock:
            # As after SIGKILL: the kernel releases the file, and nothing the row.
            lock.release = lambda: None  # type: ignore[method-assign]
        with pytest.raises(BotError, match="another process"), only_bot(there):
            pass
        shutil.copy2(here / LOCK_FILE, there / LOCK_FILE)
        with pytest.raises(BotError, match="another process"), only_bot(there):
            pass
        with only_bot(here):
            pass
        with only_bot(there):
            pass

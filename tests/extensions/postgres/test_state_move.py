"""Tests of moving the state to a server and back, of its copies, and of `skillhouse state`."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.approval.questions import question
from tests.extensions.postgres.state_servers import new_database, served

from skillhouse import store
from skillhouse.approval import ApprovalBroker
from skillhouse.extensions.postgres import state_move
from skillhouse.extensions.postgres.state_move import copy_to_file, move_to_file, move_to_server
from skillhouse.floor import StateError
from skillhouse.house.settings import SettingsStore
from skillhouse.store import STATE, STATE_FILE, Store, pooled

pytestmark = [pytest.mark.slow, pytest.mark.file_state]

Run = Callable[..., tuple[int, str, str]]


def quiet(_: int, __: int) -> None:
    """Say nothing of the progress."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Return the file of a state with a question, a setting and a row that is gone."""
    broker = ApprovalBroker(tmp_path)
    broker.open(question())
    with pooled(tmp_path / STATE_FILE, STATE) as kept, kept.transaction() as connection:
        connection.execute("INSERT INTO notice VALUES ('a', ?)", ("line\n% ? 'quoted' \u00e9",))
        connection.execute("INSERT INTO export VALUES ('t', ?)", (b"\x00\xff",))
        for at in range(3):
            connection.execute("INSERT INTO tier_sign_failure (at_ms) VALUES (?)", (at,))
        connection.execute("DELETE FROM tier_sign_failure WHERE at_ms = 2")
    yield tmp_path / STATE_FILE
    store.forget_state(tmp_path / STATE_FILE)


def rows_of(path: Path) -> dict[str, list[str]]:
    """Return all rows of a state, wherever it is."""
    with Store(path.with_name("names.sqlite3"), STATE) as empty:
        names = [
            name
            for (name,) in empty.rows(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
        ]
    with pooled(path, STATE) as kept:
        return {name: sorted(map(repr, kept.rows(f"SELECT * FROM {name}"))) for name in names}


def test_a_state_goes_to_a_server_and_back_with_every_row(path: Path, state_url: str) -> None:
    before = rows_of(path)
    said: list[tuple[int, int]] = []
    found = move_to_server(path, state_url, lambda done, total: said.append((done, total)))
    assert (found.tables, found.rows) == (len(before), sum(map(len, before.values())))
    assert said[-1] == (found.rows, found.rows)
    store.forget_state(path)
    with served(path.parent, state_url):
        assert rows_of(path) == before
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            connection.execute("INSERT INTO tier_sign_failure (at_ms) VALUES (9)")
            # The number of the row that is gone is not given once more.
            last = connection.execute("SELECT max(seq) FROM tier_sign_failure").fetchone()
        assert last == (4,)
        after = rows_of(path)
    assert move_to_file(path, state_url, quiet).rows == found.rows + 1
    assert rows_of(path) == after
    with pooled(path, STATE) as kept, kept.transaction() as connection:
        connection.execute("INSERT INTO tier_sign_failure (at_ms) VALUES (10)")
        assert connection.execute("SELECT max(seq) FROM tier_sign_failure").fetchone() == (5,)


def test_after_a_move_the_file_refuses_every_use_and_keeps_nothing(
    path: Path, state_url: str
) -> None:
    with pooled(path, STATE):
        pass  # A process that has it open, as `up` does.
    move_to_server(path, state_url, quiet)
    with pytest.raises(StateError, match="was moved to a server: set"), pooled(path, STATE):
        pass
    assert b"quoted" not in path.read_bytes()
    assert list(path.parent.glob("state.sqlite3?*")) == []


def test_who_waits_to_write_while_it_is_moved_writes_nothing(path: Path, state_url: str) -> None:
    with Store(path, STATE) as waiting:
        move_to_server(path, state_url, quiet)
        with (
            pytest.raises(StateError, match="no such table"),
            waiting.transaction() as connection,
        ):
            connection.execute("INSERT INTO notice VALUES ('late', 'lost')")


def test_after_the_way_back_the_server_keeps_nothing_more(path: Path, state_url: str) -> None:
    move_to_server(path, state_url, quiet)
    store.forget_state(path)
    with served(path.parent, state_url) as server:
        with server.use() as session:
            move_to_file(path, state_url, quiet)
            # A process on another machine that had its connection before.
            with (
                pytest.raises(StateError, match="not on this server any more"),
                session.transaction() as connection,
            ):
                connection.execute("INSERT INTO notice VALUES ('late', 'lost')")
        server.close()
    elsewhere = path.parent / "elsewhere"
    with (
        served(elsewhere, state_url),
        pytest.raises(StateError, match="moved away from the server"),
        pooled(elsewhere / STATE_FILE, STATE),
    ):
        pass


@pytest.mark.parametrize("step", ["_compare", "_end_file"])
def test_a_move_that_is_broken_off_changes_nothing_and_can_be_repeated(
    path: Path, state_url: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(path)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(state_move, step, broken)
        with pytest.raises(KeyboardInterrupt):
            move_to_server(path, state_url, quiet)
    assert rows_of(path) == before
    elsewhere = path.parent / "elsewhere"
    if step == "_end_file":
        with (
            served(elsewhere, state_url),
            pytest.raises(StateError, match="did not end: run it once more"),
            pooled(elsewhere / STATE_FILE, STATE),
        ):
            pass
    move_to_server(path, state_url, quiet)
    store.forget_state(path)
    with served(path.parent, state_url):
        assert rows_of(path) == before


def test_a_move_that_is_killed_at_its_last_word_is_completed_by_the_next_use(
    path: Path, state_url: str
) -> None:
    before = rows_of(path)
    move_to_server(path, state_url, quiet)
    with psycopg.connect(state_url) as connection:
        connection.execute("UPDATE skillhouse_state SET standing = 'arriving'")
    store.forget_state(path)
    with served(path.parent, state_url):
        assert rows_of(path) == before


def test_the_way_back_that_is_killed_at_its_last_word_is_completed_by_the_next_try(
    path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(path)
    move_to_server(path, state_url, quiet)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", broken)
        with pytest.raises(KeyboardInterrupt):
            move_to_file(path, state_url, quiet)
    move_to_file(path, state_url, quiet)
    store.forget_state(path)
    assert rows_of(path) == before


def test_a_row_that_postgresql_cannot_keep_is_named_and_nothing_is_moved(
    path: Path, state_url: str
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO notice VALUES ('nul', ?)", ("a\0b",))
    with pytest.raises(StateError, match="a row of `notice` cannot be kept"):
        move_to_server(path, state_url, quiet)
    store.forget_state(path)
    with pooled(path, STATE) as kept:
        assert kept.rows("SELECT count(*) FROM notice") == [(2,)]


def test_a_server_that_has_a_state_takes_no_other(path: Path, state_url: str) -> None:
    elsewhere = path.parent / "elsewhere"
    with served(elsewhere, state_url):
        SettingsStore(elsewhere).set_skill("pdf", enabled=False)
    with pytest.raises(StateError, match="has a state already, of 1 rows"):
        move_to_server(path, state_url, quiet)


def test_a_copy_of_a_server_is_a_state_in_a_file(path: Path, state_url: str) -> None:
    before = rows_of(path)
    move_to_server(path, state_url, quiet)
    store.forget_state(path)
    with served(path.parent, state_url):
        copy = path.parent / "copy" / STATE_FILE
        copy.parent.mkdir(mode=0o700)
        copy_to_file(path, state_url, copy, quiet)
        assert rows_of(path) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert rows_of(copy) == before


def test_the_verb_moves_shows_and_copies(run: Run, place: Path, state_url: str) -> None:
    path = place / "home/.local/state/skillhouse" / STATE_FILE
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    assert run("state")[1].startswith("no state yet; the first use makes ")
    assert run("disable", "weather")[0] == 0
    shown = json.loads(run("state", "show", "--json")[1])
    assert (shown["place"], shown["version"]) == ("file", STATE.version)
    code, _, said = run("state", "move", "--to", state_url)
    assert (code, "cannot ask without a terminal" in said) == (2, True)
    code, out, said = run("state", "move", "--to", state_url, "--yes")
    assert code == 0, said
    assert out.startswith("moved to the server: ")
    # Behind the progress, on a slow machine.
    assert said.endswith(f'now set `url = "{state_url}"` below `[state]`\n')
    code, _, said = run("list")
    assert code != 0
    assert "was moved to a server: set `[state] url`" in said
    store.forget_state(path)
    config.write_text(f'[state]\nurl = "{state_url}"\n')
    assert "2 skills, 1 disabled" in run("list")[1]
    shown = json.loads(run("state", "show", "--json")[1])
    assert (shown["place"], shown["listens"], shown["rows"]) == ("server", "yes", 1)
    assert run("state", "backup", "copy.sqlite3")[0] == 0
    code, out, said = run("state", "move", "--to", "sqlite", "--yes", "--json")
    assert (code, json.loads(out)["rows"]) == (0, 1), said
    assert "moved away" in run("list")[2]
    config.write_text("")
    store.forget_state(path)
    assert "2 skills, 1 disabled" in run("list")[1]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("sqlite", "the state is in a file"),
        ("mysql://db/x", "expected `postgresql://"),
        ("postgresql://a:secret@db/x", "expected no password"),
        ("env:NOT_SET", "in the variable `NOT_SET`"),
    ],
)
def test_what_is_no_address_is_said_before_anything_else(run: Run, to: str, expected: str) -> None:
    code, _, said = run("state", "move", "--to", to, "--yes")
    assert (code, expected in said, "secret" in said) == (2, True, False), said


def test_a_move_to_a_server_that_is_away_says_so_and_moves_nothing(
    path: Path, tmp_path: Path
) -> None:
    before = rows_of(path)
    away = f"postgresql://u@/d?host={tmp_path}"
    with pytest.raises(StateError, match="the state on the server cannot be used"):
        move_to_server(path, away, quiet)
    assert rows_of(path) == before


def test_another_database_than_before_is_refused(
    tmp_path: Path, postgres_server: str, state_url: str
) -> None:
    with served(tmp_path, state_url), pooled(tmp_path / STATE_FILE, STATE):
        pass
    other = new_database(postgres_server)
    with (
        served(tmp_path, other),
        pytest.raises(StateError, match="another state than the one that this machine used"),
        pooled(tmp_path / STATE_FILE, STATE),
    ):
        pass


def test_a_state_in_a_file_is_not_passed_over_for_a_server(tmp_path: Path, state_url: str) -> None:
    # A stop or an end of trust that is in the file would count for nothing.
    Store(tmp_path / STATE_FILE, STATE).close()
    with (
        served(tmp_path, state_url),
        pytest.raises(StateError, match="there is a state in a file as well"),
        pooled(tmp_path / STATE_FILE, STATE),
    ):
        pass

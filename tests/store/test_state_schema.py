"""Tests of store/state_schema.py: old states move forward, and PostgreSQL knows each statement."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from skillhouse.approval import Devices, DeviceSecrets, GrantStore
from skillhouse.floor import StateError
from skillhouse.store import STATE, STATE_FILE, Store
from tests.store.databases import at_version, files_of, number
from tests.store.statements import (
    SIGNER,
    SOURCE,
    Statement,
    Unreadable,
    collected,
    for_postgres,
    state_files,
    words_of_sqlite,
)

OLD = Path(__file__).parents[1] / "data"
LAST_OF_0_1_0 = 43
Rows = list[tuple[object, ...]]


def old_state(path: Path, version: int) -> Path:
    """Make the file that a program of version 0.1.0 left (tests/data/state-VERSION.sql)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((OLD / f"state-{version}.sql").read_text(encoding="utf-8"))
    assert number(path, "PRAGMA user_version") == version
    return path


def content(path: Path, *, order: str) -> dict[str, tuple[list[str], Rows]]:
    """Return the columns and rows of each table; those with the column `order` in its order."""
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        found = {}
        for (name,) in sorted(names):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            by = order if order in (*columns, "rowid") else columns[0]
            rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name} ORDER BY {by}")
            found[name] = (columns, rows.fetchall())
    return found


def in_new_names(
    old: Mapping[str, tuple[list[str], Rows]], new: Mapping[str, tuple[list[str], Rows]]
) -> dict[str, tuple[list[str], Rows]]:
    """Return the new content as the old program's columns show it."""
    found = {}
    for name, (columns, _) in old.items():
        known, rows = new[name]
        at = [known.index("user_name" if column == "user" else column) for column in columns]
        found[name] = (columns, [tuple(row[i] for i in at) for row in rows])
    return found


def test_the_base_is_byte_for_byte_what_the_first_0_1_0_wrote(tmp_path: Path) -> None:
    old = old_state(tmp_path / "old.sqlite3", STATE.base_version)
    Store(tmp_path / "new.sqlite3", at_version(0, STATE)).close()
    query = "SELECT sql FROM sqlite_master ORDER BY name"
    found = []
    for path in (old, tmp_path / "new.sqlite3"):
        with closing(sqlite3.connect(path)) as connection:
            found.append(
                [
                    None if sql is None else textwrap.dedent(sql)
                    for (sql,) in connection.execute(query)
                ]
            )
    assert found[0] == found[1]


@pytest.mark.parametrize("version", [24, LAST_OF_0_1_0])
def test_a_state_of_0_1_0_keeps_every_value_and_the_order_of_its_rows(
    tmp_path: Path, version: int
) -> None:
    path = old_state(tmp_path / STATE_FILE, version)
    before = content(path, order="rowid")
    assert before["approval"][1]
    Store(path, STATE).close()
    after = content(path, order="seq")
    ordered = [name for name, (columns, _) in after.items() if "seq" in columns]
    assert {"approval", "lasting_grant", "device", "session_key"} <= set(ordered)
    shown = in_new_names(before, after)
    # A table without `seq` had no order that anything relied on.
    assert {name: shown[name] for name in ordered if name in shown} == {
        name: before[name] for name in ordered if name in before
    }
    assert {name: sorted(rows, key=repr) for name, (_, rows) in shown.items()} == {
        name: sorted(rows, key=repr) for name, (_, rows) in before.items()
    }
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("version", range(24, LAST_OF_0_1_0 + 1))
def test_a_state_of_every_version_ends_in_the_schema_of_a_new_one(
    tmp_path: Path, version: int
) -> None:
    old, new = tmp_path / "old.sqlite3", tmp_path / "new.sqlite3"
    Store(old, at_version(version - STATE.base_version, STATE)).close()
    assert number(old, "PRAGMA user_version") == version
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"
    found = []
    for path in (old, new):
        with Store(path, STATE) as store:
            found.append(store.rows(query))
    assert found[0] == found[1]


def test_rows_with_gaps_keep_their_order_and_the_next_row_comes_last(tmp_path: Path) -> None:
    path = old_state(tmp_path / STATE_FILE, LAST_OF_0_1_0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE device SET rowid = 900 WHERE name = 'telephone'")
    with Store(path, STATE) as store, store.transaction() as connection:
        connection.execute(
            "INSERT INTO device (id, name, user_name, secret, paired_ms) "
            "VALUES ('0', 'newest', 'mika', 'whsec_AAAA', 1)"
        )
        names = connection.execute("SELECT name FROM device ORDER BY seq").fetchall()
    assert names == [("a tablet",), ("telephone",), ("newest",)]


def test_the_grants_of_0_1_0_are_listed_and_hold_as_before(tmp_path: Path) -> None:
    old_state(tmp_path / STATE_FILE, LAST_OF_0_1_0)
    found = GrantStore(tmp_path).all()
    assert [(one.action, one.pattern, one.user) for one in found] == [
        ("write", "/w/2/", "local"),
        ("skill", "pdf", "mika"),
        ("skill", "pdf", "local"),
        ("skill", "pdf", "local"),
    ]


def test_an_older_program_refuses_the_newer_state_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    Store(path, STATE).close()
    before = files_of(path)
    older = at_version(LAST_OF_0_1_0 - STATE.base_version, STATE)
    expected = f"has version {STATE.version}, this program knows 43: use a newer skillhouse"
    with pytest.raises(StateError, match=expected):
        Store(path, older)
    assert files_of(path) == before


MIGRATES = """
import os, signal, sqlite3, sys
from pathlib import Path
from skillhouse.store import STATE, migrate

class Killed(sqlite3.Connection):
    has_begun = False
    def execute(self, statement, *values):
        # A look at the version comes before, in a transaction of its own.
        self.has_begun = self.has_begun or statement == "BEGIN IMMEDIATE"
        if self.has_begun and statement.startswith(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(statement, *values)

path = Path(sys.argv[1])
migrate(sqlite3.connect(path, isolation_level=None, factory=Killed), STATE, path)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "last", ["DROP TABLE approval", "INSERT INTO search_choice", "PRAGMA user_version =", "COMMIT"]
)
def test_a_kill_in_the_step_leaves_the_old_state_whole(tmp_path: Path, last: str) -> None:
    path = old_state(tmp_path / STATE_FILE, LAST_OF_0_1_0)
    before = content(path, order="rowid")
    ended = subprocess.run([sys.executable, "-c", MIGRATES, str(path), last], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert content(path, order="rowid") == before
    assert number(path, "PRAGMA user_version") == LAST_OF_0_1_0
    Store(path, STATE).close()
    after = in_new_names(before, content(path, order="seq"))
    assert after["approval"] == before["approval"]


OPENS = """
import sys
from pathlib import Path
from skillhouse.store import STATE, Store

sys.stdin.read()
Store(Path(sys.argv[1]), STATE).close()
"""


@pytest.mark.slow
def test_processes_that_migrate_one_state_at_once_lose_nothing(tmp_path: Path) -> None:
    path = old_state(tmp_path / STATE_FILE, LAST_OF_0_1_0)
    before = content(path, order="rowid")
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENS, str(path)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.close()
        opener.stdin = None
    assert [opener.communicate()[1] for opener in openers] == [b""] * 4
    assert [opener.returncode for opener in openers] == [0] * 4
    after = in_new_names(before, content(path, order="seq"))
    assert after["approval"] == before["approval"]
    assert number(path, "PRAGMA user_version") == STATE.version


@cache
def found_in_source() -> list[Statement | Unreadable]:
    return [
        found
        for source in (SOURCE, SIGNER)
        for path in state_files(source)
        for found in collected(
            path.read_text(encoding="utf-8"), path.relative_to(source.parent).as_posix()
        )
    ]


def test_every_statement_of_the_state_can_be_read_from_the_source() -> None:
    found = found_in_source()
    # A statement is made of literals and constants of its module, so that the tests below see it.
    assert [one for one in found if isinstance(one, Unreadable)] == []
    assert len(found) > 100
    assert {
        "skillhouse/approval/ledger.py",
        "skillhouse/tiers/tier_ledger.py",
        "skillhouse_signer/service.py",
    } <= {one.file for one in found}


def test_no_statement_of_the_state_says_what_only_sqlite_understands() -> None:
    said = [
        (one.file, one.line, words)
        for one in found_in_source()
        if isinstance(one, Statement) and (words := words_of_sqlite(one.sql))
    ]
    assert said == []


@pytest.mark.slow
def test_postgresql_prepares_every_statement_of_the_state(
    tmp_path: Path, postgres_server: str
) -> None:
    import psycopg  # noqa: PLC0415 - most tests need no database.

    with Store(tmp_path / STATE_FILE, STATE) as store:
        made = store.rows(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
            "ORDER BY type DESC, name"
        )
    refused = []
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA state_statements")
        connection.execute("SET search_path = state_statements")
        for (sql,) in made:
            connection.execute(for_postgres(sql).encode())
        for at, one in enumerate(found_in_source()):
            assert isinstance(one, Statement)
            try:
                connection.execute(f"PREPARE s{at} AS {for_postgres(one.sql)}".encode())
            except psycopg.Error as error:
                refused.append((one, str(error).partition("\n")[0]))
        # `SELECT user FROM g` is no error there: each such word would be another value in silence.
        reserved = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns, pg_get_keywords() "
            "WHERE table_schema = 'state_statements' AND column_name = word "
            "AND catcode IN ('R', 'T')"
        ).fetchall()
        connection.execute("DROP SCHEMA state_statements CASCADE")
    assert refused == []
    assert reserved == []


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT id, user FROM g", ["user"]),
        ("SELECT g.user FROM g", ["user"]),
        ('DELETE FROM g WHERE "user" = ?', ["user"]),
        ("SELECT id FROM g ORDER BY rowid DESC", ["rowid"]),
        ("SELECT g._rowid_ FROM g", ["rowid"]),
        ("SELECT oid FROM g", ["rowid"]),
        ("INSERT OR IGNORE INTO g VALUES (1)", ["INSERT OR"]),
        ("insert or replace into g values (1)", ["INSERT OR"]),
        ("REPLACE INTO g VALUES (1)", ["INSERT OR"]),
        ("UPDATE OR ABORT g SET a = 1", ["INSERT OR"]),
        ("INSERT INTO g (user_name) VALUES (:user)", []),
        ("UPDATE g SET message = 'the user of rowid' WHERE user_name = ?", []),
    ],
)
def test_the_words_of_sqlite_are_found_in_every_form(sql: str, words: list[str]) -> None:
    assert words_of_sqlite(sql) == words


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('c.execute("SELECT 1")', ["SELECT 1"]),
        ('q = "SELECT 1"\n    if x: q = "SELECT 2"\n    c.rows(q)', ["SELECT 1", "SELECT 2"]),
        ('c.execute("SELECT 1" if x else "SELECT 2")', ["SELECT 1", "SELECT 2"]),
        ('c.execute(f"SELECT {COLUMN} FROM g")', ["SELECT a FROM g"]),
        ('c.execute("SELECT " + COLUMN)', ["SELECT a"]),
        ('q, v = "SELECT 1", x\n    c.execute(q, v)', ["SELECT 1"]),
        ('inner(c, "WHERE b")', ["SELECT a WHERE b"]),
        ("c.execute(OTHER)", None),
        ("c.execute(x)", None),
        ('q = "SELECT 1"\n    q += x\n    c.execute(q)', None),
        ("for q in x:\n        c.execute(q)", None),
        ('c.execute("SELECT {}".format(x))', None),
    ],
)
def test_a_statement_is_read_in_each_form_or_called_unreadable(
    body: str, expected: list[str] | None
) -> None:
    text = 'from other import OTHER\nCOLUMN = "a"\n\ndef outer(c, x):\n    ' + body + "\n"
    if "inner" in body:
        text += '\ndef inner(c, clause):\n    c.execute(f"SELECT {COLUMN} {clause}")\n'
    found = list(collected(text, "a.py"))
    read = [one.sql for one in found if isinstance(one, Statement)]
    assert (None if any(isinstance(one, Unreadable) for one in found) else read) == expected


def test_a_new_module_that_uses_the_state_is_read_without_being_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from skillhouse.store import STATE, pooled\n")
    (tmp_path / "b.py").write_text("from skillhouse import floor, store\n")
    (tmp_path / "c.py").write_text("import json\n")
    (tmp_path / "d.py").write_text("if x:\n    from sqlite3 import Connection\n")
    (tmp_path / "e.py").write_text("from skillhouse import (\n    floor,\n    store,\n)\n")
    (tmp_path / "f.py").write_text("import skillhouse.store.store as kept\n")
    (tmp_path / "g.py").write_text("from shop import store\n")
    assert "".join(path.stem for path in state_files(tmp_path)) == "abdef"


def test_placeholders_and_types_are_postgresqls() -> None:
    assert for_postgres("SELECT a FROM g WHERE b = ? AND c = '?:x' AND d = ?") == (
        "SELECT a FROM g WHERE b = $1 AND c = '?:x' AND d = $2"
    )
    assert for_postgres("INSERT INTO g VALUES (:a, :b, :a)") == "INSERT INTO g VALUES ($1, $2, $1)"
    assert for_postgres("CREATE TABLE g (s INTEGER PRIMARY KEY AUTOINCREMENT, r BLOB)") == (
        "CREATE TABLE g (s BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, r BYTEA)"
    )


def test_devices_of_version_50_keep_their_secrets_and_are_no_apps(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    with (
        Store(path, at_version(50 - STATE.base_version, STATE)) as store,
        store.transaction() as connection,
    ):
        connection.execute(
            "INSERT INTO device (id, name, user_name, secret, paired_ms) "
            "VALUES ('3f0a', 'telephone', 'mika', 'whsec_AAAA', 1)"
        )
    assert number(path, "PRAGMA user_version") == 50
    devices = Devices(tmp_path)
    app = devices.pair_app("phone", user="mika", public_key="BA==")
    old, new = devices.all()
    assert (old.id, old.secret, old.is_app) == ("3f0a", "whsec_AAAA", False)
    assert (new.id, new.secret, new.is_app) == (app.id, "", True)
    assert DeviceSecrets(tmp_path).all() == ("whsec_AAAA",)

"""Tests of store/store.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import StateError, structs
from skillhouse.store import CACHE, STATE, Schema, Store, migrate
from tests.store.databases import NOTES, at_version, execute, files_of, number


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_any_version_moves_forward_and_keeps_its_rows(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "notes.sqlite3"
    with Store(path, at_version(version)) as store, store.transaction() as connection:
        connection.execute("INSERT INTO note (text) VALUES ('kept')")
    with Store(path, NOTES) as store:
        assert store.rows("SELECT text, stars FROM note") == [("kept", 0)]
    assert number(path, "PRAGMA user_version") == 3


@pytest.mark.parametrize("schema", [STATE, CACHE, NOTES], ids=lambda schema: str(schema.name))
def test_a_new_file_has_the_newest_version_and_the_mark_of_its_schema(
    tmp_path: Path, schema: Schema
) -> None:
    path = tmp_path / "new.sqlite3"
    Store(path, schema).close()
    assert number(path, "PRAGMA user_version") == schema.version
    assert number(path, "PRAGMA application_id") == schema.mark


def test_a_step_of_several_statements_is_one_version(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    step = ("ALTER TABLE note RENAME COLUMN stars TO likes", "CREATE TABLE other (text TEXT)")
    schema = structs.replace(NOTES, steps=(*NOTES.steps, step))
    Store(path, NOTES).close()
    with Store(path, schema) as store:
        assert store.rows("SELECT likes FROM note") == store.rows("SELECT text FROM other") == []
    assert number(path, "PRAGMA user_version") == schema.version == 4


def test_a_state_that_no_release_wrote_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    Store(path, STATE).close()
    execute(path, "PRAGMA user_version = 23")
    before = files_of(path)
    with pytest.raises(StateError, match="version 23, which no release wrote"):
        Store(path, STATE)
    assert files_of(path) == before


def test_no_two_schemas_share_a_mark() -> None:
    assert len({schema.mark for schema in (STATE, CACHE, NOTES)}) == 3


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    Store(path, at_version(1)).close()
    before = files_of(path)
    broken = Schema(
        name="notes",
        mark=NOTES.mark,
        disposable=False,
        steps=(*NOTES.steps[:2], "CREATE TABLE note (again TEXT)"),
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="already exists"):
            migrate(connection, broken, path)
        assert not connection.in_transaction
    assert number(path, "PRAGMA user_version") == 1
    assert files_of(path) == before


def test_migrating_twice_is_migrating_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    Store(path, NOTES).close()
    before = files_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, NOTES, path)
    assert files_of(path) == before


class Overtaken(sqlite3.Connection):
    """A connection before whose lock another process migrates the file."""

    path: Path

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        if statement == "BEGIN IMMEDIATE":
            Store(self.path, NOTES).close()
        return super().execute(statement, values)


@pytest.mark.slow
def test_a_file_that_another_process_migrated_meanwhile_is_not_migrated_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.sqlite3"
    path.touch(0o600)
    with closing(sqlite3.connect(path, isolation_level=None, factory=Overtaken)) as connection:
        connection.path = path
        migrate(connection, NOTES, path)
    assert number(path, "PRAGMA user_version") == 3


def test_a_foreign_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "foreign.sqlite3"
    execute(path, "CREATE TABLE recipe (text TEXT)", "PRAGMA user_version = 1")
    before = files_of(path)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        pytest.raises(StateError, match="expected a notes of skillhouse") as caught,
    ):
        migrate(connection, NOTES, path)
    assert caught.value.path == path
    assert files_of(path) == before

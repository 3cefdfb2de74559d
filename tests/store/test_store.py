"""Tests of store/store.py: what must not be lost, and what may be made anew."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from skillhouse.floor import StateError, make_private, structs
from skillhouse.store import (
    CACHE,
    STATE,
    Schema,
    Store,
    close_pooled,
    commit_stamp,
    migrate,
    pooled,
)
from skillhouse.store.store import IDLE_MAX
from tests.store.databases import NOTES, at_version, disposable, execute, files_of, number

CACHED = disposable(NOTES)


def write_note(path: Path, text: str, schema: Schema = NOTES) -> None:
    with Store(path, schema) as store, store.transaction() as connection:
        connection.execute("INSERT INTO note (text) VALUES (?)", (text,))


def notes(path: Path, schema: Schema = NOTES) -> list[str]:
    with Store(path, schema) as store:
        return [row[0] for row in store.rows("SELECT text FROM note ORDER BY rowid")]


def run(store: Store, *statements: str, error: type[Exception] | None = None) -> None:
    """Run a transaction that ends with an error, if one is given."""
    with store.transaction() as connection:
        for statement in statements:
            connection.execute(statement)
        if error is not None:
            raise error


def corrupt(path: Path) -> None:
    path.write_bytes(b"no database at all\n" * 100)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def from_a_newer_program(path: Path) -> None:
    execute(path, "PRAGMA user_version = 99")


def from_another_program(path: Path) -> None:
    path.unlink()
    execute(path, "CREATE TABLE note (recipe TEXT)", "PRAGMA user_version = 3")


def of_another_schema(path: Path) -> None:
    path.unlink()
    Store(path, STATE).close()


SPOILERS = [corrupt, truncate, from_a_newer_program, from_another_program, of_another_schema]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_state_that_cannot_be_used_is_an_error_that_loses_nothing(tmp_path, spoil) -> None:
    path = tmp_path / "state" / "notes.sqlite3"
    write_note(path, "precious")
    spoil(path)
    before = files_of(path)
    for _ in range(2):
        with pytest.raises(StateError, match="notes") as caught:
            notes(path)
        assert caught.value.path == path
    assert files_of(path) == before


def test_newer_state_says_which_version_it_has_and_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    write_note(path, "precious")
    from_a_newer_program(path)
    with pytest.raises(StateError) as caught:
        Store(path, NOTES)
    expected = "the notes has version 99, this program knows 3: use a newer skillhouse"
    assert str(caught.value) == f"{expected}: `{path}`"


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_cache_that_cannot_be_used_is_made_anew(tmp_path, spoil) -> None:
    path = tmp_path / "cache" / "notes.sqlite3"
    write_note(path, "old", CACHED)
    spoil(path)
    write_note(path, "new", CACHED)
    assert notes(path, CACHED) == ["new"]
    assert number(path, "PRAGMA user_version") == 3


def pages_overwritten(path: Path) -> None:
    """Leave the header and what opening looks at, and spoil the pages of the table."""
    data = bytearray(path.read_bytes())
    data[4_096 * 2 :] = b"\xff" * (len(data) - 4_096 * 2)
    path.write_bytes(data)


def many_notes(path: Path, schema: Schema = CACHED) -> None:
    with Store(path, schema) as store, store.transaction() as connection:
        connection.executemany("INSERT INTO note (text) VALUES (?)", [("x" * 900,)] * 100)


def test_a_cache_found_damaged_by_a_query_is_empty_and_usable(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    many_notes(path)
    pages_overwritten(path)
    with Store(path, CACHED) as store:
        assert store.rows("SELECT text FROM note") == []
        with store.transaction() as connection:
            connection.execute("INSERT INTO note (text) VALUES ('new')")
        assert store.rows("SELECT text FROM note") == [("new",)]


def test_a_cache_found_damaged_by_writing_is_an_error_once_and_usable_afterwards(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notes.sqlite3"
    many_notes(path)
    pages_overwritten(path)
    with Store(path, CACHED) as store:
        with pytest.raises(StateError, match="malformed"):
            run(store, "DELETE FROM note")
        assert store.rows("SELECT text FROM note") == []
    write_note(path, "new", CACHED)
    assert notes(path, CACHED) == ["new"]


def test_state_found_damaged_by_a_query_is_an_error_that_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    many_notes(path, NOTES)
    pages_overwritten(path)
    before = files_of(path)
    with Store(path, NOTES) as store, pytest.raises(StateError, match="malformed"):
        store.rows("SELECT text FROM note")
    assert files_of(path) == before


def a_file_in_the_way(directory: Path) -> Path:
    directory.write_text("a file")
    return directory / "notes.sqlite3"


def a_directory_in_its_place(directory: Path) -> Path:
    make_private(directory / "notes.sqlite3" / "below")
    return directory / "notes.sqlite3"


def a_nul_in_the_path(directory: Path) -> Path:
    return Path(f"{directory}\0") / "notes.sqlite3"


@pytest.mark.parametrize("schema", [NOTES, CACHED], ids=["state", "cache"])
@pytest.mark.parametrize("place", [a_file_in_the_way, a_directory_in_its_place, a_nul_in_the_path])
def test_a_place_that_cannot_hold_the_file_is_an_error_and_stays(tmp_path, place, schema) -> None:
    path = place(tmp_path / "place")
    with pytest.raises(StateError, match="the notes cannot be used"):
        Store(path, schema)
    assert len(list(tmp_path.rglob("*"))) == {a_file_in_the_way: 1, a_nul_in_the_path: 0}.get(
        place, 3
    )


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_what_is_in_the_way_beside_the_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "notes.sqlite3"
    Path(f"{path}{suffix}").mkdir()
    if suffix != "-shm":  # Which is for the log alone, and it can be done without.
        with pytest.raises(StateError, match="the notes cannot be used"):
            Store(path, NOTES)
    corrupt(path)
    with pytest.raises(StateError, match="the notes cannot be used"):
        Store(path, CACHED)


def test_a_transaction_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    write_note(path, "first")
    with Store(path, NOTES) as store:
        with pytest.raises(LookupError):
            run(store, "INSERT INTO note (text) VALUES ('second')", error=LookupError)
        with pytest.raises(StateError, match="no such table"):
            run(store, "INSERT INTO note (text) VALUES ('third')", "DELETE FROM unknown")
    assert notes(path) == ["first"]


def test_a_transaction_that_sqlite_ended_itself_reports_the_first_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    Store(path, NOTES).close()
    pages = number(path, "PRAGMA page_count")
    too_much = "INSERT INTO note (text) VALUES (zeroblob(100000))"
    with Store(path, NOTES) as store, pytest.raises(StateError, match="full"):
        run(store, f"PRAGMA max_page_count = {pages}", too_much)
    assert notes(path) == []


def test_a_cache_that_others_hold_is_busy_and_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.store.store.BUSY_SECONDS", 0.01)
    path = tmp_path / "notes.sqlite3"
    write_note(path, "old", CACHED)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Store(path, CACHED) as store, pytest.raises(StateError, match="locked"):
            run(store)
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateError, match="locked"):
            Store(path, CACHED)
        other.execute("COMMIT")
    assert notes(path, CACHED) == ["old"]


def test_a_cache_that_is_being_made_by_others_is_busy_and_is_not_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.store.store.BUSY_SECONDS", 0.01)
    path = tmp_path / "notes.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE theirs (text TEXT)")
        with pytest.raises(StateError, match="locked"):
            Store(path, CACHED)
        other.execute("COMMIT")
    assert number(path, "SELECT count(*) FROM theirs") == 0


def test_a_file_that_somebody_reads_is_used_without_the_log_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.store.store.BUSY_SECONDS", 0.01)
    path = tmp_path / "notes.sqlite3"
    write_note(path, "old")
    execute(path, "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM note").fetchone()
        with Store(path, NOTES) as store:
            assert store.rows("SELECT text FROM note") == [("old",)]
            assert store.rows("PRAGMA journal_mode") == [("delete",)]
        reader.execute("COMMIT")
    with Store(path, NOTES) as store:
        assert store.rows("PRAGMA journal_mode") == [("wal",)]


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "house" / "notes.sqlite3"
    Store(path, NOTES).close()
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_state_is_on_the_disk_when_a_transaction_ends_and_a_cache_need_not_be(
    tmp_path: Path,
) -> None:
    full, off = 2, 0
    for schema, mode, expected in ((STATE, "wal", full), (CACHE, "delete", off)):
        with Store(tmp_path / f"{schema.name}.sqlite3", schema) as store:
            assert store.rows("PRAGMA synchronous") == [(expected,)]
            assert store.rows("PRAGMA journal_mode") == [(mode,)]


WRITER = """
import sys
from pathlib import Path
from skillhouse.store import Schema, Store

path, name = Path(sys.argv[1]), sys.argv[2]
schema = Schema(name="notes", mark=7, disposable=False, steps=("CREATE TABLE note (text TEXT)",))
sys.stdin.read()
for number in range(4):
    with Store(path, schema) as store, store.transaction() as connection:
        connection.execute("INSERT INTO note VALUES (?)", (f"{name} {number}",))
"""


@pytest.mark.slow
def test_eight_processes_that_make_and_fill_one_file_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite3"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(name)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in range(8)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    for writer in writers:
        assert writer.stderr is not None
        with writer.stderr as errors:
            assert errors.read() == b""
        assert writer.wait(timeout=60) == 0
    schema = Schema(name="notes", mark=7, disposable=False, steps=("CREATE TABLE note (text)",))
    assert sorted(notes(path, schema)) == sorted(
        f"{name} {number}" for name in range(8) for number in range(4)
    )


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state.sqlite3"
    yield path
    close_pooled(path)


def descriptors(file: Path) -> int:
    """Return how many descriptors of this process have the file open."""
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{entry}") == str(file)
        except OSError:
            continue
    return found


def test_one_store_serves_thread_after_thread(file: Path) -> None:
    with pooled(file, STATE) as first:
        pass
    with ThreadPoolExecutor(1) as other, pooled(file, STATE) as again:
        assert again is first
        assert other.submit(_rows, file).result() == [(0,)]
    assert descriptors(file) == 2
    close_pooled(file)
    assert descriptors(file) == 0


@pytest.mark.slow
def test_threads_that_make_the_file_together_all_get_it(tmp_path: Path) -> None:
    together = Barrier(IDLE_MAX)

    def work(file: Path) -> list[tuple[int, ...]]:
        together.wait(20)
        return _rows(file)

    with ThreadPoolExecutor(IDLE_MAX) as threads:
        for round_ in range(20):
            file = tmp_path / f"{round_}.sqlite3"
            assert list(threads.map(work, [file] * IDLE_MAX)) == [[(0,)]] * IDLE_MAX
            close_pooled(file)


def test_threads_at_work_have_a_store_each(file: Path) -> None:
    together = Barrier(IDLE_MAX + 2)

    def work(_: int) -> int:
        with pooled(file, STATE) as store:
            together.wait(60)
            return id(store)

    with ThreadPoolExecutor(IDLE_MAX + 2) as threads:
        assert len(set(threads.map(work, range(IDLE_MAX + 2)))) == IDLE_MAX + 2
    close_pooled(file)
    assert descriptors(file) == 0


def test_a_file_that_was_replaced_is_opened_again(file: Path, tmp_path: Path) -> None:
    with pooled(file, STATE) as store, store.transaction() as connection:
        connection.execute("INSERT INTO skill_setting VALUES ('a', 1)")
    other = tmp_path / "other.sqlite3"
    with pooled(other, STATE):
        pass
    close_pooled(other)
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink()
    other.rename(file)
    assert _rows(file) == [(0,)]


def test_a_file_that_is_no_database_any_more_is_an_error(file: Path) -> None:
    with pooled(file, STATE):
        pass
    file.unlink()
    file.write_bytes(b"no database" * 100)
    file.chmod(0o600)
    with pytest.raises(StateError, match="not a database"), pooled(file, STATE):
        pass
    assert file.read_bytes() == b"no database" * 100


def test_a_store_that_failed_is_not_kept_and_one_that_was_interrupted_is_as_it_was(
    file: Path,
) -> None:
    with pytest.raises(StateError), pooled(file, STATE) as store:
        store.rows("SELECT * FROM nothing")
    assert descriptors(file) == 0
    with pytest.raises(KeyboardInterrupt):
        _interrupted(file)
    assert _rows(file) == [(0,)]
    file.unlink()
    with pooled(file, STATE):
        file.unlink()
    assert descriptors(file) == 0


@pytest.mark.slow
def test_a_child_of_a_fork_opens_its_own(file: Path) -> None:
    with pooled(file, STATE) as store, store.transaction() as connection:
        connection.execute("INSERT INTO skill_setting VALUES ('a', 1)")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pooled(file, STATE) as own:
                status = 0 if own is not store and own.rows(_COUNT) == [(1,)] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(_COUNT).fetchall() == [(1,)]
    assert _rows(file) == [(1,)]


def _interrupted(file: Path) -> None:
    with pooled(file, STATE) as store, store.transaction() as connection:
        connection.execute("INSERT INTO skill_setting VALUES ('a', 1)")
        raise KeyboardInterrupt


_COUNT = "SELECT count(*) FROM skill_setting"


def _rows(file: Path) -> list[tuple[int, ...]]:
    with pooled(file, STATE) as store:
        return store.rows(_COUNT)


def unwritable(path: Path) -> None:
    """Leave no way to make the index without which SQLite reads no file that has a log.

    On a read-only file system SQLite meets the same (tests/frontends/test_cli_unwritable_homes.py).
    """
    path.with_name(f"{path.name}-shm").symlink_to("nothing")


def test_state_that_cannot_be_written_is_read_and_a_change_names_the_setting(tmp_path: Path):
    path = tmp_path / "notes"
    write_note(path, "one")
    unwritable(path)
    before = path.read_bytes()
    with Store(path, NOTES) as store:
        assert store.rows("SELECT text FROM note") == [("one",)]
        with pytest.raises(StateError, match=f"`{path}`; set SKILLHOUSE_STATE_DIRECTORY to"):
            run(store, "INSERT INTO note (text) VALUES ('two')")
    assert path.read_bytes() == before


def test_state_of_an_older_version_is_read_where_it_cannot_be_brought_up_to_date(tmp_path: Path):
    path = tmp_path / "notes"
    write_note(path, "old", at_version(1))
    execute(path, "PRAGMA journal_mode = WAL")
    unwritable(path)
    with Store(path, NOTES) as store:
        assert store.rows("SELECT text, stars FROM note") == [("old", 0)]
    assert b"stars" not in path.read_bytes()


def test_what_is_in_a_log_alone_is_not_passed_over_where_nothing_can_be_written(tmp_path: Path):
    path = tmp_path / "notes"
    write_note(path, "trusted")
    with Store(path, NOTES) as writer:
        run(writer, "UPDATE note SET text = 'revoked'")
        kept = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    copied = tmp_path / "copied" / "notes"
    make_private(copied.parent)
    for suffix, data in kept.items():
        Path(f"{copied}{suffix}").write_bytes(data)
        Path(f"{copied}{suffix}").chmod(0o600)
    unwritable(copied)
    with pytest.raises(StateError, match=r"cannot be used: .*; set SKILLHOUSE_STATE_DIRECTORY to"):
        Store(copied, NOTES)
    # With the index that SQLite makes of the log, it is read.
    assert notes(path) == ["revoked"]


def test_a_newer_file_that_cannot_be_written_is_refused_as_any_other(tmp_path: Path):
    path = tmp_path / "notes"
    write_note(path, "one")
    from_a_newer_program(path)
    unwritable(path)
    with pytest.raises(StateError, match="has version 99, this program knows 3"):
        Store(path, NOTES)


def test_a_copy_is_of_one_use_as_others_may_write(tmp_path: Path):
    path = tmp_path / "notes"
    write_note(path, "one")
    unwritable(path)
    with pooled(path, NOTES) as first:
        assert isinstance(first, Store)
        assert first.is_copy
    path.with_name(f"{path.name}-shm").unlink()
    write_note(path, "two")
    with pooled(path, NOTES) as second:
        assert len(second.rows("SELECT text FROM note")) == 2
        assert isinstance(second, Store)
        assert not second.is_copy
    close_pooled(path)


def test_a_database_that_is_gone_has_no_stamp_whatever_is_left_of_its_log(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    assert commit_stamp(file) == ()
    (tmp_path / "state.db-wal").write_bytes(b"left")
    assert commit_stamp(file) == ()
    file.write_bytes(b"")
    assert len(commit_stamp(file)) == 6


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

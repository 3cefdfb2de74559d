"""Tests of store/pool.py."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from skillhouse.floor import StateError
from skillhouse.store import STATE, close_pooled, pooled
from skillhouse.store.pool import IDLE_MAX


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


def test_threads_at_work_have_a_store_each(file: Path) -> None:
    together = Barrier(IDLE_MAX + 2)

    def work(_: int) -> int:
        with pooled(file, STATE) as store:
            together.wait()
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
    with sqlite3.connect(file) as connection:
        assert connection.execute(_COUNT).fetchall() == [(1,)]
    connection.close()
    assert _rows(file) == [(1,)]


def _interrupted(file: Path) -> None:
    with pooled(file, STATE) as store, store.transaction() as connection:
        connection.execute("INSERT INTO skill_setting VALUES ('a', 1)")
        raise KeyboardInterrupt


_COUNT = "SELECT count(*) FROM skill_setting"


def _rows(file: Path) -> list[tuple[int, ...]]:
    with pooled(file, STATE) as store:
        return store.rows(_COUNT)

"""Reading a database's files beside SQLite must not end the locks that SQLite holds on them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled
from tests.harness import ran

# What SQLite does first when it opens an index: a process that gets the lock on this byte alone
# believes that nobody has the database open, and truncates the index (os_unix.c, UNIX_SHM_DMS).
TAKES_OVER = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
except OSError:
    print("held")
else:
    print("taken")
"""


def another_process(index: Path) -> str:
    command = [sys.executable, "-c", TAKES_OVER, str(index)]
    return ran(command, check=True).stdout.strip()


@pytest.mark.slow
def test_the_stamp_of_the_state_keeps_the_locks_of_sqlite(tmp_path: Path) -> None:
    state = tmp_path / "state"
    index = state / f"{STATE_FILE}-shm"
    with pooled(state / STATE_FILE, STATE) as store:
        store.rows("SELECT count(*) FROM device")
        assert another_process(index) == "held"
        before = commit_stamp(state / STATE_FILE)
        assert another_process(index) == "held"
        with store.transaction() as connection:
            connection.execute("INSERT INTO tier_mark VALUES ('a', 1)")
        assert commit_stamp(state / STATE_FILE) != before
        assert another_process(index) == "held"
        # Naively: any descriptor that is closed takes the locks of the whole process along.
        index.read_bytes()
        assert another_process(index) == "taken"

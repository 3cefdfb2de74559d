"""What a state on a server costs: its transactions, and calls that are decided by it.

`./x bench state [--rounds N] [--url URL]` measures wall time, rounds interleaved, medians and the
least, in one process. Without URL, an empty database, it starts a PostgreSQL of its own on a
socket, with `fsync` as it is by default. "The same statements" are what we send, sent by bare
psycopg: the lock of all writers, two statements, the counter and its notice. "Bare" has the two.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import psycopg

from _measure import Case, in_turns, markdown_table
from skillhouse import store
from skillhouse.extensions.postgres.state_server import PostgresState
from skillhouse.extensions.postgres.state_session import BEGIN, COMMIT
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.store import STATE, STATE_FILE, pooled

TRANSACTION_TARGET = 1.3
"""Most of a transaction beside the same statements."""
CALL_TARGET_MS = 2.0
"""Most that an allowed call may take more, median (the same issue)."""
READ = "SELECT text FROM notice WHERE name = 'a'"
WRITE = "UPDATE notice SET text = text WHERE name = 'a'"
ALLOW = (Rule(effect=Effect.ALLOW, action="*", pattern="*"),)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a state on a server.")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--url", help="an empty database")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, empty_database(options.url) as url:
        anyio.run(_measured, Path(made), url, options.rounds)


async def _measured(base: Path, url: str, rounds: int) -> None:
    on_server, in_file = base / "server", base / "file"
    houses = {name: _house(base / name) for name in ("server", "file")}
    path = houses["server"].config.state_directory / STATE_FILE
    store.serve_state(path, lambda: PostgresState(path, lambda: url))
    paths = {
        "server": path,
        "file": houses["file"].config.state_directory / STATE_FILE,
    }
    for one in paths.values():
        with pooled(one, STATE) as kept, kept.transaction() as connection:
            connection.execute("INSERT INTO notice VALUES ('a', 'text')")
    cases = {
        "transaction, server": _transaction(paths["server"]),
        "transaction, file": _transaction(paths["file"]),
        "the same statements, psycopg": _same(url),
        "bare transaction, psycopg": _bare(url),
        "look, server": _look(paths["server"]),
        "look, file": _look(paths["file"]),
        "stamp, server": _stamp(paths["server"]),
        "stamp, file": _stamp(paths["file"]),
        "allowed write, server": _call(houses["server"], on_server),
        "allowed write, file": _call(houses["file"], in_file),
        "allowed read, server": _read(houses["server"]),
        "allowed read, file": _read(houses["file"]),
    }
    taken = await in_turns(cases, rounds)
    found = {name: (statistics.median(took), min(took)) for name, took in taken.items()}
    rows = [(name, f"{m:,.0f} µs", f"{least:,.0f} µs") for name, (m, least) in found.items()]
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg()[:2])
    print(f"{rounds} rounds; load of the last 1 and 5 minutes: {load}\n")
    print(markdown_table(("case", "median", "least"), rows))
    ours, same = found["transaction, server"], found["the same statements, psycopg"]
    bare = found["bare transaction, psycopg"]
    print(
        f"\ntransaction beside the same statements: {ours[0] / same[0]:.2f} median, "
        f"{ours[1] / same[1]:.2f} least (target {TRANSACTION_TARGET}); beside bare ones: "
        f"{ours[0] / bare[0]:.2f} and {ours[1] / bare[1]:.2f}"
    )
    for kind in ("write", "read"):
        more = [
            (found[f"allowed {kind}, server"][at] - found[f"allowed {kind}, file"][at]) / 1_000
            for at in (0, 1)
        ]
        print(
            f"an allowed {kind} takes more: {more[0]:.2f} ms median, {more[1]:.2f} ms least "
            f"(target {CALL_TARGET_MS} ms)"
        )
    for house in houses.values():
        house.close()
    store.forget_state(path)


def _house(base: Path) -> Skillhouse:
    for name in ("home", "project/.git"):
        (base / name).mkdir(parents=True)
    (base / "project/a.txt").write_text("a line of an ordinary file\n" * 150)
    places = Locations(
        start=base / "project", home=base / "home", environment={}, managed_file=base / "managed"
    )
    layer = Layer(name="user", rules=ALLOW)
    return Skillhouse(configured(places), layers=(layer,))


def _transaction(path: Path) -> Case:
    async def case() -> None:
        with pooled(path, STATE) as kept, kept.transaction() as connection:
            connection.execute(READ).fetchall()
            connection.execute(WRITE)

    return case


def _look(path: Path) -> Case:
    async def case() -> None:
        with pooled(path, STATE) as kept:
            kept.rows(READ)

    return case


def _stamp(path: Path) -> Case:
    async def case() -> None:
        store.commit_stamp(path)

    return case


def _same(url: str) -> Case:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    async def case() -> None:
        connection.execute(BEGIN.encode())
        connection.execute(READ).fetchall()
        connection.execute(WRITE)
        connection.execute(COMMIT.encode())

    return case


def _bare(url: str) -> Case:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    async def case() -> None:
        with connection.transaction():
            connection.execute(READ).fetchall()
            connection.execute(WRITE)

    return case


def _call(house: Skillhouse, base: Path) -> Case:
    path = base / "project/made.txt"

    async def case() -> None:
        path.unlink(missing_ok=True)
        result = await house.call("write", {"path": "made.txt", "content": "text"})
        assert not result.is_error, result.content

    return case


def _read(house: Skillhouse) -> Case:
    async def case() -> None:
        result = await house.call("read", {"path": "a.txt"})
        assert not result.is_error, result.content

    return case


@contextlib.contextmanager
def empty_database(given: str | None) -> Iterator[str]:
    """Give the address of an empty database."""
    if given:
        yield given
        return
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        raise SystemExit("no PostgreSQL server is installed; give --url")
    user = pwd.getpwuid(os.geteuid())
    if user.pw_uid == 0:
        # Under the superuser PostgreSQL refuses to start.
        user = pwd.getpwnam("postgres")
    place = Path(tempfile.mkdtemp(prefix="skh-bench-"))
    os.chown(place, user.pw_uid, user.pw_gid)
    identity = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs[-1] / program, *arguments],
            check=True,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C"},
            **identity,  # type: ignore[call-overload] # Both are numbers.
        )

    data = str(place / "data")
    try:
        run("initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={place}"
        run("pg_ctl", "-D", data, "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            yield f"postgresql://bench@/postgres?host={place}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()

"""A PostgreSQL of the tests' own: a cluster on a socket, in a directory of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.machines import as_user

USERS = ("postgres", "nobody")
"""Who runs it where the tests are the superuser's, under whom PostgreSQL refuses to start."""


PROGRAMS_VARIABLE = "SKILLHOUSE_TEST_POSTGRESQL"
"""Names the folder of another server's programs."""


def program(name: str) -> str | None:
    """Return a program of PostgreSQL's server; Debian keeps them off the path."""
    if own := os.environ.get(PROGRAMS_VARIABLE):
        return shutil.which(name, path=own)
    found = shutil.which(name)
    if found is not None:
        return found
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else None


@contextmanager
def cluster(
    package: Path | None = None, *, prefix: Sequence[str] = (), listens: str = ""
) -> Iterator[str]:
    """Run a cluster for a block; gives the connection string.

    Args:
        package: An installed package that has another PostgreSQL than the system's.
        prefix: A command of the superuser's that runs its programs, as in another namespace.
        listens: An address at which every other one of its network may use it, too.
    """
    user = pwd.getpwuid(os.geteuid())
    if user.pw_uid == 0:
        user = next(pwd.getpwnam(name) for name in USERS if _is_user(name))
    # Not below pytest's directory, which another user cannot enter; a socket's path is short.
    place = Path(tempfile.mkdtemp(prefix="skh-pg-"))
    try:
        os.chown(place, user.pw_uid, user.pw_gid)
        data = place / "data"
        programs = {name: program(name) for name in ("initdb", "pg_ctl")}
        if package is not None:
            # Where the user who runs it can read it, beside its libraries.
            for part in package.parent.glob(f"{package.name}*"):
                shutil.copytree(part, place / part.name, symlinks=True)
            bins = place / package.name / "pginstall" / "bin"
            programs = {name: str(bins / name) for name in programs}
        initdb, pg_ctl = programs["initdb"], programs["pg_ctl"]
        assert initdb is not None
        assert pg_ctl is not None

        def run(*command: str) -> None:
            identity = as_user(user.pw_uid if os.geteuid() == 0 else 0)
            subprocess.run(
                [*prefix, *identity, *command],
                check=True,
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C"},
            )

        run(initdb, "-D", str(data), "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        if listens:
            with (data / "pg_hba.conf").open("a") as file:
                file.write("host all all samenet trust\n")
        options = f"-c listen_addresses='{listens}' -c unix_socket_directories={place} -c fsync=off"
        run(pg_ctl, "-D", str(data), "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            yield f"host={place} user=tests dbname=postgres"
        finally:
            run(pg_ctl, "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def restart(address: str) -> None:
    """Restart a cluster of `cluster` as after a crash: without a word to who uses it."""
    place = Path(address.partition("host=")[2].partition(" ")[0])
    user = place.stat()
    identity = {"user": user.st_uid, "group": user.st_gid} if os.geteuid() == 0 else {}
    subprocess.run(
        [str(program("pg_ctl")), "-D", str(place / "data"), "-w", "-m", "immediate", "restart"],
        check=True,
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C"},
        **identity,  # type: ignore[call-overload] # Both are numbers.
    )


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True

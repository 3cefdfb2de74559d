"""A PgBouncer of the tests' own before a server of theirs, as platform teams have it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.extensions.postgres.state_servers import database_of
from tests.postgres import USERS


@contextmanager
def pooler(program: str, server: str, url: str) -> Iterator[str]:
    """Run a PgBouncer in transaction mode for a block; give the URL of a database behind it."""
    found = re.fullmatch(r"host=(\S+) user=(\S+) dbname=\S+", server)
    assert found, server
    place = Path(tempfile.mkdtemp(prefix="skh-pgb-"))
    try:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (place / "users").write_text(f'"{found[2]}" ""\n')
        (place / "ini").write_text(
            f"[databases]\n* = host={found[1]} user={found[2]}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"auth_file = {place / 'users'}\npool_mode = transaction\ndefault_pool_size = 3\n"
            f"logfile = {place / 'log'}\npidfile = {place / 'pid'}\n"
        )
        user = next(
            one
            for one in (pwd.getpwuid(os.geteuid()), *map(pwd.getpwnam, USERS))
            if one.pw_uid != 0
        )
        for path in (place, *place.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
        identity = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}
        process = subprocess.Popen(
            [program, "-q", str(place / "ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **identity,  # type: ignore[call-overload] # Both are numbers.
        )
        try:
            _wait_for(port, process, place / "log")
            yield f"postgresql://{found[2]}@127.0.0.1:{port}/{database_of(url)}"
        finally:
            process.terminate()
            process.wait(10)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text() if log.exists() else "no log"
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("PgBouncer did not start")

"""What a chaos test breaks: a network, a pair of PostgreSQL servers, a disk, and what it counts.

A `Cut` is a network of the test's own in front of one server. `DatabasePair` is a primary and a
standby that take each other's place. `SmallDisk` is a directory on a disk that can be filled.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.machines import as_user
from tests.postgres import USERS, program

PASS, REFUSE, HANG, MUTE = "pass", "refuse", "hang", "mute"
"""Of a network: as it should be; every connection ended, and none taken; nothing passes, and
nothing is said of it; what is asked arrives, and no answer comes back."""
DISK_BYTES, DATABASE_BYTES = 6 << 20, 256 << 20


class Cut:
    """Passes connections on to a port of loopback or the path of a socket, until it is cut."""

    def __init__(self, target: int | str) -> None:
        self.target = target
        self.mode = PASS
        self._changed = threading.Condition()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._muted: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: str) -> None:
        with self._changed:
            self.mode = mode
            # Of a connection that lost an answer nothing further would make sense.
            ended = set(self._pairs) if mode == REFUSE else set(self._muted)
            self._muted -= ended
            pairs = [(near, self._pairs.get(near)) for near in ended]
            self._changed.notify_all()
        for near, far in pairs:
            _shut(near)
            if far is not None:
                _shut(far)

    def close(self) -> None:
        self._listener.close()
        self.set(REFUSE)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.mode != HANG)
            is_refused = self.mode == REFUSE
        far = None if is_refused else self._connected()
        if far is None:
            near.close()
            return
        with self._changed:
            self._pairs[near] = far
        back = threading.Thread(target=self._copy, args=(far, near, near), daemon=True)
        back.start()
        self._copy(near, far, None)
        back.join()
        with self._changed:
            self._pairs.pop(near, None)
            self._muted.discard(near)
        near.close()
        far.close()

    def _connected(self) -> socket.socket | None:
        target: Any = self.target
        is_port = isinstance(target, int)
        far = socket.socket(socket.AF_INET if is_port else socket.AF_UNIX)
        try:
            far.settimeout(5)
            far.connect(("127.0.0.1", target) if is_port else target)
        except OSError:
            far.close()
            return None
        return far

    def _copy(
        self, source: socket.socket, target: socket.socket, answers: socket.socket | None
    ) -> None:
        """Copy one way; `answers` is the near end where this is the way back."""
        with contextlib.suppress(OSError):
            source.settimeout(None)
            while data := source.recv(65_536):
                with self._changed:
                    self._changed.wait_for(lambda: self.mode != HANG)
                    if self.mode == MUTE and answers is not None:
                        self._muted.add(answers)
                        continue
                target.sendall(data)
        _shut(target)
        if answers is not None:
            _shut(source)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


class SmallDisk:
    """A directory on a disk of its own, in a mount namespace that a process holds open."""

    def __init__(self, directory: Path, size: int = DISK_BYTES) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        script = 'mount -t tmpfs -o size="$2",mode=700 tmpfs "$1" && echo && exec sleep 100000'
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
             str(directory), str(size)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline(), "no disk could be mounted"
        self.directory = Path(f"/proc/{self._holder.pid}/root{directory}")
        """The same directory, as this process sees it."""
        self.prefix = ("nsenter", "-t", str(self._holder.pid), "--mount", "sh", "-c",
                       'cd "$0" && exec "$@"')  # fmt: skip
        """Runs a program where the disk is, in the directory that comes next."""

    def fill(self) -> None:
        """Leave no room at all."""
        with open(self.directory / "filler", "ab", buffering=0) as file:
            for size in (65_536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def empty(self) -> None:
        (self.directory / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class DatabasePair:
    """A primary and a standby that is told of each commit before it is answered.

    Each listens on a socket of its own. Without synchronous replication a fail-over may lose
    commits that were answered, and with them that an approval was used.
    """

    def __init__(self, *, has_disk: bool = False) -> None:
        """Start both; `has_disk` gives each a disk of its own, which can be filled."""
        user = pwd.getpwuid(os.geteuid())
        if user.pw_uid == 0:
            known = {one.pw_name: one for one in pwd.getpwall()}
            user = next(known[name] for name in USERS if name in known)
        self._user = user
        self.place = Path(tempfile.mkdtemp(prefix="skh-chaos-"))
        os.chown(self.place, user.pw_uid, user.pw_gid)
        self.primary, self.standby = "a", "b"
        self._disks = {
            name: SmallDisk(self.place / name, DATABASE_BYTES) for name in ("a", "b") if has_disk
        }
        for disk in self._disks.values():
            os.chown(disk.directory, user.pw_uid, user.pw_gid)
        # Small pieces of the log, of which a full disk leaves no room for the next.
        self._run("a", "initdb", "-D", str(self._data("a")), "-U", "tests", "-A", "trust",
                  "-E", "UTF8", "--no-sync", "--wal-segsize=1")  # fmt: skip
        with self._seen("a", "postgresql.conf").open("a") as file:
            file.write("synchronous_standby_names = '*'\nmax_connections = 100\n")
            file.write("min_wal_size = 4MB\nmax_wal_size = 16MB\nwal_recycle = off\n")
        self._start("a")
        self._follow()

    def socket_of(self, name: str) -> str:
        return str(self.place / f"sock-{name}" / ".s.PGSQL.5432")

    def server(self) -> str:
        """Return where the primary is, as `tests.postgres.cluster` gives it."""
        return f"host={self.place}/sock-{self.primary} user=tests dbname=postgres"

    def restart(self, mode: str) -> None:
        """Restart the primary: `fast`, as by an administrator, or `immediate`, as after a crash."""
        self._end(self.primary, mode)
        self._start(self.primary)

    def fail_over(self) -> None:
        """End the primary for good, promote the standby, and give it a standby of its own."""
        self._end(self.primary, "immediate")
        self._run(self.standby, "pg_ctl", "-D", str(self._data(self.standby)), "-w", "promote")
        self.primary, self.standby = self.standby, self.primary
        self._follow()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Freeze every process of the primary for a block."""
        first = int(self._seen(self.primary, "postmaster.pid").read_text().split()[0])
        found = [first]
        for task in Path(f"/proc/{first}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room on the disk of the primary for a block; it may end of that."""
        disk = self._disks[self.primary]
        disk.fill()
        try:
            yield
        finally:
            disk.empty()
        try:
            self._run(self.primary, "pg_ctl", "-D", str(self._data(self.primary)), "status")
        except subprocess.CalledProcessError:
            self._start(self.primary)

    def close(self) -> None:
        for name in ("a", "b"):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._end(name, "immediate")
        for disk in self._disks.values():
            disk.close()
        shutil.rmtree(self.place, ignore_errors=True)

    def _data(self, name: str) -> Path:
        """Return the directory of a server's files, as the server sees it."""
        return self.place / name / "data"

    def _seen(self, name: str, file: str = "") -> Path:
        """Return one of its files, as this process sees it."""
        disk = self._disks.get(name)
        return (disk.directory if disk else self.place / name) / "data" / file

    def _follow(self) -> None:
        """Make the standby from the primary."""
        shutil.rmtree(self._seen(self.standby), ignore_errors=True)
        self._run(self.standby, "pg_basebackup", "-h", str(self.place / f"sock-{self.primary}"),
                  "-U", "tests", "-D", str(self._data(self.standby)), "-R", "-c", "fast",
                  "--no-sync")  # fmt: skip
        self._start(self.standby)

    def _end(self, name: str, mode: str) -> None:
        self._run(name, "pg_ctl", "-D", str(self._data(name)), "-w", "-m", mode, "stop")

    def _start(self, name: str) -> None:
        directory = Path(self.socket_of(name)).parent
        directory.mkdir(exist_ok=True)
        os.chown(directory, self._user.pw_uid, self._user.pw_gid)
        options = f"-c listen_addresses='' -c unix_socket_directories={directory} -c fsync=off"
        self._run(name, "pg_ctl", "-D", str(self._data(name)), "-w", "-l",
                  str(self.place / f"log-{name}"), "-o", options, "start")  # fmt: skip

    def _run(self, server: str, name: str, *words: str) -> None:
        disk = self._disks.get(server)
        prefix = (*disk.prefix, str(self.place)) if disk else ()
        subprocess.run(
            [*prefix, *as_user(self._user.pw_uid if os.geteuid() == 0 else 0),
             str(program(name)), *words],
            check=True,
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "HOME": str(self.place), "LC_ALL": "C"},
        )  # fmt: skip


class EffectCounter:
    """A server that writes a line for each request: the effect of a call, as others see it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        counter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                counter._note(self.path)
                time.sleep(int(self.path.rpartition("/")[2]) / 1000)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None: ...

            def handle(self) -> None:
                # Who asked may be gone.
                with contextlib.suppress(OSError):
                    super().handle()

        file.touch()
        self._lock = threading.Lock()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _note(self, path: str) -> None:
        with self._lock, self._file.open("a") as file:
            file.write(f"{time.time():.3f} {path}\n")

    def words(self, kind: str) -> Counter[str]:
        """Return how often each word of a kind was executed."""
        lines = self._file.read_text().splitlines()
        paths = [line.split(" ", 1)[1].split("/") for line in lines]
        return Counter(path[2] for path in paths if path[1] == kind)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

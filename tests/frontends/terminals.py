"""A command at a real terminal, in a process of its own: keys go in, the screen comes out."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from pathlib import Path

from tests.extensions.postgres.started import with_state

PATIENCE_SECONDS = 60
_START = """
import sys
from pathlib import Path
from skillhouse.frontends.cli import main, person
person.PROC = Path(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


class Seat:
    """A person at a terminal of so many columns and lines."""

    def __init__(
        self, place: Path, *arguments: str, columns: int = 80, lines: int = 24, **variables: str
    ) -> None:
        # No coding agent runs it, whoever runs the tests.
        program = [sys.executable, "-c", _START, str(place / "no-processes"), *arguments]
        given = with_state({**os.environ, "TERM": "xterm", **variables}) or {}
        self.pid, self._ours = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.environ.pop("COLUMNS", None)
            os.environ.update(given)
            os.execv(program[0], program)
        self.said = b""
        """Everything that was shown, with its codes."""

    def until(self, mark: str) -> str:
        """Wait for a text, and return what was shown up to its end."""
        wanted = mark.encode()
        while wanted not in self.said:
            if not (data := self._read()):
                raise AssertionError(f"no {mark!r} in {self.text!r}")
            self.said += data
        seen, _, self.said = self.said.partition(wanted)
        return (seen + wanted).decode("utf-8", "replace")

    @property
    def text(self) -> str:
        return self.said.decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def is_raw(self) -> bool:
        """Whether keys arrive one by one and unseen."""
        flags = termios.tcgetattr(self._ours)[3]
        return not flags & termios.ECHO and not flags & termios.ICANON

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        while data := self._read():
            self.said += data
        _, status = os.waitpid(self.pid, 0)
        os.close(self._ours)
        return os.waitstatus_to_exitcode(status)

    def _read(self) -> bytes:
        if not select.select([self._ours], [], [], PATIENCE_SECONDS)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"nothing more came after {self.text!r}")
        try:
            return os.read(self._ours, 65_536)
        except OSError:  # EIO: the other side is closed.
            return b""

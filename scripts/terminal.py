"""A newcomer's machine: skillhouse installed from a wheel, an empty home, and a terminal.

The tests of the guides and the recording in docs/images type their commands here. A command has a
pseudo-terminal of its own, so it asks what it would ask a person; what follows reads the working
directory and the exported variables that it left.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import os
import pty
import re
import shutil
import signal
import string
import struct
import subprocess
import sys
import sysconfig
import termios
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".x/uv/bin/uv"
SHOWN_HOME = "/home/me"
"""What the guides call the home directory."""

COLUMNS = 80
LONGEST_SECONDS = 120
"""A command that takes longer waits for something that does not come."""

_QUESTION = re.compile(
    r"(?:\(y, n\)|tools \[all\]:|Allow\? \([^)\n]*\)|(?:[Pp]assword|once more)[^\n]*:"
    r"|Type `(?P<word>\w+)`[^\n]*:) $"
)
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# Without a terminal of its own a program could ask nobody: this one makes stdin that terminal.
_LAUNCH = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
# Each script begins where the last one ended; `export -p` prints what bash reads.
_AROUND = """[ -e "$STATE/env" ] && . "$STATE/env"
cd "$(cat "$STATE/cwd")"
trap 'status=$?; pwd >"$STATE/cwd"; export -p >"$STATE/env"; exit $status' EXIT
. "$STATE/script"
"""
_GIT = "[user]\n\tname = Me\n\temail = me@example.com\n[init]\n\tdefaultBranch = main\n"


def install(into: Path) -> Path:
    """Build the wheel of this tree, install it into a new environment, and return its programs.

    Its dependencies are those of the environment that runs this: nothing is fetched.
    """
    quiet = ("--quiet", "--offline")
    wheels, environment = into / "wheels", into / "env"
    _run(UV, "build", *quiet, "--wheel", "--no-build-isolation", "--python", sys.executable,
         "--out-dir", wheels, ROOT)  # fmt: skip
    _run(UV, "venv", *quiet, "--python", sys.executable, environment)
    (wheel,) = wheels.glob("*.whl")
    python = environment / "bin/python"
    # A directory that a .pth file names brings its packages, and no .pth file of its own: the
    # editable skillhouse of that environment is not found.
    pure = Path(sysconfig.get_path("purelib"))
    inside = environment / pure.relative_to(Path(sys.prefix))
    (inside / "dependencies.pth").write_text(f"{pure}\n", encoding="utf-8")
    _run(UV, "pip", "install", *quiet, "--no-deps", "--python", python, wheel)
    return environment / "bin"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[1]} failed: {done.stderr}")


@contextmanager
def short_home() -> Iterator[Path]:
    """Make a home whose path is as long as `SHOWN_HOME`, so that lines break in the same places."""
    letters = string.ascii_lowercase + string.digits
    start = os.getpid() * 7
    names = ["".join(name) for name in itertools.product(letters, repeat=3)]
    for offset in range(len(names)):
        home = Path("/tmp", names[(start + offset) % len(names)])
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700)
            break
    else:
        raise RuntimeError("no name is free below /tmp")
    try:
        yield home
    finally:
        shutil.rmtree(home, onerror=_made_writable)


def _made_writable(remove: Callable[[str], object], name: str, _: object) -> None:
    """Remove what is below a directory that is read-only, as environments of skills are."""
    os.chmod(Path(name).parent, 0o700)
    remove(name)


@dataclass
class Done:
    """What a script printed, as the terminal shows it, and its exit code."""

    output: str
    status: int
    raw: str = ""
    """The same with the escapes for colours."""


@dataclass
class Terminal:
    """A person at a terminal in an empty home."""

    home: Path
    programs: Path
    """Directory of the installed `skillhouse`; its Python is `python` here."""

    more: Mapping[str, str] = field(default_factory=dict)
    """Further variables."""

    path: tuple[Path, ...] = ()
    """Directories of programs that come before those of the system."""

    def __post_init__(self) -> None:
        self.state = self.home.with_name(f"{self.home.name}-state")
        self.state.mkdir(mode=0o700)
        (self.home / ".gitconfig").write_text(_GIT, encoding="utf-8")
        work = self.home / "work"
        work.mkdir()
        (self.state / "cwd").write_text(str(work), encoding="utf-8")
        self._running: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def close(self) -> None:
        """End what still runs."""
        for process, reader in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            reader.join()
        self._running.clear()
        shutil.rmtree(self.state)

    @property
    def cwd(self) -> Path:
        """Return where the next command runs."""
        return Path((self.state / "cwd").read_text(encoding="utf-8").strip())

    def variables(self) -> dict[str, str]:
        path = [self.programs, *self.path, *os.defpath.split(os.pathsep), Path(UV.parent)]
        return {
            "HOME": str(self.home),
            "PATH": os.pathsep.join(map(str, path)),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "STATE": str(self.state),
            **self.more,
        }

    def run(self, script: str, answer: Callable[[str], str] | None = None) -> Done:
        """Run lines of bash to their end, and answer what is asked.

        Args:
            script: The lines; they do not stop at an error unless they say so.
            answer: Gives the answer to a question, which is the line so far; else `word_of` does.
        """
        raw = bytearray()
        process, reader = self._start(script, answer or word_of, raw.extend)
        try:
            status = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            so_far = self.seen(raw.decode(errors="replace"))
            raise RuntimeError(f"it does not end:\n{script}\n{so_far}") from None
        reader.join()
        text = raw.decode(errors="replace")
        return Done(self.seen(text), status, text.replace(str(self.home), SHOWN_HOME))

    def begin(self, script: str, until: str, answer: Callable[[str], str] | None = None) -> Done:
        """Start a program that goes on, and return what it printed when `until` was among it."""
        raw, there = bytearray(), threading.Event()

        def heard(chunk: bytes) -> None:
            raw.extend(chunk)
            if until in self.seen(raw.decode(errors="replace")):
                there.set()

        process, _ = self._start(script, answer or word_of, heard, there.set)
        there.wait(LONGEST_SECONDS)
        return Done(self.seen(raw.decode(errors="replace")), process.poll() or 0)

    def _start(
        self,
        script: str,
        answer: Callable[[str], str],
        heard: Callable[[bytes], object],
        ended: Callable[[], object] = lambda: None,
    ) -> tuple[subprocess.Popen[bytes], threading.Thread]:
        (self.state / "script").write_text(script, encoding="utf-8")
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, "bash", "-c", _AROUND],
            cwd=self.home,
            env=self.variables(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

        def read() -> None:
            line = ""
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            # The last process that has the terminal open is gone: EIO on Linux.
            with contextlib.suppress(OSError), open(ours, "r+b", buffering=0) as terminal:
                while chunk := terminal.read(65_536):
                    line = (line + decoder.decode(chunk)).rpartition("\n")[2]
                    heard(chunk)
                    if _QUESTION.search(asked := _ESCAPES.sub("", line)):
                        terminal.write(answer(asked).encode() + b"\n")
            ended()

        reader = threading.Thread(target=read)
        reader.start()
        self._running.append((process, reader))
        return process, reader

    def seen(self, raw: str) -> str:
        """Return what is on the screen: without escapes and what was written over."""
        lines = _ESCAPES.sub("", raw).replace("\r\n", "\n").split("\n")
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines)
        return text.replace(str(self.home), SHOWN_HOME)


def word_of(question: str) -> str:
    """Return what a person types who agrees: the word that is asked for, a password, or "y"."""
    found = _QUESTION.search(question)
    if found and found["word"]:
        return found["word"]
    if "assword" in question or "once more" in question:
        return "a long password"
    return "" if "[all]" in question else "y"

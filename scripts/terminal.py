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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".x/uv/bin/uv"
SHOWN_HOME = "/home/me"
"""What the guides call the home directory."""

COLUMNS = 80
LONGEST_SECONDS = 120
"""A command that takes longer waits for something that does not come."""

_QUESTION = re.compile(
    r"(?:\(y, n\)|\(y all, e each, n no\)"
    r"|tools \[all\]:|Allow\? \([^)\n]*\)|(?:[Pp]assword|once more)[^\n]*:"
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


QUIET = ("--quiet", "--offline")


OWN = {"skillhouse-signer": "signer"}
"""Distributions of this tree besides skillhouse, and their folders."""


def build(into: Path, folder: str = ".") -> Path:
    """Build the wheel of this tree, or of a folder of it, and return it."""
    _run(UV, "build", *QUIET, "--wheel", "--no-build-isolation", "--python", sys.executable,
         "--out-dir", into, ROOT / folder)  # fmt: skip
    (wheel,) = into.glob("*.whl")
    return wheel


def install(
    wheel: Path,
    environment: Path,
    extras: Iterable[str] = ("all",),
    packages: Iterable[str] = (),
) -> Path:
    """Install the wheel into a new environment, and return its programs.

    It holds what the extras and packages need and nothing else. All comes from the environment
    that runs this: nothing is fetched, and what is not there is left out.
    """
    _run(UV, "venv", *QUIET, "--python", sys.executable, environment)
    _run(UV, "pip", "install", *QUIET, "--no-deps", "--python", environment / "bin/python", wheel)
    pure = Path(sysconfig.get_path("purelib"))
    inside = environment / pure.relative_to(Path(sys.prefix))
    (own,) = inside.glob("skillhouse-*.dist-info")
    needed = _needed(metadata.Distribution.at(own), tuple(extras))
    for name in packages:
        if name in OWN:
            other = build(environment / "wheels" / name, OWN[name])
            into = ("--python", environment / "bin/python")
            _run(UV, "pip", "install", *QUIET, "--no-deps", *into, other)
            (about,) = inside.glob(f"{name.replace('-', '_')}-*.dist-info")
            needed += _needed(metadata.Distribution.at(about), (), core=own)
            continue
        needed += [metadata.distribution(name), *_needed(metadata.distribution(name), ())]
    for found in needed:
        for file in found.files or ():
            # What a package has elsewhere are programs, which no page calls.
            if ".." not in file.parts and file.suffix != ".pyc":
                _link(Path(str(file.locate())), inside / file)
    return environment / "bin"


def _needed(
    own: metadata.Distribution, extras: tuple[str, ...], core: Path | None = None
) -> list[metadata.Distribution]:
    """Return the distributions that a distribution needs with some of its extras.

    `core` is where skillhouse is, which counts as there.
    """
    ours = own if core is None else metadata.Distribution.at(core)
    found: dict[str, metadata.Distribution] = {}
    done: set[tuple[str, str]] = set()
    todo = [(own, extra) for extra in ("", *extras)]
    while todo:
        of, extra = todo.pop()
        for requirement in map(Requirement, of.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            with contextlib.suppress(metadata.PackageNotFoundError):
                one = ours if name == "skillhouse" else metadata.distribution(name)
                if one is not ours:
                    found[name] = one
                new = {(name, wanted) for wanted in ("", *requirement.extras)} - done
                todo += [(one, wanted) for _, wanted in sorted(new)]
                done |= new
    return list(found.values())


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return
    except OSError:
        shutil.copy2(source, target)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[1]} failed: {done.stderr}")


@contextmanager
def short_home(below: Path = Path("/tmp")) -> Iterator[Path]:
    """Make a home whose path is as long as `SHOWN_HOME`, so that lines break in the same places."""
    if (below / ".git").exists():
        # Left by another program: each path here would be one of a project.
        raise RuntimeError(f"{below} has `.git`, which makes a project of all homes: remove it")
    letters = string.ascii_lowercase + string.digits
    start = os.getpid() * 7
    names = ["".join(name) for name in itertools.product(letters, repeat=3)]
    for offset in range(len(names)):
        home = Path(below, names[(start + offset) % len(names)])
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700)
            break
    else:
        raise RuntimeError(f"no name is free below {below}")
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

    around: tuple[str, ...] = ()
    """What starts the shell of each command, as in another mount namespace."""

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
            [sys.executable, "-I", "-S", "-c", _LAUNCH, *self.around, "bash", "-c", _AROUND],
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

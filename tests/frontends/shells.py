"""A real shell at a pseudo-terminal, in which a line is typed, completed with TAB and run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SHELLS = ("bash", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("zsh", "fish")))
"""Those of tests: each line that is completed starts the program, so one shell is enough daily."""
_READY = "READY> "
_PATIENCE_SECONDS = 60
_STARTS = {
    "bash": (
        ("bash", "--noprofile", "--rcfile", "{home}/rc", "-i"),
        (
            "PS1='READY> '\nbind 'set bell-style none'\nbind 'set enable-bracketed-paste off'\n"
            "source {script}\n"
        ),
    ),
    "zsh": (
        ("zsh", "-d", "-i"),
        (
            "PS1='READY> '\nPROMPT_EOL_MARK=''\nunsetopt beep\nbindkey -e\n"
            "unset zle_bracketed_paste\nautoload -Uz compinit && compinit -u -D\nsource {script}\n"
        ),
    ),
    "fish": (
        ("fish", "-i"),
        (
            "function fish_prompt; echo -n 'READY> '; end\nset -g fish_greeting\n"
            "set -g fish_autosuggestion_enabled 0\nsource {script}\n"
        ),
    ),
}
_RC = {"bash": "rc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}


class Shell:
    """One shell; `completed` types a line and returns the words that Enter would have passed."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._said = b""
        self._wait(_READY)

    def completed(self, line: str, closing: str = "") -> list[str]:
        """Return the words behind the program after `line` and TAB, as the shell reads them.

        The line becomes the arguments of `printf` and is run: a candidate that holds a command
        would run now. `closing` is typed after the TAB, such as a quote that is open.
        """
        print_them = "\x01printf '<%s>\\n' \x05"
        self._type(f"{line}\t{closing}{print_them} -END\n")
        said = self._wait("<-END>\r\n")
        self._wait(_READY)
        return re.findall(r"<([^\n<>]*)>\n", said.replace("\r", ""))[1:-1]

    def _type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _wait(self, mark: str) -> str:
        """Return what the shell says up to a mark; what follows it is kept for the next time."""
        while mark.encode() not in self._said:
            # A shell that waits for more input would never end.
            if not select.select([self._ours], [], [], _PATIENCE_SECONDS)[0]:
                raise AssertionError(f"no {mark!r} came: {self._said!r}")
            try:
                read = os.read(self._ours, 65_536)
            except OSError:  # The shell ended.
                read = b""
            if not read:
                raise AssertionError(f"the shell ended before {mark!r}: {self._said!r}")
            self._said += read
        said, _, self._said = self._said.partition(mark.encode())
        return (said + mark.encode()).decode(errors="replace")


@contextlib.contextmanager
def started(name: str, home: Path, script: Path, start: Path) -> Iterator[Shell]:
    """Start a shell with our script, in which `skillhouse` is the program in `home`/bin."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    command, settings = _STARTS[name]
    rc = home / _RC[name]
    rc.parent.mkdir(parents=True, exist_ok=True)
    rc.write_text(settings.format(script=shlex.quote(str(script))), encoding="utf-8")
    environment = {
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }
    words = [word.format(home=home) for word in command]
    with _terminal(words, environment, start) as (ours, _):
        yield Shell(ours)


@contextlib.contextmanager
def _terminal(
    command: list[str], environment: dict[str, str], start: Path
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a program at a pseudo-terminal of its own; yield our side of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 250, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=start,
        start_new_session=True,
        # Job control needs a terminal of its own.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def typed(
    words: Iterable[str], answers: Iterable[tuple[str, str]], home: Path, start: Path
) -> tuple[int, str]:
    """Run the real program at a terminal: each answer is typed once its question is there.

    Returns the exit code, and all that was on the screen.
    """
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", "LANG": "C.UTF-8"}
    with _terminal([sys.executable, "-m", "skillhouse", *words], environment, start) as (ours, of):
        said = ""
        for question, answer in (*answers, ("", "")):
            beginning = len(said)
            # Without a question the program is read to its end.
            while not question or question not in said[beginning:]:
                try:
                    read = os.read(ours, 65_536)
                except OSError:  # The program ended.
                    read = b""
                if not read:
                    break
                said += read.decode(errors="replace").replace("\r", "")
            if question:
                assert question in said, said
                os.write(ours, f"{answer}\n".encode())
        return of.wait(), said


def put_program(home: Path, text: str) -> None:
    """Make `skillhouse` in `home`/bin a Python program."""
    program = home / "bin/skillhouse"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    program.chmod(0o755)


REAL = "import sys\nfrom skillhouse.frontends.cli import main\nsys.exit(main())\n"

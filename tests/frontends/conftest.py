"""A place of its own for each test of the command line, and the way to run a command there."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skillhouse.clients import coding_agents
from skillhouse.floor import make_private
from skillhouse.frontends.cli import main
from tests.house.places import environment_under, make_places
from tests.registry.publisher_skill import LOCKED, PASSWORD, REGISTRY, make_skill

if TYPE_CHECKING:
    from tests.frontends.mcp_peer import Peer

Run = Callable[..., tuple[int, str, str]]
_QUESTIONS = (
    b"Type `",
    b"Which ones?",
    b"(y, n) ",
    b"tools [all]: ",
    b"hyphens): ",
    b"use it: ",
    b"n no) ",
    b"n deny) ",
)
"""Ends of what is asked at the terminal."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project of their own, with the project as current directory."""
    places = make_places(tmp_path)
    for variable in [name for name in os.environ if name.startswith(("SKILLHOUSE_", "XDG_"))]:
        monkeypatch.delenv(variable)
    # Whoever runs the tests: here no coding agent does.
    for name in [name for agent in coding_agents() for name in agent.variables]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("skillhouse.frontends.cli.person.PROC", tmp_path / "no-processes")
    for name, value in environment_under().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(places.home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(places.start)
    return tmp_path


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    from tests.frontends.mcp_peer import Peer  # noqa: PLC0415 - most tests need no SDK.

    return Peer(tmp_path)


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def typing(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command at a terminal, on which each line of a text is typed once it is asked for."""

    def call(word: str, *arguments: str) -> tuple[int, str, str]:
        ours, theirs = pty.openpty()
        said = bytearray()

        def person() -> None:
            words = word.split("\n")
            # A terminal whose other side is closed gives EIO.
            with contextlib.suppress(OSError):
                while read := os.read(ours, 65_536):
                    said.extend(read)
                    asked = sum(said.count(mark) for mark in _QUESTIONS)
                    typed = len(word.split("\n")) - len(words)
                    if words and asked > typed:
                        os.write(ours, words.pop(0).encode() + b"\n")

        at_it = threading.Thread(target=person)
        with (
            os.fdopen(os.dup(theirs), encoding="utf-8") as stdin,
            os.fdopen(theirs, "w", encoding="utf-8") as stderr,
            monkeypatch.context() as patched,
        ):
            patched.setattr(sys, "stdin", stdin)
            patched.setattr(sys, "stderr", stderr)
            at_it.start()
            code, out, _ = run(*arguments)
        at_it.join()
        os.close(ours)
        return code, out, said.decode()

    return call


@pytest.fixture(scope="session")
def publisher_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for what `publisher` makes, since passwords are slow to try on purpose."""
    return tmp_path_factory.mktemp("publisher") / "made"


@pytest.fixture
def publisher(
    run: Run, place: Path, publisher_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make a root, a developer's key with its certificate, and the skill `pdf`, all unsigned."""
    monkeypatch.setenv("PUBLISHER_TEST", PASSWORD)
    make_skill(Path())
    template = publisher_template
    state = place / "home" / ".local" / "state" / "skillhouse" / "publishers"
    if template.exists():
        make_private(state.parent)
        shutil.copytree(template / "publishers", state)
        for file in template.glob("*.c*"):
            shutil.copy(file, file.name)
        return
    assert run("keys", "new", "root", "--for", "root", "--registry", REGISTRY, *LOCKED)[0] == 0
    assert run("keys", "new", "acme", "--for", "skills", *LOCKED)[0] == 0
    assert run("keys", "request", "acme", *LOCKED)[0] == 0
    assert run("keys", "issue", "acme.csr", "--by", "root", *LOCKED)[0] == 0
    shutil.copytree(state, template / "publishers")
    for file in Path().glob("*.c*"):
        shutil.copy(file, template)


@pytest.fixture
def elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Go on as another user, who has nothing of the first."""

    def move() -> None:
        (place / "elsewhere").mkdir(exist_ok=True)
        monkeypatch.setenv("HOME", str(place / "elsewhere"))

    return move

"""A place of its own for each test of the command line, and the way to run a command there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.frontends.cli import main
from tests.runtime.places import make_places

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project of their own, with the project as current directory."""
    places = make_places(tmp_path)
    for variable in [name for name in os.environ if name.startswith(("SKILLHOUSE_", "XDG_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(places.home))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(places.start)
    return tmp_path


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call

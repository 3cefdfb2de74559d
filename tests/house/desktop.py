"""A desktop of a test, whose program for directories says which ones it was given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def make_desktop(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put `xdg-open` first in the PATH; the pipe that comes back gives a line for each start."""
    pipe = place / "opened"
    os.mkfifo(pipe)
    program = place / "xdg-open"
    program.write_text(f'#!/bin/sh\necho "$1" > {pipe}\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return pipe

"""The words that start our runner, as clients have them in their exceptions."""

from __future__ import annotations

import sys
from pathlib import Path

RUNNER = Path(__file__).with_name("hook_runner.py")


def runner_words(directory: Path) -> tuple[str, ...]:
    """Return what is before the ticket; `directory` is that of the judge."""
    return (sys.executable, "-I", "-S", str(RUNNER), str(directory))

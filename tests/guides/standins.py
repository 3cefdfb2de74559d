"""What stands on this machine for servers and registries that a guide names, all on loopback."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from scripts.terminal import Terminal

Need = Callable[[object, str], None]
Standin = Callable[[Terminal, Path, Need], AbstractContextManager[dict[str, str]]]

STANDINS: dict[str, Standin] = {}
"""By page: what starts there, and the texts of the page that are others here."""

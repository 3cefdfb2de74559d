"""The sandbox: tested once, started when the first command runs."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio

from skillhouse import cells, sandbox

LOOK_SECONDS = 0.02
"""How often it is looked whether another call's self-test, which takes half a second, is over."""


class SandboxProvider:
    """Gives the launcher of commands."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.tested: sandbox.SandboxStatus | None = None
        """What the self-test said; None before anything needed it."""
        self._launcher: sandbox.Launcher | None = None
        # Calls come from several tasks, threads and event loops. No lock of one event loop serves
        # them all, and who waits for this one must not stop its own loop.
        self._testing = threading.Lock()

    async def status(self) -> sandbox.SandboxStatus:
        """Return the sandbox's level, tested once however many calls begin at the same time."""
        while self.tested is None:
            if not self._testing.acquire(blocking=False):
                await anyio.sleep(LOOK_SECONDS)
                continue
            try:
                if self.tested is None:
                    self.tested = await cells.self_test()
            finally:
                # Where it was cancelled, the next call tests.
                self._testing.release()
        return self.tested

    async def launcher(self) -> sandbox.Launcher:
        """Return what runs commands at that level.

        Raises:
            SandboxUnavailableError: there is none on this machine.
        """
        status = await self.status()
        if self._launcher is None:
            self._launcher = sandbox.launcher_for(status, state=self._state)
        return self._launcher

"""The sandbox of a house: tested once, started when the first command runs."""

from __future__ import annotations

from pathlib import Path

from skillhouse import sandbox


class Cells:
    """Gives what runs commands."""

    def __init__(self, state: Path) -> None:
        """Take the directory in which runs keep what they need."""
        self._state = state
        self.tested: sandbox.SandboxStatus | None = None
        """What the self-test said; None before anything needed it."""
        self._launcher: sandbox.Launcher | None = None

    async def status(self) -> sandbox.SandboxStatus:
        """Return the sandbox's level, tested once."""
        if self.tested is None:
            self.tested = await sandbox.self_test()
        return self.tested

    async def launcher(self) -> sandbox.Launcher:
        """Return what runs commands at that level.

        Raises:
            SandboxUnavailableError: there is none on this machine.
        """
        if self._launcher is None:
            self._launcher = sandbox.launcher_for(await self.status(), state=self._state)
        return self._launcher

"""The packages of skills: installed once, by whichever call needs them first, to their end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import SandboxError
from skillhouse.tools import ReportProgress

WORD_SECONDS = 1.0
"""Between two words on an installation."""
QUIET_SECONDS = 0.2
"""Time in which what is installed already is found, without a word."""
FRACTION = 1e-4
"""Progress of each word: the tool's own, from 0 to 1, follows and has to be more."""

logger = logging.getLogger(__name__)

Install = Callable[[Callable[[int], None]], Awaitable[tuple[Path, ExitStack] | None]]
"""Installs, says first how many packages, and returns them with what keeps them; None for none."""


class _Running(Struct, eq=False):
    task: asyncio.Task[Path | None]
    counted: list[int]
    """How many are installed; empty while that is not known, or they are here already."""

    @property
    def packages(self) -> int:
        return self.counted[-1] if self.counted else 0


class CodePackages:
    """The packages of each skill's directory, kept until `close`."""

    def __init__(self) -> None:
        self._found: dict[Path, Path | None] = {}
        self._running: dict[tuple[asyncio.AbstractEventLoop, Path], _Running] = {}
        self._leases = ExitStack()

    def knows(self, directory: Path) -> bool:
        return directory in self._found

    async def get(
        self,
        directory: Path,
        install: Install,
        *,
        say: ReportProgress = lambda _fraction, _text: None,
        within: float | None = None,
    ) -> Path | None:
        """Return a skill's packages; calls of one skill wait for one installation.

        It goes on to its end although the caller is cancelled, or is answered meanwhile.

        Args:
            say: Hears that they are installed, until they are.
            within: Seconds after which the caller is answered; None waits to the end.

        Raises:
            SandboxError: they cannot be installed, or "dependencies-installing": not yet.
        """
        if directory in self._found:
            return self._found[directory]
        running = self._join(directory, install)
        began = time.monotonic()
        words = 0
        pause = QUIET_SECONDS
        while not running.task.done():
            passed = time.monotonic() - began
            if within is not None and passed >= within:
                message = f"{_task(running.packages)} goes on: repeat the call in a moment"
                raise SandboxError("dependencies-installing", message)
            pause = pause if within is None else min(pause, within - passed)
            await asyncio.wait({running.task}, timeout=pause)
            pause = WORD_SECONDS
            if running.packages and not running.task.done():
                words += 1
                say(words * FRACTION, _task(running.packages))
        if running.task.cancelled():
            raise SandboxError("dependencies-install", "the installation of packages was ended")
        return running.task.result()

    def _join(self, directory: Path, install: Install) -> _Running:
        loop = asyncio.get_running_loop()
        key = (loop, directory)
        if (found := self._running.get(key)) is not None:
            return found

        counted: list[int] = []

        def ended(task: asyncio.Task[Path | None]) -> None:
            if self._running.get(key) is running:
                del self._running[key]
            if not task.cancelled() and (error := task.exception()) is not None:
                # Whoever waits for it has the error too; all of them may have left.
                logger.warning("packages of `%s` were not installed: %s", directory.name, error)

        task = loop.create_task(self._install(directory, install, counted.append))
        running = _Running(task=task, counted=counted)
        self._running[key] = running
        task.add_done_callback(ended)
        return running

    async def _install(
        self, directory: Path, install: Install, count: Callable[[int], None]
    ) -> Path | None:
        found = await install(count)
        path = None
        if found is not None:
            path, lease = found
            self._leases.push(lease)
        self._found[directory] = path
        return path

    def forget(self) -> None:
        """Look for all of them again."""
        self._found.clear()

    async def close(self) -> None:
        """End what is being installed by this loop, and let go of what is installed."""
        loop = asyncio.get_running_loop()
        mine = {one.task for (of, _), one in self._running.items() if of is loop}
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine)
        self._found.clear()
        await in_thread(self._leases.close)


def _task(packages: int) -> str:
    """Return what is being done.

    >>> _task(1), _task(13), _task(0)
    ('installing 1 package', 'installing 13 packages', 'installing packages')
    """
    number = f"{packages} " if packages else ""
    return f"installing {number}package{'' if packages == 1 else 's'}"

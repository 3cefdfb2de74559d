"""Gives what runs commands and skills' code: the level of the sandbox, tested when it is needed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import anyio

from skillhouse import sandbox
from skillhouse.extension import is_installed, own_module
from skillhouse.house.config import Config
from skillhouse.house.policy import RulesInUse
from skillhouse.sandbox.code_call import Language
from skillhouse.sandbox.kept_tests import kept_test, needed_test

LOOK_SECONDS = 0.02
"""How often it is looked whether another call's self-test, which takes half a second, is over."""


def least_level(config: Config) -> sandbox.SandboxLevel:
    """Return the weakest level of the sandbox that a configuration accepts."""
    levels = sandbox.SandboxLevel
    return levels.RLIMITS if config.sandbox == "bubblewrap" else levels.LANDLOCK


class SandboxProvider:
    """Gives the launcher of commands, and the tested level for each language of skills' code."""

    def __init__(self, state: Path, rules: RulesInUse) -> None:
        """Make one for a directory of state, and for the configuration of the rules in use."""
        self._rules = rules
        self._state = state
        self._kept = sandbox.KeptTests(state)
        self._tested_least: sandbox.SandboxLevel | None = None
        """What the configuration accepted when `tested` was found."""
        self.tested: sandbox.SandboxStatus | None = None
        """What the self-test said; None before anything needed it."""
        self._languages: set[Language | None] = set()
        """Those that are tested already; None for commands."""
        self._launcher: sandbox.Launcher | None = None
        # Calls come from several tasks, threads and event loops. No lock of one event loop serves
        # them all, and who waits for this one must not stop its own loop.
        self._testing = threading.Lock()

    async def status(self, language: Language | None = None) -> sandbox.SandboxStatus:
        """Return the sandbox's level, tested once however many calls begin at the same time.

        Args:
            language: Of a skill's code that is to run; its cell is tested when it is first needed.
        """
        while (known := self._known(language)) is None:
            if not self._testing.acquire(blocking=False):
                await anyio.sleep(LOOK_SECONDS)
                continue
            try:
                if self._known(language) is None:
                    await self._test(language)
            finally:
                # Where it was cancelled, the next call tests.
                self._testing.release()
        return known

    async def status_if_kept(self, language: Language) -> sandbox.SandboxStatus | None:
        """Return what `status` would return without testing anything; None where it would test."""
        if self.tested is not None or not self._testing.acquire(blocking=False):
            return self._known(language)
        try:
            least = least_level(self._rules.policy.config)
            sandbox.watch_for_crashes().mark(self._state)
            found = await kept_test(self._kept, language, least=least)
            if found is not None:
                self._note(found, language, least)
        finally:
            self._testing.release()
        return self._known(language)

    def _known(self, language: Language | None) -> sandbox.SandboxStatus | None:
        """Return the level as far as it is tested and the configuration accepts it, else None."""
        tested, least = self.tested, least_level(self._rules.policy.config)
        if tested is None:
            return None
        is_refused = least is not sandbox.SandboxLevel.LANDLOCK
        if tested.level is sandbox.SandboxLevel.LANDLOCK and is_refused:
            none = sandbox.SandboxLevel.NONE
            return sandbox.SandboxStatus(level=none, reasons=tested.reasons, hint=tested.hint)
        return None if self._is_outdated() or language not in self._languages else tested

    def _is_outdated(self) -> bool:
        """Whether no level was found, and the configuration accepts others than it did then."""
        is_none = self.tested is not None and self.tested.level is sandbox.SandboxLevel.NONE
        return is_none and self._tested_least is not least_level(self._rules.policy.config)

    async def _test(self, language: Language | None) -> None:
        if self._is_outdated():
            self.tested, self._languages = None, set()
        least = least_level(self._rules.policy.config)
        sandbox.watch_for_crashes().mark(self._state)
        # A command needs no cell.
        cells = own_module("cells") if language is not None and is_installed("cells") else None
        found = await needed_test(
            self._kept, language, before=self.tested, least=least, cells=cells
        )
        self._note(found, language, least)
        if found.level is sandbox.SandboxLevel.NONE:
            self._launcher = None

    def _note(
        self,
        found: sandbox.SandboxStatus,
        language: Language | None,
        least: sandbox.SandboxLevel,
    ) -> None:
        self.tested, self._tested_least = found, least
        self._languages |= {None, language}

    def adopt(self, status: sandbox.SandboxStatus) -> None:
        """Use a level that was tested by whoever calls this, for commands and each language."""
        self.tested, self._tested_least = status, least_level(self._rules.policy.config)
        self._languages |= {None, *get_args(Language)}

    async def launcher(self) -> sandbox.Launcher:
        """Return what runs commands at that level; SandboxUnavailableError if nothing does."""
        status = await self.status()
        if self._launcher is None or status.level is sandbox.SandboxLevel.NONE:
            self._launcher = sandbox.launcher_for(status, state=self._state)
        return self._launcher

    def expects_namespaces(self) -> bool:
        """Whether commands will have mounts and a network of their own, as far as is known.

        Until something was tested it is whether bubblewrap is installed.
        """
        if self.tested is None:
            return sandbox.has_bubblewrap()
        return self.tested.level is not sandbox.SandboxLevel.LANDLOCK

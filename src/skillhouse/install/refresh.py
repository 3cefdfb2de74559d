"""Asks repositories in the background what they took down and revoked, where a person wants that.

One thread of a process that goes on, which sleeps until the next look is due, and ends with it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.floor import SkillhouseError, as_error, isolated, structs
from skillhouse.house import ConfiguredThread

if TYPE_CHECKING:
    from skillhouse.house.config import Config, RepositorySettings
    from skillhouse.house.house import Skillhouse
    from skillhouse.registry import LockEntry, RepositoryLook

logger = logging.getLogger(__name__)

START_SECONDS = 3.0
"""Before the first look: a process answers first."""
LOOK_SECONDS = 120.0
"""Time of one look; each of its requests has bounds of its own."""
SKILLS_MAX = 500
"""Installed skills that one look asks about, of more others each time."""
RETRY_SECONDS = 300.0
"""Before the second try; after each failure twice as long, up to the repository's own time."""
PROBLEM_MAX = 500
JITTER = 0.1
"""Part of a time by which it is longer or shorter, so that machines do not ask at one moment."""
WAKE_SECONDS = 3_600.0
"""The longest sleep: a clock may be set, and a machine wakes up."""


class RepositoryRefresh(ConfiguredThread):
    """Looks at the repositories with `refresh` of a running process's configuration."""

    name = "refresh"

    def __init__(
        self,
        house: Skillhouse,
        *,
        start_seconds: float = START_SECONDS,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(house)
        self._start_seconds = start_seconds
        self._clock = clock
        self._chance = chance

    def _is_wanted(self) -> bool:
        return any(one.refresh for one in self._house.config.repositories)

    def _run(self) -> None:
        seconds = self._start_seconds
        while not self._ended.wait(0):
            self._changed.clear()
            # Ended first and then woken, so what was cleared here is seen as ended.
            if not self._ended.is_set():
                self._changed.wait(seconds)
            if self._ended.is_set():
                return
            try:
                seconds = self.look()
            except (SkillhouseError, OSError):
                logger.exception("looking at repositories")
                seconds = WAKE_SECONDS

    def look(self) -> float:
        """Ask each repository that is due, one at a time; return the seconds to the next look.

        Raises:
            StateError: the state cannot be used.
        """
        config = self._house.config
        memory = registry.TrustMemory(config.state_directory)
        wanted = [one for one in config.repositories if one.refresh]
        for settings in wanted:
            longest = int(settings.refresh_seconds * (1 + 2 * JITTER) * 1_000)
            claimed = memory.claim(
                settings.name,
                settings.url,
                now_ms=self._now_ms(),
                longest_ms=longest,
                lease_ms=int(2 * LOOK_SECONDS * 1_000),
            )
            if claimed is not None and not self._ended.is_set():
                memory.looked(self._looked(config, settings, claimed))
        names = {one.name for one in wanted}
        due = [one.next_ms for one in memory.looks() if one.repository in names]
        seconds = (min(due) - self._now_ms()) / 1_000 if due else WAKE_SECONDS
        return min(max(seconds, 1.0), WAKE_SECONDS)

    def _looked(
        self, config: Config, settings: RepositorySettings, look: RepositoryLook
    ) -> RepositoryLook:
        """Return a look with what came of it."""
        notes: tuple[str, ...] = ()
        try:
            problem, notes = self._ask(config, settings)
        except Exception as error:  # noqa: BLE001 - a stranger's answer, at the edge of a thread.
            problem = str(as_error(error))
        every = float(settings.refresh_seconds)
        failures = look.failures + 1 if problem else 0
        if problem:
            every = min(every, RETRY_SECONDS * 2 ** min(failures - 1, 20))
            logger.warning("repository `%s` was not asked: %s", settings.name, problem)
        spread = 1 + JITTER * (2 * self._chance() - 1)
        now_ms = self._now_ms()
        return structs.replace(
            look,
            asked_ms=look.asked_ms if problem else now_ms,
            next_ms=now_ms + int(every * spread * 1_000),
            failures=failures,
            problem="; ".join(dict.fromkeys(filter(None, (problem, *notes))))[:PROBLEM_MAX],
        )

    def _ask(self, config: Config, settings: RepositorySettings) -> tuple[str, tuple[str, ...]]:
        """Take over what a repository revoked and took down.

        Returns:
            What could not be asked, empty for nothing, and what else a person should know.
        """
        # Only a look needs what these import: most processes make none.
        from skillhouse.audit.log import recorded  # noqa: PLC0415
        from skillhouse.house.network import Network  # noqa: PLC0415
        from skillhouse.house.own_files import audit_log_of  # noqa: PLC0415
        from skillhouse.install.repositories import Repositories  # noqa: PLC0415

        end = time.monotonic() + LOOK_SECONDS
        entries = list(self._entries(config, settings))
        random.shuffle(entries)
        # Both of its own: those that calls use belong to other threads.
        log = audit_log_of(config)
        repositories = Repositories(config, Network(config))
        arguments = {"repository": settings.name, "skills": len(entries)}
        with closing(log), recorded(log, "refresh", arguments):
            with isolated() as refused:
                repositories.problems += filter(None, [repositories.take_revocations(settings)])
            for number, (name, entry) in enumerate(entries[:SKILLS_MAX]):
                if self._ended.is_set() or time.monotonic() > end:
                    return f"{number} of {len(entries)} skills were asked about in time", ()
                # A server that does not answer for one does not answer for the next.
                with isolated() as failed:
                    repositories.state_of(name, entry)
                if failed:
                    return str(failed[0]), ()
        return "; ".join(map(str, refused)), tuple(repositories.problems)

    def _entries(
        self, config: Config, settings: RepositorySettings
    ) -> Iterator[tuple[str, LockEntry]]:
        """Yield what is installed from a repository; of a project only where it is trusted."""
        from skillhouse.house.installed_check import install_locks  # noqa: PLC0415 - as above.
        from skillhouse.registry.releases import locked_place  # noqa: PLC0415

        locks = install_locks(config)
        project = self._house.services.project
        if not self._house.services.trust_store.is_trusted(project):
            locks.pop("project")
        for lock, _ in locks.values():
            for name, entry in registry.read_lock(lock).skills.items():
                place = locked_place(entry.repository)
                if place is not None and place[0] == settings.name:
                    yield name, entry

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

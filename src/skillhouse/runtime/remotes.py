"""The servers whose skills are synced, and the cache of their skills."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from skillhouse import remote
from skillhouse.audit import AuditDraft
from skillhouse.discovery import Root
from skillhouse.floor import ConfigError, SkillhouseError, nearest
from skillhouse.floor.threads import in_thread

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.runtime.config import Config
    from skillhouse.runtime.network import Network
    from skillhouse.skill import Profile

SCOPE = "remote"

_TOLD_MAX = 50
"""Problems of one sync that the log keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteState:
    """A configured server, and what is here of it."""

    source: remote.RemoteSource
    directory: Path
    """Where its skills are found."""
    skills: tuple[str, ...]
    """Names of those that are cached, sorted."""
    synced_at: float | None
    """Seconds since 1970 when what is here came; None when nothing ever did."""
    is_read: bool
    """Whether the profile has skills of other servers at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What came of one server: a report, or why there is none."""

    source: remote.RemoteSource
    report: remote.SyncReport | None = None
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every skill that the server lists is stored."""
        return self.report is not None and not self.report.problems


def remote_roots(config: Config, profile: Profile) -> tuple[Root, ...]:
    """Return a root for each configured server; none where the profile has no such scope."""
    if all(scope.name != SCOPE for scope in profile.scopes):
        return ()
    return tuple(
        Root(remote.skills_place(config.remote_directory, source), SCOPE)
        for source in config.remotes
    )


def with_remotes(config: Config, profile: Profile, roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Return roots with those of other servers in their place among them.

    Where the profile orders roots in another way than by scope, those of servers are the weakest:
    they take no name from a skill of this machine.

    Raises:
        ConfigError: what is synced would be found as something else as well.
    """
    directory = config.remote_directory
    if config.remotes or directory.exists():
        check_outside(directory, roots)
    own = remote_roots(config, profile)
    if not own:
        return roots
    if profile.duplicates == "last":
        return (*own, *roots)
    ranks = {scope.name: rank for rank, scope in enumerate(profile.scopes)}
    if profile.root_order == "written":
        return (*roots, *own)
    place = next(
        (at for at, root in enumerate(roots) if ranks[root.scope] > ranks[SCOPE]), len(roots)
    )
    return (*roots[:place], *own, *roots[place:])


def check_outside(directory: Path, roots: Iterable[Root]) -> None:
    """Refuse a cache below a scanned root, where its skills would be taken for that root's.

    Raises:
        ConfigError: it is below one.
    """
    real = os.path.realpath(directory)
    for root in roots:
        if "\0" in str(root.path):
            continue
        base = os.path.realpath(root.path)
        if os.path.commonpath((base, real)) == base:
            raise ConfigError(
                f"skills of other servers are kept in `{directory}`, which is below `{root.path}`"
                "; expected a `cache_directory` outside of every place where skills are looked for",
                key="cache_directory",
            )


class Remotes:
    """The configured servers."""

    def __init__(
        self,
        config: Config,
        profile: Profile,
        network: Network,
        audit: AuditLog,
        roots: Callable[[], Iterable[Root]],
        refresh: Callable[[], bool],
    ) -> None:
        self._config = config
        self._profile = profile
        self._network = network
        self._audit = audit
        self._roots = roots
        self._refresh = refresh

    def states(self) -> tuple[RemoteState, ...]:
        """Return the configured servers and their stored skills, without network access."""
        is_read = any(scope.name == SCOPE for scope in self._profile.scopes)
        return tuple(self._state(source, is_read=is_read) for source in self._config.remotes)

    def chosen(self, url: str) -> tuple[remote.RemoteSource, ...]:
        """Return the servers at an address; all when it is empty.

        Raises:
            ConfigError: no server is configured at all, or none with that address.
        """
        sources = self._config.remotes
        if not sources:
            message = "no remotes are configured: add `[[remotes]]` with a `url`"
            raise ConfigError(message, key="remotes")
        found = tuple(s for s in sources if not url or s.url.rstrip("/") == url.rstrip("/"))
        if not found:
            close = nearest(url, [source.url for source in sources])
            raise ConfigError(
                f"no remote is configured with the address `{url}`",
                key="remotes",
                suggestion=next(iter(close), ""),
            )
        return found

    async def sync(
        self, url: str = "", *, progress: Callable[[str], None] = lambda _: None
    ) -> tuple[Synced, ...]:
        """Sync with the servers, one after the other.

        A failing server does not affect the others. Each sync is in the audit log.

        Args:
            url: The address of one; all when empty.
            progress: Receives one line for each step.

        Raises:
            ConfigError: no such server is configured, or the cache is in a scanned directory.
            AuditError: the log cannot be written; nothing more was fetched.
        """
        sources = self.chosen(url)
        check_outside(self._config.remote_directory, (r for r in self._roots() if r.scope != SCOPE))
        done = [await self._sync_one(source, progress) for source in sources]
        self._refresh()
        return tuple(done)

    async def _sync_one(
        self, source: remote.RemoteSource, progress: Callable[[str], None]
    ) -> Synced:
        arguments = {"url": source.url, "kind": source.kind}
        draft = AuditDraft(kind="intent", tool="remote:sync", user="local", arguments=arguments)
        intent = await in_thread(lambda: self._audit.write(draft, durable=True))
        found = Synced(source=source, error="stopped")
        progress(f"syncing {source.url}")
        try:
            fetch = self._network.fetch_for(source, lambda url: progress(f"  fetching {url}"))
            report = await remote.sync(source, self._config.remote_directory, fetch)
            found = Synced(source=source, report=report)
        except (SkillhouseError, OSError, ValueError, RecursionError) as error:
            found = Synced(source=source, error=str(error))
        finally:
            # Also when it is cancelled: what was begun has an outcome.
            outcome = AuditDraft(
                kind="outcome",
                tool="remote:sync",
                user="local",
                status="error" if found.report is None else "ok",
                reason=found.error[:200],
                intent=intent,
                detail=_detail(found.report),
            )
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: self._audit.append_read(outcome))
        return found

    def _state(self, source: remote.RemoteSource, *, is_read: bool) -> RemoteState:
        directory = remote.skills_place(self._config.remote_directory, source)
        try:
            synced_at = os.stat(directory.parent).st_mtime
        except OSError:
            synced_at = None
        return RemoteState(
            source=source,
            directory=directory,
            skills=tuple(sorted(remote.cached(self._config.remote_directory, source))),
            synced_at=synced_at,
            is_read=is_read,
        )


def _detail(report: remote.SyncReport | None) -> dict[str, object]:
    if report is None:
        return {}
    return {
        "added": len(report.added),
        "changed": len(report.changed),
        "removed": len(report.removed),
        "kept": len(report.kept),
        "problems": " · ".join(report.problems[:_TOLD_MAX]),
    }

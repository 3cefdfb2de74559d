"""The servers whose skills are used here: those that are synced, and MCP servers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import remote
from skillhouse.audit import AuditDraft, AuditError, AuditLog
from skillhouse.audit.log import recorded, recorded_async
from skillhouse.floor import ConfigError, MissingExtraError, as_error, nearest
from skillhouse.floor.threads import finish_in_thread, in_thread
from skillhouse.house.config import Config, McpServerSettings
from skillhouse.house.config.allowed_sources import check_source
from skillhouse.house.house_snapshot import SCOPE, check_outside
from skillhouse.house.remote_skills import MCP_DIRECTORY, may_come_from

if TYPE_CHECKING:
    from skillhouse.house.house_snapshot import SnapshotInUse

_LOGGED_MAX = 50
"""Problems of one sync that the log keeps."""


class RemoteState(Struct, frozen=True, kw_only=True):
    """A configured server, and what is here of it."""

    source: remote.RemoteSource
    directory: Path
    """Where its skills are found."""
    skills: tuple[str, ...]
    """Names of those that are cached, sorted."""
    synced_at: float | None
    """Seconds since 1970 when what is here came; None when nothing ever did."""
    is_read: bool
    """Whether the profile has skills of other servers, and the configuration allows this one."""


class Synced(Struct, frozen=True, kw_only=True):
    """What came of one server: a report, or why there is none."""

    source: remote.RemoteSource
    report: remote.SyncReport | None = None
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every skill that the server lists is stored."""
        return self.report is not None and not self.report.problems


class Remotes:
    """The configured servers."""

    def __init__(self, house: SnapshotInUse, audit: AuditLog) -> None:
        """Take what gives the last scan, whose configuration says which they are."""
        self._house = house
        self._audit = audit

    @property
    def _config(self) -> Config:
        return self._house.snapshot.composition.config

    def states(self) -> tuple[RemoteState, ...]:
        """Return the configured servers and their stored skills, without network access."""
        scopes = self._house.snapshot.composition.profile.scopes
        is_read = any(scope.name == SCOPE for scope in scopes)
        return tuple(self._state(source, is_read=is_read) for source in self._config.remotes)

    def chosen(self, url: str) -> tuple[remote.RemoteSource, ...]:
        """Return the servers at an address, or all; ConfigError if there is none."""
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
        """Sync with the server at `url`, or with all, one after the other.

        A failing server does not affect the others. Each sync is in the audit log. `progress` gets
        a line for each step.

        Raises:
            ConfigError: no such server is configured, or the cache is in a scanned directory.
            AuditError: the log cannot be written; nothing more was fetched.
        """
        sources = self.chosen(url)
        others = (root for root in self._house.snapshot.roots if root.scope != SCOPE)
        check_outside(self._config.remote_directory, others)
        done = [await self._sync_one(source, progress) for source in sources]
        self._house.refresh()
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
            check_source(self._config.registry, source.url)
            network = self._house.snapshot.composition.network.get()
            fetch = network.fetch_for(source, lambda url: progress(f"  fetching {url}"))
            report = await remote.sync(source, self._config.remote_directory, fetch)
            found = Synced(source=source, report=report)
        except Exception as error:  # noqa: BLE001 - the edge of one server of many.
            found = Synced(source=source, error=str(as_error(error)))
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
            await finish_in_thread(lambda: self._audit.append_or_keep(outcome))
        return found

    def _state(self, source: remote.RemoteSource, *, is_read: bool) -> RemoteState:
        directory = remote.skills_place(self._config.remote_directory, source)
        try:
            synced_at = os.stat(directory.parent).st_mtime
        except OSError:
            synced_at = None
        is_allowed = may_come_from(self._config, source.url)
        return RemoteState(
            source=source,
            directory=directory,
            skills=tuple(sorted(remote.cached(self._config.remote_directory, source))),
            synced_at=synced_at,
            is_read=is_read and is_allowed,
        )


def _detail(report: remote.SyncReport | None) -> dict[str, object]:
    if report is None:
        return {}
    return {
        "added": len(report.added),
        "changed": len(report.changed),
        "removed": len(report.removed),
        "kept": len(report.kept),
        "repaired": len(report.repaired),
        "problems": " · ".join(report.problems[:_LOGGED_MAX]),
    }


class McpServerState(Struct, frozen=True, kw_only=True):
    """A server, and what is known of it."""

    label: str
    where: str
    """Its address, or the program that is started; empty when it is configured no longer."""
    skills: tuple[str, ...]
    """Addresses of the skills that it listed, sorted."""
    asked_at: float | None
    """Seconds since 1970 when what is known was stored; None when nothing is."""


class McpAsked(Struct, frozen=True, kw_only=True):
    """What came of asking one server: a report, or why there is none."""

    label: str
    report: remote.McpReport | None = None
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether everything that the server lists can be used."""
        return self.report is not None and not self.report.problems


class McpServers:
    """The `[[mcp_servers]]` of one configuration, and stored data of servers that were removed."""

    def __init__(
        self,
        config: Config,
        host: remote.McpHost | None,
        audit: AuditLog,
        refresh: Callable[[], object],
    ) -> None:
        self._servers = {server.label: server for server in config.mcp_servers}
        self._registry = config.registry
        self._cache = remote.McpCache(config.state_directory / MCP_DIRECTORY)
        self._host = host
        self._audit = audit
        self._refresh = refresh

    def states(self) -> tuple[McpServerState, ...]:
        """Return the servers in their order, then the removed ones; no server is asked."""
        stored = self._cache.labels()
        return tuple(self._state(label) for label in dict.fromkeys((*self._servers, *stored)))

    async def refresh(self, label: str = "") -> tuple[McpAsked, ...]:
        """Ask a server, or all, what they have; no file of a skill is read.

        A failing server does not affect the others. Each is in the audit log.

        Raises:
            ConfigError: there is no such server.
            AuditError: the log cannot be written; no further server was asked.
            MissingExtraError: the packages of the extra `mcp` are not installed.
        """
        host = self._asking(label)
        labels = [label] if label else list(self._servers)
        done = [await self._asked(one, host.refresh) for one in labels]
        self._refresh()
        return tuple(done)

    async def add(self, label: str, uri: str) -> McpAsked:
        """Ask a server about one skill by its address, listed or not; errors as of `refresh`."""
        host = self._asking(label)

        async def ask(one: str) -> remote.McpReport:
            before = {entry.uri: entry for entry in self._cache.listing(one)}
            found = await host.add(one, uri)
            old = before.get(uri)
            is_changed = old is not None and old.binding != found.binding
            return remote.McpReport(
                label=one,
                added=() if old else (uri,),
                changed=(uri,) if is_changed else (),
            )

        done = await self._asked(label, ask, uri)
        self._refresh()
        return done

    def forget(self, label: str) -> int:
        """Remove all that is stored of a server, and return how many skills that were.

        Raises:
            ConfigError: nothing is stored under that label.
            AuditError: the log cannot be written; nothing was removed.
        """
        stored = self._cache.labels()
        # INVARIANT: only what was found there is removed, so that no label is a path.
        if label not in stored:
            raise _unknown(f"nothing is stored of an MCP server `{label}`", label, stored)
        count = len(self._cache.listing(label))
        with recorded(self._audit, "mcp-forget", {"label": label}):
            self._cache.forget(label)
        self._refresh()
        return count

    def _asking(self, label: str) -> remote.McpHost:
        if self._host is None:
            message = "no MCP servers are configured: add `[[mcp_servers]]` with a `label`"
            raise ConfigError(message, key="mcp_servers")
        if label and label not in self._servers:
            raise _unknown(f"no MCP server is called `{label}`", label, self._servers)
        return self._host

    async def _asked(
        self, label: str, ask: Callable[[str], Awaitable[remote.McpReport]], uri: str = ""
    ) -> McpAsked:
        arguments = {"label": label, **({"uri": uri} if uri else {})}
        try:
            async with recorded_async(self._audit, "mcp-add" if uri else "mcp-refresh", arguments):
                check_source(self._registry, f"mcp:{label}")
                return McpAsked(label=label, report=await ask(label))
        except (AuditError, MissingExtraError):
            # One answer for all of them.
            raise
        except Exception as error:  # noqa: BLE001 - the edge of one server of many.
            return McpAsked(label=label, error=str(as_error(error)))

    def _state(self, label: str) -> McpServerState:
        server = self._servers.get(label)
        return McpServerState(
            label=label,
            where="" if server is None else _where(server),
            skills=tuple(sorted(entry.uri for entry in self._cache.listing(label))),
            asked_at=self._cache.stored_at(label),
        )


def _where(server: McpServerSettings) -> str:
    # Arguments and queries may hold secrets.
    return server.url.partition("?")[0] if server.url else server.command[0]


def _unknown(message: str, label: str, known: Iterable[str]) -> ConfigError:
    close = nearest(label, list(known))
    return ConfigError(message, key="mcp_servers", suggestion=next(iter(close), ""))

"""The MCP servers whose skills a house uses: what is known of each, asking anew, and forgetting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skillhouse import remote
from skillhouse.floor import ConfigError, nearest
from skillhouse.runtime.mcp_skills import MCP_DIRECTORY
from skillhouse.runtime.recording import recorded, recorded_async

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.runtime.config import Config
    from skillhouse.runtime.mcp_skills import McpServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerState:
    """A server, and what is known of it."""

    label: str
    where: str
    """Its address, or the program that is started; empty when it is configured no longer."""
    skills: tuple[str, ...]
    """Addresses of the skills that it listed, sorted."""
    asked_at: float | None
    """Seconds since 1970 when what is known was stored; None when nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAsked:
    """What came of asking one server: a report, or why there is none."""

    label: str
    report: remote.McpReport | None = None
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether everything that the server lists can be used."""
        return self.report is not None and not self.report.problems


class McpServers:
    """The `[[mcp_servers]]` of one house, and what is stored of others that were among them."""

    def __init__(
        self,
        config: Config,
        host: remote.McpHost | None,
        audit: AuditLog,
        refresh: Callable[[], object],
    ) -> None:
        """Take the configuration, what asks the servers, the log, and what looks anew."""
        self._servers = {server.label: server for server in config.mcp_servers}
        self._cache = remote.McpCache(config.state_directory / MCP_DIRECTORY)
        self._host = host
        self._audit = audit
        self._refresh = refresh

    def states(self) -> tuple[McpServerState, ...]:
        """Return the servers in their order, then what is stored of others; nobody is asked."""
        stored = self._cache.labels()
        return tuple(self._state(label) for label in dict.fromkeys((*self._servers, *stored)))

    async def refresh(self, label: str = "") -> tuple[McpAsked, ...]:
        """Ask the servers what they have, one after the other; no file of a skill is read.

        A server that fails costs no other. Each is in the audit log.

        Args:
            label: Which; all when empty.

        Raises:
            ConfigError: there is no such server.
            AuditError: the log cannot be written; nobody more was asked.
            MissingExtraError: the packages of the extra `mcp` are not installed.
        """
        host = self._asking(label)
        labels = [label] if label else list(self._servers)
        done = [await self._asked(one, host.refresh) for one in labels]
        self._refresh()
        return tuple(done)

    async def add(self, label: str, uri: str) -> McpAsked:
        """Ask a server about one skill by its address, whether it lists it or not.

        Raises:
            ConfigError: there is no such server.
            AuditError: the log cannot be written; nobody was asked.
            MissingExtraError: the packages of the extra `mcp` are not installed.
        """
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
                return McpAsked(label=label, report=await ask(label))
        except (remote.RemoteError, OSError, ValueError, RecursionError) as error:
            return McpAsked(label=label, error=str(error))

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

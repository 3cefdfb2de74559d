"""Skills that come from other servers, by remotes and by MCP."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from skillhouse.frontends.answers.json_form import Count, JsonAnswer


class RemoteAnswer(JsonAnswer, frozen=True, kw_only=True):
    url: str
    kind: str
    directory: str
    skills: tuple[str, ...]
    synced_at: str | None
    read: bool


class SyncReportAnswer(JsonAnswer, frozen=True, kw_only=True):
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    repaired: tuple[str, ...]
    problems: tuple[str, ...]


class SyncedAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What came of asking a remote."""

    flat_members = ("report",)
    url: str
    kind: str
    report: SyncReportAnswer | UnsetType = UNSET
    error: str | UnsetType = UNSET


class McpServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    label: str
    where: str | None
    skills: tuple[str, ...]
    asked_at: str | None


class UnaskedServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Why an MCP server could not be asked; what came of one that was is `McpReport`."""

    label: str
    error: str


class ForgottenServerAnswer(JsonAnswer, frozen=True, kw_only=True):
    label: str
    skills: Count

"""What exports to other clients are and would do, with a digest of what was shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from skillhouse.clients import Exporter, ExportState, difference
from skillhouse.floor import SkillhouseError, dataclass, digest, structs
from skillhouse.frontends.presentation.skill_answers import digest_of

if TYPE_CHECKING:
    from skillhouse.clients import ExportRequest, ExportSource, Item

ExportAction = Literal["export", "sync", "remove"]
_DIFFERING = (ExportState.NEEDS_SYNC, ExportState.CHANGED_THERE, ExportState.FOREIGN)


class ExportChangedError(SkillhouseError):
    """What a person agreed to is not what would be done; nothing was changed."""

    code = "plan-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExports:
    """What would be done, place by place."""

    items: tuple[Item, ...]
    digest: str
    """That of the request, of what is shown and of the files that would be copied."""


def item_value(item: Item, *, with_difference: bool) -> dict[str, Any]:
    value = structs.asdict(item)
    if with_difference:
        value["difference"] = difference_lines(item)
    return value


def difference_lines(item: Item) -> list[str]:
    """Return how a copy and its skill differ; nothing where they are known not to."""
    if item.state not in _DIFFERING or not item.target:
        return []
    return difference(Path(item.target), Path(item.source))


def shown_exports(
    source: ExportSource, action: ExportAction, request: ExportRequest
) -> ShownExports:
    """Return what an action would do; nothing is changed."""
    items = _done(source, action, structs.replace(request, dry_run=True))
    copied = sorted({item.source for item in items})
    shown = [
        action,
        structs.asdict(request),
        [item_value(item, with_difference=True) for item in items],
        [digest_of(Path(path)) for path in copied],
    ]
    text = json.dumps(shown, sort_keys=True, default=str)
    return ShownExports(items=items, digest=digest(text.encode("utf-8", "replace")))


def agreed_exports(
    source: ExportSource, action: ExportAction, request: ExportRequest, shown: str
) -> tuple[Item, ...]:
    """Do what was shown under this digest; ExportChangedError where it is something else by now."""
    if shown_exports(source, action, request).digest != shown:
        raise ExportChangedError("it is not what was shown any more; look at it again")
    return _done(source, action, request)


def _done(source: ExportSource, action: ExportAction, request: ExportRequest) -> tuple[Item, ...]:
    exporter = Exporter(source)
    if action == "sync":
        return exporter.sync(request)
    return exporter.remove(request) if action == "remove" else exporter.export(request)

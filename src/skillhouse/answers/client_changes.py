"""What exports to other clients and fixes would change, with a digest of what was shown."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType

from skillhouse import clients
from skillhouse.answers.json_form import JsonAnswer, copied, plain
from skillhouse.answers.skills import digest_of
from skillhouse.clients import Action, Exporter, ExportState, Form, difference
from skillhouse.floor import SkillhouseError, digest, structs
from skillhouse.house import Skillhouse
from skillhouse.install.change_plan import AgreementError

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse.clients import ClientReport, Discard, ExportRequest, ExportSource, Fix, Item
    from skillhouse.house import Config

ExportAction = Literal["export", "sync", "remove"]
_DIFFERING = (ExportState.NEEDS_SYNC, ExportState.CHANGED_THERE, ExportState.FOREIGN)


class ExportChangedError(SkillhouseError):
    """What a person agreed to is not what would be done; nothing was changed."""

    code = "plan-changed"


class ShownExports(Struct, frozen=True, kw_only=True):
    """What would be done, place by place."""

    items: tuple[Item, ...]
    digest: str
    """That of the request, of what is shown and of the files that would be copied."""


class ExportAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One skill at one target; `difference` is that of its files, where it was asked for."""

    skill: str
    source: str
    clients: tuple[str, ...]
    target: str
    form: Form
    state: ExportState
    action: Action
    done: bool
    reason: str
    warnings: tuple[str, ...]
    also: tuple[str, ...]
    difference: list[str] | UnsetType = UNSET


class FixAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a fix would change; its digest is of all of it, shown or not."""

    id: str
    path: str
    codes: tuple[str, ...]
    difference: tuple[str, ...]
    undo: str | None
    digest: str


class RefusedFixAnswer(JsonAnswer, frozen=True, kw_only=True):
    path: str
    reason: str


class MadeFixesAnswer(JsonAnswer, frozen=True, kw_only=True):
    refused: list[RefusedFixAnswer]


class ExportPlanAnswer(JsonAnswer, frozen=True, kw_only=True):
    plan_digest: str


def export_answer(item: Item, *, with_difference: bool) -> ExportAnswer:
    return copied(
        ExportAnswer, item, difference=difference_lines(item) if with_difference else UNSET
    )


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
        [plain(export_answer(item, with_difference=True)) for item in items],
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


ID_CHARS = 16


def fix_id(fix: Fix) -> str:
    """Return what names a fix while its file stays what it is about."""
    data = "\0".join((fix.path, *fix.codes)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).hexdigest()[:ID_CHARS]


def fix_groups(fixes: Sequence[Fix]) -> list[tuple[Fix, ...]]:
    """Return fixes by kind, each kind in its order: one answer is for all of one.

    Of a kind are edits for the same findings, and links into one folder. What is moved or deleted
    is a kind by itself.
    """
    found: dict[tuple[object, ...], list[Fix]] = {}
    for fix in fixes:
        is_alone = bool(fix.discarded or fix.renamed or fix.moved)
        folder = os.path.dirname(fix.path) if fix.target else ""
        found.setdefault((fix.codes, folder, fix.path if is_alone else ""), []).append(fix)
    return [tuple(group) for group in found.values()]


def fix_answer(report: ClientReport, fix: Fix) -> FixAnswer:
    everything = json.dumps(structs.asdict(fix), sort_keys=True)
    return FixAnswer(
        id=fix_id(fix),
        path=report.short(fix.path),
        codes=tuple(fix.codes),
        difference=tuple(fix.difference),
        undo=fix.discarded or None,
        digest=digest(everything.encode()),
    )


def shown_fix(report: ClientReport, wanted: str, shown: str) -> Fix:
    """Return the proposed fix with an id and the digest under which it was shown.

    Raises:
        AgreementError: `unknown-fix`, there is none any more; `changed`, it would do another thing.
    """
    for fix in clients.proposed_fixes(report):
        if fix_id(fix) == wanted:
            if fix_answer(report, fix).digest != shown:
                raise AgreementError("changed", "it would do something else than was shown")
            return fix
    raise AgreementError("unknown-fix", f"no fix with the id `{wanted[:80]}` is proposed")


def discarding(config: Config) -> Discard:
    """Return what moves the directory of a skill to the trash of a configuration."""

    def discard(path: Path, skill: str) -> None:
        with Skillhouse(config) as house:
            house.management.discard(path, skill)

    return discard

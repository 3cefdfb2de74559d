"""What the state of a target asks for, and whether a link may stand there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from skillhouse.clients.exports.trees import found_digest
from skillhouse.clients.exports.folders import Folder
from skillhouse.clients.exports.export_state import Action, ExportError, ExportState, Item, Record
from skillhouse.skill import Profile, Skill

_LINKED_FROM = {"user": ("user", "explicit"), "project": ("project",)}
"""The scopes whose skills may be linked: what is behind a link changes without a further look, so
a project's must not reach every project, and a link out of a project is broken elsewhere."""


def standing(record: Record | None, target: Path, wanted: str) -> ExportState:
    """Return how a target stands to what we wrote there, and to what is to be there."""
    if not os.path.lexists(target):
        return ExportState.MISSING
    if record is None:
        return ExportState.FOREIGN
    found = found_digest(target)
    if not found or found not in (record.digest, record.pending):
        # Nothing of ours ever got there: what a crash left of a record gives no right to it.
        return ExportState.CHANGED_THERE if record.digest else ExportState.FOREIGN
    return ExportState.IN_SYNC if found == wanted else ExportState.NEEDS_SYNC


def decided(item: Item, *, is_equal: bool, force: bool) -> Item:
    """Return an item with what is to be done about it.

    Args:
        item: With its state.
        is_equal: Whether what is there is what is to be there.
        force: Whether to write over what somebody changed.
    """
    if item.state is ExportState.MISSING:
        return replace(item, action=Action.WRITE)
    if item.state is ExportState.NEEDS_SYNC:
        return replace(item, action=Action.REPLACE)
    if item.state is ExportState.CHANGED_THERE:
        if force:
            return replace(item, action=Action.REPLACE)
        return replace(item, reason="changed there by somebody else; see --diff, --force writes")
    if item.state is ExportState.FOREIGN and is_equal:
        reason = "an equal copy is there that skillhouse did not write"
        return replace(item, state=ExportState.ALREADY_THERE, reason=reason)
    if item.state is ExportState.FOREIGN:
        return replace(item, reason="something is there that skillhouse did not write; it stays")
    return item


def link_text(skill: Skill, folder: Folder, readers: Sequence[Profile], source: str) -> str:
    """Return what a link in a folder says.

    Raises:
        ExportError: a client would not follow it, or nobody should.
    """
    if skill.scope not in _LINKED_FROM[folder.where]:
        message = f"skills of scope {skill.scope} are copied into folders of the {folder.where}"
        raise ExportError("not-linked", Path(source), f"{message}, not linked")
    for profile in readers:
        if profile.symlinks != "follow" or not folder.follows:
            message = f"{profile.name} does not follow links out of its folder; export a copy"
            raise ExportError("not-linked", Path(folder.path), message)
    if folder.where == "project":
        return os.path.relpath(source, folder.real)
    return source

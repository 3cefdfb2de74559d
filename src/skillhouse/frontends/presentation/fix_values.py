"""The mends of `doctor` as values, each with a digest of what it would change."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skillhouse import clients
from skillhouse.floor import digest, structs
from skillhouse.house import Skillhouse
from skillhouse.install.change_plan import AgreementError

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse.clients import Discard, Fix, Lens
    from skillhouse.house import Config

ID_CHARS = 16


def fix_id(fix: Fix) -> str:
    """Return what names a mend while its file stays what it is about."""
    data = "\0".join((fix.path, *fix.codes)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(data).hexdigest()[:ID_CHARS]


def fix_groups(fixes: Sequence[Fix]) -> list[tuple[Fix, ...]]:
    """Return mends by kind, each kind in its order: one answer is for all of one.

    Of a kind are edits for the same findings, and links into one folder. What is moved or deleted
    is a kind by itself.
    """
    found: dict[tuple[object, ...], list[Fix]] = {}
    for fix in fixes:
        is_alone = bool(fix.discarded or fix.renamed or fix.moved)
        folder = os.path.dirname(fix.path) if fix.target else ""
        found.setdefault((fix.codes, folder, fix.path if is_alone else ""), []).append(fix)
    return [tuple(group) for group in found.values()]


def fix_value(lens: Lens, fix: Fix) -> dict[str, Any]:
    """Return what a mend would change; its digest is of all of it, shown or not."""
    everything = json.dumps(structs.asdict(fix), sort_keys=True)
    return {
        "id": fix_id(fix),
        "path": lens.short(fix.path),
        "codes": list(fix.codes),
        "difference": list(fix.difference),
        "undo": fix.discarded or None,
        "digest": digest(everything.encode()),
    }


def shown_fix(lens: Lens, wanted: str, shown: str) -> Fix:
    """Return the proposed mend with an id and the digest under which it was shown.

    Raises:
        AgreementError: `unknown-fix`, there is none any more; `changed`, it would do another thing.
    """
    for fix in clients.proposed_fixes(lens):
        if fix_id(fix) == wanted:
            if fix_value(lens, fix)["digest"] != shown:
                raise AgreementError("changed", "it would do something else than was shown")
            return fix
    raise AgreementError("unknown-fix", f"no mend with the id `{wanted[:80]}` is proposed")


def discarding(config: Config) -> Discard:
    """Return what moves the directory of a skill to the trash of a configuration."""

    def discard(path: Path, skill: str) -> None:
        with Skillhouse(config) as house:
            house.management.discard(path, skill)

    return discard

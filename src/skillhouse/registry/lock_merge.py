"""Makes one lock of the sides that git left in a file with a conflict."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.floor import DecodeError, StateError
from skillhouse.registry.lock import (
    BASE,
    BETWEEN,
    LOCK_MAX,
    OURS,
    THEIRS,
    Lock,
    LockEntry,
    decode_lock,
    marked_line,
)
from skillhouse.registry.version_ranges import is_older

IsHere = Callable[[str, LockEntry], bool]
"""Whether the files of an entry are the ones that are installed here."""


class MergedSkill(Struct, frozen=True, kw_only=True):
    """A skill about which the sides differ, and what was taken."""

    name: str
    entry: LockEntry | None
    """None where it is taken out."""
    why: str


class LockMerge(Struct, frozen=True, kw_only=True):
    """One lock of two, and what had to be decided for it."""

    lock: Lock
    decided: tuple[MergedSkill, ...]
    unclear: tuple[str, ...]
    """Names of skills of which neither side is newer, nor here."""


def merge_lock(path: Path, is_here: IsHere, *, side: str = "") -> LockMerge | None:
    """Return the lock that the sides of a merge make together; None without marks.

    A skill of one side alone stays, unless the other side took it out since they parted, as far
    as git wrote what was before. Of two entries the one counts whose files are here, then the one
    with the newer version.

    Args:
        side: `ours` or `theirs`, for the skills that nothing else decides.

    Raises:
        StateError: it cannot be read, or a side of it is no lock.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LOCK_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"cannot read the lock: {error.strerror}", path) from error
    if len(data) > LOCK_MAX:
        raise StateError(f"expected a lock of at most {LOCK_MAX} bytes", path)
    if not marked_line(data):
        return None
    try:
        texts = _sides(data)
        base = texts.pop("base", b"")
        sides = {name: decode_lock(text) for name, text in texts.items()}
    except DecodeError as error:
        message = f"a side of the merge is no lock, take one with git and install again: {error}"
        raise StateError(message, path) from error
    # With `zdiff3`, what was before is cut, and often no lock any more.
    with contextlib.suppress(DecodeError):
        sides["base"] = decode_lock(base)
    return _merged(sides, is_here, side)


def _sides(data: bytes) -> dict[str, bytes]:
    """Return the texts of which git made one: `ours`, `theirs`, and `base` where it is there."""
    texts: dict[str, list[bytes]] = {"ours": [], "base": [], "theirs": []}
    part, has_base = "", False
    for line in data.splitlines(keepends=True):
        if line.startswith(OURS) and not part:
            part = "ours"
        elif line.startswith(BASE) and part == "ours":
            part, has_base = "base", True
        elif line.startswith(BETWEEN) and part in ("ours", "base"):
            part = "theirs"
        elif line.startswith(THEIRS) and part == "theirs":
            part = ""
        else:
            for name in [part] if part else texts:
                texts[name].append(line)
    if part:
        raise DecodeError("a mark without its end")
    found = {name: b"".join(lines) for name, lines in texts.items()}
    return found if has_base else {name: found[name] for name in ("ours", "theirs")}


def _merged(sides: Mapping[str, Lock], is_here: IsHere, side: str) -> LockMerge:
    ours, theirs, base = sides["ours"], sides["theirs"], sides.get("base")
    skills: dict[str, LockEntry] = {}
    decided: list[MergedSkill] = []
    unclear: list[str] = []
    for name in sorted({*ours.skills, *theirs.skills}):
        mine, other = ours.skills.get(name), theirs.skills.get(name)
        if mine == other and mine is not None:
            skills[name] = mine
            continue
        before = base.skills.get(name) if base else None
        found = _decided(name, mine, other, before, is_here, side)
        if found is None:
            unclear.append(name)
            continue
        decided.append(found)
        if found.entry is not None:
            skills[name] = found.entry
    unknown: dict[str, Any] = {**theirs.unknown, **ours.unknown}
    kept = {
        name: {**theirs.unknown_of.get(name, {}), **ours.unknown_of.get(name, {})}
        for name in skills
    }
    lock = Lock(skills=skills, unknown=unknown, unknown_of=kept)
    return LockMerge(lock=lock, decided=tuple(decided), unclear=tuple(unclear))


def _decided(
    name: str,
    mine: LockEntry | None,
    other: LockEntry | None,
    before: LockEntry | None,
    is_here: IsHere,
    side: str,
) -> MergedSkill | None:
    """Return which entry counts; None where nothing says so."""
    for entry, why in _reasons(name, mine, other, before, is_here):
        return MergedSkill(name=name, entry=entry, why=why)
    if side:
        return MergedSkill(name=name, entry=mine if side == "ours" else other, why=f"of {side}")
    return None


def _reasons(
    name: str,
    mine: LockEntry | None,
    other: LockEntry | None,
    before: LockEntry | None,
    is_here: IsHere,
) -> Iterator[tuple[LockEntry | None, str]]:
    """Yield what counts, the strongest reason first."""
    if before is not None:
        if mine == before:
            yield other, "changed by theirs alone" if other else "taken out by theirs"
        if other == before:
            yield mine, "changed by ours alone" if mine else "taken out by ours"
    elif mine is None or other is None:
        yield mine or other, f"of {'ours' if mine else 'theirs'} alone"
    if mine is not None and other is not None:
        if mine.is_same_as(other):
            yield mine, "the same files"
        here = [one for one in (mine, other) if is_here(name, one)]
        if len(here) == 1:
            yield here[0], "its files are here"
        for one, than in ((mine, other), (other, mine)):
            if is_older(one.version, than.version):
                yield than, f"the newer version {than.version}"

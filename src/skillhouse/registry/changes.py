"""What differs between two versions of a skill: files, and the lines of those that are text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from skillhouse.floor import EXECUTABLE_MODE, Tree
from skillhouse.skill import ArchiveMember

TEXT_MAX = 256 * 1024
"""Bytes of a file whose lines are compared."""
LINES_MAX = 400
"""Lines of one comparison that are shown."""


class TreeChanges(Struct, frozen=True, kw_only=True):
    """Paths that differ, each list sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    """Of the same content, and executable on one side only."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.modes)

    @property
    def summary(self) -> str:
        """Such as `1 file changed, 2 added`."""
        counts = {
            "changed": len(self.changed),
            "added": len(self.added),
            "removed": len(self.removed),
            "with another mode": len(self.modes),
        }
        parts = [f"{count} {word}" for word, count in counts.items() if count]
        return ", ".join(parts) or "no file differs"


def compare_trees(before: Tree, after: Tree) -> TreeChanges:
    """Return what differs from `before` in `after`."""
    old, new = before.by_path, after.by_path
    both = sorted(old.keys() & new.keys())
    return TreeChanges(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(path for path in both if old[path].sha256 != new[path].sha256),
        modes=tuple(
            f"{path} ({'not ' if new[path].mode != EXECUTABLE_MODE else ''}executable now)"
            for path in both
            if old[path].sha256 == new[path].sha256 and old[path].mode != new[path].mode
        ),
    )


def text_changes(
    changes: TreeChanges, before: Iterable[ArchiveMember], after: Iterable[ArchiveMember]
) -> Iterator[str]:
    """Yield the lines of a unified diff, at most `LINES_MAX`; a file that is no text is named."""
    old, new = _by_path(before), _by_path(after)
    count = 0
    for path in sorted({*changes.added, *changes.removed, *changes.changed}):
        for line in _of_file(path, old.get(path), new.get(path)):
            count += 1
            if count > LINES_MAX:
                yield f"… more than {LINES_MAX} lines"
                return
            yield line
    for mode in changes.modes:
        yield f"mode of {mode}"


def _of_file(path: str, old: ArchiveMember | None, new: ArchiveMember | None) -> Iterable[str]:
    sides = [_lines(old), _lines(new)]
    if None in sides:
        return [f"{path}: differs, and is no text or a long one"]
    first, second = ([] if side is None else side for side in sides)
    return difflib.unified_diff(first, second, f"a/{path}", f"b/{path}", lineterm="")


def _lines(member: ArchiveMember | None) -> list[str] | None:
    if member is None:
        return []
    if member.size > TEXT_MAX:
        return None
    try:
        text = b"".join(member.read()).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines()


def _by_path(members: Iterable[ArchiveMember]) -> Mapping[str, ArchiveMember]:
    return {member.path: member for member in members}

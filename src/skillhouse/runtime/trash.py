"""Where deleted skills are kept, so that a delete can be undone."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from skillhouse.floor import DecodeError, SkillError, decode, encode, write_atomically

RECORD = "record"
CONTENT = "skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSkill:
    """One skill in the trash."""

    key: str
    """Name of its directory in the trash; sorts by time."""
    id: str
    path: str
    """Where it was, and where an undo puts it."""
    deleted: str
    """UTC."""
    enabled: bool
    """Whether it was enabled; an undo keeps that."""


class Trash:
    """The deleted skills of one state directory; nothing in it is ever found as a skill."""

    def __init__(
        self, directory: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.directory = directory
        self._now = now

    def put(
        self, directory: Path, skill_id: str, *, enabled: bool, path: Path | None = None
    ) -> DeletedSkill:
        """Move a skill's directory here. What cannot be moved stays where it was.

        `path` is where an undo puts it, if that is not where it is now.
        """
        moment = self._now()
        key = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond:06}-{secrets.token_hex(4)}"
        found = DeletedSkill(
            key=key,
            id=skill_id,
            path=str(path or directory),
            deleted=moment.isoformat(timespec="seconds"),
            enabled=enabled,
        )
        place = self.directory / key
        place.mkdir(mode=0o700, parents=True)
        # INVARIANT: the record is on the disk before the skill moves, so that what is here can
        # always be put back.
        with write_atomically(place / RECORD, durable=True) as file:
            file.write(encode(found))
        try:
            _move(directory, place / CONTENT)
        except BaseException:
            if not os.path.lexists(place / CONTENT):
                shutil.rmtree(place)
            raise
        return found

    def deleted(self) -> tuple[DeletedSkill, ...]:
        """Return what is here, the latest first; what has no readable record is left out."""
        try:
            names = sorted((entry.name for entry in os.scandir(self.directory)), reverse=True)
        except FileNotFoundError:
            return ()
        found = []
        for name in names:
            place = self.directory / name
            try:
                record = decode((place / RECORD).read_bytes(), DeletedSkill)
            except (OSError, DecodeError):
                continue
            if record.key == name and (place / CONTENT).is_dir():
                found.append(record)
        return tuple(found)

    def find(self, reference: str = "") -> DeletedSkill:
        """Return the latest that was deleted, or the latest of an id or name.

        Raises:
            SkillError: there is none.
        """
        for found in self.deleted():
            if reference in ("", found.id, found.id.partition(":")[2]):
                return found
        what = f"no deleted skill `{reference}`" if reference else "no deleted skill"
        raise SkillError("not-deleted", self.directory, what)

    def restore(self, found: DeletedSkill) -> Path:
        """Put a skill back where it was; SkillError if something else is there now."""
        target = Path(found.path)
        if os.path.lexists(target):
            raise SkillError("skill-exists", target, "something is there again; move it away first")
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(self.directory / found.key / CONTENT, target)
        shutil.rmtree(self.directory / found.key)
        return target


def _move(source: Path, target: Path) -> None:
    """Rename, or copy to another file system: wholly beside the target first, then by name."""
    try:
        os.rename(source, target)
    except OSError:
        beside = target.with_name(f".{secrets.token_hex(8)}")
        try:
            shutil.copytree(source, beside, symlinks=True)
            os.rename(beside, target)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        shutil.rmtree(source)

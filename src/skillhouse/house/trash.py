"""Which skills may be deleted, and where they are kept so that a delete can be undone."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    SkillError,
    UnusableSkillError,
    decode,
    encode,
    write_atomically,
)
from skillhouse.skill import Skill

RECORD = "record"
CONTENT = "skill"
_GOING = "going-"
"""Begins the name of what is being removed for good."""


class DeletedSkill(Struct, frozen=True, kw_only=True):
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
    real: str = ""
    """The path without symbolic links; empty in records from before this was kept."""
    lock: str = ""
    """The lock that an installed skill was taken out of; an undo puts it into that again."""
    entry: str = ""
    """Its entry there, as JSON."""


class Trash:
    """The deleted skills of one state directory; nothing in it is ever found as a skill."""

    def __init__(
        self, directory: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.directory = directory
        self._now = now

    def put(
        self,
        directory: Path,
        skill_id: str,
        *,
        enabled: bool,
        path: Path | None = None,
        lock: str = "",
        entry: str = "",
    ) -> DeletedSkill:
        """Move a skill's directory here. What cannot be moved stays where it was.

        `path` is where an undo puts it, if that is not where it is now; `lock` and `entry` are as
        of `DeletedSkill`.
        """
        moment = self._now()
        key = f"{moment:%Y%m%dT%H%M%S}{moment.microsecond:06}-{secrets.token_hex(4)}"
        found = DeletedSkill(
            key=key,
            id=skill_id,
            path=str(path or directory),
            deleted=moment.isoformat(timespec="seconds"),
            enabled=enabled,
            real=os.path.realpath(path or directory),
            lock=lock,
            entry=entry,
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
        """Put a skill back where it was.

        Raises:
            SkillError: something else is there now, or its path leads elsewhere by a link.
        """
        target = Path(found.path)
        if os.path.lexists(target):
            raise SkillError("skill-exists", target, "something is there again; move it away first")
        # A project could make its folder of skills a link to the user's, whose skills are trusted.
        if found.real and os.path.realpath(target) != found.real:
            message = f"the folder leads elsewhere now than to `{found.real}`"
            raise SkillError("moved", target, message)
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(self.directory / found.key / CONTENT, target)
        shutil.rmtree(self.directory / found.key)
        return target

    def chosen(self, reference: str = "", *, days: int = 0) -> tuple[DeletedSkill, ...]:
        """Return what was deleted at least `days` ago, of an id or name, or all of it."""
        before = (self._now() - timedelta(days=days)).isoformat(timespec="seconds")
        return tuple(
            found
            for found in self.deleted()
            if reference in ("", found.id, found.id.partition(":")[2]) and found.deleted <= before
        )

    def empty(self, chosen: Sequence[DeletedSkill]) -> None:
        """Remove skills of the trash for good, and what an earlier removal left."""
        for found in chosen:
            # INVARIANT: the name changes first, so that half a skill is never offered for an undo.
            os.rename(self.directory / found.key, self.directory / f"{_GOING}{found.key}")
        for place in self.directory.glob(f"{_GOING}*"):
            _remove(place)


def check_deletable(
    skill: Skill, others: Iterable[Skill], *, scopes: Sequence[str], project: Path
) -> None:
    """Check that a skill is of one of the scopes, in its root, and holds none of the others.

    Raises:
        SkillError: it may not be deleted; the message says why.
    """
    directory = skill.directory
    if skill.scope not in scopes:
        allowed = " and ".join(scopes)
        message = f"only skills of scope {allowed} can be deleted, this one is {skill.scope}"
        raise SkillError("not-deletable", directory, message)
    if not is_own_place(directory, skill.root, scope=skill.scope, project=project):
        message = "reached by a symbolic link; remove the link yourself"
        place = Path(skill.link).parent if skill.link else directory
        raise SkillError("not-deletable", place, message)
    inside = [
        other.id
        for other in others
        if other.file != skill.file and other.file.startswith(f"{directory}{os.sep}")
    ]
    if inside:
        message = f"holds other skills, delete them first: {', '.join(inside)}"
        raise SkillError("not-deletable", directory, message)


def check_unread(error: UnusableSkillError, *, scopes: Sequence[str]) -> None:
    """Check that a skill which is not read is of one of the scopes; SkillError otherwise.

    Nothing of a project that is not trusted is read; that a skill's path is there is no content.
    """
    if error.state == "untrusted" and "project" not in scopes:
        allowed = " and ".join(scopes)
        message = f"only skills of scope {allowed} can be deleted, this one is project"
        raise SkillError("not-deletable", error.path.parent, message) from error


def is_own_place(directory: Path, root: str, *, scope: str, project: Path) -> bool:
    """Whether a directory of the index is really below its root; a root itself is none."""
    # INVARIANT: the directory comes from the index and is really below its root, and a project's
    # root is really in the project.
    real, real_root = os.path.realpath(directory), os.path.realpath(root)
    if scope == "project" and not Path(real_root).is_relative_to(project.resolve()):
        return False
    is_below = real == os.path.join(real_root, os.path.relpath(directory, root))
    return is_below and real != real_root


def _remove(place: Path) -> None:
    """Remove a directory, also one whose author took away the right to; links are not followed."""
    place.chmod(0o700)
    with os.scandir(place) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            _remove(Path(entry.path))
        else:
            os.unlink(entry.path)
    place.rmdir()


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

"""Finds a skill for a person, and says why one that is here cannot be used.

None of this reaches a model: to a model a denied skill is one that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from skillhouse import discovery
from skillhouse import skill as skill_package
from skillhouse.floor import (
    AmbiguousSkillError,
    Diagnostic,
    Severity,
    UnknownSkillError,
    UnusableSkillError,
)
from skillhouse.skill import HINTS, SKILL_FILE, Skill

if TYPE_CHECKING:
    from skillhouse.discovery import Root
    from skillhouse.skill import SkillIndex

TRUST = "trust the project's skills with `skillhouse trust`"

SkillState = Literal[
    "in-use",
    "people-only",
    "broken",
    "edited",
    "refused",
    "missing",
    "disabled",
    "denied",
    "shadowed",
    "exported",
    "code-off",
    "unseen",
    "untrusted",
    "left-out",
    "below-a-skill",
    "outside",
]


class AbsentSkill(NamedTuple):
    """A skill, or a place of skills, that agents do not see or cannot load."""

    state: SkillState
    name: str
    path: str
    """The SKILL.md, or the directory where there is none that could be read."""
    reason: str
    hint: str = ""
    line: int | None = None
    id: str = ""
    scope: str = ""
    code: str = ""
    """Of the finding, for a broken one."""

    @property
    def text(self) -> str:
        return f"{self.reason}; {self.hint}" if self.hint else self.reason


def broken_skill(found: Diagnostic) -> AbsentSkill:
    path = found.path or Path()
    is_file = path.name.casefold() == SKILL_FILE.casefold()
    return AbsentSkill(
        state="broken",
        name=path.parent.name if is_file else path.name,
        path=str(path),
        reason=found.message,
        hint=found.hint,
        line=found.line,
        code=found.code,
    )


_NOT_FOLLOWED = frozenset(
    {"link-escape", "link-broken", "link-cycle", "link-file", "link-untrusted"}
)
"""Findings about links behind which there may be a skill."""


def absent_of(found: Diagnostic) -> AbsentSkill | None:
    """Return what a finding says is here and cannot be used; None for other findings."""
    if found.path is None:
        return None
    if found.severity is Severity.ERROR:
        return broken_skill(found)
    if found.code not in _NOT_FOLLOWED:
        return None
    absent = broken_skill(found)
    return absent._replace(state="untrusted") if found.code == "link-untrusted" else absent


class SearchPlace(NamedTuple):
    """Where a person's skill is looked for."""

    known: SkillIndex
    roots: tuple[Root, ...]
    start: Path
    """What paths are relative to."""
    skipped: frozenset[str]
    """Names of directories that are not entered."""


def find_in(place: SearchPlace, reference: str, *, by_link: bool = False) -> Skill:
    """Return a skill of the index by id, name, directory name or path, for a person.

    With `by_link` also by the name of a link to it in a root: what deletes a skill needs its own.

    Raises:
        UnusableSkillError: a file of that name or path is here and no skill of the index; it says
            why.
        AmbiguousSkillError: several fit.
        UnknownSkillError: nothing fits.
    """
    try:
        return place.known.get(reference)
    except UnknownSkillError as error:
        file = _file_of(place, reference)
        skill = None if file is None else _at(place, file)
        if skill is None and by_link:
            skill = _linked(place, reference)
        if skill is not None:
            return skill
        why = next(_reasons(place, reference, file), None)
        if why is not None:
            raise UnusableSkillError(
                reference,
                state=why.state,
                reason=why.reason,
                hint=why.hint,
                path=Path(why.path),
                line=why.line,
            ) from error
        raise UnknownSkillError(reference, error.suggestions, hint=_hint(place)) from error


def why_absent(place: SearchPlace, name: str) -> str:
    """Return why a skill of this name that is here cannot be used; empty where nothing is known."""
    if "/" in name:
        return ""
    try:
        find_in(place, name)
    except UnusableSkillError as error:
        return str(error)
    except (UnknownSkillError, AmbiguousSkillError):
        pass
    return ""


def _file_of(place: SearchPlace, reference: str) -> str | None:
    """Return the SKILL.md that a path means; None when it is none."""
    if "\0" in reference or not reference:
        return None
    path = Path(place.start, os.path.expanduser(reference))
    if path.is_dir():
        path = path / SKILL_FILE
    is_path = "/" in reference or reference in (".", "..") or path.name == SKILL_FILE
    return os.path.abspath(path) if is_path and os.path.lexists(path) else None


def _at(place: SearchPlace, file: str) -> Skill | None:
    """Return the skill of the index whose file this is, also by a link."""
    every = (*place.known.skills, *place.known.shadowed)
    for skill in every:
        if skill.file == file:
            return skill
    real = os.path.realpath(file)
    return next((skill for skill in every if os.path.realpath(skill.file) == real), None)


def _linked(place: SearchPlace, name: str) -> Skill | None:
    """Return the skill of the index that a link of that name in a root leads to."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        return None
    for root in place.roots:
        link = os.path.join(root.path, name, SKILL_FILE)
        if "\0" not in link and os.path.lexists(link) and (found := _at(place, link)):
            return found
    return None


def _reasons(place: SearchPlace, reference: str, file: str | None) -> Iterator[AbsentSkill]:
    """Yield what is known of a name or file that no skill of the index has, most certain first."""
    name = reference.rpartition(":")[2]
    is_name = file is None and "/" not in name and name not in ("", ".", "..")
    for found in place.known.diagnostics:
        absent = absent_of(found)
        if absent is None:
            continue
        places = (absent.path, os.path.join(absent.path, SKILL_FILE))
        if file in places or (is_name and absent.name.casefold() == name.casefold()):
            yield absent
    yield from _left_out(place, name if is_name else "", file)
    if is_name:
        yield from _in_roots(place, name)
    known = {skill.file for skill in (*place.known.skills, *place.known.shadowed)}
    for found in discovery.skills_below(place.known.skills, known=known, skipped=place.skipped):
        path = found.path or Path()
        if str(path) == file or (is_name and path.parent.name == name):
            yield AbsentSkill(
                state="below-a-skill",
                name=name,
                path=str(path),
                reason=found.message,
                hint=found.hint,
            )
    if file is not None:
        yield _outside(place, file)


def _left_out(place: SearchPlace, name: str, file: str | None) -> Iterator[AbsentSkill]:
    for left in place.known.left_out:
        bound = f"deeper than {left.most} directories"
        if left.bound == "directories":
            bound = f"after {left.most} directories"
        for path in left.paths:
            is_meant = file is not None and file.startswith(path + "/")
            if (name and os.path.basename(path) == name) or is_meant:
                yield AbsentSkill(
                    state="left-out",
                    name=name,
                    path=path,
                    reason=f"not read: in `{left.root}`, {bound}",
                    hint=HINTS["scan-limit" if left.bound == "directories" else "depth-limit"],
                )


def _in_roots(place: SearchPlace, name: str) -> Iterator[AbsentSkill]:
    """Yield directories of that name directly in a root in which no skill was found."""
    unread = {str(one.path) for one in place.known.diagnostics if one.code == "project-untrusted"}
    for root in place.roots:
        if "\0" in str(root.path):
            continue
        directory = root.path / name
        if str(root.path) in unread:
            # INVARIANT: nothing of an untrusted project is read; that a path exists is no content.
            if os.path.lexists(directory / SKILL_FILE):
                yield AbsentSkill(
                    state="untrusted",
                    name=name,
                    path=str(directory / SKILL_FILE),
                    reason="the project is not trusted, so its skills are not read",
                    hint=TRUST,
                    scope=root.scope,
                )
        elif skill_package.has_manifest(directory) and not os.path.lexists(directory / SKILL_FILE):
            yield AbsentSkill(
                state="broken",
                name=name,
                path=str(directory),
                reason=f"it has tools of its own and no {SKILL_FILE}",
                hint=f"`skillhouse show {name}` shows them",
            )
        elif directory.is_dir() and not os.path.lexists(directory / SKILL_FILE):
            for found in skill_package.validate(directory):
                reason = f"{found.message}: `{directory}`"
                yield AbsentSkill(
                    state="broken",
                    name=name,
                    path=str(directory),
                    reason=reason,
                    hint=f"put a file named `{SKILL_FILE}` there",
                    code=found.code,
                )


def _outside(place: SearchPlace, file: str) -> AbsentSkill:
    directory = os.path.dirname(file)
    unread = [str(one.path) for one in place.known.diagnostics if one.code == "project-untrusted"]
    if any(file.startswith(root.rstrip("/") + "/") for root in unread):
        reason = "the project is not trusted, so its skills are not read"
        return AbsentSkill(
            state="untrusted",
            name=os.path.basename(directory),
            path=file,
            reason=reason,
            hint=TRUST,
        )
    return AbsentSkill(
        state="outside",
        name=os.path.basename(directory),
        path=file,
        reason="it is in no place where skills are looked for",
        hint=f"name it with `--root {directory}`",
    )


def _hint(place: SearchPlace) -> str:
    """Return where else the skill may be that no reason was found for."""
    hints = []
    if any(found.code == "project-untrusted" for found in place.known.diagnostics):
        hints.append("the project's skills are not read: `skillhouse trust`")
    if any(left.unopened or left.bound == "depth" for left in place.known.left_out):
        hints.append("not every directory was looked at: `skillhouse list --problem left-out`")
    return "; ".join(hints)

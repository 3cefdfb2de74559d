"""Finds a skill for a person, and says why one is not used and what to do about it.

None of this reaches a model: to a model a denied skill is one that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from skillhouse.discovery import skills_below
from skillhouse.floor import Diagnostic, Severity, UnknownSkillError, UnusableSkillError
from skillhouse.permission import Permission
from skillhouse.skill import MENDS, SKILL_FILE, Skill, has_manifest, validate

if TYPE_CHECKING:
    from skillhouse.runtime.agent_view import AgentView
    from skillhouse.runtime.house import Skillhouse

TRUST = "trust the project's skills with `skillhouse trust`"

SkillState = Literal[
    "in-use",
    "people-only",
    "broken",
    "disabled",
    "denied",
    "shadowed",
    "untrusted",
    "left-out",
    "below-a-skill",
    "outside",
]
STATES: Mapping[str, str] = {
    "broken": "cannot be used",
    "disabled": "disabled",
    "denied": "denied by rules",
    "shadowed": "shadowed by another skill of the name",
    "people-only": "for people alone",
    "untrusted": "not read",
    "left-out": "not looked at",
    "below-a-skill": "inside another skill",
}
"""The states of skills that agents do not see, in the order in which they are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentSkill:
    """A skill, or a place of skills, that agents do not see."""

    state: SkillState
    name: str
    path: str
    """The SKILL.md, or the directory where there is none that could be read."""
    reason: str
    mend: str = ""
    line: int | None = None
    id: str = ""
    scope: str = ""
    code: str = ""
    """Of the finding, for a broken one."""

    @property
    def text(self) -> str:
        return f"{self.reason}; {self.mend}" if self.mend else self.reason


def state_of(house: Skillhouse, skill: Skill, *, agent: str = "default") -> AbsentSkill:
    """Return the state of a skill of the index; "in-use" is one that agents see."""
    view = house.view(agent)
    state: SkillState = "in-use"
    reason, mend = "agents see it", ""
    settings = house.snapshot.settings
    if any(skill.file == other.file for other in house.index.shadowed):
        winner = next((one for one in house.index.skills if one.name == skill.name), None)
        state, mend = "shadowed", MENDS["shadowed"]
        reason = "another skill has its name"
        if winner is not None:
            reason = f"`{winner.id}` at `{winner.file}` has its name and is used"
    elif not settings.is_enabled(skill.id):
        state = "disabled"
        is_all = not settings.enable_skills
        reason = "all skills are switched off" if is_all else "switched off"
        mend = "`skillhouse enable --all`" if is_all else f"`skillhouse enable {skill.id}`"
    elif any(skill.file == other.file for other in view.hidden):
        state, reason = "denied", _denial(house, skill, agent)
        mend = f"`skillhouse policy explain skill {skill.name}` shows the rules"
    elif any(skill.file == other.file for other in view.for_people):
        state, reason = "people-only", "`disable-model-invocation` keeps it from models"
    return AbsentSkill(
        state=state,
        name=skill.name,
        path=skill.file,
        reason=reason,
        mend=mend,
        id=skill.id,
        scope=skill.scope,
    )


def _denial(house: Skillhouse, skill: Skill, agent: str) -> str:
    permission = Permission(action="skill", resource=skill.name)
    return house.policy.explain(permission, agent=agent).reason


def absent_skills(house: Skillhouse, *, agent: str = "default") -> Iterator[AbsentSkill]:
    """Yield everything here that agents do not see, by state; not what is inside other skills."""
    index, view = house.index, house.view(agent)
    for found in index.diagnostics:
        if found.severity is Severity.ERROR and found.path is not None:
            yield _broken(found)
    settings = house.snapshot.settings
    off = (skill for skill in index.skills if not settings.is_enabled(skill.id))
    for skill in (*off, *_denied_and_on(view, house), *view.for_people):
        yield state_of(house, skill, agent=agent)
    winners = {skill.name: skill for skill in index.skills}
    for skill in index.shadowed:
        winner = winners.get(skill.name)
        other = f"`{winner.id}` at `{winner.file}`" if winner else "another skill"
        yield AbsentSkill(
            state="shadowed",
            name=skill.name,
            path=skill.file,
            reason=f"{other} has its name and is used",
            mend=MENDS["shadowed"],
            id=skill.id,
            scope=skill.scope,
        )
    for found in index.diagnostics:
        if found.code == "project-untrusted":
            yield AbsentSkill(
                state="untrusted",
                name="",
                path=str(found.path),
                reason=found.message,
                mend=found.mend,
            )
        elif found.code in ("scan-limit", "depth-limit", "root-limit"):
            yield AbsentSkill(
                state="left-out",
                name="",
                path=str(found.path),
                reason=found.message,
                mend=found.mend,
                code=found.code,
            )


def _denied_and_on(view: AgentView, house: Skillhouse) -> Iterator[Skill]:
    settings = house.snapshot.settings
    return (skill for skill in view.hidden if settings.is_enabled(skill.id))


def _broken(found: Diagnostic) -> AbsentSkill:
    path = found.path or Path()
    is_file = path.name == SKILL_FILE
    return AbsentSkill(
        state="broken",
        name=path.parent.name if is_file else path.name,
        path=str(path),
        reason=found.message,
        mend=found.mend,
        line=found.line,
        code=found.code,
    )


def find_skill(house: Skillhouse, reference: str) -> Skill:
    """Return a skill of the index by id, name, directory name or path, for a person.

    Raises:
        UnusableSkillError: a file of that name or path is here and no skill of the index; it says
            why.
        AmbiguousSkillError: several fit.
        UnknownSkillError: nothing fits.
    """
    try:
        return house.index.get(reference)
    except UnknownSkillError as error:
        file = _file_of(house, reference)
        skill = None if file is None else _at(house, file)
        if skill is not None:
            return skill
        why = next(_reasons(house, reference, file), None)
        if why is not None:
            raise UnusableSkillError(
                reference,
                state=why.state,
                reason=why.reason,
                mend=why.mend,
                path=Path(why.path),
                line=why.line,
            ) from error
        raise UnknownSkillError(reference, error.suggestions, hint=_hint(house)) from error


def _file_of(house: Skillhouse, reference: str) -> str | None:
    """Return the SKILL.md that a path means; None when it is none."""
    if "\0" in reference or not reference:
        return None
    path = Path(house.config.places.start, os.path.expanduser(reference))
    if path.is_dir():
        path = path / SKILL_FILE
    is_path = "/" in reference or reference in (".", "..") or path.name == SKILL_FILE
    return os.path.abspath(path) if is_path and os.path.lexists(path) else None


def _at(house: Skillhouse, file: str) -> Skill | None:
    """Return the skill of the index whose file this is, also by a link."""
    every = (*house.index.skills, *house.index.shadowed)
    for skill in every:
        if skill.file == file:
            return skill
    real = os.path.realpath(file)
    return next((skill for skill in every if os.path.realpath(skill.file) == real), None)


def _reasons(house: Skillhouse, reference: str, file: str | None) -> Iterator[AbsentSkill]:
    """Yield what is known of a name or file that no skill of the index has, most certain first."""
    name = reference.rpartition(":")[2]
    is_name = file is None and "/" not in name and name not in ("", ".", "..")
    for found in house.index.diagnostics:
        path = found.path
        if found.severity is not Severity.ERROR or path is None:
            continue
        named = path.parent.name if path.name == SKILL_FILE else path.name
        if str(path) == file or (is_name and named.casefold() == name.casefold()):
            yield _broken(found)
    yield from _left_out(house, name if is_name else "", file)
    if is_name:
        yield from _in_roots(house, name)
    profile = house.policy.profile
    known = {skill.file for skill in (*house.index.skills, *house.index.shadowed)}
    for found in skills_below(house.index.skills, known=known, skipped=profile.skipped_directories):
        path = found.path or Path()
        if str(path) == file or (is_name and path.parent.name == name):
            yield AbsentSkill(
                state="below-a-skill",
                name=name,
                path=str(path),
                reason=found.message,
                mend=found.mend,
            )
    if file is not None:
        yield _outside(house, file)


def _left_out(house: Skillhouse, name: str, file: str | None) -> Iterator[AbsentSkill]:
    for left in house.index.left_out:
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
                    reason=f"not looked at: in `{left.root}`, {bound}",
                    mend=MENDS["scan-limit" if left.bound == "directories" else "depth-limit"],
                )


def _in_roots(house: Skillhouse, name: str) -> Iterator[AbsentSkill]:
    """Yield directories of that name directly in a root in which no skill was found."""
    unread = {str(one.path) for one in house.index.diagnostics if one.code == "project-untrusted"}
    for root in house.snapshot.roots:
        if "\0" in str(root.path):
            continue
        place = root.path / name
        if str(root.path) in unread:
            # INVARIANT: nothing of an untrusted project is read; that a path exists is no content.
            if os.path.lexists(place / SKILL_FILE):
                yield AbsentSkill(
                    state="untrusted",
                    name=name,
                    path=str(place / SKILL_FILE),
                    reason="the project is not trusted, so its skills are not read",
                    mend=TRUST,
                    scope=root.scope,
                )
        elif has_manifest(place) and not os.path.lexists(place / SKILL_FILE):
            yield AbsentSkill(
                state="broken",
                name=name,
                path=str(place),
                reason=f"it has tools of its own and no {SKILL_FILE}",
                mend=f"`skillhouse show {name}` shows them",
            )
        elif place.is_dir() and not os.path.lexists(place / SKILL_FILE):
            for found in validate(place):
                reason = f"{found.message}: `{place}`"
                yield AbsentSkill(
                    state="broken",
                    name=name,
                    path=str(place),
                    reason=reason,
                    mend=f"put a file named `{SKILL_FILE}` there",
                    code=found.code,
                )


def _outside(house: Skillhouse, file: str) -> AbsentSkill:
    directory = os.path.dirname(file)
    unread = [str(one.path) for one in house.index.diagnostics if one.code == "project-untrusted"]
    if any(file.startswith(root.rstrip("/") + "/") for root in unread):
        reason = "the project is not trusted, so its skills are not read"
        return AbsentSkill(
            state="untrusted",
            name=os.path.basename(directory),
            path=file,
            reason=reason,
            mend=TRUST,
        )
    return AbsentSkill(
        state="outside",
        name=os.path.basename(directory),
        path=file,
        reason="it is in no place where skills are looked for",
        mend=f"name it with `--root {directory}`",
    )


def _hint(house: Skillhouse) -> str:
    """Return where else the skill may be that no reason was found for."""
    hints = []
    if any(found.code == "project-untrusted" for found in house.index.diagnostics):
        hints.append("the project's skills are not read: `skillhouse trust`")
    if any(left.unopened or left.bound == "depth" for left in house.index.left_out):
        hints.append("not every directory was looked at: `skillhouse list --problem left-out`")
    return "; ".join(hints)

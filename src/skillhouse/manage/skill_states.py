"""Finds a skill for a person, and says why one is not used and what to do about it.

None of this reaches a model: to a model a denied skill is one that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from skillhouse import skill as skill_package
from skillhouse.floor import StateError
from skillhouse.house.exported_copies import EXPORTED_COPY, OTHER_CHECKOUT
from skillhouse.house.find_skills import AbsentSkill, SkillState, absent_of, find_in
from skillhouse.permission import Permission
from skillhouse.registry.lock import LOCK_FILE
from skillhouse.skill import HINTS, Skill, SkillIndex

if TYPE_CHECKING:
    from skillhouse.house.agent_view import AgentView
    from skillhouse.house.house import Skillhouse
    from skillhouse.house.installed_check import InstalledMark

CODE_LOOKS_MAX = 1_000
"""Directories of a root that are looked at for a manifest where skills' code is off."""

STATES: Mapping[str, str] = {
    "broken": "cannot be used",
    "edited": "not loaded: edited since they were installed",
    "refused": "not loaded: revoked since they were installed, or their signature is refused",
    "missing": "installed, and not there any more",
    "disabled": "disabled",
    "denied": "denied by rules",
    "shadowed": "shadowed by another skill of the name",
    "exported": "exported copies, which clients read",
    "people-only": "for people alone",
    "code-off": "not offered: skills' code is off",
    "unseen": "not seen by a person as they are",
    "untrusted": "not read",
    "left-out": "not looked at",
    "below-a-skill": "inside another skill",
}
"""The states of skills that agents do not see or cannot load, in the order of lists."""


def state_of(house: Skillhouse, skill: Skill, *, agent: str = "default") -> AbsentSkill:
    """Return the state of a skill of the index; "in-use" is one that agents see."""
    view = house.view(agent)
    state: SkillState = "in-use"
    reason, hint = "agents see it", ""
    settings = house.snapshot.settings
    shadowed = house.snapshot.shown.index.shadowed
    if any(skill.file == other.file for other in shadowed):
        return next(one for one in _shadowed(house.index, shadowed) if one.path == skill.file)
    if not settings.is_enabled(skill.id):
        state = "disabled"
        is_all = not settings.enable_skills
        reason = "all skills are switched off" if is_all else "switched off"
        hint = "`skillhouse enable --all`" if is_all else f"`skillhouse enable {skill.id}`"
    elif any(skill.file == other.file for other in view.hidden):
        state, reason = "denied", _denial(house, skill, agent)
        hint = f"`skillhouse policy explain skill {skill.name}` shows the rules"
    elif any(skill.file == other.file for other in view.for_people):
        state, reason = "people-only", "`disable-model-invocation` keeps it from models"
    elif (mark := _wrong_mark(house, skill)) is not None:
        return _of_mark(mark, skill)
    elif skill.file in view.waiting:
        return _unseen(house, view.waiting[skill.file])
    return AbsentSkill(
        state=state,
        name=skill.name,
        path=skill.file,
        reason=reason,
        hint=hint,
        id=skill.id,
        scope=skill.scope,
    )


def installed_marks(house: Skillhouse) -> tuple[InstalledMark, ...]:
    """Return how the installed skills are; those of a project that is not trusted are not read.

    Raises:
        StateError: a lock cannot be used.
    """
    directories = (house.config.places.user_file.parent, house.project)
    if not any(os.path.lexists(directory / LOCK_FILE) for directory in directories):
        # What reads them takes a while to load.
        return ()
    scopes = ("project", "user") if house.is_project_trusted else ("user",)
    return house.services.installed_check.marks.of(scopes)


def _wrong_mark(house: Skillhouse, skill: Skill) -> InstalledMark | None:
    real = os.path.realpath(skill.directory)
    try:
        marks = installed_marks(house)
    except StateError:
        # `list` and `verify` name the lock.
        return None
    return next((one for one in marks if str(one.directory) == real and not one.is_well), None)


def _of_mark(mark: InstalledMark, skill: Skill | None) -> AbsentSkill:
    return AbsentSkill(
        state=cast("SkillState", mark.state),
        name=mark.name if skill is None else skill.name,
        path=str(mark.directory) if skill is None else skill.file,
        reason=mark.reason,
        hint=mark.hint,
        id=f"{mark.scope}:{mark.name}" if skill is None else skill.id,
        scope=mark.scope,
    )


def changed_skills(house: Skillhouse) -> Iterator[AbsentSkill]:
    """Yield the installed skills that are enabled, and not as they were installed."""
    try:
        wrong = [mark for mark in installed_marks(house) if not mark.is_well]
    except StateError as error:
        path = str(error.path)
        name = os.path.basename(path)
        yield AbsentSkill(state="broken", name=name, path=path, reason=str(error))
        return
    if not wrong:
        return
    here = {os.path.realpath(skill.directory): skill for skill in house.index.skills}
    settings = house.snapshot.settings
    for mark in wrong:
        skill = here.get(str(mark.directory))
        if mark.state == "missing" or (skill is not None and settings.is_enabled(skill.id)):
            yield _of_mark(mark, skill)


def _denial(house: Skillhouse, skill: Skill, agent: str) -> str:
    permission = Permission(action="skill", resource=skill.name)
    return house.policy.explain(permission, agent=agent).reason


def absent_skills(house: Skillhouse, *, agent: str = "default") -> Iterator[AbsentSkill]:
    """Yield everything here that agents do not see, by state; not what is inside other skills."""
    index, view = house.index, house.view(agent)
    yield from filter(None, map(absent_of, index.diagnostics))
    yield from changed_skills(house)
    settings = house.snapshot.settings
    off = (skill for skill in index.skills if not settings.is_enabled(skill.id))
    for skill in (*off, *_denied_and_on(view, house), *view.for_people):
        yield state_of(house, skill, agent=agent)
    for skill in house.snapshot.shown.waiting:
        if settings.is_enabled(skill.id):
            yield _unseen(house, skill)
    yield from _shadowed(index, house.snapshot.shown.index.shadowed)
    for found in index.diagnostics:
        if found.code == "project-untrusted":
            yield AbsentSkill(
                state="untrusted",
                name="",
                path=str(found.path),
                reason=found.message,
                hint=found.hint,
            )
        elif found.code in ("scan-limit", "depth-limit", "root-limit"):
            yield AbsentSkill(
                state="left-out",
                name="",
                path=str(found.path),
                reason=found.message,
                hint=found.hint,
                code=found.code,
            )


def _unseen(house: Skillhouse, skill: Skill) -> AbsentSkill:
    """Return what agents are shown of a project's skill until a person looks at it."""
    shown = house.snapshot.shown
    if skill in shown.changed:
        reason = "changed since the project was trusted: agents are shown its earlier text"
    elif skill in shown.named:
        reason = "new since the project was trusted: agents are shown its name alone"
    else:
        reason = "new since the project was trusted: agents are not shown it"
        other = next((one for one in shown.index.skills if one.name == skill.name), None)
        if other is not None:
            reason += f", and `{other.id}` keeps its name"
    return AbsentSkill(
        state="unseen",
        name=skill.name,
        path=skill.file,
        reason=reason,
        hint="look at it with `skillhouse trust`",
        id=skill.id,
        scope=skill.scope,
    )


def _shadowed(index: SkillIndex, shadowed: Iterable[Skill]) -> Iterator[AbsentSkill]:
    winners = {skill.name: skill for skill in index.skills}
    codes = (EXPORTED_COPY, OTHER_CHECKOUT)
    said = {str(one.path): one for one in index.diagnostics if one.code in codes}
    for skill in shadowed:
        winner = winners.get(skill.name)
        other = f"`{winner.id}` at `{winner.file}`" if winner else "another skill"
        found = said.get(skill.file)
        yield AbsentSkill(
            state="exported" if found and found.code == EXPORTED_COPY else "shadowed",
            name=skill.name,
            path=skill.file,
            reason=found.message if found else f"{other} has its name and is used",
            hint=found.hint if found else HINTS["shadowed"],
            id=skill.id,
            scope=skill.scope,
        )


def _denied_and_on(view: AgentView, house: Skillhouse) -> Iterator[Skill]:
    settings = house.snapshot.settings
    return (skill for skill in view.hidden if settings.is_enabled(skill.id))


def find_skill(house: Skillhouse, reference: str) -> Skill:
    """Return a skill of the index by id, name, directory name or path; errors as of `find_in`."""
    return find_in(house.snapshot.place, reference, by_link=True)


def may_hold_code(house: Skillhouse) -> bool:
    """Whether a directory in a root, which is no skill of the index, has a manifest."""
    known = {os.path.dirname(s.file) for s in (*house.index.skills, *house.index.shadowed)}
    return any(
        True
        for root in house.snapshot.roots
        if "\0" not in str(root.path)
        for _ in manifest_places(os.path.realpath(root.path), known)
    )


def manifest_places(root: str, known: Collection[str]) -> Iterator[str]:
    """Yield the directories in a root that are no skills in `known` and have a manifest."""
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if f"{root}/{entry.name}" not in known)
    except OSError:
        return
    for name in names[:CODE_LOOKS_MAX]:
        files = (f"{root}/{name}/{file}" for file in ("package.json", "pyproject.toml"))
        # The package of manifests takes time to load.
        if name.startswith(".") or not any(map(os.path.lexists, files)):
            continue
        if skill_package.has_manifest(Path(root, name)):
            yield f"{root}/{name}"

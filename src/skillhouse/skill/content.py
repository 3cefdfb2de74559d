"""Reads a skill's body and lists its other files, without leaving its root."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import (
    Diagnostic,
    PathError,
    Severity,
    SkillError,
    confine,
    is_leftover_name,
    open_beneath,
    target_problem,
)
from skillhouse.skill.link_targets import skill_links
from skillhouse.skill.model import SKILL_FILE, LinkedFile, ParseResult, Skill, SkillContent
from skillhouse.skill.profile import DEFAULT_PROFILE
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import SKILL_FILE_MAX

RESOURCES_MAX = 50
"""Files that are listed with a loaded skill (DESIGN, bounds)."""
STEADY_TRIES = 5
"""How often a file is read that changes while it is read."""
RESOURCES_SCANNED_MAX = 10_000
"""Entries that are looked at at all; a skill that has more is listed as holding at least these."""


def load(skill: Skill) -> SkillContent:
    """Return the body of `skill`, read now, with the list of its other files.

    SkillError: the file is gone, outside the skill's root, or one that `parse` refuses; `code` is
    the finding's.
    """
    return load_listing(skill, resources_max=RESOURCES_MAX)


def load_listing(skill: Skill, *, resources_max: int) -> SkillContent:
    """Do as `load` does, listing at most `resources_max` files; the others are counted."""
    result, found = _parsed(skill)
    links = skill_links(skill)
    linked = [one.relative for one in links.files]
    resources, omitted, more = find_resources(skill.directory, limit=resources_max, linked=linked)
    return SkillContent(
        skill=skill,
        text=result.text,
        body=result.body,
        resources=resources,
        resources_omitted=omitted,
        resources_more=more,
        directory=skill.directory,
        frontmatter_changed=found.packed_fields != skill.packed_fields,
        diagnostics=(*result.diagnostics, *_refusals(skill, links.refused)),
        links=links,
    )


def _refusals(skill: Skill, refused: Iterable[LinkedFile]) -> Iterator[Diagnostic]:
    """Yield a finding about each link in a project's skill that is not followed."""
    for one in refused if skill.link_bound else ():
        yield Diagnostic(
            code="link-escape",
            severity=Severity.WARNING,
            message=f"`{one.relative}` is a symbolic link to `{one.real}`, and is not followed",
            path=skill.location,
            mend="if it may be, `skillhouse trust` names it",
        )


def load_body(skill: Skill) -> str:
    """Return the body of `skill` alone, read now; raises as `load`."""
    result, _ = _parsed(skill)
    return result.body


def _parsed(skill: Skill) -> tuple[ParseResult, Skill]:
    data = _read(skill)
    result = parse(data, directory=skill.directory.name, path=skill.location, policy=skill.policy)
    if result.skill is None:
        refused = next(finding for finding in result.diagnostics if finding.severity == "error")
        raise SkillError(refused.code, skill.location, refused.message)
    return result, result.skill


def _read(skill: Skill) -> bytes:
    root, location = skill.bound, skill.location
    if skill.link and skill.location.is_symlink():
        location = Path(os.path.realpath(skill.file))
        root = location.parent
        bound = skill.link_bound.rstrip("/") + "/"
        is_named = str(location).startswith(bound) or str(location) in skill.link_targets
        if skill.link_bound and not is_named:
            message = f"leads to `{location}`, which the trust in the project does not name"
            raise SkillError("link-escape", skill.location, message)
        if problem := target_problem(location):
            raise SkillError("link-owner", skill.location, f"leads to `{location}`: {problem}")
    if not location.is_relative_to(root):
        raise SkillError("path-escape", skill.location, "outside the root of this skill")
    try:
        handle = _open(root, location.relative_to(root).as_posix())
    except PathError as error:
        raise SkillError(error.code, skill.location, "cannot read this skill") from error
    with os.fdopen(handle, "rb") as file:
        for _ in range(STEADY_TRIES):
            before = os.fstat(handle).st_ctime_ns
            data = file.read(SKILL_FILE_MAX + 1)
            if os.fstat(handle).st_ctime_ns == before:
                return data
            # It was written to meanwhile: what was read may be of two states.
            file.seek(0)
    raise SkillError("unsteady", skill.location, "changed each time it was read")


def _open(root: Path, relative: str) -> int:
    try:
        return open_beneath(root, relative)
    except PathError as error:
        if error.code != "path-link":
            raise
    # A link is followed as far as it stays inside the root, then opened without links.
    target = confine(root, relative)
    real_root = root.resolve()
    return open_beneath(real_root, target.relative_to(real_root).as_posix())


def list_top(directory: Path) -> tuple[str, ...]:
    """Return what is directly in `directory`: SKILL.md, then the rest sorted, directories with `/`.

    Links, names that are not printable, what discovery skips (`.git`) and what programs leave are
    left out.
    """
    names: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in itertools.islice(entries, RESOURCES_SCANNED_MAX):
                if entry.is_dir(follow_symlinks=False):
                    if _is_entered(entry.name):
                        names.append(entry.name + "/")
                elif is_leftover_name(entry.name):
                    continue
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
    except OSError:
        return ()
    return tuple(
        sorted(filter(str.isprintable, names), key=lambda name: (name != SKILL_FILE, name))
    )


def _is_entered(name: str) -> bool:
    return name not in DEFAULT_PROFILE.skipped_directories and not is_leftover_name(name)


class Resources(NamedTuple):
    """The other files of a skill, as far as they were looked at."""

    listed: tuple[str, ...]
    omitted: int
    """How many more were found than are listed."""
    more: bool
    """Whether there are entries that were not looked at, so that there may be more files."""


def list_resources(directory: Path, *, limit: int = RESOURCES_MAX) -> tuple[tuple[str, ...], int]:
    """Return the first `limit` files below `directory`, and how many more were found."""
    return find_resources(directory, limit=limit)[:2]


def find_resources(
    directory: Path, *, limit: int = RESOURCES_MAX, linked: Iterable[str] = ()
) -> Resources:
    """Return the first `limit` files below `directory`, and what is not listed.

    SKILL.md itself, what links lead to but for the `linked` files, the directories that discovery
    skips (`.git`) and what programs leave (`.DS_Store`) are no resources. A file whose path is not
    printable is counted and not listed, for the list goes to a model line by line.
    """
    resources = [relative for relative in linked if relative != SKILL_FILE]
    pending = [""]
    seen = 0
    more = False
    while pending and not more:
        prefix = pending.pop()
        try:
            with os.scandir(directory / prefix if prefix else directory) as entries:
                for entry in entries:
                    if more := seen == RESOURCES_SCANNED_MAX:
                        break
                    seen += 1
                    relative = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if _is_entered(entry.name):
                            pending.append(relative + "/")
                    elif is_leftover_name(entry.name):
                        continue
                    elif entry.is_file(follow_symlinks=False) and relative != SKILL_FILE:
                        resources.append(relative)
        except OSError:
            continue
    listed = sorted(filter(str.isprintable, resources), key=str.encode)[:limit]
    return Resources(tuple(listed), len(resources) - len(listed), more)

"""Proposes what renames, moves or deletes a skill, where the report says to do so.

Each is one change of its own, shown before it is made. What is deleted goes to the trash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from skillhouse.clients.comparison import read_plainly
from skillhouse.clients.config_file import ConfigFile, ConfigFileError, difference
from skillhouse.clients.export_state import ExportError
from skillhouse.clients.findings import names_of, same_names
from skillhouse.clients.fix import Fix, bound_of, is_own
from skillhouse.clients.trees import source_digest
from skillhouse.clients.verdicts import LISTED, Lens, LensSkill
from skillhouse.skill import (
    SKILL_FILE,
    SKILL_FILE_MAX,
    parse,
    validate_name,
    with_name,
)

MOVED_CODES = frozenset(
    {"root-file", "too-deep", "inside-a-skill", "skipped-directory", "hidden-directory"}
)
"""Codes of verdicts that a move to ROOT/NAME mends."""
COPIES_MAX = 99
"""The highest number that a renamed copy gets."""


def relocations(lens: Lens) -> Iterator[Fix]:
    """Yield each proposal; of one skill the first one only, so that none depends on another."""
    touched: set[str] = set()
    for fix, directories in (*_names(lens), *_moves(lens), *_copies(lens)):
        if touched.isdisjoint(directories):
            touched.update(directories)
            yield fix


_Proposal = tuple[Fix, tuple[str, ...]]
"""A change, and the directories of the skills that it is about."""


def _names(lens: Lens) -> Iterator[_Proposal]:
    """Give a directory and the name in its SKILL.md the same name."""
    for skill in lens.skills:
        codes = {verdict.code for verdict in skill.verdicts}
        if "name-mismatch" not in codes and len(names_of(lens, skill)) < 2:
            continue
        directory = _directory(lens, skill)
        called = os.path.basename(directory)
        name = _written_name(skill) if directory else ""
        if not name or called == name:
            continue
        target = os.path.join(os.path.dirname(directory), name)
        if _is_name(name) and not os.path.lexists(target):
            fix = _moved(lens, directory, target, "name-mismatch")
        elif _is_name(called):
            fix = _renamed(lens, skill, called, "name-mismatch")
        else:
            continue
        if fix is not None:
            yield fix, (directory,)


def _moves(lens: Lens) -> Iterator[_Proposal]:
    """Bring a skill to ROOT/NAME."""
    for skill in lens.skills:
        found = {verdict.code for verdict in skill.verdicts} & MOVED_CODES
        directory = _directory(lens, skill) if found else ""
        root = os.path.realpath(skill.root)
        if not directory or not directory.startswith(root):
            continue
        name = os.path.basename(directory).lstrip(".")
        name = name if _is_name(name) and directory != root else _written_name(skill)
        target = os.path.join(root, name)
        if not _is_name(name) or os.path.lexists(target):
            continue
        if directory == root:
            # Only the file: what is beside it may be of other skills.
            fix = _moved(lens, skill.file, os.path.join(target, SKILL_FILE), *sorted(found))
        else:
            fix = _moved(lens, directory, target, *sorted(found))
        if fix is not None:
            yield fix, (directory,)


def _copies(lens: Lens) -> Iterator[_Proposal]:
    """Delete equal copies and such as no client uses; rename those that clients use."""
    for name, skills in same_names(lens):
        kept, *others = sorted(skills, key=lambda skill: (-_users(skill), skill.file))
        keeper = _directory(lens, kept)
        digest = _digest(keeper) if keeper else ""
        taken = {os.path.basename(os.path.dirname(skill.file)) for skill in skills}
        for skill in others:
            directory = _directory(lens, skill)
            fix: Fix | None = None
            if not directory or not digest:
                continue
            if _digest(directory) == digest:
                fix = _discarded(lens, skill, directory, keeper)
            elif not _users(skill):
                fix = _discarded(lens, skill, directory, "")
            else:
                free = _free_name(name, directory, taken)
                taken.add(free)
                fix = _renamed(lens, skill, free, "duplicate") if free else None
            if fix is not None:
                yield fix, (directory, keeper) if fix.kept else (directory,)


def _free_name(name: str, directory: str, taken: set[str]) -> str:
    for number in range(2, COPIES_MAX + 1):
        free = f"{name}-{number}"
        place = os.path.join(os.path.dirname(directory), free)
        if free not in taken and _is_name(free) and not os.path.lexists(place):
            return free
    return ""


def _users(skill: LensSkill) -> int:
    return sum(verdict.state in LISTED for verdict in skill.verdicts)


def _directory(lens: Lens, skill: LensSkill) -> str:
    """Return the real directory of a skill that may be changed as a whole; empty for others.

    It is at home or in the project, is not only reached by a link, no client brought it, and no
    other skill is below it.
    """
    directory = os.path.dirname(skill.file)
    if (
        skill.file not in skill.places
        or not bound_of(lens, skill.file)
        or is_own(lens, skill.file)
        or (directory != os.path.realpath(skill.root) and _has_below(lens.skills, skill))
    ):
        return ""
    return directory


def _written_name(skill: LensSkill) -> str:
    """Return the name in a SKILL.md as we read it; the lens has none of a file that is dropped."""
    directory = os.path.basename(os.path.dirname(skill.file))
    data = read_plainly(skill.file, SKILL_FILE_MAX)
    found = parse(data, directory=directory).skill
    return "" if found is None else found.name


def _has_below(skills: Sequence[LensSkill], skill: LensSkill) -> bool:
    above = f"{os.path.dirname(skill.file)}/"
    return any(other is not skill and other.file.startswith(above) for other in skills)


def _is_name(name: str) -> bool:
    return not validate_name(name, directory=name)


def _digest(directory: str) -> str:
    try:
        return source_digest(Path(directory))
    except ExportError:
        # Too large, or with links: it is not compared, and nothing is proposed.
        return ""


def _moved(lens: Lens, path: str, target: str, *codes: str) -> Fix | None:
    bound = bound_of(lens, target)
    if not bound or bound != bound_of(lens, path):
        return None
    lines = (f"move {lens.short(path)}", f"  to {lens.short(target)}")
    return Fix(path=path, bound=bound, codes=codes, difference=lines, moved=target)


def _renamed(lens: Lens, skill: LensSkill, name: str, code: str) -> Fix | None:
    """Propose another `name` in a SKILL.md, and the directory's name with it."""
    directory = os.path.dirname(skill.file)
    bound = bound_of(lens, skill.file)
    try:
        before = ConfigFile(Path(skill.file), bound=Path(bound), may_be_outside=False).text
    except ConfigFileError:
        return None
    after = with_name(before.encode(), name, directory=os.path.basename(directory))
    if after is None:
        return None
    lines = difference(before, after, lens.short(skill.file))
    target = os.path.join(os.path.dirname(directory), name)
    moved = target if target != directory else ""
    if moved:
        lines = (*lines, f"move {lens.short(directory)}", f"  to {lens.short(target)}")
    return Fix(
        path=skill.file, bound=bound, codes=(code,), difference=lines,
        before=before, after=after, moved=moved,
    )  # fmt: skip


def _discarded(lens: Lens, skill: LensSkill, directory: str, keeper: str) -> Fix | None:
    lines = [f"delete {lens.short(directory)}"]
    target = ""
    if keeper:
        lines.append(f"  equal to {lens.short(keeper)}")
        if os.path.dirname(keeper) != os.path.dirname(directory):
            target = os.path.relpath(keeper, os.path.dirname(directory))
            lines.append(f"  with a link to {target} in its place")
    else:
        lines.append("  no client uses it")
    bound = bound_of(lens, directory)
    scope = "user" if bound == lens.home else "project"
    return Fix(
        path=directory, bound=bound, codes=("duplicate",), difference=tuple(lines),
        discarded=f"{scope}:{skill.name}", digest=_digest(directory), kept=keeper, target=target,
    )  # fmt: skip

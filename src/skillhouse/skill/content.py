"""Reads a skill's body and lists its other files, without leaving its root.

Links in a skill of a person's own folders may lead out of it: to which files, and the digest with
them.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import (
    TREE_MAX_BYTES,
    TREE_MAX_FILES,
    Diagnostic,
    PathError,
    Severity,
    SkillError,
    TreeError,
    canonical_json,
    confine,
    git_root,
    is_leftover_name,
    is_sealed,
    is_secret_file,
    open_beneath,
    target_problem,
    tree_digest,
)
from skillhouse.floor.digests import file_digest, sha256
from skillhouse.skill.model import (
    SKILL_FILE,
    LinkedFile,
    ParseResult,
    Skill,
    SkillContent,
    SkillLinks,
)
from skillhouse.skill.profile import DEFAULT_PROFILE
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import SKILL_FILE_MAX

LINK_DEPTH_MAX = 2
"""Directories below what a link in a skill leads to that are looked at."""
LINK_DIRECTORIES_MAX = 500
"""Directories behind the links of one skill."""
SCANNED_MAX = 10_000
"""Entries of a skill that are looked at for links."""


def skill_links(skill: Skill) -> SkillLinks:
    """Return what links in a skill lead to out of it, and which of that is followed.

    No one else can write there, and it has no name of a secret. A skill that the person has from
    others, by a link or in a work tree of git, is not to lead out of what it came with, unless into
    a store of packages that no one writes. One of a project leads out of the project only to what
    its trust names.
    """
    if not skill.follows:
        return SkillLinks()
    files: list[LinkedFile] = []
    ends: set[str] = set()
    refused: list[LinkedFile] = []
    directory, base = os.path.dirname(skill.file), ""
    is_linked = bool(skill.link) and os.path.dirname(skill.link) != directory
    bound: str | None = None
    named = skill.link_targets if skill.link_bound else None
    for relative, _ in _links(directory):
        # Most skills have no link: where they really are is not asked for thousands.
        base = base or os.path.realpath(directory)
        path = os.path.join(base, relative)
        real = os.path.realpath(path)
        if real.startswith(base + "/") or base.startswith(f"{real}/"):
            continue
        if bound is None:
            bound = base if is_linked else skill.link_bound or _work_tree(base)
        found = _ends_in(relative, path, real, bound, named)
        if found is None:
            refused.append(LinkedFile(relative, real))
        else:
            files += found
            ends.add(real)
    return SkillLinks(tuple(sorted(files)[:TREE_MAX_FILES]), tuple(sorted(ends)), tuple(refused))


def linked_files(skill: Skill) -> tuple[LinkedFile, ...]:
    """Return the files that links in a skill lead to out of it, as far as they are followed."""
    return skill_links(skill).files


def _ends_in(
    relative: str, path: str, real: str, bound: str, named: frozenset[str] | None
) -> list[LinkedFile] | None:
    """Return the files that a link leads to; None where it is not followed.

    Without `bound` it may lead anywhere; out of it to what is `named`, or without names into a
    store.
    """
    if bound and not real.startswith(bound.rstrip("/") + "/"):
        is_store = named is None and is_sealed(Path(path).parent) and is_sealed(Path(real))
        if not is_store and real not in (named or ()):
            return None
    if is_secret_file(real, real) or target_problem(Path(real)):
        return None
    try:
        mode = os.lstat(real).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return [LinkedFile(relative, real)]
    return list(_below(relative, real)) if stat.S_ISDIR(mode) else None


def _work_tree(place: str) -> str:
    """Return the work tree of git that a directory is in; empty for none."""
    root = git_root(Path(place))
    return "" if root is None else str(root)


def followed_digest(skill: Skill, links: SkillLinks | None = None) -> str:
    """Return a digest of a skill's files with those that links out of it lead to.

    Without such links it is the digest of the tree. In a project a link that is not followed
    counts too, so that the digest is another once it is. TreeError as of `tree_digest`.

    Args:
        skill: The skill.
        links: What `skill_links` said of it, where that is known.
    """
    directory = skill.directory
    links = links or skill_links(skill)
    refused = links.refused if skill.link_bound else ()
    if not links.files and not refused:
        return tree_digest(directory)
    files = dict(_files(os.path.realpath(directory)))
    files |= {one.relative: one.real for one in links.files}
    if len(files) > TREE_MAX_FILES:
        raise TreeError("tree-too-large", directory, f"more than {TREE_MAX_FILES} files")
    # In a project a path is that in its work tree, so that it is the same in each of them.
    tree = _work_tree(os.path.realpath(directory)) if skill.link_bound else ""
    total = 0
    listed: list[dict[str, str]] = []
    for relative, path in sorted(files.items(), key=lambda item: os.fsencode(item[0])):
        try:
            total += os.stat(path).st_size
            if total > TREE_MAX_BYTES:
                raise TreeError("tree-too-large", directory, f"more than {TREE_MAX_BYTES} bytes")
            real = _within(path, tree)
            listed.append({"path": relative, "real": real, "sha256": file_digest(path)})
        except OSError as error:
            reason = error.strerror or "unreadable"
            raise TreeError("unreadable", Path(path), reason) from error
    listed += [
        {"path": one.relative, "refused": _within(one.real, tree)} for one in sorted(refused)
    ]
    return "linkedtree1:" + sha256(canonical_json(listed)).hexdigest()


def _within(path: str, tree: str) -> str:
    return os.path.relpath(path, tree) if tree and path.startswith(f"{tree}/") else path


def _links(base: str) -> Iterator[tuple[str, str]]:
    for relative, entry in _entries(base):
        if entry.is_symlink():
            yield relative, entry.path


def _files(base: str) -> Iterator[tuple[str, str]]:
    for relative, entry in _entries(base):
        if entry.is_file(follow_symlinks=False):
            yield relative, entry.path


def _entries(base: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    pending, seen = [""], 0
    while pending and seen < SCANNED_MAX:
        prefix = pending.pop()
        try:
            with os.scandir(os.path.join(base, prefix)) as entries:
                for entry in itertools.islice(entries, SCANNED_MAX):
                    seen += 1
                    if is_leftover_name(entry.name):
                        continue
                    if not entry.is_dir(follow_symlinks=False):
                        yield prefix + entry.name, entry
                    elif entry.name not in DEFAULT_PROFILE.skipped_directories:
                        pending.append(f"{prefix}{entry.name}/")
        except OSError:
            continue


def _below(relative: str, real: str) -> Iterator[LinkedFile]:
    pending, opened = [(relative, real, 0)], 0
    while pending and opened < LINK_DIRECTORIES_MAX:
        prefix, place, depth = pending.pop(0)
        opened += 1
        try:
            with os.scandir(place) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    below = f"{prefix}/{entry.name}"
                    if is_leftover_name(entry.name):
                        continue
                    if entry.is_file(follow_symlinks=False):
                        yield LinkedFile(below, entry.path)
                    elif (
                        depth < LINK_DEPTH_MAX
                        and entry.is_dir(follow_symlinks=False)
                        and entry.name not in DEFAULT_PROFILE.skipped_directories
                    ):
                        pending.append((below, entry.path, depth + 1))
        except OSError:
            continue


RESOURCES_MAX = 50
"""Files that are listed with a loaded skill (docs/reference/limits.md)."""
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
            hint="if it may be, `skillhouse trust` names it",
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

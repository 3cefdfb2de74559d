"""The files that links in a skill of a person's own folders lead to, and a digest with them."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from skillhouse.floor import (
    TREE_MAX_BYTES,
    TREE_MAX_FILES,
    TreeError,
    canonical_json,
    git_root,
    is_leftover_name,
    is_sealed,
    is_secret_file,
    target_problem,
    tree_digest,
)
from skillhouse.floor.digests import file_digest
from skillhouse.skill.model import LinkedFile, Skill, SkillLinks
from skillhouse.skill.profile import DEFAULT_PROFILE

LINK_DEPTH_MAX = 2
"""Directories below what a link in a skill leads to that are looked at (issue 35)."""
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
    base = os.path.realpath(skill.directory)
    is_linked = bool(skill.link) and os.path.dirname(skill.link) != os.path.dirname(skill.file)
    bound = base if is_linked else skill.link_bound or _work_tree(base)
    named = skill.link_targets if skill.link_bound else None
    for relative, path in _links(base):
        real = os.path.realpath(path)
        if real.startswith(base + "/") or base.startswith(f"{real}/"):
            continue
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
    return "linkedtree1:" + hashlib.sha256(canonical_json(listed)).hexdigest()


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

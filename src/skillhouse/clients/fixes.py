"""Mends what can be mended without an author: proposed as differences, applied one by one.

A mend never changes what a skill says: afterwards we read the same name and description as before,
or read the file at all. Files that a client brought are left alone.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skillhouse.clients.client_table import difference
from skillhouse.clients.config_file import ConfigFile, ConfigFileError
from skillhouse.clients.unread_folders import client_root
from skillhouse.clients.verdicts import Lens, LensSkill, LensState
from skillhouse.floor import is_utf8
from skillhouse.skill import SKILL_FILE, mended

FILE_CODES = frozenset(
    {
        "bom",
        "fence-blanks",
        "frontmatter-ignored",
        "frontmatter-missing",
        "frontmatter-unclosed",
        "name-missing",
        "not-text",
        "one-line-block",
        "read-by-lines",
        "yaml-error",
    }
)
"""Codes of verdicts that a change of the file itself can mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One change: a file's text, its name, or a link. Exactly one of the last three is set."""

    path: str
    """The file that is changed or renamed, or the link that is made."""
    bound: str
    """The project or home, which the change must not leave."""
    codes: tuple[str, ...]
    """What it mends."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    before: str = ""
    after: str = ""
    renamed: str = ""
    """The new name, in the same directory."""
    target: str = ""
    """What the link leads to, relative to its directory."""


def proposed_fixes(lens: Lens) -> tuple[Fix, ...]:
    """Return what can be mended here, files first; nothing is changed."""
    return (*_of_files(lens), *_of_names(lens), *_links(lens))


def apply_fix(fix: Fix) -> None:
    """Make one change; `ConfigFileError` if the file is not as it was, or cannot be changed."""
    if fix.after:
        file = ConfigFile(Path(fix.path), bound=Path(fix.bound), may_be_outside=False)
        if file.text != fix.before:
            raise ConfigFileError("changed-meanwhile", Path(fix.path), "it was changed meanwhile")
        file.write(fix.after, mode=0o644)
        return
    path = Path(fix.path)
    _check_inside(path.parent, Path(fix.bound))
    try:
        if fix.renamed:
            new = path.with_name(fix.renamed)
            # On a file system without case this is the file itself.
            if os.path.lexists(new) and not os.path.samefile(path, new):
                raise ConfigFileError("exists", new, "it exists already")
            path.rename(new)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_inside(path.parent, Path(fix.bound))
            path.symlink_to(fix.target)
    except OSError as error:
        reason = (error.strerror or "it cannot be changed").lower()
        raise ConfigFileError("unwritable", path, reason) from error


def _check_inside(directory: Path, bound: Path) -> None:
    """Refuse a directory that a link leads out of the project or home."""
    if not Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(bound)):
        raise ConfigFileError("link-escape", directory, f"a link leads out of `{bound}`")


def _bound(lens: Lens, path: str) -> str:
    """Return the project or home, whichever contains a path; empty where neither does."""
    for base in (lens.project, lens.home):
        tops = {base.rstrip("/") + "/", os.path.realpath(base).rstrip("/") + "/"}
        if path.startswith(tuple(tops)):
            return base
    return ""


def _is_own(lens: Lens, path: str) -> bool:
    """Whether a client brought the file, and would replace it."""
    return any(path.startswith(f"{root}/") for client in lens.clients for root in client.own)


def _of_files(lens: Lens) -> Iterator[Fix]:
    for skill in lens.skills:
        codes = {verdict.code for verdict in skill.verdicts} & FILE_CODES
        bound = _bound(lens, skill.file)
        if not codes or not bound or _is_own(lens, skill.places[0]):
            continue
        try:
            before = ConfigFile(Path(skill.file), bound=Path(bound), may_be_outside=False).text
        except ConfigFileError:
            # The report has why it cannot be read; another user's file is not ours to mend.
            continue
        directory = os.path.basename(os.path.dirname(skill.file))
        made = mended(before.encode(), directory=directory, for_clients=True)
        if made is not None:
            yield Fix(
                path=skill.file,
                bound=bound,
                codes=tuple(sorted(codes)),
                difference=difference(before, made.after, lens.short(skill.places[0])),
                before=before,
                after=made.after,
            )


def _of_names(lens: Lens) -> Iterator[Fix]:
    for miss in lens.misses:
        bound = _bound(lens, miss.path)
        if miss.code == "wrong-case" and bound and not _is_own(lens, miss.path):
            lines = (f"rename {lens.short(miss.path)}", f"    to {SKILL_FILE}")
            yield Fix(
                path=miss.path, bound=bound, codes=(miss.code,), difference=lines,
                renamed=SKILL_FILE,
            )  # fmt: skip


def _links(lens: Lens) -> Iterator[Fix]:
    """Propose a link for each client that does not read the folder of a skill."""
    taken = _names_by_client(lens)
    made: set[str] = set()
    for skill in lens.skills:
        for place, client in enumerate(lens.clients):
            verdict = skill.verdicts[place]
            if verdict.state is not LensState.UNSEEN or verdict.code != "no-root":
                continue
            name = os.path.basename(skill.directory)
            root = client_root(lens, skill, client.name)
            link = os.path.join(root, name)
            # A second skill of one name would hide the first.
            if not root or link in made or os.path.lexists(link) or name in taken[client.name]:
                continue
            bound = _bound(lens, link)
            if not bound or not is_utf8(link) or _is_own(lens, skill.places[0]):
                continue
            made.add(link)
            target = os.path.relpath(skill.directory, os.path.realpath(root))
            yield Fix(
                path=link,
                bound=bound,
                codes=("no-root",),
                difference=(f"link {lens.short(link)}", f"  to {target}, for {client.name}"),
                target=target,
            )


def _names_by_client(lens: Lens) -> dict[str, set[str]]:
    """Return the names under which each client lists a skill."""
    names: dict[str, set[str]] = defaultdict(set)
    skills: Sequence[LensSkill] = lens.skills
    for skill in skills:
        for client, verdict in zip(lens.clients, skill.verdicts, strict=True):
            if verdict.name:
                names[client.name].add(verdict.name)
    return names

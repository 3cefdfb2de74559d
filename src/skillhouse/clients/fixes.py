"""Fixes what the report on clients names: proposed as differences, applied one by one.

A fix of a text never changes what a skill says, but for its name where that is what is wrong. A fix
that renames, moves or deletes a skill is one change of its own, shown before it is made. What is
deleted goes to the trash. Files that a client brought are left alone.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.clients.comparison import read_plainly
from skillhouse.clients.config_file import ConfigFile, ConfigFileError, difference
from skillhouse.clients.export_state import ExportError
from skillhouse.clients.findings import client_root, names_of, same_names
from skillhouse.clients.trees import source_digest
from skillhouse.clients.verdicts import LISTED, ClientReport, LensState, ReportedSkill
from skillhouse.floor import PathError, descriptor, is_utf8, isolated, open_directory_beneath
from skillhouse.skill import (
    SKILL_FILE,
    parse,
    repaired_file,
    validate_name,
    with_name,
)

MOVED_CODES = frozenset(
    {"root-file", "too-deep", "inside-a-skill", "skipped-directory", "hidden-directory"}
)
"""Codes of verdicts that a move to ROOT/NAME fixes."""
COPIES_MAX = 99
"""The highest number that a renamed copy gets."""
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
"""Codes of verdicts that a change of the file itself can fix."""


class Fix(Struct, frozen=True, kw_only=True):
    """One change: a file's text, its name, its place, a link, or a delete.

    A text and a place may change together, and a link may take the place of what is deleted.
    """

    path: str
    """What is changed, renamed, moved or deleted, or the link that is made."""
    bound: str
    """The project or home, which the change must not leave."""
    codes: tuple[str, ...]
    """What it fixes."""
    difference: tuple[str, ...] = ()
    """Lines of a unified diff."""
    before: str = ""
    after: str = ""
    renamed: str = ""
    """The new name of a file, in the same directory."""
    moved: str = ""
    """The new path of a file or directory; of a text's directory, where the text changes too."""
    target: str = ""
    """What the link leads to, relative to its directory."""
    discarded: str = ""
    """The id of a skill whose directory goes to the trash."""
    digest: str = ""
    """Of the tree that is deleted, as it was shown."""
    kept: str = ""
    """The equal directory that stays; nothing is deleted if it has changed."""


def bound_of(report: ClientReport, path: str) -> str:
    """Return the project or home, whichever contains a path; empty where neither does."""
    for base in (report.project, report.home):
        tops = {base.rstrip("/") + "/", os.path.realpath(base).rstrip("/") + "/"}
        if path.startswith(tuple(tops)):
            return base
    return ""


def is_own(report: ClientReport, path: str) -> bool:
    """Whether a client brought the file, and would replace it."""
    return any(path.startswith(f"{root}/") for client in report.clients for root in client.own)


def proposed_fixes(report: ClientReport) -> tuple[Fix, ...]:
    """Return what can be fixed here, files first; nothing is changed."""
    texts = (*_of_files(report), *_of_names(report))
    changed = {os.path.dirname(fix.path) for fix in texts}
    # A skill whose text is fixed first may then need no more, or something else.
    places = [fix for fix in relocations(report) if _directory_of(fix) not in changed]
    # What goes elsewhere is linked in another run, from where it is then.
    gone = {_directory_of(fix) for fix in places}
    return (*texts, *places, *_links(report, gone))


def _directory_of(fix: Fix) -> str:
    return os.path.dirname(fix.path) if os.path.basename(fix.path) == SKILL_FILE else fix.path


Discard = Callable[[Path, str], object]
"""Moves the directory of a skill with an id to the trash."""


def apply_fix(fix: Fix, *, discard: Discard) -> None:
    """Make one change; `ConfigFileError` if something is not as it was, or cannot be changed."""
    try:
        if fix.discarded:
            _delete(fix, discard)
        elif fix.after:
            _write(fix, fix.before, fix.after)
            if fix.moved:
                try:
                    _move(os.path.dirname(fix.path), fix.moved, fix.bound)
                except (ConfigFileError, OSError):
                    _write(fix, fix.after, fix.before)
                    raise
        elif fix.moved:
            _move(fix.path, fix.moved, fix.bound)
        elif fix.renamed:
            _rename(fix)
        else:
            _link(Path(fix.path), fix.target, fix.bound)
    except OSError as error:
        reason = (error.strerror or "it cannot be changed").lower()
        raise ConfigFileError("unwritable", Path(fix.path), reason) from error


def _write(fix: Fix, before: str, after: str) -> None:
    file = ConfigFile(Path(fix.path), bound=Path(fix.bound), may_be_outside=False)
    if file.text != before:
        raise ConfigFileError("changed-meanwhile", Path(fix.path), "it was changed meanwhile")
    file.write(after, mode=0o644)


def _rename(fix: Fix) -> None:
    path = Path(fix.path)
    _check_inside(path.parent, Path(fix.bound))
    new = path.with_name(fix.renamed)
    # On a file system without case this is the file itself.
    if os.path.lexists(new) and not os.path.samefile(path, new):
        raise ConfigFileError("exists", new, "it exists already")
    path.rename(new)


def _link(path: Path, target: str, bound: str) -> None:
    _check_inside(path.parent, Path(bound))
    path.parent.mkdir(parents=True, exist_ok=True)
    _check_inside(path.parent, Path(bound))
    path.symlink_to(target)


def _move(old: str, new: str, bound: str) -> None:
    """Rename within the bound; neither parent is reached through a link, and nothing is replaced.

    INVARIANT: both names are of open directories, so no link put there meanwhile leads out.
    """
    real = Path(os.path.realpath(bound))
    try:
        source = open_directory_beneath(real, _inside(os.path.dirname(old), real))
        with descriptor(source) as source:
            above = _inside(os.path.dirname(new), real)
            with descriptor(open_directory_beneath(real, above, create=True)) as target:
                name = os.path.basename(new)
                if _exists(name, target):
                    raise ConfigFileError("exists", Path(new), "it exists already")
                os.rename(os.path.basename(old), name, src_dir_fd=source, dst_dir_fd=target)
    except PathError as error:
        message = f"the folder cannot be opened without following a link ({error.code})"
        raise ConfigFileError("link-escape", Path(old), message) from error


def _exists(name: str, handle: int) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _inside(directory: str, bound: Path) -> str:
    path = Path(directory)
    if not path.is_relative_to(bound):
        raise ConfigFileError("link-escape", path, f"it is not in `{bound}`")
    return path.relative_to(bound).as_posix()


def _delete(fix: Fix, discard: Discard) -> None:
    """Move a directory that is as it was shown to the trash, and link the kept one."""
    path = Path(fix.path)
    _check_inside(path.parent, Path(fix.bound))
    if os.path.realpath(path) != str(path):
        raise ConfigFileError("link-escape", path, "a link took the place of a directory")
    trees = [path, Path(fix.kept)] if fix.kept else [path]
    for tree in trees:
        try:
            is_same = source_digest(tree) == fix.digest
        except ExportError:
            is_same = False
        if not is_same:
            raise ConfigFileError("changed-meanwhile", tree, "it was changed meanwhile")
    discard(path, fix.discarded)
    if fix.target:
        _link(path, fix.target, fix.bound)


def _check_inside(directory: Path, bound: Path) -> None:
    """Refuse a directory that a link leads out of the project or home."""
    if not Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(bound)):
        raise ConfigFileError("link-escape", directory, f"a link leads out of `{bound}`")


def _of_files(report: ClientReport) -> Iterator[Fix]:
    for skill in report.skills:
        codes = {verdict.code for verdict in skill.verdicts} & FILE_CODES
        # Of thousands most have nothing to fix.
        bound = bound_of(report, skill.file) if codes else ""
        if not bound or is_own(report, skill.places[0]):
            continue
        try:
            before = ConfigFile(Path(skill.file), bound=Path(bound), may_be_outside=False).text
        except ConfigFileError:
            # The report has why it cannot be read; another user's file is not ours to fix.
            continue
        directory = os.path.basename(os.path.dirname(skill.file))
        made = None
        # What cannot be fixed stays in the report; the log has the fault.
        with isolated():
            made = repaired_file(before.encode(), directory=directory, for_clients=True)
        if made is not None:
            yield Fix(
                path=skill.file,
                bound=bound,
                codes=tuple(sorted(codes)),
                difference=difference(before, made.after, report.short(skill.places[0])),
                before=before,
                after=made.after,
            )


def _of_names(report: ClientReport) -> Iterator[Fix]:
    for miss in report.misses:
        bound = bound_of(report, miss.path)
        if miss.code == "wrong-case" and bound and not is_own(report, miss.path):
            lines = (f"rename {report.short(miss.path)}", f"    to {SKILL_FILE}")
            yield Fix(
                path=miss.path, bound=bound, codes=(miss.code,), difference=lines,
                renamed=SKILL_FILE,
            )  # fmt: skip


def _links(report: ClientReport, gone: Collection[str]) -> Iterator[Fix]:
    """Propose a link for each client that does not read the folder of a skill."""
    taken = _names_by_client(report)
    made: set[str] = set()
    for skill in report.skills:
        if os.path.dirname(skill.file) in gone:
            continue
        for place, client in enumerate(report.clients):
            verdict = skill.verdicts[place]
            if verdict.state is not LensState.UNSEEN or verdict.code != "no-root":
                continue
            if client.profile.folders_only:
                # Whether it follows a link is not known.
                continue
            name = os.path.basename(skill.directory)
            root = client_root(report, skill, client.name)
            link = os.path.join(root, name)
            # A second skill of one name would hide the first.
            if not root or link in made or os.path.lexists(link) or name in taken[client.name]:
                continue
            bound = bound_of(report, link)
            if not bound or not is_utf8(link) or is_own(report, skill.places[0]):
                continue
            made.add(link)
            target = os.path.relpath(skill.directory, os.path.realpath(root))
            yield Fix(
                path=link,
                bound=bound,
                codes=("no-root",),
                difference=(f"link {report.short(link)}", f"  to {target}, for {client.name}"),
                target=target,
            )


def _names_by_client(report: ClientReport) -> dict[str, set[str]]:
    """Return the names under which each client lists a skill."""
    names: dict[str, set[str]] = defaultdict(set)
    skills: Sequence[ReportedSkill] = report.skills
    for skill in skills:
        for client, verdict in zip(report.clients, skill.verdicts, strict=True):
            if verdict.name:
                names[client.name].add(verdict.name)
    return names


def relocations(report: ClientReport) -> Iterator[Fix]:
    """Yield each proposal; of one skill the first one only, so that none depends on another."""
    touched: set[str] = set()
    for fix, directories in (
        *_name_proposals(report),
        *_move_proposals(report),
        *_copy_proposals(report),
    ):
        if touched.isdisjoint(directories):
            touched.update(directories)
            yield fix


_Proposal = tuple[Fix, tuple[str, ...]]
"""A change, and the directories of the skills that it is about."""


def _name_proposals(report: ClientReport) -> Iterator[_Proposal]:
    """Give a directory and the name in its SKILL.md the same name."""
    for skill in report.skills:
        codes = {verdict.code for verdict in skill.verdicts}
        if "name-mismatch" not in codes and len(names_of(report, skill)) < 2:
            continue
        directory = _directory(report, skill)
        called = os.path.basename(directory)
        name = _written_name(skill) if directory else ""
        if not name or called == name:
            continue
        target = os.path.join(os.path.dirname(directory), name)
        if _is_name(name) and not os.path.lexists(target):
            fix = _moved(report, directory, target, "name-mismatch")
        elif _is_name(called):
            fix = _renamed(report, skill, called, "name-mismatch")
        else:
            continue
        if fix is not None:
            yield fix, (directory,)


def _move_proposals(report: ClientReport) -> Iterator[_Proposal]:
    """Bring a skill to ROOT/NAME."""
    for skill in report.skills:
        found = {verdict.code for verdict in skill.verdicts} & MOVED_CODES
        if not found:
            continue
        directory = _directory(report, skill)
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
            fix = _moved(report, skill.file, os.path.join(target, SKILL_FILE), *sorted(found))
        else:
            fix = _moved(report, directory, target, *sorted(found))
        if fix is not None:
            yield fix, (directory,)


def _copy_proposals(report: ClientReport) -> Iterator[_Proposal]:
    """Delete equal copies and such as no client uses; rename those that clients use."""
    for name, skills in same_names(report):
        kept, *others = sorted(skills, key=lambda skill: (-_users(skill), skill.file))
        keeper = _directory(report, kept)
        digest = _digest(keeper) if keeper else ""
        taken = {os.path.basename(os.path.dirname(skill.file)) for skill in skills}
        for skill in others:
            directory = _directory(report, skill)
            fix: Fix | None = None
            if not directory or not digest:
                continue
            if _digest(directory) == digest:
                fix = _discarded(report, skill, directory, keeper)
            elif not _users(skill):
                fix = _discarded(report, skill, directory, "")
            else:
                free = _free_name(name, directory, taken)
                taken.add(free)
                fix = _renamed(report, skill, free, "duplicate") if free else None
            if fix is not None:
                yield fix, (directory, keeper) if fix.kept else (directory,)


def _free_name(name: str, directory: str, taken: set[str]) -> str:
    for number in range(2, COPIES_MAX + 1):
        free = f"{name}-{number}"
        place = os.path.join(os.path.dirname(directory), free)
        if free not in taken and _is_name(free) and not os.path.lexists(place):
            return free
    return ""


def _users(skill: ReportedSkill) -> int:
    return sum(verdict.state in LISTED for verdict in skill.verdicts)


def _directory(report: ClientReport, skill: ReportedSkill) -> str:
    """Return the real directory of a skill that may be changed as a whole; empty for others.

    It is at home or in the project, is not only reached by a link, no client brought it, and no
    other skill is below it.
    """
    directory = os.path.dirname(skill.file)
    if (
        skill.file not in skill.places
        or not bound_of(report, skill.file)
        or is_own(report, skill.file)
        or (directory != os.path.realpath(skill.root) and _has_below(report.skills, skill))
    ):
        return ""
    return directory


def _written_name(skill: ReportedSkill) -> str:
    """Return the name in a SKILL.md as we read it; the report has none for a dropped file."""
    directory = os.path.basename(os.path.dirname(skill.file))
    data = read_plainly(skill.file)
    found = parse(data, directory=directory).skill
    return "" if found is None else found.name


def _has_below(skills: Sequence[ReportedSkill], skill: ReportedSkill) -> bool:
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


def _moved(report: ClientReport, path: str, target: str, *codes: str) -> Fix | None:
    bound = bound_of(report, target)
    if not bound or bound != bound_of(report, path):
        return None
    lines = (f"move {report.short(path)}", f"  to {report.short(target)}")
    return Fix(path=path, bound=bound, codes=codes, difference=lines, moved=target)


def _renamed(report: ClientReport, skill: ReportedSkill, name: str, code: str) -> Fix | None:
    """Propose another `name` in a SKILL.md, and the directory's name with it."""
    directory = os.path.dirname(skill.file)
    bound = bound_of(report, skill.file)
    try:
        before = ConfigFile(Path(skill.file), bound=Path(bound), may_be_outside=False).text
    except ConfigFileError:
        return None
    after = with_name(before.encode(), name, directory=os.path.basename(directory))
    if after is None:
        return None
    lines = difference(before, after, report.short(skill.file))
    target = os.path.join(os.path.dirname(directory), name)
    moved = target if target != directory else ""
    if moved:
        lines = (*lines, f"move {report.short(directory)}", f"  to {report.short(target)}")
    return Fix(
        path=skill.file, bound=bound, codes=(code,), difference=lines,
        before=before, after=after, moved=moved,
    )  # fmt: skip


def _discarded(
    report: ClientReport, skill: ReportedSkill, directory: str, keeper: str
) -> Fix | None:
    lines = [f"delete {report.short(directory)}"]
    target = ""
    if keeper:
        lines.append(f"  equal to {report.short(keeper)}")
        if os.path.dirname(keeper) != os.path.dirname(directory):
            target = os.path.relpath(keeper, os.path.dirname(directory))
            lines.append(f"  with a link to {target} in its place")
    else:
        lines.append("  no client uses it")
    bound = bound_of(report, directory)
    scope = "user" if bound == report.home else "project"
    return Fix(
        path=directory, bound=bound, codes=("duplicate",), difference=tuple(lines),
        discarded=f"{scope}:{skill.name}", digest=_digest(directory), kept=keeper, target=target,
    )  # fmt: skip

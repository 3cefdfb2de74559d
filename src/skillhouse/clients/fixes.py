"""Mends what the report on clients names: proposed as differences, applied one by one.

A mend of a text never changes what a skill says, but for its name where that is what is wrong.
What is deleted goes to the trash. Files that a client brought are left alone.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from skillhouse.clients.config_file import ConfigFile, ConfigFileError, difference
from skillhouse.clients.export_state import ExportError
from skillhouse.clients.fix import Fix, bound_of, is_own
from skillhouse.clients.relocations import relocations
from skillhouse.clients.trees import source_digest
from skillhouse.clients.unread_folders import client_root
from skillhouse.clients.verdicts import Lens, LensSkill, LensState
from skillhouse.floor import PathError, descriptor, is_utf8, isolated, open_directory_beneath
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


def proposed_fixes(lens: Lens) -> tuple[Fix, ...]:
    """Return what can be mended here, files first; nothing is changed."""
    texts = (*_of_files(lens), *_of_names(lens))
    changed = {os.path.dirname(fix.path) for fix in texts}
    # A skill whose text is mended first may then need no more, or something else.
    places = [fix for fix in relocations(lens) if _directory_of(fix) not in changed]
    # What goes elsewhere is linked in another run, from where it is then.
    gone = {_directory_of(fix) for fix in places}
    return (*texts, *places, *_links(lens, gone))


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


def _of_files(lens: Lens) -> Iterator[Fix]:
    for skill in lens.skills:
        codes = {verdict.code for verdict in skill.verdicts} & FILE_CODES
        bound = bound_of(lens, skill.file)
        if not codes or not bound or is_own(lens, skill.places[0]):
            continue
        try:
            before = ConfigFile(Path(skill.file), bound=Path(bound), may_be_outside=False).text
        except ConfigFileError:
            # The report has why it cannot be read; another user's file is not ours to mend.
            continue
        directory = os.path.basename(os.path.dirname(skill.file))
        made = None
        # What cannot be mended stays in the report; the log has the fault.
        with isolated():
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
        bound = bound_of(lens, miss.path)
        if miss.code == "wrong-case" and bound and not is_own(lens, miss.path):
            lines = (f"rename {lens.short(miss.path)}", f"    to {SKILL_FILE}")
            yield Fix(
                path=miss.path, bound=bound, codes=(miss.code,), difference=lines,
                renamed=SKILL_FILE,
            )  # fmt: skip


def _links(lens: Lens, gone: Collection[str]) -> Iterator[Fix]:
    """Propose a link for each client that does not read the folder of a skill."""
    taken = _names_by_client(lens)
    made: set[str] = set()
    for skill in lens.skills:
        if os.path.dirname(skill.file) in gone:
            continue
        for place, client in enumerate(lens.clients):
            verdict = skill.verdicts[place]
            if verdict.state is not LensState.UNSEEN or verdict.code != "no-root":
                continue
            if client.profile.folders_only:
                # Whether it follows a link is not known.
                continue
            name = os.path.basename(skill.directory)
            root = client_root(lens, skill, client.name)
            link = os.path.join(root, name)
            # A second skill of one name would hide the first.
            if not root or link in made or os.path.lexists(link) or name in taken[client.name]:
                continue
            bound = bound_of(lens, link)
            if not bound or not is_utf8(link) or is_own(lens, skill.places[0]):
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

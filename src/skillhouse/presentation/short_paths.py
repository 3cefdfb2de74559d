"""Paths as `list` shows them, and who reads what is there."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skillhouse.clients import project_folders, user_folders, variable_folders
from skillhouse.presentation.text import counted, shown
from skillhouse.skill import SKILL_FILE

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse

LOOKED_MAX = 500
"""Directories of one folder that are looked at for skills."""
NAMED_FOLDERS = 3
"""Folders that only some client reads which `list` names."""


def short_path(path: str, start: Path, home: Path) -> str:
    """Return a path relative to the start directory or with `~`, where that is shorter.

    >>> short_path("/home/you/.claude/skills", Path("/work"), Path("/home/you"))
    '~/.claude/skills'
    """
    for base, sign in ((str(start), "."), (str(home), "~")):
        if path == base:
            return sign
        inside = base.rstrip("/") + "/"
        if path.startswith(inside):
            return f"{sign}/{path[len(inside) :]}"
    return path


def clients_of(root: Path, home: Path) -> tuple[str, ...]:
    """Return the clients that read a root, none where that is not known.

    >>> clients_of(Path("/home/you/.gemini/skills"), Path("/home/you"))
    ('gemini-cli',)
    """
    if root.is_relative_to(home) and (known := _readers(str(root), home)):
        return known
    for length in (3, 2):
        known = project_folders().get("/".join(root.parts[-length:]), ())
        if known:
            return known
    return ()


NAMED_CLIENTS = 4
"""Clients that a text names."""


def some_of(clients: Sequence[str]) -> str:
    """Return names of clients as a text of one line, not every one of many.

    >>> some_of(("amp", "codex", "goose", "roo", "zed"))
    'amp, codex, goose and 2 more'
    """
    named = clients if len(clients) <= NAMED_CLIENTS else clients[: NAMED_CLIENTS - 1]
    more = f" and {len(clients) - len(named)} more" if len(named) < len(clients) else ""
    return f"{', '.join(named)}{more}"


class UnreadFolder(NamedTuple):
    """A folder of skills that some client reads and no root is."""

    path: str
    skills: int
    """How many are in it and found nowhere else."""
    clients: tuple[str, ...]
    """Those that are known to read it."""


def unread_folders(house: Skillhouse) -> list[UnreadFolder]:
    """Return the folders of the person, and of a trusted project, that only some client reads.

    A link to a skill that was found is no other skill.
    """
    places, project = house.config.places, house.project
    index = house.index

    @functools.cache
    def known() -> set[str]:
        # Not before another folder has skills: each is some ten looks at the disk.
        return {os.path.realpath(one.file) for one in (*index.skills, *index.shadowed)}

    roots = [str(root.path) for root in house.snapshot.roots]
    seen = {os.path.realpath(root) for root in roots if "\0" not in root}
    home = places.home
    folders = dict(_folders_of_person(home, places.environment))
    if house.services.trust_store.is_trusted(project):
        above = (places.start, *places.start.parents)
        for base in (place for place in above if place.is_relative_to(project)):
            folders |= dict.fromkeys(sorted(_folders(base, project_folders())), ()) | folders
    found = []
    for folder, clients in folders.items():
        real = os.path.realpath(folder)
        if real in seen or not os.path.isdir(real):
            continue
        seen.add(real)
        below = {*_skills_in(real)}
        if below and (count := len(below - known())):
            found.append(UnreadFolder(folder, count, clients or clients_of(Path(folder), home)))
    return found


def _folders_of_person(
    home: Path, environment: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the folders of a person by name, each with the clients that a variable leads there."""
    moved: dict[str, list[str]] = {}
    left: dict[str, set[str]] = {}
    for one in variable_folders():
        given = environment.get(one.variable, "")
        for place in filter(os.path.isabs, given.split(os.pathsep)):
            moved.setdefault(os.path.join(place, one.below).rstrip("/"), []).append(one.client)
        if given and one.unset:
            # What the variable replaces is read no more, whatever others find there.
            left.setdefault(os.path.join(home, one.unset, one.below), set()).add(one.client)
    folders = _folders(home, user_folders())
    if config := environment.get("XDG_CONFIG_HOME", ""):
        folders |= _below(Path(config))
    stayed = {
        folder: [name for name in _readers(folder, home) if name not in gone]
        for folder, gone in left.items()
    }
    still = {folder for folder in folders if stayed.get(folder, True)}
    for folder in sorted({*still, *moved}):
        yield folder, tuple(moved.get(folder, stayed.get(folder, ())))


def _readers(folder: str, home: Path) -> tuple[str, ...]:
    return user_folders().get(os.path.relpath(folder, home), ())


def _folders(base: Path, known: Iterable[str]) -> set[str]:
    """Return the folders below a base that are known, or named as clients name theirs."""
    found = {os.path.join(base, folder) for folder in known}
    return found | _below(base, only=".") | _below(base / ".config")


def _below(above: Path, *, only: str = "") -> set[str]:
    try:
        names = os.listdir(above)
    except OSError:
        return set()
    return {os.path.join(above, name, "skills") for name in names if name.startswith(only)}


def _skills_in(folder: str) -> Iterator[str]:
    """Yield the real SKILL.md of each skill one or two directories below a folder."""
    pending, opened = [(folder, 1)], 0
    while pending and opened < LOOKED_MAX:
        place, depth = pending.pop(0)
        opened += 1
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names[:LOOKED_MAX]:
            below = os.path.join(place, name)
            if name[:1] == ".":
                continue
            if os.path.isfile(os.path.join(below, SKILL_FILE)):
                yield os.path.realpath(os.path.join(below, SKILL_FILE))
            elif depth == 1 and os.path.isdir(below):
                pending.append((below, depth + 1))


def unread_line(house: Skillhouse) -> str:
    """Return the line about skills in folders that only some client reads; or nothing."""
    start, home = house.config.places.start, house.config.places.home
    found = unread_folders(house)
    named = [
        f"{counted(one.skills, 'skill')} in {shown(short_path(one.path, start, home))}"
        for one in found[:NAMED_FOLDERS]
    ]
    if not named:
        return ""
    more = sum(one.skills for one in found[NAMED_FOLDERS:])
    named += [f"{more} elsewhere"] if more else []
    is_one = sum(one.skills for one in found) == 1
    verb = "is" if is_one else "are"
    return f"{', '.join(named)} {verb} not read here: `skillhouse doctor`"

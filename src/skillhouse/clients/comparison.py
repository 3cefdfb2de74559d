"""Compares what several clients see of the skills here, each client by its profile.

How a client would load a skill that is written nowhere yet is tried in an empty home.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.clients.client_view import ClientView, RealPathCache
from skillhouse.clients.verdicts import (
    LISTED,
    ClientColumn,
    ClientReport,
    LensState,
    NearMiss,
    ReportedSkill,
    Verdict,
)
from skillhouse.discovery import default_roots, discover
from skillhouse.floor import (
    InternalFaultError,
    Locations,
    PathError,
    as_error,
    git_root,
    isolated,
    read_beneath,
)
from skillhouse.floor.structs import replace
from skillhouse.skill import (
    CAUSES,
    SKILL_FILE,
    SKILL_FILE_MAX,
    Profile,
    Skill,
    has_manifest,
    hidden_text,
    list_resources,
)

DEPTH_MAX = 12
"""Levels below a root that are searched."""
DIRECTORIES_MAX = 20_000
"""Directories that are searched, over all roots."""
_NEVER = frozenset({".git", ".hg", ".svn"})
LEAF_MAX_BYTES = 255
"""Bytes of a file's name (Linux, macOS)."""

_UNFIT = frozenset('/\\:*?"<>|')
"""Characters that are special in paths on some system."""


class MisplacedFiles(Struct):
    directories: list[str] = field(default_factory=list)
    """Each that was read."""
    files: list[str] = field(default_factory=list)
    """Each SKILL.md."""
    roots: list[str] = field(default_factory=list)
    """Directories of skills that no client reads."""
    misses: list[NearMiss] = field(default_factory=list)


def look_around(roots: Iterable[str]) -> MisplacedFiles:
    """Return the SKILL.md files below `roots`, and near misses; links are not followed."""
    result = MisplacedFiles()
    left = DIRECTORIES_MAX
    for root in roots:
        without: set[str] = set()
        pending = [(root, 0)]
        while pending and left:
            left -= 1
            place, depth = pending.pop()
            result.directories.append(place)
            if (listed := _listed(place)) is None:
                continue
            names = {entry.name for entry in listed}
            if SKILL_FILE in names:
                result.files.append(f"{place}/{SKILL_FILE}")
                without.difference_update(_above(place, root))
            else:
                wrong = [name for name in names if name.casefold() == SKILL_FILE.casefold()]
                result.misses += [_miss("wrong-case", f"{place}/{name}") for name in sorted(wrong)]
                if depth == 1 and not wrong:
                    without.add(place)
                elif wrong:
                    without.difference_update(_above(place, root))
            below = [entry for entry in listed if entry.is_dir(follow_symlinks=False)]
            if depth < DEPTH_MAX:
                pending += [
                    (entry.path, depth + 1) for entry in reversed(below) if entry.name not in _NEVER
                ]
        result.misses += [
            _miss("no-skill-file", place)
            for place in sorted(filter(_is_shown, without))
            # A skill of code alone is whole without one.
            if not has_manifest(Path(place))
        ]
    return result


def _is_shown(place: str) -> bool:
    return not os.path.basename(place).startswith(".")


def _listed(place: str) -> list[os.DirEntry[str]] | None:
    """Return what is in a directory, by name; None where it cannot be read: the clients say so."""
    try:
        with os.scandir(place) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None


def _hidden_directories(places: Iterable[str]) -> Iterator[str]:
    """Yield each `.NAME` of `places`, in which a client may have skills."""
    for place in places:
        try:
            names = sorted(name for name in os.listdir(place) if name.startswith("."))
        except OSError:
            # A directory above the start may be unreadable.
            continue
        found = (os.path.join(place, name) for name in names if name not in _NEVER)
        yield from filter(os.path.isdir, found)


def read_plainly(file: str) -> bytes:
    """Return a regular file, up to the most of a SKILL.md; nothing when it cannot be read."""
    try:
        # O_NONBLOCK: a FIFO in the file's place must not hang us.
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b""
    try:
        return os.read(handle, SKILL_FILE_MAX) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(handle)


def _above(place: str, root: str) -> Iterator[str]:
    while len(place) > len(root):
        yield place
        place = os.path.dirname(place)


def _miss(code: str, path: str) -> NearMiss:
    return NearMiss(code=code, path=path)


def compare(
    *,
    start: Path,
    home: Path,
    environment: Mapping[str, str],
    profiles: Sequence[Profile],
    trusted: bool = True,
    explicit: Sequence[Path] = (),
    cache: Path | None = None,
) -> ClientReport:
    """Return every client's verdict on every skill that one of them can reach.

    Args:
        start: Where the clients are started.
        home: The directory that `~` means.
        environment: Variables of the profiles' roots.
        profiles: The clients.
        trusted: Whether skillhouse may read the project's skills. Other programs decide that for
            themselves, so it applies only to profiles without a client.
        explicit: Further roots.
        cache: Directory of the persistent index.
    """
    start, home = Path(os.path.abspath(start)), Path(os.path.abspath(home))
    reals = RealPathCache()
    views = []
    judged = []
    faults: list[tuple[str, str]] = []
    for profile in profiles:
        with isolated() as failed:
            roots = default_roots(
                start=start, home=home, environment=environment, profile=profile, explicit=explicit
            )
            may_read = trusted or bool(profile.client)
            read = () if profile.folders_only else roots
            index = discover(read, profile=profile, trusted=may_read, cache=cache)
            view = ClientView(profile, roots, index, reals, may_read=may_read)
            judged.append(view.judge())
            views.append(view)
        faults += [(profile.name, str(error)) for error in failed]
    around = _around(views, start, home, reals)
    rows = _LensRows(views, around, reals)
    clients = tuple(judged)
    project = str(git_root(start) or start)
    empty = ClientReport(
        start=str(start),
        project=project,
        home=str(home),
        # The inner one first, where one is inside the other.
        aliases=((os.path.realpath(project), project), (os.path.realpath(home), str(home))),
        clients=clients,
        skills=(),
        faults=tuple(faults),
    )
    skills = sorted(rows.skills(), key=lambda skill: (empty.short(skill.places[0]), skill.file))
    return replace(
        empty,
        skills=tuple(skills),
        misses=tuple(sorted(around.misses, key=lambda miss: empty.short(miss.path))),
        digests=_digests(skills),
        looked_at=tuple(_looked_at(clients, around, skills)),
    )


def _looked_at(
    clients: Sequence[ClientColumn], around: MisplacedFiles, skills: Sequence[ReportedSkill]
) -> Iterable[str]:
    """Return what the comparison looked at; of roots that are missing, what is above them too."""
    found = dict.fromkeys(around.directories)
    for root in (*around.roots, *(root for client in clients for root in client.roots)):
        place, above = root, os.path.dirname(root)
        found[place] = None
        while place != above and not os.path.lexists(place):
            place, above = above, os.path.dirname(above)
            found[place] = None
    for skill in skills:
        for place in skill.places:
            directory = os.path.dirname(place)
            found |= dict.fromkeys((place, directory, os.path.dirname(directory)))
    return found


class _LensRows:
    """Every SKILL.md that was found, by its real path."""

    def __init__(
        self, views: Sequence[ClientView], around: MisplacedFiles, reals: RealPathCache
    ) -> None:
        self._views = views
        self._places: dict[str, set[str]] = defaultdict(set)
        self._skills: dict[str, Skill] = {}
        # Shown as the clients name it: the root itself can be a link.
        self._roots = {reals[root]: root for root in around.roots}
        self._roots |= {
            reals[str(root.path)]: str(root.path) for view in views for root in view.roots
        }
        for file in around.files:
            self._places[reals[file]].add(file)
        for view in views:
            for skill in (*view.index.skills, *view.index.shadowed):
                real = reals[skill.file]
                self._places[real].add(skill.file)
                self._skills.setdefault(real, skill)
            for real, file in view.held.items():
                self._places[real].add(file)
            for real, fault in view.faults.items():
                if os.path.basename(real) == SKILL_FILE:
                    self._places[real].add(str(fault.path))

    def skills(self) -> Iterable[ReportedSkill]:
        for real, places in self._places.items():
            skill = self._skills.get(real)
            # The real path comes first.
            ordered = sorted(places, key=lambda place: (place != real, place))
            described = "" if skill is None else skill.description
            yield ReportedSkill(
                file=real,
                places=tuple(ordered),
                root=self._root(ordered[0]),
                name=_named(self._skills.get(real), real),
                description_chars=len(described),
                verdicts=tuple(_verdict(view, real, ordered) for view in self._views),
            )

    def _root(self, place: str) -> str:
        above = os.path.dirname(place)
        while above not in self._roots and above != os.path.dirname(above):
            above = os.path.dirname(above)
        return self._roots.get(above, os.path.dirname(os.path.dirname(place)))


def _named(skill: Skill | None, real: str) -> str:
    """Return the name in the frontmatter, or else the name of the directory."""
    named = None
    with isolated():
        named = None if skill is None else skill.frontmatter.fields.get("name")
    return named if isinstance(named, str) and named else os.path.basename(os.path.dirname(real))


def _verdict(view: ClientView, real: str, places: Sequence[str]) -> Verdict:
    """Return a client's verdict on one skill of many; what cannot be judged says so."""
    try:
        return view.verdict(real, places)
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        reason = str(as_error(error))
        return Verdict(state=LensState.DROPPED, code=InternalFaultError.code, reason=reason)


def _around(
    views: Sequence[ClientView], start: Path, home: Path, reals: RealPathCache
) -> MisplacedFiles:
    """Search every root of every client, and similar directories that no client reads."""
    known = {str(root.path): None for view in views for root in view.roots}
    top = git_root(start) or start
    walk = [str(place) for place in (start, *start.parents) if place.is_relative_to(top)]
    places = tuple(dict.fromkeys([*walk, str(home)]))
    hidden = list(_hidden_directories(places))
    below = (os.path.join(place, "skills") for place in hidden)
    unread = [root for root in below if root not in known and os.path.isdir(root)]
    roots = dict.fromkeys(reals[root] for root in [*known, *unread] if os.path.isdir(root))
    barred = _barred(views, reals)
    around = look_around(root for root in roots if root not in barred)
    around.roots += unread
    around.directories += (*places, *hidden)
    return around


def _barred(views: Sequence[ClientView], reals: RealPathCache) -> set[str]:
    """Return the roots of an untrusted project, of which not even the directories are read."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for view in views:
        for root in view.roots:
            found[root.scope != "project" or view.may_read].add(reals[str(root.path)])
    return found[False] - found[True]


def _digests(skills: Sequence[ReportedSkill]) -> dict[str, str]:
    """Return digests of the files that share a name, to recognise copies."""
    by_name = defaultdict(list)
    for skill in skills:
        by_name[skill.name].append(skill.file)
    digests = {}
    for files in by_name.values():
        for file in files if len(files) > 1 else ():
            # Without a digest a file counts as different, never as a copy.
            if data := read_plainly(file):
                digests[file] = hashlib.sha256(data).hexdigest()
    return digests


def leaf_of(skill: Skill) -> str:
    """Return the name of a skill's directory in other clients; empty when none is valid.

    It is the skill's name, because clients disagree whether name or directory counts.
    """
    name = skill.name.rpartition(":")[2] if skill.scope == "plugin" else skill.name
    fits = (
        0 < len(name.encode("utf-8", "replace")) <= LEAF_MAX_BYTES
        and name.isprintable()
        and name == name.strip()
        and name[0] != "."
        and name[-1] != "."
        and not _UNFIT & set(name)
    )
    return name if fits else ""


def try_skills(skills: Mapping[str, Skill], profile: Profile) -> dict[str, Verdict]:
    """Return a client's verdict on each skill, by directory name, in an otherwise empty home."""
    with tempfile.TemporaryDirectory(prefix="skillhouse-") as base:
        home = Path(os.path.realpath(base))
        start = home / "start"
        roots = default_roots(start=start, home=home, environment={}, profile=profile)
        fitting = (r.path for r in roots if r.scope == "user" and r.path.is_relative_to(home))
        root = next(fitting, None)
        if root is None:
            return {}
        start.mkdir()
        for leaf, skill in skills.items():
            try:
                data = read_beneath(skill.directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
            except PathError:
                # A link, which copying refuses with a reason.
                continue
            (root / leaf).mkdir(parents=True)
            (root / leaf / SKILL_FILE).write_bytes(data)
        report = compare(start=start, home=home, environment={}, profiles=[profile])
        by_place = {place: skill for skill in report.skills for place in skill.places}
        places = {leaf: str(root / leaf / SKILL_FILE) for leaf in skills}
        return {
            leaf: by_place[place].verdicts[0] for leaf, place in places.items() if place in by_place
        }


def objection(verdict: Verdict | None) -> str:
    """Return why a client would not load a skill, and the fix; empty when it would."""
    if verdict is None or verdict.state in LISTED:
        return ""
    cause = CAUSES.get(verdict.code)
    if cause is None or not cause.title:
        return verdict.reason or verdict.code
    return f"{cause.title}; {cause.hint}"


def remarks(verdict: Verdict | None, skill: Skill, client: str) -> list[str]:
    if verdict is None:
        return []
    notes = []
    if verdict.state is LensState.MANUAL:
        notes.append(f"in {client} only people can start it (disable-model-invocation)")
    if verdict.name and verdict.name != skill.name:
        notes.append(f"{client} calls it `{verdict.name}`")
    if verdict.code in CAUSES and CAUSES[verdict.code].title and verdict.state is LensState.SEEN:
        notes.append(f"{client} reads it otherwise: {CAUSES[verdict.code].title}")
    return notes


def hidden_notes(skill: Skill) -> list[str]:
    """Return a note for each text file with hidden characters, which a copy keeps."""
    notes = []
    for relative in (SKILL_FILE, *list_resources(skill.directory)[0]):
        try:
            data = read_beneath(skill.directory, relative, max_bytes=SKILL_FILE_MAX)
            hidden = hidden_text(data.decode())
        except (PathError, UnicodeDecodeError):
            continue
        if hidden is not None:
            notes.append(f"`{relative}` holds hidden characters: {hidden.summary}")
    return notes


class Seen:
    def __init__(self, places: Locations, project: Path, profiles: Sequence[Profile]) -> None:
        self._report: ClientReport = compare(
            start=project,
            home=places.home,
            environment=places.environment,
            profiles=profiles,
        )
        self._names = [profile.name for profile in profiles]

    def at(self, skill: Skill, client: str, roots: Sequence[str]) -> str:
        """Return the path at which a client sees a skill below `roots`; empty when it does not."""
        below = tuple(f"{root}/" for root in roots)
        for known in self._known(client):
            if known.file == os.path.realpath(skill.file):
                return next((place for place in known.places if place.startswith(below)), "")
        return ""

    def others(self, name: str, client: str, but: Sequence[str]) -> list[str]:
        """Return the short paths of other skills with a name in a client."""
        number = self._names.index(client)
        return [
            self._report.short(known.places[0])
            for known in self._known(client)
            if known.verdicts[number].name.casefold() == name.casefold() and known.file not in but
        ]

    def _known(self, client: str) -> Iterator[ReportedSkill]:
        number = self._names.index(client)
        for skill in self._report.skills:
            if skill.verdicts[number].state in LISTED:
                yield skill

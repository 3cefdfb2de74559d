"""Walks one root for SKILL.md files: bounded, cycle-safe, and in an order of its own."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from skillhouse.discovery.roots import (
    LINK_DEPTH_MAX,
    LINK_DIRECTORIES_MAX,
    Followed,
    Following,
    LinkPlaces,
)
from skillhouse.floor import Diagnostic, Severity, is_utf8
from skillhouse.skill import HINTS, SKILL_FILE, Finding, Skill, UnvisitedDirectories

ENTRIES_MANY = 100_000
"""Entries of one directory from which on a root is said to be slow to scan."""

_FILE = f"/{SKILL_FILE}"
_NAME_LENGTH, _FOLDED = len(SKILL_FILE), SKILL_FILE.lower()
_CIRCLE = "a symbolic link that leads in a circle, or through too many others"
_TRIES = 4
"""How often a link is followed before it is said to lead in a circle."""

Look = Callable[[str, str, str | None], bool]
"""Takes a possible SKILL.md, its directory's name, and the real path of it if it is a link.

Answers whether to look for skills below the directory; raises OSError when there is no regular
file, which `not_regular` makes for what is there and is none.
"""


def not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", path)


class RootWalk(Struct):
    """One walk below a real path; what goes wrong on the way is kept with its place."""

    root: str
    max_depth: int
    max_directories: int
    """Directories that are looked at; links count, wherever they lead."""
    skipped: frozenset[str]
    symlinks: Following = "within_root"
    dotfiles: bool = True
    """Whether directories whose name begins with a dot are entered."""
    takes_root: bool = False
    """Whether a SKILL.md in the root itself is looked at too; the walk goes on below it."""
    link_files: bool = True
    """Whether a SKILL.md that is a link is looked at, where links are followed."""
    any_case: bool = False
    """Whether a file whose name is SKILL.md in another case is a skill, where there is no other."""
    places: LinkPlaces = field(default_factory=LinkPlaces)
    """Where links out of the root may lead, if they are followed."""
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    """(path, finding) in the order in which the places were met."""
    left_out: list[UnvisitedDirectories] = field(default_factory=list)
    """What a bound kept from being looked at."""
    _too_deep: list[str] = field(default_factory=list)
    _deeper: list[str] = field(default_factory=list)
    _links: dict[tuple[int, int], str] = field(default_factory=dict)
    """Directories that links led to, by device and inode: each is entered once."""
    _current: Followed | None = None
    """The link behind which the directory is that is looked at."""
    _misnamed: list[str] = field(default_factory=list)
    """Files of the directory that was listed last, whose name is SKILL.md in any case."""
    _ways_out: list[str] = field(default_factory=list)
    """Links out of the root that were followed."""

    def run(self, look: Look) -> None:
        """Show each place of a SKILL.md to `look`: shallow directories first, then by name."""
        if not self._is_directory():
            return
        self._look_at_root(look)
        seen, most = 0, self.max_directories
        pending: deque[tuple[str, int, Followed | None]] = deque([(self.root, 0, None)])
        while pending:
            place, depth, behind = pending.popleft()
            self._current = behind
            prefix = place.rstrip("/") + "/"
            names, links = self._listed(place)
            if self._misnamed and self._takes_misnamed(prefix, look):
                continue
            is_too_deep = depth >= self.max_depth
            if behind is not None:
                names = self._behind(behind, prefix, names, depth)
            for at, name in enumerate(names):
                path = prefix + name
                seen += 1
                if seen > most:
                    self._note_limit([prefix + left for left in names[at:]], len(pending))
                    self._note_depth()
                    return
                is_link = bool(links) and name in links
                if is_link and not self._enters_link(path):
                    continue
                if is_too_deep:
                    self._too_deep.append(path)
                    self._deeper += [prefix + left for left in names[at:]]
                    break
                if not name.isascii() and not is_utf8(name):
                    message = "the directory's name is not UTF-8"
                    self._note(path, "path-encoding", message, fatal=True)
                    continue
                file = path + _FILE
                try:
                    goes_on = look(file, name, None)
                except OSError as error:
                    goes_on = self._without_skill(file, name, look, error)
                if goes_on:
                    followed = self._followed(path, depth, behind) if is_link else behind
                    pending.append((path, depth + 1, followed))
        self._note_depth()

    def links(self) -> tuple[str, ...]:
        return tuple(self._links.values())

    @property
    def leads_out(self) -> bool:
        """Whether a link out of the root was followed."""
        return bool(self._ways_out)

    def leaves(self, path: str) -> bool:
        """Whether a link leads from the root to this SKILL.md outside of it."""
        return any(path == way or path.startswith(way + "/") for way in self._ways_out)

    def _look_at_root(self, look: Look) -> None:
        if not self.takes_root or not os.path.lexists(self.root + _FILE):
            return
        file, name = self.root.rstrip("/") + _FILE, os.path.basename(self.root)
        try:
            look(file, name, None)
        except OSError as error:
            self._without_skill(file, name, look, error)

    def _followed(self, path: str, depth: int, behind: Followed | None) -> Followed | None:
        """Return the bounds behind a link, which are those of the first on the way."""
        if behind is not None or self.symlinks == "follow" or not self.leaves(path):
            return behind
        return Followed(path, os.path.realpath(path), depth + 1 + LINK_DEPTH_MAX)

    def _behind(self, link: Followed, prefix: str, names: list[str], depth: int) -> list[str]:
        """Return those of the names behind a link that are looked at; the rest is noted."""
        if not names or depth >= self.max_depth:
            return names
        is_deep = depth >= link.depth_max
        room = 0 if is_deep else link.room(len(names))
        code = "depth-limit" if is_deep else "scan-limit"
        if room < len(names) and code not in link.said:
            link.said.add(code)
            paths = tuple(prefix + name for name in names[room:])
            if is_deep:
                most = LINK_DEPTH_MAX
                message = f"not looked into: deeper than {most} directories behind the link"
                self.left_out.append(UnvisitedDirectories(link.link, "depth", most, paths))
            else:
                most = LINK_DIRECTORIES_MAX
                message = f"stopped after {most} directories behind the link"
                self.left_out.append(UnvisitedDirectories(link.link, "directories", most, paths))
            self._note(link.link, code, message)
        return names[:room]

    def _is_directory(self) -> bool:
        """Whether the root can be scanned; one that is missing is no finding (S000-14)."""
        try:
            mode = os.stat(self.root).st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            self._unreadable(self.root, error)
            return False
        if not stat.S_ISDIR(mode):
            message = "expected a directory of skills"
            self._note(self.root, "root-not-directory", message, fatal=True)
        return stat.S_ISDIR(mode)

    def _takes_misnamed(self, prefix: str, look: Look) -> bool:
        """Look at a file in another case, or note it; whether it hides what is below."""
        if prefix == self.root.rstrip("/") + "/" or SKILL_FILE in self._misnamed:
            return False
        file = prefix + min(self._misnamed)
        if self.any_case:
            try:
                return not look(file, os.path.basename(prefix.rstrip("/")), None)
            except OSError as error:
                self._unreadable(file, error)
        elif _may_be_skill(file):
            message = f"expected a file named `{SKILL_FILE}`, got `{min(self._misnamed)}`"
            self._note(file, "wrong-case", message, fatal=True)
        return False

    def _listed(self, place: str) -> tuple[list[str], set[str]]:
        """Return the sorted names of directories and links in `place`, and which are links."""
        names = []
        links = set()
        count = 0
        self._misnamed = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                        continue
                    if entry.is_symlink():
                        names.append(entry.name)
                        links.add(entry.name)
                    if len(entry.name) == _NAME_LENGTH and entry.name.lower() == _FOLDED:
                        self._misnamed.append(entry.name)
        except OSError as error:
            # What was read before the error still counts.
            self._unreadable(place, error)
        if count > ENTRIES_MANY:
            self._note(place, "many-entries", f"{count} entries make this slow to scan")
        if not self.skipped.isdisjoint(names):
            names = [name for name in names if name not in self.skipped]
        if not self.dotfiles:
            names = [name for name in names if not name.startswith(".")]
        names.sort()
        return names, links

    def _without_skill(self, file: str, name: str, look: Look, error: OSError) -> bool:
        """Find out why there was no regular file: a link is followed, the rest is noted."""
        try:
            mode = os.lstat(file).st_mode
            if stat.S_ISLNK(mode):
                if not self.link_files:
                    self._note(file, "link-file", "a symbolic link is not read", fatal=True)
                    return True
                end = self._end_inside(file)
                if end is None:
                    return True
                mode = os.lstat(end).st_mode
                if stat.S_ISREG(mode):
                    return look(file, name, end)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.islink(file):
                self._note(file, "link-broken", "a symbolic link to nothing")
            return True
        except OSError as second:
            mode, error = stat.S_IFREG, second
        if stat.S_ISREG(mode):
            self._unreadable(file, error)
        elif stat.S_ISLNK(mode):
            self._note(file, "link-cycle", _CIRCLE)
        else:
            kind = "a directory" if stat.S_ISDIR(mode) else "a device, pipe or socket"
            self._note(file, "not-a-file", f"expected a regular file, got {kind}", fatal=True)
        return not isinstance(error, PermissionError)

    def _enters_link(self, path: str) -> bool:
        """Whether a link leads to a directory we follow it to, and that none led to before."""
        try:
            info = _end_of(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._note(path, "link-broken", "a symbolic link to nothing")
            elif error.errno == errno.ELOOP:
                self._note(path, "link-cycle", _CIRCLE)
            else:
                self._unreadable(path, error)
            return False
        real = self._end_inside(path) if stat.S_ISDIR(info.st_mode) else None
        if real is None:
            return False
        if path.startswith(real.rstrip("/") + "/"):
            self._note(path, "link-cycle", "a symbolic link to a directory above itself")
            return False
        first = self._links.setdefault((info.st_dev, info.st_ino), path)
        if first != path:
            message = f"a second link to one place: `{first}` leads there too, and is used"
            self._note(path, "same-directory", message, info=True)
        return first == path

    def _end_inside(self, link: str) -> str | None:
        """Return the real path of a link, or None when that is not to be followed."""
        if self.symlinks == "ignore":
            self._note(link, "link-ignored", "a symbolic link; this profile follows none")
            return None
        real = os.path.realpath(link)
        if real == self.root or real.startswith(self.root.rstrip("/") + "/"):
            return real
        refusal = None
        if self.symlinks != "follow":
            refusal = self.places.refusal(self.symlinks, link, real, self._current)
        if refusal is None:
            self._ways_out.append(link)
            return real
        self.findings.append((link, refusal))
        return None

    def _note_depth(self) -> None:
        if self._too_deep:
            more = f" (and {len(self._too_deep) - 1} more)" if len(self._too_deep) > 1 else ""
            message = f"not looked into: deeper than {self.max_depth} directories{more}"
            self._note(self._too_deep[0], "depth-limit", message)
            self.left_out.append(
                UnvisitedDirectories(self.root, "depth", self.max_depth, tuple(self._deeper))
            )

    def _note_limit(self, paths: list[str], unopened: int) -> None:
        """Say where the walk stopped: at `paths`, with so many directories not opened yet."""
        named = f"`{os.path.basename(paths[0])}`"
        if len(paths) > 1:
            named += f" to `{os.path.basename(paths[-1])}`"
        message = (
            f"stopped after {self.max_directories} directories; not looked at: {len(paths)} in "
            f"`{os.path.dirname(paths[0])}` ({named})"
        )
        if unopened:
            message += f", and what is below {unopened} others"
        self._note(self.root, "scan-limit", message)
        self.left_out.append(
            UnvisitedDirectories(
                self.root, "directories", self.max_directories, tuple(paths), unopened
            )
        )

    def _unreadable(self, path: str, error: OSError) -> None:
        self._note(path, "unreadable", (error.strerror or str(error)).lower(), fatal=True)

    def _note(
        self, path: str, code: str, message: str, *, fatal: bool = False, info: bool = False
    ) -> None:
        self.findings.append((path, Finding(code, message, None, fatal, info=info)))


def _may_be_skill(file: str) -> bool:
    """Whether a file begins as a skill does: a page about skills may be called so too."""
    try:
        # O_NONBLOCK: opening a FIFO that has no writer must not hang.
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        return is_file and os.read(handle, 6).removeprefix(b"\xef\xbb\xbf").startswith(b"---")
    except OSError:
        return False
    finally:
        os.close(handle)


def _end_of(link: str) -> os.stat_result:
    """Return what a link leads to; raises as `os.stat`.

    Linux restarts a lookup when something is renamed or mounted meanwhile, and counts its links
    twice then: a chain of more than 20 can seem too long, once.
    """
    for _ in range(_TRIES - 1):
        try:
            return os.stat(link)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    return os.stat(link)


DIRECTORIES_MAX = 50_000
"""Directories of all skills together that are looked at."""


def skills_below(
    skills: Iterable[Skill], *, known: Collection[str] = (), skipped: Collection[str] = ()
) -> Iterator[Diagnostic]:
    """Yield an info for each SKILL.md below the directory of a skill.

    It costs a listing of every directory of every skill, so `discover` does not ask (decision
    0253). Links are not followed.

    Args:
        known: Files that are skills by themselves and so not reported.
        skipped: Names of directories that are not entered.
    """
    left = DIRECTORIES_MAX
    for skill in skills:
        pending = [os.path.dirname(skill.file)]
        if skill.root == pending[0]:
            # What is below a root is found by itself.
            continue
        while pending and left:
            left -= 1
            place = pending.pop()
            try:
                with os.scandir(place) as entries:
                    found = sorted(entries, key=lambda entry: entry.name, reverse=True)
            except OSError:
                continue
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in skipped:
                        pending.append(entry.path)
                elif entry.name == SKILL_FILE and entry.path not in known:
                    yield _found(entry.path, skill)


def _found(path: str, skill: Skill) -> Diagnostic:
    return Diagnostic(
        code="below-a-skill",
        severity=Severity.INFO,
        message=f"a skill inside the skill `{skill.name}`: a file of that one, and not listed",
        path=Path(path),
        hint=HINTS["below-a-skill"],
    )

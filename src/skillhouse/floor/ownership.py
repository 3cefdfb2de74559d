"""Files that decide: where their paths really lead, whose they are, and who else can change them.

The rule is OpenSSH's `StrictModes` (sshd_config(5), auth_secure_path in misc.c): a file and every
directory on the way to it belong to the user or to root, and no one else can write them. A sticky
directory such as /tmp is as good as one that others cannot write: above the directory of a file,
and for one file that is read alone. Windows has no such modes.

A file with a secret has a mode of its own that keeps others out, and its directory may be one that
they read, as a home of 0755 is. Only a directory that is ours as a whole has to be private.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.floor.errors import ExposedError, StateError

if sys.platform != "win32":
    import grp
    import pwd

SETTLED_NS = 50_000_000
"""How long what changes may have the time of an earlier change: clocks of file systems tick, every
10 ms at most (ktime_get_coarse_real_ts64)."""
COARSE_NS = 3_000_000_000
"""The same where a time has no part of a second: some file systems keep whole ones, FAT every
second one."""
_FACTS = slice(6)
"""Mode, inode, device, links, owner and group in the tuple of a `stat_result`."""
LINKS_MAX = 40
"""Links of one path that are followed, as Linux does (path_resolution(7))."""
_SECRET = 0o077
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - named, so that no one narrows them.
"""Directories of everyone, whose modes are right."""
_OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
# Opening a FIFO that has no writer must not hang.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_UID_MAP = Path("/proc/self/uid_map")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


class WalkedPath(Struct, frozen=True, kw_only=True):
    """A path as it is walked by the kernel."""

    real: str
    """Where the path leads, whether anything is there; absolute and without links."""
    steps: tuple[tuple[str, os.stat_result], ...]
    """Every directory and link that is passed, and at last what is there, each by its real path."""


class PathStateCache:
    """The state of some paths: each is read once, so that results from it can be cached."""

    __slots__ = ("_found", "_kept")

    def __init__(self) -> None:
        self._found: dict[str, tuple[os.stat_result, str] | None] = {}
        self._kept = _PathFacts({})

    def at(self, path: str) -> tuple[os.stat_result, str] | None:
        """Return what is at a path, and where it leads if it is a link; None when nothing is."""
        try:
            return self._found[path]
        except KeyError:
            fact = self._found[path] = _look(path)
            return fact

    def hold(self) -> bool:
        """Whether every path is now as it was, in all that `file_problem` and `trail` go by.

        Never where a group can write: who is in it is not known from the files.
        """
        kept = self._kept
        if kept.count != len(self._found):
            kept = self._kept = _PathFacts(dict(self._found))
        now = time.time_ns()
        for path, fact in kept.there.items():
            if fact[0].st_mode & 0o022 == 0o020:
                return False
            try:
                info = os.lstat(path)
            except (OSError, ValueError):
                return False
            # Most are directories of which nothing changed, and there are many in each call.
            is_same = info[_FACTS] == fact[0][_FACTS] and not fact[1]
            if not is_same and _facts(_look(path)) != _facts(fact):
                return False
            if path in kept.absent and not kept.lacks(path, info, now):
                return False
        return all(_look(path) is None for path in kept.absent.get("", ()))


def is_settled(*times: int, now: int | None = None) -> bool:
    """Whether a change after `now`, or this moment, would give a file other times than these.

    INVARIANT: of two changes in one tick of the clock, the later may leave the same times, so that
    what has just changed is no proof.
    """
    is_coarse = not all(one % 1_000_000_000 for one in times)
    return max(times) < (now or time.time_ns()) - (COARSE_NS if is_coarse else SETTLED_NS)


class _PathFacts:
    """Paths that were looked at, by what proves that they are as they were."""

    __slots__ = ("_stamps", "absent", "count", "there")

    def __init__(self, found: Mapping[str, tuple[os.stat_result, str] | None]) -> None:
        self.count = len(found)
        self.there = {path: fact for path, fact in found.items() if fact is not None}
        self.absent: dict[str, list[str]] = {}
        """Those at which nothing was, by the directory that is there; by "" where it is not known.
        Those below another of them are not named: they can only come with it."""
        self._stamps: dict[str, tuple[int, int]] = {}
        """When names of these directories were last made or removed, before it was seen that those
        in `absent` were not there."""
        for path in (path for path, fact in found.items() if fact is None):
            directory = os.path.dirname(path)
            if directory in found and directory not in self.there:
                continue
            around = self.there.get(directory)
            # The times of a link say nothing about where it leads.
            is_proof = around is not None and stat.S_ISDIR(around[0].st_mode)
            self.absent.setdefault(directory if is_proof else "", []).append(path)

    def lacks(self, directory: str, info: os.stat_result, now: int) -> bool:
        """Whether nothing is at the paths of a directory at which nothing was.

        Args:
            info: Of the directory, read after `now` and before this.
        """
        stamp = info.st_mtime_ns, info.st_ctime_ns
        if self._stamps.get(directory) == stamp:
            return True
        if any(_look(path) is not None for path in self.absent[directory]):
            return False
        if is_settled(*stamp, now=now):
            self._stamps[directory] = stamp
        return True


def _look(path: str) -> tuple[os.stat_result, str] | None:
    try:
        info = os.lstat(path)
        return info, os.readlink(path) if stat.S_ISLNK(info.st_mode) else ""
    except (OSError, ValueError):
        return None


def _facts(fact: tuple[os.stat_result, str] | None) -> tuple[object, ...]:
    if fact is None:
        return ()
    info, target = fact
    # The names of a directory change its count of links.
    names = 0 if stat.S_ISDIR(info.st_mode) else info.st_nlink
    return info.st_mode, info.st_dev, info.st_ino, info.st_uid, info.st_gid, names, target


def trail(path: str | Path, states: PathStateCache | None = None) -> WalkedPath:
    """Return the way to a file, one name after the other as the kernel takes it.

    >>> trail("/").real
    '/'
    """
    if sys.platform == "win32":  # pragma: no cover - Windows has no such modes
        return WalkedPath(real=os.path.realpath(path), steps=())
    start = os.fspath(path)
    waiting = deque((start if start[:1] == "/" else f"{os.getcwd()}/{start}").split("/"))
    current, links = "", 0
    look = (states or PathStateCache()).at
    root = look("/")
    steps = [("/", root[0])] if root else []
    while waiting:
        name = waiting.popleft()
        if name == "..":
            current = os.path.dirname(current) if current.count("/") > 1 else ""
        if name in ("", ".", ".."):
            continue
        place = f"{current}/{name}"
        fact = look(place)
        if fact is None:
            current = place
            continue
        info, target = fact
        steps.append((place, info))
        if not target or links == LINKS_MAX:
            current = place
            continue
        links += 1
        current = "" if target.startswith("/") else current
        waiting.extendleft(reversed(target.split("/")))
    return WalkedPath(real=current or "/", steps=tuple(steps))


def file_problem(path: Path, *, secret: bool = False, states: PathStateCache | None = None) -> str:
    """Return why the file at `path` must not decide anything, and what fixes it; or nothing.

    A file that is not there has no problem, unless others could put one in its directory.

    Args:
        path: The file; a link is followed.
        secret: No other user may read the file, and it is no link. Its directory may be sticky:
            no one takes the place of a file there, and one that another user made is refused.
    """
    if sys.platform == "win32":  # pragma: no cover - Windows has no such modes
        return ""
    states = states or PathStateCache()
    way = trail(path, states)
    if secret and (fact := states.at(str(path))) and stat.S_ISLNK(fact[0].st_mode):
        return f"it is a link; {_own_file(path)}"
    problem = _way_problem(way, directory=os.path.dirname(way.real), may_be_sticky=secret)
    if problem or way.steps[-1][0] != way.real:
        return problem
    return opened_problem(way.steps[-1][1], path, secret=secret)


def directory_problem(
    path: Path, *, secret: bool = False, states: PathStateCache | None = None
) -> str:
    """Return why the directory at `path` must not hold files that decide; or nothing.

    Args:
        path: The directory; a link is followed.
        secret: It is ours as a whole, and no other user may list it.
    """
    if sys.platform == "win32":  # pragma: no cover - Windows has no such modes
        return ""
    way = trail(path, states)
    return _way_problem(way, directory=way.real, is_private=secret)


def target_problem(path: Path) -> str:
    """Return why others may change what a link leads to, and what fixes it; or nothing.

    As `file_problem` for a file and `directory_problem` for a directory, but that a file may have
    other names, and its directory be sticky: package managers and Nix keep one copy of equal files,
    in a directory where each builder may add some.

    Args:
        path: The target, without links.
    """
    if sys.platform == "win32":  # pragma: no cover - Windows has no such modes
        return ""
    way = trail(path)
    if not way.steps or way.steps[-1][0] != way.real:
        return ""
    info = way.steps[-1][1]
    if stat.S_ISDIR(info.st_mode):
        return _way_problem(way, directory=way.real)
    above = os.path.dirname(way.real)
    if problem := _way_problem(way, directory=above, may_be_sticky=True):
        return problem
    shown, mode = shlex.quote(str(path)), stat.S_IMODE(info.st_mode)
    if not _is_ours(info, is_above=False):
        return f"it belongs to user {info.st_uid}; {_take_over(shown)}"
    if _others_write(info):
        return f"other users can write it (mode {mode:04o}); {_chmod('go-w', shown, info)}"
    return ""


def is_sealed(path: Path) -> bool:
    """Whether all may read what is at a path and no one may write it, as in a store of packages."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return mode & 0o222 == 0 and mode & 0o444 == 0o444


def open_own(path: Path, *, secret: bool = False) -> int:
    """Open a file that decides, or has a secret, and return its descriptor.

    What is judged is the file that was opened: another that takes its place meanwhile is refused.

    Raises:
        ExposedError: `file_problem` says why it must not be used.
        OSError: there is none, or it cannot be read.
    """
    try:
        handle = os.open(path, _OPEN | (_NO_LINK if secret else 0))
    except FileNotFoundError:
        raise
    except OSError as error:
        # A link is `ELOOP`, and says more by what fixes it.
        if problem := file_problem(path, secret=secret):
            raise ExposedError(problem, path) from error
        raise
    try:
        if problem := _handle_problem(handle, path, secret=secret):
            raise ExposedError(problem, path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _handle_problem(handle: int, path: Path, *, secret: bool) -> str:
    if sys.platform == "win32":  # pragma: no cover - Windows has no such modes
        return ""
    info, states = os.fstat(handle), PathStateCache()
    problem = opened_problem(info, path, secret=secret) or file_problem(
        path, secret=secret, states=states
    )
    there = states.at(trail(path, states).real)
    if problem or (there is not None and os.path.samestat(there[0], info)):
        return problem
    return "another file took its place while it was read; try again"


def opened_problem(info: os.stat_result, path: Path, *, secret: bool = False) -> str:
    """Return what `file_problem` says about a file by itself, for one that is open."""
    if sys.platform == "win32" or not stat.S_ISREG(info.st_mode):
        # What is no regular file is for its reader to refuse.
        return ""
    shown = shlex.quote(str(path))
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {info.st_uid}; {_take_over(shown)}"
    if secret and mode & _SECRET:
        run = _chmod("go=", shown, info)
        return f"other users can read or write it (mode {mode:04o}); {run}"
    if _others_write(info):
        return f"other users can write it (mode {mode:04o}); {_chmod('go-w', shown, info)}"
    # Of another owner, none of its names can be written.
    if info.st_nlink > 1 and info.st_uid == os.geteuid():
        return f"it has {info.st_nlink} names (hard links); {_own_file(path)}"
    return ""


def check_private(directory: Path) -> None:
    """Raise `StateError`, with the command that fixes it, if others can use the directory."""
    if problem := directory_problem(directory, secret=True):
        raise StateError(f"the state cannot be used: {problem}", directory)


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for their owner alone.

    The XDG base directory specification asks for 0700; `Path.mkdir` gives it to the last one only.
    """
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        if directory == directory.parent:
            break
        directory = directory.parent
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def _way_problem(
    way: WalkedPath, *, directory: str, is_private: bool = False, may_be_sticky: bool = False
) -> str:
    """Return what is wrong with the directories that are passed, of which one holds the file."""
    if all(place != directory for place, _ in way.steps):
        return ""
    for place, info in way.steps:
        shown, mode = shlex.quote(place), stat.S_IMODE(info.st_mode)
        is_directory = stat.S_ISDIR(info.st_mode)
        if place == way.real and place != directory:
            continue
        if not _is_ours(info, is_above=place != directory):
            what = "directory" if is_directory else "link"
            return f"the {what} `{place}` belongs to user {info.st_uid}; {_take_over(shown)}"
        if not is_directory:
            continue
        if is_private and place == directory and mode & _SECRET:
            is_common = place in (*_SHARED, os.path.expanduser("~"))
            run = _own_directory(place) if is_common else _chmod("go=", shown, info)
            return f"other users can use the directory `{place}` (mode {mode:04o}); {run}"
        is_fine = mode & stat.S_ISVTX and (may_be_sticky or place != directory)
        if _others_write(info) and not is_fine:
            is_common = place in _SHARED
            run = _own_directory(place) if is_common else _chmod("go-w", shown, info)
            return f"other users can write the directory `{place}` (mode {mode:04o}); {run}"
    return ""


def _chmod(change: str, shown: str, info: os.stat_result) -> str:
    """Return the one command that fixes a mode; what is below a directory keeps its own."""
    sudo = "" if info.st_uid == os.geteuid() else "sudo "
    return f"run `{sudo}chmod {change} {shown}`"


def _own_directory(place: str) -> str:
    """Return what to use instead of a directory whose mode is right for all that is in it."""
    return f"use one of your own, as `mkdir -m 700 {shlex.quote(place)}/skillhouse` makes"


def _others_write(info: os.stat_result) -> bool:
    mode = info.st_mode
    return bool(mode & 0o002) or (bool(mode & 0o020) and not _is_private_group(info.st_gid))


def _is_private_group(group_id: int) -> bool:
    """Whether a group is the user's alone, as where the umask is 002 (Debian's OpenSSH likewise).

    That of the superuser is not: root's umask is 022.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return (
        user.pw_uid != 0
        and group_id == user.pw_gid
        and group.gr_name == user.pw_name
        and set(group.gr_mem) <= {user.pw_name}
    )


def _is_ours(info: os.stat_result, *, is_above: bool) -> bool:
    """Whether something belongs to the user or to root.

    In a user namespace that does not know root, root's directories have the overflow id
    (user_namespaces(7)): that is enough above the directory that holds a file.
    """
    if info.st_uid in (0, os.geteuid()):
        return True
    try:
        known = [line.split()[0] for line in _UID_MAP.read_text("ascii").splitlines()]
        overflow = int(_OVERFLOW_UID.read_text("ascii"))
    except (OSError, ValueError, IndexError):
        # Only Linux maps users.
        return False
    return is_above and "0" not in known and info.st_uid == overflow


def _take_over(shown: str) -> str:
    return f'look at it, then run `sudo chown "$(id -u)" {shown}`'


def _own_file(path: Path) -> str:
    """Return how a link, of whatever kind, becomes a file of its own."""
    shown, beside = shlex.quote(str(path)), shlex.quote(f"{path}.own")
    return f"make it a file of its own: `cp -pL {shown} {beside} && mv {beside} {shown}`"

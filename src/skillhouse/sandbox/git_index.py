"""What git's index has of files: the sizes and times by which git takes them for unchanged.

It is read here and not by git, which would be another process before each run. Only a refresh is
git's own work: whoever writes an index has to know all that git may have put into it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Collection, Mapping

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.sandbox.git_places import leads_back

INDEX_BYTES = 128 << 20
"""Largest index that is read: of a million files."""
FILE_BYTES = 262_144
"""Bytes of git's small files that are looked through."""
REFRESH_SECONDS = 20.0
"""Longest time of a refresh, which reads each file that may have changed."""
NEXT_SECOND = 1.05
"""Longest wait for the next second."""
_ENTRY = struct.Struct(">10I")
_FLAGS = struct.Struct(">H")
_EXTENDED = 0x4000
_STAGE = 0x3000
_NAME = 0xFFF
_SHA256 = regex(rb"(?i)objectformat\s*=\s*\"?sha256")
_REFRESH = """
mkdir -p /dev/shm/git/objects /dev/shm/git/refs && cd /dev/shm/git || exit 9
printf 'ref: refs/heads/none\\n' > HEAD
printf '[core]\\nrepositoryformatversion = 1\\n[extensions]\\nobjectFormat = %s\\n' "$1" > config
export GIT_DIR=/dev/shm/git GIT_WORK_TREE="$2"
shift 2 && cd "$GIT_WORK_TREE" && exec "$@" update-index -q --unmerged --refresh --force-write-index
"""
_EMPTY_BLOBS = tuple(make(b"blob 0\0").digest() for make in (hashlib.sha1, hashlib.sha256))


class IndexEntry(Struct, frozen=True, kw_only=True):
    size: int
    """Of the file, by 2 to the power of 32."""
    mtime_ns: int
    is_executable: bool
    is_young: bool
    """Whether git reads the file before it takes it for unchanged ("racy-git" of git's own
    documentation): the index is not younger than the file, or says nothing of it."""


class WorkTree(Struct, frozen=True, kw_only=True):
    top: str
    """Real path of its work tree."""
    directory: str
    """Real path of git's own directory for this work tree."""

    @property
    def index(self) -> str:
        return f"{self.directory}/index"


def _start_of(path: str) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(FILE_BYTES)
    except OSError:
        return b""


def repository_at(top: str) -> WorkTree | None:
    """Return the repository that has its work tree in a directory, or None.

    Whatever git could take for one counts: what is in it is masked or asked about. Where a run may
    write is decided by `git_places`.
    """
    path = f"{top}/.git"
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return WorkTree(top=top, directory=os.path.realpath(path))
    text = os.fsdecode(_start_of(path))
    target = os.path.join(top, text.removeprefix("gitdir:").strip())
    if not text.startswith("gitdir:") or "\0" in target or not os.path.isdir(target):
        return None
    return WorkTree(top=top, directory=os.path.realpath(target))


def repository_around(
    directory: str, known: dict[str, WorkTree | None] | None = None
) -> WorkTree | None:
    """Return the repository whose work tree a directory is in.

    Args:
        directory: Its real path.
        known: Those that were found before, by directory; added to.
    """
    known = {} if known is None else known
    passed = list[str]()
    while directory not in known:
        passed.append(directory)
        found = repository_at(directory)
        if found is not None or directory == os.path.dirname(directory):
            known[directory] = found
        else:
            directory = os.path.dirname(directory)
    known.update(dict.fromkeys(passed, known[directory]))
    return known[directory]


def index_entries(repository: WorkTree, wanted: Collection[str]) -> Mapping[str, IndexEntry]:
    """Return what the index has of some paths, relative to the top, by path; of one that ends with
    a slash, what is below it. Nothing where it is no index that is understood here."""
    try:
        with open(repository.index, "rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(INDEX_BYTES + 1)
        if len(data) > INDEX_BYTES:
            return {}
        names = frozenset(map(os.fsencode, wanted))
        width = 32 if _is_sha256(repository) else 20
        return _entries(data, names, width=width, written=int(info.st_mtime))
    except (OSError, ValueError, struct.error, IndexError):
        return {}


def _is_sha256(repository: WorkTree) -> bool:
    common = _start_of(f"{repository.directory}/commondir").rstrip(b"\n")
    directory = os.path.join(repository.directory, os.fsdecode(common))
    return _SHA256.search(_start_of(f"{directory}/config")) is not None


def _entries(
    data: bytes, wanted: frozenset[bytes], *, width: int, written: int
) -> Mapping[str, IndexEntry]:
    """Read the entries of a file as gitformat-index(5) describes it."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError
    found: dict[str, IndexEntry] = {}
    above = tuple(name for name in wanted if name.endswith(b"/"))
    at, name = 12, b""
    flags_of, to_flags = _FLAGS.unpack_from, _ENTRY.size + width
    for _ in range(count):
        start = at
        (flags,) = flags_of(data, start + to_flags)
        at = start + to_flags + (4 if flags & _EXTENDED else 2)
        if version == 4:
            dropped, at = _number(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - dropped] + data[at:end]
            at = end + 1
        else:
            length = flags & _NAME
            end = data.index(b"\0", at) if length == _NAME else at + length
            name = data[at:end]
            # One to eight zeros.
            at = start + ((end - start + 8) & ~7)
        is_wanted = name in wanted or (above and name.startswith(above))
        if is_wanted and not flags & _STAGE:
            found[os.fsdecode(name)] = _entry(data, start, width, written)
            if len(found) == len(wanted) and not above:
                break
    return found


def _entry(data: bytes, start: int, width: int, written: int) -> IndexEntry:
    _, _, seconds, nanoseconds, _, _, mode, _, _, size = _ENTRY.unpack_from(data, start)
    is_empty = data[start + _ENTRY.size : start + _ENTRY.size + width] in _EMPTY_BLOBS
    return IndexEntry(
        size=size,
        mtime_ns=seconds * 1_000_000_000 + min(nanoseconds, 999_999_999),
        is_executable=bool(mode & 0o100),
        is_young=written <= seconds or (size == 0 and not is_empty),
    )


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable width and where it ends (gitformat-pack(5), offset encoding)."""
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 127)
    return value, at + 1


def refresh_index(repository: WorkTree, *, youngest_ns: int) -> bool:
    """Have git write an index that is younger than its entries; False where that did not work.

    Git reads the files of the work tree for this, so it is not done inside the run. The
    repository's configuration, which may name programs, is not read: git gets another
    directory, in memory, that has none. What would be changed by a filter is left as it is.

    Args:
        youngest_ns: Change time of the youngest file that is meant.
    """
    program, git = shutil.which("bwrap"), shutil.which("git")
    if program is None or git is None or not leads_back(repository.directory, repository.top):
        return False
    wait = (youngest_ns // 1_000_000_000) + 1.01 - time.time()
    if 0 < wait < NEXT_SECOND:
        time.sleep(wait)
    settings = ("safe.directory=*", "core.fsmonitor=false", "core.hooksPath=/dev/null")
    given = [word for setting in settings for word in ("-c", setting)]
    command = (
        *(program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--bind", repository.directory, repository.directory),
        *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "LC_ALL", "C.UTF-8"),
        *("--setenv", "GIT_CONFIG_NOSYSTEM", "1", "--setenv", "GIT_CONFIG_GLOBAL", "/dev/null"),
        *("--setenv", "GIT_INDEX_FILE", repository.index),
        *("--chdir", repository.top, "--", "sh", "-c", _REFRESH, "sh"),
        *("sha256" if _is_sha256(repository) else "sha1", repository.top, git, *given),
    )
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=REFRESH_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    # 1 says that some files have changed, which is of no account here.
    return done.returncode in (0, 1)

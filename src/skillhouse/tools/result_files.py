"""Results that are too long for a model: where they are cut, and the file that keeps the whole.

A file is named in the result, and `read` opens it for that conversation alone: what a session may
read is looked up in a table of this process, and never found by a path. The directory of a process
is removed when it ends; that of a killed one by whoever looks next, who finds its lock free: the
kernel gives a lock back whatever ends a process, and process ids come back or are another's inside
a container. `delivery.py` puts the excerpt and the file together.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from skillhouse.floor import PathError, make_private, read_beneath
from skillhouse.floor.lock import try_lock
from skillhouse.tools.call import OUTPUT_MAX, Excerpt, RefusedError
from skillhouse.tools.tool import Session

RESULT_MAX = 30_000
"""Characters of a result that a model gets, the notice included (docs/reference/limits.md)."""
CLIENT_MAX: Mapping[str, tuple[int, bool]] = {
    "copilot-cli": (20_480, True),
    "github-copilot-developer": (20_480, True),
    "qwen-cli-mcp-client": (28_000, False),
}
"""What of a result the clients that put a longer one into a file of their own let through, whether
in bytes, by the beginning of the name that they give (tried with Copilot CLI 1.0.102 and Qwen Code
0.24.4: docs/interop.md)."""
NOTICE_MAX = 600
"""Characters that are left for a notice, besides the path in it."""
LINE_END_WITHIN = 1_000
"""How far from where a text would be cut a line's end is looked for."""
_CUT = "cut"
"""The key under which data that was cut says so."""
DIRECTORY = "results"
"""Below the directory of the state, which no command and no other tool reads."""
SESSION_FILES = 100
"""Results of one conversation that are kept."""
SESSION_BYTES = 16 << 20
TOTAL_FILES = 1_000
"""Results of all conversations of one process that are kept."""
TOTAL_BYTES = 64 << 20
WHOLE_CHANNELS = frozenset({"cli"})
"""Channels whose results are for the caller's own screen or pipe: `skillhouse call` ends with its
call, so that its process could keep nothing for later."""
_LOCK = ".lock"
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)

_Owner = tuple[str, ...]


class KeptFile(Struct, frozen=True, kw_only=True):
    """Where the whole of a result is."""

    path: str
    size: int
    """Bytes."""


class ResultBound(NamedTuple):
    """How much of a result the model of one conversation gets."""

    most: int = RESULT_MAX
    in_bytes: bool = False

    def size(self, text: str) -> int:
        """Return how much of the bound a text takes."""
        return len(text.encode("utf-8", "surrogatepass")) if self.in_bytes else len(text)


DEFAULT_BOUND = ResultBound()


def bound_for(client: str) -> ResultBound:
    """Return the bound for a client that calls itself so.

    >>> bound_for("qwen-cli-mcp-client-skills 0.0.1").most, bound_for("codex-mcp-client 1").most
    (28000, 30000)
    """
    for name, (most, in_bytes) in CLIENT_MAX.items():
        if client == name or client.startswith((f"{name} ", f"{name}-", f"{name}/")):
            return ResultBound(most, in_bytes)
    return DEFAULT_BOUND


def ends_of(text: str, most: int, excerpt: Excerpt) -> tuple[str, str]:
    r"""Return the beginning and the end of a longer text, `most` characters together, cut at line
    ends where there are any.

    >>> ends_of("one\ntwo\nthree\nfour\n", 10, "ends")
    ('one\n', 'four\n')
    """
    first = most if excerpt != "ends" else most - most // 2
    last = most - first
    head, tail = text[:first], text[len(text) - last :]
    end = head.rfind("\n", max(0, first - LINE_END_WITHIN)) + 1
    start = tail.find("\n", 0, LINE_END_WITHIN) + 1
    return head[: end or first], tail[start if start < last else 0 :]


def bounded(text: str, excerpt: Excerpt = "head") -> str:
    """Return at most `OUTPUT_MAX` characters of a text, and a notice; nothing keeps the rest."""
    if len(text) <= OUTPUT_MAX:
        return text
    head, tail = ends_of(text, OUTPUT_MAX, excerpt)
    return joined(head, tail, len(text) - len(head) - len(tail))


def joined(head: str, tail: str, lost: int) -> str:
    """Return what is left of a text that lost so many characters between its ends for good."""
    if not lost:
        return head + tail
    if not tail:
        return f"{head}\n[cut: {lost} more characters; ask for a part of it]"
    return f"{head}\n[cut: {lost} characters, which are not kept; ask for a part of it]\n{tail}"


def excerpt_of(
    text: str,
    excerpt: Excerpt,
    kept: KeptFile | None,
    *,
    why: str = "",
    bound: ResultBound = DEFAULT_BOUND,
) -> str:
    """Return what a model gets of a text longer than `bound`: at most that, notice included.

    `kept` is where all of it is; None where it is nowhere, for the reason `why`.
    """
    room = chars = max(bound.most - NOTICE_MAX - (bound.size(kept.path) if kept else 0), 0)
    head, tail = ends_of(text, chars, excerpt)
    while (taken := bound.size(head + tail)) > room:
        # In bytes a character takes up to four.
        chars = min(chars - 1, chars * room // taken)
        head, tail = ends_of(text, chars, excerpt)
    left = len(text) - len(head) - len(tail)
    if kept is None:
        rest = f"the rest is not kept ({why}): ask for a part of it"
    else:
        lines = len(text.splitlines())
        rest = (
            f"the whole result is in `{kept.path}` ({kept.size} bytes, {lines} lines): "
            f"`read` it with {position(head)}"
        )
    count = f"[cut: {left} of {len(text)} characters are left out here"
    before = "" if head.endswith("\n") or not head else "\n"
    if not tail:
        return f"{head}{before}{count}; {rest}]"
    # First, since clients cut again: Codex in the middle, opencode behind 2,000 lines.
    return f"[cut: {rest}]\n{head}{before}{count}]\n{tail}"


def position(before: str, *, line: int = 1, column: int = 1) -> str:
    r"""Return where a text goes on behind `before`, which began at a line and a column, as
    arguments of `read`.

    >>> position("one\ntwo\n"), position("one\ntw"), position("wo", line=2, column=2)
    ('`offset` 3', '`offset` 2 and `column` 3', '`offset` 2 and `column` 4')
    """
    lines = before.splitlines(keepends=True)
    if not lines:
        return f"`offset` {line}" + (f" and `column` {column}" if column > 1 else "")
    if lines[-1].splitlines()[0] != lines[-1]:
        return f"`offset` {line + len(lines)}"
    at = len(lines[-1]) + (column if len(lines) == 1 else 1)
    return f"`offset` {line + len(lines) - 1} and `column` {at}"


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a text is read."""

    line: int = 1
    """The first, from 1."""
    column: int = 1
    """The first character of that line, from 1."""
    limit: int | None = None
    """Most lines; None is all."""


def page_of(
    lines: Sequence[str],
    page: Page,
    bound: ResultBound,
    *,
    shown: Callable[[str], str] = lambda part: part,
) -> str:
    r"""Return a part of a text's lines, and where it is longer than `bound`, a notice that says
    where to read on. `shown` is what a reader gets of a part, which may be longer.

    >>> page_of(["one\n", "two\n", "three\n"], Page(line=2, column=2, limit=1), ResultBound(100))
    'wo\n'
    """
    first = page.line - 1
    last = len(lines) if page.limit is None else first + page.limit
    wanted = list(lines[first:last])
    if wanted:
        wanted[0] = wanted[0][page.column - 1 :]
    part = "".join(wanted)
    if len(part) <= bound.most and bound.size(shown(part)) <= bound.most:
        return part
    room = count = bound.most - NOTICE_MAX
    while (size := bound.size(shown(part[:count]))) > room:
        # An escape is longer than its character.
        count = min(count - 1, count * room // size)
    part, _ = ends_of(part, count, "head")
    next_place = position(part, line=page.line, column=page.column)
    before = "" if part.endswith("\n") else "\n"
    return f"{part}{before}[cut: {len(lines)} lines in all; read on with {next_place}]"


def bounded_data(data: Mapping[str, Any], excerpt: Excerpt, kept: KeptFile | None) -> Any:
    """Return a result's data with at most about `RESULT_MAX` characters in it.

    Frameworks may give it to a model as well. Small values stay; the large ones share what is left,
    and `cut` says how many characters there were, and where the text is as a whole.
    """
    size = _size(data)
    if size <= RESULT_MAX:
        return data
    cut = {"characters": size, **({"path": kept.path} if kept else {})}
    return {_CUT: cut, **_smaller_mapping(data, RESULT_MAX, excerpt)}


def is_cut(data: Mapping[str, Any]) -> bool:
    """Whether `bounded_data` left something out; a skill's own word of that name says nothing."""
    cut = data.get(_CUT)
    return isinstance(cut, Mapping) and isinstance(cut.get("characters"), int)


def _size(value: Any) -> int:
    """Return about how many characters a value is as JSON."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, Mapping):
        return 2 + sum(len(str(key)) + 4 + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(2 + _size(item) for item in value)
    # A number may have any number of digits.
    return len(repr(value))


def _smaller(value: Any, most: int, excerpt: Excerpt) -> Any:
    if _size(value) <= most:
        return value
    if isinstance(value, str):
        head, tail = ends_of(value, max(most - NOTICE_MAX // 10, 0), excerpt)
        return f"{head}[cut: {len(value) - len(head) - len(tail)} characters]{tail}"
    if isinstance(value, Mapping):
        return _smaller_mapping(value, most, excerpt)
    if isinstance(value, list | tuple):
        return _smaller_list(value, most, excerpt)
    return None


def _smaller_mapping(value: Mapping[str, Any], most: int, excerpt: Excerpt) -> dict[str, Any]:
    """Give each entry its share; what the small ones leave is for the large ones."""
    sizes = {key: len(str(key)) + 4 + _size(item) for key, item in value.items()}
    shares: dict[str, int] = {}
    left = most
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda pair: pair[1])):
        shares[key] = min(size, left // (len(sizes) - place))
        left -= shares[key]
    smaller = {}
    for key, item in value.items():
        room = shares[key] - len(str(key)) - 4
        if room > 0:
            smaller[key] = _smaller(item, room, excerpt)
    return smaller


def _smaller_list(value: Sequence[Any], most: int, excerpt: Excerpt) -> list[Any]:
    smaller: list[Any] = []
    left = most
    for item in value:
        size = 2 + _size(item)
        if size > left:
            if not smaller:
                smaller.append(_smaller(item, left, excerpt))
            break
        smaller.append(item)
        left -= size
    return smaller


class _Result(Struct, frozen=True, kw_only=True):
    """A long result that is kept."""

    owner: _Owner
    name: str
    size: int
    digest: bytes


def gets_whole(session: Session) -> bool:
    """Whether a call's result goes to no model: skill code, whose own result is bounded in turn,
    or a command line."""
    return bool(session.origin_digest) or session.channel in WHOLE_CHANNELS


class ResultFiles:
    """The long results of one process.

    INVARIANT: a file is given only to the session that it was made for, and only while it holds
    the bytes that were written.
    """

    def __init__(
        self,
        state_directory: Path,
        *,
        hide: Callable[[str], str] = str,
        session_files: int = SESSION_FILES,
        session_bytes: int = SESSION_BYTES,
        total_files: int = TOTAL_FILES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        """`hide` takes out of a text what no file may hold."""
        self.directory = state_directory / DIRECTORY
        self.hide = hide
        self._session_bounds = (session_files, session_bytes)
        self._bounds = (total_files, total_bytes)
        self._kept: OrderedDict[str, _Result] = OrderedDict()
        """By path, oldest first."""
        # INVARIANT: held to read or change what is kept; calls come on several threads.
        self._lock = threading.Lock()
        self._own: Path | None = None
        self._remove: weakref.finalize[[Path, int, int], ResultFiles] | None = None

    def keep(self, session: Session, text: str) -> KeptFile:
        """Write a text for a session; OSError if it cannot be written."""
        data = text.encode("utf-8", "replace")
        with self._lock:
            directory = self._own_directory()
        name = f"{secrets.token_hex(16)}.txt"
        path = str(directory / name)
        _write(path, data)
        result = _Result(
            owner=_owner(session), name=name, size=len(data), digest=hashlib.sha256(data).digest()
        )
        with self._lock:
            self._kept[path] = result
            gone = self._beyond(result.owner)
        _unlink(gone)
        return KeptFile(path=path, size=len(data))

    def holds(self, path: str) -> bool:
        """Whether a path is one of a result, of whomever and whenever."""
        return path.startswith(f"{self.directory}/")

    def check(self, session: Session, path: str) -> None:
        """Raise RefusedError for a path that is no result of this session, or not any more."""
        self._known(session, path)

    def text(self, session: Session, path: str) -> str:
        """Return a result of this session; RefusedError for any other, or one that is gone."""
        result = self._known(session, path)
        try:
            data = read_beneath(Path(path).parent, result.name, max_bytes=result.size)
        except (PathError, OSError):
            data = b""
        if hashlib.sha256(data).digest() != result.digest:
            self._forget([path])
            message = f"the result in `{path}` was changed or removed; make the call again"
            raise RefusedError(message)
        return data.decode("utf-8")

    def _known(self, session: Session, path: str) -> _Result:
        with self._lock:
            result = self._kept.get(path)
        if result is None or result.owner != _owner(session):
            # One answer for both: whether another session has it is not for this one to know.
            raise RefusedError(
                f"no result of this conversation is in `{path}`: only the newest "
                f"{self._session_bounds[0]} are kept, and none for longer than the conversation; "
                "make the call again"
            )
        return result

    def end_connection(self, connection: str) -> None:
        """Remove the results of all sessions of a connection."""
        self._forget_where(lambda owner: owner[-1] == connection)

    def end(self, session: Session) -> None:
        """Remove the results of a session."""
        ended = _owner(session)
        self._forget_where(lambda owner: owner == ended)

    def close(self) -> None:
        """Remove all results; later ones are kept again."""
        with self._lock:
            remove, self._remove, self._own = self._remove, None, None
            self._kept.clear()
        if remove is not None:
            remove()

    def sweep(self) -> None:
        """Remove what processes left behind that were killed."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return
        for name in names:
            if name.endswith(_LOCK):
                _sweep(self.directory / name)

    def _own_directory(self) -> Path:
        if self._own is None:
            make_private(self.directory)
            own, handle = _claimed(self.directory)
            self._remove = weakref.finalize(self, _remove, own, handle, os.getpid())
            self._own = own
        # Something that cleans up may have taken it.
        self._own.mkdir(mode=0o700, exist_ok=True)
        return self._own

    def _beyond(self, owner: _Owner) -> list[str]:
        """Forget the oldest results beyond the bounds, first of one session; return their paths."""
        own = [path for path, result in self._kept.items() if result.owner == owner]
        gone = self._oldest(own, *self._session_bounds)
        return gone + self._oldest(list(self._kept), *self._bounds)

    def _oldest(self, paths: list[str], files: int, size: int) -> list[str]:
        used = sum(self._kept[path].size for path in paths)
        gone = []
        # The newest stays: it is the one that was just named.
        for place, path in enumerate(paths[:-1]):
            if len(paths) - place <= files and used <= size:
                break
            used -= self._kept.pop(path).size
            gone.append(path)
        return gone

    def _forget_where(self, is_ended: Callable[[_Owner], bool]) -> None:
        with self._lock:
            paths = [path for path, result in self._kept.items() if is_ended(result.owner)]
        self._forget(paths)

    def _forget(self, paths: list[str]) -> None:
        with self._lock:
            for path in paths:
                self._kept.pop(path, None)
        _unlink(paths)


def _owner(session: Session) -> _Owner:
    return (
        session.agent,
        session.user,
        session.channel,
        session.client,
        session.id,
        session.connection,
    )


def _claimed(directory: Path) -> tuple[Path, int]:
    """Make a directory of this process, and hold the lock beside it."""
    while True:
        own = directory / f"{os.getpid()}-{secrets.token_hex(8)}"
        lock = own.with_name(own.name + _LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
        handle = os.open(lock, flags, 0o600)
        # Whoever sweeps may have found it before it was held, and removes it.
        if try_lock(handle) and lock.exists():
            own.mkdir(mode=0o700)
            return own, handle
        os.close(handle)


def _write(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except OSError:
        # The disk may be full: half a file is no result, and takes room.
        _unlink([path])
        raise


def _unlink(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _sweep(lock: Path) -> None:
    """Remove a directory whose process is gone; one that runs holds the lock."""
    try:
        handle = os.open(lock, os.O_RDWR | _NOFOLLOW | _CLOEXEC)
    except OSError:
        return
    try:
        if try_lock(handle):
            _remove_all(lock.with_name(lock.name.removesuffix(_LOCK)))
    except OSError:
        # A file system without locks: whether it is in use cannot be known.
        return
    finally:
        os.close(handle)


def _remove(own: Path, handle: int, process: int) -> None:
    # A forked child has the same descriptor, and nothing of its own here.
    if os.getpid() == process:
        _remove_all(own)
        os.close(handle)


def _remove_all(own: Path) -> None:
    shutil.rmtree(own, ignore_errors=True)
    _unlink([f"{own}{_LOCK}"])

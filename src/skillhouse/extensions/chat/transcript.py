"""Conversations on disk: one append-only file each, readable after any crash."""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.floor import SkillhouseError, StateError, make_private
from skillhouse.floor.lock import try_lock
from skillhouse.floor.regex import regex

SCHEMA = 1
FOLDER = "chats"
FILE_MAX = 256 * 1_048_576
"""Maximum bytes of a transcript; a longer one is refused, not cut."""
HEAD_MAX = 65_536
"""Bytes read of each transcript for a list."""
FIRST_MAX = 200
LISTED_MAX = 1_000

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_ID = regex(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")


class ChatError(SkillhouseError):
    """A conversation cannot be found, or another process has it open."""


class TranscriptHead(Struct, frozen=True, kw_only=True):
    """The first record of a transcript."""

    id: str
    created_ms: int
    place: str
    """Directory in which the conversation began."""
    agent: str
    model: str
    base_url: str = ""
    key_variable: str = ""


class TranscriptLine(Struct, frozen=True, kw_only=True):
    head: TranscriptHead
    changed_ms: int
    first: str
    """The beginning of the first prompt; untrusted."""
    problem: str = ""
    """Why it cannot be resumed; empty if it looks intact."""


class StoredTranscript(Struct, frozen=True, kw_only=True):
    head: TranscriptHead
    messages: list[dict[str, Any]]
    """The current history, as the library's JSON; after a compaction the shortened one."""
    activations: Any = None
    """The last activation records, unchanged."""
    torn: int = 0
    """Number of lines that a crash cut off; they stay in the file."""


class Transcript:
    """One conversation that is being written, and is locked meanwhile."""

    def __init__(self, path: Path, handle: int, clock: Callable[[], float]) -> None:
        """Store the open, locked file; use `Transcripts.begin` or `resume`."""
        self.path = path
        self._handle = handle
        self._clock = clock
        self._is_torn = False

    @property
    def id(self) -> str:
        """The value of `--resume`."""
        return self.path.stem

    def add(self, kind: str, **values: Any) -> None:
        """Add a record durably; raises OSError if it was not written, or only in part."""
        record = {"kind": kind, "at_ms": int(self._clock() * 1000), **values}
        data = _line(record)
        if self._is_torn:
            # A full disk cut the previous line; this record marks it as torn, not damaged.
            data = b"\n" + _line({"kind": "torn"}) + data
        self._is_torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        os.fsync(self._handle)
        self._is_torn = False

    def torn(self) -> None:
        """Note that the last line was cut off; the next `add` records it."""
        self._is_torn = True

    def discard(self) -> None:
        """Remove the file of an empty conversation; call `close` afterwards."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        os.close(self._handle)


class Transcripts:
    """The conversations of this installation, below its state directory."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = state_directory / FOLDER
        self._clock = clock

    def begin(self, **head: str) -> Transcript:
        """Begin a transcript; `head` has the text fields of `TranscriptHead`. Raises OSError."""
        make_private(self._folder)
        now = self._clock()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
        path = self._folder / f"{name}.jsonl"
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        try_lock(handle)
        made = Transcript(path, handle, self._clock)
        made.add("chat", schema=SCHEMA, id=name, created_ms=int(now * 1000), **head)
        return made

    def resume(self, path: Path) -> tuple[Transcript, StoredTranscript]:
        """Open a transcript to continue it.

        Raises:
            ChatError: another process has it open.
            StateError: it is damaged or newer than this program; it was not changed.
        """
        handle = self._open(path, os.O_RDWR | os.O_APPEND)
        try:
            if not try_lock(handle):
                raise ChatError(f"the conversation `{path.stem}` is open in another program")
            data = _bytes_of(handle, path)
            kept = read(data, path)
            made = Transcript(path, handle, self._clock)
            if data and not data.endswith(b"\n"):
                made.torn()
        except BaseException:
            os.close(handle)
            raise
        return made, kept

    def find(self, prefix: str, *, place: str) -> Path:
        """Return the transcript whose id begins with `prefix`; if empty, the newest of `place`.

        Raises ChatError if there is none, or there are several.
        """
        if prefix:
            paths = [path for path in self._paths() if path.stem.startswith(prefix)]
            if not paths:
                raise ChatError(f"no conversation begins with `{prefix}`; see `chat --list`")
            if len(paths) > 1:
                names = ", ".join(f"`{path.stem}`" for path in paths[:5])
                raise ChatError(f"{len(paths)} conversations begin with `{prefix}`: {names}")
            return paths[0]
        newest = next((one for one in self.listed() if one.head.place == place), None)
        if newest is None:
            raise ChatError("no conversation was begun here; see `chat --list`")
        return self._folder / f"{newest.head.id}.jsonl"

    def listed(self) -> list[TranscriptLine]:
        """Return the conversations, last used first; unreadable ones have a `problem`."""
        lines = [self._listed(path) for path in self._paths()]
        lines.sort(key=lambda one: (one.changed_ms, one.head.id), reverse=True)
        return lines[:LISTED_MAX]

    def _paths(self) -> list[Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self._folder))
        except FileNotFoundError:
            return []
        return [
            self._folder / name
            for name in names
            if name.endswith(".jsonl") and _ID.fullmatch(name.removesuffix(".jsonl"))
        ]

    def _listed(self, path: Path) -> TranscriptLine:
        head = TranscriptHead(id=path.stem, created_ms=0, place="", agent="", model="")
        changed, first, problem = 0, "", ""
        try:
            handle = self._open(path, os.O_RDONLY)
            try:
                changed = int(os.fstat(handle).st_mtime * 1000)
                data = os.read(handle, HEAD_MAX)
            finally:
                os.close(handle)
            lines = data.split(b"\n")
            head = _head(lines[0], path)
            first = next(_prompts(lines[1:]), "")
        except (StateError, OSError) as error:
            problem = str(error)
        return TranscriptLine(head=head, changed_ms=changed, first=first, problem=problem)

    def _open(self, path: Path, flags: int) -> int:
        try:
            handle = os.open(path, flags | _FLAGS)
        except OSError as error:
            raise StateError(f"cannot be opened: {(error.strerror or '').lower()}", path) from error
        problem = _problem(os.fstat(handle))
        if problem:
            os.close(handle)
            raise StateError(problem, path)
        return handle


def _problem(info: os.stat_result) -> str:
    if not stat.S_ISREG(info.st_mode):
        return "expected a regular file"
    if os.name == "posix" and info.st_uid != os.geteuid():
        return "the transcript belongs to another user"
    if os.name == "posix" and info.st_mode & 0o022:
        return "others can write the transcript; if it is yours, `chmod 600` it"
    return ""


def read(data: bytes, path: Path) -> StoredTranscript:
    """Return the content of a transcript; raises StateError if it is damaged, or newer than us.

    A line that a crash cut off is ignored: the last one, or one that the next record marks as torn.
    """
    *lines, rest = data.split(b"\n")
    lines += [rest] if rest else []
    head = _head(lines[0] if lines else b"", path)
    messages: list[dict[str, Any]] = []
    activations, torn = None, 0
    for place, line in enumerate(lines[1:], start=2):
        record = _record(line)
        if record is None:
            after = _record(lines[place]) if place < len(lines) else None
            is_last = place == len(lines) and not data.endswith(b"\n")
            if not is_last and (after is None or after.get("kind") != "torn"):
                raise StateError(f"line {place} of the transcript is damaged", path)
            torn += 1
            continue
        try:
            if record["kind"] == "activations":
                activations = record["activations"]
            else:
                _apply(record, messages)
        except (KeyError, TypeError) as error:
            message = f"line {place} of the transcript is damaged: {error}"
            raise StateError(message, path) from error
    return StoredTranscript(head=head, messages=messages, activations=activations, torn=torn)


def _apply(record: Mapping[str, Any], messages: list[dict[str, Any]]) -> None:
    """Change the history by a record; raises KeyError or TypeError if it is malformed."""
    kind = record["kind"]
    if kind == "messages":
        messages += _dicts(record["messages"])
    elif kind == "replaced":
        messages[:] = _dicts(record["messages"])
    elif kind == "undone":
        count = record["count"]
        if not isinstance(count, int) or not 0 < count <= len(messages):
            raise TypeError("expected the number of messages to take back")
        del messages[-count:]
    elif kind != "torn":
        raise KeyError(f"unknown kind {kind!r}")


def _dicts(values: Any) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise TypeError("expected messages")
    return values


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _head(line: bytes, path: Path) -> TranscriptHead:
    record = _record(line)
    if record is None or record.get("kind") != "chat" or not isinstance(record.get("schema"), int):
        raise StateError("the beginning of the transcript is damaged", path)
    if record["schema"] > SCHEMA:
        raise StateError("the transcript is newer than this program", path)
    texts = {
        name: value
        for name in ("place", "agent", "model", "base_url", "key_variable")
        if isinstance(value := record.get(name, ""), str)
    }
    created = record.get("created_ms")
    if len(texts) < 5 or not isinstance(created, int):
        raise StateError("the beginning of the transcript is damaged", path)
    return TranscriptHead(id=path.stem, created_ms=created, **texts)


def _prompts(lines: list[bytes]) -> Iterator[str]:
    for line in lines:
        for message in _mappings((_record(line) or {}).get("messages")):
            for part in _mappings(message.get("parts")):
                content = part.get("content")
                if part.get("part_kind") == "user-prompt" and isinstance(content, str):
                    yield content[:FIRST_MAX]


def _mappings(value: object) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def _bytes_of(handle: int, path: Path) -> bytes:
    size = os.fstat(handle).st_size
    if size > FILE_MAX:
        raise StateError(f"the transcript is longer than {FILE_MAX} bytes", path)
    data = b""
    while piece := os.pread(handle, size - len(data) or 1, len(data)):
        data += piece
        if len(data) > FILE_MAX:
            raise StateError(f"the transcript is longer than {FILE_MAX} bytes", path)
    return data

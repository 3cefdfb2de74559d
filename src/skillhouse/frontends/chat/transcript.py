"""Conversations on the disk: one file each, only ever added to, readable after any crash."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillhouse.floor import SkillhouseError, StateError, make_private
from skillhouse.floor.lock import try_lock

SCHEMA = 1
FOLDER = "chats"
FILE_MAX = 256 * 1_048_576
"""Bytes of a transcript that is read; a longer one is refused rather than cut."""
HEAD_MAX = 65_536
"""Bytes that are read of each transcript for a list."""
FIRST_MAX = 200
"""Characters of the first prompt that a list gets."""
LISTED_MAX = 1_000

_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")


class ChatError(SkillhouseError):
    """A conversation cannot be found, or somebody else has it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptHead:
    """What a transcript begins with."""

    id: str
    created_ms: int
    place: str
    """Directory that the conversation was begun in."""
    agent: str
    model: str
    base_url: str = ""
    key_variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """One line of a list."""

    head: TranscriptHead
    changed_ms: int
    first: str
    """The beginning of the first prompt; untrusted."""
    problem: str = ""
    """Why it cannot be resumed; empty when it looks whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTranscript:
    """What a transcript holds."""

    head: TranscriptHead
    messages: list[dict[str, Any]]
    """The conversation as it goes on, as JSON of the library; after a compaction the rest of it."""
    activations: Any = None
    """The last activation records, as they were given."""
    torn: int = 0
    """Lines that a crash cut off; they are left where they are."""


class Transcript:
    """One conversation that is being written; nobody else writes it meanwhile."""

    def __init__(self, path: Path, handle: int, clock: Callable[[], float]) -> None:
        """Take the open, locked file; `begin` and `resume` are the ways here."""
        self.path = path
        self._handle = handle
        self._clock = clock
        self._is_torn = False

    @property
    def id(self) -> str:
        """What `--resume` takes."""
        return self.path.stem

    def add(self, kind: str, **values: Any) -> None:
        """Add a record; it is on the disk when this returns.

        Raises:
            OSError: it could not be written, or not all of it.
        """
        record = {"kind": kind, "at_ms": int(self._clock() * 1000), **values}
        data = _line(record)
        if self._is_torn:
            # A full disk cut the line before; what is written now says that it is no damage.
            data = b"\n" + _line({"kind": "torn"}) + data
        self._is_torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]
        os.fsync(self._handle)
        self._is_torn = False

    def torn(self) -> None:
        """Say that the last line was cut off; the next `add` writes so."""
        self._is_torn = True

    def discard(self) -> None:
        """Remove the file of a conversation in which nothing was said; `close` comes after."""
        with suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


class Transcripts:
    """The conversations of a house."""

    def __init__(self, state_directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Take where the house keeps its state; nothing is made before the first conversation."""
        self._folder = state_directory / FOLDER
        self._clock = clock

    def begin(self, **head: str) -> Transcript:
        """Begin a transcript; `head` is the text of `TranscriptHead`.

        Raises:
            OSError: it cannot be written.
        """
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
        """Open a transcript to go on with it.

        Raises:
            ChatError: another process has it open.
            StateError: it is damaged or newer than this program; nothing was changed.
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
        """Return the transcript whose id begins with `prefix`, or the newest of a place.

        Raises:
            ChatError: there is none, or there are several.
        """
        if prefix:
            found = [path for path in self._paths() if path.stem.startswith(prefix)]
            if not found:
                raise ChatError(f"no conversation begins with `{prefix}`; see `chat --list`")
            if len(found) > 1:
                names = ", ".join(f"`{path.stem}`" for path in found[:5])
                raise ChatError(f"{len(found)} conversations begin with `{prefix}`: {names}")
            return found[0]
        newest = next((one for one in self.listed() if one.head.place == place), None)
        if newest is None:
            raise ChatError("no conversation was begun here; see `chat --list`")
        return self._folder / f"{newest.head.id}.jsonl"

    def listed(self) -> list[TranscriptLine]:
        """Return the conversations, last used first; those that cannot be read say why."""
        found = [self._listed(path) for path in self._paths()]
        found.sort(key=lambda one: (one.changed_ms, one.head.id), reverse=True)
        return found[:LISTED_MAX]

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
    """Return why an opened file is no transcript of ours, or nothing."""
    if not stat.S_ISREG(info.st_mode):
        return "expected a regular file"
    if os.name == "posix" and info.st_uid != os.geteuid():
        return "the transcript belongs to somebody else"
    if os.name == "posix" and info.st_mode & 0o022:
        return "others can write the transcript; if it is yours, `chmod 600` it"
    return ""


def read(data: bytes, path: Path) -> StoredTranscript:
    """Return what the bytes of a transcript hold.

    A line that a crash cut off is passed over: the last one, or one that the next declares torn.

    Raises:
        StateError: it is damaged elsewhere, or newer than this program.
    """
    *lines, rest = data.split(b"\n")
    lines += [rest] if rest else []
    head = _head(lines[0] if lines else b"", path)
    reading, torn = _Reading(), 0
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
            reading.take(record)
        except (KeyError, TypeError) as error:
            message = f"line {place} of the transcript is damaged: {error}"
            raise StateError(message, path) from error
    return StoredTranscript(
        head=head, messages=reading.messages, activations=reading.activations, torn=torn
    )


class _Reading:
    """What the lines of a transcript make up so far."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.activations: Any = None

    def take(self, record: Mapping[str, Any]) -> None:
        """Take the next record; raises KeyError or TypeError for one that is none."""
        kind = record["kind"]
        if kind == "messages":
            self.messages += _dicts(record["messages"])
        elif kind == "replaced":
            self.messages = _dicts(record["messages"])
        elif kind == "undone":
            count = record["count"]
            if not isinstance(count, int) or not 0 < count <= len(self.messages):
                raise TypeError("expected the number of messages to take back")
            del self.messages[-count:]
        elif kind == "activations":
            self.activations = record["activations"]
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
    """Yield what the person wrote, as far as it stands in these lines."""
    for line in lines:
        for message in _mappings((_record(line) or {}).get("messages")):
            for part in _mappings(message.get("parts")):
                content = part.get("content")
                if part.get("part_kind") == "user-prompt" and isinstance(content, str):
                    yield content[:FIRST_MAX]


def _mappings(value: object) -> list[dict[str, Any]]:
    found = value if isinstance(value, list) else []
    return [one for one in found if isinstance(one, dict)]


def _bytes_of(handle: int, path: Path) -> bytes:
    size = os.fstat(handle).st_size
    if size > FILE_MAX:
        raise StateError(f"the transcript is longer than {FILE_MAX} bytes", path)
    found = b""
    while piece := os.pread(handle, size - len(found) or 1, len(found)):
        found += piece
        if len(found) > FILE_MAX:
            raise StateError(f"the transcript is longer than {FILE_MAX} bytes", path)
    return found

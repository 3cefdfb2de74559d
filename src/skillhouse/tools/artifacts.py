"""The files that calls of skills' code wrote to their output folder, kept after the call.

All of it is a skill's own: names, bytes and what it says of them. A name is checked and never a
path here: the bytes are in files `0`, `1` and so on, in a directory of the call, which no other
user of this machine opens. Who gets a file is decided where it is asked for: `ArtifactSet.is_of`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mimetypes
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from skillhouse.audit.redaction import MIN_SECRET
from skillhouse.floor import (
    PathError,
    SkillhouseError,
    digest,
    is_utf8,
    make_private,
    open_directory_beneath,
    read_beneath,
)
from skillhouse.floor.paths import read_regular
from skillhouse.floor.regex import regex
from skillhouse.sandbox.code_call import OutputPart

DIRECTORY = "artifacts"
"""Below the directory of the state, which no command and no other tool reads."""
ARTIFACTS_URI = "skillhouse://artifacts/"
ABOUT = "set.json"
ABOUT_MAX = 1 << 20
NAME_MAX = 200
"""Characters of a name with its directories."""
PARTS_MAX = 8
LEFT_OUT_MAX = 16
"""Files that are left out which are named; the others are counted."""
NAMED_MAX = 8
"""Kept files that a model hears of by name; the others are counted."""
SHOWN_MAX = 120
"""Characters of a name or a reason that is shown of what is left out."""
SETS_MAX = 10_000
BLOCK = 4_096
"""Bytes that a file counts for at least, so that empty ones have a bound too."""
STALE_SECONDS = 86_400.0
"""Age of what a process left that was killed."""
DAY_SECONDS = 86_400.0
BYTES = "application/octet-stream"
_ID = regex(r"[0-9a-f]{32}", re.ASCII)
_PLACE = regex(r"([0-9]{15})\.([0-9]{1,15})\.([0-9a-f]{32})", re.ASCII)
_MEDIA = regex(r"[a-z]{1,40}/[A-Za-z0-9.+-]{1,80}", re.ASCII)
_TYPES = {".md": "text/markdown", ".csv": "text/csv", ".svg": "image/svg+xml"}
"""Types for which Python's table depends on the machine."""


class ArtifactError(SkillhouseError):
    """A file of a call cannot be given; the text is for whoever asked."""

    def __init__(self, message: str, *, code: str = "unknown-artifact") -> None:
        """`code` is the stable word for programs."""
        super().__init__(message)
        self.code = code


class ArtifactBounds(Protocol):
    """How much is kept, as `[skill_code]` says: of one call, and of all."""

    @property
    def artifact_files(self) -> int: ...

    @property
    def artifact_bytes(self) -> int: ...

    @property
    def artifact_days(self) -> int: ...

    @property
    def artifact_total_bytes(self) -> int: ...


class ArtifactCaller(Protocol):
    """Whose call it is: a `Session` or a `Caller`."""

    @property
    def agent(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def channel(self) -> str: ...


class ArtifactFile(Struct, frozen=True, kw_only=True):
    """One file."""

    name: str
    """Relative, with `/`; checked, and the skill's own words."""
    bytes: int
    digest: str
    """`sha256:` and 64 hex digits."""
    media_type: str
    """By the name alone: nothing says that the bytes are so."""
    uri: str
    """By which MCP reads it."""

    @property
    def set_id(self) -> str:
        return read_uri(self.uri)[0]


class ArtifactSet(Struct, frozen=True, kw_only=True):
    """The files of one call."""

    id: str
    made: float
    """Seconds since 1970."""
    tool: str
    """`skill:tool`."""
    agent: str
    user: str
    channel: str
    files: tuple[ArtifactFile, ...]

    def is_of(self, caller: ArtifactCaller) -> bool:
        """Whether it is of this agent, user and channel."""
        own = (self.agent, self.user, self.channel)
        return own == (caller.agent, caller.user, caller.channel)

    def named(self, name: str) -> tuple[int, ArtifactFile]:
        """Return a file and its place; ArtifactError if the call has none of that name."""
        for index, one in enumerate(self.files):
            if one.name == name:
                return index, one
        raise ArtifactError(f"the call has no file `{shown_name(name)}`")


class KeptArtifacts(Struct, frozen=True, kw_only=True):
    """What came of the output folder of a call."""

    id: str = ""
    """Of its set; empty where no file was kept."""
    files: tuple[ArtifactFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Each file that was not kept, with the reason; one line each."""

    def detail(self) -> Mapping[str, object]:
        """Return what the call's record has of it; empty where the folder was."""
        detail: dict[str, object] = {}
        if self.files:
            detail["artifact_set"] = self.id
            detail["artifacts"] = [
                {"name": one.name, "bytes": one.bytes, "digest": one.digest} for one in self.files
            ]
        if self.left_out:
            detail["artifacts_left_out"] = list(self.left_out)
        return detail


def kept_line(files: Sequence[ArtifactFile]) -> str:
    """Return the line by which a model without resources hears of kept files; empty for none.

    The names are the skill's own words, each of printable characters.
    """
    names = [one.name for one in files[:NAMED_MAX]]
    more = [f"and {len(files) - NAMED_MAX} more"] * (len(files) > NAMED_MAX)
    return f"kept: {', '.join((*names, *more))}" if files else ""


def shown_name(text: str) -> str:
    """Return a name in one line, with what is not printable as escapes.

    >>> shown_name("a\\nb")
    'a\\\\nb'
    """
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:SHOWN_MAX]
    )
    return plain if len(text) <= SHOWN_MAX else f"{plain}…"


def name_fault(name: str) -> str:
    """Return why a name is refused; empty for one that is kept.

    Such a name is one line, is the same in each listing, and names a file below any directory that
    it is saved to: none that a shell or a program looks for by itself.

    >>> name_fault("plots/a b.png"), name_fault("../a"), name_fault("a/.bashrc")
    ('', 'its name has a part `..`', 'its name has a part that begins with a dot or a dash')
    """
    parts = name.split("/")
    if not name or len(name) > NAME_MAX or len(parts) > PARTS_MAX:
        return f"its name is not of 1 to {NAME_MAX} characters and {PARTS_MAX} parts"
    if not (name.isprintable() and is_utf8(name)) or "\\" in name:
        return "its name has characters that are not shown, or a backslash"
    if ".." in parts:
        return "its name has a part `..`"
    if any(part.startswith((".", "-")) for part in parts):
        return "its name has a part that begins with a dot or a dash"
    if any(not part or part != part.strip() or part.endswith(".") for part in parts):
        return "its name has a part that is empty, or ends with a blank or a dot"
    return ""


def media_type(name: str) -> str:
    """Return the type of a file by its name.

    >>> media_type("chart.png"), media_type("a/data")
    ('image/png', 'application/octet-stream')
    """
    suffix = PurePosixPath(name).suffix.lower()
    found = _TYPES.get(suffix) or mimetypes.guess_type(f"a{suffix}")[0] or BYTES
    return found if _MEDIA.fullmatch(found) else BYTES


def artifact_uri(set_id: str, name: str) -> str:
    """Return the address of a file.

    >>> artifact_uri("0" * 32, "a b.png")[-11:]
    '0/a%20b.png'
    """
    return f"{ARTIFACTS_URI}{set_id}/{quote(name, safe='/')}"


def read_uri(uri: str) -> tuple[str, str]:
    """Return set and name of an address; ArtifactError for what is none."""
    found, _, name = uri.removeprefix(ARTIFACTS_URI).partition("/")
    if not uri.startswith(ARTIFACTS_URI) or not _ID.fullmatch(found):
        raise ArtifactError("no file of a call is there")
    return found, unquote(name, errors="replace")


class Artifacts:
    """The kept files of one state, of all its processes."""

    def __init__(
        self,
        state_directory: Path,
        bounds: Callable[[], ArtifactBounds],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`bounds` returns those that are configured now."""
        self.directory = state_directory / DIRECTORY
        self.bounds = bounds
        self._clock = clock

    def draft(
        self, tool: str, caller: ArtifactCaller, hidden: tuple[str, ...] = ()
    ) -> ArtifactDraft:
        """Return what takes the files of one call.

        Args:
            tool: `skill:tool`.
            hidden: Values that no kept file may hold as they are.
        """
        return ArtifactDraft(self, tool, caller, hidden)

    def sets(self) -> Iterator[ArtifactSet]:
        """Yield what is kept, newest first; one that cannot be read is left out."""
        for _, place in sorted(self._places(), reverse=True):
            found = self._read(place)
            if found is not None:
                yield found

    def get(self, set_id: str) -> ArtifactSet:
        """Return the set of an id; ArtifactError if there is none, or not any more."""
        return self._found(set_id)[1]

    def find(self, start: str) -> ArtifactSet:
        """Return the one set whose id begins so; ArtifactError if there is none, or several."""
        ids = [place.name[-32:] for _, place in self._places()]
        found = [one for one in ids if one.startswith(start)]
        if len(found) > 1 and start:
            raise ArtifactError(f"several ids begin with `{shown_name(start)}`: write more of it")
        return self.get(found[0] if len(found) == 1 and start else start)

    def data(self, set_id: str, name: str) -> tuple[ArtifactFile, bytes]:
        """Return a file; ArtifactError if it is not there, or not as it was kept."""
        place, found = self._found(set_id)
        index, one = found.named(name)
        try:
            data = read_beneath(place, str(index), max_bytes=one.bytes)
        except (PathError, OSError):
            data = b""
        if digest(data) != one.digest:
            raise ArtifactError(f"`{shown_name(name)}` was changed or removed since it was kept")
        return one, data

    def holds(self, uri: str) -> bool:
        """Whether an address is one of a file, of whomever and whenever."""
        return uri.startswith(ARTIFACTS_URI)

    def read(self, uri: str, caller: ArtifactCaller) -> tuple[ArtifactFile, bytes]:
        """Return the file at an address; ArtifactError if this caller has none there."""
        set_id, name = read_uri(uri)
        if not self.get(set_id).is_of(caller):
            # In the words for none: whether others have files is nothing that is said.
            raise _unknown(set_id)
        return self.data(set_id, name)

    def save(self, set_id: str, name: str, base: Path) -> tuple[ArtifactFile, Path]:
        """Write a file that is not there yet below a directory, through no link; return where.

        Raises:
            ArtifactError: there is no such file, or it is there already (`exists`).
            PathError: a directory on the way is a link, or cannot be made.
        """
        file, data = self.data(set_id, name)
        if why := name_fault(file.name):
            raise ArtifactError(f"`{shown_name(file.name)}` is not saved: {why}")
        parent, _, last = file.name.rpartition("/")
        directory = open_directory_beneath(base, parent or ".", create=True)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(last, flags, 0o644, dir_fd=directory)
        except FileExistsError as error:
            message = f"`{base / file.name}` is there already; save to another directory"
            raise ArtifactError(message, code="exists") from error
        finally:
            os.close(directory)
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        return file, base / file.name

    def remove(self, set_id: str) -> ArtifactSet:
        """Remove the files of a call; ArtifactError if there are none."""
        place, found = self._found(set_id)
        self._drop(place)
        return found

    def prune(self) -> None:
        """Remove what is older or more than is configured, the oldest first."""
        bounds = self.bounds()
        oldest = self._clock() - bounds.artifact_days * DAY_SECONDS
        left, kept = bounds.artifact_total_bytes, 0
        for (made, size), place in sorted(self._places(), reverse=True):
            left, kept = left - size, kept + 1
            # The newest stays: it is the one that was just named.
            if (kept > 1 and (left < 0 or kept > SETS_MAX)) or made / 1_000 < oldest:
                self._drop(place)
        self._sweep()

    def publish(self, draft: Path, found: ArtifactSet) -> None:
        """Put the directory of a draft in its place, with its description; OSError as it says."""
        (draft / ABOUT).write_bytes(msgspec.json.encode(found))
        size = sum(max(BLOCK, one.bytes) for one in found.files)
        draft.rename(self.directory / f"{round(found.made * 1_000):015}.{size}.{found.id}")
        self.prune()

    def now(self) -> float:
        return self._clock()

    def _places(self) -> list[tuple[tuple[int, int], Path]]:
        """Return ((milliseconds, bytes), directory) of each set."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        parts = ((name, _PLACE.fullmatch(name)) for name in names)
        return [
            ((int(part[1]), int(part[2])), self.directory / name) for name, part in parts if part
        ]

    def _found(self, set_id: str) -> tuple[Path, ArtifactSet]:
        if _ID.fullmatch(set_id):
            for _, place in self._places():
                found = self._read(place) if place.name.endswith(f".{set_id}") else None
                if found is not None:
                    return place, found
        raise _unknown(set_id)

    def _read(self, place: Path) -> ArtifactSet | None:
        try:
            return msgspec.json.decode(read_regular(place / ABOUT, ABOUT_MAX), type=ArtifactSet)
        except (OSError, PathError, msgspec.DecodeError):
            # Another process may remove it; what is damaged is of no use, and goes with its time.
            return None

    def _drop(self, place: Path) -> None:
        gone = self.directory / f".gone-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            place.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def _sweep(self) -> None:
        for name in os.listdir(self.directory):
            if name.startswith((".new-", ".gone-")):
                place = self.directory / name
                with contextlib.suppress(OSError):
                    if self._clock() - place.stat().st_mtime > STALE_SECONDS:
                        shutil.rmtree(place, ignore_errors=True)


def _unknown(set_id: str) -> ArtifactError:
    return ArtifactError(f"no files of a call have the id `{shown_name(set_id)}`")


class _Written(Struct):
    """The file that arrives."""

    handle: int
    hash: hashlib._Hash
    size: int = 0
    tail: bytes = b""
    """Its last bytes: a value may reach over the end of a piece."""


class ArtifactDraft:
    """Takes the files of one call in pieces, and writes them as they arrive."""

    def __init__(
        self, store: Artifacts, tool: str, caller: ArtifactCaller, hidden: tuple[str, ...]
    ) -> None:
        self._store = store
        self._tool = tool
        self._caller = caller
        self._hidden = [one.encode() for one in hidden if len(one) >= MIN_SECRET]
        self._longest = max(map(len, self._hidden), default=1)
        self._bounds = store.bounds()
        self._id = secrets.token_hex(16)
        self._directory: Path | None = None
        self._name: str | None = None
        self._written: _Written | None = None
        self._files: list[ArtifactFile] = []
        self._left = self._bounds.artifact_bytes
        self._left_out: list[str] = []
        self._uncounted = 0

    def take(self, part: OutputPart) -> None:
        """Take a piece; what is wrong with a file is kept in words, and raises nothing."""
        if part.name != self._name:
            self._end()
            self._name = part.name
            if not part.left_out:
                self._begin(part.name)
        if part.left_out:
            self._leave_out(part.left_out)
        elif self._written is not None:
            self._add(self._written, part.data)

    def finish(self) -> KeptArtifacts:
        """Keep what has arrived, and return what that is; on a thread of its own."""
        self._end()
        files, directory = tuple(self._files), self._directory
        if files and directory is not None:
            caller = self._caller
            found = ArtifactSet(
                id=self._id,
                made=self._store.now(),
                tool=self._tool,
                agent=caller.agent,
                user=caller.user,
                channel=caller.channel,
                files=files,
            )
            try:
                self._store.publish(directory, found)
                self._directory = None
            except OSError as error:
                files = ()
                self._name = ""
                self._leave_out(_write_fault(error))
        self.discard()
        return KeptArtifacts(id=self._id if files else "", files=files, left_out=self._reasons())

    def discard(self) -> None:
        """Remove what was not kept."""
        if self._written is not None:
            os.close(self._written.handle)
            self._written = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _begin(self, name: str) -> None:
        fault = name_fault(name)
        if not fault and any(one.name.casefold() == name.casefold() for one in self._files):
            fault = "another file has this name"
        if not fault and len(self._files) >= self._bounds.artifact_files:
            fault = f"{self._bounds.artifact_files} files of a call are kept"
        if fault:
            self._leave_out(fault)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            path = self._own_directory() / str(len(self._files))
            self._written = _Written(os.open(path, flags, 0o600), hashlib.sha256())
        except OSError as error:
            self._leave_out(_write_fault(error))

    def _own_directory(self) -> Path:
        if self._directory is None:
            make_private(self._store.directory)
            directory = self._store.directory / f".new-{self._id}"
            directory.mkdir(mode=0o700)
            self._directory = directory
        return self._directory

    def _add(self, written: _Written, data: bytes) -> None:
        written.size += len(data)
        window = written.tail + data
        if written.size > self._left:
            self._leave_out(f"{self._bounds.artifact_bytes} bytes of a call are kept")
        elif any(one in window for one in self._hidden):
            self._leave_out("it holds the value of a variable that the skill was given")
        else:
            written.tail = window[-(self._longest - 1) :] if self._longest > 1 else b""
            written.hash.update(data)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(written.handle, view) :]
            except OSError as error:
                self._leave_out(_write_fault(error))

    def _end(self) -> None:
        """Keep the file that has arrived."""
        written, name = self._written, self._name
        if written is None or name is None:
            return
        self._written = None
        os.close(written.handle)
        self._left -= written.size
        self._files.append(
            ArtifactFile(
                name=name,
                bytes=written.size,
                digest=f"sha256:{written.hash.hexdigest()}",
                media_type=media_type(name),
                uri=artifact_uri(self._id, name),
            )
        )

    def _leave_out(self, why: str) -> None:
        """Drop the file that arrives, and say so."""
        if self._written is not None:
            os.close(self._written.handle)
            self._written = None
            # Its number is the next file's.
            self._own_directory().joinpath(str(len(self._files))).unlink(missing_ok=True)
        reason = shown_name(why)
        line = f"{shown_name(self._name)}: {reason}" if self._name else reason
        if len(self._left_out) < LEFT_OUT_MAX:
            self._left_out.append(line)
        else:
            self._uncounted += 1

    def _reasons(self) -> tuple[str, ...]:
        more = (f"and {self._uncounted} more",) if self._uncounted else ()
        return (*self._left_out, *more)


def _write_fault(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk of the state has no room"
    return f"it cannot be written: {(error.strerror or 'input or output').lower()}"

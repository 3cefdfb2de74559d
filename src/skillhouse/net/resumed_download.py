"""`download`: a GET whose answer is continued where it was cut, in this run or a later one.

What has arrived is in memory, and in a file for the next run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

import anyio

from skillhouse.floor import digest as digest_of
from skillhouse.floor.lock import try_lock
from skillhouse.floor.structs import replace
from skillhouse.net.client import (
    BoundedBody,
    HttpResponse,
    Request,
    answered,
    checked_headers,
)
from skillhouse.net.connection import Exchange, ResponseHead, Route
from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import NetPolicy, parse_url

KEPT_MIN = 256 * 1024
"""Bytes below which it is quicker to ask again than to keep a file."""
KEPT_SECONDS = 7 * 24 * 3600.0
KEPT_FILES = 16
_HEAD_MAX = 4_096
_SUFFIX = ".part"
ETAG_MAX = 512


class Partial:
    """The beginning of one download.

    Its file is one line of JSON and then the bytes. Whatever is wrong with the file, and whatever
    the disk refuses, only means that less is kept: whether the bytes are right, the digest says.
    """

    def __init__(self, *, file: FileIO | None = None, name: Path | None = None) -> None:
        self.etag = ""
        """The strong validator of the bytes; empty where there is none."""
        self.total = 0
        """Bytes of the whole; 0 while that is not known."""
        self.data = bytearray()
        self._file = file
        self._name = name
        self._is_written = False

    def begin(self, etag: str, total: int) -> None:
        """Drop what is here: another answer begins."""
        self.etag, self.total = etag, total
        self.data.clear()
        self._is_written = False

    def add(self, data: bytes) -> None:
        self.data += data
        if self._is_written:
            self._append(data)
        elif len(self.data) >= KEPT_MIN:
            self._is_written = True
            head = json.dumps({"etag": self.etag, "total": self.total}).encode() + b"\n"
            self._append(head + self.data, truncate=True)

    def load(self, most: int) -> None:
        """Take over what an earlier run kept, if it is no more than `most` bytes."""
        if self._file is None:
            return
        try:
            self._file.seek(0)
            head = json.loads(self._file.readline(_HEAD_MAX))
            etag, total = head["etag"], head["total"]
            data = self._file.read(most + 1)
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            return
        if isinstance(etag, str) and isinstance(total, int) and len(data) <= most:
            self.etag, self.total, self._is_written = etag[:ETAG_MAX], total, True
            self.data = bytearray(data)

    def drop(self) -> None:
        """Forget everything, and the file."""
        self.begin("", 0)
        self._forget_file()

    def _append(self, data: bytes | bytearray, *, truncate: bool = False) -> None:
        if self._file is None:
            return
        try:
            if truncate:
                self._file.seek(0)
                self._file.truncate()
            self._file.write(data)
        except OSError:
            # A full disk: the download goes on in memory, and nothing is kept.
            self._forget_file()

    def _forget_file(self) -> None:
        if self._name is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._name)
        self._file = None


@contextlib.contextmanager
def kept_partial(directory: Path | None, key: str, most: int) -> Iterator[Partial]:
    """Give the beginning of a download as an earlier run left it.

    Nothing is kept without a directory, where it cannot be used, or while another process
    downloads the same.

    Args:
        key: What is downloaded: an address, or a digest.
        most: Bytes of the whole at most.
    """
    if directory is None:
        yield Partial()
        return
    name = directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_SUFFIX}"
    file = _opened(name)
    if file is None:
        yield Partial()
        return
    with file:
        partial = Partial(file=file, name=name)
        partial.load(most)
        try:
            yield partial
        finally:
            if os.fstat(file.fileno()).st_size == 0:
                partial.drop()


def _opened(name: Path) -> FileIO | None:
    """Return the file, locked; None where it cannot be had."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _prune(name.parent)
        # Unbuffered, so that what arrived is there after a kill.
        file = FileIO(os.open(name, flags, 0o600), "r+b")
    except OSError:
        return None
    if try_lock(file.fileno()):
        return file
    file.close()
    return None


def _prune(directory: Path) -> None:
    """Remove what is old, and the oldest of what is many."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    found.sort()
    oldest = time.time() - KEPT_SECONDS
    for number, (changed, path) in enumerate(found):
        if changed < oldest or number < len(found) - KEPT_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


PAUSES = (0.1, 0.5, 1.0, 2.0)
"""Seconds before each try of one run but the first (five tries)."""
BEAT_SECONDS = 1.0
STALL_SECONDS = 30.0
"""Without any byte, after which a stream counts as cut."""
SLOW_MIN = 64 * 1024
"""Bytes that a try must bring before its time ends, or there is no other."""

Progress = Callable[[int, int], None]
"""Takes the bytes that are here and those of the whole, 0 while that is not known."""

_CUT = frozenset({"protocol-error", "connect-failed", "timeout"})
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")
_STRONG = re.compile(r'"[\x21\x23-\x7e]*"')
_NUMBER = re.compile(r"\d{1,15}")


async def download(
    url: str,
    *,
    policy: NetPolicy,
    headers: Mapping[str, str] | None = None,
    digest: str = "",
    directory: Path | None = None,
    progress: Progress = lambda _done, _total: None,
    route: Route | None = None,
    pauses: Sequence[float] = PAUSES,
) -> HttpResponse:
    """Get a whole file, in as many pieces as the network makes of it.

    A cut stream is continued by a Range request if the server names the version of the bytes (a
    strong ETag), or if their digest is known. What a run leaves unfinished is kept in `directory`.

    Args:
        policy: As of `fetch`; `limits.seconds` is the time of each try.
        digest: `sha256:` digest of the file, if it is known. Pieces that do not fit it are got once
            again as a whole; whether that fits is for the caller to check.
        directory: Where beginnings are kept; None keeps nothing.
        pauses: Seconds before each try but the first.

    Raises:
        NetError: it is refused or failed; `code` says why.
    """
    key = f"{digest}\n{'' if digest else url}"
    with kept_partial(directory, key, policy.limits.body_bytes) as partial:
        one = _Download(url, policy, dict(headers or {}), partial, progress, route or Route())
        one.is_known = bool(digest)
        try:
            response = await one.run(pauses)
        except NetError as error:
            if error.code == "too-large":
                # The next run would come to the same end.
                partial.drop()
            raise
        if digest and one.was_continued and not _fits(response.body, digest):
            partial.begin("", 0)
            response = await one.run(pauses)
        partial.drop()
        return response


def _fits(body: bytes, digest: str) -> bool:
    return digest == digest_of(body)


class _Download:
    def __init__(
        self,
        url: str,
        policy: NetPolicy,
        headers: dict[str, str],
        partial: Partial,
        progress: Progress,
        route: Route,
    ) -> None:
        self._url = url
        self._policy = policy
        self._headers = headers
        self._partial = partial
        self._progress = progress
        self._route = route
        self.is_known = False
        """Whether the digest of the whole is known, so that any pieces may be tried."""
        self.was_continued = False

    async def run(self, pauses: Sequence[float]) -> HttpResponse:
        """Return the answer; meanwhile say how much is here, also while nothing comes."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beat)
            found: HttpResponse | NetError
            try:
                found = await self._tries(pauses)
            except NetError as error:
                # Not through the group, which would wrap it.
                found = error
            tasks.cancel_scope.cancel()
        if isinstance(found, NetError):
            raise found
        return found

    async def _beat(self) -> None:
        # Where nothing can be shown, the download goes on.
        with contextlib.suppress(OSError):
            while True:
                await anyio.sleep(BEAT_SECONDS)
                self._progress(len(self._partial.data), self._partial.total)

    async def _tries(self, pauses: Sequence[float]) -> HttpResponse:
        has_grown = False
        for pause in (*pauses, None):
            try:
                return await self._try()
            except NetError as error:
                brought = len(self._partial.data) - self._before
                has_grown = has_grown or brought > 0
                is_slow = error.code == "timeout" and brought < SLOW_MIN
                if pause is None or error.code not in _CUT or is_slow or not has_grown:
                    raise
                await anyio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _try(self) -> HttpResponse:
        partial = self._partial
        asked = dict(self._headers)
        is_whole = 0 < partial.total <= len(partial.data)
        if partial.data and not is_whole and (partial.etag or self.is_known):
            asked["Range"] = f"bytes={len(partial.data)}-"
            if partial.etag:
                asked["If-Range"] = partial.etag
        else:
            partial.begin("", 0)
        self._before = len(partial.data)
        request = Request(
            method="GET",
            target=parse_url(self._url),
            # A range of an encoded answer is a part of what only that one answer was.
            headers=checked_headers(asked, accepted="identity"),
            body=b"",
        )
        response = await answered(request, self._policy, self._route, self._take)
        return replace(response, status=200 if response.status == 206 else response.status)

    async def _take(self, head: ResponseHead, exchange: Exchange) -> bytes:
        encoding = head.get("content-encoding").strip().lower()
        if head.status == 206:
            self._check_part(head)
            self.was_continued = True
        elif head.status == 416 and self._before:
            self._restart("the server has no such part any more")
        elif head.status != 200 or encoding not in ("", "identity"):
            return await self._plain(encoding, exchange)
        else:
            self._before = 0
            self._partial.begin(_strong_etag(head), _length(head))
        partial, most = self._partial, self._policy.limits.body_bytes
        if max(partial.total, len(partial.data)) > most:
            raise NetError("too-large", f"the answer is larger than {most} bytes")
        self._progress(len(partial.data), partial.total)
        async for chunk in _flowing(exchange):
            if len(partial.data) + len(chunk) > most:
                raise NetError("too-large", f"the answer is larger than {most} bytes")
            partial.add(chunk)
            self._progress(len(partial.data), partial.total)
        if partial.total and len(partial.data) != partial.total:
            raise NetError("protocol-error", "the answer ends too early")
        return bytes(partial.data)

    async def _plain(self, encoding: str, exchange: Exchange) -> bytes:
        """Read an answer that cannot be continued."""
        body = BoundedBody(encoding, self._policy.limits.body_bytes)
        async for chunk in _flowing(exchange):
            body.add(chunk)
        return body.end()

    def _check_part(self, head: ResponseHead) -> None:
        """Refuse a part that does not begin where ours ends, or is of another version."""
        partial = self._partial
        match = _RANGE.fullmatch(head.get("content-range"))
        etag = _strong_etag(head)
        is_next = match is not None and int(match[1]) == len(partial.data) > 0
        total = int(match[3]) if match is not None and match[3] != "*" else partial.total
        is_same = partial.total in (0, total) and etag in ("", partial.etag)
        if not is_next or not is_same or head.get("content-encoding") not in ("", "identity"):
            self._restart("the server sent another part than the one asked for")
        partial.total = total

    def _restart(self, reason: str) -> None:
        # What came before counts as progress, so that there is another try, for the whole.
        self._before = -1
        self._partial.begin("", 0)
        raise NetError("protocol-error", reason)


async def _flowing(exchange: Exchange) -> AsyncIterator[bytes]:
    chunks = exchange.chunks()
    while True:
        try:
            with anyio.fail_after(STALL_SECONDS):
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            message = f"nothing more came in {STALL_SECONDS:g} s"
            raise NetError("timeout", message) from error
        if chunk is None:
            return
        yield chunk


def _strong_etag(head: ResponseHead) -> str:
    found = head.get("etag").strip()
    return found if len(found) <= ETAG_MAX and _STRONG.fullmatch(found) else ""


def _length(head: ResponseHead) -> int:
    found = head.get("content-length")
    return int(found) if _NUMBER.fullmatch(found) else 0

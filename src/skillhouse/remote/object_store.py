"""A few small operations on named bytes: in a directory, or in a bucket by the protocol of S3.

Everything that is read is bounded in bytes and in time. What writes either makes a new object or
replaces the one that it read; who comes second is refused.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from skillhouse.floor import (
    PathError,
    digest,
    needs_extra,
    read_beneath,
    write_atomically,
)
from skillhouse.floor.lock import locked_file
from skillhouse.floor.regex import regex
from skillhouse.remote.source import RemoteError

if TYPE_CHECKING:
    from obstore.store import S3Store

EXTRA = "s3"
CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 60.0
"""Of one request, with its answer; an object may take twice as long, with what is tried again."""
RETRIES = 2
ERROR_MAX = 240
"""Characters of what a store says went wrong."""
_LOCK = ".lock"
_CODE = regex(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_STATUS = regex(r"status code: (\d{3})\b")
_NO_BUCKET = "NoSuchBucket"
_CODES = {
    "AccessDenied": "this key may not do that",
    "ExpiredToken": "the key for it has expired",
    "InvalidAccessKeyId": "there is no such access key",
    "RequestTimeTooSkewed": "the clock of this machine differs from the server's",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "SlowDown": "the server has too many requests",
    _NO_BUCKET: "there is no such bucket",
}
"""What codes of S3's errors mean (Amazon S3 API Reference, "Error responses")."""


class StoredObject(Struct, frozen=True, kw_only=True):
    """What was read."""

    data: bytes
    tag: str
    """What is another one once it was replaced."""


class ObjectStore(Protocol):
    """Objects below one address. Each raises RemoteError where the store does not answer."""

    def read(self, name: str, most: int) -> StoredObject | None:
        """Return an object, None where there is none; RemoteError for more than `most` bytes."""

    def create(self, name: str, data: bytes) -> bool:
        """Store an object that is not there; whether it was not."""

    def replace(self, name: str, data: bytes, before: StoredObject | None) -> bool:
        """Store one in place of `before`; whether that was there (None: nothing was)."""


class StoreAccess(Struct, frozen=True, kw_only=True):
    """How a store in S3 is reached; a directory needs none of it."""

    endpoint: str = ""
    """Address of a server with S3's protocol; empty for Amazon's of the region."""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""
    """Both empty: what the process's environment or the machine's role gives."""
    seconds: float = REQUEST_SECONDS

    def __repr__(self) -> str:
        return f"StoreAccess(endpoint={self.endpoint!r}, region={self.region!r})"


def open_store(address: str, access: StoreAccess) -> ObjectStore:
    """Return the store at `s3://BUCKET/PATH` or `file:///PATH`; nothing is asked of it yet.

    Raises:
        MissingExtraError: S3 needs the extra `s3`.
    """
    parts = urlsplit(address)
    if parts.scheme == "file":
        return DirectoryStore(Path(unquote(parts.path)))
    return S3ObjectStore(parts.netloc, parts.path.strip("/"), access)


class DirectoryStore:
    """A directory, which several machines may have mounted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str, most: int) -> StoredObject | None:
        if not os.path.lexists(self._directory / name):
            return None
        try:
            data = read_beneath(self._directory, name, max_bytes=most)
        except (PathError, OSError) as error:
            said = error.code if isinstance(error, PathError) else error.strerror
            raise RemoteError(f"cannot read `{name}` in `{self._directory}`: {said}") from error
        if len(data) > most:
            raise RemoteError(f"expected at most {most} bytes in `{name}`")
        return StoredObject(data=data, tag=digest(data))

    def create(self, name: str, data: bytes) -> bool:
        return self.replace(name, data, None)

    def replace(self, name: str, data: bytes, before: StoredObject | None) -> bool:
        path = self._directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked_file(self._directory / _LOCK):
                if before is None and os.path.lexists(path):
                    return False
                if before is not None:
                    now = self.read(name, len(before.data))
                    if now is None or now.tag != before.tag:
                        return False
                # Readable to the accounts of servers: what is in it is signed, and no secret.
                with write_atomically(path, mode=0o644, durable=True) as file:
                    file.write(data)
        except OSError as error:
            said = f"cannot write `{name}` in `{self._directory}`: {error.strerror}"
            raise RemoteError(said) from error
        return True


class S3ObjectStore:
    """A prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, access: StoreAccess) -> None:
        self._bucket = bucket
        self._seconds = access.seconds
        with needs_extra(EXTRA):
            import obstore  # noqa: PLC0415 - an optional part, in this one file
            from obstore import exceptions  # noqa: PLC0415 - likewise
            from obstore.store import S3Store  # noqa: PLC0415 - likewise
        self._obstore: Any = obstore
        self._errors: Any = exceptions
        config: Any = {"virtual_hosted_style_request": not access.endpoint}
        named = {
            "endpoint": access.endpoint,
            "region": access.region,
            "access_key_id": access.access_key,
            "secret_access_key": access.secret_key,
        }
        config.update({key: value for key, value in named.items() if value})
        self._store: S3Store = S3Store(
            bucket,
            prefix=prefix,
            config=config,
            client_options={
                "allow_http": access.endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": timedelta(seconds=access.seconds),
            },
            retry_config={
                "max_retries": RETRIES,
                "retry_timeout": timedelta(seconds=access.seconds),
            },
        )

    def read(self, name: str, most: int) -> StoredObject | None:
        most_seconds = 2 * self._seconds
        end = time.monotonic() + most_seconds
        with self._asking(name):
            try:
                result = self._obstore.get(self._store, name)
            except (self._errors.NotFoundError, FileNotFoundError) as error:
                if _code_of(error) == _NO_BUCKET:
                    raise
                return None
            chunks, size = [], 0
            # What an answer says of its own length is not believed.
            for chunk in result:
                size += len(chunk)
                if size > most:
                    raise RemoteError(f"expected at most {most} bytes in `{name}`")
                if time.monotonic() > end:
                    raise RemoteError(f"`{name}` did not come within {most_seconds:.0f} seconds")
                chunks.append(bytes(chunk))
            return StoredObject(data=b"".join(chunks), tag=str(result.meta["e_tag"] or ""))

    def create(self, name: str, data: bytes) -> bool:
        return self._put(name, data, "create")

    def replace(self, name: str, data: bytes, before: StoredObject | None) -> bool:
        return self._put(name, data, "create" if before is None else {"e_tag": before.tag})

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        with self._asking(name):
            try:
                self._obstore.put(self._store, name, data, mode=mode, use_multipart=False)
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                return False
        return True

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        try:
            yield
        except (self._errors.BaseError, OSError, NotImplementedError, ValueError) as error:
            raise RemoteError(f"`{name}` in the bucket `{self._bucket}`: {_said(error)}") from error


def _code_of(error: Exception) -> str:
    found = _CODE.search(str(error))
    return "" if found is None else found[1]


def _said(error: Exception) -> str:
    """Return why a bucket did not do something: the server's code, or what the library says."""
    code, status = _code_of(error), _STATUS.search(str(error))
    if code:
        why = f": {_CODES[code]}" if code in _CODES else ""
        return f"the server answered {'' if status is None else f'{status[1]} '}{code}{why}"
    # The first line: behind it is a dump of the library's own values.
    return str(error).partition("\n")[0][:ERROR_MAX]


OpenStore = Callable[[str, StoreAccess], ObjectStore]

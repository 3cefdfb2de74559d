"""Reads what a registry signed as current, by a root that a person pinned (The Update Framework).

python-tuf's client judges: it refuses an older state than this machine saw, parts of two states,
and what the pinned root does not lead to. A root N+1 is accepted by the keys of root N.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO
from urllib.parse import quote

from msgspec import Struct
from tuf.api import exceptions
from tuf.api.metadata import Metadata, Root, TargetFile
from tuf.api.serialization import DeserializationError
from tuf.ngclient import Updater, UpdaterConfig
from tuf.ngclient.fetcher import FetcherInterface

from skillhouse.floor import digest, make_private, write_atomically
from skillhouse.floor.lock import locked_file
from skillhouse.registry.freshness import Freshness, keep_freshness, stale_text
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY, TARGETS_DIRECTORY
from skillhouse.registry.releases import DOCUMENT_MAX
from skillhouse.registry.repository import (
    RepositoryAccess,
    RepositoryAnswer,
    RepositoryError,
    check_answer,
)
from skillhouse.registry.signed_directory import utc_now

ROOT_MAX = 512_000
AHEAD_MAX = timedelta(days=2)
"""How far the end of a timestamp, which is good for a day, may be."""
_PROBLEM_MAX = 500
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_LOCK = "lock"
_MISSING = (403, 404, 410)
"""What servers of files answer where nothing is."""


class RootFacts(Struct, frozen=True, kw_only=True):
    """A root, as a person decides on it."""

    digest: str
    version: int
    threshold: int
    """Keys of `keys` that sign the next root."""
    keys: int
    ends: datetime


def read_root(data: bytes) -> RootFacts:
    """Return what is shown of a root, which its own keys must have signed.

    Raises:
        RepositoryError: "signed", it is no root, or too few of its own keys signed it.
    """
    try:
        if len(data) > ROOT_MAX:
            raise exceptions.RepositoryError(f"expected at most {ROOT_MAX} bytes")
        found = Metadata[Root].from_bytes(data)
        if not isinstance(found.signed, Root):
            raise exceptions.RepositoryError("it is metadata of another kind")
        found.signed.verify_delegate(Root.type, found.signed_bytes, found.signatures)
    except (exceptions.RepositoryError, DeserializationError, ValueError) as error:
        message = f"expected the root of a repository: {str(error)[:200]}"
        raise RepositoryError("signed", message) from error
    role = found.signed.roles[Root.type]
    return RootFacts(
        digest=digest(data),
        version=found.signed.version,
        threshold=role.threshold,
        keys=len(role.keyids),
        ends=found.signed.expires,
    )


class SignedTargets:
    """The signed documents of one repository, of one state for as long as this lives."""

    def __init__(
        self,
        access: RepositoryAccess,
        *,
        address: str,
        root: str | bytes,
        state: Path,
        stale_days: int,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """Take the way to a repository, and what is pinned.

        Args:
            root: The digest of its first root, or the bytes of any root.
            state: The directory of what was seen last of this repository.
            stale_days: How long after its end a state is still used, with a warning.
        """
        self._access = access
        self._address = address
        self._pin = root
        self._state = state
        self._stale_days = stale_days
        self._clock = clock or utc_now
        self._updater: Updater | None = None
        self.warning = ""
        """What a person should know of its age; empty for nothing, and before the first read."""

    @property
    def version(self) -> int:
        """The number of the state that is read; 0 before the first read."""
        # What no snapshot was checked for has none.
        known = None if self._updater is None else self._updater._trusted_set.snapshot  # noqa: SLF001
        return 0 if known is None else int(known.version)

    def read(self, path: str) -> bytes | None:
        """Return a document; None where the registry signs none of that name.

        Raises:
            RepositoryError: "stale", what is current ended long ago; "signed", it is older than
                what was seen here, or not signed by whom the root names; others as of requests.
        """
        try:
            with self._errors():
                updater = self._updater or self._refreshed()
                found = updater.get_targetinfo(path)
                return None if found is None else self._document(found)
        except RepositoryError as error:
            if error.code in ("stale", "signed"):
                self._keep(problem=str(error))
            raise

    def _keep(self, *, ends: datetime | None = None, problem: str = "") -> None:
        """Keep how current it is, for lists, which ask no one."""
        found = Freshness(
            address=self._address, asked=self._clock(), ends=ends, problem=problem[:_PROBLEM_MAX]
        )
        # Only what lists show goes by it: a full disk keeps no one from an answer.
        with suppress(OSError):
            keep_freshness(self._state, found)

    def _document(self, found: TargetFile) -> bytes:
        """Return a document as it was kept here, or from the repository."""
        if found.length > DOCUMENT_MAX:
            message = f"expected at most {DOCUMENT_MAX} bytes: {found.path}"
            raise RepositoryError("too-large", message)
        kept = self._state / TARGETS_DIRECTORY / quote(found.path, "")
        with suppress(FileNotFoundError, exceptions.LengthOrHashMismatchError):
            data = kept.read_bytes()
            found.verify_length_and_hashes(data)
            return data
        path = f"{TARGETS_DIRECTORY}/{found.get_prefixed_paths()[0]}"
        data = AccessFetcher(self._access).body(path, found.length)
        found.verify_length_and_hashes(data)
        with write_atomically(kept) as file:
            file.write(data)
        return data

    def _refreshed(self) -> Updater:
        """Look at what is current; the state of this machine moves on, and never back."""
        make_private(self._state / TARGETS_DIRECTORY)
        now = self._clock()
        with locked_file(self._state / _LOCK):
            updater = self._opened(now)
            try:
                updater.refresh()
            except exceptions.ExpiredMetadataError:
                # Judged again as of the last day on which what is too old is still used.
                updater = self._opened(now - timedelta(days=self._stale_days))
                updater.refresh()
                self.warning = stale_text(self._address, now - _ends(updater))
        self._refuse_early(updater, now)
        self._keep(ends=_ends(updater))
        self._updater = updater
        return updater

    def _refuse_early(self, updater: Updater, now: datetime) -> None:
        """Refuse what is signed for a time to come: by a clock that is behind, nothing ends."""
        ends = updater._trusted_set.timestamp.expires  # noqa: SLF001
        if ends - now > AHEAD_MAX:
            message = f"`{self._address}` is signed until {ends:%Y-%m-%d %H:%M}: check the clock"
            raise RepositoryError("signed", message)

    def _opened(self, now: datetime) -> Updater:
        updater = Updater(
            str(self._state),
            f"{METADATA_DIRECTORY}/",
            fetcher=AccessFetcher(self._access),
            config=UpdaterConfig(root_max_length=ROOT_MAX),
            bootstrap=self._bootstrap(),
        )
        # python-tuf takes the time by itself; tests hold that this is where it keeps it.
        updater._trusted_set.reference_time = now  # noqa: SLF001
        return updater

    def _bootstrap(self) -> bytes:
        """Return the pinned root, as it is here or as the repository has it."""
        if isinstance(self._pin, bytes):
            return self._pin
        if not _PIN.fullmatch(self._pin):
            raise RepositoryError("signed", f"expected sha256:… as its root, got {self._pin[:80]}")
        known = self._state / "root_history" / FIRST_ROOT
        if known.is_file() and digest(data := known.read_bytes()) == self._pin:
            return data
        answer = self._access(f"{METADATA_DIRECTORY}/{FIRST_ROOT}", ROOT_MAX)
        if answer.status in (404, 410):
            message = f"`{self._address}` has no signed metadata, and a root is pinned for it"
            raise RepositoryError("signed", message)
        check_answer(answer, f"`{self._address}/{METADATA_DIRECTORY}/{FIRST_ROOT}`")
        if digest(answer.body) != self._pin:
            message = f"the root of `{self._address}` is {digest(answer.body)}, not the pinned one"
            raise RepositoryError("signed", message)
        return answer.body

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what python-tuf refuses in the words of repositories."""
        try:
            yield
        except exceptions.ExpiredMetadataError as error:
            days = f"{self._stale_days} days" if self._stale_days else "0 hours"
            message = (
                f"what `{self._address}` says is current ended more than {days} ago, so it may be "
                "held back: check the clock, ask who runs it, or raise `stale_days` of it"
            )
            raise RepositoryError("stale", message) from error
        except exceptions.BadVersionNumberError as error:
            message = f"`{self._address}` is older than what was seen here before: {error}"
            raise RepositoryError("signed", message) from error
        except TimeoutError as error:
            message = f"another process has been reading `{self._address}` for long: try again"
            raise RepositoryError("unreachable", message) from error
        except OSError as error:
            message = f"what was seen of `{self._address}` cannot be kept: {error.strerror}"
            raise RepositoryError("signed", message) from error
        except (exceptions.RepositoryError, exceptions.DownloadError) as error:
            message = f"`{self._address}` is not as its root signed it: {str(error)[:200]}"
            raise RepositoryError("signed", message) from error


class AccessFetcher(FetcherInterface):
    """Fetches by our own way to a repository, which bounds and judges each request."""

    def __init__(self, access: Callable[[str, int], RepositoryAnswer]) -> None:
        self._access = access

    def _fetch(self, url: str) -> Iterator[bytes]:
        yield self.body(url, DOCUMENT_MAX)

    @contextmanager
    def download_file(self, url: str, max_length: int) -> Iterator[IO[bytes]]:
        """Give what is at a path below the repository's address."""
        yield io.BytesIO(self.body(url, max_length))

    def body(self, path: str, most: int) -> bytes:
        """Return what is at a path; DownloadHTTPError where nothing is."""
        answer = self._access(path, most)
        if answer.status in _MISSING:
            raise exceptions.DownloadHTTPError(f"`{path}` is not there", 404)
        check_answer(answer, f"`{path}`")
        if len(answer.body) > most:
            raise exceptions.DownloadLengthMismatchError(f"expected at most {most} bytes: {path}")
        return answer.body


def _ends(updater: Updater) -> datetime:
    """Return when the first of the roles ends."""
    found = updater._trusted_set  # noqa: SLF001
    ends: list[datetime] = [
        one.expires for one in (found.root, found.timestamp, found.snapshot, found.targets)
    ]
    return min(ends)

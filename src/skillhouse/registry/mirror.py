"""Brings a mirror of a repository up to date; what is there already is not fetched again.

The source is untrusted: how many skills and bytes it may bring is bounded, every archive has the
digest by which it is named, and documents are written as we understood them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from skillhouse.floor import (
    DecodeError,
    MissingExtraError,
    SkillhouseError,
    isolated,
    needs_extra,
    shaped,
)
from skillhouse.registry.attestations import attestation_path
from skillhouse.registry.mirror_directory import (
    MIRROR_BYTES_MAX,
    MirrorDirectory,
    MirrorError,
    MirrorState,
    write_lists,
)
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY
from skillhouse.registry.releases import (
    REPOSITORY_FILE,
    REVOCATIONS_FILE,
    Release,
    RepositoryDocument,
    SkillReleases,
    address_name,
    blob_path,
    encode_document,
    index_path,
    split_name,
    strict_document,
)
from skillhouse.registry.repository import LISTED_MAX, Repository, RepositoryError
from skillhouse.registry.revocations import list_number

if TYPE_CHECKING:
    from skillhouse.registry.signed_mirror import SignedCopy

THREADS = 4
"""Skills that are fetched at once: most of the time goes by waiting for answers."""
CHANGES = 1_000
"""Changes of one page."""
_NO_LIST = (400, 403, 405, 501)
"""What some servers of files answer for a path with a query, besides 404."""
_SHARE = 50
"""Skills for one reader of the source, which keeps what it read."""


OpenReader = Callable[[], Repository]
"""Opens the source, with nothing read yet."""


class MirrorReport(Struct, frozen=True, kw_only=True):
    """What an update of a mirror did."""

    looked_at: int
    """Skills whose documents were read."""
    changed: int
    """Skills of which something was new."""
    archives: int
    """Archives that were fetched."""
    bytes: int
    """Of these."""
    problems: tuple[str, ...] = ()
    """What could not be mirrored, and why; what the mirror had of it stays."""


class _Change(Struct, frozen=True, kw_only=True):
    seq: int
    kind: str
    name: str = ""


class _Changes(Struct, frozen=True, kw_only=True):
    changes: tuple[_Change, ...]
    next: int


def update_mirror(
    mirror: MirrorDirectory,
    source: OpenReader,
    *,
    skills: Sequence[str] = (),
    check: bool = False,
    max_bytes: int = MIRROR_BYTES_MAX,
    report: Callable[[str], None] = lambda _: None,
) -> MirrorReport:
    """Bring what a source has into a mirror, or only skills of these names.

    Args:
        check: Compare everything, and read each archive that is here.
        report: Receives a line for each skill that changed.

    Raises:
        MirrorError: the mirror is of another source, or grows beyond `max_bytes`.
        RepositoryError, NetError: the source cannot be had, or has too much.
    """
    reader = source()
    wanted = tuple(sorted({address_name(*split_name(one)) for one in skills}))
    was_signed = mirror.read(f"{METADATA_DIRECTORY}/{FIRST_ROOT}") is not None
    signed, problems = _signed(mirror, reader) if was_signed else (None, [])
    if signed is not None and not (signed.is_new or check or _is_unfinished(mirror, wanted)):
        # Only the time until which it is current is another one.
        signed.write(skills=_documents(wanted))
        return MirrorReport(looked_at=0, changed=0, archives=0, bytes=0)
    name = _name(reader)
    known = _checked_state(mirror, reader.address, name)
    # Before anything is fetched, so that a kill leaves a directory that the next run goes on with.
    mirror.keep_state(
        MirrorState(source=reader.address, name=name, skills=wanted, sequence=None)
        if known is None or known.skills != wanted
        else known
    )
    since = known.sequence if known is not None and known.skills == wanted and not check else None
    problems += _take_revocations(mirror, reader)
    names, sequence = _names(reader, wanted, since)
    if names and not was_signed:
        # One that gets a root is signed here with the next change.
        signed, more = _signed(mirror, reader)
        problems += more
    work = _Update(mirror, source, check=check, max_bytes=max_bytes, report=report)
    work.bring(names)
    problems += work.problems
    if work.changed or not mirror.read(REPOSITORY_FILE) or check:
        write_lists(mirror)
    # The last one: a directory without it is no mirror yet.
    mirror.put(REPOSITORY_FILE, encode_document(RepositoryDocument(api=1, name=name)))
    if not work.problems:
        if signed is not None:
            # INVARIANT: what is signed comes after the archives that it names.
            signed.write(skills=_documents(wanted))
        state = MirrorState(source=reader.address, name=name, skills=wanted, sequence=sequence)
        mirror.keep_state(state)
    return MirrorReport(
        looked_at=len(names),
        changed=work.changed,
        archives=work.archives,
        bytes=work.bytes,
        problems=tuple(problems),
    )


def _signed(mirror: MirrorDirectory, reader: Repository) -> tuple[SignedCopy | None, list[str]]:
    """Return what the source signed, and what is wrong where it is not mirrored."""
    try:
        with needs_extra("registry"):
            # python-tuf is an optional part, and a source without a root needs none of it.
            from skillhouse.registry.signed_mirror import SignedCopy  # noqa: PLC0415
    except MissingExtraError as error:
        return None, [f"what the source signed is not mirrored: {error}"]
    copy = SignedCopy(mirror, reader)
    return (copy if copy.read() else None), []


def _documents(wanted: Sequence[str]) -> frozenset[str]:
    return frozenset(index_path(*split_name(one)) for one in wanted)


def _is_unfinished(mirror: MirrorDirectory, wanted: Sequence[str]) -> bool:
    state = mirror.state()
    return state is None or state.sequence is None or state.skills != tuple(wanted)


def _name(reader: Repository) -> str:
    document = reader.document()
    if document is not None:
        return document.name
    # One that has the published routes only says nothing of itself.
    return urlsplit(reader.address).hostname or "mirror"


def _checked_state(mirror: MirrorDirectory, address: str, name: str) -> MirrorState | None:
    state = mirror.state()
    if state is not None and (state.source, state.name) != (address, name):
        said = f"{state.source} (`{state.name}`), not of {address} (`{name}`)"
        raise MirrorError(f"`{mirror.path}` is a mirror of {said}: name another directory")
    return state


def _take_revocations(mirror: MirrorDirectory, reader: Repository) -> Iterator[str]:
    """Bring the list of what is revoked, never an older one; yield what is wrong with it."""
    # First, so that nothing revoked is new here without it.
    data, before = reader.revocations(), mirror.read(REVOCATIONS_FILE)
    if data == before:
        return
    if data is None:
        yield "the source has no list of revocations any more: the one that is here stays"
        return
    try:
        number = list_number(data)
        if before is not None and number <= list_number(before):
            yield f"the source has an older list of revocations, {number}: the one here stays"
            return
    except SkillhouseError as error:
        yield f"the list of revocations of the source is none: {error}"
        return
    mirror.put(REVOCATIONS_FILE, data)


def _names(
    reader: Repository, wanted: Sequence[str], since: int | None
) -> tuple[tuple[str, ...], int | None]:
    """Return the names of the skills to look at, and the last change that this covers."""
    changed = _changed(reader, since or 0)
    if since is not None and changed is not None:
        names = changed[0]
    else:
        # Changes that come while the list is read are looked at again the next time.
        names = set(wanted) or {one.name for one in reader.listed()}
    if len(names) > LISTED_MAX:
        raise RepositoryError("document", f"more than {LISTED_MAX} skills at `{reader.address}`")
    if wanted:
        names &= set(wanted)
    return tuple(sorted(names)), None if changed is None else changed[1]


def _changed(reader: Repository, since: int) -> tuple[set[str], int] | None:
    """Return the names that changed, and the last change; None where a source has no such list."""
    names: set[str] = set()
    while True:
        query = urlencode({"since": since, "limit": CHANGES})
        try:
            data = reader.read(f"changes?{query}")
        except RepositoryError as error:
            if error.status not in _NO_LIST:
                raise
            data = None
        if data is None:
            return None
        try:
            page = shaped(strict_document(data, "the list of changes"), _Changes)
            for one in page.changes:
                if one.name:
                    names.add(address_name(*split_name(one.name)))
        except DecodeError as error:
            raise RepositoryError("document", f"`{reader.address}`: {error}") from error
        if not page.changes:
            return names, since
        if page.next <= since or len(names) > LISTED_MAX:
            message = f"the list of changes at `{reader.address}` has no end"
            raise RepositoryError("document", message)
        since = page.next


class _Update:
    """The skills of one update; several are fetched at once."""

    def __init__(
        self,
        mirror: MirrorDirectory,
        source: OpenReader,
        *,
        check: bool,
        max_bytes: int,
        report: Callable[[str], None],
    ) -> None:
        self._mirror, self._source = mirror, source
        self._check, self._report = check, report
        self._left = max_bytes - mirror.archive_bytes()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self.problems: list[str] = []
        self.changed = self.archives = self.bytes = 0

    def bring(self, names: Sequence[str]) -> None:
        shares = [names[start : start + _SHARE] for start in range(0, len(names), _SHARE)]
        with ThreadPoolExecutor(max_workers=THREADS) as threads:
            try:
                for _ in threads.map(self._bring_share, shares):
                    pass
            except BaseException:
                # Also of Ctrl-C: what is under way ends with its archive.
                self._is_stopped.set()
                threads.shutdown(cancel_futures=True)
                raise

    def _bring_share(self, names: Sequence[str]) -> None:
        reader = self._source()
        for name in names:
            if self._is_stopped.is_set():
                return
            with isolated(passing=(MirrorError,)) as failed:
                self._bring(reader, name)
            with self._lock:
                self.problems += [f"{name}: {error}" for error in failed]

    def _bring(self, reader: Repository, name: str) -> None:
        namespace, skill = split_name(name)
        found = reader.skill(namespace, skill)
        if found is None:
            raise RepositoryError("unknown-skill", "it is not at the source")
        count = sum(
            self._bring_archive(reader, found, release)
            for release in found.versions
            if release.state != "revoked" and not self._is_stopped.is_set()
        )
        for release in found.versions:
            if release.state != "revoked" and not self._is_stopped.is_set():
                self._bring_attestations(reader, release)
        if self._is_stopped.is_set():
            return
        # INVARIANT: the document comes after the archives and bundles that it names.
        is_new = self._mirror.put(index_path(namespace, skill), encode_document(found))
        self._drop_revoked(found)
        if is_new or count:
            with self._lock:
                self.changed += 1
            self._report(f"{name}: {count} new of {len(found.versions)} versions")

    def _bring_archive(self, reader: Repository, skill: SkillReleases, release: Release) -> int:
        if self._mirror.has_archive(release.digest, check=self._check):
            return 0
        self._take_room(release.size)
        data = reader.archive(skill, release)
        self._mirror.put_archive(data)
        with self._lock:
            self.archives += 1
            self.bytes += len(data)
        return 1

    def _take_room(self, size: int) -> None:
        with self._lock:
            self._left -= size
            if self._left < 0:
                message = f"`{self._mirror.path}` would be larger than {self._max_bytes} bytes"
                raise MirrorError(f"{message} (--max-gib)")

    def _bring_attestations(self, reader: Repository, release: Release) -> None:
        for digest in release.attestations:
            path = attestation_path(digest)
            if self._check or not (self._mirror.path / path).is_file():
                data = reader.attestation(digest)
                self._take_room(len(data))
                self._mirror.put(path, data)

    def _drop_revoked(self, found: SkillReleases) -> None:
        kept = {release.digest for release in found.versions if release.state != "revoked"}
        for release in found.versions:
            if release.digest not in kept:
                for path in (
                    blob_path(release.digest),
                    *map(attestation_path, release.attestations),
                ):
                    self._mirror.remove(path)

"""Copies what a registry signed into a mirror, byte for byte: roles, and documents by their digest.

Clients check all of it again. It is checked here so that a mirror never loses to a source that
went back, was stripped, or is not whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuf.api import exceptions
from tuf.api.metadata import Metadata, Snapshot, TargetFile, Targets
from tuf.ngclient import Updater

from skillhouse.floor import make_private
from skillhouse.registry.mirror_directory import OWN, MirrorDirectory
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY, TARGETS_DIRECTORY
from skillhouse.registry.repository import Repository, RepositoryAnswer, RepositoryError
from skillhouse.registry.signed_targets import ROOT_MAX, AccessFetcher

ROLE_MAX = 5_000_000
"""Bytes of one role, as python-tuf takes them."""
_SEEN = "seen"
_TIMESTAMP = f"{METADATA_DIRECTORY}/timestamp.json"


class SignedCopy:
    """One state of a source: read and checked first, written after the archives that it names."""

    def __init__(self, mirror: MirrorDirectory, reader: Repository) -> None:
        self._mirror = mirror
        self._reader = reader
        self._state = mirror.path / OWN / _SEEN
        self._roles: dict[str, bytes] = {}
        """The files of `metadata`, but for the timestamp."""
        self._found: list[TargetFile] = []

    @property
    def is_new(self) -> bool:
        """Whether anything but the timestamp is another than in the mirror."""
        return any(self._mirror.read(f"{METADATA_DIRECTORY}/{one}") is None for one in self._roles)

    def read(self) -> bool:
        """Read and check what the source signed; False where it signs nothing.

        Raises:
            RepositoryError: "signed", it is older than the mirror, not whole, or not signed by
                whom the first root that this mirror saw leads to.
        """
        own = self._mirror.read(f"{METADATA_DIRECTORY}/{FIRST_ROOT}")
        first = own or self._reader.read(f"{METADATA_DIRECTORY}/{FIRST_ROOT}", ROOT_MAX)
        if first is None:
            return False
        try:
            self._read(first)
        except (exceptions.RepositoryError, exceptions.DownloadError) as error:
            message = f"what `{self._reader.address}` signed is not taken: {str(error)[:200]}"
            raise RepositoryError("signed", message) from error
        return True

    def _read(self, first: bytes) -> None:
        make_private(self._state)
        updater = Updater(
            str(self._state),
            f"{METADATA_DIRECTORY}/",
            fetcher=AccessFetcher(self._answer),
            bootstrap=first,
        )
        updater.refresh()
        for path in (self._state / "root_history").glob("*.root.json"):
            self._roles[path.name] = path.read_bytes()
        snapshot: Metadata[Snapshot] = self._seen("snapshot")
        targets: Metadata[Targets] = self._seen("targets")
        self._roles[f"{snapshot.signed.version}.snapshot.json"] = self._bytes("snapshot")
        self._roles[f"{targets.signed.version}.targets.json"] = self._bytes("targets")
        index = self._role("index", targets, snapshot.signed)
        self._role("owners", targets, snapshot.signed)
        bins = index.signed.delegations.succinct_roles if index.signed.delegations else None
        for role in bins.get_roles() if bins else ():
            self._role(role, index, snapshot.signed)

    def _role(self, role: str, above: Metadata[Targets], snapshot: Snapshot) -> Metadata[Targets]:
        """Take a role that another one delegates to, as it is here or from the source."""
        meta = snapshot.meta.get(f"{role}.json")
        if meta is None:
            raise exceptions.RepositoryError(f"the snapshot has no `{role}`")
        name = f"{meta.version}.{role}.json"
        path = f"{METADATA_DIRECTORY}/{name}"
        data = self._mirror.read(path) or self._reader.read(path, ROLE_MAX)
        if data is None:
            raise exceptions.RepositoryError(f"`{path}` is not there")
        found: Metadata[Targets] = Metadata.from_bytes(data)
        above.signed.verify_delegate(role, found.signed_bytes, found.signatures)
        if found.signed.version != meta.version:
            raise exceptions.RepositoryError(f"`{path}` is of version {found.signed.version}")
        self._roles[name] = data
        self._found += found.signed.targets.values()
        return found

    def write(self, *, skills: frozenset[str]) -> None:
        """Write all of it, the timestamp last.

        Args:
            skills: The paths of the documents that are mirrored; empty for all.
        """
        kept = set()
        for file in self._found:
            if skills and file.path.startswith("index/") and file.path not in skills:
                continue
            kept.add(path := f"{TARGETS_DIRECTORY}/{file.get_prefixed_paths()[0]}")
            if not (self._mirror.path / path).is_file():
                self._mirror.put(path, self._document(file, path))
        before = self._mirror.read(_TIMESTAMP)
        for name, data in self._roles.items():
            self._mirror.put(f"{METADATA_DIRECTORY}/{name}", data)
        self._mirror.put(_TIMESTAMP, self._bytes("timestamp"))
        if before is not None and before != self._bytes("timestamp"):
            self._drop(kept)

    def _document(self, file: TargetFile, path: str) -> bytes:
        """Return a document: the one that was mirrored already, or that of the source."""
        for read, place in ((self._mirror.read, file.path), (self._reader.read, path)):
            data = read(place) or b""
            try:
                file.verify_length_and_hashes(data)
            except exceptions.LengthOrHashMismatchError:
                continue
            return data
        message = f"`{self._reader.address}/{path}` is not the document that was signed"
        raise RepositoryError("signed", message)

    def _drop(self, kept: set[str]) -> None:
        """Remove what neither this state nor the last one names: readers of that go on."""
        roles = {f"{METADATA_DIRECTORY}/{name}" for name in self._roles} | {_TIMESTAMP}
        past = self._mirror.path / OWN / "replaced"
        before = set(past.read_text().splitlines()) if past.is_file() else set()
        now = {
            path.relative_to(self._mirror.path).as_posix()
            for place in (METADATA_DIRECTORY, TARGETS_DIRECTORY)
            for path in (self._mirror.path / place).rglob("*.*")
            if path.is_file()
        } - (roles | kept)
        for path in before & now:
            self._mirror.remove(path)
        self._mirror.put(f"{OWN}/replaced", "\n".join(sorted(now - before)).encode())

    def _seen(self, role: str) -> Metadata[Any]:
        return Metadata.from_bytes(self._bytes(role))

    def _bytes(self, role: str) -> bytes:
        return Path(self._state / f"{role}.json").read_bytes()

    def _answer(self, path: str, max_bytes: int) -> RepositoryAnswer:
        data = self._reader.read(path, max_bytes)
        return RepositoryAnswer(status=404 if data is None else 200, body=data or b"")

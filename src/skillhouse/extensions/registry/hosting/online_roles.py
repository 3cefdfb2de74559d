"""The roles that the server signs by itself: bins of documents, the snapshot and the timestamp.

Every index document, `registry.json` and `revocations.json` is a target in a hashed bin. A change
writes its document, its bin, the snapshot and the timestamp, and nothing else.

INVARIANT: the snapshot says up to which change of the store the bins are. What a crash leaves out
is signed by the next call, and the timestamp is the last file of each.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Raw, json
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Signed,
    Snapshot,
    SuccinctRoles,
    TargetFile,
    Targets,
    Timestamp,
)
from tuf.api.serialization.json import CanonicalJSONSerializer

from skillhouse.extensions.registry.hosting.offline_roles import OfflineRoles
from skillhouse.extensions.registry.hosting.release_store import METADATA_FLOOR, ReleaseStore
from skillhouse.floor import make_private, write_atomically
from skillhouse.floor.lock import locked_file
from skillhouse.registry import HostingError, encode_document, split_name
from skillhouse.registry.owners import NameOwners
from skillhouse.registry.releases import (
    REPOSITORY_FILE,
    REVOCATIONS_FILE,
    RepositoryDocument,
    index_path,
)

TIMESTAMP_LIFE = timedelta(days=1)
RENEWAL = timedelta(hours=1)
"""After which a timestamp is signed again, though nothing changed."""
BIN_LIFE = timedelta(days=90)
KEPT_SECONDS = 86_400.0
"""How long a file that was replaced stays, for who has begun to read."""
SEQUENCE = "x-sequence"
"""The member of the snapshot that has the last change of the store that is signed."""
BINS_ALONE = 8
"""Bins of one round up to which each file waits for the disk by itself."""
_PAGE = 1_000
_LOCK = "metadata.lock"


class OnlineRoles:
    """What the server of one directory signs; for any thread, and for several processes."""

    def __init__(
        self,
        directory: Path,
        store: ReleaseStore,
        *,
        name: str,
        revocations: Callable[[], bytes | None],
        clock: Callable[[], datetime],
    ) -> None:
        self.offline = OfflineRoles(directory)
        self.store = store
        self.revocations = revocations
        self.document = encode_document(RepositoryDocument(api=1, name=name))
        self._lock = directory / _LOCK
        self._clock = clock
        self._here = threading.Lock()
        self._kept: dict[str, Metadata[Any]] = {}
        self._signer: CryptoSigner | None = None
        self._owners: tuple[int, NameOwners] | None = None

    def sign(self) -> bool:
        """Sign what changed since the last call, or what is due; return whether anything was.

        Raises:
            HostingError: the key is not here.
            OSError, TimeoutError: the files cannot be written; the next call makes up for it.
        """
        with self._here, locked_file(self._lock):
            with suppress(HostingError):
                # Half of a copy that is carried back stops no publish; `root status` says it.
                self.offline.take_pending()
            return self.offline.is_rooted and _Signing(self, self._clock()).run()

    def owners(self) -> NameOwners:
        """Return whose the names are, as it is in force."""
        version = self.current("owners").version
        if self._owners is None or self._owners[0] != version:
            self._owners = version, self.offline.owners()
        return self._owners[1]

    def current(self, role: str) -> Any:
        """Return what people signed of a role last."""
        known = self._kept.get(role)
        following = f"{known.signed.version + 1}.{role}.json" if known else ""
        if known is None or (self.offline.metadata / following).exists():
            known = self._kept[role] = self.offline.required(role)
            self._signer = None
        return known.signed

    def signer(self) -> CryptoSigner:
        root: Root = self.current("root")
        self._signer = self._signer or self.offline.online_signer(root)
        return self._signer

    def snapshot(self, version: int) -> Metadata[Snapshot]:
        """Return a snapshot, to be changed; that of the last call is in memory."""
        known = self._kept.get("snapshot")
        if known is None or known.signed.version != version:
            known = Metadata.from_file(str(self.offline.metadata / f"{version}.snapshot.json"))
            self._kept["snapshot"] = known
        return known

    def forget(self) -> None:
        """Read the snapshot again: a round that failed may have changed what is in memory."""
        self._kept.pop("snapshot", None)


class _Signing:
    """One round: what is read first, and written at its end."""

    def __init__(self, roles: OnlineRoles, now: datetime) -> None:
        self._roles = roles
        self._metadata = roles.offline.metadata
        self._targets = roles.offline.targets
        self._now = now.replace(microsecond=0)
        self._signer = roles.signer()
        self._is_durable = True
        # INVARIANT: after a restore every number is above those that clients saw, of bins too.
        self._floor = int(roles.store.setting(METADATA_FLOOR) or 0)
        self._bins: SuccinctRoles = roles.current("index").delegations.succinct_roles

    def run(self) -> bool:
        path = self._metadata / "timestamp.json"
        timestamp = Metadata[Timestamp].from_file(str(path)) if path.exists() else None
        if timestamp is None:
            timestamp = _unwritten(Timestamp())
            snapshot = _unwritten(Snapshot(meta={}))
        else:
            snapshot = self._roles.snapshot(timestamp.signed.snapshot_meta.version)
        try:
            return self._sign(timestamp, snapshot)
        except BaseException:
            self._roles.forget()
            raise

    def _sign(self, timestamp: Metadata[Timestamp], snapshot: Metadata[Snapshot]) -> bool:
        known = snapshot.signed
        age = self._now - (timestamp.signed.expires - TIMESTAMP_LIFE)
        is_due = not timedelta() <= age < RENEWAL or not timestamp.signed.version
        # After a change of the key everything is signed by the new one.
        is_other = self._signer.public_key.keyid not in timestamp.signatures
        changed = self._people_signed(known)
        sequence, documents = self._documents(known)
        is_raised = max(known.version, timestamp.signed.version) < self._floor
        bins: dict[str, dict[str, bytes]] = {}
        for target, data in documents:
            bins.setdefault(self._bins.get_role_for_target(target), {})[target] = data
        if is_other or is_raised:
            bins = {role: bins.get(role, {}) for role in self._bins.get_roles()}
        elif is_due:
            bins = {**{role: {} for role in self._ending(known)}, **bins}
        # One wait for the disk in place of one for each file.
        self._is_durable = len(bins) <= BINS_ALONE
        for role, found in bins.items():
            known.meta[f"{role}.json"] = self._write_bin(role, found, known)
        if not self._is_durable and hasattr(os, "sync"):
            os.sync()
        self._is_durable = True
        if bins or changed or sequence != _sequence(known) or self._is_ending(known):
            known.unrecognized_fields[SEQUENCE] = sequence
            known.expires = self._now + BIN_LIFE
            known.version = max(known.version, self._floor)
            self._write(snapshot, f"{known.version + 1}.snapshot.json")
        elif not is_due:
            return False
        timestamp.signed.snapshot_meta = MetaFile(known.version)
        timestamp.signed.expires = self._now + TIMESTAMP_LIFE
        timestamp.signed.version = max(timestamp.signed.version, self._floor)
        self._write(timestamp, "timestamp.json")
        if is_due:
            self._drop_old(known)
        return True

    def _people_signed(self, snapshot: Snapshot) -> bool:
        """Take over the versions of what people signed; return whether one is new."""
        changed = False
        for role in ("targets", "index", "owners"):
            version, before = self._roles.current(role).version, snapshot.meta.get(f"{role}.json")
            if before is None or before.version != version:
                snapshot.meta[f"{role}.json"] = MetaFile(version)
                changed = True
        return changed

    def _documents(self, snapshot: Snapshot) -> tuple[int, list[tuple[str, bytes]]]:
        """Return the last change, and the documents that changed up to it."""
        sequence = _sequence(snapshot)
        names: set[str] = set()
        found = [] if snapshot.version else [(REPOSITORY_FILE, self._roles.document)]
        is_revoking = not snapshot.version
        while changes := self._roles.store.changes(sequence, _PAGE):
            sequence = changes[-1].seq
            names.update(one.name for one in changes if one.name)
            is_revoking = is_revoking or any(one.kind == "revocations" for one in changes)
        if is_revoking and (data := self._roles.revocations()) is not None:
            found.append((REVOCATIONS_FILE, data))
        for name in sorted(names):
            namespace, skill = split_name(name)
            releases = self._roles.store.releases(namespace, skill)
            if releases is not None:
                found.append((index_path(namespace, skill), encode_document(releases)))
        return sequence, found

    def _write_bin(self, role: str, documents: dict[str, bytes], snapshot: Snapshot) -> MetaFile:
        before = snapshot.meta.get(f"{role}.json")
        found: Metadata[Targets] = _unwritten(Targets())
        if before is not None:
            path = self._metadata / f"{before.version}.{role}.json"
            found = Metadata.from_file(str(path))
        for target, data in documents.items():
            file = TargetFile.from_data(target, data, ["sha256"])
            self._put_target(file, data)
            found.signed.targets[target] = file
        found.signed.expires = self._now + BIN_LIFE
        found.signed.version = max(found.signed.version, self._floor)
        self._write(found, f"{found.signed.version + 1}.{role}.json")
        return MetaFile(found.signed.version)

    def _put_target(self, file: TargetFile, data: bytes) -> None:
        path = self._targets / file.get_prefixed_paths()[0]
        make_private(path.parent)
        self._put(path, data)
        kept = _oldest_kept()
        for other in path.parent.glob(f"*.{file.path.rpartition('/')[2]}"):
            if other != path and other.stat().st_mtime < kept:
                other.unlink(missing_ok=True)

    def _write(self, found: Metadata[Any], name: str) -> None:
        found.signed.version += 1
        signed = canonical(found.signed)
        signature = self._signer.sign(signed)
        found.signatures = {signature.keyid: signature}
        value = {"signatures": [signature.to_dict()], "signed": Raw(signed)}
        self._put(self._metadata / name, json.encode(value))

    def _put(self, path: Path, data: bytes) -> None:
        with write_atomically(path, durable=self._is_durable) as file:
            file.write(data)

    def _is_ending(self, found: Signed) -> bool:
        return found.expires - self._now < BIN_LIFE / 2

    def _ending(self, snapshot: Snapshot) -> Iterator[str]:
        for role in self._bins.get_roles():
            path = self._metadata / f"{snapshot.meta[f'{role}.json'].version}.{role}.json"
            if self._is_ending(Metadata[Targets].from_file(str(path)).signed):
                yield role

    def _drop_old(self, snapshot: Snapshot) -> None:
        current = {f"{one.version}.{name}" for name, one in snapshot.meta.items()}
        current |= {f"{snapshot.version}.snapshot.json"}
        kept = _oldest_kept()
        for path in self._metadata.glob("[0-9]*.json"):
            is_root = path.name.endswith(".root.json")
            if not is_root and path.name not in current and path.stat().st_mtime < kept:
                path.unlink(missing_ok=True)


def canonical(signed: Signed) -> bytes:
    """Return the bytes of python-tuf's canonical JSON, whose encoder takes half of a publish.

    Both differ in escapes only, which paths, digests and dates have none of.
    """
    data = json.encode(signed.to_dict(), order="sorted")
    return CanonicalJSONSerializer().serialize(signed) if b"\\" in data else data


def _unwritten(signed: Any) -> Metadata[Any]:
    """Return metadata that gets the version 1 when it is written."""
    signed.version = 0
    return Metadata(signed)


def _oldest_kept() -> float:
    return time.time() - KEPT_SECONDS


def _sequence(snapshot: Snapshot) -> int:
    return int(snapshot.unrecognized_fields.get(SEQUENCE, 0))

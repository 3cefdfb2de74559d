"""The roles of a registry that people sign with keys kept offline: root, targets, index, owners.

What is not signed by enough keys yet waits in the directory `pending`, which can be carried to the
machine with a key and back. `targets` delegates to `owners` and `index`, `index` to the hashed
bins: python-tuf takes no named and hashed roles in one delegation.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from msgspec import Struct
from securesystemslib.signer import CryptoSigner, Key
from tuf.api.exceptions import (
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.metadata import (
    DelegatedRole,
    Delegations,
    Metadata,
    Root,
    SuccinctRoles,
    TargetFile,
    Targets,
)

from skillhouse.floor import DecodeError, ExposedError, make_private, open_own, write_atomically
from skillhouse.registry import HostingError
from skillhouse.registry.owners import (
    FIRST_ROOT,
    METADATA_DIRECTORY,
    OWNERS_FILE,
    PENDING_DIRECTORY,
    PUBLISHERS_FILE,
    TARGETS_DIRECTORY,
    NameOwners,
    decode_owners,
    encode_owners,
)

KEYS = "online-keys"
ROLES = ("root", "targets", "index", "owners")
"""In the order in which one vouches for the next."""
OFFLINE_DAYS = 365
"""How long what people sign is good."""
ENDING = timedelta(days=30)
BIN_BITS = 8
"""256 bins: at 20,000 skills a bin has 12 KB."""
KEYS_MAX = 32
_KEY_MAX = 16_384
_HASH_PREFIXES = [f"{digit:x}" for digit in range(16)]
"""Every path: a pattern with `*` stops at each slash."""


class RoleState(Struct, frozen=True, kw_only=True):
    """One role that people sign, as it is in force or waits."""

    role: str
    version: int
    expires: str
    signed: int
    """Keys that signed it, of those that may."""
    threshold: int
    is_pending: bool


class OfflineRoles:
    """The files of one registry's directory that these roles are in."""

    def __init__(self, directory: Path) -> None:
        self.metadata = directory / METADATA_DIRECTORY
        self.targets = directory / TARGETS_DIRECTORY
        self.pending = directory / PENDING_DIRECTORY
        self._keys = directory / KEYS

    @property
    def is_rooted(self) -> bool:
        """Whether a root is in force."""
        return (self.metadata / FIRST_ROOT).is_file()

    def current(self, role: str) -> Metadata[Any] | None:
        """Return what is in force of a role; None before it was signed."""
        found = highest(self.metadata, role)
        return Metadata.from_file(str(found)) if found else None

    def required(self, role: str) -> Metadata[Any]:
        found = self.current(role)
        if found is None:
            raise _without_root()
        return found

    def owners(self) -> NameOwners:
        """Return whose the names are; nothing without a root."""
        data = self.target(OWNERS_FILE)
        return decode_owners(data) if data else NameOwners(version=1, names={})

    def target(self, name: str) -> bytes:
        """Return a document that `owners` names; empty without one."""
        found = self.current("owners")
        file = found.signed.targets.get(name) if found else None
        return (self.targets / file.get_prefixed_paths()[0]).read_bytes() if file else b""

    def init(self, keys: Sequence[Key], *, threshold: int, days: int = OFFLINE_DAYS) -> None:
        """Prepare the first root; it is in force once enough of its keys signed.

        Raises:
            HostingError: there is a root, or the keys cannot be.
        """
        if self.is_rooted or self.pending.exists():
            raise HostingError("bad-request", "this registry has a root: `registry root rotate`")
        _check_keys(keys, threshold)
        root = Root(expires=_until(days), consistent_snapshot=True)
        _let_sign(root, keys, threshold, self._new_online_key())
        targets = Targets(expires=_until(days))
        index = Targets(expires=_until(days))
        owners = Targets(expires=_until(days))
        _delegate(root, targets, index)
        documents = {OWNERS_FILE: encode_owners(NameOwners(version=1, names={}))}
        _name_targets(owners, documents)
        named = {"root": root, "targets": targets, "index": index, "owners": owners}
        self._put_pending(named, documents)

    def rotate(
        self,
        *,
        add: Sequence[Key] = (),
        remove: Sequence[str] = (),
        threshold: int = 0,
        online: bool = False,
        days: int = OFFLINE_DAYS,
    ) -> None:
        """Prepare the next root, and the roles that its keys sign.

        Args:
            remove: Beginnings of the ids of keys, of 8 digits or more.
            online: Whether the server gets another key for what it signs by itself.

        Raises:
            HostingError: a key is not there, or too few would be left.
        """
        root = self.required("root").signed
        kept = {one: root.keys[one] for one in root.roles["root"].keyids}
        for text in remove:
            found = [one for one in kept if len(text) >= 8 and one.startswith(text.lower())]
            if len(found) != 1:
                raise HostingError("bad-request", f"no key of the root begins with `{text[:64]}`")
            del kept[found[0]]
        keys = (*kept.values(), *add)
        threshold = threshold or root.roles["root"].threshold
        _check_keys(keys, threshold)
        server = root.keys[root.roles["timestamp"].keyids[0]]
        for role in root.roles:
            for keyid in tuple(root.roles[role].keyids):
                root.revoke_key(keyid, role)
        _let_sign(root, keys, threshold, self._new_online_key() if online else server)
        named = {"root": root, **{role: self.required(role).signed for role in ROLES[1:]}}
        _delegate(root, named["targets"], named["index"])
        documents = self._documents()
        _name_targets(named["owners"], documents)
        self._put_pending(_next(named, days), documents)

    def set_owners(self, names: Mapping[str, Sequence[str]], *, days: int = OFFLINE_DAYS) -> None:
        """Prepare the next document of owners; a name without publishers is unclaimed again."""
        documents = self._documents()
        if OWNERS_FILE not in documents:
            raise _without_root()
        before = decode_owners(documents[OWNERS_FILE])
        changed = {**before.names, **{name: tuple(handles) for name, handles in names.items()}}
        owners = NameOwners(version=1, names={k: v for k, v in changed.items() if v})
        self._change_documents({OWNERS_FILE: encode_owners(owners)}, days)

    def set_publishers(self, pem: bytes, *, days: int = OFFLINE_DAYS) -> None:
        """Prepare the root certificates of publishers, which clients then trust by the root."""
        self._change_documents({PUBLISHERS_FILE: pem}, days)

    def _change_documents(self, changed: Mapping[str, bytes], days: int) -> None:
        documents = {**self._documents(), **changed}
        waiting = self._waiting()
        if "owners" in waiting:
            # Signatures so far were about other documents.
            owners = waiting["owners"].signed
            _name_targets(owners, documents)
            self._put_pending({"owners": owners}, documents)
            return
        owners = self.required("owners").signed
        _name_targets(owners, documents)
        self._put_pending(_next({"owners": owners}, days), documents)

    def _documents(self) -> dict[str, bytes]:
        """Return the documents that wait, or those in force."""
        found = {}
        for name in (OWNERS_FILE, PUBLISHERS_FILE):
            path = self.pending / name
            data = path.read_bytes() if path.is_file() else self.target(name)
            if data:
                found[name] = data
        return found

    def sign(self, signer: CryptoSigner) -> tuple[str, ...]:
        """Sign what waits with one key; return the roles that it may sign.

        Raises:
            HostingError: nothing waits, or the key has no part in it.
        """
        waiting = self._waiting()
        keyid = signer.public_key.keyid
        # A copy without its registry does not say whose signature counts; the registry judges it.
        is_apart = not self.is_rooted and "root" not in waiting
        done = [role for role in waiting if is_apart or keyid in self._may_sign(role, waiting)]
        if not done:
            why = "this key is none of the root's" if waiting else "nothing waits for a signature"
            raise HostingError("signature", why)
        for role in done:
            waiting[role].sign(signer, append=True)
            _write(self.pending / file_name(role, waiting[role]), waiting[role].to_bytes())
        return tuple(done)

    def take_pending(self) -> bool:
        """Put what enough keys signed in force; return whether something was.

        What the server signs by itself has to be made after it.
        """
        waiting = self._waiting()
        if not waiting or any(not self._is_signed(role, waiting) for role in waiting):
            return False
        make_private(self.metadata)
        make_private(self.targets)
        if "owners" in waiting:
            documents = self._documents()
            for name, file in waiting["owners"].signed.targets.items():
                try:
                    file.verify_length_and_hashes(documents.get(name, b""))
                except LengthOrHashMismatchError as error:
                    message = f"`{name}` that waits is not the one that was signed"
                    raise HostingError("signature", message) from error
                _write(self.targets / file.get_prefixed_paths()[0], documents[name])
        # The root last: who sees it finds the rest.
        for role in reversed(ROLES):
            if role in waiting:
                found = waiting[role]
                _write(self.metadata / file_name(role, found), found.to_bytes())
        shutil.rmtree(self.pending)
        return True

    def states(self) -> tuple[RoleState, ...]:
        """Return the roles in force, then those that wait."""
        waiting = self._waiting()
        found = {role: one for role in ROLES if (one := self.current(role))}
        return tuple(
            _state(role, one, self._delegator(role, given), is_pending=given is waiting)
            for given in (found, waiting)
            for role, one in given.items()
        )

    def ending(self, now: datetime) -> str:
        """Return what has to be signed again soon; empty for nothing."""
        ends = [one.signed.expires for role in ROLES if (one := self.current(role))]
        if not ends or min(ends) - now > ENDING:
            return ""
        return f"what people signed ends on {min(ends):%Y-%m-%d}: `skillhouse registry root rotate`"

    def online_signer(self, root: Root) -> CryptoSigner:
        """Return the key of the roles that the server signs; HostingError where it is not here."""
        keyid = root.roles["timestamp"].keyids[0]
        path = self._keys / f"{keyid}.pem"
        try:
            return read_signer(path)
        except FileNotFoundError:
            message = f"the key {keyid[:12]} that signs what is current is not here"
            raise HostingError("bad-request", message) from None

    def _new_online_key(self) -> Key:
        make_private(self._keys)
        private, public = _new_key()
        _write(self._keys / f"{public.keyid}.pem", private)
        return public

    def _put_pending(self, named: Mapping[str, Any], documents: Mapping[str, bytes]) -> None:
        make_private(self.pending)
        for name, data in documents.items():
            _write(self.pending / name, data)
        for role, signed in named.items():
            found = Metadata(signed)
            _write(self.pending / file_name(role, found), found.to_bytes())

    def _waiting(self) -> dict[str, Metadata[Any]]:
        paths = {role: highest(self.pending, role) for role in ROLES}
        try:
            return {role: Metadata.from_file(str(path)) for role, path in paths.items() if path}
        except RepositoryError as error:
            raise HostingError("signature", f"what waits cannot be read: {error}") from error

    def _delegator(self, role: str, given: Mapping[str, Metadata[Any]]) -> Metadata[Any]:
        above = {"root": "root", "targets": "root"}.get(role, "targets")
        return given[above] if above in given else self.required(above)

    def _may_sign(self, role: str, waiting: Mapping[str, Metadata[Any]]) -> set[str]:
        above = [self._delegator(role, waiting)]
        if role == "root" and (before := self.current("root")):
            above.append(before)
        return {key for one in above for key in one.signed.get_delegated_role(role).keyids}

    def _is_signed(self, role: str, waiting: Mapping[str, Metadata[Any]]) -> bool:
        above = [self._delegator(role, waiting)]
        if role == "root" and (before := self.current("root")):
            above.append(before)
        return all(_verified(one, role, waiting[role]) for one in above)


def _without_root() -> HostingError:
    return HostingError("bad-request", "this registry has no root: `skillhouse registry root init`")


def _verified(above: Metadata[Any], role: str, found: Metadata[Any]) -> bool:
    try:
        above.signed.verify_delegate(role, found.signed_bytes, found.signatures)
    except (UnsignedMetadataError, ValueError):
        return False
    return True


def _state(role: str, found: Metadata[Any], above: Metadata[Any], *, is_pending: bool) -> RoleState:
    result = above.signed.get_verification_result(role, found.signed_bytes, found.signatures)
    return RoleState(
        role=role,
        version=found.signed.version,
        expires=f"{found.signed.expires:%Y-%m-%d}",
        signed=len(result.signed),
        threshold=result.threshold,
        is_pending=is_pending,
    )


def _next(named: Mapping[str, Any], days: int) -> Mapping[str, Any]:
    for one in named.values():
        one.version += 1
        one.expires = _until(days)
    return named


def _until(days: int) -> datetime:
    return (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)


def _check_keys(keys: Sequence[Key], threshold: int) -> None:
    count = len({one.keyid for one in keys})
    if count != len(keys) or not 0 < threshold <= count <= KEYS_MAX:
        message = f"expected 1 to {KEYS_MAX} different keys, of which {threshold} sign; got {count}"
        raise HostingError("bad-request", message)


def _let_sign(root: Root, keys: Sequence[Key], threshold: int, server: Key) -> None:
    for role in ("root", "targets"):
        for key in keys:
            root.add_key(key, role)
        root.roles[role].threshold = threshold
    for role in ("snapshot", "timestamp"):
        root.add_key(server, role)


def _delegate(root: Root, targets: Targets, index: Targets) -> None:
    """Let `targets` name `owners` and `index`, and `index` the bins, by the keys of a root."""
    people = root.roles["root"]
    server = root.roles["timestamp"].keyids[0]
    ids = list(people.keyids)
    targets.delegations = Delegations(
        keys={one: root.keys[one] for one in ids},
        roles={
            "owners": DelegatedRole(
                "owners",
                ids,
                people.threshold,
                terminating=True,
                paths=[OWNERS_FILE, PUBLISHERS_FILE],
            ),
            "index": DelegatedRole(
                "index",
                ids,
                people.threshold,
                terminating=True,
                path_hash_prefixes=_HASH_PREFIXES,
            ),
        },
    )
    index.delegations = Delegations(
        keys={server: root.keys[server]},
        succinct_roles=SuccinctRoles([server], 1, BIN_BITS, "bin"),
    )


def _name_targets(owners: Targets, documents: Mapping[str, bytes]) -> None:
    owners.targets = {
        name: TargetFile.from_data(name, data, ["sha256"]) for name, data in documents.items()
    }


def file_name(role: str, found: Metadata[Any]) -> str:
    return f"{found.signed.version}.{role}.json"


def highest(directory: Path, role: str) -> Path | None:
    """Return the file of a role with the highest number; None without one."""
    found = {int(one.name.partition(".")[0]): one for one in directory.glob(f"[0-9]*.{role}.json")}
    return found[max(found)] if found else None


def _new_key() -> tuple[bytes, Key]:
    private = ed25519.Ed25519PrivateKey.generate()
    data = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data, CryptoSigner(private).public_key


def new_signer(path: Path) -> CryptoSigner:
    """Make a key in a new file for its owner alone; HostingError where a file is there."""
    if os.path.lexists(path):
        raise HostingError("bad-request", f"there is a file already: `{path}`")
    _write(path, _new_key()[0])
    return read_signer(path)


def read_signer(path: Path) -> CryptoSigner:
    """Return the key in a file: PKCS #8 in PEM, Ed25519 or P-256 and above.

    Raises:
        HostingError: it is none, or others can read it.
    """
    try:
        with os.fdopen(open_own(path, secret=True), "rb") as file:
            private = load_pem_private_key(file.read(_KEY_MAX), None)
    except ExposedError as error:
        raise HostingError("signature", f"the key is not used: {error}") from error
    except (ValueError, TypeError) as error:
        message = f"no private key without a password in PEM: `{path}`"
        raise HostingError("signature", message) from error
    if not isinstance(private, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey):
        raise HostingError("signature", f"expected an Ed25519 or an elliptic key: `{path}`")
    return signer_of(private)


def signer_of(
    private: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey,
) -> CryptoSigner:
    """Return what signs with a key, of a curve that python-tuf knows."""
    try:
        return CryptoSigner(private)
    except ValueError as error:
        raise HostingError("signature", f"the key is of another kind: {error}") from error


def _write(path: Path, data: bytes) -> None:
    with write_atomically(path, durable=True) as file:
        file.write(data)


def read_documents(directory: Path) -> NameOwners | None:
    """Return the owners that wait in a directory, to be shown before they are signed."""
    path = directory / OWNERS_FILE
    try:
        return decode_owners(path.read_bytes()) if path.is_file() else None
    except DecodeError as error:
        raise HostingError("signature", f"`{path}`: {error}") from error

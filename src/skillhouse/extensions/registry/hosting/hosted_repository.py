"""A registry that takes packages in: what `registry serve` serves, without HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.extensions.registry.hosting.access_tokens import TokenAccess
from skillhouse.extensions.registry.hosting.blobs import BlobDirectory
from skillhouse.extensions.registry.hosting.release_store import (
    NO_ACTOR,
    Actor,
    NewRelease,
    ReleaseStore,
    unknown_version,
    utc_text,
    version_exists,
)
from skillhouse.extensions.registry.hosting.sqlite_store import DATABASE, SqliteReleases
from skillhouse.floor import ConfigError, DecodeError, make_private, needs_extra, structs
from skillhouse.floor import digest as digest_of
from skillhouse.registry import (
    TRUSTED_DIRECTORY,
    VERSIONS_MAX,
    AttestationError,
    CheckedPackage,
    HostingError,
    PublishChecks,
    PublisherCheck,
    PublisherError,
    Release,
    RepositoryDocument,
    SkillReleases,
    address_name,
    attestations,
    is_version,
    media_type_of,
    near_keys,
    read_attestation,
    split_name,
    typed_name,
)
from skillhouse.registry.owners import (
    FIRST_ROOT,
    METADATA_DIRECTORY,
    PENDING_DIRECTORY,
    refused_signer,
)
from skillhouse.registry.releases import State
from skillhouse.skill import ARCHIVE_MAX

if TYPE_CHECKING:
    from skillhouse.extensions.registry.hosting.online_roles import OnlineRoles

DEFAULT_NAME = "local"
"""As that of a root certificate that is made without naming a registry."""
REPACKED = "repacked"
DIRECTORY = "registry"
"""Where a registry is in the directory of the state, unless another place is named."""
REASON_MAX = 300
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_CHANNEL = re.compile(r"[a-z][a-z0-9-]{0,31}")
_NAME_SETTING, _LIST_SETTING, _REVOKED_SETTING = "name", "revocations", "revoked"
_TAKEN = frozenset({"latest", "versions", "channels", "reports"})


class Address(Struct, frozen=True, kw_only=True):
    """A checked address of a version."""

    namespace: str
    skill: str
    version: str

    @property
    def name(self) -> str:
        return address_name(self.namespace, self.skill)


class HostedRepository:
    """The releases of one registry, in one directory."""

    def __init__(
        self,
        directory: Path,
        store: ReleaseStore,
        *,
        name: str,
        requires_signature: bool = False,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.store = store
        self.name = name
        self.blobs = BlobDirectory(directory)
        self._clock = clock or _utc_now
        self.directory = directory
        self.repacked = directory / REPACKED
        """Where archives are kept that were packed again for programs that read no other kind."""
        self._roles: OnlineRoles | None = None
        self._checks = PublishChecks(
            PublisherCheck(directory, self._clock),
            registry=name,
            requires_signature=requires_signature,
        )

    @property
    def now(self) -> datetime:
        return self._clock()

    def free_bytes(self) -> int:
        """Return how much is free on the disk of the archives."""
        return shutil.disk_usage(self.directory).free

    @property
    def document(self) -> RepositoryDocument:
        return RepositoryDocument(api=1, name=self.name)

    def roles(self) -> OnlineRoles:
        """Return what signs which documents are current.

        Raises:
            MissingExtraError: what signs is not installed.
        """
        if self._roles is None:
            with needs_extra("registry"):
                # python-tuf is an optional part, and a registry without a root needs none of it.
                from skillhouse.extensions.registry.hosting.online_roles import (  # noqa: PLC0415
                    OnlineRoles,
                )
            self._roles = OnlineRoles(
                self.directory,
                self.store,
                name=self.name,
                revocations=self.revocations,
                clock=self._clock,
            )
        return self._roles

    @property
    def is_rooted(self) -> bool:
        """Whether people signed a root, so that clients can check what is current."""
        return (self.directory / METADATA_DIRECTORY / FIRST_ROOT).is_file()

    @property
    def root(self) -> str:
        """What a person pins: the digest of the first root, which leads to all later ones."""
        return digest_of((self.directory / METADATA_DIRECTORY / FIRST_ROOT).read_bytes())

    def ending(self) -> str:
        """Return which signatures of people end soon; empty for none, and without a root."""
        return self.roles().offline.ending(self.now) if self.is_rooted else ""

    def sign_changes(self) -> None:
        """Sign what changed or is due, where there is a root, or one that waits.

        Raises:
            HostingError, OSError, MissingExtraError: it cannot be signed now; what changed is kept,
                and the next call signs it.
        """
        if self.is_rooted or (self.directory / PENDING_DIRECTORY).is_dir():
            self.roles().sign()

    def releases(self, name: str) -> SkillReleases:
        """Return a skill by its name in addresses; HostingError `unknown-skill`."""
        namespace, skill = _split(name)
        found = self.store.releases(namespace, skill)
        if found is None:
            raise HostingError("unknown-skill", f"there is no skill `{name}` here")
        return found

    def release(self, name: str, version: str) -> Release:
        """Return a version, or that of a channel; HostingError `unknown-version`."""
        found = self.releases(name)
        named = {**(found.channels or {}), "latest": found.latest}
        wanted = named.get(version, version)
        for one in found.versions:
            if one.version == wanted:
                return one
        raise unknown_version(name, version)

    def publish(
        self,
        address: Address,
        archive: Path,
        *,
        access: TokenAccess,
        content_digest: str = "",
        bundle_sizes: Sequence[int] = (),
        beside: str = "",
        dry_run: bool = False,
    ) -> Release:
        """Check an uploaded file and keep it as a version; it may be moved away.

        Args:
            archive: Alone in a directory of `BlobDirectory.new_upload`, under no name of a skill.
            content_digest: `sha256:` of the file as the sender counted it; empty for none.
            bundle_sizes: Bytes of the bundles that follow the archive in the file.
            beside: The skill that is here already and for which the name may be taken.
            dry_run: Checks everything and keeps nothing.

        Raises:
            HostingError: what refuses it.
        """
        data, bundles = _uploaded(archive, bundle_sizes, content_digest)
        digest = digest_of(data)
        self._refuse_taken(address, access, beside)
        media_type = media_type_of(data[:8])
        staging = archive.parent
        checked = self._checks.check(data, staging, skill=address.skill, version=address.version)
        listed = json.loads(self.store.setting(_REVOKED_SETTING) or b"[]")
        is_listed = checked.tree.digest in listed or f"{address.skill}@{address.version}" in listed
        if is_listed or self.store.is_revoked(digest, checked.tree.digest):
            raise HostingError("digest", "these files were revoked here, under some name")
        self._refuse_signer(address, checked)
        kept = _checked_bundles(bundles, digest)
        release = _release(checked, digest, len(data), media_type, utc_text(self.now), address)
        release = structs.replace(release, attestations=tuple(kept))
        if not dry_run:
            # INVARIANT: the blob is durable before the row that names it, so a crash leaves a file
            # without a version at most, and never a version without its file.
            os.truncate(archive, len(data))
            self.blobs.put(archive, digest)
            for name, bundle in kept.items():
                self.blobs.put_attestation(staging, name, bundle)
            self.store.add(
                NewRelease(
                    namespace=address.namespace,
                    skill=address.skill,
                    description=checked.facts.description,
                    license=checked.facts.license,
                    release=release,
                    actor=access.actor,
                )
            )
            self.sign_changes()
        return release

    def set_state(
        self, address: Address, state: State, reason: str, *, actor: Actor = NO_ACTOR
    ) -> Release:
        """Yank, unyank or revoke a version."""
        changed = self.store.set_state(
            address.namespace,
            address.skill,
            address.version,
            state,
            reason=checked_reason(reason),
            at=utc_text(self.now),
            actor=actor,
        )
        self.sign_changes()
        return changed

    def set_channel(
        self, name: str, channel: str, version: str, *, actor: Actor = NO_ACTOR
    ) -> SkillReleases:
        """Let a channel name a published version."""
        if channel in _TAKEN or not _CHANNEL.fullmatch(channel):
            raise HostingError("bad-request", f"no name for a channel: {channel[:40]!r}")
        namespace, skill = _split(name)
        self.releases(name)
        at = utc_text(self.now)
        self.store.set_channel(namespace, skill, channel, version, at=at, actor=actor)
        self.sign_changes()
        return self.releases(name)

    def trust_root(self, pem: bytes) -> str:
        """Trust a root certificate here; return its registry, which must be this one.

        Raises:
            HostingError: `signature`, it is no root, or that of another registry.
            MissingExtraError: what reads it is not installed.
        """
        with needs_extra("registry"):
            # cryptography is an optional part, and unsigned skills need none of it.
            from skillhouse.registry import AnchorStore, certificates  # noqa: PLC0415 - an extra.
        try:
            (certificate,) = certificates.load_certificates(pem)
            registry = certificates.check_root(certificate).registry
            if registry != self.name:
                message = f"this registry is `{self.name}`, the root is that of `{registry}`"
                raise HostingError("signature", message)
            AnchorStore(self.directory / TRUSTED_DIRECTORY).add_root(certificate)
        except (ValueError, PublisherError) as error:
            raise HostingError("signature", f"no root certificate: {error}") from error
        return registry

    def revocations(self) -> bytes | None:
        """Return the signed list as it was put; None where there is none."""
        return self.store.setting(_LIST_SETTING) or None

    def put_revocations(self, data: bytes, *, actor: Actor = NO_ACTOR) -> None:
        """Take a signed list over: that of a root, or of an intermediate while no root has one.

        Raises:
            HostingError: `signature`, it is an older one, or no trusted root vouches for it.
            MissingExtraError: what reads it is not installed.
        """
        with needs_extra("registry"):
            from skillhouse.registry import AnchorStore, read_list  # noqa: PLC0415 - an extra.
        anchors = AnchorStore(self.directory / TRUSTED_DIRECTORY)
        known = self.revocations()
        try:
            roots = anchors.read(self.now).roots
            given = read_list(data, roots, self.now)
            # One file is served: another issuer's list would take back what that one revokes.
            if known is not None and given.issuer != given.root:
                before = read_list(known, roots, self.now)
                if before.issuer != given.issuer:
                    message = (
                        "revocation: there is a list of another issuer; the root's replaces it"
                    )
                    raise HostingError("signature", message)
            anchors.add_list(data, self.now)
        except PublisherError as error:
            raise HostingError("signature", str(error)) from error
        revoked = [one.tree_digest or one.release for one in given.content.entries]
        self.store.set_setting(_REVOKED_SETTING, json.dumps(revoked).encode())
        at = utc_text(self.now)
        self.store.set_setting(_LIST_SETTING, data, kind="revocations", at=at, actor=actor)
        self.sign_changes()

    def _refuse_signer(self, address: Address, checked: CheckedPackage) -> None:
        """Refuse a package that is not signed by an owner of its name, where it has owners."""
        if not self.is_rooted:
            return
        owners = self.roles().owners().of(address.namespace, address.skill)
        publisher = checked.signature.publisher if checked.signature else ""
        if why := refused_signer(owners, publisher, typed_name(address.namespace, address.skill)):
            raise HostingError("signature", why)

    def _refuse_taken(self, address: Address, access: TokenAccess, beside: str) -> None:
        """Refuse a version that is there, and a name near another one of the same namespace.

        Who published the other one may have both. Who may publish every name of the namespace, too,
        once they say which one it is beside: a leaked token of a namespace took such names unseen.
        """
        known = self.store.releases(address.namespace, address.skill)
        if known is None:
            near = [
                one
                for one in self.store.similar(address.namespace, near_keys(address.skill))
                if access.token_id not in self.store.publishing_tokens(address.namespace, one)
            ]
            is_owner = access.may("publish", address.namespace, "*")
            if near and not (is_owner and beside in near):
                instead = (
                    f"or say that it belongs beside it (`--beside {near[0]}`)"
                    if is_owner
                    else "or use a token of the whole namespace"
                )
                message = f"`{address.skill}` could be taken for `{near[0]}`, which is here already"
                raise HostingError("name", f"{message}: choose another name, {instead}")
            return
        for one in known.versions:
            if one.version == address.version:
                raise version_exists(one.version, one.digest)
        if len(known.versions) >= VERSIONS_MAX:
            raise HostingError("version", f"expected at most {VERSIONS_MAX} versions of a skill")


def open_repository(
    directory: Path, *, name: str = "", requires_signature: bool = False
) -> HostedRepository:
    """Open or make the registry of a directory.

    Args:
        name: What certificates call it; empty for the name that it has, or `local` at first.

    Raises:
        ConfigError: it has another name, which signatures are bound to.
        StateError: its files cannot be used.
    """
    make_private(directory)
    store = SqliteReleases(directory / DATABASE)
    try:
        known = (store.setting(_NAME_SETTING) or b"").decode()
        wanted = name or known or DEFAULT_NAME
        if not _NAME.fullmatch(wanted) or "--" in wanted or ".." in wanted:
            message = f"expected a name such as `skills.example.com`, got `{wanted[:80]}`"
            raise ConfigError(message)
        if known and wanted != known and store.skill_count():
            message = f"the registry is called `{known}`, and signatures are for that name"
            raise ConfigError(f"{message}: leave out --name", path=directory)
        if wanted != known:
            store.set_setting(_NAME_SETTING, wanted.encode())
        return HostedRepository(
            directory, store, name=wanted, requires_signature=requires_signature
        )
    except BaseException:
        store.close()
        raise


def checked_address(name: str, version: str) -> Address:
    """Return an address that can be published to; HostingError `name` or `version`."""
    namespace, skill = _split(name)
    if not is_version(version) or not version[0].isdecimal():
        message = f"expected a version such as 1.2.0, got {version[:80]!r}"
        raise HostingError("version", message)
    return Address(namespace=namespace, skill=skill, version=version)


def checked_reason(text: str) -> str:
    """Return a reason as it is shown to others; HostingError `bad-request`."""
    if len(text) > REASON_MAX or not text.isprintable():
        message = f"expected a reason of one line and at most {REASON_MAX} characters"
        raise HostingError("bad-request", message)
    return text


def _split(name: str) -> tuple[str, str]:
    try:
        return split_name(name)
    except DecodeError as error:
        raise HostingError("name", str(error)) from error


def _uploaded(
    path: Path, sizes: Sequence[int], content_digest: str
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the archive of an upload, and the bundles that follow it."""
    most = ARCHIVE_MAX + sum(sizes)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise HostingError("too-large", f"expected at most {ARCHIVE_MAX} bytes")
    digest = digest_of(data)
    if content_digest and content_digest != digest:
        raise HostingError("digest", f"the bytes that arrived have the digest {digest}")
    try:
        return attestations.split_upload(data, sizes)
    except AttestationError as error:
        raise HostingError("attestation", str(error)) from error


def _checked_bundles(bundles: Sequence[bytes], archive: str) -> dict[str, bytes]:
    """Return bundles by their digests, each one over the archive; whoever made it."""
    found: dict[str, bytes] = {}
    for bundle in bundles:
        try:
            read_attestation(bundle, archive)
        except AttestationError as error:
            raise HostingError("attestation", str(error)) from error
        found[digest_of(bundle)] = bundle
    return found


def _release(
    checked: CheckedPackage,
    digest: str,
    size: int,
    media_type: str,
    published_at: str,
    address: Address,
) -> Release:
    return Release(
        version=address.version,
        digest=digest,
        tree_digest=checked.tree.digest,
        size=size,
        published_at=published_at,
        files=len(checked.tree.files),
        signature=checked.signature,
        media_type=media_type,
    )


def _utc_now() -> datetime:
    return datetime.now(UTC)

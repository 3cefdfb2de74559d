"""A registry whose root people signed, in a directory that is a repository as it is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from securesystemslib.signer import CryptoSigner

from skillhouse.extensions.registry.hosting import HostedRepository, TokenAccess, open_repository
from skillhouse.extensions.registry.hosting.hosted_repository import Address
from skillhouse.extensions.registry.hosting.offline_roles import OfflineRoles, new_signer
from skillhouse.floor import digest
from skillhouse.registry import (
    Release,
    SkillIdentity,
    encode_document,
    pack,
    pem_of,
    write_bundle,
)
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY
from skillhouse.registry.releases import REPOSITORY_FILE, REVOCATIONS_FILE, index_path
from tests.registry.build_root import BuildRoot
from tests.registry.pki import Party, issued, make_root, signed
from tests.registry.publisher_skill import REGISTRY
from tests.registry.sources import make_skill

ANYONE = TokenAccess("b", ("publish:default/*",))


class RootedRegistry:
    """Three keys of people, of which some sign; a certificate authority; the server's directory."""

    def __init__(
        self, place: Path, *, age: timedelta = timedelta(), threshold: int = 2, days: int = 0
    ) -> None:
        """Make it with nothing published; certificates of developers are valid for some days."""
        self.place = place
        self.age = age
        """How far behind its clock is."""
        self.directory = place / "registry"
        self.reopen()
        self.keys = [new_signer(place / f"{one}.pem") for one in "abc"]
        self.authority = make_root(now=self._before)
        self.hosted.trust_root(pem_of([self.authority.certificate]))
        self._developers: dict[str, Party] = {}
        self._names: set[str] = set()
        self._threshold = threshold
        self._days = days
        self.roles.init([one.public_key for one in self.keys], threshold=threshold)
        self.roles.set_publishers(pem_of([self.authority.certificate]))
        self.sign()

    def reopen(self) -> None:
        """Open what is in its directory by now."""
        self._opened = open_repository(self.directory, name=REGISTRY)
        self.hosted = HostedRepository(
            self.directory, self._opened.store, name=REGISTRY, clock=lambda: self.now
        )

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) - self.age

    @property
    def _before(self) -> datetime:
        return self.now - timedelta(hours=1)

    @property
    def roles(self) -> OfflineRoles:
        return self.hosted.roles().offline

    @property
    def root(self) -> str:
        """What a person pins."""
        return digest((self.directory / METADATA_DIRECTORY / FIRST_ROOT).read_bytes())

    @property
    def publishers(self) -> str:
        """The certificate of the root of its publishers."""
        return pem_of([self.authority.certificate]).decode()

    def sign(self, *keys: CryptoSigner) -> None:
        """Let as many people as it takes sign what waits, then the server what follows."""
        for key in keys or self.keys[: self._threshold]:
            self.roles.sign(key)
        self.hosted.sign_changes()

    def give(self, names: Mapping[str, tuple[str, ...]]) -> None:
        """Sign whose the names are."""
        self.roles.set_owners(names)
        self.sign()

    def developer(self, handle: str) -> Party:
        if handle not in self._developers:
            self._developers[handle] = issued(
                self.authority, handle, now=self._before, days=self._days
            )
        return self._developers[handle]

    def archive(self, name: str, version: str, by: str = "", body: str = "") -> bytes:
        """Return a small skill, signed by a publisher of this registry or unsigned."""
        place = self.place / "made" / f"{version}-{by}" / name
        shutil.rmtree(place, ignore_errors=True)
        make_skill(place, body or f"Version {version}.", version=version)
        if by:
            identity = SkillIdentity(name=name, version=version, repository=REGISTRY)
            bundle = signed(place, self.developer(by), identity=identity, now=self._before)
            (place / "skill.sig").write_bytes(write_bundle(bundle))
        return pack(place).archive

    def publish(
        self,
        name: str,
        version: str,
        by: str = "",
        body: str = "",
        *,
        built: BuildRoot | None = None,
    ) -> Release:
        """Publish a small skill, with an attestation of a root where one is given."""
        upload = self.hosted.blobs.new_upload()
        file = upload / "archive.part"
        archive = self.archive(name, version, by, body)
        bundles = [] if built is None else [built.bundle(digest(archive))]
        file.write_bytes(archive + b"".join(bundles))
        address = Address(namespace="default", skill=name, version=version)
        sizes = [len(one) for one in bundles]
        try:
            release = self.hosted.publish(address, file, access=ANYONE, bundle_sizes=sizes)
            self._names.add(name)
            return release
        finally:
            self.hosted.blobs.end_upload(upload)

    def copied(self, name: str) -> Path:
        """Return a copy of its files as they are now: a mirror, or a backup.

        It has the documents that a client without a pinned root reads, as every mirror has.
        """
        target = self.place / name
        shutil.copytree(self.directory, target)
        documents = {REPOSITORY_FILE: encode_document(self.hosted.document)}
        for skill in sorted(self._names):
            path = index_path("default", skill)
            documents[path] = encode_document(self.hosted.releases(skill))
        if listed := self.hosted.revocations():
            documents[REVOCATIONS_FILE] = listed
        for path, data in documents.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(data)
        return target

    def close(self) -> None:
        self._opened.store.close()

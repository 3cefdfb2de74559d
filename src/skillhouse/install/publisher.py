"""Publishes skills to a repository, and changes what it says of a version; for a person."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlencode

from msgspec import Struct

from skillhouse import registry
from skillhouse.audit.log import recorded
from skillhouse.floor import (
    DecodeError,
    MissingExtraError,
    SkillError,
    SkillhouseError,
    Tree,
    digest,
    is_secret,
    needs_extra,
    read_tree,
    shaped,
)
from skillhouse.house.config import RepositorySettings
from skillhouse.house.house import Skillhouse
from skillhouse.install.install_report import files_hiding, texts_of
from skillhouse.install.repositories import Repositories
from skillhouse.install.workflow_identity import exchanged, workflow_identity
from skillhouse.registry import (
    DEFAULT_NAMESPACE,
    AttestationError,
    PublisherCheck,
    PublisherError,
    Release,
    Repository,
    RepositoryError,
    SkillFacts,
    pack,
    read_attestation,
)
from skillhouse.registry.attestations import ATTESTATION_MAX, ATTESTATIONS_MAX
from skillhouse.registry.publish_checks import HostingError, PublishChecks, media_type_of
from skillhouse.registry.releases import REVOCATIONS_FILE, is_version, strict_document
from skillhouse.skill import ARCHIVE_MAX, read_archive, validate_name, write_members

STATES = ("yank", "unyank", "revoke")
REVOCATIONS_MAX = 2 * 1024 * 1024
"""Bytes of a list of revocations, as of a signature."""


class PublishError(SkillhouseError):
    """A skill is not published; the message says what to change."""


class PreparedPackage(Struct, frozen=True, kw_only=True):
    """Exactly what would be published, checked as the repository checks it."""

    settings: RepositorySettings
    address: str
    """Of the repository."""
    name: str
    """As addresses have it."""
    typed: str
    facts: SkillFacts
    tree: Tree
    archive: bytes
    digest: str
    media_type: str
    publisher: str
    """Who signed it, as far as that is known here; empty for an unsigned one."""
    warnings: tuple[str, ...] = ()
    beside: str = ""
    """The skill there for which its name may be taken, as a person said."""
    attestations: tuple[bytes, ...] = ()
    """Sigstore bundles over the archive, which are kept beside the version."""

    @property
    def path(self) -> str:
        return f"skills/{self.name}/{quote(self.facts.version)}"


class Publishing:
    """The changes that one person makes in repositories; each is in the audit log."""

    def __init__(self, house: Skillhouse) -> None:
        self._config = house.config
        self._log = house.audit_log
        self._network = house.services.network
        self._exchanged = ""
        self.repositories = Repositories(house.config, self._network)

    def settings(self, name: str) -> RepositorySettings:
        """Return the repository that is meant: by its name, or the only server.

        Of several servers it is the only one with a token.

        Raises:
            PublishError: there are none or several.
        """
        if name:
            return self.repositories.named(name)
        servers = [one for one in self.repositories.all if one.url.startswith(("http:", "https:"))]
        known = [one for one in servers if one.token] or servers
        if len(known) == 1:
            return known[0]
        names = ", ".join(f"`{one.name}`" for one in known)
        hint = f"name one with --repository: {names}" if known else "configure a server"
        raise PublishError(f"there are {len(known)} repositories to publish to; {hint}")

    def prepared(
        self,
        source: Path,
        settings: RepositorySettings,
        *,
        namespace: str = "",
        beside: str = "",
        attestations: Sequence[Path] = (),
    ) -> PreparedPackage:
        """Return a skill's directory or archive as it would be published.

        Args:
            attestations: Files with Sigstore bundles over the archive, one or, as GitHub's are, one
                on each line.

        Raises:
            PublishError: it is refused, by the checks that the repository makes.
            IdentityError, RepositoryError: as of `_exchange`.
        """
        namespace = namespace or DEFAULT_NAMESPACE
        if validate_name(namespace, directory=namespace):
            raise PublishError(f"expected a namespace of a-z, 0-9 and -, got {namespace[:80]!r}")
        archive = pack(source).archive if source.is_dir() else _archive_at(source)
        try:
            media_type = media_type_of(archive)
        except HostingError as error:
            raise PublishError(str(error)) from error
        with _unpacked(archive) as place:
            facts = _facts(place)
            self._exchange(settings, registry.typed_name(namespace, facts.name))
            repository = self.repositories.opened(settings)
            document = repository.document()
            tree = read_tree(place, whole=True)
            signed_for = document.name if document else ""
            publisher, notes = self._publisher(place, tree, facts, signed_for)
            _check(archive, place.parent / "checked", facts)
            texts = tuple(texts_of(place, tree))
        bundles = tuple(_bundles(attestations, digest(archive)))
        warnings = [
            *notes,
            *(f"hidden text in {name}: {what}" for name, what in files_hiding(texts)),
            *(f"named as a secret: {one.path}" for one in tree.files if is_secret(one.path)),
        ]
        return PreparedPackage(
            settings=settings,
            address=repository.address,
            name=registry.address_name(namespace, facts.name),
            typed=registry.typed_name(namespace, facts.name),
            facts=facts,
            tree=tree,
            archive=archive,
            digest=digest(archive),
            media_type=media_type,
            publisher=publisher,
            warnings=tuple(warnings),
            beside=beside,
            attestations=bundles,
        )

    def _exchange(self, settings: RepositorySettings, name: str) -> None:
        """Exchange the identity of this workflow for a token of a name, where that is configured.

        Raises:
            IdentityError: there is no identity here, or it cannot be had.
            RepositoryError: the repository gives no token for it.
        """
        if not settings.audience or name == self._exchanged:
            return
        arguments = {"name": name, "repository": settings.name, "audience": settings.audience}
        with recorded(self._log, "exchange", arguments):
            identity = workflow_identity(
                self._network, self._config.places.environment, settings.audience
            )
            token = exchanged(self.repositories.opened(settings), identity, name)
        self.repositories.open_with(settings, token)
        # An identity counts once, and so do those of GitLab, which has one for each job.
        self._exchanged = name

    def _publisher(
        self, place: Path, tree: Tree, facts: SkillFacts, repository: str
    ) -> tuple[str, tuple[str, ...]]:
        """Return who signed it, and what a person should know of the signature."""
        if not registry.read_signature(place):
            return "", ()
        check = PublisherCheck(self._config.state_directory)
        try:
            found = check.publisher_of(place, tree, facts=facts, repository=repository)
        except PublisherError as error:
            if error.step != "chain":
                raise PublishError(f"signature: {error}") from error
            return "signed", ("its signature is not checked here: its root is not trusted here",)
        except MissingExtraError as error:
            return "signed", (f"its signature is not checked here: {error}",)
        return ("" if found is None else f"{found.handle} of {found.registry}"), ()

    def tried(self, package: PreparedPackage) -> bool:
        """Ask the repository whether it would take a package, which it keeps nothing of; False for
        the very bytes that are there.

        It gets the whole archive for that, so this is in the log: as a check, and no publication.

        Raises:
            RepositoryError: it would not.
        """
        with recorded(self._log, "publish-check", _arguments(package)):
            return self._is_new(package, dry_run="1")

    def publish(self, package: PreparedPackage) -> bool:
        """Publish a package; return whether it is new: False for the very bytes that are there.

        Raises:
            RepositoryError: it is refused; "version-exists" where other bytes have this version.
        """
        with recorded(self._log, "publish", _arguments(package)):
            return self._is_new(package)

    def _is_new(self, package: PreparedPackage, *, dry_run: str = "") -> bool:
        try:
            self._sent(package, dry_run=dry_run)
        except RepositoryError as error:
            # After an answer that was lost the same is published again.
            if error.code == "version-exists" and error.digest == package.digest:
                return False
            raise
        return True

    def _sent(self, package: PreparedPackage, dry_run: str = "") -> Release:
        body = package.archive + b"".join(package.attestations)
        raw = base64.b64encode(bytes.fromhex(digest(body).partition(":")[2])).decode()
        headers = {"Content-Type": package.media_type, "Content-Digest": f"sha-256=:{raw}:"}
        sizes = ",".join(str(len(one)) for one in package.attestations)
        said = {"dry_run": dry_run, "beside": package.beside, "attestations": sizes}
        query = urlencode({key: value for key, value in said.items() if value})
        path = f"{package.path}?{query}" if query else package.path
        repository = self.repositories.opened(package.settings)
        answer = repository.send("PUT", path, body, headers=headers)
        release = _release(answer.body, repository)
        if len(release.attestations) < len(package.attestations):
            message = f"`{package.address}` takes no attestations: it kept {package.typed} without"
            raise RepositoryError("attestation", message)
        if release.digest != package.digest:
            message = f"`{package.address}` says that it published {release.digest[:80]}"
            raise RepositoryError("document", f"{message}, and not {package.digest}")
        return release

    def set_state(
        self, settings: RepositorySettings, name: str, version: str, *, change: str, reason: str
    ) -> Release:
        """Yank, unyank or revoke a version; RepositoryError where that is refused."""
        path = f"{_path_of(name, version)}/{change}"
        arguments = {"name": name, "version": version, "repository": settings.name}
        with recorded(self._log, change, {**arguments, "reason": reason}):
            return self._changed(settings, "POST", path, {"reason": reason})

    def set_channel(
        self, settings: RepositorySettings, name: str, version: str, channel: str
    ) -> None:
        """Give a version another name; RepositoryError where that is refused."""
        if not is_version(channel):
            raise PublishError(f"expected the name of a channel such as `beta`, got {channel!r}")
        path = f"{_path_of(name, version).rpartition('/')[0]}/channels/{channel}"
        arguments = {"name": name, "version": version, "repository": settings.name}
        with recorded(self._log, "channel", {**arguments, "channel": channel}):
            self.repositories.opened(settings).send(
                "PUT", path, json.dumps({"version": version}).encode(), headers=_JSON
            )

    def push_revocations(self, settings: RepositorySettings, file: Path) -> int:
        """Give a signed list of revocations to a repository; return its number.

        Raises:
            PublisherError: no root that is trusted here signed it, or it is refused.
            RepositoryError: the repository refuses it.
        """
        with needs_extra("registry"):
            from skillhouse.registry.trust_anchors import AnchorStore  # noqa: PLC0415
        data = _read(file, REVOCATIONS_MAX)
        trusted = AnchorStore(self._config.state_directory / registry.TRUSTED_DIRECTORY)
        arguments = {"repository": settings.name, "digest": digest(data)}
        with recorded(self._log, "push-revocations", arguments):
            # Taken over here as well: whoever revokes is the first for whom it holds.
            taken = trusted.add_list(data, datetime.now(UTC))
            repository = self.repositories.opened(settings)
            repository.send("PUT", REVOCATIONS_FILE, data, headers=_JSON)
        return taken.content.number

    def _changed(
        self, settings: RepositorySettings, method: str, path: str, value: dict[str, str]
    ) -> Release:
        repository = self.repositories.opened(settings)
        answer = repository.send(method, path, json.dumps(value).encode(), headers=_JSON)
        return _release(answer.body, repository)


_JSON = {"Content-Type": "application/json"}


class _NoSignatures(PublisherCheck):
    """Takes no signature for one: those are looked at by themselves."""

    def publisher_of(
        self, directory: Path, tree: Tree, *, facts: SkillFacts | None = None, repository: str = ""
    ) -> None:
        return None


def _check(archive: bytes, place: Path, facts: SkillFacts) -> None:
    """Refuse what the repository would refuse, but for signatures, which were looked at."""
    if not is_version(facts.version):
        message = 'expected a version in SKILL.md (`metadata:` with `version: "1.0.0"`)'
        raise PublishError(f"{message}, got {facts.version[:40]!r}")
    place.mkdir()
    checks = PublishChecks(_NoSignatures(place), registry="")
    try:
        checks.check(archive, place, skill=facts.name, version=facts.version)
    except HostingError as error:
        raise PublishError(f"{error.code}: {error}") from error


def _path_of(name: str, version: str) -> str:
    namespace, skill = registry.split_name(name)
    if not is_version(version):
        raise PublishError(f"expected NAME@VERSION, got the version {version[:80]!r}")
    return f"skills/{registry.address_name(namespace, skill)}/{quote(version)}"


def _arguments(package: PreparedPackage) -> dict[str, object]:
    return {
        "name": package.typed,
        "version": package.facts.version,
        "repository": package.settings.name,
        "digest": package.digest,
    }


def _bundles(files: Sequence[Path], archive: str) -> Iterator[bytes]:
    """Yield the bundles of files, each over the archive that is published; PublishError."""
    count = 0
    for file in files:
        data = _read(file, ATTESTATION_MAX * ATTESTATIONS_MAX)
        # `gh attestation download` writes one bundle on each line.
        lines = [line for line in data.splitlines() if line.strip()]
        is_listed = len(lines) > 1 and all(line.endswith(b"}") for line in lines)
        for bundle in lines if is_listed else [data]:
            count += 1
            if count > ATTESTATIONS_MAX:
                raise PublishError(f"expected at most {ATTESTATIONS_MAX} attestations")
            try:
                read_attestation(bundle, archive)
            except AttestationError as error:
                raise PublishError(f"the attestation `{file}`: {error}") from error
            yield bundle


def _release(data: bytes, repository: Repository) -> Release:
    try:
        return shaped(strict_document(data, "the answer"), Release)
    except DecodeError as error:
        raise RepositoryError("document", f"`{repository.address}`: {error}") from error


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise PublishError(f"expected at most {most} bytes: `{path}`")
    return data


def _archive_at(path: Path) -> bytes:
    if not path.is_file():
        raise PublishError(f"expected a skill's directory or its archive, got `{path}`")
    return _read(path, ARCHIVE_MAX)


@contextmanager
def _unpacked(archive: bytes) -> Iterator[Path]:
    top = Path(tempfile.mkdtemp(prefix="skillhouse-"))
    try:
        write_members(read_archive(archive), top / "skill")
        yield top / "skill"
    finally:
        shutil.rmtree(top)


def _facts(place: Path) -> SkillFacts:
    try:
        return registry.read_facts(place, place.name)
    except SkillError as error:
        raise PublishError(f"{error.code}: {error}".replace(f": `{place}`", "")) from error

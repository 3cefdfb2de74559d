"""Opens the signed documents of a repository whose root is pinned in the configuration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from skillhouse.floor import ConfigError, digest, needs_extra, read_regular
from skillhouse.house.config import RepositorySettings
from skillhouse.registry import PublisherError, Repository, RepositoryError
from skillhouse.registry.owners import PUBLISHERS_FILE
from skillhouse.registry.repository import RepositoryAccess, SignedDocuments

SEEN = "repositories"
"""The directory of the state with what was last seen of each repository."""
_ROOT_MAX = 512_000

OpenSigned = Callable[[str, RepositoryAccess], SignedDocuments]
"""Opens the signed documents at an address."""


def signed_by_root(settings: RepositorySettings, state_directory: Path) -> OpenSigned | None:
    """Return the way to what the pinned root of a repository signed; None where none is pinned.

    Raises:
        ConfigError: the file of the root cannot be read.
        MissingExtraError: what checks it is not installed. Nothing is read without it.
    """
    if not settings.root:
        return None
    with needs_extra("registry"):
        # python-tuf is an optional part, which takes 0.1 s to load.
        from skillhouse.registry.signed_targets import SignedTargets  # noqa: PLC0415
    root = _root(settings)
    name = digest(root if isinstance(root, bytes) else root.encode()).rpartition(":")[2][:16]
    state = state_directory / SEEN / f"{settings.name}-{name}"

    def opened(address: str, access: RepositoryAccess) -> SignedDocuments:
        return SignedTargets(
            access, address=address, root=root, state=state, stale_days=settings.stale_days
        )

    return opened


def _root(settings: RepositorySettings) -> str | bytes:
    kind, _, name = settings.root.partition(":")
    if kind != "file":
        return settings.root
    path = Path(name).expanduser()
    try:
        return read_regular(path, _ROOT_MAX)
    except OSError as error:
        message = f"the root of `{settings.name}` cannot be read: {error.strerror}"
        raise ConfigError(message, path=path, key="skills.repositories") from error


def registry_name(settings: RepositorySettings, repository: Repository) -> str:
    """Return the registry that signatures must be for; empty where a repository does not say.

    Raises:
        RepositoryError: "identity", it calls itself otherwise than the configuration does.
    """
    document = repository.document()
    said = "" if document is None else document.name
    if settings.registry and said and said != settings.registry:
        message = f"repository `{settings.name}`: expected the registry `{settings.registry}`"
        raise RepositoryError("identity", f"{message}, it calls itself `{said}`")
    # INVARIANT: what the configuration says holds, also where the repository says nothing.
    return settings.registry or said


def take_publishers(settings: RepositorySettings, repository: Repository, trusted: Path) -> None:
    """Trust the root certificates of publishers that a pinned root vouches for.

    Raises:
        PublisherError: they are none, or those of another registry.
        RepositoryError: as of reading.
    """
    data = repository.signed.read(PUBLISHERS_FILE) if repository.signed else None
    if data is None:
        return
    with needs_extra("registry"):
        from skillhouse.registry import AnchorStore, certificates  # noqa: PLC0415
    name = registry_name(settings, repository)
    store = AnchorStore(trusted)
    known = store.read(datetime.now(UTC)).roots
    for certificate in certificates.load_certificates(data):
        found = certificates.check_root(certificate).registry
        if found != name:
            message = f"the root of `{settings.name}` vouches for publishers of `{found}`"
            raise PublisherError("trust", f"{message}, and it is `{name}`")
        if certificate not in known:
            store.add_root(certificate)

"""Opens the signed documents of a repository whose root is pinned, and keeps pinned roots."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from skillhouse.floor import (
    ConfigError,
    ExposedError,
    digest,
    make_private,
    needs_extra,
    open_own,
    read_regular,
    write_atomically,
)
from skillhouse.house.config import RepositorySettings
from skillhouse.registry import TRUSTED_DIRECTORY, PublisherError, Repository, RepositoryError
from skillhouse.registry.freshness import SEEN
from skillhouse.registry.owners import PUBLISHERS_FILE
from skillhouse.registry.repository import RepositoryAccess, SignedDocuments

_KEPT = "repositories"
"""The directory of what is trusted with the roots that `keys trust` pinned."""
_ROOT_MAX = 512_000

OpenSigned = Callable[[str, RepositoryAccess], SignedDocuments]
"""Opens the signed documents at an address."""


def signed_by_root(settings: RepositorySettings, state_directory: Path) -> OpenSigned | None:
    """Return the way to what the pinned root of a repository signed; None where none is pinned.

    Raises:
        ConfigError: the file of the root cannot be read.
        MissingExtraError: what checks it is not installed. Nothing is read without it.
    """
    root = _root(settings) if settings.root else kept_root(settings.name, state_directory)
    if not root:
        return None
    with needs_extra("registry"):
        # python-tuf is an optional part, which takes 0.1 s to load.
        from skillhouse.registry.signed_targets import SignedTargets  # noqa: PLC0415
    name = digest(root if isinstance(root, bytes) else root.encode()).rpartition(":")[2][:16]
    state = state_directory / SEEN / f"{settings.name}-{name}"

    def opened(address: str, access: RepositoryAccess) -> SignedDocuments:
        return SignedTargets(
            access, address=address, root=root, state=state, stale_days=settings.stale_days
        )

    return opened


def kept_root(name: str, state_directory: Path) -> bytes:
    """Return the root that `keys trust` pinned for a repository; nothing where it did not.

    Raises:
        PublisherError: "trust", the file of it cannot be used.
    """
    path = _kept(state_directory) / f"{name}.json"
    try:
        with os.fdopen(open_own(path), "rb") as file:
            return file.read(_ROOT_MAX)
    except FileNotFoundError:
        return b""
    except (ExposedError, OSError) as error:
        # INVARIANT: a pin that cannot be read is no missing pin: that repository is refused.
        raise PublisherError("trust", f"the root of `{name}` cannot be used: {error}") from error


def keep_root(settings: RepositorySettings, data: bytes, state_directory: Path) -> None:
    """Pin the root of a repository on this machine, in place of an older pin.

    Raises:
        PublisherError: "trust", the configuration pins one, which counts.
    """
    if settings.root:
        message = f"the configuration pins the root of `{settings.name}`: change it there"
        raise PublisherError("trust", message)
    make_private(_kept(state_directory))
    with write_atomically(_kept(state_directory) / f"{settings.name}.json", durable=True) as file:
        file.write(data)


def kept_roots(state_directory: Path) -> dict[str, str]:
    """Return the digest of each root that `keys trust` pinned, by the repository's name."""
    names = sorted(path.stem for path in _kept(state_directory).glob("*.json"))
    return {name: digest(kept_root(name, state_directory)) for name in names}


def forget_roots(text: str, state_directory: Path) -> int:
    """Forget the pinned roots whose digest begins so; return how many."""
    start = text.lower().removeprefix("sha256:")
    found = [
        name
        for name, known in kept_roots(state_directory).items()
        if len(start) >= 8 and known.removeprefix("sha256:").startswith(start)
    ]
    for name in found:
        (_kept(state_directory) / f"{name}.json").unlink(missing_ok=True)
        with needs_extra("registry"):
            from skillhouse.registry import AnchorStore  # noqa: PLC0415 - as below.
        # Nothing vouches for them any more.
        AnchorStore(state_directory / TRUSTED_DIRECTORY).take_vouched(name, ())
    return len(found)


def _kept(state_directory: Path) -> Path:
    return state_directory / TRUSTED_DIRECTORY / _KEPT


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
    """Trust the root certificates of publishers that a pinned root vouches for, and those alone.

    One that it does not vouch for any more is forgotten, unless a person trusts it by hand.

    Raises:
        PublisherError: they are none, or those of another registry.
        RepositoryError: as of reading.
    """
    if repository.signed is None:
        return
    data = repository.signed.read(PUBLISHERS_FILE)
    if data is None and not (trusted / "roots").is_dir():
        return
    with needs_extra("registry"):
        from skillhouse.registry import AnchorStore, certificates  # noqa: PLC0415
    name = registry_name(settings, repository)
    given = certificates.load_certificates(data) if data else []
    for certificate in given:
        found = certificates.check_root(certificate).registry
        if found != name:
            message = f"the root of `{settings.name}` vouches for publishers of `{found}`"
            raise PublisherError("trust", f"{message}, and it is `{name}`")
    AnchorStore(trusted).take_vouched(settings.name, given)

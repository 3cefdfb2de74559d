"""The documents of a repository of packages: one form for server and client.

The documents are untrusted wherever they are from: `decode_skill` checks every part that becomes a
path, an address or a word in a terminal.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from skillhouse.floor import DecodeError, shaped, structs
from skillhouse.floor.documents import json_value
from skillhouse.registry.attestations import check_listed
from skillhouse.registry.lock import LockedSignature
from skillhouse.skill import validate_name

DEFAULT_NAMESPACE = "default"
_LOCKED = re.compile(r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)(?:/@(?P<namespace>[a-z0-9-]+))?")
DOCUMENT_MAX = 4 * 1024 * 1024
"""Bytes of one document: 5,000 versions of a skill take about 3 MB."""
VERSIONS_MAX = 5_000
"""Versions of one skill."""
REPOSITORY_FILE = "registry.json"
REVOCATIONS_FILE = "revocations.json"
RESERVED_VERSIONS = frozenset({"versions", "channels", "reports", "latest"})
"""Words that are part of an address where a version can be."""

State = Literal["published", "yanked", "revoked"]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_TREE = re.compile(r"skilltree1:[0-9a-f]{64}")


class RepositoryDocument(Struct, frozen=True, kw_only=True):
    """`registry.json`: what a repository is."""

    api: int
    """1."""
    name: str
    """What certificates call it: `skill://NAME/publisher/HANDLE`."""


class Release(Struct, frozen=True, kw_only=True):
    """One version of a skill, which never changes but in its state."""

    version: str
    digest: str
    """`sha256:` of the archive's bytes."""
    tree_digest: str
    size: int
    """Bytes of the archive."""
    published_at: str
    """ISO 8601, UTC."""
    files: int = 0
    state: State = "published"
    """A yanked version is installed from a lock only, a revoked one never."""
    reason: str = ""
    """Why it was yanked or revoked."""
    signature: LockedSignature | None = None
    """What the server found in its `skill.sig`; a client checks for itself."""
    media_type: str = "application/gzip"
    """Or application/zip."""
    attestations: tuple[str, ...] = ()
    """`sha256:` of each Sigstore bundle that was published with it, over this archive."""


class SkillReleases(Struct, frozen=True, kw_only=True):
    """A skill with its versions, newest first: `GET /skills/{name}`, and its file in the index."""

    name: str
    """As addresses have it: `pdf`, or `acme--pdf` of the namespace `acme`."""
    namespace: str
    skill: str
    """The name in its SKILL.md."""
    description: str
    latest: str
    """The newest version that is published and no pre-release; empty where there is none."""
    versions: tuple[Release, ...]
    license: str = ""
    channels: Mapping[str, str] | None = None
    """Other names of versions."""

    @property
    def typed(self) -> str:
        """The name as a person types it: `pdf`, or `@acme/pdf`."""
        return typed_name(self.namespace, self.skill)


def address_name(namespace: str, skill: str) -> str:
    """Return the name of a skill in addresses.

    >>> address_name("default", "pdf"), address_name("acme", "pdf")
    ('pdf', 'acme--pdf')
    """
    return skill if namespace == DEFAULT_NAMESPACE else f"{namespace}--{skill}"


def typed_name(namespace: str, skill: str) -> str:
    """Return the name of a skill as a person types it.

    >>> typed_name("default", "pdf"), typed_name("acme", "pdf")
    ('pdf', '@acme/pdf')
    """
    return skill if namespace == DEFAULT_NAMESPACE else f"@{namespace}/{skill}"


def locked_place(text: str) -> tuple[str, str] | None:
    """Return the repository and the namespace that a lock has; None for any other source.

    >>> locked_place("official/@acme"), locked_place("https://github.com/acme/skills")
    (('official', 'acme'), None)
    """
    match = _LOCKED.fullmatch(text)
    if match is None:
        return None
    return match["name"], match["namespace"] or DEFAULT_NAMESPACE


def locked_name(repository: str, namespace: str) -> str:
    """Return what a lock has as the repository of a skill.

    >>> locked_name("official", "default"), locked_name("official", "acme")
    ('official', 'official/@acme')
    """
    return repository if namespace == DEFAULT_NAMESPACE else f"{repository}/@{namespace}"


def split_name(text: str) -> tuple[str, str]:
    """Return the namespace and the skill of `pdf`, `acme--pdf` or `@acme/pdf`.

    >>> split_name("pdf"), split_name("acme--pdf"), split_name("@acme/pdf")
    (('default', 'pdf'), ('acme', 'pdf'), ('acme', 'pdf'))

    Raises:
        DecodeError: it is no such name. Neither part can hold `--`, so a name has one reading.
    """
    if text.startswith("@"):
        namespace, _, skill = text[1:].partition("/")
    elif "--" in text:
        namespace, _, skill = text.partition("--")
    else:
        namespace, skill = DEFAULT_NAMESPACE, text
    for part in (namespace, skill):
        if validate_name(part, directory=part):
            raise DecodeError(f"no name of a skill: {text[:80]!r}")
    return namespace, skill


def index_path(namespace: str, skill: str) -> str:
    """Return where the document of a skill is below a repository's address.

    In directories of which each holds few, whatever the names are.

    >>> index_path("default", "pdf")
    'index/c0/12/default/pdf.json'
    """
    name = hashlib.sha256(f"{namespace}/{skill}".encode()).hexdigest()
    return f"index/{name[:2]}/{name[2:4]}/{namespace}/{skill}.json"


def blob_path(digest: str) -> str:
    """Return where an archive is below a repository's address.

    >>> blob_path("sha256:ab12")
    'blobs/sha256/ab/ab12'
    """
    name = digest.removeprefix("sha256:")
    return f"blobs/sha256/{name[:2]}/{name}"


def is_version(text: str) -> bool:
    """Return whether a text can be a version in an address and in the name of a file."""
    return _VERSION.fullmatch(text) is not None and text not in RESERVED_VERSIONS


def encode_document(value: RepositoryDocument | Release | SkillReleases) -> bytes:
    """Return a document as JSON with sorted keys: equal values give equal bytes."""
    text = json.dumps(structs.asdict(value), sort_keys=True, ensure_ascii=False)
    return f"{text}\n".encode()


def strict_document(data: bytes, what: str) -> Any:
    """Return the JSON of a document, as `json_value` reads it.

    Raises:
        DecodeError: it is larger than `DOCUMENT_MAX`, or no such JSON.
    """
    if len(data) > DOCUMENT_MAX:
        raise DecodeError(f"expected a document of at most {DOCUMENT_MAX} bytes")
    try:
        # One odd name of a list costs no other: what reads an entry judges its texts.
        return json_value(data, with_nul=True)
    except DecodeError as error:
        raise DecodeError(f"{what} is no JSON: {str(error)[:120]}") from error


def decode_repository(data: bytes) -> RepositoryDocument:
    """Return what a repository says of itself.

    Raises:
        DecodeError: it is no such document, or one of another protocol.
    """
    found = shaped(strict_document(data, f"`{REPOSITORY_FILE}`"), RepositoryDocument)
    if found.api != 1:
        raise DecodeError(f"expected `api` 1, got {found.api}: use a newer skillhouse")
    if not _NAME.fullmatch(found.name):
        raise DecodeError(f"no name of a repository: {found.name[:80]!r}")
    return found


def decode_skill(data: bytes, *, namespace: str, skill: str) -> SkillReleases:
    """Return the document of a skill that was asked for.

    Raises:
        DecodeError: it is none, or that of another skill.
    """
    value = strict_document(data, f"the document of `{skill}`")
    return checked_skill(value, namespace=namespace, skill=skill)


def checked_skill(value: object, *, namespace: str, skill: str) -> SkillReleases:
    """Return plain values as the document of a skill that was asked for; errors likewise."""
    found = shaped(value, SkillReleases)
    if (found.namespace, found.skill) != (namespace, skill):
        said = address_name(found.namespace, found.skill)[:80]
        expected = address_name(namespace, skill)
        raise DecodeError(f"expected the versions of `{expected}`, got those of {said!r}")
    if found.name != address_name(namespace, skill):
        raise DecodeError(f"expected the name `{address_name(namespace, skill)}`")
    if len(found.versions) > VERSIONS_MAX:
        raise DecodeError(f"expected at most {VERSIONS_MAX} versions")
    seen: set[str] = set()
    for release in found.versions:
        _check(release, seen)
    for channel, version in (found.channels or {}).items():
        if not is_version(version) or not (is_version(channel) or channel == "latest"):
            raise DecodeError(f"no channel: {channel[:80]!r}")
    return found


def _check(release: Release, seen: set[str]) -> None:
    if not is_version(release.version):
        raise DecodeError(f"no version: {release.version[:80]!r}")
    if release.version in seen:
        raise DecodeError(f"version {release.version} is there twice")
    seen.add(release.version)
    if not _SHA256.fullmatch(release.digest) or not _TREE.fullmatch(release.tree_digest):
        raise DecodeError(f"version {release.version}: expected sha256:… and skilltree1:…")
    if release.size < 0 or release.files < 0:
        raise DecodeError(f"version {release.version}: expected a size of 0 or more")
    check_listed(release.attestations)

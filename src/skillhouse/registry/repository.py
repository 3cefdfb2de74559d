"""Reads a repository of packages: its documents and archives.

It is reached by requests over HTTP that a caller makes, or is a mirror: files of a directory.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

from msgspec import Struct, field

from skillhouse.floor import DecodeError, PathError, SkillhouseError, digest, read_beneath, shaped
from skillhouse.registry.attestations import (
    ATTESTATION_MAX,
    AttestationError,
    attestation_path,
    check_attestation,
)
from skillhouse.registry.owners import OWNERS_FILE, decode_owners
from skillhouse.registry.releases import (
    DOCUMENT_MAX,
    REPOSITORY_FILE,
    REVOCATIONS_FILE,
    Release,
    RepositoryDocument,
    SkillReleases,
    address_name,
    blob_path,
    checked_skill,
    decode_repository,
    index_path,
    split_name,
    strict_document,
    typed_name,
)
from skillhouse.registry.trust import SIGNATURE_MAX
from skillhouse.skill import ARCHIVE_MAX, ArchiveError

DETAIL_MAX = 300
"""Characters of a server's explanation that are shown."""
REFUSALS = {
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    413: "too-large",
    429: "rate-limited",
}
"""Codes of answers that carry none."""
LISTED_MAX = 1_000_000
"""Skills of one repository that are listed."""
PAGE = 200
"""Skills of one page of a list."""
LISTS = "index/list"
"""Where a mirror has pages of its skills."""
WELL_KNOWN = ".well-known/agent-skills/index.json"


class RepositoryError(SkillhouseError):
    """A repository refused a request, or gave what cannot be used; `code` says why.

    The codes are those of the protocol, and ours: "document" (not what was asked for),
    "unreachable", "mirror" (a directory takes nothing), "ambiguous", "not-configured".
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 0,
        digest: str = "",
        nearest: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.nearest = nearest
        """Of "unknown-skill": names that may have been meant, best first."""
        self.digest = digest
        """Of "version-exists": of the archive that has the version."""


class RepositoryAnswer(Struct, frozen=True, kw_only=True):
    """What came back for one request."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in lower case."""


class RepositoryAccess(Protocol):
    """Makes one request to a repository.

    `path` is relative to its address, and may have a query. Where an answer may come from is
    decided here: a document only from the repository itself.
    """

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        """Return the answer, whatever its status; RepositoryError or NetError without one."""


class SignedDocuments(Protocol):
    """Reads documents that a pinned root leads to, all of one state."""

    @property
    def warning(self) -> str:
        """What a person should know of their age; empty for nothing."""

    @property
    def version(self) -> int:
        """The number of the state that is read, which never falls; 0 before the first read."""

    def read(self, path: str) -> bytes | None:
        """Return a document, None where none of that name is signed; RepositoryError."""


class DirectoryAccess:
    """Reads a repository that is a directory: a mirror. Links in it are refused."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        if method != "GET":
            message = f"`{self._directory}` is a directory, which takes nothing: name a server"
            raise RepositoryError("mirror", message)
        if not self._directory.is_dir():
            raise RepositoryError("unreachable", f"no directory `{self._directory}`")
        try:
            data = read_beneath(self._directory, path.partition("?")[0], max_bytes=max_bytes)
        except PathError as error:
            if error.code in ("not-found", "not-a-file"):
                return RepositoryAnswer(status=404)
            message = f"refused file in `{self._directory}`: {error.code}: {error.relative!r}"
            raise RepositoryError("document", message) from error
        if len(data) > max_bytes:
            message = f"expected at most {max_bytes} bytes at `{path}` in `{self._directory}`"
            raise RepositoryError("too-large", message)
        return RepositoryAnswer(status=200, body=data)


def directory_of(address: str) -> Path | None:
    """Return the directory of `file:///dir` or of an absolute path; None for a server.

    >>> directory_of("file:///srv/my%20mirror"), directory_of("https://example.com")
    (PosixPath('/srv/my mirror'), None)
    """
    if address.startswith("file://"):
        return Path(os.path.normpath(unquote(urlsplit(address).path)))
    return Path(address) if address.startswith("/") else None


def check_answer(answer: RepositoryAnswer, what: str) -> None:
    """Raise the RepositoryError of an answer that is no success."""
    if 200 <= answer.status < 300:
        return
    code = REFUSALS.get(answer.status, "unreachable" if answer.status >= 500 else "bad-request")
    detail = digest = ""
    if "json" in answer.headers.get("content-type", ""):
        try:
            problem = strict_document(answer.body, "the answer")
        except DecodeError:
            # A refusal stays one, whatever it says.
            problem = None
        if isinstance(problem, dict):
            detail = _text(problem.get("detail")) or _text(problem.get("title"))
            code = _text(problem.get("code"))[:40] or code
            digest = _text(problem.get("digest"))
    wait = answer.headers.get("retry-after", "")
    if wait.isdigit():
        detail = f"{detail}, try again in {wait} s" if detail else f"try again in {wait} s"
    said = f": {detail}" if detail else ""
    message = f"{what}: status {answer.status}{said}"
    raise RepositoryError(code, message, status=answer.status, digest=digest)


def _text(value: object) -> str:
    """Return a server's text as one line; nothing where it is none."""
    if not isinstance(value, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:DETAIL_MAX]


class ListedSkill(Struct, frozen=True, kw_only=True):
    """One line of a repository's list; all of it is the repository's word."""

    name: str
    """As addresses have it."""
    description: str = ""
    latest: str = ""
    license: str = ""
    publisher: str = ""
    updated_at: str = ""

    @property
    def typed(self) -> str:
        """The name as a person types it: `pdf`, or `@acme/pdf`."""
        return typed_name(*split_name(self.name))


class _Page(Struct, frozen=True, kw_only=True):
    skills: tuple[dict[str, Any], ...]
    next_cursor: str | None = None


class Repository:
    """One repository; each document is read once."""

    def __init__(
        self, address: str, access: RepositoryAccess, signed: SignedDocuments | None = None
    ) -> None:
        """Take the address for messages and for `resolved`, and the way to what is below it.

        Args:
            signed: Gives the documents of a repository whose root is pinned: then no other counts.
        """
        self.address = address.rstrip("/")
        self.signed = signed
        self._access = access
        self._document: tuple[RepositoryDocument | None] | None = None
        self._skills: dict[tuple[str, str], SkillReleases | None] = {}

    def read(self, path: str, max_bytes: int = DOCUMENT_MAX) -> bytes | None:
        """Return what is at a path below the address; None where nothing is.

        Raises:
            RepositoryError, NetError: it is refused, or cannot be had.
        """
        answer = self._access(path, max_bytes)
        if answer.status in (404, 410):
            return None
        check_answer(answer, f"`{self.address}/{path}`")
        return answer.body

    def _read_document(self, path: str, max_bytes: int = DOCUMENT_MAX) -> bytes | None:
        # INVARIANT: where a root is pinned, nothing that it does not lead to says what is current.
        return self.read(path, max_bytes) if self.signed is None else self.signed.read(path)

    def owners(self, namespace: str, skill: str) -> tuple[str, ...] | None:
        """Return the publishers of a name, none while it is unclaimed; None without a root."""
        if self.signed is None:
            return None
        data = self.signed.read(OWNERS_FILE)
        if data is None:
            raise RepositoryError("signed", f"`{self.address}` does not say whose its names are")
        with _of(self.address):
            return decode_owners(data).of(namespace, skill)

    def document(self) -> RepositoryDocument | None:
        """Return what the repository says of itself; None for one of the published routes only."""
        if self._document is None:
            data = self._read_document(REPOSITORY_FILE)
            if data is None and self.signed is not None:
                raise RepositoryError("signed", f"`{self.address}` does not say which it is")
            with _of(self.address):
                self._document = (None if data is None else decode_repository(data),)
        return self._document[0]

    def skill(self, namespace: str, skill: str) -> SkillReleases | None:
        """Return the versions of a skill; None where the repository has none of that name.

        Raises:
            RepositoryError: "document", it is of another skill or none; others as of `read`.
        """
        key = namespace, skill
        if key not in self._skills:
            self._skills[key] = self._skill(namespace, skill)
        return self._skills[key]

    def _skill(self, namespace: str, skill: str) -> SkillReleases | None:
        data = self._read_document(index_path(namespace, skill))
        if data is None and self.document() is not None:
            return None
        name = address_name(namespace, skill)
        with _of(self.address):
            if data is not None:
                value = strict_document(data, f"the document of `{name}`")
                return checked_skill(value, namespace=namespace, skill=skill)
            return self._published(name, namespace, skill)

    def _published(self, name: str, namespace: str, skill: str) -> SkillReleases | None:
        """Read the published routes, where the versions may have one of their own."""
        data = self.read(f"skills/{name}")
        if data is None:
            return None
        value = strict_document(data, f"the document of `{name}`")
        if isinstance(value, dict) and "versions" not in value:
            listed = self.read(f"skills/{name}/versions")
            found = strict_document(listed or b"{}", f"the versions of `{name}`")
            if not isinstance(found, dict) or found.get("name") != name:
                raise DecodeError(f"expected the versions of `{name}`")
            value = {**value, "versions": found.get("versions")}
        return checked_skill(value, namespace=namespace, skill=skill)

    def resolved(self, skill: SkillReleases, release: Release) -> str:
        """Return the address of an archive, as the lock has it."""
        return f"{self.address}/skills/{skill.name}/{quote(release.version)}"

    def archive(self, skill: SkillReleases, release: Release) -> bytes:
        """Return the exact bytes of a version.

        Raises:
            ArchiveError: "digest", they are others; nothing of them was read.
            RepositoryError: "unknown-version", they are not there; others as of `read`.
        """
        path = blob_path(release.digest)
        if self.document() is None:
            path = f"skills/{skill.name}/{quote(release.version)}"
        data = self.read(path, min(ARCHIVE_MAX, release.size))
        if data is None:
            message = f"`{self.address}` has no archive of `{skill.name}` {release.version}"
            raise RepositoryError("unknown-version", message, status=404)
        check_archive(data, release.digest)
        return data

    def attestation(self, digest: str) -> bytes:
        """Return the exact bytes of a bundle that the document of a skill names.

        Raises:
            AttestationError: "bundle", they are others, or not there.
            RepositoryError, NetError: as of `read`.
        """
        data = self.read(attestation_path(digest), ATTESTATION_MAX)
        if data is None:
            raise AttestationError("bundle", f"`{self.address}` does not have {digest}")
        check_attestation(data, digest)
        return data

    def revocations(self) -> bytes | None:
        """Return the list of what is revoked as it is, still to be checked; None without one."""
        return self._read_document(REVOCATIONS_FILE, SIGNATURE_MAX)

    def listed(self, text: str = "", *, limit: int = LISTED_MAX) -> Iterator[ListedSkill]:
        """Yield the skills that fit a text, best first; without one all of them, by name.

        A mirror has no search: there the names and descriptions are compared.
        """
        pages = self._pages(text)
        first = next(pages, None)
        if first is None:
            yield from itertools.islice(self._fitting(text), limit)
        else:
            yield from itertools.islice(
                itertools.chain(first, itertools.chain.from_iterable(pages)), limit
            )

    def _pages(self, text: str) -> Iterator[tuple[ListedSkill, ...]]:
        cursor: str | None = None
        cursors: set[str] = set()
        while True:
            asked = {"q": text, "cursor": cursor or "", "limit": str(PAGE)}
            query = urlencode({key: value for key, value in asked.items() if value})
            data = self.read(f"skills?{query}")
            if data is None:
                return
            with _of(self.address):
                page = shaped(strict_document(data, "the list of skills"), _Page)
                found = tuple(_listed(page.skills))
            yield found
            cursor = page.next_cursor
            if not cursor or not page.skills:
                return
            if cursor in cursors or len(cursors) * PAGE > LISTED_MAX:
                raise RepositoryError("document", f"the list at `{self.address}` has no end")
            cursors.add(cursor)

    def _fitting(self, text: str) -> Iterator[ListedSkill]:
        words = text.casefold().split()
        for one in self._files():
            if all(word in f"{one.typed} {one.description}".casefold() for word in words):
                yield one

    def _files(self) -> Iterator[ListedSkill]:
        """Yield what the lists of a mirror have, or the list of any server of skills."""
        path: str | None = f"{LISTS}/1.json"
        number = 0
        while path:
            data = self.read(path)
            if data is None and number == 0:
                path, data = WELL_KNOWN, self.read(WELL_KNOWN)
            if data is None:
                raise RepositoryError("not-found", f"`{self.address}` lists no skills", status=404)
            with _of(self.address):
                page = shaped(strict_document(data, "the list of skills"), _Page)
                yield from list(_listed(page.skills))
            number += 1
            if number * PAGE > LISTED_MAX:
                raise RepositoryError("document", f"the list at `{self.address}` has no end")
            is_last = page.next_cursor != str(number + 1) or path == WELL_KNOWN
            path = None if is_last else f"{LISTS}/{number + 1}.json"

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        max_bytes: int = DOCUMENT_MAX,
    ) -> RepositoryAnswer:
        """Change something in a repository; RepositoryError where it refuses."""
        answer = self._access(path, max_bytes, method=method, headers=headers, body=body)
        check_answer(answer, f"`{self.address}/{path.partition('?')[0]}`")
        return answer


def check_archive(data: bytes, expected: str) -> None:
    """Refuse other bytes than those of a digest; ArchiveError `digest`."""
    # INVARIANT: nothing of an archive is read before its digest is known to be the right one.
    if digest(data) != expected:
        message = f"expected {expected}, got {digest(data)}: nothing was unpacked"
        raise ArchiveError("digest", message)


def _listed(entries: tuple[dict[str, Any], ...]) -> Iterator[ListedSkill]:
    """Yield the entries that can be used; a bad one costs no other."""
    for entry in entries:
        try:
            found = shaped(entry, ListedSkill)
            split_name(found.name)
        except DecodeError:
            continue
        yield found


@contextmanager
def _of(address: str) -> Iterator[None]:
    """Say from where a document is that cannot be used."""
    try:
        yield
    except DecodeError as error:
        raise RepositoryError("document", f"`{address}`: {error}") from error

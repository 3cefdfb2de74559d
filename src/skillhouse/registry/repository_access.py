"""The ways to a repository: requests over HTTP that a caller makes, or files of a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from skillhouse.floor import DecodeError, PathError, SkillhouseError, dataclass, read_beneath
from skillhouse.registry.releases import strict_document

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


class RepositoryError(SkillhouseError):
    """A repository refused a request, or gave what cannot be used; `code` says why.

    The codes are those of the protocol, and ours: "document" (not what was asked for),
    "unreachable", "mirror" (a directory takes nothing), "ambiguous", "not-configured".
    """

    def __init__(self, code: str, message: str, *, status: int = 0, digest: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.digest = digest
        """Of "version-exists": of the archive that has the version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryAnswer:
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

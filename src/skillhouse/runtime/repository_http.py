"""The way to a repository of packages over HTTP, with its token and within the network's rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from skillhouse import net
from skillhouse.floor import ConfigError, PathError, make_private, read_beneath
from skillhouse.registry import (
    DirectoryAccess,
    Repository,
    RepositoryAnswer,
    RepositoryError,
    directory_of,
)
from skillhouse.runtime.network import Network

PART_BYTES = 4 * 1024 * 1024
"""Of an archive; of one that is larger a broken connection costs one part."""
TRIES = 3
"""How often one part is asked for."""

_CREDENTIAL = "repository-token"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LARGE = ("blobs/", "skills/")
"""Paths of which a person sees that they are read: the others are small."""


class HttpAccess:
    """Makes the requests to one repository.

    Documents come from its own origin only. An archive may come from any public host over https:
    its digest is known before. The token goes to the repository alone.
    """

    def __init__(
        self,
        network: Network,
        address: str,
        *,
        token: str = "",
        report: Callable[[str], None] = lambda _: None,
        partial: Path | None = None,
    ) -> None:
        """Take the address and, of a repository that wants one, the token.

        Args:
            partial: Where parts of large archives are kept, so that a download goes on where it
                was cut off; without it none is.

        Raises:
            ConfigError: the token would be sent without encryption to another machine.
            NetError: the address is none.
        """
        target = net.parse_url(address)
        if token and target.scheme == "http" and target.host not in _LOOPBACK:
            message = f"the token of `{address}` is not sent without encryption: use https"
            raise ConfigError(message, key="skills.repositories")
        self._address = address.rstrip("/")
        self._network = network
        self._report = report
        self._partial = partial
        rule = net.HostRule(host=target.host, scheme=target.scheme, port=target.port, methods=None)
        self._secrets = (
            (net.SecretBinding(name=_CREDENTIAL, value=token, hosts=(str(rule),)),) if token else ()
        )

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        if path.startswith(_LARGE) and "?" not in path:
            self._report(f"{self._address}/{path}")
        if path.startswith("blobs/") and max_bytes > PART_BYTES and self._partial is not None:
            return self._in_parts(path, max_bytes, self._partial)
        return self._once(path, max_bytes, method=method, headers=headers or {}, body=body)

    def _in_parts(self, path: str, size: int, place: Path) -> RepositoryAnswer:
        """Return an archive of a known size; what of it is here already is not fetched again.

        Whether it is the right one is for the caller to say, by its digest: nothing is kept of a
        whole one.
        """
        make_private(place)
        file = place / hashlib.sha256(f"{self._address}/{path}".encode()).hexdigest()
        try:
            whole = bytearray(read_beneath(place, file.name, max_bytes=size))
        except PathError:
            whole = bytearray()
        while len(whole) < size:
            end = min(len(whole) + PART_BYTES, size) - 1
            part = self._part(path, size, {"Range": f"bytes={len(whole)}-{end}"})
            if part.status != 206:
                file.unlink(missing_ok=True)
                return part
            is_next = part.headers.get("content-range", "").startswith(f"bytes {len(whole)}-")
            if not part.body or not is_next:
                file.unlink(missing_ok=True)
                message = f"another part than was asked for: `{self._address}/{path}`"
                raise RepositoryError("document", message)
            whole += part.body
            with open(file, "ab") as out:
                out.write(part.body)
            self._report(f"{self._address}/{path}: {len(whole) >> 20} of {size >> 20} MiB")
        file.unlink(missing_ok=True)
        return RepositoryAnswer(status=200, body=bytes(whole))

    def _part(self, path: str, size: int, headers: Mapping[str, str]) -> RepositoryAnswer:
        """Return one part; a connection that breaks is tried again."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._once(path, size, method="GET", headers=headers)
            except net.NetError as error:
                if attempt == TRIES or error.refused or error.code == "too-large":
                    raise
        raise AssertionError("the last try returns or raises")

    def _once(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> RepositoryAnswer:
        url = f"{self._address}/{path}"
        own = {"Authorization": f"Bearer {{{{secret:{_CREDENTIAL}}}}}"} if self._secrets else {}

        async def exchange() -> net.HttpResponse:
            return await self._network.exchange(
                url,
                max_bytes,
                method=method,
                headers={**headers, **own},
                body=body,
                secrets=self._secrets,
                to_public=path.startswith("blobs/"),
            )

        response = anyio.run(exchange)
        names = {name.lower(): value for name, value in response.headers}
        return RepositoryAnswer(status=response.status, body=response.body, headers=names)


def repository_at(
    network: Network,
    address: str,
    *,
    token: str = "",
    report: Callable[[str], None] = lambda _: None,
    partial: Path | None = None,
) -> Repository:
    """Return the repository at an address: `https://…`, `file:///dir` or an absolute path.

    Raises:
        ConfigError: it is no address of a repository, or the token would be sent in clear.
    """
    if (directory := directory_of(address)) is not None:
        return Repository(directory.as_uri(), DirectoryAccess(directory))
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username:
        message = f"expected https://host/path or file:///dir of a repository, got {address[:80]!r}"
        raise ConfigError(message, key="skills.repositories")
    access = HttpAccess(network, address, token=token, report=report, partial=partial)
    return Repository(address, access)

"""The way to a repository of packages over HTTP, with its token and within the network's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import anyio

from skillhouse import net
from skillhouse.floor import ConfigError
from skillhouse.house.network import Network
from skillhouse.registry import (
    DirectoryAccess,
    Repository,
    RepositoryAnswer,
    directory_of,
)

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
        progress: net.Progress = lambda _done, _total: None,
    ) -> None:
        """Take the address and, of a repository that wants one, the token.

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
        self._progress = progress
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
        url = f"{self._address}/{path}"
        own = {"Authorization": f"Bearer {{{{secret:{_CREDENTIAL}}}}}"} if self._secrets else {}

        async def exchange() -> net.HttpResponse:
            return await self._network.exchange(
                url,
                max_bytes,
                method=method,
                headers={**(headers or {}), **own},
                body=body,
                secrets=self._secrets,
                digest=_digest_in(path),
                progress=self._progress,
            )

        response = anyio.run(exchange)
        names = {name.lower(): value for name, value in response.headers}
        return RepositoryAnswer(status=response.status, body=response.body, headers=names)


def _digest_in(path: str) -> str:
    """Return the digest of an archive that a path names; empty for other paths."""
    return f"sha256:{path.rpartition('/')[2]}" if path.startswith("blobs/") else ""


def repository_at(
    network: Network,
    address: str,
    *,
    token: str = "",
    report: Callable[[str], None] = lambda _: None,
    progress: net.Progress = lambda _done, _total: None,
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
    access = HttpAccess(network, address, token=token, report=report, progress=progress)
    return Repository(address, access)

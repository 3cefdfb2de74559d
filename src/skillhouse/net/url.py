"""Reads a URL once, strictly; what comes out is what is decided about and what is connected to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

import ssrfguard

from skillhouse.net.net_errors import NetError

URL_MAX = 2_048
"""Characters of a URL (reference "Proxied fetch")."""
DEFAULT_PORTS = {"http": 80, "https": 443}

_PATH_SAFE = "/%:@!$&'()*+,;=~-._?[]"
_LAST_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)
"""WHATWG "ends in a number": resolvers read such a name as an address."""
_NO_BLOCKS = ssrfguard.AddressTable(())
"""Refuses no address: those are judged where they are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a URL leads, in the one spelling that everything here compares."""

    scheme: str
    """"http" or "https"."""
    host: str
    """A name of lower-case ASCII without a dot at its end, or an address in its shortest form."""
    port: int
    path: str
    """What is asked for there: path and query, percent-encoded; begins with `/`."""

    @property
    def is_address(self) -> bool:
        return ":" in self.host or self.host.rpartition(".")[2].isdigit()

    @property
    def authority(self) -> str:
        """The host, with the port where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme and authority, to which rules apply."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> str:
        """The whole, without fragment."""
        return self.origin + self.path


def parse_url(text: str) -> Target:
    """Return where a URL leads.

    Refused are all schemes but http and https, a user before the host, blanks, control characters
    and backslashes, and every spelling of an address but the usual one. Letters beyond ASCII in
    the host become what the resolver would make of them (`ssrfguard`).

    Raises:
        NetError: "url-refused".

    >>> parse_url("HTTPS://Example.COM.:443/a?b#c").url
    'https://example.com/a?b'
    """
    if len(text) > URL_MAX:
        raise NetError("url-refused", f"expected a URL of at most {URL_MAX} characters")
    if "\\" in text or " " in text or not text.isprintable():
        raise NetError("url-refused", "expected a URL without backslashes, blanks and controls")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise NetError("url-refused", f"not a URL: {error}") from error
    scheme = parts.scheme
    if scheme not in DEFAULT_PORTS:
        raise NetError("url-refused", f"expected an http or https URL, got {scheme[:20]!r}")
    port = DEFAULT_PORTS[scheme] if port is None else port
    if port == 0:
        raise NetError("url-refused", "expected a port from 1 to 65535, got 0")
    reader = ssrfguard.Policy(
        allowed_ports=frozenset((port,)), denied_networks=_NO_BLOCKS, max_url_length=URL_MAX
    )
    try:
        checked = reader.check_url(text)
    except ssrfguard.SSRFGuardError as error:
        reason = getattr(error, "reason", "it cannot be read")
        raise NetError("url-refused", f"refused URL: {reason}") from error
    if "[" in parts.netloc and ":" not in checked.host:
        raise NetError("url-refused", "expected an IPv6 address in brackets")
    path = quote(parts.path or "/", safe=_PATH_SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=_PATH_SAFE)
    return Target(scheme=scheme, host=_host(checked), port=port, path=path)


def _host(checked: ssrfguard.Target) -> str:
    if checked.address is not None:
        if not checked.host_as_written.isascii():
            raise NetError(
                "url-refused", f"expected an address in ASCII digits: {checked.host_as_written}"
            )
        return str(ip_address(checked.host))
    host = checked.host.removesuffix(".")
    if _LAST_NUMBER.fullmatch(host):
        raise NetError("url-refused", f"expected a name or an address, got {host!r}")
    return host

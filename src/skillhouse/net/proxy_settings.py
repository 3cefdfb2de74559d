"""The proxy and the certificates that the environment names: for our connections, and for git's."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

from skillhouse.floor.structs import PartialStruct
from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import Target, parse_url

CA_VARIABLE = "SSL_CERT_FILE"
"""A file of certificates that are trusted besides those of the system, as OpenSSL names it."""
_DIRECT = "localhost,127.0.0.1,::1"


class Proxy(PartialStruct, frozen=True, kw_only=True):
    """A proxy that is asked in place of a server."""

    SECRET = frozenset({"authorization"})

    target: Target
    authorization: str = ""
    """The value of `Proxy-Authorization`; empty where the address has no user."""


def proxy_of(target: Target, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a target, as the variables say; None where there is none.

    Names in small letters come first, and this machine is never asked for through a proxy.

    Raises:
        NetError: "url-refused", the variable names none.
    """
    name, text = _setting(f"{target.scheme}_proxy", environment)
    if not text or _is_direct(target, _setting("no_proxy", environment)[1]):
        return None
    address = text if "://" in text else f"http://{text}"
    try:
        if "\\" in address:
            raise ValueError("a backslash")
        parts = urlsplit(address)
        user, _, host = parts.netloc.rpartition("@")
        found = parse_url(f"{parts.scheme}://{host}/")
    except (ValueError, NetError) as error:
        # INVARIANT: the address is not shown, as it may hold a password.
        message = f"expected `http://host:port` or `https://host:port` in the variable `{name}`"
        raise NetError("url-refused", message) from error
    authorization = ""
    if user:
        authorization = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    return Proxy(target=found, authorization=authorization)


def _setting(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    if text := environment.get(name, "").strip():
        return name, text
    upper = name.upper()
    # A server that runs this for a request puts the header `Proxy` there (CVE-2016-5385).
    is_request = upper == "HTTP_PROXY" and "REQUEST_METHOD" in environment
    return upper, "" if is_request else environment.get(upper, "").strip()


def _is_direct(target: Target, listed: str) -> bool:
    if target.is_address:
        if ip_address(target.host).is_loopback:
            return True
    elif target.host == "localhost" or target.host.endswith(".localhost"):
        return True
    return any(
        _covers(entry.strip().lower(), target) for entry in listed.split(",") if entry.strip()
    )


def _covers(entry: str, target: Target) -> bool:
    """Whether one entry of `NO_PROXY` names a target: a name, those below it, or a network."""
    if entry == "*":
        return True
    host, _, port = entry.rpartition(":")
    if entry.count(":") != 1 and "]:" not in entry:
        host, port = entry, ""
    if port and port != str(target.port):
        return False
    host = host.strip("[]").removeprefix("*").removeprefix(".")
    if not target.is_address:
        return target.host == host or target.host.endswith(f".{host}")
    try:
        return ip_address(target.host) in ip_network(host, strict=False)
    except ValueError:
        # A name: it covers no address.
        return False


def git_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what gives git the same proxy and certificates."""
    found = {}
    direct = _setting("no_proxy", environment)[1]
    for name in ("http_proxy", "https_proxy"):
        if text := _setting(name, environment)[1]:
            found[name] = text
            found["no_proxy"] = f"{direct},{_DIRECT}".lstrip(",")
    if "*" in direct.split(","):
        found["no_proxy"] = "*"
    if file := environment.get("GIT_SSL_CAINFO") or environment.get(CA_VARIABLE):
        found["GIT_SSL_CAINFO"] = file
    return found

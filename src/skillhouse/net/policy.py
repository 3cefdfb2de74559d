"""The rules of what may be reached: URLs, origins with their methods, private networks, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network
from urllib.parse import quote, urlsplit

import ssrfguard
from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.net.net_errors import METHODS, READING, NetError
from skillhouse.net.secret import SecretBinding, leaked

URL_MAX = 2_048
"""Characters of a URL (reference "Proxied fetch")."""
DEFAULT_PORTS = {"http": 80, "https": 443}

_PATH_SAFE = "/%:@!$&'()*+,;=~-._?[]"
_LAST_NUMBER = regex(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)
"""WHATWG "ends in a number": resolvers read such a name as an address."""
_NO_BLOCKS = ssrfguard.AddressTable(())
"""Refuses no address: those are judged where they are used."""


class Target(Struct, frozen=True, kw_only=True):
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
        return self.origin + self.path


def parse_url(text: str) -> Target:
    """Return where a URL leads ("url-refused").

    Refused are all schemes but http and https, a user before the host, blanks, control characters
    and backslashes, and every spelling of an address but the usual one. Letters beyond ASCII in
    the host become what the resolver would make of them (`ssrfguard`).

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


_RULE = regex(
    r"(?:(?P<methods>\*|[A-Za-z]+(?:,[A-Za-z]+)*) )?(?:(?P<scheme>https?)://)?"
    r"(?P<wild>\*\.)?(?P<host>\*|\[[0-9a-fA-F:.]+\]|[^/\s:@*?#\[\]]+)(?::(?P<port>[0-9]{1,5}|\*))?/?"
)


class HostRule(Struct, frozen=True, kw_only=True):
    """One origin, or the names below one, that may be reached by these methods."""

    host: str
    """A name or address, exactly; `*.` before a name means each name below it and not itself; `*`
    alone is every name, and no address."""
    scheme: str = "https"
    port: int | None = 443
    """None: any."""
    methods: frozenset[str] | None = READING
    """None: any. `CONNECT` is what a confined command needs for https: what it then says inside
    the encryption, any method and path, is not seen."""

    def covers(self, target: Target) -> bool:
        if self.scheme != target.scheme or self.port not in (None, target.port):
            return False
        if self.host == "*" or self.host.startswith("*."):
            return not target.is_address and target.host.endswith(self.host[1:])
        return target.host == self.host

    def allows(self, target: Target, method: str) -> bool:
        return self.covers(target) and (self.methods is None or method in self.methods)

    def __str__(self) -> str:
        """Return the rule as `host_rule` reads it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == DEFAULT_PORTS[self.scheme]
        port = "" if usual else f":{'*' if self.port is None else self.port}"
        methods = "*" if self.methods is None else ",".join(sorted(self.methods))
        return f"{methods} {self.scheme}://{host}{port}"


def within(rule: HostRule, other: HostRule) -> bool:
    """Whether each origin that a rule covers is covered by another one; methods do not count.

    >>> within(host_rule("a.example.com"), host_rule("*.example.com"))
    True
    """
    if rule.scheme != other.scheme or other.port not in (None, rule.port):
        return False
    is_address = ":" in rule.host or rule.host.rpartition(".")[2].isdigit()
    if other.host == "*" or other.host.startswith("*."):
        return not is_address and (rule.host == other.host or rule.host.endswith(other.host[1:]))
    return rule.host == other.host


def granted_by(rules: Iterable[HostRule], wanted: Iterable[HostRule]) -> tuple[HostRule, ...]:
    """Return what both lists cover, by the methods of the first: the narrower rule of each pair.

    What cannot be used by a program behind the proxy is left out: https without `CONNECT`.

    >>> [str(rule) for rule in granted_by([host_rule("CONNECT *")], [host_rule("a.example.com")])]
    ['CONNECT https://a.example.com']
    """
    wanted = tuple(wanted)
    found: dict[HostRule, None] = {}
    for rule in rules:
        if rule.scheme == "https" and not (rule.methods is None or "CONNECT" in rule.methods):
            continue
        for one in wanted:
            if within(one, rule):
                found[replace(one, methods=rule.methods)] = None
            elif within(rule, one):
                found[rule] = None
    return tuple(found)


@lru_cache(maxsize=1_024)
def host_rule(text: str) -> HostRule:
    """Read a rule as an operator writes it: `[METHODS ][scheme://]host[:port]`.

    Without methods GET and HEAD are meant, without a scheme https, without a port the scheme's.
    `*` means all methods, ports or names; `*.example.com` the names below example.com.

    >>> str(host_rule("*.Example.com")), str(host_rule("POST http://127.0.0.1:8080"))
    ('GET,HEAD https://*.example.com', 'POST http://127.0.0.1:8080')
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise NetError("url-refused", f"expected `[METHODS ][scheme://]host[:port]`, got {text!r}")
    methods, scheme, wild, host, port = match.group("methods", "scheme", "wild", "host", "port")
    scheme = scheme or "https"
    if host != "*":
        target = parse_url(
            f"{scheme}://{host}:{port}/" if port and port != "*" else f"{scheme}://{host}/"
        )
        host = target.host
        if wild and target.is_address:
            raise NetError("url-refused", f"`*.` before an address means nothing: {text!r}")
    elif wild:
        raise NetError("url-refused", f"expected `*` alone or `*.` before a name, got {text!r}")
    return HostRule(
        host=f"*.{host}" if wild else host,
        scheme=scheme,
        port=_port(port, scheme),
        methods=_methods(methods),
    )


def _port(port: str | None, scheme: str) -> int | None:
    if port == "*":
        return None
    return int(port) if port else DEFAULT_PORTS[scheme]


def _methods(text: str | None) -> frozenset[str] | None:
    if text == "*":
        return None
    methods = frozenset(text.upper().split(",")) if text else READING
    if unknown := sorted(methods - {*METHODS, "CONNECT"}):
        known = ", ".join((*METHODS, "CONNECT"))
        raise NetError("url-refused", f"expected methods of {known}, got `{unknown[0]}`")
    return methods


class NetLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one request, redirects included; going over one is an error."""

    seconds: float = 30.0
    """The whole, whatever arrives meanwhile (docs/reference/limits.md)."""
    connect_seconds: float = 5.0
    """Name and connection, encryption included (reference "Proxied fetch", like those below)."""
    head_seconds: float = 10.0
    """Until the head of the answer is there."""
    body_bytes: int = 5 << 20
    """Of an answer, after decompression (docs/reference/limits.md)."""
    request_bytes: int = 1 << 20
    head_bytes: int = 65_536
    redirects: int = 3


class NetPolicy(Struct, frozen=True, kw_only=True):
    """What may be reached. The empty policy reaches nothing."""

    hosts: tuple[HostRule, ...] = ()
    private: tuple[str, ...] = ()
    """Networks that are not public and may be reached all the same, such as `127.0.0.1/32`."""
    secrets: tuple[SecretBinding, ...] = ()
    limits: NetLimits = field(default_factory=NetLimits)

    def __post_init__(self) -> None:
        """Refuse networks and hosts of secrets that cannot be read."""
        for secret in self.secrets:
            for text in secret.hosts:
                host_rule(text)
        try:
            _judge(self.private)
        except ValueError as error:
            raise NetError("address-refused", f"not a network to allow: {error}") from error

    def allows(self, target: Target, method: str) -> bool:
        return any(rule.allows(target, method) for rule in self.hosts)

    def granted(self, target: Target, method: str) -> NetPolicy:
        """Return this policy and one more rule: this method, to exactly this origin.

        GET comes along: a server may lead on to where a result can be seen (RFC 9110 15.4.4).
        """
        rule = HostRule(
            host=target.host,
            scheme=target.scheme,
            port=target.port,
            methods=frozenset((method, "GET")),
        )
        return replace(self, hosts=(*self.hosts, rule))

    def check_origin(self, target: Target, method: str) -> None:
        """Refuse an origin or method that no rule allows ("host-refused")."""
        if not self.allows(target, method):
            covering = [rule for rule in self.hosts if rule.covers(target)]
            what = f"{method} to {target.origin}" if covering else target.origin
            raise NetError("host-refused", f"no rule allows {what}")

    def bound_to(self, target: Target) -> Mapping[str, SecretBinding]:
        """Return the secrets that may go to this origin, by name."""
        return {
            secret.name: secret
            for secret in self.secrets
            if any(host_rule(text).covers(target) for text in secret.hosts)
        }

    def check_secrets(self, target: Target, parts: Sequence[bytes]) -> None:
        """Refuse to let a secret go to an origin that it is not bound to ("secret-refused").

        Args:
            parts: What would go out besides the URL, before secrets are put in.
        """
        if not self.secrets:
            return
        bound = self.bound_to(target)
        others = [secret for secret in self.secrets if secret.name not in bound]
        url = target.url.encode()
        # A secret cut into labels is joined again.
        labels = target.host.replace(".", "").encode()
        if name := leaked(others, (url, labels, *parts)):
            message = f"the request to {target.host} would hold the secret `{name}`"
            raise NetError("secret-refused", message)

    def check_addresses(self, host: str, addresses: Iterable[str]) -> None:
        """Refuse a host of which any address is neither public nor named in `private`.

        What an address carries inside (IPv4 in IPv6, NAT64, 6to4, Teredo) is judged too. A host
        with a public and a private address is refused whole: that is how rebinding looks.
        """
        judge = _judge(self.private)
        for text in addresses:
            try:
                judge.check_address(ip_address(text))
            except (ssrfguard.BlockedAddressError, ValueError) as error:
                reason = getattr(error, "reason", "no address")
                message = f"{host} leads to {text}, which is not public: {reason}"
                raise NetError("address-refused", message) from error


@lru_cache(maxsize=64)
def _judge(private: tuple[str, ...]) -> ssrfguard.Policy:
    return ssrfguard.Policy(allowed_networks=tuple(map(ip_network, private)))

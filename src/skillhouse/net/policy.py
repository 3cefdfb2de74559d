"""The rules of what may be reached: origins with their methods, private networks, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address, ip_network

import ssrfguard

from skillhouse.net.net_errors import METHODS, READING, NetError
from skillhouse.net.secret import SecretBinding, leaked
from skillhouse.net.url import DEFAULT_PORTS, Target, parse_url

_RULE = re.compile(
    r"(?:(?P<methods>\*|[A-Za-z]+(?:,[A-Za-z]+)*) )?(?:(?P<scheme>https?)://)?"
    r"(?P<wild>\*\.)?(?P<host>\*|\[[0-9a-fA-F:.]+\]|[^/\s:@*?#\[\]]+)(?::(?P<port>[0-9]{1,5}|\*))?/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
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
        """Whether the target's origin is one of these."""
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


@lru_cache(maxsize=1_024)
def host_rule(text: str) -> HostRule:
    """Read a rule as an operator writes it: `[METHODS ][scheme://]host[:port]`.

    Without methods GET and HEAD are meant, without a scheme https, without a port the scheme's.
    `*` means all methods, ports or names; `*.example.com` the names below example.com.

    Raises:
        NetError: "url-refused", the text is no such rule.

    >>> str(host_rule("*.Example.com")), str(host_rule("POST http://127.0.0.1:8080"))
    ('GET,HEAD https://*.example.com', 'POST http://127.0.0.1:8080')
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise NetError("url-refused", f"expected `[METHODS ][scheme://]host[:port]`, got {text!r}")
    methods, scheme, wild, host, port = match.group("methods", "scheme", "wild", "host", "port")
    scheme = scheme or "https"
    if host != "*":
        target = parse_url(f"{scheme}://{host}:{port}/" if _digits(port) else f"{scheme}://{host}/")
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


def _digits(port: str | None) -> bool:
    return port is not None and port.isdigit()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLimits:
    """Bounds of one request, redirects included; going over one is an error."""

    seconds: float = 30.0
    """The whole, whatever arrives meanwhile (DESIGN, bounds: fetch 30 s)."""
    connect_seconds: float = 5.0
    """Name and connection, encryption included (reference "Proxied fetch", like those below)."""
    head_seconds: float = 10.0
    """Until the head of the answer is there."""
    body_bytes: int = 5 << 20
    """Of an answer, after decompression (DESIGN, bounds: fetch 5 MiB)."""
    request_bytes: int = 1 << 20
    head_bytes: int = 65_536
    redirects: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPolicy:
    """What may be reached. The empty policy reaches nothing."""

    hosts: tuple[HostRule, ...] = ()
    private: tuple[str, ...] = ()
    """Networks that are not public and may be reached all the same, such as `127.0.0.1/32`."""
    secrets: tuple[SecretBinding, ...] = ()
    limits: NetLimits = field(default_factory=NetLimits)

    def __post_init__(self) -> None:
        """Refuse what cannot be read.

        Raises:
            NetError: "address-refused" for a network, "url-refused" for a secret's host.
        """
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
        """Refuse an origin or method that no rule allows.

        Raises:
            NetError: "host-refused".
        """
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
        """Refuse to let a secret go to an origin that it is not bound to.

        Args:
            parts: What would go out besides the URL, before secrets are put in.

        Raises:
            NetError: "secret-refused".
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

        Raises:
            NetError: "address-refused".
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

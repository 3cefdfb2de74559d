"""Who asks, and how often: tokens, scopes and limits of rate."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct
from starlette.requests import Request

from skillhouse.extensions.registry.hosting import (
    HostedRepository,
    HostingError,
    TokenAccess,
    access_of,
)
from skillhouse.floor import structs

BUCKETS_MAX = 20_000
"""Addresses and tokens whose rate is known; those that asked longest ago are forgotten."""


class AccessPolicy(Struct, frozen=True, kw_only=True):
    """What is asked of those who send requests."""

    is_private: bool = False
    """Whether reading needs a token, too."""
    reads_per_minute: int = 6_000
    writes_per_minute: int = 600
    failures_per_minute: int = 30
    """Wrong tokens of one address."""
    proxy: str = ""
    """The address of a proxy in front, whose `X-Forwarded-For` is believed; empty for none."""


class RateLimitedError(HostingError):
    """There were too many requests."""

    def __init__(self, seconds: int, limit: int) -> None:
        super().__init__("rate-limited", f"try again in {seconds} s: {limit} a minute are answered")
        self.seconds = seconds


class RateLimits:
    """Buckets that fill up in a minute, one for each token or address and kind of request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def take(self, kind: str, who: str, per_minute: int) -> int:
        """Count a request, return how many more are free; RateLimitedError where there is none."""
        with self._lock:
            now = self._clock()
            left, seen = self._buckets.pop((kind, who), (float(per_minute), now))
            left = min(float(per_minute), left + (now - seen) * per_minute / 60)
            is_allowed = left >= 1
            self._buckets[kind, who] = (left - 1 if is_allowed else left, now)
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        if not is_allowed:
            raise RateLimitedError(max(1, math.ceil((1 - left) * 60 / per_minute)), per_minute)
        return int(left - 1)


class Gatekeeper:
    """Says for each request what its sender may do."""

    def __init__(
        self, repository: HostedRepository, policy: AccessPolicy, limits: RateLimits
    ) -> None:
        self._repository = repository
        self._policy = policy
        self._limits = limits

    def reader(self, request: Request) -> TokenAccess:
        """Return who reads; HostingError `unauthorized`, `forbidden` or `rate-limited`."""
        access = self._access(request)
        who = access.token_id or self._address(request)
        self._count(request, "read", who, self._policy.reads_per_minute)
        if self._policy.is_private and not access.may_read:
            if not access.token_id:
                raise HostingError("unauthorized", "this registry is private: send a token")
            raise HostingError("forbidden", "the token has no scope `read`")
        return access

    def writer(self, request: Request) -> TokenAccess:
        """Return who writes, which needs a token."""
        access = self._access(request)
        if not access.token_id:
            message = (
                "send `Authorization: Bearer TOKEN`; `skillhouse registry token new` makes one"
            )
            raise HostingError("unauthorized", message)
        self._count(request, "write", access.token_id, self._policy.writes_per_minute)
        return access

    def operator(self, request: Request) -> TokenAccess:
        """Return who reads the counts, which needs a token with `metrics` or `admin`."""
        access = self._access(request)
        self._count(request, "read", access.token_id or self._address(request),
                    self._policy.reads_per_minute)  # fmt: skip
        if not access.token_id:
            raise HostingError("unauthorized", "send a token with the scope `metrics`")
        if not (access.is_admin or "metrics" in access.scopes):
            raise HostingError("forbidden", "the token has no scope `metrics`")
        return access

    def guessed(self, request: Request) -> None:
        """Count a wrong token of another kind; RateLimitedError where there were too many."""
        self._limits.take("guess", self._address(request), self._policy.failures_per_minute)

    def _count(self, request: Request, kind: str, who: str, per_minute: int) -> None:
        left = self._limits.take(kind, who, per_minute)
        request.state.rate_limit = f'"{kind}";r={left};t=60'

    def _access(self, request: Request) -> TokenAccess:
        given = request.headers.getlist("authorization")
        if not given:
            return self._known(request, TokenAccess())
        scheme, _, secret = given[0].partition(" ")
        found = None
        if len(given) == 1 and scheme.lower() == "bearer":
            found = access_of(self._repository.store, secret.strip(), self._repository.now)
        if found is None:
            # Only wrong ones count, so that no one keeps out who shares the address.
            self._limits.take("guess", self._address(request), self._policy.failures_per_minute)
            raise HostingError("unauthorized", "the token is unknown, ended or revoked")
        return self._known(request, found)

    def _known(self, request: Request, access: TokenAccess) -> TokenAccess:
        """Return who sends, with the address, and keep it for the log."""
        found = structs.replace(access, address=str(self._sender(request)))
        request.state.access = found
        return found

    def _address(self, request: Request) -> str:
        """Return who shares a bucket: an IPv4 address, or the network of an IPv6 one."""
        address = self._sender(request)
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((int(address), 64), strict=False))
        return str(address)

    def _sender(self, request: Request) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        text = request.client.host if request.client else ""
        if self._policy.proxy and text == self._policy.proxy:
            # What a client wrote itself is before what our proxy added.
            text = ",".join(request.headers.getlist("x-forwarded-for")).split(",")[-1].strip()
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            # INVARIANT: no one shares a bucket with others of whom nothing is known.
            raise HostingError("bad-request", "your address is not known here") from None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        request.state.address = str(mapped or address)
        return mapped or address


def refuse_scope(access: TokenAccess, action: str, namespace: str, skill: str) -> None:
    """Refuse, with `forbidden`, what no scope of a token allows."""
    if not access.may(action, namespace, skill):
        message = f"the token does not allow `{action}:{namespace}/{skill}`"
        raise HostingError("forbidden", message)

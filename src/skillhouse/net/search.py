"""Services that search the web: how each is asked, and how its answer reads."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import PartialStruct
from skillhouse.net.net_errors import NetError
from skillhouse.net.policy import HostRule, NetPolicy, parse_url
from skillhouse.net.secret import SecretBinding

TEXT_MAX = 400
"""Characters of a title or an excerpt."""
BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"
BRAVE_SECRET = "brave-search"  # noqa: S105 - its name.

T = TypeVar("T")

_TAG = regex(r"</?[a-zA-Z][^<>]{0,100}>")


class WebResult(Struct, frozen=True, kw_only=True):
    """One result, in plain text."""

    title: str
    url: str
    excerpt: str


class SearchProvider(Protocol):
    @property
    def name(self) -> str:
        """Its name in rules and in the log."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of a request; secrets by their names."""
        ...

    def url(self, query: str, count: int) -> str: ...

    def policy(self, policy: NetPolicy) -> NetPolicy:
        """Return `policy` reduced to this one service."""
        ...

    def read(self, body: bytes) -> tuple[WebResult, ...]: ...


class _BraveResult(msgspec.Struct):
    title: str
    url: str
    description: str = ""


class _BraveResults(msgspec.Struct):
    results: list[_BraveResult] = []


class _BraveAnswer(msgspec.Struct):
    web: _BraveResults = msgspec.field(default_factory=_BraveResults)


class _SearxngResult(msgspec.Struct):
    title: str
    url: str
    content: str | None = None


class _SearxngAnswer(msgspec.Struct):
    results: list[_SearxngResult]


class BraveSearch(PartialStruct, frozen=True, kw_only=True):
    SECRET = frozenset({"key"})
    key: str
    endpoint: str = BRAVE_URL
    name: str = "brave"

    @property
    def headers(self) -> Mapping[str, str]:
        token = f"{{{{secret:{BRAVE_SECRET}}}}}"
        return {"Accept": "application/json", "X-Subscription-Token": token}

    def url(self, query: str, count: int) -> str:
        return f"{self.endpoint}?q={quote(query, safe='')}&count={count}"

    def policy(self, policy: NetPolicy) -> NetPolicy:
        origin = parse_url(self.endpoint).origin
        key = SecretBinding(name=BRAVE_SECRET, value=self.key, hosts=(origin,))
        return _only(policy, self.endpoint, (*policy.secrets, key))

    def read(self, body: bytes) -> tuple[WebResult, ...]:
        answer = _decoded(body, _BraveAnswer)
        return tuple(_found(r.title, r.url, r.description) for r in answer.web.results)


class SearxngSearch(Struct, frozen=True, kw_only=True):
    """A SearXNG of the user's, whose settings let it answer in JSON."""

    base_url: str
    name: str = "searxng"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Accept": "application/json"}

    def url(self, query: str, count: int) -> str:
        return f"{self.base_url.rstrip('/')}/search?q={quote(query, safe='')}&format=json"

    def policy(self, policy: NetPolicy) -> NetPolicy:
        return _only(policy, self.base_url, policy.secrets)

    def read(self, body: bytes) -> tuple[WebResult, ...]:
        answer = _decoded(body, _SearxngAnswer)
        return tuple(_found(r.title, r.url, r.content or "") for r in answer.results)


def _only(policy: NetPolicy, url: str, secrets: tuple[SecretBinding, ...]) -> NetPolicy:
    target = parse_url(url)
    rule = HostRule(host=target.host, scheme=target.scheme, port=target.port)
    private = (*policy.private, target.host) if target.is_address else policy.private
    return NetPolicy(hosts=(rule,), private=private, secrets=secrets, limits=policy.limits)


def _decoded(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = f"expected a list of results, got something else: {error}"
        raise NetError("protocol-error", message) from error


def _found(title: str, url: str, excerpt: str) -> WebResult:
    return WebResult(title=_plain(title), url=_plain(url), excerpt=_plain(excerpt))


def _plain(text: str) -> str:
    """Return one line without markup and without characters that show nothing."""
    words = html.unescape(_TAG.sub("", text[: 4 * TEXT_MAX])).split()
    line = "".join(c for c in " ".join(words) if c.isprintable())
    return line if len(line) <= TEXT_MAX else line[:TEXT_MAX] + "…"

"""Checks the Host, Origin, method and key of every request.

A malicious page in the same browser can reach 127.0.0.1. It cannot send our Host (which stops DNS
rebinding), hide its own Origin, or know the token. `RequestGuard` is the outermost application of
every listener of this package: nothing answers outside it.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs

from msgspec import Struct

from skillhouse.answers.errors import problem_answer, unserved
from skillhouse.answers.json_form import json_text, members
from skillhouse.approval import LiveServers
from skillhouse.extensions.server.protected_resource import OAuthRefusalError, ProtectedResource
from skillhouse.floor import StateError
from skillhouse.floor.structs import replace
from skillhouse.frontends.mcp.over_http import MCP_PATH
from skillhouse.house import BROWSER_DAYS, NO_ACCESS, Access, AccessScope, AccessTokens

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAMES = ("127.0.0.1", "localhost")
"""The accepted host names; an operator may add others."""

_DEFAULT_PORTS = {"http": 80, "https": 443}

READ_METHODS = ("GET", "HEAD")

CONTENT_POLICY = (
    b"default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; "
    b"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Files of ours alone: no script, style or image in a page or from elsewhere (CSP 3)."""

HEADERS = (
    (b"content-security-policy", CONTENT_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On every answer, including errors. Without CORS headers no other origin can read one."""

_SET_BY_US = frozenset(name for name, _ in HEADERS)


ACCESS = "skillhouse.access"
"""Key of the scope that has whose request it is."""


def access_of(scope: Scope) -> Access:
    """Return on whose behalf a request comes, as the guard has found out."""
    access: Access = scope.get(ACCESS, NO_ACCESS)
    return access


NeededScope = Callable[[str, str], AccessScope | None]
"""Returns the scope with which a named token may use a method and path; None: the owner only."""


class GuardReply(Struct, frozen=True, kw_only=True):
    status: int
    code: str = ""
    """Of the problem that a program gets."""
    message: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media: bytes = b"text/plain; charset=utf-8"


_NO_STATE = GuardReply(
    status=503, code="state", message="the state cannot be read; no token can be checked"
)


class RequestGuard:
    """Passes valid requests to an application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: AccessKeys,
        port: int,
        scheme: Literal["http", "https"] = "http",
        unauthorized: ASGIApp,
        open_paths: frozenset[str] = frozenset(),
        probe_paths: frozenset[str] = frozenset(),
        post_below: str | None = None,
        methods_at: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        allowed: Sequence[str] = (),
        problems_below: str = "",
        kept_paths: Container[str] = frozenset(),
        needed: NeededScope = lambda _, __: None,
        resource: ProtectedResource | None = None,
    ) -> None:
        """Store the checks.

        Args:
            app: Answers valid requests.
            keys: Checks the key of a request.
            port: Our port; part of Host and Origin.
            scheme: Of our own names; a proxy in front may have another.
            unauthorized: Answers with 401 if the key is missing or wrong.
            open_paths: Paths that need no key, since they expose nothing private.
            probe_paths: Paths that need no key and no Host of ours: what asks them, a balancer,
                may know an address alone. They say one word, and nothing of this machine.
            post_below: Prefix of the paths that allow POST as well.
            methods_at: Paths with methods of their own.
            allowed: Additional host names, NAME or NAME:PORT; none is a pattern.
            kept_paths: Paths of files that are the same for everyone: the application says how long
                a browser keeps them.
            problems_below: Prefix of the paths for which the application answers methods and
                scopes itself, and refusals are problem details; empty for none.
            needed: What a named token needs elsewhere.
            resource: Whose tokens open `/mcp` besides ours; None for no one's.
        """
        self._app = app
        self.keys = keys
        self._unauthorized = unauthorized
        self._open_paths = open_paths
        self._probe_paths = probe_paths
        self._kept_paths = kept_paths
        self._post_below = post_below
        self._methods_at = methods_at
        self._problems_below = problems_below
        self._needed = needed
        self._resource = resource
        self._hosts = tuple(f"{name}:{port}" for name in NAMES)
        # A browser omits the default port.
        accepted = self._hosts + (NAMES if port == _DEFAULT_PORTS[scheme] else ())
        # A proxy in front of us may use TLS; a name has the same owner with both schemes.
        origins = [f"{scheme}://{host}" for host in accepted]
        origins += [f"{one}://{host}" for host in allowed for one in _DEFAULT_PORTS]
        self._accepted_hosts = frozenset(host.encode() for host in (*accepted, *allowed))
        self._accepted_origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(
                scope, receive, _with_headers(send, is_kept=scope["path"] in self._kept_paths)
            )
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in self._probe_paths and scope["method"] in READ_METHODS:
            scope[ACCESS] = NO_ACCESS
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _reply(self._said(scope, refusal), scope, send)
            return
        tokens = _query_tokens(scope)
        if tokens:
            # A cookie replaces the token in the address bar, and so in the history.
            try:
                is_right = len(tokens) == 1 and self.keys.is_token(tokens[0])
            except StateError:
                await _reply(self._said(scope, _NO_STATE), scope, send)
                return
            if is_right:
                # A browser that is signed in already stays the one that it is.
                signed_in = self.keys.has_session(scope)
                cookie = () if signed_in else ((b"set-cookie", self.keys.set_cookie()),)
                moved = GuardReply(status=303, headers=((b"location", b"/"), *cookie))
                await _reply(moved, scope, send)
            else:
                await self._unauthorized(scope, receive, send)
            return
        try:
            access = self.keys.access(scope)
        except StateError:
            await _reply(self._said(scope, _NO_STATE), scope, send)
            return
        try:
            access = access or await self._of_issuer(scope)
        except OAuthRefusalError as refused:
            await _reply(refusal_reply(refused), scope, send)
            return
        if access is None and not self._is_open(scope["path"]):
            await self._unauthorized(scope, receive, send)
            return
        refusal = None if access is None else self._beyond(scope, access)
        if refusal is not None:
            await _reply(self._said(scope, refusal), scope, send)
            return
        scope[ACCESS] = access or NO_ACCESS
        await self._app(scope, receive, send)

    async def _of_issuer(self, scope: Scope) -> Access | None:
        """Return the access of a token of another issuer; OAuthRefusalError where it is none."""
        given = list(header_values(scope, b"authorization"))
        if self._resource is None or scope["path"] != MCP_PATH or len(given) != 1:
            return None
        if self._resource.settings is None:
            return None
        return await self._resource.access(given[0])

    def _is_open(self, path: str) -> bool:
        has_metadata = self._resource is not None and self._resource.has_metadata(path)
        return path in self._open_paths or has_metadata

    def _beyond(self, scope: Scope, access: Access) -> GuardReply | None:
        """Refuse a named token what its scopes do not name; the application knows its own part."""
        path = scope["path"]
        if access.is_owner or path in self._open_paths or self._is_own(path):
            return None
        needed = self._needed(scope["method"], path)
        if needed is not None and needed in access.scopes:
            return None
        what = f"the scope `{needed}`" if needed else "the token that `skillhouse up` printed"
        return GuardReply(status=403, code="scope-wanted", message=f"this address needs {what}")

    def _is_own(self, path: str) -> bool:
        below = self._problems_below
        return bool(below) and (path == below or path.startswith(f"{below}/"))

    def _said(self, scope: Scope, refusal: GuardReply) -> GuardReply:
        """Return a refusal as problem details where the address is one of the API."""
        if not self._is_own(scope["path"]):
            return refusal
        value = problem_answer(refusal.status, refusal.code, refusal.message, hint="")
        text = json.dumps(value, default=members)
        return replace(refusal, message=text, media=b"application/problem+json")

    def _refusal(self, scope: Scope) -> GuardReply | None:
        hosts = list(header_values(scope, b"host"))
        if len(hosts) != 1 or hosts[0] not in self._accepted_hosts:
            return GuardReply(
                status=421,
                code="wrong-host",
                message=f"only {' and '.join(self._hosts)} are served here",
            )
        if not all(o in self._accepted_origins for o in header_values(scope, b"origin")):
            message = "requests of other origins are refused"
            return GuardReply(status=403, code="foreign-origin", message=message)
        # `same-site` is another port of this machine, and so another server.
        if not all(s in _OWN_SITES for s in header_values(scope, b"sec-fetch-site")):
            message = "requests of other pages are refused; type the address, or paste it"
            return GuardReply(status=403, code="foreign-origin", message=message)
        if self._is_own(scope["path"]):
            return None
        methods = self._methods_at.get(scope["path"], READ_METHODS)
        if self._post_below is not None and scope["path"].startswith(self._post_below):
            methods = (*methods, "POST")
        if scope["method"] not in methods:
            message = f"only {' and '.join(methods)} are answered here"
            allowed = ", ".join(methods).encode()
            return GuardReply(status=405, message=message, headers=((b"allow", allowed),))
        return None


_OWN_SITES = (b"same-origin", b"none")
"""`Sec-Fetch-Site` of our own pages, and of a typed address (Fetch Metadata)."""


def _query_tokens(scope: Scope) -> list[str]:
    """Return the tokens in the query of the start page; other pages accept none."""
    if scope["path"] != "/":
        return []
    query = scope["query_string"].decode("latin-1")
    return parse_qs(query, keep_blank_values=True).get("token", [])


async def _reply(reply: GuardReply, scope: Scope, send: Send) -> None:
    body = f"{reply.message}\n".encode() if reply.message else b""
    headers = [
        (b"content-type", reply.media),
        (b"content-length", str(len(body)).encode()),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _with_headers(send: Send, *, is_kept: bool) -> Send:
    """Return a `send` that adds our headers to every answer; what is kept may say how long."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            own = [pair for pair in given if is_kept and pair[0] == b"cache-control"]
            kept = [pair for pair in given if pair[0] not in _SET_BY_US]
            ours = [pair for pair in HEADERS if not own or pair[0] != b"cache-control"]
            message["headers"] = [*kept, *own, *ours]
        await send(message)

    return send_with_headers


def refusal_reply(refused: OAuthRefusalError) -> GuardReply:
    """Return what a client of `/mcp` gets whose token does not count."""
    code = "unauthorized" if refused.status == 401 else "forbidden"
    challenge = ((b"www-authenticate", refused.challenge.encode()),) if refused.challenge else ()
    return GuardReply(
        status=refused.status,
        code=code,
        message=json_text(unserved(code, refused.message)),
        headers=challenge,
        media=b"application/json",
    )


_COOKIE = b"skillhouse_"
COOKIES_MAX = 16
"""Cookies of other ports that are looked up."""


class AccessKeys:
    """The token of one start and the session of its browser, in memory, and those that are kept."""

    def __init__(
        self,
        *,
        token: str,
        port: int,
        session: str = "",
        kept: AccessTokens | None = None,
        servers: LiveServers | None = None,
        is_secure: bool = False,
    ) -> None:
        """Store the token, which the user gets, and the session, which only the cookie has.

        Without `session`, each browser gets one of its own, which outlives this start and may be
        revoked. `kept` has those and the named tokens; None for neither. `servers` knows the tokens
        of the other servers of this state, which open this one too; None for its own alone.
        """
        self._token = token.encode()
        self._session = session.encode()
        self._kept = kept
        self._servers = servers
        self._once: set[str] = set()
        # Not behind a proxy: whether that one has TLS is nothing that we know.
        self._secure = b"; Secure" if is_secure else b""
        # Cookies ignore ports. The port in the name separates two servers on one machine. It is no
        # protection: other servers of this machine that the user visits get the cookie too. So the
        # cookie is not the token, changes nothing by itself, and can be revoked.
        self._cookie = b"%s%d" % (_COOKIE, port)

    def one_time(self) -> str:
        """Return a token that opens a session once, for an address that others may see."""
        token = secrets.token_urlsafe(32)
        self._once.add(token)
        return token

    def is_token(self, given: str) -> bool:
        """Whether `given` is the token, compared in constant time, or a fresh one-time token."""
        if self._is_of_start(given.encode("utf-8", "replace")):
            return True
        fitting = [one for one in self._once if hmac.compare_digest(one, _ascii(given))]
        self._once.difference_update(fitting)
        return bool(fitting)

    def access(self, scope: Scope) -> Access | None:
        """Return whose key a request has; a cookie does not outweigh a wrong `Authorization`.

        Raises:
            StateError: the kept tokens cannot be read.
        """
        given = list(header_values(scope, b"authorization"))
        if given:
            scheme, _, token = given[0].partition(b" ")
            if len(given) != 1 or scheme.lower() != b"bearer":
                return None
            if self._is_of_start(token.strip()):
                return Access()
            return self._found(token.strip(), "token")
        for name, value in self._cookies(scope):
            is_own = name == self._cookie and bool(self._session)
            if is_own and hmac.compare_digest(value, self._session):
                return Access(kind="browser", name="browser")
            found = self._found(value, "browser")
            if found is not None:
                return found
        return None

    def _is_of_start(self, given: bytes) -> bool:
        """Whether this is the token of this start, or of another server of this state that is
        alive: behind a balancer a person's address leads to any of them."""
        if hmac.compare_digest(given, self._token):
            return True
        if self._servers is None or len(given) != len(self._token):
            return False
        return self._servers.is_token(given.decode("latin-1"))

    def has_session(self, scope: Scope) -> bool:
        """Whether a cookie of the request is that of a browser that is signed in."""
        with contextlib.suppress(StateError):
            access = self.access(scope)
            return access is not None and access.kind == "browser"
        return False

    def set_cookie(self) -> bytes:
        """Return the `Set-Cookie` of a session: of this browser's own, where those are kept."""
        value, lasts = self._session, b""
        if not value and self._kept is not None:
            value = self._kept.new_browser().encode()
            lasts = b"; Max-Age=%d" % (BROWSER_DAYS * 86_400)
        return (
            self._cookie
            + b"="
            + value
            + b"; HttpOnly; SameSite=Strict; Path=/"
            + self._secure
            + lasts
        )

    def _found(self, token: bytes, kind: str) -> Access | None:
        if self._kept is None:
            return None
        return self._kept.find(token.decode("latin-1"), kind)

    def _cookies(self, scope: Scope) -> Iterator[tuple[bytes, bytes]]:
        """Yield the name and value of each cookie of ours, those with our port first.

        A server on another port may have set one as well. It counts if its value is kept: another
        server of this state gave it, and a balancer sends the browser here now.
        """
        own, others = [], []
        for header in header_values(scope, b"cookie"):
            for part in header.split(b";"):
                name, _, value = part.strip().partition(b"=")
                if name == self._cookie:
                    own.append((name, value))
                elif name.startswith(_COOKIE) and self._kept is not None:
                    others.append((name, value))
        yield from own
        yield from others[:COOKIES_MAX]


def header_values(scope: Scope, name: bytes) -> Iterator[bytes]:
    """Yield each value of a header; `name` is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            yield value


def _ascii(text: str) -> str:
    """Return a text that can be compared in constant time; no token of ours has other signs."""
    return text.encode("ascii", "replace").decode()

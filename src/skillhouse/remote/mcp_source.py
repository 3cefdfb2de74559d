"""Asks one MCP server for its skills, and reads all that it offers; this file alone loads the SDK.

The SDK's own client takes proxies from the environment and connects to whatever a name leads to.
It also bounds an event of a stream and reads a JSON body to its end, whatever comes. So it gets a
transport of ours: under the network policy, with a bound on an answer.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any, Protocol, TextIO
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from msgspec import Struct

from skillhouse.floor import canonical_json, needs_extra
from skillhouse.floor.structs import replace
from skillhouse.net import HostRule, NetError, NetPolicy, Route, Target, open_stream, parse_url
from skillhouse.remote.mcp_entry import McpServer, McpSkill, read_all, read_answer, verify_file
from skillhouse.remote.source import RemoteError
from skillhouse.skill import ArchiveMember

if TYPE_CHECKING:
    from skillhouse.net import NetPolicy, Route

EXTENSION = "io.modelcontextprotocol/skills"
PAGES_MAX = 200
SKILLS_MAX = 1_000
ANSWER_SECONDS = 30
"""How long one answer may take (docs/reference/limits.md: fetch)."""
ANSWER_MAX = 24 * 1_048_576
"""Bytes of one answer: a file of 16 MiB (SEP-2640, "Limits") as base64, in its message."""

SILENT_SECONDS = 30.0
"""How long a server may say nothing; the whole answer has a bound of its own, `ANSWER_SECONDS`."""

LOOPBACK = ("127.0.0.0/8", "::1/128")
PRIVATE = (*LOOPBACK, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
"""Networks that `allow_private` opens (RFC 1918, RFC 6598, RFC 4193). Link-local addresses, where
clouds offer the machine's credentials, need a rule in `[net]`."""


class Peer(Protocol):
    """A connection to one server: every read goes to it and to no other."""

    async def list_skills(self) -> list[Any]:
        """Return the entries of `skills/list`, all pages, as they came."""
        ...

    async def get_skill(self, uri: str) -> Any: ...

    async def read(self, uri: str) -> bytes:
        """Return the bytes at an address, whatever they are."""
        ...


Dial = Callable[[McpServer], AbstractAsyncContextManager[Peer]]
"""Connects to a server. What addresses may be reached is for the caller to say by its own."""
OpenTransport = Callable[[McpServer], Any]
"""Gives the SDK's client what it connects to: a transport, an address or a server in memory."""


@asynccontextmanager
async def connected(
    server: McpServer,
    *,
    transport: OpenTransport | None = None,
    policy: NetPolicy | None = None,
    route: Route | None = None,
) -> AsyncIterator[Peer]:
    """Connect to a server that offers skills.

    Args:
        transport: Another way there than by HTTP under the policy or by a subprocess.
        policy: What may be reached besides the server's own address, if that is public.

    Raises:
        MissingExtraError: the packages of the extra `mcp` are not installed.
        RemoteError: it cannot be reached, or does not declare the extension.
    """
    with needs_extra("mcp"):
        from mcp.client import Client, advertise  # noqa: PLC0415 - an extra.
    with _nowhere() as nowhere:
        target = (
            transport(server) if transport is not None else _target(server, nowhere, policy, route)
        )
        client = Client(
            target,
            extensions=[advertise(EXTENSION)],
            read_timeout_seconds=ANSWER_SECONDS,
            # Entries are verified against bytes, so neither may come from an older answer.
            cache=None,
        )
        failed: list[RemoteError] = []
        try:
            async with client:
                try:
                    yield _SdkPeer(server, client)
                except RemoteError as error:
                    # Task groups of the SDK would wrap it.
                    failed.append(error)
        except RemoteError:
            raise
        except Exception as error:
            if not failed:
                raise RemoteError(f"cannot reach `{server.label}`: {_said(error)}") from error
        if failed:
            raise failed[0]


def _target(
    server: McpServer, errors: TextIO, policy: NetPolicy | None, route: Route | None
) -> Any:
    if server.url:
        return bounded_http(server, policy, route)
    # A program that a person has named runs as that person: what it says needs no bound.
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - an extra.

    program, *arguments = server.command
    parameters = StdioServerParameters(
        command=program,
        args=arguments,
        env=dict(server.environment),
        cwd=server.directory,
    )
    return stdio_client(parameters, errlog=errors)


class _SdkPeer:
    def __init__(self, server: McpServer, client: Any) -> None:
        self._label = server.label
        self._client = client
        declared = client.server_capabilities.extensions or {}
        if not isinstance(declared.get(EXTENSION), dict):
            # SEP-2640: requests only after the server has declared that it has them.
            raise RemoteError(f"`{self._label}` does not offer skills")

    async def list_skills(self) -> list[Any]:
        entries: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            params = {} if cursor is None else {"cursor": cursor}
            answer = await self._ask("skills/list", params)
            page, cursor = answer.get("skills"), answer.get("nextCursor")
            if not isinstance(page, list):
                raise RemoteError(f"`{self._label}` answered skills/list without a list")
            if len(entries) + len(page) > SKILLS_MAX:
                break
            entries += page
            if cursor is None:
                return entries
            if not isinstance(cursor, str) or cursor in seen:
                break
            seen.add(cursor)
        raise RemoteError(
            f"the list of `{self._label}` does not end: more than {SKILLS_MAX} skills, or the "
            "same page again"
        )

    async def get_skill(self, uri: str) -> Any:
        return (await self._ask("skills/get", {"uri": uri})).get("skill")

    async def read(self, uri: str) -> bytes:
        answer = await self._ask("resources/read", {"uri": uri})
        contents = answer.get("contents")
        if not isinstance(contents, list) or len(contents) != 1:
            raise RemoteError(f"`{self._label}` gave no single content for `{uri}`")
        [content] = contents
        if not isinstance(content, dict) or content.get("uri") != uri:
            raise RemoteError(f"`{self._label}` answered for another address than `{uri}`")
        text, blob = content.get("text"), content.get("blob")
        try:
            if isinstance(text, str) and blob is None:
                return text.encode()
            if isinstance(blob, str) and text is None:
                return base64.b64decode(blob, validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise RemoteError(f"`{self._label}` gave no bytes for `{uri}`") from error
        raise RemoteError(f"`{self._label}` gave neither text nor bytes for `{uri}`")

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra.
        from mcp_types import Request  # noqa: PLC0415 - an extra.
        from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - the SDK's.

        request = Request[dict[str, Any], str](method=method, params=dict(params))
        try:
            answer = await self._client.session.send_request(request, TypeAdapter(dict[str, Any]))
        except (MCPError, ValidationError, anyio.ClosedResourceError) as error:
            raise RemoteError(f"`{self._label}` did not answer {method}: {_said(error)}") from error
        result: Mapping[str, Any] = answer
        return result


@contextmanager
def _nowhere() -> Iterator[TextIO]:
    with open(os.devnull, "w", encoding="utf-8") as file:
        yield file


def _said(error: BaseException) -> str:
    """Return the innermost reason in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split())[:200] or type(error).__name__


class TooLargeError(httpx2.StreamError):
    """An answer is over `ANSWER_MAX`; of this kind, since the SDK makes an error of it that ends
    the request and not the program."""


@asynccontextmanager
async def bounded_http(
    server: McpServer, policy: NetPolicy | None = None, route: Route | None = None
) -> AsyncIterator[Any]:
    """Give the SDK's client the streams of a server at an address.

    Args:
        server: Named by the operator: its own origin may be reached, and nothing else.
        policy: Whose private networks, secrets and rules for plain http hold.
    """
    own = policy_for(server, policy or NetPolicy())
    async with (
        httpx2.AsyncClient(
            transport=_Transport(server.label, own, route or Route()),
            # What is packed may be a thousand times as large when it is unpacked.
            headers={"accept-encoding": "identity"},
            # The route has the proxy and the certificates of the environment.
            trust_env=False,
            timeout=SILENT_SECONDS,
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=ANSWER_MAX
        ) as streams,
    ):
        yield streams


def policy_for(server: McpServer, policy: NetPolicy) -> NetPolicy:
    """Return what a server's connection may reach: its own origin, which must be public."""
    target = parse_url(server.url)
    private = (*policy.private, *(PRIVATE if server.allow_private else ()))
    if target.scheme == "http" and not policy.allows(target, "POST"):
        if not _is_loopback(target):
            raise NetError(
                "url-refused",
                f"plain http to {target.host}: use https, or allow `POST {target.origin}` in "
                "`hosts` of `[net]`",
            )
        # No other machine can read the traffic as long as the name resolves to this one.
        private = (*policy.private, *(LOOPBACK if server.allow_private else ()))
    rule = HostRule(host=target.host, scheme=target.scheme, port=target.port, methods=None)
    limits = replace(policy.limits, head_seconds=SILENT_SECONDS)
    return replace(policy, hosts=(rule,), private=private, limits=limits)


def _is_loopback(target: Target) -> bool:
    host = target.host
    return host in ("localhost", "::1") or (target.is_address and host.startswith("127."))


class _Transport(httpx2.AsyncBaseTransport):
    """Sends each request over a connection of its own that the policy allows."""

    def __init__(self, label: str, policy: NetPolicy, route: Route) -> None:
        self._label = label
        self._policy = policy
        self._route = route

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        held = AsyncExitStack()
        try:
            head, chunks = await held.enter_async_context(
                open_stream(
                    str(request.url),
                    policy=self._policy,
                    method=request.method,
                    headers=tuple(request.headers.items()),
                    body=await request.aread(),
                    route=self._route,
                )
            )
        except NetError as error:
            raise httpx2.ConnectError(self._said(error), request=request) from error
        encoding = head.get("content-encoding") or "identity"
        if encoding.lower() != "identity":
            await held.aclose()
            raise TooLargeError(f"expected an answer as it is, got one in {encoding[:40]!r}")
        return httpx2.Response(
            head.status,
            headers=list(head.headers),
            stream=_BoundedStream(chunks, ANSWER_MAX, held),
            request=request,
        )

    def _said(self, error: NetError) -> str:
        if error.code != "address-refused":
            return str(error)
        # The way out comes first: the end of a long reason is cut.
        return f"`{self._label}` needs `allow_private = true` in `[[mcp_servers]]`: {error}"


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a body, up to a bound.

    That of a stream of events counts, too: nothing that we ask for is said in more.
    """

    def __init__(self, chunks: AsyncIterator[bytes], max_bytes: int, held: AsyncExitStack) -> None:
        self._chunks = chunks
        self._max_bytes = max_bytes
        self._held = held

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        while True:
            try:
                with anyio.fail_after(SILENT_SECONDS):
                    part = await anext(self._chunks, None)
            except (NetError, TimeoutError) as error:
                message = str(error) or f"the server was silent for {SILENT_SECONDS:g} s"
                raise httpx2.ReadError(message) from error
            if part is None:
                return
            seen += len(part)
            if seen > self._max_bytes:
                raise TooLargeError(f"the answer is larger than {self._max_bytes} bytes")
            yield part

    async def aclose(self) -> None:
        await self._held.aclose()


class McpOffer(Struct, frozen=True, kw_only=True):
    """The skills of one server, before any file is read."""

    skills: tuple[McpSkill, ...]
    """Sorted by path; no two have the same."""
    problems: tuple[str, ...] = ()
    """What was passed over, and why."""


def server_identity(server: McpServer) -> str:
    """Return what the name of an installed skill is locked to: a label can be given to another.

    Neither a query nor an argument is part of the text: they may hold a secret.
    """
    parts = urlsplit(server.url)
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if server.command:
        words = hashlib.sha256(canonical_json(list(server.command))).hexdigest()
        address = f"program {words[:16]}"
    return f"mcp:{server.label} at {address}"


async def read_offer(peer: Peer, label: str, wanted: str) -> McpOffer:
    """Return what a server lists, or the skill that `wanted` names.

    Args:
        wanted: A name, the path of one skill on its server, or its address, which need not be
            listed; empty for all.

    Raises:
        RemoteError: there is no such skill, or several have the name.
    """
    if "://" in wanted:
        return McpOffer(skills=(read_answer(label, wanted, await peer.get_skill(wanted)),))
    problems: list[str] = []
    listed = read_all(label, await peer.list_skills(), problems)
    by_path: dict[str, McpSkill] = {}
    for skill in sorted(listed.values(), key=lambda one: one.uri):
        if skill.path in by_path:
            problems.append(f"`{skill.uri}` passed over: `{by_path[skill.path].uri}` is listed")
        by_path.setdefault(skill.path, skill)
    skills = tuple(by_path[path] for path in sorted(by_path))
    if not wanted:
        return McpOffer(skills=skills, problems=tuple(problems))
    found = [one for one in skills if one.path == wanted]
    found = found or [one for one in skills if one.name == wanted]
    if len(found) != 1:
        said = ", ".join(f"`{one.path}`" for one in found[:20])
        said = f"several: name one by its path, of {said}" if found else _none(problems)
        raise RemoteError(f"expected one skill `{wanted}` at `{label}`, got {said}")
    return McpOffer(skills=tuple(found), problems=tuple(problems))


def _none(problems: list[str]) -> str:
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return "none" + (f"; {'; '.join(problems[:3])}{more}" if problems else "")


async def read_members(
    peer: Peer, skill: McpSkill, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> tuple[ArchiveMember, ...]:
    """Return every file of a skill, its bytes held against the entry; `progress` counts files.

    No file is executable: the protocol has no modes.

    Raises:
        VerificationError: one is not what the entry says.
        RemoteError: the server does not give it.
    """
    members = []
    for count, file in enumerate(skill.files):
        progress(count, len(skill.files))
        data = await peer.read(file.uri)
        verify_file(skill, file, data)
        members.append(_member(file.relative, data))
    progress(len(skill.files), len(skill.files))
    return tuple(members)


def _member(path: str, data: bytes) -> ArchiveMember:
    return ArchiveMember(
        path=path,
        is_directory=False,
        is_executable=False,
        size=len(data),
        open=lambda: iter((data,)),
    )

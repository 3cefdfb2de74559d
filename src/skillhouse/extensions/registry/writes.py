"""The routes that write: a package, its state, a channel."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from skillhouse.extensions.registry.access import Gatekeeper, refuse_scope
from skillhouse.extensions.registry.hosting import (
    Address,
    HostedRepository,
    HostingError,
    TokenAccess,
    checked_address,
)
from skillhouse.extensions.registry.replies import json_reply
from skillhouse.floor import structs
from skillhouse.floor.regex import regex
from skillhouse.registry import SIGNATURE_MAX, AttestationError, Release, attestations
from skillhouse.registry.releases import State
from skillhouse.skill import ARCHIVE_MAX

if TYPE_CHECKING:
    from skillhouse.extensions.registry.oidc import TokenExchange

BODY_MAX = 16 * 1024
"""Bytes of a body that is JSON."""
EXCHANGE_MAX = 32 * 1024
"""Bytes of one that has a token of an identity provider."""
UPLOAD_SECONDS = 120.0
PAUSE_SECONDS = 15.0
"""How long an upload may take, and how long it may pause."""
UPLOADS_MAX = 32
"""Uploads at the same time."""
SMALL = 1 << 20
"""Bytes up to which several archives are checked at the same time: each may take 100 MB else."""
_TYPES = frozenset(
    {
        "",
        "application/gzip",
        "application/octet-stream",
        "application/tar+gzip",
        "application/x-gzip",
        "application/x-tar",
        "application/zip",
        "application/x-zip-compressed",
    }
)
_SHA_256 = regex(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_STATES: Mapping[str, State] = {"yank": "yanked", "unyank": "published", "revoke": "revoked"}


class WriteRoutes:
    """Takes requests in while nothing waits for the disk, and does the work in threads."""

    def __init__(
        self,
        repository: HostedRepository,
        gate: Gatekeeper,
        exchange: TokenExchange | None = None,
    ) -> None:
        self._repository = repository
        self._exchange = exchange
        self._gate = gate
        self._uploads = CapacityLimiter(UPLOADS_MAX)
        self._small, self._large = CapacityLimiter(4), CapacityLimiter(1)

    async def publish(self, request: Request) -> Response:
        address, access = await to_thread.run_sync(self._publisher, request)
        digest = _content_digest(request)
        _refuse_type(request)
        sizes = _bundle_sizes(request)
        most = ARCHIVE_MAX + sum(sizes)
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise HostingError("too-large", f"expected at most {ARCHIVE_MAX} bytes")
        beside = request.query_params.get("beside", "")
        is_dry = request.query_params.get("dry_run", "0") not in ("0", "false", "")
        blobs = self._repository.blobs
        async with self._uploads:
            place = await to_thread.run_sync(blobs.new_upload)
            archive = place / "archive.part"

            def publish() -> Release:
                _append(archive, rest)
                return self._repository.publish(
                    address,
                    archive,
                    access=access,
                    content_digest=digest,
                    bundle_sizes=sizes,
                    beside=beside,
                    dry_run=is_dry,
                )

            try:
                size, rest = await _received(request, archive, most)
                limiter = self._small if size <= SMALL else self._large
                release = await to_thread.run_sync(publish, limiter=limiter)
            finally:
                with CancelScope(shield=True):
                    await to_thread.run_sync(blobs.end_upload, place)
        answer = json_reply(structs.asdict(release), 200 if is_dry else 201)
        if not is_dry:
            answer.headers["location"] = f"/skills/{address.name}/{address.version}"
        return answer

    async def state(self, request: Request) -> Response:
        access = await to_thread.run_sync(self._gate.writer, request)
        address = _address(request)
        refuse_scope(access, "yank", address.namespace, address.skill)
        state = _STATES[request.scope["path"].rpartition("/")[2]]
        reason = _member(await _json(request, is_optional=True), "reason", "")

        def change() -> Release:
            return self._repository.set_state(address, state, reason, actor=access.actor)

        return json_reply(structs.asdict(await to_thread.run_sync(change)))

    async def channel(self, request: Request) -> Response:
        access = await to_thread.run_sync(self._gate.writer, request)
        version = _member(await _json(request), "version")
        address = checked_address(request.path_params["name"], version)
        refuse_scope(access, "publish", address.namespace, address.skill)

        def change() -> Any:
            channel = request.path_params["channel"]
            return self._repository.set_channel(address.name, channel, version, actor=access.actor)

        return json_reply(structs.asdict(await to_thread.run_sync(change)))

    async def exchange(self, request: Request) -> Response:
        """Exchange the token of an identity provider for one of this registry."""
        exchange = self._exchange
        if exchange is None:
            raise HostingError("forbidden", "this registry takes no tokens of identity providers")
        value = await _json(request, most=EXCHANGE_MAX)
        token, name = _member(value, "token"), _member(value, "name")
        try:
            found = await to_thread.run_sync(exchange.exchange, token, name)
        except HostingError:
            self._gate.guessed(request)
            raise
        return json_reply(found, 201)

    async def revocations(self, request: Request) -> Response:
        access = await to_thread.run_sync(self._gate.writer, request)
        if not access.is_admin:
            raise HostingError("forbidden", "the token has no scope `admin`")
        data = await _body(request, SIGNATURE_MAX)

        def put() -> None:
            self._repository.put_revocations(data, actor=access.actor)

        await to_thread.run_sync(put)
        return Response(status_code=204)

    def _publisher(self, request: Request) -> tuple[Address, TokenAccess]:
        access = self._gate.writer(request)
        address = _address(request)
        refuse_scope(access, "publish", address.namespace, address.skill)
        return address, access


def _address(request: Request) -> Address:
    return checked_address(request.path_params["name"], request.path_params["version"])


async def _received(request: Request, path: Path, most: int) -> tuple[int, bytes]:
    """Write a body to a new file; return its size, and the end of it that is not written yet.

    HostingError: it is too large or too slow.
    """
    size, rest = 0, bytearray()
    try:
        with anyio.fail_after(UPLOAD_SECONDS):
            chunks = request.stream()
            while True:
                with anyio.fail_after(PAUSE_SECONDS):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return size, bytes(rest)
                size += len(chunk)
                if size > most:
                    raise HostingError("too-large", f"expected at most {ARCHIVE_MAX} bytes")
                rest += chunk
                if len(rest) > SMALL:
                    await to_thread.run_sync(_append, path, bytes(rest))
                    rest.clear()
    except TimeoutError as error:
        raise HostingError("bad-request", "the package came too slowly") from error
    except ClientDisconnect as error:
        raise HostingError("bad-request", "the connection ended before the package did") from error


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def _body(request: Request, most: int) -> bytes:
    data = bytearray()
    try:
        with anyio.fail_after(PAUSE_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise HostingError("too-large", f"expected at most {most} bytes")
    except (TimeoutError, ClientDisconnect) as error:
        raise HostingError("bad-request", "the body did not arrive") from error
    return bytes(data)


async def _json(
    request: Request, *, is_optional: bool = False, most: int = BODY_MAX
) -> dict[str, Any]:
    """Return a body that is one JSON object without a key twice."""
    data = await _body(request, most)
    if is_optional and not data:
        return {}
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise HostingError("bad-request", "expected one JSON object") from error
    if not isinstance(value, dict):
        raise HostingError("bad-request", "expected one JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Readers differ on which of the two counts.
        raise HostingError("bad-request", "a key is there twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


def _member(value: dict[str, Any], name: str, default: str | None = None) -> str:
    found = value.get(name, default)
    if not isinstance(found, str):
        raise HostingError("bad-request", f"expected a text as `{name}`")
    return found


def _bundle_sizes(request: Request) -> tuple[int, ...]:
    """Return the bytes of the bundles that follow the archive in the body."""
    try:
        return attestations.sizes_of(request.query_params.get("attestations", ""))
    except AttestationError as error:
        code = "too-large" if error.code == "size" else "bad-request"
        raise HostingError(code, str(error)) from error


def _refuse_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _TYPES or "content-encoding" in request.headers:
        message = "expected the bytes of a .tar.gz or .zip as application/gzip or application/zip"
        raise HostingError("media-type", message)


def _content_digest(request: Request) -> str:
    """Return the digest that was sent, empty for none; others than SHA-256 are passed over."""
    given = ", ".join(request.headers.getlist("content-digest"))
    fields = [one.strip() for one in given.split(",")]
    named = [one for one in fields if one.lower().startswith("sha-256=")]
    if not named:
        return ""
    found = _SHA_256.fullmatch(named[0])
    try:
        raw = base64.b64decode(found[1], validate=True) if found and len(named) == 1 else b""
    except binascii.Error:
        raw = b""
    if len(raw) != 32:
        raise HostingError("digest", "expected `Content-Digest: sha-256=:BASE64:` (RFC 9530)")
    return f"sha256:{raw.hex()}"

"""Answers: JSON with an ETag, files with ranges, and problems (RFC 9457)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from skillhouse.extensions.registry.hosting import HostingError

JSON = "application/json"
PROBLEM = "application/problem+json"
SHORT = "max-age=60"
IMMUTABLE = "public, max-age=31536000, immutable"
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be understood"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "unknown-skill": (404, "There is no such skill"),
    "unknown-version": (404, "There is no such version"),
    "version-exists": (409, "The version is there already"),
    "too-large": (413, "The package is too large"),
    "media-type": (415, "Expected a .tar.gz or a .zip"),
    "digest": (422, "The digest is refused"),
    "archive": (422, "The archive is refused"),
    "skill": (422, "The skill is refused"),
    "name": (422, "The name is refused"),
    "namespace": (422, "The namespace is refused"),
    "version": (422, "The version is refused"),
    "signature": (422, "The signature is refused"),
    "attestation": (422, "The attestation is refused"),
    "rate-limited": (429, "Too many requests"),
    "storage": (507, "The registry has no room"),
}
"""Status and title of each code."""


def problem(
    code: str,
    detail: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a refusal as application/problem+json."""
    usual, title = PROBLEMS[code]
    status = status or usual
    value = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        **more,
    }
    fields = {"cache-control": "no-store", **(headers or {})}
    if status == 401:
        fields["www-authenticate"] = "Bearer"
    return Response(_text(value), status, fields, PROBLEM)


def refused(error: HostingError) -> Response:
    """Return the answer to a request that the registry refuses."""
    more: dict[str, Any] = {"digest": error.digest} if error.digest else {}
    return problem(error.code, str(error), **more)


def json_reply(value: Any, status: int = 200) -> Response:
    """Return a value of the moment."""
    return Response(_text(value), status, {"cache-control": "no-store"}, JSON)


def document(request: Request, data: bytes, *, media_type: str = JSON) -> Response:
    """Return bytes with their digest as ETag, or 304 for who has them."""
    etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {"etag": etag, "cache-control": cache_control(request, SHORT)}
    if has_it(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(data, 200, headers, media_type)


def archive_reply(
    request: Request, path: Path, *, digest: str, media_type: str, headers: Mapping[str, str]
) -> Response:
    """Return an archive, or the range of it that was asked for."""
    etag = f'"{digest}"'
    fields = {"etag": etag, "cache-control": cache_control(request, IMMUTABLE), **headers}
    if has_it(request, etag):
        return Response(status_code=304, headers=fields)
    return FileResponse(path, headers=fields, media_type=media_type)


def has_it(request: Request, etag: str) -> bool:
    """Whether `If-None-Match` names an ETag (RFC 9110, 13.1.2)."""
    given = request.headers.get("if-none-match", "")
    listed = (one.strip().removeprefix("W/") for one in given.split(","))
    return given.strip() == "*" or etag in listed


def cache_control(request: Request, text: str) -> str:
    """Return what others may keep: nothing but one's own of what needed a token."""
    if "authorization" not in request.headers:
        return text
    return f"private, {text.removeprefix('public, ')}"


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"

"""Bodies and forms of requests, what proves that a form is ours, and JSON as an answer."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from skillhouse.answers.json_form import json_text
from skillhouse.approval import BODY_MAX
from skillhouse.floor import StateError
from skillhouse.floor.lock import once

if TYPE_CHECKING:
    from skillhouse.house import Access

logger = logging.getLogger(__name__)


async def body_of(request: Request, *, limit: int = BODY_MAX) -> bytes:
    """Return the body; raises HTTPException beyond `limit` bytes."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise HTTPException(413)
    return body


async def form_of(request: Request) -> dict[str, str]:
    """Return the last value of each field of a form; raises HTTPException."""
    try:
        body = (await body_of(request)).decode()
        return {key: values[-1] for key, values in parse_qs(body, max_num_fields=10).items()}
    except ValueError as error:
        raise HTTPException(400) from error


def attachment(name: str) -> str:
    r"""Return a `Content-Disposition` with which a browser saves a file, whatever is in it.

    >>> attachment("a b.svg")
    'attachment; filename="a_b.svg"; filename*=UTF-8\'\'a%20b.svg'
    """
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def saved_file(name: str) -> dict[str, str]:
    """Return headers with which no browser shows a file, whatever is in it, but saves it.

    >>> saved_file("a/page.html")["content-type"]
    'application/octet-stream'
    """
    plain = name.rpartition("/")[2]
    return {"content-disposition": attachment(plain), "content-type": "application/octet-stream"}


def is_equal_secret(given: str, secret: str) -> bool:
    """Whether a text from outside is our secret, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def json_response(
    value: Struct | Sequence[Struct], status: int = 200, *, media: str = "application/json"
) -> Response:
    return Response(json_text(value, indent=2) + "\n", status, headers={"content-type": media})


class Proofs:
    """What a page of ours sends with a change, besides the cookie: another page cannot know it.

    A proof holds for one browser, method and path, and as long as that browser is signed in.
    """

    def __init__(self, kept_key: Callable[[], bytes]) -> None:
        """`kept_key` returns the key of every start, or raises StateError."""
        self._kept_key = kept_key

    def of(self, access: Access, method: str, path: str, *more: str) -> str:
        """Return the proof for one change, and for `more`, for a page of `access` to hold.

        `path` is as the browser sends it.
        """
        # INVARIANT: what one browser was shown is no proof for another one.
        bound = json.dumps((access.kind, access.id, method, path, *more)).encode()
        return hmac.digest(self._key, bound, "sha256").hex()

    def holds(self, given: str, access: Access, method: str, path: str, *more: str) -> bool:
        return is_equal_secret(given, self.of(access, method, path, *more))

    @once
    def _key(self) -> bytes:
        try:
            return self._kept_key()
        except StateError as error:
            # Pages can be read all the same; their forms end with this start.
            logger.warning("the key of the forms of the pages cannot be kept: %s", error)
            return secrets.token_bytes(32)

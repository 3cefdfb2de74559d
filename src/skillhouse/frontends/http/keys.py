"""Who may come in: the token of one start, and the session that a browser gets for it."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope


class SessionKeys:
    """The two secrets of one start; both live in memory only and are never shown or logged."""

    def __init__(self, *, token: str, session: str, port: int) -> None:
        """Take the token, which the person gets, and the session, which only the cookie holds."""
        self._token = token.encode()
        self._session = session.encode()
        # Cookies know no ports. A name of its own keeps two houses on one machine apart; it hides
        # nothing: another server of this machine that the person visits gets the cookie too. So
        # it opens this start only, and is not the token.
        self._cookie = b"skillhouse_%d" % port

    def is_token(self, given: str) -> bool:
        """Whether `given` is the token, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def open(self, scope: Scope) -> bool:
        """Whether a request brings a key; a wrong `Authorization` is not mended by a cookie."""
        given = list(header_values(scope, b"authorization"))
        if given:
            scheme, _, token = given[0].partition(b" ")
            is_ours = hmac.compare_digest(token.strip(), self._token)
            return len(given) == 1 and scheme.lower() == b"bearer" and is_ours
        return any(hmac.compare_digest(value, self._session) for value in self._cookies(scope))

    def set_cookie(self) -> bytes:
        """Return the `Set-Cookie` that opens a browser's session, which ends with the browser."""
        return self._cookie + b"=" + self._session + b"; HttpOnly; SameSite=Strict; Path=/"

    def _cookies(self, scope: Scope) -> Iterator[bytes]:
        """Yield every value of our cookie: a server on another port may have set one as well."""
        for header in header_values(scope, b"cookie"):
            for part in header.split(b";"):
                name, _, value = part.strip().partition(b"=")
                if name == self._cookie:
                    yield value


def header_values(scope: Scope, name: bytes) -> Iterator[bytes]:
    """Yield each value of a header, given in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            yield value

"""Serves over HTTP: the status as pages and JSON, the inbox of approvals, and MCP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import needs_extra
from skillhouse.house import Skillhouse

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from skillhouse.extensions.server.app import Beside

__all__ = ["http_app", "serve"]


def _print(line: str) -> None:
    print(line, flush=True)


def serve(
    house: Skillhouse,
    *,
    port: int = 8600,
    announce: Callable[[str], None] = _print,
    host: str = "127.0.0.1",
    allowed: Sequence[str] = (),
    open_mcp: bool = False,
    read_only: str = "",
    opens: bool = False,
    beside: Beside | None = None,
    certificate: tuple[Path, Path] | None = None,
    drain_seconds: float = 20.0,
) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit code 0.

    Args:
        house: Must not be used elsewhere meanwhile.
        port: Port to listen on; 0 takes a free one.
        announce: Gets the one address that opens the page, once the port is bound; it is printed
            on stdout unless this says otherwise.
        host: Address to listen on.
        allowed: Additional accepted host names, NAME or NAME:PORT as a browser sends them.
        open_mcp: Whether `/mcp` accepts requests without the token from programs of this machine.
        read_only: Why the page approves nothing; empty if it may approve.
        opens: Whether the page is opened in the browser, by an address that works once.
        beside: Returns what runs on the same event loop meanwhile, such as the bot.
        certificate: Files in PEM with which the page is served by TLS: the certificate with those
            of its issuers, and its key without a password; None for plain HTTP.
        drain_seconds: How long requests that run are waited for after SIGTERM; 0 for not at all.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
        OSError: the port cannot be bound, or the certificate not be used; the text has the remedy.
    """
    with needs_extra("server"):
        from skillhouse.extensions.server.listener import listen  # noqa: PLC0415 - an extra.
    return listen(
        house,
        port=port,
        announce=announce,
        host=host,
        allowed=allowed,
        open_mcp=open_mcp,
        read_only=read_only,
        opens=opens,
        beside=beside,
        certificate=certificate,
        drain_seconds=drain_seconds,
    )


def http_app(
    house: Skillhouse,
    *,
    token: str,
    port: int,
    session: str | None = None,
    allowed: Sequence[str] = (),
) -> ASGIApp:
    """Return the guarded application that answers as 127.0.0.1:`port`, and as the names `allowed`.

    Clients send `token`; `session` is the value of the browser's cookie, by default a random one.
    The rest is as for `serve`.
    """
    with needs_extra("server"):
        from skillhouse.extensions.server.app import make_app  # noqa: PLC0415 - an extra.
    return make_app(house, token=token, port=port, session=session, allowed=allowed)

"""Serves the house over HTTP: what is there as pages and JSON, the questions that wait, and MCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skillhouse.floor import MissingExtraError
from skillhouse.runtime import Skillhouse

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["http_app", "serve"]


def serve(
    house: Skillhouse,
    *,
    port: int,
    announce: Callable[[str], None],
    host: str = "127.0.0.1",
    allowed: Sequence[str] = (),
    open_mcp: bool = False,
    read_only: str = "",
) -> int:
    """Serve the house until SIGINT or SIGTERM, and return the exit code 0.

    Args:
        house: What to show; nobody else may use it meanwhile.
        port: Where to listen; 0 takes a free port.
        announce: Gets the one address that opens the page, as soon as the port is ours.
        host: The address to listen on.
        allowed: More names under which we answer, NAME or NAME:PORT as a browser sends it.
        open_mcp: Whether `/mcp` is answered without the token, to every program of this machine.
        read_only: Why nothing is approved on the page; empty where it may be.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
        OSError: the port cannot be had; its text says what to do.
    """
    with _server_extra():
        from skillhouse.frontends.http.listener import listen  # noqa: PLC0415 - an extra.
    return listen(
        house,
        port=port,
        announce=announce,
        host=host,
        allowed=allowed,
        open_mcp=open_mcp,
        read_only=read_only,
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

    Args:
        house: What to show; nobody else may use it meanwhile.
        token: What a client has to know.
        port: Part of the Host and Origin that are accepted.
        session: What the browser's cookie holds; None makes a random one.
        allowed: More names under which we answer, as of `serve`.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
    """
    with _server_extra():
        from skillhouse.frontends.http.app import make_app  # noqa: PLC0415 - an extra.
    return make_app(house, token=token, port=port, session=session, allowed=allowed)


@contextmanager
def _server_extra() -> Iterator[None]:
    """Turn a missing package into the error that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("skillhouse"):
            raise
        raise MissingExtraError("server", error.name) from error

"""Serves a registry of packages over HTTP: docs/reference/registry-api.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skillhouse.floor import needs_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from skillhouse.extensions.registry.access import AccessPolicy
    from skillhouse.extensions.registry.hosting import HostedRepository

__all__ = ["registry_app", "serve_registry"]


def serve_registry(
    repository: HostedRepository,
    *,
    host: str,
    port: int,
    announce: Callable[[str], None],
    policy: AccessPolicy | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit code 0.

    Args:
        announce: Gets the address once the port is bound.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
        OSError: the port cannot be bound; the text has the remedy.
    """
    with needs_extra("server"):
        # Optional packages.
        from skillhouse.extensions.server.tcp_server import bound, make_server  # noqa: PLC0415
    with bound(port, host) as listener:
        name = f"[{host}]" if ":" in host else host
        server = make_server(registry_app(repository, policy), lifespan="off")
        with server.ended_by_signals():
            announce(f"http://{name}:{listener.getsockname()[1]}")
            server.run(sockets=[listener])
    return 0


def registry_app(repository: HostedRepository, policy: AccessPolicy | None = None) -> ASGIApp:
    """Return the application that answers for a registry."""
    with needs_extra("server"):
        from skillhouse.extensions.registry.app import make_app  # noqa: PLC0415
    return make_app(repository, policy)

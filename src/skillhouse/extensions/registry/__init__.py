"""Serves a registry of packages over HTTP: docs/reference/registry-api.md."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skillhouse.floor import SkillhouseError, needs_extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from skillhouse.extensions.registry.access import AccessPolicy
    from skillhouse.extensions.registry.hosting import HostedRepository
    from skillhouse.extensions.registry.operations import ServerParts

__all__ = ["registry_app", "serve_registry"]

RENEWAL_SECONDS = 60.0
"""How often it is looked whether what is current has to be signed again."""


def serve_registry(
    repository: HostedRepository,
    *,
    host: str,
    port: int,
    announce: Callable[[str], None],
    policy: AccessPolicy | None = None,
    parts: ServerParts | None = None,
    problem: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit code 0.

    Args:
        announce: Gets the address once the port is bound.
        problem: Gets what keeps it from saying what is current, as it happens.

    Raises:
        MissingExtraError: the packages of the extra `server` are not installed.
        OSError: the port cannot be bound; the text has the remedy.
    """
    with needs_extra("server"):
        # Optional packages.
        from skillhouse.extensions.server.tcp_server import bound, make_server  # noqa: PLC0415
    with bound(port, host) as listener, _renewed(repository, problem):
        name = f"[{host}]" if ":" in host else host
        server = make_server(registry_app(repository, policy, parts), lifespan="off")
        with server.ended_by_signals():
            announce(f"http://{name}:{listener.getsockname()[1]}")
            server.run(sockets=[listener])
    return 0


@contextmanager
def _renewed(repository: HostedRepository, problem: Callable[[str], None]) -> Iterator[None]:
    """Sign what is current again for as long as the block lasts."""
    ended = threading.Event()

    def renew() -> None:
        said = ""
        while True:
            try:
                repository.sign_changes()
                found = repository.ending()
            except (SkillhouseError, OSError) as error:
                # Clients say how old it is; the next round makes up for it.
                found = f"what is current was not signed: {error}"
            if found and found != said:
                problem(found)
            said = found
            if ended.wait(RENEWAL_SECONDS):
                return

    thread = threading.Thread(target=renew, name="registry-renewal")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def registry_app(
    repository: HostedRepository,
    policy: AccessPolicy | None = None,
    parts: ServerParts | None = None,
) -> ASGIApp:
    """Return the application that answers for a registry."""
    with needs_extra("server"):
        from skillhouse.extensions.registry.app import make_app  # noqa: PLC0415
    return make_app(repository, policy, parts)

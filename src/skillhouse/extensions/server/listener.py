"""Serves a `Skillhouse` until a signal arrives: by default on this machine only."""

from __future__ import annotations

import errno
import ipaddress
import logging
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Literal

import skillhouse
from skillhouse.extensions.server.app import SECRET_BYTES, Beside, make_app
from skillhouse.extensions.server.drain import DrainControl, Readiness
from skillhouse.extensions.server.tcp_server import HOST, Certificate, bound, make_server
from skillhouse.floor import SkillError
from skillhouse.house import LogAnswers, Skillhouse, open_on_desktop

logger = logging.getLogger(__name__)


def listen(
    house: Skillhouse,
    *,
    port: int,
    announce: Callable[[str], None],
    host: str,
    opens: bool,
    certificate: tuple[Path, Path] | None,
    allowed: Sequence[str],
    open_mcp: bool,
    read_only: str,
    beside: Beside | None,
    drain_seconds: float,
) -> int:
    """Serve as `skillhouse.extensions.server.serve` describes."""
    files = None if certificate is None else Certificate(*certificate)
    if files is not None:
        files.check()
    scheme: Literal["http", "https"] = "http" if files is None else "https"
    with bound(port, host) as listener:
        port = listener.getsockname()[1]
        if open_mcp and not ipaddress.ip_address(host).is_loopback:
            # INVARIANT: without the token only programs of this machine are answered, whatever the
            # address of the listener.
            raise OSError(errno.EPERM, "--no-auth is for this machine only", f"{host}:{port}")
        name = HOST if ipaddress.ip_address(host).is_unspecified else host
        place = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        # DNS rebinding needs a name, so a literal address may be a Host.
        allowed = (*allowed, place) if name != HOST else tuple(allowed)
        token = secrets.token_urlsafe(SECRET_BYTES)
        servers = house.services.enforcement.connections.servers
        readiness = Readiness(house, servers)
        app = make_app(
            house,
            token=token,
            port=port,
            allowed=allowed,
            open_mcp=open_mcp,
            read_only=read_only,
            beside=beside,
            scheme=scheme,
            readiness=readiness,
        )
        # On a thread of its own: the state may take its time, and requests go on.
        readiness.at_drain(Thread(target=servers.drain, daemon=True).start)
        drain = DrainControl(app, readiness)
        server = make_server(
            drain,
            lifespan="on",
            certificate=files,
            drain=drain,
            drain_seconds=drain_seconds,
        )
        servers.begin(
            name=house.config.shown_server,
            version=skillhouse.__version__,
            address=f"{scheme}://{place}",
            # As for its cookies: see `make_app`.
            token="" if read_only else token,
        )
        answers = LogAnswers(house.all_logs)
        answers.begin()
        readiness.needs("beats-ended", lambda: servers.is_beating)
        readiness.needs("log-answers-ended", lambda: answers.is_running)
        with closing(servers), closing(answers), server.ended_by_signals():
            announce(f"{scheme}://{place}/?token={token}")
            # A pipe is buffered, and its reader waits for this line.
            sys.stdout.flush()
            if opens:
                open_page(f"{scheme}://{place}/?token={app.keys.one_time()}", house)
            server.run(sockets=[listener])
    return 0


def open_page(address: str, house: Skillhouse) -> None:
    """Open an address in the browser; where there is none, the printed one is enough."""
    try:
        open_on_desktop(address, project=house.project)
    except SkillError as error:
        logger.warning("%s", error)

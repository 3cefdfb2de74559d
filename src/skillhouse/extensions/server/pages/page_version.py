"""A tag of what pages show, by which an open page knows whether it has missed a change."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from skillhouse.floor import SkillhouseError, file_stamp
from skillhouse.floor.threads import in_thread
from skillhouse.store import STATE_FILE, commit_stamp

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from skillhouse.extensions.server.status import StatusReader
    from skillhouse.house import Skillhouse

VERSION = "skillhouse.page_version"
"""Key of the scope that has the tag of a page."""


class PageVersion:
    """Gives the tag of now; a tag of another start is never one of this."""

    def __init__(self, house: Skillhouse, reader: StatusReader) -> None:
        self._state = house.config.state_directory / STATE_FILE
        self._log = house.audit_log.path
        self._reader = reader
        self._start = secrets.token_hex(8)
        self._snapshot: object = None
        self._snapshots = 0

    def now(self) -> str:
        """Return the tag of skills, state and log; empty where they cannot be read."""
        try:
            self._reader.scan()
            with self._reader.using() as house:
                if house.snapshot is not self._snapshot:
                    self._snapshot = house.snapshot
                    self._snapshots += 1
                number = self._snapshots
            stamps = (commit_stamp(self._state), file_stamp(self._log))
        except (SkillhouseError, OSError):
            # The page itself says what is wrong; without a tag it is read again.
            return ""
        return hashlib.sha256(f"{self._start} {number} {stamps}".encode()).hexdigest()[:32]


class VersionedPages:
    """Notes the tag before a page is made: what changes while it is made is noticed as well."""

    def __init__(self, app: ASGIApp, version: PageVersion) -> None:
        self._app = app
        self._version = version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and _wants_page(scope):
            scope[VERSION] = await in_thread(self._version.now)
        await self._app(scope, receive, send)


def _wants_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])

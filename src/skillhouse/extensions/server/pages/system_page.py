"""The page of the service itself: sandbox, roots, trust, keys, files, and the emergency stop."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.audit import troubles
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.stop_page import StopPage
from skillhouse.floor import tracing
from skillhouse.frontends.presentation.doctor_values import machine
from skillhouse.frontends.presentation.sandbox_levels import (
    LevelStatuses,
    probe_rows,
    tested_levels,
)
from skillhouse.house import TOKEN_DAYS, AccessScope, file_troubles, usable_config

if TYPE_CHECKING:
    from skillhouse.house import Config

SYSTEM_PATH = "/system"
SCOPE_TEXTS: Mapping[AccessScope, str] = {
    AccessScope.READ: "skills, rules, questions and the log",
    AccessScope.MANAGE: "skills, rules, installs, reload and stop",
    AccessScope.CALL: "tools, through the gate; not together with approve",
    AccessScope.APPROVE: "questions, in your place",
}
"""Texts of the interface, translated where they are shown."""


class SystemPage:
    """Reads only; what its buttons do is done by the API."""

    def __init__(self, site: Site, stopping: StopPage) -> None:
        self._site = site
        self._stopping = stopping
        # One test at a time: each starts processes by the dozen.
        self._testing = threading.Lock()

    def routes(self) -> list[Route]:
        return [Route(SYSTEM_PATH, self.page)]

    def page(self, request: Request) -> Response:
        house, tokens = self._site.house, self._site.services.tokens
        scan = self._site.reader.scan()
        with self._site.reader.using():
            config, fault = house.config, house.config_reload.fault
            profile = house.policy.profile.name
            is_trusted = house.is_project_trusted
        statuses = self._tested() if request.query_params.get("sandbox") == "test" else {}
        capture = config.places.environment.get(tracing.CAPTURE_VARIABLE, "")
        return self._site.page(
            request,
            "system.html",
            scan=scan,
            project=house.project,
            profile=profile,
            state_directory=config.state_directory,
            machine=machine(),
            config_fault=fault,
            files=[(path, path.exists()) for path in _config_files(config)],
            faults=usable_config(config.places).faults,
            open_files=file_troubles(config),
            log_path=house.audit_log.path,
            log_troubles=troubles(house.audit_log),
            expected=house.services.expected_sandbox(),
            statuses=statuses,
            probes=probe_rows(statuses),
            is_trusted=is_trusted,
            tokens=tokens.all(),
            agents=["default", *sorted(set(config.agents) - {"default"})],
            scopes=[(scope.value, SCOPE_TEXTS[scope]) for scope in AccessScope],
            token_days=TOKEN_DAYS,
            own_id=access_of(request.scope).id,
            is_traced=tracing.is_heard(),
            captures=bool(capture),
            csrf_token=self._stopping.csrf_token(request),
        )

    def _tested(self) -> LevelStatuses:
        with self._testing:
            return self._site.house.services.portal().call(tested_levels)


def _config_files(config: Config) -> list[Path]:
    """Return each file and directory that the configuration is read from, present or not."""
    places = config.places
    known = (places.managed_file, places.user_file, places.policy_file, places.published_file)
    return list(dict.fromkeys(config.source.stamps if config.source is not None else known))

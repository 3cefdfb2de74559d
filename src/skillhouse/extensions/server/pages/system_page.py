"""The page of the service itself: sandbox, roots, trust, keys, files, and the emergency stop."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.audit import troubles
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.renderer import ROWS_MAX, edit_path, skill_path
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.stop_page import StopPage
from skillhouse.floor import ConfigError, StateError, tracing
from skillhouse.house import TOKEN_DAYS, AccessScope, file_troubles, usable_config
from skillhouse.manage import EDITABLE
from skillhouse.presentation.doctor_values import machine
from skillhouse.presentation.findings import grouped
from skillhouse.presentation.sandbox_levels import (
    LevelStatuses,
    probe_rows,
    tested_levels,
)
from skillhouse.skill import SKILL_FILE

if TYPE_CHECKING:
    from skillhouse.extensions.server.status import SkillScan
    from skillhouse.floor import Diagnostic
    from skillhouse.house import Config, Skillhouse
    from skillhouse.sandbox.code_call import ExecutorState

SYSTEM_PATH = "/system"
SCOPE_TEXTS: Mapping[AccessScope, str] = {
    AccessScope.READ: "skills, rules, questions and the log",
    AccessScope.MANAGE: "skills, rules, installs, reload and stop",
    AccessScope.CALL: "tools, through the gate; not together with approve",
    AccessScope.APPROVE: "questions, in your place",
}
"""Texts of the interface, translated where they are shown."""


class FindingPlace(Struct, frozen=True, kw_only=True):
    """Where a finding is: a page of this service, or a path that has none."""

    name: str
    line: int | None
    address: str = ""


def finding_place(scan: SkillScan, finding: Diagnostic) -> FindingPlace | None:
    """Return the editor of a SKILL.md at its line where it may be edited, else the skill's page."""
    file = finding.path
    if file is None:
        return None
    skill = scan.by_file.get(str(file)) or scan.by_file.get(str(file.parent / SKILL_FILE))
    if skill is not None:
        reference = scan.reference_of(skill)
        is_editable = skill.scope in EDITABLE and file.name == SKILL_FILE
        address = edit_path(reference) if is_editable else skill_path(reference)
        at = f"#L{finding.line}" if is_editable and finding.line else ""
        return FindingPlace(name=skill.name, line=finding.line, address=address + at)
    roots = (root for root in scan.roots if root.scope in EDITABLE and root.state == "read")
    if file.name == SKILL_FILE and any(file.is_relative_to(root.path) for root in roots):
        at = f"#L{finding.line}" if finding.line else ""
        return FindingPlace(name=str(file), line=finding.line, address=edit_path(str(file)) + at)
    return FindingPlace(name=str(file), line=finding.line)


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
        keys, own_id = tokens.all(), access_of(request.scope).id
        others = [one for one in keys if one.kind == "browser" and one.id != own_id]
        groups = grouped(scan.index.diagnostics)
        executors, executors_fault = self._executors()
        capture = config.places.environment.get(tracing.CAPTURE_VARIABLE, "")
        return self._site.page(
            request,
            "system.html",
            scan=scan,
            project=house.project,
            profile=profile,
            state_directory=config.state_directory,
            # An address holds no password: what does is named by its place.
            state_url=config.state.url,
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
            tokens=[one for one in keys if one.kind != "browser" or one.id == own_id],
            other_browsers=sorted(others, key=lambda one: -max(one.used_ms, one.created_ms)),
            finding_groups=groups,
            finding_places=[
                [finding_place(scan, one) for one in group.findings[:ROWS_MAX]] for group in groups
            ],
            agents=["default", *sorted(set(config.agents) - {"default"})],
            scopes=[(scope.value, SCOPE_TEXTS[scope]) for scope in AccessScope],
            token_days=TOKEN_DAYS,
            own_id=own_id,
            devices=house.services.enforcement.devices.all(),
            servers=house.services.enforcement.connections.servers.all()[:ROWS_MAX],
            log_heads=_log_heads(house),
            is_shared=house.all_logs.is_shared,
            own_server=house.services.enforcement.connections.servers.own_id,
            executors=executors[:ROWS_MAX],
            executors_fault=executors_fault,
            own_address=f"{request.url.scheme}://{request.url.netloc}",
            is_traced=tracing.is_heard(),
            captures=bool(capture),
            csrf_token=self._stopping.csrf_token(request),
        )

    def _executors(self) -> tuple[Sequence[ExecutorState], str]:
        services = self._site.house.services
        try:
            return services.portal().call(services.skill_code.executor_states), ""
        except ConfigError as error:
            return (), str(error)

    def _tested(self) -> LevelStatuses:
        with self._testing:
            return self._site.house.services.portal().call(tested_levels)


def _log_heads(house: Skillhouse) -> Mapping[str, tuple[str, int, int]]:
    """Return the newest head of each log that the state knows; none where it cannot be read."""
    try:
        return house.all_logs.last_heads()
    except StateError:
        return {}


def _config_files(config: Config) -> list[Path]:
    """Return each file and directory that the configuration is read from, present or not."""
    places = config.places
    known = (places.managed_file, places.user_file, places.policy_file, places.published_file)
    return list(dict.fromkeys(config.source.stamps if config.source is not None else known))

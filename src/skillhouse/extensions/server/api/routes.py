"""The one table of routes of the API."""

from __future__ import annotations

from skillhouse.extensions.server.api import (
    approval_routes,
    artifact_routes,
    audit_routes,
    call_routes,
    change_routes,
    device_routes,
    event_routes,
    export_routes,
    fix_routes,
    job_routes,
    library_routes,
    package_routes,
    place_routes,
    policy_routes,
    repository_routes,
    skill_routes,
    system_routes,
    token_routes,
    trust_routes,
)
from skillhouse.extensions.server.api.route_table import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *system_routes.ROUTES,
    *skill_routes.ROUTES,
    *library_routes.ROUTES,
    *change_routes.ROUTES,
    *call_routes.ROUTES,
    *artifact_routes.ROUTES,
    *policy_routes.ROUTES,
    *approval_routes.ROUTES,
    *audit_routes.ROUTES,
    *place_routes.ROUTES,
    *fix_routes.ROUTES,
    *export_routes.ROUTES,
    *repository_routes.ROUTES,
    *package_routes.ROUTES,
    *job_routes.ROUTES,
    *token_routes.ROUTES,
    *device_routes.ROUTES,
    *trust_routes.ROUTES,
    *event_routes.ROUTES,
)

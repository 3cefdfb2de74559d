"""The one table of routes of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.frontends.http.api import skill_routes, system_routes
from skillhouse.frontends.http.api.openapi import openapi_document
from skillhouse.frontends.http.api.route_table import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *system_routes.ROUTES,
    *skill_routes.ROUTES,
)


def document() -> Mapping[str, Any]:
    """Return the OpenAPI document of every route."""
    return openapi_document(ENDPOINTS)

"""The routes about the service itself: the document, health and status."""

from __future__ import annotations

from functools import partial

from msgspec import UNSET

from skillhouse.answers.doctor import StatusAnswer
from skillhouse.answers.json_form import ListAnswer, PageAnswer, json_text
from skillhouse.answers.service import (
    ExecutorAnswer,
    HealthAnswer,
    ProofAnswer,
    ServerAnswer,
    executor_answer,
    server_answer,
)
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.approval_routes import PAGES, short_list
from skillhouse.extensions.server.api.metrics import metrics_text
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.extensions.server.api.schemas import TEXT, listing, record, ref
from skillhouse.extensions.server.status import status_answer
from skillhouse.house import AccessScope


def _openapi(api: ApiServices, _: ApiRequest) -> RouteResponse:
    return RouteResponse(content=json_text(api.openapi).encode())


def _reference(api: ApiServices, request: ApiRequest) -> RouteResponse:
    assert api.reference is not None  # noqa: S101 - the application gives it.
    vary = {"vary": "accept-language, cookie"}
    return RouteResponse(content=api.reference(request.headers), headers=vary)


def _health(api: ApiServices, request: ApiRequest) -> HealthAnswer:
    # INVARIANT: without a key nothing of this machine is said, such as its name and what runs here.
    has_key = AccessScope.READ in request.access.scopes
    return HealthAnswer(instance=api.instance if has_key else UNSET)


def _status(api: ApiServices, _: ApiRequest) -> StatusAnswer:
    return status_answer(api.reader.status(), api.instance)


def _servers(api: ApiServices, request: ApiRequest) -> ListAnswer:
    servers = api.house.services.enforcement.connections.servers
    heads = api.house.all_logs.last_heads()
    answer = partial(server_answer, own_id=servers.own_id, heads=heads)
    return short_list(request, "servers", servers.all(), answer)


def _executors(api: ApiServices, request: ApiRequest) -> ListAnswer:
    services = api.house.services
    states = services.portal().call(services.skill_code.executor_states)
    return short_list(request, "executors", states, executor_answer)


def _metrics(api: ApiServices, _: ApiRequest) -> RouteResponse:
    scan, enforcement = api.scan(), api.house.services.enforcement
    api.calls.look(api.clock())
    gauges = {
        "start_time_seconds": ("When it started.", api.started),
        "skills": ("Skills in use.", len(scan.view.visible)),
        "findings": ("Findings.", len(scan.index.diagnostics)),
        "questions_open": ("Questions that wait.", len(enforcement.approvals.pending())),
        "stopped": ("1 while all is stopped.", int(bool(enforcement.tiers.stopped_reason))),
        "event_readers": ("Readers of events.", api.events.readers),
    }
    text = metrics_text(api.instance, api.calls, gauges, api.answered)
    return RouteResponse(content=text.encode())


def _proof(api: ApiServices, request: ApiRequest) -> ProofAnswer:
    method, path = request.query["method"], request.query["path"]
    return ProofAnswer(proof=api.proofs.of(request.access, method, path))


INSTANCE_EXAMPLE = {
    "id": "3fa9c1d25e6f7a8b",
    "name": "core-a",
    "host": "build-7",
    "version": "0.1.0",
    "started": "2026-01-31T12:00:00.000Z",
}
ROUTES = (
    Endpoint(
        name="showProof",
        method="GET",
        path="/proof",
        tag="service",
        what="What a page sends as `Skillhouse-Proof` with one change, besides the cookie.",
        run=_proof,
        query=(
            RouteParameter(
                name="method",
                schema={"enum": ["POST", "PUT", "DELETE"]},
                what="The method of the change.",
                example="PUT",
                required=True,
            ),
            RouteParameter(
                name="path",
                schema={"type": "string", "minLength": 1, "maxLength": 2_000},
                what="Its path, as it will be sent.",
                example="/api/v1/skills/notes/enabled",
                required=True,
            ),
        ),
        answer=ref(ProofAnswer),
        example={"proof": "00"},
    ),
    Endpoint(
        name="listServers",
        method="GET",
        path="/servers",
        tag="service",
        what="The servers that share this state, the oldest first, and when each was heard of.",
        run=_servers,
        query=PAGES,
        answer=listing("servers", ServerAnswer, PageAnswer),
        example={
            "list": "servers",
            "total": 1,
            "servers": [
                {
                    "id": "3fa9c1d25e6f7a8b",
                    "name": "build-7",
                    "address": "http://127.0.0.1:8600",
                    "version": "0.1.0",
                    "started": "2026-01-31T12:00:00.000Z",
                    "heard": "2026-01-31T12:30:00.000Z",
                    "state": "ready",
                    "is_this": True,
                    "log": "3fa9c1d25e6f",
                    "head": 12,
                    "head_at": "2026-01-31T12:29:40.000Z",
                    "clock_ms": -3,
                }
            ],
            "next": None,
        },
        problems=(409,),
    ),
    Endpoint(
        name="listExecutors",
        method="GET",
        path="/executors",
        tag="service",
        what="The executors of skills' code that are elsewhere, as each of them answers now.",
        run=_executors,
        query=PAGES,
        answer=listing("executors", ExecutorAnswer, PageAnswer),
        example={
            "list": "executors",
            "total": 1,
            "executors": [
                {
                    "id": "executors:8700 (10.0.0.7)",
                    "runs": ["python"],
                    "name": "executor-7c9d",
                    "version": "0.1.0",
                    "level": "container",
                    "isolation": "shown",
                    "state": "ready",
                    "why": "",
                    "calls": 3,
                    "most": 8,
                    "lag_ms": 4,
                    "seen": "2026-01-31T12:30:00.000Z",
                }
            ],
            "next": None,
        },
        problems=(409, 422),
    ),
    Endpoint(
        name="metrics",
        method="GET",
        path="/metrics",
        tag="service",
        what="Counts for a collector, in the text format of Prometheus.",
        run=_metrics,
        media="text/plain; version=0.0.4; charset=utf-8",
        answer={"type": "string"},
        example="# TYPE skillhouse_skills gauge\nskillhouse_skills 4\n",
    ),
    Endpoint(
        name="showDocument",
        method="GET",
        path="/openapi.json",
        tag="service",
        what="This document.",
        run=_openapi,
        answer=record({"openapi": TEXT, "paths": {"type": "object"}}),
        example={"openapi": "3.1.0", "paths": {}},
    ),
    Endpoint(
        name="showReference",
        method="GET",
        path="/docs",
        tag="service",
        what="This document as a page, with a curl line for each operation.",
        run=_reference,
        media="text/html; charset=utf-8",
        answer={"type": "string"},
        example="<!doctype html>…",
    ),
    Endpoint(
        name="health",
        method="GET",
        path="/health",
        tag="service",
        what="Whether the service answers; with a key also which one it is.",
        run=_health,
        scope=None,
        answer=ref(HealthAnswer),
        example={"status": "ok"},
    ),
    Endpoint(
        name="showStatus",
        method="GET",
        path="/status",
        tag="service",
        what="Counts of skills and findings, roots, and what is wrong with the log.",
        run=_status,
        answer=ref(StatusAnswer),
        example={
            "instance": INSTANCE_EXAMPLE,
            "version": "0.1.0",
            "project": "/home/you/project",
            "trusted": True,
            "profile": "default",
            "skills": 4,
            "hidden": 0,
            "shadowed": 0,
            "diagnostics": 0,
            "errors": 0,
            "changed": [],
            "audit": [],
            "config_fault": "",
            "catalog": {
                "budget_tokens": None,
                "tokens": 210,
                "mcp_tokens": 90,
                "listed": 4,
                "omitted": 0,
                "tool": None,
            },
            "roots": [],
            "trust": [],
            "repositories": [],
        },
    ),
)

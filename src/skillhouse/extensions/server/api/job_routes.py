"""The routes about work that takes long, and how others begin some."""

from __future__ import annotations

from collections.abc import Callable

from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.answers.service import JobAnswer
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.approval_routes import is_visible
from skillhouse.extensions.server.api.job_rows import KeptJob
from skillhouse.extensions.server.api.jobs import Job
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    API_PATH,
    ApiRequest,
    Endpoint,
    RouteResponse,
)
from skillhouse.extensions.server.api.schemas import listing, ref
from skillhouse.floor import structs
from skillhouse.house import AccessScope


def started(
    api: ApiServices, request: ApiRequest, kind: str, work: Callable[[Job], ListAnswer]
) -> RouteResponse:
    """Begin a job of the user who asks, and return it as the answer of a route (202)."""
    job = api.jobs.start(kind, request.access.user, work)
    return RouteResponse(value=job.answer(), headers={"location": f"{API_PATH}/jobs/{job.id}"})


def _list(api: ApiServices, request: ApiRequest) -> ListAnswer:
    found = [one for one in api.jobs.all() if is_visible(request.access, one.user)]
    return listed("jobs", [structs.replace(one.answer(), result=None) for one in found])


def _found(api: ApiServices, request: ApiRequest) -> Job | KeptJob:
    wanted = request.path["job"]
    job = api.jobs.get(wanted)
    if job is None or not is_visible(request.access, job.user):
        raise ApiProblem(404, "unknown-job", f"there is no job `{wanted[:80]}`")
    return job


def _show(api: ApiServices, request: ApiRequest) -> JobAnswer:
    return _found(api, request).answer()


def _cancel(api: ApiServices, request: ApiRequest) -> JobAnswer:
    job = _found(api, request)
    api.jobs.cancel(job)
    return job.answer()


JOB_EXAMPLE = {
    "id": "3fa9c1d25e6f7a8b",
    "kind": "plan",
    "state": "running",
    "message": "fetching https://skills.example.com/skills/pdf",
    "progress": 1_024,
    "total": 4_096,
    "unit": "bytes",
    "begun_ms": 1_769_860_800_000,
    "begun": "2026-01-31T12:00:00.000Z",
    "ended_ms": None,
    "ended": None,
    "result": None,
    "problem": None,
}

ROUTES = (
    Endpoint(
        name="listJobs",
        method="GET",
        path="/jobs",
        tag="packages",
        what="Work that runs, waits or has ended, the newest first, without its results.",
        run=_list,
        answer=listing("jobs", ref(JobAnswer)),
        example={"list": "jobs", "total": 1, "jobs": [JOB_EXAMPLE]},
    ),
    Endpoint(
        name="showJob",
        method="GET",
        path="/jobs/{job}",
        tag="packages",
        what="One piece of work, with its result or problem once it has ended.",
        run=_show,
        answer=ref(JobAnswer),
        example=JOB_EXAMPLE,
    ),
    Endpoint(
        name="cancelJob",
        method="DELETE",
        path="/jobs/{job}",
        tag="packages",
        what="Ends work that waits or fetches something; never within a change.",
        run=_cancel,
        scope=AccessScope.MANAGE,
        is_change=False,
        answer=ref(JobAnswer),
        example={**JOB_EXAMPLE, "state": "cancelled"},
    ),
)

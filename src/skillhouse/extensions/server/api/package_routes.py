"""The routes that change installed skills: plan, apply, verify, pin, uninstall."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

# A package and not its names: what installs is loaded with the first request that needs it.
import skillhouse.house
from skillhouse import install
from skillhouse.answers.installs import OfferedAnswer, PlannedAnswer
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.answers.packages import (
    InstalledAnswer,
    InstalledStateAnswer,
    NewestAnswer,
    RemovedPackageAnswer,
    VerifiedAnswer,
    candidate_answer,
    installed_answer,
    installed_state,
    newest_answer,
)
from skillhouse.answers.service import JobAnswer
from skillhouse.clients import Exporter
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.job_routes import JOB_EXAMPLE, started
from skillhouse.extensions.server.api.jobs import Job
from skillhouse.extensions.server.api.place_routes import INSTALLED_EXAMPLE, STATE_EXAMPLE
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Body,
    Endpoint,
    RouteParameter,
    RouteResponse,
    Schema,
)
from skillhouse.extensions.server.api.schemas import (
    FLAG,
    SHORT,
    array,
    listing,
    named,
    record,
    ref,
    typed,
)
from skillhouse.house import AccessScope
from skillhouse.install import (
    QUESTIONS,
    ChangeRequest,
    asked_state,
    split_id,
)
from skillhouse.presentation.change_values import (
    Agreement,
    applied_changes,
    planned_changes,
)

if TYPE_CHECKING:
    from skillhouse.install import Installer

_SOURCE_ONLY = ("source", "repository", "digest", "all")
_INSTALL_ONLY = (*_SOURCE_ONLY, "lock", "scope")


@contextmanager
def installing(api: ApiServices, job: Job) -> Iterator[Installer]:
    """Give an installer with a `Skillhouse` of its own: others read the skills meanwhile."""
    with (
        skillhouse.house.Skillhouse(api.house.config) as house,
        install.Installer(
            house,
            report=job.report,
            progress=lambda done, total, unit: job.advance(
                done, total, unit, now=api.jobs.moment()
            ),
        ) as installer,
    ):
        yield installer


def _request_of(body: dict[str, Any]) -> ChangeRequest:
    action = body["action"]
    is_install = action == "install"
    wrong = [name for name in _INSTALL_ONLY if not is_install and name in body]
    if wrong:
        raise ApiProblem(400, "wrong-body", f"`{wrong[0]}` is for the action `install`")
    wrong = [name for name in _SOURCE_ONLY if "lock" in body and name in body]
    if wrong:
        raise ApiProblem(400, "wrong-body", f"`{wrong[0]}` does not go with `lock`")
    wanted = "skills" if not is_install else "lock" if "lock" in body else "source"
    if not body.get(wanted) and action != "update":
        raise ApiProblem(400, "wrong-body", f"expected `{wanted}` with the action `{action}`")
    return ChangeRequest(
        action=action,
        source=body.get("source", ""),
        lock=body.get("lock", ""),
        repository=body.get("repository", ""),
        digest=body.get("digest", ""),
        skills=tuple(body.get("skills", ())),
        everything=body.get("all", False),
        scope=body.get("scope", "user"),
    )


def _plan(api: ApiServices, request: ApiRequest) -> RouteResponse:
    wanted = _request_of(request.body)
    return started(api, request, "plan", lambda job: _change(api, job, wanted, planned_changes))


def _apply(api: ApiServices, request: ApiRequest) -> RouteResponse:
    wanted = _request_of(request.body)
    agreed = {
        name: Agreement(digest=one["plan_digest"], answers=tuple(one.get("answers", ())))
        for name, one in request.body["agreed"].items()
    }

    def make(installer: Installer, wanted: ChangeRequest, found: Any) -> list[PlannedAnswer]:
        return applied_changes(installer, wanted, found, agreed)

    return started(api, request, wanted.action, lambda job: _change(api, job, wanted, make))


def _change(
    api: ApiServices,
    job: Job,
    wanted: ChangeRequest,
    make: Callable[[Installer, ChangeRequest, Any], list[PlannedAnswer]],
) -> ListAnswer:
    try:
        with installing(api, job) as installer:
            found = None
            if wanted.action == "install" and not wanted.lock:
                found = installer.opened(
                    wanted.source,
                    expected=wanted.digest,
                    repository=wanted.repository,
                    place=installer.installed.place(wanted.scope),
                )
            changes = make(installer, wanted, found)
    finally:
        api.reader.expire()
    if found is None:
        return listed("skills", changes, OfferedAnswer(candidates=[], problems=[]))
    candidates = list(map(candidate_answer, found.candidates))
    more = OfferedAnswer(candidates=candidates, problems=list(found.problems))
    return listed("skills", changes, more)


def _outdated(api: ApiServices, request: ApiRequest) -> RouteResponse:
    def work(job: Job) -> ListAnswer:
        with installing(api, job) as installer:
            entries = list(installer.installed.entries())
            values = []
            for place, name, entry in entries:
                job.report(name)
                values.append(newest_answer(installer, name, entry, place))
        return listed("skills", values)

    return started(api, request, "outdated", work)


def _verify(api: ApiServices, request: ApiRequest) -> RouteResponse:
    wanted, offline = request.body.get("skills", []), request.body.get("offline", False)

    def work(job: Job) -> ListAnswer:
        with installing(api, job) as installer:
            installed = installer.installed
            ids = [split_id(text) for text in wanted]
            entries = [(*installed.find(name, scope=scope), name) for scope, name in ids]
            if not wanted:
                entries = [(place, entry, name) for place, name, entry in installed.entries()]
            values = []
            for place, entry, name in entries:
                job.report(name)
                state, error = installed.state(name, entry, place), None
                if not offline:
                    state, error = asked_state(installer, name, entry, place)
                values.append(
                    VerifiedAnswer(
                        state=installed_state(state),
                        is_well=state.is_well,
                        error=UNSET if error is None else str(error),
                    )
                )
        return listed("skills", values)

    return started(api, request, "verify", work)


def _uninstall(api: ApiServices, request: ApiRequest) -> RemovedPackageAnswer:
    scope, name = split_id(request.path["skill"])
    with api.fresh() as house, install.Installer(house) as installer:
        is_forced = request.query.get("force", False)
        place = installer.installed.uninstall(name, scope=scope, force=is_forced)
        Exporter(skillhouse.house.export_source(house)).follow(place.target(name))
    api.reader.expire()
    return RemovedPackageAnswer(name=name, scope=place.scope, path=str(place.target(name)))


def _pin(api: ApiServices, request: ApiRequest) -> InstalledAnswer:
    asked, (scope, name) = request.body, split_id(request.path["skill"])
    with api.fresh() as house, install.Installer(house) as installer:
        pinned, reason = asked["pinned"], asked.get("reason", "")
        entry = installer.installed.pin(name, scope=scope, pinned=pinned, reason=reason)
        place, _ = installer.installed.find(name, scope=scope)
    return installed_answer(name, place.scope, entry)


def _accept(api: ApiServices, request: ApiRequest) -> InstalledStateAnswer:
    scope, name = split_id(request.path["skill"])
    with api.fresh() as house, install.Installer(house) as installer:
        place, _ = installer.installed.find(name, scope=scope)
        entry = installer.installed.accept(name, request.body["digest"], scope=place.scope)
        state = installer.installed.state(name, entry, place)
    api.reader.expire()
    return installed_state(state)


CHANGE: Mapping[str, Schema] = {
    "action": {"enum": ["install", "update", "rollback", "restore"]},
    "source": {
        "type": "string",
        "minLength": 1,
        "maxLength": 2_000,
        "description": "Of an install: NAME@RANGE, owner/repo, an address or a directory.",
    },
    "lock": {
        "type": "string",
        "minLength": 1,
        "maxLength": 2_000,
        "description": "Of an install, in place of a source: another installer's lock.",
    },
    "repository": {**SHORT, "description": "The one in which a name is looked for."},
    "digest": {**SHORT, "description": "`sha256:` that the archive must have."},
    "skills": {
        **array(SHORT),
        "maxItems": 200,
        "description": "Of the source, or ids of installed ones; an update without any is of all.",
    },
    "all": {"type": "boolean", "description": "Every skill of the source."},
    "scope": {"enum": ["user", "project"], "description": "Where an install goes."},
}
CHANGE_EXAMPLE = {"action": "install", "source": "pdf@^1.2", "scope": "user"}
AGREED: Schema = {
    "type": "object",
    "maxProperties": 200,
    "description": "What a person agreed to, by the name of the skill.",
    "additionalProperties": record(
        {"plan_digest": SHORT},
        optional={"answers": array({"enum": list(QUESTIONS)}) | {"maxItems": len(QUESTIONS)}},
        closed=True,
    ),
}
_MANAGE = AccessScope.MANAGE
_IDS = array(SHORT) | {"maxItems": 200}
typed(
    JobAnswer,
    "result",
    named("Changes", listing("skills", PlannedAnswer, OfferedAnswer)),
    named("NewestSkills", listing("skills", NewestAnswer)),
    named("VerifiedSkills", listing("skills", VerifiedAnswer)),
)
_JOB: Mapping[str, Any] = {
    "status": 202,
    "answer": ref(JobAnswer),
    "example": JOB_EXAMPLE,
    "problems": (429,),
}
ROUTES = (
    Endpoint(
        name="planChange",
        method="POST",
        path="/changes/plan",
        tag="packages",
        what="Shows what an install, update, rollback or restore would do; nothing is changed.",
        run=_plan,
        scope=_MANAGE,
        is_change=False,
        body=Body(
            schema=record({"action": CHANGE["action"]}, optional=CHANGE, closed=True),
            example=CHANGE_EXAMPLE,
        ),
        **_JOB,
    ),
    Endpoint(
        name="applyChange",
        method="POST",
        path="/changes",
        tag="packages",
        what="Makes what a plan showed, for each skill that is agreed to by its `plan_digest`.",
        run=_apply,
        scope=_MANAGE,
        body=Body(
            schema=record(
                {"action": CHANGE["action"], "agreed": AGREED}, optional=CHANGE, closed=True
            ),
            example={
                **CHANGE_EXAMPLE,
                "agreed": {"pdf": {"plan_digest": "sha256:00", "answers": ["unsigned"]}},
            },
        ),
        **_JOB,
    ),
    Endpoint(
        name="listOutdated",
        method="POST",
        path="/outdated",
        tag="packages",
        what="Asks the source of each installed skill what it has now.",
        run=_outdated,
        scope=_MANAGE,
        is_change=False,
        **_JOB,
    ),
    Endpoint(
        name="verifyInstalled",
        method="POST",
        path="/verify",
        tag="packages",
        what="Compares installed skills with the lock, and asks their repositories about them.",
        run=_verify,
        scope=_MANAGE,
        is_change=False,
        body=Body(
            schema=record({}, optional={"skills": _IDS, "offline": FLAG}, closed=True),
            example={"skills": ["user:pdf"], "offline": False},
        ),
        **_JOB,
    ),
    Endpoint(
        name="uninstall",
        method="DELETE",
        path="/installed/{skill}",
        tag="packages",
        what="Takes an installed skill out of the lock; its files go to the trash.",
        run=_uninstall,
        scope=_MANAGE,
        query=(
            RouteParameter(
                name="force",
                schema={"type": "boolean"},
                what="Also when its files were edited, which are kept.",
                example=False,
            ),
        ),
        answer=ref(RemovedPackageAnswer),
        example={"name": "pdf", "scope": "user", "path": "/home/you/.agents/skills/pdf"},
    ),
    Endpoint(
        name="pin",
        method="PUT",
        path="/installed/{skill}/pin",
        tag="packages",
        what="Keeps an installed skill at its version, or lets it be updated again.",
        run=_pin,
        scope=_MANAGE,
        body=Body(
            schema=record(
                {"pinned": FLAG},
                optional={"reason": {"type": "string", "maxLength": 500}},
                closed=True,
            ),
            example={"pinned": True, "reason": "2.0 drops forms"},
        ),
        answer=ref(InstalledAnswer),
        example={**INSTALLED_EXAMPLE, "pinned": True},
    ),
    Endpoint(
        name="acceptEdits",
        method="POST",
        path="/installed/{skill}/accept",
        tag="packages",
        what="Takes the edits of an installed skill for what is meant, as they were shown.",
        run=_accept,
        scope=_MANAGE,
        body=Body(
            schema=record({"digest": SHORT}, closed=True), example={"digest": "skilltree1:00"}
        ),
        answer=ref(InstalledStateAnswer),
        example={**STATE_EXAMPLE, "state": "accepted"},
    ),
)

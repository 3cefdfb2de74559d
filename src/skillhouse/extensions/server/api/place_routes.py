"""The routes about this place: clients, profiles, installed skills, sandbox, reload, stop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skillhouse.answers.doctor import DoctorAnswer, ProfileLineAnswer, profile_line
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.answers.packages import (
    InstalledAnswer,
    InstalledStateAnswer,
    installed_answer,
    installed_state,
)
from skillhouse.answers.service import (
    ReloadAnswer,
    ResumedAnswer,
    StopAnswer,
    StoppedAnswer,
    loaded_names,
    reload_answer,
    stop_answer,
)
from skillhouse.answers.tools import SandboxAnswer, interpreters_answer
from skillhouse.approval import OWNER
from skillhouse.clients import ReportedProblem, known_clients
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import (
    TEXT,
    listing,
    record,
    ref,
)
from skillhouse.floor import Locations
from skillhouse.floor.threads import in_thread
from skillhouse.house import AccessScope
from skillhouse.install import InstalledSkills
from skillhouse.manage import reload_code
from skillhouse.presentation.doctor_values import (
    examine,
    examined_profiles,
    listed_profiles,
    seen_by,
)
from skillhouse.presentation.sandbox_levels import whole_test
from skillhouse.sandbox import PythonPlaces
from skillhouse.skill import load_profile, profile_names
from skillhouse.tiers.tier_values import PAGE

if TYPE_CHECKING:
    from skillhouse.clients import ClientReport
    from skillhouse.skill import Profile

RESUME_WORD = "resume"
CLIENT = RouteParameter(
    name="client",
    schema={"type": "string", "minLength": 1, "maxLength": 500},
    what="Names with commas between them, or `all`; those installed if left out.",
    example="codex",
)


def _clients(api: ApiServices, request: ApiRequest) -> ListAnswer:
    # What it opens is a `Skillhouse` of its own.
    return examine(api.house.config.places, client_report_of(api, request)).answer()


def client_report_of(api: ApiServices, request: ApiRequest) -> ClientReport:
    """Return what the clients of a request see here; ApiProblem for one that is not known."""
    named = [name for name in request.query.get("client", "").split(",") if name]
    places = api.house.config.places
    for name in named:
        if name != "all":
            check_client(places, name)
    return seen_by(places, examined_profiles(places, named))


def _profiles(api: ApiServices, _: ApiRequest) -> ListAnswer:
    found = list(map(profile_line, listed_profiles(api.house.config.places)))
    return listed("profiles", found)


def _profile(api: ApiServices, request: ApiRequest) -> Profile:
    name, places = request.path["profile"], api.house.config.places
    check_profile(places, name)
    return load_profile(name, places.profiles)


def check_client(places: Locations, name: str) -> None:
    """Take a client or a profile by its name only."""
    if name not in known_clients():
        check_profile(places, name)


def check_profile(places: Locations, name: str) -> None:
    """Take a profile by its name only: a path would read any file of this machine."""
    if name not in profile_names(places.profiles):
        raise ApiProblem(404, "unknown-profile", f"there is no profile `{name[:80]}`")


def _installed(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        entries = list(InstalledSkills(house).entries())
    found = [installed_answer(name, place.scope, entry) for place, name, entry in entries]
    return listed("skills", found)


def _installed_one(api: ApiServices, request: ApiRequest) -> InstalledStateAnswer:
    scope, _, name = request.path["skill"].rpartition(":")
    with api.fresh() as house:
        installed = InstalledSkills(house)
        place, entry = installed.find(name, scope=scope)
        return installed_state(installed.state(name, entry, place))


async def _sandbox(api: ApiServices, _: ApiRequest) -> SandboxAnswer:
    house = api.house
    status = await whole_test(least=house.services.least_sandbox)
    places = PythonPlaces(os.environ, house.project)
    found = await in_thread(lambda: interpreters_answer(places))
    return SandboxAnswer(status=status, interpreters=found)


async def _reload(api: ApiServices, request: ApiRequest) -> ListAnswer:
    house = api.house
    done = await reload_code(house, agent=request.access.agent)
    api.reader.expire()
    names = loaded_names(done.loaded)
    problems = house.services.skill_code.problems
    return listed("loaded", names, reload_answer(done, problems))


def _stopped(api: ApiServices, _: ApiRequest) -> StoppedAnswer:
    reason = api.house.services.enforcement.tiers.stopped_reason
    return StoppedAnswer(stopped=bool(reason), reason=reason)


def _stop(api: ApiServices, request: ApiRequest) -> StopAnswer:
    reason = request.body.get("reason", "over the API")
    return stop_answer(api.house.services.enforcement.stop(request.access.user, reason))


def _resume(api: ApiServices, request: ApiRequest) -> ResumedAnswer:
    if not request.access.is_owner:
        text = "a stop is lifted with the token that `skillhouse up` printed"
        raise ApiProblem(403, "owner-wanted", text)
    return ResumedAnswer(resumed=api.house.services.enforcement.resume(OWNER, PAGE))


INSTALLED_EXAMPLE = {
    "name": "pdf",
    "scope": "user",
    "version": "1.2",
    "repository": "github.com/example/skills",
    "resolved": "https://github.com/example/skills",
    "inside": "skills/pdf",
    "requested": "example/skills",
    "digest": "sha256:00",
    "tree_digest": "skilltree1:00",
    "size": 2_048,
    "publisher": None,
    "pinned": False,
    "build": None,
    "pin_reason": "",
    "dated": "2026-01-31",
    "commit": "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00",
    "rollback": False,
}
STATE_EXAMPLE = {
    **INSTALLED_EXAMPLE,
    "path": "/home/you/.agents/skills/pdf",
    "state": "ok",
    "problem": "",
    "note": "",
    "found": "skilltree1:00",
    "left": [],
    "changes": [],
}
_MANAGE = AccessScope.MANAGE

ROUTES = (
    Endpoint(
        name="examineClients",
        method="GET",
        path="/clients",
        tag="place",
        what="Which client sees which skill and why others do not, as `doctor` says it.",
        run=_clients,
        query=(CLIENT,),
        answer=listing("problems", ReportedProblem, DoctorAnswer),
        example={
            "list": "problems",
            "total": 0,
            "problems": [],
            "machine": "skillhouse 0.1.0, Linux",
            "start": "~/project",
            "project": "~/project",
            "clients": [],
            "skills": [],
            "misses": [],
            "audit": [],
            "files": [],
            "configuration": [],
            "entries": [],
            "catalog": None,
            "watches": None,
            "trust": [],
            "repositories": [],
            "code": [],
            "installed": [],
            "tools": {"programs": [], "path": "/usr/bin", "notes": [], "git_left_out": []},
        },
        problems=(404,),
    ),
    Endpoint(
        name="listProfiles",
        method="GET",
        path="/profiles",
        tag="place",
        what="How clients and designs treat skills, by name.",
        run=_profiles,
        answer=listing("profiles", ProfileLineAnswer),
        example={
            "list": "profiles",
            "total": 1,
            "profiles": [{"name": "codex", "title": "Codex", "client": "Codex", "checked": ""}],
        },
    ),
    Endpoint(
        name="showProfile",
        method="GET",
        path="/profiles/{profile}",
        tag="place",
        what="Every value of a profile.",
        run=_profile,
        answer=record({"name": TEXT, "title": TEXT}),
        example={"name": "codex", "title": "Codex"},
    ),
    Endpoint(
        name="listInstalled",
        method="GET",
        path="/installed",
        tag="place",
        what="The installed skills, and where each is from.",
        run=_installed,
        answer=listing("skills", InstalledAnswer),
        example={"list": "skills", "total": 1, "skills": [INSTALLED_EXAMPLE]},
        problems=(409,),
    ),
    Endpoint(
        name="showInstalled",
        method="GET",
        path="/installed/{skill}",
        tag="place",
        what="An installed skill, and whether its files are those that were installed.",
        run=_installed_one,
        answer=ref(InstalledStateAnswer),
        example=STATE_EXAMPLE,
    ),
    Endpoint(
        name="showSandbox",
        method="GET",
        path="/sandbox",
        tag="service",
        what="The level that commands run at, tested now, and the Pythons of skills' code.",
        run=_sandbox,
        answer=ref(SandboxAnswer),
        example={
            "level": "bubblewrap+seccomp+rlimits",
            "reasons": [],
            "probes": [],
            "hint": "",
            "pythons": [],
            "unusable_pythons": [],
        },
    ),
    Endpoint(
        name="reload",
        method="POST",
        path="/reload",
        tag="service",
        what="Reads and loads the code of skills again, in every process of this state.",
        run=_reload,
        scope=_MANAGE,
        answer=listing("loaded", TEXT, ReloadAnswer),
        example={
            "list": "loaded",
            "total": 0,
            "loaded": [],
            "not_tried": [],
            "failed": [],
            "steps": [],
        },
        problems=(409,),
    ),
    Endpoint(
        name="showStop",
        method="GET",
        path="/stop",
        tag="service",
        what="Whether everything is stopped, and why.",
        run=_stopped,
        answer=ref(StoppedAnswer),
        example={"stopped": False, "reason": ""},
    ),
    Endpoint(
        name="stop",
        method="POST",
        path="/stop",
        tag="service",
        what="Stops every tool and ends the session keys at once; also where nothing may change.",
        run=_stop,
        scope=_MANAGE,
        is_change=False,
        body=Body(
            schema=record(
                {}, optional={"reason": {"type": "string", "maxLength": 500}}, closed=True
            ),
            example={"reason": "the bot pays an unknown address"},
        ),
        answer=ref(StopAnswer),
        example={"new": True, "ended": 0, "silent": [], "killed": 0, "done": [], "failed": []},
    ),
    Endpoint(
        name="resume",
        method="POST",
        path="/resume",
        tag="service",
        what="Lifts a stop; only the owner's own key may, and says the word.",
        run=_resume,
        scope=_MANAGE,
        body=Body(
            schema=record({"confirm": {"const": RESUME_WORD}}, closed=True),
            example={"confirm": RESUME_WORD},
        ),
        answer=ref(ResumedAnswer),
        example={"resumed": True},
        problems=(409,),
    ),
)

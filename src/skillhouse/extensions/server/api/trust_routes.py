"""The routes about the trust in this project: show, give, revoke."""

from __future__ import annotations

from skillhouse.answers.json_form import ListAnswer
from skillhouse.answers.trust import (
    RevokedTrustAnswer,
    ShownTrustAnswer,
    TrustAnswer,
    TrustedSkillAnswer,
    trust_answer,
    trust_shown,
    trust_view,
)
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint
from skillhouse.extensions.server.api.schemas import listing, record, ref
from skillhouse.floor import SkillError
from skillhouse.house import AccessScope

TRUST_PATH = "/trust"
WORD = "trust"
"""A person types it, so that no single press trusts a project."""


def _show(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        return trust_view(house).shown()


def _trust(api: ApiServices, request: ApiRequest) -> ListAnswer:
    if not request.access.is_owner:
        text = "a project is trusted with the token that `skillhouse up` printed, or on its page"
        raise ApiProblem(403, "owner-wanted", text)
    try:
        with api.fresh() as house:
            report = trust_shown(house, request.body["digest"])
    except SkillError as error:
        if error.code == "changed":
            raise ApiProblem(412, error.code, str(error)) from error
        raise
    api.reader.expire()
    return trust_answer(report)


def _revoke(api: ApiServices, _: ApiRequest) -> RevokedTrustAnswer:
    with api.fresh() as house:
        revoked = house.project_trust.revoke()
        project = str(house.project)
    api.reader.expire()
    return RevokedTrustAnswer(project=project, revoked=revoked)


_EXAMPLE = {
    "list": "skills",
    "total": 1,
    "skills": [
        {
            "name": "build",
            "description": "Builds the project. Use before a release.",
            "earlier_description": None,
            "directory": ".agents/skills/build",
            "tree_digest": "skilltree1:00",
            "state": "new",
            "problem": None,
            "found_by": [],
            "targets": [],
            "readings": [],
        }
    ],
    "project": "/home/you/project",
    "trusted": False,
    "through": [],
}
_SHOWN = {"type": "string", "minLength": 1, "maxLength": 100}

ROUTES = (
    Endpoint(
        name="showTrust",
        method="GET",
        path=TRUST_PATH,
        tag="place",
        what="The skills of this project compared with those that were trusted; reads them all.",
        run=_show,
        answer=listing("skills", TrustedSkillAnswer, ShownTrustAnswer),
        example={**_EXAMPLE, "code": [], "replaces": {}, "diagnostics": [], "digest": "sha256:00"},
        problems=(409,),
    ),
    Endpoint(
        name="trustProject",
        method="PUT",
        path=TRUST_PATH,
        tag="place",
        what="Trusts this project and its skills, if they are what `digest` showed.",
        run=_trust,
        scope=AccessScope.MANAGE,
        body=Body(
            schema=record({"digest": _SHOWN, "confirm": {"const": WORD}}, closed=True),
            example={"digest": "sha256:00", "confirm": WORD},
        ),
        answer=listing("skills", TrustedSkillAnswer, TrustAnswer),
        example={**_EXAMPLE, "trusted": True},
        problems=(409, 412),
    ),
    Endpoint(
        name="revokeTrust",
        method="DELETE",
        path=TRUST_PATH,
        tag="place",
        what="Revokes the trust in this project and in all work trees of its git repository: "
        "their skills are not read any more.",
        run=_revoke,
        scope=AccessScope.MANAGE,
        answer=ref(RevokedTrustAnswer),
        example={"project": "/home/you/project", "revoked": True},
        problems=(409,),
    ),
)

"""The routes that make, edit, switch, delete and restore skills, and check a text before that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.answers.findings import DiagnosticAnswer, diagnostic_answers
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.answers.skills import (
    DefinitionAnswer,
    DeletedSkillAnswer,
    PreviewAnswer,
    RemovedSkillAnswer,
    RestoredSkillAnswer,
    SourceAnswer,
    SwitchedAnswer,
    definition_answer,
    deleted_skill,
    draft_answer,
)
from skillhouse.clients import Exporter
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import (
    ApiRequest,
    Body,
    Endpoint,
    RouteParameter,
    RouteResponse,
)
from skillhouse.extensions.server.api.schemas import (
    FLAG,
    listing,
    record,
    ref,
)
from skillhouse.floor import SkillError
from skillhouse.house import AccessScope, export_source
from skillhouse.manage import FrontmatterError, read_draft, skill_source, update_skill
from skillhouse.skill import SKILL_FILE_MAX

if TYPE_CHECKING:
    from skillhouse.house import Management

DELETABLE = ("user", "project")
TEXT_BODY_MAX = 2 * SKILL_FILE_MAX
"""Bytes of a request with a whole SKILL.md, with the escapes of JSON."""
IF_MATCH = RouteParameter(
    name="if-match",
    schema={"type": "string", "minLength": 1, "maxLength": 200},
    what="The `ETag` of what was read; another one is there now: 412.",
    example='"sha256:00"',
    place="header",
    required=True,
)


def _create(api: ApiServices, request: ApiRequest) -> DefinitionAnswer:
    asked = request.body
    with api.fresh() as house:
        made = house.management.create(
            asked["name"],
            asked["description"],
            asked["instructions"],
            scope=asked.get("scope", "user"),
        )
    api.reader.expire()
    return definition_answer(made)


def _source(api: ApiServices, request: ApiRequest) -> RouteResponse:
    with api.fresh() as house:
        found = skill_source(house, request.path["skill"])
    if not found.is_text:
        raise SkillError("not-text", found.file, "expected UTF-8 text")
    value = SourceAnswer(text=found.text, digest=found.digest)
    return RouteResponse(value=value, headers={"etag": f'"{found.digest}"'})


def _update(api: ApiServices, request: ApiRequest) -> DefinitionAnswer:
    expected = request.query["if-match"].strip().strip('"')
    with api.fresh() as house:
        try:
            found = update_skill(
                house, request.path["skill"], request.body["text"], expected=expected
            )
        except FrontmatterError as error:
            findings = diagnostic_answers(error.findings)
            raise ApiProblem(422, error.code, str(error), diagnostics=findings) from error
        except SkillError as error:
            if error.code == "changed":
                raise ApiProblem(412, error.code, str(error)) from error
            raise
    api.reader.expire()
    return definition_answer(found)


def _validate(_: ApiServices, request: ApiRequest) -> ListAnswer:
    draft = read_draft(request.body["text"], directory=request.body["name"])
    values = diagnostic_answers(draft.diagnostics)
    return listed("diagnostics", values, PreviewAnswer(preview=draft_answer(draft)))


def _switch(api: ApiServices, request: ApiRequest) -> SwitchedAnswer:
    enabled: bool = request.body["enabled"]
    with api.fresh() as house:
        found = house.management.set_enabled(request.path["skill"], enabled=enabled)
    api.reader.expire()
    return SwitchedAnswer(id=found.id, enabled=enabled)


def _switch_all(api: ApiServices, request: ApiRequest) -> SwitchedAnswer:
    enabled: bool = request.body["enabled"]
    with api.fresh() as house:
        house.management.set_all_enabled(enabled=enabled)
    api.reader.expire()
    return SwitchedAnswer(id="*", enabled=enabled)


def _delete(api: ApiServices, request: ApiRequest) -> RemovedSkillAnswer:
    with api.fresh() as house:
        found = house.management.deletable(request.path["skill"], scopes=DELETABLE)
        path = house.management.delete(found.id, scopes=DELETABLE)
        Exporter(export_source(house)).follow(found.directory)
    api.reader.expire()
    return RemovedSkillAnswer(id=found.id, path=str(path), scope=found.scope)


def _trash(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        found = list(map(deleted_skill, house.management.trash.deleted()))
    return listed("deleted", found)


def _restore(api: ApiServices, request: ApiRequest) -> RestoredSkillAnswer:
    with api.fresh() as house:
        back = house.management.undelete(_id_of(house.management, request.path["key"]))
    api.reader.expire()
    return RestoredSkillAnswer(id=back.id, path=back.path)


def _id_of(management: Management, key: str) -> str:
    """Return the id of the deleted skill with that key, which must be the latest of its id."""
    found = next((one for one in management.trash.deleted() if one.key == key), None)
    if found is None:
        raise ApiProblem(404, "not-deleted", f"no deleted skill has the key `{key[:80]}`")
    if management.trash.find(found.id).key != key:
        raise ApiProblem(409, "not-latest", "a later one of the same id is put back first")
    return found.id


_DEFINITION_EXAMPLE = {
    "id": "user:notes",
    "name": "notes",
    "description": "Takes notes.",
    "source": "user",
    "path": "/home/you/.agents/skills/notes/SKILL.md",
    "directoryPath": "/home/you/.agents/skills/notes",
    "enabled": True,
    "instructions": "Write to notes/.",
    "allowedTools": [],
    "files": [],
}
_ON = Body(schema=record({"enabled": FLAG}, closed=True), example={"enabled": False})
_NAME = {"type": "string", "minLength": 1, "maxLength": 200}
_LONG = {"type": "string", "maxLength": SKILL_FILE_MAX}
_MANAGE = AccessScope.MANAGE

ROUTES = (
    Endpoint(
        name="createSkill",
        method="POST",
        path="/skills",
        tag="skills",
        what="Makes a skill; what is there already is never overwritten.",
        run=_create,
        scope=_MANAGE,
        status=201,
        body=Body(
            schema=record(
                {"name": _NAME, "description": _LONG, "instructions": _LONG},
                optional={"scope": {"enum": ["user", "project"]}},
                closed=True,
            ),
            example={
                "name": "notes",
                "description": "Takes notes.",
                "instructions": "Write to notes/.",
            },
            max_bytes=TEXT_BODY_MAX,
        ),
        answer=ref(DefinitionAnswer),
        example=_DEFINITION_EXAMPLE,
        problems=(409,),
    ),
    Endpoint(
        name="readSkillSource",
        method="GET",
        path="/skills/{skill}/source",
        tag="skills",
        what="The whole SKILL.md as it is, to edit it.",
        run=_source,
        answer=ref(SourceAnswer),
        example={"text": "---\nname: notes\n---\n", "digest": "sha256:00"},
    ),
    Endpoint(
        name="updateSkill",
        method="PUT",
        path="/skills/{skill}/source",
        tag="skills",
        what="Replaces the SKILL.md of a skill of yours or of this project.",
        run=_update,
        scope=_MANAGE,
        query=(IF_MATCH,),
        body=Body(
            schema=record({"text": _LONG}, closed=True),
            example={"text": "---\nname: notes\ndescription: Takes notes.\n---\nWrite.\n"},
            max_bytes=TEXT_BODY_MAX,
        ),
        answer=ref(DefinitionAnswer),
        example=_DEFINITION_EXAMPLE,
        problems=(412, 428),
    ),
    Endpoint(
        name="validateSkill",
        method="POST",
        path="/validate",
        tag="skills",
        what="What the text of a SKILL.md would be, and its findings; nothing is written.",
        run=_validate,
        is_change=False,
        body=Body(
            schema=record({"name": _NAME, "text": _LONG}, closed=True),
            example={"name": "notes", "text": "---\nname: notes\n---\n"},
            max_bytes=TEXT_BODY_MAX,
        ),
        answer=listing("diagnostics", DiagnosticAnswer, PreviewAnswer),
        example={
            "list": "diagnostics",
            "total": 0,
            "diagnostics": [],
            "preview": {
                "name": "notes",
                "description": "Takes notes.",
                "allowed_tools": [],
                "fields": {"name": "notes", "description": "Takes notes."},
                "body": "Write.\n",
                "hidden_text": None,
                "catalog_tokens": 4,
                "body_tokens": 2,
            },
        },
    ),
    Endpoint(
        name="switchSkill",
        method="PUT",
        path="/skills/{skill}/enabled",
        tag="skills",
        what="Lets agents see a skill, or hides it from all of them.",
        run=_switch,
        scope=_MANAGE,
        body=_ON,
        answer=ref(SwitchedAnswer),
        example={"id": "user:notes", "enabled": False},
    ),
    Endpoint(
        name="switchSkills",
        method="PUT",
        path="/enabled",
        tag="skills",
        what="Switches skills as a whole on or off.",
        run=_switch_all,
        scope=_MANAGE,
        body=_ON,
        answer=ref(SwitchedAnswer),
        example={"id": "*", "enabled": False},
    ),
    Endpoint(
        name="deleteSkill",
        method="DELETE",
        path="/skills/{skill}",
        tag="skills",
        what="Moves a skill of yours or of this project to the trash.",
        run=_delete,
        scope=_MANAGE,
        answer=ref(RemovedSkillAnswer),
        example={
            "id": "user:notes",
            "path": "/home/you/.agents/skills/notes",
            "scope": "user",
        },
    ),
    Endpoint(
        name="listTrash",
        method="GET",
        path="/trash",
        tag="skills",
        what="The deleted skills that can be put back, the latest first.",
        run=_trash,
        answer=listing("deleted", DeletedSkillAnswer),
        example={"list": "deleted", "total": 0, "deleted": []},
    ),
    Endpoint(
        name="restoreSkill",
        method="POST",
        path="/trash/{key}/restore",
        tag="skills",
        what="Puts a deleted skill back.",
        run=_restore,
        scope=_MANAGE,
        answer=ref(RestoredSkillAnswer),
        example={"id": "user:notes", "path": "/home/you/.agents/skills/notes"},
    ),
)

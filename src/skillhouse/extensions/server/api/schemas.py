"""JSON Schemas of the values that the API answers with, which are those of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skillhouse.approval import ApprovedScript, Grant
from skillhouse.frontends.answers.approvals import ApprovalAnswer
from skillhouse.frontends.answers.audit import (
    AuditEntryAnswer,
    SeriesAnswer,
    StatsAnswer,
    VerificationAnswer,
)
from skillhouse.frontends.answers.catalogs import PromptCatalogAnswer, SkillHitAnswer
from skillhouse.frontends.answers.client_changes import ExportAnswer, FixAnswer
from skillhouse.frontends.answers.findings import DiagnosticAnswer
from skillhouse.frontends.answers.json_form import JsonAnswer
from skillhouse.frontends.answers.packages import (
    ConfiguredRepositoryAnswer,
    InstalledAnswer,
    InstalledStateAnswer,
    PackageAnswer,
    PublishersAnswer,
    ReleaseAnswer,
)
from skillhouse.frontends.answers.policy import (
    ExplanationAnswer,
    LineAnswer,
    RuleAnswer,
    RuleFindingAnswer,
)
from skillhouse.frontends.answers.rehearsal import RehearsalAnswer
from skillhouse.frontends.answers.service import NewTokenAnswer, ReloadAnswer, StopAnswer
from skillhouse.frontends.answers.skills import (
    ContentAnswer,
    DefinitionAnswer,
    DeletedSkillAnswer,
    DraftAnswer,
    LibrarySkillAnswer,
    ListedSkillAnswer,
    SourceAnswer,
    SwitchedAnswer,
)
from skillhouse.frontends.answers.tools import CallResultAnswer, SandboxAnswer, ToolAnswer
from skillhouse.frontends.answers.trust import TrustViewAnswer

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
SHORT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
EFFECT: Schema = {"enum": ["allow", "ask", "deny"]}


def maybe(schema: Mapping[str, Any]) -> Schema:
    """Return the schema of a value that may be null.

    >>> maybe({"type": "string"})
    {'type': ['string', 'null']}
    """
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [dict(schema), {"type": "null"}]}


def array(items: Mapping[str, Any]) -> Schema:
    return {"type": "array", "items": dict(items)}


def record(
    required: Mapping[str, Mapping[str, Any]],
    *,
    optional: Mapping[str, Mapping[str, Any]] | None = None,
    closed: bool = False,
) -> Schema:
    """Return the schema of an object; a closed one has no other members, as requests do."""
    found: Schema = {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
    }
    return {**found, "additionalProperties": False} if closed else found


def listing(name: str, items: Mapping[str, Any], /, **more: Mapping[str, Any]) -> Schema:
    """Return the schema of a list as `--json` writes one (docs/reference/json.md)."""
    return record({"list": {"const": name}, "total": COUNT, name: array(items), **more})


def page(name: str, items: Mapping[str, Any], **more: Mapping[str, Any]) -> Schema:
    """Return the schema of one page of a list; `next` is the cursor of the following one."""
    return listing(name, items, next=maybe(TEXT), **more)


def ref(answer: type | str) -> Schema:
    """Return a reference to the schema of an answer.

    >>> ref(ToolAnswer)
    {'$ref': '#/components/schemas/Tool'}
    """
    name = answer if isinstance(answer, str) else answer.__name__
    return {"$ref": _TEMPLATE.format(name=name.removesuffix("Answer"))}


def either(*answers: type) -> Schema:
    """Return the schema of an answer that is one of several."""
    return {"anyOf": [ref(one) for one in answers]}


_TEMPLATE = "#/components/schemas/{name}"
ANSWERS: tuple[type, ...] = (
    ApprovalAnswer,
    ApprovedScript,
    AuditEntryAnswer,
    CallResultAnswer,
    ContentAnswer,
    DefinitionAnswer,
    DeletedSkillAnswer,
    DiagnosticAnswer,
    DraftAnswer,
    ExplanationAnswer,
    ExportAnswer,
    FixAnswer,
    Grant,
    InstalledAnswer,
    InstalledStateAnswer,
    LibrarySkillAnswer,
    LineAnswer,
    ListedSkillAnswer,
    NewTokenAnswer,
    PackageAnswer,
    PromptCatalogAnswer,
    PublishersAnswer,
    RehearsalAnswer,
    ReleaseAnswer,
    ReloadAnswer,
    ConfiguredRepositoryAnswer,
    RuleAnswer,
    RuleFindingAnswer,
    SandboxAnswer,
    SeriesAnswer,
    SkillHitAnswer,
    SourceAnswer,
    StatsAnswer,
    StopAnswer,
    SwitchedAnswer,
    ToolAnswer,
    TrustViewAnswer,
    VerificationAnswer,
)
"""The answers that routes name; those in them follow."""


def components() -> dict[str, Schema]:
    """Return the schemas of all answers, made from their types."""
    _, found = msgspec.json.schema_components(
        ANSWERS, schema_hook=lambda _: {"title": "any"}, ref_template=_TEMPLATE
    )
    flat = {name: kind.flat_members for name, kind in _kinds(JsonAnswer).items()}
    made = {name.removesuffix("Answer"): _answered(_flattened(name, found, flat)) for name in found}
    return dict(sorted({**COMPONENTS, **made}.items()))


def _kinds(kind: type[JsonAnswer]) -> dict[str, type[JsonAnswer]]:
    found = {kind.__name__: kind}
    for one in kind.__subclasses__():
        found |= _kinds(one)
    return found


def _flattened(
    name: str, schemas: Mapping[str, Schema], flat: Mapping[str, tuple[str, ...]]
) -> Schema:
    """Return a schema with the members of its flat members in their places."""
    schema = schemas[name]
    if not flat.get(name):
        return schema
    properties: Schema = {}
    required: list[str] = []
    for member, value in schema["properties"].items():
        is_required = member in schema["required"]
        if member in flat[name]:
            below = _flattened(value["$ref"].rpartition("/")[2], schemas, flat)
            properties |= below["properties"]
            required += below["required"] if is_required else []
        else:
            properties[member] = value
            required += [member] if is_required else []
    return {**schema, "properties": properties, "required": required}


def _answered(schema: Any) -> Any:
    """Return a schema as what we write fits it: what has a default is written too."""
    if isinstance(schema, list):
        return [_answered(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _answered(one) for key, one in schema.items() if key not in ("title", "default")}
    if "$ref" in found:
        found["$ref"] = found["$ref"].removesuffix("Answer")
    members = schema.get("properties", {})
    if members:
        always = {*schema["required"], *(name for name in members if "default" in members[name])}
        found |= {"required": [name for name in members if name in always]}
        # A member may have the name of a word of JSON Schema.
        found |= {"properties": {name: _answered(one) for name, one in members.items()}}
    return found


HINT = {"hint": maybe(TEXT), "mend": maybe(TEXT)}
PROBLEM = record(
    {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "code": TEXT,
        **HINT,
    }
)
JOB = record(
    {
        "id": TEXT,
        "kind": TEXT,
        "state": {"enum": ["waiting", "running", "done", "failed", "cancelled"]},
        "message": TEXT,
        "progress": COUNT,
        "total": maybe(COUNT),
        "unit": TEXT,
        "begun_ms": COUNT,
        "ended_ms": maybe(COUNT),
        "result": ANY,
        "problem": maybe(ref("Problem")),
    }
)
COMPONENTS: Mapping[str, Schema] = {
    "Job": JOB,
    "Problem": PROBLEM,
}

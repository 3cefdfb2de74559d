"""JSON Schemas of the values that the API answers with, which are those of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skillhouse.approval import ApprovedScript, Grant
from skillhouse.frontends.answers.approvals import ApprovalAnswer
from skillhouse.frontends.answers.tools import CallResultAnswer, SandboxAnswer, ToolAnswer

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
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


_TEMPLATE = "#/components/schemas/{name}"
ANSWERS: tuple[type, ...] = (
    ApprovalAnswer,
    ApprovedScript,
    CallResultAnswer,
    Grant,
    SandboxAnswer,
    ToolAnswer,
)
"""The answers that routes name; those in them follow."""


def components() -> dict[str, Schema]:
    """Return the schemas of all answers, made from their types."""
    _, found = msgspec.json.schema_components(
        ANSWERS, schema_hook=lambda _: {}, ref_template=_TEMPLATE
    )
    made = {name.removesuffix("Answer"): _answered(schema) for name, schema in found.items()}
    return dict(sorted({**COMPONENTS, **made}.items()))


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
DIAGNOSTIC = record(
    {
        "code": TEXT,
        "severity": {"enum": ["error", "warning", "info"]},
        "message": TEXT,
        "path": maybe(TEXT),
        "line": maybe(COUNT),
        "field": maybe(TEXT),
        **HINT,
        "detail": maybe(TEXT),
    }
)
SKILL = record(
    {
        "id": TEXT,
        "name": TEXT,
        "description": TEXT,
        "scope": TEXT,
        "location": TEXT,
        "directory": TEXT,
        "uri": TEXT,
    },
    optional={
        "root": TEXT,
        "clients": array(TEXT),
        "score": NUMBER,
        "fields": array(TEXT),
        "shadowed_by": TEXT,
        "listing": TEXT,
    },
)
MATCHED_RULE = record(
    {
        "layer": TEXT,
        "rule_index": COUNT,
        "effect": EFFECT,
        "action": TEXT,
        "pattern": TEXT,
        "reason": TEXT,
        "is_verdict": FLAG,
        "decided": FLAG,
    }
)
EXPLANATION = record(
    {
        "action": TEXT,
        "resource": TEXT,
        "effect": EFFECT,
        "layer": TEXT,
        "rule_index": maybe(COUNT),
        "reason": TEXT,
        "rules": array(ref("MatchedRule")),
    }
)
CONTENT = {
    **record(
        {
            **SKILL["properties"],
            "body": TEXT,
            "hidden_text": maybe(TEXT),
            "resources": array(TEXT),
            "resources_omitted": COUNT,
            "resources_more": FLAG,
            "diagnostics": array(ref("Diagnostic")),
        }
    ),
    "required": ["id", "name", "body", "hidden_text", "resources", "diagnostics"],
}
DEFINITION = record(
    {
        "id": TEXT,
        "name": TEXT,
        "description": TEXT,
        "source": TEXT,
        "path": TEXT,
        "directoryPath": TEXT,
        "enabled": FLAG,
        "instructions": TEXT,
        "allowedTools": array(TEXT),
        "files": array(record({"name": TEXT, "path": TEXT, "type": TEXT})),
    }
)
RULE = record(
    {
        "layer": TEXT,
        "rule_index": COUNT,
        "effect": EFFECT,
        "action": TEXT,
        "pattern": TEXT,
        "reason": TEXT,
    }
)
RULE_FINDING = record(
    {"code": TEXT, "layer": TEXT, "rule_index": COUNT, "effect": EFFECT, "message": TEXT}
)
AUDIT_ENTRY = record(
    {
        "record": {"type": "object"},
        "outcome": maybe({"type": "object"}),
        "status": TEXT,
        "about": TEXT,
    }
)
VERIFICATION = record({"ok": FLAG, "records": COUNT, "problems": array({"type": "object"})})
INSTALLED = record(
    {
        "name": TEXT,
        "scope": TEXT,
        "version": maybe(TEXT),
        "repository": TEXT,
        "digest": TEXT,
        "tree_digest": TEXT,
        "pinned": FLAG,
        "rollback": FLAG,
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
DELETED = record({"key": TEXT, "id": TEXT, "path": TEXT, "deleted": TEXT, "enabled": FLAG})

COMPONENTS: Mapping[str, Schema] = {
    "AuditEntry": AUDIT_ENTRY,
    "Content": CONTENT,
    "Definition": DEFINITION,
    "DeletedSkill": DELETED,
    "Diagnostic": DIAGNOSTIC,
    "Explanation": EXPLANATION,
    "Installed": INSTALLED,
    "Job": JOB,
    "MatchedRule": MATCHED_RULE,
    "Problem": PROBLEM,
    "Rule": RULE,
    "RuleFinding": RULE_FINDING,
    "Skill": SKILL,
    "Verification": VERIFICATION,
}

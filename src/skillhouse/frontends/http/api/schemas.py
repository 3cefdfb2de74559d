"""JSON Schemas of the values that the API answers with, which are those of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


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
TOOL = record(
    {
        "name": TEXT,
        "full_name": TEXT,
        "skill": maybe(TEXT),
        "level": maybe(TEXT),
        "python": maybe({"type": "object"}),
        "description": TEXT,
        "parameters": {"type": "object"},
    }
)
RESULT = record(
    {
        "status": {"enum": ["ok", "error", "denied", "pending"]},
        "content": TEXT,
        "data": maybe({"type": "object"}),
        "approval_id": maybe(TEXT),
    }
)
APPROVAL = record(
    {
        "id": TEXT,
        "state": {"enum": ["open", "approved", "used", "denied", "expired"]},
        "tool": TEXT,
        "title": TEXT,
        "agent": TEXT,
        "user": TEXT,
        "channel": TEXT,
        "reasons": array(TEXT),
        "facts": array(record({"label": TEXT, "value": TEXT})),
        "always": array(TEXT),
        "content": ANY,
        "content_digest": TEXT,
        "opened_ms": COUNT,
        "expires_ms": COUNT,
        "answer": maybe(TEXT),
    }
)
GRANT = record({"id": TEXT, "action": TEXT, "pattern": TEXT, "place": TEXT, "user": TEXT})
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
    "Approval": APPROVAL,
    "AuditEntry": AUDIT_ENTRY,
    "Content": CONTENT,
    "Definition": DEFINITION,
    "DeletedSkill": DELETED,
    "Diagnostic": DIAGNOSTIC,
    "Explanation": EXPLANATION,
    "Grant": GRANT,
    "Installed": INSTALLED,
    "Job": JOB,
    "MatchedRule": MATCHED_RULE,
    "Problem": PROBLEM,
    "Result": RESULT,
    "Rule": RULE,
    "RuleFinding": RULE_FINDING,
    "Skill": SKILL,
    "Tool": TOOL,
    "Verification": VERIFICATION,
}

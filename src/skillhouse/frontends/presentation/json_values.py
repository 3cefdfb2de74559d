"""Our values as plain JSON values; every frontend with JSON output uses these."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from skillhouse.skill import hidden_text, revealed

if TYPE_CHECKING:
    from skillhouse.approval import Approval, Grant
    from skillhouse.audit import AuditEntry, Verification
    from skillhouse.discovery import Catalog
    from skillhouse.floor import Diagnostic
    from skillhouse.runtime import Explanation, Rehearsal, TrustReport
    from skillhouse.sandbox import SandboxStatus
    from skillhouse.skill import Skill, SkillContent, SkillIndex


def skill_value(skill: Skill) -> dict[str, Any]:
    """Return what identifies and describes a skill."""
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "scope": skill.scope,
        "location": skill.file,
        "directory": str(skill.directory),
        "uri": skill.uri,
    }


def index_value(index: SkillIndex) -> dict[str, Any]:
    """Return an index with its shadowed skills and findings."""
    return {
        "skills": [skill_value(skill) for skill in index.skills],
        "shadowed": [skill_value(skill) for skill in index.shadowed],
        "diagnostics": diagnostic_values(index.diagnostics),
    }


def diagnostic_values(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Return findings."""
    return [
        {
            "code": found.code,
            "severity": found.severity.value,
            "message": found.message,
            "path": None if found.path is None else str(found.path),
            "line": found.line,
        }
        for found in diagnostics
    ]


def content_value(content: SkillContent) -> dict[str, Any]:
    """Return a loaded skill; what people do not see of its body is there as escapes."""
    hidden = hidden_text(content.text)
    return {
        **skill_value(content.skill),
        "body": revealed(content.body),
        "hidden_text": None if hidden is None else hidden.summary,
        "resources": list(content.resources),
        "resources_omitted": content.resources_omitted,
        "diagnostics": diagnostic_values(content.diagnostics),
    }


def explanation_value(found: Explanation) -> dict[str, Any]:
    """Return a decision with every rule that matches."""
    return {
        "action": found.permission.action,
        "resource": found.permission.resource,
        "effect": found.decision.effect.value,
        "layer": found.decision.layer,
        "rule_index": found.decision.rule_index,
        "reason": found.reason,
        "rules": [
            {
                "layer": matched.layer,
                "rule_index": matched.rule_index,
                "effect": matched.rule.effect.value,
                "action": matched.rule.action,
                "pattern": matched.rule.pattern,
                "reason": matched.rule.reason,
                "is_verdict": matched.is_verdict,
                "decided": matched.decided,
            }
            for matched in found.matched
        ],
    }


def catalog_value(catalog: Catalog) -> dict[str, Any]:
    """Return a catalog, its cost, and what the budget left out."""
    return {
        "text": catalog.text,
        "tokens": catalog.tokens,
        "included": [skill.id for skill in catalog.included],
        "omitted": [skill.id for skill in catalog.omitted],
    }


def trust_value(report: TrustReport) -> dict[str, Any]:
    """Return a project and how its skills stand to what was trusted."""
    return {
        "project": str(report.project),
        "trusted": report.is_trusted,
        "skills": [
            {
                "name": found.skill.name,
                "directory": found.directory,
                "tree_digest": found.tree_digest or None,
                "state": found.state,
                "problem": found.problem or None,
            }
            for found in report.skills
        ],
    }


def rehearsal_value(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return every step of a rehearsal."""
    return {
        "request": rehearsal.request,
        "catalog": catalog_value(rehearsal.catalog),
        "hidden": rehearsal.hidden,
        "hits": [
            {
                "id": hit.id,
                "name": hit.name,
                "score": hit.score,
                "fields": list(hit.fields),
                "exact": hit.exact,
            }
            for hit in rehearsal.hits
        ],
        "skill": None if rehearsal.skill is None else skill_value(rehearsal.skill),
        "decision": None if rehearsal.decision is None else explanation_value(rehearsal.decision),
        "content": None if rehearsal.content is None else content_value(rehearsal.content),
        "mentions": [
            {
                "kind": verdict.mention.kind,
                "text": verdict.mention.text,
                "line": verdict.mention.line,
                "effect": verdict.effect.value,
                "layer": verdict.layer,
                "reason": verdict.reason,
                "argv": None if verdict.argv is None else list(verdict.argv),
            }
            for verdict in rehearsal.mentions
        ],
        "sandbox": None if rehearsal.sandbox is None else sandbox_value(rehearsal.sandbox),
        "protected": list(rehearsal.protected),
    }


def entry_value(entry: AuditEntry) -> dict[str, Any]:
    """Return a call of the audit log with its outcome."""
    return {**dataclasses.asdict(entry), "status": entry.status}


def verification_value(found: Verification) -> dict[str, Any]:
    """Return what the audit log's chain says."""
    return {**dataclasses.asdict(found), "ok": not found.problems}


def sandbox_value(status: SandboxStatus) -> dict[str, Any]:
    """Return the sandbox's level and its probes."""
    return {**dataclasses.asdict(status), "level": status.level.value}


def approval_value(found: Approval) -> dict[str, Any]:
    """Return an approval request with everything it covers, but not its nonce."""
    request = found.request
    return {
        "id": found.id,
        "state": found.state.value,
        "tool": request.tool,
        "title": request.title,
        "agent": request.agent,
        "user": request.user,
        "channel": request.channel,
        "client": request.client,
        "place": request.place,
        "level": request.level,
        "reasons": list(request.reasons),
        "facts": [{"label": label, "value": value} for label, value in request.facts],
        "always": list(request.always),
        "content": json.loads(request.content),
        "content_digest": request.content_digest,
        "opened_ms": request.opened_ms,
        "expires_ms": request.expires_ms,
        "answer": found.answer or None,
        "answered_by": found.by or None,
        "answered_on": found.channel or None,
        "device": {"id": found.device, "name": found.device_name} if found.device else None,
        "message": found.message or None,
        "closed_ms": found.closed_ms or None,
    }


def device_text(found: Approval | Grant) -> str:
    """Return the paired device of an answer or a standing approval, by name and id, or nothing."""
    return f"{found.device_name} ({found.device})" if found.device else ""


def grant_value(grant: Grant) -> dict[str, Any]:
    """Return a standing approval."""
    return dataclasses.asdict(grant)

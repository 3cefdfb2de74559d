"""Our values as plain JSON values, and what the bounds of catalogs leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.floor import structs
from skillhouse.frontends.presentation.call_values import subject_of
from skillhouse.frontends.presentation.error_values import hint_value
from skillhouse.frontends.presentation.text import counted
from skillhouse.retrieval import Fit, fit_of, is_weak, reason
from skillhouse.skill import tokens_of

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry, Verification
    from skillhouse.discovery import Catalog
    from skillhouse.floor import Diagnostic
    from skillhouse.house import AgentView, Explanation, ReadCommand, Rehearsal, TrustReport
    from skillhouse.manage.code_facts import CodeFacts
    from skillhouse.permission import CommandReading, MatchedRule
    from skillhouse.retrieval import Hit, MeaningState
    from skillhouse.skill import Skill, SkillContent, SkillIndex


def skill_value(skill: Skill) -> dict[str, Any]:
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
    return {
        "skills": [skill_value(skill) for skill in index.skills],
        "shadowed": [skill_value(skill) for skill in index.shadowed],
        "diagnostics": diagnostic_values(index.diagnostics),
    }


def diagnostic_values(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    return [
        {
            "code": found.code,
            "severity": found.severity.value,
            "message": found.message,
            "path": None if found.path is None else str(found.path),
            "line": found.line,
            "field": found.field or None,
            **hint_value(found.mend),
            "detail": found.detail or None,
        }
        for found in diagnostics
    ]


def content_value(content: SkillContent) -> dict[str, Any]:
    """Return a loaded skill; what people do not see of its body is there as escapes."""
    hidden = skill_package.hidden_text(content.text)
    return {
        **skill_value(content.skill),
        "body": skill_package.revealed(content.body),
        "hidden_text": None if hidden is None else hidden.summary,
        "resources": list(content.resources),
        "resources_omitted": content.resources_omitted,
        "resources_more": content.resources_more,
        "diagnostics": diagnostic_values(content.diagnostics),
    }


def explanation_value(found: Explanation) -> dict[str, Any]:
    return {
        "action": found.permission.action,
        "resource": found.permission.resource,
        "effect": found.decision.effect.value,
        "layer": found.decision.layer,
        "rule_index": found.decision.rule_index,
        "reason": found.reason,
        "rules": [matched_value(matched) for matched in found.matched],
    }


def matched_value(matched: MatchedRule) -> dict[str, Any]:
    return {
        "layer": matched.layer,
        "rule_index": matched.rule_index,
        "effect": matched.rule.effect.value,
        "action": matched.rule.action,
        "pattern": matched.rule.pattern,
        "reason": matched.rule.reason,
        "is_verdict": matched.is_verdict,
        "decided": matched.decided,
    }


def command_value(command: ReadCommand) -> dict[str, Any]:
    rule = command.rule
    return {
        "effect": command.judged.effect.value,
        "reason": command.judged.reason,
        "unbound": command.judged.unbound,
        "variables": dict(command.variables),
        "redirects": [[r.descriptor, r.kind, r.target] for r in command.redirects],
        "layer": command.layer,
        "rule_index": None if rule is None else command.rule_index,
        "pattern": None if rule is None else rule.pattern,
        **reading_value(command.reading),
    }


def reading_value(found: CommandReading) -> dict[str, Any]:
    return {
        "argv": list(found.argv),
        "program": found.program,
        "grammar": found.source,
        "sub_command": list(found.sub_command),
        "options": [list(option) for option in found.options],
        "operands": list(found.operands),
        "reads": list(found.reads),
        "writes": list(found.writes),
        "directories": list(found.directories),
        "sets": dict(found.variables),
        "scripts": [list(paths) for paths in found.scripts],
        "hazards": list(found.hazards),
        "unknown": found.unknown,
        "starts": None if found.starts is None else reading_value(found.starts),
    }


def catalog_value(catalog: Catalog) -> dict[str, Any]:
    return {
        "text": catalog.text,
        "tokens": catalog.tokens,
        "included": [skill.id for skill in catalog.included],
        "omitted": [skill.id for skill in catalog.omitted],
    }


def trust_value(report: TrustReport) -> dict[str, Any]:
    return {
        "project": str(report.project),
        "trusted": report.is_trusted,
        "through": list(report.through),
        "skills": [
            {
                "name": found.skill.name,
                "description": found.skill.description,
                "earlier_description": found.earlier.description if found.earlier else None,
                "directory": found.directory,
                "tree_digest": found.tree_digest or None,
                "state": found.state,
                "problem": found.problem or None,
                "found_by": list(found.finders),
                "targets": list(found.targets),
                "readings": [
                    {
                        "profiles": list(one.profiles),
                        "name": one.text.name,
                        "description": one.text.description,
                    }
                    for one in found.other_readings
                ],
            }
            for found in report.skills
        ],
    }


def hit_value(hit: Hit) -> dict[str, Any]:
    """Return how well a skill fits a request, and why."""
    return {
        "score": hit.score,
        "exact": hit.exact,
        "fields": list(hit.fields),
        "confidence": round(hit.confidence, 4),
        "matches": {where: list(words) for where, words in hit.matches.items()},
        "alike": list(hit.alike),
        "similarity": round(hit.similarity, 4),
        "reason": reason(hit),
        "learned": round(hit.learned, 4),
    }


def meaning_value(state: MeaningState | None) -> dict[str, Any] | None:
    """Return how far search by meaning is."""
    if state is None:
        return None
    return {
        "encoders": list(state.encoders),
        "ready": list(state.ready),
        "done": state.done,
        "total": state.total,
        "fault": state.fault or None,
    }


def rehearsal_value(rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "request": rehearsal.request,
        "catalog": catalog_value(rehearsal.catalog),
        "hidden": rehearsal.hidden,
        "hits": [
            {"id": hit.id, "name": hit.name, **hit_value(hit), "listing": mark}
            for hit, mark in zip(rehearsal.hits, rehearsal.marks, strict=True)
        ],
        "weak": is_weak(rehearsal.hits),
        "nothing_fits": fit_of(rehearsal.hits) is Fit.NONE,
        "skill": None if rehearsal.skill is None else skill_value(rehearsal.skill),
        "decision": None if rehearsal.decision is None else explanation_value(rehearsal.decision),
        "content": None if rehearsal.content is None else content_value(rehearsal.content),
        "fault": rehearsal.fault or None,
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
        "unjudged": [{"line": one.line, "label": one.label} for one in rehearsal.unjudged],
        "sandbox": rehearsal.sandbox,
        "protected": list(rehearsal.protected),
    }


def entry_value(entry: AuditEntry) -> dict[str, Any]:
    """Return a call as the log has it, with every field, and what it was about."""
    return {**structs.asdict(entry), "status": entry.status, "about": subject_of(entry)}


_RARE = ("amount_usd", "session_key", "signer_tier", "transaction")
"""Fields of what signs: few logs have one."""


def listed_entry(entry: AuditEntry) -> dict[str, Any]:
    """Return the same for a list: without the fields of what signs where nothing is signed."""
    value = entry_value(entry)
    for part in filter(None, (value["record"], value["outcome"])):
        for name in _RARE:
            if not part[name]:
                del part[name]
    return value


def verification_value(found: Verification) -> dict[str, Any]:
    return {**structs.asdict(found), "ok": not found.problems}


def catalog_report(view: AgentView) -> dict[str, Any]:
    """Return the bounds of an agent's catalogs, and how many skills are in each and left out.

    `tool` is the list in the skill tool's description; null where the profile has none there.
    `mcp_tokens` is what an MCP client sends with each request: description and instructions.
    """
    whole, over_mcp = view.catalog(), view.over_mcp()
    in_tool = 0 if over_mcp is None or view.profile.catalog.exposure != "tool" else over_mcp.tokens
    return {
        "budget_tokens": view.budget_tokens,
        "tokens": whole.tokens,
        "mcp_tokens": in_tool + tokens_of(view.prompts().instructions()),
        **_counts(whole),
        "tool": _tool_report(view) if view.profile.catalog.exposure == "tool" else None,
    }


def _tool_report(view: AgentView) -> dict[str, Any]:
    limit = view.profile.catalog.tool_chars
    chars = None if limit == "none" else limit
    room = toolbox.list_room(view.profile.messages, chars)
    return {"chars": chars, **_counts(view.tool_catalog(room))}


def catalog_notes(report: dict[str, Any], view: AgentView) -> list[str]:
    """Return a line for people about each catalog of a report that leaves out skills."""
    if view.profile.catalog.exposure == "search":
        # Skills are found by search alone there, and nothing is left out of a list.
        return []
    search = next((rule.name for rule in view.profile.tools if rule.kind == "search"), "")
    found = f"; `{search}` finds them" if search else ""
    tool = report["tool"] or {"omitted": 0}
    notes = []
    if report["omitted"]:
        bound = report["budget_tokens"]
        of = f"of {bound:,} tokens" if bound is not None else "of the profile"
        notes.append(f"left out of the catalog {of}: {counted(report['omitted'], 'skill')}{found}")
    if tool["omitted"]:
        of = f"of {tool['chars']:,} characters" if tool["chars"] is not None else "of the profile"
        words = f"left out of the skill tool's description {of}"
        notes.append(f"{words}: {counted(tool['omitted'], 'skill')}{found}")
    return notes


def catalog_cost(report: Mapping[str, Any], view: AgentView) -> str:
    """Return for people what the lists cost each request, and how many skills they name."""
    marks = Counter(view.marks.values())
    named = ", ".join(f"{count:,} {mark}" for mark, count in marks.items())
    return (
        f"the list of skills costs each request about {report['tokens']:,} tokens, over MCP about "
        f"{report['mcp_tokens']:,}: {named or 'no skills'}"
    )


def _counts(catalog: Catalog) -> dict[str, int]:
    return {"listed": len(catalog.included), "omitted": len(catalog.omitted)}


def facts_value(facts: CodeFacts | None) -> dict[str, Any] | None:
    """Return the facts of a skill's code as plain values; null for a skill that has none."""
    if facts is None:
        return None
    manifest = facts.manifest
    value: dict[str, Any] = {
        "name": facts.name,
        "directory": str(facts.directory),
        "scope": facts.scope,
        "enabled": facts.is_on,
        "problems": diagnostic_values(facts.problems),
    }
    if manifest is None:
        return value
    return value | {
        "version": manifest.version,
        "description": manifest.description,
        "author": manifest.author,
        "license": manifest.license,
        "language": manifest.language,
        "entry": manifest.entry,
        "tools": [
            {
                "name": tool.name,
                "full_name": f"{facts.name}:{tool.name}",
                "level": facts.levels[tool.name],
                "description": tool.description,
            }
            for tool in manifest.tools
        ],
        "env": dict(facts.env),
        "dependencies": list(manifest.dependencies),
        "lock": facts.lock or None,
    }

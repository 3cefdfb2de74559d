"""What an agent would see and the house would do for a request, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skillhouse.floor import PROTECTED_NAMES, PersistentPaths
from skillhouse.permission import (
    Effect,
    LayerRules,
    PathPolicy,
    Permission,
    command_resource,
    judge_line,
)
from skillhouse.runtime.calling import explain_loading
from skillhouse.runtime.mcp_skills import load_known
from skillhouse.skill import find_mentions
from skillhouse.tools import PermissionRequest, UnknownToolError

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.permission import (
        CommandVerdict,
        MatchedRule,
    )
    from skillhouse.retrieval import Hit
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.runtime.policy import Explanation
    from skillhouse.sandbox import SandboxStatus
    from skillhouse.skill import Mention, Skill, SkillContent

TOOL_DEFAULTS = {
    "skill": Effect.ALLOW,
    "search_skills": Effect.ALLOW,
    "read": Effect.ALLOW,
    "list": Effect.ALLOW,
    "write": Effect.ASK,
    "edit": Effect.ASK,
    "exec": Effect.ASK,
    "fetch": Effect.ASK,
    "web_search": Effect.ALLOW,
}
"""The tools a body may name, and what each meets when no rule speaks: reads inside the allowed
places are no effects (decision 9), a search goes to the service that the operator chose, everything
else is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionVerdict:
    """One command or tool that the body mentions, and what it would meet."""

    mention: Mention
    effect: Effect
    layer: str
    reason: str
    argv: tuple[str, ...] | None = None
    """The words of a line that is one command."""
    reasons: tuple[str, ...] = ()
    """Everything that was said about a command line, the strictest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """One request walked through the house."""

    request: str
    catalog: Catalog
    hidden: int
    """Skills that a rule denies: neither listed nor found."""
    hits: tuple[Hit, ...]
    skill: Skill | None
    """The best hit; None when no skill fits the request."""
    decision: Explanation | None
    """Whether that skill may be loaded."""
    content: SkillContent | None
    """Its body; None when it may not be loaded."""
    mentions: tuple[MentionVerdict, ...] = ()
    sandbox: SandboxStatus | None = None
    """Where commands would run; None when it came to none."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Paths of the workspace that no command or tool may change."""


def rehearse(house: Skillhouse, request: str, *, limit: int = 5) -> Rehearsal:
    """Walk a request through catalog, ranking, permission, body and what the body mentions.

    Raises:
        SkillError: the chosen skill's file cannot be used any more.
    """
    catalog = house.catalog()
    hits = tuple(house.search(request, limit=limit))
    hidden = len(house.hidden)
    if not hits:
        return Rehearsal(
            request=request,
            catalog=catalog,
            hidden=hidden,
            hits=(),
            skill=None,
            decision=None,
            content=None,
        )
    skill = house.skill(hits[0].id)
    explained = explain_loading(house, skill)
    content = load_known(skill) if explained.decision.effect is not Effect.DENY else None
    if content is not None:
        explained = explain_loading(house, skill, content=content)
    mentions = find_mentions(content.body, frozenset(TOOL_DEFAULTS)) if content else ()
    return Rehearsal(
        request=request,
        catalog=catalog,
        hidden=hidden,
        hits=hits,
        skill=skill,
        decision=explained,
        content=content,
        mentions=tuple(_verdict(house, mention) for mention in mentions),
        sandbox=house.expected_sandbox(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLine:
    """A command line as `exec` would take it, with the rules that spoke about each command."""

    line: str
    effect: Effect
    layer: str
    """The layer that decided; "judge" when the line itself is why, "default" when nobody spoke."""
    reason: str
    reasons: tuple[str, ...]
    verdict: CommandVerdict
    matched: tuple[tuple[str, tuple[MatchedRule, ...]], ...]
    """Each command as rules see it, and every rule that matched it."""


def judged_line(house: Skillhouse, line: str, *, agent: str = "default") -> JudgedLine:
    """Return what a command line would meet as a call, and the rules that match its commands."""
    found = house.forecast("exec", {"command": line}, agent=agent)
    rules = LayerRules(house.policy.layers(agent))
    workspace = house.config.places.start
    # What the gate decided is above; this is how the line is read, to show it.
    paths = PersistentPaths(house.config.protection.asked)
    verdict = judge_line(line, rules, PathPolicy(workspace, writable=(workspace,), paths=paths))
    matched = [
        house.policy.explain(
            Permission(action="exec", resource=command_resource(judged.argv)), agent=agent
        )
        for judged in verdict.commands
    ]
    reasons = (*found.reasons, *verdict.reasons)
    plain = len(verdict.commands) == 1 and not verdict.concerns and not verdict.needs_shell
    if found.layer == "default" and not (plain and not verdict.commands[0].scrutiny):
        # No rule matches, and how the line is read says more than that.
        reasons = (*verdict.reasons, *found.reasons)
    return JudgedLine(
        line=line,
        effect=found.effect,
        layer=found.layer or "judge",
        reason=reasons[0],
        reasons=tuple(dict.fromkeys(reasons)),
        verdict=verdict,
        matched=tuple((each.permission.resource, each.matched) for each in matched),
    )


def _verdict(house: Skillhouse, mention: Mention) -> MentionVerdict:
    if mention.kind == "command":
        judged = judged_line(house, mention.text)
        plan = judged.verdict.plan
        return MentionVerdict(
            mention=mention,
            effect=judged.effect,
            layer=judged.layer,
            reason=judged.reason,
            argv=plan[0] if plan is not None and len(plan) == 1 else None,
            reasons=judged.reasons,
        )
    need = PermissionRequest(
        permission=Permission(action=mention.text, resource=""),
        default=TOOL_DEFAULTS.get(mention.text, Effect.ASK),
        why="",
    )
    try:
        found = house.forecast(mention.text, {}, need=need)
    except UnknownToolError as error:
        return MentionVerdict(
            mention=mention, effect=Effect.DENY, layer="", reason=f"denied: {error}"
        )
    return MentionVerdict(
        mention=mention, effect=found.effect, layer=found.layer, reason=found.reasons[0]
    )

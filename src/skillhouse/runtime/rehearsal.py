"""What an agent would see and the house would do for a request, without a model."""

from __future__ import annotations

from dataclasses import dataclass

from skillhouse.discovery import Catalog
from skillhouse.permission import Effect, Permission, command_resource
from skillhouse.retrieval import Hit
from skillhouse.runtime.away import load_known
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.policy import Explanation
from skillhouse.sandbox import PROTECTED, SandboxStatus
from skillhouse.skill import Mention, Skill, SkillContent, find_mentions, plain_words

TOOL_DEFAULTS = {
    "skill": Effect.ALLOW,
    "search_skills": Effect.ALLOW,
    "read": Effect.ALLOW,
    "list": Effect.ALLOW,
    "write": Effect.ASK,
    "edit": Effect.ASK,
    "exec": Effect.ASK,
}
"""The tools a body may name, and what each meets when no rule speaks: reads inside the allowed
places are no effects (decision 9), everything else is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionVerdict:
    """One command or tool that the body mentions, and what it would meet."""

    mention: Mention
    effect: Effect
    layer: str
    reason: str
    argv: tuple[str, ...] | None = None
    """The words of a command that needs no shell."""


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
    protected: tuple[str, ...] = PROTECTED
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
    explained = house.explain_skill(skill)
    content = load_known(skill) if explained.decision.effect is not Effect.DENY else None
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


def _verdict(house: Skillhouse, mention: Mention) -> MentionVerdict:
    argv = None
    wanted = Permission(action=mention.text, resource="")
    default = TOOL_DEFAULTS.get(mention.text, Effect.ASK)
    if mention.kind == "command":
        argv = plain_words(mention.text)
        if argv is None:
            return MentionVerdict(
                mention=mention, effect=Effect.ASK, layer="default", reason="not judged yet"
            )
        wanted = Permission(action="exec", resource=command_resource(argv))
    found = house.explain(wanted, default=default)
    return MentionVerdict(
        mention=mention,
        effect=found.decision.effect,
        layer=found.decision.layer,
        reason=found.reason,
        argv=argv,
    )

"""Decisions, rules and findings about rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from skillhouse.answers.findings import DiagnosticAnswer
from skillhouse.answers.json_form import Count, EffectWord, JsonAnswer, copied
from skillhouse.floor import SkillError, UnknownSkillError, structs
from skillhouse.house import Skillhouse, judged_line
from skillhouse.permission import Layer, Permission, Rule
from skillhouse.skill import load

if TYPE_CHECKING:
    from skillhouse.house import Explanation, JudgedLine, ReadCommand
    from skillhouse.house.rule_suggestions import OnceGroup
    from skillhouse.permission import (
        CommandPlan,
        CommandReading,
        MatchedRule,
        RuleFinding,
        SimpleCommand,
    )
    from skillhouse.skill import Skill, SkillContent

TRIAL_LAYER = "trial"
"""Name of the layer of rules that are tried and not written."""


class RuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    layer: str
    rule_index: Count
    effect: EffectWord
    action: str
    pattern: str
    reason: str


class MatchedRuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A rule that matches; `command` is the one of a line that it matches."""

    flat_members = ("rule",)
    command: str | UnsetType = UNSET
    rule: RuleAnswer
    is_verdict: bool
    decided: bool


class ExplanationAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The decision about a permission, and the rules that match it."""

    action: str
    resource: str
    effect: EffectWord
    layer: str
    rule_index: Count | None
    reason: str
    rules: list[MatchedRuleAnswer]


class CommandReadingAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a command does, as far as its words say."""

    argv: tuple[str, ...]
    program: str
    grammar: str
    sub_command: tuple[str, ...]
    options: tuple[tuple[str | None, ...], ...]
    operands: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    directories: tuple[str, ...]
    sets: dict[str, str]
    scripts: tuple[tuple[str, ...], ...]
    hazards: tuple[str, ...]
    unknown: str
    starts: CommandReadingAnswer | None


class CommandAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One command of a line, with the rule that decided it."""

    flat_members = ("reading",)
    effect: EffectWord
    reason: str
    unbound: bool
    variables: dict[str, str]
    redirects: tuple[tuple[int | str, ...], ...]
    layer: str
    rule_index: Count | None
    pattern: str | None
    reading: CommandReadingAnswer


class PlannedCommandAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One program of a plan, with what its words become when it starts."""

    argv: tuple[str, ...]
    patterns: tuple[tuple[int | str, ...], ...]
    guarded: tuple[Count, ...]
    environment: tuple[tuple[str, ...], ...]
    redirects: tuple[tuple[int | str, ...], ...]
    statuses: tuple[Count, ...]


class PipelineAnswer(JsonAnswer, frozen=True, kw_only=True):
    """Commands, each of which reads the output of the one before."""

    joined: Literal["", "&&", "||"]
    commands: tuple[PlannedCommandAnswer, ...]


class CommandPlanAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What of a line runs without a shell."""

    directory: str
    pipelines: tuple[PipelineAnswer, ...]


class LineAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The decision about a command line."""

    action: Literal["exec"] = "exec"
    resource: str
    effect: EffectWord
    layer: str
    rule_index: Count | None
    reason: str
    reasons: tuple[str, ...]
    needs_shell: bool
    plan: CommandPlanAnswer | None
    rules: list[MatchedRuleAnswer]
    commands: list[CommandAnswer]


DecisionAnswer: TypeAlias = ExplanationAnswer | LineAnswer


class TrialAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A decision as it is, and as it would be with more rules."""

    before: DecisionAnswer
    after: DecisionAnswer


class RuleFilesAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is wrong with the files of rules."""

    files: list[DiagnosticAnswer]


class RuleLintAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What each rule covers, where it was asked for, and what is wrong with the files."""

    covers: list[RuleScopeAnswer] | UnsetType
    files: list[DiagnosticAnswer] | UnsetType


class SeenRequestAnswer(JsonAnswer, frozen=True, kw_only=True):
    text: str
    count: Count


class WrittenRuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    effect: EffectWord
    action: str
    pattern: str
    reason: str | UnsetType


class SuggestedRuleAnswer(JsonAnswer, frozen=True, kw_only=True):
    number: Count
    id: str
    rule: WrittenRuleAnswer
    text: str
    answers: Count
    with_others: Count
    seen: list[SeenRequestAnswer]
    covers: str
    asks: tuple[str, ...]


class SuggestionsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What `policy suggest` says besides the rules that it suggests."""

    path: str
    questions: Count
    allowed: Count
    refused: Count
    repeated: Count
    answered: Count
    answered_repeated: Count
    once: tuple[OnceGroup, ...]
    added: list[str]


class ChangedDecisionAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A permission of an earlier call that would be decided differently."""

    action: str
    resource: str
    agent: str
    before: str
    after: str


class RulePreviewAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the file would gain and lose, and what would be decided differently."""

    difference: str
    tried: Count
    decisions: tuple[ChangedDecisionAnswer, ...]


class RuleChangeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The user's file after a change, or as it would be."""

    flat_members = ("preview",)
    path: str
    rule: str
    text: str
    preview: RulePreviewAnswer | UnsetType = UNSET


class RulesFileAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The user's file without the rule that was taken out."""

    path: str
    text: str


class RuleFindingAnswer(JsonAnswer, frozen=True, kw_only=True):
    code: str
    severity: Literal["info", "warning"]
    layer: str
    rule_index: Count
    effect: EffectWord
    action: str
    pattern: str
    message: str
    by: int | None


class RuleScopeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a rule covers besides the commands that it names."""

    layer: str
    pattern: str
    covers: str


def matched_rule(matched: MatchedRule, command: str | UnsetType = UNSET) -> MatchedRuleAnswer:
    return MatchedRuleAnswer(
        command=command,
        rule=_rule(matched.rule, matched.layer, matched.rule_index),
        is_verdict=matched.is_verdict,
        decided=matched.decided,
    )


def _rule(rule: Rule, layer: str, index: int) -> RuleAnswer:
    return RuleAnswer(
        layer=layer,
        rule_index=index,
        effect=rule.effect.value,
        action=rule.action,
        pattern=rule.pattern,
        reason=rule.reason,
    )


def explanation_answer(found: Explanation) -> ExplanationAnswer:
    return ExplanationAnswer(
        action=found.permission.action,
        resource=found.permission.resource,
        effect=found.decision.effect.value,
        layer=found.decision.layer,
        rule_index=found.decision.rule_index,
        reason=found.reason,
        rules=[matched_rule(matched) for matched in found.matched],
    )


def explained(house: Skillhouse, action: str, resource: str, agent: str) -> Explanation:
    """Return the decision about one permission that is no command; ConfigError for no agent."""
    if action == "skill":
        # Rules may be about skills that are not here yet.
        with suppress(UnknownSkillError):
            skill = house.index.get(resource)
            return house.policy.explain_skill(skill, agent=agent, content=_content_of(skill))
    return house.policy.explain(Permission(action=action, resource=resource), agent=agent)


def decision_answer(house: Skillhouse, action: str, resource: str, agent: str) -> DecisionAnswer:
    """Return the decision about a permission or a command line, as `policy explain --json` does."""
    if action == "exec":
        return line_answer(judged_line(house, resource, agent=agent))
    return explanation_answer(explained(house, action, resource, agent))


def trial_decisions(
    house: Skillhouse, rules: Sequence[Rule], action: str, resource: str, agent: str
) -> TrialAnswer:
    """Return the decision as it is and as it would be with more rules; nothing is written.

    Raises:
        ConfigError: no agent has that name, or a rule cannot be used.
    """
    layer = Layer(name=TRIAL_LAYER, rules=tuple(rules))
    config = structs.replace(house.config, layers=(*house.config.layers, layer))
    with Skillhouse(config) as trial:
        after = decision_answer(trial, action, resource, agent)
    return TrialAnswer(before=decision_answer(house, action, resource, agent), after=after)


def _content_of(skill: Skill) -> SkillContent | None:
    """Return what a skill's file says; None where it cannot be used, which `load` says."""
    try:
        return load(skill)
    except SkillError:
        return None


def line_answer(judged: JudgedLine) -> LineAnswer:
    verdict = judged.verdict
    return LineAnswer(
        resource=judged.line,
        effect=judged.effect.value,
        layer=judged.layer,
        rule_index=_rule_index(judged),
        reason=judged.reason,
        reasons=tuple(judged.reasons),
        needs_shell=verdict.needs_shell,
        plan=None if verdict.structure is None else _plan_answer(verdict.structure),
        rules=[
            matched_rule(matched, command) for command, rules in judged.matched for matched in rules
        ],
        commands=[command_answer(command) for command in judged.commands],
    )


def _plan_answer(plan: CommandPlan) -> CommandPlanAnswer:
    return CommandPlanAnswer(
        directory=plan.directory,
        pipelines=tuple(
            PipelineAnswer(joined=one.joined, commands=tuple(map(_planned_command, one.commands)))
            for one in plan.pipelines
        ),
    )


def _planned_command(command: SimpleCommand) -> PlannedCommandAnswer:
    return copied(
        PlannedCommandAnswer,
        command,
        redirects=tuple((r.descriptor, r.kind, r.target) for r in command.redirects),
    )


def _rule_index(judged: JudgedLine) -> int | None:
    places = [
        matched.rule_index
        for _, rules in judged.matched
        for matched in rules
        if matched.decided
        and matched.layer == judged.layer
        and matched.rule.effect is judged.effect
    ]
    return places[0] if places else None


def command_answer(command: ReadCommand) -> CommandAnswer:
    rule = command.rule
    return CommandAnswer(
        effect=command.judged.effect.value,
        reason=command.judged.reason,
        unbound=command.judged.unbound,
        variables=dict(command.variables),
        redirects=tuple((r.descriptor, r.kind, r.target) for r in command.redirects),
        layer=command.layer,
        rule_index=None if rule is None else command.rule_index,
        pattern=None if rule is None else rule.pattern,
        reading=_reading(command.reading),
    )


def _reading(found: CommandReading) -> CommandReadingAnswer:
    return CommandReadingAnswer(
        argv=tuple(found.argv),
        program=found.program,
        grammar=found.source,
        sub_command=tuple(found.sub_command),
        options=tuple(map(tuple, found.options)),
        operands=tuple(found.operands),
        reads=tuple(found.reads),
        writes=tuple(found.writes),
        directories=tuple(found.directories),
        sets=dict(found.variables),
        scripts=tuple(map(tuple, found.scripts)),
        hazards=tuple(found.hazards),
        unknown=found.unknown,
        starts=None if found.starts is None else _reading(found.starts),
    )


def rule_answers(layers: Sequence[Layer]) -> list[RuleAnswer]:
    return [
        _rule(rule, layer.name, index) for layer in layers for index, rule in enumerate(layer.rules)
    ]


def rule_finding(found: RuleFinding) -> RuleFindingAnswer:
    return copied(
        RuleFindingAnswer,
        found,
        severity="info" if found.is_note else "warning",
        effect=found.rule.effect.value,
        action=found.rule.action,
        pattern=found.rule.pattern,
    )

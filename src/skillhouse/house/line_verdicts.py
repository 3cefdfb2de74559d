"""What a command line would meet as a call: how it is read, and the rules that decide."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse import tools as toolbox
from skillhouse.floor import PersistentPaths, structs
from skillhouse.house.house import Skillhouse
from skillhouse.house.person_tools import tool_finder
from skillhouse.permission import (
    CommandReading,
    CommandVerdict,
    Effect,
    JudgedCommand,
    Layer,
    LayerRules,
    MatchedRule,
    PathPolicy,
    Permission,
    Redirect,
    Rule,
    command_resource,
    judge_line,
    matches,
    reading_of,
)


class ReadCommand(Struct, frozen=True, kw_only=True):
    """One command of a line: how its words were read, and the rule that decided."""

    judged: JudgedCommand
    reading: CommandReading
    variables: tuple[tuple[str, str], ...] = ()
    """Set before it."""
    redirects: tuple[Redirect, ...] = ()
    layer: str = ""
    """Of the rule that decided; empty when none did."""
    rule_index: int = 0
    """Place of that rule in its layer, from 0."""
    rule: Rule | None = None


class LineVerdict(Struct, frozen=True, kw_only=True):
    """What a command line would meet as a call of `exec`."""

    line: str
    effect: Effect
    layer: str
    """The layer that decided; "judge" if the line itself is why, "default" if no rule matched."""
    reason: str
    reasons: tuple[str, ...]
    verdict: CommandVerdict


class JudgedLine(LineVerdict, frozen=True, kw_only=True):
    """A command line as `exec` would take it, with the rules that matched each command."""

    matched: tuple[tuple[str, tuple[MatchedRule, ...]], ...]
    """Each command as rules see it, and every rule that matched it."""
    commands: tuple[ReadCommand, ...] = ()
    """Each command, how it was read and which rule decided."""


def judged_line(
    house: Skillhouse,
    line: str,
    *,
    agent: str = "default",
    cache: toolbox.ForecastCache | None = None,
) -> JudgedLine:
    """Return what a command line would meet as a call, and the rules that match its commands.

    `cache` is shared by lines that are judged for one moment.
    """
    found = line_verdict(house, line, agent=agent, cache=cache)
    matched = [
        house.policy.explain(
            Permission(action="exec", resource=command_resource(judged.argv), argv=judged.argv),
            agent=agent,
        )
        for judged in found.verdict.commands
    ]
    return JudgedLine(
        line=found.line,
        effect=found.effect,
        layer=found.layer,
        reason=found.reason,
        reasons=found.reasons,
        verdict=found.verdict,
        matched=tuple((each.permission.resource, each.matched) for each in matched),
        commands=_read_commands(found.verdict, house.policy.layers(agent)),
    )


def line_verdict(
    house: Skillhouse,
    line: str,
    *,
    agent: str = "default",
    cache: toolbox.ForecastCache | None = None,
    loaded: Path | None = None,
) -> LineVerdict:
    """Return what a command line would meet as a call; the skill in `loaded` is supposed loaded."""
    cache = cache or toolbox.ForecastCache()
    found = house.forecast("exec", {"command": line}, agent=agent, cache=cache, loaded=loaded)
    verdict = found.command or _read_for_show(house, line, agent, cache)
    reasons = (*found.reasons, *verdict.reasons)
    plain = (
        len(verdict.commands) == 1
        and not (verdict.concerns or verdict.fenced)
        and not verdict.needs_shell
    )
    if found.layer == "default" and not (plain and not verdict.commands[0].scrutiny):
        # No rule matches, and how the line is read says more than that.
        reasons = (*verdict.reasons, *found.reasons)
    return LineVerdict(
        line=line,
        # A script that is not there is a mistake, which the first reason names, and no denial.
        effect=verdict.effect if found.status == "error" else found.effect,
        layer=found.layer or "judge",
        reason=reasons[0],
        reasons=tuple(dict.fromkeys(reasons)),
        verdict=verdict,
    )


def _read_for_show(
    house: Skillhouse, line: str, agent: str, cache: toolbox.ForecastCache
) -> CommandVerdict:
    """Judge a line that the gate refused before it planned it, to show how it is read."""
    workspace = house.config.places.start
    places = PathPolicy(
        workspace,
        writable=(workspace,),
        paths=PersistentPaths(house.config.protection.asked),
        real=lambda place: cache.once(("real", place), lambda: os.path.realpath(place)),
    )
    shown = cache.once("variables", lambda: _shown_variables(house))
    rules = cache.once(("rules", agent), lambda: LayerRules(house.policy.layers(agent)))
    return judge_line(line, rules, places, environment=shown)


def _shown_variables(house: Skillhouse) -> Mapping[str, str]:
    workspace, variables = house.config.places.start, house.config.places.environment
    handed = {n: variables[n] for n in house.config.exec_environment if n in variables}
    tools = tool_finder(house.config).places(Path(os.path.realpath(workspace)))
    return toolbox.shown_variables(handed, workspace, tools)


def _read_commands(verdict: CommandVerdict, layers: Sequence[Layer]) -> tuple[ReadCommand, ...]:
    planned = [] if verdict.structure is None else list(verdict.structure.commands())
    found = []
    for judged in verdict.commands:
        # A `cd` is in no plan, and of a wrapper the inner command is judged.
        simple = planned[0] if planned else None
        if simple is not None and simple.argv[-len(judged.argv) :] == judged.argv:
            planned.pop(0)
        else:
            simple = None
        layer, index, rule = _deciding(judged, layers)
        found.append(
            ReadCommand(
                judged=judged,
                reading=reading_of(simple.argv if simple is not None else judged.argv),
                variables=simple.environment if simple is not None else (),
                redirects=simple.redirects if simple is not None else (),
                layer=layer,
                rule_index=index,
                rule=rule,
            )
        )
    return tuple(found)


def _deciding(judged: JudgedCommand, layers: Sequence[Layer]) -> tuple[str, int, Rule | None]:
    """Return the layer, place and rule that alone gives a command its effect, if one does."""
    for layer in layers:
        for index, rule in enumerate(layer.rules):
            if rule.effect is not judged.effect or not matches(rule.action, "exec"):
                continue
            ruling = LayerRules([structs.replace(layer, rules=(rule,))]).rule(judged.argv)
            covers = ruling.cover > 0 and not ruling.left
            if ruling.denied or ruling.asked or (rule.effect is Effect.ALLOW and covers):
                return layer.name, index, rule
    return "", 0, None

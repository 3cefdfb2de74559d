"""What adding or removing a rule of the user's file would change: its bytes, and decisions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from skillhouse.answers.policy import (
    ChangedDecisionAnswer,
    RuleChangeAnswer,
    RulePreviewAnswer,
    explained,
)
from skillhouse.audit import Query, entries_of
from skillhouse.floor import ConfigError, SkillhouseError, read_regular, structs
from skillhouse.house import Skillhouse
from skillhouse.house.config import Config
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX
from skillhouse.manage import checked_addition, rule_text
from skillhouse.manage.rule_editor import with_changed_rule, without_rule
from skillhouse.permission import Layer, Rule, example_holds, matches
from skillhouse.tools.difference import difference

RECORDS = 400
"""Latest records of the log whose permissions are decided again."""
PERMISSIONS_MAX = 40
"""Different permissions of them; each is decided twice."""


class AskedBefore(NamedTuple):
    """A permission of an earlier call."""

    action: str
    resource: str
    agent: str


class RuleChange(Struct, frozen=True, kw_only=True):
    """One change of the user's file, before it is made."""

    rule: str
    """What is added or removed, as a file writes it."""
    text: str
    """The whole file after the change."""
    difference: str
    decisions: tuple[tuple[AskedBefore, str, str], ...]
    """Permissions of earlier calls that would be decided differently: effects before and after."""
    tried: int
    """Number of permissions that were decided again."""

    def answer(self, path: Path) -> RuleChangeAnswer:
        """Return it for the user's file, which is `path`."""
        decisions = tuple(
            ChangedDecisionAnswer(**asked._asdict(), before=before, after=after)
            for asked, before, after in self.decisions
        )
        preview = RulePreviewAnswer(
            difference=self.difference, tried=self.tried, decisions=decisions
        )
        return RuleChangeAnswer(path=str(path), rule=self.rule, text=self.text, preview=preview)


def addition(house: Skillhouse, rule: Rule) -> RuleChange:
    """Return what one more rule would change; errors of `checked_addition`."""
    text = written(rule)
    whole = checked_addition(house.config.places, text)
    return _change(house, text, whole, (*user_rules(house.config), rule))


def replacement(house: Skillhouse, index: int, rule: Rule) -> RuleChange:
    """Return what another rule at a place, from 0, would change; errors of `with_changed_rule`."""
    whole = with_changed_rule(house.config.places, index, rule)
    rules = user_rules(house.config)
    changed = structs.replace(
        rules[index],
        effect=rule.effect,
        action=rule.action,
        pattern=rule.pattern,
        reason=rule.reason,
    )
    return _change(house, written(rule), whole, (*rules[:index], changed, *rules[index + 1 :]))


def removal(house: Skillhouse, index: int) -> RuleChange:
    """Return what would change without a rule, by its place from 0; errors of `without_rule`."""
    whole = without_rule(house.config.places, index)
    rules = user_rules(house.config)
    text = written(rules[index])
    return _change(house, text, whole, (*rules[:index], *rules[index + 1 :]))


def written(rule: Rule) -> str:
    return rule_text(
        rule.effect,
        rule.action,
        rule.pattern,
        reason=rule.reason,
        match=rule.match,
        not_match=rule.not_match,
    )


def with_example(rule: Rule) -> Rule:
    """Return a rule with an example that it matches, where it has none and one follows from it."""
    example = rule.pattern.replace("*", "x")
    if rule.action == "exec":
        holds = example_holds(rule, example)
    else:
        holds = matches(rule.pattern, example)
    return structs.replace(rule, match=rule.match or ((example,) if holds else ()))


def user_rules(config: Config) -> tuple[Rule, ...]:
    return next((layer.rules for layer in config.layers if layer.name == "user"), ())


def _change(house: Skillhouse, rule: str, whole: str, rules: Sequence[Rule]) -> RuleChange:
    path = house.config.places.user_file
    try:
        before = read_regular(path, CONFIG_FILE_MAX).decode()
    except (OSError, ConfigError):
        before = ""
    asked = list(itertools.islice(_asked_before(house), PERMISSIONS_MAX))
    with Skillhouse(_with_user_rules(house.config, rules)) as changed:
        decided = [(one, _decided(house, one), _decided(changed, one)) for one in asked]
    return RuleChange(
        rule=rule,
        text=whole,
        difference=difference(before, whole, path.name),
        decisions=tuple(one for one in decided if one[1] != one[2]),
        tried=len(asked),
    )


def _with_user_rules(config: Config, rules: Sequence[Rule]) -> Config:
    user = Layer(name="user", rules=tuple(rules))
    far = [one for one in config.layers if one.trusted and one.name != "user"]
    near = [one for one in config.layers if not one.trusted]
    return structs.replace(config, layers=(*far, *([user] if rules else ()), *near))


def _decided(house: Skillhouse, asked: AskedBefore) -> str:
    try:
        if asked.action == "exec":
            found = house.forecast("exec", {"command": asked.resource}, agent=asked.agent)
            return found.effect.value
        decision = explained(house, asked.action, asked.resource, asked.agent).decision
    except SkillhouseError:
        # Its agent is not configured any more.
        return ""
    return decision.effect.value


def _asked_before(house: Skillhouse) -> Iterator[AskedBefore]:
    """Yield each different permission of the latest calls, newest first."""
    seen = set()
    entries = entries_of(house.audit_log.path, Query(), key=house.audit_log.key)
    for entry in itertools.islice(entries, RECORDS):
        for permission in entry.record.permissions:
            found = AskedBefore(permission.action, permission.resource, entry.record.agent)
            if found not in seen:
                seen.add(found)
                yield found

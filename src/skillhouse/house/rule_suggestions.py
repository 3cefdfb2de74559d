"""The smallest set of rules that would have answered what a person allowed again and again.

INVARIANT: a suggestion covers nothing that a person refused even once, nothing that is asked about
each time, and nothing that a rule of the person denies or asks about. The log holds command lines
and paths that models wrote: a rule is made only of such as are plain text and whole.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import tools as toolbox
from skillhouse.approval import NEVER_LASTING, OWNER, Approval, ApprovalState
from skillhouse.approval.request import KEPT_MAX
from skillhouse.audit import AuditEntry, Query, entries_of, timestamp
from skillhouse.audit.redaction import HIDDEN
from skillhouse.floor import PersistentPaths, digest, structs
from skillhouse.floor.secret_names import is_secret
from skillhouse.house.config.bundle_files import BUNDLE
from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Permission,
    Rule,
    beyond,
    command_resource,
    decide,
    judge_argv,
    matches,
    read_command,
)
from skillhouse.permission.rule_candidates import (
    allows,
    candidate_rules,
    group_rule,
    still_asked,
    why_once,
)

if TYPE_CHECKING:
    from skillhouse.house.house import Skillhouse

ANSWERS_MIN = 3
"""Questions that a rule has to answer."""
RULES_MAX = 8
GROUP_MIN = 3
"""Different sub-commands of a program that were allowed where a rule for the program is suggested.
"""
SEEN_MAX = 3
"""Texts that are shown of what a rule would have answered."""
PATTERN_MAX = 200
"""Characters of a pattern: a longer one is not read before it is accepted."""
_CUT_AT = 1_000
"""Characters after which the log cuts a text."""
_ONCE_LAYERS = ("tiers", "write gate", toolbox.HIDDEN_TEXT, toolbox.PERSISTENCE)
"""Layers that ask whatever a rule says."""
_QUIET_METHODS = ("GET", "HEAD")


class _Asked(Struct, frozen=True):
    """One permission that a person was asked about."""

    action: str
    resource: str
    argv: tuple[str, ...] = ()
    """The words of a command; empty where its text is not whole."""
    once: str = ""
    """Why no rule answers it; empty where one may."""

    @property
    def group(self) -> str:
        """What questions of one kind have in common, as a person would call it."""
        if self.argv:
            meaning = read_command(self.argv)
            return command_resource((self.argv[0], *meaning.path))
        if self.action in ("read", "write", "list"):
            return f"{self.action} {os.path.dirname(self.resource)}/"
        return f"{self.action} {self.resource}"


class _Question(Struct, frozen=True, kw_only=True):
    asked: tuple[_Asked, ...]
    is_allowed: bool
    agent: str

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(one.group for one in self.asked)


class Suggestion(Struct, frozen=True, kw_only=True):
    """One rule, and how often a person would not have been asked."""

    rule: Rule
    answers: int
    """Questions that are answered with this rule alone."""
    with_others: int
    """Further ones, for which it takes another suggestion too."""
    seen: tuple[tuple[str, int], ...]
    """What was allowed most often, untrusted text, and how often."""
    covers: str
    """What else it covers."""
    asks: tuple[str, ...] = ()
    """Options that are asked about all the same."""

    @property
    def id(self) -> str:
        """The same for the same rule, whatever the log says by then."""
        rule = self.rule
        return digest(f"{rule.action} {rule.pattern}".encode()).removeprefix("sha256:")[:6]


class OnceGroup(Struct, frozen=True, kw_only=True):
    """Questions of one kind that no rule is suggested for."""

    group: str
    count: int
    why: str


class RuleSuggestions(Struct, frozen=True, kw_only=True):
    """What the log of a workspace suggests."""

    questions: int
    """That a person answered and no rule of now would."""
    allowed: int
    refused: int
    repeated: int
    """Allowed ones about nothing but what was allowed more than once."""
    answered: int
    """Allowed ones that all suggestions together would have answered."""
    answered_repeated: int
    rules: tuple[Suggestion, ...] = ()
    once: tuple[OnceGroup, ...] = ()
    """Repeated ones without a suggestion, the most frequent first."""


def suggest_rules(
    house: Skillhouse, *, since: str = "", rules_max: int = RULES_MAX, narrow: bool = False
) -> RuleSuggestions:
    """Return the rules for the workspace of `house` that its log suggests.

    What was refused counts in whatever workspace and whenever it was.

    Args:
        house: Its configured rules are those of now.
        since: UTC time or its beginning, as records have it; earlier questions are not answered.
        rules_max: Most rules.
        narrow: Whether no rule is for a whole program with sub-commands.

    Raises:
        AuditError: the log cannot be read.
    """
    allowed, refused, here = _answered(house, since)
    judge = _Judge(house)
    open_ones = [left for one in allowed if (left := judge.unanswered(one)).asked]
    counts = Counter(group for question in open_ones for group in question.groups)
    repeated = [q for q in open_ones if all(counts[group] > 1 for group in q.groups)]
    taken = {a for question in refused for a in question.asked}
    candidates = judge.candidates(open_ones, taken, narrow=narrow)
    found = _chosen(open_ones, candidates, rules_max)
    return RuleSuggestions(
        questions=len(open_ones) + here,
        allowed=len(open_ones),
        refused=here,
        repeated=len(repeated),
        answered=sum(_is_answered(q, found) for q in open_ones),
        answered_repeated=sum(_is_answered(q, found) for q in repeated),
        rules=tuple(_suggestion(rule, found, open_ones) for rule in found),
        once=_once_groups(repeated, found, frozenset().union(*candidates.values())),
    )


def _answered(house: Skillhouse, since: str) -> tuple[list[_Question], list[_Question], int]:
    """Return what was allowed here and since then, all that was refused, and how much of that was
    here and since then."""
    log, root = house.audit_log, house.policy.place
    allowed: list[_Question] = []
    refused: dict[str, _Question] = {}
    here: set[str] = set()
    for entry in _by_approval(entries_of(log.path, Query(), key=log.key)):
        record = entry.record
        is_here = record.workspace == root and record.ts >= since
        question = _question(entry, root)
        if not question.is_allowed:
            refused[_approval_of(entry)] = question
            here.update({_approval_of(entry)} if is_here else ())
        elif is_here and record.user == OWNER:
            allowed.append(question)
    # Of a call that was not repeated once it was refused, the log has the question alone.
    for answer in house.approvals.latest(KEPT_MAX):
        if answer.state is ApprovalState.DENIED and answer.id not in refused:
            refused[answer.id] = _refused(answer, root)
            is_here = answer.request.place == root and timestamp(answer.closed_ms) >= since
            here.update({answer.id} if is_here else ())
    return allowed, list(refused.values()), len(here)


def _by_approval(entries: Iterable[AuditEntry]) -> Iterator[AuditEntry]:
    """Yield one entry for each question that a person answered: a call that is repeated once it was
    approved has two."""
    seen: set[str] = set()
    for entry in entries:
        answer = entry.record.confirmation
        if answer is None or answer.approved is None or _approval_of(entry) in seen:
            continue
        seen.add(_approval_of(entry))
        yield entry


def _approval_of(entry: AuditEntry) -> str:
    answer = entry.record.confirmation
    return (answer.approval if answer is not None else "") or entry.record.id


def _refused(answer: Approval, root: str) -> _Question:
    asked = (_asked(one.action, one.resource, "", "", root) for one in answer.request.asked)
    return _Question(asked=tuple(asked), is_allowed=False, agent=answer.request.agent)


def _question(entry: AuditEntry, root: str) -> _Question:
    record = entry.record
    is_tiered = (record.effective_tier or record.tier) not in ("", "none")
    level = record.security_level
    said = "it has a tier" if is_tiered else "it signs" if level == "sign" else ""
    asked = [
        _asked(one.action, one.resource, one.layer, said, root)
        for one in record.permissions
        if one.effect != Effect.ALLOW
    ]
    answer = record.confirmation
    return _Question(
        asked=tuple(dict.fromkeys(asked)),
        is_allowed=answer is not None and answer.approved is True and bool(asked),
        agent=record.agent,
    )


def _asked(action: str, resource: str, layer: str, said: str, root: str) -> _Asked:
    argv = _words(resource) if action == "exec" else ()
    once = said
    if layer in _ONCE_LAYERS or action in NEVER_LASTING:
        once = once or "it is asked about each time"
    elif not _is_plain(resource) or (action == "exec" and not argv):
        once = once or "the log does not have all of it as plain text"
    elif action == "exec":
        once = once or ("" if candidate_rules(argv) else why_once(argv))
    elif action == "fetch":
        is_quiet = resource.partition(" ")[0] in _QUIET_METHODS
        once = once or ("" if is_quiet else "it sends something")
    elif action in ("read", "write", "list"):
        once = once or _why_not_path(resource, root)
    else:
        once = once or f"no rule is suggested about `{action}`"
    return _Asked(action, resource, argv, once)


def _why_not_path(path: str, root: str) -> str:
    relative = os.path.relpath(path, root)
    if is_secret(relative):
        return "it may hold secrets"
    return "it is outside the workspace" if relative.startswith("..") else ""


@lru_cache(maxsize=4096)
def _words(resource: str) -> tuple[str, ...]:
    """Return the words of a command from its text; nothing where that does not say them."""
    try:
        words = tuple(shlex.split(resource))
    except ValueError:
        return ()
    is_whole = bool(words) and command_resource(words) == resource
    return words if is_whole and _is_plain(resource) else ()


def _is_plain(text: str) -> bool:
    """Whether a text of the log is whole, and shown as what it is."""
    return text.isprintable() and HIDDEN not in text and len(text) < _CUT_AT


class _Judge:
    """Says what the rules of now answer, and what one more would."""

    def __init__(self, house: Skillhouse) -> None:
        self._house = house
        self._root = root = house.policy.place
        paths = PersistentPaths(house.config.protection.asked)
        self._places = PathPolicy(Path(root), writable=(Path(root),), paths=paths)
        self._layers: dict[str, tuple[Layer, ...]] = {}
        self._rules_of: dict[tuple[str, Rule | None], LayerRules] = {}
        user = [layer for layer in house.config.layers if layer.name == "user"]
        self._stricter = [r for layer in user for r in layer.rules if r.effect is not Effect.ALLOW]

    def unanswered(self, question: _Question) -> _Question:
        """Return what is left of a question by the rules of now."""
        left = (a for a in question.asked if a.once or not self._allows(a, question.agent, None))
        return structs.replace(question, asked=tuple(left))

    def candidates(
        self, questions: Sequence[_Question], refused: Iterable[_Asked], *, narrow: bool
    ) -> Mapping[Rule, frozenset[_Asked]]:
        """Return each rule that may be suggested, with what it answers."""
        agents: dict[_Asked, set[str]] = {}
        for question in questions:
            for one in question.asked:
                agents.setdefault(one, set()).add(question.agent)
        kept = [one for one in agents if not one.once]
        few = frozenset(_groups(kept, GROUP_MIN, narrow=narrow))
        taken = tuple(refused)
        rules = dict.fromkeys(rule for one in kept for rule in self._rules(one))
        # What one agent is asked all the same is not answered.
        return {
            rule: frozenset(
                one
                for one in kept
                if _may_answer(rule, one)
                and all(self._allows(one, agent, rule) for agent in agents[one])
            )
            for rule in rules
            if not (rule.action == "exec" and rule.pattern in few)
            and not self._overrides(rule)
            and not any(self._touches(rule, one) for one in taken)
        }

    def _rules(self, one: _Asked) -> Iterator[Rule]:
        for pattern in self._patterns(one):
            is_safe = len(pattern) <= PATTERN_MAX and not any(s in one.resource for s in "*?")
            if is_safe:
                yield Rule(effect=Effect.ALLOW, action=one.action, pattern=pattern)

    def _patterns(self, one: _Asked) -> Iterator[str]:
        if one.action == "exec":
            yield from candidate_rules(one.argv)
            return
        yield one.resource
        if one.action != "write":
            return
        # All files below a directory of the workspace, but never the whole workspace.
        above = os.path.dirname(one.resource)
        while above.startswith(f"{self._root}/"):
            if os.path.relpath(above, self._root).startswith("."):
                return
            yield f"{above}/*"
            above = os.path.dirname(above)

    def _touches(self, rule: Rule, refused: _Asked) -> bool:
        """Whether a rule might answer what a person refused."""
        if rule.action != refused.action:
            return False
        if refused.argv:
            return allows(rule.pattern, refused.argv, self._places)
        if rule.action == "exec":
            # A text that the log cut may go on in any way.
            return _first_word(refused.resource) == _first_word(rule.pattern)
        return matches(rule.pattern, refused.resource) or (
            not _is_plain(refused.resource) and _may_meet(rule.pattern, f"{refused.resource}*")
        )

    def _overrides(self, rule: Rule) -> bool:
        """Whether a rule of the person that is stricter might not count any more: of the rules of
        one file the last that matches does, but for commands."""
        return rule.action != "exec" and any(
            matches(one.action, rule.action) and _may_meet(one.pattern, rule.pattern)
            for one in self._stricter
        )

    def _allows(self, one: _Asked, agent: str, rule: Rule | None) -> bool:
        layers = self._with(agent, rule)
        if one.argv:
            key = (agent, rule)
            rules = self._rules_of.get(key) or self._rules_of.setdefault(key, LayerRules(layers))
            return judge_argv(one.argv, rules, self._places).effect is Effect.ALLOW
        permission = Permission(action=one.action, resource=one.resource)
        return decide(layers, permission).effect is Effect.ALLOW

    def _with(self, agent: str, rule: Rule | None) -> tuple[Layer, ...]:
        if agent not in self._layers:
            known = agent if agent in self._house.config.agents else "default"
            self._layers[agent] = self._house.policy.layers(known)
        layers = self._layers[agent]
        return layers if rule is None else with_user_rule(layers, rule)


def with_user_rule(layers: tuple[Layer, ...], rule: Rule) -> tuple[Layer, ...]:
    """Return layers with a rule at the end of the user's file."""
    if any(layer.name == "user" for layer in layers):
        return tuple(
            structs.replace(layer, rules=(*layer.rules, rule)) if layer.name == "user" else layer
            for layer in layers
        )
    far = [
        number
        for number, layer in enumerate(layers, 1)
        if layer.name == "managed"
        or layer.is_builtin
        or (layer.trusted and layer.name.startswith(BUNDLE))
    ]
    at = far[-1] if far else 0
    return (*layers[:at], Layer(name="user", rules=(rule,)), *layers[at:])


def _groups(asked: Iterable[_Asked], least: int, *, narrow: bool) -> Iterator[str]:
    """Yield the rules for whole programs of which too few sub-commands were allowed."""
    commands = {one.group: group_rule(one.argv) for one in asked if one.argv}
    for pattern, count in Counter(commands.values()).items():
        if pattern and (narrow or count < least):
            yield pattern


def _may_answer(rule: Rule, one: _Asked) -> bool:
    """Whether it is worth a look: a rule about a command names its program."""
    if rule.action != one.action:
        return False
    if one.argv:
        return _first_word(rule.pattern) == _first_word(one.resource)
    return matches(rule.pattern, one.resource)


def _first_word(text: str) -> str:
    return text.partition(" ")[0]


def _may_meet(one: str, other: str) -> bool:
    """Whether two patterns may match the same text, as far as the text before their wildcards
    says."""
    first, second = (_head(pattern) for pattern in (one, other))
    return first.startswith(second) or second.startswith(first)


def _head(pattern: str) -> str:
    return pattern[: min((pattern.find(sign) for sign in "*?" if sign in pattern), default=None)]


def _is_answered(question: _Question, rules: Mapping[Rule, frozenset[_Asked]]) -> bool:
    return all(any(one in answers for answers in rules.values()) for one in question.asked)


def _chosen(
    questions: Sequence[_Question], candidates: Mapping[Rule, frozenset[_Asked]], most: int
) -> Mapping[Rule, frozenset[_Asked]]:
    """Return few candidates that answer most, each of at least `ANSWERS_MIN` questions.

    Greedily: what is left of a question counts for the rule that answers a part of it. Of rules
    that answer as many the narrowest is taken.
    """
    chosen: dict[Rule, frozenset[_Asked]] = {}
    while len(chosen) < most:
        have = frozenset().union(*chosen.values())
        left = [open_ for q in questions if (open_ := frozenset(q.asked) - have)]
        weighed = {}
        for rule, answers in candidates.items():
            parts = [len(answers & open_) / len(open_) for open_ in left if answers & open_]
            if rule not in chosen and len(parts) >= ANSWERS_MIN:
                weighed[rule] = sum(parts)
        if not weighed:
            break
        best = max(weighed, key=lambda rule: (weighed[rule], -_breadth(rule)))
        chosen[best] = candidates[best]
    # One that others have made needless, or whose other half was not found.
    while weak := [rule for rule in chosen if _needed(rule, chosen, questions) < ANSWERS_MIN]:
        del chosen[min(weak, key=lambda rule: (_needed(rule, chosen, questions), rule.pattern))]
    return dict(
        sorted(
            chosen.items(), key=lambda item: (-_needed(item[0], chosen, questions), item[0].pattern)
        )
    )


def _breadth(rule: Rule) -> int:
    """Return how little a rule names, for rules that answer the same."""
    return (10_000 if rule.pattern.endswith("*") else 0) - len(rule.pattern)


def _needed(
    rule: Rule, chosen: Mapping[Rule, frozenset[_Asked]], questions: Sequence[_Question]
) -> int:
    """Return how many questions are answered with a rule and not without it."""
    others = {one: answers for one, answers in chosen.items() if one != rule}
    return sum(_is_answered(q, chosen) and not _is_answered(q, others) for q in questions)


def _suggestion(
    rule: Rule, chosen: Mapping[Rule, frozenset[_Asked]], questions: Sequence[_Question]
) -> Suggestion:
    answers = chosen[rule]
    seen = Counter(one.resource for q in questions for one in q.asked if one in answers)
    alone = sum(_is_answered(q, {rule: answers}) for q in questions)
    most = sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    return Suggestion(
        rule=rule,
        answers=alone,
        with_others=_needed(rule, chosen, questions) - alone,
        seen=tuple(most[:SEEN_MAX]),
        covers=_covers(rule),
        asks=still_asked(rule.pattern) if rule.action == "exec" else (),
    )


def _covers(rule: Rule) -> str:
    """Return what a rule covers besides what it names."""
    if rule.action == "exec":
        return beyond(rule) or "nothing else: these words alone"
    if rule.action == "fetch":
        return "every address of that host, and what a request carries there in its address"
    if rule.pattern.endswith("/*"):
        directory = rule.pattern.removesuffix("/*")
        return (
            f"every file below {directory}, new ones too; secrets and files that act later are "
            "asked about all the same"
        )
    return "nothing else: this file alone"


def _once_groups(
    questions: Sequence[_Question],
    chosen: Mapping[Rule, frozenset[_Asked]],
    answerable: frozenset[_Asked],
) -> tuple[OnceGroup, ...]:
    """Return what is left; `answerable` is all that some candidate answers."""
    counts: Counter[tuple[str, str]] = Counter()
    for question in questions:
        if not _is_answered(question, chosen):
            left = [a for a in question.asked if not any(a in of for of in chosen.values())]
            counts.update({(one.group, _why_left(one, answerable)) for one in left})
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(OnceGroup(group=group, count=count, why=why) for (group, why), count in found)


def _why_left(one: _Asked, answerable: frozenset[_Asked]) -> str:
    if one.once:
        return one.once
    if one not in answerable:
        return "any rule for it would cover what was refused, or lift a stricter rule of yours"
    return "too rare for one of so few rules"

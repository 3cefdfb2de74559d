"""The routes about rules: explain, try, list, add, remove, lint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.json_form import ListAnswer, json_text, listed
from skillhouse.answers.policy import (
    DecisionAnswer,
    ExplanationAnswer,
    LineAnswer,
    RuleAnswer,
    RuleChangeAnswer,
    RuleFilesAnswer,
    RuleFindingAnswer,
    RulesFileAnswer,
    TrialAnswer,
    decision_answer,
    rule_answers,
    rule_finding,
    trial_decisions,
)
from skillhouse.extensions.server.api.api_app import etag_of
from skillhouse.extensions.server.api.api_services import ApiServices
from skillhouse.extensions.server.api.change_routes import IF_MATCH
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.extensions.server.api.route_table import ApiRequest, Body, Endpoint, RouteParameter
from skillhouse.extensions.server.api.schemas import (
    EFFECT,
    array,
    either,
    listing,
    record,
    ref,
)
from skillhouse.floor import structs
from skillhouse.house import POLICY_SUMMARIES, AccessScope, usable_config
from skillhouse.manage import (
    checked_addition,
    only_editor,
    rule_value,
    with_changed_rule,
    with_policy,
    without_rule,
    write_user_text,
)
from skillhouse.permission import ACTIONS, Effect, Rule, lint_rules
from skillhouse.presentation.rule_changes import (
    addition,
    removal,
    replacement,
    user_rules,
    written,
)

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse
    from skillhouse.house.config import UsableConfig

_TEXT = {"type": "string", "minLength": 1, "maxLength": 8_192}
_AGENT = {"type": "string", "minLength": 1, "maxLength": 100}
_EXAMPLES = array({"type": "string", "maxLength": 2_000}) | {"maxItems": 50}
_RULE = {
    "effect": EFFECT,
    "action": {"enum": sorted(ACTIONS)},
    "pattern": _TEXT,
}
_ADDED_RULE = record(
    _RULE,
    optional={
        "reason": {"type": "string", "maxLength": 500},
        "match": _EXAMPLES,
        "not_match": _EXAMPLES,
    },
    closed=True,
)
PREVIEW = RouteParameter(
    name="preview",
    schema={"type": "boolean"},
    what="Only show the file as it would be.",
    example=True,
)


def _agent(request: ApiRequest) -> str:
    """Return the agent of a request's body; a named token has one of its own."""
    own: str = request.access.agent
    return request.body.get("agent", own) if request.access.is_owner else own


def _explain(api: ApiServices, request: ApiRequest) -> DecisionAnswer:
    asked = request.body
    with api.fresh() as house:
        return decision_answer(house, asked["action"], asked["resource"], _agent(request))


def _try(api: ApiServices, request: ApiRequest) -> TrialAnswer:
    asked = request.body
    rules = [_rule_of(one) for one in asked["rules"]]
    with api.fresh() as house:
        return trial_decisions(house, rules, asked["action"], asked["resource"], _agent(request))


def _rule_of(asked: Mapping[str, Any]) -> Rule:
    effect = Effect(asked["effect"])
    return Rule(effect=effect, action=asked["action"], pattern=asked["pattern"])


def listed_rules(usable: UsableConfig) -> ListAnswer:
    """Return the answer of `GET /policy/rules`, whose tag a change names as `If-Match`."""
    config, faults = usable
    found = rule_answers((*config.layers, *config.agents.values()))
    return listed("rules", found, RuleFilesAnswer(files=diagnostic_answers(faults)))


def rules_tag(usable: UsableConfig) -> str:
    return etag_of(json_text(listed_rules(usable)).encode())


def _rules(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        return listed_rules(usable_config(house.config.places))


def _check_tag(house: Skillhouse, request: ApiRequest) -> None:
    """Refuse a change that was planned with other rules than there are now."""
    given = request.query.get("if-match")
    if given is not None and given.strip() != rules_tag(usable_config(house.config.places)):
        raise ApiProblem(412, "changed", "the rules were changed since they were listed")


def _lint(api: ApiServices, _: ApiRequest) -> ListAnswer:
    with api.fresh() as house:
        config, faults = usable_config(house.config.places)
    found = [rule_finding(one) for one in lint_rules((*config.layers, *config.agents.values()))]
    return listed("findings", found, RuleFilesAnswer(files=diagnostic_answers(faults)))


def _add(api: ApiServices, request: ApiRequest) -> RuleChangeAnswer:
    asked = request.body
    rule = structs.replace(
        _rule_of(asked),
        reason=asked.get("reason", ""),
        match=tuple(asked.get("match", ())),
        not_match=tuple(asked.get("not_match", ())),
    )
    text = written(rule)
    places = api.house.config.places
    if request.query.get("preview"):
        with api.fresh() as house:
            _check_tag(house, request)
            return addition(house, rule).answer(places.user_file)
    with only_editor(places, api.house.config.state_directory), api.fresh() as house:
        _check_tag(house, request)
        whole = checked_addition(places, text)
        write_user_text(house.audit_log, places, whole, "rule-add", rule_value(rule))
    api.reader.expire()
    return RuleChangeAnswer(path=str(places.user_file), rule=text, text=whole)


def _set_policy(api: ApiServices, request: ApiRequest) -> RulesFileAnswer:
    name, places = request.body["policy"], api.house.config.places
    with only_editor(places, api.house.config.state_directory), api.fresh() as house:
        whole = with_policy(places, name)
        write_user_text(house.audit_log, places, whole, "policy", {"policy": name})
    api.reader.expire()
    return RulesFileAnswer(path=str(places.user_file), text=whole)


def _place_of(request: ApiRequest) -> int:
    index = request.path["index"]
    if not (index.isascii() and index.isdigit() and len(index) < 7):
        raise ApiProblem(404, "unknown-rule", "expected the place of a rule, from 0")
    return int(index)


def _replace(api: ApiServices, request: ApiRequest) -> RuleChangeAnswer:
    index, asked = _place_of(request), request.body
    rule = structs.replace(_rule_of(asked), reason=asked.get("reason", ""))
    places = api.house.config.places
    if request.query.get("preview"):
        with api.fresh() as house:
            _check_tag(house, request)
            return replacement(house, index, rule).answer(places.user_file)
    with only_editor(places, api.house.config.state_directory), api.fresh() as house:
        _check_tag(house, request)
        whole = with_changed_rule(places, index, rule)
        changed = {**rule_value(rule), "before": rule_value(user_rules(house.config)[index])}
        write_user_text(house.audit_log, places, whole, "rule-change", changed)
    api.reader.expire()
    return RuleChangeAnswer(path=str(places.user_file), rule=written(rule), text=whole)


def _remove(api: ApiServices, request: ApiRequest) -> RuleChangeAnswer | RulesFileAnswer:
    index = _place_of(request)
    places = api.house.config.places
    if request.query.get("preview"):
        with api.fresh() as house:
            _check_tag(house, request)
            return removal(house, index).answer(places.user_file)
    with only_editor(places, api.house.config.state_directory), api.fresh() as house:
        _check_tag(house, request)
        whole = without_rule(places, index)
        gone = rule_value(user_rules(house.config)[index])
        write_user_text(house.audit_log, places, whole, "rule-remove", gone)
    api.reader.expire()
    return RulesFileAnswer(path=str(places.user_file), text=whole)


_DECISION = either(ExplanationAnswer, LineAnswer)
_EXPLAINED: dict[str, Any] = {
    "action": "exec",
    "resource": "git status",
    "effect": "ask",
    "layer": "default",
    "rule_index": None,
    "reason": "no rule matches; `exec` defaults to ask",
    "rules": [],
}
_ASKED = {"action": _TEXT, "resource": _TEXT}
_MANAGE = AccessScope.MANAGE

ROUTES = (
    Endpoint(
        name="explainDecision",
        method="POST",
        path="/policy/explain",
        tag="policy",
        what="Decides one permission, or a command line, and shows every rule that matches.",
        run=_explain,
        is_change=False,
        body=Body(
            schema=record(_ASKED, optional={"agent": _AGENT}, closed=True),
            example={"action": "exec", "resource": "git status"},
        ),
        answer=_DECISION,
        example=_EXPLAINED,
    ),
    Endpoint(
        name="testRules",
        method="POST",
        path="/policy/test",
        tag="policy",
        what="The decision as it is, and as it would be with more rules; nothing is written.",
        run=_try,
        is_change=False,
        body=Body(
            schema=record(
                {**_ASKED, "rules": array(record(_RULE, closed=True)) | {"maxItems": 50}},
                optional={"agent": _AGENT},
                closed=True,
            ),
            example={
                "action": "exec",
                "resource": "git status",
                "rules": [{"effect": "allow", "action": "exec", "pattern": "git status"}],
            },
        ),
        answer=record({"before": _DECISION, "after": _DECISION}),
        example={"before": _EXPLAINED, "after": {**_EXPLAINED, "effect": "allow"}},
    ),
    Endpoint(
        name="listRules",
        method="GET",
        path="/policy/rules",
        tag="policy",
        what="Every rule of every layer, the farthest layer first.",
        run=_rules,
        answer=listing("rules", RuleAnswer, RuleFilesAnswer),
        example={"list": "rules", "total": 0, "rules": [], "files": []},
    ),
    Endpoint(
        name="addRule",
        method="POST",
        path="/policy/rules",
        tag="policy",
        what="Adds a rule at the end of the user's file, or shows the file as it would be.",
        run=_add,
        scope=_MANAGE,
        query=(structs.replace(IF_MATCH, required=False), PREVIEW),
        status=201,
        body=Body(
            schema=_ADDED_RULE,
            example={"effect": "ask", "action": "exec", "pattern": "git push *"},
        ),
        answer=ref(RuleChangeAnswer),
        example={"path": "/home/you/.config/skillhouse/config.toml", "rule": "…", "text": "…"},
        problems=(412,),
    ),
    Endpoint(
        name="changeRule",
        method="PUT",
        path="/policy/rules/user/{index}",
        tag="policy",
        what="Changes a rule of the user's file in its place, or shows the file as it would be.",
        run=_replace,
        scope=_MANAGE,
        query=(IF_MATCH, PREVIEW),
        body=Body(
            schema=record(
                _RULE, optional={"reason": {"type": "string", "maxLength": 500}}, closed=True
            ),
            example={"effect": "ask", "action": "exec", "pattern": "git push *"},
        ),
        answer=ref(RuleChangeAnswer),
        example={"path": "/home/you/.config/skillhouse/config.toml", "rule": "…", "text": "…"},
        problems=(412, 428),
    ),
    Endpoint(
        name="removeRule",
        method="DELETE",
        path="/policy/rules/user/{index}",
        tag="policy",
        what="Takes a rule out of the user's file, or shows the file as it would be.",
        run=_remove,
        scope=_MANAGE,
        query=(IF_MATCH, PREVIEW),
        answer=either(RuleChangeAnswer, RulesFileAnswer),
        example={"path": "/home/you/.config/skillhouse/config.toml", "text": "…"},
        problems=(412, 428),
    ),
    Endpoint(
        name="setStartingPolicy",
        method="PUT",
        path="/policy/starting",
        tag="policy",
        what="Sets the policy whose rules count beside those of the user's file.",
        run=_set_policy,
        scope=_MANAGE,
        body=Body(
            schema=record({"policy": {"enum": sorted(POLICY_SUMMARIES)}}, closed=True),
            example={"policy": "developer"},
        ),
        answer=ref(RulesFileAnswer),
        example={"path": "/home/you/.config/skillhouse/config.toml", "text": "…"},
    ),
    Endpoint(
        name="lintRules",
        method="GET",
        path="/policy/lint",
        tag="policy",
        what="Rules that have no effect, or more than they seem.",
        run=_lint,
        answer=listing("findings", RuleFindingAnswer, RuleFilesAnswer),
        example={"list": "findings", "total": 0, "findings": [], "files": []},
    ),
)

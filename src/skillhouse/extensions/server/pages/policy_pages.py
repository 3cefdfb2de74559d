"""The rules by layer, what decides an action, and a change of a rule before it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.json_form import plain
from skillhouse.answers.policy import decision_answer
from skillhouse.extensions.server.api.policy_routes import rules_tag
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import ConfigError, SkillhouseError
from skillhouse.house import POLICY_SUMMARIES, Skillhouse, usable_config
from skillhouse.house.config import RuleLayer, rule_layers
from skillhouse.permission import ACTIONS, Effect, Layer, Rule, RuleFinding, lint_rules
from skillhouse.presentation.rule_changes import (
    RuleChange,
    addition,
    removal,
    replacement,
    user_rules,
)

ACTION_TEXTS: Mapping[str, str] = {
    "exec": "runs a command: its words, such as `git push *`",
    "exec-once": "runs a command that means more than the words of a rule; no rule allows it",
    "shell": "gives a whole line to a shell; no rule allows it",
    "script": "runs a script of the workspace: its path; no rule allows it",
    "network": "lets a command reach the network: the words of the command",
    "fetch": "gets an address: method and host, such as `GET https://docs.python.org`",
    "net": "is asked by no tool of skillhouse; for a program's own tool",
    "read": "reads a file: its absolute path",
    "list": "lists a directory: its absolute path",
    "write": "writes, edits or deletes a file: its absolute path",
    "skill": "loads the instructions of a skill: its name",
    "sign": "signs with a key that skillhouse keeps",
    "memory": "is asked by no tool of skillhouse; for a program's own tool",
}
"""Texts of the interface, translated where they are shown."""
RULES_PATH = "/api/v1/policy/rules"
RESOURCE_MAX = 8_192
"""Characters of a resource or pattern, as the API takes them."""


class Undo(Struct, frozen=True, kw_only=True):
    """The request that undoes a change of the rules."""

    method: str
    path: str
    body: dict[str, object] | None = None


class PolicyPages:
    """Plain functions, which Starlette runs in threads; they change nothing by themselves."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._services = site.services

    def routes(self) -> list[Route]:
        return [
            Route("/policy", self.all),
            Route("/policy/add", self.add),
            Route("/policy/change/{index:int}", self.change),
            Route("/policy/remove/{index:int}", self.remove),
        ]

    def all(self, request: Request) -> Response:
        action, resource, agent = (_text(request, name) for name in ("action", "resource", "agent"))
        with self._services.fresh() as house:
            places = house.config.places
            usable = usable_config(places)
            config, faults = usable
            layers = rule_layers(places, config.layers, config.agents, config.bundle)
            values: dict[str, Any] = {
                "layers": layers,
                "findings": [_findings(one) for one in layers],
                "faults": faults,
                "agents": sorted(config.agents),
                "user_file": places.user_file,
                "grants": len(house.approvals.grant_store.all()),
                **_explanation(house, action, resource, agent or "default"),
            }
        return self._site.page(
            request,
            "policy.html",
            actions=sorted(ACTIONS),
            starting=tuple(POLICY_SUMMARIES.items()),
            effects=[effect.value for effect in Effect],
            action_texts=ACTION_TEXTS,
            asked_action=action or "exec",
            resource=resource,
            **_filled(request, values["layers"]),
            agent=agent or "default",
            **values,
        )

    def add(self, request: Request) -> Response:
        rule, body = _asked_rule(request)
        return self._preview(
            request,
            lambda house: addition(house, rule),
            method="POST",
            path="",
            body=body,
            undo=lambda rules: Undo(method="DELETE", path=f"{RULES_PATH}/user/{len(rules)}"),
        )

    def change(self, request: Request) -> Response:
        index: int = request.path_params["index"]
        rule, body = _asked_rule(request)
        return self._preview(
            request,
            lambda house: replacement(house, index, rule),
            method="PUT",
            path=f"/user/{index}",
            body=body,
            undo=lambda rules: Undo(
                method="PUT",
                path=f"{RULES_PATH}/user/{index}",
                body=_written(rules[index]),
            ),
        )

    def remove(self, request: Request) -> Response:
        index: int = request.path_params["index"]
        return self._preview(
            request,
            lambda house: removal(house, index),
            method="DELETE",
            path=f"/user/{index}",
            # A rule is added at the end: in the middle it would be another place.
            undo=lambda rules: (
                Undo(method="POST", path=RULES_PATH, body=_written(rules[index], *EXAMPLES))
                if index == len(rules) - 1
                else None
            ),
        )

    def _preview(
        self,
        request: Request,
        change: Callable[[Skillhouse], RuleChange],
        *,
        method: str,
        path: str,
        undo: Callable[[Sequence[Rule]], Undo | None],
        body: dict[str, str] | None = None,
    ) -> Response:
        """Show a change with the button that makes just this one, or why it is not possible.

        `undo` gets the rules of the file before the change.
        """
        found, error, tag, undone = None, "", "", None
        rule = None if body is None else _asked_rule(request)[0]
        with self._services.fresh() as house:
            user_file = house.config.places.user_file
            try:
                if body is not None and not body["pattern"]:
                    raise ConfigError("expected a pattern", path=user_file)
                tag = rules_tag(usable_config(house.config.places))
                found = change(house)
                undone = undo(user_rules(house.config))
            except ConfigError as problem:
                error = str(problem)
        return self._site.page(
            request,
            "policy_change.html",
            422 if error else 200,
            change=found,
            error=error,
            tag=tag,
            method=method,
            api_path=f"{RULES_PATH}{path}",
            undo=undone,
            body=body,
            # What can be said of the rule by itself, whatever rules are beside it.
            odd=[] if rule is None else lint_rules((Layer(name="user", rules=(rule,)),)),
            user_file=user_file,
        )


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip()[:RESOURCE_MAX]


RULE_PARTS = ("effect", "action", "pattern", "reason")
EXAMPLES = ("match", "not_match")


def _written(rule: Rule, *more: str) -> dict[str, object]:
    """Return the body that writes a rule as it was, with `more` of its parts."""
    found = {name: getattr(rule, name) for name in (*RULE_PARTS, *more)}
    return {name: value for name, value in found.items() if value}


def _asked_rule(request: Request) -> tuple[Rule, dict[str, str]]:
    """Return the rule that a form asks for, and the body of the request that makes it."""
    asked = {name: _text(request, name) for name in ("effect", "action", "pattern", "reason")}
    if asked["effect"] not in list(Effect) or asked["action"] not in ACTIONS:
        raise HTTPException(404)
    rule = Rule(
        effect=Effect(asked["effect"]),
        action=asked["action"],
        pattern=asked["pattern"],
        reason=asked["reason"],
    )
    return rule, {key: value for key, value in asked.items() if value or key != "reason"}


def _filled(request: Request, layers: Sequence[RuleLayer]) -> dict[str, object]:
    """Return what the form of a rule begins with: nothing, or a rule to change or to copy."""
    rules = next((one.layer.rules for one in layers if one.layer.name == "user"), ())
    for name in ("change", "copy"):
        text = _text(request, name)
        place = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else -1
        if 0 <= place < len(rules):
            return {"filled": rules[place], "changed_at": place if name == "change" else None}
    return {"filled": None, "changed_at": None}


def _explanation(house: Skillhouse, action: str, resource: str, agent: str) -> dict[str, object]:
    """Return what decides an action, and why it cannot be decided; both empty if none is asked."""
    if not resource or action not in ACTIONS:
        return {"explained": None, "problem": ""}
    try:
        return {"explained": plain(decision_answer(house, action, resource, agent)), "problem": ""}
    except SkillhouseError as error:
        return {"explained": None, "problem": str(error)}


def _findings(one: RuleLayer) -> dict[int, list[RuleFinding]]:
    """Return what is odd about each rule of a layer, by its place from 0."""
    found: dict[int, list[RuleFinding]] = {}
    for finding in lint_rules((one.layer,)):
        found.setdefault(finding.rule_index, []).append(finding)
    return found

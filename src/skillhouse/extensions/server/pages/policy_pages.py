"""The rules by layer, what decides an action, and a change of a rule before it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.extensions.server.api.policy_routes import rules_tag
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import ConfigError, SkillhouseError
from skillhouse.frontends.answers.json_form import plain
from skillhouse.frontends.answers.policy import decision_answer
from skillhouse.frontends.presentation.doctor_values import listed_profiles
from skillhouse.frontends.presentation.rule_changes import RuleChange, addition, removal
from skillhouse.house import Skillhouse, usable_config
from skillhouse.house.config.rule_lines import RuleLayer, rule_layers
from skillhouse.permission import ACTIONS, Effect, Rule, RuleFinding, lint_rules

RESOURCE_MAX = 8_192
"""Characters of a resource or pattern, as the API takes them."""


class PolicyPages:
    """Plain functions, which Starlette runs in threads; they change nothing by themselves."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._services = site.services

    def routes(self) -> list[Route]:
        return [
            Route("/policy", self.all),
            Route("/policy/add", self.add),
            Route("/policy/remove/{index:int}", self.remove),
        ]

    def all(self, request: Request) -> Response:
        action, resource, agent = (_text(request, name) for name in ("action", "resource", "agent"))
        with self._services.fresh() as house:
            places = house.config.places
            usable = usable_config(places)
            config, faults = usable
            layers = rule_layers(places, config.layers, config.agents)
            values: dict[str, Any] = {
                "layers": layers,
                "findings": [_findings(one) for one in layers],
                "faults": faults,
                "agents": sorted(config.agents),
                "profile": config.profile if isinstance(config.profile, str) else "",
                "profiles": listed_profiles(places),
                "user_file": places.user_file,
                "grants": len(house.approvals.grant_store.all()),
                **_explanation(house, action, resource, agent or "default"),
            }
        return self._site.page(
            request,
            "policy.html",
            actions=sorted(ACTIONS),
            effects=[effect.value for effect in Effect],
            asked_action=action or "exec",
            resource=resource,
            agent=agent or "default",
            **values,
        )

    def add(self, request: Request) -> Response:
        asked = {name: _text(request, name) for name in ("effect", "action", "pattern", "reason")}
        if asked["effect"] not in list(Effect) or asked["action"] not in ACTIONS:
            raise HTTPException(404)
        rule = Rule(
            effect=Effect(asked["effect"]),
            action=asked["action"],
            pattern=asked["pattern"],
            reason=asked["reason"],
        )
        body = {key: value for key, value in asked.items() if value or key != "reason"}
        return self._preview(
            request, lambda house: addition(house, rule), method="POST", path="", body=body
        )

    def remove(self, request: Request) -> Response:
        index: int = request.path_params["index"]
        return self._preview(
            request, lambda house: removal(house, index), method="DELETE", path=f"/user/{index}"
        )

    def _preview(
        self,
        request: Request,
        change: Callable[[Skillhouse], RuleChange],
        *,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
    ) -> Response:
        """Show a change with the button that makes just this one, or why it is not possible."""
        found, error, tag = None, "", ""
        with self._services.fresh() as house:
            user_file = house.config.places.user_file
            try:
                if body is not None and not body["pattern"]:
                    raise ConfigError("expected a pattern", path=user_file)
                tag = rules_tag(usable_config(house.config.places))
                found = change(house)
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
            api_path=f"/api/v1/policy/rules{path}",
            body=body,
            user_file=user_file,
        )


def _text(request: Request, name: str) -> str:
    return request.query_params.get(name, "").strip()[:RESOURCE_MAX]


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

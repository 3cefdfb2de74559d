"""The page of one call of a skill's code: where it failed, and what the code logged and printed."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.approval import ApprovalError
from skillhouse.audit import AuditEntry, AuditLog, AuditRecord, Confirmation, find_record
from skillhouse.extensions.server.forms import json_response
from skillhouse.extensions.server.pages.question_view import QuestionView, view_of
from skillhouse.extensions.server.pages.site import Site
from skillhouse.frontends.answers.audit import (
    PARTS,
    code_calls,
    code_lists,
    command_of,
    detail_of,
)
from skillhouse.frontends.answers.tools import code_record
from skillhouse.house import usable_config
from skillhouse.house.config.rule_lines import rule_layers
from skillhouse.permission import Rule

CALLS_SHOWN = 20
"""Calls of skills' code in the list of the JSON, newest first."""
ID_MAX = 64
"""Characters of a record's id."""


class CallPage:
    """Shows records as the log has them; it changes nothing."""

    def __init__(self, site: Site, log: AuditLog) -> None:
        self._site = site
        self._log = log

    def routes(self) -> list[Route]:
        return [
            Route("/calls/{id}", self.call),
            Route("/api/calls", self.api_calls),
            Route("/api/calls/{id}", self.api_call),
        ]

    def call(self, request: Request) -> Response:
        entry = self._entry(request)
        record, after = entry.record, entry.outcome or entry.record
        links, named = self._rules(record)
        is_linked = any(
            (one.layer, one.rule_index) in links
            for one in record.permissions
            if one.effect == "deny"
        )
        asked = after.confirmation or record.confirmation
        return self._site.page(
            request,
            "call.html",
            links=links,
            card=self._card(asked),
            denying=() if is_linked else named,
            policy_query=policy_query(record),
            entry=entry,
            record=record,
            after=after,
            asked=asked,
            kept=code_lists(detail_of(entry)),
            detail=plain_detail(detail_of(entry)),
        )

    def _card(self, asked: Confirmation | None) -> QuestionView | None:
        """Return what the person was shown, while the state still has the question."""
        if asked is None or not asked.approval:
            return None
        try:
            approval = self._site.house.approvals.get(asked.approval)
        except ApprovalError:
            return None
        return view_of(approval) if approval.request.level != "sign" else None

    def api_calls(self, _: Request) -> Response:
        return json_response(list(map(code_record, code_calls(self._log, most=CALLS_SHOWN))))

    def api_call(self, request: Request) -> Response:
        return json_response(code_record(self._entry(request)))

    def _rules(
        self, record: AuditRecord
    ) -> tuple[dict[tuple[str, int], str], tuple[RuleLink, ...]]:
        """Return where the policy page has each rule, by layer and place, if none has changed,
        and the rules of now that the reason of a denial names."""
        with self._site.services.fresh() as house:
            config = usable_config(house.config.places).config
            layers = rule_layers(house.config.places, config.layers, config.agents)
            is_same = record.rules_digest == house.policy.rules_digest()
        places: dict[tuple[str, int], str] = {}
        named = []
        for at, one in enumerate(layers):
            if one.agent not in ("", record.agent):
                continue
            for index, rule in enumerate(one.layer.rules):
                place = f"/policy#rule-{at}-{index}"
                if is_same:
                    places.setdefault((one.layer.name, index), place)
                if is_named(rule, one.layer.name, record.reason):
                    removal = f"/policy/remove/{index}" if one.layer.name == "user" else ""
                    link = RuleLink(rule=rule, layer=one.layer.name, place=place, removal=removal)
                    named.append(link)
        return places, tuple(named)

    def _entry(self, request: Request) -> AuditEntry:
        wanted = request.path_params["id"]
        is_id = len(wanted) <= ID_MAX and wanted.isascii() and wanted.isalnum()
        entry = find_record(self._log.path, wanted, key=self._log.key) if is_id else None
        if entry is None:
            raise HTTPException(404)
        return entry


class RuleLink(Struct, frozen=True, kw_only=True):
    """A rule, and where the policy page has it."""

    rule: Rule
    layer: str
    place: str
    removal: str
    """The page that shows what its removal would change; empty for a rule of another file."""


def is_named(rule: Rule, layer: str, reason: str) -> bool:
    """Whether a call was denied for a rule, as the reason of its record says.

    INVARIANT: only at its beginning, as the rest may be words of the call.

    >>> said = "rule `exec rm *` of user policy"
    >>> rule = Rule(effect="deny", action="exec", pattern="rm *")
    >>> is_named(rule, "user", f"denied: {said}: mine"), is_named(rule, "user", f"denied: `{said}`")
    (True, False)
    """
    said = f"denied: {rule.named_in(layer)}"
    return rule.effect == "deny" and (reason == said or reason.startswith(f"{said}: "))


def policy_query(record: AuditRecord) -> str:
    """Return the query with which the policy page decides what a call asked for; empty for a call
    that asked for nothing.

    >>> policy_query(AuditRecord(kind="refusal", tool="exec", arguments={"command": "rm -r a"}))
    'action=exec&resource=rm+-r+a'
    """
    asked = sorted(record.permissions, key=lambda one: one.effect != "deny")
    action, resource = "exec", command_of(record)
    if asked:
        action, resource = asked[0].action, asked[0].resource
    query = {"action": action, "resource": resource}
    if record.agent not in ("", "default"):
        query["agent"] = record.agent
    return urlencode(query) if resource else ""


def plain_detail(detail: Mapping[str, object]) -> dict[str, object]:
    """Return the detail of a record without what has a part of its own, and without empty values.

    >>> plain_detail({"exit_code": 0, "limit": "", "log": ["a"], "approval": "27a0"})
    {'exit_code': 0}
    """
    own = (*PARTS, "approval", "answer", "answered_by", "answered_on")
    return {
        name: value
        for name, value in detail.items()
        if name not in own and value not in ("", None, [], {})
    }

"""Where the pages have what a call or a question is about: its rules, its skill and its client."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from msgspec import Struct

from skillhouse.approval import ApprovalRequest
from skillhouse.audit import AuditEntry, AuditRecord
from skillhouse.extensions.server.pages.renderer import skill_path
from skillhouse.extensions.server.pages.site import Site
from skillhouse.floor import SkillhouseError
from skillhouse.house import usable_config
from skillhouse.house.config import RuleLayer, rule_layers
from skillhouse.permission import Rule

RESOURCE_MAX = 2_000
"""Characters of a resource that an address has; the page has a field for a longer one."""


class RuleLink(Struct, frozen=True, kw_only=True):
    """A rule, and where the policy page has it."""

    rule: Rule
    layer: str
    place: str
    line: int | None
    removal: str
    """The page that shows what its removal would change; empty for a rule of another file."""


class QuestionLinks(Struct, frozen=True, kw_only=True):
    """What a question is about; an empty address where there is no page of it."""

    client: str
    skill: str
    rules: tuple[RuleLink, ...]
    deciding: str
    """The policy page with the first of the permissions that it asks for."""


def client_path(client: str) -> str:
    """Return the address of a client's page, by what it calls itself in a call; or nothing.

    >>> client_path("codex 0.9"), client_path("a/../b"), client_path("")
    ('/clients/codex', '/clients/a%2F..%2Fb', '')
    """
    name = client.partition(" ")[0].rpartition(":")[2]
    return f"/clients/{quote(name, safe='', errors='replace')}" if name.strip(".") else ""


class ObjectLinks:
    """Looks them up in what the service has read."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def skill(self, name: str) -> str:
        """Return the page of the skill of that name, id or tool; empty if none is here by now."""
        if not name:
            return ""
        try:
            index = self._site.reader.scan()
        except SkillhouseError:
            return ""
        name = name.partition(" ")[0]
        for given in (name, name.rpartition(":")[2]):
            skill = index.by_id.get(given)
            if skill is not None:
                return skill_path(index.reference_of(skill))
            for one in index.by_id.values():
                if one.name == given:
                    return skill_path(index.reference_of(one))
        is_code = any(one.name == name for one in index.code)
        return skill_path(name) if is_code else ""

    def skill_of_tool(self, tool: str) -> str:
        """Return the skill whose code has a tool; empty for a tool of ours."""
        name = tool.partition(":")[0] if ":" in tool else tool.partition("__")[0]
        try:
            known = {one.name for one in self._site.reader.scan().code}
        except SkillhouseError:
            return ""
        return name if name in known and name != tool else ""

    def layers(self) -> tuple[tuple[RuleLayer, ...], str]:
        """Return the layers in the order of the policy page, and the digest of their rules."""
        with self._site.services.fresh() as house:
            config = usable_config(house.config.places).config
            layers = rule_layers(house.config.places, config.layers, config.agents, config.bundle)
            return layers, house.policy.rules_digest()

    def named(self, agent: str, reasons: Sequence[str]) -> tuple[RuleLink, ...]:
        """Return the rules of now that such reasons begin with."""
        layers, _ = self.layers()
        return tuple(
            rule_link(layers, at, index)
            for at, one in enumerate(layers)
            if one.agent in ("", agent)
            for index, rule in enumerate(one.layer.rules)
            if any(is_named(rule, one.layer.name, reason) for reason in reasons)
        )

    def of_question(self, request: ApprovalRequest) -> QuestionLinks:
        found = dict(request.found).get("skill", "")
        asked = next(iter(request.asked), None)
        query = "" if asked is None else _policy(asked.action, asked.resource, request.agent)
        if asked is not None and asked.action == "skill":
            found = asked.resource
        return QuestionLinks(
            client=client_path(request.client_name),
            skill=self.skill(found),
            rules=self.named(request.agent, request.reasons),
            deciding=f"/policy?{query}#try" if query else "",
        )

    def decided_by(self, text: str) -> DecidingRule | None:
        """Return the rule of `LAYER.PLACE`, as the audit's address names it; None for no rule."""
        at, _, index = text.partition(".")
        layers, digest = self.layers()
        if not (at.isdecimal() and index.isdecimal() and len(text) < 9 and text.isascii()):
            return None
        if int(at) >= len(layers) or int(index) >= len(layers[int(at)].layer.rules):
            return None
        link = rule_link(layers, int(at), int(index))
        return DecidingRule(link=link, index=int(index), digest=digest)


class DecidingRule(Struct, frozen=True, kw_only=True):
    """A rule by which calls are filtered: those that it decided, as far as that is known."""

    link: RuleLink
    index: int
    digest: str
    """Of the rules of now: in a record of others, a place may be that of another rule."""

    def decided(self, entry: AuditEntry) -> bool:
        record = entry.record
        if is_named(self.link.rule, self.link.layer, record.reason):
            return True
        return record.rules_digest == self.digest and any(
            (one.layer, one.rule_index) == (self.link.layer, self.index)
            for one in record.permissions
        )


def rule_link(layers: Sequence[RuleLayer], at: int, index: int) -> RuleLink:
    one = layers[at]
    return RuleLink(
        rule=one.layer.rules[index],
        layer=one.layer.name,
        place=f"/policy#rule-{at}-{index}",
        line=one.lines[index],
        removal=f"/policy/remove/{index}" if one.layer.name == "user" else "",
    )


def is_named(rule: Rule, layer: str, reason: str) -> bool:
    """Whether a call was denied or asked about for a rule, as the reason of its record says.

    INVARIANT: only at its beginning, as the rest may be words of the call.

    >>> said = "rule `exec rm *` of user policy"
    >>> rule = Rule(effect="deny", action="exec", pattern="rm *")
    >>> is_named(rule, "user", f"denied: {said}: mine"), is_named(rule, "user", f"denied: `{said}`")
    (True, False)
    """
    said = rule.named_in(layer)
    if rule.effect == "deny":
        said = f"denied: {said}"
    return rule.effect != "allow" and (
        reason == said or reason.startswith((f"{said}: ", f"{said}; "))
    )


def policy_query(record: AuditRecord, command: str) -> str:
    """Return the query with which the policy page decides what a call asked for; empty for a call
    that asked for nothing. `command` is that of the call, as one types it.

    >>> policy_query(AuditRecord(kind="refusal", tool="exec"), "rm -r a")
    'action=exec&resource=rm+-r+a'
    """
    asked = sorted(record.permissions, key=lambda one: one.effect != "deny")
    action, resource = "exec", command
    if asked:
        action, resource = asked[0].action, asked[0].resource
    return _policy(action, resource, record.agent)


def _policy(action: str, resource: str, agent: str) -> str:
    query = {"action": action, "resource": resource}
    if agent not in ("", "default"):
        query["agent"] = agent
    return urlencode(query) if 0 < len(resource) <= RESOURCE_MAX else ""

"""Who makes a call, and what the gate would answer to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.permission import Decision

if TYPE_CHECKING:
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.runtime.policy import Explanation
    from skillhouse.skill import Skill, SkillContent


def caller(house: Skillhouse, *, channel: str = "library", **given: str) -> dict[str, str]:
    """Return who calls: agent, user, channel, client and its connection, and what else is given.

    An approval belongs to the connection that asked, and when that has ended to the next one of the
    same client; `session` answers end with the connection. Whoever serves several clients with one
    house names each; a call without a name is of the channel, with the house as its connection.
    """
    own = {"agent": "default", "user": "local", "client": channel}
    return {**own, "connection": house.connection, "channel": channel, **given}


def forecast(
    house: Skillhouse,
    name: str,
    arguments: Mapping[str, Any],
    *,
    need: toolbox.PermissionRequest | None = None,
    origin_digest: str = "",
    **who: str,
) -> toolbox.Forecast:
    """Return what the gate would answer to a call now; nothing is run, recorded, asked or reserved.

    Args:
        house: Whose gate it is.
        name: The tool.
        arguments: What its schema asks for.
        need: What to decide where the arguments are not known; they are not looked at then.
        asker: Digest of the skill that asks, where it is not the agent itself.
        who: As of `caller`, and the caller's ids.

    Raises:
        UnknownToolError: no tool has that name.
        ConfigError: no agent has that name.
    """
    wanted = toolbox.ToolCall(name=name, arguments=arguments, **caller(house, **who))
    session = house.sessions.of(
        wanted, house.view(wanted.agent).visible, origin_digest=origin_digest
    )
    return house.look.gate(wanted.agent).forecast(wanted, session, need=need)


def explain_loading(
    house: Skillhouse, skill: Skill, *, agent: str = "default", content: SkillContent | None = None
) -> Explanation:
    """Return what the gate would answer to a call that loads a skill, and the rules that match.

    Args:
        house: Whose gate it is.
        skill: One that was found, whether it is listed or not.
        agent: Who would call.
        content: What it says, where that is known: it may hide text.

    Raises:
        ConfigError: no agent has that name.
    """
    by_rules = house.policy.explain_skill(skill, agent=agent, content=content)
    need = house.policy.loading_need(skill, content)
    offered = [tool.name for tool in house.tools(agent=agent)]
    loading = [rule.name for rule in house.profile.tools if rule.kind == "skill"]
    # Without a tool of its own a skill is loaded by reading its file.
    name = next((name for name in loading if name in offered), "read")
    found = forecast(house, name, {}, need=need, agent=agent)
    decision = Decision(effect=found.effect, layer=found.layer)
    same = next((j.decision for j in found.judged if j.decision.effect is found.effect), decision)
    return dataclasses.replace(by_rules, decision=same, reason=found.reasons[0])

"""Skills for others than models: what loading would meet, files for a host, and exports."""

from __future__ import annotations

import dataclasses

from skillhouse import tools as toolbox
from skillhouse.clients import ExportSource
from skillhouse.permission import Decision, Effect
from skillhouse.runtime.caller import Caller
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.policy import Explanation
from skillhouse.skill import Skill, SkillContent


def explain_loading(
    house: Skillhouse, skill: Skill, *, agent: str = "default", content: SkillContent | None = None
) -> Explanation:
    """Return what the gate would answer to a call that loads a skill, and the rules that match.

    Args:
        house: Whose gate it is.
        skill: Any skill of the index, whether it is listed or not.
        agent: Who would call.
        content: Its text, where that is known: it may hide instructions.

    Raises:
        ConfigError: no agent has that name.
    """
    policy = house.policy
    by_rules = policy.explain_skill(skill, agent=agent, content=content)
    need = policy.loading_need(skill, content)
    offered = [tool.name for tool in house.tools(agent=agent)]
    loading = [rule.name for rule in policy.profile.tools if rule.kind == "skill"]
    # Without a tool of its own a skill is loaded by reading its file.
    name = next((name for name in loading if name in offered), "read")
    forecast = house.forecast(name, {}, need=need, agent=agent)
    decision = Decision(effect=forecast.effect, layer=forecast.layer)
    decisions = (evaluated.decision for evaluated in forecast.judged)
    same = next((one for one in decisions if one.effect is forecast.effect), decision)
    return dataclasses.replace(by_rules, decision=same, reason=forecast.reasons[0])


async def read_skill_file(
    house: Skillhouse,
    skill: Skill,
    relative: str,
    *,
    caller: Caller | None = None,
    approval_id: str | None = None,
) -> toolbox.ToolResult:
    """Return the bytes of one file of a skill as `data["bytes"]`, or why not.

    It needs the permission that loading the skill needs, and is recorded like a tool call.

    Args:
        house: Whose gate it is.
        skill: One that the agent sees.
        relative: POSIX path below its directory, checked when it is opened.
        caller: Who reads.
        approval_id: Of an answered approval of this very read.

    Raises:
        ConfigError: no agent has that name.
    """
    services = house.services
    who = services.caller(caller)
    view = house.view(who.agent)
    arguments = {"skill": skill.file, "path": relative}
    call = who.tool_call(toolbox.SKILL_FILE_TOOL, arguments, approval_id=approval_id)
    gate = services.gates.for_host(view)
    return await gate.call(call, services.sessions.of(call, view.visible))


def export_source(house: Skillhouse) -> ExportSource:
    """Return the skills of this installation as the exporter takes them."""

    def is_enabled(skill_id: str) -> bool:
        return house.snapshot.settings.is_enabled(skill_id)

    def obstacle(skill: Skill, content: SkillContent | None) -> str:
        explanation = house.policy.explain_skill(skill, content=content)
        return "" if explanation.decision.effect is Effect.ALLOW else explanation.reason

    return ExportSource(
        places=house.config.places,
        project=house.services.project,
        state_directory=house.config.state_directory,
        audit=house.audit_log,
        index=lambda: house.index,
        visible=lambda: house.view().visible.skills,
        skill=house.index.get,
        is_enabled=is_enabled,
        obstacle=obstacle,
    )

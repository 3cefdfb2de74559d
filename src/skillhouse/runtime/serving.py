"""How a protocol hands a skill's files to a host on the other side: through the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse import tools as toolbox
from skillhouse.runtime import calling

if TYPE_CHECKING:
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.skill import Skill


async def read_skill_file(
    house: Skillhouse, skill: Skill, relative: str, **caller: str
) -> toolbox.ToolResult:
    """Return the bytes of one file of a skill as `data["bytes"]`, or why not.

    It needs what loading the skill needs, is asked about alike, and stands in the log.

    Args:
        house: Whose skill it is.
        skill: One that the agent sees.
        relative: POSIX path below its directory, checked when it is opened.
        caller: As of `runtime.calling.caller`, and the caller's ids.

    Raises:
        ConfigError: no agent has that name.
    """
    who = calling.caller(house, **caller)
    view = house.view(who["agent"])
    gate = view.file_gate(house.approvals, house.audit_log)
    call = toolbox.ToolCall(
        name=toolbox.SKILL_FILE_TOOL, arguments={"skill": skill.file, "path": relative}, **who
    )
    return await gate.call(call, house.sessions.of(call, view.visible))

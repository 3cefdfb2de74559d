"""Makes the tools about skills that a profile names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skillhouse.skill import ToolRule
from skillhouse.tools.asset_tools import AssetsTool, AssetTool, ScriptPathTool
from skillhouse.tools.call import Tool
from skillhouse.tools.skills import IndexAtHand, SearchTool, SkillTool, VisibleSkills


def tool_about_skills(rule: ToolRule, shown: VisibleSkills, index: IndexAtHand) -> Tool:
    """Return the tool of a rule, for what one agent sees."""
    if rule.kind == "search":
        return SearchTool(rule, shown, index)
    return _MAKERS[rule.kind](rule, shown)


_MAKERS: Mapping[str, Callable[[ToolRule, VisibleSkills], Tool]] = {
    "skill": SkillTool,
    "asset": AssetTool,
    "script_path": ScriptPathTool,
    "assets": AssetsTool,
}

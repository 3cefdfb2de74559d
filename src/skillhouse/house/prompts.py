"""The texts about skills outside of the skill tool: system prompt and MCP instructions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import tools as toolbox

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.skill import Profile, ToolRule

INSTRUCTION = """\
## Skills (mandatory)

Before replying: scan <available_skills> <description> entries.
- If exactly one skill clearly applies: read its SKILL.md at <location> with `read`, then follow it.
- If multiple could apply: choose the most specific one, then read/follow it.
- If none clearly apply: do not read any SKILL.md.

Constraints: never read more than one skill up front; only read after selecting."""
"""The text before the XML block in a system prompt (S000-42 to S000-46, as published)."""

INSTRUCTION_FOR_TOOL = (
    "Skills hold instructions for certain tasks. Before you begin a task, look whether the "
    "description of one of these skills fits it; if so, load that skill with `{tool}` and follow "
    "it. Load one at a time, the most specific first."
)

INSTRUCTION_FOR_LIST = (
    "Skills hold instructions for certain tasks. Before you begin a task, load the one that fits "
    "with the tool `{tool}`, and follow it: {names}."
)
"""Before the list of the style `compact`."""
INSTRUCTION_FOR_HALF = (
    "Skills hold instructions for certain tasks. Before you begin a task, load the one that fits "
    "with the tool `{tool}`, and follow it. Half of them (the others are in the description of "
    "`{tool}`):"
)
"""Before a half of that list."""
FIRST_LINE_MAX = 250
"""Characters of the instructions' first line: a model that searches for tools gets nothing else of
this server from Codex 0.169 until it has searched."""
INSTRUCTION_FOR_SEARCH = (
    "Skills hold instructions for certain tasks. Before you begin a task, find one that fits with "
    "the tool `{search}`; if there is one, load it with the tool `{tool}` and follow it."
)


def first_line(tool: str, names: list[str]) -> str:
    """Return the instruction with as many names of skills as fit, and how many more there are."""
    named = [name for name in names if name.isprintable()]

    def line(count: int) -> str:
        left = len(names) - count
        more = [f"{left:,} more" if count else f"{left:,} skills"] if left else []
        return INSTRUCTION_FOR_LIST.format(tool=tool, names=", ".join([*named[:count], *more]))

    too_long = (count for count in range(len(named) + 1) if len(line(count)) > FIRST_LINE_MAX)
    return line(max(next(too_long, len(named) + 1) - 1, 0))


class Prompts(Struct, frozen=True, kw_only=True):
    """The words for one agent's skills, naming tools as the model knows them."""

    profile: Profile
    has_skills: bool
    """Whether the agent sees any, and can load them."""
    catalog: Callable[..., Catalog]
    """As `AgentView.catalog`."""
    prefix: str = ""
    """What a framework puts before the names of tools."""
    shown: frozenset[str] | None = None
    """Names of the tools about skills that the agent is offered; all of the profile's when None."""

    def system(
        self,
        offered: Iterable[str] | None = None,
        *,
        always: bool = False,
        tool_chars: int | None = None,
        budget_chars: int | None = None,
    ) -> str:
        """Return what the system prompt says of the skills, or nothing.

        The list is in one place of a request only: here if the profile says so, if the model is
        not offered the tool whose description would contain it, or if that has no room for it.

        Args:
            offered: Names of the tools that the model is offered; all of the agent's when None.
            always: List the skills here although the skill tool is offered, for clients that show
                the model no descriptions of tools.
            tool_chars: Most characters of the skill tool's description, the list included; None is
                no other bound than that of all lists.
            budget_chars: Most characters of what is returned.
        """
        text, _ = self._system(offered, always, tool_chars, budget_chars)
        return text

    def in_instructions(self) -> Catalog | None:
        """Return the list in the instructions; None where they have none."""
        return self.listing_instructions()[1]

    @property
    def _instruction_chars(self) -> int:
        return self.profile.catalog.instruction_chars

    def _system(
        self,
        offered: Iterable[str] | None,
        always: bool,  # noqa: FBT001 - as `system`.
        tool_chars: int | None = None,
        budget_chars: int | None = None,
    ) -> tuple[str, Catalog | None]:
        kinds = {rule.name: rule.kind for rule in self._tools()}
        given = {kinds.get(name, "other") for name in (kinds if offered is None else offered)}
        rule = self.profile.catalog
        if not self.has_skills:
            return rule.empty if rule.exposure == "system" else "", None
        if self._is_searched(given):
            return self.without_list() if always else "", None
        if not given and offered is not None:
            style = rule.without_tools
        elif rule.exposure == "system":
            style = rule.style
        elif "skill" in given and not always:
            if tool_chars is None or self._holds_all(tool_chars):
                return "", None
            style = rule.tool_style
        else:
            style = rule.without_skill_tool
        # The other styles say themselves what to do.
        says = self._instruction(given) if style in ("xml", "compact") else ""
        room = None if budget_chars is None else max(0, budget_chars - len(says) - 2)
        found = self.catalog(
            style=style,
            budget_chars=room,
            by_location="skill" not in given,
            search=self._tool("search") if "search" in given else "",
        )
        # Both or neither (S000-47).
        return f"{says}\n\n{found.text}" if says and found.text else found.text, found

    def _holds_all(self, chars: int) -> bool:
        """Whether a description of so many characters has the list as it is without that bound."""
        room = toolbox.list_room(self.profile.messages, chars)
        style = self.profile.catalog.tool_style
        whole = self.catalog(style=style)
        return self.catalog(style=style, budget_chars=room).text == whole.text

    @property
    def tool(self) -> str:
        """The name of the skill tool, as the model knows it; empty without one."""
        return self._tool("skill")

    def instructions(self) -> str:
        """Return the instructions of the MCP server, with the skills as the profile lists them.

        Some clients show a model these, others only descriptions of tools, so both hold the list.
        """
        return self.listing_instructions()[0]

    def listing_instructions(self) -> tuple[str, Catalog | None]:
        """Return the instructions, and the list in them."""
        rule = self.profile.catalog
        if not self.has_skills:
            return "", None
        if rule.exposure == "search":
            return self.without_list(), None
        if rule.exposure == "system":
            return self._system(None, always=False, budget_chars=self._instruction_chars)
        says_how = bool(self.tool) and rule.tool_style == "compact"
        found = self._within_instructions(1 + FIRST_LINE_MAX if says_how else 0)
        if not says_how or not found.text:
            return found.text, found
        names = [one.name for one in (*found.included, *found.omitted)]
        return f"{first_line(self.tool, names)}\n{found.text}", found

    def half(self, only: Collection[str]) -> tuple[str, Catalog]:
        """Return instructions with some of the skills, if the skill tool lists the others.

        `only` has their files, of which the catalog may omit some.
        """
        says = INSTRUCTION_FOR_HALF.format(tool=self.tool)
        found = self._within_instructions(1 + len(says), only)
        return f"{says}\n{found.text}", found

    def _within_instructions(self, taken: int, only: Collection[str] | None = None) -> Catalog:
        """Return the list for instructions, of which so many characters are taken."""
        return self.catalog(
            style=self.profile.catalog.tool_style,
            budget_chars=self._instruction_chars - taken,
            search=self._tool("search"),
            only=only,
        )

    def without_list(self) -> str:
        """Return the instructions without a list of skills."""
        tool, search = self._tool("skill"), self._tool("search")
        return INSTRUCTION_FOR_SEARCH.format(tool=tool, search=search) if tool and search else ""

    def _is_searched(self, given: set[str]) -> bool:
        """Whether the model finds skills by searching only."""
        has_search = any(rule.kind == "search" for rule in self._tools())
        return self.profile.catalog.exposure == "search" and ("search" in given or not has_search)

    def _instruction(self, given: set[str]) -> str:
        """Return the instruction for the list, with the name of an offered tool."""
        published = self.profile.messages.get("instruction")
        tool = self._tool("skill")
        if published or "skill" not in given or not tool:
            return published or INSTRUCTION
        return INSTRUCTION_FOR_TOOL.format(tool=tool)

    def _tool(self, kind: str) -> str:
        found = next((rule.name for rule in self._tools() if rule.kind == kind), "")
        return self.prefix + found if found else ""

    def _tools(self) -> tuple[ToolRule, ...]:
        rules = self.profile.tools
        return tuple(rule for rule in rules if self.shown is None or rule.name in self.shown)

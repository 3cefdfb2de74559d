"""Which tools an agent's model is offered: those that its lists name and no rule denies wholly.

A tool outside of the lists is not listed and cannot be called by a model. One that rules deny
wholly is not listed either, and a call of it gets the denial with its rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from skillhouse.floor import ConfigError, dataclass, nearest
from skillhouse.floor.rules import OURS, covers, matches, matches_in
from skillhouse.permission import Effect, Layer

ALL = "all"
"""In a list of tools: every tool."""
SKILLS = "skills"
"""In a list of tools: those that find, load and read skills, and those that skills bring."""
SEARCH_ACTION = "search_skills"
"""The action of searching for skills, whatever the profile calls the tool."""
SKILL_RESOURCE = "skill_resource"
"""The tool that reads files of other servers' skills."""
BUILTIN_TOOLS = (
    "read",
    "list",
    "write",
    "edit",
    "exec",
    "exec_output",
    "exec_stop",
    "fetch",
    "web_search",
    "memory_search",
    "memory_write",
    "sign",
    SKILL_RESOURCE,
)
"""The tools besides those about skills, which the profile names; not every agent has each."""
SEPARATORS = (":", "__")
"""In the names of tools that skills bring: `skill:tool`, and `skill__tool` on the wire."""


class OfferedTool(Protocol):
    """What decides whether a tool is offered; see `Tool`."""

    @property
    def name(self) -> str: ...

    @property
    def full_name(self) -> str: ...

    @property
    def is_about_skills(self) -> bool: ...

    @property
    def listed_with(self) -> str: ...

    @property
    def required_actions(self) -> tuple[str, ...]: ...

    @property
    def required_resource(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTool:
    """A tool of a profile before it is made."""

    name: str
    kind: str
    full_name: str = ""
    listed_with: str = ""
    is_about_skills: bool = True
    required_resource: str = "*"

    @property
    def required_actions(self) -> tuple[str, ...]:
        if self.kind == "search":
            return (SEARCH_ACTION,)
        return ("read",) if self.kind == "read" else ()


READ = ProfileTool(name="read", kind="read", is_about_skills=False, required_resource="/*")
"""The tool by which files are read, as `ReadTool` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """The tools that one agent is offered.

    >>> offer = ToolOffer(lists=(("skills", "weather:*"),))
    >>> offer.includes(ProfileTool(name="skill", kind="skill"))
    True
    """

    lists: tuple[tuple[str, ...], ...] = ()
    """Names, `skills`, `all` or patterns with `*`; a tool is offered if each list names it."""
    layers: tuple[Layer, ...] = ()
    """The agent's rules."""
    has_skills: bool = True
    """Whether the tools about skills have anything to show."""

    def includes(self, tool: OfferedTool) -> bool:
        """Whether every list names the tool."""
        return all(any(_names(entry, tool) for entry in entries) for entries in self.lists)

    def shows(self, tool: OfferedTool) -> bool:
        """Whether a model sees the tool."""
        if not self.includes(tool):
            return False
        if tool.is_about_skills and not tool.full_name and not self.has_skills:
            return False
        return not any(
            _denies_all(layer, action, tool.required_resource)
            for action in tool.required_actions
            for layer in self.layers
        )


def check_tool_lists(lists: Mapping[str, Iterable[str]], known: Iterable[str]) -> None:
    """Raise ConfigError for a name that no tool can have.

    The tools of skills come and go with them, so a name such as `skill:tool` and a pattern are
    taken as they are.

    Args:
        lists: The names, by what sets them: a key or a flag.
        known: The names of all other tools.
    """
    names = (ALL, SKILLS, *known)
    for key, entries in lists.items():
        for entry in entries:
            if entry in names or "*" in entry or any(mark in entry for mark in SEPARATORS):
                continue
            close = next(iter(nearest(entry, names)), "")
            hint = "" if close else f", known are {', '.join(sorted(names))} and SKILL:TOOL"
            raise ConfigError(f"unknown tool `{entry}` in `{key}`{hint}", key=key, suggestion=close)


def _names(entry: str, tool: OfferedTool) -> bool:
    if entry == ALL or (entry == SKILLS and tool.is_about_skills):
        return True
    own = tuple(filter(None, (tool.name, tool.full_name, tool.listed_with)))
    return any(matches(entry, name) for name in own) if "*" in entry else entry in own


def _denies_all(layer: Layer, action: str, resource: str) -> bool:
    """Whether a layer denies an action for all that `resource`, a pattern, matches.

    A True is sure: the rules are looked at as `decide` does, the deciding one first, and a rule
    that may let something through before all is denied makes it False.
    """
    is_literal = "*" not in resource and "?" not in resource
    for rule in layer.rules if layer.match == "first" else reversed(layer.rules):
        if not matches(rule.action, action):
            continue
        if rule.effect is Effect.DENY:
            if action == "exec" and rule.pattern.strip() == "*":
                return True
            if is_literal and matches_in(layer.dialect, rule.pattern, resource):
                return True
            if layer.dialect == OURS and covers(rule.pattern, resource):
                return True
        elif rule.effect is Effect.ALLOW and not layer.trusted:
            # As if it were not there.
            continue
        elif action != "exec" and (not is_literal or matches(rule.pattern, resource)):
            # Of commands the strictest of all rules holds, whatever their order.
            return False
    return False

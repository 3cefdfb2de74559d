"""The tools behind one gate: which an agent's model is offered, and the check of their arguments.

A call uses one tool. Making the others would load most of this package with every first call.

A tool outside of the agent's lists is not listed and cannot be called by a model. One that rules
deny wholly is not listed either, and a call of it gets the denial with its rule.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from skillhouse.floor import ConfigError, nearest
from skillhouse.floor.rules import OURS, covers, matches, matches_in
from skillhouse.floor.schema_words import fault_words
from skillhouse.permission import Effect, Layer
from skillhouse.tools.call import ANY_OBJECT
from skillhouse.tools.tool import Tool

if TYPE_CHECKING:
    import jsonschema_rs

ALL = "all"
"""In a list of tools: every tool."""
SKILLS = "skills"
"""In a list of tools: those that find, load and read skills, and those that skills bring."""
SEARCH_ACTION = "search_skills"
"""The action of searching for skills, whatever the profile calls the tool."""
CALL_SKILL_TOOL = "call_skill_tool"
"""The tool that calls those of skills for which a list of tools has no room."""
SKILL_RESOURCE = "skill_resource"
"""The tool that reads files of other servers' skills."""
FIND_AND_INSTALL = "find_and_install_skill"
"""The tool by which a model has a missing skill installed, where the user turned it on."""
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
    CALL_SKILL_TOOL,
    FIND_AND_INSTALL,
)
"""The tools besides those about skills, which the profile names; not every agent has each."""
SEPARATORS = (":", "__")
"""In the names of tools that skills bring: `skill:tool`, and `skill__tool` on the wire."""
ToolMaker = Callable[[], Tool]
"""Makes one tool; the name is known before."""


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


class ProfileTool(Struct, frozen=True, kw_only=True):
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


class ToolVisibility(Struct, frozen=True, kw_only=True):
    """The tools that one agent is offered.

    >>> offer = ToolVisibility(lists=(("skills", "weather:*"),))
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


class ToolNames(Struct, frozen=True, kw_only=True):
    """By which further names a design calls tools; none of them takes a name from another tool."""

    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of each tool of ours: the first is listed, and all are taken."""
    bare: bool = False
    """Whether a skill's tool may go by its own name alone, where that is the only one so called."""


class ToolSet:
    """Tools by name; those of `makers` come first and are made when they are first asked for."""

    def __init__(
        self,
        tools: Iterable[Tool],
        makers: Mapping[str, ToolMaker] = MappingProxyType({}),
        offer: ToolVisibility = ToolVisibility(),  # noqa: B008 - a frozen value.
        names: ToolNames = ToolNames(),  # noqa: B008 - likewise.
        why_absent: Callable[[str], str] = lambda _: "",
    ) -> None:
        """`offer` says which of the tools a model may call, and which of these are listed; `names`
        are further ones that tools have. `why_absent` says why a tool is not there, where that is
        known.

        Raises TypeError for a tool that does not derive from `Tool`, and the error of a schema
        that is none; those of skills are checked with their manifests.
        """
        tools = tuple(tools)
        self._makers = makers
        self.offer = offer
        self.why_absent = why_absent
        self._made = {_check(tool).name: tool for tool in tools}
        self._names = tuple(dict.fromkeys((*makers, *self._made)))
        # Inside, a skill's tool is `skill:tool`; a model sees the name on the wire (decision 12).
        self._by_full_name = {tool.full_name: tool for tool in tools if tool.full_name}
        # INVARIANT: a further name means a tool of ours, and never one that has the name itself.
        self._published = {
            name: own
            for own, published in names.published.items()
            for name in published
            if own in makers and name not in self._made and name not in makers
        }
        self._listed_as = {own: name for name, own in reversed(self._published.items())} | {
            own: own for own, published in names.published.items() if own in published[:1]
        }
        self._reserved = {*BUILTIN_TOOLS, *(n for ns in names.published.values() for n in ns)}
        self._has_bare = names.bare
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}
        # Calls come on several threads, and a tool is made once.
        self._lock = threading.RLock()
        for tool in tools:
            if not tool.full_name and tool.schema is not ANY_OBJECT:
                self._validator(tool)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, full name or published name."""
        name = self._published.get(name, name)
        made = self._made.get(name)
        if made is None and name in self._makers:
            with self._lock:
                made = self._made.get(name)
                if made is None:
                    made = _check(self._makers[name](), name)
                    self._made[name] = made
        return made or self._by_full_name.get(name)

    def shown(self, also: Collection[str] = ()) -> dict[str, Tool]:
        """Return the tools that a model is shown, in their order; `also` names unlisted ones."""
        found = (self.get(name) for name in self._names)
        listed = (one for one in found if one and (not one.is_unlisted or one.name in also))
        shown = (self._shown(tool) for tool in listed if self.offer.shows(tool))
        return {tool.name: tool for tool in shown}

    def shows_read(self) -> bool:
        """Whether a model is shown a tool by which it can read the rest of a long result."""
        return "read" in self.shown()

    def _shown(self, tool: Tool) -> Tool:
        """Return a tool as models see it: under the name that the design lists it by."""
        name = self._listed_as.get(tool.name, tool.name)
        if name == tool.name:
            return tool
        shown = copy(tool)
        shown.name, shown.own_name = name, tool.name
        vars(shown).pop("title", None)
        return shown

    def bare(self, name: str) -> tuple[Tool, ...]:
        """Return the tools of skills that the model is offered and whose skills call them so.

        A name of a tool of ours is none of theirs, whether that tool is there or not.
        """
        if not self._has_bare or name in self._reserved:
            return ()
        tools = self._by_full_name.items()
        return tuple(t for n, t in tools if n.rpartition(":")[2] == name and self.offer.includes(t))

    def argument_fault(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """Return what is wrong with the arguments, for the model; "" for nothing."""
        try:
            # A surrogate by itself is JSON to Python, but no text for a file or a program.
            json.dumps(dict(arguments), allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return f"the arguments of `{tool.name}` are not JSON values: {error}"
        known = tool.schema["properties"]
        is_closed = tool.schema.get("additionalProperties") is False
        for name in arguments:
            if is_closed and name not in known:
                close = nearest(name, known)
                hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(known)}"
                return f"`{tool.name}` has no argument `{name}`; {hint}"
        for fault in self._faults(tool, arguments):
            found = fault_words(fault, tool.accepted or tool.schema)
            if found.kind == "missing":
                return f"wrong argument of `{tool.name}`: it lacks `{found.place}`: {found.text}"
            if found.kind == "unknown":
                return f"`{tool.name}` has no argument `{found.place}`; {found.text}"
            where = f" `{found.place}`" if found.path else ""
            return f"wrong argument{where} of `{tool.name}`: {found.text}"
        return ""

    def _faults(
        self, tool: Tool, arguments: Mapping[str, Any]
    ) -> Iterable[jsonschema_rs.ValidationError]:
        if tool.schema is ANY_OBJECT:
            return ()
        return self._validator(tool).iter_errors(dict(arguments))

    def _validator(self, tool: Tool) -> jsonschema_rs.Draft202012Validator:
        import jsonschema_rs  # noqa: PLC0415 - a hook's tool takes any arguments.

        if tool.name not in self._validators:
            schema = dict(tool.accepted or tool.schema)
            self._validators[tool.name] = jsonschema_rs.Draft202012Validator(schema)
        return self._validators[tool.name]


def _check(tool: object, name: str = "") -> Tool:
    if not isinstance(tool, Tool) or (name and tool.name != name):
        what = f"an object of a subclass of `Tool`{f' named `{name}`' if name else ''}"
        raise TypeError(f"expected {what}, got {tool!r}")
    return tool

"""The tools of skills that have no room in a model's request, and how a model finds and calls them.

Beyond the budget of a request they are not in the list of tools: their skills are lines of the
catalog, searching and loading give their schemas, and `call_skill_tool` calls any of them. The gate
takes its call for one of the tool that it names, so rules, questions and records know no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.floor import nearest
from skillhouse.floor.lock import once
from skillhouse.floor.paths import sendable
from skillhouse.floor.structs import replace
from skillhouse.permission import Effect, Permission
from skillhouse.retrieval import Hit, SearchIndex
from skillhouse.tools.call import (
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ToolCall,
    object_schema,
)
from skillhouse.tools.skill_code import SkillCodeTool
from skillhouse.tools.tool import Session, Tool
from skillhouse.tools.tool_set import CALL_SKILL_TOOL

if TYPE_CHECKING:
    from skillhouse.tools.tool_set import ToolSet

LARGE_SHARE = 4
"""Where there is not room for all, a tool of more than one part in so many of the characters is the
first that is left out: one skill must not take the place of all others."""
IN_USE_SHARE = 2
"""Tools of loaded skills take at most one part in so many of the characters."""
SCHEMA_CHARS = 4_000
"""Characters of a schema that a search or an error shows."""
SEARCH_CHARS = 16_000
"""Characters of all schemas that one search shows."""
LOADED_CHARS = 65_536
"""Characters of the schemas that loading a skill shows, as much as a manifest's schema may have."""
NAMES_CHARS = 1_500
"""Characters of the names in the description, where no other tool finds them."""


class ToolBudget(Struct, frozen=True, kw_only=True):
    """What a request has room for; None is no bound."""

    count: int | None = None
    """Most tools of one agent, those that are no skill's among them."""
    chars: int | None = None
    """Most characters of the definitions of skills' tools, as JSON."""

    def holds(self, count: int, chars: int) -> bool:
        return (self.count is None or count <= self.count) and (
            self.chars is None or chars <= self.chars
        )


class ToolMatch(Struct, frozen=True, kw_only=True):
    """A skill of which tools are left out of the list, as a search finds it."""

    hit: Hit
    tools: tuple[SkillCodeTool, ...]


class DeferredTools:
    """One agent's tools of skills that are not in its list of tools; it is false for none."""

    def __init__(
        self,
        tools: Iterable[SkillCodeTool] = (),
        room: ToolBudget = ToolBudget(),  # noqa: B008 - a frozen value.
        names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`room` is what is left for those of loaded skills; `names` gives the tools that find
        them, as the model knows these."""
        self.tools: Mapping[str, SkillCodeTool] = {tool.name: tool for tool in tools}
        """By the name that a model knows."""
        self._room = room
        self._names = names

    def __bool__(self) -> bool:
        return bool(self.tools)

    @once
    def skills(self) -> Mapping[Path, tuple[SkillCodeTool, ...]]:
        """The tools of each skill, by its directory."""
        found: dict[Path, list[SkillCodeTool]] = {}
        for tool in self.tools.values():
            found.setdefault(tool.skill.directory, []).append(tool)
        return {directory: tuple(own) for directory, own in found.items()}

    def in_use(self, directories: Sequence[Path]) -> dict[str, SkillCodeTool]:
        """Return the tools of loaded skills that a request has room for; the latest come first."""
        found: dict[str, SkillCodeTool] = {}
        chars = 0
        for directory in reversed(directories):
            own = self.skills.get(directory, ())
            chars += sum(map(tool_chars, own))
            if not self._room.holds(len(found) + len(own), chars):
                break
            found.update((tool.name, tool) for tool in own)
        return found

    def listed(self, shown: Mapping[str, Tool], directories: Sequence[Path]) -> dict[str, Tool]:
        """Return the tools of a request, of all that the agent is shown.

        Args:
            shown: All, by name.
            directories: Of the skills that the conversation has loaded, the latest last.
        """
        if not any(name in self.tools for name in shown):
            return dict(shown)
        kept = {name: tool for name, tool in shown.items() if name not in self.tools}
        caller = CallSkillTool(tuple(self._names()), sorted(self.tools))
        return {**kept, CALL_SKILL_TOOL: caller, **self.in_use(directories)}

    @once
    def _index(self) -> SearchIndex:
        documents = []
        for directory, own in self.skills.items():
            manifest = own[0].skill.manifest
            texts = "\n".join(f"{tool.name} {tool.description}" for tool in own)
            documents.append((str(directory), manifest.name, manifest.description, texts))
        return SearchIndex.from_documents(documents)

    def search(self, query: str, *, limit: int, among: int) -> tuple[ToolMatch, ...]:
        """Return the skills whose tools fit a request, best first.

        `among` is how many other skills there are, by which it is judged how sure a match is.
        Raises SearchError: this Python's SQLite has no full-text module.
        """
        if not self.tools or limit < 1:
            return ()
        hits = self._index.search(query, limit=limit, of=among + len(self.skills))
        return tuple(ToolMatch(hit=hit, tools=self.skills[Path(hit.id)]) for hit in hits)

    def described(self, tools: Iterable[Sequence[SkillCodeTool]]) -> list[list[str]]:
        """Return the lines that describe the tools of each result of one search."""
        found, chars = [], SEARCH_CHARS
        for own in tools:
            lines, chars = _tool_texts(own, chars)
            found.append(lines)
        return found

    def values(self, tools: Iterable[SkillCodeTool]) -> list[dict[str, Any]]:
        """Return tools as plain values, for programs."""
        return list(map(_tool_value, tools))

    def text_of(self, directory: Path) -> str:
        """Return what a model gets of the tools of a skill that it loads."""
        lines, _ = _tool_texts(self.skills[directory], LOADED_CHARS)
        head = f"Tools of this skill; call one that is not in your list with `{CALL_SKILL_TOOL}`:"
        return "\n".join([head, *lines])

    def facts(self, directory: Path) -> Mapping[str, str]:
        """Return id, name and directory of a skill."""
        skill = self.skills[directory][0].skill
        name = skill.manifest.name
        return {"id": f"{skill.scope}:{name}", "name": name, "directory": str(directory)}

    def loading_plan(self, directory: Path, session: Session, data: Mapping[str, Any]) -> Plan:
        """Return the plan by which a skill of code alone is loaded: its tools come into the list.

        Nothing of it runs, and what is said of them would be in every request if there were room.
        """
        facts = self.facts(directory)

        async def run() -> Output:
            session.use_tools(directory)
            text = self.text_of(directory)
            return Output(text=text, excerpt="whole", data=data, detail={"skill": facts["id"]})

        need = PermissionRequest(
            permission=Permission(action="skill", resource=facts["name"]),
            default=Effect.ALLOW,
            why="no rule matches; it describes tools, and each of their calls is decided by itself",
            level="read",
        )
        return Plan(needs=(need,), run=run)


def deferral(
    tools: Sequence[SkillCodeTool],
    budget: ToolBudget,
    *,
    others: int,
    names: Callable[[], Iterable[str]] = tuple,
) -> DeferredTools:
    """Return which of an agent's tools of skills have no room in a request.

    Either none, or the few that are too large by themselves, or all of them: a list that changes
    with each further skill would be no help to choose by.

    Args:
        tools: All that the model is shown.
        budget: What there is room for.
        others: How many tools besides the agent may have.
        names: Gives the tools that find the others.
    """
    sizes = {tool.name: tool_chars(tool) for tool in tools}
    if budget.holds(others + len(tools), sum(sizes.values())):
        return DeferredTools()
    chars = budget.chars
    large = {n for n, size in sizes.items() if chars is not None and size * LARGE_SHARE > chars}
    rest = [size for name, size in sizes.items() if name not in large]
    room = ToolBudget(
        count=None if budget.count is None else max(0, budget.count - others - 1),
        chars=None if chars is None else chars // IN_USE_SHARE,
    )
    if budget.holds(others + 1 + len(rest), sum(rest)):
        return DeferredTools((tool for tool in tools if tool.name in large), room, names)
    return DeferredTools(tools, room, names)


def tool_chars(tool: Tool) -> int:
    """Return the characters of a tool's definition: its name, description and schema as JSON."""
    return len(tool.name) + len(tool.description) + len(_compact(tool.schema))


class CallSkillTool(Tool):
    """Its calls are those of the tool that they name: see `named_call`."""

    durable = False
    is_about_skills = True
    is_unlisted = True
    listed_at_once = True

    def __init__(self, finders: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        """`finders` are the tools that find the others; without any, these are named here."""
        self.name = CALL_SKILL_TOOL
        by = " or ".join(f"`{one}`" for one in finders)
        where = f"{by} gives their names and parameters." if by else _named(names)
        self.description = (
            "Call a tool of a skill that is not in your list of tools, by its name and with its "
            f"own arguments. {where}"
        )
        self.schema: Mapping[str, Any] = object_schema(
            {
                "name": {"type": "string", "description": "the tool, such as `skill__tool`"},
                "arguments": {
                    "type": "object",
                    "description": "the arguments of that tool, by its own parameters",
                },
            },
            required=("name",),
        )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Raise RefusedError: the gate has planned the call of the tool that is named."""
        raise RefusedError("name a tool of a skill, and call it from your own turn")


def named_call(call: ToolCall) -> ToolCall | None:
    """Return the call of the tool that a call of `call_skill_tool` names; None for a wrong form."""
    given = dict(call.arguments)
    name, arguments = given.pop("name", None), given.pop("arguments", {})
    if given or not isinstance(name, str) or not isinstance(arguments, Mapping):
        return None
    return replace(call, name=name, arguments=arguments)


def called_tool(tools: ToolSet, call: ToolCall) -> tuple[Tool, ToolCall]:
    """Return the tool of a skill that a call of `call_skill_tool` names, and the call of it.

    Raises RefusedError for a call in another form, for a name that no offered tool of a skill has,
    and for arguments that its schema does not take, with that schema.
    """
    inner = named_call(call)
    if inner is None:
        fault = tools.argument_fault(CallSkillTool(), call.arguments)
        raise RefusedError(fault or "expected the `name` of a tool, and its `arguments`")
    found = tools.get(inner.name)
    bare = tools.bare(inner.name)
    tool = bare[0] if found is None and len(bare) == 1 else found
    if tool is None or not tool.full_name or not tools.offer.includes(tool):
        raise RefusedError(_unknown(tools, inner.name, is_ours=bool(tool and not tool.full_name)))
    inner = replace(inner, name=tool.name, arguments=tool.canonical(inner.arguments))
    fault = tools.argument_fault(tool, inner.arguments)
    if fault:
        raise RefusedError(f"{fault}\n{schema_text(tool)}")
    return tool, inner


def _unknown(tools: ToolSet, name: str, *, is_ours: bool) -> str:
    if is_ours:
        return f"`{name}` is no tool of a skill; call it by its own name where it is in your list"
    known = [one for one, tool in tools.shown().items() if tool.full_name]
    close = next(iter(nearest(name, known)), "")
    hint = f"did you mean `{close}`" if close else "search for the skill, which gives its tools"
    return f"no skill has a tool `{name}`; {tools.why_absent(name) or hint}"


def schema_text(tool: Tool) -> str:
    """Return a tool's parameters for a model, of at most `SCHEMA_CHARS`."""
    text = sendable(_compact(tool.schema))
    if len(text) <= SCHEMA_CHARS:
        return f"parameters of `{tool.name}`: {text}"
    named = ", ".join(tool.schema.get("properties", {}))[:SCHEMA_CHARS]
    return f"parameters of `{tool.name}`, {len(text):,} characters that are not shown: {named}"


def _tool_texts(tools: Iterable[SkillCodeTool], chars: int) -> tuple[list[str], int]:
    """Return the lines that describe tools to a model, and how many characters are left.

    Without room for its schema a tool is named.
    """
    lines = []
    for tool in tools:
        line = f"`{tool.name}`: {_flat(tool.description)}"
        schema = schema_text(tool)
        if len(schema) <= chars:
            chars -= len(schema)
            line = f"{line}\n  {schema}"
        lines.append(line)
    return lines, chars


def _tool_value(tool: SkillCodeTool) -> dict[str, Any]:
    """Return a tool as plain values, for programs; without a schema that is too long to show."""
    value = {
        "name": tool.name,
        "skill": tool.skill.manifest.name,
        "description": _flat(tool.description),
    }
    is_shown = len(_compact(tool.schema)) <= SCHEMA_CHARS
    return {**value, "parameters": dict(tool.schema)} if is_shown else value


def _named(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= NAMES_CHARS:
        return f"They are: {text}."
    cut = text[:NAMES_CHARS].rpartition(", ")[0]
    return f"They are: {cut} and {len(names) - len(cut.split(', ')):,} more."


def _compact(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _flat(text: str) -> str:
    return sendable(" ".join(text.split()))

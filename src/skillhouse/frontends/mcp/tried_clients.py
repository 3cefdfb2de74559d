"""The list of skills for clients whose bounds are known.

A server's instructions and the description of the skill tool may be cut, and some clients show a
model only one of them. So both hold the list as far as 2,000 characters do. A client that was tried
gets more where one place has no room for all: two different halves if it shows both but cuts each,
and the names without room there in the description of the tool's parameter; or the whole list in
the tool's description if it does not cut that.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from skillhouse.discovery.catalog import is_listable
from skillhouse.house.prompts import first_line
from skillhouse.skill.profile import TOOL_CHARS
from skillhouse.tools.messages import opening

if TYPE_CHECKING:
    from skillhouse.house import AgentView
    from skillhouse.skill import Skill


class Places(enum.Enum):
    """Where a client's model is shown the list."""

    EACH = enum.auto()
    """In instructions and description, each as far as it holds the list."""
    HALVES = enum.auto()
    """One half in each, and names in the parameter's description, which is not cut."""
    TOOL = enum.auto()
    """In the description, which is not cut."""


class TriedClient(NamedTuple):
    places: Places
    tried: str
    """The version that was tried offline (docs/interop.md, "What a model is shown")."""


TRIED_CLIENTS: Mapping[str, TriedClient] = {
    "claude-code": TriedClient(Places.HALVES, "2.1.197, 2.1.330 and 2.1.332"),
    "codex-mcp-client": TriedClient(Places.TOOL, "0.171.0"),
    "gemini-cli-mcp-client": TriedClient(Places.TOOL, "0.61.0"),
    "opencode": TriedClient(Places.TOOL, "1.18.33"),
}
"""By the beginning of the name that a client gives of itself. Claude Code cuts both texts after
2,048 characters. Of models that it knows Codex shows the first 250 characters of the instructions,
and the description when the model has searched for it."""
TRIED_CHARS = 8_000
"""Characters of a description that those who cut none were seen to show: 2,000 tokens."""
NOT_IN_INSTRUCTIONS = "Skills that this server's instructions do not list:"


class ClientList(NamedTuple):
    """What a client gets of the list."""

    places: Places
    instructions: str
    first_half: frozenset[str] = frozenset()
    """Files of the skills in the instructions, of `HALVES`."""

    def in_tool(self, view: AgentView, chars: int | None) -> tuple[str, str] | None:
        """Return what the skill tool's description says, and its parameter's; None for the usual.

        Args:
            chars: The most of the former. The latter names skills that it has no room for.
        """
        if self.places is not Places.HALVES:
            return None
        rest = frozenset(one.file for one in view.listable.skills) - self.first_half
        names = [one.name for one in view.listable.skills if one.file in rest]
        before = f"{opening(view.profile.messages, 'skill', names)} {NOT_IN_INSTRUCTIONS}\n"
        room = None if chars is None else max(0, chars - len(before))
        found = view.tool_catalog(room, only=rest)
        by_name = _within(found.omitted, view.profile.catalog.enum_chars)
        if by_name:
            # Again, since the list says how many skills are in neither.
            rest -= {one.file for one in by_name}
            found = view.tool_catalog(room, only=rest)
        return before + found.text, ", ".join(one.name for one in by_name)

    def tool_chars(self, chars: int | None) -> int | None:
        """Return the bound of the skill tool's description, where `chars` is that of the profile.

        A profile with a bound of its own means it.
        """
        return TRIED_CHARS if self.places is Places.TOOL and chars == TOOL_CHARS else chars


def _within(skills: Iterable[Skill], chars: int) -> Sequence[Skill]:
    """Return the first skills whose names have so many characters together."""
    plain = [one for one in skills if one.name.isprintable() and is_listable(one, one.name)]
    sums = accumulate(len(skill.name) for skill in plain)
    return [skill for skill, size in zip(plain, sums, strict=True) if size <= chars]


def places_of(client: str) -> Places:
    """Return where a client of that name shows a model the list.

    >>> places_of("claude-code").name, places_of("codex-mcp-client").name, places_of("codex").name
    ('HALVES', 'TOOL', 'EACH')
    """
    return next(
        (
            known.places
            for name, known in TRIED_CLIENTS.items()
            if client == name or client.startswith(f"{name}-")
        ),
        Places.EACH,
    )


def uncut_list(view: AgentView) -> Sequence[Skill]:
    """Return the skills of which a place has no room for all, where a tried client gets more.

    A profile that lists them in a form of its own means that.
    """
    rule = view.profile.catalog
    is_ours = rule.exposure == "tool" and rule.tool_style == "compact" and view.prompts().tool
    whole = view.over_mcp()
    if whole is None or not is_ours or rule.tool_chars == "none":
        return ()
    return (*whole.included, *whole.omitted) if whole.cut or whole.omitted else ()


def client_lists(view: AgentView) -> Mapping[Places, ClientList]:
    """Return the instructions for each kind of client.

    All get the same where the description of the skill tool has room for all, or the profile lists
    skills in a form of its own.
    """
    prompts, rule, skills = view.prompts(), view.profile.catalog, uncut_list(view)
    each = ClientList(Places.EACH, prompts.instructions())
    chars = rule.tool_chars
    if not skills or chars == "none":
        return {Places.EACH: each}
    # What names leave of both places is for descriptions, which are cut to it.
    left = chars + rule.instruction_chars - sum(len(one.name) for one in skills)
    share = max(0, left // len(skills))
    sums = list(accumulate(len(one.name) + min(len(one.description), share) for one in skills))
    first = frozenset(
        one.file for one, size in zip(skills, sums, strict=True) if size <= sums[-1] / 2
    )
    text, half = prompts.half(first)
    if half.omitted:
        # Those that have no room here may have some in the description.
        first = frozenset(one.file for one in half.included)
        text, _ = prompts.half(first)
    lists = {Places.EACH: each, Places.HALVES: ClientList(Places.HALVES, text, first)}
    if chars == TOOL_CHARS:
        names = [one.name for one in skills]
        lists[Places.TOOL] = ClientList(Places.TOOL, first_line(prompts.tool, names))
    return lists

"""The list of skills for clients whose bounds are known.

A server's instructions and the description of the skill tool may be cut, and some clients show a
model only one of them. So both hold the list as far as 2,000 characters do. A client that was tried
gets more where one place has no room for all: two different halves if it shows both but cuts each,
or the whole list in the description if it does not cut that.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from skillhouse.runtime.prompts import first_line
from skillhouse.skill.profile import TOOL_CHARS
from skillhouse.tools.messages import render

if TYPE_CHECKING:
    from skillhouse.runtime import AgentView


class Places(enum.Enum):
    """Where a client's model is shown the list."""

    EACH = enum.auto()
    """In instructions and description, each as far as it holds the list."""
    HALVES = enum.auto()
    """One half in each."""
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
OTHER_IN_INSTRUCTIONS = "Half of the skills (the others are in this server's instructions):"


class ClientList(NamedTuple):
    """What a client gets of the list."""

    places: Places
    instructions: str
    first_half: frozenset[str] = frozenset()
    """Files of the skills in the instructions, of `HALVES`."""

    def description(self, view: AgentView, chars: int | None) -> str | None:
        """Return the skill tool's description of at most `chars` characters; None for the usual."""
        if self.places is not Places.HALVES:
            return None
        says = render(view.profile.messages, "skill_description")
        before = f"{says} {OTHER_IN_INSTRUCTIONS}\n"
        rest = frozenset(one.file for one in view.visible.skills) - self.first_half
        room = None if chars is None else max(0, chars - len(before))
        return before + view.tool_catalog(room, only=rest).text

    def tool_chars(self, chars: int | None) -> int | None:
        """Return the bound of the skill tool's description, where `chars` is that of the profile.

        A profile with a bound of its own means it.
        """
        return TRIED_CHARS if self.places is Places.TOOL and chars == TOOL_CHARS else chars


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


def client_lists(view: AgentView) -> Mapping[Places, ClientList]:
    """Return the instructions for each kind of client.

    All get the same where the description of the skill tool has room for all, or the profile lists
    skills in a form of its own.
    """
    prompts, rule = view.prompts(), view.profile.catalog
    each = ClientList(Places.EACH, prompts.instructions())
    whole, chars = view.over_mcp(), rule.tool_chars
    is_ours = rule.exposure == "tool" and rule.tool_style == "compact" and prompts.tool
    if whole is None or not is_ours or chars == "none" or not (whole.cut or whole.omitted):
        return {Places.EACH: each}
    skills = (*whole.included, *whole.omitted)
    # What names leave of both places is for descriptions, which are cut to it.
    left = chars + rule.instruction_chars - sum(len(one.name) for one in skills)
    share = max(0, left // len(skills))
    sums = list(accumulate(len(one.name) + min(len(one.description), share) for one in skills))
    first = frozenset(
        one.file for one, size in zip(skills, sums, strict=True) if size <= sums[-1] / 2
    )
    lists = {
        Places.EACH: each,
        Places.HALVES: ClientList(Places.HALVES, prompts.instructions(only=first), first),
    }
    if chars == TOOL_CHARS:
        names = [one.name for one in skills]
        lists[Places.TOOL] = ClientList(Places.TOOL, first_line(prompts.tool, names))
    return lists

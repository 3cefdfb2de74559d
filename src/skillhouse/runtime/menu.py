"""What a person may start, and how starting it is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.floor import AmbiguousSkillError, UnknownSkillError
from skillhouse.floor.once import once
from skillhouse.permission import Effect, Permission, decide
from skillhouse.runtime import calling
from skillhouse.skill import argument_names, read_invocation

if TYPE_CHECKING:
    from skillhouse.permission import Layer
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.runtime.policy import Policy
    from skillhouse.runtime.settings import SkillSettings
    from skillhouse.skill import Skill, SkillIndex

ARGUMENTS_SHOWN = 16
"""Names of arguments that a menu has for one skill."""
_ARGUMENT = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocable:
    """One entry of a menu."""

    name: str
    """What `invoke` takes: the skill's name, or its id where two share the name."""
    description: str
    argument_hint: str = ""
    """What to write after the name; empty when the skill does not say."""
    arguments: tuple[str, ...] = ()
    """Names of what is written there, in order; empty where the skill names none."""


class PersonMenu:
    """The skills that a person may start beside one agent.

    A rule of the managed, user or project layer that denies the skill holds for people too, and so
    does a rule of any layer that denies the action `invoke`; what an agent is denied does not.
    """

    def __init__(
        self, agent: str, index: SkillIndex, settings: SkillSettings, policy: Policy
    ) -> None:
        self._agent = agent
        self._index = index
        self._settings = settings
        self._policy = policy
        self._layers = policy.layers(agent)

    @once
    def skills(self) -> SkillIndex:
        """The skills, in the order of the index."""
        return self._index.where(lambda skill: not self._why_not(skill))

    def entries(self) -> tuple[Invocable, ...]:
        """Return what a menu shows."""
        extensions = self._policy.profile.extensions
        names = Counter(skill.name for skill in self.skills.skills)
        return tuple(
            Invocable(
                name=skill.name if names[skill.name] == 1 else skill.id,
                description=skill.description,
                argument_hint=read_invocation(skill, extensions).argument_hint,
                arguments=_argument_names(skill) if extensions.substitution else (),
            )
            for skill in self.skills.skills
        )

    def refusal(self, reference: str) -> str:
        """Return why a skill is not in the menu; nothing for one that is not there at all."""
        try:
            return self._why_not(self._index.get(reference))
        except (UnknownSkillError, AmbiguousSkillError):
            return ""

    def need(self, skill: Skill) -> toolbox.PermissionRequest:
        """Return what starting a skill needs.

        The person who calls has answered the question by calling, unless it is about bytes of the
        project that are not those that were trusted.
        """
        wanted = Permission(action=toolbox.INVOKE, resource=skill.name)
        loading = self._policy.skill_need(skill)
        if skill.scope == "project" and loading.default is Effect.ASK:
            return toolbox.PermissionRequest(
                permission=wanted,
                default=Effect.ASK,
                why=loading.why,
                skill_digest=loading.skill_digest,
                level="read",
            )
        return toolbox.PermissionRequest(
            permission=wanted, default=Effect.ALLOW, why="a person starts it", level="read"
        )

    def _why_not(self, skill: Skill) -> str:
        if not self._settings.is_enabled(skill.id):
            return f"skill `{skill.name}` is off"
        for action, layers in (
            ("skill", self._policy.shared_layers),
            (toolbox.INVOKE, self._layers),
        ):
            if _is_denied(action, skill.name, layers):
                return f"denied: a rule denies `{action} {skill.name}`"
        if not read_invocation(skill, self._policy.profile.extensions).user_invocable:
            return f"skill `{skill.name}` is for the model alone (`user-invocable: false`)"
        return ""


async def invoke(
    house: Skillhouse, name: str, arguments: str, approval_id: str, caller: Mapping[str, str]
) -> toolbox.ToolResult:
    """Start a skill for a person, through a gate that no model's call comes to.

    Args:
        house: Makes the calls of the skill's commands, as the agent's own.
        name: The skill.
        arguments: What the person wrote after it.
        approval_id: That of an answered approval of this very start.
        caller: As of `runtime.calling.caller`, and the caller's ids.

    Raises:
        ConfigError: no agent has that name.
    """
    who = calling.caller(house, **caller)

    def run_command(wanted: Mapping[str, Any], origin_digest: str) -> Awaitable[toolbox.ToolResult]:
        # Each command is a call of its own.
        own = {**who, "call_id": ""}
        return house.call("exec", wanted, listener=None, origin_digest=origin_digest, **own)

    view = house.view(who["agent"])
    gate = view.person_gate(run_command, house.safeguards)
    call = toolbox.ToolCall(
        name=toolbox.INVOKE,
        arguments={"name": name, "arguments": arguments},
        approval_id=approval_id,
        **who,
    )
    return await gate.call(call, house.sessions.of(call, view.visible))


def _argument_names(skill: Skill) -> tuple[str, ...]:
    """Return the names that a menu can show; one that it cannot hides those after it as well."""
    if b"arguments" not in skill.packed_fields:
        return ()
    names = argument_names(skill.frontmatter.fields)[:ARGUMENTS_SHOWN]
    return tuple(takewhile(_ARGUMENT.fullmatch, dict.fromkeys(names)))


def _is_denied(action: str, name: str, layers: tuple[Layer, ...]) -> bool:
    permission = Permission(action=action, resource=name)
    return decide(layers, permission).effect is Effect.DENY

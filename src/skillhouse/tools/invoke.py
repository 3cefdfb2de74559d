"""The tool by which a person starts a skill; no model is offered it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from skillhouse.floor import (
    AmbiguousSkillError,
    SkillError,
    TreeError,
    UnknownSkillError,
    tree_digest,
)
from skillhouse.skill import (
    ARGUMENTS_MAX,
    COMMANDS_MAX,
    Filling,
    Profile,
    Skill,
    SkillContent,
    SkillIndex,
    SubstitutionError,
    argument_names,
    current_invocation,
    find_commands,
    plain_words,
)
from skillhouse.tools.activation import activation_of
from skillhouse.tools.call import (
    UNBOUND,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ToolResult,
    object_schema,
)
from skillhouse.tools.remote_skills import SkillLoad, begun
from skillhouse.tools.session import Session
from skillhouse.tools.skill_text import (
    SKILL_TEXT_MAX,
    cut_notice,
    fitted,
    one_line,
    render,
    with_body,
)
from skillhouse.tools.tool import Tool

INVOKE = "invoke"
"""The action of a person's start of a skill, in rules and the log."""
COMMAND_OUTPUT_MAX = 16_384
"""Characters of one command's output that take its place; the whole text has the bound of every
tool's."""

RunCommand = Callable[[Mapping[str, Any], str], Awaitable[ToolResult]]
"""Makes one call of the tool `exec` as the agent would: decided, asked about and recorded. Takes
its arguments, and the digest of the skill whose command it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """What a person may start, and what starting it needs."""

    skills: SkillIndex
    profile: Profile
    need: Callable[[Skill], PermissionRequest]
    refusal: Callable[[str], str]
    """Says why a skill that is there is not in the menu; nothing for one that is not there."""


class InvokeTool(Tool):
    """Loads a skill for a person, fills its places in, and has its commands run where that is on.

    INVARIANT: commands are those that the author wrote. They are looked for before anything is
    filled in, and neither arguments nor outputs are looked at again.
    """

    name = INVOKE
    description = "Start a skill for a person."
    durable = False
    schema: Mapping[str, Any] = object_schema(
        {
            "name": {"type": "string", "minLength": 1},
            "arguments": {"type": "string", "maxLength": ARGUMENTS_MAX, "default": ""},
        },
        required=("name",),
    )

    def __init__(self, menu: Menu, run_command: RunCommand) -> None:
        self._menu = menu
        self._run_command = run_command

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the start of the skill before its body is read."""
        skill = self._skill(arguments["name"])
        profile = self._menu.profile
        load = SkillLoad(session, skill, (self._menu.need(skill),), listed=profile.resources_listed)

        async def run() -> Output:
            try:
                content = await load.content()
                if not current_invocation(content, profile.extensions).user_invocable:
                    raise RefusedError(f"skill `{skill.name}` is now for the model alone")
                begun(session, skill, "")
                given = arguments.get("arguments", "")
                written = BodyRendering(content, given, profile, session)
                body = await written.body(self._run_command)
            except (SkillError, SubstitutionError) as error:
                raise RefusedError(str(error)) from error
            # What commands gave may be another than before.
            is_held = not written.commands and session.activations.is_held(content, given)
            if is_held:
                text = render(profile.messages, "skill_held", name=skill.name)
            else:
                text, _ = fitted(
                    with_body(content, body),
                    style=profile.load_style,
                    mark=secrets.token_hex(4),
                    most=SKILL_TEXT_MAX,
                    notice=cut_notice,
                )
            text = begun(session, skill, text)
            noted = activation_of(content, text, load.needs[0].skill_digest)
            return Output(
                text=text,
                activation=None if is_held else replace(noted, by="person", arguments=given),
                data={
                    "id": skill.id,
                    "name": skill.name,
                    "directory": str(skill.directory),
                    "commands": written.commands,
                },
                detail={"skill": skill.id, "commands": len(written.commands)},
            )

        facts = (("skill", skill.id), ("file", skill.file), *load.facts)
        return Plan(needs=load.needs, run=run, facts=facts)

    def _skill(self, reference: str) -> Skill:
        try:
            return self._menu.skills.get(reference.strip())
        except (UnknownSkillError, AmbiguousSkillError) as error:
            why = self._menu.refusal(reference.strip())
            raise RefusedError(why or str(error), denied=bool(why)) from error


class BodyRendering:
    """One body on its way from its author's text to what the model reads."""

    def __init__(
        self, content: SkillContent, arguments: str, profile: Profile, session: Session
    ) -> None:
        self._content = content
        self._arguments = arguments
        self._extensions = profile.extensions
        # Its outputs cannot imitate the marks around them: who wrote the body did not know this.
        self._mark = secrets.token_hex(4)
        self._is_stopped = False
        self._filling = Filling(
            arguments,
            directory=content.directory,
            session=f"{session.agent}/{session.user}/{session.channel}",
            names=argument_names(content.skill.frontmatter.fields),
            positions_from=self._extensions.positions_from,
        )
        self.commands: list[dict[str, str]] = []
        """Each command with what came of it."""

    async def body(self, run_command: RunCommand) -> str:
        body, at, parts = self._content.body, 0, []
        for place in find_commands(body) if self._extensions.commands else ():
            parts.append(self._text(body[at : place.start]))
            outputs = [await self._output(command, run_command) for command in place.lines]
            parts.append("\n".join(outputs))
            at = place.end
        parts.append(self._text(body[at:]))
        text = "".join(parts)
        rest = self._filling.rest()
        return f"{text.rstrip()}{rest}" if rest else text

    def _text(self, part: str) -> str:
        return self._filling.text(part) if self._extensions.substitution else part

    async def _output(self, command: str, run_command: RunCommand) -> str:
        """Return what takes the place of a command: its output, or why it was not run."""
        status, text, approval = await self._result(command, run_command)
        self.commands.append({"command": command, "status": status, "approval_id": approval})
        if status in ("denied", "pending"):
            text = f"not run: {text}"
        if len(text) > COMMAND_OUTPUT_MAX:
            text = f"{text[:COMMAND_OUTPUT_MAX]}\n[cut: {len(text) - COMMAND_OUTPUT_MAX} more]"
        around = "\n" if "\n" in text.strip() else ""
        return (
            f'<command_output mark="{self._mark}" status="{status}">'
            f'{around}{text.strip()}{around}</command_output mark="{self._mark}">'
        )

    async def _result(self, command: str, run_command: RunCommand) -> tuple[str, str, str]:
        """Return status, text and approval of one command, which runs through the gate or not."""
        if self._is_stopped:
            return "denied", "a command before it was refused", ""
        if len(self.commands) >= COMMANDS_MAX:
            return "denied", f"a skill may have {COMMANDS_MAX} commands", ""
        call = self._call(command)
        if call is None:
            return "denied", f"`{one_line(command)[:200]}` needs a shell, and there is none", ""
        result = await run_command(call, self._digest())
        # A denial is about the skill's commands as much as about this one. One that waits stops
        # nothing, so that all questions can be answered at once.
        self._is_stopped = result.status == "denied"
        return result.status, result.content, result.approval_id or ""

    def _digest(self) -> str:
        """Return the digest of the skill, whose files may have changed since the last command."""
        try:
            return tree_digest(self._content.skill.directory)
        except (TreeError, OSError):
            return UNBOUND

    def _call(self, command: str) -> Mapping[str, Any] | None:
        """Return the arguments of `exec` for a command; None where it takes no such command."""
        if self._extensions.substitution:
            words = self._filling.words(command)
        else:
            words = plain_words(command)
        return None if words is None else {"command": words[0], "params": list(words[1:])}

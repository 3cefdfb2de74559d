"""The tools that load a skill for a person or a shortened context; no model is offered them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from skillhouse.floor import AmbiguousSkillError, SkillError, TreeError, UnknownSkillError
from skillhouse.floor.structs import replace
from skillhouse.permission import Effect, Permission
from skillhouse.skill import (
    ARGUMENTS_MAX,
    COMMANDS_MAX,
    PlaceholderSubstitution,
    Profile,
    Skill,
    SkillContent,
    SkillIndex,
    SubstitutionError,
    argument_names,
    current_invocation,
    find_commands,
    followed_digest,
    plain_words,
)
from skillhouse.skill.hidden import one_line
from skillhouse.tools.activation import Activation, activation_of, text_digest
from skillhouse.tools.call import (
    UNBOUND,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ToolResult,
    object_schema,
)
from skillhouse.tools.messages import render
from skillhouse.tools.remote_skills import SkillLoad, begin_use
from skillhouse.tools.skill_text import SKILL_TEXT_MAX, fitted, with_body
from skillhouse.tools.tool import Session, Tool

INVOKE = "invoke"
"""The action of a person's start of a skill, in rules and the log."""
COMMAND_OUTPUT_MAX = 16_384
"""Characters of one command's output that take its place; the whole text has the bound of every
tool's."""

RunCommand = Callable[[Mapping[str, Any], str, str], Awaitable[ToolResult]]
"""Makes one call of the tool `exec` as the agent would: decided, asked about and recorded. Takes
its arguments, the digest of the skill whose command it is, and the id of the call that has it."""


class Menu(Struct, frozen=True, kw_only=True):
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
        skill = self._skill(arguments["name"])
        profile = self._menu.profile
        load = SkillLoad(session, skill, (self._menu.need(skill),), listed=profile.resources_listed)

        async def run() -> Output:
            try:
                content = await load.content()
                if not current_invocation(content, profile.extensions).user_invocable:
                    raise RefusedError(f"skill `{skill.name}` is now for the model alone")
                begin_use(session, skill, "")
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
                text, _ = fitted(with_body(content, body), profile.load_style)
            text = begin_use(session, skill, text)
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
    def __init__(
        self, content: SkillContent, arguments: str, profile: Profile, session: Session
    ) -> None:
        self._content = content
        self._arguments = arguments
        self._extensions = profile.extensions
        # Its outputs cannot imitate the marks around them: who wrote the body did not know this.
        self._mark = secrets.token_hex(4)
        self._is_stopped = False
        self._parent = session.call_id
        self._filling = PlaceholderSubstitution(
            arguments,
            directory=content.directory,
            session=f"{session.agent}/{session.user}/{session.channel}",
            names=argument_names(content.skill.frontmatter.fields),
            positions_from=self._extensions.positions_from,
        )
        self.commands: list[dict[str, str]] = []

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
        if self._is_stopped:
            return "denied", "a command before it was refused", ""
        if len(self.commands) >= COMMANDS_MAX:
            return "denied", f"a skill may have {COMMANDS_MAX} commands", ""
        call = self._call(command)
        if call is None:
            return "denied", f"`{one_line(command)[:200]}` needs a shell, and there is none", ""
        result = await run_command(call, self._digest(), self._parent)
        # A denial is about the skill's commands as much as about this one. One that waits stops
        # nothing, so that all questions can be answered at once.
        self._is_stopped = result.status == "denied"
        return result.status, result.content, result.approval_id or ""

    def _digest(self) -> str:
        """Its files may have changed since the last command."""
        try:
            return followed_digest(self._content.skill)
        except (TreeError, OSError):
            return UNBOUND

    def _call(self, command: str) -> Mapping[str, Any] | None:
        """None where `exec` takes no such command."""
        if self._extensions.substitution:
            words = self._filling.words(command)
        else:
            words = plain_words(command)
        return None if words is None else {"command": words[0], "params": list(words[1:])}


REATTACH = "reattach"
"""The action of giving a skill again that a person approved in the same conversation."""
GONE = "it is gone, or may not be loaded any more"

Way = Literal["again", "before"]


class AttachTool(Tool):
    """Gives a skill again after its text was lost, or before an agent begins; no model calls it.

    It is decided as loading is, and no person is asked: a shortened context must not raise
    questions. What needs an approval is given again only if a person approved these very bytes in
    this conversation; otherwise the model has to load it.
    """

    description = "Give a conversation the text of a skill."
    durable = False
    reads_only = True
    schema: Mapping[str, Any] = object_schema(
        {
            "file": {"type": "string", "description": "absolute path of the SKILL.md"},
            "way": {"enum": ["again", "before"]},
            "tokens": {"type": "integer", "minimum": 0, "description": "most; 0 is no bound"},
        },
        required=("file", "way", "tokens"),
    )

    def __init__(
        self, name: str, menu: Menu, decide: Callable[[PermissionRequest, Session], str]
    ) -> None:
        """`name` is that of the tool that loads skills, so that what holds for it holds here."""
        self.name = name
        self._menu = menu
        self._decide = decide

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        file: str = arguments["file"]
        way: Way = arguments["way"]
        before = session.activations.of(file) if way == "again" else None
        if way == "again" and before is None:
            raise RefusedError("it is not in use in this conversation")
        is_of_user = before is not None and before.by == "person" and not before.is_restored
        skill, needs = self._judged(file, session, is_of_user=is_of_user)
        profile = self._menu.profile
        load = SkillLoad(session, skill, needs, listed=profile.resources_listed)
        needs = load.needs
        tree = needs[0].skill_digest
        must_be = None
        if any(self._decide(need, session) == Effect.ASK for need in needs):
            must_be = _vouched(before, tree)
            if must_be is None:
                raise RefusedError("it needs an approval; load it when it is needed", denied=True)
            needs = (_again(skill),)

        async def run() -> Output:
            try:
                content = await load.content(is_checked=must_be is None)
            except SkillError as error:
                raise RefusedError(str(error)) from error
            if must_be is not None and text_digest(content) != must_be.digest:
                raise RefusedError("it has changed, and needs an approval again", denied=True)
            self._check_invocation(content, is_of_user=is_of_user)
            return await self._output(content, before, tree, arguments["tokens"], session)

        facts = (("skill", skill.id), ("attached", way))
        return Plan(needs=needs, run=run, facts=facts)

    def _judged(
        self, file: str, session: Session, *, is_of_user: bool
    ) -> tuple[Skill, tuple[PermissionRequest, ...]]:
        listed = self._menu.skills if is_of_user else session.visible
        skill = next((one for one in listed.skills if one.file == file), None)
        if skill is None:
            raise RefusedError(GONE, denied=True)
        return skill, (self._menu.need(skill),) if is_of_user else session.needs_of(skill)

    def _check_invocation(self, content: SkillContent, *, is_of_user: bool) -> None:
        now = current_invocation(content, self._menu.profile.extensions)
        if not (now.user_invocable if is_of_user else now.model_invocable):
            raise RefusedError(GONE, denied=True)

    async def _output(
        self,
        content: SkillContent,
        before: Activation | None,
        tree: str,
        tokens: int,
        session: Session,
    ) -> Output:
        profile, skill = self._menu.profile, content.skill
        filled = await _filled(content, before, profile, session)
        most = min(4 * tokens, SKILL_TEXT_MAX) if tokens else SKILL_TEXT_MAX
        text, is_whole = fitted(filled, profile.load_style, most=most, notice=lambda _: CUT)
        # In use only now: what does not fit is not.
        text = begin_use(session, skill, text)
        noted = activation_of(content, text, tree)
        is_changed = before is not None and before.digest != noted.digest
        if before is None:
            noted = replace(noted, by="preload")
        else:
            is_approved = before.is_approved and not is_changed
            noted = replace(
                noted, by=before.by, arguments=before.arguments, is_approved=is_approved
            )
            noted = replace(noted, is_restored=before.is_restored and before.by == "person")
        noted = replace(noted, is_whole=is_whole)
        return Output(
            text=text,
            data={"changed": is_changed, "whole": is_whole, "tokens": noted.tokens},
            detail={"skill": skill.id, "attached": "again" if before else "before"},
            activation=noted,
        )


def _vouched(before: Activation | None, tree: str) -> Activation | None:
    if before is None or not before.is_approved or before.is_restored:
        return None
    # An approval of a skill whose files cannot all be digested holds once (UNBOUND).
    return before if before.tree == tree != UNBOUND else None


def _again(skill: Skill) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action=REATTACH, resource=skill.name),
        default=Effect.ALLOW,
        why="a person approved it in this conversation, and it has not changed",
        level="read",
    )


async def _filled(
    content: SkillContent, before: Activation | None, profile: Profile, session: Session
) -> SkillContent:
    """Fill places again, without commands, if a person started it."""
    if before is None or before.by != "person":
        return content
    written = BodyRendering(content, before.arguments, profile, session)
    try:
        return with_body(content, await written.body(_not_again))
    except SubstitutionError as error:
        raise RefusedError(str(error)) from error


async def _not_again(wanted: Mapping[str, Any], origin_digest: str, parent: str) -> ToolResult:
    del wanted, origin_digest, parent
    return ToolResult(content="commands are not run again", status="pending")


CUT = "\n[cut: the rest of this skill is not here; load it again for all of it]"

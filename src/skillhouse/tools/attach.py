"""The tool that gives a conversation a skill's text that no call of its model asked for."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from skillhouse.floor import SkillError
from skillhouse.permission import Effect, Permission
from skillhouse.skill import Profile, Skill, SkillContent, SubstitutionError, current_invocation
from skillhouse.tools.activation import (
    Activation,
    activation_of,
    text_digest,
)
from skillhouse.tools.call import (
    UNBOUND,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ToolResult,
    object_schema,
)
from skillhouse.tools.invoke import BodyRendering, Menu
from skillhouse.tools.remote_skills import SkillLoad, begun
from skillhouse.tools.session import Session
from skillhouse.tools.skill_text import SKILL_TEXT_MAX, fitted, with_body
from skillhouse.tools.tool import Tool

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
        """Take what the log and the tiers call it, what people may start, and who decides.

        Args:
            name: The name of the tool that loads skills, so that what holds for that holds here.
            menu: What a person may start, and how that is judged.
            decide: What the rules say of a need.
        """
        self.name = name
        self._menu = menu
        self._decide = decide

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        file: str = arguments["file"]
        way: Way = arguments["way"]
        before = session.activations.of(file) if way == "again" else None
        if way == "again" and before is None:
            raise RefusedError("it is not in use in this conversation")
        is_persons = before is not None and before.by == "person" and not before.is_restored
        skill, needs = self._judged(file, session, is_persons=is_persons)
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
            self._check_invocation(content, is_persons=is_persons)
            return await self._output(content, before, tree, arguments["tokens"], session)

        facts = (("skill", skill.id), ("attached", way))
        return Plan(needs=needs, run=run, facts=facts)

    def _judged(
        self, file: str, session: Session, *, is_persons: bool
    ) -> tuple[Skill, tuple[PermissionRequest, ...]]:
        listed = self._menu.skills if is_persons else session.visible
        skill = next((one for one in listed.skills if one.file == file), None)
        if skill is None:
            raise RefusedError(GONE, denied=True)
        return skill, (self._menu.need(skill),) if is_persons else session.needs_of(skill)

    def _check_invocation(self, content: SkillContent, *, is_persons: bool) -> None:
        """Refuse a skill whose file no longer allows this use of it."""
        now = current_invocation(content, self._menu.profile.extensions)
        if not (now.user_invocable if is_persons else now.model_invocable):
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
        text, is_whole = _fitted(filled, profile, tokens)
        # In use only now: what does not fit is not.
        text = begun(session, skill, text)
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
    """Return the activation whose approval still holds for the same files, if there is one."""
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
    """Return a skill that a person started with its places filled again; no command is run."""
    if before is None or before.by != "person":
        return content
    written = BodyRendering(content, before.arguments, profile, session)
    try:
        return with_body(content, await written.body(_not_again))
    except SubstitutionError as error:
        raise RefusedError(str(error)) from error


async def _not_again(wanted: Mapping[str, Any], origin_digest: str) -> ToolResult:
    del wanted, origin_digest
    return ToolResult(content="commands are not run again", status="pending")


CUT = "\n[cut: the rest of this skill is not here; load it again for all of it]"
"""Ends a body for which a context has no room."""


def _fitted(content: SkillContent, profile: Profile, tokens: int) -> tuple[str, bool]:
    """Return a skill as a model gets it within a bound, and whether all of the body is there."""
    return fitted(
        content,
        style=profile.load_style,
        mark=secrets.token_hex(4),
        most=min(4 * tokens, SKILL_TEXT_MAX) if tokens else SKILL_TEXT_MAX,
        notice=lambda _: CUT,
    )

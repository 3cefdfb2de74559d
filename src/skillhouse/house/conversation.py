"""One conversation of an agent, as whoever keeps its context needs it: what was given, and when it
is lost, what to give again; and the skills that the file of a subagent names for it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from skillhouse import tools as toolbox
from skillhouse.floor import AmbiguousSkillError, ConfigError, UnknownSkillError, read_regular
from skillhouse.floor.structs import replace
from skillhouse.house.agent_view import AgentView
from skillhouse.house.services import Services
from skillhouse.skill import parse
from skillhouse.tools import Activation, Activations, Attachment, Caller, LeftOut

PRELOADED_MAX = 50
"""Skills that are loaded before an agent begins."""

LINE_MAX = 300
"""Characters of why a skill was left out."""

LOST = (
    "The conversation was shortened, and the text of these skills with it. They are in use; here "
    "they are as they are now:"
)
BEFORE = "These skills were loaded for you before you began. Follow them where they fit:"


class Conversation:
    """What one conversation was given of skills. Several may be made of the same conversation."""

    def __init__(
        self, services: Services, view: Callable[[str], AgentView], caller: Caller
    ) -> None:
        """Join the conversation of a caller; callers with equal fields share it.

        `view` returns what an agent sees now; `caller` has client and connection, see
        `Services.caller`.

        Raises:
            ConfigError: no agent has that name.
        """
        self._services = services
        self._view = view
        self._caller = caller
        self.session()

    def session(self) -> toolbox.Session:
        """Return the session of the conversation, with the skills that are visible now."""
        visible = self._view(self._caller.agent).visible
        return self._services.sessions.of(self._caller.tool_call("", {}), visible)

    @property
    def activations(self) -> Activations:
        return self.session().activations

    def is_protected(self, call_id: str) -> bool:
        """Whether the result of a call should survive compaction of the context."""
        return self.activations.is_protected(call_id)

    async def reattachment(
        self,
        call_ids: Iterable[str],
        *,
        skill_tokens: int = toolbox.ATTACHED_SKILL_TOKENS,
        tokens: int = toolbox.ATTACHED_TOKENS,
    ) -> Attachment:
        """Return the skills whose texts the context has lost, as one message to put into it.

        Each is judged and recorded as if it were loaded now, and read from its file as that is now.
        What may not be loaded any more, or finds no room, is named, and is not in use from then on.
        While the caller does not keep the message, it gets the same one again and again.

        Args:
            call_ids: Of the calls and attachments whose texts are still in the context.
            skill_tokens: Most of one skill; what is more is cut.
            tokens: Most of all together; the newest come first.
        """
        activations = self.activations
        missing = activations.follow(call_ids)
        if not missing:
            return Attachment()
        if missing == activations.last.activations and self._are_listed(missing):
            return activations.last
        attaching = self._attaching()
        shares = _shares(missing, skill_tokens, tokens)
        spare = tokens - sum(shares.values())
        for one in missing:
            share = shares.get(one.file, 0)
            used = await attaching.add(one, "again", min(skill_tokens, share + spare))
            spare += share - used
        for one in attaching.failed:
            self.session().unload(one.file)
        activations.last = attaching.attachment(LOST)
        return activations.last

    def _are_listed(self, activations: Iterable[Activation]) -> bool:
        """Whether all of these skills are still allowed, enabled and present."""
        view = self._view(self._caller.agent)
        wanted = {one.file for one in activations}
        listed = (*view.visible.skills, *view.menu.skills.skills)
        return wanted <= {skill.file for skill in listed}

    def reattachment_sync(self, call_ids: Iterable[str], **bounds: int) -> Attachment:
        """Do as `reattachment` does, from synchronous code."""
        call_ids = tuple(call_ids)
        if not self.activations.follow(call_ids):
            return Attachment()
        return self._services.portal().call(lambda: self.reattachment(call_ids, **bounds))

    async def preload(self, names: Iterable[str] | None = None) -> Attachment:
        """Return skills' texts for the first message of this agent.

        Each is judged and recorded as if the agent loaded it, and no person is asked: a skill that
        needs an approval is left out, and named. `names` are those of the configuration when None.
        """
        view = self._view(self._caller.agent)
        if names is None:
            names = self._services.config.preload.get(self._caller.agent, ())
        attaching = self._attaching()
        for name in dict.fromkeys(names):
            if len(attaching.given) == PRELOADED_MAX:
                attaching.left_out.append(LeftOut(name=name, reason="too many are preloaded"))
                continue
            try:
                skill = view.visible.get(name)
            except (UnknownSkillError, AmbiguousSkillError) as error:
                attaching.left_out.append(LeftOut(name=name, reason=str(error)))
                continue
            await attaching.add_file(skill.file, skill.name, "before", 0)
        return attaching.attachment(BEFORE)

    def _attaching(self) -> _Attaching:
        gate = self._services.gates.for_attachments(self._view(self._caller.agent))
        return _Attaching(gate, self._caller, self.session)

    def preload_sync(self, names: Iterable[str] | None = None) -> Attachment:
        """Do as `preload` does, from synchronous code."""
        return self._services.portal().call(lambda: self.preload(names))

    def unload(self, reference: str, *, texts_removed: bool = False) -> tuple[Activation, ...]:
        """Take a skill out of use; see `Session.unload`."""
        gone = self.session().unload(reference, texts_removed=texts_removed)
        if gone:
            self._services.enforcement.noted(
                "unload", user=self._caller.user, reason=", ".join(one.skill for one in gone)
            )
        return gone

    def as_data(self) -> dict[str, Any]:
        """Return the activations as plain values, to be stored with the transcript."""
        return self.activations.as_data()

    def restore(self, data: object) -> None:
        """Take back what `as_data` gave, see `Activations.restore`; DecodeError for other data."""
        session = self.session()
        session.activations.restore(data)
        # A transcript with the words of another server holds them whoever wrote the data.
        for skill in session.visible.skills:
            if session.activations.of(skill.file) is not None:
                toolbox.guard_commands(session, skill)


class _Attaching:
    """Makes one attachment, a gated call for each skill."""

    def __init__(
        self, gate: toolbox.Gate, caller: Caller, session: Callable[[], toolbox.Session]
    ) -> None:
        self._gate = gate
        self._call_id = f"attached-{secrets.token_hex(8)}"
        self._caller = replace(caller, call_id=self._call_id)
        self._session = session
        self._texts: list[str] = []
        self.given: list[str] = []
        """Files of the skills that are in it."""
        self.left_out: list[LeftOut] = []
        self.failed: list[Activation] = []

    async def add(self, activation: Activation, way: toolbox.Way, tokens: int) -> int:
        """Add a skill that was given before, and return how many tokens it has."""
        used = await self.add_file(activation.file, activation.name, way, tokens)
        if not used:
            self.failed.append(activation)
        return used

    async def add_file(self, file: str, name: str, way: toolbox.Way, tokens: int) -> int:
        if way == "again" and tokens <= 0:
            self.left_out.append(LeftOut(name=name, reason="there is no room for it"))
            return 0
        arguments = {"file": file, "way": way, "tokens": max(0, tokens)}
        call = self._caller.tool_call(next(iter(self._gate.tools)), arguments)
        result = await self._gate.call(call, self._session())
        if result.is_error or result.data is None:
            self.left_out.append(LeftOut(name=name, reason=result.content))
            return 0
        changed = "\nIt has changed since it was loaded." if result.data["changed"] else ""
        self._texts.append(f"{result.content}{changed}")
        self.given.append(file)
        return int(result.data["tokens"])

    def attachment(self, before: str) -> Attachment:
        activations = self._session().activations
        parts = [before, *self._texts] if self._texts else []
        if self.left_out:
            lines = (f"- {_line(one.name)}: {_line(one.reason)}" for one in self.left_out)
            parts.append("\n".join(["These skills are not in use any more:", *lines]))
        return Attachment(
            text="\n\n".join(parts),
            call_id=self._call_id,
            activations=tuple(one for one in activations.newest() if one.file in self.given),
            left_out=tuple(self.left_out),
        )


def _shares(missing: Iterable[Activation], skill_tokens: int, tokens: int) -> dict[str, int]:
    """Return how many tokens each skill may have, by file; the newest are served first."""
    shares = {}
    for one in sorted(missing, key=lambda found: -found.ordinal):
        shares[one.file] = min(one.tokens, skill_tokens, tokens)
        tokens -= shares[one.file]
    return shares


def _line(text: str) -> str:
    return toolbox.one_line(text)[:LINE_MAX]


AGENT_FILE_MAX = 262_144
"""Bytes of such a file, as of a SKILL.md."""


def agent_skills(path: Path) -> tuple[str, ...]:
    """Return what the field `skills` of a subagent's Markdown file names, for `preload`.

    It is a list or a line with commas (reference/standard.md section 6). Nothing else of the file
    is used, and naming a skill grants nothing.

    Raises:
        ConfigError: the file cannot be read, or has no frontmatter that can be used.
    """
    try:
        data = read_regular(path, AGENT_FILE_MAX)
    except OSError as error:
        raise ConfigError(f"cannot read the agent: {error.strerror}", path=path) from error
    result = parse(data, directory=path.stem, path=path)
    if result.skill is None:
        found = next(found for found in result.diagnostics if found.severity == "error")
        raise ConfigError(f"not an agent's file: {found.message}", path=path)
    named = result.skill.frontmatter.fields.get("skills", "")
    parts = re.split(r"[,\s]+", named) if isinstance(named, str) else named
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigError("expected names in `skills`", path=path, key="skills")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))

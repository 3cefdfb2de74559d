"""One conversation of an agent, as whoever keeps its context needs it: what was given, and when it
is lost, what to give again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from skillhouse import tools as toolbox
from skillhouse.floor import AmbiguousSkillError, UnknownSkillError
from skillhouse.runtime.agent_view import AgentView
from skillhouse.runtime.caller import Caller
from skillhouse.runtime.services import Services
from skillhouse.tools import Activation, Activations, Attachment, LeftOut

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

        Args:
            services: Where sessions are kept and attachments are judged.
            view: Returns what an agent sees now.
            caller: With client and connection, see `Services.caller`.

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
        """The skills that it was given."""
        return self.session().activations

    def is_protected(self, call_id: str) -> bool:
        """Whether the result of a call should outlive the shortening of the context."""
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
        """Whether none of these skills has been denied, switched off or removed meanwhile."""
        view = self._view(self._caller.agent)
        wanted = {one.file for one in activations}
        listed = (*view.visible.skills, *view.menu.skills.skills)
        return wanted <= {skill.file for skill in listed}

    def reattachment_sync(self, call_ids: Iterable[str], **bounds: int) -> Attachment:
        """Do as `reattachment` does, from code that is not asynchronous."""
        call_ids = tuple(call_ids)
        if not self.activations.follow(call_ids):
            return Attachment()
        return self._services.portal().call(lambda: self.reattachment(call_ids, **bounds))

    async def preload(self, names: Iterable[str] | None = None) -> Attachment:
        """Return skills' texts for the first message of this agent, such as one that is started by
        another.

        Each is judged and recorded as if the agent loaded it, and nobody is asked: what needs a yes
        is left out, and named.

        Args:
            names: The skills; those that the configuration has for the agent when None.
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
        """Do as `preload` does, from code that is not asynchronous."""
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
        """Return what it was given as plain values, to be kept with its transcript."""
        return self.activations.as_data()

    def restore(self, data: object) -> None:
        """Take back what `as_data` gave; it grants nothing, see `Activations.restore`.

        Raises:
            DecodeError: it is not of that shape, or too large.
        """
        session = self.session()
        session.activations.restore(data)
        # A transcript with the words of another server holds them whoever wrote the data.
        for skill in session.visible.skills:
            if session.activations.of(skill.file) is not None:
                toolbox.acts(session, skill)


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
        """Return what was added as one message."""
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

"""One conversation of an agent, as whoever keeps its context needs it: what was given, and when it
is lost, what to give again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.floor import AmbiguousSkillError, UnknownSkillError
from skillhouse.runtime.calling import caller
from skillhouse.tools import Attachment, LeftOut

if TYPE_CHECKING:
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.tools import Activation, Activations

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
        self,
        house: Skillhouse,
        *,
        agent: str = "default",
        user: str = "local",
        channel: str = "library",
        session_id: str = "",
        **client: str,
    ) -> None:
        """Take who talks; calls of the same conversation say the same.

        `client` is the name and the connection, as of `runtime.calling.caller`.

        Raises:
            ConfigError: no agent has that name.
        """
        self._house = house
        who = {"agent": agent, "user": user, "channel": channel, **client}
        self._who = {**caller(house, **who), "session_id": session_id}
        self.session()

    def session(self) -> toolbox.Session:
        """Return its part of the house, with what it may see now."""
        visible = self._house.view(self._who["agent"]).visible
        return self._house.sessions.get(**self._who, visible=visible)

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
        view = self._house.view(self._who["agent"])
        wanted = {one.file for one in activations}
        listed = (*view.visible.skills, *view.menu.skills.skills)
        return wanted <= {skill.file for skill in listed}

    def reattachment_sync(self, call_ids: Iterable[str], **bounds: int) -> Attachment:
        """Do as `reattachment` does, from code that is not asynchronous."""
        call_ids = tuple(call_ids)
        if not self.activations.follow(call_ids):
            return Attachment()
        return self._house.portal().call(lambda: self.reattachment(call_ids, **bounds))

    async def preload(self, names: Iterable[str] | None = None) -> Attachment:
        """Return skills' texts for the first message of this agent, such as one that is started by
        another.

        Each is judged and recorded as if the agent loaded it, and nobody is asked: what needs a yes
        is left out, and named.

        Args:
            names: The skills; those that the configuration has for the agent when None.
        """
        view = self._house.view(self._who["agent"])
        if names is None:
            names = self._house.config.preload.get(self._who["agent"], ())
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
        gate = self._house.view(self._who["agent"]).attaching_gate(self._house.safeguards)
        return _Attaching(gate, self._who, self.session)

    def preload_sync(self, names: Iterable[str] | None = None) -> Attachment:
        """Do as `preload` does, from code that is not asynchronous."""
        return self._house.portal().call(lambda: self.preload(names))

    def unload(self, reference: str, *, texts_removed: bool = False) -> tuple[Activation, ...]:
        """Take a skill out of use; see `Session.unload`."""
        gone = self.session().unload(reference, texts_removed=texts_removed)
        if gone:
            self._house.safeguards.noted(
                "unload", user=self._who["user"], reason=", ".join(one.skill for one in gone)
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
        self, gate: toolbox.Gate, who: dict[str, str], session: Callable[[], toolbox.Session]
    ) -> None:
        """Take the gate that attaches, who talks, and what gives their part of the house now."""
        self._gate = gate
        self._who = who
        self._session = session
        self._call_id = f"attached-{secrets.token_hex(8)}"
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
        call = toolbox.ToolCall(
            name=next(iter(self._gate.tools)),
            arguments={"file": file, "way": way, "tokens": max(0, tokens)},
            call_id=self._call_id,
            **self._who,
        )
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

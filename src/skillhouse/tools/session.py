"""What a conversation has done so far, as far as later calls depend on it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.skill import Skill
from skillhouse.tools.activation import Activations
from skillhouse.tools.permission_request import PermissionRequest

if TYPE_CHECKING:
    from skillhouse.skill import HiddenText, SkillIndex
    from skillhouse.tools.activation import Activation
    from skillhouse.tools.call import ToolCall
    from skillhouse.tools.remote_skills import RemoteSkillProvider

SESSIONS_MAX = 1_000
"""Conversations that are kept; beyond that the one that was used longest ago starts anew."""

SkillCheck = Callable[[Skill], PermissionRequest | None]
"""A further check before a skill is loaded (S004-89): what it needs besides, or None."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One agent's conversation: what it may see, and which skills it has loaded."""

    agent: str
    user: str
    channel: str
    client: str = ""
    connection: str = ""
    id: str = ""
    """The caller's own id of it; empty where the caller has one conversation only."""
    visible: SkillIndex
    """The skills that were listed to this agent: the snapshot its calls are judged by."""
    skill_need: Callable[[Skill], PermissionRequest]
    """What loading a skill needs by the rules."""
    checks: Sequence[SkillCheck] = ()
    """What else it needs; see `needs_of`."""
    remote_skills: RemoteSkillProvider | None = None
    """Knows the skills of other servers."""
    active_remote_requests: dict[str, PermissionRequest] = field(default_factory=dict)
    """What commands need besides while skills of other servers are in use, by the skill's file."""
    loaded: dict[str, Path] = field(default_factory=dict)
    """Directories of loaded skills, by the skill's file; they may be read from then on."""
    activations: Activations = field(default_factory=Activations)
    """Which skills' texts it was given."""
    hiding: dict[str, HiddenText] = field(default_factory=dict)
    """What texts of other servers hide, by their paths: it is known once they are fetched."""
    origin_digest: str = ""
    """Digest of the skill that asks by itself, by its code or its commands; empty is the agent.
    A lasting yes to it is one to these bytes alone (decision 7)."""

    def needs_of(self, skill: Skill) -> tuple[PermissionRequest, ...]:
        """Return all that loading a skill needs; each is decided, and one denial is enough."""
        further = (check(skill) for check in self.checks)
        return (self.skill_need(skill), *(need for need in further if need is not None))

    def with_loaded(self, skill: Skill) -> Session:
        """Return this session as it would be if `skill` were loaded."""
        return replace(self, loaded={**self.loaded, skill.file: skill.directory})

    def unload(self, reference: str, *, texts_removed: bool = False) -> tuple[Activation, ...]:
        """Take a skill out of use, by name, id or file, and return its activations.

        Its directory is not read from any more, and its text is neither protected nor attached
        again.

        Args:
            reference: The skill.
            texts_removed: Whether the caller has taken its texts out of the context. Only then
                commands are judged as if it had never been there: what a skill of another server
                says goes on to act while the model has it.
        """
        gone = self.activations.unload(reference)
        for one in gone:
            self.loaded.pop(one.file, None)
            if texts_removed:
                self.active_remote_requests.pop(one.file, None)
        return gone


class Sessions:
    """The sessions of a house, by who calls and the caller's id of the conversation."""

    def __init__(
        self,
        skill_need: Callable[[Skill], PermissionRequest],
        checks: Sequence[SkillCheck] = (),
        remote_skills: RemoteSkillProvider | None = None,
        noted: Callable[[Activation], None] | None = None,
    ) -> None:
        """Take what loading a skill needs, and who hears of each that was loaded."""
        self._elsewhere = remote_skills
        self._noted = noted
        self._skill_need = skill_need
        self._checks = checks
        self._sessions: OrderedDict[tuple[str, ...], Session] = OrderedDict()
        # Calls come on several threads.
        self._lock = threading.Lock()

    def of(self, call: ToolCall, visible: SkillIndex, *, origin_digest: str = "") -> Session:
        """Return the session that a call is a part of, with what it may see now, for who asks."""
        session = self.get(
            call.agent,
            call.user,
            call.channel,
            visible,
            session_id=call.session_id,
            client=call.client,
            connection=call.connection,
        )
        return replace(session, origin_digest=origin_digest) if origin_digest else session

    def get(
        self,
        agent: str,
        user: str,
        channel: str,
        visible: SkillIndex,
        *,
        session_id: str = "",
        client: str = "",
        connection: str = "",
    ) -> Session:
        """Return the session of this conversation, with what it may see now."""
        key = (agent, user, channel, session_id, client, connection)
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                session = Session(
                    agent=agent,
                    user=user,
                    channel=channel,
                    client=client,
                    connection=connection,
                    id=session_id,
                    visible=visible,
                    skill_need=self._skill_need,
                    checks=self._checks,
                    remote_skills=self._elsewhere,
                    activations=Activations(self._noted),
                )
                self._sessions[key] = session
                if len(self._sessions) > SESSIONS_MAX:
                    self._forget()
            self._sessions.move_to_end(key)
            session.visible = visible
        return session

    def _forget(self) -> None:
        """Drop the oldest session; last of all one in which a skill of another server is in use,
        since its commands would need less afterwards."""
        older = list(self._sessions)[:-1]
        del self._sessions[
            next((k for k in older if not self._sessions[k].active_remote_requests), older[0])
        ]

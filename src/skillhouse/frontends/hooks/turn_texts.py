"""What a hook adds to a turn: the skills that fit a prompt, and at the start what is guarded.

INVARIANT: a text is one line that was made here. A skill's name is the only thing in it that others
wrote, and only where it is a plain word.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.audit import AuditDraft
from skillhouse.floor import isolated, make_private
from skillhouse.frontends.hooks.hook_clients import HookCall, HookClient
from skillhouse.frontends.hooks.open_calls import name_of

if TYPE_CHECKING:
    from skillhouse.house import AgentView, Skillhouse
    from skillhouse.house.skill_hints import SkillHints
    from skillhouse.skill import Skill
    from skillhouse.tools import Session

SESSIONS_MAX = 200
"""Sessions whose prompts are kept in memory."""
NAMED_MAX = 64 * 1024
"""Bytes of what a session's hints named."""
SHOWN_TOOLS = 8
STARTED = "started"
"""Among the files that were named: the line of the start was said."""


class TurnTexts:
    """The texts of all sessions of one user; one file each keeps what was said."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self._hints: dict[str, tuple[Skillhouse, SkillHints]] = {}

    def at_prompt(
        self,
        client: HookClient,
        house: Skillhouse,
        view: AgentView,
        session: str,
        call: HookCall,
        servers: Iterable[str],
    ) -> str:
        """Return the hint for a prompt, and remember what it names; nothing where none is due.
        `servers` are the names by which the client has our server."""
        if not house.config.hooks.hints or not call.prompt.strip():
            return ""
        if house.services.enforcement.tier_gate.stopped() is not None:
            return ""
        self._prompts[session] = call.prompt
        self._prompts.move_to_end(session)
        if len(self._prompts) > SESSIONS_MAX:
            self._prompts.popitem(last=False)
        named = self._said(session)
        found = self._hints_of(house).hint(
            call.prompt,
            agent=view.agent,
            client=client.name,
            own_tool=_own_tool(client, view, servers),
            named=named,
        )
        if found is None:
            return ""
        self._say(session, (one.file for one in found.skills))
        house.audit_log.write_or_keep(
            AuditDraft(
                kind="event",
                tool="hint",
                agent=view.agent,
                user="local",
                channel="hooks",
                client=client.name,
                workspace=house.policy.place,
                session=call.session,
                request=call.turn,
                arguments={"skills": [one.file for one in found.skills]},
            )
        )
        return found.text

    def at_start(self, client: HookClient, mode: str, session: str, faults: Iterable[str]) -> str:
        """Return one line on what is guarded, the first time in a session, with what is wrong."""
        if STARTED in self._said(session):
            return ""
        self._say(session, [STARTED])
        judged = sorted(name for name, tool in client.tools.items() if tool.kind != "record")
        more = f" and {len(judged) - SHOWN_TOOLS} more" if len(judged) > SHOWN_TOOLS else ""
        does = {"watch": "records, and refuses nothing of,"}.get(mode, "judges")
        mcp = ", tools of MCP servers" if client.mcp else ""
        said = (
            f"skillhouse {does} this session of {client.title} (mode {mode}): "
            f"{', '.join(judged[:SHOWN_TOOLS])}{more}{mcp}. Not judged: other tools, and what a "
            "program does beyond its words."
        )
        return " ".join((*faults, said))

    def loaded(self, view: AgentView, session: Session, key: str, skill: Skill) -> None:
        """Note that a client's own tool gave its model a skill: for what was used last, for the
        order of searches, and that its files may be read from now on."""
        from skillhouse.house.remote_skills import load_known
        from skillhouse.retrieval import skills_of
        from skillhouse.tools.activation import activation_of
        from skillhouse.tools.remote_skills import begin_use

        with isolated():
            content = load_known(skill)
            if prompt := self._prompts.get(key):
                hits = view.search.find(prompt, limit=5, waits=False).hits
                session.searches.note(prompt, (one.file for one in skills_of(view.visible, hits)))
            begin_use(session, skill, "")
            session.activations.note(activation_of(content, content.text), call_id="")

    def sweep(self, oldest: float) -> None:
        """Forget sessions that nothing was heard of since a time, in seconds since 1970."""
        with suppress(FileNotFoundError):
            for file in self._directory.iterdir():
                with suppress(OSError):
                    if file.stat().st_mtime < oldest:
                        file.unlink()

    def _hints_of(self, house: Skillhouse) -> SkillHints:
        # A process that judges one call needs none of it.
        from skillhouse.house.skill_hints import SkillHints

        kept = self._hints.get(house.policy.place)
        if kept is None or kept[0] is not house:
            kept = self._hints[house.policy.place] = (house, SkillHints(house))
        return kept[1]

    def _said(self, session: str) -> frozenset[str]:
        try:
            data = (self._directory / name_of(session)).read_bytes()[:NAMED_MAX]
        except FileNotFoundError:
            return frozenset()
        return frozenset(os.fsdecode(data).split("\0"))

    def _say(self, session: str, files: Iterable[str]) -> None:
        make_private(self._directory)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._directory / name_of(session), flags, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(b"".join(os.fsencode(f"{one}\0") for one in files))


def _own_tool(client: HookClient, view: AgentView, servers: Iterable[str]) -> str:
    """Return what the client's model calls our skill tool; empty where it does not have it."""
    tool = next((rule.name for rule in view.profile.tools if rule.kind == "skill"), "")
    server = next(iter(sorted(servers)), "")
    if not tool or not server:
        return ""
    return client.mcp_name.replace("{server}", server).replace("{tool}", tool)

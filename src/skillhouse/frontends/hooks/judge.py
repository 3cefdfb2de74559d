"""Decides about the calls of clients' own tools, each by the gate of the place where it is made."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.approval import session_key
from skillhouse.audit import AuditDraft
from skillhouse.floor import Locations, SkillhouseError, make_private
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.frontends.hooks.asked_calls import AskedCalls, client_above
from skillhouse.frontends.hooks.client_rules import UnreadRulesError, variable_of
from skillhouse.frontends.hooks.hook_clients import (
    HookCall,
    HookClient,
    HookEventError,
    hook_client,
)
from skillhouse.frontends.hooks.loaded_skills import other_skill, skill_files
from skillhouse.frontends.hooks.open_calls import (
    CHANNEL,
    KEPT_SECONDS,
    OpenCall,
    OpenCalls,
    end,
    name_of,
)
from skillhouse.frontends.hooks.sandboxed import SandboxedCalls
from skillhouse.frontends.hooks.tickets import ProcessId
from skillhouse.frontends.hooks.turn_texts import TurnTexts
from skillhouse.frontends.hooks.unknown_tools import UnknownTools
from skillhouse.house import Skillhouse, configured
from skillhouse.tools import NativePlans, NativeTool, Session, ToolCall
from skillhouse.tools.recorder import decided_permissions

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript
    from skillhouse.house import AgentView

HOUSES_MAX = 20
"""Places whose rules and skills are kept in memory."""
FAST_KINDS = frozenset({"read", "search", "record"})
"""Kinds whose record need not be on the disk before they run, as of our own reads."""


class HookRequest(Struct, frozen=True, kw_only=True):
    """What a hook's client sends."""

    client: str
    mode: str
    """watch or enforce."""
    moment: str
    directory: str
    """Where the hook runs."""
    project: str
    """The client's own directory of the project; empty where it gives none."""
    event: bytes
    above: tuple[ProcessId, ...] = ()
    """The processes above the hook's; none where they are not known."""
    above_here: tuple[ProcessId, ...] = ()
    """The same where the hook judges in its own process, which keeps no ticket."""


class HookAnswer(Struct, frozen=True, kw_only=True):
    """What a hook's client prints, and the code that it ends with."""

    code: int = 0
    output: str = ""
    error: str = ""

    def data(self) -> bytes:
        parts = (str(self.code), self.output, self.error)
        return b"\0".join(part.encode("utf-8", "replace") for part in parts)


class HookJudge:
    """Judges the calls of all clients of one user."""

    def __init__(self, directory: Path, places: Callable[[Path], Locations]) -> None:
        """`directory` is that of the judge below the state; `places` gives those of a start."""
        self._places = places
        self._state = directory.parent
        # INVARIANT: held to find or make a `Skillhouse`; events come at the same time.
        self._lock = threading.Lock()
        self._calls = OpenCalls(directory / "open")
        self.sandboxed = SandboxedCalls(directory, self._calls)
        """What runs in our sandbox for the clients."""
        self._sessions = directory / "sessions"
        self._texts = TurnTexts(directory / "named")
        self._asked = AskedCalls()
        self._unknown = UnknownTools(directory)
        self._starts: dict[str, str] = {}
        self._houses: OrderedDict[str, Skillhouse] = OrderedDict()
        self._plans: dict[tuple[str, str], tuple[AgentView, object, NativePlans]] = {}

    async def answer(self, request: HookRequest) -> HookAnswer:
        """Return the answer to a hook; in `watch` nothing is refused, whatever goes wrong."""
        try:
            return await self._answer(request)
        except (SkillhouseError, HookEventError, OSError) as error:
            reason = f"skillhouse cannot judge: {_line(error)}"
            if request.mode == "watch" or request.moment != "before":
                return HookAnswer(error=f"{reason}\n")
            return self._refused(request, reason)

    def _refused(self, request: HookRequest, reason: str) -> HookAnswer:
        try:
            return HookAnswer(output=hook_client(request.client).answer("deny", reason))
        except SkillhouseError:
            return HookAnswer(code=2, error=f"{reason}\n")

    async def _answer(self, request: HookRequest) -> HookAnswer:
        client = hook_client(request.client)
        call = client.call(
            request.event,
            directory=request.directory,
            own_servers=lambda: self._own_servers(client),
        )
        session = f"{client.name}\0{call.session}"
        house = await in_thread(lambda: self._house(session, request, call))
        if request.moment == "before":
            return await self._before(client, house, request, call)
        if request.moment in ("after", "failed"):
            is_kept = self.sandboxed.goes_on(session, call.call, request.moment)
            found = None if is_kept else self._calls.take(session, call.call)
            yes = self._asked.ended(
                client, session, call, request.moment, request.above, self._process_of
            )
            if found is not None:
                await in_thread(partial(end, house, found, call, request.moment, approved=yes))
            if found is not None and request.moment == "after":
                await in_thread(partial(self._ran, client, house, found, call, yes))
        elif request.moment == "next":
            if not call.agent:
                self._asked.forget(session)
            running = partial(self.sandboxed.keeps, session)
            has_failures = "failed" in client.events.values()
            for one in self._calls.take_all(session, call.agent, left=running):
                # One whose judge ended stays without an outcome: what came of it is not known.
                if not one.has_begun:
                    how = partial(end, house, one, call, "next", has_failures=has_failures)
                    await in_thread(how)
            if house.config.hooks.hints and not call.agent:
                # No watch runs here, and the next prompt should not wait for a look.
                await in_thread(house.refresh)
        elif request.moment in ("prompt", "start"):
            text = await in_thread(partial(self._text, client, house, request, call))
            return HookAnswer(output=client.answer(request.moment, text) if text else "")
        else:
            await in_thread(lambda: self._seen(house, client, call))
        return HookAnswer()

    async def _before(
        self, client: HookClient, house: Skillhouse, request: HookRequest, call: HookCall
    ) -> HookAnswer:
        native = call.native
        if native is None or not call.tool:
            raise HookEventError("expected the name of the tool")
        await house.config_reload.check_in_thread()
        _leave_open(house)
        if native.kind == "record" and call.tool not in client.tools:
            await in_thread(lambda: self._unknown.note(client.name, call.tool))
        if native.kind == "skill":
            # No watch runs here, and one may have come since.
            await in_thread(house.refresh)
            files = await in_thread(partial(skill_files, house, client.name, native))
            native = replace(native, skill_files=files)
        agent = _agent_of(client, house)
        view = await in_thread(lambda: house.view(agent))
        plans = self._native_plans(house, view)
        if native.is_ours:
            # A name can be split elsewhere, so that ours is only what our server lists.
            listed = await in_thread(lambda: house.snapshot.gate(agent).tools)
            is_ours = native.resource.partition("/")[2] in listed
            native = replace(native, is_ours=is_ours)
        rewriting, left = None, ""
        if native.kind in ("exec", "skill"):
            native = replace(native, search_path=await in_thread(lambda: _search_path(request)))
        if request.mode == "sandbox" and native.kind == "exec":
            home = house.config.places.home
            box = partial(self.sandboxed.rewriting, client, call, request.above, home)
            boxed = await in_thread(box)
            rewriting, left = (None, boxed) if isinstance(boxed, str) else (boxed, "")
            native = replace(native, is_sandboxed=rewriting is not None)
        made = _tool_call(client, call, agent)
        session = house.services.sessions.of(made, view.visible)
        for ours in plans.named(native, session):
            found = await in_thread(partial(other_skill, native.skill_files or (), ours))
            native = replace(native, elsewhere=found)
        tool = NativeTool(
            call.tool,
            lambda session: plans.plan(native, session),
            # What the client's person allows there, it would run as it is.
            asks_itself=client.asks and rewriting is None,
            keep=rewriting.keep if rewriting else None,
        )
        tool.durable = native.kind not in FAST_KINDS
        gate = house.services.gates.for_client(tool)
        if request.mode == "watch":
            return await in_thread(lambda: self._watched(client, house, tool, made, session, call))
        result = await gate.call(made, session)
        if result.status != "ok":
            return HookAnswer(output=client.answer("deny", f"skillhouse: {result.content}"))
        opened = OpenCall(
            intent=result.intent,
            tool=call.tool,
            agent=agent,
            client=made.client_info,
            began_ms=time.time_ns() // 1_000_000,
            is_asked=result.is_asked,
            subagent=call.agent,
            is_background=call.is_background,
            left=left,
            has_ticket=rewriting is not None,
            skills=tool.loads,
            outlasts=call.outlasts,
        )
        key = f"{client.name}\0{call.session}"
        self._calls.put(key, call.call, opened)
        self._asked.put(key, call, opened, tool.asked, request.above)
        if rewriting is not None:
            loaded = partial(self._ran, client, house, opened, call)
            line = rewriting.answer(house, self._calls, opened, key, loaded)
            return HookAnswer(output=line)
        if not result.is_asked:
            return HookAnswer(output=client.answer("allow", ""))
        return HookAnswer(output=client.answer("ask", f"skillhouse: {result.content}"))

    def _watched(
        self,
        client: HookClient,
        house: Skillhouse,
        tool: NativeTool,
        made: ToolCall,
        session: Session,
        call: HookCall,
    ) -> HookAnswer:
        """Record a call with what would have been decided, and let it go; a stop holds here too."""
        stopped, unknown = house.services.enforcement.tier_gate.refusals()
        forecast = house.services.gates.for_client(tool).forecast(made, session)
        if (refusal := stopped or (unknown if forecast.level != "read" else None)) is not None:
            return HookAnswer(output=client.answer("deny", f"skillhouse: {refusal.message}"))
        draft = AuditDraft(
            kind="intent",
            tool=made.name,
            agent=made.agent,
            user=made.user,
            channel=made.channel,
            client=made.client_info,
            workspace=house.policy.place,
            arguments=dict(made.arguments),
            permissions=decided_permissions(forecast.judged),
            rules_digest=house.policy.rules_digest(),
            profile=house.policy.profile.name,
            session=made.session_id or session_key(made.agent, made.user, made.channel),
            trace=made.trace,
            request=made.message_id,
            detail={
                "mode": "watch",
                "would": forecast.effect.value,
                "why": "; ".join(forecast.reasons)[:500],
            },
        )
        opened = OpenCall(
            intent=house.audit_log.write_or_keep(draft),
            tool=made.name,
            agent=made.agent,
            client=made.client_info,
            began_ms=time.time_ns() // 1_000_000,
            subagent=call.agent,
            is_background=call.is_background,
            outlasts=call.outlasts,
        )
        self._calls.put(f"{client.name}\0{call.session}", call.call, opened)
        return HookAnswer(output=client.answer("allow", ""))

    def _text(
        self, client: HookClient, house: Skillhouse, request: HookRequest, call: HookCall
    ) -> str:
        """Return the line that is added at a prompt, or at the start of a session."""
        session = f"{client.name}\0{call.session}" if call.session else ""
        if request.moment == "start":
            if house.config.hooks.hints:
                house.view(_agent_of(client, house)).search.start()
            return self._texts.at_start(client, request.mode, session, self._faults(house))
        house.config_reload.check()
        view = house.view(_agent_of(client, house))
        return self._texts.at_prompt(
            client, house, view, session, call, self._own_servers(client, house)
        )

    def _faults(self, house: Skillhouse) -> list[str]:
        """Return what is wrong with the entries of every client."""
        # It starts a Python once in a session, and no call waits for it.
        from skillhouse.frontends.hooks.entries import HookEntries, entry_faults

        entries = HookEntries(
            places=house.config.places,
            project=house.services.project,
            state_directory=self._state,
            audit=None,
        )
        return list(entry_faults(entries.status()))

    def _ran(
        self,
        client: HookClient,
        house: Skillhouse,
        opened: OpenCall,
        call: HookCall,
        approved: Sequence[ApprovedScript] = (),
    ) -> None:
        """Note what a call that ran has loaded and what was approved with it, for its session."""
        if not (opened.skills or approved):
            return
        view = house.view(opened.agent)
        session = house.services.sessions.of(_tool_call(client, call, opened.agent), view.visible)
        session.approved.extend(one for one in approved if one not in session.approved)
        for skill in (one for one in view.visible.skills if one.file in opened.skills):
            self._texts.loaded(view, session, f"{client.name}\0{call.session}", skill)

    def _native_plans(self, house: Skillhouse, view: AgentView) -> NativePlans:
        gates, key = house.services.gates, (house.policy.place, view.agent)
        kept = self._plans.get(key)
        # INVARIANT: plans are of the configuration and the skills that are in use.
        if kept is None or kept[0] is not view or kept[1] is not gates:
            kept = self._plans[key] = (view, gates, gates.native_plans(view))
        return kept[2]

    def _seen(self, house: Skillhouse, client: HookClient, call: HookCall) -> None:
        """Record what a client reports of its own accord."""
        house.audit_log.write_or_keep(
            AuditDraft(
                kind="event",
                tool=call.tool or "event",
                agent=client.name,
                user="local",
                channel=CHANNEL,
                client=client.name,
                session=call.session,
                arguments=dict(call.arguments),
            )
        )

    def _house(self, session: str, request: HookRequest, call: HookCall) -> Skillhouse:
        """Return what is there for the place where a session began, wherever its shell is now."""
        with self._lock:
            given = request.project or call.start
            start = os.path.realpath(given)
            start = self._start(session, start, request) if call.session else start
            house = self._houses.get(start)
            if house is None:
                house = self._houses[start] = Skillhouse(configured(self._places(Path(start))))
                if len(self._houses) > HOUSES_MAX:
                    self._houses.popitem(last=False)[1].close()
            self._houses.move_to_end(start)
            return house

    def _start(self, session: str, given: str, request: HookRequest) -> str:
        known = self._starts.get(session)
        if known is None:
            # INVARIANT: the first event of a session says where it works. An agent that goes
            # elsewhere takes no other rules from there.
            known = self._kept_start(session, given, request.above or request.above_here)
            self._starts[session] = known
        return known

    def _kept_start(self, session: str, given: str, above: tuple[ProcessId, ...]) -> str:
        file = self._sessions / name_of(session)
        make_private(self._sessions)
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return file.read_text(errors="surrogateescape").partition("\0")[0] or given
        # INVARIANT: of the first event too, before a command of the session has run. What is above
        # the client is above other programs as well.
        client = client_above(above)
        with os.fdopen(handle, "w", errors="surrogateescape") as made:
            made.write(f"{given}\0{client.pid} {client.start}" if client else given)
        return given

    def _process_of(self, session: str) -> ProcessId | None:
        """Return the process of the client of a session, as its first event was of it."""
        try:
            text = (self._sessions / name_of(session)).read_text(errors="surrogateescape")
            pid, start = text.partition("\0")[2].split(" ")
            return ProcessId(int(pid), start)
        except (OSError, ValueError):
            return None

    def _own_servers(self, client: HookClient, house: Skillhouse | None = None) -> frozenset[str]:
        """Return the names by which a client has our server; with `house` only in its files for
        this place."""
        # Only calls of MCP servers' tools and hints need it, and a hook may be its own process.
        from skillhouse.clients.config_file import Entries

        found = Entries(self._state).files()
        return frozenset(
            name
            for file, name, of in found
            if of == client.name and (house is None or _is_of(house, file))
        )

    def sweep(self) -> None:
        """Forget what is long over."""
        self._calls.sweep()
        self._texts.sweep(time.time() - KEPT_SECONDS)

    def close(self) -> None:
        for house in self._houses.values():
            house.close()


def _search_path(request: HookRequest) -> str:
    """Return the PATH of the client whose hook asks; empty where it cannot be seen."""
    above = request.above or request.above_here
    try:
        return variable_of(above[0].pid, "PATH") if above else ""
    except UnreadRulesError:
        return ""


def _agent_of(client: HookClient, house: Skillhouse) -> str:
    return client.name if client.name in house.config.agents else "default"


def _tool_call(client: HookClient, call: HookCall, agent: str) -> ToolCall:
    return ToolCall(
        name=call.tool,
        arguments=call.arguments,
        agent=agent,
        channel=CHANNEL,
        client=f"hooks:{client.name}",
        connection=f"hooks:{client.name}:{call.session}",
        client_info=f"{client.name} {call.agent_type}".strip(),
        session_id=call.session,
        message_id=call.turn,
        trace=call.agent,
    )


def _is_of(house: Skillhouse, file: str) -> bool:
    """Whether a client's file counts here: it is the user's, or of this project."""
    home = os.path.realpath(house.config.places.home)
    if file.startswith(f"{os.path.realpath(house.services.project)}/"):
        return True
    # The user's files of all clients are below a hidden name of the home.
    return file.startswith(f"{home}/.")


def _leave_open(house: Skillhouse) -> None:
    """Let questions stay open: no one waits inside a hook, and the call is repeated."""
    broker = house.approvals
    broker.channels.clear()
    if broker.settings.unattended != "pending":
        broker.settings = replace(broker.settings, unattended="pending")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__

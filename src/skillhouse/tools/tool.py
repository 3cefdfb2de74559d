"""What a tool is, and the conversation that its calls belong to."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field

from skillhouse.approval import is_caller_connection
from skillhouse.floor import StateError
from skillhouse.floor.lock import Lazy
from skillhouse.floor.structs import replace
from skillhouse.permission import Decision
from skillhouse.skill import SKILL_FILE, HiddenText, Skill, SkillIndex, linked_files
from skillhouse.tools.activation import Activation, Activations
from skillhouse.tools.call import Caller, PermissionRequest, Plan, ToolCall, ToolResult
from skillhouse.tools.seen_skills import SeenSkills, ServerListing

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript
    from skillhouse.tools.session_marks import SessionMarks

T = TypeVar("T")

SESSIONS_MAX = 1_000
"""Conversations that are kept; beyond that the least recently used one starts over."""
FOUND_MAX = 200
"""Skills that a conversation's searches gave which are remembered."""
REPR_CHARS = 80
"""Characters of a tool's description in its `repr`."""
TOOLS_IN_USE_MAX = 100
"""Skills of a conversation whose tools a list of tools may have because they were loaded."""
CHOSEN_MAX = 10
"""Skills of a conversation that count as chosen after a search."""

Decide = Callable[["PermissionRequest", "Session"], tuple[Decision, str]]
"""Decides a permission request of a session, with the reason."""
SkillCheck = Callable[[Skill], PermissionRequest | None]
"""A further check before a skill is loaded (S004-89)."""


class ForecastCache:
    """Keeps what was seen for the forecasts of one rehearsal.

    INVARIANT: a call has none: what it meets is looked at when it is made.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, Any] = {}

    def once(self, key: Hashable, look: Callable[[], T]) -> T:
        """Return what `look` returned the first time; `key` names all that it depends on."""
        if key not in self._seen:
            self._seen[key] = look()
        found: T = self._seen[key]
        return found


class RemoteSkillProvider(Protocol):
    """Provides the skills of other servers; for one of this machine every answer is empty."""

    def skills(self) -> tuple[Skill, ...]:
        """Return them as they were listed last; nothing is fetched."""
        ...

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        """Raise ConfigError if a root would show fetched files as this machine's skills."""
        ...

    def files(self, skill: Skill) -> tuple[str, ...] | None: ...

    def origin(self, skill: Skill) -> str:
        """Return where it comes from, in words for a model, or ""."""
        ...

    def address(self, skill: Skill) -> str:
        """Return its address there, or ""."""
        ...

    def binding(self, skill: Skill) -> str | None: ...

    def digests(self, skill: Skill) -> Mapping[str, str] | None:
        """Return the digest of each file as it was listed; None as `binding`."""
        ...

    async def fetch(self, skill: Skill, relative: str = SKILL_FILE) -> bytes:
        """Return the verified bytes of a file, which is stored in its place. Raises SkillhouseError
        for other bytes than were listed, OSError where they cannot be stored."""
        ...


class Searches(Struct):
    """What the searches of one conversation gave."""

    found: dict[str, str] = field(default_factory=dict)
    """The latest query that found each skill, by its file; latest last."""
    chosen: set[str] = field(default_factory=set)
    """Files of found skills that were loaded since."""
    is_hinted: bool = False
    """Whether the model was asked to try other words."""

    def note(self, query: str, files: Iterable[str]) -> None:
        for file in files:
            self.found.pop(file, None)
            self.found[file] = query
        while len(self.found) > FOUND_MAX:
            del self.found[next(iter(self.found))]

    def choose(self, file: str) -> str:
        """Return the query that found a skill which is loaded now; empty where none did.

        A skill counts once in a conversation, so that one that has itself loaded gains nothing.
        """
        if file in self.chosen or len(self.chosen) >= CHOSEN_MAX:
            return ""
        query = self.found.get(file, "")
        if query:
            self.chosen.add(file)
        return query


_CALLER_FIELDS = ("agent", "user", "channel", "client", "connection")


class Session(Struct, kw_only=True):
    """One agent's conversation: what it may see, and which skills it has loaded."""

    agent: str
    user: str
    channel: str
    client: str = ""
    connection: str = ""
    id: str = ""
    """The caller's own id of it; empty where the caller has one conversation only."""
    client_info: str = ""
    """What the program of its last call calls itself. Anyone may take any name."""
    visible: SkillIndex
    """The skills that were listed to this agent: the snapshot its calls are judged by."""
    skill_need: Callable[[Skill], PermissionRequest]
    checks: Sequence[SkillCheck] = ()
    verify: Callable[[Skill], None] = lambda _: None
    """Raises RefusedError for a skill whose files are not those that they should be."""
    verify_code: Callable[[Path, str], None] = lambda _, __: None
    """Likewise for the directory and the scope of a skill whose code is about to run."""
    seen: Lazy[SeenSkills] | None = None
    """What skills held that were asked about; None keeps nothing."""
    remote_skills: RemoteSkillProvider | None = None
    active_remote_requests: dict[str, PermissionRequest] = field(default_factory=dict)
    """What commands need besides while skills of other servers are in use, by the skill's file."""
    marks: Lazy[SessionMarks] | None = None
    """Where these are kept for the other servers of the state."""
    kept_marks: set[str] = field(default_factory=set)
    """The files whose marks are there."""
    loaded: dict[str, Path] = field(default_factory=dict)
    """Directories of loaded skills, by the skill's file; they may be read from then on."""
    linked: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Of loaded skills, by the skill's file, the files outside of them that links in them lead to:
    the real path by the path in the skill."""
    activations: Activations = field(default_factory=Activations)
    searches: Searches = field(default_factory=Searches)
    tools_in_use: dict[Path, None] = field(default_factory=dict)
    """Directories of the loaded skills whose tools a list of tools may have; latest last."""
    hiding: dict[str, HiddenText] = field(default_factory=dict)
    """What texts of other servers hide, by their paths: it is known once they are fetched."""
    approved: list[ApprovedScript] = field(default_factory=list)
    """Scripts that the client's own person let run in this conversation, which holds for it alone;
    those of approvals of ours are in the store."""
    origin_digest: str = ""
    """Digest of the skill that asks by itself, by code or commands; empty is the agent. A standing
    approval of it holds for these bytes alone (decision 7)."""
    call_id: str = ""
    """Id of the call that is planned, for those that it makes; empty outside of a plan."""
    is_handed_over: bool = False
    """Whether the client runs by itself what is planned, where no sandbox of ours bounds it."""
    search_path: str = ""
    """The PATH of such a client; empty where it is not known."""

    def caller_fields(self) -> dict[str, str]:
        """Return the fields of `Caller` by which a call is one of this conversation."""
        fields = {name: getattr(self, name) for name in _CALLER_FIELDS}
        return {**fields, "session_id": self.id}

    forecasts: ForecastCache | None = None
    """None for a call; see `once`."""

    def once(self, key: Hashable, look: Callable[[], T]) -> T:
        """Look now; for forecasts about one moment, what the first of them saw holds for all."""
        return look() if self.forecasts is None else self.forecasts.once(key, look)

    @property
    def has_new_marks(self) -> bool:
        """Whether other servers of the state do not know yet what commands need."""
        return self._is_shared and not self.active_remote_requests.keys() <= self.kept_marks

    @property
    def _is_shared(self) -> bool:
        return self.marks is not None and is_caller_connection(self.connection)

    def keep_marks(self) -> None:
        """Have other servers know of it; StateError. It waits for the state."""
        new = set(self.active_remote_requests) - self.kept_marks
        if self.marks is not None and new:
            requests = {file: self.active_remote_requests[file] for file in new}
            self.marks.get().add(tuple(self.caller_fields().values()), requests)
            self.kept_marks |= new

    def remote_requests(self) -> tuple[PermissionRequest, ...]:
        """Return what commands need besides, also by skills that were loaded at another server."""
        if self.marks is None or not self._is_shared:
            return tuple(self.active_remote_requests.values())
        own = tuple(self.active_remote_requests.values())
        try:
            known = self.marks.get().of(tuple(self.caller_fields().values()))
        except StateError:
            # INVARIANT: what is not known asks, also where only this one read fails.
            return (*own, self.marks.get().unknown)
        for file, one in known.items():
            if file not in self.active_remote_requests:
                self.active_remote_requests[file] = one
                self.kept_marks.add(file)
        # A skill that was loaded at both may have changed in between: either state of it asks.
        own = tuple(self.active_remote_requests.values())
        return (*own, *(one for one in known.values() if one not in own))

    def needs_of(self, skill: Skill) -> tuple[PermissionRequest, ...]:
        """Return all that loading a skill needs; one denial is enough."""
        further = (check(skill) for check in self.checks)
        return (self.skill_need(skill), *(need for need in further if need is not None))

    def origin(self, skill: Skill) -> str:
        return "" if self.remote_skills is None else self.remote_skills.origin(skill)

    def server_listing(self, skill: Skill) -> ServerListing | None:
        """None for a skill of this machine, or one that was synced as a whole."""
        provider = self.remote_skills
        digests = None if provider is None else provider.digests(skill)
        if provider is None or digests is None:
            return None
        label = skill.name.partition(":")[0]
        return ServerListing(f"{label} {provider.address(skill)}", digests)

    def remote_files(self, skill: Skill) -> tuple[str, ...] | None:
        """None for a skill of this machine."""
        return None if self.remote_skills is None else self.remote_skills.files(skill)

    def with_loaded(self, skill: Skill) -> Session:
        return replace(
            self,
            loaded={**self.loaded, skill.file: skill.directory},
            linked={**self.linked, skill.file: links_of(skill)},
        )

    def begin(self, skill: Skill) -> None:
        """Note that the files of a skill may be read from now on."""
        self.loaded[skill.file] = skill.directory
        self.linked[skill.file] = links_of(skill)

    def use_tools(self, directory: Path) -> None:
        """Note that the tools of a skill may be in the list from now on."""
        self.tools_in_use.pop(directory, None)
        self.tools_in_use[directory] = None
        while len(self.tools_in_use) > TOOLS_IN_USE_MAX:
            del self.tools_in_use[next(iter(self.tools_in_use))]

    def linked_file(self, absolute: str) -> str:
        """Return where a file of a loaded skill is that a link in it leads to; empty for others."""
        for links in self.linked.values():
            real = links.get(absolute)
            # A link that was changed since the skill was loaded is another one.
            if real is not None and os.path.realpath(absolute) == real:
                return real
        return ""

    @property
    def readable(self) -> tuple[Path, ...]:
        """The directories of loaded skills, and the files that links in them lead to."""
        linked = (real for links in self.linked.values() for real in links.values())
        return (*self.loaded.values(), *map(Path, dict.fromkeys(linked)))

    def unload(self, reference: str, *, texts_removed: bool = False) -> tuple[Activation, ...]:
        """Take a skill out of use, by name, id or file, and return its activations. Its directory
        is not read any more, and its text is neither protected nor attached. Only if the caller has
        removed its texts from the context are commands judged as if it had never been there: what a
        skill of another server says acts while the model has it."""
        gone = self.activations.unload(reference)
        for one in gone:
            self.loaded.pop(one.file, None)
            self.linked.pop(one.file, None)
            self.tools_in_use.pop(Path(one.file).parent, None)
            if texts_removed:
                self.active_remote_requests.pop(one.file, None)
                self.kept_marks.discard(one.file)
                if self.marks is not None and self._is_shared:
                    self.marks.get().remove(tuple(self.caller_fields().values()), one.file)
        return gone


def links_of(skill: Skill) -> Mapping[str, str]:
    """Return the files outside of a skill that links in it lead to, by their path in it."""
    return {str(skill.directory / one.relative): one.real for one in linked_files(skill)}


class Sessions:
    """The sessions, by caller and the caller's id of the conversation."""

    def __init__(
        self,
        skill_need: Callable[[Skill], PermissionRequest],
        checks: Sequence[SkillCheck] = (),
        remote_skills: Callable[[], RemoteSkillProvider | None] = lambda: None,
        noted: Callable[[Activation, Session], None] = lambda _, __: None,
        *,
        verify: Callable[[Skill], None] = lambda _: None,
        verify_code: Callable[[Path, str], None] = lambda _, __: None,
        seen: Lazy[SeenSkills] | None = None,
        marks: Lazy[SessionMarks] | None = None,
    ) -> None:
        self._marks = marks
        self._verify = verify
        self._verify_code = verify_code
        self._seen = seen
        self._elsewhere = remote_skills
        self._noted = noted
        self._skill_need = skill_need
        self._checks = checks
        self._sessions: OrderedDict[tuple[str, ...], Session] = OrderedDict()
        # Calls come on several threads.
        self._lock = threading.Lock()

    def of(
        self,
        call: ToolCall,
        visible: SkillIndex,
        *,
        origin_digest: str = "",
        forecasts: ForecastCache | None = None,
    ) -> Session:
        session = self.get(
            call.agent,
            call.user,
            call.channel,
            visible,
            session_id=call.session_id,
            client=call.client,
            connection=call.connection,
        )
        session.client_info = call.client_info
        if not origin_digest and forecasts is None:
            return session
        return replace(session, origin_digest=origin_digest, forecasts=forecasts)

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
                    verify=self._verify,
                    verify_code=self._verify_code,
                    seen=self._seen,
                    marks=self._marks,
                )
                session.activations = Activations(partial(self._note, session))
                self._sessions[key] = session
                if len(self._sessions) > SESSIONS_MAX:
                    self._forget()
            self._sessions.move_to_end(key)
            session.visible = visible
            session.remote_skills = self._elsewhere()
        return session

    def tools_in_use(self, call: Caller) -> tuple[Path, ...]:
        """Return the directories of the skills whose tools a conversation has loaded."""
        key = (call.agent, call.user, call.channel, call.session_id, call.client, call.connection)
        with self._lock:
            session = self._sessions.get(key)
            return () if session is None else tuple(session.tools_in_use)

    def _note(self, session: Session, activation: Activation) -> None:
        self._noted(activation, session)

    def _forget(self) -> None:
        """Drop the oldest session without a skill of another server in use, if there is one: its
        commands would need less afterwards."""
        older = list(self._sessions)[:-1]
        del self._sessions[
            next((k for k in older if not self._sessions[k].active_remote_requests), older[0])
        ]


class Tool(ABC):
    """One thing that a model can ask for: a name, a description, a schema and `plan`.

    All other members have defaults.
    """

    name: str
    description: str
    """What it does and when to use it, for the model."""
    schema: Mapping[str, Any]
    """JSON Schema 2020-12 of the arguments: an object with `properties`."""
    accepted: Mapping[str, Any] | None = None
    """The schema that calls are checked against, where it is wider than the one that is shown."""
    durable: bool = True
    """Whether the record of a call must be on the disk before it runs (decision 9)."""
    reads_only: bool = False
    """Whether it changes nothing; clients show it, and no rule depends on it."""
    returns: Mapping[str, Any] | None = None
    """JSON Schema 2020-12 of the object that it returns, where it says so."""
    full_name: str = ""
    """`skill:tool` of a skill's tool (decision 12); calls may use it too."""
    own_name: str = ""
    """Its own where models see it under a name that a design gives it; records have this one."""
    category: str = ""
    """Where it comes from (S004-42)."""
    asks_itself: bool = False
    """Whether who gets its calls asks a person where one has to be asked."""
    listed_at_once: bool = False
    """Whether clients that defer tools should list it from the start."""
    loads_skills: bool = False
    listed_with: str = ""
    """A tool that is of no use without this one: a list that names that means it too."""
    is_about_skills: bool = False
    """Whether `skills` in a list of tools is about it too."""
    is_unlisted: bool = False
    """Whether only a frontend that names it shows it to a model."""
    required_actions: tuple[str, ...] = ()
    """Actions that every call needs: where rules deny one wholly, no model sees the tool."""
    required_resource: str = "*"
    """Pattern of all resources for which calls need them."""

    @cached_property
    def title(self) -> str:
        return self.name

    @abstractmethod
    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Work out a call whose arguments fit the schema; nothing happens yet. Raises RefusedError
        for a call that makes no sense here, whatever the rules say."""

    def __repr__(self) -> str:
        about = " ".join(self.description.split()).partition(". ")[0].rstrip(".")
        return f"<{type(self).__name__} {self.name}: {about[:REPR_CHARS]}>"

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments under the schema's names; it renames and never decides."""
        return arguments

    def shaped(self, result: ToolResult) -> Mapping[str, Any] | None:
        del result
        return None

    def description_within(self, chars: int | None) -> str:
        """Return a description of at most so many characters, if it can be shortened."""
        del chars
        return self.description

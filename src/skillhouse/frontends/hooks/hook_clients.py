"""What is known of each client's hooks: one data file a client, and no branch on its name."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from skillhouse.floor import ConfigError, Locations, nearest, shaped
from skillhouse.floor.documents import DocumentError, json_value, toml_table
from skillhouse.tools import NativeCall

DATA = Path(__file__).parent / "client_data"
TEXT_MAX = 200
"""Characters of an id or a name that a client gives."""

HookMoment = Literal["before", "after", "failed", "next", "seen"]
"""Before a call, after one that ended or failed, when the calls before have ended, or only seen."""


class HookEventError(Exception):
    """An event cannot be understood, so nothing can be decided about it."""


class HookValue(Struct, frozen=True, kw_only=True):
    """A value besides the entries that the client's file has to have."""

    table: str = ""
    """Empty for the top of the file."""
    name: str
    value: Any


class HookFile(Struct, frozen=True, kw_only=True):
    """Where a client's hooks are configured."""

    kind: Literal["json", "file"]
    """Lists of entries below `hooks` in a JSON file, or a file that is wholly ours."""
    variable: str = ""
    """Environment variable that names the directory of the user's files."""
    unset: str
    """That directory relative to home, when the variable is not set."""
    user: str
    project: str
    comments: bool = False
    """Whether the client is known to read a JSON file with comments."""
    entry: str = "{}"
    """One entry as JSON; `{line}` is the line of the shell."""
    values: tuple[HookValue, ...] = ()
    off: tuple[HookValue, ...] = ()
    """Values with which no hook runs."""
    template: str = ""

    def path(self, places: Locations, project: Path, where: str) -> Path:
        if where == "project":
            return project / self.project
        given = places.environment.get(self.variable, "") if self.variable else ""
        base = Path(given) if given.startswith("/") else places.home / self.unset
        return base / self.user


class ToolShape(Struct, frozen=True, kw_only=True):
    """How one tool of a client is judged: the names that its arguments have, by role."""

    kind: Literal[
        "exec", "read", "search", "write", "edit", "patch", "fetch", "skill", "mcp", "record"
    ]
    command: str = ""
    place: str = ""
    """Of a command: the directory in which it is to run."""
    background: str = ""
    path: str = ""
    content: str = ""
    old: str = ""
    new: str = ""
    all: str = ""
    edits: str = ""
    patch: str = ""
    url: str = ""
    name: str = ""
    server: str = ""
    ignored: tuple[str, ...] = ()
    """Arguments that change nothing, so that a repeated call is the same without them."""
    kept: tuple[str, ...] = ()
    """The arguments, where they are values of the event itself."""


_ROLES = ("command", "path", "content", "old", "new", "all", "edits", "patch", "url", "name")


class HookCall(Struct, frozen=True, kw_only=True):
    """One call of a client's own tool, as an event says it."""

    tool: str
    arguments: Mapping[str, Any]
    """Without those that change nothing."""
    session: str
    directory: str
    call: str
    turn: str = ""
    agent: str = ""
    agent_type: str = ""
    is_background: bool = False
    native: NativeCall | None = None
    """None in an event that is not about one call."""


class HookClient(Struct, frozen=True, kw_only=True):
    """One client, as its data file has it."""

    name: str = ""
    title: str
    program: str
    tried: str
    """Version and day of the run; empty for one that was only read about."""
    sources: tuple[str, ...]
    asks: bool
    """Whether a call that is answered `ask` waits for its person."""
    project_variable: str = ""
    mcp: str = ""
    """Pattern of the names of MCP servers' tools, with `server` and `tool`; empty for none."""
    mcp_joint: str = ""
    """What joins server and tool, where it may be in their names as well."""
    to_do: str = ""
    """What a person must still do."""
    configuration: HookFile
    events: Mapping[str, HookMoment]
    fields: Mapping[str, str]
    """Names of the event's values, by role."""
    answers: Mapping[str, str]
    """JSON of an answer, by effect; `{reason}` is the reason. What is missing says nothing."""
    tools: Mapping[str, ToolShape] = field(default_factory=dict)

    def answer(self, effect: str, reason: str) -> str:
        """Return what is printed for an effect: allow, ask or deny."""
        text = self.answers.get(effect, "")
        return text.replace('"{reason}"', json.dumps(reason)) if text else ""

    def call(
        self, data: bytes, *, directory: str, own_servers: Callable[[], frozenset[str]]
    ) -> HookCall:
        """Return what an event says; `directory` is where the hook runs, for one that says none.

        Raises:
            HookEventError: it says what cannot be judged.
        """
        try:
            event = json_value(data, with_nul=True)
        except DocumentError as error:
            raise HookEventError(str(error)) from error
        if not isinstance(event, dict):
            raise HookEventError("expected an object")
        named = {role: event.get(name) for role, name in self.fields.items()}
        place = named.get("directory")
        place = place if isinstance(place, str) and place.startswith("/") else directory
        if "\0" in place or not place.startswith("/"):
            raise HookEventError("expected the directory of the session")
        call = HookCall(
            tool=_text(named.get("tool")),
            arguments={},
            session=_text(named.get("session")),
            directory=place,
            call=_text(named.get("call")),
            turn=_text(named.get("turn")),
            agent=_text(named.get("agent")),
            agent_type=_text(named.get("agent_type")),
        )
        return self._with_call(call, event, named.get("input"), own_servers)

    def _with_call(
        self,
        call: HookCall,
        event: Mapping[str, Any],
        given: object,
        own: Callable[[], frozenset[str]],
    ) -> HookCall:
        shape = self.tools.get(call.tool)
        if shape is not None and shape.kept:
            given = {name: event[name] for name in shape.kept if name in event}
        if isinstance(given, str):
            try:
                given = json_value(given, with_nul=True)
            except DocumentError:
                # Some tools take one text, which is no JSON.
                given = {"input": given}
        arguments = given if isinstance(given, dict) else {}
        shape, target = self._target(call.tool, shape, arguments, own)
        kept = {name: value for name, value in arguments.items() if name not in shape.ignored}
        values = {role: _value(shape, role, arguments) for role in _ROLES}
        place = arguments.get(shape.place) if shape.place else None
        return HookCall(
            tool=call.tool,
            arguments=kept,
            session=call.session,
            directory=call.directory,
            call=call.call or json.dumps([call.tool, arguments], sort_keys=True, default=str),
            turn=call.turn,
            agent=call.agent,
            agent_type=call.agent_type,
            is_background=bool(shape.background and arguments.get(shape.background)),
            native=NativeCall(
                kind=shape.kind,
                directory=_joined(call.directory, place),
                values=values,
                **target,
            ),
        )

    def _target(
        self,
        tool: str,
        shape: ToolShape | None,
        arguments: Mapping[str, Any],
        own: Callable[[], frozenset[str]],
    ) -> tuple[ToolShape, dict[str, Any]]:
        """Return how a tool is judged, and what a rule of action `mcp` or `tool` knows it by."""
        server = re.fullmatch(self.mcp, tool, re.DOTALL) if self.mcp and shape is None else None
        if server is not None:
            resource = f"{server['server']}/{server['tool']}"
            others = _others(resource, self.mcp_joint)
            is_ours = server["server"] in own()
            target = {"resource": resource, "others": others, "is_ours": is_ours}
            return ToolShape(kind="mcp"), target
        shape = shape or ToolShape(kind="record")
        if shape.kind != "mcp":
            return shape, {"resource": tool}
        names = (_text(arguments.get(shape.server)), _text(arguments.get(shape.name)))
        return shape, {"resource": "/".join(names)}


def _others(resource: str, joint: str) -> tuple[str, ...]:
    """Return the other names that SERVER/TOOL may have, where a name holds what joins them.

    >>> _others("a/b_c", "_")
    ('a_b/c',)
    """
    parts = resource.replace("/", joint, 1).split(joint) if joint else []
    names = (f"{joint.join(parts[:end])}/{joint.join(parts[end:])}" for end in range(1, len(parts)))
    return tuple(name for name in names if name != resource)


def _value(shape: ToolShape, role: str, arguments: Mapping[str, Any]) -> Any:
    name = getattr(shape, role)
    value = arguments.get(name) if name else None
    if role != "edits" or not isinstance(value, list):
        return value
    steps = [one if isinstance(one, dict) else {} for one in value]
    return [
        {part: one.get(getattr(shape, part)) for part in ("old", "new", "all")} for one in steps
    ]


def _joined(directory: str, place: object) -> str:
    if not isinstance(place, str) or not place or "\0" in place:
        return directory
    return str(Path(directory, place))


def _text(value: object) -> str:
    """Return an id or a name as a line of the log can have it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise HookEventError("expected a text as a name or an id")
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in value[:TEXT_MAX])


@functools.cache
def hook_clients() -> Mapping[str, HookClient]:
    """Return the clients by name, those that were run first."""
    found = [hook_client(file.stem) for file in sorted(DATA.glob("*.toml"))]
    return {one.name: one for one in sorted(found, key=lambda one: not one.tried)}


@functools.cache
def hook_client(name: str) -> HookClient:
    """Return one client; ConfigError, with the nearest name, for one that is not known."""
    file = DATA / f"{name}.toml"
    known = [one.stem for one in sorted(DATA.glob("*.toml"))]
    if name not in known:
        close = next(iter(nearest(name, known)), "")
        hint = f"did you mean `{close}`" if close else f"expected one of {', '.join(known)}"
        raise ConfigError(f"unknown client `{name}`; {hint}", key=name, suggestion=close)
    return shaped({**toml_table(file.read_bytes()), "name": name}, HookClient)

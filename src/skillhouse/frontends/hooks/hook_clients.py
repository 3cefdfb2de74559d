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
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.client_rules import ClientRules, RuleException
from skillhouse.tools import NativeCall

DATA = Path(__file__).parent / "client_data"
TEXT_MAX = 200
"""Characters of an id or a name that a client gives."""
PLACE_MAX = 4_096
"""Characters, more than a path can have that a system opens; to go through all directories above
a longer one takes seconds."""
NAMES_MAX = 1_000
"""Characters of SERVER/TOOL, of which each other way to split it is made."""

HookMoment = Literal["before", "after", "failed", "next", "seen", "prompt", "start"]
"""Before a call, after one that ended or failed, when the calls before have ended, only seen, at a
person's prompt, or at the start of a session."""


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


class HookRewrite(Struct, frozen=True, kw_only=True):
    """How a client's commands are replaced by calls of our runner, and what that passes by."""

    answer: str
    """JSON of the answer; `{input}` is the whole input of the tool, `{reason}` the reason."""
    modes: tuple[str, ...] = ()
    """Values of the event's `permission_mode` in which a call is rewritten; any when there is
    none."""
    keeps_directory: bool = False
    """Whether the client goes on where a command's shell ended."""
    exception: RuleException | None = None
    rules: ClientRules


class ToolShape(Struct, frozen=True, kw_only=True):
    """How one tool of a client is judged: the names that its arguments have, by role."""

    kind: Literal[
        "exec",
        "read",
        "search",
        "grep",
        "write",
        "edit",
        "patch",
        "fetch",
        "skill",
        "mcp",
        "record",
    ]
    """`search` gives names, `grep` what is in files."""
    command: str = ""
    place: tuple[str, ...] = ()
    """Of a command: the directory in which it is to run, by the names that versions have for it."""
    background: str = ""
    path: str = ""
    paths: tuple[str, ...] = ()
    """Patterns of files that are read."""
    glob: tuple[str, ...] = ()
    """Patterns that narrow which files are looked into."""
    pattern: str = ""
    """Of names that are looked for, which may be elsewhere."""
    content: str = ""
    old: str = ""
    new: str = ""
    all: str = ""
    edits: str = ""
    patch: str = ""
    url: str = ""
    name: str = ""
    server: str = ""
    text: str = ""
    """Free text: the arguments of a skill, or, of `fetch`, a prompt that holds addresses."""
    runs_text: bool = False
    """Of `skill`: whether commands that its text holds are run."""
    outlasts: bool = False
    """Whether a call may go on when the turn has ended."""
    is_typed_into: bool = False
    """Of a command: whether the model can type into it while it runs, without an event."""
    ignored: tuple[str, ...] = ()
    """Arguments that change nothing, so that a repeated call is the same without them."""
    runs_once: bool = False
    """Whether a command is run once, in a shell, so that it can run in our sandbox."""
    kept: tuple[str, ...] = ()
    """The arguments, where they are values of the event itself."""


_ROLES = (
    *("command", "path", "paths", "glob", "pattern", "content", "old", "new", "all", "edits"),
    *("patch", "url", "name", "text"),
)
_ACTING = frozenset(
    "command cmd script code patch diff input chars stdin url uri directory dir workdir cwd".split()
)
"""Arguments with which a tool that is not known may run, reach or change something."""


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
    permission_mode: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    """All arguments."""
    record: object = None
    """What the event names as the record of the session."""
    command_name: str = ""
    """The name of the argument with the command that can be rewritten; empty for none."""
    prompt: str = ""
    """A person's words, in an event about these."""
    outlasts: bool = False
    start: str = ""
    """Where the session works, whatever directory the call names."""
    native: NativeCall | None = None
    """None in an event that is not about one call."""

    @property
    def place(self) -> str:
        """Where the call works."""
        return self.directory if self.native is None else self.native.directory


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
    answered_modes: tuple[str, ...] = ()
    """Values of the event's `permission_mode` in which its person alone answers that; a call that
    ran then was approved. None where that is not known."""
    project_variable: str = ""
    start: Literal["event", "process"] = "event"
    """Where it says in which directory a session works: `process` for one whose events say where a
    command is to run, which the model chooses."""
    mcp: str = ""
    """Pattern of the names of MCP servers' tools, with `server` and `tool`; empty for none."""
    mcp_joint: str = ""
    """What joins server and tool, where it may be in their names as well."""
    mcp_name: str = ""
    """The name of such a tool, with `{server}` and `{tool}`."""
    added: tuple[str, ...] = ()
    """Begin and end of what other hooks put before a prompt."""
    to_do: str = ""
    """What a person must still do."""
    configuration: HookFile
    events: Mapping[str, HookMoment]
    fields: Mapping[str, str]
    """Names of the event's values, by role."""
    answers: Mapping[str, str]
    """JSON of an answer, by effect, or by `prompt` and `start`; `{reason}` is the text. What is
    missing says nothing."""
    rewrite: HookRewrite | None = None
    """None for a client whose commands cannot run in our sandbox."""
    tools: Mapping[str, ToolShape] = field(default_factory=dict)

    @property
    def sandboxed(self) -> tuple[str, ...]:
        """The tools whose commands can run in our sandbox."""
        names = (name for name, tool in self.tools.items() if tool.runs_once)
        return tuple(sorted(names)) if self.rewrite else ()

    def answer(self, effect: str, reason: str) -> str:
        """Return what is printed for an effect, allow, ask or deny, or for a moment with a text."""
        text = self.answers.get(effect, "")
        return text.replace('"{reason}"', json.dumps(reason)) if text else ""

    def call(
        self, data: bytes, *, directory: str, own_servers: Callable[[], frozenset[str]]
    ) -> HookCall:
        """Return what an event says; `directory` is where the hook runs, for one that says none.
        `own_servers` gives the names by which the client knows our server.

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
        if not place.startswith("/"):
            raise HookEventError("expected the directory of the session")
        _check_place(place)
        roots = named.get("roots")
        first = roots[0] if isinstance(roots, list) and roots else None
        _check_place(first)
        start = place if self.start == "event" else directory
        call = HookCall(
            start=first if isinstance(first, str) and first.startswith("/") else start,
            tool=_text(named.get("tool")),
            arguments={},
            session=_text(named.get("session")),
            directory=place,
            call=_text(named.get("call")),
            turn=_text(named.get("turn")),
            agent=_text(named.get("agent")),
            agent_type=_text(named.get("agent_type")),
            permission_mode=_text(named.get("permission_mode")),
        )
        if isinstance(prompt := named.get("prompt"), str):
            begin, end = self.added or ("", "")
            if begin and prompt.startswith(begin):
                prompt = prompt.partition(end)[2]
            return replace(call, prompt=prompt)
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
            except DocumentError as error:
                if shape is not None and shape.kind not in ("patch", "record"):
                    raise HookEventError(f"the arguments are not to be read: {error}") from error
                # Some tools take one text, which is no JSON.
                given = {"input": given}
        if given is not None and not isinstance(given, dict):
            raise HookEventError("expected the arguments of a tool by their names")
        arguments = given or {}
        shape, target = self._target(call.tool, shape, arguments, own)
        kept = {name: value for name, value in arguments.items() if name not in shape.ignored}
        values = {role: _value(shape, role, arguments) for role in _ROLES}
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
            permission_mode=call.permission_mode,
            record=event.get(self.rewrite.rules.record) if self.rewrite else None,
            given=arguments,
            command_name=shape.command if shape.runs_once else "",
            outlasts=shape.outlasts,
            start=call.start,
            native=NativeCall(
                kind=shape.kind,
                directory=_joined(call.directory, shape, arguments),
                values=values,
                runs_text=shape.runs_text,
                is_typed_into=shape.is_typed_into,
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
        if shape is None:
            may_act = any(name.lower() in _ACTING or _names_file(name) for name in arguments)
            return ToolShape(kind="record"), {"resource": tool, "may_act": may_act}
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
    if len(resource) > NAMES_MAX:
        raise HookEventError(f"expected a name of at most {NAMES_MAX} characters")
    names = (f"{joint.join(parts[:end])}/{joint.join(parts[end:])}" for end in range(1, len(parts)))
    return tuple(name for name in names if name != resource)


def _value(shape: ToolShape, role: str, arguments: Mapping[str, Any]) -> Any:
    name = getattr(shape, role)
    if isinstance(name, tuple):
        found = [arguments[one] for one in name if arguments.get(one) is not None]
        return [part for one in found for part in (one if isinstance(one, list) else [one])]
    value = arguments.get(name) if name else None
    if role != "edits" or not isinstance(value, list):
        return value
    steps = [one if isinstance(one, dict) else {} for one in value]
    return [
        {part: one.get(getattr(shape, part)) for part in ("old", "new", "all")} for one in steps
    ]


def _names_file(name: str) -> bool:
    return any(part in name.lower() for part in ("path", "file"))


def _joined(directory: str, shape: ToolShape, arguments: Mapping[str, Any]) -> str:
    """Return where a call works; HookEventError where versions of a client would differ."""
    places = {place for name in shape.place if (place := arguments.get(name))}
    if not places:
        return directory
    if len(places) > 1 or not all(isinstance(one, str) for one in places):
        raise HookEventError("expected one directory in which the command is to run")
    found = str(Path(directory, *places))
    _check_place(found)
    return found


def _check_place(place: object) -> None:
    if isinstance(place, str) and ("\0" in place or len(place) > PLACE_MAX):
        raise HookEventError(f"expected a directory of at most {PLACE_MAX} characters")


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

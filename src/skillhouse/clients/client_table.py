"""The clients that are known: the folders of each, its traces, and where it configures MCP servers.

`clients.json` is the table, one client a line, each with the public source that it is from and the
day on which that was read. The line of a client with a profile is made from that by `./x docs`.
"""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, field

from skillhouse.floor import ConfigError, Locations, nearest, shaped
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.skill import Profile, RootRule


class UnattendedRule(Struct, frozen=True, kw_only=True):
    """What lets one client call our tools without asking its user, in files of that user."""

    entry: Mapping[str, Any] = field(default_factory=dict)
    """Values of our entry."""
    file: str = ""
    """Another file of the client, with a list of what is allowed; empty for none."""
    unset: str = ""
    """Directory of that file relative to home, when no variable names another."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its directory and the path below each; empty takes the entry's variable."""
    format: Literal["json", "toml"] = "json"
    comments: bool = False
    trailing_commas: bool = False
    table: str = ""
    """Key of the table in that file."""
    list: str = ""
    """Key of the list in that table."""
    element: str = ""
    """What is added to the list, as JSON; `{name}` is the name of our server."""
    start: str = ""
    """What the client has to be started with as well, or a person has to do in it."""
    source: str
    read_on: str

    @property
    def is_written(self) -> bool:
        """Whether a file can say it, at least in part."""
        return bool(self.entry or self.file)


class ClientConfig(Struct, frozen=True, kw_only=True):
    """Where and how one client configures its MCP servers."""

    client: str = ""
    """Its name in the table."""
    source: str
    read_on: str
    format: Literal["json", "toml"] = "json"
    table: str
    """The key that holds the servers by name."""
    variable: str = ""
    """Environment variable that names the directory of the user's files."""
    unset: str
    """That directory relative to home, when the variable is not set."""
    mac: str = ""
    """The same where it exists, as on macOS."""
    below: str = ""
    """Path below that directory."""
    user_files: tuple[str, ...]
    """Names of the user's file: the first that exists is written, or else the last."""
    project_files: tuple[str, ...] = ()
    """The same, relative to the project; none where a project has no such file."""
    command_is_list: bool = False
    """Whether `command` includes the arguments."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Other values of an entry."""
    comments: bool = False
    """Whether the client is known to read a JSON file with comments."""
    trailing_commas: bool = False
    nested: str = ""
    """Key of the user's file with such tables for single projects, by folder."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Shown after a change, by whose file it is: "user" or "project"."""
    unattended: UnattendedRule | None = None
    """None where the client asks nothing about our tools, or it is not known what it needs."""
    own_list: str = ""
    """What keeps the client's own list of skills from the model; empty where nothing is known."""

    @property
    def places(self) -> tuple[str, ...]:
        """Whose files there are: "user", and "project" where a project has one."""
        return ("user", "project") if self.project_files else ("user",)

    def files(self, places: Locations, project: Path, where: str) -> tuple[Path, ...]:
        if where == "project":
            return tuple(project / name for name in self.project_files)
        given = places.environment.get(self.variable, "") if self.variable else ""
        base = places.home / self.unset
        if given:
            base = Path(given)
        elif self.mac and (places.home / self.mac).is_dir():
            base = places.home / self.mac
        return tuple(Path(os.path.abspath(base / self.below / name)) for name in self.user_files)

    def entry(self, command: Sequence[str], *, alone: bool = False) -> dict[str, Any]:
        """Return the entry; with `alone` its tools are called without a question of the client."""
        more = {"enabled": True} if self.command_is_list else {}
        values = self.unattended.entry if alone and self.unattended else {}
        return {**self.fixed, **self.command(command), **more, **values}

    def command(self, words: Sequence[str]) -> dict[str, Any]:
        if self.command_is_list:
            return {"command": list(words)}
        return {"command": words[0], "args": list(words[1:])}

    def words(self, entry: Any) -> list[str] | None:
        """Return the program and arguments of an entry; None when it has none."""
        if not isinstance(entry, dict):
            return None
        command, arguments = entry.get("command"), entry.get("args", [])
        if not self.command_is_list:
            command = [command, *(arguments if isinstance(arguments, list) else [])]
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            return None
        return command if command and command[0] else None


class CodingAgent(Struct, frozen=True, kw_only=True):
    """How a command shows that a client runs it, and no person."""

    called: str = ""
    """What messages call it; empty where that is the client's title."""
    variables: tuple[str, ...] = ()
    """Set, and neither empty nor `0` nor `false`, in the commands that it runs."""
    programs: tuple[str, ...] = ()
    """What its process is called."""
    source: str


class KnownClient(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    """Folders of skills in a project, its own one first."""
    user: tuple[str, ...] = ()
    """A person's folders, as a profile's roots are written, its own one first."""
    links: str = ""
    """What it does with links, as a profile's `symlinks`; empty where that is not known."""
    programs: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """As a profile's; both are empty where it has a profile."""
    source: str
    read_on: str
    mcp: ClientConfig | None = None
    terminal: CodingAgent | None = None

    def folders(self) -> Profile:
        """Return a profile that claims its folders, and nothing of what it does there."""
        return Profile(
            name=self.name,
            title=self.title,
            client=self.title,
            facts=(f"Folders: {self.source}",),
            unknown=("how it reads, names and lists the skills in its folders",),
            programs=self.programs,
            traces=self.traces,
            read_on=self.read_on,
            folders_only=True,
            walk="none",
            symlinks="ignore",
            roots=(
                *(RootRule(scope="project", path=path) for path in self.project),
                *(RootRule(scope="user", path=path) for path in self.user),
            ),
        )


@functools.cache
def known_clients() -> Mapping[str, KnownClient]:
    """Return the table, by name: programs that were tried, those with a profile, and the rest."""
    data = Path(__file__).with_name("clients.json").read_bytes()
    found = {}
    for one in shaped(json.loads(data), tuple[KnownClient, ...]):
        mcp = None if one.mcp is None else replace(one.mcp, client=one.name)
        found[one.name] = replace(one, mcp=mcp)
    return found


def server_configs() -> tuple[ClientConfig, ...]:
    """Return those whose configuration of MCP servers can be written."""
    return tuple(one.mcp for one in known_clients().values() if one.mcp is not None)


_ANY_AGENT = CodingAgent(
    called="a coding agent",
    # Amp, Crush, Goose, opencode, Claude Code and VS Code set one of these, whoever comes next.
    variables=("AI_AGENT", "AGENT"),
    programs=("amp", "aider"),
    source="https://github.com/agentsmd/agents.md/issues/136; vercel/vercel packages/detect-agent",
)


def coding_agents() -> tuple[CodingAgent, ...]:
    """Return how each client that runs commands is recognised, and last how any other is."""
    found = (
        replace(one.terminal, called=one.terminal.called or one.title)
        for one in known_clients().values()
        if one.terminal is not None
    )
    return (*found, _ANY_AGENT)


_T = TypeVar("_T")
LISTED_MAX = 12
"""Clients that a message about an unknown one lists."""


def client_of(name: str, known: Mapping[str, _T]) -> _T:
    """Return what is known by the name of a client, or raise `ConfigError`.

    Where a design has the name of its program, the program's profile is called `NAME-cli`.
    """
    table = known_clients()
    by_alias = {alias: one.name for one in table.values() for alias in one.aliases}
    for each in (name, f"{name}-cli", by_alias.get(name, "")):
        if each in known:
            return known[each]
    where = f"expected one of: {', '.join(known)}"
    if len(known) > LISTED_MAX:
        where = "`skillhouse profiles list` has them"
    close = next(iter(nearest(name, (*known, *by_alias))), "")
    is_known = name in table or name in by_alias
    what = "where it configures MCP servers is not known:" if is_known else "unknown client"
    message = f"`{name}`: {what} {where}" if is_known else f"{what} `{name}`, {where}"
    raise ConfigError(message, key=name, suggestion="" if is_known else close)


def server_config(name: str) -> ClientConfig:
    """Return how a client's MCP servers are configured; `ConfigError` where that is not known."""
    return client_of(name, {one.client: one for one in server_configs()})


def is_installed(profile: Profile, places: Locations) -> bool:
    """Whether a command of the client is on the path, or a trace of a run is at home.

    A profile that names neither, as a user's own, counts as installed. A directory that holds
    `skills` alone is none: what installs skills makes it.
    """
    if not profile.programs and not profile.traces:
        return True
    import shutil  # noqa: PLC0415 - it loads three packers; a list of skills asks for no client.

    path = places.environment.get("PATH", os.defpath)
    if any(shutil.which(program, path=path) for program in profile.programs):
        return True
    return any(_is_trace(places.home / trace.removeprefix("~/")) for trace in profile.traces)


def _is_trace(path: Path) -> bool:
    try:
        return os.listdir(path) != ["skills"]
    except OSError:
        return os.path.lexists(path)


def has_own_folder(profile: Profile, places: Locations) -> bool:
    """Whether the client's own folder of skills is at home, though nothing else of it may be."""
    one = known_clients().get(profile.name)
    if one is None or not one.user:
        return False
    place = _PLACE.fullmatch(one.user[0])
    if place is None or place["inside"] in _SHARED:
        return False
    given = places.environment.get(place["name"] or "", "")
    base = Path(given) if given else places.home / (place["unset"] or "")
    return (base / (place["inside"] or "")).is_dir()


_SHARED = frozenset({".agents/skills", "agents/skills"})
"""Folders of a person that are no client's own."""
_PLACE = regex(r"(?:~|\$\{(?P<name>\w+)(?::-~/(?P<unset>[^}]*))?\})(?:/(?P<inside>.*))?")


class VariableFolder(NamedTuple):
    """A folder of a person that a client finds by a variable of the environment."""

    client: str
    variable: str
    """It names the directory, or several with the separator of `PATH`."""
    unset: str
    """That directory relative to home when the variable is not set; empty for none."""
    below: str
    """The folder below that directory; empty for the directory itself."""


@functools.cache
def variable_folders() -> tuple[VariableFolder, ...]:
    return tuple(
        VariableFolder(one.name, place["name"], place["unset"] or "", place["inside"] or "")
        for one in known_clients().values()
        for place in filter(None, map(_PLACE.fullmatch, one.user))
        if place["name"]
    )


@functools.cache
def user_folders() -> Mapping[str, tuple[str, ...]]:
    """Return who reads a folder of a person, by its path below home when no variable is set."""
    return _readers(
        (os.path.join(place["unset"] or "", place["inside"] or ""), one.name)
        for one in known_clients().values()
        for place in filter(None, map(_PLACE.fullmatch, one.user))
        if place["unset"] or not place["name"]
    )


@functools.cache
def project_folders() -> Mapping[str, tuple[str, ...]]:
    """Return who reads a folder of a project, by its path; hidden ones, which say whose it is."""
    return _readers(
        (path, one.name)
        for one in known_clients().values()
        for path in one.project
        if path.startswith(".")
    )


def _readers(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path, name in pairs:
        found[path].append(name)
    return {path: tuple(names) for path, names in found.items()}

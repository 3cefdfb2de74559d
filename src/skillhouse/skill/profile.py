"""The values on which designs and clients differ; code reads them and never a profile's name.

A profile is read from a TOML file, one of the shipped ones or a person's own.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from skillhouse.floor import (
    ConfigError,
    DecodeError,
    file_problem,
    nearest,
    read_regular,
    shaped,
    structs,
)
from skillhouse.floor.documents import toml_table
from skillhouse.floor.regex import regex
from skillhouse.skill.model import LOADING_POLICY, NameMatch, ParsePolicy

WalkUp = Literal["none", "git_root", "home", "fs_root"]
"""How far upwards project roots are looked for; the last directory is itself looked at."""
Symlinks = Literal["by_scope", "within_root", "follow", "ignore"]
"""Where links lead that are followed: by scope, those of a person's own folders lead to what no
one else can write, those of a project stay in it, and others stay in their root."""
Identity = Literal["name", "directory", "source_name", "path"]
"""What two skills must share to be duplicates: the name, the name of the directory, the id, or
nothing short of the file."""
Duplicates = Literal["first", "last", "keep_all", "error"]
"""Which of two duplicates is in force: that of the earlier root, that of the later one in the
earlier one's place, both, or neither. What is not stays addressable, and a warning names both.
"""


_PLACEHOLDER = regex(r"\{explicit\}|\{builtin\}|\$\{\w+(:-[~/][^}]*)?\}(/.*)?")


class ScopeRule(Struct, frozen=True, kw_only=True):
    """How far a scope is scanned, and what happens to its skills when no rule matches."""

    name: str
    default_effect: Literal["allow", "ask", "deny"]
    max_depth: int
    """Directories between a root and a skill, the skill's own included."""
    max_directories: int
    source: str = ""
    """What the design calls it, such as `workspace`; empty where that is the scope's name."""


class RootRule(Struct, frozen=True, kw_only=True):
    """One place, or several, in which skills are looked for."""

    scope: str
    path: str
    """`~/x` is below home and `/x` absolute; `${NAME}` is each path in that variable and
    `${NAME:-~/x}` has a value for when it is unset; `{explicit}` is what was given by hand and
    `{builtin}` what comes with the package; anything else is below each directory of the walk.
    `*` matches any one directory."""
    walk: WalkUp | None = None
    """Overrides the profile's walk, as the next two do its depth of the scope and its links."""
    max_depth: int | None = None
    symlinks: Symlinks | None = None
    namespace: int | None = None
    """Which `*` of the path, from 1, names the plugin: its skills are called `plugin:skill`."""

    def __post_init__(self) -> None:
        """Refuse (ValueError) a path that is nowhere or has fewer `*` than the namespace counts."""
        if not self.path or self.path.isspace():
            raise ValueError("expected a path, got nothing")
        if "\0" in self.path:
            raise ValueError("a NUL in the path")
        placed = self.path.startswith(("{", "$"))
        if placed and _PLACEHOLDER.fullmatch(self.path) is None:
            raise ValueError(
                "expected `{explicit}`, `{builtin}`, `${NAME}` or `${NAME:-~/path}` and perhaps "
                f"more of a path, got `{self.path}`"
            )
        walked = not placed and self.path != "~" and not self.path.startswith(("~/", "/"))
        if walked and self.scope != "project":
            # INVARIANT: files in a project are read in scope project, which must be trusted.
            raise ValueError(f"expected the scope project for `{self.path}`, got {self.scope}")
        stars = self.path.split("/").count("*")
        if self.namespace is not None and not 1 <= self.namespace <= stars:
            raise ValueError(f"expected a namespace from 1 to {stars}, got {self.namespace}")
        if self.max_depth is not None and self.max_depth < 1:
            raise ValueError(f"expected a depth of 1 or more, got {self.max_depth}")


DEFAULT_SCOPES = (
    ScopeRule(name="project", default_effect="allow", max_depth=6, max_directories=2_000),
    ScopeRule(name="explicit", default_effect="allow", max_depth=12, max_directories=100_000),
    ScopeRule(name="user", default_effect="allow", max_depth=6, max_directories=20_000),
    ScopeRule(name="plugin", default_effect="ask", max_depth=6, max_directories=2_000),
    ScopeRule(name="remote", default_effect="ask", max_depth=6, max_directories=2_000),
    ScopeRule(name="builtin", default_effect="allow", max_depth=2, max_directories=2_000),
)
"""Strongest first (decision 0004)."""

DEFAULT_ROOTS = (
    RootRule(scope="project", path=".skillhouse/skills"),
    RootRule(scope="project", path=".agents/skills"),
    RootRule(scope="project", path=".claude/skills"),
    RootRule(scope="explicit", path="{explicit}"),
    RootRule(scope="explicit", path="${SKILLHOUSE_SKILLS_DIR}"),
    RootRule(scope="user", path="~/.config/skillhouse/skills"),
    RootRule(scope="user", path="~/.agents/skills"),
    RootRule(scope="user", path="~/.claude/skills"),
    RootRule(scope="builtin", path="{builtin}"),
)


class ProfileRules(Struct, frozen=True, kw_only=True):
    """How rules about skills are read, where they come as patterns for an agent."""

    match: Literal["last", "first"] = "last"
    """Which of several matching rules is a layer's verdict."""
    default_effect: Literal["", "allow", "ask", "deny"] = ""
    """The effect when no rule matches; empty leaves it to the scope."""
    case_sensitive: bool = True
    slash_stops: bool = False
    """Whether `*` ends at a `/`."""
    optional_tail: bool = False
    """Whether `git *` also matches `git`."""
    pattern: str = "{name}"
    """How a question names a skill, such as `skill/{name}`."""


CATALOG_TOKENS = 2_000
"""Tokens of the catalog unless something else is set (docs/reference/limits.md)."""
TOOL_CHARS = 2_000
"""Characters of the description of a tool over MCP: Claude Code cuts it at 2,048."""
INSTRUCTION_CHARS = 2_000
"""Characters of a server's `instructions`: Claude Code cuts them at 2,048 too."""
TOOL_COUNT = 128
"""Tools that OpenAI's API takes in a request (zed-industries/zed#32946, `array_above_max_length`),
and VS Code in a chat: the strictest bound that is known of a client with a profile."""
TOOL_LIST_CHARS = 20_000
"""Characters of the definitions of skills' tools in each request, some 5,000 tokens."""
ENUM_CHARS = 1_000
"""Characters of all names for a tool's schema to list them, about 250 tokens: a name says little
without its sentence, and a description has no room for those of more skills."""


class CatalogRule(Struct, frozen=True, kw_only=True):
    """How skills are listed for a model."""

    style: str = "xml"
    """A renderer of `render_catalog`."""
    tool_style: str = "compact"
    """The renderer for the description of the skill tool."""
    exposure: Literal["tool", "system", "search"] = "tool"
    """Where the list is: in the skill tool's description, in the system prompt, or nowhere,
    and then skills are found by search alone."""
    without_skill_tool: str = "xml"
    """The renderer for a system prompt whose model has tools, but not the skill tool (S004-40)."""
    without_tools: str = "direct"
    """The renderer for a system prompt whose model has no tools at all (S004-40)."""
    sort: Literal["index", "name"] = "index"
    attributes: bool = False
    """Whether an XML entry has an `id` attribute and a `<version>` (S000-41)."""
    empty: str = ""
    budget_tokens: int | Literal["none"] = CATALOG_TOKENS
    """Tokens of the whole list unless the configuration says otherwise; "none" is no bound."""
    tool_chars: int | Literal["none"] = TOOL_CHARS
    """Characters of the skill tool's description, its list included, as JavaScript counts them."""
    instruction_chars: int = INSTRUCTION_CHARS
    enum_chars: int = ENUM_CHARS
    """Characters of all skills' names for the skill tool's schema to list them, or none."""
    tool_count: int | Literal["none"] = TOOL_COUNT
    """Tools of one server or program that a request of the client may have; "none" is no bound."""
    tool_list_chars: int | Literal["none"] = TOOL_LIST_CHARS
    """Characters of the definitions of skills' tools in a request; beyond either bound they are
    found by searching."""
    budget_chars: int | None = None
    """Characters that the whole list may have; None is no bound."""
    description_chars: int | None = None
    """Characters after which a description is cut."""
    reserved_chars: int = 0
    """Characters of the budget that the client's own entries take first."""
    entry: str = ""
    """How a listed skill counts against the client's budget: a line with `{name}`, `{description}`
    and `{path}`; empty where it is not known."""
    entry_bare: str = ""
    """The same of a skill whose description was dropped."""
    entry_unit: int = 1
    """What an entry is rounded up to; above 1 it counts in UTF-8 bytes and not in characters."""
    overflow: Literal["name_all", "omit", "drop_descriptions", "shorten"] = "name_all"
    """What happens to the skills that the budget has no room for: `name_all` names every skill, and
    gives all an equal share for descriptions; the others are what clients do. `shorten` cuts all
    descriptions evenly, drops them when that is not enough, and omits skills last."""


class ToolRule(Struct, frozen=True, kw_only=True):
    """One tool about skills: what it is called and how its parameters are."""

    kind: Literal["skill", "search", "asset", "script_path", "assets"]
    name: str
    title: str = ""
    """What people see it called; empty is its name."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Our name of a parameter to the design's: `name`, `query`, `limit`, `path`, `script`."""
    aliases: tuple[str, ...] = ()
    """Further names that are taken for the parameter which names the skill."""
    enum: Literal["names", "ids", "none"] = "names"
    """What the schema of the skill tool lists: names (an id where two skills share a name), ids,
    or nothing."""
    bounds: Literal["refuse", "empty"] = "refuse"
    """An empty query, or a number of results below one, is refused or finds nothing (S003-41)."""


DEFAULT_TOOLS = (
    ToolRule(kind="skill", name="skill", aliases=("skill", "skill_name")),
    ToolRule(kind="search", name="search_skills"),
)


class Extensions(Struct, frozen=True, kw_only=True):
    """Claude Code's extensions of the format; a profile or the user turns them on or off."""

    invocation: bool = True
    """`disable-model-invocation` and `user-invocable` are heeded."""
    substitution: bool = True
    """`$ARGUMENTS`, `$1`, `${CLAUDE_SKILL_DIR}` are replaced when a person invokes a skill."""
    positions_from: Literal[0, 1] = 0
    """The number of the first argument in `$0`, `$1`."""
    when_to_use: bool = False
    paths: bool = False
    commands: bool = False
    """Lines of the form !`command` run, through the gate, before the model sees the text."""


class Profile(Struct, frozen=True, kw_only=True):
    """One way of finding, reading, listing and loading skills; the defaults are `default`."""

    name: str = "default"
    title: str = "our own recommendation"
    facts: tuple[str, ...] = ()
    """Where the values come from, one line a fact, for people."""
    client: str = ""
    """The program and its version whose behaviour this is; empty where it is no client's."""
    programs: tuple[str, ...] = ()
    """Commands of the client: it is installed where one of them is on the path."""
    traces: tuple[str, ...] = ()
    """Paths below `~` that the client makes when it runs; one of them says that it is installed."""
    checked: str = ""
    """The day on which the values were compared with that program, as YYYY-MM-DD."""
    read_on: str = ""
    """Where they were not compared: the day on which its public sources were read."""
    folders_only: bool = False
    """Whether no more than the roots is known, and not how a skill in them is read."""
    unknown: tuple[str, ...] = ()
    """What no public source says, for people; the values here are then the specification's."""
    scopes: tuple[ScopeRule, ...] = DEFAULT_SCOPES
    """Strongest first: a skill of an earlier scope shadows one of the same name in a later."""
    roots: tuple[RootRule, ...] = DEFAULT_ROOTS
    """Where skills are looked for; of two the one that comes first is stronger, unless
    `duplicates` is `last`."""
    root_order: Literal["scope", "written"] = "scope"
    """Whether roots are ordered by their scope first, or just as they are written."""
    walk: WalkUp = "git_root"
    walk_order: Literal["nearest", "farthest", "by_root"] = "nearest"
    """Which directory of the walk comes first; all roots of one directory are beside each other,
    but by root, where the walk of each one ends before that of the next begins."""
    symlinks: Symlinks = "by_scope"
    dotfiles: bool = True
    """Whether directories whose name begins with a dot are entered."""
    skipped_directories: frozenset[str] = frozenset(
        {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"}
    )
    """Never descended into (client guide, "Where to scan")."""
    nested_skills: bool = False
    """Whether a skill is looked for below another skill's directory."""
    identity: Identity = "name"
    duplicates: Duplicates = "first"
    root_duplicates: Literal["place", "path"] = "place"
    """Which of two duplicates below one root comes first: that of the more usual place (`skills`
    before `docs`, tests and backups, then the shallower one), or that of the lower path. With
    `place` and `duplicates` of `first` a root named by hand may be a skill itself, too."""
    duplicates_vary: bool = False
    """Whether the client may take another of two duplicates at the next start."""
    root_skill: bool = False
    """Whether a SKILL.md in a root itself is a skill, beside those below it."""
    link_files: bool = True
    """Whether a SKILL.md that is a symbolic link is read, where links are followed at all."""
    any_case: bool = False
    """Whether `skill.md` in any case is a skill, where there is no SKILL.md; else it is named."""
    name_match: NameMatch = "casefold"
    """Whether a name in another case finds a skill that it fits alone."""
    parse_policy: ParsePolicy = field(default=LOADING_POLICY)
    rules: ProfileRules = field(default_factory=ProfileRules)
    catalog: CatalogRule = field(default_factory=CatalogRule)
    load_style: Literal["marked", "opencode", "titled", "based", "raw", "body"] = "marked"
    """What a loaded skill looks like to the model; see `tools.render_content`."""
    tools: tuple[ToolRule, ...] = DEFAULT_TOOLS
    tools_without_skills: bool = False
    """Whether these tools are offered, and say so in words, when there is no skill (S001-46)."""
    search_bodies: bool = True
    """Whether search looks at bodies besides names and descriptions (S003-46)."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Published words by what they say, instead of ours; `{name}` and the like are filled in."""
    result: Literal["text", "titled", "envelope"] = "text"
    """Shape of a result for programs: ours, {title, output, metadata}, or {success, …}."""
    metadata: Mapping[str, str] = field(
        default_factory=lambda: {"id": "id", "directory": "directory"}
    )
    """What is said of a loaded skill beside its text, our name to the design's: `id`, `name`,
    `directory`, `source`, `permission`."""
    asset_directories: tuple[str, ...] = ()
    """Directories of a skill that assets are read from; empty is any."""
    unknown_assets: Literal["error", "empty"] = "error"
    """What the listing of an unknown skill's assets is (S003-73)."""
    resources_listed: int = 50
    allowed_tools: Literal["ignore", "display", "preapprove"] = "display"
    """What `allowed-tools` does; it pre-approves only within what the operator allowed."""
    cache: Literal["none", "context", "watch"] = "context"
    """When skills are scanned again: at each call, on request, or when files change."""
    extensions: Extensions = field(default_factory=Extensions)
    runs_code: bool = False
    """Whether tools that skills bring are offered and their code is run, in cells."""
    memory: bool = False
    tool_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What a design calls our tools, by our name: the first is listed, and all are taken. What each
    needs is decided and recorded as of our tool; a name that another tool has stays that tool's."""
    bare_tool_names: bool = False
    """Whether a skill's tool may be called without its skill's name, where that is one alone."""
    listed_commands: tuple[str, ...] | Literal["any"] = "any"
    """Programs that a person may be asked about where no rule names them; others are then denied.
    With "any" all are asked about."""
    unattended: Literal["pending", "deny"] = "pending"
    """Whether a question that no person here can answer stays open or is refused after its wait."""
    companion_app: bool = False
    """Whether tier 1 is asked on a paired device where there is one, and only reads go on while a
    paired companion app is away for 30 minutes."""

    def scope(self, name: str) -> ScopeRule:
        """Return the rule of a scope, or raise ConfigError."""
        for rule in self.scopes:
            if rule.name == name:
                return rule
        known = [rule.name for rule in self.scopes]
        raise ConfigError(
            f"unknown scope `{name}`", key=name, suggestion=next(iter(nearest(name, known)), "")
        )


DEFAULT_PROFILE = Profile()


PROFILE_FILE_MAX = 262_144
"""Bytes of a profile file."""


def read_profile(path: Path) -> Profile:
    """Return the profile in a file; what it does not set is as in `default`.

    ConfigError: the file cannot be read, is not TOML, or has a key or value that no profile has;
    the message has the line and the key.
    """
    try:
        data = read_regular(path, PROFILE_FILE_MAX)
        table = toml_table(data)
        text = data.decode()
    except OSError as error:
        raise ConfigError(f"cannot read the profile: {error.strerror}", path=path) from error
    except DecodeError as error:
        raise ConfigError(str(error), path=path) from error
    # It is for the table of clients: what is known of the program besides its skills.
    table.pop("program", None)
    for keys, key, known in _unknown(table, Profile, ()):
        close = nearest(key, known)
        raise ConfigError(
            f"line {line_of_key(text, (*keys, key))}: unknown key `{key}`",
            path=path,
            key=key,
            suggestion=close[0] if close else "",
        )
    if table.setdefault("name", path.stem) != path.stem:
        line = line_of_key(text, ("name",))
        message = f"line {line}: expected the name of the file, `{path.stem}`"
        raise ConfigError(message, path=path, key="name")
    try:
        profile = shaped(table, Profile)
    except DecodeError as error:
        message, _, place = str(error).partition(" - at `$")
        at = tuple(re.findall(r"\w+", place))
        key = next((word for word in reversed(at) if not word.isdecimal()), "")
        where = f"line {line_of_key(text, at)}: `{key}`: " if key else ""
        raise ConfigError(f"{where}{message}", path=path, key=key) from error
    for number, root in enumerate(profile.roots):
        if all(rule.name != root.scope for rule in profile.scopes):
            line = line_of_key(text, ("roots", str(number), "scope"))
            message = f"line {line}: no scope is called `{root.scope}`"
            raise ConfigError(message, path=path, key="scope")
    return profile


def _unknown(
    value: Any, shape: Any, keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield the place of each key that `shape` does not have, and which it has."""
    if isinstance(shape, types.UnionType):
        shape = typing.get_args(shape)[0]
    if typing.get_origin(shape) is tuple and isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unknown(item, typing.get_args(shape)[0], (*keys, str(place)))
    elif structs.is_struct(shape) and isinstance(value, Mapping):
        hints = _hints(typing.cast("type", shape))
        for key, item in value.items():
            if key in hints:
                yield from _unknown(item, hints[key], (*keys, key))
            else:
                yield keys, key, tuple(hints)


_hints = functools.cache(typing.get_type_hints)


def line_of_key(text: str, keys: tuple[str, ...]) -> int:
    """Return the line of the value at `keys`, or of the nearest table above it that is found."""
    lines = text.splitlines()
    place = 0
    for at, key in enumerate(keys):
        if key.isdecimal():
            continue
        table = re.compile(rf"\s*\[+\s*(\w+\.)*{re.escape(key)}\s*\]|\s*\"?{re.escape(key)}\"?\s*=")
        # In an array of tables the nth header begins the nth item.
        skip = int(keys[at + 1]) if at + 1 < len(keys) and keys[at + 1].isdecimal() else 0
        places = [n for n, line in enumerate(lines) if n >= place and table.match(line)]
        if places:
            place = places[min(skip, len(places) - 1)]
    return place + 1


SHIPPED_DIRECTORY = Path(__file__).with_name("profiles")
"""One TOML file a profile; its name is the profile's."""


def profile_names(own: Path | None = None) -> tuple[str, ...]:
    """Return the names of all profiles, sorted; `own` is the user's directory of profiles."""
    names = {file.stem for place in _places(own) for file in place.glob("*.toml")}
    return tuple(sorted(names))


def load_profile(profile: str | Profile, own: Path | None = None) -> Profile:
    """Return the profile of that name; a `Profile` is returned as it is.

    `own` is the user's directory of profiles: a file there goes before a shipped one of its name.
    ConfigError: no profile has that name, or its file is broken; the message has the line.
    """
    if isinstance(profile, Profile):
        return profile
    for place in _places(own):
        if place == SHIPPED_DIRECTORY and profile == DEFAULT_PROFILE.name:
            # Its file holds the same values (a test compares them) and takes longer to read.
            return DEFAULT_PROFILE
        path = place / f"{profile}.toml"
        # INVARIANT: a name never leads out of these directories.
        if path.parent == place and (path.exists() or path.is_symlink()):
            # An installer may link the shipped ones to its cache.
            if place == own and (problem := file_problem(path)):
                raise ConfigError(f"the profile is not used: {problem}", path=path)
            return read_profile(path) if place == own else _shipped(path)
    known = profile_names(own)
    close = nearest(profile, known)
    message = f"unknown profile `{profile}`"
    if not close:
        message += f", known are {', '.join(sorted(known))}"
    raise ConfigError(message, key=profile, suggestion=close[0] if close else "")


@functools.cache
def _shipped(path: Path) -> Profile:
    """Return a profile of the program, whose files stay as they are while it runs."""
    return read_profile(path)


def _places(own: Path | None) -> tuple[Path, ...]:
    return (SHIPPED_DIRECTORY,) if own is None else (own, SHIPPED_DIRECTORY)

"""The one interface of extensions: what ours and those of others may add.

An extension is one value of `Extension`. Everything in it is a function or a table of functions
that is called when it is needed, so that naming an extension loads nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

if TYPE_CHECKING:
    import argparse

    from skillhouse.approval import Channel
    from skillhouse.floor import Digest
    from skillhouse.tools import Runner, Tool, ToolResult


class Verb(Struct, frozen=True):
    """One verb of the command line."""

    examples: str
    """What follows the options in its help."""
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Any], int]
    """Does its work, prints through the terminal that it gets, and returns the exit code."""
    without: str = ""
    """The verb of a group that is meant when none is given."""
    adapt: Callable[[list[str]], list[str]] = list
    """Changes the arguments before they are parsed."""
    summary: str = ""
    """What it does in one line, for the list of verbs; those of ours are in the table of verbs."""


class ExtensionContext(Struct, frozen=True, kw_only=True):
    """What an extension gets of the `Skillhouse` that it works in."""

    settings: Any
    """What the extension's section of the configuration was read as; None where it has none."""
    state_directory: Path
    """Where state is kept, private to this user. The extension makes a directory of its own there,
    `extensions/NAME`."""
    workspace: Path
    """The directory in which this process works."""
    environment: Mapping[str, str]
    call: Callable[..., Awaitable[ToolResult]]
    """Makes a tool call through the gate, as `Skillhouse.call`: it is decided, asked about and
    recorded as any call."""
    redeem: Callable[[Digest], str]
    """Consumes the approval of a plan's `binding` that a person gave on a transaction page, and
    returns its id; "" where there is none."""


class ConfigSection(Struct, frozen=True, kw_only=True):
    """A table of the configuration file, which no project's file may set."""

    name: str
    """Its key in the file, as in `[NAME]`."""
    parse: Callable[[Mapping[str, Any]], object]
    """Returns the value of the table; an empty one gives the defaults. ConfigError says what is
    wrong, with the key."""


class ExtensionPage(Struct, frozen=True, kw_only=True):
    """A page of the HTTP service below `/extensions/NAME/`, which only the owner opens.

    It is read with GET and changes nothing: what changes anything is a tool, which passes the gate.
    """

    path: str
    """Of words a-z, 0-9, `-` and `/`, without a slash at its ends; "" is `/extensions/NAME/`."""
    title: str
    body: Callable[[Mapping[str, str]], str]
    """Returns plain text for the values of the query; it is escaped and shown line by line."""


class ExtensionRoute(Struct, frozen=True, kw_only=True):
    """A route of the HTTP API below `/api/v1/extensions/NAME/`, for tokens with the scope `read`.

    It is read with GET and changes nothing, as a page. Its answer is also in the OpenAPI document.
    """

    path: str
    """As that of a page, but never empty."""
    what: str
    """What it answers, in one sentence."""
    answer: Callable[[Mapping[str, str]], object]
    """Returns a JSON value for the parameters that were given. It runs on a thread."""
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What each parameter of the query is, by name; all are texts, and each may be left out."""


class Hooks(Struct, frozen=True, kw_only=True):
    """Called at moments of a `Skillhouse`; what one raises is logged and changes nothing."""

    on_stop: Callable[[ExtensionContext, str], object] | None = None
    """After everything was stopped, with the reason that was given."""
    on_close: Callable[[ExtensionContext], object] | None = None
    """When the `Skillhouse` closes."""


class Extension(Struct, frozen=True, kw_only=True):
    """What one extension adds; each part may be left out.

    Nothing of it replaces what is there: a verb, tool or section whose name is taken is left out,
    and `skillhouse doctor` names it.
    """

    name: str
    """As in the entry point: a-z, 0-9 and `-`."""
    verbs: Mapping[str, Verb] = field(default_factory=lambda: MappingProxyType({}))
    tools: Mapping[str, Callable[[ExtensionContext], Tool]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """What makes each tool, by the tool's name."""
    pages: Callable[[ExtensionContext], Iterable[ExtensionPage]] | None = None
    routes: Callable[[ExtensionContext], Iterable[ExtensionRoute]] | None = None
    executor: Callable[[ExtensionContext], Runner] | None = None
    """Makes what runs the code of skills, where `[skill_code] executor` is the extension's name."""
    channels: Callable[[ExtensionContext], Iterable[Channel]] | None = None
    """Makes further ways to ask a person, for servers."""
    chat_channels: Callable[[ExtensionContext], Iterable[object]] | None = None
    """Makes services in which people write to the bot, none where its section names none. Each is a
    `ChatChannel` of `skillhouse.extensions.channels.chat_channel`."""
    hooks: Hooks = Hooks()
    section: ConfigSection | None = None

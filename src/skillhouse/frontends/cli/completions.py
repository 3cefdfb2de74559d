"""The verb `completions`: a script with which a shell completes verbs, options and values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import manage
from skillhouse.floor import MissingExtraError
from skillhouse.frontends.cli.completion_scripts import SCRIPTS, Node, ValueSource
from skillhouse.frontends.cli.options import Verb, add_json
from skillhouse.frontends.cli.verbs import VERBS as ALL_VERBS
from skillhouse.frontends.cli.verbs import parser_of
from skillhouse.house.config import CONFIG_KEYS
from skillhouse.permission import ACTIONS
from skillhouse.skill import DEFAULT_PROFILE

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse completions bash > ~/.local/share/bash-completion/completions/skillhouse
  skillhouse completions zsh > ~/.zfunc/_skillhouse     with `fpath+=~/.zfunc` before compinit
  skillhouse completions fish > ~/.config/fish/completions/skillhouse.fish

In bash without the package bash-completion, put `source FILE` into ~/.bashrc. Write the file
again after an update.

Verbs, options and fixed values are in the script. Names of skills, profiles, clients, tools and
open approvals are read when they are needed, from the skills that `list` shows.
"""

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]*")
_METAVARS = {"DIR": "directories", "FILE": "files", "PATH": "files", "CLIENTS": "clients"}
_OPTIONS: dict[str | tuple[str, str], str] = {
    "--profile": "profiles",
    "--client": "clients",
    "--agent": "agents",
    "--server": "servers",
    ("audit", "--skill"): "skills",
}
"""What comes after an option, or one of a verb, where neither its choices nor the name of its value
says it."""
_ARGUMENTS = {
    "skill": "skills",
    "skills": "skills",
    "tool": "tools",
    "clients": "clients",
    "project": "directories",
    "url": "remotes",
    ("profiles", "name"): "profiles",
    ("profiles", "names"): "profiles",
    ("approvals", "id"): "approvals",
    ("audit", "server"): "servers",
}
"""What an argument is, by its name or its verb and name."""


class _Place(Struct, frozen=True):
    """One verb, or a verb below it, with its parser."""

    words: tuple[str, ...]
    parser: argparse.ArgumentParser


def nodes() -> Iterator[Node]:
    """Yield what may follow each verb, from the parsers that read the command line."""
    yield Node(
        path="",
        verbs=(*((verb, summary) for verb, (_, summary) in ALL_VERBS.items()), _HELP),
        options=(("--help", "show the verbs"), ("--version", "show the version")),
        valued=(),
        sources={},
    )
    for verb in ALL_VERBS:
        try:
            _, parser = parser_of(verb)
        except MissingExtraError:
            # Its extension is not installed: the verb completes, and says so when it is run.
            continue
        yield from _below(_Place((verb,), parser))


_HELP = ("help", "explain a verb")


def _below(place: _Place) -> Iterator[Node]:
    options: list[tuple[str, str]] = []
    valued: list[str] = []
    sources: dict[str, ValueSource] = {}
    verbs: list[tuple[str, str]] = []
    lower: list[_Place] = []
    index = 0
    # argparse has no public way to list what a parser takes.
    for action in place.parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            verbs = [(name, _text(helps.get(name))) for name in action.choices]
            lower = [_Place((*place.words, word), one) for word, one in action.choices.items()]
            continue
        source = _source(place, action)
        if not action.option_strings:
            is_repeated = action.nargs in ("*", "+")
            if source:
                sources["@+" if is_repeated else f"@{index}"] = source
            index += 1
            continue
        for option in action.option_strings:
            options.append((option, _text(action.help)))
            if action.nargs != 0:
                valued.append(option)
                if source:
                    sources[option] = source
    yield Node(
        path=" ".join(place.words),
        verbs=tuple(verbs),
        options=tuple(options),
        valued=tuple(valued),
        sources=sources,
    )
    for one in lower:
        yield from _below(one)


def _source(place: _Place, action: argparse.Action) -> ValueSource | None:
    """Return where the values of an option or argument come from; None where nothing is known."""
    if action.choices is not None:
        return _fixed(str(choice) for choice in action.choices)
    name = action.dest
    for option in action.option_strings:
        if option == "--scope":
            return _fixed(scope.name for scope in DEFAULT_PROFILE.scopes)
        if option == "--problem":
            return _fixed(manage.STATES)
        kind = _OPTIONS.get((place.words[0], option)) or _OPTIONS.get(option)
        if kind:
            return ValueSource(kind=kind)
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.option_strings:
        return ValueSource(kind=_METAVARS[metavar]) if metavar in _METAVARS else None
    if name == "action":
        return _fixed(ACTIONS)
    if (place.words, name) == (("config", "show"), "keys"):
        return _fixed(sorted(CONFIG_KEYS))
    kind = _ARGUMENTS.get((place.words[0], name)) or _ARGUMENTS.get(name) or _METAVARS.get(metavar)
    return ValueSource(kind=kind) if kind else None


def _fixed(words: Iterable[str]) -> ValueSource:
    return ValueSource(words=tuple(word for word in words if _WORD.fullmatch(word)))


def _text(text: str | None) -> str:
    """Return the help of an option in one short line."""
    line = " ".join((text or "").replace("%%", "%").split())
    return line if len(line) <= _TEXT_MAX else line[: _TEXT_MAX - 1] + "…"


_TEXT_MAX = 60


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell that reads the script")
    add_json(parser)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    text = SCRIPTS[options.shell](tuple(nodes()))
    if options.json:
        from skillhouse.answers.configuration import CompletionAnswer

        terminal.json(CompletionAnswer(shell=options.shell, script=text))
    else:
        terminal.write(text)
    return 0


VERBS = {"completions": Verb(_EXAMPLES, _configure, _run)}

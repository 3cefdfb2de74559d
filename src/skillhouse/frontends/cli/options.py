"""The options that verbs share, and the `Skillhouse` that they describe."""

from __future__ import annotations

import argparse
import ipaddress
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from skillhouse.extension import contract
from skillhouse.floor import UnknownSkillError, nearest
from skillhouse.floor.machine import seconds_of
from skillhouse.house import Locations, Settings, Skillhouse, configured
from skillhouse.presentation.text import read_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skillhouse.approval import Channel
    from skillhouse.tools import Tool

Verb = contract.Verb
"""Of our verbs and of those that extensions add."""


class UsageError(Exception):
    """Invalid command-line usage; the message says what to change."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps examples as they are written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=80)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        if isinstance(parser, Parser):
            parser.first_page = None
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors name the nearest option and do not print a page of usage."""

    first_page: frozenset[str] | None = None
    """The options that `--help` shows, where it does not show all."""

    def shorten_help(self, *first_page: str) -> None:
        """Have `--help` show these options alone, and `--help-all` every one."""
        self.add_argument(
            "--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS,
            help="show every option"
        )  # fmt: skip
        self.first_page = frozenset({*first_page, "help", "help_all"})

    def format_help(self) -> str:
        if self.first_page is None:
            return super().format_help()
        later = [
            one for one in self._actions if one.option_strings and one.dest not in self.first_page
        ]
        said = [one.help for one in later]
        for one in later:
            one.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for one, text in zip(later, said, strict=True):
                one.help = text

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*names, **options)
        if action.nargs == "*":
            # Otherwise it is named among what is missing, with what is.
            action.required = False
        return action

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; options may also be between words of any number."""
        found, rest = self.parse_known_args(args, namespace)
        if not rest:
            return found
        if any(action.nargs == "*" for action in self._get_positional_actions()):
            return self.parse_intermixed_args(args)
        return self.error(f"unrecognized arguments: {' '.join(rest)}")

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: "):
            words = message.removeprefix("unrecognized arguments: ").split()
            known = [option for action in self._actions for option in action.option_strings]
            close = nearest(words[0].split("=")[0], known)
            hint = f"; did you mean `{close[0]}`" if close else ""
            if words[0].startswith("--scope"):
                # `list` has it; elsewhere the id of a skill says the scope.
                hint = self._scope_hint(known)
            message = f"unknown argument `{words[0]}`{hint}"
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _scope_hint(self, known: list[str]) -> str:
        if "--project" in known:
            return "; did you mean `--project`"
        names = ("skill", "skills", "name", "names")
        takes_skill = any(action.dest in names for action in self._get_positional_actions())
        return "; write it before the name: `user:NAME` or `project:NAME`" if takes_skill else ""


def add_place(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("place")
    place.add_argument("-C", dest="start", metavar="DIR", help="work as if started in DIR")
    place.add_argument(
        "--root",
        dest="roots",
        action="append",
        metavar="DIR",
        help="also look for skills below DIR; may be repeated",
    )
    place.add_argument("--profile", metavar="NAME", help="find skills as this client would")
    place.add_argument("--no-cache", action="store_true", help="read every file again")


def add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--user", default="local", metavar="NAME", help="the user that the audit log names (local)"
    )


def address(text: str) -> str:
    """Return an IP address, for argparse; a name could mean another one tomorrow."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected an IP address, got `{text}`") from None


def add_tools(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tools",
        type=tool_names,
        metavar="LIST",
        help="offer these tools only: all, skills (the tools about skills), or NAME,NAME…",
    )


def tool_names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas, for argparse."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names:
        raise argparse.ArgumentTypeError("expected all, skills, or names with commas between them")
    return names


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb that prints and takes a place."""
    add_json(parser)
    add_place(parser)


def add_skill(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument("skill", nargs=nargs, help="an id, a name or a directory name")


def places_of(options: argparse.Namespace) -> Locations:
    """Return the start directory of -C with this user's places; `UsageError` if it is none."""
    places = Locations.here(Path(options.start) if options.start else None)
    if not places.start.is_dir():
        raise UsageError(f"expected a directory after -C, got `{places.start}`")
    return places


def skill_directory(options: argparse.Namespace, given: str) -> Path:
    """Return the directory of a skill, given as such or by the name of one that is seen here."""
    place = Path(os.path.abspath(Path(options.start or ".", Path(given).expanduser())))
    if place.is_dir():
        return place.resolve()
    if os.sep not in given:
        with house_of(options) as house, suppress(UnknownSkillError):
            return Path(house.index.get(given).directory).resolve()
    raise UsageError(f"expected the directory of a skill, or the name of one, got `{given}`")


def house_of(
    options: argparse.Namespace, channel: Channel | None = None, tools: Sequence[Tool] = ()
) -> Skillhouse:
    """Return the `Skillhouse` of the place options; `UsageError` if one is no directory."""
    places = places_of(options)
    start = places.start
    for root in options.roots or ():
        if not Path(start, root).is_dir():
            raise UsageError(f"expected a directory after --root, got `{root}`")
    flags = Settings(
        profile=options.profile,
        roots=tuple(str(Path(start, root)) for root in options.roots) if options.roots else None,
        cache=False if options.no_cache else None,
        tools=getattr(options, "tools", None),
    )
    config = configured(places, flags, is_dry=getattr(options, "dry_run", False))
    return Skillhouse(config, channel=channel, tools=tools)


def positive(text: str) -> int:
    """Return a number of at least 1, for argparse."""
    return _number_from(1, text)


def natural(text: str) -> int:
    """Return a number of at least 0, for argparse."""
    return _number_from(0, text)


def _number_from(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected a number from {least}, got `{text}`")
    return number


def port(text: str) -> int:
    """Return a port number, for argparse; 0 lets the system choose."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got `{text}`")
    return int(text)


def utc_time(text: str) -> str:
    """Return what `read_time` does, also for so long ago (`7d`), for argparse."""
    if (seconds := seconds_of(text, units="mhd", digits=5)) is not None:
        moment = datetime.now(UTC) - timedelta(seconds=seconds)
        return f"{moment:%Y-%m-%dT%H:%M:%S}"
    try:
        return read_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; 12h or 7d is so long ago") from None

"""`skillhouse doctor`."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillhouse import __version__
from skillhouse.audit import AuditLog
from skillhouse.discovery import git_root
from skillhouse.floor import SkillhouseError
from skillhouse.frontends.cli.options import UsageError, add_json
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.catalog_report import catalog_notes, catalog_report
from skillhouse.frontends.presentation.client_report import COLUMNS, report
from skillhouse.frontends.presentation.lens_plain import lens_value
from skillhouse.frontends.presentation.text import shown, wrapped
from skillhouse.runtime import (
    Config,
    Locations,
    Skillhouse,
    TrustStore,
    audit_troubles,
    configured,
    file_troubles,
)
from skillhouse.runtime.client_config import Change, ClientConfigs
from skillhouse.runtime.enforcement import AUDIT_FILE
from skillhouse.runtime.lens import Lens, look, problems
from skillhouse.skill import Profile, load_profile, profile_names

EXAMPLES = """examples:
  skillhouse doctor                        every client that we know
  skillhouse doctor --client codex         only what concerns one
  skillhouse doctor --json

The report has no colours, no line over 80 columns and no path of your home: paste
it into an issue. Exit code 1 means that it found problems.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--client",
        dest="clients",
        action="append",
        metavar="NAME",
        help="only this client; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="name every skill, however many")
    add_json(parser)
    add_start(parser)


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the clients are started."""
    place = parser.add_argument_group("place")
    place.add_argument("-C", dest="start", metavar="DIR", help="look as if started in DIR")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print what each client makes of this place; 1 when something is wrong."""
    places = places_of(options)
    lens = seen_by(places, profiles_of(places, options.clients or ()))
    config = configured(places)
    found, stuck, open_files = problems(lens), audit_troubles(config), file_troubles(config)
    unsafe = unsafe_entries(places)
    catalog, notes = _catalog(config)
    if options.json:
        audit = [{"code": one.code, "message": one.message} for one in stuck]
        files = [{"code": one.code, "message": one.message} for one in open_files]
        entries = [{"client": one.client, "name": one.name, "fault": one.fault} for one in unsafe]
        value = {**lens_value(lens, found), "audit": audit, "files": files}
        value |= {"entries": entries, "catalog": catalog}
        terminal.json({"machine": machine(), **value})
    else:
        for line in report(lens, found, machine=machine(), everything=options.all):
            terminal.line(line)
        for note in notes:
            for line in wrapped(f"skillhouse: {note}", COLUMNS):
                terminal.line(line)
        for one in (*stuck, *open_files):
            terminal.line()
            for line in wrapped(f"{one.message} [{one.code}]", COLUMNS):
                terminal.line(line)
        for entry in unsafe:
            terminal.line()
            message = f"{entry.client}: the entry `{shown(entry.name)}` starts skillhouse unsafely"
            for line in wrapped(f"{message}; `skillhouse mcp status` says why", COLUMNS):
                terminal.line(line)
    return 1 if found or stuck or open_files or unsafe else 0


def _catalog(config: Config) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what the catalog's bounds leave out; nothing where a file keeps us from starting."""
    try:
        with Skillhouse(config) as house:
            view = house.view()
            found = catalog_report(view)
            return found, catalog_notes(found, view)
    except SkillhouseError as error:
        return None, [f"the catalog cannot be made: {error}"]


def unsafe_entries(places: Locations) -> tuple[Change, ...]:
    """Return the entries of clients that are not safe to start our server with."""
    state = configured(places).state_directory
    configs = ClientConfigs(
        places=places,
        project=git_root(places.start) or places.start,
        state_directory=state,
        audit=AuditLog(state / AUDIT_FILE),
    )
    return tuple(change for change in configs.status() if change.fault)


def places_of(options: argparse.Namespace) -> Locations:
    """Return where the options say that the clients are started.

    Raises:
        UsageError: that is no directory.
    """
    start = Path(options.start).absolute() if options.start else Path.cwd()
    if not start.is_dir():
        raise UsageError(f"expected a directory after -C, got `{start}`")
    return Locations(start=start, home=Path.home(), environment=os.environ)


def profiles_of(places: Locations, names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the named profiles; without names those of all clients, and our own behaviour.

    Raises:
        ConfigError: no profile has such a name, or its file is broken.
    """
    if names:
        return tuple(load_profile(name, places.profiles) for name in dict.fromkeys(names))
    known = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    clients = tuple(profile for profile in known if profile.client)
    ours = load_profile(configured(places).profile, places.profiles)
    return clients if ours in clients else (*clients, ours)


def seen_by(places: Locations, profiles: Sequence[Profile]) -> Lens:
    """Return a place as these clients see it."""
    config = configured(places)
    project = git_root(places.start) or places.start
    return look(
        start=places.start,
        home=places.home,
        environment=places.environment,
        profiles=profiles,
        trusted=TrustStore(config.state_directory).is_trusted(project),
        explicit=config.roots,
    )


def machine() -> str:
    """Return the program and the machine in one line."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"skillhouse {__version__}, {system}, Python {platform.python_version()}"

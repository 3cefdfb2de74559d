"""Which modules of the standard library a skill's code imports, and their import ahead of calls.

Loaded by cell_python.py in a cell, with the standard library only. A process that has loaded the
skill's code names modules; the process that forks imports what `allowed` leaves of them. Those
names may be anything, so nothing is imported that is not the interpreter's own, that acts when it
is imported, or that holds a secret which all forks would then share.
"""

from __future__ import annotations

import opcode
import os
import resource
import sys
from contextlib import suppress
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # The modules themselves would cost a megabyte.
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any

REFUSED = frozenset(
    {
        # They do something when they are imported, or are programs.
        *(
            "antigravity",
            "this",
            "pdb",
            "doctest",
            "idlelib",
            "turtle",
            "turtledemo",
            "tkinter",
            "lib2to3",
        ),
        *("ensurepip", "venv", "pydoc_data", "test", "tests"),
        *("site", "sitecustomize", "usercustomize"),
        *("readline", "rlcompleter", "curses", "pty", "xxlimited", "xxlimited_35", "xxsubtype"),
        # Its processes prove themselves to each other by a key that is made at the import.
        "multiprocessing",
    }
)
"""Names that are not imported ahead, nor what is in them; nor what begins with an underscore."""
REFUSED_PARTS = frozenset({"concurrent.futures.process"})
"""They import one of those."""
IMPORTED_BYTES = 24 << 20
"""Memory that the process which forks takes for such modules, about."""
ENTRIES_MAX = 10_000
"""Files of a skill that are looked at; with more, nothing is imported ahead."""
MODULE_ENDS = (".py", ".pyc", ".so")
SOURCES_MAX = 64
"""The skill's own modules whose functions are looked through for imports."""


def allowed(names: list[str], skill: str, packages: list[str]) -> list[str]:
    """Return the names to import ahead.

    There are none if a file anywhere in the skill, which may extend `sys.path`, or a package has
    the name of a module of the standard library: the code would get another module than its own.
    """
    for place in packages:
        with suppress(OSError):
            if has_standard_name(os.listdir(place)):
                return []
    looked_at = 0
    for _, directories, files in os.walk(skill):
        looked_at += len(directories) + len(files)
        modules = [name for name in files if name.endswith(MODULE_ENDS)]
        if looked_at > ENTRIES_MAX or has_standard_name([*directories, *modules]):
            return []
    return [name for name in names if is_allowed(name)]


def has_standard_name(names: list[str]) -> bool:
    return any(name.partition(".")[0] in sys.stdlib_module_names for name in names)


def is_allowed(name: str) -> bool:
    parts = name.split(".")
    return (
        parts[0] in sys.stdlib_module_names
        and REFUSED.isdisjoint(parts)
        and name not in REFUSED_PARTS
        and all(one.isidentifier() and not one.startswith("_") for one in parts)
    )


def import_one(names: list[str]) -> bool:
    """Import the first of the names and remove it; False when there is no memory for more."""
    name = names.pop(0)
    try:
        __import__(name)
    except Exception as error:  # noqa: BLE001 - this system lacks it; the skill's import says so.
        sys.stderr.write(f"{name}: {error}\n")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 < START_BYTES + IMPORTED_BYTES


STANDARD = os.path.dirname(os.__file__)
START_BYTES = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def standard_names(before: frozenset[str], place: str) -> list[str]:
    """Return the standard library's modules that were imported since, and those that functions of
    the skill's own modules would import."""
    modules = dict(sys.modules)
    names = [name for name in modules if name not in before]
    own = [one for one in modules.values() if is_below(getattr(one, "__file__", None), place)]
    for module in own[:SOURCES_MAX]:
        with suppress(Exception):
            # Code of the skill's own loader may be anything; then its names are missed.
            spec: Any = module.__spec__
            names += imported_names(spec.loader.get_code(spec.name))
    found = [name for name in dict.fromkeys(names) if is_allowed(name)]
    # With a path of its own, the skill may have a module of such a name: `allowed` cannot see that.
    return found if all(map(is_standard, {name.partition(".")[0] for name in found})) else []


def is_standard(name: str) -> bool:
    """Whether the skill gets the standard library's module by a name that is one of its names."""
    module = sys.modules.get(name)
    spec: Any = PathFinder.find_spec(name) if module is None else getattr(module, "__spec__", None)
    if spec is None:
        return module is None  # Built in, or not of this system.
    return spec.origin in ("built-in", "frozen") or is_below(spec.origin, STANDARD)


def is_below(path: Any, place: str) -> bool:
    return isinstance(path, str) and path.startswith(f"{place}/")


def imported_names(code: CodeType) -> Iterator[str]:
    """Yield the names of modules that the code imports, in its functions too."""
    import_name, extended = opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"]
    waiting = [code]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, type(code))]
        # The names that follow `from` are constants: each may be a module in the first one.
        listed = [one for one in code.co_consts if isinstance(one, tuple)]
        inner = [one for names in listed for one in names if isinstance(one, str)]
        high = 0
        data = code.co_code
        for place in range(0, len(data), 2):
            argument = high | data[place + 1]
            high = argument << 8 if data[place] == extended else 0
            if data[place] == import_name:
                name = code.co_names[argument]
                yield name
                yield from (f"{name}.{one}" for one in inner if f"{name}.{one}" in PACKAGED)


PACKAGED = frozenset(
    {
        *("concurrent.futures", "importlib.metadata", "importlib.resources", "importlib.util"),
        *("logging.config", "logging.handlers", "email.message", "email.mime", "email.utils"),
        *("http.client", "http.cookies", "http.cookiejar", "http.server", "html.parser"),
        *("urllib.error", "urllib.parse", "urllib.request", "urllib.response", "unittest.mock"),
        *("xml.dom", "xml.dom.minidom", "xml.etree", "xml.etree.ElementTree", "xml.sax", "os.path"),
        *("json.decoder", "json.encoder", "encodings.idna", "wsgiref.util", "zoneinfo"),
    }
)
"""Modules that are imported by `from package import module`."""

"""Loads the extensions of others; one that fails costs only itself.

Loading runs the extension's code with all our rights: it is what a person installed into this
environment, as our own dependencies are.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from skillhouse.extension.contract import Extension
from skillhouse.extension.entry_points import EntryPoint, find_entry_points, site_directories
from skillhouse.extension.own import OWN_EXTENSIONS
from skillhouse.floor.faults import is_of_interrupt

GROUP = "skillhouse.extensions"
TEXT_MAX = 200
"""Characters of an error's text that are repeated."""


class ExtensionFault(Struct, frozen=True, kw_only=True):
    """Why an extension, or a part of one, is not in use."""

    extension: str
    distribution: str
    message: str
    code: str = "extension-failed"
    """`extension-failed`, or `extension-clash` where a name was taken."""


class LoadedExtensions(Struct, frozen=True, kw_only=True):
    """The extensions of others that loaded, by name, and what is wrong with the others."""

    extensions: tuple[Extension, ...] = ()
    faults: tuple[ExtensionFault, ...] = ()

    def verbs(self, taken: Collection[str] = ()) -> dict[str, tuple[Extension, Any]]:
        """Return each verb with its extension; a name that is taken, or that an earlier one has,
        is left out."""
        return self._parts("verbs", taken)

    def tools(self, taken: Collection[str] = ()) -> dict[str, tuple[Extension, Any]]:
        """Return what makes each tool, likewise."""
        return self._parts("tools", taken)

    def sections(self, taken: Collection[str] = ()) -> dict[str, tuple[Extension, Any]]:
        """Return each section of the configuration, likewise."""
        found: dict[str, tuple[Extension, Any]] = {}
        for one in self.extensions:
            if one.section is not None and one.section.name not in taken:
                found.setdefault(one.section.name, (one, one.section))
        return found

    def _parts(self, kind: str, taken: Collection[str]) -> dict[str, tuple[Extension, Any]]:
        found: dict[str, tuple[Extension, Any]] = {}
        for one in self.extensions:
            for name, part in getattr(one, kind).items():
                if name not in taken:
                    found.setdefault(name, (one, part))
        return found

    def clashes(
        self, *, verbs: Collection[str], tools: Collection[str], sections: Collection[str]
    ) -> tuple[ExtensionFault, ...]:
        """Return a fault for each part whose name is ours, or that of an earlier extension."""
        found: list[ExtensionFault] = []
        ours: Mapping[str, Collection[str]] = {"verb": verbs, "tool": tools, "section": sections}
        first: dict[tuple[str, str], str] = {}
        for one in self.extensions:
            section = [] if one.section is None else [one.section.name]
            parts: Mapping[str, Iterable[str]] = {
                "verb": one.verbs, "tool": one.tools, "section": section
            }  # fmt: skip
            for kind, names in parts.items():
                for name in names:
                    owner = "skillhouse" if name in ours[kind] else first.get((kind, name), "")
                    first.setdefault((kind, name), one.name)
                    if owner:
                        message = (
                            f"its {kind} `{_shown(name)}` is left out: `{owner}` has that name"
                        )
                        found.append(
                            ExtensionFault(
                                extension=one.name,
                                distribution="",
                                message=message,
                                code="extension-clash",
                            )
                        )
        return tuple(found)


def load_extensions(directories: Sequence[str] | None = None) -> LoadedExtensions:
    """Return the extensions in these site directories; in those of this interpreter when None."""
    places = site_directories() if directories is None else directories
    loaded: dict[str, Extension] = {}
    faults: list[ExtensionFault] = []
    for entry in find_entry_points(GROUP, places):
        fault = entry.fault
        if not fault and (entry.name in OWN_EXTENSIONS or entry.name in loaded):
            owner = "skillhouse" if entry.name in OWN_EXTENSIONS else "another distribution"
            fault = f"the name is taken: {owner} has an extension of that name"
        if not fault:
            found = _loaded(entry)
            if isinstance(found, Extension):
                loaded[entry.name] = found
                continue
            fault = found
        faults.append(
            ExtensionFault(
                extension=_shown(entry.name), distribution=_shown(entry.distribution), message=fault
            )
        )
    return LoadedExtensions(extensions=tuple(loaded.values()), faults=tuple(faults))


def _loaded(entry: EntryPoint) -> Extension | str:
    """Return the extension, or why there is none."""
    try:
        found = getattr(_module(entry.module), entry.attribute, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, Exception) and is_of_interrupt(error):
            raise KeyboardInterrupt from error
        return f"it does not load: {type(error).__name__}: {_shown(str(error))}"
    if not isinstance(found, Extension):
        kind = type(found).__name__
        return f"expected an `Extension` in `{entry.module}:{entry.attribute}`, got {kind}"
    if found.name != entry.name:
        return f"it is called `{_shown(found.name)}`; its entry point says `{entry.name}`"
    return _checked(found)


def _checked(found: Extension) -> Extension | str:
    try:
        names: list[object] = [*found.verbs, *found.tools]
        if found.section is not None:
            names.append(found.section.name)
        wrong = [one for one in names if not isinstance(one, str) or not _is_word(one)]
    except Exception as error:  # noqa: BLE001 - its tables are its own objects.
        return f"its tables cannot be read: {type(error).__name__}: {_shown(str(error))}"
    return f"a name cannot be one: {_shown(repr(wrong[0]))}" if wrong else found


def _is_word(name: str) -> bool:
    return name.replace("-", "_").isidentifier() and name.isascii() and not name.startswith("-")


def _module(name: str) -> Any:
    """Import a module; its package is not looked for where a project could put one.

    Raises:
        ModuleNotFoundError: no directory of `sys.path` has it but those that a project can choose.
    """
    top = name.partition(".")[0]
    if top not in sys.modules:
        path = _trusted_path()
        found = (finder.find_spec(top, path) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"no module named `{top}`", name=top)
        module = importlib.util.module_from_spec(spec)
        sys.modules[top] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(top, None)
            raise
    return importlib.import_module(name)


def _trusted_path() -> list[str]:
    """Return `sys.path` without relative entries, the current directory and `PYTHONPATH`.

    Whoever develops an extension installs it, which adds a line of its own (`pip install -e`).
    """
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # By what it leads to: a link is another name of the same directory.
    chosen = {os.path.realpath(one) for one in asked if one}
    here = os.path.realpath(os.getcwd())
    if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == here:
        chosen.add(here)
    return [e for e in sys.path if os.path.isabs(e) and os.path.realpath(e) not in chosen]


def _shown(text: str) -> str:
    """Return a text of others in one line, without what could control a terminal."""
    line = " ".join(text.split())[:TEXT_MAX]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)

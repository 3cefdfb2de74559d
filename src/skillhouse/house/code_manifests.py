"""What is known of skills' code before it runs: which tools are offered, and why one is not.

The declared tools that no code exports are noted for all processes of the state, with the signal to
reload, in one file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import Struct, field

from skillhouse.floor import (
    DecodeError,
    Diagnostic,
    Severity,
    TreeError,
    WireNameError,
    decode,
    encode,
    file_stamp,
    make_private,
    tree_digest,
    wire_name,
)
from skillhouse.floor.lock import locked_file
from skillhouse.floor.paths import sendable
from skillhouse.floor.structs import replace
from skillhouse.house.trusted_text import PROJECT

if TYPE_CHECKING:
    from skillhouse.approval import Level
    from skillhouse.skill import ManifestResult, SkillManifest


RELOADS_FILE = "reloads"
LOCK_FILE = "reloads.lock"
VERSION = 1


class Lacking(Struct, frozen=True, kw_only=True):
    """What one tree of code does not export, although its manifest declares it."""

    digest: str
    """Of the tree: other code may have it."""
    tools: tuple[str, ...]
    """Empty: it was looked at, and exports all that is declared, where it loads."""
    error: str = ""
    """Why it did not load; empty where it did."""


class _SharedReloads(Struct, frozen=True, kw_only=True):
    """The file that the processes share."""

    version: int = VERSION
    count: int = 0
    lacking: Mapping[str, Lacking] = field(default_factory=dict)
    """By the skill's directory, see `_key`."""


ERROR_MAX = 1_000
"""Characters of an error that is kept: it is the skill's own text."""


_OF_THE_SKILL = frozenset(
    "skill-failed dependencies-lock dependencies-unhashed dependencies-source "
    "dependencies-line dependencies-many dependencies-overrides".split()
)
"""Codes of errors that the same bytes give again; others are of the machine or the moment."""


def failed_load(digest: str, code: str, message: str) -> Lacking | None:
    """Return what is remembered of code that did not load; None where the skill is not to blame."""
    if code not in _OF_THE_SKILL:
        return None
    text = " ".join(message.split())
    text = "".join(c if c.isprintable() else "?" for c in text)[:ERROR_MAX]
    return Lacking(digest=digest, tools=(), error=text)


class Reloads:
    """A file in the state directory; each process sees by its date that it is another one.

    It is a cache: one that is lost, broken or newer counts as empty, and what code lacks is found
    out again.
    """

    def __init__(self, state_directory: Path) -> None:
        self._directory = state_directory
        self._path = state_directory / RELOADS_FILE
        self._seen = file_stamp(self._path)

    def is_new(self) -> bool:
        """Whether a signal was written since the last call; costs one `stat`."""
        before, self._seen = self._seen, file_stamp(self._path)
        return self._seen != before

    def lacking(self) -> Callable[[Path], Lacking | None]:
        """Return a lookup by skill directory, from one reading of the file."""
        found = self._read().lacking
        return lambda directory: found.get(_key(directory))

    def signal_all(self) -> None:
        """Signal each process to reload, and forget missing tools; complete skills are kept."""
        with self._locked() as kept:
            is_whole = {place: not (one.tools or one.error) for place, one in kept.lacking.items()}
            whole = {place: one for place, one in kept.lacking.items() if is_whole[place]}
            self._write(_SharedReloads(count=kept.count + 1, lacking=whole))

    def note(self, lacking: Mapping[Path, Lacking]) -> None:
        """Add findings; signal each process to reload if they change anything."""
        with self._locked() as kept:
            found = {place: one for place, one in kept.lacking.items() if os.path.isdir(place)}
            found.update({_key(place): one for place, one in lacking.items()})
            if found != kept.lacking:
                self._write(_SharedReloads(count=kept.count + 1, lacking=found))

    @contextmanager
    def _locked(self) -> Iterator[_SharedReloads]:
        make_private(self._directory)
        with locked_file(self._directory / LOCK_FILE):
            yield self._read()

    def _read(self) -> _SharedReloads:
        try:
            found = decode(self._path.read_bytes(), _SharedReloads)
        except (OSError, DecodeError):
            return _SharedReloads()
        return found if found.version == VERSION else _SharedReloads()

    def _write(self, kept: _SharedReloads) -> None:
        # Replaced as a whole, so that a reader never meets half of it, and its inode is another.
        new = self._directory / f"{RELOADS_FILE}.{os.getpid()}"
        new.touch(0o600)
        new.write_bytes(encode(kept))
        os.replace(new, self._path)


def _key(directory: Path) -> str:
    """Return a directory as a text that can be written, whatever bytes its name has."""
    return sendable(os.fspath(directory))


Found: TypeAlias = "tuple[tuple[str, ManifestResult], ...]"
"""The manifests below the roots, each with the scope of its root."""


class NamedCode(NamedTuple):
    """A skill with code, as a person names it."""

    scope: str
    manifest: SkillManifest
    directory: Path


def code_named(found: Found, reference: str) -> NamedCode | None:
    """Return the strongest skill with code of this name, id or directory; None for none."""
    for scope, result in found:
        manifest = result.manifest
        if manifest is not None and reference in (
            manifest.name,
            f"{scope}:{manifest.name}",
            str(result.directory),
        ):
            return NamedCode(scope, manifest, result.directory)
    return None


def why_absent(name: str, found: Found) -> str:
    """Return why no tool has this name although its skill is there; "" where it is not."""
    skill, _, tool = name.replace("__", ":", 1).partition(":")
    if not tool:
        return ""
    for scope, result in found:
        known = result.directory.name if result.manifest is None else result.manifest.name
        if skill not in (known, result.directory.name):
            continue
        faults = [one for one in result.diagnostics if one.severity is Severity.ERROR]
        if result.manifest is None and faults and scope == PROJECT:
            # A finding quotes the manifest, which may be other text than a person trusted.
            return f"the skill `{skill}` cannot be loaded; `skillhouse reload` says why"
        if result.manifest is None and faults:
            return f"the skill `{skill}` cannot be loaded: {_placed(faults[0])}"
        lacks = [one for one in result.diagnostics if f"`{tool}`" in one.message]
        if lacks:
            return f"the skill `{skill}` does not offer it: {_placed(lacks[0])}"
    return ""


def _placed(found: Diagnostic) -> str:
    """Return a finding with its file and line, in one line of printable text for a model."""
    file = "" if found.path is None else found.path.name
    line = "" if found.line is None else f":{found.line}"
    text = " ".join(f"{file}{line}: {found.message}".removeprefix(": ").split())[:500]
    return "".join(c if c.isprintable() else "?" for c in text)


def clash(error: WireNameError, directory: Path) -> Diagnostic:
    return Diagnostic(
        code="tool-name-taken",
        severity=Severity.ERROR,
        message=str(error),
        path=directory,
    )


def without_missing(result: ManifestResult, lacking: Lacking | None) -> ManifestResult:
    """Return a result without tools that this very code lacks (S002-40)."""
    manifest = result.manifest
    if manifest is None or lacking is None or not lacking.tools:
        return result
    if not is_of(lacking, result.directory):
        return result
    warnings = tuple(
        Diagnostic(
            code="tool-not-exported",
            severity=Severity.WARNING,
            message=f"the manifest declares `{tool.name}`, and `{manifest.entry}` does not export "
            "it; it is not offered",
            path=result.directory / manifest.entry,
        )
        for tool in manifest.tools
        if tool.name in lacking.tools
    )
    tools = tuple(tool for tool in manifest.tools if tool.name not in lacking.tools)
    return replace(
        result,
        manifest=replace(manifest, tools=tools),
        diagnostics=result.diagnostics + warnings,
    )


def is_of(lacking: Lacking, directory: Path) -> bool:
    try:
        return tree_digest(directory) == lacking.digest
    except (TreeError, OSError):
        return False


def least_levels(levels: Mapping[str, Level], skill: str) -> Mapping[str, Level]:
    """Return the operator's least levels of one skill's tools, by their names; "" is all of them.

    >>> least_levels({"dex:swap": "sign", "dex": "write", "other": "write"}, "dex")
    {'swap': 'sign', '': 'write'}
    """
    pairs = ((*key.partition(":"), level) for key, level in levels.items())
    return {tool: level for name, _, tool, level in pairs if name == skill}


def levels_of_unknown_tools(
    levels: Mapping[str, Level], manifests: Iterable[SkillManifest]
) -> list[Diagnostic]:
    """Return a warning for each level that names no tool, such as a typing error."""
    known = {
        name
        for manifest in manifests
        for name in (manifest.name, *(f"{manifest.name}:{tool.name}" for tool in manifest.tools))
    }
    return [
        Diagnostic(
            code="level-of-nothing",
            severity=Severity.WARNING,
            message=f"`levels` below `[skill_code]` names `{name}`, and there is no such tool",
        )
        for name in levels
        if name not in known
    ]


def may_start_early(tool: str, found: Found) -> bool:
    """Whether a tool is of a Python skill whose cell shows nothing but the skill."""
    return any(
        tool in (f"{manifest.name}:{spec.name}", wire_name(manifest.name, spec.name))
        for _, result in found
        if (manifest := result.manifest) is not None
        and manifest.language == "python"
        and not manifest.dependencies
        and not manifest.hosts
        for spec in manifest.tools
    )

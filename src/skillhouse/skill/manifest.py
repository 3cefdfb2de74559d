"""Reads the manifest of an executable skill; nothing of the skill is imported or run for it.

A directory is an executable skill when its package.json has the field `owliabot`, or its
pyproject.toml the table `[tool.skillhouse]`. Either may stand beside a SKILL.md. Both at once are
an error: with two lists of tools under one name it would be up to the reader which one counts. A
package.json or pyproject.toml that claims nothing is an ordinary package: no skill where
directories are searched, part of a Markdown skill where a SKILL.md is beside it, and an error
(S002-32) where its directory is named as a skill.

`ManifestCache` remembers manifests between two looks, and reads those of changed files alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from skillhouse.floor import (
    InternalFaultError,
    PathError,
    as_error,
    is_utf8,
    open_beneath,
    read_beneath,
)
from skillhouse.floor.documents import DocumentError, json_value, toml_table
from skillhouse.floor.ownership import is_settled
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.skill.manifest_fields import Keys, LineOf, RawManifest, mapping_at, read_fields
from skillhouse.skill.model import SKILL_FILE, ManifestResult, SkillManifest
from skillhouse.skill.profile import line_of_key
from skillhouse.skill.skill_file import placed
from skillhouse.skill.source import FileRefusedError, Finding, decoded

JAVASCRIPT_FILE = "package.json"
"""Manifest of a skill in JavaScript (S002-24)."""
PYTHON_FILE = "pyproject.toml"
"""Manifest of a skill in Python, in the manner of its language."""
MANIFEST_FILES = (JAVASCRIPT_FILE, PYTHON_FILE)

TABLE = ("tool", "skillhouse")
"""The table that makes a project a skill (pyproject.toml keeps `tool.*` for such)."""


FIELD = "owliabot"
"""The key that makes a package a skill (S002-24)."""

_MARKS = {JAVASCRIPT_FILE: FIELD.encode(), PYTHON_FILE: TABLE[1].encode()}
_SEEMS = {
    JAVASCRIPT_FILE: regex(r'"owliabot"\s*+:\s*+\{'),
    PYTHON_FILE: regex(
        r"""(?m)^\ufeff?[ \t]*+\[\[?[ \t]*+tool[ \t]*+\.[ \t]*+skillhouse[ \t]*+[\].]"""
    ),
}
"""What makes a file that cannot be parsed a skill's, so that its author hears what is wrong."""


def says_skill(file: str, data: bytes) -> bool:
    """Whether a manifest says that its directory is an executable skill, well or badly.

    An ordinary package does not, whatever it is called and depends on, and however broken it is.

    Args:
        file: The name of the file.
        data: Its beginning; what is cut is judged as a file that cannot be parsed.

    >>> says_skill("package.json", b'{"owliabot": {"tools": []}}')
    True
    >>> says_skill("package.json", b'{"dependencies": {"owliabot": "^1"}}')
    False
    """
    mark = _MARKS.get(file)
    # Most packages end here; a backslash, because a key may be spelled by escapes.
    if mark is None or (mark not in data and b"\\u" not in data):
        return False
    text = data.decode("utf-8-sig", errors="replace")
    try:
        if file == JAVASCRIPT_FILE:
            table = json_value(text)
            return isinstance(table, dict) and FIELD in table
        tools = _toml_table(text).get("tool")
        return isinstance(tools, dict) and TABLE[1] in tools
    except DocumentError:
        return _SEEMS[file].search(text) is not None


@lru_cache(maxsize=1)
def _toml_table(text: str) -> dict[str, Any]:
    """Return a table that no caller changes: one manifest is parsed for up to three of them."""
    return toml_table(text)


def read_python(text: str) -> RawManifest | None:
    """Take a pyproject.toml apart; None when it does not say that it is a skill."""
    try:
        table = _toml_table(text)
    except DocumentError as error:
        raise FileRefusedError("manifest-syntax", error.reason, error.line) from error
    tools = table.get("tool")
    if not isinstance(tools, dict) or TABLE[1] not in tools:
        return None
    line_of = partial(line_of_key, text)
    project = mapping_at(table, "project", (), line_of)
    return RawManifest(
        language="python",
        package={**project, "author": _author(project), "license": _license(project)},
        package_keys=("project",),
        own=mapping_at(tools, TABLE[1], TABLE[:1], line_of),
        own_keys=TABLE,
        dependencies=_dependencies(project, line_of),
        line_of=line_of,
    )


def _author(project: Mapping[str, Any]) -> str:
    """Return the names in `authors` as one text; they are for show only."""
    authors = project.get("authors")
    listed = authors if isinstance(authors, list) else []
    names = [one.get("name") for one in listed if isinstance(one, dict)]
    return ", ".join(name for name in names if isinstance(name, str))


def _license(project: Mapping[str, Any]) -> Any:
    """Return the licence's expression, or the text or file of its older form."""
    value = project.get("license")
    return value.get("text") or value.get("file") if isinstance(value, dict) else value


def _dependencies(project: Mapping[str, Any], line_of: LineOf) -> tuple[str, ...]:
    dependencies = project.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
        line = line_of(("project", "dependencies"))
        raise FileRefusedError(
            "manifest-type", "expected `dependencies` to be a list of texts", line
        )
    return tuple(dependencies)


_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


def read_javascript(text: str) -> RawManifest | None:
    """Take a package.json apart; None when it does not say that it is a skill."""
    try:
        table = json_value(text)
    except DocumentError as error:
        raise FileRefusedError("manifest-syntax", error.reason, error.line) from error
    if not isinstance(table, dict):
        raise FileRefusedError("manifest-syntax", "expected a JSON object", 1)
    if FIELD not in table:
        return None
    author = table.get("author")
    if isinstance(author, dict):
        # The standard's long form; what a person is called is all that is carried along.
        author = author.get("name")
    line_of = partial(line_at, text)
    own = mapping_at(table, FIELD, (), line_of)
    dependencies = mapping_at(table, "dependencies", (), line_of)
    return RawManifest(
        language="javascript",
        package={**table, "author": author},
        package_keys=(),
        own=own,
        own_keys=(FIELD,),
        dependencies=tuple(f"{name}@{wanted}" for name, wanted in sorted(dependencies.items())),
        line_of=line_of,
    )


def line_at(text: str, keys: Keys) -> int:
    """Return the line at which the value at `keys` begins, or the deepest one that is there."""
    at = _past_blanks(text, 0)
    for key in keys:
        child = _child(text, at, key)
        if child is None:
            break
        at = child
    return text.count("\n", 0, at) + 1


def _child(text: str, at: int, key: str) -> int | None:
    """Return where the value under `key` begins in the object or list at `at`; text is JSON."""
    opening, place = text[at], 0
    if opening not in "{[":
        return None
    at = _past_blanks(text, at + 1)
    while text[at] not in "}]":
        name = str(place)
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _past_blanks(text, _past_blanks(text, at) + 1)
        if name == key:
            return at
        at = _past_blanks(text, _DECODER.raw_decode(text, at)[1])
        place += 1
        if text[at] == ",":
            at = _past_blanks(text, at + 1)
    return None


def _past_blanks(text: str, at: int) -> int:
    while text[at] in _BLANKS:
        at += 1
    return at


MANIFEST_MAX = 262_144
"""Bytes of a manifest, as of a SKILL.md (docs/reference/limits.md)."""
DIRECTORIES_MAX = 2_000
"""Directories of one root that are looked at (docs/reference/limits.md)."""

_READERS: Mapping[str, Callable[[str], RawManifest | None]] = {
    JAVASCRIPT_FILE: read_javascript,
    PYTHON_FILE: read_python,
}
_CLAIMS = {JAVASCRIPT_FILE: "a field `owliabot`", PYTHON_FILE: "a table `[tool.skillhouse]`"}
_SKIPPED = frozenset({"node_modules", "__pycache__"})

StepListener = Callable[[Path, str], None]
"""Hears of a directory which step of its start was taken: read, parsed, validated (S002-52)."""


def has_manifest(directory: Path) -> bool:
    """Whether a file here says that the directory is an executable skill (`says_skill`)."""
    return bool(_said(directory))


def _said(directory: Path) -> list[str]:
    """Return the files that say so; a link, a device and what cannot be read say nothing."""
    said = []
    for file in MANIFEST_FILES:
        with contextlib.suppress(PathError, OSError):
            if says_skill(file, read_beneath(directory, file, max_bytes=MANIFEST_MAX)):
                said.append(file)
    return said


def read_manifest(directory: Path, *, on_step: StepListener = lambda _, __: None) -> ManifestResult:
    """Return what the manifest in `directory` says; never raises for what is there.

    A Markdown skill without tools of its own has neither a manifest nor findings, whatever its
    package.json is worth. The callback hears of each step that succeeds.
    """
    place = Path(directory)
    said = _said(place)
    judged = said if said or (place / SKILL_FILE).is_file() else MANIFEST_FILES
    claims: list[tuple[str, RawManifest | None, list[Finding]]] = []
    silent: list[str] = []
    for file in judged:
        try:
            text = _text(place, file)
            on_step(place, "read")
            written = _READERS[file](text)
        except FileNotFoundError:
            continue
        except FileRefusedError as refusal:
            claims.append((file, None, [refusal.finding]))
        except Exception as error:  # noqa: BLE001 - the edge of one manifest of many.
            claims.append((file, None, [_fault(error)]))
        else:
            if written is None:
                silent.append(file)
            else:
                on_step(place, "parsed")
                claims.append((file, written, []))
    if not claims:
        return _nothing(place, silent)
    if len(claims) > 1:
        message = f"expected one manifest, got {JAVASCRIPT_FILE} and {PYTHON_FILE}"
        claims[0][2].append(Finding("manifest-twice", message, fatal=True))
    file, written, findings = claims[0]
    manifest = None
    if written is not None and not findings:
        try:
            manifest, findings = _judged(place, written)
        except Exception as error:  # noqa: BLE001 - as above.
            findings = [_fault(error)]
        if manifest is not None:
            on_step(place, "validated")
    diagnostics = placed(findings, place / file)
    for other, _, more in claims[1:]:
        diagnostics += placed(more, place / other)
    return ManifestResult(directory=place, manifest=manifest, diagnostics=diagnostics)


def _fault(error: Exception) -> Finding:
    return Finding(InternalFaultError.code, str(as_error(error)), fatal=True)


def find_manifests(
    root: Path,
    *,
    max_directories: int = DIRECTORIES_MAX,
    on_step: StepListener = lambda _, __: None,
    look: Callable[[Path, StepListener], ManifestResult | None] | None = None,
) -> tuple[ManifestResult, ...]:
    """Return the skills directly below `root`, sorted by their directories' names (S002-6).

    A directory counts where its manifest says so (`says_skill`), whether it can be used or not.
    Links and hidden directories are not entered, and a bad one costs no other (S002-54). Of two
    skills of one name neither is in force (S002-72): otherwise a new directory could take over the
    tools of an old one. `look` reads one directory, and remembers those that have not changed.
    """
    try:
        with os.scandir(root) as entries:
            names = [e.name for e in entries if _is_entered(e)]
    except FileNotFoundError:
        return ()
    except OSError as error:
        message = (error.strerror or str(error)).lower()
        return (_only(root, Finding("unreadable", message, fatal=True), root),)
    names.sort()
    found = ((look or _look)(root / name, on_step) for name in names[:max_directories])
    results = [result for result in found if result is not None]
    if len(names) > max_directories:
        message = f"stopped after {max_directories} directories; narrow the root"
        results.append(_only(root, Finding("scan-limit", message), root))
    return _without_twins(results)


def _look(directory: Path, on_step: StepListener) -> ManifestResult | None:
    return read_manifest(directory, on_step=on_step) if has_manifest(directory) else None


def _is_entered(entry: os.DirEntry[str]) -> bool:
    return (
        not entry.name.startswith(".")
        and entry.name not in _SKIPPED
        and is_utf8(entry.name)
        and entry.is_dir(follow_symlinks=False)
    )


def _without_twins(results: list[ManifestResult]) -> tuple[ManifestResult, ...]:
    """Return the results, skills of one name refused with the places of both."""
    by_name: dict[str, list[Path]] = {}
    for result in results:
        if result.manifest is not None:
            # Where case does not count, as on some file systems, these would be one directory.
            by_name.setdefault(result.manifest.name.casefold(), []).append(result.directory)
    return tuple(_refused(result, by_name) for result in results)


def _refused(result: ManifestResult, by_name: Mapping[str, list[Path]]) -> ManifestResult:
    manifest = result.manifest
    if manifest is None or len(by_name[manifest.name.casefold()]) == 1:
        return result
    places = ", ".join(f"`{twin}`" for twin in by_name[manifest.name.casefold()])
    message = f"the name `{manifest.name}` is taken more than once: {places}"
    file = result.directory / (PYTHON_FILE if manifest.language == "python" else JAVASCRIPT_FILE)
    refusal = Finding("duplicate", message, fatal=True).diagnostic(file)
    return replace(result, manifest=None, diagnostics=(*result.diagnostics, refusal))


def _text(directory: Path, file: str) -> str:
    """Return a manifest's text; FileNotFoundError, or FileRefusedError for what is no such file."""
    try:
        data = read_beneath(directory, file, max_bytes=MANIFEST_MAX)
    except PathError as error:
        if error.code == "not-found":
            raise FileNotFoundError(file) from error
        raise FileRefusedError(error.code, f"expected {file} to be a regular file") from error
    except OSError as error:
        raise FileRefusedError("unreadable", (error.strerror or str(error)).lower()) from error

    if len(data) > MANIFEST_MAX:
        raise FileRefusedError("too-large", f"expected at most {MANIFEST_MAX} bytes of {file}")
    return decoded(data)


def _nothing(directory: Path, silent: list[str]) -> ManifestResult:
    if (directory / SKILL_FILE).is_file():
        return ManifestResult(directory=directory, manifest=None)
    if not silent:
        message = f"no {JAVASCRIPT_FILE} or {PYTHON_FILE} here"
        return _only(directory, Finding("manifest-missing", message, fatal=True), directory)
    message = f"expected {_CLAIMS[silent[0]]}"
    finding = Finding("manifest-field-missing", message, fatal=True)
    return _only(directory, finding, directory / silent[0])


def _only(directory: Path, finding: Finding, path: Path) -> ManifestResult:
    return ManifestResult(
        directory=directory, manifest=None, diagnostics=(finding.diagnostic(path),)
    )


def _judged(directory: Path, written: RawManifest) -> tuple[SkillManifest | None, list[Finding]]:
    try:
        manifest, findings = read_fields(written)
    except FileRefusedError as refusal:
        return None, [refusal.finding]
    if manifest is None:
        return None, findings
    try:
        # Links are refused also where they stay inside: the code that was vetted is the code here.
        os.close(open_beneath(directory, manifest.entry))
    except PathError as error:
        said = {"not-found": "there is no", "path-link": "a symbolic link leads to"}
        message = f"{said.get(error.code, 'cannot read')} `{manifest.entry}`, the module to import"
        findings.append(Finding(f"entry-{error.code.removeprefix('path-')}", message, fatal=True))
        return None, findings
    return manifest, findings


Stamp = tuple[int, ...]


class _KnownManifest(Struct, frozen=True, kw_only=True):
    result: ManifestResult | None
    """None of a directory without a manifest that says so."""
    stamps: tuple[Stamp, ...]


class ManifestCache:
    """What `read` found, by directory; any thread may ask.

    A manifest that cannot be used is read each time: what is wrong may be anywhere.
    """

    def __init__(self) -> None:
        self._known: dict[Path, _KnownManifest] = {}

    def clear(self) -> None:
        """Have everything read again."""
        self._known = {}

    def read(self, directory: Path, on_step: StepListener) -> ManifestResult | None:
        """Return what the manifest in a directory says; None where no file says that it is one.

        The listener hears of what is read now.
        """
        known = self._known.get(directory)
        if known is not None and known.stamps == tuple(_stamps(directory, known.result)):
            return known.result
        began = time.time_ns()
        result = read_manifest(directory, on_step=on_step) if has_manifest(directory) else None
        stamps = tuple(_stamps(directory, result))
        times = [time_ns for stamp in stamps for time_ns in stamp[:2]]
        is_usable = result is None or result.manifest is not None
        if is_usable and (not times or is_settled(*times, now=began)):
            self._known[directory] = _KnownManifest(result=result, stamps=stamps)
        else:
            self._known.pop(directory, None)
        return result


def _stamps(directory: Path, result: ManifestResult | None) -> Iterator[Stamp]:
    """Yield what changes when a file that the manifest depends on is written or replaced."""
    names = [*MANIFEST_FILES, SKILL_FILE]
    if result is not None and result.manifest is not None:
        entry = PurePosixPath(result.manifest.entry)
        # A directory on the way may become a link, which is refused.
        names += [str(entry), *(str(one) for one in entry.parents if one.name)]
    for name in names:
        try:
            info = os.lstat(os.path.join(directory, name))
        except OSError:
            yield ()
        else:
            yield (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_mode)

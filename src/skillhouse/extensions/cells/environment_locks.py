"""Lock files of skills, parsed strictly and rewritten, so that installers see only what we saw.

A lock file comes from a skill. As it is, it could name servers, local files, repositories and
options (`--index-url`, `file:`, `git+https:`, a `.npmrc` beside it), and an installer would obey.
So each line is taken apart by a grammar that has none of these, and what an installer gets is
written from the parts: names, exact versions, digests, platforms. Where packages come from is the
operator's own setting.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skillhouse.floor import PathError, read_beneath
from skillhouse.floor.regex import regex
from skillhouse.sandbox import SandboxError

LOCK_MAX = 4_194_304
"""Bytes of a lock file."""
HEAD_BYTES = 8_192
"""Bytes at the beginning of a lock in which its versions of Python are looked for."""
PACKAGES_MAX = 2_000
"""Packages that one skill may need, transitive ones included."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?"
_SPECIFIER = r"(?:===?|[<>!~]=|<|>)[ ]?[A-Za-z0-9.+!_*-]{1,64}"
# pip takes a line apart at blanks, also inside quotes: no piece may begin with a hyphen.
_MARKER = r"(?:[a-z_]{1,40}+|'[\w.+*!-]{0,80}'|\"[\w.+*!-]{0,80}\"|[()<>=!~]{1,3}+)"
_REQUIREMENT = regex(
    rf"(?P<name>{_NAME})(?P<extras>\[[A-Za-z0-9.,_-]{{1,200}}\])?"
    rf"[ ]?(?P<specifier>{_SPECIFIER}(?:[ ]?,[ ]?{_SPECIFIER}){{0,9}})?"
    rf"(?:[ ]?;[ ]?(?P<marker>{_MARKER}(?:[ ]?{_MARKER}){{0,200}}+))?"
    r"(?P<hashes>(?:[ ]--hash=sha(?:256|384|512):[0-9a-f]{64,128}){0,400}+)"
)
_PINNED = regex(r"==[ ]?[A-Za-z0-9.+!_-]{1,64}")

_PACKAGE = r"(?:@[a-z0-9~][a-z0-9._~-]{0,99}/)?[A-Za-z0-9~_][A-Za-z0-9._~-]{0,99}"
_PACKAGE_NAME = regex(_PACKAGE)
_PACKAGE_PLACE = regex(rf"node_modules/{_PACKAGE}(?:/node_modules/{_PACKAGE}){{0,20}}")
_RANGE = regex(rf"(?:npm:{_PACKAGE}@)?[\w.+^~<>=|* -]{{0,200}}")
_INTEGRITY = regex(r"sha(?:256|384|512)-[A-Za-z0-9+/]{40,90}={0,2}")
_TARBALL = regex(r"https?://")

LOCKS = {
    # By language: each lock, and the manifest that belongs to it.
    "python": (("uv.lock", ""), ("requirements.txt", "")),
    "javascript": (("package-lock.json", "package.json"),),
}

_LOCKED_PYTHON = regex(r"^requires-python = \"([^\"\n]{0,200})\"$", re.MULTILINE)

_RANGES = ("dependencies", "optionalDependencies", "peerDependencies", "devDependencies")
_FLAGS = ("dev", "optional", "devOptional", "peer", "inBundle", "hasInstallScript")
_LISTS = ("os", "cpu", "libc", "bundleDependencies")


def clean_requirements(text: str, *, unhashed: bool = False) -> str:
    """Return a requirements file of nothing but pinned names with their digests.

    Args:
        text: The file as it is, or what `uv export` made of a uv.lock.
        unhashed: Take lines without digests, and ranges of versions.
    """
    requirements = []
    for number, line in _logical_lines(text):
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            message = f"line {number}: expected `name==version --hash=sha256:…`, got {line[:80]!r}"
            raise SandboxError("dependencies-line", message)
        if not unhashed and not (match["hashes"] and _PINNED.fullmatch(match["specifier"] or "")):
            message = f"line {number}: expected an exact version with its hash: {line[:80]!r}"
            raise SandboxError("dependencies-unhashed", message)
        marker = f" ; {match['marker'].strip()}" if match["marker"] else ""
        # One spelling each (PEP 503), so that equal locks give equal digests.
        project = re.sub(r"[-_.]+", "-", match["name"]).lower()
        name = project + f"{match['extras'] or ''}{match['specifier'] or ''}".replace(" ", "")
        requirements.append(f"{name}{marker}{match['hashes']}\n")
    if len(requirements) > PACKAGES_MAX:
        raise SandboxError("dependencies-many", f"expected at most {PACKAGES_MAX} packages")
    return "".join(sorted(requirements))


def has_lock(language: str, directory: Path) -> bool:
    """Whether something has the name of a lock, usable or not."""
    return any(os.path.lexists(directory / file) for file, _ in LOCKS[language])


def locked_python(directory: Path) -> str:
    """Return the versions of Python that a uv.lock was made for; empty without one.

    uv writes them before the first package. A lock for other versions may lack packages.
    """
    try:
        head = read_beneath(directory, "uv.lock", max_bytes=HEAD_BYTES).partition(b"[[")[0]
    except PathError:
        return ""
    match = _LOCKED_PYTHON.search(head.decode("utf-8", "replace"))
    return match[1] if match else ""


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return (number, text) of each line that says something, continued lines as one."""
    lines: list[tuple[int, str]] = []
    start, parts = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        start = start if parts else number
        bare = "" if line.lstrip().startswith("#") else line.partition(" #")[0].rstrip()
        if bare.endswith("\\"):
            parts += bare[:-1] + " "
            continue
        whole = " ".join((parts + bare).split())
        parts = ""
        if whole:
            lines.append((start, whole))
    if parts.strip():
        lines.append((start, " ".join(parts.split())))
    return lines


def clean_npm(package: str, lock: str) -> tuple[str, str]:
    """Return a package.json and a package-lock.json of nothing but packages with their digests.

    No script, no address and no setting is left of them; packages from elsewhere, links,
    workspaces and what has no SHA-2 digest are refused by name.
    """
    manifest, locked = _table(package, "package.json"), _table(lock, "package-lock.json")
    places = locked.get("packages")
    if locked.get("lockfileVersion") not in (2, 3) or not isinstance(places, dict):
        message = "expected a package-lock.json of version 2 or 3 (npm 7 or later)"
        raise SandboxError("dependencies-lock", message)
    if len(places) > PACKAGES_MAX:
        raise SandboxError("dependencies-many", f"expected at most {PACKAGES_MAX} packages")
    root = {"name": "skill", "version": "0.0.0"}
    clean = {place: _entry(place, entry) for place, entry in places.items() if place}
    first = places.get("")
    clean = {"": {**root, **_ranges("", first if isinstance(first, dict) else {})}, **clean}
    head = {**root, **_ranges("package.json", manifest)}
    if isinstance(manifest.get("overrides"), dict):
        message = "`overrides` in package.json are not taken; pin the versions instead"
        raise SandboxError("dependencies-overrides", message)
    written = {**root, "lockfileVersion": 3, "requires": True, "packages": clean}
    return json.dumps(head), json.dumps(written)


def _table(text: str, file: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SandboxError("dependencies-lock", f"{file} is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise SandboxError("dependencies-lock", f"expected {file} to be an object")
    return table


def _entry(place: str, entry: Any) -> dict[str, Any]:
    if not _PACKAGE_PLACE.fullmatch(place) or not isinstance(entry, dict) or entry.get("link"):
        message = f"expected a package from a registry, got {place[:120]!r}"
        raise SandboxError("dependencies-source", message)
    resolved = entry.get("resolved", "https://")
    if not isinstance(resolved, str) or not _TARBALL.match(resolved):
        message = f"expected `{place}` to come from a registry, got {str(resolved)[:120]!r}"
        raise SandboxError("dependencies-source", message)
    integrity = entry.get("integrity")
    is_inside = entry.get("inBundle") is True
    if not is_inside and not (isinstance(integrity, str) and _INTEGRITY.fullmatch(integrity)):
        # SHA-1 of old lock files can be forged; npm writes SHA-512 when it locks again.
        message = f"expected `{place}` to have a SHA-2 digest (`integrity`)"
        raise SandboxError("dependencies-unhashed", message)
    version = entry.get("version")
    if not isinstance(version, str) or not _RANGE.fullmatch(version):
        raise SandboxError("dependencies-lock", f"expected `{place}` to have a version")
    clean: dict[str, Any] = {"version": version, **_ranges(place, entry)}
    if integrity and not is_inside:
        clean["integrity"] = integrity
    if isinstance(entry.get("name"), str) and _PACKAGE_NAME.fullmatch(entry["name"]):
        clean["name"] = entry["name"]
    return clean | _flags_and_lists(entry)


def _flags_and_lists(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return of an entry what switches it on and off, where it has the right shape."""
    found: dict[str, Any] = {key: True for key in _FLAGS if entry.get(key) is True}
    for key in _LISTS:
        words = entry.get(key)
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            found[key] = words
    return found


def _ranges(place: str, entry: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the maps from names to ranges of versions; an address in one is refused."""
    ranges = {}
    for key in _RANGES:
        table = entry.get(key)
        if table is None:
            continue
        if not isinstance(table, dict):
            raise SandboxError("dependencies-lock", f"expected `{key}` of {place!r} to be a map")
        for name, wanted in table.items():
            if not _PACKAGE_NAME.fullmatch(name) or not (
                isinstance(wanted, str) and _RANGE.fullmatch(wanted)
            ):
                message = f"expected versions of {name[:80]!r}, got {str(wanted)[:80]!r}"
                raise SandboxError("dependencies-source", message)
        ranges[key] = table
    return ranges

"""Reads the lock files of two other installers, and says where we would get the same skills.

`skills-lock.json` (version 1, of a project) and `.skill-lock.json` (version 3, of a user) are those
of the npm package `skills` 1.5.18, `.clawhub/lock.json` that of `clawhub` 0.20.0. None of them is
trusted: an entry becomes the text of a source, which goes the way of every other source.

Their hashes are compared for what a person wants to know: whether a source still has what was
locked. A hash of a lock proves nothing, because whoever writes the lock writes the hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from skillhouse.floor import DecodeError, PathError, StateError, shaped
from skillhouse.floor.documents import json_value
from skillhouse.registry.lock import LOCK_MAX, SKILLS_MAX
from skillhouse.registry.page_addresses import SourceError
from skillhouse.registry.releases import DEFAULT_NAMESPACE, is_version, split_name
from skillhouse.registry.source import parse_source
from skillhouse.skill import SKILL_FILE, ArchiveMember, package_path

LockKind = Literal["skills-lock", "skill-lock", "clawhub"]
HashKind = Literal["", "folder", "git-tree"]

_PROJECT, _USER = 1, 3
_WELL_KNOWN = "/.well-known/"
_GITHUB = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")
_HOST = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_PACKAGE = re.compile(r"(@[a-z0-9-~][a-z0-9-._~]*/)?[a-z0-9-~][a-z0-9-._~]*")
_FOLDER_HASH, _GIT_HASH = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")
Comparison = Literal["same", "different", "unknown"]

# The order in which the root collation of CLDR has the characters that are no letters.
_BEFORE_DIGITS = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$"
_WEIGHTS = {sign: number for number, sign in enumerate(_BEFORE_DIGITS + "0123456789")}
_LETTERS = len(_WEIGHTS)
_SKIPPED = frozenset({".git", "node_modules"})
_PLAIN, _EXECUTABLE, _TREE = "100644", "100755", "40000"


class OtherEntry(Struct, frozen=True, kw_only=True):
    """One skill of another installer's lock, in our words."""

    name: str
    source: str = ""
    """What `install` would take; empty where the skill cannot be restored."""
    inside: str | None = None
    """The skill's directory in the source; None where the lock does not have it."""
    hash: str = ""
    """What the lock says of its files; compared, and never trusted."""
    hash_kind: HashKind = ""
    pinned: bool = False
    pin_reason: str = ""
    note: str = ""
    """What was assumed, for a person."""
    fault: str = ""
    """Why it cannot be restored."""


class OtherLock(Struct, frozen=True, kw_only=True):
    """The lock of another installer."""

    kind: LockKind
    entries: tuple[OtherEntry, ...]


class _LockEntry(Struct, frozen=True, kw_only=True):
    """What of an entry is used; each installer has some of it."""

    source: str = ""
    sourceType: str = ""  # noqa: N815 a key of the file
    sourceUrl: str = ""  # noqa: N815
    ref: str = ""
    skillPath: str = ""  # noqa: N815
    computedHash: str = ""  # noqa: N815
    skillFolderHash: str = ""  # noqa: N815
    version: str | None = None
    pinned: bool = False
    pinReason: str = ""  # noqa: N815


def read_other_lock(path: Path) -> OtherLock:
    """Return what the lock of another installer has.

    Raises:
        StateError: it cannot be read, or is none of the three.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LOCK_MAX + 1)
    except OSError as error:
        raise StateError(f"cannot read the lock: {error.strerror}", path) from error
    if len(data) > LOCK_MAX:
        raise StateError(f"expected a lock of at most {LOCK_MAX} bytes", path)
    try:
        return decode_other_lock(data, path.absolute().parent)
    except DecodeError as error:
        raise StateError(f"the lock cannot be used: {error}", path) from error


def decode_other_lock(data: bytes, directory: Path) -> OtherLock:
    """Return what the bytes of a lock say; paths in it are relative to `directory`.

    Raises:
        DecodeError: it is no lock of one of the three forms.
    """
    value = json_value(data, with_nul=True)
    if not isinstance(value, dict) or not isinstance(value.get("skills"), dict):
        raise DecodeError("expected an object with `skills`")
    found = value["skills"]
    if len(found) > SKILLS_MAX:
        raise DecodeError(f"expected at most {SKILLS_MAX} skills")
    version = value.get("version")
    if type(version) is not int or version not in (_PROJECT, _USER):
        message = f"expected version {_PROJECT} (a project's lock, or ClawHub's) or {_USER}"
        raise DecodeError(f"{message} (a user's lock), got {str(version)[:20]!r}")
    kind: LockKind = "skill-lock"
    if version == _PROJECT:
        is_clawhub = found and not any(
            isinstance(one, dict) and "source" in one for one in found.values()
        )
        kind = "clawhub" if is_clawhub else "skills-lock"
    entries = (_entry(name, found[name], kind, directory) for name in sorted(found))
    return OtherLock(kind=kind, entries=tuple(entries))


def _entry(name: str, value: object, kind: LockKind, directory: Path) -> OtherEntry:
    try:
        read = shaped(_without_null(value), _LockEntry)
        return _clawhub(name, read) if kind == "clawhub" else _skills(name, read, kind, directory)
    except (DecodeError, SourceError) as error:
        return OtherEntry(name=name, fault=str(error))


def _without_null(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {key: one for key, one in value.items() if one is not None}


def _clawhub(name: str, read: _LockEntry) -> OtherEntry:
    namespace, skill = split_name(name)
    if read.version is not None and not is_version(read.version):
        raise DecodeError(f"no version: {read.version[:80]!r}")
    address = skill if namespace == DEFAULT_NAMESPACE else f"@{namespace}/{skill}"
    return OtherEntry(
        name=skill,
        source=address if read.version is None else f"{address}@{read.version}",
        note="this lock has neither an address nor a hash: the first of your repositories that "
        "has the skill counts",
        pinned=read.pinned,
        pin_reason=read.pinReason,
    )


def _skills(name: str, read: _LockEntry, kind: LockKind, directory: Path) -> OtherEntry:
    source, note = _source(read, directory)
    # Refused here, before anything is fetched.
    parse_source(source, directory, home=directory)
    hashed = read.computedHash if kind == "skills-lock" else read.skillFolderHash
    hash_kind: HashKind = ""
    if _FOLDER_HASH.fullmatch(hashed):
        hash_kind = "folder"
    elif _GIT_HASH.fullmatch(hashed):
        hash_kind = "git-tree"
    return OtherEntry(
        name=name,
        source=source,
        inside=_inside(read.skillPath),
        hash=hashed if hash_kind else "",
        hash_kind=hash_kind,
        note=note,
    )


def _source(read: _LockEntry, directory: Path) -> tuple[str, str]:
    """Return where `install` would get an entry from, and what was assumed."""
    at = f"@{read.ref}" if read.ref else ""
    match read.sourceType:
        case "github" if _GITHUB.fullmatch(read.source):
            return f"{read.source.removesuffix('.git')}{at}", ""
        case "github" | "gitlab" | "git":
            return _git_address(read.sourceUrl or read.source) + at, ""
        case "well-known":
            return _server(read)
        case "local":
            return str(directory / _plain(read.source)), ""
        case "node_modules":
            return _npm_package(read.source, directory), ""
    raise SourceError(f"a source of the type {read.sourceType[:40]!r} is not known here")


def _git_address(text: str) -> str:
    if "://" in text:
        return f"git+{text}"
    if "@" in text and ":" in text:
        return text
    raise SourceError(f"the lock has no address of the Git server, only {text[:80]!r}")


def _server(read: _LockEntry) -> tuple[str, str]:
    """Return the server whose `.well-known` had the skill."""
    where, mark, _ = read.sourceUrl.partition(_WELL_KNOWN)
    if mark:
        return where, ""
    if read.sourceUrl:
        parts = urlsplit(read.sourceUrl)
        note = "the lock has the address of a file only: its server is asked for a list"
        return f"{parts.scheme}://{parts.netloc}", note
    if not _HOST.fullmatch(read.source):
        message = "the lock has neither the scheme nor the port of the server"
        raise SourceError(f"{message}, only {read.source[:80]!r}")
    return f"https://{read.source}", "the lock has only the name of the server: https is assumed"


def _npm_package(name: str, directory: Path) -> str:
    if not _PACKAGE.fullmatch(name) or ".." in name:
        raise SourceError(f"no name of an npm package: {name[:80]!r}")
    place = directory / "node_modules" / name
    if not place.is_dir():
        raise SourceError(f"it is in the npm package `{name}`, which is not at `{place}`")
    return str(place)


def _plain(text: str) -> str:
    if not text or "\0" in text:
        raise SourceError(f"no path: {text[:80]!r}")
    return text


def _inside(path: str) -> str | None:
    """Return the directory of a skill, by the path of its SKILL.md."""
    if not path:
        return None
    folder = path.rpartition("/")[0] if path.lower().endswith(SKILL_FILE.lower()) else path
    if not folder.strip("/"):
        return ""
    try:
        return package_path(folder.strip("/"))
    except PathError as error:
        raise SourceError(f"refused path in the lock: {error.relative!r}") from error


def compare_hash(entry: OtherEntry, members: Sequence[ArchiveMember]) -> Comparison:
    """Return whether files are those of which the lock has the hash."""
    files = {
        one.path: (one.is_executable, b"".join(one.read()))
        for one in members
        if not one.is_directory
    }
    match entry.hash_kind:
        case "folder":
            found = folder_hash({path: content for path, (_, content) in files.items()})
        case "git-tree":
            found = git_tree_hash(files)
        case _:
            return "unknown"
    if found == entry.hash:
        return "same"
    # `skills` hashes the SKILL.md alone where it got a skill at the top of a repository from a
    # store of its own, and one cannot see which of both it did.
    is_whole = entry.inside != "" and found
    return "different" if is_whole or set(files) == {SKILL_FILE} else "unknown"


def folder_hash(files: Mapping[str, bytes]) -> str:
    """Return the `computedHash` of files as `skills` 1.5.18 makes it; empty if that is unknown.

    It sorts paths as JavaScript's `localeCompare` does, which we know for ASCII only.

    >>> folder_hash({"SKILL.md": b""})[:8], folder_hash({"é": b""})
    ('0e95f5a3', '')
    """
    kept = [path for path in files if not _SKIPPED.intersection(path.split("/")[:-1])]
    if not all(path.isascii() and path.isprintable() for path in kept):
        return ""
    whole = hashlib.sha256()
    for path in sorted(kept, key=_collation_key):
        whole.update(path.encode("ascii"))
        whole.update(files[path])
    return whole.hexdigest()


def clawhub_fingerprint(files: Mapping[str, bytes]) -> str:
    """Return the fingerprint of files as `clawhub` 0.23 makes it; empty if that is unknown.

    It leaves out what is in a directory, or is a file, whose name begins with a dot.

    >>> clawhub_fingerprint({"SKILL.md": b"", ".x/a": b"1"})[:8]
    '31482ffa'
    """
    kept = [path for path in files if not any(one.startswith(".") for one in path.split("/"))]
    kept = [path for path in kept if not _SKIPPED.intersection(path.split("/")[:-1])]
    if not all(path.isascii() and path.isprintable() for path in kept):
        return ""
    lines = (
        f"{path}:{hashlib.sha256(files[path]).hexdigest()}"
        for path in sorted(kept, key=_collation_key)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _collation_key(text: str) -> tuple[list[int], list[bool]]:
    """Return the key of a path: all characters without their case, then the case of each."""
    weights = [
        _WEIGHTS[sign] if sign in _WEIGHTS else _LETTERS + ord(sign.lower()) for sign in text
    ]
    return weights, [sign.isupper() for sign in text]


def git_tree_hash(files: Mapping[str, tuple[bool, bytes]]) -> str:
    """Return the id that Git gives a directory of these files: whether each can be run, its bytes.

    >>> git_tree_hash({})
    '4b825dc642cb6eb9a060e54bf8d69288fbee4904'
    """
    entries: dict[str, tuple[str, str]] = {}
    below: dict[str, dict[str, tuple[bool, bytes]]] = {}
    for path, (is_executable, content) in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = (is_executable, content)
        else:
            mode = _EXECUTABLE if is_executable else _PLAIN
            entries[name] = (mode, _object("blob", content))
    entries |= {name: (_TREE, git_tree_hash(inner)) for name, inner in below.items()}

    def place(name: str) -> bytes:
        return name.encode() + (b"/" if entries[name][0] == _TREE else b"")

    lines = (
        f"{entries[name][0]} {name}\0".encode() + bytes.fromhex(entries[name][1])
        for name in sorted(entries, key=place)
    )
    return _object("tree", b"".join(lines))


def _object(kind: str, content: bytes) -> str:
    # Git's own ids; nothing is trusted because of one.
    data = f"{kind} {len(content)}\0".encode() + content
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()

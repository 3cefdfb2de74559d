"""`skills.lock`: which skills are installed, from where, and with which content."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from skillhouse.floor import DecodeError, StateError, shaped, write_atomically
from skillhouse.floor.documents import json_value
from skillhouse.floor.structs import asdict, replace
from skillhouse.skill import validate_name

LOCK_FILE = "skills.lock"
LOCK_VERSION = 1
LOCK_MAX = 8 * 1024 * 1024
"""Bytes of a lock: a thousand skills take less than one MiB."""
SKILLS_MAX = 10_000

OURS, BASE, BETWEEN, THEIRS = (sign * 7 for sign in (b"<", b"|", b"=", b">"))
"""What git begins the lines with that it puts into a file with a conflict."""
MERGE_FIX = "`skillhouse lock --merge`"

_DIGEST = re.compile(r"skilltree1:[0-9a-f]{64}")
DIGEST_SHOWN = len("skilltree1:") + 12
"""Characters of a tree digest that people are shown."""
COMMIT_SHOWN = 8
"""Likewise of a commit."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_RESOLVED = re.compile(rf"git\+.+@({_COMMIT.pattern})")


class LockedSignature(Struct, frozen=True, kw_only=True):
    """Who signed what is installed."""

    publisher: str
    cert_sha256: str
    signed_at: str = ""
    registry: str = ""
    """Whose root vouched for the publisher: two registries may each know one of that name."""
    file_sha256: str = ""
    """Of `skill.sig`; empty in locks of older versions."""

    @property
    def who(self) -> str:
        return f"{self.publisher} of {self.registry}" if self.registry else self.publisher


class LockedCommit(Struct, frozen=True, kw_only=True):
    """Which commit of a Git repository is installed, and what its history began with."""

    commit: str
    root: str = ""
    """The commit with which the history began; empty where it was not known."""
    tag: str = ""
    """The object that the tag named which was asked for; empty for a branch or a commit."""


class BuildOrigin(Struct, frozen=True, kw_only=True):
    """Where and by what a package was built, as a certificate over its attestation says."""

    issuer: str
    """Of the identity that the workflow had, as https://token.actions.githubusercontent.com."""
    repository: str
    """Address of the repository with the source."""
    workflow: str
    """Path of the workflow in it, as .github/workflows/release.yml."""
    repository_id: str = ""
    """What the provider calls the repository, whoever has its name later; empty if it says none."""
    commit: str = ""
    ref: str = ""
    """The branch or tag."""

    @property
    def text(self) -> str:
        """What a person is shown, as `built by acme/skills at c0ffee12, by workflow release`."""
        return self._said(f" at {self.commit[:COMMIT_SHOWN]}" if self.commit else "")

    @property
    def who(self) -> str:
        """The same without the commit."""
        return self._said("")

    def _said(self, at: str) -> str:
        name = self.repository.partition("://")[2].partition("/")[2] or self.repository
        workflow = self.workflow.rpartition("/")[2].removesuffix(".yml").removesuffix(".yaml")
        return f"built by {name}{at}, by workflow {workflow}"

    def is_same_as(self, other: BuildOrigin) -> bool:
        """Whether it is the same workflow of the same repository, at any commit."""
        mine, theirs = (
            (one.issuer, one.repository.casefold(), one.repository_id, one.workflow)
            for one in (self, other)
        )
        return mine == theirs


class LockEntry(Struct, frozen=True, kw_only=True):
    """One installed skill (reference/registry.md section 7)."""

    tree_digest: str
    """Of what was installed."""
    repository: str
    """Where the name belongs to: it never comes from another one."""
    resolved: str
    """What was installed, so that the same can be fetched again."""
    requested: str = ""
    """As a person wrote it."""
    version: str = ""
    digest: str = ""
    """`sha256:` of the archive; empty where there was none."""
    size: int = 0
    """Bytes of its files."""
    signature: LockedSignature | None = None
    git: LockedCommit | None = None
    """Of a Git repository; None for other sources, and in older locks."""
    build: BuildOrigin | None = None
    """By what it was built, where an attestation of that was verified."""
    pinned: bool = False
    pin_reason: str = ""
    accepted: str = ""
    """Digest of local edits that a person accepted; empty without any."""
    inside: str = ""
    """The skill's directory in what was resolved; empty for its top."""
    path: str = ""
    """Where it is: relative to the project, or to the user's home."""
    dated: str = ""
    """Day of the commit or release, else of the install, in UTC; empty in older locks."""
    previous: Mapping[str, Any] | None = None
    """The entry before the last update, for a rollback."""

    @property
    def label(self) -> str:
        """The version, or the commit or the digest of the files with its day."""
        return self.version or f"{self.mark} {self.dated}".strip()

    @property
    def exact(self) -> str:
        """The version, the commit and the day, for two that have one label."""
        return " ".join(filter(None, (self.version, self.mark, self.dated)))

    @property
    def commit(self) -> str:
        """The commit that is installed, which older locks have at the end of `resolved`."""
        found = _RESOLVED.fullmatch(self.resolved) if self.git is None else None
        return found[1] if found else "" if self.git is None else self.git.commit

    @property
    def mark(self) -> str:
        """By what two versions differ, whatever they call themselves; short enough to be read."""
        return self.commit[:COMMIT_SHOWN] or self.tree_digest[:DIGEST_SHOWN]

    @property
    def expected(self) -> tuple[str, ...]:
        """The digests that the files may have."""
        return (self.tree_digest, self.accepted) if self.accepted else (self.tree_digest,)

    @property
    def signature_file(self) -> str:
        """SHA-256 of `skill.sig`; empty where there is none, or an older lock does not say."""
        return "" if self.signature is None else self.signature.file_sha256

    def is_same_as(self, other: LockEntry) -> bool:
        """Whether files and signature are the same: one that is renewed is another release."""
        mine, theirs = self.signature, other.signature
        if self.tree_digest != other.tree_digest or (mine is None) != (theirs is None):
            return False
        if mine is None or theirs is None:
            return True
        if mine.file_sha256 and theirs.file_sha256:
            return mine.file_sha256 == theirs.file_sha256
        return (mine.cert_sha256, mine.signed_at) == (theirs.cert_sha256, theirs.signed_at)


class Lock(Struct, frozen=True, kw_only=True):
    """What a lock file says."""

    skills: Mapping[str, LockEntry] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the file that are not ours, which stay."""
    unknown_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Likewise of each skill."""

    def with_skill(self, name: str, entry: LockEntry | None) -> Lock:
        """Return the lock with another entry of that name, or none."""
        skills = {other: found for other, found in self.skills.items() if other != name}
        kept = dict(self.unknown_of)
        if entry is None:
            kept.pop(name, None)
        else:
            skills[name] = entry
        return replace(self, skills=skills, unknown_of=kept)

    def encode(self) -> bytes:
        """Return the bytes of the file: sorted keys, LF, one value a line.

        Raises:
            DecodeError: a text is not Unicode, as a path or an argument of another encoding is.
        """
        skills = {
            name: {**self.unknown_of.get(name, {}), **entry_value(entry)}
            for name, entry in self.skills.items()
        }
        value = {**self.unknown, "lockfile_version": LOCK_VERSION, "skills": skills}
        # Indented by a parser in C: Python's own takes a hundred times as long.
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            near = text[max(0, error.start - 40) : error.start + 1]
            raise DecodeError(f"a lock keeps UTF-8 only, got {near!r}") from error
        return msgspec.json.format(data, indent=2) + b"\n"


def entry_value(entry: LockEntry) -> dict[str, Any]:
    """Return an entry as the file has it."""
    value = asdict(entry)
    install = {"mode": "copy", "path": value.pop("path")}
    return value | {"install": install, "pin_reason": entry.pin_reason or None}


_KEYS = frozenset(entry_value(LockEntry(tree_digest="", repository="", resolved="")))


def entry_of(value: Mapping[str, Any]) -> LockEntry:
    """Return the entry that a file has; DecodeError where it cannot be one."""
    flat = {**value, **_install(value)}
    if flat.get("pin_reason") is None:
        flat["pin_reason"] = ""
    entry = shaped(flat, LockEntry)
    if not _DIGEST.fullmatch(entry.tree_digest):
        raise DecodeError(f"expected skilltree1:… as `tree_digest`, got {entry.tree_digest[:80]!r}")
    # INVARIANT: both become names of files in the store of packages.
    if entry.signature_file and not _SHA256.fullmatch(entry.signature_file):
        raise DecodeError(f"expected 64 hex digits, got {entry.signature_file[:80]!r}")
    git = entry.git
    for name in () if git is None else (git.commit, git.root or git.commit, git.tag or git.commit):
        if not _COMMIT.fullmatch(name):
            raise DecodeError(f"expected the name of a commit, got {name[:80]!r}")
    return entry


def _install(value: Mapping[str, Any]) -> Mapping[str, Any]:
    install = value.get("install", {})
    if not isinstance(install, dict):
        raise DecodeError("expected a table `install`")
    return {"path": install.get("path", "")}


def read_lock(path: Path) -> Lock:
    """Return what a lock file says; a missing one holds no skills.

    Raises:
        StateError: it cannot be read, or is newer than this program.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LOCK_MAX + 1)
    except FileNotFoundError:
        return Lock()
    except OSError as error:
        raise StateError(f"cannot read the lock: {error.strerror}", path) from error
    if len(data) > LOCK_MAX:
        raise StateError(f"expected a lock of at most {LOCK_MAX} bytes", path)
    try:
        return decode_lock(data)
    except DecodeError as error:
        if line := marked_line(data):
            message = f"the lock has the marks of a merge in line {line}: {MERGE_FIX} fixes it"
            raise StateError(message, path) from error
        raise StateError(f"the lock cannot be used: {error}", path) from error


def marked_line(data: bytes) -> int:
    """Return the line in which git began to mark a conflict; 0 for none.

    >>> marked_line(b"{}"), marked_line(bytes([60]) * 7 + b" HEAD")
    (0, 1)
    """
    for number, line in enumerate(data.splitlines(), 1):
        if line.startswith((OURS, THEIRS)):
            return number
    return 0


@functools.lru_cache(maxsize=2)
def decode_lock(data: bytes) -> Lock:
    """Return what the bytes of a lock file say; DecodeError where they are none.

    Those of the last two are kept: an install reads the lock three times between two changes, and
    of a collection that goes by the square of its skills.
    """
    value = json_value(data)
    if not isinstance(value, dict) or not isinstance(value.get("skills"), dict):
        raise DecodeError("expected an object with `skills`")
    version = value.get("lockfile_version")
    if version != LOCK_VERSION:
        raise DecodeError(f"expected lockfile_version {LOCK_VERSION}, got {version!r}")
    if len(value["skills"]) > SKILLS_MAX:
        raise DecodeError(f"expected at most {SKILLS_MAX} skills")
    skills: dict[str, LockEntry] = {}
    kept: dict[str, Mapping[str, Any]] = {}
    for name, entry in value["skills"].items():
        # INVARIANT: a name of the lock becomes that of a directory.
        if validate_name(name, directory=name):
            raise DecodeError(f"no name of a skill: {name[:80]!r}")
        if not isinstance(entry, dict):
            raise DecodeError(f"expected an object as `{name}`")
        try:
            skills[name] = entry_of(entry)
        except DecodeError as error:
            raise DecodeError(f"`{name}`: {error}") from error
        kept[name] = {key: found for key, found in entry.items() if key not in _KEYS}
    ours = ("lockfile_version", "skills")
    unknown = {key: found for key, found in value.items() if key not in ours}
    return Lock(skills=skills, unknown=unknown, unknown_of=kept)


def write_lock(path: Path, lock: Lock) -> None:
    """Replace the lock file, durably and at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o644
    with write_atomically(path, mode=mode, durable=True) as file:
        file.write(lock.encode())

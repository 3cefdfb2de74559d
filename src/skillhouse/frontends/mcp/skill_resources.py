"""The skills of an agent that are served as resources (SEP-2640), their files and addresses.

A host must be able to load every listed skill and to verify its files by their digests. So a skill
that breaks the specification, or is larger than SEP-2640 allows, is not served; the log has the
reason. Our own tools still load it. Lists are in the order of names, the last part of an address,
since the address begins with the scope.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import mimetypes
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from skillhouse.floor import (
    Digest,
    PathError,
    Severity,
    SkillhouseError,
    as_error,
    digest,
    is_leftover_name,
    is_utf8,
    read_beneath,
)
from skillhouse.skill import (
    DEFAULT_PROFILE,
    SKILL_FILE,
    SKILL_FILE_MAX,
    Skill,
    typed_fields,
    validate,
)

FILES_MAX = 512
"""Files of a skill, SKILL.md included (SEP-2640, "Limits")."""
BYTES_MAX = 16 * 1024 * 1024
"""Bytes of all files of a skill (SEP-2640, "Limits")."""
DEPTH_MAX = 16
"""Nesting of directories (as for a tree digest)."""
ENTRIES_MAX = 10_000
"""Directory entries examined, served or not."""
SETTLED_SECONDS = 2.0
"""Age from which a file's times show every change; before, one tick may hold two."""


class NotServedError(SkillhouseError):
    """A skill cannot be served; the text is the reason."""


class ServedFile(Struct, frozen=True, kw_only=True):
    relative: str
    """POSIX path below the skill's directory."""
    digest: Digest
    size: int


class Manifest(Struct, frozen=True, kw_only=True):
    base: Path
    """The real directory."""
    files: tuple[ServedFile, ...]
    """Sorted by path."""
    directories: frozenset[str]
    """Relative paths of the directories; empty text for the skill's own."""


Stamp = tuple[int, int, int, int, int]


class Manifests:
    """Makes manifests, and hashes a file again only when it may have changed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: dict[str, tuple[Stamp, ServedFile]] = {}

    def of(self, directory: Path, root: Path) -> Manifest:
        """Return the manifest of the skill in `directory`; raises NotServedError.

        Links, special files, hidden names and unprintable names are excluded.
        """
        base = directory.resolve()
        if not base.is_relative_to(root.resolve()):
            raise NotServedError("its directory leads out of its root")
        directories = {""}
        files: list[ServedFile] = []
        total = 0
        try:
            for relative, stamp in _walk(base, directories):
                total += stamp[1]
                if len(files) >= FILES_MAX or total > BYTES_MAX:
                    raise NotServedError(f"more than {FILES_MAX} files or {BYTES_MAX} bytes")
                files.append(self._hashed(base, relative, stamp))
        except (OSError, PathError) as error:
            raise NotServedError(f"a file cannot be read: {error}") from error
        return Manifest(
            base=base,
            files=tuple(sorted(files, key=lambda file: file.relative.encode())),
            directories=frozenset(directories),
        )

    def _hashed(self, base: Path, relative: str, stamp: Stamp) -> ServedFile:
        key = f"{base}/{relative}"
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        data = read_beneath(base, relative, max_bytes=BYTES_MAX)
        if len(data) != stamp[1]:
            raise NotServedError(f"`{relative}` changed while it was read")
        file = ServedFile(relative=relative, digest=digest(data), size=len(data))
        if self._clock() - max(stamp[2], stamp[3]) / 1e9 > SETTLED_SECONDS:
            self._known[key] = (stamp, file)
        else:
            self._known.pop(key, None)
        return file


def _walk(base: Path, directories: set[str]) -> Iterator[tuple[str, Stamp]]:
    """Yield each file with its stamp; add what is walked to `directories`."""
    pending = [("", 0)]
    seen = 0
    while pending:
        prefix, depth = pending.pop()
        with os.scandir(base / prefix if prefix else base) as entries:
            for entry in entries:
                seen += 1
                if seen > ENTRIES_MAX:
                    raise NotServedError(f"more than {ENTRIES_MAX} entries")
                relative = prefix + entry.name
                if not _is_served(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name in DEFAULT_PROFILE.skipped_directories:
                        continue
                    if depth >= DEPTH_MAX:
                        raise NotServedError(f"deeper than {DEPTH_MAX} directories")
                    directories.add(relative)
                    pending.append((f"{relative}/", depth + 1))
                elif entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    times = (info.st_mtime_ns, info.st_ctime_ns)
                    yield relative, (info.st_ino, info.st_size, *times, info.st_dev)


def _is_served(name: str) -> bool:
    is_plain = not name.startswith(".") and name.isprintable() and is_utf8(name)
    return is_plain and not is_leftover_name(name)


def short_hash(text: str) -> str:
    """Return eight hex digits that distinguish texts in addresses."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]


SCHEME = "skill://"
"""Scheme of addresses (SEP-2640, "Resource Mapping")."""
PAGE_MAX = 50
"""Skills, or files of a directory, in one answer."""
MARKDOWN = "text/markdown"
DIRECTORY = "inode/directory"
"""The type of a directory (SEP-2640, "Directory Resources")."""

_TYPES = {".md": MARKDOWN, ".py": "text/x-python", ".toml": "application/toml"}
"""Types for which Python's table depends on the machine, or has no entry."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class SkillResource(Struct, frozen=True, kw_only=True):
    skill: Skill
    base: str
    """Address of the directory."""
    frontmatter: Mapping[str, Any]
    manifest: Manifest

    @property
    def uri(self) -> str:
        return f"{self.base}/{SKILL_FILE}"

    def address(self, relative: str) -> str:
        """Return the address of a file or directory; empty for the skill's own directory."""
        return f"{self.base}/{_quoted(relative)}" if relative else self.base

    def file(self, uri: str) -> ServedFile | None:
        return next((f for f in self.manifest.files if self.address(f.relative) == uri), None)

    def children(self, uri: str) -> Sequence[tuple[str, ServedFile | None]] | None:
        """Return path and file (None: a directory) of each child; None without such a directory."""
        places = self.manifest.directories
        place = next((directory for directory in places if self.address(directory) == uri), None)
        if place is None:
            return None
        files = [(file.relative, file) for file in self.manifest.files]
        below = [*files, *((directory, None) for directory in places if directory)]
        return sorted(
            (child for child in below if child[0].rpartition("/")[0] == place),
            key=lambda child: child[0].encode(),
        )


class SkillResources:
    """The served skills of one agent; `skills` returns those that it sees now.

    An entry has the file's own frontmatter and the digest of each file, so one of which `fault`
    says why no person has looked at it as it is has no entry.
    """

    def __init__(
        self, skills: Callable[[], Iterable[Skill]], fault: Callable[[Skill], str] = lambda _: ""
    ) -> None:
        self._skills = skills
        self._fault = fault
        self._manifests = Manifests()
        self._said: set[tuple[str, str]] = set()

    def page(self, cursor: str | None) -> tuple[Sequence[SkillResource], str | None]:
        """Return the next entries by name, and the cursor after them; raises as `paged` does."""
        # By name, not by address: addresses begin with the scope, and built-in skills would lead.
        bases = sorted(self._bases().items(), key=_by_name)
        wanted, following = paged(bases, cursor, key=_by_name)
        entries = (self._entry(base, skill) for base, skill in wanted)
        return [entry for entry in entries if entry is not None], following

    def paths(self) -> list[str]:
        """Return the address of each skill's directory without the scheme, by name."""
        bases = sorted(self._bases().items(), key=_by_name)
        return [base.removeprefix(SCHEME) for base, skill in bases if not self._fault(skill)]

    def entry(self, uri: str) -> SkillResource | None:
        """Return the skill to which the address of a file or directory may belong."""
        bases = self._bases()
        parts = uri.split("/")
        for count in range(len(parts), 2, -1):
            base = "/".join(parts[:count])
            if base in bases:
                return self._entry(base, bases[base])
        return None

    def _bases(self) -> Mapping[str, Skill]:
        """Return the address of each skill's directory.

        It has the scope, so that no skill gets another's address when skills come and go; if
        several share scope and name, each address also has a hash of the file's path.
        """
        paths = [(_path(skill), skill) for skill in self._skills()]
        counts = Counter(path for path, _ in paths)
        bases = {}
        for path, skill in paths:
            if counts[path] > 1:
                parent, _, name = path.rpartition("/")
                path = f"{parent}/{short_hash(skill.file)}/{name}"
            bases[SCHEME + path] = skill
        return bases

    def _entry(self, base: str, skill: Skill) -> SkillResource | None:
        try:
            return self._made(base, skill)
        except NotServedError as error:
            found, reason = None, str(error)
        except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
            found, reason = error, f"{type(error).__name__} {error}"
        # Once per reason, a report too.
        if (skill.file, reason) not in self._said:
            self._said.add((skill.file, reason))
            said = reason if found is None else as_error(found)
            logger.warning("not served over MCP: `%s`: %s", skill.file, said)
        return None

    def _made(self, base: str, skill: Skill) -> SkillResource:
        if why := self._fault(skill):
            raise NotServedError(why)
        wrong = next(
            (one for one in validate(skill.directory) if one.severity is Severity.ERROR), None
        )
        if wrong is not None:
            raise NotServedError(wrong.message)
        manifest = self._manifests.of(skill.directory, skill.bound)
        listed = next((one for one in manifest.files if one.relative == SKILL_FILE), None)
        if listed is None:
            raise NotServedError(f"its {SKILL_FILE} is no plain file of its directory")
        try:
            data = read_beneath(manifest.base, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
        except PathError as error:
            raise NotServedError(str(error)) from error
        frontmatter = typed_fields(data, directory=manifest.base.name)
        if frontmatter is None or frontmatter.get("name") != base.rpartition("/")[2]:
            raise NotServedError("its `name` is not its directory's")
        if not isinstance(frontmatter.get("description"), str):
            raise NotServedError("its `description` is no text to other programs; quote it")
        return SkillResource(skill=skill, base=base, frontmatter=frontmatter, manifest=manifest)


def paged(
    items: Sequence[T], cursor: str | None, *, key: Callable[[T], str], size: int = PAGE_MAX
) -> tuple[Sequence[T], str | None]:
    """Return the items after a cursor, at most `size`, and the next cursor.

    No two items have the same key, by which they are sorted. A cursor names the last item, not a
    number, so items that come or go meanwhile repeat none. Raises MCPError if it is not ours.
    """
    start = 0
    if cursor is not None:
        last = _decoded(cursor)
        start = sum(key(item) <= last for item in items)
    page = items[start : start + size]
    return page, _encoded(key(page[-1])) if start + size < len(items) else None


def mime_type(relative: str) -> str:
    """Return the type of a file by its name.

    >>> mime_type("references/FORMS.md"), mime_type("a/LICENSE")
    ('text/markdown', 'application/octet-stream')
    """
    suffix = Path(relative).suffix.lower()
    return _TYPES.get(suffix) or mimetypes.guess_type(relative)[0] or "application/octet-stream"


def _by_name(item: tuple[str, Skill]) -> str:
    """Return the sort key: the last part of an address, then the whole, since parts may repeat."""
    base, _ = item
    return f"{base.rpartition('/')[2]} {base}"


def _path(skill: Skill) -> str:
    """Return `scope/name`, or `scope/plugin/name`."""
    name = skill.directory.name
    plugin = skill.name.removesuffix(name).strip(":") if skill.name.endswith(f":{name}") else ""
    return "/".join(_quoted(part) for part in (skill.scope, plugin, name) if part)


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")


def _encoded(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _decoded(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        message = f"expected a cursor of an earlier answer, got {cursor[:80]!r}"
        raise MCPError(types.INVALID_PARAMS, message) from error

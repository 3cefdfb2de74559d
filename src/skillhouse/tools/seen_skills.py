"""What a skill that is asked about held when it was last loaded: a question shows changes."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from skillhouse.floor import (
    PathError,
    SkillhouseError,
    decode,
    encode,
    make_private,
    read_beneath,
    write_atomically,
)
from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.skill import SKILL_FILE, list_resources
from skillhouse.tools.difference import difference

if TYPE_CHECKING:
    from skillhouse.skill import Skill

FILES_MAX = 200
FILE_TEXT_MAX, TEXTS_MAX = 65_536, 524_288
"""Files of a skill that are compared, and characters that are kept of one and of all."""
NAMES_SHOWN = 10
_LISTED = "(fields as listed)"
"""The name under which the fields that a server lists are compared."""
_AWAY = "texts that are on the server until an approval; to fetch and read them:"
_SYNC = regex(r"/staging-[0-9a-f]{16}/")
"""The part of a cached skill's path that differs with each sync."""

logger = logging.getLogger(__name__)


class SeenSkill(Struct, frozen=True, kw_only=True):
    """The files of a skill, as they were when it was last loaded."""

    digest: str
    """What an approval of it was bound to."""
    files: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each file, by its path."""
    texts: dict[str, str] = field(default_factory=dict)


class ServerListing(NamedTuple):
    """What an MCP server says of one of its skills, whose files are not here before an approval."""

    identity: str
    """The server's label and the skill's address: its place here is another after each change."""
    digests: Mapping[str, str]
    """The digest of each file."""


class SeenSkills:
    """One file a skill below a private directory; a lost one costs the comparison alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def note(self, skill: Skill, digest: str, listing: ServerListing | None = None) -> None:
        """Remember a skill as it is loaded now; a load never fails for it."""
        try:
            make_private(self._directory)
            with write_atomically(self._file(skill, listing)) as file:
                file.write(encode(_seen(skill, digest, listing)))
        except (OSError, SkillhouseError):
            logger.debug("what was loaded is not kept", exc_info=True)

    def changes(
        self, skill: Skill, digest: str, listing: ServerListing | None = None
    ) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return a sentence about a skill that is not what was last loaded, and what changed.

        Both are empty for a skill that is as it was, or was never loaded. Nothing is fetched: of a
        file that is on its server only the names and the fields as listed are compared.
        """
        path = self._file(skill, listing)
        try:
            before = decode(path.read_bytes(), SeenSkill)
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d")
        except (OSError, SkillhouseError):
            return "", ()
        if before.digest == digest:
            return "", ()
        now = _seen(skill, digest, listing)
        said = f"it has changed since it was last loaded on {when}"
        facts = [("changed", _names(before, now))] if before.files and now.files else []
        shown = "".join(
            difference(before.texts.get(name, ""), now.texts.get(name, ""), name)
            for name in sorted({*before.texts, *now.texts}, key=lambda n: (n != SKILL_FILE, n))
            if before.files.get(name) != now.files.get(name)
            and (name in now.texts or name not in now.files)
        )
        if any(name not in now.texts for name in now.files) and listing is not None:
            facts.append(("not compared", f"{_AWAY} `skillhouse load {skill.name}`"))
        if shown and now.files:
            facts.append(("difference", shown))
        return said, tuple(facts)

    def _file(self, skill: Skill, listing: ServerListing | None) -> Path:
        key = (
            f"server {listing.identity}"
            if listing
            else _SYNC.sub("/", f"{skill.scope} {skill.file}")
        )
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _seen(skill: Skill, digest: str, listing: ServerListing | None) -> SeenSkill:
    files: dict[str, str] = {}
    texts: dict[str, str] = {}
    left = TEXTS_MAX
    if listing is None:
        names = (SKILL_FILE, *list_resources(skill.directory, limit=FILES_MAX)[0])
    else:
        names = tuple(islice(listing.digests, FILES_MAX))
        texts[_LISTED] = _listed_fields(skill)
        files[_LISTED] = hashlib.sha256(texts[_LISTED].encode()).hexdigest()
    for name in names:
        if listing is not None:
            files[name] = listing.digests[name].rpartition(":")[2]
        try:
            data = read_beneath(skill.directory, name, max_bytes=16 * FILE_TEXT_MAX)
        except PathError:
            continue
        found = hashlib.sha256(data).hexdigest()
        if files.setdefault(name, found) != found:
            # Not what the server lists: it is fetched again before it is used.
            continue
        if len(data) > min(left, FILE_TEXT_MAX):
            continue
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            continue
        left -= len(data)
    return SeenSkill(digest=digest, files=files, texts=texts)


def _listed_fields(skill: Skill) -> str:
    """Return the frontmatter that a server lists, one field a line."""
    fields = sorted(skill.frontmatter.fields.items())
    return "".join(f"{key}: {value}\n" for key, value in fields)


def _names(before: SeenSkill, now: SeenSkill) -> str:
    groups = {
        "changed": [n for n in now.files if n in before.files and now.files[n] != before.files[n]],
        "added": [name for name in now.files if name not in before.files],
        "removed": [name for name in before.files if name not in now.files],
    }
    parts = []
    for word, names in groups.items():
        if names:
            parts.append(f"{word}: {first_of(sorted(names), NAMES_SHOWN)}")
    return "; ".join(parts) or "files that are not compared"

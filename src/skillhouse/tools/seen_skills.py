"""What a skill that is asked about held when it was last loaded: a question shows changes."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import (
    PathError,
    SkillhouseError,
    dataclass,
    decode,
    encode,
    make_private,
    read_beneath,
    write_atomically,
)
from skillhouse.floor.regex import regex
from skillhouse.skill import SKILL_FILE, list_resources
from skillhouse.tools.difference import difference

if TYPE_CHECKING:
    from skillhouse.skill import Skill

FILES_MAX = 200
FILE_TEXT_MAX, TEXTS_MAX = 65_536, 524_288
"""Files of a skill that are compared, and characters that are kept of one and of all."""
NAMES_SHOWN = 10
_SYNC = regex(r"/staging-[0-9a-f]{16}/")
"""The part of a cached skill's path that differs with each sync."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSkill:
    """The files of a skill, as they were when it was last loaded."""

    digest: str
    """What an approval of it was bound to."""
    files: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of each file, by its path."""
    texts: dict[str, str] = field(default_factory=dict)


class SeenSkills:
    """One file a skill below a private directory; a lost one costs the comparison alone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def note(self, skill: Skill, digest: str) -> None:
        """Remember a skill as it is loaded now; a load never fails for it."""
        try:
            make_private(self._directory)
            with write_atomically(self._file(skill)) as file:
                file.write(encode(_seen(skill, digest)))
        except (OSError, SkillhouseError):
            logger.debug("what was loaded is not kept", exc_info=True)

    def changes(self, skill: Skill, digest: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return a sentence about a skill that is not what was last loaded, and what changed.

        Both are empty for a skill that is as it was, or was never loaded.
        """
        path = self._file(skill)
        try:
            before = decode(path.read_bytes(), SeenSkill)
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d")
        except (OSError, SkillhouseError):
            return "", ()
        if before.digest == digest:
            return "", ()
        now = _seen(skill, digest)
        said = f"it has changed since it was last loaded on {when}"
        facts = [("changed", _names(before, now))] if before.files and now.files else []
        shown = "".join(
            difference(before.texts.get(name, ""), now.texts.get(name, ""), name)
            for name in sorted({*before.texts, *now.texts}, key=lambda n: (n != SKILL_FILE, n))
            if before.files.get(name) != now.files.get(name)
        )
        if shown and now.files:
            facts.append(("difference", shown))
        return said, tuple(facts)

    def _file(self, skill: Skill) -> Path:
        key = _SYNC.sub("/", f"{skill.scope} {skill.file}")
        return self._directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _seen(skill: Skill, digest: str) -> SeenSkill:
    files: dict[str, str] = {}
    texts: dict[str, str] = {}
    left = TEXTS_MAX
    names, _ = list_resources(skill.directory, limit=FILES_MAX)
    for name in (SKILL_FILE, *names):
        try:
            data = read_beneath(skill.directory, name, max_bytes=16 * FILE_TEXT_MAX)
        except PathError:
            continue
        files[name] = hashlib.sha256(data).hexdigest()
        if len(data) > min(left, FILE_TEXT_MAX):
            continue
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            continue
        left -= len(data)
    return SeenSkill(digest=digest, files=files, texts=texts)


def _names(before: SeenSkill, now: SeenSkill) -> str:
    groups = {
        "changed": [n for n in now.files if n in before.files and now.files[n] != before.files[n]],
        "added": [name for name in now.files if name not in before.files],
        "removed": [name for name in before.files if name not in now.files],
    }
    parts = []
    for word, names in groups.items():
        if names:
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            parts.append(f"{word}: {', '.join(sorted(names)[:NAMES_SHOWN])}{more}")
    return "; ".join(parts) or "files that are not compared"

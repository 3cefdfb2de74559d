"""The values of this package: a skill as its SKILL.md describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from skillhouse.floor import Diagnostic, decode

SKILL_FILE = "SKILL.md"
"""The one file that makes a directory a skill (specification, "Directory structure")."""

Value = Any
"""A frontmatter value: text as written, or a list or map of such values."""


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """The YAML block of a SKILL.md: every field as written, and the specified ones by name."""

    fields: Mapping[str, Value]
    """All fields in their order, unknown ones included; every scalar is text."""

    @property
    def license(self) -> str | None:
        """The licence's name or the file that holds it; None when absent or not text."""
        return self._text("license")

    @property
    def compatibility(self) -> str | None:
        """Requirements on the environment, free text."""
        return self._text("compatibility")

    @property
    def version(self) -> str | None:
        """`version` of the top level, else of `metadata` (S000-7); None when absent."""
        return self._text("version") or self.metadata.get("version")

    @property
    def metadata(self) -> Mapping[str, str]:
        """The `metadata` map; a value that is not text is given as JSON text."""
        found = self.fields.get("metadata")
        if not isinstance(found, dict):
            return {}
        return {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in found.items()
        }

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """What `allowed-tools` names, in any of its three forms; it never grants anything."""
        found = self.fields.get("allowed-tools")
        if isinstance(found, list):
            texts = (item.strip() for item in found if isinstance(item, str))
            return tuple(text for text in texts if text)
        return split_tools(found) if isinstance(found, str) else ()

    def _text(self, key: str) -> str | None:
        found = self.fields.get(key)
        return found if isinstance(found, str) and found else None


def split_tools(text: str) -> tuple[str, ...]:
    """Return the tools that blanks or commas separate; those inside brackets do not.

    >>> split_tools("Bash(git:*), Read Bash(ls, pwd)")
    ('Bash(git:*)', 'Read', 'Bash(ls, pwd)')
    """
    tools: list[str] = []
    depth = 0
    current = ""
    for character in text + " ":
        depth = max(0, depth + (character == "(") - (character == ")"))
        if depth == 0 and (character == "," or character.isspace()):
            if current:
                tools.append(current)
            current = ""
        else:
            current += character
    return tuple([*tools, current.strip()] if current.strip() else tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsePolicy:
    """How `parse` treats points on which designs and clients differ."""

    yaml_repair: bool = True
    """Mend unquoted colons and one-line `>` values (S001-25)."""
    yaml_fast_path: bool = True
    """Use the Rust parser for plain blocks; the result is the same."""
    no_frontmatter: Literal["skip", "body"] = "skip"
    """A file without a block is no skill, or is all body (S004-5)."""
    name_from: Literal["field", "directory"] = "field"
    """Whether the field or the directory has authority over the name (S003-17)."""
    missing_name: Literal["directory", "skip"] = "directory"
    missing_description: Literal["skip", "empty", "body"] = "skip"
    """Whether a skill without one is none, has an empty one, or takes the first line of the body
    that is not empty."""
    bad_name: Literal["warn", "skip", "free"] = "warn"
    """A name outside the specified alphabet or length: load it with a warning, or do not load it,
    or say nothing."""
    name_mismatch: Literal["warn", "skip", "free"] = "warn"
    """A name other than the directory's."""
    long_description: Literal["warn", "skip", "cut"] = "warn"
    """A description over the specified length."""
    replaced_characters: str = ""
    """Characters of a name that the client turns into `-`."""
    trim_body: bool = False
    """Take blanks and empty lines off both ends of the body (S004-6)."""


DEFAULT_POLICY = ParsePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill as its SKILL.md declares it; the body is read by `load`."""

    name: str
    description: str
    scope: str
    """project, explicit, user, plugin, remote or builtin."""
    file: str
    """Absolute path of the SKILL.md."""
    root: str
    """Absolute path of the root it was found below; links may not lead out of it."""
    packed_fields: bytes = field(repr=False)
    """The frontmatter in our own format, so that thousands of skills stay small."""
    policy: ParsePolicy = field(default=DEFAULT_POLICY, repr=False, compare=False)
    """How its file is read: `load` reads it as it was read when it was found."""
    signature: tuple[int, int, int, int] | None = field(default=None, repr=False, compare=False)
    """(mtime, ctime, size, inode) of the file when it was found, which changes when the file does;
    None when that cannot be relied on."""

    @property
    def frontmatter(self) -> Frontmatter:
        """The YAML block, decoded at each call."""
        return Frontmatter(decode(self.packed_fields, dict[str, Any]))

    @property
    def id(self) -> str:
        """`{scope}:{name}`, which look-up takes and people see."""
        return f"{self.scope}:{self.name}"

    @property
    def location(self) -> Path:
        return Path(self.file)

    @property
    def directory(self) -> Path:
        """The directory that holds the SKILL.md and all other files of the skill."""
        return Path(self.file).parent

    @property
    def uri(self) -> str:
        """The `file:` address of the SKILL.md, which differs for two skills of one name."""
        return Path(self.file).as_uri()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContent:
    """The result of activation: the body, and the list of the other files."""

    skill: Skill
    text: str
    """The whole SKILL.md, frontmatter included, newlines as LF."""
    body: str
    """The Markdown after the frontmatter."""
    resources: tuple[str, ...]
    """Relative POSIX paths of the other files, sorted, at most `RESOURCES_MAX`."""
    resources_omitted: int
    """How many files the bound left out."""
    directory: Path
    frontmatter_changed: bool = False
    """Whether the frontmatter is another than when the skill was found."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimated tokens of the body."""
        return tokens_of(self.body)


def tokens_of(text: str) -> int:
    """Return the estimated tokens of a text: UTF-8 bytes / 4, rounded up (DESIGN, contract).

    >>> tokens_of("12345")
    2
    """
    return -(-len(text.encode("utf-8", "replace")) // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """The skill, if the file can be used, and everything found on the way."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...]
    text: str = ""
    """The whole file with LF newlines; empty when it could not be decoded."""
    body: str = ""
    """The Markdown after the frontmatter; empty when its beginning is unknown."""

"""The values of this package: a skill, its manifest, and how a SKILL.md is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from skillhouse.floor import Diagnostic, decode
from skillhouse.floor.structs import PartialStruct

SKILL_FILE = "SKILL.md"
"""The one file that makes a directory a skill (specification, "Directory structure")."""

Value = Any
"""A frontmatter value: text as written, or a list or map of such values."""


class Frontmatter(Struct, frozen=True):
    """The YAML block of a SKILL.md: every field as written, and the specified ones by name."""

    fields: Mapping[str, Value]
    """All fields in their order, unknown ones included; every scalar is text."""

    @property
    def license(self) -> str | None:
        """The licence's name or the file that holds it; None when absent or not text."""
        return self._text("license")

    @property
    def compatibility(self) -> str | None:
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
        value = self.fields.get("allowed-tools")
        if isinstance(value, list):
            texts = (item.strip() for item in value if isinstance(item, str))
            return tuple(text for text in texts if text)
        return split_tools(value) if isinstance(value, str) else ()

    def _text(self, key: str) -> str | None:
        value = self.fields.get(key)
        return value if isinstance(value, str) and value else None


def split_tools(text: str) -> tuple[str, ...]:
    """Return the tools that blanks or commas separate; those inside brackets do not.

    >>> split_tools("Bash(git:*), Read Bash(ls, pwd)")
    ('Bash(git:*)', 'Read', 'Bash(ls, pwd)')
    """
    return split_outside(
        text, ("(", ")"), lambda character: character == "," or character.isspace()
    )


def split_outside(
    text: str, brackets: tuple[str, str], is_separator: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return the parts between separators outside of a pair of brackets, without empty ones."""
    opening, closing = brackets
    parts, depth = [""], 0
    for character in text:
        depth = max(0, depth + (character == opening) - (character == closing))
        if depth == 0 and is_separator(character):
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts if part.strip())


Reader = Literal[
    "specified",
    "bun-yaml",
    "serde-yaml",
    "gray-matter",
    "js-yaml-lines",
    "core-yaml",
    "core-yaml-strict",
    "serde-strict",
]
"""Readings of a SKILL.md, the clients' named after their YAML libraries (`client_readers`)."""


class ParsePolicy(Struct, frozen=True, kw_only=True):
    """How `parse` treats points on which designs and clients differ."""

    reader: Reader = "specified"
    """Whose reading of the frontmatter: the specification's by the fields below, or a client's own
    fences, repair, YAML library and types, and then only `file_max` applies too."""
    file_max: int = 0
    """Bytes of a SKILL.md above which the client passes over it; 0 where none are known."""
    yaml_repair: bool = True
    """Mend unquoted colons and one-line `>` values (S001-25)."""
    tabs_mended: bool = False
    """Take tabs of an indentation for spaces where YAML refuses them (vector F053)."""
    yaml_fast_path: bool = True
    """Read blocks of plain lines without a YAML parser; the result is the same."""
    no_frontmatter: Literal["skip", "body", "mend"] = "skip"
    """A file without a block is no skill, or is all body (S004-5); mended, a block that is not
    closed ends at the first blank line where that makes fields of it."""
    name_from: Literal["field", "directory"] = "field"
    """Whether the field or the directory has authority over the name (S003-17)."""
    missing_name: Literal["directory", "skip"] = "directory"
    missing_description: Literal["skip", "empty", "body", "prose"] = "skip"
    """Whether such a skill is none, has an empty one, or takes the body's first line with text;
    as prose without the signs of a heading, and no longer than a sentence."""
    bad_name: Literal["warn", "skip", "free"] = "warn"
    """Whether a name outside the specified alphabet or length warns, costs the skill, or passes."""
    name_mismatch: Literal["warn", "skip", "free"] = "warn"
    long_description: Literal["warn", "skip", "cut"] = "warn"
    tools_form: Literal["warn", "free"] = "warn"
    """Whether `allowed-tools` as a list, or with commas, is pointed out (S004-4)."""
    replaced_characters: str = ""
    """Characters of a name that the client turns into `-`."""
    trim_body: bool = False
    """Take blanks and empty lines off both ends of the body (S004-6)."""


DEFAULT_POLICY = ParsePolicy()
"""What the specification says, and the vectors."""
LOADING_POLICY = ParsePolicy(no_frontmatter="mend", missing_description="prose", tabs_mended=True)
"""What the default profile loads by: all that other clients load of published files
(docs/decisions/0250-load-what-clients-load.md)."""


class Skill(PartialStruct, frozen=True, kw_only=True):
    """One skill as its SKILL.md declares it; the body is read by `load`."""

    HIDDEN = frozenset({"packed_fields", "policy", "signature"})
    UNCOMPARED = frozenset({"policy", "signature", "follows", "link_bound"})

    name: str
    description: str
    scope: str
    """project, explicit, user, plugin, remote or builtin."""
    file: str
    """Absolute path of the SKILL.md."""
    root: str
    """Absolute path of the root it was found below."""
    packed_fields: bytes
    """The frontmatter in our own format, so that thousands of skills stay small."""
    policy: ParsePolicy = DEFAULT_POLICY
    """How its file is read: `load` reads it as it was read when it was found."""
    signature: tuple[int, int, int, int] | None = None
    """(mtime, ctime, size, inode) of the file when it was found, which changes when the file does;
    None when that cannot be relied on."""
    variant: str = ""
    """Where it is below its root, if its scope has another skill of that name which is used."""
    link: str = ""
    """The SKILL.md as a link out of its root leads to it; empty where none does."""
    follows: bool = False
    """Whether links in it may lead out of its directory: of a person's own, and of a project's."""
    link_bound: str = ""
    """The real directory that links of a project's skill stay in; empty for a person's own."""
    link_targets: frozenset[str] = frozenset()
    """Real paths out of that directory to which links may lead, as the project's trust names them.
    """

    @property
    def frontmatter(self) -> Frontmatter:
        """The YAML block, decoded at each call."""
        return Frontmatter(decode(self.packed_fields, dict[str, Any]))

    @property
    def id(self) -> str:
        """`scope:name`; of a skill that another of its scope shadows, `scope:name@path`."""
        return f"{self.scope}:{self.name}{'@' if self.variant else ''}{self.variant}"

    @property
    def location(self) -> Path:
        return Path(self.file)

    @property
    def directory(self) -> Path:
        return Path(self.file).parent

    @property
    def bound(self) -> Path:
        """What links in it may not lead out of: its root, or the directory that a link led to."""
        return self.directory if self.link else Path(self.root)

    @property
    def uri(self) -> str:
        """The `file:` address of the SKILL.md, which differs for two skills of one name."""
        return Path(self.file).as_uri()


class LinkedFile(NamedTuple):
    """A file of a skill that is outside of its directory."""

    relative: str
    """Below the skill's directory, as it is written."""
    real: str
    """Where it is, without links."""


class SkillLinks(NamedTuple):
    """What the links of a skill lead to out of it."""

    files: tuple[LinkedFile, ...] = ()
    """What is followed, by path: of a directory the files, without those behind further links."""
    ends: tuple[str, ...] = ()
    """The real paths of the files and directories that followed links lead to, sorted."""
    refused: tuple[LinkedFile, ...] = ()
    """What is not followed."""


class SkillContent(Struct, frozen=True, kw_only=True):
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
    links: SkillLinks = SkillLinks()
    """What links in it led to when it was read."""
    resources_more: bool = False
    """Whether there are entries that were not looked at, so that there may be more files."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.body)


def tokens_of(text: str) -> int:
    """Return the estimated tokens of a text: UTF-8 bytes / 4, rounded up (DESIGN, contract)."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


class ParseResult(Struct, frozen=True, kw_only=True):
    """The skill, if the file can be used, and everything found on the way."""

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...]
    text: str = ""
    """The whole file with LF newlines; empty when it could not be decoded."""
    body: str = ""
    """The Markdown after the frontmatter; empty when its beginning is unknown."""


Level = Literal["read", "write", "sign"]
"""What a tool does at most: look, change local state, or sign (S002-29)."""
LEVELS: tuple[Level, ...] = ("read", "write", "sign")

Language = Literal["javascript", "python"]


class ToolSpec(Struct, frozen=True, kw_only=True):
    """One tool as a manifest declares it; its code has not been looked at."""

    name: str
    """Without the skill's name; the full name is `skill:tool` (S002-67)."""
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema 2020-12 of an object, with what `manifest_schema` refuses left out."""
    level: Level
    timeout_ms: int | None = None
    """None takes the default of whoever runs it (S002-73)."""


class SkillManifest(Struct, frozen=True, kw_only=True):
    """One executable skill as its manifest declares it; nothing of it was run."""

    name: str
    """Of the package, which may differ from the directory's; it is the tools' prefix."""
    version: str
    """Empty when the manifest has none."""
    description: str
    language: Language
    entry: str
    """The module to import: a relative POSIX path of a regular file in the skill."""
    env: tuple[str, ...]
    """Names of the only environment variables that its code may see (S002-48)."""
    tools: tuple[ToolSpec, ...]
    author: str = ""
    license: str = ""
    requires_python: str = ""
    """Versions of Python that it runs on, as `>=3.11`; empty takes all."""
    dependencies: tuple[str, ...] = ()
    """What it needs, as written (`viem@^2.0.0`, `httpx>=0.28`); a lock file says which exactly."""


class ManifestResult(Struct, frozen=True, kw_only=True):
    """What was read of a directory's manifest."""

    directory: Path
    manifest: SkillManifest | None
    """None when a diagnostic is an error, or when the directory holds no executable skill."""
    diagnostics: tuple[Diagnostic, ...] = ()

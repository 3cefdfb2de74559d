"""The values of this package: a skill, its manifest, how a SKILL.md is read, and the index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from skillhouse.floor import AmbiguousSkillError, Diagnostic, UnknownSkillError, decode, nearest
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
    "js-yaml-trimmed",
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
    """Fix unquoted colons and one-line `>` values (S001-25)."""
    tabs_mended: bool = False
    """Take tabs of an indentation for spaces where YAML refuses them (vector F053)."""
    yaml_fast_path: bool = True
    """Read blocks of plain lines without a YAML parser; the result is the same."""
    no_frontmatter: Literal["skip", "body", "mend"] = "skip"
    """With `skip` a file without a block is no skill, with `body` it is all body (S004-5); with
    `mend` a block that is not closed ends at the first blank line where that makes fields of it."""
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
    """Return the estimated tokens of a text: UTF-8 bytes / 4, rounded up."""
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
    returns: Mapping[str, Any] | None = None
    """Likewise of what it returns; None where the manifest does not say."""
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
    hosts: tuple[str, ...] = ()
    """What its libraries may reach through the proxy, as `[scheme://]host[:port]`, where the
    operator allows it too; https where it names no scheme."""
    executor: str = ""
    """The kind of executor that it needs, by the operator's name for it; empty for any."""
    icons: tuple[str, ...] = ()
    """Addresses of its icons, https or data of an image, for people alone."""
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


class UnvisitedDirectories(NamedTuple):
    """Directories of one root that a bound kept from being looked at."""

    root: str
    bound: Literal["directories", "depth"]
    most: int
    paths: tuple[str, ...]
    """Those whose names are known, in the order of the walk."""
    unopened: int = 0
    """Further directories that were looked at, and not below."""


NameMatch = Literal["exact", "casefold"]
_Key = Callable[[Skill], str]


class IndexContent(Struct, frozen=True, kw_only=True):
    """The skills of an index, apart from how names are looked up."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    left_out: tuple[UnvisitedDirectories, ...] = ()


class SkillIndex:
    """The skills that were found, in catalog order; decoded when first looked at."""

    def __init__(
        self,
        skills: Iterable[Skill] = (),
        *,
        shadowed: Iterable[Skill] = (),
        diagnostics: Iterable[Diagnostic] = (),
        left_out: Iterable[UnvisitedDirectories] = (),
        source: Callable[[], IndexContent] | None = None,
        name_match: NameMatch = "casefold",
        cache: Path | None = None,
        made_of: object = None,
        before: SkillIndex | None = None,
    ) -> None:
        """Hold these values, or those that `source` returns when they are first needed.

        With "casefold" a reference in another case finds what it fits alone. `cache` is the
        directory where the search index of these skills is kept, if it is. `made_of` is equal for
        sources of equal content, None where nothing says so: then that of `before` is taken.
        """
        self._made_of = made_of
        if before is not None and made_of is not None and before.is_decoded:
            self._take(before)
        self.cache = cache
        self.name_match = name_match
        if source is None:
            content = IndexContent(
                skills=tuple(skills),
                shadowed=tuple(shadowed),
                diagnostics=tuple(diagnostics),
                left_out=tuple(left_out),
            )
            self._source: Callable[[], IndexContent] = lambda: content
        else:
            self._source = source

    @cached_property
    def _content(self) -> IndexContent:
        return self._source()

    def _take(self, before: SkillIndex) -> None:
        if before._made_of == self._made_of:
            self._content = before._content

    def share(self, other: SkillIndex) -> None:
        """Hold the skills of another index where they are equal: memory and comparisons of one."""
        if self._content is other._content:
            return
        known = {skill.file: skill for skill in (*other.skills, *other.shadowed)}

        def shared(skill: Skill) -> Skill:
            old = known.get(skill.file)
            # The signature is in no comparison, and says which body is read.
            return old if old == skill and old.signature == skill.signature else skill

        content = self._content
        self._content = IndexContent(
            skills=tuple(map(shared, content.skills)),
            shadowed=tuple(map(shared, content.shadowed)),
            diagnostics=content.diagnostics,
            left_out=content.left_out,
        )

    def plus(self, further: tuple[Skill, ...]) -> SkillIndex:
        """Return an index with further skills at its end; this one where there are none."""
        if not further:
            return self
        return SkillIndex((*self.skills, *further), name_match=self.name_match)

    @property
    def is_decoded(self) -> bool:
        """Whether the skills were looked at, so that they are at hand."""
        return "_content" in self.__dict__

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills in force, strongest scope first, by name within a root."""
        return self._content.skills

    @property
    def shadowed(self) -> tuple[Skill, ...]:
        """Skills whose name a stronger one has; still found by id."""
        return self._content.shadowed

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All findings, in the order of the files."""
        return self._content.diagnostics

    @property
    def left_out(self) -> tuple[UnvisitedDirectories, ...]:
        """What a bound of a root kept from being looked at."""
        return self._content.left_out

    def of_id(self, skill_id: str) -> Sequence[Skill]:
        """Return the skills in force with an id, in their order; several files may have one."""
        return self._of_id.get(skill_id, ())

    @cached_property
    def _of_id(self) -> Mapping[str, Sequence[Skill]]:
        found: dict[str, list[Skill]] = {}
        for skill in self.skills:
            found.setdefault(skill.id, []).append(skill)
        return found

    def get(self, reference: str) -> Skill:
        """Return the skill with that id, name or directory name, or at that SKILL.md.

        They are tried in this order, so that no name can take the place of an id; each finds
        skills in force before shadowed ones. Only when nothing fits exactly is the case of an
        id, name or directory name passed over, if the index does that at all (S003-34), and then
        where it has blanks and line breaks: a list shows a name on one line, whatever the file has.
        UnknownSkillError lists the nearest names, AmbiguousSkillError what to ask for instead.
        """
        found = self._only(_KEYS, reference, reference)
        forms: list[Callable[[str], str]] = [str.casefold] if self._folds else []
        for form in (*forms, self._on_one_line):
            if found is None:
                keys = [_in_form(key, form) for key in _KEYS[:-1]]
                found = self._only(keys, form(reference), reference)
        if found is not None:
            return found
        if ":" in reference:
            known = {skill.id for skill in (*self.skills, *self.shadowed)}
        else:
            known = {skill.name for skill in self.skills}
        raise UnknownSkillError(reference, nearest(reference, known))

    @property
    def _folds(self) -> bool:
        return self.name_match == "casefold"

    def _on_one_line(self, text: str) -> str:
        # No blank after the scope of an id, where a name begins with one.
        line = " ".join(text.split()).replace(": ", ":")
        return line.casefold() if self._folds else line

    def _only(self, keys: Sequence[_Key], wanted: str, reference: str) -> Skill | None:
        for key in keys:
            for among in (self.skills, self.shadowed):
                fitting = [skill for skill in among if key(skill) == wanted]
                if len(fitting) > 1:
                    ids = tuple(skill.id for skill in fitting)
                    distinct = len(set(ids)) == len(ids)
                    raise AmbiguousSkillError(
                        reference, ids if distinct else tuple(skill.file for skill in fitting)
                    )
                if fitting:
                    return fitting[0]
        return None

    def where(self, keep: Callable[[Skill], bool]) -> SkillIndex:
        """Return an index of those skills in force that `keep` accepts, with the same look-up."""
        kept = filter(keep, self.skills)
        return SkillIndex(kept, name_match=self.name_match, cache=self.cache)

    def __len__(self) -> int:
        return len(self.skills)


def _directory_name(skill: Skill) -> str:
    # Not `skill.directory.name`: this is asked of thousands of skills for one look-up.
    return os.path.basename(os.path.dirname(skill.file))


def _in_form(key: _Key, form: Callable[[str], str]) -> _Key:
    return lambda skill: form(key(skill))


_KEYS: tuple[_Key, ...] = (
    attrgetter("id"),
    attrgetter("name"),
    _directory_name,
    attrgetter("file"),
)

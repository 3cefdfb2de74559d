"""What an MCP server says of its skills, checked before anything of it is used (SEP-2640).

A server is a stranger: its names become no paths, its addresses stay its own, and what it cannot
be held to (a skill without digests) is not taken. The bytes of its files have to match its entries.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from skillhouse.floor import ConfigError, PathError, canonical_json, checked_parts, digest, encode
from skillhouse.floor.regex import regex
from skillhouse.remote.source import RemoteError
from skillhouse.skill import (
    DEPTH_MAX,
    PATH_MAX,
    SKILL_FILE,
    SKILL_FILE_MAX,
    clash,
    core_value,
    find_hidden,
    is_safe_name,
    parse,
    validate_name,
)

FILES_MAX = 512
"""Files of a skill (SEP-2640, "Limits")."""
BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a skill's files together (SEP-2640, "Limits")."""
URI_MAX = 2_048
FRONTMATTER_MAX = 65_536
"""Bytes of an entry's frontmatter as JSON (docs/reference/limits.md)."""
DESCRIPTION_MAX = 1_024
"""Characters of a description (specification, `description`)."""

_DIGEST = regex(r"sha256:[0-9a-f]{64}")
_SCHEME = regex(r"[a-z][a-z0-9+.-]{0,31}://(?=[^/])")
_ADDRESS = regex(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%\[\]]+")
"""What an address is made of (RFC 3986): neither query nor fragment, nor anything unseen."""
_NOWHERE = Path("skill")
_OLD_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
"""What YAML 1.1 makes of these words; servers written in Python say so."""


class McpServer(Struct, frozen=True, kw_only=True):
    """A server that a person has named; only they can say what it is called here."""

    label: str
    """The host's own word for it, never the server's: a-z, 0-9 and hyphens."""
    url: str = ""
    """`https://host/mcp` of a server that is reached over HTTP."""
    command: tuple[str, ...] = ()
    """Program and arguments of a server that is started here and spoken to over its pipes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What that program gets besides the usual few variables."""
    directory: Path | None = None
    """Where it is started; None for the current directory."""
    allow_private: bool = False
    """Whether its address may be one of this machine (there also over plain http) or of a private
    network."""

    def __post_init__(self) -> None:
        """Refuse a label that is none, and what has not exactly one of url and command."""
        if validate_name(self.label, directory=self.label):
            raise ConfigError(
                f"expected a label of a-z, 0-9 and hyphens, got {self.label!r}", key="label"
            )
        if bool(self.url) == bool(self.command):
            raise ConfigError(f"expected `url` or `command` for `{self.label}`", key="url")
        parts = urlsplit(self.url)
        is_address = parts.scheme in ("http", "https") and parts.hostname
        if self.url and (not is_address or parts.username is not None or parts.fragment):
            raise ConfigError(f"expected https://host/path, got `{self.url}`", key="url")


class McpFile(Struct, frozen=True, kw_only=True):
    uri: str
    relative: str
    """Where it goes below the skill's directory."""
    digest: str
    size: int


class McpSkill(Struct, frozen=True, kw_only=True):
    """One skill of one server; the pair of label and address is what it is known by."""

    label: str
    uri: str
    """Address of its SKILL.md, which means nothing without the label."""
    frontmatter: Mapping[str, Any]
    files: tuple[McpFile, ...]
    """All of them, sorted by address."""

    @property
    def name(self) -> str:
        """The name as its author wrote it: a label, not an identifier."""
        return str(self.frontmatter["name"])

    @property
    def path(self) -> str:
        """The skill's path on its server, which ends in its name."""
        return self.uri.partition("://")[2].removesuffix(f"/{SKILL_FILE}")

    @property
    def binding(self) -> str:
        """What an approval of this skill is bound to: each address with its digest and size.

        Any file that is added, removed or changed gives another.
        """
        content = [self.label, self.uri, [[f.uri, f.digest, f.size] for f in self.files]]
        return f"mcpset1:{hashlib.sha256(canonical_json(content)).hexdigest()}"

    def file(self, relative: str) -> McpFile | None:
        return next((one for one in self.files if one.relative == relative), None)


def read_entry(label: str, value: Any) -> McpSkill:
    """Return an entry of `skills/list` or `skills/get` when it is as SEP-2640 asks."""
    if not isinstance(value, dict):
        raise RemoteError(f"expected an object for a skill, got {str(value)[:80]!r}")
    uri = value.get("uri")
    if not isinstance(uri, str) or not _is_address(uri) or not uri.endswith(f"/{SKILL_FILE}"):
        raise RemoteError(f"expected the address of a {SKILL_FILE}, got {str(uri)[:80]!r}")
    frontmatter = _frontmatter(uri, value.get("frontmatter"))
    base = uri[: -len(SKILL_FILE)]
    if base.rstrip("/").rpartition("/")[2] != frontmatter["name"]:
        raise RemoteError(f"`{uri}` passed over: its path does not end in its name")
    files = _files(uri, base, value.get("resources"))
    return McpSkill(label=label, uri=uri, frontmatter=frontmatter, files=files)


def _frontmatter(uri: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RemoteError(f"`{uri}` passed over: expected its frontmatter, got {value!r:.80}")
    name, description = value.get("name"), value.get("description")
    if not isinstance(name, str) or validate_name(name, directory=name):
        raise RemoteError(f"`{uri}` passed over: refused name {str(name)[:80]!r}")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= DESCRIPTION_MAX:
        raise RemoteError(f"`{uri}` passed over: expected a description of 1-{DESCRIPTION_MAX}")
    if find_hidden(description) is not None:
        raise RemoteError(f"`{uri}` passed over: hidden characters in its description")
    try:
        size = len(json.dumps(value).encode())
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"`{uri}` passed over: frontmatter that is no JSON") from error
    if size > FRONTMATTER_MAX:
        raise RemoteError(f"`{uri}` passed over: more than {FRONTMATTER_MAX} bytes of frontmatter")
    return value


def _files(uri: str, base: str, value: Any) -> tuple[McpFile, ...]:
    if value == "dynamic":
        # SEP-2640 lets a host decline it: nothing could be verified, and no approval bound to it.
        raise RemoteError(f"`{uri}` passed over: its files are made on demand, without digests")
    if not isinstance(value, list):
        raise RemoteError(f"`{uri}` passed over: expected its files, got {value!r:.80}")
    if len(value) > FILES_MAX:
        raise RemoteError(f"`{uri}` passed over: {len(value)} files, more than {FILES_MAX}")
    files = [_file(uri, base, one) for one in value]
    if sum(file.size for file in files) > BYTES_MAX:
        raise RemoteError(f"`{uri}` passed over: more than {BYTES_MAX} bytes")
    own = [file for file in files if file.uri == uri]
    if len(own) != 1 or own[0].relative != SKILL_FILE:
        raise RemoteError(f"`{uri}` passed over: its {SKILL_FILE} is not once among its files")
    if own[0].size > SKILL_FILE_MAX:
        raise RemoteError(f"`{uri}` passed over: a {SKILL_FILE} of more than {SKILL_FILE_MAX}")
    if clash(file.relative for file in files):
        raise RemoteError(f"`{uri}` passed over: two of its files have one place")
    return tuple(sorted(files, key=lambda file: file.uri))


def _file(skill: str, base: str, value: Any) -> McpFile:
    fields = value if isinstance(value, dict) else {}
    uri, digest, size = fields.get("uri"), fields.get("digest"), fields.get("size")
    if not isinstance(uri, str) or not _is_address(uri) or not uri.startswith(base):
        raise RemoteError(f"`{skill}` passed over: a file outside it: {str(uri)[:80]!r}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise RemoteError(f"`{skill}` passed over: no digest of `{uri}`: {str(digest)[:80]!r}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise RemoteError(f"`{skill}` passed over: no size of `{uri}`: {str(size)[:80]!r}")
    return McpFile(uri=uri, relative=_relative(skill, uri[len(base) :]), digest=digest, size=size)


def _relative(skill: str, quoted: str) -> str:
    """Return the path that the end of an address names, safe on every file system."""
    parts = []
    try:
        for segment in quoted.split("/"):
            part = unquote(segment, errors="strict")
            # What is one segment of the address must be one name: `%2e%2e%2f` is two.
            if checked_parts(part, _NOWHERE) != (part,) or not is_safe_name(part):
                raise PathError("path-reserved", part, _NOWHERE)
            parts.append(part)
    except (PathError, UnicodeDecodeError) as error:
        raise RemoteError(f"`{skill}` passed over: refused file {quoted[:80]!r}") from error
    relative = "/".join(parts)
    if len(relative.encode()) > PATH_MAX or len(parts) > DEPTH_MAX:
        raise RemoteError(f"`{skill}` passed over: too long: {quoted[:80]!r}")
    return relative


def _is_address(uri: str) -> bool:
    scheme = _SCHEME.match(uri)
    if scheme is None or len(uri) > URI_MAX or not _ADDRESS.fullmatch(uri):
        return False
    segments = uri[scheme.end() :].split("/")
    return all(segment not in ("", ".", "..") for segment in segments)


def shown_names(skills: Iterable[McpSkill]) -> Mapping[tuple[str, str], str]:
    """Return what each skill is called here, by label and address.

    That is `label:name`, so that no server's skill takes another's name or that of one of this
    machine; where a server has the name twice, all of these are called by their paths instead.
    """
    listed = list(skills)
    counts = Counter((skill.label, skill.name) for skill in listed)
    return {
        (skill.label, skill.uri): (
            f"{skill.label}:{skill.name if counts[skill.label, skill.name] == 1 else skill.path}"
        )
        for skill in listed
    }


def frontmatter_difference(data: bytes, skill: McpSkill) -> str:
    """Return the first field in which a SKILL.md and its entry differ, or nothing.

    Servers read YAML with different libraries, so a value is the same when it is the text as it
    is written or what YAML 1.2 or 1.1 makes of a plain scalar.
    """
    parsed = parse(data, directory=skill.name).skill
    if parsed is None:
        return "the file is no skill"
    written = parsed.frontmatter.fields
    for key in sorted({*written, *skill.frontmatter}):
        if key not in written or key not in skill.frontmatter:
            return f"`{key}` is only in the {'entry' if key in skill.frontmatter else 'file'}"
        if not _is_same(written[key], skill.frontmatter[key]):
            return f"`{key}` differs"
    return ""


def _is_same(written: Any, listed: Any) -> bool:
    if isinstance(written, dict):
        return (
            isinstance(listed, dict)
            and written.keys() == listed.keys()
            and all(_is_same(value, listed[key]) for key, value in written.items())
        )
    if isinstance(written, list):
        return (
            isinstance(listed, list)
            and len(written) == len(listed)
            and all(map(_is_same, written, listed))
        )
    if isinstance(listed, str):
        return bool(listed == written)
    meaning = core_value(written)
    if isinstance(listed, bool):
        return meaning is listed or _OLD_BOOLEANS.get(written.lower()) is listed
    if isinstance(meaning, bool) or isinstance(listed, dict | list):
        return False
    return bool(meaning == listed)


class VerificationError(RemoteError):
    """A file is not what its skill's entry says; nothing of it was used or kept."""


def read_all(label: str, values: Sequence[object], problems: list[str]) -> dict[str, McpSkill]:
    """Return the usable entries by address; a bad one costs no other."""
    by_address: dict[str, McpSkill] = {}
    twice: set[str] = set()
    for value in values:
        try:
            skill = _entry(label, value)
        except RemoteError as error:
            problems.append(str(error))
            continue
        if skill.uri in by_address and by_address[skill.uri] != skill:
            twice.add(skill.uri)
        by_address[skill.uri] = skill
    for uri in sorted(twice):
        problems.append(f"`{uri}` passed over: listed twice, and not alike")
        del by_address[uri]
    return by_address


def _entry(label: str, value: object) -> McpSkill:
    """Return an entry that can be used and stored.

    Raises:
        RemoteError: it is not as SEP-2640 asks, or holds what is no text, no number or too deep.
    """
    try:
        skill = read_entry(label, value)
        encode(dict(skill.frontmatter))
    except (ValueError, OverflowError, RecursionError) as error:
        raise RemoteError(f"an entry of `{label}` passed over: {error}") from error
    return skill


def read_answer(label: str, uri: str, value: object) -> McpSkill:
    """Return the entry of the skill that a server was asked about; RemoteError for another."""
    skill = _entry(label, value)
    if skill.uri != uri:
        raise RemoteError(f"`{label}` answered about `{skill.uri}` when asked about `{uri}`")
    return skill


def verify_file(entry: McpSkill, file: McpFile, data: bytes) -> None:
    """Refuse bytes that are not what the entry says (SEP-2640, "Verification on Read")."""
    again = f"; refresh `{entry.label}`, then the skill needs approval again"
    if len(data) != file.size:
        raise VerificationError(
            f"expected {file.size} bytes of `{file.uri}`, got {len(data)}{again}"
        )
    if digest(data) != file.digest:
        raise VerificationError(
            f"expected {file.digest} of `{file.uri}`, got {digest(data)}{again}"
        )
    if file.relative == SKILL_FILE:
        difference = frontmatter_difference(data, entry)
        if difference:
            raise VerificationError(
                f"the frontmatter of `{file.uri}` is not that of its entry: {difference}"
            )

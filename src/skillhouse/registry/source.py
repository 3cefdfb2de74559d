"""Reads what a person writes after `install`: where a skill is to come from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from skillhouse.floor import PathError, SkillhouseError
from skillhouse.skill import package_path, validate_name

GITHUB = "https://github.com"

Kind = Literal["directory", "archive", "url", "git", "well-known", "mcp", "name"]

_ARCHIVES = (".zip", ".tar.gz", ".tgz")
_GITHUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:]+)")
_PAGE = re.compile(
    r"(?P<repository>https?://[^/]+(?:/[^/]+)+?)(?:\.git)?/-/(?:tree|blob)/(?P<ref>[^/]+)"
    r"(?P<inside>(?:/.*)?)"
)
"""A directory or file of a repository, as GitLab shows it."""
_FORGES = ("gitlab.com", "codeberg.org", "bitbucket.org")
"""Hosts whose addresses are repositories, also without `.git`."""
_LISTS = ("skills.sh", "www.skills.sh")
"""Pages that name skills of GitHub."""
_RANGE = re.compile(r"[0-9A-Za-z.+^~*<>=, |-]{0,100}")
_MCP = "mcp:"
_TRANSPORTS = ("https", "http", "ssh", "file")


class SourceError(SkillhouseError):
    """A source cannot be used, or gives nothing that can be installed."""


class MissingPathError(SourceError):
    """A source has no directory, or no skill, at a path."""


class Source(Struct, frozen=True, kw_only=True):
    """Where a skill comes from."""

    kind: Kind
    location: str
    """An absolute path, an address, the label of an MCP server, or the name."""
    repository: str
    """What a name is locked to: the repository, the server, or the place on this machine."""
    path: str = ""
    """The directory inside a repository, or the skill of an MCP server; empty for all of it."""
    ref: str = ""
    """A branch, a tag or a commit; empty for what the server calls its HEAD."""
    transport: str = ""
    """Of git: https, http, ssh or file."""


def parse_source(text: str, start: Path, *, home: Path, github: str = GITHUB) -> Source:
    """Return what a text names.

    A path begins with `.`, `/` or `~`; `owner/repo` is one of GitHub. A branch, tag or commit
    follows `@`, and a directory in a Git URL follows `//`. A skill of an MCP server is
    `mcp:LABEL/NAME`.

    >>> source = parse_source("acme/skills/pdf@v2", Path("/"), home=Path("/"))
    >>> source.location, source.path, source.ref
    ('https://github.com/acme/skills.git', 'pdf', 'v2')

    Raises:
        SourceError: it names nothing that can be installed from.
    """
    if not text or text != text.strip() or not text.isprintable() or text.startswith("-"):
        raise SourceError(f"no source: {text[:80]!r}")
    if text[0] in "./~" or text == "..":
        return _local(text, start, home)
    if text.startswith(_MCP):
        return _mcp(text)
    if "#" in text and ("://" not in text or ".git#" in text):
        better = text.replace("#", "@", 1)[:80]
        raise SourceError(f"a branch, tag or commit follows `@`, and not `#`: `{better}`")
    if (match := _SCP.fullmatch(text)) is not None:
        return _scp(text, match)
    if "://" in text or "::" in text:
        return _address(text, github)
    if (named := _named(text)) is not None:
        return named
    return _github(text, github)


def _named(text: str) -> Source | None:
    """Return a name of repositories, `pdf@^1.2` or `@acme/pdf@^1.2`; None for another source."""
    at = "@" if text.startswith("@") else ""
    name, separator, version = text.removeprefix("@").partition("@")
    if bool(at) != ("/" in name):
        return None
    parts = name.split("/")
    if len(parts) > 2 or any(validate_name(part, directory=part) for part in parts):
        return None
    if (separator and not version.strip()) or not _RANGE.fullmatch(version):
        return None
    return Source(kind="name", location=f"{at}{name}", repository="", ref=version.strip())


def _local(text: str, start: Path, home: Path) -> Source:
    given = Path(str(home) + text[1:]) if text == "~" or text.startswith("~/") else Path(text)
    place = Path(os.path.abspath(start / given))
    if place.is_dir():
        return Source(kind="directory", location=str(place), repository=place.as_uri())
    if not place.exists():
        raise MissingPathError(f"nothing is at `{place}`")
    if not place.name.lower().endswith(_ARCHIVES):
        raise SourceError(f"expected a directory, or a file {_suffixes()}, got `{place}`")
    return Source(kind="archive", location=str(place), repository=place.as_uri())


def _suffixes() -> str:
    return ", ".join(_ARCHIVES[:-1]) + f" or {_ARCHIVES[-1]}"


def _github(text: str, github: str) -> Source:
    name, _, ref = text.partition("@")
    owner, _, rest = name.partition("/")
    repository, _, path = rest.partition("/")
    full = f"{owner}/{repository.removesuffix('.git')}"
    if not _GITHUB_NAME.fullmatch(full) or ".." in full:
        message = "expected NAME, @namespace/NAME, ./directory, owner/repo or an address"
        raise SourceError(f"{message}, got {text[:80]!r}")
    return _git(f"{github.rstrip('/')}/{full}.git", path, ref, is_ref_given="@" in text)


def _mcp(text: str) -> Source:
    label, _, skill = text.removeprefix(_MCP).partition("/")
    if validate_name(label, directory=label):
        message = "expected mcp:LABEL/SKILL with the label of a configured MCP server"
        raise SourceError(f"{message}, got {text[:80]!r}")
    return Source(kind="mcp", location=label, repository=f"{_MCP}{label}", path=skill)


def _scp(text: str, match: re.Match[str]) -> Source:
    where, path, ref = _split(match["path"])
    if where.startswith(("-", "/", "~")) or ".." in where.split("/"):
        raise SourceError(f"no repository: {text[:80]!r}")
    return _git(f"ssh://{match['user']}@{match['host']}/{where}", path, ref)


def _address(text: str, github: str) -> Source:
    is_git = text.startswith("git+")
    address = text.removeprefix("git+")
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise SourceError(f"no address: {error}") from error
    if parts.scheme not in _TRANSPORTS or "::" in text.partition("://")[0]:
        raise SourceError(f"expected an address of {', '.join(_TRANSPORTS)}, got {text[:80]!r}")
    if parts.password or parts.fragment or "\\" in text:
        raise SourceError("expected an address without a password, a fragment and backslashes")
    if parts.scheme != "file" and (not parts.hostname or parts.hostname.startswith("-")):
        raise SourceError(f"no host in the address {text[:80]!r}")
    if parts.scheme in ("http", "https"):
        if parts.username:
            raise SourceError("expected an address without a user; git asks your helper for one")
        found = _web(address, parts.path, is_git=is_git, github=github)
        if found is not None:
            return found
    where, path, ref = _split(address.partition("://")[2])
    return _git(f"{parts.scheme}://{where}", path, ref)


def _web(address: str, path: str, *, is_git: bool, github: str) -> Source | None:
    """Return a source that is no Git URL, or one of GitHub's pages; None for a Git URL."""
    if address.startswith(f"{github.rstrip('/')}/"):
        words = unquote(path).strip("/").split("/")
        if len(words) > 3 and words[2] in ("tree", "blob"):
            inside = "/".join(words[4:]).removesuffix("SKILL.md").strip("/")
            text = "/".join(filter(None, [*words[:2], inside]))
            return _github(f"{text}@{words[3]}", github)
        if len(words) == 2 and "@" not in address and not is_git:
            return _github("/".join(words), github)
    if is_git or re.search(r"\.git(?=$|//|@)", path):
        return None
    if (page := _PAGE.fullmatch(unquote(address.partition("?")[0]))) is not None:
        inside = page["inside"].removesuffix("SKILL.md").strip("/")
        return _git(f"{page['repository']}.git", inside, page["ref"], is_ref_given=True)
    host = urlsplit(address).hostname
    if host in _FORGES and path.count("/") > 1 and "?" not in address:
        where, inside, ref = _split(address.partition("://")[2])
        return _git(f"https://{where.rstrip('/')}.git", inside, ref)
    if host in _LISTS:
        words = [*unquote(path).strip("/").split("/"), "", ""]
        flag = f" --skill {words[2]}" if words[2] else ""
        message = f"a list of skills, no source: `skillhouse install {words[0]}/{words[1]}{flag}`"
        raise SourceError(message)
    parts = urlsplit(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    if path.lower().endswith(_ARCHIVES):
        return Source(kind="url", location=address, repository=origin)
    if parts.query:
        raise SourceError(f"expected an address without a query, got {address[:80]!r}")
    # One server may have a list for each namespace, each below a path of its own.
    return Source(kind="well-known", location=address, repository=address.rstrip("/"))


def _split(text: str) -> tuple[str, str, str]:
    """Return what is before `//`, the path behind it, and the ref behind `@` in the last part."""
    where, _, path = text.partition("//")
    last = path or where
    # The user of ssh://git@host/… is no ref.
    at = last.rfind("@", last.find("/") + 1 if not path else 0)
    ref = last[at + 1 :] if at >= 0 else ""
    if at >= 0:
        if not ref:
            raise SourceError(f"expected a branch, tag or commit after `@` in {text[:80]!r}")
        last = last[:at]
    return (where, last, ref) if path else (last, "", ref)


def _git(url: str, path: str, ref: str, *, is_ref_given: bool = False) -> Source:
    if (ref or is_ref_given) and (not _REF.fullmatch(ref) or ".." in ref or ref.endswith(".lock")):
        raise SourceError(f"no branch, tag or commit: {ref[:80]!r}")
    try:
        inside = package_path(path) if path.strip("/") else ""
    except PathError as error:
        raise SourceError(f"refused path in a repository: {error.relative!r}") from error
    return Source(
        kind="git",
        location=url,
        repository=url.removesuffix("/").removesuffix(".git"),
        path=inside,
        ref=ref,
        transport=url.partition("://")[0],
    )

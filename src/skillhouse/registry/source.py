"""Reads what a person writes after `install`: where a skill is to come from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from skillhouse.floor import PathError
from skillhouse.registry.page_addresses import (
    GITHUB,
    KNOWN_HOSTS,
    PACKED_SKILLS,
    MissingPathError,
    PageAddress,
    SourceError,
    forge_repository,
    page_address,
    plain_host,
)
from skillhouse.skill import package_path, validate_name

Kind = Literal["directory", "archive", "url", "git", "well-known", "mcp", "name"]

TEXT_MAX = 2_048
"""Characters of a source."""
_GITHUB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}")
_SCP = re.compile(r"(?P<user>[A-Za-z0-9._-]+)@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:]+)")
_USER = re.compile(r"//[^/@]*@")
_SHORT = {"github": GITHUB, "gitlab": "https://gitlab.com", "bitbucket": "https://bitbucket.org"}
"""Hosts of `github:owner/repo` and the like, as npm has them."""
_NAME_BEFORE = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ANCHOR = "readme"
"""Of the page of a repository, where no ref follows `#`."""
_RANGE = re.compile(r"[0-9A-Za-z.+^~*<>=, |-]{0,100}")
_MCP = "mcp:"
_TRANSPORTS = ("https", "http", "ssh", "file")


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
    skill: str = ""
    """Of git: the name of the one skill that is meant; empty for all."""
    is_loose: bool = False
    """Of git: whether `ref` and `path` may be divided at another `/`, as pages leave it open, or
    `ref` may name a skill, where the repository has no such ref."""


def parse_source(text: str, start: Path, *, home: Path, github: str = GITHUB) -> Source:
    """Return what a text names.

    A path begins with `.`, `/` or `~`; `owner/repo` is one of GitHub. A branch, tag or commit
    follows `@` or `#`, and a directory in a Git URL follows `//`. A page of GitHub, GitLab,
    Codeberg, Bitbucket, Azure Repos or skills.sh is the repository, ref and directory that it
    shows. A skill of an MCP server is `mcp:LABEL/NAME`.

    >>> source = parse_source("acme/skills/pdf@v2", Path("/"), home=Path("/"))
    >>> source.location, source.path, source.ref
    ('https://github.com/acme/skills.git', 'pdf', 'v2')

    Raises:
        SourceError: it names nothing that can be installed from.
    """
    if not text or text != text.strip() or not text.isprintable() or text.startswith("-"):
        raise SourceError(f"no source: {_shown(text)!r}")
    if len(text) > TEXT_MAX:
        raise SourceError(f"expected a source of at most {TEXT_MAX} characters")
    if text[0] in "./~" or text == "..":
        return _local(text, start, home)
    if text.startswith(_MCP):
        return _mcp(text)
    text = _with_scheme(text)
    if (match := _SCP.fullmatch(text)) is not None:
        return _scp(text, match)
    if "://" in text or "::" in text:
        return _address(text, github)
    if (named := _named(text)) is not None:
        return named
    return _github(text, github)


def _shown(text: str) -> str:
    """Return the beginning of a text for a message, without what is before the host."""
    return _USER.sub("//", text)[:80]


def _with_scheme(text: str) -> str:
    """Return the address of `github:owner/repo` and `github.com/owner/repo`; others as they are."""
    short, _, rest = text.partition(":")
    if short in _SHORT and rest and not rest.startswith("/"):
        return f"{_SHORT[short]}/{rest}"
    host = text.partition("/")[0].lower().removeprefix("www.")
    return f"https://{text}" if host in KNOWN_HOSTS else text


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
    if not place.name.lower().endswith(PACKED_SKILLS):
        raise SourceError(f"expected a directory, or a file {_suffixes()}, got `{place}`")
    return Source(kind="archive", location=str(place), repository=place.as_uri())


def _suffixes() -> str:
    return ", ".join(PACKED_SKILLS[:-1]) + f" or {PACKED_SKILLS[-1]}"


def _github(text: str, github: str) -> Source:
    where, ref, skill = _hashed(text)
    name, at, given = where.partition("@")
    if at and "#" in text:
        raise SourceError(f"expected a ref after `@` or after `#`, and not both: {_shown(text)!r}")
    owner, _, rest = name.partition("/")
    repository, _, path = rest.partition("/")
    full = f"{owner}/{repository.removesuffix('.git')}"
    if not _GITHUB_NAME.fullmatch(full) or ".." in full:
        message = "expected NAME, @namespace/NAME, ./directory, owner/repo or an address"
        raise SourceError(f"{message}, got {_shown(text)!r}")
    url = f"{github.rstrip('/')}/{full}.git"
    is_ref_given = bool(at) or "#" in text
    return _git(url, path, given or ref, skill=skill, is_ref_given=is_ref_given, is_loose=bool(at))


def _hashed(text: str) -> tuple[str, str, str]:
    """Return what is before `#`, the ref behind it, and the skill behind `@` in that."""
    where, _, fragment = text.partition("#")
    ref, _, skill = fragment.partition("@")
    return where, ref, skill


def _mcp(text: str) -> Source:
    label, _, skill = text.removeprefix(_MCP).partition("/")
    if validate_name(label, directory=label):
        message = "expected mcp:LABEL/SKILL with the label of a configured MCP server"
        raise SourceError(f"{message}, got {_shown(text)!r}")
    return Source(kind="mcp", location=label, repository=f"{_MCP}{label}", path=skill)


def _scp(text: str, match: re.Match[str]) -> Source:
    path, ref, skill = _hashed(match["path"])
    where, inside, given = _split(path)
    if where.startswith(("-", "/", "~")) or ".." in where.split("/"):
        raise SourceError(f"no repository: {_shown(text)!r}")
    url = f"ssh://{match['user']}@{match['host']}/{where}"
    return _git(url, inside, _one(given, ref), skill=skill, is_ref_given="#" in text)


def _one(given: str, hashed: str) -> str:
    if given and hashed:
        raise SourceError(f"expected a ref after `@` or after `#`, and not both: `{hashed[:80]}`")
    return given or hashed


def _address(text: str, github: str) -> Source:
    is_git = text.startswith("git+")
    address, ref, skill = _hashed(text.removeprefix("git+"))
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise SourceError(f"no address: {error}") from error
    if parts.scheme not in _TRANSPORTS or "::" in text.partition("://")[0]:
        expected = ", ".join(_TRANSPORTS)
        raise SourceError(f"expected an address of {expected}, got {_shown(text)!r}")
    if parts.password or "\\" in text:
        raise SourceError("expected an address without a password and backslashes")
    if parts.scheme != "file" and (not parts.hostname or parts.hostname.startswith("-")):
        raise SourceError(f"no host in the address {_shown(text)!r}")
    if parts.scheme in ("http", "https"):
        if parts.username:
            address, parts = _without_user(parts)
        if not is_git and (found := _web(address, parts, text.partition("#")[2], github)):
            return found
    where, path, given = _split(address.partition("://")[2])
    url, ref = f"{parts.scheme}://{where}", _one(given, ref)
    return _git(url, path, ref, skill=skill, is_ref_given="#" in text)


def _without_user(parts: SplitResult) -> tuple[str, SplitResult]:
    """Return an address without the person's name that some hosts show in it."""
    user, _, host = parts.netloc.rpartition("@")
    owner = parts.path.strip("/").partition("/")[0]
    # INVARIANT: what may be a token gets into no lock: Azure Repos shows the organization there.
    is_name = {"bitbucket.org": bool(_NAME_BEFORE.fullmatch(user)), "dev.azure.com": user == owner}
    if not is_name.get(host.lower(), False):
        raise SourceError("expected an address without a user; git asks your helper for one")
    plain = parts._replace(netloc=host)
    return plain.geturl(), plain


def _web(address: str, parts: SplitResult, fragment: str, github: str) -> Source | None:
    """Return a source that is no Git URL, or what a page shows; None for a Git URL."""
    if (page := page_address(parts)) is not None:
        return _of_page(page)
    path = parts.path
    is_typed_base = address.startswith(f"{github.rstrip('/')}/") and path.count("/") == 2
    top, inside, at = _split(address.partition("://")[2].partition("?")[0])
    where = urlsplit(f"{parts.scheme}://{top}")
    if url := forge_repository(where, where.path):
        is_anchor = fragment == _ANCHOR or "tab" in parts.query
        ref, skill = ("", "") if is_anchor else _hashed(f"#{fragment}")[1:]
        return _git(url, inside, _one(at, ref), skill=skill)
    if is_typed_base and "@" not in address:
        return _github(path.strip("/") + f"#{fragment}" * bool(fragment), github)
    if re.search(r"\.git/?(?=$|//|@)", path):
        return None
    if fragment:
        raise SourceError(f"expected an address without `#`: {_shown(address)!r}")
    origin = f"{parts.scheme}://{parts.netloc}"
    if path.lower().endswith(PACKED_SKILLS):
        return Source(kind="url", location=address, repository=origin)
    if parts.query:
        raise SourceError(f"expected an address without a query, got {_shown(address)!r}")
    if path.rpartition("/")[2].lower() == "skill.md":
        message = "one file of a skill: name its repository, or put it into a directory of its own"
        raise SourceError(f"{message}, and install that: `{_shown(address)}`")
    # One server may have a list for each namespace, each below a path of its own.
    return Source(kind="well-known", location=address, repository=address.rstrip("/"))


def _of_page(page: PageAddress) -> Source:
    # A page of github.com has what is at the top of other pages of it, too.
    parts = urlsplit(page.url)
    names = unquote(parts.path).removesuffix(".git")
    if ".." in names.split("/") or not names.isprintable() or "\\" in names:
        raise SourceError(f"no repository: {_shown(page.url)!r}")
    url = forge_repository(parts, parts.path) if plain_host(parts) else ""
    is_loose = not page.is_divided
    return _git(url or page.url, page.inside, page.ref, skill=page.skill, is_loose=is_loose)


def _split(text: str) -> tuple[str, str, str]:
    """Return what is before `//`, the path behind it, and the ref behind `@` in the last part."""
    where, _, path = text.partition("//")
    last = path or where
    # The user of ssh://git@host/… is no ref.
    at = last.rfind("@", last.find("/") + 1 if not path else 0)
    ref = last[at + 1 :] if at >= 0 else ""
    if at >= 0:
        if not ref:
            raise SourceError(f"expected a branch, tag or commit after `@` in {_shown(text)!r}")
        last = last[:at]
    return (where, last, ref) if path else (last, "", ref)


def _git(
    url: str,
    path: str,
    ref: str,
    *,
    skill: str = "",
    is_ref_given: bool = False,
    is_loose: bool = False,
) -> Source:
    if (ref or is_ref_given) and not is_ref(ref):
        raise SourceError(f"no branch, tag or commit: {ref[:80]!r}")
    return Source(
        kind="git",
        location=url,
        repository=url.removesuffix("/").removesuffix(".git"),
        path=inside_path(path),
        ref=ref,
        transport=url.partition("://")[0],
        skill=skill,
        is_loose=is_loose,
    )


def is_ref(text: str) -> bool:
    """Whether a text can name a branch, tag or commit; no option of git is one."""
    return bool(_REF.fullmatch(text)) and ".." not in text and not text.endswith(".lock")


def inside_path(path: str) -> str:
    """Return the path of a directory in a repository; SourceError where it is refused."""
    try:
        return package_path(path) if path.strip("/") else ""
    except PathError as error:
        raise SourceError(f"refused path in a repository: {error.relative!r}") from error

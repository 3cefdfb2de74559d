"""Reads addresses of forges as people paste them: which repository, ref and directory each shows.

A page is never fetched: what it shows is read from the repository, by git.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote

from skillhouse.floor import SkillhouseError

GITHUB = "https://github.com"
ARCHIVES = (".zip", ".tar.gz", ".tgz")
PACKED_SKILLS = (*ARCHIVES, ".skill")
"""Names of files with a skill: the packager of Anthropic's skill-creator calls its zip `.skill`."""
FORGES = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org", "gitea.com")
"""Hosts whose addresses are repositories, also without `.git`."""
_RAW = "raw.githubusercontent.com"
_GISTS = ("gist.github.com", "gist.githubusercontent.com")
_LISTS = ("skills.sh",)
"""Pages that name skills of GitHub."""
_AZURE = ("dev.azure.com",)
KNOWN_HOSTS = frozenset((*FORGES, *_LISTS, *_AZURE, *_GISTS, _RAW))
"""Hosts that may be written without `https://`, and with `www.`."""
_SKILL_FILE = "skill.md"
_CREDENTIALS = re.compile(r"(?i).*(?:token|secret|passw|sig|key).*")
_PART = re.compile(r"[A-Za-z0-9_~.][A-Za-z0-9_.-]{0,99}")
_NAMED = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class SourceError(SkillhouseError):
    """A source cannot be used, or gives nothing that can be installed."""


class MissingPathError(SourceError):
    """A source has no directory, or no skill, at a path."""


class PageAddress(NamedTuple):
    """What a page shows."""

    url: str
    """Of the repository, as git is given it."""
    ref: str = ""
    inside: str = ""
    skill: str = ""
    """The name of one of its skills."""
    is_divided: bool = True
    """Whether `ref` ends where the ref ends; a branch `a/b` goes on in `inside` otherwise."""


_REPOSITORY = r"(?P<repository>[^/]+/[^/]+)"
_DEEP = r"(?P<repository>[^/]+(?:/[^/]+)+?)"
_PLACE = r"(?:refs/(?:heads|tags|remotes/origin)/)?(?P<ref>[^/]+)(?:/(?P<inside>.*))?"
_FILES = ("blob", "raw", "blame", "edit", "media", "annotate")
"""Pages of a file; the others are of a directory, or of either."""
_ANY = "*"
_FORMS = tuple(
    (host, re.compile(form))
    for host, form in (
        # GitLab, on any host: groups may be in groups.
        (_ANY, rf"{_DEEP}/-/(?P<kind>tree|blob|raw|blame|edit|commits)/{_PLACE}"),
        (_ANY, rf"{_DEEP}/-/(?:commit|tags|releases)/(?P<whole>.+)"),
        # Forgejo and Gitea, such as Codeberg.
        (_ANY, rf"{_DEEP}/(?P<kind>src|raw|media|commits)/(?:branch|tag|commit)/{_PLACE}"),
        ("bitbucket.org", rf"{_REPOSITORY}/(?P<kind>src|raw|annotate)/{_PLACE}"),
        ("bitbucket.org", rf"{_REPOSITORY}/(?:branch|commits)/(?P<whole>.+)"),
        (_RAW, rf"{_REPOSITORY}/{_PLACE}"),
        # GitHub, its Enterprise Server, and GitLab before 2019.
        (_ANY, rf"{_REPOSITORY}/(?P<kind>tree|blob|raw|blame|edit|commits)/{_PLACE}"),
        (_ANY, rf"{_REPOSITORY}/(?:commit|releases/tag)/(?P<whole>.+)"),
    )
)
_DATA_CENTER = re.compile(
    r"(?P<above>(?:[^/]+/)*?)(?P<kind>projects|users)/(?P<project>[^/]+)/repos/(?P<name>[^/]+)"
    r"(?:/(?:browse|raw)(?:/(?P<inside>.*))?)?"
)
"""Bitbucket Data Center, whose pages and repositories have different addresses."""
_AZURE_PAGE = re.compile(r"(?:[^/]+/)*_git/[^/]+")
_AZURE_REFS = ("GB", "GT", "GC")
"""Before a branch, a tag, a commit."""


def plain_host(parts: SplitResult) -> str:
    """Return the host without the `www.` of a known one; empty at a port of its own."""
    host = (parts.hostname or "").removeprefix("www.")
    if host not in KNOWN_HOSTS:
        return parts.hostname or ""
    return host if parts.port in (None, {"https": 443, "http": 80}[parts.scheme]) else ""


def page_address(parts: SplitResult) -> PageAddress | None:
    """Return what a page shows; None for an address that is no page of a forge.

    Raises:
        SourceError: it is a page of a known forge from which nothing can be installed.
    """
    host, path = plain_host(parts), parts.path.strip("/")
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    found = _page(host, path, query, parts)
    if found is None:
        return None
    if any(map(_CREDENTIALS.fullmatch, query)):
        raise SourceError("expected an address without a token; git asks your helper for one")
    return found


def _page(host: str, path: str, query: dict[str, str], parts: SplitResult) -> PageAddress | None:
    if host in _LISTS:
        return _listed(path)
    if host in _GISTS:
        return _gist(path)
    if _AZURE_PAGE.fullmatch(path):
        return _azure(parts, path, query)
    top = f"https://{host}" if host in KNOWN_HOSTS else f"{parts.scheme}://{parts.netloc}"
    if (match := _DATA_CENTER.fullmatch(path)) is not None:
        owner = f"~{match['project']}" if match["kind"] == "users" else match["project"].lower()
        url = f"{top}/{match['above']}scm/{owner}/{match['name']}.git"
        inside = _directory(unquote(match["inside"] or ""), is_file=False)
        return PageAddress(url, query.get("at", ""), inside)
    for named, form in _FORMS:
        if named in (_ANY, host) and (match := form.fullmatch(path)) is not None:
            groups = match.groupdict()
            is_file = groups.get("kind", "raw" if host == _RAW else "") in _FILES
            if is_file and groups.get("kind") != "blob" and path.lower().endswith(PACKED_SKILLS):
                return None
            top = GITHUB if host == _RAW else top
            return _matched(f"{top}/{match['repository']}", groups, query, is_file=is_file)
    return None


def _matched(
    place: str, groups: dict[str, str | None], query: dict[str, str], *, is_file: bool
) -> PageAddress:
    url = f"{place.removesuffix('.git')}.git"
    # INVARIANT: what is decoded here is judged as a ref and as a path before it is used.
    if whole := groups.get("whole"):
        return PageAddress(url, unquote(whole))
    inside = _directory(unquote(groups["inside"] or ""), is_file=is_file)
    at = query.get("at", "")
    ref = at or unquote(groups["ref"] or "")
    return PageAddress(url, ref, inside, is_divided=bool(at))


def _directory(path: str, *, is_file: bool) -> str:
    path = path.strip("/")
    above, _, name = path.rpartition("/")
    return above if is_file or name.lower() == _SKILL_FILE else path


def _listed(path: str) -> PageAddress:
    words = [*path.split("/"), "", ""][:3]
    if not all(map(_NAMED.fullmatch, words[:2])) or (words[2] and not _NAMED.fullmatch(words[2])):
        raise SourceError("a page that names no repository: expected skills.sh/owner/repo/skill")
    return PageAddress(f"{GITHUB}/{words[0]}/{words[1]}.git", skill=words[2])


def _gist(path: str) -> PageAddress:
    names = path.removesuffix(".git").split("/")
    name = names[1] if len(names) > 1 else names[0]
    if not re.fullmatch(r"[0-9a-f]{20,40}", name):
        raise SourceError("a page of no gist: expected gist.github.com/owner/ID")
    return PageAddress(f"https://gist.github.com/{name}.git")


def _azure(parts: SplitResult, path: str, query: dict[str, str]) -> PageAddress:
    version = query.get("version", "")
    if version and version[:2] not in _AZURE_REFS:
        raise SourceError(f"expected `version=GB` and a branch, `GT` and a tag, got {version!r}")
    inside = _directory(query.get("path", ""), is_file=False)
    top = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return PageAddress(f"{top}/{path.replace(' ', '%20')}", version[2:], inside)


def forge_repository(parts: SplitResult, path: str) -> str:
    """Return the URL of the repository at the top of a known forge; empty for other addresses.

    Raises:
        SourceError: it is another page of the forge.
    """
    host = plain_host(parts)
    if host not in FORGES or path.lower().endswith(ARCHIVES):
        return ""
    names = unquote(path).strip("/").removesuffix(".git").split("/")
    if len(names) < 2:
        raise SourceError(f"a page of no repository: expected {host}/owner/repo")
    is_group = host == "gitlab.com" and "-" not in names
    if len(names) > 2 and not is_group:
        if path.lower().endswith(PACKED_SKILLS):
            return ""
        end = names.index("-") if host == "gitlab.com" else 2
        place = f"https://{host}/{'/'.join(names[:end])}"
        raise SourceError(f"a page that shows no directory; its repository is `{place}`")
    if not all(map(_PART.fullmatch, names)) or {".", ".."} & {*names}:
        raise SourceError(f"no repository of {host}: {'/'.join(names)[:80]!r}")
    return f"https://{host}/{'/'.join(names)}.git"

"""The repositories of packages that a user or operator names, in TOML or as published in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from skillhouse.floor import ConfigError, file_problem, nearest, read_regular
from skillhouse.floor.structs import field_names
from skillhouse.house.config.secret_places import is_place
from skillhouse.skill import validate_name

REPOSITORIES_MAX = 20
"""Repositories of one configuration: a name is looked for in each."""
PUBLISHED_FILE_MAX = 65_536
"""Bytes of `config.yaml`, as of a frontmatter."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WORDS = {"true": True, "false": False}


class RepositorySettings(Struct, frozen=True, kw_only=True):
    """One `[[skills.repositories]]` table (S002-100)."""

    name: str
    """What the lock calls it; skills of that name stay with it, wherever it is moved to."""
    url: str
    """https://HOST/…, file:///DIRECTORY or an absolute path: a mirror."""
    trusted: bool = False
    """Whether its skills are installed without a warning that a person must accept."""
    token: str = ""
    """Where its token is, env:NAME or file:PATH; never itself."""
    require_signature: bool = False
    """Whether unsigned skills of it are refused."""


class SkillsSettings(Struct, frozen=True, kw_only=True):
    """The table `[skills]`."""

    repositories: tuple[RepositorySettings, ...] = ()
    """In the order in which a name is looked for."""


REPOSITORY_KEYS = frozenset(field_names(RepositorySettings))


def check_repositories(found: tuple[RepositorySettings, ...], path: Path | None) -> None:
    """Raise ConfigError for a repository that cannot be one, or for two of one name."""
    key = "skills.repositories"
    if len(found) > REPOSITORIES_MAX:
        message = f"expected at most {REPOSITORIES_MAX} repositories, got {len(found)}"
        raise ConfigError(message, path=path, key=key)
    names: set[str] = set()
    for one in found:
        if validate_name(one.name, directory=one.name):
            message = f"expected a name of a-z, 0-9 and - for a repository, got {one.name[:80]!r}"
            raise ConfigError(message, path=path, key=key)
        if one.name in names:
            message = f"two repositories are called `{one.name}`"
            raise ConfigError(message, path=path, key=key)
        names.add(one.name)
        if problem := _problem(one):
            raise ConfigError(f"repository `{one.name}`: {problem}", path=path, key=key)


def _problem(one: RepositorySettings) -> str:
    """Return what is wrong with a repository; empty for nothing."""
    if one.token and not is_place(one.token):
        # What was written may be the token itself, so it is not repeated.
        return "expected `file:PATH` or `env:NAME` as its `token`"
    if one.url.startswith("/"):
        return ""
    expected = f"expected https://host/path, file:///dir or /dir, got {one.url[:80]!r}"
    try:
        parts = urlsplit(one.url)
        _ = parts.port
    except ValueError:
        return expected
    if parts.query or parts.fragment or parts.username is not None or not one.url.isprintable():
        return expected
    if parts.scheme == "file":
        return "" if parts.netloc == "" and parts.path.startswith("/") else expected
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return expected
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and (one.trusted or one.token):
        return (
            "a trusted one, and one with a token, is reached by https, or by http on this machine"
        )
    return ""


def published_repositories(path: Path) -> tuple[RepositorySettings, ...]:
    """Return the repositories of `config.yaml`, as design 002 prints it; none without the file.

    Raises:
        ConfigError: it is not used, or says something else.
    """
    if not path.exists():
        return ()
    # Not needed by most: the file is for those who have one already.
    from skillhouse.skill import yaml_text  # noqa: PLC0415
    from skillhouse.skill.source import FileRefusedError, decoded, normalise  # noqa: PLC0415

    if problem := file_problem(path):
        raise ConfigError(f"the configuration is not used: {problem}", path=path)
    try:
        text = decoded(normalise(read_regular(path, PUBLISHED_FILE_MAX), []))
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        table = yaml_text.read_mapping(text, fast=False) if any(lines) else {}
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", path=path) from error
    except FileRefusedError as error:
        raise ConfigError(f"not YAML: {error.finding.message}", path=path) from error
    skills = _part(table, "skills", path)
    listed = _part(skills, "repositories", path)
    if not isinstance(listed, list):
        message = "expected a list of repositories in `skills.repositories`"
        raise ConfigError(message, path=path, key="skills.repositories")
    return tuple(_repository(one, path) for one in listed)


def _part(table: Any, key: str, path: Path) -> Any:
    """Return the one value of a mapping; an empty list where it is not there."""
    if not isinstance(table, dict):
        raise ConfigError(f"expected `key: value` lines around `{key}`", path=path, key=key)
    for other in table:
        if other != key:
            message = f"unknown key `{other}`: only `skills.repositories` is read here"
            raise ConfigError(message, path=path, key=other)
    return table.get(key, {} if key == "skills" else [])


def _repository(value: Any, path: Path) -> RepositorySettings:
    key = "skills.repositories"
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ConfigError("expected `name` and `url` of each repository", path=path, key=key)
    found: dict[str, Any] = {}
    for word, text in value.items():
        if word not in REPOSITORY_KEYS:
            suggestion = next(iter(nearest(word, REPOSITORY_KEYS)), "")
            message = f"unknown key `{word}` of the repository `{value['name']}`"
            raise ConfigError(message, path=path, key=word, suggestion=suggestion)
        found[word] = _typed(word, text, path)
    if "url" not in found:
        raise ConfigError(f"`url` of `{value['name']}` is missing", path=path, key=key)
    return RepositorySettings(**found)


def _typed(word: str, text: Any, path: Path) -> str | bool:
    if not isinstance(text, str):
        raise ConfigError(f"expected one text as `{word}`", path=path, key=word)
    if word not in ("trusted", "require_signature"):
        return text
    if text not in _WORDS:
        message = f"`{word}` must be true or false, got {text[:40]!r}"
        raise ConfigError(message, path=path, key=word)
    return _WORDS[text]

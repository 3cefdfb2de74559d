"""The repositories of packages that a user or operator names, in TOML or as published in YAML, and
what is required of sources."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from skillhouse.floor import ConfigError, file_problem, nearest, read_regular
from skillhouse.floor.machine import seconds_of
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import field_names
from skillhouse.house.config.secret_places import is_place
from skillhouse.registry.attestations import PUBLIC_GOOD
from skillhouse.skill import validate_name

REPOSITORIES_MAX = 20
"""Repositories of one configuration: a name is looked for in each."""
PUBLISHED_FILE_MAX = 65_536
"""Bytes of `config.yaml`, as of a frontmatter."""
REFRESH_BOUNDS = (3_600, 30 * 86_400)
"""The least and the most seconds between two looks at a repository."""
_EVERY = regex(r"[1-9][0-9]{0,3}[hd]")
STALE_DAYS_MAX = 365
OIDC = "oidc"
"""As `token`: the identity of a workflow is exchanged for one."""
_OIDC_TOKEN: re.Pattern[str] = regex(r"oidc(?::[!-~]{1,200})?")
_ROOT: re.Pattern[str] = regex(r"sha256:[0-9a-f]{64}|file:[~/].{0,4096}")
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
    """Where its token is, env:NAME or file:PATH, never itself; or `oidc`, for which `publish`
    exchanges the identity of its workflow, with `oidc:AUDIENCE` where that is not the url."""
    require_signature: bool = False
    """Whether unsigned skills of it are refused."""
    refresh: str = ""
    """How often `up`, `mcp` and `chat` ask it what it took down and revoked, for the skills that
    are installed from it: `24h`, from 1h to 30d; "" asks only with `verify`, `update` and so on."""
    registry: str = ""
    """What it must call itself, as in certificates of its publishers; empty for any name."""
    root: str = ""
    """`sha256:…` of its first root, or file:/PATH of a root; only what it leads to then counts."""
    stale_days: int = 7
    """Days for which what its root signed is used after its end, with a warning; 0 refuses it."""

    @property
    def audience(self) -> str:
        """For whom a workflow asks for its identity; empty where it exchanges none."""
        kind, _, said = self.token.partition(":")
        return (said or self.url) if kind == OIDC else ""

    @property
    def refresh_seconds(self) -> int:
        """The time between two looks; 0 for none."""
        is_time = _EVERY.fullmatch(self.refresh)
        return int(age_of(self.refresh).total_seconds()) if is_time else 0


class AllowedSource(Struct, frozen=True, kw_only=True):
    """One `[[registry.sources]]` table: a source from which skills may be installed."""

    source: str
    """The name of a repository, an address such as https://github.com/acme/*, a directory with all
    below it, or mcp:LABEL."""
    publishers: tuple[str, ...] = ()
    """Who may have signed its skills, each as `HANDLE of REGISTRY`; empty for anyone."""
    require_signature: bool = False
    """Whether its skills must be signed by a publisher that is trusted here."""
    min_release_age: str = ""
    """How long an update of it must be known, such as 24h or 7d; empty as for all."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a pattern or a time that is none."""
        try:
            parts = urlsplit(self.source)
            _ = parts.port
        except ValueError as error:
            message = f"expected an address, got {self.source[:80]!r}"
            raise ConfigError(message, key="sources") from error
        is_address = "://" in self.source
        rest = f"{parts.netloc}{parts.path}".removeprefix("*.").removesuffix("/*")
        if not self.source.isprintable() or (is_address and (not parts.netloc or "*" in rest)):
            message = "expected an address with `*` as its end or `*.` as its start of the host, "
            raise ConfigError(f"{message}got {self.source[:80]!r}", key="sources")
        for who in self.publishers:
            if " of " not in who:
                message = f"expected `HANDLE of REGISTRY` in `publishers`, got {who[:80]!r}"
                raise ConfigError(message, key="publishers")
        if self.min_release_age:
            age_of(self.min_release_age)


def age_of(text: str) -> timedelta:
    """Return a time such as `24h`, `7d`, `90m` or `0`; ConfigError for what is none.

    >>> age_of("24h") == age_of("1d")
    True
    """
    if text == "0":
        return timedelta()
    seconds = seconds_of(text, units="mhd", digits=5)
    if seconds is None:
        message = f"expected a time such as 24h, 7d or 0, got {text[:40]!r}"
        raise ConfigError(message, key="min_release_age")
    return timedelta(seconds=seconds)


class SkillsSettings(Struct, frozen=True, kw_only=True):
    """The table `[skills]`."""

    repositories: tuple[RepositorySettings, ...] = ()
    """In the order in which a name is looked for."""
    source: str = ""
    """Address of a signed bundle of skills and rules, which servers take and keep up to date:
    s3://BUCKET/PATH or file:///DIRECTORY. Its last part is the bundle's name; see
    [skills from a bundle](../guides/from-one-machine-to-many.md#6-skills-from-a-signed-bundle)."""
    source_publisher: str = ""
    """Who must have signed it, as `HANDLE of REGISTRY`, whose root is trusted here
    (`skillhouse keys trust`)."""
    source_seconds: int = 60
    """How often `up`, `mcp` and `chat` ask for a newer one, from 5 seconds to a day; one of them
    asks for all."""
    source_rules: Literal["stricter", "defaults", "none"] = "stricter"
    """What rules in the bundle may do. With "stricter" they only ask or deny, over rules of this
    machine that allow; with "defaults" they hold, those that allow too, where no rule of this
    machine matches; with "none" they and its tier policy count for nothing. A denial is final."""
    source_allow_older: bool = False
    """Whether a bundle with a lower number than an earlier one is taken, for a way back."""
    source_endpoint: str = ""
    """Address of a server with S3's protocol; empty for Amazon's."""
    source_region: str = ""
    """The region of the bucket."""
    source_access_key: str = ""
    """Where the id of the key for S3 is, env:NAME or file:PATH, never itself. Without it the
    process's environment (`AWS_…`) or the machine's role gives both."""
    source_secret_key: str = ""
    """Where its secret is, likewise."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a source that is none, or whose publisher is not named."""
        if problem := _source_problem(self):
            key, message = problem
            raise ConfigError(message, key=f"skills.{key}")

    @property
    def source_name(self) -> str:
        """The name that the bundle was signed for."""
        return unquote(urlsplit(self.source).path).rstrip("/").rpartition("/")[2]


SOURCE_SECONDS = (5, 86_400)
"""The least and the most of `source_seconds`."""
_BUCKET = regex(r"[a-z0-9](?:[a-z0-9.-]{1,61}[a-z0-9])")


def _source_problem(one: SkillsSettings) -> tuple[str, str] | None:
    """Return the key that is wrong about a bundle, and what is wrong."""
    least, most = SOURCE_SECONDS
    if not least <= one.source_seconds <= most:
        return "source_seconds", f"expected from {least} to {most}, got {one.source_seconds}"
    for key in ("source_access_key", "source_secret_key"):
        place = getattr(one, key)
        if place and not is_place(place):
            # What was written may be the secret, so it is not repeated.
            return key, f"expected `file:PATH` or `env:NAME` in `{key}`"
    if bool(one.source_access_key) != bool(one.source_secret_key):
        return "source_secret_key", "expected `source_access_key` and `source_secret_key` together"
    if one.source_endpoint and not _is_endpoint(one.source_endpoint):
        message = "expected https://host, or http:// on this machine, in `source_endpoint`"
        return "source_endpoint", message
    return _address_problem(one) if one.source else None


def _address_problem(one: SkillsSettings) -> tuple[str, str] | None:
    expected = "expected s3://BUCKET/PATH or file:///DIRECTORY that ends with the bundle's name"
    try:
        parts = urlsplit(one.source)
        name = one.source_name
    except ValueError:
        return "source", expected
    if parts.query or parts.fragment or not one.source.isprintable():
        return "source", expected
    is_s3 = parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc) is not None
    if not (is_s3 or (parts.scheme == "file" and not parts.netloc)):
        return "source", expected
    segments = unquote(parts.path).strip("/").split("/")
    if any(part in (".", "..", "") for part in segments) or validate_name(name, directory=name):
        return "source", expected
    handle, found, registry = one.source_publisher.partition(" of ")
    if not (found and handle and registry):
        message = "expected `HANDLE of REGISTRY` in `source_publisher`: who signs the bundle"
        return "source_publisher", message
    return None


def _is_endpoint(text: str) -> bool:
    if not is_web_address(text):
        return False
    parts = urlsplit(text)
    return not parts.query and (parts.scheme == "https" or parts.hostname in _LOOPBACK)


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
    if one.token and not is_place(one.token) and not _OIDC_TOKEN.fullmatch(one.token):
        # What was written may be the token itself, so it is not repeated.
        return "expected `file:PATH`, `env:NAME` or `oidc` as its `token`"
    if problem := _problem_of_checks(one):
        return problem
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


def is_web_address(text: str) -> bool:
    """Whether a text is an http or https address without a user.

    >>> is_web_address("https://timestamps.example.com/tsr"), is_web_address("timestamps")
    (True, False)
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    is_plain = text.isprintable() and parts.username is None and not parts.fragment
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def _problem_of_checks(one: RepositorySettings) -> str:
    least, most = REFRESH_BOUNDS
    if one.refresh and not least <= one.refresh_seconds <= most:
        return f"expected from 1h to 30d as its `refresh`, got {one.refresh[:20]!r}"
    if one.root and not _ROOT.fullmatch(one.root):
        return f"expected `sha256:…` or `file:/PATH` as its `root`, got {one.root[:80]!r}"
    if not 0 <= one.stale_days <= STALE_DAYS_MAX:
        return f"expected `stale_days` from 0 to {STALE_DAYS_MAX}"
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


def _typed(word: str, text: Any, path: Path) -> str | bool | int:
    if not isinstance(text, str):
        raise ConfigError(f"expected one text as `{word}`", path=path, key=word)
    if word == "stale_days":
        if not (text.isascii() and text.isdecimal() and len(text) < 4):
            raise ConfigError(f"`{word}` must be a number of days", path=path, key=word)
        return int(text)
    if word not in ("trusted", "require_signature"):
        return text
    if text not in _WORDS:
        message = f"`{word}` must be true or false, got {text[:40]!r}"
        raise ConfigError(message, path=path, key=word)
    return _WORDS[text]


class RegistrySettings(Struct, frozen=True, kw_only=True):
    """The table `[registry]`."""

    require_signature: bool = False
    """Whether skills must be signed by a publisher that is trusted here: unsigned ones are neither
    installed nor loaded, wherever they are from, but for those of skillhouse itself."""
    ended: Literal["warn", "refuse"] = "warn"
    """What becomes of a skill that this machine verified, once the certificate that signed it or
    the list of revocations has ended: a warning from 30 days before, or a refusal at the end."""
    timestamp: str = ""
    """Address of the timestamp authority (RFC 3161) that `skillhouse sign` asks; "" asks none."""
    min_release_age: str = ""
    """How long an update must be known, to the registry or to this machine, before it is installed,
    such as 24h, 7d or 0. Empty is 24h for public sources, and 0 for those of this machine, of
    private networks, and of one version or commit."""
    sigstore_roots: tuple[str, ...] = (PUBLIC_GOOD,)
    """Whose word counts on attestations of builds: `public-good`, the root of Sigstore's public
    instance, and file:/PATH of others in JSON, such as GitHub's for private repositories."""
    attestation_issuers: tuple[str, ...] = (
        "https://token.actions.githubusercontent.com",
        "https://gitlab.com",
    )
    """Identity providers of which workflows may have built skills, as certificates name them."""
    sources: tuple[AllowedSource, ...] = ()
    """The sources from which skills may be installed, with what each requires; the first that fits
    holds, and what none fits is refused. Empty allows all."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an authority that has no address, or a time that is none."""
        if self.timestamp and not is_web_address(self.timestamp):
            message = f"expected https://host/path in `timestamp`, got `{self.timestamp[:80]}`"
            raise ConfigError(message, key="registry.timestamp")
        if self.min_release_age:
            age_of(self.min_release_age)
        for root in self.sigstore_roots:
            if root != PUBLIC_GOOD and not root.startswith(("file:/", "file:~/")):
                message = f"expected `{PUBLIC_GOOD}` or `file:/PATH` in `sigstore_roots`"
                raise ConfigError(f"{message}, got {root[:80]!r}", key="registry.sigstore_roots")
        for issuer in self.attestation_issuers:
            if not (is_web_address(issuer) and issuer.startswith("https:")):
                message = f"expected https://host in `attestation_issuers`, got {issuer[:80]!r}"
                raise ConfigError(message, key="registry.attestation_issuers")

"""The configured repositories: where a name is from, and what each says of what it published."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from msgspec import Struct

from skillhouse import net, registry
from skillhouse.floor import (
    ConfigError,
    MissingExtraError,
    SkillhouseError,
    StateError,
    isolated,
    nearest,
    needs_extra,
)
from skillhouse.house.config import Config, RepositorySettings
from skillhouse.house.config.secret_places import read_secret
from skillhouse.house.network import Network
from skillhouse.install.pinned_roots import OpenSigned, signed_by_root, take_publishers
from skillhouse.registry import (
    DirectoryAccess,
    LockEntry,
    PublisherError,
    Release,
    Repository,
    RepositoryAnswer,
    RepositoryError,
    SkillReleases,
    Takedown,
    directory_of,
)
from skillhouse.registry.releases import locked_place
from skillhouse.registry.repository import RepositoryAccess

_CREDENTIAL = "repository-token"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LARGE = ("blobs/", "skills/")
"""Paths of which a person sees that they are read: the others are small."""


class HttpAccess:
    """Makes the requests to one repository.

    Documents come from its own origin only. An archive may come from any public host over https:
    its digest is known before. The token goes to the repository alone.
    """

    def __init__(
        self,
        network: Network,
        address: str,
        *,
        token: str = "",
        report: Callable[[str], None] = lambda _: None,
        progress: net.Progress = lambda _done, _total: None,
    ) -> None:
        """Take the address and, of a repository that wants one, the token.

        Raises:
            ConfigError: the token would be sent without encryption to another machine.
            NetError: the address is none.
        """
        target = net.parse_url(address)
        if token and target.scheme == "http" and target.host not in _LOOPBACK:
            message = f"the token of `{address}` is not sent without encryption: use https"
            raise ConfigError(message, key="skills.repositories")
        self._address = address.rstrip("/")
        self._network = network
        self._report = report
        self._progress = progress
        rule = net.HostRule(host=target.host, scheme=target.scheme, port=target.port, methods=None)
        self._secrets = (
            (net.SecretBinding(name=_CREDENTIAL, value=token, hosts=(str(rule),)),) if token else ()
        )

    def __call__(
        self,
        path: str,
        max_bytes: int,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RepositoryAnswer:
        if path.startswith(_LARGE) and "?" not in path:
            self._report(f"{self._address}/{path}")
        url = f"{self._address}/{path}"
        own = {"Authorization": f"Bearer {{{{secret:{_CREDENTIAL}}}}}"} if self._secrets else {}

        async def exchange() -> net.HttpResponse:
            return await self._network.exchange(
                url,
                max_bytes,
                method=method,
                headers={**(headers or {}), **own},
                body=body,
                secrets=self._secrets,
                digest=_digest_in(path),
                progress=self._progress,
            )

        response = anyio.run(exchange)
        names = {name.lower(): value for name, value in response.headers}
        return RepositoryAnswer(status=response.status, body=response.body, headers=names)


def _digest_in(path: str) -> str:
    """Return the digest of an archive that a path names; empty for other paths."""
    return f"sha256:{path.rpartition('/')[2]}" if path.startswith("blobs/") else ""


def repository_at(
    network: Network,
    address: str,
    *,
    token: str = "",
    report: Callable[[str], None] = lambda _: None,
    progress: net.Progress = lambda _done, _total: None,
    signed: OpenSigned | None = None,
) -> Repository:
    """Return the repository at an address: `https://…`, `file:///dir` or an absolute path.

    Args:
        signed: Opens what its pinned root signed, and nothing else then counts.

    Raises:
        ConfigError: it is no address of a repository, or the token would be sent in clear.
    """
    if (directory := directory_of(address)) is not None:
        return _repository(directory.as_uri(), DirectoryAccess(directory), signed)
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or parts.query or parts.fragment or parts.username:
        message = f"expected https://host/path or file:///dir of a repository, got {address[:80]!r}"
        raise ConfigError(message, key="skills.repositories")
    access = HttpAccess(network, address, token=token, report=report, progress=progress)
    return _repository(address, access, signed)


def _repository(address: str, access: RepositoryAccess, signed: OpenSigned | None) -> Repository:
    return Repository(address, access, signed(address, access) if signed else None)


SUGGESTED_MAX = 4
"""Names that an unknown one may have been meant as."""
SUGGESTED_FROM = 200
"""Skills of a repository among which the nearest name is looked for."""


class FoundSkill(Struct, frozen=True, kw_only=True):
    """A skill with the repository that has it."""

    settings: RepositorySettings
    repository: Repository
    skill: SkillReleases

    @property
    def locked_as(self) -> str:
        return registry.locked_name(self.settings.name, self.skill.namespace)


class RepositoryOffer(Struct, frozen=True, kw_only=True):
    """The version that a repository offers for what was asked."""

    settings: RepositorySettings
    namespace: str
    skill: str
    release: Release
    registry: str = ""
    """What the repository calls itself: signatures must be for it; empty where it does not say."""
    found: FoundSkill
    """The skill with all its versions, and the repository."""
    newer_yanked: tuple[str, ...] = ()
    """Newer versions that would fit, and were taken back."""
    owners: tuple[str, ...] | None = None
    """The publishers that may sign the name: none while it is unclaimed; None without a root."""

    def age_days(self, now: datetime) -> int | None:
        """Return the days since it was published, as the repository says; None for no date."""
        try:
            moment = datetime.fromisoformat(self.release.published_at)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0, (now - moment).days)


class ReleaseState(Struct, frozen=True, kw_only=True):
    """What a repository says now of a version that is installed."""

    state: str
    """published, yanked, revoked, changed or gone."""
    reason: str = ""

    @property
    def text(self) -> str:
        words = {
            "gone": "it is not in its repository any more",
            "changed": "it is another archive in its repository now",
            "published": "",
        }
        said = words.get(self.state, f"it was {self.state} by its repository")
        return f"{said}: {self.reason}" if said and self.reason else said


class Repositories:
    """The repositories of one configuration, in their order; each is opened when it is asked."""

    def __init__(
        self,
        config: Config,
        network: Network,
        *,
        report: Callable[[str], None] = lambda _: None,
        progress: net.Progress = lambda _done, _total: None,
    ) -> None:
        self._config = config
        self._network = network
        self._report = report
        self._progress = progress
        self._memory = registry.TrustMemory(config.state_directory)
        self.problems: list[str] = []
        """What a person should know of takedowns that are not kept."""
        self._open: dict[str, Repository] = {}
        self._with_revocations: set[str] = set()

    @property
    def all(self) -> tuple[RepositorySettings, ...]:
        return self._config.repositories

    def named(self, name: str) -> RepositorySettings:
        """Return the settings of a repository; RepositoryError if none has that name."""
        for one in self.all:
            if one.name == name:
                return one
        close = nearest(name, [one.name for one in self.all])
        hint = f"did you mean `{close[0]}`" if close else self._hint()
        raise RepositoryError("not-configured", f"no repository `{name}` is configured; {hint}")

    def _hint(self) -> str:
        if self.all:
            return "there are " + ", ".join(f"`{one.name}`" for one in self.all)
        return (
            f"add it to `{self._config.places.user_file}` as [[skills.repositories]] with a name "
            "and a url, or look into public collections of skills with `--public`"
        )

    def opened(self, settings: RepositorySettings) -> Repository:
        """Return a repository; ConfigError if its token or address cannot be used."""
        if settings.name not in self._open:
            token = read_token(settings, self._config.places.environment)
            self.open_with(settings, token)
        return self._open[settings.name]

    def open_with(self, settings: RepositorySettings, token: str) -> None:
        """Open a repository with a token from now on; ConfigError if it cannot be used."""
        self._open[settings.name] = repository_at(
            self._network,
            settings.url,
            token=token,
            report=self._report,
            progress=self._progress,
            signed=signed_by_root(settings, self._config.state_directory),
        )

    def find(self, namespace: str, skill: str, *, only: str = "") -> FoundSkill:
        """Return a skill from the first repository that has it.

        INVARIANT: a repository that cannot be asked ends the search. Otherwise whoever holds up
        one could have a name taken from the next (dependency confusion).

        Args:
            only: The one repository that is asked.

        Raises:
            RepositoryError: "unknown-skill", none has it, with the nearest names; others as of
                `Repository.read`.
        """
        asked = (self.named(only),) if only else self.all
        if not asked:
            message = f"no repository of packages is configured that could have `{skill}`"
            more = f"{self._hint()}, or name its source: owner/repo, an address or ./directory"
            raise RepositoryError("not-configured", f"{message}; {more}")
        for settings in asked:
            repository = self.opened(settings)
            try:
                found = repository.skill(namespace, skill)
            except SkillhouseError as error:
                raise _of(settings, error, is_last=len(asked) == 1) from error
            if found is not None:
                self.hear(settings, found)
                return FoundSkill(settings=settings, repository=repository, skill=found)
        raise self._unknown(namespace, skill, asked)

    def _unknown(
        self, namespace: str, skill: str, asked: tuple[RepositorySettings, ...]
    ) -> RepositoryError:
        """Return the error about a name that nowhere is, with the nearest ones that are."""
        wanted = registry.typed_name(namespace, skill)
        known: dict[str, str] = {}
        for settings in asked:
            repository = self.opened(settings)
            for text in (skill, ""):
                try:
                    for one in repository.listed(text, limit=SUGGESTED_FROM):
                        known.setdefault(one.typed, settings.name)
                except SkillhouseError:
                    # It has no list; of a directory the names are those of its documents.
                    for typed in _names_in(settings.url):
                        known.setdefault(typed, settings.name)
                    break
        close = nearest(wanted, known)
        same = [one for one in known if one.rpartition("/")[2] == skill]
        # A name that is typed without its namespace, and with a mistake.
        ends = {one.rpartition("/")[2]: one for one in reversed(known)}
        alike = [ends[one] for one in nearest(skill, ends)]
        likely = tuple(dict.fromkeys((*same[:3], *close, *alike)))[:SUGGESTED_MAX]
        found = ", ".join(f"`{one}` in {known[one]}" for one in likely)
        names = ", ".join(f"`{one.name}`" for one in asked)
        near = f"; did you mean {found}" if found else ""
        message = f"no skill `{wanted}` in {names}{near}"
        return RepositoryError("unknown-skill", message, status=404, nearest=likely)

    def listed(
        self, text: str, *, only: str = "", limit: int, problem: Callable[[str], None]
    ) -> Iterator[tuple[RepositorySettings, registry.ListedSkill]]:
        """Yield the skills that fit a text, of each repository in turn.

        `problem` gets what is wrong with one of several; nothing is taken from a list, so the
        others are still shown.

        Raises:
            RepositoryError: none is configured, or the only one that is asked cannot be.
        """
        asked = (self.named(only),) if only else self.all
        if not asked:
            raise RepositoryError("not-configured", f"no repository is configured; {self._hint()}")
        for settings in asked:
            found: list[registry.ListedSkill] = []
            with isolated() as failed:
                found = list(self.opened(settings).listed(text, limit=limit))
            for error in failed:
                if len(asked) == 1:
                    raise _of(settings, error) from error
                problem(str(_of(settings, error)))
            yield from ((settings, one) for one in found)

    def state_of(self, name: str, entry: LockEntry) -> ReleaseState | None:
        """Return what a repository says now of an installed version; None for other sources.

        Raises:
            RepositoryError, NetError: it cannot be asked, or is not configured.
        """
        place = locked_place(entry.repository)
        if place is None:
            return None
        settings = self.named(place[0])
        try:
            skill = self.opened(settings).skill(place[1], name)
        except SkillhouseError as error:
            raise _of(settings, error) from error
        if skill is not None:
            self.hear(settings, skill, entry)
        return _state(() if skill is None else skill.versions, entry)

    def hear(
        self, settings: RepositorySettings, skill: SkillReleases, entry: LockEntry | None = None
    ) -> None:
        """Keep what a repository took down, which binds here from now on, also without it."""
        signed = self.opened(settings).signed
        number = 0 if signed is None else signed.version
        now = datetime.now(UTC)
        try:
            note = self._memory.hear(settings.name, skill, installed=entry, signed=number, now=now)
        except StateError as error:
            note = f"what `{settings.name}` took down is not kept: {error}"
        if note and note not in self.problems:
            self.problems.append(note)

    def check_lifted(self, one: Takedown) -> None:
        """Ask a repository about a release that it took down.

        Raises:
            RepositoryError: "revoked", it does not say of this release that it is something else;
                others as of `Repository.read`.
        """
        name, namespace = locked_place(one.repository) or (one.repository, "")
        settings = self.named(name)
        try:
            found = self.opened(settings).skill(namespace, one.skill)
        except SkillhouseError as error:
            raise _of(settings, error) from error
        states = {each.digest: each.state for each in (found.versions if found else ())}
        state = states.get(one.digest, "not there any more")
        if state not in ("published", "yanked"):
            message = f"`{name}` says that {one.skill} {one.version} is {state}: nothing is lifted"
            raise RepositoryError("revoked", message)

    def take_revocations(self, settings: RepositorySettings) -> str:
        """Take over what a repository revoked, once; return what a person should know.

        Only a list of a root that is trusted here counts, and none that is older than the one
        that is here. Where a root is pinned, the publishers that it vouches for are trusted first.

        Raises:
            PublisherError: there is a list of a trusted root, and it is refused.
        """
        trusted = self._config.state_directory / registry.TRUSTED_DIRECTORY
        if settings.name in self._with_revocations:
            return ""
        self._with_revocations.add(settings.name)
        data = None
        try:
            repository = self.opened(settings)
            take_publishers(settings, repository, trusted)
            if _has_roots(trusted):
                data = repository.revocations()
        except SkillhouseError as error:
            raise _of(settings, error) from error
        if repository.signed and repository.signed.warning:
            self._report(repository.signed.warning)
        return "" if data is None else taken_over(settings.name, data, trusted)


def taken_over(name: str, data: bytes, trusted: Path) -> str:
    """Take over one list; return what a person should know, empty for nothing."""
    try:
        with needs_extra("registry"):
            from skillhouse.registry.trust_anchors import AnchorStore  # noqa: PLC0415
    except MissingExtraError as error:
        return f"what `{name}` revoked is not checked: {error}"
    try:
        AnchorStore(trusted).add_list(data, datetime.now(UTC))
    except PublisherError as error:
        if error.step == "chain":
            return (
                f"what `{name}` revoked is not taken over: no root that is trusted here signed it"
            )
        if error.step == "revocation" and "older" in str(error):
            return f"`{name}` has an older list of revocations than is here, which stays"
        message = f"the revocations of `{name}`: {error}"
        raise PublisherError(error.step, message) from error
    return ""


def _state(releases: tuple[Release, ...], entry: LockEntry) -> ReleaseState:
    for release in releases:
        if release.digest == entry.digest:
            return ReleaseState(state=release.state, reason=release.reason)
    is_there = any(release.version == entry.version for release in releases)
    return ReleaseState(state="changed" if is_there else "gone")


def read_token(settings: RepositorySettings, environment: Mapping[str, str]) -> str:
    """Return the token of a repository, empty for none; ConfigError where it is not there."""
    if settings.audience:
        # A workflow gets one when it publishes, for a single name.
        return ""
    what = f"the token of `{settings.name}`"
    return read_secret(settings.token, what, environment, key="skills.repositories")


def _has_roots(trusted: Path) -> bool:
    return any((trusted / "roots").glob("*.crt"))


def _names_in(address: str) -> Iterator[str]:
    directory = registry.directory_of(address)
    if directory is not None:
        found = (directory / "index").glob("??/??/*/*.json")
        for path in itertools.islice(found, SUGGESTED_FROM):
            yield registry.typed_name(path.parent.name, path.stem)


def _of(
    settings: RepositorySettings, error: SkillhouseError, *, is_last: bool = True
) -> RepositoryError:
    """Return an error with the repository that it is about."""
    more = "" if is_last else "; the repositories after it are not asked: name one of them"
    code = getattr(error, "code", "") or "unreachable"
    return RepositoryError(code, f"repository `{settings.name}`: {error}{more}")

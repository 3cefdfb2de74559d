"""Opens what a person named as a source, and lists the skills that it holds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
from anyio.from_thread import start_blocking_portal
from msgspec import Struct

from skillhouse import registry, remote
from skillhouse.floor import digest, nearest, structs
from skillhouse.floor.paths import safe_path
from skillhouse.house.config import Config
from skillhouse.house.config.allowed_sources import check_source
from skillhouse.house.network import Network
from skillhouse.house.remote_skills import mcp_dial, mcp_servers_of
from skillhouse.install.pinned_roots import registry_name
from skillhouse.install.repositories import Repositories, RepositoryOffer
from skillhouse.install.source_policy import source_text
from skillhouse.registry import Candidate, Source, SourceError
from skillhouse.registry.page_addresses import PACKED_SKILLS
from skillhouse.registry.releases import locked_place
from skillhouse.skill import (
    ARCHIVE_MAX,
    ArchiveError,
    read_archive,
)

Report = Callable[[str], None]
"""Receives a line for each step."""
Progress = Callable[[int, int, str], None]
"""Receives how much is here, of how much (0 while that is not known), and the unit: `bytes`, or
what the other side counts."""


def no_progress(done: int, total: int, unit: str) -> None:
    """Pass over progress."""


class OpenSource(Struct, frozen=True, kw_only=True):
    """A source while it can be read from."""

    source: Source
    resolved: str
    """What gives the same again, in the words of `parse_source`."""
    candidates: tuple[Candidate, ...]
    digest: str = ""
    """`sha256:` of the archive; empty where there is none."""
    git: registry.GitRepository | None = None
    """The repository that it is a directory of, while it is open."""
    dated: str = ""
    """Day of the commit or release; empty where none is known."""
    problems: tuple[str, ...] = ()
    """What of it cannot be used at all."""
    unheld: tuple[str, ...] = ()
    """Directories that it names and does not hold, each with the reason."""
    offer: RepositoryOffer | None = None
    """The version of a skill that a repository offers; None for other sources."""
    fetch: Callable[[Candidate], Candidate] = lambda candidate: candidate
    """Gets the files of a candidate of which only the name is known so far."""

    def filled(self, candidate: Candidate) -> Candidate:
        """Return a candidate with its files; SourceError says why it cannot be installed."""
        found = self.fetch(candidate)
        if found.fault:
            raise SourceError(f"`{found.label}` is refused: {found.fault}")
        return found


class SkillSources:
    """Opens sources under one configuration."""

    def __init__(
        self,
        config: Config,
        network: Network,
        *,
        report: Report = lambda _: None,
        progress: Progress = no_progress,
    ) -> None:
        self._config = config
        self.network = network
        self._report = report
        self._progress = progress
        self.repositories = Repositories(
            config, network, report=self._fetching, progress=self._bytes
        )
        """Those that are configured, each opened once."""
        self._fetched: dict[Source, tuple[registry.GitRepository, int]] = {}
        """Repositories that are open, each with the number of its sources that are."""

    def parse(self, text: str) -> Source:
        """Return what a text names; SourceError if that is nothing."""
        places = self._config.places
        return registry.parse_source(text, places.start, home=places.home)

    @contextmanager
    def open(
        self,
        source: Source,
        *,
        expected: str = "",
        is_typed: bool = True,
        allow_yanked: str = "",
    ) -> Iterator[OpenSource]:
        """Give a source, open.

        Args:
            expected: `sha256:` digest that its archive must have.
            is_typed: Whether a person wrote the address; a project's lock has any.
            allow_yanked: The version that a lock has, though it was yanked since.

        Raises:
            SourceError, ArchiveError, RemoteError, NetError: it cannot be had.
        """
        if source.kind != "name":
            check_source(self._config.registry, source_text(source))
        if expected and source.kind not in ("archive", "url", "name"):
            raise SourceError("only an archive has a digest; a commit is named by `@`")
        if not is_typed and source.transport == "http":
            raise SourceError(f"a lock of a project may not lead to `{source.location}`: use https")
        if source.kind == "name":
            yield self._offered(source, expected, allow_yanked)
            return
        with self._opened(source, expected, is_typed=is_typed) as found:
            yield found

    def _opened(
        self, source: Source, expected: str, *, is_typed: bool
    ) -> AbstractContextManager[OpenSource]:
        match source.kind:
            case "directory":
                return _directory(source)
            case "archive":
                return self._archive(source, expected)
            case "url":
                return self._download(source, expected, is_typed=is_typed)
            case "git":
                return self._git(source)
            case "well-known":
                return self._well_known(source, is_typed=is_typed)
            case "mcp":
                return self._mcp(source)
        raise SourceError(f"no source: `{source.location}`")

    def _offered(self, source: Source, expected: str, allow_yanked: str) -> OpenSource:
        """Return the version of a name that the first repository with it offers.

        The archive is fetched when its files are wanted.
        """
        namespace, skill = registry.split_name(source.location)
        place = locked_place(source.repository)
        if place is not None and "/" in source.repository and place[1] != namespace:
            raise SourceError(f"`{source.location}` is not of the namespace `{place[1]}`")
        found = self.repositories.find(namespace, skill, only=place[0] if place else "")
        check_source(self._config.registry, found.locked_as)
        choice = registry.choose(found.skill, source.ref, allow_yanked=allow_yanked)
        release = choice.release
        if expected and expected != release.digest:
            message = f"expected {expected}, `{found.settings.name}` has {release.digest}"
            raise ArchiveError("digest", f"{message}: nothing was fetched")
        note = self.repositories.take_revocations(found.settings)
        offer = RepositoryOffer(
            settings=found.settings,
            namespace=namespace,
            skill=skill,
            release=release,
            found=found,
            registry=registry_name(found.settings, found.repository),
            newer_yanked=choice.newer_yanked,
            owners=found.repository.owners(namespace, skill),
        )

        def fetch(candidate: Candidate) -> Candidate:
            data = found.repository.archive(found.skill, release)
            inner = _archive_listing(source, data, release.digest).package
            return _with_files_of(candidate, inner)

        return OpenSource(
            source=structs.replace(source, repository=found.locked_as),
            resolved=found.repository.resolved(found.skill, release),
            candidates=(Candidate(path="", folder=skill),),
            digest=release.digest,
            dated=release.published_at[:10],
            problems=(note,) if note else (),
            offer=offer,
            fetch=fetch,
        )

    @contextmanager
    def _archive(self, source: Source, expected: str) -> Iterator[OpenSource]:
        with open(source.location, "rb") as file:
            data = file.read(ARCHIVE_MAX + 1)
        yield _of_archive(source, data, expected)

    @contextmanager
    def _download(self, source: Source, expected: str, *, is_typed: bool) -> Iterator[OpenSource]:
        fetch = self.network.download_for(
            source.location,
            self._fetching,
            is_typed=is_typed,
            digest=expected,
            progress=self._bytes,
        )
        response = anyio.run(fetch, source.location, ARCHIVE_MAX)
        if response.status != 200:
            raise SourceError(f"status {response.status} at `{source.location}`")
        yield _of_archive(source, response.body, expected)

    @contextmanager
    def _git(self, source: Source) -> Iterator[OpenSource]:
        whole = source if source.is_loose else structs.replace(source, path="", skill="")
        with self._repository(whole) as repository:
            if source.is_loose:
                # The repository divides it into ref and path.
                source = repository.source
            folder = source.repository.rpartition("/")[2]
            found = registry.find_candidates(repository.files(), below=source.path, folder=folder)
            yield OpenSource(
                source=source,
                resolved=f"git+{source.location}@{repository.commit}",
                candidates=_of_skill(source, found.candidates),
                unheld=found.unheld,
                git=repository,
                dated=repository.dated(),
            )

    @contextmanager
    def _repository(self, whole: Source) -> Iterator[registry.GitRepository]:
        """Give a repository at one ref, fetched once for all sources in it that are open."""
        if whole not in self._fetched:
            self._fetched[whole] = self._fetch(whole), 0
        repository, count = self._fetched[whole]
        self._fetched[whole] = repository, count + 1
        try:
            yield repository
        finally:
            repository, count = self._fetched[whole]
            self._fetched[whole] = repository, count - 1
            if count == 1:
                del self._fetched[whole]
                repository.close()

    def _fetch(self, source: Source) -> registry.GitRepository:
        environment = dict(self._config.places.environment)
        path = safe_path(environment, self._config.places.start)
        program = shutil.which("git", path=path)
        if program is None:
            raise SourceError("git is not installed; install it, or name an archive")
        self._fetching(source.location)
        git = registry.Git(program=program, environment={**environment, "PATH": path})
        return registry.GitRepository(git, source, progress=self._progress)

    @contextmanager
    def _well_known(self, source: Source, *, is_typed: bool) -> Iterator[OpenSource]:
        server = remote.RemoteSource(url=source.location)
        get = self.network.download_for(
            source.location, self._fetching, is_typed=is_typed, progress=self._bytes
        )
        try:
            listing = anyio.run(remote.fetch_listing, server, get)
        except remote.RemoteError as error:
            if urlsplit(source.location).path.strip("/").count("/") == 0:
                raise
            # The page of a repository on a server of one's own looks like this, too.
            message = f"{error}; if it is a Git repository: `git+{source.location}`"
            raise SourceError(message) from error
        skills = {skill.name: skill for skill in listing.skills}
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skillhouse-")))

            def fetch(candidate: Candidate) -> Candidate:
                directory = place / candidate.folder
                if not directory.exists():
                    anyio.run(remote.fetch_skill, skills[candidate.folder], directory, get)
                _, members = registry.directory_members(directory)
                return structs.replace(candidate, members=members)

            yield OpenSource(
                source=source,
                resolved=source.location,
                candidates=tuple(Candidate(path=name, folder=name) for name in sorted(skills)),
                problems=listing.problems,
                fetch=fetch,
            )

    @contextmanager
    def _mcp(self, source: Source) -> Iterator[OpenSource]:
        server = self._mcp_server(source.location)
        dial = mcp_dial(self)
        self._fetching(f"{source.repository}/{source.path}".rstrip("/"))
        # One connection for all that is asked; what is asked next depends on a person.
        with start_blocking_portal() as portal, ExitStack() as stack:
            connection = portal.wrap_async_context_manager(dial(server))
            peer = connection.__enter__()
            # Nothing that happens here, such as Ctrl-C, is a fault of the connection.
            stack.callback(connection.__exit__, None, None, None)
            offer = portal.call(remote.read_offer, peer, server.label, source.path)
            by_path = {skill.path: skill for skill in offer.skills}

            def fetch(candidate: Candidate) -> Candidate:
                skill = by_path[candidate.path]
                members = portal.call(remote.read_members, peer, skill, self._files)
                files = [registry.SourceFile(path=one.path, member=one) for one in members]
                listing = registry.find_candidates(files, folder=candidate.folder)
                return _with_files_of(candidate, listing.package)

            yield OpenSource(
                # A label can be given to another server; a name stays with the one it is from.
                source=structs.replace(source, repository=remote.server_identity(server)),
                resolved=f"mcp:{server.label}" + (f"/{source.path}" if source.path else ""),
                candidates=tuple(
                    Candidate(path=path, folder=skill.name) for path, skill in by_path.items()
                ),
                problems=offer.problems,
                fetch=fetch,
            )

    def _mcp_server(self, label: str) -> remote.McpServer:
        servers = {one.label: one for one in mcp_servers_of(self._config)}
        if label in servers:
            return servers[label]
        message = f"no MCP server is called `{label}` in the configuration"
        close = nearest(label, servers)
        if close:
            message += f"; did you mean `{close[0]}`"
        raise SourceError(f"{message}; `skillhouse mcp servers` lists them")

    def _files(self, done: int, total: int) -> None:
        self._progress(done, total, "files")

    def _bytes(self, done: int, total: int) -> None:
        self._progress(done, total, "bytes")

    def _fetching(self, address: str) -> None:
        self._report(f"fetching {address}")


def _of_skill(source: Source, every: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Return the skills that a source means; SourceError where it names one that is not there."""
    if not source.skill:
        return every
    named = tuple(one for one in every if source.skill in (one.name, one.installed_as, one.folder))
    if named:
        return named
    names = [one.name or one.folder for one in every]
    close = nearest(source.skill, names)
    hint = f"; did you mean `{close[0]}`" if close else ""
    what = "skill" if source.ref else "branch, tag, commit or skill"
    raise SourceError(f"no {what} `{source.skill}` is in `{source.repository}`{hint}")


@contextmanager
def _directory(source: Source) -> Iterator[OpenSource]:
    """Give a directory that is a skill, or the skills that are below it."""
    top = Path(source.location)
    found = registry.find_candidates(registry.local_files(top), folder=top.name)
    yield OpenSource(
        source=source,
        resolved=source.location,
        candidates=found.candidates,
        unheld=found.unheld,
    )


def _with_files_of(candidate: Candidate, found: Candidate) -> Candidate:
    return structs.replace(
        candidate, members=found.members, fault=found.fault, lacking=found.lacking
    )


def _of_archive(source: Source, data: bytes, expected: str) -> OpenSource:
    listing = _archive_listing(source, data, expected, is_source=True)
    return OpenSource(
        source=source,
        resolved=source.location,
        candidates=listing.candidates,
        unheld=listing.unheld,
        digest=digest(data),
    )


def _archive_listing(
    source: Source, data: bytes, expected: str, *, is_source: bool = False
) -> registry.SourceListing:
    found = digest(data)
    # INVARIANT: nothing of an archive is read before its digest is known to be the right one.
    if expected and expected != found:
        raise ArchiveError("digest", f"expected {expected}, got {found}: nothing was unpacked")
    files = [
        registry.SourceFile(
            path=member.path, member=member if member.link is None else None, link=member.link
        )
        for member in read_archive(data, is_source=is_source)
        if not member.is_directory
    ]
    name = unquote(urlsplit(source.location).path).rpartition("/")[2]
    for end in PACKED_SKILLS:
        if name.lower().endswith(end):
            name = name[: -len(end)]
    return registry.find_candidates(files, folder=name)

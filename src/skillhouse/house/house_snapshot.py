"""The result of one scan, with each agent's view and gate; replaced as a whole."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from skillhouse import discovery, remote
from skillhouse import skill as skill_package
from skillhouse.discovery import Root, default_roots, discover, discover_since
from skillhouse.floor import (
    ConfigError,
    Diagnostic,
    Severity,
    SkillhouseError,
    TreeError,
    tree_digest,
)
from skillhouse.floor.lock import Lazy, once
from skillhouse.house.agent_view import AgentView
from skillhouse.house.config.bundle_files import bundle_link
from skillhouse.house.config.config_files import project_of
from skillhouse.house.exported_copies import with_explained_duplicates
from skillhouse.house.find_skills import SearchPlace, why_absent
from skillhouse.house.project import read_project, roots_of_clients
from skillhouse.house.remote_skills import may_come_from, with_skills_of
from skillhouse.house.trusted_text import (
    PROJECT,
    code_text,
    shown_skills,
    tool_texts,
    with_seen_tools,
)
from skillhouse.skill import Skill, SkillIndex, invocation_findings

if TYPE_CHECKING:
    import threading

    from skillhouse import tools as toolbox
    from skillhouse.house.agent_search import Signature
    from skillhouse.house.code_manifests import Found
    from skillhouse.house.composition import Composition
    from skillhouse.house.config import Config
    from skillhouse.house.project import ProfileRoots, ProjectSkills
    from skillhouse.house.settings import SettingsStore, SkillSettings
    from skillhouse.house.trust import Tools, TrustedTargets, TrustStore
    from skillhouse.house.trusted_text import ShownSkills, TrustedTexts
    from skillhouse.house.usage import LearnedChoices, RecentSkills, TouchedFiles
    from skillhouse.skill import Profile

logger = logging.getLogger(__name__)

SCOPE = "remote"
"""Of the skills that are synced from other servers."""
NOTHING = "nothing"
"""A name that no directory of a bundle has."""
BUILTIN_DIRECTORY = Path(__file__).resolve().parent.parent / "builtin"


class Difference(Struct, frozen=True, kw_only=True):
    """The changes between two snapshots, by id and file."""

    added: tuple[Skill, ...] = ()
    removed: tuple[Skill, ...] = ()
    changed: tuple[Skill, ...] = ()
    """As they are now."""
    findings: int = 0
    """Number of the findings that are new or gone: files that cannot be used, shadowed skills."""


class SnapshotTrust:
    """What the trust in one project says to one snapshot, as it was first asked."""

    def __init__(self, store: TrustStore, project: Path) -> None:
        self._store = store
        self._project = project

    @once
    def is_trusted(self) -> bool:
        return self._store.is_trusted(self._project)

    @once
    def targets(self) -> TrustedTargets:
        """What it names out of the project."""
        return self._store.targets(self._project)

    def texts(self, skills: Sequence[Skill], tools: Callable[[], Tools]) -> TrustedTexts:
        return self._store.texts(self._project, skills, tools)


class SnapshotServices(Protocol):
    """What outlives a snapshot, and finds and makes the tools of skills' own code."""

    @property
    def settings_store(self) -> SettingsStore: ...

    @property
    def trust_store(self) -> TrustStore: ...

    @property
    def project(self) -> Path: ...

    @property
    def touched(self) -> TouchedFiles:
        """The files that were worked on, which skills may be listed by."""

    @property
    def recent(self) -> RecentSkills: ...

    @property
    def learned(self) -> LearnedChoices: ...

    def found_code(self, roots: Sequence[Root], *, is_trusted: bool) -> Found:
        """Return the manifests of skills' own code below the roots."""

    def code_tools(self, found: Found, view: AgentView) -> tuple[toolbox.Tool, ...]:
        """Return an agent's tools of these skills."""

    def why_tool_absent(self, found: Found, name: str) -> str:
        """Return why no tool has this name although its skill is there; "" where it is not."""


class HouseSnapshot:
    """The skills of one moment: listing, searching and loading all use it."""

    def __init__(
        self,
        composition: Composition,
        services: SnapshotServices,
        before: HouseSnapshot | None = None,
    ) -> None:
        """Take a composition; everything is read when it is first asked for.

        Of `before`, of the same composition, is taken what has not changed since.

        The touched and the recent files of `services` outlive a snapshot, which keeps its first
        order: a client takes another list for a change.
        """
        self.composition = composition
        """What follows from the configuration that these skills are seen by."""
        self._services = services
        self._config = composition.config
        self._policy = composition.policy
        self._profile = composition.policy.profile
        self._trust = SnapshotTrust(services.trust_store, services.project)
        self._index = Lazy(self._find)
        self._views: dict[str, AgentView] = {}
        self._gates: dict[str, toolbox.Gate] = {}
        self._signatures: dict[str, Signature] | None = None
        # INVARIANT: nothing here leads to `before`, or each scan would keep all earlier ones.
        self._discovered: SkillIndex | None = None
        self._invocations: tuple[tuple[Skill, ...], tuple[Diagnostic, ...]] = ((), ())
        if before is not None:
            self._take(before)

    def _take(self, before: HouseSnapshot) -> None:
        self._discovered, self._invocations = before._discovered, before._invocations

    @once
    def roots(self) -> tuple[Root, ...]:
        """All roots of this place, strongest first; ConfigError if synced skills are below one."""
        places = self._config.places
        found = default_roots(
            start=places.start,
            home=places.home,
            environment=places.environment,
            profile=self._profile,
            explicit=self._config.roots,
            builtin=BUILTIN_DIRECTORY,
            written=tuple(filter(None, (self._config.cache_directory,))),
            targets=self._trust.targets.directories,
            link_ends=self._trust.targets.ends,
        )
        return with_remotes(self._config, self._profile, found)

    @property
    def index(self) -> SkillIndex:
        """The skills of these roots; an untrusted project's skills are not read."""
        return self._index.get()

    def _find(self) -> SkillIndex:
        found = discover_since(
            self._discovered,
            self.roots,
            profile=self._profile,
            trusted=self._trust.is_trusted,
            cache=self._config.cache_directory,
        )
        self._discovered = found
        if self._policy.remote_skills is not None:
            found = with_skills_of(self._policy.remote_skills, found, self.roots)
        if found.shadowed:
            found = with_explained_duplicates(found, self._config.state_directory)
        if any(skill.link for skill in found.skills):
            found = self._policy.linked.as_seen(found)
        if not found.is_decoded or found.skills is not self._invocations[0]:
            problems = invocation_findings(found, self._profile.extensions)
            self._invocations = (found.skills if found.is_decoded else (), problems)
        odd = (*self._config.problems, *self._invocations[1])
        if not odd:
            return found
        return SkillIndex(
            found.skills,
            shadowed=found.shadowed,
            diagnostics=(*found.diagnostics, *odd),
            left_out=found.left_out,
            name_match=found.name_match,
        )

    @once
    def texts(self) -> TrustedTexts:
        """What a person saw of the project when it was trusted."""
        every = (*self.index.skills, *self.index.shadowed)
        of_project = [skill for skill in every if skill.scope == PROJECT]
        return self._trust.texts(of_project, self.project_tools)

    @once
    def shown(self) -> ShownSkills:
        """The skills as models are shown them: the project's by the texts that a person saw."""
        return shown_skills(
            self.index,
            lambda: self.texts,
            roots=self._project_roots(),
            scopes=[scope.name for scope in self._profile.scopes],
        )

    @once
    def shown_code(self) -> Found:
        """The manifests of `code` with those tools of the project alone that a person saw."""
        found = []
        for scope, result in self.code:
            if scope != PROJECT:
                found.append((scope, result))
            elif (kept := with_seen_tools(result, self.texts)) is not None:
                found.append((scope, kept))
        return tuple(found)

    def project_tools(self) -> Tools:
        """Return what models are shown of the tools that the project's directories have."""
        return self._project_tools(lambda _: ())

    def project_code(self) -> Tools:
        """Return the same with the digest of each directory that has code, which is read."""
        return self._project_tools(_code_texts)

    def _project_tools(self, more: Callable[[Path], tuple[str, ...]]) -> Tools:
        found: dict[str, tuple[str, ...]] = {}
        for root in self.trust_roots:
            if not root.is_dir():
                continue
            for result in skill_package.find_manifests(root):
                if result.manifest is not None:
                    place = os.path.realpath(result.directory)
                    found[place] = (*tool_texts(result.manifest), *more(result.directory))
        return found

    def _project_roots(self) -> list[Path]:
        return [
            root.path for root in self.roots if root.scope == PROJECT and "\0" not in str(root.path)
        ]

    @property
    def place(self) -> SearchPlace:
        """Where a person's skill is looked for."""
        return SearchPlace(
            known=self.index,
            roots=self.roots,
            start=self._config.places.start,
            skipped=self._profile.skipped_directories,
        )

    def project_findings(self) -> tuple[Diagnostic, ...]:
        """Return the errors of the project's skills, whether it is trusted or not."""
        roots = [root for root in self.roots if root.scope == "project"]
        found = discover(roots, profile=self._profile).diagnostics
        return tuple(one for one in found if one.severity is Severity.ERROR)

    @once
    def _places_of_clients(self) -> tuple[ProfileRoots, ...]:
        places = self._config.places
        return roots_of_clients(places, self._profile, self.roots, project_of(places.start))

    @property
    def trust_roots(self) -> tuple[Path, ...]:
        """The directories of the project in which any client finds skills."""
        roots = [root for one in self._places_of_clients for root in one.roots]
        paths = [root.path for root in roots if root.scope == PROJECT]
        # The same folder is named once.
        by_place = {os.path.realpath(path): path for path in paths if "\0" not in str(path)}
        return tuple(by_place.values())

    def project_skills(self) -> ProjectSkills:
        """Return the skills that any client finds in the project, whether it is trusted or not."""
        return read_project(self._places_of_clients)

    def linked_changes(self) -> tuple[Skill, ...]:
        """Return the skills that a person linked and that changed since, as they are now."""
        roots = [root for root in self.roots if root.scope == "user"]
        index = discover(roots, profile=self._profile)
        every = index.skills + index.shadowed
        return self._policy.linked.changed(skill for skill in every if skill.link)

    @once
    def code(self) -> Found:
        """The manifests of skills that have their own tools."""
        return self._services.found_code(self.roots, is_trusted=self._trust.is_trusted)

    @once
    def settings(self) -> SkillSettings:
        return self._services.settings_store.read()

    @once
    def recent(self) -> Mapping[str, int]:
        """The ranks of skills that were loaded lately, by file."""
        return self._services.recent.ranks()

    @property
    def was_used(self) -> bool:
        """Whether the index was read."""
        return self._index.made

    def view(self, agent: str) -> AgentView:
        """Return what an agent sees. Raises ConfigError: no agent has that name."""
        if agent not in self._views:
            # INVARIANT: nothing that a view holds leads to its snapshot. A circle would keep each
            # scan in memory until the collector looks through everything.
            services, composition = self._services, self.composition
            self._views[agent] = AgentView(
                agent,
                self.shown.index,
                self.settings,
                self._config,
                self._policy,
                roots=tuple(root.path for root in self.roots),
                worked=partial(services.touched.of, agent),
                recent=self.recent,
                learned=services.learned if self._config.search.learn else None,
                why_absent=partial(why_absent, self.place),
                fault=composition.fault,
                encoders=composition.encoders.get,
                waiting=self.shown.waiting,
                code=partial(self._services.code_tools, self.shown_code),
                own_tools=len(composition.own_tools),
            )
            if self._signatures is not None:
                self._views[agent].search.renew(self._signatures)
        return self._views[agent]

    def gate(self, agent: str) -> toolbox.Gate:
        if agent not in self._gates:
            view, services = self.view(agent), self._services
            self._gates[agent] = self.composition.gates.get().for_agent(
                view, view.code_tools, partial(services.why_tool_absent, self.shown_code)
            )
        return self._gates[agent]

    def note(self, call: toolbox.ToolCall, result: toolbox.ToolResult) -> None:
        """Note the file that a call touched, if the profile lists skills by touched files."""
        if not self._profile.extensions.paths:
            return
        view = self.view(call.agent)
        before = view.listed.skills
        if self._services.touched.add(call, result) and view.listed.skills != before:
            # The list is in a tool's description.
            self._gates.pop(call.agent, None)

    def is_like(self, other: HouseSnapshot) -> bool:
        mine, theirs = self.index, other.index
        return (
            mine.skills == theirs.skills
            # Another process may have trusted the project as it is now.
            and self.shown.index.skills == other.shown.index.skills
            and mine.shadowed == theirs.shadowed
            # People are shown a file that cannot be used, too.
            and mine.diagnostics == theirs.diagnostics
            and (self.settings, self.code) == (other.settings, other.code)
        )

    def follow(self, later: HouseSnapshot) -> None:
        """Let searches read changed bodies, when the list of skills is unchanged."""
        now = _signatures(later.index)
        then = self._signatures or _signatures(self.index)
        # A file without a signature was changed a moment ago, and may have been since.
        if now != then or None in now.values():
            self._signatures = now
            for view in self._views.values():
                view.search.renew(now)
        if self._discovered is not None and later._discovered is not None:
            # The next scan is compared with what is there now.
            later._discovered.share(self._discovered)
            self._take(later)

    def close(self) -> None:
        """Stop reading in the background."""
        for view in self._views.values():
            view.close()

    def since(self, before: HouseSnapshot) -> Difference:
        """Return the changes of enabled skills since an earlier snapshot."""
        then, now = before._enabled(), self._enabled()
        return Difference(
            added=tuple(skill for key, skill in now.items() if key not in then),
            removed=tuple(skill for key, skill in then.items() if key not in now),
            changed=tuple(
                skill for key, skill in now.items() if key in then and then[key] != skill
            ),
            findings=len({*self.index.diagnostics} ^ {*before.index.diagnostics}),
        )

    def _enabled(self) -> dict[tuple[str, str], Skill]:
        return {
            (skill.id, skill.file): skill
            for skill in self.index.skills
            if self.settings.is_enabled(skill.id)
        }


class SnapshotInUse(Protocol):
    """What gives the last scan, and scans again."""

    @property
    def snapshot(self) -> HouseSnapshot: ...

    @property
    def config_files(self) -> tuple[Path, ...]:
        """The files of the configuration in use, which are not below the roots."""

    def refresh(self) -> bool:
        """Scan again; whether the result differs."""


def watch(
    house: SnapshotInUse,
    announce: Callable[[Difference], None],
    *,
    stop: threading.Event,
    poll: bool,
) -> None:
    """Refresh after each change of a file until `stop` is set; see `Skillhouse.watch`."""
    while not stop.is_set():
        roots, known = house.snapshot.roots, house.config_files
        changes = discovery.watch(roots, files=known, stop=stop, poll=poll)
        # What changed after the last scan and before this watch began is reported by neither.
        _announce_changes(house, announce)
        if house.snapshot.roots != roots:
            continue
        for _ in changes:
            _announce_changes(house, announce)
            if house.snapshot.roots != roots or house.config_files != known:
                break


def _announce_changes(house: SnapshotInUse, announce: Callable[[Difference], None]) -> None:
    before = house.snapshot
    try:
        is_different = house.refresh()
    except (SkillhouseError, OSError, ValueError, RecursionError):
        # A file that is half written now is whole at the next change.
        logger.exception("looking for changes")
        return
    now = house.snapshot
    if is_different or now is not before:
        announce(now.since(before))


def _code_texts(directory: Path) -> tuple[str, ...]:
    """Return the digest of a directory with code; nothing where it cannot be bound to one."""
    try:
        return (code_text(tree_digest(directory)),)
    except (TreeError, OSError):
        return ()


def _signatures(index: SkillIndex) -> dict[str, Signature]:
    return {skill.file: skill.signature for skill in index.skills}


def bundle_root(config: Config) -> Path:
    """Return the root of a bundle's skills, in the cache of other servers' skills.

    INVARIANT: it is of the directory whose rules the configuration has, and not what is current at
    this moment: skills of one bundle are never used by the rules of another.
    """
    if config.bundle is not None and config.bundle.named is not None:
        nothing = config.bundle.link.with_name(NOTHING)
        return (config.bundle.directory or nothing) / remote.SKILLS
    return bundle_link(config.remote_directory, config.skills.source) / remote.SKILLS


def remote_roots(config: Config, profile: Profile) -> tuple[Root, ...]:
    """Return a root for each configured server; none where the profile has no such scope."""
    if all(scope.name != SCOPE for scope in profile.scopes):
        return ()
    own = tuple(
        Root(remote.skills_place(config.remote_directory, source), SCOPE)
        for source in config.remotes
        if may_come_from(config, source.url)
    )
    bundle = config.skills.source
    if bundle and may_come_from(config, bundle):
        # Before servers that are not signed, and behind all skills of this machine.
        return (Root(bundle_root(config), SCOPE), *own)
    return own


def with_remotes(config: Config, profile: Profile, roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Return roots with those of other servers in their place among them.

    Where the profile orders roots in another way than by scope, those of servers are the weakest:
    they take no name from a skill of this machine.

    Raises:
        ConfigError: what is synced would be found as something else as well.
    """
    directory = config.remote_directory
    if config.remotes or config.skills.source or directory.exists():
        check_outside(directory, roots)
    own = remote_roots(config, profile)
    if not own:
        return roots
    if profile.duplicates == "last":
        return (*own, *roots)
    ranks = {scope.name: rank for rank, scope in enumerate(profile.scopes)}
    if profile.root_order == "written":
        return (*roots, *own)
    place = next(
        (at for at, root in enumerate(roots) if ranks[root.scope] > ranks[SCOPE]), len(roots)
    )
    return (*roots[:place], *own, *roots[place:])


def check_outside(directory: Path, roots: Iterable[Root]) -> None:
    """Raise ConfigError for a cache below a scanned root, whose skills it would add to."""
    real = os.path.realpath(directory)
    for root in roots:
        if "\0" in str(root.path):
            continue
        base = os.path.realpath(root.path)
        if os.path.commonpath((base, real)) == base:
            raise ConfigError(
                f"skills of other servers are kept in `{directory}`, which is below `{root.path}`"
                "; expected a `cache_directory` outside of every place where skills are looked for",
                key="cache_directory",
            )

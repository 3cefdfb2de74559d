"""What `doctor` and `profiles` find out, as plain values, for `--json` and the HTTP API."""

from __future__ import annotations

import platform
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from skillhouse import __version__
from skillhouse.answers.catalogs import (
    CatalogBoundsAnswer,
    catalog_bounds,
    omitted_in_tool,
)
from skillhouse.answers.doctor import (
    DoctorAnswer,
    UnsafeEntryAnswer,
    WatchUseAnswer,
    report_answer,
)
from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.json_form import ListAnswer, copied, listed
from skillhouse.answers.skills import absent_skill, code_facts
from skillhouse.approval import OWNER
from skillhouse.clients import (
    ClientConfigs,
    LensState,
    client_profile,
    client_profiles,
    compare,
    exported_sources,
    has_own_folder,
    is_installed,
    problems,
    profile_to_compare,
)
from skillhouse.discovery import watch_bound, watch_use
from skillhouse.extension import load_extensions
from skillhouse.floor import (
    Diagnostic,
    InternalFaultError,
    MissingExtraError,
    Severity,
    SkillhouseError,
    fault_finding,
    git_root,
    isolated,
    structs,
)
from skillhouse.house import (
    Locations,
    Skillhouse,
    TrustStore,
    audit_troubles,
    file_troubles,
    tool_report,
    usable_config,
)
from skillhouse.house.config.config_keys import CONFIG_KEYS
from skillhouse.house.own_files import audit_log_of
from skillhouse.manage import (
    RepositoryFreshness,
    changed_skills,
    offered_code,
    repository_freshness,
    trust_notes,
)
from skillhouse.presentation.library import catalog_cost, catalog_notes
from skillhouse.presentation.pairing_code import page_of, why_no_key
from skillhouse.presentation.text import counted, one_line
from skillhouse.retrieval import SearchDatabaseError
from skillhouse.skill import DEFAULT_PROFILE, load_profile, profile_names
from skillhouse.tools import BUILTIN_TOOLS

if TYPE_CHECKING:
    from pathlib import Path

    from skillhouse.answers.hook_changes import HookChange
    from skillhouse.audit import Trouble
    from skillhouse.clients import Change, ClientReport, ReportedProblem
    from skillhouse.house import AbsentSkill, AgentView, Config, ToolReport
    from skillhouse.manage import CodeFacts
    from skillhouse.skill import Profile


class Examination(Struct, frozen=True, kw_only=True):
    """Everything that is looked at, for some clients."""

    report: ClientReport
    problems: Sequence[ReportedProblem]
    stuck: Sequence[Trouble]
    """What is wrong with the audit log."""
    open_files: Sequence[Trouble]
    faults: Sequence[Diagnostic]
    """Of configuration files."""
    unsafe: Sequence[Change]
    """Entries of clients that start us unsafely."""
    catalog: CatalogBoundsAnswer | None
    watches: WatchUseAnswer | None
    code: Sequence[CodeFacts]
    notes: Sequence[str]
    trust: Sequence[str]
    """What of signatures and repositories' metadata ended or soon does; in `notes` too."""
    repositories: Sequence[RepositoryFreshness]
    changed: Sequence[AbsentSkill]
    """Installed skills whose files are not those that were installed."""
    tools: ToolReport

    @property
    def further(self) -> int:
        """What is wrong besides the problems of clients with skills."""
        broken = sum(facts.is_broken for facts in self.code)
        wrong = (self.faults, self.stuck, self.open_files, self.unsafe, self.changed)
        return broken + sum(map(len, wrong))

    @property
    def is_well(self) -> bool:
        return not (self.problems or self.further)

    def answer(self, hooks: Sequence[HookChange] | UnsetType = UNSET) -> ListAnswer:
        more = DoctorAnswer(
            machine=machine(),
            report=report_answer(self.report),
            audit=tuple(self.stuck),
            files=tuple(self.open_files),
            configuration=diagnostic_answers(self.faults),
            entries=[
                UnsafeEntryAnswer(client=one.client, name=one.name, fault=one.fault)
                for one in self.unsafe
            ],
            catalog=self.catalog,
            watches=self.watches,
            code=list(map(code_facts, self.code)),
            installed=list(map(absent_skill, self.changed)),
            tools=self.tools,
            trust=list(self.trust),
            repositories=list(self.repositories),
            hooks=UNSET if hooks is UNSET else list(hooks),
        )
        return listed("problems", self.problems, more)


def examine(places: Locations, report: ClientReport, *, verbs: Collection[str] = ()) -> Examination:
    """Look at everything here besides what the clients see, which is `report`; `verbs` are ours."""
    config, faults = usable_config(places)
    found = [*faults, *extension_findings(verbs)]
    own = _own_place(config, found)
    return Examination(
        report=report,
        problems=tuple(problems(report)),
        stuck=tuple(audit_troubles(config)),
        open_files=tuple(file_troubles(config)),
        faults=tuple(found),
        unsafe=unsafe_entries(places),
        catalog=own.catalog,
        watches=own.watches,
        code=own.code,
        notes=own.notes,
        trust=own.trust,
        repositories=own.repositories,
        changed=own.changed,
        tools=tool_report(config),
    )


def extension_findings(verbs: Collection[str] = ()) -> list[Diagnostic]:
    """Return what is wrong with the extensions of others: those that fail, and names that are
    taken, of `verbs` too."""
    loaded = load_extensions()
    clashes = loaded.clashes(verbs=verbs, tools=BUILTIN_TOOLS, sections=CONFIG_KEYS)
    return [
        Diagnostic(
            code=one.code,
            severity=Severity.ERROR,
            message=f"extension `{one.extension}`"
            + (f" of {one.distribution}" if one.distribution else "")
            + f": {one.message}",
        )
        for one in (*loaded.faults, *clashes)
    ]


def tool_lines(tools: ToolReport, home: str) -> list[str]:
    """Return which programs commands find, and where the person's shell finds others."""
    lines = []
    for one in tools.programs:
        place = one.inside or "not found"
        other = "" if one.is_same else f" (in your shell: {one.shell or 'not found'})"
        lines.append(f"{one.name}: {place}{other}".replace(f"{home}/", "~/"))
    lines += [note.replace(f"{home}/", "~/") for note in tools.notes]
    if tools.git_left_out:
        lines.append(f"git does not have: {', '.join(tools.git_left_out)}")
    return ["programs that commands find", *lines] if lines else []


class _OwnPlace(Struct, frozen=True, kw_only=True):
    """What is found out here, of which there is nothing where a file keeps us from starting."""

    notes: Sequence[str]
    catalog: CatalogBoundsAnswer | None = None
    watches: WatchUseAnswer | None = None
    code: Sequence[CodeFacts] = ()
    trust: Sequence[str] = ()
    repositories: Sequence[RepositoryFreshness] = ()
    changed: Sequence[AbsentSkill] = ()


def _own_place(config: Config, faults: list[Diagnostic]) -> _OwnPlace:
    """Return what the catalog's bounds leave out, how changes are noticed, the skills with code,
    notes about them, and the installed skills that changed."""
    with isolated() as failed, Skillhouse(config) as house:
        view = house.view()
        found, use = catalog_bounds(view), watch_use(house.snapshot.roots)
        notes = [
            catalog_cost(found, view),
            *catalog_notes(view, found.omitted, omitted_in_tool(found)),
        ]
        notes += _search_notes(house, view)
        trust, repositories = trust_notes(house), repository_freshness(house)
        notes += trust
        page = page_of(config.approvals.page_url)
        if page and (why := why_no_key(page)):
            notes.append(f"`approvals.page_url`: {why}")
        code, changed = offered_code(house), tuple(changed_skills(house))
    for error in failed:
        if isinstance(error, InternalFaultError):
            faults.append(fault_finding(error, None))
        return _OwnPlace(notes=[f"the catalog cannot be made: {error}"])
    notes += [f"skill with code {one_line(f'{one.name}: {one.summary()}')}" for one in code]
    watches = None
    if use is not None:
        if use.polls:
            notes.append(
                f"a program that watches these {use.needed:,} directories polls them: at most "
                f"{watch_bound():,} are watched, and {use.free:,} of this user's {use.most:,} "
                "watches are free (fs.inotify.max_user_watches)"
            )
        watches = copied(WatchUseAnswer, use, free=use.free, polls=use.polls)
    return _OwnPlace(
        notes=notes,
        catalog=found,
        watches=watches,
        code=code,
        trust=trust,
        repositories=repositories,
        changed=changed,
    )


def _search_notes(house: Skillhouse, view: AgentView) -> list[str]:
    """Say what search uses besides words in files, or why it cannot."""
    notes = []
    try:
        encoders = house.services.encoders
        if encoders is not None:
            notes.append(f"search finds skills by meaning too, with {' and '.join(encoders.names)}")
    except MissingExtraError as error:
        notes.append(f"search by meaning is off: {error}")
    try:
        database = view.search.database()
        if database is not None:
            version = ".".join(map(str, database.vector_version))
            vectors = f"keeps vectors too (pgvector {version})" if version else "has no pgvector"
            database.close()
            notes.append(f"the search index is in PostgreSQL, which {vectors}")
    except SearchDatabaseError as error:
        notes.append(f"{error}; files are searched")
    except SkillhouseError as error:
        notes.append(f"search is not possible: {error}")
    if house.config.search.learn:
        kept = counted(len(house.services.learned.choices(OWNER)), "choice")
        notes.append(f"search learns from what is loaded: {kept} kept, see `search --learned`")
    return notes


def unsafe_entries(places: Locations) -> tuple[Change, ...]:
    """Return the entries of clients that are not safe to start our server with."""
    config = usable_config(places).config
    configs = ClientConfigs(
        places=places,
        project=git_root(places.start) or places.start,
        state_directory=config.state_directory,
        audit=audit_log_of(config),
    )
    return tuple(change for change in configs.status() if change.fault)


def profiles_of(places: Locations, names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the named profiles; without names those of all clients, and our own behaviour."""
    if names:
        return tuple(profile_to_compare(name, places) for name in dict.fromkeys(names))
    known = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    clients = tuple(profile for profile in known if profile.client)
    ours = load_profile(usable_config(places).config.profile, places.profiles)
    return clients if ours in clients else (*clients, ours)


def examined_profiles(places: Locations, names: Sequence[str]) -> tuple[Profile, ...]:
    """Return the profiles that `doctor` is about: those named, or of what is installed here."""
    if names and "all" not in names:
        return profiles_of(places, names)
    read = profiles_of(places, ())
    ours = tuple(one for one in read if not one.client)
    every = client_profiles(places)
    here = tuple(one for one in every if is_installed(one, places))
    if names:
        return (*(one for one in every if not one.folders_only or one in here), *ours)
    # Folders alone say little: what installs skills makes them, for many clients at once.
    here = here or tuple(one for one in every if has_own_folder(one, places))
    return (*here, *(one for one in read if one not in here and not one.client))


def seen_by(
    places: Locations, profiles: Sequence[Profile], cache: Path | None = None
) -> ClientReport:
    """Return what clients see; of unchanged files what is kept in the directory `cache` is read."""
    config = usable_config(places).config
    project = git_root(places.start) or places.start
    report = compare(
        start=places.start,
        home=places.home,
        environment=places.environment,
        profiles=profiles,
        trusted=TrustStore(config.state_directory).is_trusted(project),
        explicit=config.roots,
        cache=cache,
    )
    return structs.replace(report, exported=exported_sources(config.state_directory))


def machine() -> str:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"skillhouse {__version__}, {system}, Python {platform.python_version()}"


def listed_profiles(places: Locations) -> list[Profile]:
    """Return all profiles: real clients first, those that were compared before all."""
    found = [load_profile(name, places.profiles) for name in profile_names(places.profiles)]
    # What people have installed first, then our own behaviour, then the published designs.
    found.sort(key=lambda p: (not p.client, not p.checked, p.name != DEFAULT_PROFILE.name))
    return found


def listed_twice(places: Locations, view: AgentView, client: str) -> int:
    """Return how many skills of our list a client finds in folders that it reads itself.

    By name, as a model sees them: a copy that was exported counts as well.
    """
    report = seen_by(places, (client_profile(client, places),))
    theirs = {
        one.name
        for one in report.skills
        if one.verdicts[0].state in (LensState.SEEN, LensState.FOLDER)
    }
    return sum(skill.name in theirs for skill in view.listable.skills)

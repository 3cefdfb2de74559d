"""Plans what an export writes where, with the reason for each refusal; changes nothing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.clients.comparison import (
    Seen,
    hidden_notes,
    leaf_of,
    objection,
    remarks,
    try_skills,
)
from skillhouse.clients.export_state import (
    Action,
    ExportError,
    ExportRequest,
    ExportSource,
    ExportState,
    Form,
    Item,
    Record,
)
from skillhouse.clients.folders import (
    ClientRoots,
    Folder,
    client_profile,
    client_profiles,
    folder_of,
    resolved,
)
from skillhouse.clients.trees import found_digest, link_digest, source_digest
from skillhouse.clients.verdicts import Verdict
from skillhouse.floor import SkillError, UnknownSkillError, is_utf8, isolated
from skillhouse.floor.structs import replace
from skillhouse.skill import Profile, Skill, load


class ExportPlan(Struct, frozen=True, kw_only=True):
    item: Item
    wanted: str = ""
    """The digest that the target is to have."""
    record: Record | None = None
    """The new record; None when nothing is written."""
    folder: Folder | None = None


class Planner:
    def __init__(self, source: ExportSource, records: Iterable[Record]) -> None:
        self._source = source
        self._places = source.places
        self._records = {record.target: record for record in records}
        self._clients = client_profiles(self._places, here=True)
        self._client_roots = ClientRoots(self._places)

    def plans(self, request: ExportRequest) -> Iterator[ExportPlan]:
        """Yield a plan for each skill and folder, and one for each client that refuses."""
        chosen = (client_profile(name, self._places) for name in request.clients)
        named = {profile.name: profile for profile in chosen}
        profiles = [named[name] for name in sorted(named)]
        skills = self._chosen(request)
        seen = Seen(self._places, self._source.project, profiles)
        verdicts: dict[str, dict[str, Verdict]] = {}
        broken: dict[str, str] = {}
        for profile in profiles:
            with isolated() as failed:
                verdicts[profile.name] = try_skills(_by_leaf(skills), profile)
            for error in failed:
                broken[profile.name] = str(error)
        usable = [profile for profile in profiles if profile.name not in broken]
        taken: dict[str, str] = {}
        for skill in skills:
            for name, fault in broken.items():
                yield _refused(skill, [name], fault)
            # A list: what is written of a skill is planned as a whole, or not at all.
            with isolated() as failed:
                yield from list(self._plans_of(skill, usable, request, seen, verdicts, taken))
            for error in failed:
                yield _refused(skill, [profile.name for profile in usable], str(error))

    def _plans_of(
        self,
        skill: Skill,
        profiles: Sequence[Profile],
        request: ExportRequest,
        seen: Seen,
        verdicts: dict[str, dict[str, Verdict]],
        taken: dict[str, str],
    ) -> Iterator[ExportPlan]:
        if fault := self._fault(skill, taken):
            yield _refused(skill, [profile.name for profile in profiles], fault)
            return
        taken[leaf_of(skill).casefold()] = skill.id
        yield from self._of_skill(skill, profiles, request, seen, verdicts)

    def again(self, request: ExportRequest) -> Iterator[ExportPlan]:
        """Yield a plan for each record that is called so, with the form and folder that it has."""
        by_source = {os.path.realpath(skill.directory): skill for skill in self._everything()}
        every = client_profiles(self._places)
        for record in self._records.values():
            if not any(is_called(record, one) for one in request.references or (record.target,)):
                continue
            skill = by_source.get(record.source)
            known = [profile for profile in every if profile.name in record.clients]
            if skill is None:
                reason = "its skill is not found from here"
                item = _item(record.skill, record.source, record.clients, ExportState.SOURCE_GONE)
                yield ExportPlan(item=replace(item, target=record.target, reason=reason))
                continue
            with isolated() as failed:
                if fault := self._fault(skill, {}):
                    yield _refused(skill, record.clients, fault, target=record.target)
                    continue
                verdicts = {one.name: try_skills(_by_leaf([skill]), one) for one in known}
                loading = [one for one in known if not _objects(verdicts, one, skill)]
                folder = resolved(
                    record.folder, self._places, Path(record.anchor), where=record.where
                )
                if not loading:
                    code, path = "not-loaded", skill.location
                    raise ExportError(code, path, _objects(verdicts, known[0], skill))
                once_more = replace(request, form=record.form, where=record.where)
                yield self._at(skill, folder, loading, once_more, record.clients)
            for error in failed:
                yield _refused(skill, record.clients, str(error), target=record.target)

    def _everything(self) -> tuple[Skill, ...]:
        index = self._source.index()
        return (*index.skills, *index.shadowed)

    def _chosen(self, request: ExportRequest) -> list[Skill]:
        """Return the requested skills; exported copies are replaced by their originals."""
        if request.everything:
            skills = [skill for skill in self._source.visible() if skill.scope != "builtin"]
        else:
            skills = [self._source.skill(reference) for reference in request.references]
        return list(dict.fromkeys(map(self._original, skills)))

    def _original(self, skill: Skill) -> Skill:
        """Return the original of an exported copy, and any other skill as it is."""
        record = self._records.get(str(skill.directory)) or self._records.get(
            os.path.realpath(skill.directory)
        )
        if record is None or record.source == os.path.realpath(skill.directory):
            return skill
        for other in self._everything():
            if os.path.realpath(other.directory) == record.source and other.id == record.skill:
                return other
        if found_digest(Path(record.target)) not in (record.digest, record.pending):
            return skill
        raise UnknownSkillError(record.skill, (record.source,))

    def _fault(self, skill: Skill, taken: dict[str, str]) -> str:
        """Return why a skill cannot be exported to any client; empty when it can."""
        leaf = leaf_of(skill)
        if not leaf:
            return "its name is not a valid directory name on every system; rename it"
        if other := taken.get(leaf.casefold()):
            return f"`{other}` has the same name; export one of the two"
        if not is_utf8(os.path.realpath(skill.directory)):
            return "the path of its directory is not UTF-8"
        if not self._source.is_enabled(skill.id):
            return f"it is disabled; `skillhouse enable {skill.id}`"
        try:
            content = load(skill)
        except SkillError:
            # `try_skills` refuses what cannot be loaded.
            content = None
        if reason := self._source.obstacle(skill, content):
            hint = "; `skillhouse trust`" if skill.scope == "project" else ""
            return f"only skills that load without approval are exported: {reason}{hint}"
        return ""

    def _of_skill(
        self,
        skill: Skill,
        profiles: Sequence[Profile],
        request: ExportRequest,
        seen: Seen,
        verdicts: dict[str, dict[str, Verdict]],
    ) -> Iterator[ExportPlan]:
        by_folder: dict[str, tuple[Folder, list[Profile]]] = {}
        # Clients with the fewest folders choose first, so that others can share those.
        for profile in sorted(profiles, key=lambda one: len(self._roots(one, request))):
            if fault := _objects(verdicts, profile, skill):
                yield _refused(skill, [profile.name], fault)
                continue
            try:
                folder = self._folder(profile, request, [taken for taken, _ in by_folder.values()])
                place = self._at_home(skill, profile, folder, request, seen)
            except ExportError as error:
                yield _refused(skill, [profile.name], str(error))
                continue
            if place:
                source = os.path.realpath(skill.directory)
                item = _item(skill.id, source, [profile.name], ExportState.ALREADY_THERE)
                yield ExportPlan(item=replace(item, target=place, reason="already in this folder"))
                continue
            by_folder.setdefault(folder.real, (folder, []))[1].append(profile)
        for folder, readers in by_folder.values():
            try:
                plan = self._at(skill, folder, readers, request)
            except ExportError as error:
                yield _refused(skill, [one.name for one in readers], str(error))
                continue
            notes = hidden_notes(skill)
            for one in readers:
                verdict = verdicts[one.name].get(leaf_of(skill))
                notes += remarks(verdict, skill, one.name)
                if one.folders_only:
                    notes.append(f"how {one.name} reads a skill is not known, only its folders are")
                known = (os.path.join(plan.item.target, "SKILL.md"), os.path.realpath(skill.file))
                notes += [
                    f"{one.name} has another skill of that name: {other}"
                    for other in seen.others(skill.name, one.name, known)
                ]
            yield replace(plan, item=replace(plan.item, warnings=tuple(dict.fromkeys(notes))))

    def _roots(self, profile: Profile, request: ExportRequest) -> list[str]:
        roots = self._client_roots.of(profile, self._source.project, request.where)
        return [str(root.path) for root in roots]

    def _folder(self, profile: Profile, request: ExportRequest, taken: Sequence[Folder]) -> Folder:
        """Return the folder for a client: one that is written already, if the client reads it."""
        folder = folder_of(
            profile,
            self._clients,
            self._client_roots,
            self._source.project,
            where=request.where,
            own=request.own,
        )
        if request.own or folder.real in {one.real for one in taken}:
            return folder
        read = {os.path.realpath(root) for root in self._roots(profile, request)}
        return next((one for one in taken if one.real in read), folder)

    def _at_home(
        self, skill: Skill, profile: Profile, folder: Folder, request: ExportRequest, seen: Seen
    ) -> str:
        """Return the directory in which a client already sees the skill; empty when it does not."""
        if os.path.join(folder.real, leaf_of(skill)) in self._records:
            return ""
        place = seen.at(skill, profile.name, self._roots(profile, request))
        directory = os.path.dirname(place)
        ours = os.path.join(os.path.realpath(os.path.dirname(directory)), leaf_of(skill))
        return "" if ours in self._records else directory

    def _at(
        self,
        skill: Skill,
        folder: Folder,
        readers: Sequence[Profile],
        request: ExportRequest,
        clients: Iterable[str] = (),
    ) -> ExportPlan:
        """Return the plan for one folder, or raise `ExportError`."""
        source = os.path.realpath(skill.directory)
        target = os.path.join(folder.real, leaf_of(skill))
        if request.form is Form.LINK:
            wanted = link_digest(link_text(skill, folder, readers, source))
        else:
            wanted = source_digest(Path(source))
        # Checked again after the digest was taken: the skill can have changed meanwhile.
        if fault := self._fault(skill, {}):
            raise ExportError("not-allowed", Path(source), fault)
        if Path(target).is_relative_to(source):
            raise ExportError("inside-itself", Path(target), "the folder is inside the skill")
        before = self._records.get(target)
        names = {profile.name for profile in readers} | set(clients)
        if before is not None:
            names |= set(before.clients)
        state = target_state(before, Path(target), wanted)
        if before is not None and before.source != source and state is ExportState.IN_SYNC:
            state = ExportState.NEEDS_SYNC
        item = _item(skill.id, source, sorted(names), state, form=request.form)
        everyone = self._client_roots.readers(
            folder.real, self._clients, Path(folder.anchor), folder.where
        )
        item = replace(item, target=target, also=tuple(n for n in everyone if n not in names))
        record = Record(
            target=target,
            skill=skill.id,
            source=source,
            form=request.form,
            where=folder.where,
            folder=folder.path,
            anchor=folder.anchor,
            clients=tuple(sorted(names)),
            digest=before.digest if before else "",
            pending=before.pending if before else "",
            made=before.made if before else (),
        )
        is_equal = found_digest(Path(target)) == wanted
        item = decided(item, is_equal=is_equal, force=request.force)
        writes = item.action is not Action.NONE or item.state is ExportState.IN_SYNC
        return ExportPlan(
            item=item, wanted=wanted, record=record if writes else None, folder=folder
        )


def is_called(record: Record, reference: str) -> bool:
    names = (record.skill.partition(":")[2], os.path.basename(record.target))
    return reference in (record.skill, record.target, *names)


def _objects(verdicts: dict[str, dict[str, Verdict]], profile: Profile, skill: Skill) -> str:
    reason = objection(verdicts.get(profile.name, {}).get(leaf_of(skill)))
    return f"{profile.name} would not load it: {reason}" if reason else ""


def _by_leaf(skills: Iterable[Skill]) -> dict[str, Skill]:
    leaves: dict[str, list[Skill]] = defaultdict(list)
    for skill in skills:
        leaves[leaf_of(skill).casefold()].append(skill)
    return {leaf_of(same[0]): same[0] for key, same in leaves.items() if key}


def _item(
    skill: str, source: str, clients: Iterable[str], state: ExportState, *, form: Form = Form.COPY
) -> Item:
    return Item(skill=skill, source=source, clients=tuple(clients), state=state, form=form)


def _refused(skill: Skill, clients: Iterable[str], reason: str, *, target: str = "") -> ExportPlan:
    source = os.path.realpath(skill.directory)
    item = _item(skill.id, source, clients, ExportState.REFUSED)
    return ExportPlan(item=replace(item, target=target, reason=reason))


_LINKED_FROM = {"user": ("user", "explicit"), "project": ("project",)}
"""The scopes whose skills may be linked. A linked skill can change unnoticed, so one of a project
must not reach all projects, and a link out of a project is broken on other machines."""


def target_state(record: Record | None, target: Path, wanted: str) -> ExportState:
    """Return the state of a target, from its record and the digest that it should have."""
    if not os.path.lexists(target):
        return ExportState.MISSING
    if record is None:
        return ExportState.FOREIGN
    digest = found_digest(target)
    if not digest or digest not in (record.digest, record.pending):
        # Without a digest nothing was written: a record that a crash left gives no right to it.
        return ExportState.CHANGED_THERE if record.digest else ExportState.FOREIGN
    return ExportState.IN_SYNC if digest == wanted else ExportState.NEEDS_SYNC


def decided(item: Item, *, is_equal: bool, force: bool) -> Item:
    """Return an item, whose `state` is set, with its action."""
    if item.state is ExportState.MISSING:
        return replace(item, action=Action.WRITE)
    if item.state is ExportState.NEEDS_SYNC:
        return replace(item, action=Action.REPLACE)
    if item.state is ExportState.CHANGED_THERE:
        if force:
            return replace(item, action=Action.REPLACE)
        return replace(item, reason="the copy was changed; see --diff, --force overwrites it")
    if item.state is ExportState.FOREIGN and is_equal:
        reason = "an equal copy exists that skillhouse did not write"
        return replace(item, state=ExportState.ALREADY_THERE, reason=reason)
    if item.state is ExportState.FOREIGN:
        return replace(item, reason="skillhouse did not write what is there; it stays")
    return item


def link_text(skill: Skill, folder: Folder, readers: Sequence[Profile], source: str) -> str:
    """Return the target of a symbolic link in a folder, or raise `ExportError` (`not-linked`)."""
    if skill.scope not in _LINKED_FROM[folder.where]:
        message = f"skills of scope {skill.scope} are copied into folders of the {folder.where}"
        raise ExportError("not-linked", Path(source), f"{message}, not linked")
    for profile in readers:
        if profile.symlinks != "follow" or not folder.follows:
            does = "is not known to" if profile.folders_only else "does not"
            message = f"{profile.name} {does} follow links out of its folder; export a copy"
            raise ExportError("not-linked", Path(folder.path), message)
    # As `doctor --fix` makes them; a link between trees that share nothing names the whole path.
    is_apart = os.path.commonpath((source, folder.real)) == os.sep
    return source if is_apart else os.path.relpath(source, folder.real)

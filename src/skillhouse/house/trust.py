"""Which projects a person trusts, bound to their real path and to their skills' digests.

The work trees of one git repository (`project.py`) share what was trusted in one of them: where a
work tree has no trust of its own, that in the others counts, for the same bytes at the same path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from skillhouse.approval import OWNER
from skillhouse.floor import SkillError, StateError, as_error
from skillhouse.floor.structs import replace
from skillhouse.house.linked_skills import LinkedSkills
from skillhouse.house.project import ClientReading, ProjectSkills, same_repository
from skillhouse.house.trusted_text import (
    TrustedText,
    TrustedTexts,
    code_text,
    relative_to,
    texts_of,
    written,
)
from skillhouse.skill import Skill, SkillLinks, followed_digest, load, skill_links
from skillhouse.store import STATE, STATE_FILE, commit_stamp, pooled, state_exists

logger = logging.getLogger(__name__)

Tools = Mapping[str, tuple[str, ...]]
"""What models are shown of the tools of each directory of a project, by its real path; where a
person trusts them, with the code's digest beside it."""

_PROJECT = ""
"""The directory of the row that says that the project itself is trusted."""


class TrustedSkill(Struct, frozen=True, kw_only=True):
    """A skill of a project, compared with its state when it was trusted."""

    skill: Skill
    directory: str
    """Relative to the project."""
    tree_digest: str
    """Empty when the directory has none; `problem` then says why."""
    state: str
    """trusted, new, changed, or unbound when it has no digest."""
    problem: str = ""
    earlier: TrustedText | None = None
    """What a person saw of it when the project was trusted."""
    readings: tuple[ClientReading, ...] = ()
    """How the profiles read it that read it in another way than the one in use."""
    finders: tuple[str, ...] = ()
    """The profiles that find it, where the one in use does not."""
    is_seen: bool = False
    """Whether it is trusted with every text that is shown of it here."""

    targets: tuple[str, ...] = ()
    """Real paths out of the project that links in it lead to."""

    @property
    def texts(self) -> tuple[TrustedText, ...]:
        """All that models are shown of it, without its tools."""
        every = (TrustedText.of(self.skill), *(one.text for one in self.readings))
        return tuple(replace(text, targets=self.targets) for text in every)

    @property
    def other_readings(self) -> tuple[ClientReading, ...]:
        """Those whose name or description is another one, which a person has to see."""
        said = (self.skill.name, self.skill.description)
        return tuple(one for one in self.readings if (one.text.name, one.text.description) != said)


class TrustReport(Struct, frozen=True, kw_only=True):
    """A project and its skills."""

    project: Path
    is_trusted: bool
    skills: tuple[TrustedSkill, ...]
    through: tuple[str, ...] = ()
    """The trusted work trees of the same repository, where the project has no trust of its own."""
    tools: Tools = field(default_factory=dict)


_HAS_TARGETS = '"targets": ["'


class TrustedTargets(NamedTuple):
    """What the trust in one project names out of it; all are real paths."""

    directories: frozenset[str] = frozenset()
    """Of skills."""
    ends: frozenset[str] = frozenset()
    """What links in skills lead to: files, and directories of files."""


class _Row(NamedTuple):
    """What is kept of one directory in the trust of one project."""

    project: str
    tree_digest: str
    shown: str


class TrustStore:
    """The trust that was given, kept outside every project."""

    def __init__(self, state_directory: Path) -> None:
        self._path = state_directory / STATE_FILE

    def is_trusted(self, project: Path) -> bool:
        """Whether the project's skills may be read; StateError if the state cannot be."""
        return self._has_own(project) or bool(self._others(project))

    def trusted_through(self, project: Path) -> tuple[str, ...]:
        """Return the work trees of the same repository by which alone the project is trusted."""
        return () if self._has_own(project) else self._others(project)

    def targets(self, project: Path) -> TrustedTargets:
        """Return what the project's trust names out of it."""
        every = [(place, row) for place, known in self._rows(project).items() for row in known]
        directories = (
            os.path.normpath(os.path.join(row.project, place))
            for place, row in every
            if place.startswith("..")
        )
        # Most texts have none, and each listing asks.
        known = (row.shown for _, row in every if _HAS_TARGETS in row.shown)
        ends = (end for shown in known for text in texts_of(shown) for end in text.targets)
        return TrustedTargets(frozenset(directories), frozenset(ends))

    def projects(self) -> tuple[str, ...]:
        if not state_exists(self._path):
            return ()
        with pooled(self._path, STATE) as store:
            query = "SELECT project FROM trust WHERE directory = ? ORDER BY project"
            return tuple(project for (project,) in store.rows(query, (_PROJECT,)))

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that change with everything that is written to the state."""
        return commit_stamp(self._path)

    def report(
        self, project: Path, skills: ProjectSkills | Iterable[Skill], *, tools: Tools | None = None
    ) -> TrustReport:
        """Compare the skills of a project with the trusted digests."""
        through = self.trusted_through(project)
        rows = self._rows(project)
        return TrustReport(
            project=project,
            is_trusted=_PROJECT in rows,
            skills=_judged_all(project, skills, rows),
            through=through,
            tools=tools or {},
        )

    def texts(
        self, project: Path, skills: Sequence[Skill], tools: Callable[[], Tools]
    ) -> TrustedTexts:
        """Return what a person saw of a project when it was trusted.

        Of what was trusted before texts were kept only the digest is known: where `skills` still
        have it, their texts are those that were seen, and are kept from now on.
        """
        rows = self._rows(project)
        real = os.path.realpath(project)
        texts = {
            directory: tuple(text for row in known for text in texts_of(row.shown))
            for directory, known in rows.items()
        }
        unread = {
            relative_to(real, os.path.dirname(skill.file)): skill
            for skill in skills
            if any(not row.shown for row in rows.get(_directory(real, skill), ()))
        }
        if unread:
            texts.update(self._adopted(rows, unread, tools()))
        return TrustedTexts(project=real, texts=texts)

    def _adopted(
        self, rows: Mapping[str, Sequence[_Row]], skills: Mapping[str, Skill], tools: Tools
    ) -> dict[str, tuple[TrustedText, ...]]:
        """Return and keep the texts of skills that are as they were when only digests were kept."""
        found: dict[str, tuple[TrustedText, ...]] = {}
        kept: list[tuple[str, str, str, str]] = []
        for directory, skill in skills.items():
            judged = _judged_at(directory, skill, rows)
            if judged.state != "trusted" or _has_other_head(skill):
                continue
            text = TrustedText.of(skill, tools.get(os.path.realpath(skill.directory), ()))
            found[directory] = (text,)
            kept += [
                (written([text]), row.project, directory, row.tree_digest)
                for row in rows[directory]
                if row.tree_digest == judged.tree_digest and not row.shown
            ]
        if not kept:
            return found
        try:
            with pooled(self._path, STATE) as store, store.transaction() as connection:
                connection.executemany(
                    "UPDATE trust SET shown = ? "
                    "WHERE project = ? AND directory = ? AND tree_digest = ? AND shown = ''",
                    kept,
                )
        except StateError as error:
            # The digest says the same the next time.
            logger.warning("what was trusted is not kept: %s", error)
        return found

    def has_code(self, project: Path, directory: Path, digest: str) -> bool:
        """Whether a person trusted just this code of a directory of the project."""
        rows = self._rows(project).get(relative_to(os.path.realpath(project), directory), ())
        wanted = code_text(digest)
        return any(wanted in text.tools for row in rows for text in texts_of(row.shown))

    def trust(
        self,
        project: Path,
        skills: ProjectSkills | Iterable[Skill],
        now: datetime,
        *,
        shown: TrustReport | None = None,
        tools: Tools | None = None,
    ) -> TrustReport:
        """Trust the project and its skills as they are now, besides what was trusted before.

        Of a directory that was shown before, its state now takes the place of the earlier one. What
        is not shown now, because no profile that was asked finds it from here, stays as it was
        trusted; what is gone from the disk does not.

        Raises:
            SkillError: one of them is not as in `shown`, which a person agreed to.
        """
        skills = skills if isinstance(skills, ProjectSkills) else tuple(skills)
        judged = _judged_all(project, skills, {})
        tools = tools or {}
        # INVARIANT: what is trusted is what was shown, byte for byte.
        if shown is not None and (
            _seen(judged) != _seen(shown.skills) or dict(tools) != dict(shown.tools)
        ):
            message = "the skills changed while they were shown: nothing was trusted, look again"
            raise SkillError("changed", project, message)
        real = os.path.realpath(project)
        of_tools = {relative_to(real, place): texts for place, texts in tools.items()}
        rows: dict[str, tuple[str, tuple[TrustedText, ...]]] = {
            place: ("", (TrustedText(tools=texts),)) for place, texts in of_tools.items()
        }
        for one in judged:
            of_place = of_tools.get(one.directory, ())
            texts = tuple(replace(text, tools=of_place) for text in one.texts)
            rows[one.directory] = (one.tree_digest, texts)
        at = now.isoformat(timespec="seconds")
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            query = "SELECT directory, tree_digest, shown FROM trust WHERE project = ?"
            earlier = {place: row for place, *row in connection.execute(query, (real,))}
            gone = [place for place in earlier if not os.path.isdir(os.path.join(real, place))]
            connection.executemany(
                "DELETE FROM trust WHERE project = ? AND directory = ?",
                [(real, place) for place in {_PROJECT, *rows, *gone}],
            )
            connection.executemany(
                "INSERT INTO trust (project, directory, tree_digest, trusted_at, shown) "
                "VALUES (?, ?, ?, ?, ?)",
                [(real, _PROJECT, "", at, "")]
                + [
                    (real, place, tree, at, written(_with_earlier(tree, texts, earlier.get(place))))
                    for place, (tree, texts) in rows.items()
                ],
            )
        return self.report(project, skills, tools=tools)

    def revoke(self, project: Path) -> bool:
        """Revoke the trust in the project and in all work trees of its repository.

        Returns whether there was any.
        """
        revoked = self.shared(project)
        if not revoked:
            return False
        with pooled(self._path, STATE) as store, store.transaction() as connection:
            connection.executemany("DELETE FROM trust WHERE project = ?", [(p,) for p in revoked])
        return True

    def shared(self, project: Path) -> tuple[str, ...]:
        """Return the trusted projects whose trust ends with this one's: its repository's."""
        own = (os.path.realpath(project),) if self._has_own(project) else ()
        return own + self._others(project)

    def _has_own(self, project: Path) -> bool:
        return os.path.realpath(project) in self.projects()

    def _others(self, project: Path) -> tuple[str, ...]:
        projects = self.projects()
        return same_repository(project, projects) if projects else ()

    def _rows(self, project: Path) -> dict[str, list[_Row]]:
        """Return what is trusted of each directory, in the project or in all that it shares."""
        found: dict[str, list[_Row]] = {}
        if not state_exists(self._path):
            return found
        # INVARIANT: of a project that was trusted itself, only that trust counts, so that an older
        # one elsewhere brings nothing back.
        projects = self.trusted_through(project) or (os.path.realpath(project),)
        with pooled(self._path, STATE) as store:
            query = "SELECT directory, project, tree_digest, shown FROM trust WHERE project = ?"
            for place in projects:
                for directory, *row in store.rows(query, (place,)):
                    found.setdefault(directory, []).append(_Row(*row))
        return found


class ProjectScan(Protocol):
    """What one scan finds in the project, whether it is trusted or not."""

    def project_skills(self) -> ProjectSkills: ...

    def project_code(self) -> Tools:
        """Return what models are shown of the project's tools, and its code's digests."""

    def linked_changes(self) -> tuple[Skill, ...]:
        """Return the skills that a person linked and that changed since, as they are now."""


class ProjectInUse(Protocol):
    """What gives the last scan, and scans again."""

    @property
    def snapshot(self) -> ProjectScan: ...

    def refresh(self) -> bool: ...


class EventRecorder(Protocol):
    """Records events; `noted` does not fail when the audit log does."""

    def event(
        self, what: str, *, user: str, reason: str = "", arguments: Mapping[str, object]
    ) -> None: ...
    def noted(
        self, what: str, *, user: str, reason: str = "", arguments: Mapping[str, object]
    ) -> None: ...


class ProjectTrust:
    """The trust in one project; each change is in the audit log."""

    def __init__(
        self,
        house: ProjectInUse,
        store: TrustStore,
        project: Path,
        log: EventRecorder,
        linked: LinkedSkills,
    ) -> None:
        """Bind the store to a project, whose real path is trusted.

        The skills that a person linked and that changed since, which `linked` has as they were, are
        shown and taken with the project's.
        """
        self._house = house
        self._store = store
        self._project = project
        self._log = log
        self._linked = linked

    def report(self) -> TrustReport:
        """Return the state of each of the project's skills, and changed linked ones; reads them."""
        scan = self._house.snapshot
        report = self._store.report(self._project, scan.project_skills(), tools=scan.project_code())
        return self._with_changes(report)

    def _with_changes(self, report: TrustReport) -> TrustReport:
        changed = tuple(_changed(skill) for skill in self._house.snapshot.linked_changes())
        return replace(report, skills=report.skills + changed)

    def trust(self, shown: TrustReport | None = None) -> TrustReport:
        """Trust this project and its skills as they are now, and as in `shown`.

        Raises:
            SkillError: they are not as in `shown` any more.
        """
        scan = self._house.snapshot
        skills, changed = scan.project_skills(), scan.linked_changes()
        tools = scan.project_code()
        if shown is not None:
            _check_shown((_changed(skill) for skill in changed), shown, self._project)
            own = (one for one in shown.skills if one.skill.scope == "project")
            shown = replace(shown, skills=tuple(own))
        if skills.skills or not changed:
            # What is recorded is what is trusted: `TrustStore.trust` compares the two.
            shown = shown or self._store.report(self._project, skills, tools=tools)
            what = _recorded(self._project, shown.skills)
            self._log.event("trust", user=OWNER, arguments=what)
            now = datetime.now(UTC)
            report = self._store.trust(self._project, skills, now, shown=shown, tools=tools)
        else:
            # A project without skills is not trusted for the sake of a link.
            report = self._store.report(self._project, skills, tools=tools)
        for skill in changed:
            what = _recorded(Path(skill.directory), [_changed(skill)])
            self._log.event("trust", user=OWNER, arguments=what)
        self._linked.accept(changed)
        self._house.refresh()
        taken = tuple(replace(_changed(skill), state="trusted") for skill in changed)
        return replace(report, skills=report.skills + taken)

    def accept(self, directory: Path) -> bool:
        """Trust one directory as it is now, which a person has just agreed to put there.

        Returns False, and trusts nothing, where the project has something else that no person has
        trusted it for: that would be read with it.
        """
        self._house.refresh()
        scan = self._house.snapshot
        found, tools = scan.project_skills(), scan.project_code()
        place = os.path.realpath(directory)
        skills = [one for one in found.skills if os.path.realpath(one.directory) == place]
        own = {at: texts for at, texts in tools.items() if at == place}
        is_all = len(skills) == len(found.skills) and len(own) == len(tools)
        if not (skills or own) or not (is_all or self._store.is_trusted(self._project)):
            return False
        of = replace(found, skills=tuple(skills))
        shown = self._store.report(self._project, of, tools=own)
        what = _recorded(self._project, shown.skills)
        self._log.event("trust", user=OWNER, reason=str(directory), arguments=what)
        self._store.trust(self._project, of, datetime.now(UTC), shown=shown, tools=own)
        self._house.refresh()
        return True

    def revoke(self) -> bool:
        """Revoke the trust in this project and in its repository; whether there was any."""
        for project in self._store.shared(self._project) or (str(self._project),):
            self._log.noted("trust-revoked", user=OWNER, arguments={"path": project})
        revoked = self._store.revoke(self._project)
        self._house.refresh()
        return revoked


def _recorded(place: Path, skills: Sequence[TrustedSkill]) -> dict[str, object]:
    """Return what the log keeps of a trust: each directory with the digest of its bytes."""
    found = [{"path": one.directory, "tree_digest": one.tree_digest} for one in skills]
    return {"path": str(place), "count": len(found), "skills": found}


def _changed(skill: Skill) -> TrustedSkill:
    """Return a skill that a person linked and that changed since it was first seen."""
    try:
        digest, problem = followed_digest(skill), ""
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        digest, problem = "", str(as_error(error))
    return TrustedSkill(
        skill=skill,
        directory=str(skill.directory),
        tree_digest=digest,
        state="changed" if digest else "unbound",
        problem=problem,
    )


def _with_earlier(
    tree_digest: str, texts: Sequence[TrustedText], row: Sequence[str] | None
) -> tuple[TrustedText, ...]:
    """Return the texts that were shown of a directory: those of now, and earlier ones of the same
    bytes, which another profile reads so."""
    known = texts_of(row[1]) if row is not None and tree_digest and row[0] == tree_digest else ()
    return (*texts, *(text for text in known if text not in texts))


def _check_shown(changed: Iterable[TrustedSkill], shown: TrustReport, project: Path) -> None:
    was = _digests_of(one for one in shown.skills if one.skill.scope != "project")
    if _digests_of(changed) != was:
        message = "the skills changed while they were shown: nothing was trusted, look again"
        raise SkillError("changed", project, message)


def _digests_of(skills: Iterable[TrustedSkill]) -> dict[str, str]:
    return {found.directory: found.tree_digest for found in skills}


def _seen(skills: Iterable[TrustedSkill]) -> dict[str, tuple[str, tuple[TrustedText, ...]]]:
    return {found.directory: (found.tree_digest, found.texts) for found in skills}


def _has_other_head(skill: Skill) -> bool:
    """Whether the file is not the one that was found, which is older than a look at its digest."""
    try:
        return load(skill).frontmatter_changed
    except SkillError:
        return True


def _directory(project: str, skill: Skill) -> str:
    return relative_to(project, os.path.dirname(skill.file))


def _judged_all(
    project: Path, skills: ProjectSkills | Iterable[Skill], rows: Mapping[str, Sequence[_Row]]
) -> tuple[TrustedSkill, ...]:
    found = skills if isinstance(skills, ProjectSkills) else ProjectSkills(skills=tuple(skills))
    real = os.path.realpath(project)
    judged = []
    for skill in found.skills:
        directory = _directory(real, skill)
        links = skill_links(skill)
        one = replace(
            _judged_at(directory, skill, rows, links),
            readings=found.readings.get(skill.file, ()),
            finders=found.finders.get(skill.file, ()),
            targets=tuple(end for end in links.ends if not end.startswith(f"{real}/")),
        )
        known = rows.get(directory, ())
        texts = [replace(text, tools=()) for row in known for text in texts_of(row.shown)]
        # Of what was trusted before texts were kept only the digest is known.
        is_seen = any(not row.shown for row in known) or all(text in texts for text in one.texts)
        judged.append(replace(one, is_seen=one.state == "trusted" and is_seen))
    return tuple(judged)


def _judged_at(
    directory: str,
    skill: Skill,
    rows: Mapping[str, Sequence[_Row]],
    links: SkillLinks | None = None,
) -> TrustedSkill:
    known = rows.get(directory, ())
    texts = [text for row in known for text in texts_of(row.shown) if text.name]
    # What it says now comes first, where it was shown as well.
    earlier = next((text for text in texts if text.is_of(skill)), next(iter(texts), None))
    try:
        digest = followed_digest(skill, links)
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        # INVARIANT: what cannot be bound to its content is never trusted by it.
        return TrustedSkill(
            skill=skill,
            directory=directory,
            tree_digest="",
            state="unbound",
            problem=str(as_error(error)),
            earlier=earlier,
        )
    trees = {row.tree_digest for row in known}
    state = "new" if not trees else "trusted" if digest in trees else "changed"
    return TrustedSkill(
        skill=skill, directory=directory, tree_digest=digest, state=state, earlier=earlier
    )

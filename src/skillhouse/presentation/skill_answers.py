"""What the command line, the pages and the HTTP API answer about one skill."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import skillhouse.house
from skillhouse import manage
from skillhouse.answers.json_form import ListAnswer, listed
from skillhouse.answers.policy import explanation_answer
from skillhouse.answers.shown_skill import FilesAnswer, ShownCodeAnswer, ShownSkillAnswer
from skillhouse.answers.skills import code_facts, content_answer, digest_of
from skillhouse.discovery import Root, discover
from skillhouse.floor import AmbiguousSkillError, UnknownSkillError, UnusableSkillError
from skillhouse.manage.code_facts import LANGUAGES, LOCKS, code_alone
from skillhouse.presentation.short_paths import some_of, unread_folders
from skillhouse.presentation.text import one_line, shown
from skillhouse.skill import (
    JAVASCRIPT_FILE,
    PYTHON_FILE,
    SkillContent,
    find_resources,
    read_manifest,
)

if TYPE_CHECKING:
    from skillhouse.house import AbsentSkill, Skillhouse
    from skillhouse.manage import CodeFacts


def found_skill(house: Skillhouse, reference: str) -> SkillContent | CodeFacts:
    """Return a skill, or one of code alone, which has no SKILL.md.

    Raises:
        UnknownSkillError: there is none, with the nearest of both kinds; `UnusableSkillError` where
            it is known why it cannot be used.
    """
    try:
        return house.load(reference, anyway=True)
    except UnknownSkillError as error:
        try:
            return manage.facts_named(house, reference)
        except UnknownSkillError as nearest:
            unknown = UnknownSkillError(error.reference, nearest.suggestions, hint=error.hint)
            is_known = isinstance(error, UnusableSkillError)
            raise or_unread(house, error if is_known else unknown) from None


def code_of(
    house: Skillhouse, reference: str, unknown: UnknownSkillError
) -> tuple[CodeFacts, AbsentSkill | None]:
    """Return a skill of code alone, with why agents have no tools of it."""
    try:
        directory = manage.facts_named(house, reference).directory
    except UnknownSkillError:
        raise unknown from None
    for facts, why in code_alone(house):
        if facts.directory == directory:
            return facts, why
    raise unknown


def or_unread(house: Skillhouse, error: UnknownSkillError) -> UnknownSkillError:
    """Return an error, or why the skill is not used if a folder has it that only clients read."""
    for folder in () if isinstance(error, UnusableSkillError) else unread_folders(house):
        with suppress(UnknownSkillError, AmbiguousSkillError):
            skill = discover([Root(path=Path(folder.path), scope="user")]).get(error.reference)
            readers = some_of(folder.clients) or "a client"
            return UnusableSkillError(
                error.reference,
                state="outside",
                reason=f"it is in a folder of {readers}, which is not read here",
                hint=f"link its directory into `~/.agents/skills`, or add `--root {folder.path}`",
                path=Path(skill.file),
            )
    return error


def shown_answer(
    house: Skillhouse, found: SkillContent | CodeFacts
) -> ShownSkillAnswer | ShownCodeAnswer:
    """Return everything that is known of one skill, but its body."""
    if not isinstance(found, SkillContent):
        return ShownCodeAnswer(tree_digest=digest_of(found.directory), code=code_facts(found))
    skill = found.skill
    state = manage.state_of(house, skill)
    content = content_answer(found)
    code = manage.facts_at(house, skill.directory, skill.scope)
    explained = skillhouse.house.explain_loading(house, skill, content=found)
    return ShownSkillAnswer(
        skill=content.skill,
        facts=content.facts,
        frontmatter=dict(skill.frontmatter.fields),
        files=ShownCodeAnswer(tree_digest=digest_of(skill), code=code_facts(code)),
        state=state.state,
        state_reason=state.text,
        listing=house.view().mark(skill),
        decision=explanation_answer(explained),
    )


class SkillFiles(Struct, frozen=True, kw_only=True):
    """The files of a skill besides its SKILL.md."""

    directory: Path
    names: Sequence[str]
    omitted: int
    has_more: bool
    """Whether there are more than were counted."""
    types: dict[str, str]

    @property
    def total(self) -> int:
        return len(self.names) + self.omitted

    def answer(self) -> ListAnswer:
        more = FilesAnswer(
            directory=str(self.directory),
            resources_omitted=self.omitted,
            resources_more=self.has_more,
            types=self.types,
        )
        return listed("resources", self.names, more, total=self.total)


def skill_files(house: Skillhouse, reference: str) -> SkillFiles:
    """Return the files of a skill; errors as `found_skill`."""
    found = found_skill(house, reference)
    if isinstance(found, SkillContent):
        directory, names, omitted = found.directory, found.resources, found.resources_omitted
        more = found.resources_more
    else:
        directory = found.directory
        names, omitted, more = find_resources(directory)
    types = {name: _file_type(directory, name) for name in names}
    return SkillFiles(directory=directory, names=names, omitted=omitted, has_more=more, types=types)


def _file_type(directory: Path, name: str) -> str:
    """Return the type of a file; of a skill with code, also which are its manifest and module."""
    manifest = read_manifest(directory).manifest
    if manifest is not None:
        if name == manifest.entry:
            return "code"
        if name == (PYTHON_FILE if manifest.language == "python" else JAVASCRIPT_FILE):
            return "manifest"
        if name in LOCKS[manifest.language]:
            return "lock"
    return skillhouse.house.file_kind(name)


def facts_rows(facts: CodeFacts) -> list[tuple[str, str]]:
    """Return labels and values for `show` and the page, each value in one line."""
    state = "on" if facts.is_on else "off: set `enabled = true` below `[skill_code]`"
    manifest = facts.manifest
    if manifest is None:
        return [("code", "cannot be loaded; the findings say why")]
    rows = [
        ("code", f"{LANGUAGES[manifest.language]}, {shown(manifest.entry)}; {state}"),
        *(
            (
                "tool",
                one_line(
                    f"{facts.name}:{tool.name} ({facts.levels[tool.name]}) {tool.description}"
                ),
            )
            for tool in manifest.tools
        ),
        *(("env", f"{shown(name)}: {one_line(said)}") for name, said in facts.env.items()),
        *(("host", f"{shown(host)}: {one_line(said)}") for host, said in facts.hosts.items()),
        ("dependencies", one_line(", ".join(manifest.dependencies))),
        ("lock", facts.lock),
        ("author", one_line(manifest.author)),
        ("license", one_line(manifest.license)),
    ]
    return [(label, text) for label, text in rows if text]

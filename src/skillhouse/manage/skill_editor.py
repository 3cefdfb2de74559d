"""Replaces the SKILL.md of a skill that a person owns, if it is still the one that was read."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from skillhouse.audit.log import recorded
from skillhouse.floor import (
    Diagnostic,
    Severity,
    SkillError,
    SkillhouseError,
    UnusableSkillError,
    digest,
    read_beneath,
    write_atomically,
)
from skillhouse.house.house import Skillhouse
from skillhouse.house.management import SkillDefinition
from skillhouse.house.trash import check_deletable, is_own_place
from skillhouse.manage.skill_states import find_skill
from skillhouse.skill import SKILL_FILE, SKILL_FILE_MAX, ParseResult, Skill, parse

EDITABLE = ("user", "project")
"""Scopes whose skills are a person's own; the others are changed where they come from."""


class FrontmatterError(SkillhouseError):
    """A text is no valid SKILL.md; `findings` say why, and nothing was written."""

    code = "frontmatter"

    def __init__(self, findings: tuple[Diagnostic, ...]) -> None:
        super().__init__("the text is no valid SKILL.md; its findings say why")
        self.findings = findings


def read_draft(text: str, *, directory: str) -> ParseResult:
    """Return what the text of a SKILL.md would be in a directory of that name, and its findings."""
    return parse(text.encode(), directory=directory)


class EditableSkill(Struct, frozen=True, kw_only=True):
    """The SKILL.md of a skill, as it is written."""

    id: str
    name: str
    """Of the directory, for one that is broken."""
    scope: str
    directory: Path
    text: str
    """Bytes that are not UTF-8 are replacement characters."""
    digest: str
    """Of the bytes, by which a change is noticed."""
    is_text: bool
    """Whether all of it is UTF-8."""
    is_broken: bool
    """Whether no agent can use it as it is."""

    @property
    def file(self) -> Path:
        return self.directory / SKILL_FILE


def skill_source(house: Skillhouse, reference: str) -> EditableSkill:
    """Return the SKILL.md of a skill, also of a person's own that cannot be used as it is.

    Raises:
        UnknownSkillError: there is no such skill, or it cannot be used and is no person's own.
        SkillError: the file is too large, or one of a server that cannot be used any more.
    """
    try:
        skill = find_skill(house, reference)
        name, scope, directory = skill.name, skill.scope, skill.directory
        is_broken = False
        if scope not in EDITABLE:
            house.load(skill.file)
    except UnusableSkillError as error:
        directory, is_broken = error.path.parent, True
        scope = OwnRoots(house).scope_of(error.path) if error.state == "broken" else ""
        if not scope:
            raise
        name = directory.name
    data = read_beneath(directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
    if len(data) > SKILL_FILE_MAX:
        message = f"expected at most {SKILL_FILE_MAX} bytes"
        raise SkillError("too-large", directory / SKILL_FILE, message)
    text = data.decode(errors="replace")
    return EditableSkill(
        id=f"{scope}:{directory.name}" if is_broken else skill.id,
        name=name,
        scope=scope,
        directory=directory,
        text=text,
        digest=digest(data),
        is_text=text.encode() == data,
        is_broken=is_broken,
    )


class OwnRoots:
    """The roots whose skills are a person's own, by their real paths."""

    def __init__(self, house: Skillhouse) -> None:
        self._project = house.project
        self._roots = [
            (os.path.realpath(root.path), root.scope)
            for root in house.snapshot.roots
            if root.scope in EDITABLE and "\0" not in str(root.path)
        ]

    def scope_of(self, file: Path) -> str:
        """Return the scope of a SKILL.md that the index has a finding about.

        Empty for one that is not a person's own, or that is reached by a link.
        """
        if file.name != SKILL_FILE:
            return ""
        directory = file.parent
        for root, scope in self._roots:
            if directory.is_relative_to(root):
                is_own = is_own_place(directory, root, scope=scope, project=self._project)
                return scope if is_own else ""
        return ""


def update_skill(house: Skillhouse, reference: str, text: str, *, expected: str) -> SkillDefinition:
    """Write another SKILL.md and return the skill; `expected` is the digest of the one before.

    Raises:
        UnknownSkillError: there is no such skill, or it cannot be used and is no person's own.
        FrontmatterError: the text is none that an agent could use.
        SkillError: the skill is not a person's own, or its file is another than expected.
    """
    source = skill_source(house, reference)
    if not source.is_broken:
        _check_own(find_skill(house, reference), house.project)
    findings = read_draft(text, directory=source.directory.name).diagnostics
    if any(found.severity is Severity.ERROR for found in findings):
        raise FrontmatterError(findings)
    data = text.encode()
    arguments = {"id": source.id, "path": str(source.file), "digest": digest(data)}
    with recorded(house.audit_log, "update", arguments):
        now = digest(read_beneath(source.directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX))
        if now != expected:
            raise SkillError("changed", source.file, "the file was changed since it was read")
        with write_atomically(source.file, durable=True, mode=0o644) as file:
            file.write(data)
    house.refresh()
    return house.management.get(str(source.file))


def _check_own(skill: Skill, project: Path) -> None:
    try:
        check_deletable(skill, (), scopes=EDITABLE, project=project)
    except SkillError as error:
        message = "only skills of yours and of this project, not behind a link, are edited here"
        raise SkillError("not-editable", skill.directory, message) from error

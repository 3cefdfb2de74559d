"""Replaces the SKILL.md of a skill that a person owns, if it is still the one that was read."""

from __future__ import annotations

from pathlib import Path

from skillhouse.audit.changes import recorded
from skillhouse.floor import (
    Diagnostic,
    Severity,
    SkillError,
    SkillhouseError,
    digest,
    read_beneath,
    write_atomically,
)
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.management import SkillDefinition
from skillhouse.runtime.trash import check_deletable
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


def skill_source(house: Skillhouse, reference: str) -> tuple[str, str]:
    """Return the text of a skill's SKILL.md, and its digest, by which a change is noticed.

    Raises:
        UnknownSkillError: there is no such skill.
        SkillError: the file is no UTF-8 text.
    """
    skill = house.load(reference).skill
    data = read_beneath(skill.directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
    try:
        return data.decode(), digest(data)
    except UnicodeDecodeError as error:
        raise SkillError("not-text", skill.location, "expected UTF-8 text") from error


def update_skill(house: Skillhouse, reference: str, text: str, *, expected: str) -> SkillDefinition:
    """Write another SKILL.md and return the skill; `expected` is the digest of the one before.

    Raises:
        UnknownSkillError: there is no such skill.
        FrontmatterError: the text is none that an agent could use.
        SkillError: the skill is not a person's own, or its file is another than expected.
    """
    skill = house.load(reference).skill
    _check_own(skill, house.services.project)
    findings = read_draft(text, directory=skill.directory.name).diagnostics
    if any(found.severity is Severity.ERROR for found in findings):
        raise FrontmatterError(findings)
    arguments = {"id": skill.id, "path": skill.file, "digest": digest(text.encode())}
    with recorded(house.audit_log, "update", arguments):
        now = digest(read_beneath(skill.directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX))
        if now != expected:
            raise SkillError("changed", skill.location, "the file was changed since it was read")
        with write_atomically(skill.location, durable=True, mode=0o644) as file:
            file.write(text.encode())
    house.refresh()
    return house.management.get(skill.file)


def _check_own(skill: Skill, project: Path) -> None:
    try:
        check_deletable(skill, (), scopes=EDITABLE, project=project)
    except SkillError as error:
        message = "only skills of yours and of this project, not behind a link, are edited here"
        raise SkillError("not-editable", skill.directory, message) from error

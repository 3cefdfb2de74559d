"""Writes a new SKILL.md that reads back as what it was made from."""

from __future__ import annotations

import json
from pathlib import Path

from skillhouse.floor import SkillError
from skillhouse.skill.model import SKILL_FILE, Skill
from skillhouse.skill.naming import validate_name
from skillhouse.skill.parsing import parse

_TEMPLATE = "---\nname: {name}\ndescription: {description}\n---\n\n{instructions}\n"
"""As published (S004-74); a description that YAML would read otherwise is quoted."""


def skill_text(name: str, description: str, instructions: str) -> str:
    """Return the text of a SKILL.md with these fields and this body.

    Raises:
        SkillError: the name or description breaks the specification, or the text would not read
            back as it was given.
    """
    for found in validate_name(name, directory=name):
        raise SkillError(found.code, _place(name), found.message)
    # JSON text is YAML text: every escape of the one is an escape of the other.
    for written in (description, json.dumps(description, ensure_ascii=False)):
        text = _TEMPLATE.format(
            name=name, description=written, instructions=instructions.rstrip("\n")
        )
        result = parse(text.encode("utf-8", "surrogatepass"), directory=name)
        read: Skill | None = result.skill
        if read is not None and read.description == description.strip() and not result.diagnostics:
            return text
    worst = max(result.diagnostics, key=lambda found: found.severity == "error", default=None)
    if worst is None:
        message = "the description does not read back as it was given"
        raise SkillError("description-unwritable", _place(name), message)
    raise SkillError(worst.code, _place(name), worst.message)


def _place(name: str) -> Path:
    return Path(name, SKILL_FILE)

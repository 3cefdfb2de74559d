"""The verbs that describe one skill, with or without a SKILL.md: `show` and `files`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import skillhouse.house
from skillhouse import manage
from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.json_form import hinted
from skillhouse.answers.shown_skill import UnusableSkillAnswer
from skillhouse.answers.skills import digest_of
from skillhouse.floor import UnusableSkillError
from skillhouse.frontends.cli.options import Verb, add_common, add_skill, house_of
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.presentation.skill_answers import (
    facts_rows,
    found_skill,
    shown_answer,
    skill_files,
)
from skillhouse.presentation.text import one_line, shown
from skillhouse.skill import SKILL_FILE, SkillContent, list_resources, validate

if TYPE_CHECKING:
    from skillhouse.floor import Diagnostic
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import AbsentSkill, Explanation, Skillhouse
    from skillhouse.manage import CodeFacts
    from skillhouse.skill import Skill

SHADOWS_SHOWN = 5
"""Skills that one shadows which are named with it."""

_SHOW_EXAMPLES = """examples:
  skillhouse show weather
  skillhouse show builtin:weather --json
  skillhouse show weather --open      its directory in the file manager
"""


def _configure_show(parser: argparse.ArgumentParser) -> None:
    add_skill(parser)
    parser.add_argument(
        "--open", action="store_true", help="show its directory in the file manager"
    )
    add_common(parser)


def _show(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print everything that is known of one skill, but its body."""
    house = house_of(options)
    if options.open:
        path = house.management.open_directory(options.skill)
        terminal.note(f"opened {shown(str(path))}")
    try:
        found = found_skill(house, options.skill)
    except UnusableSkillError as error:
        return _show_unusable(error, terminal, options)
    if options.json:
        terminal.json(shown_answer(house, found))
        return 0
    if not isinstance(found, SkillContent):
        return _show_code(found, terminal)
    skill = found.skill
    state = manage.state_of(house, skill)
    explained = skillhouse.house.explain_loading(house, skill, content=found)
    code = manage.facts_at(house, skill.directory, skill.scope)
    terminal.heading(shown(skill.name))
    terminal.line()
    rows = _facts(skill, found, explained, _state_text(house, state))
    if mark := house.view().mark(skill):
        # After the rows `description`, `id` and `location`.
        rows.insert(3, ("for a model", mark))
    rows += facts_rows(code) if code else []
    _print_facts(rows, (*found.diagnostics, *(code.problems if code else ())), terminal)
    return 0


def _state_text(house: Skillhouse, state: AbsentSkill) -> str:
    """Return what the row `state` says; nothing of a skill that is used and shadows none."""
    if state.state == "in-use":
        others = [one.id for one in house.index.shadowed if one.name == state.name]
        return f"used; it shadows {', '.join(others[:SHADOWS_SHOWN])}" if others else ""
    return f"{manage.STATES[state.state]}: {state.text}"


def _show_unusable(
    error: UnusableSkillError, terminal: Terminal, options: argparse.Namespace
) -> int:
    is_read = error.state == "broken" and error.path.name == SKILL_FILE
    findings = validate(error.path.parent, strict=False) if is_read else ()
    if options.json:
        terminal.json(
            UnusableSkillAnswer(
                name=error.reference,
                state=error.state,
                location=str(error.path),
                line=error.line,
                reason=error.reason,
                advice=hinted(error.hint),
                diagnostics=diagnostic_answers(findings),
            )
        )
        return 1
    terminal.heading(shown(error.reference))
    terminal.line()
    place = f"{error.path}:{error.line}" if error.line else str(error.path)
    title = manage.STATES.get(error.state, "not found")
    rows = [("state", f"{title}: {one_line(error.reason)}"), ("location", shown(place))]
    if error.hint:
        rows.append(("what to do", one_line(error.hint)))
    _print_facts(rows, findings, terminal)
    return 1


def _show_code(facts: CodeFacts, terminal: Terminal) -> int:
    terminal.heading(shown(facts.name))
    terminal.line()
    about = facts.manifest
    rows = [
        ("description", one_line(about.description if about else "")),
        ("location", shown(str(facts.directory))),
        ("version", shown(about.version if about else "")),
        ("digest", digest_of(facts.directory) or NO_DIGEST),
        *facts_rows(facts),
        ("files", ", ".join(map(one_line, list_resources(facts.directory)[0][:10]))),
    ]
    _print_facts([(label, value) for label, value in rows if value], facts.problems, terminal)
    return 0


def _print_facts(
    rows: list[tuple[str, str]], findings: Sequence[Diagnostic], terminal: Terminal
) -> None:
    for label, value in rows:
        terminal.pair(label, value, label_width=15)
    if findings:
        terminal.line()
        for found in findings:
            terminal.line(finding_line(found, terminal))


def _facts(
    skill: Skill, content: SkillContent, explained: Explanation, state: str
) -> list[tuple[str, str]]:
    front = skill.frontmatter
    facts = [
        ("description", one_line(skill.description)),
        ("id", shown(skill.id)),
        ("location", shown(skill.file)),
        *([("linked as", shown(skill.link))] if skill.link not in ("", skill.file) else []),
        ("state", shown(state)),
        ("permission", f"{explained.decision.effect}: {shown(explained.reason)}"),
        ("version", front.version or ""),
        ("license", front.license or ""),
        ("needs", front.compatibility or ""),
        ("allowed-tools", " ".join(front.allowed_tools)),
        ("digest", digest_of(skill) or NO_DIGEST),
    ]
    known = {"name", "description", "license", "compatibility", "allowed-tools", "version"}
    facts += [(key, _field_text(value)) for key, value in front.fields.items() if key not in known]
    shown_files = content.resources[:10]
    left = len(content.resources) - len(shown_files) + content.resources_omitted
    facts.append(("files", ", ".join(shown_files) + _left(left, has_more=content.resources_more)))
    return [(shown(label), one_line(value)) for label, value in facts if value]


def _left(count: int, *, has_more: bool) -> str:
    """Return how many files are not listed; a lower bound where not all were looked at."""
    if has_more:
        return f" and at least {count} more; not all were looked at"
    return f" and {count} more" if count else ""


def _field_text(value: object) -> str:
    """Return a frontmatter value in one line: a map as `key: value` pairs, else as JSON."""
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


NO_DIGEST = "none: the directory cannot be bound to its content"


_FILES_EXAMPLES = """examples:
  skillhouse files pdf
  skillhouse files pdf --json
"""


def _configure_files(parser: argparse.ArgumentParser) -> None:
    add_skill(parser)
    add_common(parser)


def _files(options: argparse.Namespace, terminal: Terminal) -> int:
    found = skill_files(house_of(options), options.skill)
    if options.json:
        terminal.json(found.answer())
        return 0
    for relative in found.names:
        terminal.rows([(shown(relative), found.types[relative])], most=60)
    if left := _left(found.omitted, has_more=found.has_more):
        terminal.note(left.strip())
    elif not found.names:
        terminal.note("no other files")
    return 0


VERBS = {
    "show": Verb(_SHOW_EXAMPLES, _configure_show, _show),
    "files": Verb(_FILES_EXAMPLES, _configure_files, _files),
}

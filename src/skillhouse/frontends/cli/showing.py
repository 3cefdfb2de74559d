"""`skillhouse show`."""

from __future__ import annotations

import argparse
import json

from skillhouse.floor import TreeError, tree_digest
from skillhouse.frontends.cli.browse import finding_line
from skillhouse.frontends.cli.options import add_json, add_place, house_of
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.frontends.presentation.json_values import content_value, explanation_value
from skillhouse.frontends.presentation.text import one_line, shown
from skillhouse.runtime import Explanation, explain_loading
from skillhouse.skill import Skill, SkillContent

EXAMPLES = """examples:
  skillhouse show weather
  skillhouse show builtin:weather --json
  skillhouse show weather --open      its directory in the file manager
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("skill", help="an id, a name or a directory name")
    parser.add_argument(
        "--open", action="store_true", help="show its directory in the file manager"
    )
    add_json(parser)
    add_place(parser)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print everything that is known of one skill, but its body."""
    house = house_of(options)
    if options.open:
        path = house.management.open_directory(options.skill)
        terminal.note(f"opened {shown(str(path))}")
    content = house.load(options.skill)
    skill = content.skill
    explained = explain_loading(house, skill, content=content)
    if options.json:
        plain = content_value(content)
        del plain["body"]
        plain["frontmatter"] = dict(skill.frontmatter.fields)
        terminal.json(
            {**plain, "tree_digest": _digest(skill), "decision": explanation_value(explained)}
        )
        return 0
    terminal.heading(shown(skill.name))
    terminal.line()
    for label, value in _facts(skill, content, explained):
        terminal.pair(label, value, label_width=15)
    if content.diagnostics:
        terminal.line()
        for found in content.diagnostics:
            terminal.line(finding_line(found, terminal))
    return 0


def _facts(skill: Skill, content: SkillContent, explained: Explanation) -> list[tuple[str, str]]:
    front = skill.frontmatter
    facts = [
        ("description", one_line(skill.description)),
        ("id", shown(skill.id)),
        ("location", shown(skill.file)),
        ("permission", f"{explained.decision.effect}: {shown(explained.reason)}"),
        ("version", front.version or ""),
        ("license", front.license or ""),
        ("needs", front.compatibility or ""),
        ("allowed-tools", " ".join(front.allowed_tools)),
        ("digest", _digest(skill) or "none: the directory cannot be bound to its content"),
    ]
    known = {"name", "description", "license", "compatibility", "allowed-tools", "version"}
    facts += [(key, _value(value)) for key, value in front.fields.items() if key not in known]
    shown_files = content.resources[:10]
    left = len(content.resources) - len(shown_files) + content.resources_omitted
    facts.append(("files", ", ".join(shown_files) + (f" and {left} more" if left else "")))
    return [(shown(label), one_line(value)) for label, value in facts if value]


def _value(value: object) -> str:
    """Return a frontmatter value in one line: a map as `key: value` pairs, else as JSON."""
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _digest(skill: Skill) -> str | None:
    try:
        return tree_digest(skill.directory)
    except TreeError:
        return None

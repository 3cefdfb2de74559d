"""Skills with code in lines and as plain values: tools, levels, language, variables, findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skillhouse.frontends.presentation.json_values import diagnostic_values
from skillhouse.frontends.presentation.text import one_line, shown
from skillhouse.runtime.code_facts import LANGUAGES

if TYPE_CHECKING:
    from skillhouse.runtime.code_facts import CodeFacts

DIRECTORY_MAX = 200
"""Files that are listed of a skill without a SKILL.md."""


def facts_value(facts: CodeFacts | None) -> dict[str, Any] | None:
    """Return the facts of a skill's code as plain values; null for a skill that has none."""
    if facts is None:
        return None
    manifest = facts.manifest
    value: dict[str, Any] = {
        "name": facts.name,
        "directory": str(facts.directory),
        "scope": facts.scope,
        "enabled": facts.is_on,
        "problems": diagnostic_values(facts.problems),
    }
    if manifest is None:
        return value
    return value | {
        "version": manifest.version,
        "description": manifest.description,
        "author": manifest.author,
        "license": manifest.license,
        "language": manifest.language,
        "entry": manifest.entry,
        "tools": [
            {
                "name": tool.name,
                "full_name": f"{facts.name}:{tool.name}",
                "level": facts.levels[tool.name],
                "description": tool.description,
            }
            for tool in manifest.tools
        ],
        "env": dict(facts.env),
        "dependencies": list(manifest.dependencies),
        "lock": facts.lock or None,
    }


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
        ("dependencies", one_line(", ".join(manifest.dependencies))),
        ("lock", facts.lock),
        ("author", one_line(manifest.author)),
        ("license", one_line(manifest.license)),
    ]
    return [(label, text) for label, text in rows if text]

"""Skills with code in lines: tools, levels, language, variables, author and licence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillhouse.frontends.presentation.text import one_line, shown
from skillhouse.manage.code_facts import LANGUAGES

if TYPE_CHECKING:
    from skillhouse.manage.code_facts import CodeFacts


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

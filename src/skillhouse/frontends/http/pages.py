"""The pages: templates in which every value is text, however it was written."""

from __future__ import annotations

import itertools
import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

import skillhouse
from skillhouse.frontends.cli.terminal import cut, one_line, shown
from skillhouse.skill import Skill

TEMPLATES = Path(__file__).resolve().parent / "templates"

LINE_COLUMNS = 180
"""Columns of a description in a list; the skill's own page has all of it."""
ROWS_MAX = 200
"""Rows of a table on a page; the JSON has all."""

SCOPES = {
    "project": "in this project",
    "explicit": "from roots given by hand",
    "user": "yours, in every project",
    "plugin": "from installed plugins",
    "remote": "from other servers",
    "builtin": "come with skillhouse",
}
"""What a scope means, in words."""


class Pages:
    """Renders the templates."""

    def __init__(self) -> None:
        """Load the templates; they are compiled when first used."""
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            # INVARIANT: no template turns this off, and none uses `safe`; what a skill says
            # reaches the page as text only.
            autoescape=True,
            finalize=_finalized,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            line=lambda text: cut(one_line(text), LINE_COLUMNS),
            folded=one_line,
            marked=marked,
            counted=counted,
            skill_path=skill_path,
            command=command,
            flat=flat,
        )
        self._environment.globals.update(
            version=skillhouse.__version__,
            scopes=SCOPES,
            rows_max=ROWS_MAX,
            address=address,
        )

    def render(self, template: str, **values: Any) -> str:
        """Return a page."""
        return self._environment.get_template(template).render(**values)


def marked(text: str) -> Markup:
    r"""Return a text of several lines with its controls and hidden characters marked.

    >>> marked("a<b\x1b")
    Markup('a&lt;b<mark>\\x1b</mark>')
    """
    if text.isprintable():
        return escape(text)
    pieces = []
    for plain, run in itertools.groupby(text, lambda c: c.isprintable() or c in "\n\t"):
        piece = "".join(run)
        pieces.append(escape(piece) if plain else Markup("<mark>{}</mark>").format(shown(piece)))
    return Markup("").join(pieces)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "skill"), counted(12_000, "skill")
    ('1 skill', '12,000 skills')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def skill_path(skill: Skill) -> str:
    """Return the address of a skill's page."""
    return "/skills/" + quote(skill.id, safe=":")


def address(**query: Any) -> str:
    """Return the address of the status page with a query; what is empty is left out.

    >>> address(q="a&b", page=2), address(q="", page=None)
    ('/?q=a%26b&page=2', '/')
    """
    kept = {key: value for key, value in query.items() if value}
    return "/?" + urlencode(kept) if kept else "/"


def command(*words: object) -> str:
    """Return a command as it is typed in a shell."""
    return shlex.join(str(word) for word in words)


def flat(value: Any) -> str:
    """Return a frontmatter value on one line.

    >>> flat({"author": "mika", "tags": ["a", "b"]})
    'author: mika; tags: ["a", "b"]'
    """
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return "; ".join(f"{one_line(key)}: {flat(part)}" for key, part in value.items())
    return one_line(json.dumps(value, ensure_ascii=False))


def _finalized(value: object) -> object:
    """Return a value as it is put on a page: text keeps no control and no hidden character."""
    if hasattr(value, "__html__"):
        return value
    if isinstance(value, str | Path):
        return shown(str(value))
    return value

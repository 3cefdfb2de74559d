"""Tests of the style sheet and the templates: what they promise without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import skillhouse.extensions.server as http_room

CSS = (Path(http_room.__file__).parent / "static/style.css").read_text(encoding="utf-8")
TEMPLATES = sorted((Path(http_room.__file__).parent / "templates").iterdir())
SCRIPTS = sorted((Path(http_room.__file__).parent / "static").glob("*.js"))
TEXT_ON_GROUND = [
    ("ink", "ground"),
    ("ink", "card"),
    ("soft", "ground"),
    ("soft", "card"),
    ("link", "ground"),
    ("link", "card"),
    ("card", "link"),
    ("card", "deny"),
    ("card", "allow"),
    ("allow", "allow-ground"),
    ("ask", "ask-ground"),
    ("deny", "deny-ground"),
    ("ink", "ask-ground"),
    ("ink", "deny-ground"),
    ("mark", "mark-ground"),
]


def palettes() -> Iterator[dict[str, str]]:
    for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL):
        yield dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", list(palettes()), ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON_GROUND)
def test_text_has_the_contrast_of_wcag_aa(palette: dict[str, str], text: str, ground: str):
    dark, light = sorted((luminance(palette[text]), luminance(palette[ground])))
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_nothing_is_fetched_from_elsewhere():
    for text in (CSS, *(path.read_text(encoding="utf-8") for path in (*TEMPLATES, *SCRIPTS))):
        assert not re.search(r"https?://|url\(|@import|\son\w+=|style=", text)
        # A script is a file of ours, never text in a page.
        assert re.findall(r"<script.*", text) == re.findall(
            r'<script type="module" src="/[a-z_]+\.js"></script>', text
        )


def test_no_template_switches_the_escaping_off():
    for path in TEMPLATES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), path.name
        # An attribute without quotes could be left with a blank.
        assert not re.search(r"=\{\{", text), path.name

"""The two skills that the golden files show, and the comparison with such a file."""

from __future__ import annotations

from pathlib import Path

from skillhouse.discovery import Root, discover
from skillhouse.skill import SkillIndex

GOLDEN = Path(__file__).parent

WEATHER = """\
---
name: weather
description: 'Tells <the> weather & more: "rain", it''s said'
version: 1.2.0
---
# Weather

Ask the service.
"""
GITHUB = """\
---
name: github
description: Works with pull requests.
---
Use gh.
"""


def two_skills(place: Path) -> SkillIndex:
    """Write the two skills below `place`; the first is not the first by name."""
    for name, text in (("weather", WEATHER), ("github", GITHUB)):
        (place / name).mkdir(parents=True)
        (place / name / "SKILL.md").write_text(text)
    (place / "weather/scripts").mkdir()
    (place / "weather/scripts/get.py").write_text("print('sunny')\n")
    (place / "weather/table.md").write_text("| sun |\n")
    index = discover([Root(path=place, scope="user")])
    return SkillIndex(sorted(index.skills, key=lambda skill: skill.name, reverse=True))


def golden(name: str) -> str:
    """Return a golden text."""
    return (GOLDEN / f"{name}.txt").read_text()[:-1]


def in_place(text: str, place: Path) -> str:
    """Return a text with `place` as the golden files write it."""
    return text.replace(str(place), "/place")

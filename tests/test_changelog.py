"""CHANGELOG.md begins with a screen for a user: the newest version, the rest folded by area."""

from __future__ import annotations

import re
from pathlib import Path

import skillhouse

TEXT = (Path(__file__).resolve().parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
PARTS = re.split(r"^## (.*)$", TEXT, flags=re.MULTILINE)[1:]
VERSIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
SCREEN = 35
"""Lines of a version that are not folded."""


def test_what_is_not_folded_of_each_version_fits_on_a_screen() -> None:
    shown = {
        version: re.sub(r"<details>.*?</details>", "", part, flags=re.DOTALL).strip().count("\n")
        for version, part in VERSIONS.items()
    }
    assert {version: lines for version, lines in shown.items() if lines >= SCREEN} == {}


def test_each_fold_has_a_name_of_its_own_and_is_drawn_as_markdown() -> None:
    folds = re.findall(r"^<details>\n<summary>(.+)</summary>\n\n- ", TEXT, re.MULTILINE)
    assert len(folds) == TEXT.count("<details>") == TEXT.count("</details>") > 0
    assert len(set(folds)) == len(folds)
    assert len(re.findall(r"\n\n</details>\n", TEXT)) == len(folds)


def test_the_program_has_one_of_the_versions_and_the_newest_is_in_work_or_this_one() -> None:
    newest = next(iter(VERSIONS))
    assert skillhouse.__version__ in VERSIONS
    assert newest == skillhouse.__version__ or newest.endswith(" (in work)")

"""Tests of the pages about what protects: each is there, and says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skillhouse.floor import PROTECTED_NAMES
from skillhouse.sandbox.covers import DIRECTORIES_MAX, ENTRIES_MAX, PATHS_MAX

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("reference/write-gate.md", "reference/tiers.md", "reference/audit.md")


@pytest.mark.req("S000-70")
def test_the_write_gate_the_tiers_and_the_log_have_a_page_each_that_is_referred_to() -> None:
    security = (DOCS / "concepts/security.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"(../{page})" in security
        assert len((DOCS / page).read_text(encoding="utf-8").split()) > 100


@pytest.mark.parametrize("page", ["concepts/security.md", *PAGES])
def test_no_link_of_these_pages_leads_nowhere(page: str) -> None:
    file = DOCS / page
    for target in re.findall(r"\]\(([^)#]+)", file.read_text(encoding="utf-8")):
        assert (file.parent / target).exists(), target


def test_the_page_names_what_is_protected_and_the_bounds() -> None:
    page = (DOCS / "reference/write-gate.md").read_text(encoding="utf-8")
    for name in PROTECTED_NAMES:
        known = name.split("/")[0] if name.startswith(".git/") else name
        assert known in page or known.startswith("id_"), name
    security = (DOCS / "concepts/security.md").read_text(encoding="utf-8")
    for bound in (DIRECTORIES_MAX, ENTRIES_MAX, PATHS_MAX):
        assert f"{bound:,}" in security

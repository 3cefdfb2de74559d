"""Tests of all pages with axe-core: nothing serious, in both schemes and two widths."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from scripts.page_pictures import PAGES, SCHEMES, WIDTHS
from tests.extensions.server.pages import test_every_page

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

browser, served, opened = test_every_page.browser, test_every_page.served, test_every_page.opened
"""The fixtures."""
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def axe(need: Any) -> str:
    """The source of axe-core, which the package has in itself: nothing is fetched."""
    found = importlib.util.find_spec("axe_playwright_python")
    need(found, "the package axe-playwright-python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("width", WIDTHS.values())
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(opened, axe: str, name: str, scheme: str, width: int):
    page = opened(name, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(axe)
    found = page.evaluate("tags => axe.run(document, {runOnly: tags})", list(TAGS))
    assert len(found["passes"]) > 10
    grave = [
        (one["id"], node["html"][:160], node.get("failureSummary", ""))
        for one in found["violations"]
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]
    assert grave == []

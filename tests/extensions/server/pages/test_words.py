"""Words that a review refused, which stand on no page and in none of its Chinese."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
from tests.extensions.server.pages.rich import SKILL_TEXTS, TextNodes, crawled, rich_house

from skillhouse.extensions.server.pages.languages import TEXTS
from skillhouse.extensions.server.pages.renderer import TEMPLATES

REFUSED = {
    "dropped by": "not loaded by",
    "dropped": "not loaded",
    "judge": "rule check",
    "bound to": "applies to files",
    "give it away": "export",
    "mend": "fix",
    "misread": "read differently",
    "another is taken": "overridden by",
    "another of that name is taken": "overridden by",
    "not looked at": "not in its folders, or not read",
    "what it makes of the skill": "how it loads",
    "in use": "in force",
    "绑定到": "适用于文件",
    "使用中": "生效",
    "未查看": "未读取",
    "送给他人": "导出",
}
"""What is not said, and what is instead."""
WORDS = re.compile(
    "|".join(rf"\b{one}\b" if one.isascii() else one for one in REFUSED), re.IGNORECASE
)
OTHERS = frozenset("bdi code pre script style textarea".split())
"""Elements with words of others."""


@pytest.fixture(scope="module", params=["en", "zh"])
def pages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    with rich_house(tmp_path_factory.mktemp("rich")) as (_, client):
        yield crawled(client, request.param)


def test_no_page_has_a_refused_word(pages: dict[str, str]) -> None:
    assert len(pages) > 90
    found = {
        (address, text)
        for address, page in pages.items()
        for text, above in TextNodes(page).found
        if WORDS.search(text)
        and not {tag for tag, _ in above} & OTHERS
        and not any(text in one for one in SKILL_TEXTS)
    }
    assert found == set()


def test_no_text_of_a_page_has_one_either() -> None:
    """Also those that no page of the house has just now."""
    files = (*(TEXTS / "zh").glob("*.toml"), *(TEXTS / "sentences").glob("*.toml"))
    texts = {
        text
        for file in files
        for pair in tomllib.loads(file.read_text(encoding="utf-8")).items()
        for text in pair
    }
    assert {text for text in texts if WORDS.search(text)} == set()
    said = "".join(file.read_text(encoding="utf-8") for file in TEMPLATES.glob("*.html"))
    blocks = re.findall(r"\{% trans[^%]*%\}(.*?)\{% endtrans %\}", said, re.DOTALL)
    assert len(blocks) > 500
    assert [text for text in blocks if WORDS.search(text)] == []


def test_a_fault_of_yaml_names_the_line_of_the_file(pages: dict[str, str]) -> None:
    for address in ("/seen/user:mail", "/clients/codex"):
        page = re.sub(r"<[^>]+>", "", pages[address])
        assert not re.search(r"not YAML|in .*<unicode string>|column \d", page)
    page = re.sub(r"<[^>]+>", "", pages["/seen/user:mail"])
    assert re.search(r"line 3|第 3 行", page)

"""Tests of `search` in retrieval/index.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.discovery import discover
from skillhouse.retrieval import SearchIndex, search


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, description, body in (
        ("pdf-tools", "Merge and split PDF files", "Run qpdf.\n"),
        ("data", "数据分析和可视化", "步骤\n"),
        ("forms", "Fill in forms", "Reads PDF files.\n"),
    ):
        (tmp_path / name).mkdir()
        text = f"---\nname: {name}\ndescription: {description}\n---\n{body}"
        (tmp_path / name / "SKILL.md").write_text(text, "utf-8")
    return tmp_path


@pytest.mark.req("S003-37", "S003-38", "S003-45")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("split a pdf file", ["pdf-tools", "forms"]),
        ("数据分析", ["data"]),
        ("forms", ["forms"]),
        ("", []),
    ],
)
def test_the_skills_of_a_place_are_ranked_for_a_request(root, query, expected):
    hits = search(discover([root]), query)
    assert [hit.name for hit in hits] == expected
    assert [hit.id for hit in hits] == [f"explicit:{name}" for name in expected]


@pytest.mark.req("S003-39", "S003-41")
def test_the_limit_holds(root):
    index = discover([root])
    assert [len(search(index, "pdf", limit=limit)) for limit in (-1, 0, 1, 9)] == [0, 0, 1, 2]


def test_an_index_made_once_answers_as_one_made_for_the_call(root):
    index = discover([root])
    assert search(SearchIndex.from_skills(index), "pdf") == search(index, "pdf")


@pytest.mark.req("S003-43")
def test_a_missing_root_has_nothing_to_find(tmp_path):
    assert search(discover([tmp_path / "missing"]), "pdf") == []


@pytest.mark.req("S003-42")
def test_a_skill_with_invalid_frontmatter_is_left_out(root):
    (root / "broken").mkdir()
    (root / "broken" / "SKILL.md").write_text('---\nname: "pdf\n---\npdf\n', "utf-8")
    names = [hit.name for hit in search(discover([root]), "pdf")]
    assert names == ["pdf-tools", "forms"]


def test_a_file_that_broke_since_it_was_listed_is_found_without_its_body(root):
    index = discover([root])
    assert len(index) == 3
    (root / "forms" / "SKILL.md").write_bytes(b"\xff\xfe")
    assert [hit.name for hit in search(index, "pdf")] == ["pdf-tools"]
    assert [hit.name for hit in search(index, "form")] == ["forms"]


def test_an_index_with_a_cache_keeps_its_search_index_there(root, tmp_path, monkeypatch):
    index = discover([root], cache=tmp_path / "cache", clock=lambda: 1 << 62)
    first = search(index, "pdf")
    monkeypatch.setattr("skillhouse.retrieval.index.load_body", pytest.fail)
    assert search(index, "pdf") == first
    kept = index.where(lambda skill: skill.name == "forms")
    assert [hit.name for hit in search(kept, "pdf")] == ["forms"]

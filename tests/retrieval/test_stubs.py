"""Tests of retrieval/stubs.py, and of the searches that stubs must not win."""

from __future__ import annotations

import pytest

from skillhouse.retrieval import SearchIndex, is_weak
from skillhouse.retrieval.stubs import is_stub

STUBS = [
    "Use when this capability is needed.",
    "Use this skill when the user needs it.",
    "Use when working with invoice merge.",
    "A helpful skill that does everything.",
    "An advanced, powerful tool for all kinds of tasks and problems.",
    "Handles invoices and merging when required. Use as appropriate.",
    "Provides general assistance with various requests.",
    "TODO: add a description of this skill here",
    "当需要此功能时使用。",
    "一个什么都能做的万能技能",
    "用于处理各种任务的实用工具",
    "在用户需要 invoice merge 时使用本技能。",
    "この機能が必要な場合に使用するスキル",
    "이 기능이 필요할 때 사용하는 스킬",
    "",
]
DESCRIPTIONS = [
    "Merges invoices.",
    "Joins several PDF invoices into one file.",
    "Use when the user wants to combine receipts.",
    "Create a chart from a spreadsheet.",
    "Helps with taxes.",
    "合并多个发票文件",
    "当用户需要查询天气时使用",
    "請求書を結合する",
    "송장을 합치는 스킬",
    "Счета в один файл",
]


@pytest.mark.parametrize("description", STUBS)
def test_a_description_without_words_of_content_is_a_stub(description):
    assert is_stub("invoice-merge", description)


@pytest.mark.parametrize("description", DESCRIPTIONS)
def test_a_description_with_words_of_content_is_none(description):
    assert not is_stub("invoice-merge", description)


@pytest.mark.parametrize("description", STUBS)
@pytest.mark.parametrize("query", ["merge invoices", "a capability that merges invoices is needed"])
def test_a_stub_does_not_win_against_a_skill_that_says_what_it_does(description, query):
    index = SearchIndex.from_documents(
        [
            ("a:invoice-merge", "invoice-merge", description, ""),
            ("b:billing", "billing", "Merges invoices of a month into one file.", ""),
            ("b:charts", "charts", "Draws charts of spreadsheets.", ""),
        ]
    )
    best, *others = index.search(query)
    assert best.id == "b:billing"
    assert "a:invoice-merge" in {hit.id for hit in others}


@pytest.mark.parametrize("description", STUBS[8:11])
def test_a_chinese_request_does_not_find_a_generic_description_first(description):
    index = SearchIndex.from_documents(
        [
            ("a:helper", "helper", description, ""),
            ("b:billing", "billing", "把一个月的发票合并成一个文件", ""),
            ("b:weather", "weather", "查询天气预报", ""),
        ]
    )
    assert index.search("需要合并发票时使用什么技能")[0].id == "b:billing"


def test_a_stub_that_is_named_still_comes_first():
    index = SearchIndex.from_documents(
        [
            ("a:merge", "merge", "Use when this capability is needed.", ""),
            ("b:git", "git", "Merge branches, merge commits, merge everything in git.", ""),
        ]
    )
    assert index.search("merge")[0].id == "a:merge"


def test_a_stub_alone_is_a_weak_match():
    index = SearchIndex.from_documents(
        [
            ("a:helper", "helper", "A helpful skill that does everything for any user.", ""),
            ("b:charts", "charts", "Draws charts of spreadsheets.", ""),
        ]
    )
    assert is_weak(index.search("a helpful skill for any user who bakes bread"))

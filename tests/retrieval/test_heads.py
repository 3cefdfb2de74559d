"""Tests of retrieval/heads.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.retrieval import HeadIndex, SearchIndex
from skillhouse.retrieval.heads import CANDIDATES_MAX
from skillhouse.skill import Skill, SkillIndex

WORDS = "happy happily PDFs merging merge café 数据分析 天気 が国 useEffect relational data".split()
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


def skill(name: str, description: str) -> Skill:
    return Skill(
        name=name,
        description=description,
        scope="user",
        file=f"/s/{name}/SKILL.md",
        root="/s",
        packed_fields=b"",
    )


@given(st.lists(TEXTS, max_size=6), TEXTS)
def test_skills_are_found_that_an_index_of_the_same_texts_finds(texts, query):
    index = SkillIndex([skill(f"s{number}", text) for number, text in enumerate(texts)])
    whole = SearchIndex.from_documents((s.id, s.name, s.description, "") for s in index.skills)
    found, expected = (each.search(query, limit=9) for each in (HeadIndex(index), whole))
    assert {hit.id for hit in found} == {hit.id for hit in expected}


@pytest.mark.parametrize(("query", "first"), [("kite", "kite"), ("s7 words", "s7"), ("!?", None)])
def test_the_best_of_very_many_are_ranked(query, first):
    skills = [skill(f"s{number}", "common words") for number in range(CANDIDATES_MAX + 9)]
    found = HeadIndex(SkillIndex([*skills, skill("kite", "Flies")])).search(query)
    assert next((hit.name for hit in found), None) == first

"""Tests of discovery/catalog_budget.py: a list by relevance within its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.discovery import STYLES, Catalog, catalog_under
from skillhouse.discovery.catalog_budget import (
    PASSED_OVER,
    RELEVANT_CHARS,
    Budget,
    filled_by_relevance,
)
from skillhouse.discovery.catalog_styles import CatalogEntry, Style
from skillhouse.skill import DEFAULT_PROFILE, CatalogRule, Profile, Skill, SkillIndex
from tests.discovery.test_catalog import skill

LAID_OUT = [style for style in STYLES if style not in ("direct", "awareness")]
"""The styles that read no file."""


def names(skills: Sequence[Skill]) -> list[str]:
    return [one.name for one in skills]


def by_relevance(
    index: SkillIndex,
    best: Sequence[str],
    *,
    style: str = "xml",
    tokens: int | None = None,
    profile: Profile = DEFAULT_PROFILE,
) -> Catalog:
    """Return the catalog in which the skills named in `best` fit the request."""
    of_name = {one.name: one for one in index.skills}
    first = [of_name[name] for name in best]
    return catalog_under(profile, index, style=style, budget_tokens=tokens, first=first)


LIBRARIES = st.lists(
    st.builds(
        skill,
        st.text("abcdefgh", min_size=1, max_size=3),
        st.one_of(st.just("Does one thing."), st.text(max_size=60), st.just("long " * 90)),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
).map(SkillIndex)


@pytest.mark.slow
@given(
    index=LIBRARIES,
    data=st.data(),
    style=st.sampled_from(LAID_OUT),
    tokens=st.one_of(st.none(), st.integers(0, 500)),
)
def test_the_budget_holds_the_best_come_first_and_every_loss_is_said(
    index: SkillIndex, data: st.DataObject, style: str, tokens: int | None
) -> None:
    best = data.draw(st.permutations(names(index.skills)).map(lambda all_: all_[: len(all_) // 2]))
    found = by_relevance(index, best, style=style, tokens=tokens)
    assert found == by_relevance(index, best, style=style, tokens=tokens)
    assert tokens is None or found.tokens <= tokens
    order = [*best, *(name for name in names(index.skills) if name not in best)]
    for part in (found.included, found.omitted):
        assert names(part) == [name for name in order if name in names(part)]
    assert sorted(names(found.included + found.omitted)) == sorted(order)
    line = f"{len(found.omitted)} more: `search_skills`"
    if found.omitted and found.text:
        assert found.text.split("\n")[0] == line
    else:
        assert "more: `search_skills`" not in found.text
        assert not found.included or not found.omitted


@pytest.mark.parametrize("style", LAID_OUT)
def test_what_fits_best_is_in_a_list_that_has_room_for_one(style: str) -> None:
    index = SkillIndex(skill(f"skill-{at:03}", "Does it well.") for at in range(50))
    found = by_relevance(index, ["skill-041", "skill-007"], style=style, tokens=120)
    assert names(found.included)[0] == "skill-041"
    assert "skill-041" in found.text
    whole = by_relevance(index, ["skill-041", "skill-007"], style=style)
    assert names(whole.included)[:4] == ["skill-041", "skill-007", "skill-000", "skill-001"]
    assert (whole.omitted, "more" in whole.text) == ((), False)


def test_a_whole_list_needs_no_line_about_what_is_left_out() -> None:
    index = SkillIndex(skill(f"skill-{at}") for at in range(4))
    whole = by_relevance(index, [])
    assert whole == catalog_under(DEFAULT_PROFILE, index, style="xml")
    assert by_relevance(index, [], tokens=whole.tokens) == whole
    assert len(by_relevance(index, [], tokens=whole.tokens - 1).included) == 3


def test_nothing_is_shown_but_the_line_if_only_that_fits() -> None:
    index = SkillIndex(skill(f"skill-{at}") for at in range(4))
    assert by_relevance(index, ["skill-2"], tokens=7).text == "4 more: `search_skills`"
    assert by_relevance(index, ["skill-2"], tokens=2).text == ""


def test_a_profile_without_a_search_tool_names_none() -> None:
    index = SkillIndex(skill(f"skill-{at}") for at in range(4))
    profile = replace(DEFAULT_PROFILE, tools=DEFAULT_PROFILE.tools[:1])
    found = by_relevance(index, ["skill-2"], tokens=60, profile=profile)
    assert names(found.included) == ["skill-2"]
    assert found.text.startswith("3 more are not listed\n<available_skills>\n")


@pytest.mark.parametrize("overflow", ["omit", "drop_descriptions", "shorten"])
def test_a_profile_that_sorts_by_name_or_drops_descriptions_keeps_the_best(overflow: str) -> None:
    index = SkillIndex(skill(f"skill-{at}", "Does it well. " * 30) for at in range(9))
    rule = CatalogRule(sort="name", overflow=overflow)  # type: ignore[arg-type]
    profile = replace(DEFAULT_PROFILE, catalog=rule)
    found = by_relevance(index, ["skill-7", "skill-3"], tokens=300, profile=profile)
    assert names(found.included) == ["skill-7", "skill-3"]
    assert (found.cut, found.text.count("Does it well")) == ((), 60)


def test_one_that_is_too_long_leaves_its_place_and_a_very_long_one_is_cut() -> None:
    long, short = skill("long", "word " * 150), skill("short")
    found = by_relevance(SkillIndex([long, short]), ["long"], tokens=100)
    assert (found.included, found.omitted) == ((short,), (long,))
    [entry] = by_relevance(SkillIndex([skill("huge", "y" * 90_000)]), ["huge"], tokens=2_000).cut
    assert entry.name == "huge"


def test_a_full_list_of_10_000_skills_lays_out_few_of_them() -> None:
    laid_out: list[int | None] = []

    def entry(one: Skill, chars: int | None) -> CatalogEntry | None:
        laid_out.append(chars)
        return None if one.name == "skill-1" else CatalogEntry(text=f"{one.name}\n")

    skills = [skill(f"skill-{at}") for at in range(10_000)]
    layout = Style(head="", tail="", entry=entry)
    listed = filled_by_relevance(layout, skills, Budget([(30, len)]))
    assert [one.name for one, _ in listed] == ["skill-0", "skill-2", "skill-3"]
    assert laid_out == [RELEVANT_CHARS] * (4 + PASSED_OVER)

"""Tests of house/agent_view.py: the catalog for a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.discovery import STYLES, Catalog
from skillhouse.floor import ConfigError
from skillhouse.house import ExtensionSettings, Skillhouse, configured
from skillhouse.skill import Skill, load_body
from tests.house.places import make_places, write_skill
from tests.house.test_config import write_user

FORMS = "Fills tax forms. Use for a tax return."


@pytest.fixture(autouse=True)
def _no_file_is_too_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillhouse.discovery.scan.FRESH_NANOSECONDS", 0)


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    """Sixty skills of the user; those for taxes come late in the usual order."""
    root = tmp_path / "home/.agents/skills"
    for at in range(58):
        write_skill(root / f"kite-{at:02}", "Builds kites of paper. " * 15)
    write_skill(root / "tax-forms", FORMS)
    write_skill(root / "zebra", "Counts animals.", body="Also files a tax return.\n")
    return Skillhouse(configured(make_places(tmp_path)))


def names(catalog: Catalog) -> list[str]:
    return [skill.name for skill in catalog.included]


def test_the_skills_that_fit_come_first_then_the_usual_order(house: Skillhouse) -> None:
    usual = house.catalog()
    assert names(usual)[0] == "kite-00"
    found = house.catalog(request="tax return")
    assert names(found)[:4] == ["tax-forms", "zebra", "kite-00", "kite-01"]
    assert found.tokens <= 2_000
    assert (found.text.startswith("<available_skills>"), found.omitted) == (True, ())
    assert len(found.included) == len(house.view().visible)
    compact = house.catalog(request="tax return", style="compact", budget_tokens=60)
    first, *lines = compact.text.split("\n")
    assert first == f"{len(compact.omitted)} more: `search_skills`"
    assert lines[:2] == [f"tax-forms: {FORMS}", "zebra: Counts animals."]
    assert lines[2].startswith("by name alone: kite-00, kite-01, ")
    house.close()


@pytest.mark.slow
def test_it_is_the_order_of_the_search_and_copies_follow_all_others(house: Skillhouse) -> None:
    request = "paper animals for a tax return"
    found_hits = house.search(request, limit=500)
    copies = [id_.partition(":")[2] for hit in found_hits for id_ in hit.alike]
    hits = [*(hit.name for hit in found_hits), *sorted(copies)]
    assert len(copies) > 50
    found = house.catalog(request=request, budget_tokens=100_000)
    assert names(found)[: len(hits)] == hits
    assert names(found)[len(hits) :] == ["github", "weather", "web-search"][: 63 - len(hits)]
    assert found == house.catalog(request=request, budget_tokens=100_000)
    house.close()


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "request_",
    ["?!", "\0", "a\0tax", "\ud800", "tax " * 25_000, "税" * 34_000, "🦊", "\x1b[31m", "the", "-"],
    ids=lambda text: ascii(text)[:12],
)
def test_no_request_fails(tmp_path: Path, style: str, request_: str) -> None:
    write_skill(tmp_path / "home/.agents/skills/tax-forms", FORMS)
    with Skillhouse(configured(make_places(tmp_path))) as house:
        found = house.catalog(request=request_, style=style, budget_tokens=160)
        assert found.tokens <= 160
        assert len(found.included) + len(found.omitted) == 4
        if "tax" in request_ and style != "direct":
            assert names(found)[0] == "tax-forms"


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_request_is_none(house: Skillhouse, blank: str) -> None:
    assert house.catalog(request=blank) == house.catalog()
    house.close()


@pytest.mark.slow
def test_what_an_agent_may_not_see_is_in_no_list_however_well_it_fits(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    root = tmp_path / "home/.agents/skills"
    for name in ("qdenied", "qoff", "planners", "seen"):
        write_skill(root / name, FORMS)
    write_skill(root / "qperson", f"{FORMS}\ndisable-model-invocation: true")
    write_skill(root / "qscoped", f"{FORMS}\npaths: tax/**")
    write_user(
        places,
        '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "qdenied"\n'
        '[[agents.planner.rules]]\neffect = "deny"\naction = "skill"\npattern = "planners"\n',
    )
    on = ExtensionSettings(invocation=True, paths=True)
    with Skillhouse(configured(places), extensions=on) as house:
        house.management.set_enabled("user:qoff", enabled=False)
        for style in STYLES:
            found = house.catalog(request="tax return", style=style)
            assert names(found)[:2] == ["planners", "seen"]
            assert "qscoped" in [skill.name for skill in found.omitted]
            hidden = {"qdenied", "qoff", "qperson"}
            assert not hidden & {skill.name for skill in (*found.included, *found.omitted)}
            assert not any(name in found.text for name in (*hidden, "qscoped"))
        assert names(house.catalog(request="tax return", agent="planner"))[0] == "seen"
        scoped = house.catalog(request="tax return", files=["tax/2026.csv"])
        assert names(scoped)[:3] == ["planners", "qscoped", "seen"]
        with pytest.raises(ConfigError, match="unknown agent `nobody`"):
            house.catalog(request="tax return", agent="nobody")


def test_skills_with_one_id_are_listed_once_each(tmp_path: Path) -> None:
    for root in ("a", "b"):
        write_skill(tmp_path / root / "tax-forms", FORMS)
    with Skillhouse(
        configured(make_places(tmp_path)), roots=[tmp_path / "a", tmp_path / "b"]
    ) as house:
        found = house.catalog(request="tax")
        assert len(found.included) == len({skill.file for skill in found.included})
        assert names(found)[0] == "tax-forms"


@pytest.mark.slow
def test_one_index_serves_every_list_and_search(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(skill: Skill) -> str:
        read.append(skill.name)
        return load_body(skill)

    monkeypatch.setattr("skillhouse.retrieval.index.load_body", counted)
    house.catalog()
    assert read == []
    first = house.catalog(request="tax return")
    assert len(read) == len(house.view().visible)
    assert house.catalog(request="tax return") == first
    house.search("kites")
    house.close()
    with Skillhouse(house.config) as again:
        assert again.catalog(request="tax return") == first
    assert len(read) == len(house.view().visible)

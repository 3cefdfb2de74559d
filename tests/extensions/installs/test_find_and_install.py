"""Tests of extensions/installs: a model finds a skill, and a person has it installed by one yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.extensions.installs.house_with_tool import (
    ON,
    answer,
    asked,
    configure,
    house_in,
    installed_file,
)
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, published_routes, static_server
from tests.registry.sources import git_server, make_repository, make_skill
from tests.registry.test_git_program import instead

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.extension.own import OWN_EXTENSIONS, OwnExtension
from skillhouse.house import Caller
from skillhouse.install.public_collections import collections
from skillhouse.tools import FIND_AND_INSTALL


@pytest.fixture
def official(tmp_path: Path) -> StaticRepository:
    made = StaticRepository(tmp_path / "official")
    made.make("1.0.0")
    made.make("1.1.0")
    made.make("2.0.0", "kites")
    configure(tmp_path, ("official", made.address, True))
    return made


def test_one_approval_installs_and_loads(tmp_path: Path, official: StaticRepository) -> None:
    with house_in(tmp_path) as house:
        first = asked(house, "notes")
        assert (first.status, installed_file(tmp_path).exists()) == ("pending", False)
        question = answer(house)
        assert question.title == ("install the skill `notes` 1.1.0 from official; it is unsigned")
        assert (question.always, question.patterns) == ((), ())
        facts = dict(question.found)
        assert facts["publisher"] == "unknown: it is unsigned"
        assert facts["executable"] == "scripts/run.sh"
        assert facts["goes to"] == str(installed_file(tmp_path).parent)
        assert dict(question.sent)["description"] == "About notes. Use it in tests."
        done = asked(house, "notes")
        assert done.status == "ok", done.content
        assert done.content.startswith("Installed `notes` 1.1.0 from `official`.\n\n")
        assert "Version 1.1.0 of default." in done.content
        release = official.skills["notes"].versions[0]
        named = {
            "name": "notes",
            "version": "1.1.0",
            "digest": release.tree_digest,
            "source": f"{official.address}/skills/notes/1.1.0",
        }
        assert done.data == {"status": "installed", **named}
        records = read_records(house.audit_log.path, limit=20)
        found = [one for one in records if one.record.tool == FIND_AND_INSTALL and one.outcome]
        assert [one.outcome.detail for one in found if one.outcome] == [named]
        assert "notes" in [skill.name for skill in house.view().visible.skills]
    lock = json.loads((tmp_path / "home/.config/skillhouse/skills.lock").read_text())
    assert lock["skills"]["notes"]["tree_digest"] == release.tree_digest
    with house_in(tmp_path) as house:
        assert "is installed already" in asked(house, "notes").content


def test_a_denial_installs_nothing(tmp_path: Path, official: StaticRepository) -> None:
    with house_in(tmp_path) as house:
        asked(house, "notes")
        answer(house, Answer.NO)
        assert asked(house, "notes").status == "denied"
    assert not installed_file(tmp_path).exists()


def test_words_list_what_fits_and_install_nothing(
    tmp_path: Path, official: StaticRepository
) -> None:
    with served(published_routes(official)) as address:
        configure(tmp_path, ("official", address, True))
        with house_in(tmp_path) as house:
            found = asked(house, "notes about tests")
            assert found.status == "ok", found.content
            assert "written by strangers" in found.content
            assert found.data is not None
            assert found.data["skills"][0] == {
                "wanted": "notes",
                "repository": "official",
                "version": "1.1.0",
                "description": "About notes. Use it in tests.",
            }
            # A name that none has is looked for as a word.
            assert "kites" in asked(house, "kite").content
            assert house.approvals.pending() == ()


def test_a_range_and_a_repository_are_taken(tmp_path: Path, official: StaticRepository) -> None:
    other = StaticRepository(tmp_path / "other", "other.example")
    other.make("7.0.0")
    with served(static_server(other.place)) as address:
        configure(tmp_path, ("official", official.address, True), ("other", address, False))
        with house_in(tmp_path) as house:
            asked(house, "notes@1.0.0")
            assert answer(house, Answer.NO).title.startswith("install the skill `notes` 1.0.0")
            asked(house, "notes", repository="other")
            assert answer(house).title == (
                "install the skill `notes` 7.0.0 from other; it is unsigned; "
                "its repository is not trusted"
            )
            assert asked(house, "notes", repository="other").status == "ok"
            wrong = asked(house, "notes", repository="third")
            assert "no repository `third` is configured; there are official, other" in wrong.content


def test_off_by_default_and_absent_where_a_list_or_rule_leaves_it_out(
    tmp_path: Path, official: StaticRepository
) -> None:
    repository = ("official", official.address, True)
    deny = f'[[rules]]\neffect = "deny"\naction = "{FIND_AND_INSTALL}"\npattern = "*"\n'
    sub = f'{ON}[agents.helper]\ntools = ["skill", "read"]\n'
    for more, agent in (("", "default"), (f"{ON}{deny}", "default"), (sub, "helper")):
        configure(tmp_path, repository, more=more)
        with house_in(tmp_path) as house:
            assert FIND_AND_INSTALL not in [tool.name for tool in house.tools(agent=agent)]
    configure(tmp_path, repository, more=sub)
    with house_in(tmp_path) as house:
        assert FIND_AND_INSTALL in [tool.name for tool in house.tools()]


def test_a_tree_without_the_extension_has_no_such_tool(
    tmp_path: Path, official: StaticRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = OwnExtension(package="skillhouse.nowhere.installs", extra="all")
    monkeypatch.setitem(OWN_EXTENSIONS, "installs", gone)
    with house_in(tmp_path) as house:
        assert FIND_AND_INSTALL not in [tool.name for tool in house.tools()]


def test_without_a_repository_it_says_what_to_do(tmp_path: Path) -> None:
    configure(tmp_path)
    with house_in(tmp_path) as house:
        assert "the user adds one" in asked(house, "notes").content


def test_a_forecast_asks_no_repository(tmp_path: Path, official: StaticRepository) -> None:
    seen: list[str] = []

    class Counting(static_server(official.place)):  # type: ignore[misc]
        def do_GET(self) -> None:
            seen.append(self.path)
            super().do_GET()

    with served(Counting) as address:
        configure(tmp_path, ("official", address, True))
        with house_in(tmp_path) as house:
            for wanted, status in (("notes", "pending"), ("take notes", "ok")):
                found = house.forecast(FIND_AND_INSTALL, {"wanted": wanted})
                assert found.status == status
    assert seen == []


def test_loading_is_decided_by_the_rules_about_skills(
    tmp_path: Path, official: StaticRepository
) -> None:
    rule = '[[rules]]\neffect = "ask"\naction = "skill"\npattern = "notes"\n'
    configure(tmp_path, ("official", official.address, True), more=f"{ON}{rule}")
    with house_in(tmp_path) as house:
        asked(house, "notes")
        answer(house)
        done = asked(house, "notes")
        assert done.status == "ok"
        assert "It is not loaded: not approved yet" in done.content
        assert "Version 1.1.0" not in done.content


def test_a_version_that_is_too_new_is_not_asked_about(
    tmp_path: Path, official: StaticRepository
) -> None:
    more = f'{ON}[registry]\nmin_release_age = "36500d"\n'
    configure(tmp_path, ("official", official.address, True), more=more)
    with house_in(tmp_path) as house:
        held = asked(house, "notes")
        assert (held.status, "is held back" in held.content) == ("error", True)
        assert house.approvals.pending() == ()


def test_only_the_owner_has_skills_installed(tmp_path: Path, official: StaticRepository) -> None:
    with house_in(tmp_path) as house:
        other = asked(house, "notes", caller=Caller(user="someone"))
        assert (other.status, "only the owner" in other.content) == ("denied", True)
        by_code = asked(house, "notes", origin_digest="skilltree1:00")
        assert (by_code.status, "the code of a skill" in by_code.content) == ("denied", True)


def test_a_skill_of_the_project_keeps_its_name(tmp_path: Path, official: StaticRepository) -> None:
    with house_in(tmp_path) as house:
        make_skill(tmp_path / "project/.agents/skills/kites")
        house.project_trust.trust()
        said = asked(house, "kites")
        assert "a skill `kites` is here already, as project:kites" in said.content
        assert house.approvals.pending() == ()


@pytest.mark.slow
def test_a_public_collection_is_searched_and_installed_from(tmp_path: Path) -> None:
    top, first = tmp_path / "github", collections()[0]
    for source in collections():
        make_skill(top / f"{source}.git" / "skills/tool", f"Of {source}.")
        make_repository(top / f"{source}.git")
    configure(tmp_path, more=f"{ON}public = true\n")
    with served(git_server(top)) as address:
        (tmp_path / "home/.gitconfig").write_text(instead(f"{address}/", "https://github.com/"))
        with house_in(tmp_path) as house:
            found = asked(house, "tool")
            assert f"- tool  in {first}: About tool." in found.content
            assert asked(house, "tool", repository=first).status == "pending"
            place = f"https://github.com/{first}"
            title = f"install the skill `tool` 1.0 from {place}; it is unsigned"
            assert answer(house).title == title
            done = asked(house, "tool", repository=first)
            assert (done.status, f"Of {first}." in done.content) == ("ok", True), done.content

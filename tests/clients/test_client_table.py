"""Tests of the table of clients, and of what is made of those of which only folders are known."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path

import pytest

from skillhouse.clients import (
    ClientReport,
    LensState,
    client_profile,
    client_profiles,
    compare,
    has_own_folder,
    is_installed,
    known_clients,
    problems,
    proposed_fixes,
)
from skillhouse.discovery import default_roots
from skillhouse.floor import ConfigError
from skillhouse.house import Locations
from skillhouse.skill import Profile, profile_names
from tests.house.places import make_places, write_skill

VERCEL = "vercel-labs/skills"


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return make_places(tmp_path, {"PATH": ""})


def seen(places: Locations, *names: str) -> ClientReport:
    return compare(
        start=places.start,
        home=places.home,
        environment=places.environment,
        profiles=[client_profile(name, places) for name in names],
    )


def test_each_line_has_a_source_and_the_day_on_which_it_was_read() -> None:
    table = known_clients()
    for name, one in table.items():
        dated = [(one.source, one.read_on)]
        dated += [(one.mcp.source, one.mcp.read_on)] if one.mcp else []
        for source, read_on in dated:
            assert source.startswith(("https://", "the program", "its documentation")), name
            assert dt.date.fromisoformat(read_on).year == 2026
        assert one.title, name
        assert one.user, name
    listed = [one.source.startswith(f"https://github.com/{VERCEL}") for one in table.values()]
    assert listed.count(False) >= 20
    assert len(table) >= 70


def test_no_name_means_two_clients() -> None:
    table = known_clients()
    names = [*table, *itertools.chain(*(one.aliases for one in table.values()))]
    assert len(names) == len(set(names))
    # What is named first of many clients is what was measured.
    order = [
        (not one.source.startswith("the program"), name not in profile_names(), name)
        for name, one in table.items()
    ]
    assert order == sorted(order)


def test_every_line_of_the_table_gives_roots_at_home_or_in_the_project(places: Locations) -> None:
    for profile in client_profiles(places):
        roots = default_roots(start=places.start, home=places.home, environment={}, profile=profile)
        assert roots
        if profile.folders_only:
            assert all(
                root.path.is_relative_to(places.home if root.scope == "user" else places.start)
                for root in roots
            )
            assert profile.traces, profile.name
            assert profile.unknown


def test_of_a_client_without_a_profile_only_its_folders_are_claimed(places: Locations) -> None:
    broken = places.home / ".cursor/skills/broken"
    broken.mkdir(parents=True)
    (broken / "SKILL.md").write_text("no front matter at all\n")
    shared = write_skill(places.home / ".agents/skills/pdf")
    (places.home / ".cursor/skills/pdf").symlink_to(shared)
    elsewhere = write_skill(places.home / "mine/notes")
    (places.start / ".windsurf/skills").mkdir(parents=True)
    (places.start / ".windsurf/skills/notes").symlink_to(elsewhere)
    lens = seen(places, "cursor", "windsurf")
    states = {skill.name: [verdict.state for verdict in skill.verdicts] for skill in lens.skills}
    assert states == {
        "broken": [LensState.FOLDER, LensState.UNSEEN],
        "pdf": [LensState.FOLDER, LensState.UNSEEN],
        "notes": [LensState.UNSEEN, LensState.FOLDER],
    }
    # How it reads a file, and whether it follows a link, is not known: neither is a problem's fix.
    assert {problem.code for problem in problems(lens)} == {"no-root"}
    assert "ln -s" not in "".join(problem.fix for problem in problems(lens))
    assert not [fix for fix in proposed_fixes(lens) if fix.target]


def test_what_an_installer_of_skills_makes_is_no_sign_of_the_client(places: Locations) -> None:
    cursor = client_profile("cursor", places)
    found = lambda one: (is_installed(one, places), has_own_folder(one, places))  # noqa: E731
    assert found(cursor) == (False, False)
    (places.home / ".cursor/skills").mkdir(parents=True)
    assert found(cursor) == (False, True)
    (places.home / ".cursor/argv.json").write_text("{}")
    assert is_installed(cursor, places)
    (places.home / ".agents/skills").mkdir(parents=True)
    assert not has_own_folder(client_profile("fx", places), places)


def test_a_profile_of_a_person_goes_before_the_table(places: Locations) -> None:
    places.profiles.mkdir(parents=True)
    text = 'title = "Mine"\nclient = "Cursor 9"\n'
    (places.profiles / "cursor.toml").write_text(text)
    assert client_profile("cursor", places).client == "Cursor 9"
    assert [one.name for one in client_profiles(places)].count("cursor") == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("vscode", "copilot-vscode"),
        ("github-copilot", "copilot-cli"),
        ("opencode", "opencode-cli"),
        ("kiro", "kiro-cli"),
        ("qwen", "qwen-code"),
    ],
)
def test_names_that_people_type_are_known(places: Locations, name: str, found: str) -> None:
    assert client_profile(name, places).name == found


def test_an_unknown_name_names_the_nearest(places: Locations) -> None:
    with pytest.raises(ConfigError, match="`skillhouse profiles list` has them; did you mean"):
        client_profile("windsrf", places)


def test_a_profile_says_by_itself_that_only_its_folders_are_known() -> None:
    assert not Profile().folders_only

"""Tests of house/project.py: one trust is for every client that works in the project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse import manage
from skillhouse.floor import SkillError
from skillhouse.house import Skillhouse, configured
from skillhouse.store import STATE_FILE
from tests.house.coded import tool, write_code
from tests.house.places import make_places, write_skill
from tests.house.worktrees import house_in
from tests.states import state_at

GEM = "project/.gemini/skills/gem"
ODD = "---\nname: Other Name\ndescription: Fix: this.\n---\nBody.\n"
"""Claude Code names it by its directory, and a strict reader of YAML does not list it."""


def house_at(base: Path, profile: str = "default") -> Skillhouse:
    return Skillhouse(configured(make_places(base)), profile=profile)


def shown(base: Path, profile: str) -> dict[str, str]:
    """Return what a model is shown of the project under a profile, by name."""
    skills = house_at(base, profile).view().visible.skills
    return {skill.name: skill.description for skill in skills if skill.scope == "project"}


def states(base: Path, profile: str = "default") -> dict[str, str]:
    report = house_at(base, profile).project_trust.report()
    return {one.directory: one.state for one in report.skills}


def is_as_trusted(base: Path, profile: str, name: str) -> bool:
    """Whether loading a skill is decided as of one that is as a person saw it."""
    house = house_at(base, profile)
    reason = house.policy.explain_skill(house.index.get(name)).reason
    return reason == "no rule matches; the skill is unchanged since it was trusted"


def of_clients(base: Path) -> None:
    """Write a skill into folders that different clients read."""
    write_skill(base / "project/.agents/skills/pdf", "Reads PDF.")
    write_skill(base / "project/.gemini/skills/gem", "Of Gemini.")
    write_skill(base / "project/.codex/skills/cx", "Of Codex.")
    directory = base / "project/.claude/skills/odd"
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text(ODD, encoding="utf-8")


@pytest.mark.parametrize("given", ["default", "gemini-cli", "claude-code"])
def test_one_trust_is_for_every_client_whatever_profile_asked(tmp_path: Path, given: str) -> None:
    of_clients(tmp_path)
    house_at(tmp_path, given).project_trust.trust()
    expected = {
        "default": {"pdf": "Reads PDF.", "Other Name": "Fix: this."},
        "claude-code": {"odd": "Fix: this."},
        "gemini-cli": {"gem": "Of Gemini.", "pdf": "Reads PDF."},
        "codex": {"cx": "Of Codex.", "pdf": "Reads PDF."},
    }
    assert {profile: shown(tmp_path, profile) for profile in expected} == expected
    for profile, names in expected.items():
        assert {is_as_trusted(tmp_path, profile, name) for name in names} == {True}
        house = house_at(tmp_path, profile)
        assert house.snapshot.shown.waiting == ()
        assert all(one.is_seen for one in house.project_trust.report().skills)


def test_the_question_has_what_other_clients_find_and_read_otherwise(tmp_path: Path) -> None:
    of_clients(tmp_path)
    report = house_at(tmp_path).project_trust.report()
    assert {one.directory: one.finders for one in report.skills} == {
        ".agents/skills/pdf": (),
        ".claude/skills/odd": (),
        ".codex/skills/cx": ("codex",),
        ".gemini/skills/gem": ("gemini-cli",),
    }
    assert [
        (one.directory, reading.profiles, reading.text.name)
        for one in report.skills
        for reading in one.other_readings
    ] == [(".claude/skills/odd", ("claude-code",), "odd")]


def test_what_another_client_reads_is_trusted_as_it_was_shown_or_not_at_all(tmp_path: Path) -> None:
    of_clients(tmp_path)
    house = house_at(tmp_path)
    asked = house.project_trust.report()
    write_skill(tmp_path / "project/.gemini/skills/gem", "Run curl.")
    with pytest.raises(SkillError, match="changed while they were shown"):
        house.project_trust.trust(asked)
    assert house.services.trust_store.projects() == ()


def test_a_skill_of_another_client_that_changed_asks_and_keeps_its_text(tmp_path: Path) -> None:
    of_clients(tmp_path)
    house_at(tmp_path).project_trust.trust()
    write_skill(tmp_path / "project/.codex/skills/cx", "Run curl.")
    assert shown(tmp_path, "codex") == {"cx": "Of Codex.", "pdf": "Reads PDF."}
    assert not is_as_trusted(tmp_path, "codex", "cx")
    assert states(tmp_path)[".codex/skills/cx"] == "changed"


def test_a_later_trust_under_a_design_adds_what_it_shows(tmp_path: Path) -> None:
    """The designs of frameworks are asked about under their own profile alone."""
    write_skill(tmp_path / "project/.agents/skills/pdf", "Reads PDF.")
    write_skill(tmp_path / "project/skills/mail", "Reads mail.")
    house_at(tmp_path).project_trust.trust()
    assert ".agents/skills/pdf" in states(tmp_path)
    assert "skills/mail" not in states(tmp_path)
    assert not is_as_trusted(tmp_path, "owliabot", "mail")
    house_at(tmp_path, "owliabot").project_trust.trust()
    assert is_as_trusted(tmp_path, "owliabot", "mail")
    assert shown(tmp_path, "owliabot") == {"mail": "Reads mail."}
    house_at(tmp_path).project_trust.trust()
    assert shown(tmp_path, "owliabot") == {"mail": "Reads mail."}
    assert is_as_trusted(tmp_path, "owliabot", "mail")
    write_skill(tmp_path / "project/skills/mail", "Run curl.")
    assert not is_as_trusted(tmp_path, "owliabot", "mail")
    # Trusted again from where it is not shown, it is still the changed one.
    house_at(tmp_path).project_trust.trust()
    assert not is_as_trusted(tmp_path, "owliabot", "mail")
    assert shown(tmp_path, "owliabot") == {"mail": "Reads mail."}


def test_what_is_gone_from_the_disk_is_trusted_no_more(tmp_path: Path) -> None:
    mail = write_skill(tmp_path / "project/skills/mail")
    write_skill(tmp_path / "project/.agents/skills/pdf")
    house_at(tmp_path, "owliabot").project_trust.trust()
    (mail / "SKILL.md").unlink()
    mail.rmdir()
    house_at(tmp_path).project_trust.trust()
    write_skill(mail)
    assert not is_as_trusted(tmp_path, "owliabot", "mail")


def test_revoking_takes_away_what_every_profile_was_trusted_with(tmp_path: Path) -> None:
    of_clients(tmp_path)
    write_skill(tmp_path / "project/skills/mail")
    for profile in ("default", "owliabot"):
        house_at(tmp_path, profile).project_trust.trust()
    assert house_at(tmp_path).project_trust.revoke()
    path = tmp_path / "home/.local/state/skillhouse" / STATE_FILE
    with state_at(path) as connection:
        assert connection.execute("SELECT count(*) FROM trust").fetchall() == [(0,)]
    assert shown(tmp_path, "owliabot") == {}


def own_folder(base: Path) -> None:
    write_skill(base / "home/.claude/skills/mine", "Mine.")


def above(base: Path) -> None:
    write_skill(base / ".claude/skills/mine", "Above.")


def linked_out(base: Path) -> None:
    write_skill(base / "home/.agents/skills/mine", "Mine.")
    (base / "project/.gemini").mkdir(parents=True)
    (base / "project/.gemini/skills").symlink_to(base / "home/.agents/skills")


@pytest.mark.parametrize("made", [own_folder, above, linked_out])
def test_a_folder_that_is_not_of_the_project_is_not_shown_for_another_client(
    tmp_path: Path, made: Callable[[Path], None]
) -> None:
    """Amp and Claude Desktop walk to the top of the file system; a link may lead anywhere."""
    made(tmp_path)
    assert states(tmp_path) == {}


def test_in_ones_home_a_persons_folders_are_no_project(tmp_path: Path) -> None:
    write_skill(tmp_path / "home/.claude/skills/mine", "Mine.")
    write_skill(tmp_path / "home/.codex/skills/mine", "Mine.")
    make_places(tmp_path)
    assert house_in(tmp_path, tmp_path / "home").project_trust.report().skills == ()


def test_a_broken_profile_of_the_person_costs_no_trust(tmp_path: Path) -> None:
    of_clients(tmp_path)
    own = tmp_path / "home/.config/skillhouse/profiles"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text("title = 3\n", encoding="utf-8")
    assert len(states(tmp_path)) == 4


def test_tools_that_another_client_finds_are_shown_and_kept(tmp_path: Path) -> None:
    of_clients(tmp_path)
    write_code(tmp_path / GEM, "", tool("melt"))
    house = house_at(tmp_path)
    named = [facts.name for facts in manage.project_code(house)]
    assert named == ["gem"]
    house.project_trust.trust()
    texts = house_at(tmp_path, "gemini-cli").snapshot.texts
    # With what each tool says, the digest of the code that may run.
    kept = [[json.loads(one)[0] for one in text.tools] for text in texts.of(tmp_path / GEM)]
    assert kept == [["gem", "code"]]


def test_what_an_own_profile_showed_of_the_same_bytes_is_kept(tmp_path: Path) -> None:
    of_clients(tmp_path)
    own = tmp_path / "home/.config/skillhouse/profiles"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text(
        '[[scopes]]\nname = "project"\ndefault_effect = "allow"\nmax_depth = 6\n'
        "max_directories = 100\n"
        '[[roots]]\nscope = "project"\npath = ".agents/*"\nnamespace = 1\n',
        encoding="utf-8",
    )
    for profile in ("default", "mine", "default"):
        house_at(tmp_path, profile).project_trust.trust()
    assert shown(tmp_path, "mine") == {"skills:pdf": "Reads PDF."}
    assert shown(tmp_path, "default")["pdf"] == "Reads PDF."

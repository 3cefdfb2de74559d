"""Tests of runtime/trust.py through the house that asks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from skillhouse.floor import SkillError
from skillhouse.permission import Effect
from skillhouse.runtime import Skillhouse, TrustStore, configured
from tests.runtime.places import make_places, write_skill


def house_at(base: Path) -> Skillhouse:
    return Skillhouse(configured(make_places(base)))


def project_skill(base: Path, name: str = "pdf") -> Path:
    return write_skill(base / "project/.agents/skills" / name)


def test_a_project_is_not_read_until_it_is_trusted(tmp_path: Path) -> None:
    project_skill(tmp_path)
    house = house_at(tmp_path)
    assert [skill.scope for skill in house.index.skills] == ["builtin"] * 3
    codes = [found.code for found in house.index.diagnostics]
    assert codes == ["project-untrusted"]
    house.project_trust.trust()
    assert house.index.get("pdf").id == "project:pdf"


def test_trust_survives_a_new_house_and_can_be_revoked(tmp_path: Path) -> None:
    project_skill(tmp_path)
    house_at(tmp_path).project_trust.trust()
    again = house_at(tmp_path)
    assert again.index.get("pdf").scope == "project"
    assert again.services.trust_store.projects() == (str(tmp_path / "project"),)
    assert again.project_trust.revoke() is True
    assert again.project_trust.revoke() is False
    assert "pdf" not in {skill.name for skill in again.index.skills}


@pytest.mark.parametrize(
    ("change", "effect", "reason"),
    [
        ("nothing", Effect.ALLOW, "unchanged since it was trusted"),
        ("body", Effect.ASK, "has changed since the project was trusted"),
        ("script", Effect.ASK, "has changed since the project was trusted"),
        ("mode", Effect.ASK, "has changed since the project was trusted"),
        ("link", Effect.ASK, "cannot be bound to its content"),
    ],
)
def test_a_skill_that_changed_since_is_asked_about(
    tmp_path: Path, change: str, effect: Effect, reason: str
) -> None:
    directory = project_skill(tmp_path)
    script = directory / "run.sh"
    script.write_text("true\n")
    script.chmod(0o644)
    house_at(tmp_path).project_trust.trust()
    if change == "body":
        (directory / "SKILL.md").write_text("---\nname: pdf\ndescription: D.\n---\nOther.\n")
    elif change == "script":
        script.write_text("false\n")
    elif change == "mode":
        script.chmod(0o755)
    elif change == "link":
        (directory / "link").symlink_to("run.sh")
    house = house_at(tmp_path)
    explained = house.policy.explain_skill(house.index.get("pdf"))
    assert explained.decision.effect is effect
    assert reason in explained.reason


def test_a_skill_that_is_new_since_is_asked_about(tmp_path: Path) -> None:
    project_skill(tmp_path)
    house_at(tmp_path).project_trust.trust()
    project_skill(tmp_path, "later")
    house = house_at(tmp_path)
    states = {found.skill.name: found.state for found in house.project_trust.report().skills}
    assert states == {"pdf": "trusted", "later": "new"}
    assert house.policy.explain_skill(house.index.get("later")).decision.effect is Effect.ASK


def test_a_copy_of_a_trusted_project_is_not_trusted(tmp_path: Path) -> None:
    project_skill(tmp_path)
    house_at(tmp_path).project_trust.trust()
    remote_skills = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "project", remote_skills)
    store = TrustStore(tmp_path / "home/.local/state/skillhouse")
    assert store.is_trusted(tmp_path / "project") is True
    assert store.is_trusted(remote_skills) is False


def test_a_link_to_a_trusted_project_is_that_project(tmp_path: Path) -> None:
    project_skill(tmp_path)
    house_at(tmp_path).project_trust.trust()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "project")
    assert TrustStore(tmp_path / "home/.local/state/skillhouse").is_trusted(link) is True


def test_the_projects_rules_are_read_only_when_it_is_trusted_and_never_loosen(
    tmp_path: Path,
) -> None:
    project_skill(tmp_path)
    rules = '[[rules]]\neffect = "{}"\naction = "skill"\npattern = "*"\n'
    (tmp_path / "project/skillhouse.toml").write_text(rules.format("deny"))
    assert house_at(tmp_path).view().hidden == ()
    house_at(tmp_path).project_trust.trust()
    assert len(house_at(tmp_path).view().hidden) == 4
    (tmp_path / "project/skillhouse.toml").write_text(rules.format("allow"))
    project_skill(tmp_path, "later")
    house = house_at(tmp_path)
    assert house.policy.explain_skill(house.index.get("later")).decision.effect is Effect.ASK


@pytest.mark.parametrize("change", ["body", "added"])
def test_what_changes_while_it_is_shown_is_not_trusted(tmp_path: Path, change: str) -> None:
    directory = project_skill(tmp_path)
    house = house_at(tmp_path)
    shown = house.project_trust.report()
    if change == "body":
        (directory / "SKILL.md").write_text("---\nname: pdf\ndescription: x\n---\nrm -rf /\n")
    else:
        project_skill(tmp_path, "other")
    with pytest.raises(SkillError, match="changed while they were shown"):
        house.project_trust.trust(shown)
    assert house.services.trust_store.projects() == ()

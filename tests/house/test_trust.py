"""Tests of house/trust.py through the house that asks it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skillhouse.floor import SkillError
from skillhouse.house import Skillhouse, TrustStore, configured
from skillhouse.permission import Effect
from tests.house.places import make_places, write_skill
from tests.house.worktrees import (
    SKILLS,
    git,
    house_in,
    repository_at,
    states,
    store_in,
    trust,
    worktree_of,
)


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


@pytest.mark.slow
@pytest.mark.parametrize("where", ["beside", "inside"])
@pytest.mark.parametrize("pointers", ["absolute", "relative"])
def test_a_worktree_of_a_trusted_repository_is_trusted_with_the_same_skills(
    tmp_path: Path, where: str, pointers: str
) -> None:
    repository = repository_at(tmp_path / "code", "pdf", "word")
    place = tmp_path / "wt" if where == "beside" else repository / ".claude/worktrees/wt"
    worktree = worktree_of(repository, place)
    if pointers == "relative":
        # As git 2.48 writes them with `worktree.useRelativePaths`.
        own = repository / ".git/worktrees/wt"
        (worktree / ".git").write_text(f"gitdir: {os.path.relpath(own, worktree)}\n")
        (own / "gitdir").write_text(f"{os.path.relpath(worktree / '.git', own)}\n")
        git(worktree, "status", "--short")
    assert states(tmp_path, worktree) == {}
    trust(tmp_path, repository)
    assert states(tmp_path, worktree) == {"pdf": "trusted", "word": "trusted"}
    house = house_in(tmp_path, worktree)
    assert house.project_trust.report().through == (str(repository),)
    explained = house.policy.explain_skill(house.index.get("pdf"))
    assert explained.decision.effect is Effect.ALLOW
    assert explained.reason == f"no rule matches; the skill is as it was trusted in `{repository}`"
    assert store_in(tmp_path).projects() == (str(repository),)
    # And from a directory of it.
    assert states(tmp_path, worktree / SKILLS) == {"pdf": "trusted", "word": "trusted"}


@pytest.mark.slow
def test_a_skill_with_links_is_trusted_in_each_worktree(tmp_path: Path) -> None:
    repository = repository_at(tmp_path / "code")
    (tmp_path / "shared.md").write_text("Shared.\n", encoding="utf-8")
    (repository / "in.md").write_text("Inside.\n", encoding="utf-8")
    (repository / SKILLS / "pdf/in.md").symlink_to("../../../in.md")
    (repository / SKILLS / "pdf/out.md").symlink_to(tmp_path / "shared.md")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "links")
    worktree = worktree_of(repository, tmp_path / "wt")
    trust(tmp_path, repository)
    assert states(tmp_path, worktree) == {"pdf": "trusted"}
    house = house_in(tmp_path, worktree)
    explained = house.policy.explain_skill(house.index.get("pdf"))
    assert explained.decision.effect is Effect.ALLOW
    (worktree / "in.md").write_text("Run curl.\n", encoding="utf-8")
    assert states(tmp_path, worktree) == {"pdf": "changed"}


@pytest.mark.slow
def test_trust_in_a_worktree_counts_in_the_repository_and_in_its_other_worktrees(
    tmp_path: Path,
) -> None:
    repository = repository_at(tmp_path / "code")
    one, two = (worktree_of(repository, tmp_path / name) for name in ("one", "two"))
    write_skill(one / SKILLS / "new")
    trust(tmp_path, one)
    assert states(tmp_path, repository) == {"pdf": "trusted"}
    shutil.copytree(one / SKILLS / "new", two / SKILLS / "new")
    assert states(tmp_path, two) == {"pdf": "trusted", "new": "trusted"}
    # What a place has of its own is all that counts there.
    trust(tmp_path, repository)
    shutil.copytree(one / SKILLS / "new", repository / SKILLS / "new")
    assert states(tmp_path, repository) == {"pdf": "trusted", "new": "new"}


@pytest.mark.slow
def test_worktrees_of_a_bare_repository_are_of_one_repository(tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository_at(tmp_path / "code")), "bare.git")
    one, two = (worktree_of(tmp_path / "bare.git", tmp_path / name) for name in ("one", "two"))
    trust(tmp_path, one)
    assert states(tmp_path, two) == {"pdf": "trusted"}
    assert states(tmp_path, tmp_path / "code") == {}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["code", "one", "two"])
def test_trust_is_revoked_for_the_repository_and_all_its_worktrees(
    tmp_path: Path, where: str
) -> None:
    repository = repository_at(tmp_path / "code")
    for name in ("one", "two"):
        worktree_of(repository, tmp_path / name)
    other = repository_at(tmp_path / "other")
    for place in (repository, tmp_path / "one", other):
        trust(tmp_path, place)
    assert house_in(tmp_path, tmp_path / where).project_trust.revoke() is True
    assert [states(tmp_path, tmp_path / name) for name in ("code", "one", "two")] == [{}, {}, {}]
    assert house_in(tmp_path, tmp_path / where).project_trust.revoke() is False
    assert states(tmp_path, other) == {"pdf": "trusted"}


@pytest.mark.slow
def test_a_worktree_heeds_the_projects_file_as_the_repository_does(tmp_path: Path) -> None:
    """The file only makes things stricter, so that leaving it out would loosen them."""
    repository = repository_at(tmp_path / "code")
    worktree = worktree_of(repository, tmp_path / "wt")
    deny = '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "*"\n'
    (worktree / "skillhouse.toml").write_text(deny, encoding="utf-8")
    assert house_in(tmp_path, worktree).view().hidden == ()
    trust(tmp_path, repository)
    assert "pdf" in {skill.name for skill in house_in(tmp_path, worktree).view().hidden}

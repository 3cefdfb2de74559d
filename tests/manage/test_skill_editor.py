"""Tests of editing: whose files are opened and written, also those that no agent can use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.audit import read_records
from skillhouse.floor import PathError, SkillError, UnusableSkillError
from skillhouse.house import Skillhouse, configured
from skillhouse.manage.skill_editor import FrontmatterError, skill_source, update_skill
from skillhouse.skill import SKILL_FILE_MAX
from tests.house.places import make_places

BROKEN = "---\nname: memo\ndescription: 'x\n---\nWrite.\n"
GOOD = "---\nname: memo\ndescription: Takes memos.\n---\nWrite.\n"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield house


def written(house: Skillhouse, file: Path, data: bytes | str = BROKEN) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    house.refresh()
    return file


def test_a_broken_skill_is_written_once_it_is_valid(house: Skillhouse, tmp_path: Path):
    file = written(house, tmp_path / "home/.agents/skills/memo/SKILL.md")
    found = skill_source(house, str(file))
    assert (found.id, found.is_broken, found.is_text, found.text) == (
        "user:memo",
        True,
        True,
        BROKEN,
    )
    with pytest.raises(FrontmatterError):
        update_skill(house, "memo", BROKEN, expected=found.digest)
    with pytest.raises(SkillError, match="changed since"):
        update_skill(house, "memo", GOOD, expected="sha256:00")
    assert file.read_text() == BROKEN
    assert update_skill(house, "memo", GOOD, expected=found.digest).id == "user:memo"
    assert file.read_text() == GOOD
    record = [each.record for each in read_records(house.audit_log.path)][-1]
    assert record.tool == "manage:update"


def test_a_file_that_is_no_text_is_shown_with_what_could_be_read(house: Skillhouse, tmp_path: Path):
    file = written(
        house, tmp_path / "home/.agents/skills/memo/SKILL.md", GOOD.encode() + b"caf\xe9\n"
    )
    found = skill_source(house, str(file))
    assert (found.is_text, found.text) == (False, f"{GOOD}caf\ufffd\n")


def test_a_file_beyond_the_bound_is_not_opened_cut(house: Skillhouse, tmp_path: Path):
    file = written(
        house,
        tmp_path / "home/.agents/skills/memo/SKILL.md",
        GOOD + "x" * SKILL_FILE_MAX,
    )
    with pytest.raises(SkillError, match="at most"):
        skill_source(house, str(file))


def test_no_file_behind_a_link_and_none_of_others_is_opened(house: Skillhouse, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("no skill at all: 'x\n---\n")
    root = tmp_path / "home/.agents/skills"
    (root / "linked").mkdir(parents=True)
    (root / "linked/SKILL.md").symlink_to(secret)
    elsewhere = written(house, tmp_path / "elsewhere/memo/SKILL.md")
    (root / "inside").symlink_to(elsewhere.parent)
    project = written(house, house.services.project / ".agents/skills/theirs/SKILL.md")
    for reference in (root / "linked/SKILL.md", root / "inside/SKILL.md", elsewhere, project):
        with pytest.raises((UnusableSkillError, PathError)):
            skill_source(house, str(reference))
        with pytest.raises((UnusableSkillError, PathError)):
            update_skill(house, str(reference), GOOD, expected="sha256:00")
    assert project.read_text() == elsewhere.read_text() == BROKEN

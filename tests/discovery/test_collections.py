"""What is in force, shadowed and lost in trees that are made like published collections."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from skillhouse.discovery import Root, discover, skills_below
from skillhouse.discovery.build_index import place_rank
from skillhouse.skill import SkillIndex
from tests.discovery.trees import write_refused, write_skill

NAMES = tuple(f"skill-{number:02}" for number in range(40))
LANGUAGES = ("ja-JP", "zh-CN", "zh-TW")
CLIENT_FOLDERS = (".cursor/skills", ".kiro/skills", ".opencode/skills", ".codex/skills")


def make_collection(root: Path) -> None:
    """Write a tree like everything-claude-code: one set of skills, and copies in many places."""
    for name in NAMES:
        write_skill(root / "skills" / name, description="the real one")
    for language in LANGUAGES:
        for name in NAMES:
            write_skill(root / "docs" / language / "skills" / name, description=language)
    for folder in CLIENT_FOLDERS:
        for name in NAMES[:10]:
            write_skill(root / folder / name, description=folder)
    for name in NAMES[:5]:
        write_skill(root / "backups" / "2025-01" / name, description="a backup")
        write_skill(root / "backup-old" / name, description="a backup")
        write_skill(root / "skills.bak" / name, description="a backup")
        write_skill(root / ".claude" / "skills" / name, description="installed")
        write_skill(root / "tests" / "fixtures" / name, description="a fixture")
        write_skill(root / "examples" / name, description="an example")
    for number in range(5):
        write_skill(root / ".claude/skills" / f"own-{number}", description="only installed")
        write_skill(root / "docs/ja-JP/skills" / f"only-{number}", description="only translated")
    write_refused(root / "skills" / "broken")
    write_refused(root / "skills" / "skill-00" / "references" / "example")
    write_skill(root / "skills" / "skill-01" / "templates" / "inner")
    write_skill(root, name="everything", description="the collection itself")


PLUGINS = 300


def make_marketplace(root: Path) -> None:
    """Write a marketplace of 300 plugins of two to four skills, some of which share names."""
    for number in range(PLUGINS):
        plugin = root / "plugins" / f"plugin-{number:03}"
        for name in ("setup", f"own-{number:03}"):
            write_skill(plugin / "skills" / name, description=f"of {number}")
        if number % 10 == 0:
            write_skill(plugin / "docs" / "skills" / f"own-{number:03}", description="a copy")
        if number % 50 == 0:
            write_refused(plugin / "skills" / "broken")
    write_skill(root / "skills" / "setup", description="of the marketplace")


def summary(index: SkillIndex) -> dict[str, int]:
    counts = Counter(found.code for found in index.diagnostics)
    return {
        "in force": len(index.skills),
        "lost": sum(found.severity == "error" for found in index.diagnostics),
        **{code: counts[code] for code in sorted(counts)},
    }


@pytest.mark.slow
def test_a_collection_with_translations_and_backups(tmp_path: Path) -> None:
    root = tmp_path / "everything"
    make_collection(root)
    index = discover([root])
    assert summary(index) == {
        "in force": 51,
        "lost": 1,
        "yaml-error": 1,
        "shadowed": 190,
    }
    described = {skill.name: skill.description for skill in index.skills}
    assert {described[name] for name in NAMES} == {"the real one"}
    assert described["own-0"] == "only installed"
    assert described["only-0"] == "only translated"
    assert described["everything"] == "the collection itself"
    ids = [skill.id for skill in (*index.skills, *index.shadowed)]
    assert len(set(ids)) == len(ids)
    loser = index.get("explicit:skill-07@docs/zh-CN/skills/skill-07")
    assert loser.description == "zh-CN"
    every = (*index.skills, *index.shadowed)
    inside = list(skills_below(every, known={skill.file for skill in every}))
    assert sorted(found.path.parent.name for found in inside if found.path) == ["example", "inner"]
    assert {found.severity for found in inside} == {"info"}


def test_skills_below_a_skill_are_not_looked_for_in_directories_that_are_skipped(
    tmp_path: Path,
) -> None:
    for place in ("outer", "outer/node_modules/dependency", "outer/examples/inner"):
        write_skill(tmp_path / place)
    skills = discover([tmp_path]).skills
    assert [skill.name for skill in skills] == ["outer"]
    for skipped, names in (((), ["dependency", "inner"]), (("node_modules",), ["inner"])):
        inside = skills_below(skills, known=[skills[0].file], skipped=skipped)
        assert sorted(found.path.parent.name for found in inside if found.path) == names


@pytest.mark.slow
def test_a_marketplace_of_three_hundred_plugins(tmp_path: Path) -> None:
    make_marketplace(tmp_path)
    index = discover([tmp_path])
    found = summary(index)
    assert (found["in force"], found["shadowed"], found["lost"]) == (301, 330, 6)
    assert index.get("setup").description == "of the marketplace"
    assert {index.get(f"own-{n:03}").description for n in range(0, PLUGINS, 10)} == {
        f"of {n}" for n in range(0, PLUGINS, 10)
    }
    assert index.get("explicit:setup@plugins/plugin-299/skills/setup").description == "of 299"


@pytest.mark.slow
def test_the_bounds_of_a_users_root_take_twenty_thousand(tmp_path: Path) -> None:
    for number in range(2_500):
        write_skill(tmp_path / f"s{number:04}")
    index = discover([Root(tmp_path, "user")])
    assert (len(index.skills), index.left_out) == (2_500, ())
    index = discover([Root(tmp_path, "project")])
    (left,) = index.left_out
    assert (len(index.skills), left.bound, left.most) == (2_000, "directories", 2_000)
    assert [Path(path).name for path in left.paths] == [f"s{n:04}" for n in range(2_000, 2_500)]
    (found,) = index.diagnostics
    assert "not looked at: 500" in found.message
    assert "`s2000` to `s2499`" in found.message


@pytest.mark.parametrize(
    "order",
    [
        ("skills/x", "x", "docs/x"),
        (".claude/skills/x", "x", ".cursor/skills/x"),
        (".agents/skills/x", ".claude/skills/x", "packages/a/b/skills/x", "x"),
        ("skills/x", ".claude/skills/x", "plugins/p/skills/x", "a/x", "examples/skills/x"),
        ("plugins/p/skills/x", "plugins/p/docs/skills/x"),
        ("skills/x", "skills/y", "skills/x-backup"),
        ("skills/a/x", "skills/backup/x"),
        ("x", "a/x", "a/b/x", "tests/x"),
        ("skills/testing/x", "backups/skills/x"),
        ("skills/x", "skills.bak/x"),
        ("skills/x", "Docs/skills/x"),
    ],
)
def test_the_usual_place_comes_first(order: tuple[str, ...]) -> None:
    paths = [f"{place}/SKILL.md" for place in order]
    assert sorted(paths, key=lambda path: place_rank(path, "x")) == paths

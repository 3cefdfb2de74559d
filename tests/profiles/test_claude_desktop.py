"""Design 004 under its profile: four kinds of roots, everything kept, lenient reading."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.discovery import default_roots
from skillhouse.floor import AmbiguousSkillError, structs
from skillhouse.house import Locations
from skillhouse.skill import RootRule, ScopeRule, SkillContent, load
from tests.discovery.trees import names, write_skill
from tests.profiles.places import Place, codes, descriptions, place, write

PLUGINS = "home/.claude/plugins/cache/claude-plugins-official"


@pytest.fixture
def desk(tmp_path: Path) -> Place:
    return place(
        tmp_path, "claude-desktop", environment={"CLAUDE_SKILLS_DIR": str(tmp_path / "env")}
    )


def loaded(desk: Place, text: str) -> SkillContent:
    """Return what a SKILL.md of that text in the user's directory `my-skill` loads as."""
    write(desk.home / ".claude" / "skills" / "my-skill" / "SKILL.md", text)
    (skill,) = desk.index().skills
    return load(skill)


@pytest.mark.req("S004-8", "S004-9", "S004-10", "S004-13", "S004-16", "S004-17", "S004-18",
                 "S004-21")  # fmt: skip
def test_user_project_environment_and_plugins_come_one_after_the_other(desk: Place) -> None:
    versions = [f"{PLUGINS}/{at}/skills" for at in ("pdf/1.0", "pdf/2.0", "web/0.1")]
    for at in versions:
        write_skill(desk.base / at / "tool")
    start = desk.work / "app"
    upward = [start, *start.parents]
    project = [("project", os.path.relpath(at / ".claude/skills", desk.base)) for at in upward]
    assert upward[-1] == Path("/")
    assert desk.relative_roots(start) == [
        ("user", "home/.claude/skills"),
        *project,
        ("user", "env"),
        *(("plugin", at) for at in versions),
    ]


@pytest.mark.req("S004-13", "S004-22", "S004-31", "S004-81")
def test_duplicates_are_all_kept_in_the_order_of_the_roots(desk: Place) -> None:
    start = desk.work / "app"
    for at in ("home/.claude/skills", "work/app/.claude/skills", f"{PLUGINS}/pdf/1.0/skills"):
        write_skill(desk.base / at / "pdf")
    index = desk.index(start)
    assert [skill.id for skill in index.skills] == ["user:pdf", "project:pdf", "plugin:pdf"]
    assert (index.shadowed, index.diagnostics) == ((), ())
    assert index.get("plugin:pdf").file.endswith("1.0/skills/pdf/SKILL.md")
    sources = {scope.source or scope.name for scope in desk.profile.scopes}
    assert sources == {"user", "project", "plugin"}


@pytest.mark.req("S004-21")
def test_each_version_of_each_plugin_is_loaded(desk: Place) -> None:
    for at in ("pdf/1.0", "pdf/2.0", "web/0.1"):
        write_skill(desk.base / PLUGINS / at / "skills" / "tool", description=at)
    write_skill(desk.base / PLUGINS / "pdf" / "1.0" / "other" / "no")
    assert descriptions(desk.index()) == ["pdf/1.0", "pdf/2.0", "web/0.1"]


@pytest.mark.req("S004-19", "S004-32")
def test_one_id_from_user_and_environment_is_a_warning_and_is_told_apart_by_file(
    desk: Place,
) -> None:
    first = write_skill(desk.home / ".claude" / "skills" / "pdf", description="First.")
    second = write_skill(desk.base / "env" / "pdf", description="Second.")
    index = desk.index()
    assert [skill.id for skill in index.skills] == ["user:pdf", "user:pdf"]
    (found,) = index.diagnostics
    assert (found.code, found.severity, found.path) == ("duplicate", "warning", second)
    assert str(first) in found.message
    with pytest.raises(AmbiguousSkillError) as caught:
        index.get("user:pdf")
    assert caught.value.candidates == (str(first), str(second))
    assert [index.get(str(file)).description for file in (first, second)] == ["First.", "Second."]


@pytest.mark.req("S004-14", "S004-20", "S004-30")
def test_what_is_missing_is_passed_over(desk: Place) -> None:
    assert desk.index().diagnostics == ()
    unset = structs.replace(desk, environment={})
    assert [scope for scope, _ in unset.relative_roots()].count("user") == 1
    (desk.base / "env" / "no-skill").mkdir(parents=True)
    assert (desk.index().skills, desk.index().diagnostics) == ((), ())


@pytest.mark.req("S004-15")
def test_the_start_is_the_working_directory_of_the_process(
    desk: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.work)
    here = Locations.here()
    assert here.start == desk.work
    roots = default_roots(start=here.start, home=desk.home, environment={}, profile=desk.profile)
    assert roots[1].path == desk.work / ".claude" / "skills"


@pytest.mark.req("S004-1", "S004-4", "S004-25", "S004-27", "S004-28")
def test_a_skill_has_its_fields_its_paths_and_its_instructions(desk: Place) -> None:
    text = (
        "---\nname: my-skill\ndescription: Does one thing.\nallowed-tools: [Read, Write, Bash]\n"
        "---\n\n# My skill\n\nDo it.\n\n"
    )
    content = loaded(desk, text)
    skill = content.skill
    directory = desk.home / ".claude" / "skills" / "my-skill"
    assert (skill.id, skill.description) == ("user:my-skill", "Does one thing.")
    assert (skill.location, skill.directory) == (directory / "SKILL.md", directory)
    assert skill.frontmatter.allowed_tools == ("Read", "Write", "Bash")
    assert desk.index().diagnostics == ()
    assert content.body == "# My skill\n\nDo it."


@pytest.mark.req("S004-5", "S004-6", "S004-7", "S004-23", "S004-24")
@pytest.mark.parametrize(
    "text",
    ["\n# Only text\n\nDo it.  \n", "---\nname: never closed\n", "", "text\n---\nname: x\n---\n"],
)
def test_without_frontmatter_the_whole_file_is_the_body(desk: Place, text: str) -> None:
    content = loaded(desk, text)
    skill = content.skill
    assert (skill.name, skill.description) == ("my-skill", "")
    assert skill.frontmatter.fields == {}
    assert (content.body, content.text) == (text.strip(), text)


@pytest.mark.req("S004-23", "S004-24")
@pytest.mark.parametrize(
    ("head", "name", "description"),
    [
        ("description: Says it.", "my-skill", "Says it."),
        ("name: ''\ndescription: Says it.", "my-skill", "Says it."),
        ("name: other", "other", ""),
        ("name: other\ndescription: ''", "other", ""),
    ],
)
def test_a_missing_name_is_the_directorys_and_a_missing_description_empty(
    desk: Place, head: str, name: str, description: str
) -> None:
    skill = loaded(desk, f"---\n{head}\n---\nBody.\n").skill
    assert (skill.name, skill.description) == (name, description)


@pytest.mark.req("S004-2")
def test_another_name_than_lowercase_digits_and_hyphens_is_a_warning(desk: Place) -> None:
    loaded(desk, "---\nname: My Skill\ndescription: x\n---\n")
    assert codes(desk.index()) == ["name-invalid"]


@pytest.mark.req("S004-88")
def test_a_new_frontmatter_field_gets_through(desk: Place) -> None:
    skill = loaded(desk, "---\nname: my-skill\nmodel: large\nsteps: [a, b]\n---\n").skill
    assert skill.frontmatter.fields["model"] == "large"
    assert skill.frontmatter.fields["steps"] == ["a", "b"]


@pytest.mark.req("S004-87")
def test_a_new_source_is_a_path_and_a_kind_and_leaves_the_others(desk: Place) -> None:
    write_skill(desk.home / ".claude" / "skills" / "pdf")
    write_skill(desk.base / "team" / "csv")
    before = desk.index().skills
    team = ScopeRule(name="team", default_effect="ask", max_depth=1, max_directories=100)
    changed = structs.replace(
        desk.profile,
        scopes=(*desk.profile.scopes, team),
        roots=(*desk.profile.roots, RootRule(scope="team", path=str(desk.base / "team"))),
    )
    index = structs.replace(desk, profile=changed).index()
    assert index.skills[:-1] == before
    assert index.skills[-1].id == "team:csv"


def test_a_linked_skill_directory_is_followed_and_loads(desk: Place) -> None:
    write_skill(desk.base / "shared" / "pdf", body="Shared.\n")
    (desk.home / ".claude" / "skills").mkdir(parents=True)
    (desk.home / ".claude" / "skills" / "pdf").symlink_to(desk.base / "shared" / "pdf")
    index = desk.index()
    assert names(index) == ["pdf"]
    assert load(index.skills[0]).body == "Shared."

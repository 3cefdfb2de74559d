"""Where `skillhouse list` finds skills, under the default and under the profiles of the designs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from skillhouse import SkillContent, discover, load
from skillhouse.house import Locations, Skillhouse, configured
from tests.frontends.conftest import Run
from tests.harness import Need, ran
from tests.house.places import make_places, write_skill
from tests.house.worktrees import repository_at, worktree_of

PLUGINS = ".claude/plugins/cache/claude-plugins-official"


def listed(run: Run, *options: str, below: str = "") -> list[tuple[str, str]]:
    """Return scope and name of the skills that are used, in their order."""
    code, out, _ = run("list", "--json", *options)
    assert code == 0
    return [
        (skill["scope"], skill["name"])
        for skill in json.loads(out)["skills"]
        if skill["location"].startswith(below) and skill["scope"] != "builtin"
    ]


@pytest.mark.req("S001-8", "S001-9", "S001-11")
def test_skills_of_project_user_variable_and_argument_are_listed(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(place / "project/.agents/skills/of-project")
    for at in (".config/skillhouse/skills", ".agents/skills", ".claude/skills"):
        write_skill(place / "home" / at / f"of-{at.split('/')[0].strip('.')}")
    for name in ("argument", "one", "two"):
        write_skill(place / name / f"of-{name}")
    users = [("user", "of-config"), ("user", "of-agents"), ("user", "of-claude")]
    assert listed(run) == users
    run("trust", "--yes")
    project = [("project", "of-project")]
    assert listed(run) == [*project, *users]
    monkeypatch.setenv("SKILLHOUSE_SKILLS_DIR", f"{place}/one{os.pathsep}{place}/two")
    given = [("explicit", "of-argument"), ("explicit", "of-one"), ("explicit", "of-two")]
    assert listed(run) == [*project, *given[1:], *users]
    assert listed(run, "--root", str(place / "argument")) == [*project, *given, *users]


@pytest.mark.slow
@pytest.mark.req("S004-8", "S004-9", "S004-10", "S004-15", "S004-16", "S004-17")
def test_under_claude_desktop_user_walk_and_plugins_are_listed(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = place / "project/app/deep"
    start.mkdir(parents=True)
    write_skill(place / "home/.claude/skills/of-user")
    write_skill(place / "home/.agents/skills/of-another-client")
    # The walk does not end at the git root, which is `project`.
    for at, name in (("project/app/deep", "near"), ("project", "top"), (".", "above")):
        write_skill(place / at / ".claude/skills" / name)
    for at in ("pdf/1.0/skills/of-one", "pdf/2.0/skills/of-two", "pdf/2.0/other/no"):
        write_skill(place / "home" / PLUGINS / at)
    user, plugins = ("user", "of-user"), [("plugin", "of-one"), ("plugin", "of-two")]
    options = ("--profile", "claude-desktop")
    run("trust", "--yes", *options)
    above = [("project", "top"), ("project", "above")]
    assert listed(run, *options, below=str(place)) == [user, *above, *plugins]
    monkeypatch.chdir(start)
    run("trust", "--yes", *options)
    near = ("project", "near")
    assert listed(run, *options, below=str(place)) == [user, near, *above, *plugins]


@pytest.mark.slow
@pytest.mark.req("S004-18")
def test_the_walk_of_claude_desktop_looks_at_the_root_of_the_file_system(
    place: Path, need: Need
) -> None:
    need(shutil.which("bwrap"), "bubblewrap is not installed")
    write_skill(place / "claude/skills/at-the-root")
    # All that is at the root of this machine, and a `.claude` beside it.
    words = ["bwrap", "--unshare-user", "--ro-bind", str(place / "claude"), "/.claude"]
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir() and path.name != ".claude":
            words += ["--dev-bind", str(path), str(path)]
    command = [sys.executable, "-m", "skillhouse", "list", "--json", "--profile", "claude-desktop"]
    done = ran([*words, *command])
    need("bwrap:" not in done.stderr, done.stderr)
    assert done.returncode == 0, done.stderr
    found = [(each["code"], each["path"]) for each in json.loads(done.stdout)["diagnostics"]]
    assert ("project-untrusted", "/.claude/skills") in found


def descriptions(house: Skillhouse, name: str = "weather") -> list[str]:
    return [skill.description for skill in house.view().visible.skills if skill.name == name]


@pytest.mark.slow
@pytest.mark.req("S000-3")
def test_under_owliabot_three_roots_are_read_and_each_can_be_elsewhere(tmp_path: Path) -> None:
    home, work = tmp_path / "home", make_places(tmp_path).start
    write_skill(home / ".owliabot/skills/weather", "Of the user.")
    write_skill(work / "skills/weather", "Of the workspace.")
    write_skill(tmp_path / "owl/skills/weather", "Of the user elsewhere.")
    write_skill(tmp_path / "other/skills/weather", "Of another workspace.")
    with Skillhouse(configured(make_places(tmp_path)), profile="owliabot") as house:
        shipped = {skill.name for skill in house.view().visible.skills if skill.scope == "builtin"}
        assert shipped
        assert "weather" not in shipped
        assert descriptions(house) == ["Of the user."]
        house.project_trust.trust()
        assert descriptions(house) == ["Of the workspace."]
    environment, other = {"OWLIABOT_HOME": str(tmp_path / "owl")}, tmp_path / "other"
    (other / ".git").mkdir()
    for start, of_workspace in ((work, "Of the workspace."), (other, "Of another workspace.")):
        places = Locations(
            start=start, home=home, environment=environment, managed_file=tmp_path / "none.toml"
        )
        with Skillhouse(configured(places), profile="owliabot") as house:
            house.project_trust.revoke()
            assert descriptions(house) == ["Of the user elsewhere."]
            house.project_trust.trust()
            assert descriptions(house) == [of_workspace]
    given = [tmp_path / name for name in ("builtin", "user", "workspace")]
    for root in given:
        write_skill(root / "weather", f"Of the given {root.name}.")
    for count in (1, 2, 3):
        options: dict[str, Any] = {"profile": "owliabot", "roots": given[:count]}
        with Skillhouse(configured(make_places(tmp_path)), **options) as house:
            assert descriptions(house) == [f"Of the given {given[count - 1].name}."]


@pytest.mark.req("S001-2", "S001-47")
def test_the_index_has_name_description_and_location_and_no_content(run: Run, place: Path) -> None:
    directory = write_skill(place / "home/.agents/skills/pdf", "Reads.", "Old words.\n" * 9_000)
    code, out, err = run("list", "--json")
    (skill,) = [each for each in json.loads(out)["skills"] if each["scope"] == "user"]
    assert (code, skill["name"], skill["description"]) == (0, "pdf", "Reads.")
    assert skill["location"] == str(directory / "SKILL.md")
    assert "Old words" not in out + err
    with Skillhouse(configured(make_places(place))) as house:
        (seen,) = [each for each in house.view().visible.skills if each.name == "pdf"]
        assert "Old words" not in repr((seen, seen.packed_fields))
        # What the index does not hold is read when it is loaded, as it is then.
        write_skill(directory, "Reads.", "New words.\n")
        loaded = house.load("pdf")
        assert isinstance(loaded, SkillContent)
        assert loaded.body == "New words.\n"


LEFT_ALONE = """\
---
name: notes
description: Notes: kept as text
single: 'b: c'
double: "d: e"
empty:
folded: >-
  f: g
  h: i
literal: |
  j: k
map:
  l: m
  n: 'o: p'
# comment: q: r
mended: [s] t
---
Body: with: colons.
"""


@pytest.mark.req("S001-27")
def test_a_repair_of_two_lines_leaves_every_other_as_yaml_has_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/SKILL.md").write_text(LEFT_ALONE)
    (skill,) = discover([tmp_path]).skills
    assert dict(skill.frontmatter.fields) == {
        "name": "notes",
        "description": "Notes: kept as text",
        "single": "b: c",
        "double": "d: e",
        "empty": "",
        "folded": "f: g h: i",
        "literal": "j: k\n",
        "map": {"l": "m", "n": "o: p"},
        "mended": "[s] t",
    }
    assert load(skill).body == "Body: with: colons.\n"
    assert (tmp_path / "notes/SKILL.md").read_text() == LEFT_ALONE


@pytest.mark.slow
@pytest.mark.req("S001-61")
def test_a_rule_with_wildcards_hides_the_skills_that_it_matches(run: Run, place: Path) -> None:
    names = ("internal-tool", "internal-", "internal", "my-internal-tool", "cat", "cut", "coat")
    for name in names:
        (place / "home/.agents/skills" / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Does things.\n---\n"
        (place / "home/.agents/skills" / name / "SKILL.md").write_text(text)
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    rule = '[[rules]]\neffect = "deny"\naction = "skill"\npattern = "{}"\n'

    def left(*patterns: str) -> set[str]:
        file.write_text("".join(map(rule.format, patterns)))
        _, out, _ = run("catalog")
        return {name for name in names if f"<name>{name}</name>" in out or f"**{name}**" in out}

    everything = left()
    assert everything == set(names)
    assert everything - left("internal-*") == {"internal-tool", "internal-"}
    assert everything - left("c?t") == {"cat", "cut"}
    assert everything - left("*internal*", "c*t") == set(names)
    assert everything - left("c.t", "[a-z]at", "inter") == set()


@pytest.mark.slow
def test_a_worktree_says_by_which_repository_it_is_trusted(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = repository_at(place / "code")
    worktree = worktree_of(repository, place / "wt")
    monkeypatch.chdir(worktree)
    assert "worktree of" not in "".join(run("trust", "--show")[1:]) + "".join(run("list")[1:])
    run("trust", "--yes", str(repository))
    assert run("trust", "--show")[1].splitlines()[:2] == [
        f"{worktree}: trusted, 1 skill",
        f"trusted as a worktree of the same repository: {repository}",
    ]
    found = json.loads(run("trust", "--show", "--json")[1])
    assert (found["trusted"], found["through"]) == (True, [str(repository)])
    assert f"is trusted as a worktree of the same repository: {repository}" in run("list")[2]
    assert json.loads(run("trust", "--list", "--json")[1])["projects"] == [str(repository)]
    # Of a project with trust of its own there is nothing to say.
    monkeypatch.chdir(repository)
    assert "worktree of" not in "".join(run("trust", "--show")[1:]) + "".join(run("list")[1:])
    monkeypatch.chdir(worktree)
    code, out, err = run("trust", "--revoke")
    assert (code, out) == (0, f"{worktree} no longer trusted\n")
    assert err == f"nor is {repository}, of the same repository\n"
    assert run("trust", "--show")[1].splitlines()[0] == f"{worktree}: not trusted, 1 skill"
    assert run("trust", "--revoke")[0] == 1


def test_a_skill_of_another_worktree_is_that_skill_and_asks_for_no_other_name(
    run: Run, place: Path
) -> None:
    repository = repository_at(place / "code")
    worktree_of(repository, repository / ".claude/worktrees/task")
    # A repository of its own that has a skill of the name is no checkout of this one.
    repository_at(repository / "vendor/other")
    code, out, _ = run("list", "--json", "--root", str(repository))
    found = {one["path"]: one for one in json.loads(out)["absent"]}
    own = found[str(repository / ".claude/worktrees/task/.agents/skills/pdf/SKILL.md")]
    other = found[str(repository / "vendor/other/.agents/skills/pdf/SKILL.md")]
    assert code == 0
    assert "is of another checkout" in own["reason"]
    assert "rename" not in own["mend"]
    assert "rename" in other["mend"]


def test_a_skill_inside_another_is_named_by_the_path_that_was_given(run: Run, place: Path) -> None:
    write_skill(place / "project/skills/outer")
    write_skill(place / "project/skills/outer/examples/inner")
    code, out, _ = run("validate", "skills")
    assert code == 0
    assert out.startswith("skills/outer/examples/inner/SKILL.md: info: ")

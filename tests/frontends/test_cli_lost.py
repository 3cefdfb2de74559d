"""What agents do not see is named everywhere: by `list`, `show`, `load` and `search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillhouse.answers.json_form import plain
from skillhouse.clients import known_clients, user_folders, variable_folders
from skillhouse.floor import UnusableSkillError
from skillhouse.house import Skillhouse, configured
from skillhouse.presentation import operations
from skillhouse.skill import load_profile, profile_names
from tests.frontends.conftest import Run
from tests.house.places import make_places, readers_of, write_skill


def answer(house: Skillhouse, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plain(operations.answer(house, operation, arguments))
    return found


@pytest.fixture
def crowd(place: Path, run: Run) -> Path:
    """A home with one skill of each state; the project is not trusted."""
    skills = place / "home/.claude/skills"
    for name in ("pdf", "off", "secret", "docs/pdf", "pdf/inner"):
        write_skill(skills / name, description=f"At {name}.")
    write_skill(place / "project/.agents/skills/mine")
    for name, text in (
        ("bad", "---\nname: bad\ndescription: x\nmetadata:\n  a: b: c\n---\n"),
        ("empty", ""),
    ):
        (skills / name).mkdir()
        (skills / name / "SKILL.md").write_text(text)
    (skills / "lower").mkdir()
    (skills / "lower/skill.md").write_text("---\nname: lower\ndescription: x\n---\n")
    write_skill(skills / "a/b/c/d/e/f/deep")
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[[rules]]\neffect = "deny"\naction = "skill"\npattern = "secret"\n')
    assert run("disable", "off")[0] == 0
    return skills


WHY = [
    ("bad", "SKILL.md:5", "a colon with a space inside a value without quotes: `a: b: c`"),
    ("empty", "SKILL.md:1", "add `description:`, what it does and when to use it"),
    ("lower", "lower", "rename the file to `SKILL.md`"),
    ("mine", "mine/SKILL.md", "`skillhouse trust`"),
    ("inner", "pdf/inner/SKILL.md", "inside the skill `pdf`"),
    ("deep", "a/b/c/d/e/f/deep", "deeper than 6 directories"),
]


@pytest.mark.parametrize(("name", "place_said", "said"), WHY)
@pytest.mark.parametrize("verb", ["show", "load", "files"])
def test_a_skill_that_is_not_found_is_explained(
    run: Run, crowd: Path, verb: str, name: str, place_said: str, said: str
) -> None:
    code, out, err = run(verb, name)
    text = " ".join((out + err).split()) if verb == "show" else err
    assert code == 1
    assert said in text.replace("\n", " ")
    assert place_said in text
    assert "no skill" not in text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "place_said", "said"), WHY)
@pytest.mark.parametrize("line", ["enable", "disable", "delete --yes", "invoke", "show --open"])
def test_every_verb_that_takes_a_skill_explains_it_alike(
    run: Run, crowd: Path, line: str, name: str, place_said: str, said: str
) -> None:
    code, out, err = run(*line.split(), name)
    if (line, name) == ("delete --yes", "mine"):
        # A person who names it may delete a skill of a project that is not trusted.
        assert (code, "deleted project:mine" in out) == (0, True)
        return
    # The result of `invoke` is a call's, on stdout.
    assert (code, "no skill" in out + err) == (1, False)
    assert said in (out + err).replace("\n", " ")
    assert place_said in out + err


@pytest.mark.slow
def test_the_library_and_the_operations_explain_it_alike(place: Path, crowd: Path) -> None:
    house = Skillhouse(configured(make_places(place)))
    with pytest.raises(UnusableSkillError) as loaded:
        house.load("bad")
    with pytest.raises(UnusableSkillError) as switched:
        house.management.set_enabled("bad", enabled=False)
    said = str(loaded.value)
    assert said.startswith("skill `bad` cannot be used: `metadata`: a colon with a space")
    operation = answer(house, "SKILLS_DELETE", {"skillId": "bad"})
    started = house.view().menu.refusal("bad")
    assert [str(switched.value), operation["error"], started] == [said] * 3
    # To a model it stays a skill that is not there.
    result = house.call_sync("skill", {"name": "mine"})
    assert result.is_error
    assert "trust" not in result.content


@pytest.mark.parametrize(("name", "place_said", "said"), WHY)
def test_show_says_it_as_json_too(
    run: Run, crowd: Path, name: str, place_said: str, said: str
) -> None:
    code, out, _ = run("show", name, "--json")
    value = json.loads(out)
    assert code == 1
    assert place_said.partition(":")[0] in value["location"]
    assert said in f"{value['reason']}; {value['mend']}"


def test_what_nobody_has_is_unknown_and_says_what_was_not_read(run: Run, crowd: Path) -> None:
    for verb in ("show", "load"):
        code, _, err = run(verb, "nothing")
        assert code == 1
        assert err.startswith("skillhouse: no skill `nothing`")
        assert "`skillhouse trust`" in err
        assert "`skillhouse list --problem left-out`" in err


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("pdf", "in-use", "agents see it"),
        ("off", "disabled", "`skillhouse enable user:off`"),
        ("secret", "denied", "rule `skill secret` of user policy"),
        ("user:pdf@docs/pdf", "shadowed", "`user:pdf`"),
    ],
)
def test_show_says_in_which_state_a_skill_is(
    run: Run, crowd: Path, name: str, state: str, said: str
) -> None:
    code, out, _ = run("show", name, "--json")
    value = json.loads(out)
    assert (code, value["state"]) == (0, state)
    assert said in value["state_reason"]


@pytest.mark.slow
def test_a_skill_is_found_by_its_path(
    run: Run, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(crowd.parent)
    for reference in ("./skills/docs/pdf", "skills/docs/pdf/SKILL.md", str(crowd / "docs/pdf")):
        assert json.loads(run("load", reference, "--json")[1])["id"] == "user:pdf@docs/pdf"
    monkeypatch.chdir(crowd / "pdf")
    assert json.loads(run("load", ".", "--json")[1])["id"] == "user:pdf"
    elsewhere = crowd.parent.parent / "elsewhere/odd"
    write_skill(elsewhere)
    code, _, err = run("load", str(elsewhere))
    assert code == 1
    assert f"name it with `--root {elsewhere}`" in err
    assert json.loads(run("load", "odd", "--root", str(elsewhere), "--json")[1])["name"] == "odd"


def test_list_names_everything_that_is_not_used(run: Run, crowd: Path) -> None:
    out = run("list")[1]
    headings = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert headings == [
        f"user  ~/.claude/skills (also read by {readers_of('~/.claude/skills')})",
        "builtin",
        "cannot be used: 3",
        "disabled: 1",
        "denied by rules: 1",
        "shadowed by another skill of the name: 1",
        "not looked at: 1",
        "4 skills, 1 denied by rules, 1 disabled, 1 shadowed",
    ]
    assert "  bad  ~/.claude/skills/bad/SKILL.md:5" in out
    assert "put the value in quotes" in out


@pytest.mark.slow
def test_list_as_json_has_the_states_and_the_bounds(run: Run, crowd: Path) -> None:
    value = json.loads(run("list", "--json")[1])
    assert [(one["state"], one["name"]) for one in value["absent"]] == [
        ("broken", "lower"),
        ("broken", "bad"),
        ("broken", "empty"),
        ("disabled", "off"),
        ("denied", "secret"),
        ("shadowed", "pdf"),
        ("untrusted", ""),
        ("left-out", ""),
    ]
    (left,) = value["left_out"]
    assert left["bound"] == "depth"
    assert [Path(path).name for path in left["paths"]] == ["deep"]
    assert value["total"] == 4
    assert value["skills"][0]["root"] == str(crowd)
    broken = json.loads(run("list", "--problem", "broken", "--json")[1])["absent"]
    assert [(one["name"], one["line"], bool(one["mend"])) for one in broken] == [
        ("lower", None, True),
        ("bad", 5, True),
        ("empty", 1, True),
    ]


@pytest.mark.slow
def test_list_is_filtered_sorted_and_paged(run: Run, crowd: Path) -> None:
    def names(*arguments: str) -> list[str]:
        return [one["name"] for one in json.loads(run("list", "--json", *arguments)[1])["skills"]]

    assert names("--scope", "user") == ["pdf"]
    assert names("github") == ["github"]
    assert names("GITHUB", "issues") == ["github"]
    assert names("--client", "claude-code") == ["pdf"]
    assert names("--client", "codex") == []
    assert names("--sort", "name") == ["github", "pdf", "weather", "web-search"]
    assert names("--limit", "3") == ["pdf", "github", "weather"]
    assert names("--limit", "3", "--page", "2") == ["web-search"]
    assert names("--limit", "3", "--page", "9") == ["web-search"]
    assert run("list", "--scope", "nowhere")[0] == 2
    assert run("list", "--client", "codexx")[0] == 2


@pytest.mark.slow
def test_a_problem_is_listed_by_its_kind_or_code(run: Run, crowd: Path) -> None:
    code, out, err = run("list", "--problem", "shadowed")
    assert (code, err) == (1, "1 problem\n")
    assert "user:pdf@docs/pdf" in out
    assert "bad" not in out
    code, out, _ = run("list", "--problem", "yaml-error")
    assert code == 1
    assert "bad/SKILL.md:5" in out
    assert run("list", "--problem", "below-a-skill")[0] == 0
    assert run("list", "--problem", "name-invalid")[:2] == (0, "")
    assert "below-a-skill" in run("list", "--findings")[1]


@pytest.mark.slow
def test_search_marks_what_is_shadowed(run: Run, crowd: Path) -> None:
    code, out, _ = run("search", "pdf")
    used, shadowed = out.split("shadowed, so agents do not see them\n")
    assert code == 0
    assert "user:pdf@docs/pdf" not in used
    assert "user:pdf@docs/pdf  by user:pdf: At docs/pdf." in shadowed
    found = json.loads(run("search", "pdf", "--json")[1])["hits"]
    assert [one.get("shadowed_by") for one in found if one["name"] == "pdf"] == [None, "user:pdf"]


def test_code_without_a_text_is_listed_where_code_is_off(run: Run, place: Path) -> None:
    skill = place / "home/.agents/skills/dex"
    skill.mkdir(parents=True)
    tool = {
        "name": "swap",
        "description": "Swaps.",
        "parameters": {"type": "object", "properties": {}},
        "security": {"level": "read"},
    }
    manifest = {"name": "dex", "version": "1.0.0", "main": "index.js", "description": "Swaps."}
    (skill / "package.json").write_text(json.dumps({**manifest, "owliabot": {"tools": [tool]}}))
    (skill / "index.js").write_text("")
    assert "dex  JavaScript: swap (read); off" in run("list")[1]
    assert "`skillhouse show dex` shows them" in run("load", "dex")[2]
    assert run("show", "dex")[0] == 0


@pytest.mark.slow
def test_the_table_has_the_folders_of_the_profiles() -> None:
    """Those that end in a hidden folder, or are of no scope of a person, come with a client."""
    for profile in (load_profile(name) for name in profile_names()):
        if not profile.client:
            continue
        one = known_clients()[profile.name]
        read = {(rule.scope, rule.path) for rule in profile.roots}
        expected = {(scope, path) for scope, path in read if scope in ("user", "project")}
        written = {("project", path) for path in one.project} | {
            ("user", path) for path in one.user
        }
        assert written == expected, profile.name
        assert (one.links, one.programs, one.traces) == (profile.symlinks, (), ())
        assert one.read_on == (profile.checked or profile.read_on)


def test_a_variable_of_a_client_leads_to_its_folder() -> None:
    assert user_folders()[".codex/skills"] == ("codex", "cursor")
    assert ("codex", "CODEX_HOME", ".codex", "skills") in variable_folders()
    assert ("copilot-cli", "COPILOT_SKILLS_DIRS", "", "") in variable_folders()
    assert ("opencode-cli", "OPENCODE_CONFIG_DIR", "", "skills") in variable_folders()

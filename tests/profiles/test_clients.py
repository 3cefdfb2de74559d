"""The profiles of real clients, held against what the programs themselves listed."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from skillhouse.clients import ClientReport, LensState, ReportedSkill, Verdict, compare
from skillhouse.skill import CAUSES, Profile, load_profile, profile_names
from tests.profiles.probes import START, build

MEASURED: dict[str, Any] = json.loads(Path(__file__).with_name("measured.json").read_text())
"""What each client listed for its model in the tree of `probes`."""
CLIENTS = sorted(MEASURED)
NOT_RUN = [name for name in profile_names() if load_profile(name).read_on]
"""Clients whose profile is from their public source."""
LISTED_BY_SOURCE = {
    "aider-desk": {"good", "Other"},
    "roo": {"good"},
    "cline": {"good"},
    "crush": {"good", "inner"},
    "deepagents": {"good", "Other"},
    "forgecode": {"good", "Other", "nameless", "bare"},
    "goose": {"good", "Other", "inner", "bare"},
    "kilo": {"good", "Other", "inner"},
    "kimi-code-cli": {"good", "Other"},
    "mistral-vibe": {"good"},
    "openhands": {"good", "nameless", "bare"},
    "pi": {"good", "Other", "nameless"},
    "pochi": {"good", "Other"},
    "qwen-code": {"good", "Other"},
    "zed": {"good"},
    "copilot-vscode": {"good", "other", "nameless", "bare"},
}
"""What each of them lists of the five skills below, by its source."""


def seen_in(base: Path, name: str) -> ClientReport:
    build(base)
    if name == "copilot-cli":
        # In a root it hides all below it, which the profile says that it does not cover.
        for root in (".agents/skills", ".claude/skills"):
            (base / START / root / "SKILL.md").unlink()
    profile = load_profile(name)
    return compare(
        start=base / START, home=base / "home", environment={}, profiles=[profile], trusted=False
    )


def rows(lens: ClientReport) -> list[tuple[ReportedSkill, Verdict]]:
    return [(skill, skill.verdicts[0]) for skill in lens.skills]


@pytest.mark.parametrize("name", CLIENTS)
def test_the_lens_lists_exactly_what_the_client_listed(name: str, tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    lens = seen_in(base, name)
    wanted = Counter(
        (called, os.path.relpath(os.path.realpath(base / path), base) if path else "")
        for called, path in MEASURED[name]["listed"]
    )
    found = Counter(
        (verdict.name, os.path.relpath(skill.file, base))
        for skill, verdict in rows(lens)
        if verdict.state is LensState.SEEN
    )
    # Claude Code's list has no paths: a skill without its own description is told by its name.
    for called, path in [key for key in wanted if not key[1]]:
        matching = [key for key in found if key[0] == called]
        assert len(matching) == 1, (called, path)
        wanted[matching[0]] += wanted.pop((called, path))
    if load_profile(name).duplicates_vary:
        for counts in (wanted, found):
            for key in [key for key in counts if key[0] == "twice"]:
                del counts[key]
    assert found == wanted


@pytest.mark.parametrize("name", CLIENTS)
def test_every_file_that_is_not_listed_has_a_reason(name: str, tmp_path: Path) -> None:
    for skill, verdict in rows(seen_in(Path(os.path.realpath(tmp_path)), name)):
        if verdict.state in (LensState.DROPPED, LensState.UNSEEN):
            assert verdict.code == "no-root" or verdict.code in CAUSES, skill.file


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_names_its_version_its_day_and_its_facts(name: str) -> None:
    profile = load_profile(name)
    assert (profile.client, profile.checked) == (MEASURED[name]["client"], MEASURED[name]["day"])
    assert date.fromisoformat(profile.checked).isoformat() == profile.checked
    assert re.search(r"\d+\.\d+\.\d+$", profile.client)
    assert all(": " in fact and len(fact) <= 96 for fact in profile.facts)
    assert any(fact.startswith("Not covered: ") for fact in profile.facts)


def test_designs_are_no_clients() -> None:
    known = [load_profile(name) for name in profile_names()]
    assert [one.name for one in known if one.client and one.checked] == CLIENTS
    # A client was run, or its source was read; a design was neither.
    assert [one.name for one in known if one.client] == sorted({*CLIENTS, *NOT_RUN})
    assert not {*CLIENTS} & {*NOT_RUN}


@pytest.mark.parametrize("name", NOT_RUN)
def test_a_client_that_was_not_run_names_its_source_and_what_it_does_not_say(name: str) -> None:
    profile = load_profile(name)
    assert not profile.checked
    assert profile.unknown
    assert any(fact.startswith("Source: https://github.com/") for fact in profile.facts)
    assert any(fact.startswith("Not covered: ") for fact in profile.facts)


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_their_sources_say_is_what_the_lens_says(name: str, tmp_path: Path) -> None:
    texts = {
        "good": "---\nname: good\ndescription: Does.\n---\n",
        "other": "---\nname: Other\ndescription: Does.\n---\n",
        "nameless": "---\ndescription: Does.\n---\n",
        "bare": "---\nname: bare\n---\n",
        "good/inner": "---\nname: inner\ndescription: Does.\n---\n",
    }
    home, project = tmp_path / "home", tmp_path / "project"
    own = {
        "aider-desk": "~/.aider-desk",
        "roo": "~/.roo",
        "cline": "~/.cline",
        "forgecode": "~/.forge",
    }
    root = own.get(name, ".agents")
    base = home / root[2:] if root[0] == "~" else project / root
    for place, text in texts.items():
        (base / "skills" / place).mkdir(parents=True, exist_ok=True)
        (base / "skills" / place / "SKILL.md").write_text(text)
    project.mkdir(exist_ok=True)
    profiles = [load_profile(name)]
    lens = compare(start=project, home=home, environment={}, profiles=profiles)
    seen = {one.verdicts[0].name for one in lens.skills if one.verdicts[0].state is LensState.SEEN}
    assert seen == LISTED_BY_SOURCE[name]


@pytest.mark.slow
def test_of_copies_each_client_takes_the_one_that_it_took(tmp_path: Path) -> None:
    """Claude Code: personal first (its Skill tool said so); Gemini CLI: workspace `.agents`."""
    taken = {}
    for name in ("claude-code", "gemini-cli"):
        base = Path(os.path.realpath(tmp_path)) / name
        base.mkdir()
        for skill, verdict in rows(seen_in(base, name)):
            if verdict.name == "twice" and verdict.state is LensState.SEEN:
                taken[name] = os.path.relpath(skill.file, base)
    assert taken == {
        "claude-code": "home/.claude/skills/twice/SKILL.md",
        "gemini-cli": f"{START}/.agents/skills/twice/SKILL.md",
    }


@pytest.mark.parametrize(
    ("name", "variable", "place"),
    [
        ("claude-code", "CLAUDE_CONFIG_DIR", "skills"),
        ("codex", "CODEX_HOME", "skills"),
        ("opencode-cli", "XDG_CONFIG_HOME", "opencode/skills"),
        ("opencode-cli", "OPENCODE_CONFIG_DIR", "skills"),
    ],
)
def test_a_variable_moves_the_users_directory(
    name: str, variable: str, place: str, tmp_path: Path
) -> None:
    """Measured with each program."""
    skill = tmp_path / "moved" / place / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Reads.\n---\n")
    lens = compare(
        start=tmp_path,
        home=tmp_path / "home",
        environment={variable: str(tmp_path / "moved")},
        profiles=[load_profile(name)],
    )
    assert [(row.name, verdict.state) for row, verdict in rows(lens)] == [("pdf", LensState.SEEN)]


def sixty(base: Path, name: str, count: int, characters: int) -> tuple[Profile, ClientReport]:
    """Build the project with which the budgets were measured: `count` skills like each other."""
    (base / ".git").mkdir()
    for number in range(count):
        for root in (".claude/skills", ".agents/skills"):
            directory = base / root / f"sk-{number:04}"
            directory.mkdir(parents=True)
            description = f"MARK[{number:04}] {'y' * (characters - 14)} E{number:04}"
            text = f"---\nname: sk-{number:04}\ndescription: {description}\n---\n"
            (directory / "SKILL.md").write_text(text)
    profile = load_profile(name)
    home = base / "home"
    return profile, compare(start=base, home=home, environment={}, profiles=[profile])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "characters", "described"), [(60, 300, 60), (150, 300, 73), (400, 300, 65)]
)
def test_claude_code_drops_as_many_descriptions_as_it_did(
    count: int, characters: int, described: int, tmp_path: Path
) -> None:
    """Measured with 2.1.330: of so many skills it described so many."""
    _, lens = sixty(tmp_path, "claude-code", count, characters)
    budget = lens.clients[0].budget
    assert budget is not None
    assert (budget.without_description, budget.omitted) == (count - described, 0)


@pytest.mark.slow
def test_codex_shortens_as_it_did(tmp_path: Path) -> None:
    """Measured with 0.169.0: 60 of 300 characters nearly fit, of 400 a few characters stayed."""
    _, lens = sixty(tmp_path, "codex", 400, 300)
    budget = lens.clients[0].budget
    assert budget is not None
    assert (budget.shortened, budget.without_description, budget.omitted) == (400, 0, 0)


@pytest.mark.slow
def test_codex_leaves_out_as_many_as_it_did(tmp_path: Path) -> None:
    """Measured with 0.169.0: of 500 such skills it listed 449, and said that 51 were left out."""
    for number in range(500):
        root = ("project", "home")[number % 2]
        directory = tmp_path / root / f".agents/skills/skill-{number:04}"
        directory.mkdir(parents=True)
        text = f"---\nname: skill-{number:04}\ndescription: {'Useful. ' * 29}\n---\n"
        (directory / "SKILL.md").write_text(text)
    lens = compare(
        start=tmp_path / "project",
        home=tmp_path / "home",
        environment={},
        profiles=[load_profile("codex")],
    )
    budget = lens.clients[0].budget
    assert budget is not None
    assert (budget.without_description, budget.omitted) == (449, 51)


@pytest.mark.parametrize(("name", "most"), [("claude-code", 1_536), ("codex", 1_024)])
def test_a_long_description_is_cut_where_it_was_cut(name: str, most: int, tmp_path: Path) -> None:
    profile, lens = sixty(tmp_path, name, 1, most + 1)
    assert profile.catalog.description_chars == most
    assert [verdict.cut.value for _, verdict in rows(lens) if verdict.name] == ["shortened"]


ORDER = {
    "copilot-cli": [
        "project/sub/.github", "project/.github", "project/sub/.agents", "project/.agents",
        "project/sub/.claude", "project/.claude", "home/.copilot", "home/.agents",
    ],
    "amp": [
        "home/.config/agents", "home/.agents", "home/.config/amp", "project/sub/.agents",
        "project/.agents", ".agents", "project/sub/.claude", "project/.claude", ".claude",
        "home/.claude",
    ],
}  # fmt: skip
"""The folders with a skill of one name from which each program took it, one removed after the
other: Copilot CLI 1.0.102 and Amp 0.0.1790142911 on 2026-11-23."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ORDER))
def test_of_one_name_the_folders_are_taken_in_the_programs_order(name: str, tmp_path: Path) -> None:
    base = Path(os.path.realpath(tmp_path))
    (base / "project/.git").mkdir(parents=True)
    for above in ("project/sub", "project", "", "home"):
        for below in (".github", ".agents", ".claude", ".copilot", ".config/agents", ".config/amp"):
            skill = base / above / below / "skills/dup"
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text("---\nname: dup\ndescription: Does.\n---\n")
    taken = []
    while True:
        lens = compare(
            start=base / START, home=base / "home", environment={}, profiles=[load_profile(name)]
        )
        seen = [row.file for row, verdict in rows(lens) if verdict.state is LensState.SEEN]
        if not seen:
            break
        taken.append(os.path.relpath(os.path.dirname(seen[0]), base).removesuffix("/skills/dup"))
        os.remove(seen[0])
    assert taken == ORDER[name]

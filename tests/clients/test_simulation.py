"""Tests of the lens: what each client makes of a place, why, and what would change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.clients import ClientReport, Cut, LensState, ReportedProblem, compare, problems
from skillhouse.clients.client_view import UnboundedEntry, fit
from skillhouse.floor.structs import replace
from skillhouse.skill import CatalogRule, Profile, load_profile
from tests.house.coded import write_code
from tests.house.places import write_skill

FOUR = ("claude-code", "codex", "gemini-cli", "opencode-cli")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    return tmp_path


def see(base: Path, *names: str | Profile, start: str = "project", **options: Any) -> ClientReport:
    return compare(
        start=base / start,
        home=base / "home",
        environment={},
        profiles=[load_profile(name) for name in names or FOUR],
        **options,
    )


def states(lens: ClientReport) -> dict[str, str]:
    """Return the first letters of the states of each file, by its short path."""
    return {
        lens.short(skill.directory): " ".join(verdict.state.value for verdict in skill.verdicts)
        for skill in lens.skills
    }


def problem(lens: ClientReport, code: str) -> ReportedProblem:
    found = [found for found in problems(lens) if found.code == code]
    assert len(found) == 1, [found.code for found in problems(lens)]
    return found[0]


def test_each_folder_is_seen_by_those_who_read_it(base: Path) -> None:
    for place in (".agents", ".claude", ".codex", ".gemini", ".opencode", ".cursor"):
        write_skill(base / f"project/{place}/skills/in{place.replace('.', '-')}")
    assert states(see(base)) == {
        ".agents/skills/in-agents": "unseen seen seen seen",
        ".claude/skills/in-claude": "seen unseen unseen seen",
        ".codex/skills/in-codex": "unseen seen unseen unseen",
        ".cursor/skills/in-cursor": "unseen unseen unseen unseen",
        ".gemini/skills/in-gemini": "unseen unseen seen unseen",
        ".opencode/skills/in-opencode": "unseen unseen unseen seen",
    }


def test_a_linked_skill_is_one_skill_that_both_see(base: Path) -> None:
    write_skill(base / "project/.agents/skills/pdf")
    (base / "project/.claude/skills").mkdir(parents=True)
    (base / "project/.claude/skills/pdf").symlink_to("../../.agents/skills/pdf")
    lens = see(base)
    assert states(lens) == {".agents/skills/pdf": "seen seen seen seen"}
    assert problems(lens) == ()


def test_a_linked_root_is_one_root(base: Path) -> None:
    write_skill(base / "home/.agents/skills/pdf")
    (base / "home/.claude").mkdir()
    (base / "home/.claude/skills").symlink_to("../.agents/skills")
    lens = see(base)
    assert [[verdict.state for verdict in skill.verdicts] for skill in lens.skills] == [
        [LensState.SEEN] * 4
    ]
    assert problems(lens) == ()


def test_a_home_behind_a_link_is_still_called_by_its_tilde(base: Path) -> None:
    write_skill(base / "home/.agents/skills/pdf")
    (base / "alias").symlink_to("home")
    lens = compare(
        start=base / "project",
        home=base / "alias",
        environment={},
        profiles=[load_profile("codex")],
    )
    assert list(states(lens)) == ["~/.agents/skills/pdf"]


def test_copies_name_the_one_that_each_client_takes(base: Path) -> None:
    write_skill(base / "home/.claude/skills/pdf", "One.")
    write_skill(base / "project/.claude/skills/pdf", "Two.")
    write_skill(base / "project/.agents/skills/pdf", "Three.")
    found = problem(see(base), "duplicate")
    assert (
        found.title == "`pdf` exists 3 times; opencode-cli may pick another one at the next start"
    )
    assert found.skills == (
        ".agents/skills/pdf: used by codex, gemini-cli, opencode-cli?",
        ".claude/skills/pdf: used by no client",
        "~/.claude/skills/pdf: used by claude-code",
    )
    assert found.effect == "they are not equal"


def test_equal_copies_are_said_to_be_equal(base: Path) -> None:
    for place in ("home/.agents/skills/pdf", "project/.agents/skills/pdf"):
        write_skill(base / place)
    assert problem(see(base, "codex"), "duplicate").effect == "all are equal"


def test_a_refused_winner_gives_way_to_the_next(base: Path) -> None:
    """Gemini CLI drops the file with the mark, so that the personal one is in force."""
    file = write_skill(base / "project/.agents/skills/pdf") / "SKILL.md"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    write_skill(base / "home/.gemini/skills/pdf")
    assert states(see(base, "gemini-cli")) == {
        ".agents/skills/pdf": "dropped",
        "~/.gemini/skills/pdf": "seen",
    }


@pytest.mark.parametrize(
    ("code", "line", "text", "expected"),
    [
        ("bom", 1, b"\xef\xbb\xbf---\nname: pdf\ndescription: x\n---\n", "+xx+"),
        ("frontmatter-missing", 1, b"\n---\nname: pdf\ndescription: x\n---\n", "+xxx"),
        ("frontmatter-unclosed", 1, b"---\nname: pdf\ndescription: x\n", "+xx+"),
        ("one-line-block", 3, b"---\nname: pdf\ndescription: > x\n---\n", "+x+x"),
        ("fence-blanks", 1, b"---  \nname: pdf\ndescription: x\n---\n", "++x+"),
        ("description-missing", 1, b"---\nname: pdf\n---\n", "+xxx"),
        ("name-missing", 1, b"---\ndescription: x\n---\n", "++xx"),
        ("not-text", 3, b"---\nname: pdf\ndescription: 1\n---\n", "+++x"),
        ("yaml-duplicate-key", 3, b"---\nname: pdf\nname: pdf\ndescription: x\n---\n", "+x+x"),
        ("encoding", 1, "---\nname: pdf\n---\n".encode("utf-16"), "+xxx"),
    ],
    ids=lambda value: value if isinstance(value, str) and value[0] != "+" else "",
)
def test_a_fault_costs_the_skill_where_it_costs_it(
    code: str, line: int, text: bytes, expected: str, base: Path
) -> None:
    for place in (".agents", ".claude"):
        write_skill(base / f"project/{place}/skills/pdf")
        (base / f"project/{place}/skills/pdf/SKILL.md").write_bytes(text)
    lens = see(base)
    rows = states(lens)
    agents, claude = rows[".agents/skills/pdf"].split(), rows[".claude/skills/pdf"].split()
    # Of two files that are equally wrong opencode takes one; which one is not to be asked here.
    other = "dropped" if "dropped" in (agents[3], claude[3]) else "seen"
    found = [claude[0], *agents[1:3], other]
    assert "".join({"seen": "+", "dropped": "x"}[state] for state in found) == expected
    told = problem(lens, code)
    assert all(skill.split(" ")[0].endswith(f"SKILL.md:{line}") for skill in told.skills)
    assert told.fix


@pytest.mark.parametrize(
    ("text", "state"),
    [
        # Its YAML gives no two texts, so Gemini CLI reads line by line (its skillLoader.ts).
        ("---\nname: pdf\ndescription:\n---\n", "seen"),
        ("---\nname: pdf\ndescription:   \nlicense: MIT\n---\n", "seen"),
        ("---\nname:\ndescription: x\n---\n", "seen"),
        ("---\nname: \ndescription: \n---\n", "seen"),
        ("---\nname:pdf\ndescription:x\n---\n", "seen"),
        ("---\nname: pdf\ndescription:x\n---\n", "seen"),
        ("---\r\nname: pdf\r\ndescription:\r\n---\r\n", "seen"),
        # Without both lines there is nothing to read.
        ("---\ndescription:x\n---\n", "dropped"),
        ("---\ndescription:\n---\n", "dropped"),
        ("---\nname:pdf\n---\n", "dropped"),
        ("---\nname:\n---\n", "dropped"),
        ("---\nname: pdf\n---\ndescription:\n", "dropped"),
    ],
)
@pytest.mark.parametrize("file", ["pdf/SKILL.md", "SKILL.md"])
def test_gemini_takes_fields_that_are_blank_or_have_no_blank_before_them(
    text: str, state: str, file: str, base: Path
) -> None:
    path = base / "project/.agents/skills" / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    (skill,) = [s for s in see(base, "gemini-cli").skills if s.verdicts[0].code != "no-root"]
    assert skill.verdicts[0].state.value == state
    assert skill.verdicts[0].code


def test_what_gemini_takes_of_blank_fields_others_do_not(base: Path) -> None:
    path = base / "project/.agents/skills/pdf/SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname:pdf\ndescription:x\n---\n")
    assert states(see(base, "codex", "gemini-cli", "opencode-cli")) == {
        ".agents/skills/pdf": "dropped seen dropped"
    }


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (".agents/skills/pdf/skill.md", "wrong-case"),
        (".agents/skills/pdf/README.md", "no-skill-file"),
        (".agents/skills/group/.x/README.md", "no-skill-file"),
    ],
)
def test_what_only_looks_like_a_skill_is_a_near_miss(base: Path, file: str, code: str) -> None:
    path = base / "project" / file
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: pdf\ndescription: x\n---\n")
    assert problem(see(base), code).clients == FOUR


def test_a_skill_of_code_alone_is_no_near_miss(base: Path) -> None:
    write_code(base / "project/.agents/skills/prices", "tools = {}\n")
    assert [one.code for one in problems(see(base)) if one.code == "no-skill-file"] == []


@pytest.mark.parametrize(
    ("place", "client", "code"),
    [
        (".claude/skills/group/pdf", "claude-code", "too-deep"),
        (".agents/skills/a/b/c/d/e/f/pdf", "codex", "too-deep"),
        (".agents/skills/.hidden", "codex", "hidden-directory"),
        (".agents/skills/node_modules/pdf", "gemini-cli", "skipped-directory"),
        (".agents/skills/outer/pdf", "default", "inside-a-skill"),
        (".claude/skills", "claude-code", "root-file"),
    ],
)
def test_a_file_in_an_odd_place_is_said_to_be_there(
    base: Path, place: str, client: str, code: str
) -> None:
    write_skill(base / "project/.agents/skills/outer")
    write_skill(base / "project" / place)
    lens = see(base, client)
    verdict = next(row.verdicts[0] for row in lens.skills if lens.short(row.directory) == place)
    assert (verdict.state, verdict.code) == (LensState.UNSEEN, code)


@pytest.mark.parametrize("start", ["project", "project/deep/er"])
def test_who_looks_only_where_it_is_started_is_told_to_start_there(base: Path, start: str) -> None:
    write_skill(base / "project/.agents/skills/pdf")
    (base / start).mkdir(parents=True, exist_ok=True)
    lens = see(base, "gemini-cli", start=start)
    if start == "project":
        assert problems(lens) == ()
    else:
        assert problem(lens, "no-root").fix == (
            f"gemini-cli reads only its start folder: start it in {base / 'project'}"
        )


def test_one_move_serves_the_most_clients(base: Path) -> None:
    write_skill(base / "home/.codex/skills/lint")
    found = problem(see(base), "no-root")
    assert found.skills == (
        "~/.codex/skills: not read by claude-code, gemini-cli and opencode-cli (lint)",
    )
    assert found.fix == (
        "have each in `~/.agents/skills/NAME`: then codex, gemini-cli and opencode-cli see it; "
        "for claude-code: ln -s ../../.agents/skills/NAME ~/.claude/skills/NAME"
    )


def test_what_came_with_a_client_is_nobody_elses(base: Path) -> None:
    write_skill(base / "home/.codex/skills/.system/imagegen")
    write_skill(base / "home/.gemini/extensions/maps/skills/route")
    assert problems(see(base)) == ()


def test_our_own_eye_waits_for_trust_and_others_do_not(base: Path) -> None:
    write_skill(base / "project/.agents/skills/pdf")
    lens = see(base, "codex", "default", trusted=False)
    assert states(lens) == {".agents/skills/pdf": "seen untrusted"}
    assert problem(lens, "project-untrusted").clients == ("default",)
    # Where nobody may read, not even directories are listed.
    assert see(base, "default", trusted=False).skills == ()
    assert states(see(base, "default")) == {".agents/skills/pdf": "seen"}


def test_a_skill_for_people_only_is_no_problem(base: Path) -> None:
    file = base / "home/.claude/skills/ship/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\ndescription: Ships.\ndisable-model-invocation: true\n---\n")
    lens = see(base, "claude-code")
    assert states(lens) == {"~/.claude/skills/ship": "manual"}
    assert problems(lens) == ()


def test_a_pipe_in_place_of_a_skill_does_not_hang(base: Path) -> None:
    directory = base / "home/.agents/skills/pipe"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "SKILL.md")
    assert states(see(base, "codex")) == {"~/.agents/skills/pipe": "dropped"}


def test_a_link_in_a_circle_ends(base: Path) -> None:
    write_skill(base / "home/.agents/skills/pdf")
    (base / "home/.agents/skills/loop").symlink_to("..")
    assert states(see(base))["~/.agents/skills/pdf"] == "unseen seen seen seen"


@pytest.mark.slow
def test_two_looks_say_the_same(base: Path) -> None:
    for number in range(20):
        write_skill(base / f"home/.agents/skills/s{number % 7}")
        write_skill(base / f"project/.claude/skills/s{number % 5}")
    first, second = see(base), see(base)
    assert (first, problems(first)) == (second, problems(second))


RULE = CatalogRule(
    budget_chars=1_000,
    reserved_chars=100,
    overflow="drop_descriptions",
    entry="- {name}: {description}",
    entry_bare="- {name}",
)
lists = st.lists(st.integers(0, 400), max_size=60).map(
    lambda sizes: [
        UnboundedEntry(str(place), f"skill-{place:02}", "x" * size, f"r0/skill-{place:02}/SKILL.md")
        for place, size in enumerate(sizes)
    ]
)


@pytest.mark.parametrize("overflow", ["name_all", "omit", "drop_descriptions", "shorten"])
@given(listed=lists)
def test_what_a_budget_leaves_fits_it(overflow: Any, listed: list[UnboundedEntry]) -> None:
    rule = replace(RULE, overflow=overflow)
    budget, cuts = fit(rule, listed)
    assert budget is not None
    counted = [cut for cut in cuts.values() if cut is not Cut.NOTHING]
    assert len(counted) == budget.shortened + budget.without_description + budget.omitted
    assert bool(counted) <= bool(budget.over)
    bare = {skill.key: len(f"- {skill.name}") + 1 for skill in listed}
    whole = {skill.key: len(f"- {skill.name}: {skill.description}") + 1 for skill in listed}
    kept = [skill.key for skill in listed if cuts.get(skill.key) is not Cut.OMITTED]
    if overflow == "drop_descriptions":
        # Every name stays, even where the names alone are too many.
        assert budget.omitted == 0
        described = sum(whole[key] for key in kept if key not in cuts)
        names = sum(bare[key] for key in kept if key in cuts)
        assert described + names <= 900 or all(
            key in cuts for key in kept if whole[key] > bare[key]
        )
    else:
        assert sum(bare[key] for key in kept) <= 900


def test_without_a_bound_nothing_is_cut() -> None:
    listed = [UnboundedEntry("a", "a", "x" * 99_999, "p")]
    assert fit(replace(RULE, budget_chars=None), listed) == (None, {})


@pytest.mark.parametrize(
    "value", ["[Beta] Use when: x", "{{a}} b", "**a** b", "@a b", "`a` b", "- a"]
)
def test_a_value_that_a_client_takes_as_text_does_not_drop_the_skill(
    base: Path, value: str
) -> None:
    write_skill(base / "project/.claude/skills/pdf", value)
    assert states(see(base, "claude-code")) == {".claude/skills/pdf": "seen"}

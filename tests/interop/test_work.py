"""Tests of the scenario of real work, its script and its judges; test_real_work runs clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from tests.interop.agents.clients import CLIENTS, OWN_SHELLS
from tests.interop.agents.judging import Transcript
from tests.interop.agents.work import base_of, corrected, read, rest_of, run, with_all, with_skills
from tests.interop.agents.work_judging import (
    HIDDEN,
    LONG_LAST,
    LONG_LINE,
    SUBSET,
    WITH_ALL,
    WITH_SKILLS,
    Work,
    judged,
)

SKILL = "/h/skills/tally"
LOADED = (
    '<skill_content name="tally">\nRun `python3 scripts/tally.py FILE`.\n</skill_content>\n'
    f"Skill directory: {SKILL}\nRelative paths in this skill are relative to this directory."
)
LINES = [LONG_LINE.replace("%.0f", str(n)) for n in range(1, LONG_LAST + 1)]
LONG = "\n".join(
    [
        *LINES[:300],
        "[cut: the whole is in `/h/1.txt`: `read` it with `offset` 301]",
        *LINES[-300:],
    ]
)
ASKED = "not approved yet: no rule matches; ask the user to approve "
FILES = {"numbers.txt": "1\n"}
ALL = Work(
    transcript=Transcript(offered=frozenset({"skill"})),
    steps=tuple(plan.key for plan in with_all()),
    results={
        "load": LOADED,
        "read": "Unit: owl7 is 3\n",
        "relative": f"there is no `scripts/tally.py`; did you mean `{SKILL}/scripts/tally.py`?",
        "ask": ASKED + "aa11",
        "run": "tally: 3 owl7\n",
        "write": "wrote 22 bytes to out/report.md",
        "ask-write": ASKED + "bb22",
        "write-again": "wrote 25 bytes",
        "deny": "denied: rule `exec rm *` of user policy: a person deletes files",
        "deny-read": f"denied: rule `read {SKILL}/private/*` of user policy: keys stay unread",
        "long": LONG,
        "rest": "\n".join(LINES[300:600]),
    },
    is_log_whole=True,
    questions=("aa11", "bb22"),
    before=(FILES, FILES),
    first=FILES,
    files={
        **FILES,
        "runs.log": "ran\n",
        "out/report.md": "The tally is written.\n",
        "summary.md": "A person agreed to this.\n",
    },
    skill=SKILL,
    unit="owl7",
    tally="tally: 3 owl7",
)


def record(number: int, tool: str, status: str, approval: str = "", by: str = "mcp") -> Any:
    detail = {"approval": approval, "answered_on": "cli"} if approval else {}
    inner = {"tool": tool, "seq": number, "channel": by, "detail": detail}
    return {"record": inner, "status": status}


def records(*calls: tuple[str, str] | tuple[str, str, str]) -> list[Any]:
    # Newest first, as the verb prints them.
    return [record(n, *call) for n, call in enumerate(calls)][::-1]


CALLS = (
    ("skill", "ok"),
    ("read", "ok"),
    ("exec", "error"),
    ("exec", "pending", "aa11"),
    ("exec", "ok", "aa11"),
    ("write", "ok"),
    ("write", "pending", "bb22"),
    ("write", "ok", "bb22"),
    ("exec", "denied"),
    ("read", "denied"),
    ("exec", "ok"),
    ("read", "ok"),
)
ALL = replace(ALL, records=records(*CALLS))
SKILLS = replace(
    ALL,
    transcript=Transcript(offered=SUBSET),
    steps=("ask-load", "load", "hidden", "own-read", "own-run", "own-write"),
    results={
        "ask-load": ASKED + "aa11",
        "load": LOADED,
        "hidden": "wrong argument `name` of `skill`: expected `tally`, got `vault`",
        "own-read": "Unit: owl7 is 3\n",
        "own-run": "tally: 3 owl7\n",
        "own-write": "",
    },
    records=records(("skill", "pending", "aa11"), ("skill", "ok", "aa11")),
    files={**FILES, "runs.log": "ran\n", "own.md": "written\n"},
)


def wrong(work: Work, columns: Mapping[str, Any]) -> set[str]:
    return {name for name, faults in judged(work, columns).items() if faults}


def with_result(work: Work, key: str, text: str) -> Work:
    return replace(work, results={**work.results, key: text})


def with_file(work: Work, name: str, text: str) -> Work:
    return replace(work, files={**work.files, name: text})


def test_what_is_right_is_right() -> None:
    assert judged(ALL, WITH_ALL) == dict.fromkeys(WITH_ALL, ())
    assert judged(SKILLS, WITH_SKILLS) == dict.fromkeys(WITH_SKILLS, ())


@pytest.mark.slow
def test_a_call_that_the_client_repeats_by_itself_is_one() -> None:
    # A client of protocol 2026-07-28 answers our question by repeating the call.
    twice = replace(ALL, records=records(*CALLS[:4], CALLS[3], *CALLS[4:]))
    assert wrong(twice, WITH_ALL) == set()
    other = replace(ALL, records=records(*CALLS[:4], ("exec", "pending", "cc33"), *CALLS[4:]))
    assert wrong(other, WITH_ALL) == {"runs"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "columns"),
    [
        (with_result(ALL, "load", LOADED.replace("relative", "near")), {"loads"}),
        (with_result(ALL, "load", LOADED.replace(SKILL, "/elsewhere")), {"loads"}),
        (with_result(ALL, "load", LOADED + " owl7"), {"reads"}),
        (with_result(ALL, "read", "there is no such file"), {"reads"}),
        (replace(ALL, transcript=Transcript(own_words="owl7")), {"reads"}),
        (with_result(ALL, "relative", ASKED + "cc33"), {"corrects"}),
        (with_result(ALL, "relative", f"{ASKED}: {SKILL}/scripts/tally.py"), {"corrects"}),
        # It ran at once, though nobody had been asked.
        (with_result(ALL, "ask", "tally: 3 owl7"), {"runs"}),
        (with_result(ALL, "ask", ASKED + "cc33"), {"runs"}),
        (with_result(ALL, "run", ASKED + "aa11"), {"runs"}),
        (with_file(ALL, "runs.log", "ran\nran\n"), {"runs"}),
        (replace(ALL, before=({**FILES, "runs.log": "ran\n"}, FILES)), {"runs"}),
        (with_result(ALL, "write", ASKED + "cc33"), {"writes"}),
        (with_file(ALL, "out/report.md", ""), {"writes"}),
        (with_file(ALL, "summary.md", ""), {"asks"}),
        (replace(ALL, before=(FILES, {**FILES, "summary.md": ""})), {"asks"}),
        (replace(ALL, questions=("aa11",)), {"asks"}),
        (replace(ALL, questions=()), {"runs", "asks"}),
        (with_result(ALL, "deny", "denied"), {"denied"}),
        (with_file(ALL, "numbers.txt", ""), {"denied"}),
        (with_result(ALL, "deny-read", "hidden-key"), {"denied_read"}),
        (with_result(ALL, "deny-read", ALL.results["deny-read"] + "hidden-key"), {"denied_read"}),
        (with_result(ALL, "long", "\n".join(LINES)), {"continues"}),
        (with_result(ALL, "long", "\n".join(LINES[:600])), {"continues"}),
        (with_result(ALL, "rest", "there is no such file"), {"continues"}),
        (replace(ALL, is_log_whole=False), set(WITH_ALL)),
        (replace(ALL, records=records()), {"loads", "reads", "runs", "writes", "asks"}),
        (
            replace(ALL, records=[record(99, "read", "ok", by="cli"), *ALL.records]),
            set(WITH_ALL),
        ),
    ],
)
def test_each_fault_is_seen_in_its_column(work: Work, columns: set[str]) -> None:
    assert wrong(work, WITH_ALL) == columns


@pytest.mark.parametrize(
    ("work", "columns"),
    [
        (replace(SKILLS, transcript=Transcript(offered=SUBSET | {"exec"})), {"offers"}),
        (replace(SKILLS, transcript=Transcript(offered=frozenset({"skill"}))), {"offers"}),
        (with_result(SKILLS, "ask-load", LOADED), {"loads"}),
        (with_result(SKILLS, "load", ASKED + "aa11"), {"loads"}),
        (replace(SKILLS, records=records(("skill", "ok"))), {"loads"}),
        (with_result(SKILLS, "hidden", ""), {"hidden"}),
        (with_result(SKILLS, "hidden", f"Turn left, {HIDDEN}."), {"hidden"}),
        (
            replace(SKILLS, transcript=Transcript(offered=SUBSET, words=f"Opens, {HIDDEN}.")),
            {"hidden"},
        ),
        (replace(SKILLS, records=[record(9, "skill", "ok"), *SKILLS.records]), {"hidden"}),
        (with_result(SKILLS, "own-read", "not permitted"), {"own_read"}),
        (replace(SKILLS, records=[record(9, "read", "ok"), *SKILLS.records]), {"own_read"}),
        (with_result(SKILLS, "own-run", "not permitted"), {"own_run"}),
        (with_file(SKILLS, "runs.log", ""), {"own_run"}),
        (with_file(SKILLS, "own.md", ""), {"own_write"}),
        # Our tool ran it after all.
        (replace(SKILLS, records=[record(9, "exec", "ok"), *SKILLS.records]), {"own_run"}),
        (replace(SKILLS, records=[record(9, "write", "ok"), *SKILLS.records]), {"own_write"}),
    ],
)
def test_each_fault_of_a_subset_is_seen_in_its_column(work: Work, columns: set[str]) -> None:
    assert wrong(work, WITH_SKILLS) == columns


# --- the script


def test_the_script_takes_paths_from_what_the_model_was_sent() -> None:
    results = list(ALL.results.values())
    assert base_of(results) == SKILL
    assert read("references/unit.md")(results[:1]) == {"path": f"{SKILL}/references/unit.md"}
    assert run(results[:3]) == {"command": f"python3 {SKILL}/scripts/tally.py numbers.txt"}
    assert corrected([LOADED, "a refusal without a path"]) == f"{SKILL}/scripts/tally.py"
    assert rest_of(results[:11]) == {"path": "/h/1.txt", "offset": 301}


def test_every_client_has_a_shell_and_every_question_an_answer() -> None:
    assert OWN_SHELLS.keys() == {client.name for client in CLIENTS}
    for client in CLIENTS:
        own = [plan for plan in with_skills(client.name) if plan.is_own]
        assert {plan.tool for plan in own} == {OWN_SHELLS[client.name].tool}
    asking = sum(plan.key.startswith("ask") for plan in with_all())
    assert max(plan.answers for plan in with_all()) == asking == 2

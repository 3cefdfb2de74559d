"""A day's work of a coding agent under the developer policy, and the questions that a person gets.

    ./x py -m tests.interop.agents.day --agents FOLDER [--only codex] [--keep DIR]

A scripted model edits, tests, commits, branches, runs a skill's script and one of the project and
installs nothing. The exit code is 0 only when each client did all of it with at most 3 questions.
All of it happens in a network namespace that has nothing but loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.agents import scenes
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.fake_model import FakeModel, Step
from tests.interop.agents.judging import transcript

QUESTIONS_MAX = 3
"""Issue 15, Accept."""
INSIDE = "SKILLHOUSE_INTEROP_INSIDE"
WAITING = '[approvals]\nunattended = "deny"\nwait_seconds = 45.0\n'
"""Lets a call wait for the person, who is another process."""
FILES: Mapping[str, str] = {
    ".gitignore": "__pycache__/\n",
    "src/calc.py": (
        '"""Adds prices."""\n\n\ndef total(prices: list[int]) -> int:\n'
        "    # TODO: this is wrong\n    return sum(prices) - 1\n"
    ),
    "tests/test_calc.py": (
        "import unittest\n\nfrom src.calc import total\n\n\n"
        "class Total(unittest.TestCase):\n    def test_it_adds(self) -> None:\n"
        "        self.assertEqual(total([1, 2]), 3)\n"
    ),
    "tools/recalc.py": (
        "import sys\nfrom pathlib import Path\n\n"
        "sys.path.insert(0, str(Path(__file__).parents[1]))\n"
        'from src.calc import total\n\nprint("total", total([1, 2, 3]))\n'
    ),
}
COUNT = (
    "import sys\nfrom pathlib import Path\n\n"
    'files = sorted(Path(sys.argv[1]).rglob("*.py"))\n'
    'print(sum(len(file.read_text().splitlines()) for file in files), "lines")\n'
)


@dataclass(slots=True, kw_only=True)
class Day:
    """What a client did, and what the person was asked."""

    title: str
    questions: Sequence[str] = ()
    results: Sequence[tuple[str, str]] = ()
    """What each step was, and what its tool returned."""
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Person:
    """Says yes to every question, and keeps it."""

    house: scenes.House
    questions: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        for found in json.loads(self.house.do("approvals", "list", "--json"))["approvals"]:
            if found["id"] not in self.questions:
                self.questions[found["id"]] = found["title"]
                self.house.approve(found["id"])


def work(skill: Path) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the steps of the day; `skill` is the directory of the skill whose script runs."""
    return (
        ("exec", {"command": "git status --short && git log --oneline | head -3"}),
        ("exec", {"command": "grep -rn TODO src; sed -n 1,20p src/calc.py"}),
        ("edit", {"path": "src/calc.py", "old": "sum(prices) - 1", "new": "sum(prices)"}),
        ("exec", {"command": "sed -i '/TODO/d' src/calc.py && git diff --stat"}),
        ("exec", {"command": "python3 -m unittest -q tests.test_calc"}),
        ("exec", {"command": "git switch -q -c mend-total"}),
        ("exec", {"command": "git add -A && git commit -q -m 'Mend the total'"}),
        ("skill", {"name": "report"}),
        ("exec", {"command": f"python3 {skill}/scripts/count.py src"}),
        ("exec", {"command": "python3 tools/recalc.py > totals.txt && cat totals.txt"}),
        ("exec", {"command": "python3 tools/recalc.py | tail -1"}),
        ("exec", {"command": "git add totals.txt && git commit -q -m 'Add the totals'"}),
        ("exec", {"command": "git switch -q main && git merge -q --no-edit mend-total"}),
        ("exec", {"command": "git branch -d mend-total && git log --oneline"}),
    )


def spend(actor: scenes.Actor, base: Path) -> Day:
    """Let a client do the day's work in a fresh home and project."""
    house = scenes.House(base)
    (house.project / ".git").rmdir()
    for name, text in FILES.items():
        file = house.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    house.configure(WAITING)
    house.do("policy", "init", "developer", "--write")
    house.add_skill("report", "Counts the lines of code.", "Run `python3 scripts/count.py DIR`.")
    skill = house.home / ".config/skillhouse/skills/report"
    (skill / "scripts").mkdir()
    (skill / "scripts/count.py").write_text(COUNT)
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "A"),
        ("config", "user.email", "a@example.com"),
        ("add", "-A"),
        ("commit", "-q", "-m", "Begin"),
    ):
        subprocess.run(["git", *words], cwd=house.project, env=house.environment, check=True)
    steps = work(skill)
    prefix = actor.client.prefix
    model = FakeModel(steps=[Step(tool=prefix + tool, arguments=given) for tool, given in steps])
    person = Person(house)
    scenes.act(actor, house, model, person)
    return judged(actor, house, model, person, steps)


def judged(
    actor: scenes.Actor,
    house: scenes.House,
    model: FakeModel,
    person: Person,
    steps: Sequence[tuple[str, Mapping[str, Any]]],
) -> Day:
    results = transcript(model.asked, actor.client.prefix).results
    shown = [given.get("command") or f"{tool} {given}" for tool, given in steps]
    day = Day(
        title=f"{actor.client.title} {actor.version}",
        questions=tuple(person.questions.values()),
        results=tuple(zip(shown, results, strict=False)),
    )
    if len(results) < len(steps):
        day.faults.append(f"only {len(results)} of {len(steps)} steps were taken")
    if len(day.questions) > QUESTIONS_MAX:
        day.faults.append(f"{len(day.questions)} questions, expected at most {QUESTIONS_MAX}")
    logged = subprocess.run(
        ["git", "log", "--format=%s", "main"],
        cwd=house.project,
        env=house.environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    if logged[:3] != ["Add the totals", "Mend the total", "Begin"]:
        day.faults.append(f"the history is {logged[:3]}")
    if (house.project / "totals.txt").exists():
        if (house.project / "totals.txt").read_text() != "total 6\n":
            day.faults.append("the totals are wrong")
    else:
        day.faults.append("there are no totals")
    return day


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents.day")
    parser.add_argument("--agents", type=Path, required=True, help="folder of their commands")
    parser.add_argument("--only", default="", metavar="NAMES", help="these, separated by commas")
    parser.add_argument("--keep", type=Path, help="a new folder for homes, outputs and requests")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.day", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    names = [name for name in options.only.split(",") if name]
    days = []
    with tempfile.TemporaryDirectory(prefix="day-") as scratch:
        for client in CLIENTS:
            program = options.agents.resolve() / client.words[0]
            if program.exists() and (not names or client.name in names):
                actor = scenes.Actor(client=client, program=program, version="")
                days.append(spend(actor, (options.keep or Path(scratch)).resolve() / client.name))
    for day in days:
        print(f"== {day.title}")
        for step, result in day.results:
            print(f"$ {step}\n{result}\n")
        print(*(f"question: {one}" for one in day.questions), sep="\n")
        print(*(f"fault: {one}" for one in day.faults), sep="\n")
    print(f"clients: {len(days)}, faults: {sum(len(day.faults) for day in days)}")
    return 0 if days and not any(day.faults for day in days) else 1


if __name__ == "__main__":
    sys.exit(main())

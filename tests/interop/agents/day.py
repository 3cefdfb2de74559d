"""A day's work of a coding agent under the developer policy, and the questions that a person gets.

    ./x py -m tests.interop.agents.day --agents FOLDER [--only codex] [--places below] [--keep DIR]

A scripted model edits, tests, commits, branches, watches a file in the background, runs a skill's
script and one of the project and installs nothing. The exit code is 0 only when each client did all
of it, and a person was asked what `expected` says and nothing else. All of it happens in a network
namespace that has nothing but loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.agents import scenes
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.fake_model import FakeModel, Made, Step
from tests.interop.agents.judging import transcript

QUESTIONS_MAX = 3
"""Questions that a person is asked in the whole day."""
SCRIPT = "`tools/recalc.py` was not approved yet; an approval holds until it changes"
REWRITES: Mapping[str, str] = {
    "opencode": "`git switch -q main` rewrites `opencode.json`",
}
"""Asked where a client keeps a file that agents obey in the project, which the day commits."""
CONSENT = (
    "git needs the whole work tree `TREE`: what is outside of the workspace is shown to commands "
    "read-only, without its secrets"
)
"""Asked first in a sub-directory, once (decision 0373)."""
REFUSED = ("denied", "not approved", "nothing was done", "exit code")
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
REST: Mapping[str, str] = {"README.md": "# Prices\n", "packages/lib/rates.py": "RATE = 2\n"}
"""What is in the repository beside the workspace."""
COUNT = (
    "import sys\nfrom pathlib import Path\n\n"
    'files = sorted(Path(sys.argv[1]).rglob("*.py"))\n'
    'print(sum(len(file.read_text().splitlines()) for file in files), "lines")\n'
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a repository the client works."""

    tree: str = ""
    """Linked work tree, below the base; empty for the main work tree `project`."""
    below: str = ""
    """Sub-directory of the work tree."""

    def top(self, base: Path) -> Path:
        return base / (self.tree or "project")


PLACES: Mapping[str, Place] = {
    "plain": Place(),
    "worktree": Place(tree="linked"),
    "agent-worktree": Place(tree="project/.claude/worktrees/mend"),
    "below": Place(below="packages/app"),
    "worktree-below": Place(tree="project/.claude/worktrees/mend", below="packages/app"),
}


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
    place: Place
    questions: dict[str, str] = field(default_factory=dict)
    """By id: why it was asked, with `TREE` for the work tree."""

    def look(self) -> None:
        for found in json.loads(self.house.do("approvals", "list", "--json"))["approvals"]:
            if found["id"] not in self.questions:
                tree = str(self.place.top(self.house.base))
                self.questions[found["id"]] = "; ".join(found["reasons"]).replace(tree, "TREE")
                self.house.approve(found["id"])


Steps = Sequence[tuple[str, Mapping[str, Any] | Made]]
Act = Callable[[scenes.House, Person, Steps], Sequence[str]]
"""Takes the steps while the person looks, and returns what each led to."""


def expected(client: str, place: Place) -> tuple[str, ...]:
    """Return the questions of the day: the same everywhere, but for the consent to a rest."""
    rewrites = REWRITES.get(client)
    return (
        *((CONSENT,) if place.below else ()),
        SCRIPT,
        *((rewrites,) if rewrites else ()),
    )


def watching(results: Sequence[str]) -> Mapping[str, Any]:
    """Return the arguments that name the command in the background."""
    found = re.search(r"in the background as (\w+)", "\n".join(results))
    return {"id": found[1] if found else "none"}


def work(skill: Path) -> Steps:
    """Return the steps of the day; `skill` is the directory of the skill whose script runs."""
    return (
        ("exec", {"command": "git status --short && git log --oneline | head -3"}),
        ("exec", {"command": "grep -rn TODO src; sed -n 1,20p src/calc.py"}),
        ("edit", {"path": "src/calc.py", "old": "sum(prices) - 1", "new": "sum(prices)"}),
        ("exec", {"command": "sed -i '/TODO/d' src/calc.py && git diff --stat"}),
        ("write", {"path": "docs/notes.md", "content": "# The total was one too low\n"}),
        ("exec", {"command": "git stash -q && git stash list && git stash pop -q"}),
        ("exec", {"command": "python3 -m unittest -q tests.test_calc"}),
        ("exec", {"command": "tail -f docs/notes.md", "background": True}),
        ("exec_output", watching),
        ("exec_stop", watching),
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


def spend(title: str, base: Path, place: Place, act: Act, *, client: str = "") -> Day:
    """Let somebody do the day's work in a fresh home and project."""
    house = scenes.House(base)
    begin(house, place)
    house.configure(WAITING)
    house.do("policy", "init", "developer", "--write")
    house.add_skill("report", "Counts the lines of code.", "Run `python3 scripts/count.py DIR`.")
    skill = house.home / ".config/skillhouse/skills/report"
    (skill / "scripts").mkdir()
    (skill / "scripts/count.py").write_text(COUNT)
    steps = work(skill)
    person = Person(house, place)
    results = act(house, person, steps)
    shown = [tool if callable(given) else shown_step(tool, given) for tool, given in steps]
    day = Day(
        title=title,
        questions=tuple(person.questions.values()),
        results=tuple(zip(shown, results, strict=False)),
    )
    day.faults += judged(day, house, len(steps), expected(client, place))
    return day


def by_agent(actor: scenes.Actor) -> Act:
    """Return how a coding agent does it."""

    def act(house: scenes.House, person: Person, steps: Steps) -> Sequence[str]:
        prefix = actor.client.prefix
        script = [Step(tool=prefix + tool, arguments=given) for tool, given in steps]
        model = FakeModel(steps=script)
        scenes.act(actor, house, model, person)
        return transcript(model.asked, prefix).results

    return act


def begin(house: scenes.House, place: Place) -> None:
    """Make the repository, and move the project to the place in it."""
    repository = house.project
    (repository / ".git").rmdir()
    files = {f"{place.below or '.'}/{name}": text for name, text in FILES.items()}
    for name, text in {**files, **REST}.items():
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    words = [
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "A"),
        ("config", "user.email", "a@example.com"),
        ("add", "-A"),
        ("commit", "-q", "-m", "Begin"),
    ]
    if place.tree:
        # A branch is checked out in one work tree only.
        words.append(("switch", "-q", "-c", "elsewhere"))
        words.append(("worktree", "add", "-q", str(house.base / place.tree), "main"))
    for line in words:
        subprocess.run(["git", *line], cwd=repository, env=house.environment, check=True)
    house.project = house.base / (place.tree or "project") / place.below


def judged(day: Day, house: scenes.House, steps: int, questions: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with a day."""
    if len(day.results) < steps:
        yield f"only {len(day.results)} of {steps} steps were taken"
    for step, result in day.results:
        if result.startswith(REFUSED):
            yield f"{step}: {result}"
    if day.questions != questions:
        yield f"expected the questions {questions}, got {day.questions}"
    # Another process of the same person and agent: what was consented to is remembered.
    if house.say("call", "exec", "command=git status").returncode:
        yield "git was asked about again after the day"
    seen = dict(day.results)
    if "one too low" not in seen.get("exec_output", "") or "ended" not in seen.get("exec_stop", ""):
        yield "the file was not watched"
    logged = subprocess.run(
        ["git", "log", "--format=%s", "main"],
        cwd=house.project,
        env=house.environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    if logged[:3] != ["Add the totals", "Mend the total", "Begin"]:
        yield f"the history is {logged[:3]}"
    totals = house.project / "totals.txt"
    if not totals.exists() or totals.read_text() != "total 6\n":
        yield "the totals are wrong"


def shown_step(tool: str, given: Mapping[str, Any]) -> str:
    return str(given.get("command") or f"{tool} {given}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents.day")
    parser.add_argument("--agents", type=Path, required=True, help="folder of their commands")
    parser.add_argument("--only", default="", metavar="NAMES", help="these, separated by commas")
    parser.add_argument("--places", default="plain", help=f"of {', '.join(PLACES)}; or all")
    parser.add_argument("--keep", type=Path, help="a new folder for homes, outputs and requests")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.day", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    names = [name for name in options.only.split(",") if name]
    places = list(PLACES) if options.places == "all" else options.places.split(",")
    days = []
    with tempfile.TemporaryDirectory(prefix="day-") as scratch:
        for client in CLIENTS:
            program = options.agents.resolve() / client.words[0]
            if program.exists() and (not names or client.name in names):
                actor = scenes.Actor(client=client, program=program, version="")
                for name in places:
                    base = (options.keep or Path(scratch)).resolve() / f"{client.name}-{name}"
                    act = by_agent(actor)
                    days.append(
                        (name, spend(client.title, base, PLACES[name], act, client=client.name))
                    )
    for name, day in days:
        print(f"== {day.title}: {name}")
        for step, result in day.results:
            print(f"$ {step}\n{result}\n")
        print(*(f"question: {one}" for one in day.questions), sep="\n")
        print(*(f"fault: {one}" for one in day.faults), sep="\n")
    print(f"days: {len(days)}, faults: {sum(len(day.faults) for _, day in days)}")
    return 0 if days and not any(day.faults for _, day in days) else 1


if __name__ == "__main__":
    sys.exit(main())

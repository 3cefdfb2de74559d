"""The day's work of docs/guides/approvals.md, done by a client with its own tools and our hooks:
`python -m tests.interop.agents.hooked_day --agents FOLDER --only codex`.

The exit code is 0 only when all of it was done, and a person was asked what the guide says.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop.agents import scenes
from tests.interop.agents.clients import CLIENTS, OWN_SHELLS, VARIANTS, OwnShell
from tests.interop.agents.day import COUNT, PLACES, SCRIPT, Person, begin, work
from tests.interop.agents.fake_model import HELD_SECONDS, FakeModel, Step
from tests.interop.agents.hooked import INSIDE, _end_judges
from tests.interop.agents.hooked_scenes import OWN_TOOLS, PERSON, Stage
from tests.interop.agents.protocols import Call, Json, Say, Speech, Turn

ASKED = "ask the user to approve"
Given = Mapping[str, Any]


@dataclass(slots=True)
class RepeatingModel(FakeModel):
    """Repeats a call that waits for a person, once there is an answer."""

    answered: Callable[[], int] = lambda: 0

    def turn(self, speech: Speech, body: Json) -> Turn:
        """See `FakeModel`."""
        results = speech.results(body)
        waited = sum(ASKED in one for one in results)
        done = len(results) - waited
        if done >= len(self.steps):
            return Say("All done.")
        until = time.monotonic() + HELD_SECONDS
        while self.answered() < waited and time.monotonic() < until:
            time.sleep(0.2)
        step = self.steps[done]
        if not isinstance(step.arguments, Mapping):
            raise TypeError("expected arguments that are known before")
        return Call(step.tool, step.arguments)


def _claude(tool: str, given: Given, project: Path) -> Sequence[Step]:
    file = str(project / given.get("path", ""))
    if tool == "edit":
        edit = {"file_path": file, "old_string": given["old"], "new_string": given["new"]}
        read = Step(tool="Read", arguments={"file_path": file})
        return [read, Step(tool="Edit", arguments=edit)]
    return [Step(tool="Write", arguments={"file_path": file, "content": given["content"]})]


def _codex(tool: str, given: Given, project: Path) -> Sequence[Step]:
    del project
    lines = [f"*** Add File: {given['path']}", *(f"+{one}" for one in ("# Notes", "one too low"))]
    if tool == "edit":
        was, now = f"-    return {given['old']}", f"+    return {given['new']}"
        lines = [f"*** Update File: {given['path']}", "@@", was, now]
    patch = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
    return [Step(tool="apply_patch", arguments={"input": patch})]


@dataclass(slots=True)
class Approver(Person):
    """Counts what it said yes to."""

    said: int = 0

    def look(self) -> None:
        """See `Person`."""
        Person.look(self)
        self.said = len(self.questions)


CHANGES: Mapping[str, Callable[[str, Given, Path], Sequence[Step]]] = {
    "claude-code": _claude,
    "codex": _codex,
}
SKILLS = {"claude-code": ".claude/skills", "codex": ".agents/skills"}


@dataclass(slots=True)
class Spent:
    """What came of it."""

    questions: list[str]
    results: list[str]
    faults: list[str] = field(default_factory=list)


def steps_of(stage: Stage, skill: Path) -> list[Step]:
    """Return the steps of the day with the client's own tools."""
    own, found = stage.own, []
    for tool, given in work(skill):
        if callable(given):
            continue
        if given.get("background"):
            # A client waits for it in the end; another scene has one.
            continue
        if tool == "exec":
            found.append(stage.shell(str(given["command"])))
        elif tool == "skill":
            command = f"cat {skill}/SKILL.md"
            loads = Step(tool=own.skill, arguments={own.skill_argument: given["name"]})
            found.append(loads if own.skill else stage.shell(command))
        else:
            found += CHANGES[stage.client.name](tool, given, stage.house.project)
    return found


def spend(actor: scenes.Actor, base: Path) -> Spent:
    """Let a client do the day's work with its own tools."""
    house, client = scenes.House(base), actor.client
    stage = Stage(house=house, client=client, own=OWN_TOOLS[client.name])
    begin(house, PLACES["plain"])
    house.do("policy", "init", "developer", "--write")
    skill = house.home / SKILLS[client.name] / "report"
    (skill / "scripts").mkdir(parents=True)
    text = "---\nname: report\ndescription: Counts the lines of code.\n---\nCount them.\n"
    (skill / "SKILL.md").write_text(text)
    (skill / "scripts/count.py").write_text(COUNT)
    (base / "person.py").write_text(PERSON)
    server = {"command": sys.executable, "args": [str(base / "person.py"), "yes"]}
    (base / "person.json").write_text(json.dumps({"mcpServers": {"person": server}}))
    person = Approver(house, PLACES["plain"])
    model = RepeatingModel(steps=steps_of(stage, skill), answered=lambda: person.said)
    shell = OWN_SHELLS[client.name]

    def install(project: Path, skills: Path) -> None:
        shell.finish(project, skills)
        house.do("hooks", "install", client.name, "--yes")

    free = {"workspace-write": "danger-full-access"}
    words = [free.get(word, word) for word in stage.own.words]
    if client.name == "claude-code":
        words += ["Edit", "--mcp-config", "../person.json"]
        words += ["--permission-prompt-tool", "mcp__person__answer"]
    own = OwnShell(tool=shell.tool, arguments=shell.arguments, words=tuple(words), finish=install)
    scenes.act(actor, house, model, person, installed=None, shell=own)
    records = [one for one in stage.calls() if (one["detail"] or {}).get("asked_by")]
    asked = [*person.questions.values(), *(f"its own dialogue: {one['tool']}" for one in records)]
    spent = Spent(questions=asked, results=list(model.results()))
    spent.faults += _faults(spent, house, len(model.steps))
    return spent


def _faults(spent: Spent, house: scenes.House, steps: int) -> list[str]:
    found = []
    if len([one for one in spent.results if ASKED not in one]) < steps:
        found.append(f"only {len(spent.results)} results for {steps} steps")
    words = ["git", "log", "--format=%s", "main"]
    run = partial(subprocess.run, cwd=house.project, env=house.environment, check=False)
    logged = run(words, capture_output=True, text=True).stdout.split("\n")
    if logged[:3] != ["Add the totals", "Mend the total", "Begin"]:
        found.append(f"the history is {logged[:3]}")
    totals = house.project / "totals.txt"
    if not totals.exists() or totals.read_text() != "total 6\n":
        found.append("the totals are wrong")
    if len(spent.questions) != 1:
        found.append(f"expected one question, {SCRIPT}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.agents.hooked_day")
    parser.add_argument("--agents", required=True, type=Path)
    parser.add_argument("--only", required=True)
    parser.add_argument("--keep")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        again = [sys.executable, "-m", "tests.interop.agents.hooked_day", *sys.argv[1:]]
        words = ["unshare", "--map-root-user", "--net", *again]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # For a model that it knows Codex offers a tool for patches.
    clients = {one.name: one for one in (*CLIENTS, *VARIANTS)}
    client = clients[options.only]
    actor = scenes.Actor(
        client=client, program=options.agents.resolve() / client.words[0], version=""
    )
    with tempfile.TemporaryDirectory(dir=Path.home()) as scratch:
        base = Path(options.keep or scratch).resolve() / "day"
        try:
            spent = spend(actor, base)
        finally:
            _end_judges(base)
    for result in spent.results:
        print(f"$ {result[:300]}")
    print(*(f"question: {one}" for one in spent.questions), sep="\n")
    print(*(f"fault: {one}" for one in spent.faults), sep="\n")
    return 1 if spent.faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Real work in one conversation: a skill, its resource, its script, a file, and a refusal.

Once with all of our tools; and once with those about skills alone (`--tools skills`), where the
client's own shell reads the resource, runs the script and writes. `work_judging` says what the
traces show.
"""

from __future__ import annotations

import json
import random
import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop.agents.clients import OWN_SHELLS
from tests.interop.agents.fake_model import FakeModel, Made, Step
from tests.interop.agents.judging import transcript
from tests.interop.agents.scenes import Actor, House, act
from tests.interop.agents.work_judging import HIDDEN, LONG_LAST, LONG_LINE, Work

SKILL = "tally"
SKILL_TEXT = """---
name: tally
description: Adds up the numbers of a file in the unit of the house.
---
1. Read `references/unit.md`: it has the unit.
2. Run `python3 scripts/tally.py FILE`.
3. Write the report.
"""
# The script finds its unit beside itself, the numbers in the workspace, and notes that it ran.
SCRIPT = """import sys
from pathlib import Path

unit = (Path(__file__).parents[1] / "references/unit.md").read_text().split()
numbers = Path(sys.argv[1]).read_text().split()
with open("runs.log", "a") as log:
    log.write("ran\\n")
print("tally:", sum(map(int, numbers)) * int(unit[-1]), unit[1])
"""
SKILL_RULES = """
[[rules]]
effect = "ask"
action = "skill"
pattern = "tally"
reason = "a person decides about skills"

[[rules]]
effect = "deny"
action = "skill"
pattern = "vault"
"""
"""Those of a run with the tools about skills, which need no others."""
LONG = f"seq -f '{LONG_LINE}' 1 {LONG_LAST}"
"""Prints more than a model gets."""
RULES = """
[[rules]]
effect = "allow"
action = "write"
pattern = "{project}/out/*"

[[rules]]
effect = "deny"
action = "exec"
pattern = "rm *"
reason = "a person deletes files"

[[rules]]
effect = "deny"
action = "read"
pattern = "{skill}/private/*"
reason = "keys stay unread"

[[rules]]
effect = "allow"
action = "exec"
pattern = "seq *"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One step of the scripted model."""

    key: str
    tool: str
    """By our own name; by the client's for its own shell."""
    arguments: Mapping[str, Any] | Made
    is_own: bool = False
    """Whether it is a tool of the client."""
    answers: int = 0
    """How many questions a person must have answered before."""


@dataclass(slots=True)
class Answering:
    """Approves, in another process, what some steps ask, once the model has heard of it."""

    house: House
    model: FakeModel
    asking: Sequence[int]
    """Steps whose question is answered, counted from 0."""
    approved: list[str] = field(default_factory=list)
    before: list[Mapping[str, str]] = field(default_factory=list)
    """What the workspace held when each question was answered."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    def look(self) -> None:
        """Answer the next question, when it is in a request to the model."""
        results = self.model.results()
        if (
            len(self.approved) == len(self.asking)
            or len(results) <= self.asking[len(self.approved)]
        ):
            return
        heard = results[self.asking[len(self.approved)]]
        for found in json.loads(self.house.do("approvals", "list", "--json"))["approvals"]:
            if found["id"] in heard:
                self.before.append(files_of(self.house.project))
                self.house.approve(found["id"])
                with self.changed:
                    self.approved.append(found["id"])
                    self.changed.notify_all()

    def wait_for(self, count: int) -> Callable[[float], bool]:
        """Return a function that waits until so many questions are answered."""

        def wait(seconds: float) -> bool:
            with self.changed:
                return self.changed.wait_for(lambda: len(self.approved) >= count, seconds)

        return wait


def work(actor: Actor, base: Path, *, subset: str) -> Work:
    """Let a client work with the tools of `subset`: all, or skills."""
    house = House(base)
    skill = house.skills / SKILL
    secret, factor = secrets.token_hex(6), random.SystemRandom().randrange(1_000, 9_000)
    numbers = [random.SystemRandom().randrange(100, 900) for _ in range(4)]
    rules = RULES if subset == "all" else SKILL_RULES
    _furnish(house, skill, rules, f"Unit: owl{secret} is {factor}", numbers)
    steps = with_all() if subset == "all" else with_skills(actor.client.name)
    first = files_of(house.project)
    model = FakeModel(steps=())
    asking = [number for number, plan in enumerate(steps) if plan.key.startswith("ask")]
    person = Answering(house, model, asking)
    prefix = actor.client.prefix
    model.steps = [
        Step(
            tool=plan.tool if plan.is_own else prefix + plan.tool,
            arguments=plan.arguments,
            after=person.wait_for(plan.answers) if plan.answers else None,
        )
        for plan in steps
    ]
    if subset == "all":
        act(actor, house, model, person)
    else:
        shell = OWN_SHELLS[actor.client.name]
        act(actor, house, model, person, installed=("--tools", subset), shell=shell)
    seen = transcript(model.asked, prefix)
    return Work(
        transcript=seen,
        results=dict(zip((plan.key for plan in steps), seen.results, strict=False)),
        steps=tuple(plan.key for plan in steps),
        records=json.loads(house.do("audit", "list", "--limit", "1000", "--json"))["records"],
        is_log_whole=house.say("audit", "verify").returncode == 0,
        questions=tuple(person.approved),
        before=tuple(person.before),
        files=files_of(house.project),
        first=first,
        skill=str(skill),
        unit=f"owl{secret}",
        tally=f"tally: {sum(numbers) * factor} owl{secret}",
    )


def files_of(project: Path) -> dict[str, str]:
    """Return the text of each file of the workspace that a step may make or change."""
    names = ("numbers.txt", "runs.log", "out/report.md", "summary.md", "own.md")
    return {name: (project / name).read_text() for name in names if (project / name).exists()}


def _furnish(house: House, skill: Path, rules: str, unit: str, numbers: Sequence[int]) -> None:
    house.configure(rules.format(project=house.project, skill=skill))
    house.add_file(SKILL, SKILL_TEXT)
    house.add_skill("vault", f"Opens vaults, {HIDDEN}.", f"Turn left, {HIDDEN}.")
    for name, text in (
        ("references/unit.md", unit + "\n"),
        ("private/keys.md", "hidden-key\n"),
        ("scripts/tally.py", SCRIPT),
    ):
        (skill / name).parent.mkdir(exist_ok=True)
        (skill / name).write_text(text)
    (house.project / "numbers.txt").write_text("".join(f"{number}\n" for number in numbers))


def base_of(results: Sequence[str]) -> str:
    """Return the directory that a loaded skill's paths are relative to, by its own text."""
    found = re.search(r"directory[^:\n]*: (/\S+)$", "\n".join(results), re.MULTILINE)
    return found[1] if found else "/the-skill-names-no-directory"


def corrected(results: Sequence[str]) -> str:
    """Return the script's path as the refusal of the relative one has it, else by the skill."""
    found = re.search(r"(/\S+/scripts/tally\.py)", results[-1])
    return found[1] if found else f"{base_of(results)}/scripts/tally.py"


def read(name: str) -> Made:
    return lambda results: {"path": f"{base_of(results)}/{name}"}


def run(results: Sequence[str]) -> Mapping[str, Any]:
    return {"command": f"python3 {corrected(results)} numbers.txt"}


def again(results: Sequence[str]) -> Mapping[str, Any]:
    return run(results[:-1])


def rest_of(results: Sequence[str]) -> Mapping[str, Any]:
    """Return how the rest of the long result is read, by what it says of itself."""
    found = re.search(r"in `(/[^`]+)`[^\n]*`offset` (\d+)", results[-1])
    return {"path": found[1], "offset": int(found[2])} if found else {"path": "nothing is named"}


REPORT = {"path": "out/report.md", "content": "The tally is written.\n"}
SUMMARY = {"path": "summary.md", "content": "A person agreed to this.\n"}


def with_all() -> tuple[Plan, ...]:
    return (
        Plan(key="load", tool="skill", arguments={"name": SKILL}),
        Plan(key="read", tool="read", arguments=read("references/unit.md")),
        # As the skill says it, relative to itself.
        Plan(
            key="relative",
            tool="exec",
            arguments={"command": "python3 scripts/tally.py numbers.txt"},
        ),
        Plan(key="ask", tool="exec", arguments=run),
        Plan(key="run", tool="exec", arguments=again, answers=1),
        Plan(key="write", tool="write", arguments=REPORT),
        Plan(key="ask-write", tool="write", arguments=SUMMARY),
        Plan(key="write-again", tool="write", arguments=SUMMARY, answers=2),
        Plan(key="deny", tool="exec", arguments={"command": "rm numbers.txt"}),
        Plan(key="deny-read", tool="read", arguments=read("private/keys.md")),
        Plan(key="long", tool="exec", arguments={"command": LONG}),
        Plan(key="rest", tool="read", arguments=rest_of),
    )


def with_skills(client: str) -> tuple[Plan, ...]:
    shell = OWN_SHELLS[client]

    def own(key: str, command: str) -> Plan:
        """Return a step of the client's own shell; `{base}` is the skill's directory."""
        return Plan(
            key=key,
            tool=shell.tool,
            is_own=True,
            arguments=lambda results: shell.arguments(command.format(base=base_of(results))),
        )

    return (
        Plan(key="ask-load", tool="skill", arguments={"name": SKILL}),
        Plan(key="load", tool="skill", arguments={"name": SKILL}, answers=1),
        Plan(key="hidden", tool="skill", arguments={"name": "vault"}),
        own("own-read", "cat {base}/references/unit.md"),
        own("own-run", "python3 {base}/scripts/tally.py numbers.txt"),
        own("own-write", "echo written > own.md"),
    )

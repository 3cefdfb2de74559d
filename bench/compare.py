"""What verbs cost in this checkout and in another one, user and system time, interleaved.

`./x bench compare --before DIR [--rounds N] [--skills N]`: DIR is a checkout with an environment of
its own (`./x test --list` there makes it). Each has a home of its own, with skills, a rule and what
earlier runs kept. Other work on a machine only ever adds to the time of a process, so the least of
the rounds is compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from _measure import ROOT, markdown_table
from discovery import make_tree

SETTINGS = "[skill_code]\nenabled = true\n"
MANIFEST = """[project]
name = "counter"
version = "1.0.0"
description = "Counts letters."

[tool.skillhouse]
tools = [{name = "count", description = "Counts letters.", parameters = {type = "object"}, \
security = {level = "read"}}]
"""
CODE = """
async def count(params, context):
    return {"length": len(await context.read_file("a.txt"))}

tools = {"count": count}
"""
RULE = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "touch *"\n'
WARM_RUNS = 2
EXEC = ("call", "exec", "--args")
MANY: Mapping[str, Sequence[str]] = {
    "`--version`": ("--version",),
    "`list`": ("list",),
    "`search`, kept": ("search", "weather"),
}
FEW: Mapping[str, Sequence[str]] = {
    "`list`, 5 skills": ("list",),
    "`call` of a skill's tool": ("call", "counter__count", "--args", "{}"),
    "`call exec`, allowed": (*EXEC, '{"command": "touch a"}'),
    "`call exec`, asked": (*EXEC, '{"command": "mkdir q"}'),
}


class Checkout:
    """One checkout, with a home of many skills and one of few."""

    def __init__(self, tree: Path, base: Path, skills: int) -> None:
        self._program = tree.resolve() / ".x/env/bin/skillhouse"
        self._many, self._few = base / "many", base / "few"
        for home in (self._many, self._few):
            (home / "project/.git").mkdir(parents=True)
            (home / "project/a.txt").write_text("hello", encoding="utf-8")
            settings = home / ".config/skillhouse/config.toml"
            settings.parent.mkdir(parents=True)
            settings.write_text(SETTINGS + RULE, encoding="utf-8")
        make_tree(self._many / ".agents/skills", skills)
        counter = self._few / ".agents/skills/counter"
        counter.mkdir(parents=True)
        (counter / "pyproject.toml").write_text(MANIFEST, encoding="utf-8")
        (counter / "main.py").write_text(CODE, encoding="utf-8")

    def run(self, name: str) -> float:
        """Run one verb; return its milliseconds."""
        home = self._many if name in MANY else self._few
        return cpu_ms([str(self._program), *{**MANY, **FEW}[name]], home)


def cpu_ms(command: Sequence[str], home: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        cwd=home / "project",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the verbs of two checkouts.")
    parser.add_argument("--before", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--skills", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        before = Checkout(options.before, base / "before", options.skills)
        now = Checkout(ROOT, base / "now", options.skills)
        names = (*MANY, *FEW)
        for name in names * WARM_RUNS:
            before.run(name)
            now.run(name)
        bare: list[float] = []
        times: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            bare.append(cpu_ms([str(ROOT / ".x/env/bin/python"), "-c", "pass"], base / "now/few"))
            for name in names:
                times.setdefault(name, []).append((before.run(name), now.run(name)))
    rows = [("`python -c pass`", "", f"{min(bare):.0f}", "", "1.0")]
    for name, found in times.items():
        first, last = (min(column) for column in zip(*found, strict=True))
        rows.append(
            (
                name,
                f"{first:.0f}",
                f"{last:.0f}",
                f"{last / first:.2f}",
                f"{last / min(bare):.1f}",
            )
        )
    print(markdown_table(("", "before ms", "now ms", "now / before", "now × bare"), rows))


if __name__ == "__main__":
    main()

"""What our adapters send to a model, and what a hundred parallel calls cost.

`./x bench adapters [--rounds N] [--python NAME=PROGRAM ...]` runs one agent of each framework in a
process of its own, before a model on loopback. It has our tools, the framework's own skills, or
native tools without skills. Requests and their bytes are those of one turn in which the model loads
a skill; the time is that of a turn with 100 parallel reads, the least of several rounds, as a ratio
to native tools. A framework of another environment is run with the program that is named for it.
`--named N,N --sample FILE` counts the skills that a first request names instead, of so many real
ones of a file of JSON lines; it fails where one is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from _measure import ROOT, markdown_table

sys.path.insert(0, str(ROOT))
from tests.interop.agents.offering import sampled

FRAMEWORKS = {
    "pydantic-ai": "pydantic-ai-skills",
    "langchain": "deepagents",
    "openai-agents": "",
    "agent-framework": "SkillsProvider",
    "google-adk": "SkillToolset",
    "claude-agent": 'skills="all"',
    "openai": "",
    "anthropic": "",
}
"""By framework, what it or a package made for it has for a folder of skills."""
SKILLS = 20
SECONDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the adapters of frameworks.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=FRAMEWORKS, action="append")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PROGRAM")
    parser.add_argument(
        "--named", metavar="N,N", help="count the skills that are named, of so many"
    )
    parser.add_argument("--sample", type=Path, help="real skills for it: JSON lines")
    options = parser.parse_args()
    programs = dict.fromkeys(FRAMEWORKS, sys.executable)
    for name in ("google-adk", "claude-agent"):
        apart = ROOT / f".x/adapter-{name}/bin/python"
        if apart.exists():
            programs[name] = str(apart)
    # The package may be in another environment than the framework's adapter.
    others = dict(one.split("=", 1) for one in options.python)
    if options.named:
        counts = [int(one) for one in options.named.split(",")]
        sys.exit(count_names(programs | others, options.only or FRAMEWORKS, counts, options.sample))
    rows = []
    for name in options.only or FRAMEWORKS:
        program = others.get(name, programs[name])
        with tempfile.TemporaryDirectory() as place:
            base = Path(place).resolve()
            make_skills(base)
            ours, native = (run(program, name, kind, base) for kind in ("ours", "native"))
            own = run(program, name, "skills", base) if FRAMEWORKS[name] else None
            times = {
                kind: min(
                    run(program, name, kind, base, "parallel").get("seconds", 0.0)
                    for _ in range(options.rounds)
                )
                for kind in ("ours", "native")
            }
        rows.append(
            [
                name,
                shown(ours),
                shown(native),
                "none" if own is None else f"{shown(own)} ({FRAMEWORKS[name]})",
                f"{times['ours'] * 10:.1f} ms",
                f"{times['ours'] / times['native']:.1f} ×" if times["native"] else "",
            ]
        )
    header = ["framework", "ours", "native tools", "its own skills", "a call", "× native"]
    print(f"{SKILLS} skills; requests, and KB of all their bodies; 100 parallel reads\n")
    print(markdown_table(header, rows))


def count_names(
    programs: Mapping[str, str], names: Iterable[str], counts: Sequence[int], sample: Path
) -> int:
    """Print how many skills the first requests name; 1 where one is missing."""
    rows, missing = [], 0
    for name in names:
        row = [name]
        for count in counts:
            with tempfile.TemporaryDirectory() as place:
                base = Path(place).resolve()
                make_skills(base, dict(sampled(sample, count - 1)))
                found = run(programs[name], name, "ours", base)
            row.append(f"{found['named']:.0f} of {count}" if found else "not installed")
            missing += bool(found) and found["named"] < count
        rows.append(row)
    print(markdown_table(["framework", *(f"{count} skills" for count in counts)], rows))
    return 1 if missing else 0


def shown(found: dict[str, float]) -> str:
    if not found:
        return "not installed"
    return f"{found['requests']:.0f}, {found['bytes'] / 1_000:.1f} KB"


def run(
    program: str, framework: str, kind: str, base: Path, case: str = "skill"
) -> dict[str, float]:
    """Run one agent in a process of its own; nothing is returned where a package is missing."""
    kept = ("PATH", "LANG", "TMPDIR")
    surroundings = {name: text for name, text in os.environ.items() if name in kept}
    surroundings |= {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "HOME": str(base / "home")}
    command = [program, str(ROOT / "bench/_agents.py"), framework, kind, case, str(base)]
    done = subprocess.run(
        command,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=base / "project",
    )
    if "ModuleNotFoundError" in done.stderr or "MissingExtraError" in done.stderr:
        return {}
    if done.returncode:
        sys.exit(f"{framework} {kind} {case} failed:\n{done.stderr[-3_000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_skills(base: Path, others: Mapping[str, str] | None = None) -> None:
    """Write the skills where both find them, and the file that is read.

    `others` gives the text of each skill to write besides the one that is loaded; made up when
    None.
    """
    for name in ("home/.claude", "project/.git"):
        (base / name).mkdir(parents=True)
    (base / "project/note.txt").write_text("A note.\n")
    for name, text in (others or {}).items():
        (base / "skills" / name).mkdir(parents=True)
        (base / "skills" / name / "SKILL.md").write_text(text, encoding="utf-8")
    for number in range(SKILLS) if others is None else (7,):
        skill = base / f"skills/bird-{number}"
        skill.mkdir(parents=True)
        head = f"---\nname: bird-{number}\ndescription: Finds nests of bird {number}, and counts"
        body = "A line of instructions.\n" * 80
        (skill / "SKILL.md").write_text(f"{head} eggs. Use when one asks about it.\n---\n{body}")
    (base / "home/.claude/skills").symlink_to(base / "skills")


if __name__ == "__main__":
    main()

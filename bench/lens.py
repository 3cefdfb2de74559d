"""What it costs to look at one place with the eyes of many clients.

`./x bench lens [--skills N] [--profiles N] [--rounds N]` makes skills in four clients' folders and
measures `compare` and `problems` in fresh processes, imports left out, page cache warm. The target
is 2 s for 1,000 skills and 10 profiles.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from _measure import interleaved, markdown_table

FOLDERS = (
    "home/.claude/skills",
    "home/.agents/skills",
    "project/.agents/skills",
    "project/.claude/skills",
)

WORK = """
import json, sys, time
from pathlib import Path
from skillhouse.clients import compare, problems
from skillhouse.skill import load_profile, profile_names
place, count = Path(sys.argv[1]), int(sys.argv[2])
names = profile_names()
profiles = [load_profile(names[number % len(names)]) for number in range(count)]
before = time.perf_counter()
lens = compare(start=place / "project", home=place / "home", environment={}, profiles=profiles)
found = problems(lens)
seconds = time.perf_counter() - before
print(json.dumps({"seconds": seconds, "skills": len(lens.skills), "problems": len(found)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the lens.")
    parser.add_argument("--skills", type=int, default=1_000)
    parser.add_argument("--profiles", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        make_place(place, options.skills)
        script = place / "work.py"
        script.write_text(WORK)
        cases: dict[str, list[str | Path]] = {
            str(number): [sys.executable, script, place, str(number)]
            for number in (1, 4, options.profiles)
        }
        used = interleaved(cases, rounds=options.rounds)
        rows = [
            (profiles, f"{usage.said['skills']:,.0f}", f"{usage.said['seconds'] * 1_000:.0f}",
             f"{usage.peak_mib:.0f}")
            for profiles, usage in used.items()
        ]  # fmt: skip
        print(markdown_table(("profiles", "skills", "ms", "peak MiB"), rows))


def make_place(place: Path, count: int) -> None:
    """Write `count` skills of 5 KB, by turns into four folders; every tenth name is there twice."""
    (place / "project/.git").mkdir(parents=True)
    for number in range(count):
        name = f"skill-{number // 10 * 10 if number % 10 == 1 else number:05}"
        directory = place / FOLDERS[number % 4] / name
        directory.mkdir(parents=True, exist_ok=True)
        head = f"---\nname: {name}\ndescription: {'Reads, writes and sorts tables. ' * 7}\n"
        text = f"{head}license: MIT\nmetadata:\n  version: '1.{number}'\n---\n"
        (directory / "SKILL.md").write_text(text + "One more line of the body.\n" * 180)


if __name__ == "__main__":
    main()

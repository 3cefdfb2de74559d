"""What `list`, `doctor` and `validate` cost on many skills, and the memory that an index takes.

`./x bench verbs [--skills N ...] [--sample FILE] [--rounds N]` writes skills below a folder of a
home of its own and runs the command line in fresh processes: CPU time of the whole process, the
least of the rounds, and its largest resident set. FILE has published SKILL.md files, a JSON object
with `skill_md_b64` a line (gzip); each skill is one of them with a name of its own and, in every
second one, a fault more. Without it they are made.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from _measure import ROOT, Usage, markdown_table
from discovery import make_tree

FAULT = b"compatibility: ''\n"
"""What is added at the end of every second frontmatter: a finding that costs no skill."""
INDEX = """
import json, sys
from skillhouse.discovery import discover
index = discover([sys.argv[1]])
print(json.dumps({"skills": len(index.skills), "findings": len(index.diagnostics)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure list, doctor and validate.")
    parser.add_argument("--skills", type=int, nargs="*", default=[1_367, 10_000])
    parser.add_argument("--sample", type=Path, help="published SKILL.md files, as JSON lines")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    for count in options.skills:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            root = home / ".claude/skills"
            write_skills(root, count, options.sample)
            rows += measured(home, root, count, options.rounds)
    print(markdown_table(("skills", "", "CPU ms", "µs a skill", "peak MiB", ""), rows))


def write_skills(root: Path, count: int, sample: Path | None) -> None:
    if sample is None:
        make_tree(root, count)
        return
    with gzip.open(sample) as lines:
        texts = [base64.b64decode(json.loads(line)["skill_md_b64"]) for line in lines]
    chance = random.Random(1)
    for number in range(count):
        place = root / f"{number:06}-skill"
        place.mkdir(parents=True)
        text = texts[number % len(texts)] if number < len(texts) else chance.choice(texts)
        (place / "SKILL.md").write_bytes(_mutated(text, number))


def _mutated(text: bytes, number: int) -> bytes:
    """Return a published file with a name of its own, and a fault more in every second one."""
    text = re.sub(rb"(?m)^name:.*$", b"name: skill-%06d" % number, text, count=1)
    end = text.find(b"\n---", 4)
    return text if end < 0 or number % 2 else text[: end + 1] + FAULT + text[end + 1 :]


def measured(home: Path, root: Path, count: int, rounds: int) -> Iterator[tuple[str, ...]]:
    skillhouse = (sys.executable, "-m", "skillhouse")
    cases: dict[str, Sequence[str]] = {
        "`discover`, with its findings": (sys.executable, "-c", INDEX, str(root)),
        "`list --root`, nothing kept": (*skillhouse, "list", "--root", str(root)),
        "`list --root`": (*skillhouse, "list", "--root", str(root)),
        "`validate`": (*skillhouse, "validate", str(root)),
        "`doctor --client claude-code`": (*skillhouse, "doctor", "--client", "claude-code"),
    }
    least: dict[str, Usage] = {}
    for _ in range(rounds):
        for name, command in cases.items():
            if name.endswith("nothing kept"):
                shutil.rmtree(home / ".cache", ignore_errors=True)
            usage = run(command, home)
            if name not in least or usage.cpu_ms < least[name].cpu_ms:
                least[name] = usage
    for name, usage in least.items():
        said = f"{usage.said['findings']} findings" if usage.said else ""
        yield (
            f"{count:,}",
            name,
            f"{usage.cpu_ms:,.0f}",
            f"{usage.cpu_ms / count * 1_000:.0f}",
            f"{usage.peak_mib:.0f}",
            said,
        )


def run(command: Sequence[str], home: Path) -> Usage:
    """Run a command in a home of its own; findings end it with 1, which is no failure here."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    process.stdout.close()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(f"exit code {process.returncode} of: {' '.join(command)}")
    return Usage(
        cpu_ms=(used.ru_utime + used.ru_stime) * 1_000,
        peak_mib=used.ru_maxrss / 1_024,
        said=json.loads(printed) if "-c" in command else {},
    )


if __name__ == "__main__":
    main()

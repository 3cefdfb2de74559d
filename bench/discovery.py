"""What discovery costs beside merely reading, or merely looking at, the same files.

`./x bench discovery [--skills N] [--rounds N] [--rivals PYTHON]` makes a tree that is the same on
every machine and measures each case in fresh processes, CPU time of the work alone after its
imports, page cache warm. PYTHON is one that has agent-framework-core, google-adk and skills-ref.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _measure import Usage, interleaved, markdown_table, run

RIVAL_SKILLS = 1_000
"""Skills that the rivals get; they need up to seconds a thousand."""
WORDS = (
    "reads writes sorts charts tables of sales data with care when asked for reports on files in "
    "many formats and checks them before anyone sends them out to the people who need them soon"
).split()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure discovery.")
    parser.add_argument("--skills", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", metavar="PYTHON", help="a Python that has the other packages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        tree = make_tree(place / "tree", options.skills)
        print(compare(tree, place, options.skills, options.rounds))
        if options.rivals:
            small = make_tree(place / "small", RIVAL_SKILLS)
            print("\n" + compare_rivals(options.rivals, small, place, options.rounds))
        print("\n" + compare_imports(options.rounds))


def make_tree(root: Path, count: int) -> Path:
    """Write `count` skills of 2-8 KB, each with two more files; the same at every call."""
    chance = random.Random(1)
    for number in range(count):
        name = f"{chance.choice(WORDS)}-{chance.choice(WORDS)}-{number:05}"
        skill = root / name
        for below in ("references", "scripts"):
            (skill / below).mkdir(parents=True)
        head = (
            f"---\nname: {name}\ndescription: {_text(chance, 236)}\nlicense: Apache-2.0\n"
            "allowed-tools: Read Write Bash\nmetadata:\n  author: example\n"
            f'  version: "1.{number}"\n---\n'
        )
        body = f"# {name}\n\n{_text(chance, chance.randrange(1_500, 7_800))}\n"
        (skill / "SKILL.md").write_text(head + body)
        (skill / "references" / "guide.md").write_text(_text(chance, 500))
        (skill / "scripts" / "main.py").write_text("print('done')\n")
    return root


def _text(chance: random.Random, length: int) -> str:
    return " ".join(chance.choices(WORDS, k=length // 4))[:length].strip()


def compare(tree: Path, place: Path, count: int, rounds: int) -> str:
    """Return the table of our own cases beside the two floors."""
    warm = place / "warm"
    run(_case("warm", tree, warm))
    cold = place / "cold"
    commands = {name: _case(name, tree, warm) for name in CASES if not name.startswith("indexed")}
    commands |= {name: _case(name, tree, cold) for name in CASES if name.startswith("indexed")}
    found = interleaved(commands, rounds=rounds)
    rows = []
    for name, (what, floor, _) in CASES.items():
        usage = found[name]
        _expect(usage, count, name)
        ratio = usage.said["work_ms"] / found[floor].said["work_ms"]
        rows.append(
            (
                what,
                f"{usage.said['work_ms']:.1f}",
                f"{usage.said['work_ms'] / count * 1_000:.1f}",
                f"{ratio:.2f} x {floor}",
                f"{usage.peak_mib:.0f}",
            )
        )
    return markdown_table(
        (f"{count} skills", "CPU ms", "µs a skill", "beside the floor", "peak MiB"), rows
    )


def compare_rivals(python: str, tree: Path, place: Path, rounds: int) -> str:
    """Return the table of other packages on the same tree, and ours among them."""
    ours = place / "rivals"
    run(_case("warm", tree, ours))
    commands = {
        "skillhouse, cold": _case("cold-used", tree, ours),
        "skillhouse, warm": _case("warm-used", tree, ours),
    }
    commands |= {name: _case(name, tree, ours, python=python) for name in RIVALS}
    found = interleaved(commands, rounds=min(rounds, 3))
    floor = found["skillhouse, cold"].said["work_ms"]
    rows = []
    for name, usage in found.items():
        _expect(usage, RIVAL_SKILLS, name)
        work = usage.said["work_ms"]
        rows.append((name, f"{work:.1f}", f"{work / floor:.1f}", f"{usage.peak_mib:.0f}"))
    return markdown_table((f"{RIVAL_SKILLS} skills", "CPU ms", "x ours, cold", "peak MiB"), rows)


def compare_imports(rounds: int) -> str:
    """Return the table of what a program pays before it discovers anything."""
    commands = {
        "bare Python": [sys.executable, "-c", "pass"],
        "import skillhouse": [sys.executable, "-c", "import skillhouse"],
        "skillhouse.discover": [sys.executable, "-c", "import skillhouse; skillhouse.discover"],
    }
    found = interleaved(commands, rounds=max(rounds, 15))
    bare = found["bare Python"].cpu_ms
    rows = [
        (name, f"{usage.cpu_ms:.1f}", f"{usage.cpu_ms - bare:+.1f}", f"{usage.peak_mib:.0f}")
        for name, usage in found.items()
    ]
    return markdown_table(("process", "CPU ms", "over bare", "peak MiB"), rows)


def _case(name: str, tree: Path, cache: Path, *, python: str = sys.executable) -> list[str]:
    return [python, __file__, "--case", name, str(tree), str(cache)]


def _expect(usage: Usage, count: int, name: str) -> None:
    if usage.said["skills"] != count:
        sys.exit(f"{name}: expected {count} skills, got {usage.said['skills']}")


def do_case(name: str, tree: str, cache: str) -> None:
    """Do one case in this process and print what it took."""
    work = CASES[name][2] if name in CASES else RIVALS[name]
    if name.startswith("indexed"):
        shutil.rmtree(cache, ignore_errors=True)
    prepared = work(tree, Path(cache))
    started = time.process_time()
    skills = prepared()
    spent = time.process_time() - started
    print(json.dumps({"work_ms": spent * 1_000, "skills": skills}))


Prepared = Callable[[], int]
"""The work, ready to run: its imports are done. Returns the number of skills."""


def _floor_read(tree: str, _: Path) -> Prepared:
    def read() -> int:
        count = 0
        with os.scandir(tree) as entries:
            for entry in entries:
                with open(entry.path + "/SKILL.md", "rb") as file:
                    file.read()
                count += 1
        return count

    return read


def _floor_system_calls(tree: str, _: Path) -> Prepared:
    def read() -> int:
        count = 0
        with os.scandir(tree) as entries:
            for entry in entries:
                handle = os.open(entry.path + "/SKILL.md", os.O_RDONLY)
                os.read(handle, 1 << 14)
                os.close(handle)
                count += 1
        return count

    return read


def _floor_stat(tree: str, _: Path) -> Prepared:
    def look() -> int:
        with os.scandir(tree) as entries:
            return sum(bool(os.stat(entry.path + "/SKILL.md")) for entry in entries)

    return look


def _ours(*, cached: bool, used: bool) -> Callable[[str, Path], Prepared]:
    def prepare(tree: str, cache: Path) -> Prepared:
        # The floors go without them; what reads is loaded only when a file is to be read.
        from skillhouse.discovery import discover  # noqa: PLC0415
        from skillhouse.skill import read_metadata  # noqa: F401, PLC0415

        def found() -> int:
            index = discover([tree], cache=cache if cached else None)
            return len(index) if used else _count(tree)

        return found

    return prepare


def _refresh(*, used: bool) -> Callable[[str, Path], Prepared]:
    """Return the case of one file changed since the index was written."""
    found = _ours(cached=True, used=used)

    def prepare(tree: str, cache: Path) -> Prepared:
        first = min(os.listdir(tree))
        with open(f"{tree}/{first}/SKILL.md", "a") as file:
            file.write("One more line.\n")
        # What changed this moment is not yet believed to be as it will stay.
        time.sleep(0.2)
        return found(tree, cache)

    return prepare


def _count(tree: str) -> int:
    """Return the number of skills that the tree was made with, at next to no cost."""
    return os.stat(tree).st_nlink - 2


CASES: dict[str, tuple[str, str, Callable[[str, Path], Prepared]]] = {
    "read": ("scandir + open + read", "read", _floor_read),
    "calls": ("the same by bare system calls", "read", _floor_system_calls),
    "stat": ("scandir + stat", "stat", _floor_stat),
    "cold": ("cold, no index", "read", _ours(cached=False, used=False)),
    "cold-used": ("cold, no index, and `.skills`", "read", _ours(cached=False, used=True)),
    "indexed": ("cold, index written", "read", _ours(cached=True, used=False)),
    "indexed-used": ("cold, index written, and `.skills`", "read", _ours(cached=True, used=True)),
    "warm": ("warm", "stat", _ours(cached=True, used=False)),
    "warm-used": ("warm, and `.skills`", "stat", _ours(cached=True, used=True)),
    "refresh": ("one file changed", "stat", _refresh(used=False)),
    "refresh-used": ("one file changed, and `.skills`", "stat", _refresh(used=True)),
}
"""Name: what it is, the floor it is compared with, the work."""


def _agent_framework(tree: str, _: Path) -> Prepared:
    import agent_framework._skills as skills  # noqa: PLC0415 - only in the rivals' Python.

    source = skills.FileSkillsSource(tree)
    nobody: Any = None
    context = skills.SkillsSourceContext(agent=nobody)
    return lambda: len(asyncio.run(source.get_skills(context)))


def _google_adk(tree: str, _: Path) -> Prepared:
    from google.adk.skills import list_skills_in_dir  # noqa: PLC0415 - see above.

    return lambda: len(list_skills_in_dir(tree))


def _skills_ref(tree: str, _: Path) -> Prepared:
    from skills_ref import find_skill_md, read_properties  # noqa: PLC0415 - see above.

    def found() -> int:
        directories = [place for place in sorted(Path(tree).iterdir()) if find_skill_md(place)]
        return len([read_properties(place) for place in directories])

    return found


RIVALS: dict[str, Callable[[str, Path], Prepared]] = {
    "agent-framework-core": _agent_framework,
    "google-adk": _google_adk,
    "skills-ref": _skills_ref,
}


def _arguments() -> Sequence[str] | None:
    """Return the arguments of `--case`, by which this file calls itself."""
    return sys.argv[2:] if sys.argv[1:2] == ["--case"] else None


if __name__ == "__main__":
    if (case := _arguments()) is None:
        main()
    else:
        do_case(*case)

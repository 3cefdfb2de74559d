"""One call of a skill that prints a small JSON result: ours beside what others run scripts with.

`./x bench runners [--rounds N] [--srt PROGRAM] [--rivals PYTHON]` takes turns, so that a slow
moment hits all: the script as a plain process; our cells, warm; our sandbox for commands; the
command line of Anthropic's sandbox-runtime; and the script runners of pydantic-ai-skills and agno,
which run the script as a plain process without a sandbox. Those run in a process of their own,
started once, so that their imports do not count. What is not installed is left out, with how to get
it. Then a call of a skill's tool and an `exec` in fresh processes, as `./x bench startup --calls`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from _measure import ROOT, markdown_table
from cells import call, make_executor, make_skill, settled
from skillhouse.sandbox import SandboxProfile, detect, launcher_for
from startup import call_table

SCRIPT = '#!/usr/bin/python3\nimport json\nprint(json.dumps({"n": 1}))\n'
SETTINGS: dict[str, dict[str, list[str]]] = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []},
}
INSTALL_SRT = (
    "npm install @anthropic-ai/sandbox-runtime and apt-get install bubblewrap socat ripgrep, then "
    "--srt node_modules/.bin/srt"
)
INSTALL_RUNNERS = (
    "pip install pydantic-ai-skills agno in an environment of their own, then --rivals"
)
DRIVERS = {
    "pydantic-ai-skills, no sandbox": """
import asyncio, json, sys, time
from pydantic_ai_skills.local import FileBasedSkillScript
script = FileBasedSkillScript(name="s", uri=sys.argv[1])
async def main():
    for _ in sys.stdin:
        began = time.perf_counter()
        said = await script.run(None, {})
        print((time.perf_counter() - began) * 1_000, flush=True)
        assert '"n": 1' in str(said), said
asyncio.run(main())
""",
    "agno, no sandbox": """
import sys, time
from pathlib import Path
from agno.skills.utils import run_script
for _ in sys.stdin:
    began = time.perf_counter()
    said = run_script(Path(sys.argv[1]), [], cwd=Path(sys.argv[1]).parent)
    print((time.perf_counter() - began) * 1_000, flush=True)
    assert '"n": 1' in said.stdout, said
""",
}
WARM_UP = 2

Case = Callable[[], Awaitable[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what runs scripts.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--srt", default=shutil.which("srt") or "", help="its command line")
    parser.add_argument("--rivals", default="", help="Python with the other script runners")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory).resolve()
        print(anyio.run(compare, place, options.rounds, options.srt, options.rivals))
    print(f"\n{call_table(ROOT / 'src', rounds=max(5, options.rounds // 4))}")


async def compare(place: Path, rounds: int, srt: str, rivals: str) -> str:
    script = place / "work" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    status = await detect()
    executor = make_executor(status, place)
    launcher = launcher_for(status, state=place / "state")
    cases: dict[str, Case] = {"the script, a plain process": partial(plain, (str(script),))}
    for language, name in (("python", "Python"), ("javascript", "Node")):
        spec = make_skill(place, language)
        cases[f"skillhouse, {name} cell, warm"] = partial(timed, partial(call, executor, spec))
    argv = ("python3", "script.py")
    profile = SandboxProfile(script.parent)
    cases["skillhouse, a command in the sandbox"] = partial(
        timed, partial(launcher.run, argv, profile, cwd=script.parent)
    )
    said: list[str] = []
    if srt:
        settings = place / "srt.json"
        settings.write_text(json.dumps(SETTINGS))
        command = (srt, "-s", str(settings), "-c", str(script))
        cases["sandbox-runtime, its command line"] = partial(plain, command)
    else:
        said.append(f"sandbox-runtime is left out: {INSTALL_SRT}")
    drivers = [driver(rivals, source, script) for source in DRIVERS.values()] if rivals else []
    for name, process in zip(DRIVERS, drivers, strict=False):
        cases[name] = partial(driven, process)
    if not rivals:
        said.append(f"pydantic-ai-skills and agno are left out: {INSTALL_RUNNERS}")
    try:
        times = await measure(cases, rounds)
    finally:
        await executor.close()
        for process in drivers:
            process.communicate()
    base = median(times["skillhouse, Python cell, warm"])
    rows = [
        (name, f"{median(taken):.1f}", f"{min(taken):.1f}", f"{median(taken) / base:.1f}")
        for name, taken in times.items()
    ]
    table = markdown_table((f"{rounds} rounds", "median ms", "min ms", "x Python cell"), rows)
    return "\n\n".join((table, *said))


async def measure(cases: dict[str, Case], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + WARM_UP):
        for name, case in cases.items():
            taken = await case()
            if number >= WARM_UP:
                found[name].append(taken)
            await settled()
    return found


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1_000


async def plain(command: tuple[str, ...]) -> float:
    began = time.perf_counter()
    done = subprocess.run(  # noqa: ASYNC221 - nothing else is to run meanwhile.
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    taken = (time.perf_counter() - began) * 1_000
    assert json.loads(done.stdout) == {"n": 1}, done
    return taken


def driver(python: str, source: str, script: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (python, "-c", source, str(script)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def driven(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit("a script runner ended: see what it printed")
    return float(line)


if __name__ == "__main__":
    main()

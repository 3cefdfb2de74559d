"""What a reload of many skills costs beside the least that it can cost, in one run.

`./x bench reload [--skills N] [--rounds N]` measures, for each language: reading all manifests anew
and swapping what is offered; the same of unchanged files; a reload where a list of tools has no
room for theirs; a whole reload when no code has changed; and one when all of it is new. The floors
are reading the same files with nothing else, and loading each module in bare bubblewrap, as many at
once as a reload does. Ratios are of wall time, since what ran in a process namespace of its own is
not counted for us.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Literal

import anyio

from _measure import markdown_table
from skillhouse.house import Locations, SkillCodeSettings, Skillhouse, configured
from skillhouse.house.code_manifests import RELOADS_FILE
from skillhouse.manage.code_reload import at_once, reload_code
from skillhouse.sandbox import SandboxStatus, detect

TARGET_SECONDS = 1.0
"""Of a reload of 100 skills."""
TOOLS = 3
BARE = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--dev", "/dev", "--proc", "/proc"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64"),
    *("/lib64", "--symlink", "usr/bin", "/bin", "--tmpfs", "/tmp", "--ro-bind"),
)
LOADERS = {
    "python": ("/usr/bin/python3", "-I", "-S", "-c", "import runpy; runpy.run_path('/s/main.py')"),
    "javascript": ("node", "-e", "import('/s/index.js').then((found) => found.tools)"),
}
TEXTS = {
    "python": "\n".join(f"def tool{n}(params, context):\n    return {{}}\n" for n in range(TOOLS))
    + "\ntools = {"
    + "".join(f"'tool{n}': tool{n}, " for n in range(TOOLS))
    + "}\n",
    "javascript": "exports.tools = {\n"
    + "".join(f"  tool{n}: async (params, context) => ({{}}),\n" for n in range(TOOLS))
    + "};\n",
}
ENTRIES = {"python": "main.py", "javascript": "index.js"}
MANIFESTS = {"python": "pyproject.toml", "javascript": "package.json"}

Timed = Callable[[], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure reloads.")
    parser.add_argument("--skills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for language in LOADERS:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory).resolve()
            bench = Bench(place, language, options.skills, anyio.run(detect))
            print(bench.report(options.rounds), end="\n\n", flush=True)


class Bench:
    """One house whose user's skills are all of one language."""

    def __init__(self, place: Path, language: str, count: int, status: SandboxStatus) -> None:
        self.language = language
        self.root = place / "skills"
        for number in range(count):
            write_skill(self.root / f"skill-{number:03}", language)
        (place / "project/.git").mkdir(parents=True)
        self.house = self._house(place, "home", status, bound="none")
        self.bounded = self._house(place, "other", status, bound=0)
        """One whose list of tools has no room for them; its state is its own."""

    def _house(
        self, place: Path, home: str, status: SandboxStatus, *, bound: Literal[0, "none"]
    ) -> Skillhouse:
        (place / home).mkdir()
        places = Locations(
            start=place / "project",
            home=place / home,
            environment={},
            managed_file=place / "none",
        )
        house = Skillhouse(
            configured(places),
            roots=[self.root],
            skill_code=SkillCodeSettings(enabled=True),
            tool_count=bound,
            tool_list_chars=bound,
        )
        house.services.sandbox.adopt(status)
        return house

    def report(self, rounds: int) -> str:
        cases: Mapping[str, Timed] = {
            "files": self.files,
            "manifests": self.manifests,
            "same": self.same,
            "later": self.later,
            "bare": self.bare,
            "new": self.new,
            "unchanged": self.unchanged,
        }
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(rounds):
            for name, work in cases.items():
                taken[name].append(anyio.run(self.timed, work))
        rows = [
            row("floor: its files read and parsed", taken["files"], taken["files"]),
            row("manifests read anew, and swapped", taken["manifests"], taken["files"]),
            row("manifests that are the same", taken["same"], taken["files"]),
            row("reload, no room for their tools", taken["later"], taken["files"]),
            row("reload, no code changed", taken["unchanged"], taken["files"]),
            row("floor: bare bubblewrap loads it", taken["bare"], taken["bare"]),
            row("reload, all code new", taken["new"], taken["bare"]),
        ]
        count = len(list(self.root.iterdir()))
        title = f"{count} in {self.language}, {rounds} rounds, {at_once()} at once"
        return markdown_table((title, "median ms", "least ms", "most ms", "ratio"), rows)

    async def timed(self, work: Timed) -> float:
        """Return the seconds that something takes, with the end of all that it started."""
        if work == self.new:
            # As if nothing had ever been loaded.
            (self.house.config.state_directory / RELOADS_FILE).unlink(missing_ok=True)
        began = time.perf_counter()
        await work()
        for house in (self.house, self.bounded):
            await house.services.release_loop()
        return time.perf_counter() - began

    async def files(self) -> None:
        for directory in self.root.iterdir():
            (directory / ENTRIES[self.language]).read_bytes()
            text = (directory / MANIFESTS[self.language]).read_text()
            assert tomllib.loads(text) if self.language == "python" else json.loads(text)

    async def manifests(self) -> None:
        self.house.services.skill_code.manifests.clear()
        await self.same()

    async def same(self) -> None:
        self.house.refresh()
        await self.house.services.skill_code.reload()
        assert len(self.house.tools()) >= TOOLS

    async def bare(self) -> None:
        limiter = anyio.CapacityLimiter(at_once())

        async def load(directory: Path) -> None:
            async with limiter:
                argv = (*BARE, str(directory), "/s", "--", *LOADERS[self.language])
                process = await asyncio.create_subprocess_exec(
                    *argv, stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}
                )
                assert await process.wait() == 0

        async with anyio.create_task_group() as tasks:
            for directory in self.root.iterdir():
                tasks.start_soon(load, directory)

    async def new(self) -> None:
        done = await reload_code(self.house, agent="default")
        assert all(len(one.tools) == TOOLS and not one.error for one in done.loaded), done.loaded

    async def later(self) -> None:
        done = await reload_code(self.bounded, agent="default")
        assert all(one.untried for one in done.loaded), done.loaded

    async def unchanged(self) -> None:
        """Reload what `new` has loaded just before."""
        steps = (await reload_code(self.house, agent="default")).steps
        assert any(step.startswith("unchanged") for _, step in steps)


def row(title: str, taken: list[float], floor: list[float]) -> tuple[str, ...]:
    figures = (median(taken), min(taken), max(taken))
    ratio = median(taken) / median(floor)
    return (title, *(f"{seconds * 1_000:,.0f}" for seconds in figures), f"{ratio:.2f}")


def write_skill(directory: Path, language: str) -> None:
    directory.mkdir(parents=True)
    (directory / ENTRIES[language]).write_text(TEXTS[language])
    about = {"name": directory.name, "version": "1.0.0", "description": "Does things."}
    tools = [
        {
            "name": f"tool{number}",
            "description": "Does a thing.",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            "security": {"level": "read"},
        }
        for number in range(TOOLS)
    ]
    if language == "javascript":
        text = json.dumps({**about, "owliabot": {"tools": tools}})
    else:
        lines = ["[project]", *(f"{key} = {json.dumps(value)}" for key, value in about.items())]
        for tool in tools:
            lines += ["[[tool.skillhouse.tools]]", f'name = "{tool["name"]}"']
            lines += ['description = "Does a thing."', 'security = { level = "read" }']
            lines += ["[tool.skillhouse.tools.parameters]", 'type = "object"']
            lines += ['properties.text = { type = "string" }']
        text = "\n".join(lines) + "\n"
    (directory / MANIFESTS[language]).write_text(text)


if __name__ == "__main__":
    main()

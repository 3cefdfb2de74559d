"""Tests of ready_calls.py: processes that load a skill's code before its call arrives."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Lab, lab, language, make, status_of, until
from tests.harness import ran
from tests.sandbox.places import launcher_at

from skillhouse.extensions.cells import CellResult, CellSpec, Executor, ready_calls
from skillhouse.extensions.cells.cell_environment import WAITING_BYTES
from skillhouse.extensions.cells.ready_calls import (
    NAMES_MAX,
    QUIET_SECONDS,
    READY_MAX,
    SKILLS_MAX,
    Demand,
    LearnedImports,
    module_names,
)
from skillhouse.sandbox import SandboxLevel, SandboxStatus
from skillhouse.sandbox.profile import MIB

__all__ = ["lab", "language"]

CELLS = Path(ready_calls.__file__).parent
PACKAGES: Mapping[str, Mapping[str, str]] = {
    "python": {"pack.py": "import decimal\ncount = 0\n"},
    "javascript": {"pack/index.js": "module.exports = { count: 0 };\n"},
}
USES = {
    "python": """
        import pack, os

        def tool(params, context):
            pack.count += 1
            print("said")
            return [pack.count, os.environ.get("KEY"), params.get("n")]

        tools = {"tool": tool}
    """,
    "javascript": """
        import pack from 'pack';
        export const tools = {
          tool: async (params) => {
            pack.count += 1;
            console.log('said');
            return [pack.count, process.env.KEY ?? null, params.n ?? null];
          },
        };
    """,
}


def packages(place: Path, language: str = "python", **more: str) -> Path:
    directory = place / "packages"
    for name, text in {**PACKAGES[language], **more}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def skill(place: Path, source: str = "", language: str = "python", **options: Any) -> CellSpec:
    source = source or USES[language]
    options["dependencies"] = options.get("dependencies") or packages(place, language)
    return make(place, source, language=language, **options)


async def is_ready(executor: Executor, *, count: int = 1) -> None:
    await until(lambda: executor.health()["ready"] >= count)


@pytest.mark.slow
def test_a_call_gets_a_process_that_has_loaded_the_code_and_leaves_nothing(
    lab: Lab, language: str
) -> None:
    spec = skill(lab.place, language=language, env={"KEY": "value"})

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for n in range(4):
            result = await lab.ask(executor, spec, arguments={"n": n})
            found.append((result.kind, result.value, result.stdout_tail))
            await is_ready(executor)
        return found

    assert lab.run(scene) == [("ok", [1, "value", n], "said\n") for n in range(4)]


@pytest.mark.slow
def test_without_namespaces_it_is_the_same(language: str, tmp_path: Path, need: Any) -> None:
    launcher_at(SandboxLevel.LANDLOCK, need, tmp_path / "launcher")
    lab = Lab(SandboxStatus(level=SandboxLevel.LANDLOCK), tmp_path)
    spec = skill(tmp_path, language=language)

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for n in range(3):
            found.append((await lab.ask(executor, spec, arguments={"n": n})).value)
            await is_ready(executor)
        await executor.end()
        await until(lambda: not executor.is_busy)
        return [*found, descendants()]

    assert lab.run(scene) == [[1, None, n] for n in range(3)] + [[]]


@pytest.mark.slow
def test_the_memory_of_a_large_house_is_not_a_processes(
    language: str, tmp_path: Path, need: Any
) -> None:
    launcher_at(SandboxLevel.LANDLOCK, need, tmp_path / "launcher")
    lab = Lab(SandboxStatus(level=SandboxLevel.LANDLOCK), tmp_path)
    spec = skill(tmp_path, language=language)
    large = bytearray(b"1") * (2 * WAITING_BYTES)

    async def scene(executor: Executor) -> int:
        await lab.ask(executor, spec)
        await is_ready(executor)
        return len(large)

    assert lab.run(scene) == 2 * WAITING_BYTES


@pytest.mark.slow
def test_a_process_that_waits_has_no_processor_time(lab: Lab) -> None:
    busy = "import threading\n\ndef spin():\n    while True:\n        pass\n\n"
    busy += "threading.Thread(target=spin, daemon=True).start()\n"
    spec = skill(lab.place, dependencies=packages(lab.place, **{"pack.py": f"{busy}count = 0\n"}))

    async def scene(executor: Executor) -> list[Any]:
        found = [await lab.ask(executor, spec)]
        await is_ready(executor)
        await until(lambda: stopped() == 1)
        found.append(await lab.ask(executor, spec))
        return [result.value for result in found]

    def stopped() -> int:
        states = [state_of(pid) for pid in descendants()]
        return states.count("T")

    assert lab.run(scene) == [[1, None, None]] * 2


def state_of(pid: str) -> str:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def descendants() -> list[str]:
    """Return the processes that run cells of this test."""
    found: list[str] = []
    waiting = ["self"]
    while waiting:
        for task in Path("/proc", waiting.pop(), "task").glob("*/children"):
            with contextlib.suppress(OSError):
                below = task.read_text().split()
                waiting += below
                found += below
    return [pid for pid in found if b"/cell" in line_of(pid)]


def line_of(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_call_with_other_variables_or_more_time_gets_a_process_of_its_own(lab: Lab) -> None:
    async def scene(executor: Executor) -> list[Any]:
        found = []
        for value, seconds in (("a", 10.0), ("b", 10.0), ("b", 20.0)):
            spec = skill(lab.place, env={"KEY": value})
            found.append((await lab.ask(executor, spec, timeout=seconds)).value[1])
            await is_ready(executor)
        return found

    assert lab.run(scene) == ["a", "b", "b"]


FAILING = {
    "raises": "raise ValueError('no such thing')\n",
    "exits": "import os\nos._exit(3)\n",
    "ends": "import sys\nsys.exit(3)\n",
    "needs a name": "import no_such_module\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILING)
def test_code_that_does_not_load_fails_each_call_alike(lab: Lab, name: str) -> None:
    files = {"pack.py": FAILING[name]}
    spec = skill(lab.place, dependencies=packages(lab.place, **files))

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for _ in range(3):
            result = await lab.ask(executor, spec)
            found.append((result.kind, result.error, result.frames))
            await anyio.sleep(0.1)
        return [*found, executor.health()["ready"]]

    first, *others, ready = lab.run(scene)
    assert first[0] in ("error", "crashed")
    assert (others, ready) == ([first, first], 0)


@pytest.mark.slow
def test_code_that_loads_for_too_long_is_given_up(lab: Lab, monkeypatch: Any) -> None:
    monkeypatch.setattr(ready_calls, "LOAD_SECONDS", 0.2)
    slow = "import time\ntime.sleep(0.5)\ncount = 0\n"
    spec = skill(lab.place, dependencies=packages(lab.place, **{"pack.py": slow}))

    async def scene(executor: Executor) -> list[Any]:
        return [(await lab.ask(executor, spec)).value for _ in range(3)]

    assert lab.run(scene) == [[1, None, None]] * 3


@pytest.mark.slow
def test_code_that_takes_too_much_memory_is_loaded_by_each_call(lab: Lab) -> None:
    files = {"pack.py": f"held = bytearray({WAITING_BYTES + 4 * MIB})\ncount = 0\n"}
    spec = skill(lab.place, dependencies=packages(lab.place, **files))

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for _ in range(3):
            found.append((await lab.ask(executor, spec)).value)
            await anyio.sleep(0.3)
        return [*found, executor.health()["ready"]]

    assert lab.run(scene) == [[1, None, None]] * 3 + [0]


@pytest.mark.slow
def test_what_waits_takes_nothing_of_the_memory_of_calls(tmp_path: Path, need: Any) -> None:
    """Two processes wait with what numpy and pandas take, and a call has all that it may have."""
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    source = """
        import pack
        def tool(params, context):
            return len(bytearray(b"x") * (params["MiB"] << 20))
        tools = {"tool": tool}
    """
    files = {"pack.py": f"held = bytearray(b'x') * {80 * MIB}\ncount = 0\n"}
    spec = skill(tmp_path, source, dependencies=packages(tmp_path, **files))

    async def scene(executor: Executor) -> list[CellResult]:
        async def ask(mib: int) -> CellResult:
            return await lab.ask(executor, spec, arguments={"MiB": mib})

        await ask(1)
        await is_ready(executor)
        # Calls that find none make more wait.
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask, 1)
        await is_ready(executor, count=2)
        return [await ask(340), await ask(440)]

    fits, exceeds = lab.run(scene)
    assert fits.value == 340 * MIB, fits
    assert exceeds.kind == "resource-limit"


@pytest.mark.slow
def test_what_waits_ends_with_its_cell(lab: Lab, language: str) -> None:
    spec = skill(lab.place, language=language)

    async def scene(executor: Executor) -> int:
        await lab.ask(executor, spec)
        await is_ready(executor)
        await executor.end()
        await until(lambda: not executor.is_busy)
        return len(descendants())

    assert lab.run(scene) == 0


@pytest.mark.slow
def test_without_packages_python_needs_no_process_that_waits(lab: Lab) -> None:
    spec = make(lab.place, "import decimal\ntools = {'tool': lambda params, context: 1}\n")

    async def scene(executor: Executor) -> int:
        for _ in range(3):
            await lab.ask(executor, spec)
            await anyio.sleep(0.1)
        return int(executor.health()["ready"])

    assert lab.run(scene) == 0


IMPORTS = """
    import sys
    before = set(sys.modules)

    async def tool(params, context):
        import decimal, asyncio, xml.etree.ElementTree
        from concurrent import futures
        names = ("decimal", "xml.etree.ElementTree", "concurrent.futures", "this", "asyncio")
        found = [name for name in names if name in before]
        await asyncio.sleep(0)
        return [found, asyncio.current_task() is not None]

    tools = {"tool": tool}
"""


@pytest.mark.slow
def test_modules_of_the_standard_library_are_imported_ahead_by_later_calls(lab: Lab) -> None:
    spec = make(lab.place, IMPORTS)

    async def scene(executor: Executor) -> list[Any]:
        first = await lab.ask(executor, spec)
        with anyio.fail_after(20):
            while True:
                found = await lab.ask(executor, spec)
                if found.value[0]:
                    return [first.value, found.value]

    # Not asyncio: until the tool itself imports it, there is no loop.
    ahead = ["decimal", "xml.etree.ElementTree", "concurrent.futures"]
    first, later = lab.run(scene)
    assert (first, later[1], set(later[0]) <= set(ahead)) == ([[], True], True, True)


@pytest.mark.slow
def test_what_is_imported_ahead_opens_and_starts_and_shares_nothing() -> None:
    """All modules that any report can bring, in one process as the one that forks."""
    program = f"""
import gc, os, pkgutil, random, sys
sys.path.insert(0, {str(CELLS)!r})
import cell_imports
names = [name for name in sorted(sys.stdlib_module_names) if cell_imports.is_allowed(name)]
def files():
    return len(os.listdir("/proc/self/fd"))
opened = files()
inner = []
for name in names:
    try:
        module = __import__(name)
    except ImportError:
        continue
    for one in pkgutil.iter_modules(getattr(module, "__path__", ())):
        inner.append(f"{{name}}.{{one.name}}")
for name in inner:
    if cell_imports.is_allowed(name):
        try:
            __import__(name)
        except Exception:
            continue
refused = [name for name in sys.modules if name.partition(".")[0] in cell_imports.REFUSED]
refused += [name for name in cell_imports.REFUSED_PARTS if name in sys.modules]
made = [one for one in gc.get_objects() if isinstance(one, random.Random)]
made = [one for one in made if not isinstance(one, random.SystemRandom)]
tasks = len(os.listdir("/proc/self/task"))
print([len(names) > 150, refused, len(made), tasks, files() - opened])
"""
    argv = [sys.executable, "-I", "-S", "-W", "ignore", "-c", program]
    done = ran(argv)
    assert (done.stdout.strip(), done.stderr) == ("[True, [], 1, 1, 0]", "")


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (None, ()),
        ("json", ()),
        ({"json": 1}, ()),
        (["json", "json", "a.b.c"], ("json", "a.b.c")),
        (["", ".", "a.", ".a", "a..b", "a-b", "1a", "a b", "ä", "a/b", None, 1, ["a"]], ()),
        (["a" * 65, ".".join(["a"] * 7)], ()),
    ],
)
def test_names_in_a_report_are_only_such(value: Any, names: tuple[str, ...]) -> None:
    assert module_names(value) == names


@pytest.mark.slow
def test_what_is_learned_is_bounded(tmp_path: Path) -> None:
    learned = LearnedImports()
    spec = make(tmp_path, "tools = {}\n")
    many = [f"m{n}" for n in range(NAMES_MAX * 3)]
    report: dict[str, Any] = {"modules": many, "bytes": 3, "loaded": True}
    assert learned.learn(spec, report) == tuple(many[:NAMES_MAX])
    assert learned.learn(spec, {**report, "modules": many[NAMES_MAX:]}) == ()
    assert learned.fitting(spec, 8) == 2
    assert learned.fitting(spec, 3 * READY_MAX + 100) == READY_MAX
    for n in range(SKILLS_MAX):
        learned.learn(make(tmp_path, f"tools = {{}} # {n}\n"), report)
    assert learned.known(spec) is None


@pytest.mark.parametrize(
    "report",
    [{}, {"bytes": True, "loaded": True}, {"bytes": -1, "loaded": True}, {"bytes": 5},
     {"bytes": 5, "loaded": False}, {"bytes": "5", "loaded": True}],
)  # fmt: skip
def test_after_a_report_that_is_none_no_process_waits(report: Any, tmp_path: Path) -> None:
    learned = LearnedImports()
    spec = make(tmp_path, "tools = {}\n")
    assert learned.learn(spec, report) == ()
    assert learned.fitting(spec, 1 << 30) == 0


def test_more_processes_wait_while_calls_find_none_and_one_when_it_is_quiet() -> None:
    now = [0.0]
    demand = Demand(most=3, clock=lambda: now[0])
    found = [demand.wanted]
    for _ in range(4):
        demand.miss()
        found.append(demand.wanted)
    for step in (QUIET_SECONDS - 1, 1):
        now[0] += step
        found.append(demand.wanted)
    assert found == [1, 2, 3, 3, 3, 3, 1]


@pytest.mark.slow
def test_node_has_more_processes_at_a_higher_rate(lab: Lab, need: Any) -> None:
    need(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"), "no Node.js")
    spec = skill(lab.place, language="javascript")

    async def scene(executor: Executor) -> list[Any]:
        found = [(await lab.ask(executor, spec)).kind for _ in range(12)]
        await is_ready(executor, count=2)
        return [*set(found), executor.health()["ready"] <= READY_MAX]

    assert lab.run(scene) == ["ok", True]

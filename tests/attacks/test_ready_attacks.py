"""Attacks through what is imported before a call: by packages, by skills and by earlier calls."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from skillhouse.extensions.cells import CellSpec, Executor
from tests.extensions.cells.lab import Lab, lab, make, until
from tests.extensions.cells.test_ready_calls import is_ready, packages, skill

pytestmark = pytest.mark.slow

__all__ = ["lab"]

CALLS = 4


async def values(lab: Lab, executor: Executor, spec: CellSpec, *, ready: bool) -> list[Any]:
    found = []
    for _ in range(CALLS):
        result = await lab.ask(executor, spec)
        assert result.kind == "ok", result
        found.append(result.value)
        if ready:
            await is_ready(executor)
        else:
            await anyio.sleep(0.2)
    return found


RANDOM = """
    import random, secrets, ssl, tempfile, uuid
    {more}
    def tool(params, context):
        {seen}
        return [
            random.random(), random.randbytes(8).hex(), secrets.token_hex(8), str(uuid.uuid4()),
            ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()), str(uuid.uuid1()),
        ]

    tools = {{"tool": tool}}
"""


@pytest.mark.parametrize("with_packages", [False, True])
def test_what_is_random_is_another_in_each_call(lab: Lab, *, with_packages: bool) -> None:
    """Forks of one process would share the state of generators that were seeded before."""
    source = RANDOM.format(more="import pack" if with_packages else "", seen="pass")
    seeded = "import ssl, random\nssl.create_default_context()\nrandom.random()\nown = random\n"
    more = {"pack.py": seeded + "made = random.Random()\n"}
    more_source = source.replace("return [", "return [" + "pack.made.random()," * with_packages)
    spec = (
        skill(lab.place, more_source, dependencies=packages(lab.place, **more))
        if with_packages
        else make(lab.place, source)
    )

    async def scene(executor: Executor) -> list[Any]:
        return await values(lab, executor, spec, ready=with_packages)

    columns = zip(*lab.run(scene), strict=True)
    assert [len(set(column)) for column in columns] == [CALLS] * (7 + with_packages)


STATE = """
    import pack, os, sys, json

    def tool(params, context):
        seen = [hasattr(pack, "left"), hasattr(json, "left"), os.path.exists("/tmp/left")]
        seen += ["wave" in sys.modules, sys.path.count("/left"), "LEFT" in os.environ]
        pack.left = json.left = os.environ["LEFT"] = "1"
        open("/tmp/left", "w").close()
        sys.path.append("/left")
        __import__(params["name"])
        return seen

    tools = {"tool": tool}
"""


def test_a_call_leaves_no_sign_to_what_was_loaded_before_it_ended(lab: Lab) -> None:
    """Not even by what it imports, which a cell could otherwise learn from it."""
    spec = skill(lab.place, STATE)

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for _ in range(CALLS):
            asked = [lab.ask(executor, spec, arguments={"name": "wave"}) for _ in range(2)]
            results: list[Any] = []

            async def one(work: Any, results: list[Any] = results) -> None:
                results.append((await work).value)

            async with anyio.create_task_group() as tasks:
                for work in asked:
                    tasks.start_soon(one, work)
            found += results
            await is_ready(executor)
        return found

    nothing = [False, False, False, False, 0, False]
    assert lab.run(scene) == [nothing] * (2 * CALLS)


FORGED = """
    import json, os, sys

    names = ["this", "antigravity", "multiprocessing", "ctypes.test", "no_such", "../evil"]
    names += ["json.tool", "main", "__main__", "_io", "pack", "os;import this", "evil"] * 40
    params = {"modules": names + ["wave"], "bytes": 1, "loaded": True}
    data = json.dumps({"jsonrpc": "2.0", "method": "cell.prepared", "params": params}).encode()
    before = sorted(sys.modules)
    if params:
        try:
            os.write(3, len(data).to_bytes(4, "big") + data)
        except OSError:
            pass

    def tool(params, context):
        return [name for name in before if name.split(".")[0] in params["names"]]

    tools = {"tool": tool}
"""


def test_a_forged_report_brings_no_module_that_is_none_of_the_library(lab: Lab) -> None:
    """The code of a skill writes to the connection before our own report."""
    files = {"evil.py": "raise SystemExit\n", "other/this.txt": ""}
    spec = make(lab.place, FORGED, files=files)
    names = ["this", "antigravity", "multiprocessing", "test", "no_such", "evil", "pack"]

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for _ in range(CALLS):
            result = await lab.ask(executor, spec, arguments={"names": names})
            found.append((result.kind, result.value))
            await anyio.sleep(0.1)
        return [*found, executor.health()["cells"]]

    assert lab.run(scene) == [("ok", [])] * CALLS + [1]


def test_an_answer_before_the_call_is_none(lab: Lab) -> None:
    """A process that waits has not got the number of the request that it will answer."""
    answers = """
        import json, os
        for number in ("", 1, "1", None):
            data = json.dumps({"jsonrpc": "2.0", "id": number, "result": "forged"}).encode()
            os.write(3, len(data).to_bytes(4, "big") + data)
        tools = {"tool": lambda params, context: "right"}
    """
    spec = skill(lab.place, answers)

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for _ in range(CALLS):
            result = await lab.ask(executor, spec)
            found.append((result.kind, result.value))
            await anyio.sleep(0.1)
        return found

    assert lab.run(scene) == [("protocol", None)] * CALLS


OWN = """
    import asyncio, json
    import queue, colorsys

    async def tool(params, context):
        await asyncio.sleep(0)
        return [queue.OWN, colorsys.OWN]

    tools = {"tool": tool}
"""


@pytest.mark.parametrize("in_packages", [False, True])
def test_a_module_ahead_never_takes_the_place_of_the_skills_own(
    lab: Lab, *, in_packages: bool
) -> None:
    own = (
        "from asyncio import *\nclass _O: pass\nQueue = SimpleQueue = Empty = Full = _O\nOWN = 1\n"
    )
    own = own.replace("from asyncio import *\n", "")
    files = {"queue.py": own, "colorsys.py": "OWN = 2\n"}
    spec = (
        skill(lab.place, OWN, dependencies=packages(lab.place, **files))
        if in_packages
        else make(lab.place, OWN, files=files)
    )

    async def scene(executor: Executor) -> list[Any]:
        return await values(lab, executor, spec, ready=in_packages)

    assert lab.run(scene) == [[1, 2]] * CALLS


OWN_PATH = """
    import os, sys
    {early}
    import asyncio, json

    async def tool(params, context):
        {late}
        import queue
        await asyncio.sleep(0)
        return queue.OWN

    tools = {{"tool": tool}}
"""


@pytest.mark.parametrize(
    "how",
    [
        "sys.path.insert(0, os.path.dirname(__file__) + '/lib/inner')",
        "sys.path.insert(0, os.path.dirname(__file__) + '/lib/inner'); import queue",
        "sys.modules.setdefault('queue', type(sys)('queue')); sys.modules['queue'].OWN = 1",
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_skills_own_way_to_a_module_stays_its_own(lab: Lab, how: str, *, is_late: bool) -> None:
    source = OWN_PATH.format(early="pass" if is_late else how, late=how if is_late else "pass")
    spec = make(lab.place, source, files={"lib/inner/queue.py": "OWN = 1\n"})

    async def scene(executor: Executor) -> list[Any]:
        return await values(lab, executor, spec, ready=False)

    assert lab.run(scene) == [1] * CALLS


LOOPS = {
    "never": ("", "kind(context.read_file('a'))"),
    "by the tool": ("", "(__import__('asyncio'), kind(context.read_file('a')))[1]"),
    "by a package": ("import uses\n", "kind(context.read_file('a'))"),
    "by a package in a function": ("import lazy\n", "kind(context.read_file('a'))"),
    "in a function of a package": ("import lazy\n", "(lazy.go(), kind(context.read_file('a')))[1]"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_tool_meets_the_same_loop_whatever_was_imported_ahead(lab: Lab, name: str) -> None:
    first, body = LOOPS[name]
    source = f"""
{first}
def kind(value):
    found = type(value).__name__
    if found == "coroutine":
        value.close()
    return found

async def tool(params, context):
    return {body}

tools = {{"tool": tool}}
"""
    files = {"uses.py": "import asyncio\n", "lazy.py": "def go():\n    import asyncio\n"}
    spec = skill(lab.place, source, dependencies=packages(lab.place, **files))

    async def scene(executor: Executor) -> list[Any]:
        return await values(lab, executor, spec, ready=True)

    is_loop = name in ("by the tool", "by a package", "in a function of a package")
    assert lab.run(scene) == ["coroutine" if is_loop else "Text"] * CALLS


def test_a_package_that_leaves_processes_at_its_import_leaves_none_behind(lab: Lab) -> None:
    forks = (
        "import os\nif not os.fork():\n    os.setsid()\n    while True:\n        os.sched_yield()\n"
    )
    spec = skill(lab.place, dependencies=packages(lab.place, **{"pack.py": forks + "count = 0\n"}))

    async def scene(executor: Executor) -> list[Any]:
        found = await values(lab, executor, spec, ready=True)
        await executor.end()
        await until(lambda: not executor.is_busy)
        return found

    assert lab.run(scene) == [[1, None, None]] * CALLS

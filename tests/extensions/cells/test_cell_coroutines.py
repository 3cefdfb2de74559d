"""How async tools get a loop: cells/cell_coroutines.py, in a process as a cell's is."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from tests.harness import ran

from skillhouse.extensions.cells import cell_coroutines

HEAD = """
import json, sys
from importlib.machinery import SourceFileLoader
if sys.argv[2] == "preloaded":
    import asyncio
    del asyncio
module = SourceFileLoader("coroutines", sys.argv[1]).load_module()
imported = module.AsyncioImport()
imported.install()
found, kept = [], []
"""
TAIL = """
try:
    found.append(module.run(tool(), imported))
except BaseException as error:
    found.append(type(error).__name__)
print(json.dumps(found))
"""
CASES = {
    "returns without a loop": ("async def tool():\n    return 1", [1]),
    "raises without a loop": ("async def tool():\n    raise KeyError", ["KeyError"]),
    "has no loop before the import": (
        """
        async def tool():
            found.append("asyncio" in sys.modules)
            import asyncio
            found.append("asyncio" in sys.modules)
            return asyncio.get_running_loop() is asyncio.get_event_loop()
        """,
        [False, True, True],
    ),
    "a submodule is imported first": (
        """
        async def tool():
            from asyncio.tasks import current_task, sleep
            first = current_task()
            await sleep(0.001)
            return current_task() is first
        """,
        [True],
    ),
    "imported when the module was loaded": (
        """
        import asyncio
        async def tool():
            await asyncio.sleep(0)
            return asyncio.current_task() is not None
        """,
        [True],
    ),
    "raises in the first step": (
        """
        async def tool():
            import asyncio
            asyncio.ensure_future(asyncio.sleep(60))
            raise KeyError
        """,
        ["KeyError"],
    ),
    "raises in a later step": (
        """
        async def tool():
            import asyncio
            await asyncio.sleep(0)
            raise KeyError
        """,
        ["KeyError"],
    ),
    "leaves in a later step": (
        """
        async def tool():
            import asyncio
            await asyncio.sleep(0)
            sys.exit(3)
        """,
        ["SystemExit"],
    ),
    "what it leaves running is cancelled": (
        """
        async def tool():
            import asyncio
            async def other():
                try:
                    await asyncio.sleep(60)
                finally:
                    found.append("ended")
            asyncio.ensure_future(other())
            await asyncio.sleep(0)
            return "answered"
        """,
        ["ended", "answered"],
    ),
    "cancels itself before it waits": (
        """
        async def tool():
            import asyncio
            asyncio.current_task().cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                found.append("cancelled")
                raise
        """,
        ["cancelled", "CancelledError"],
    ),
    "a time limit that has passed": (
        """
        async def tool():
            import asyncio
            try:
                async with asyncio.timeout(0):
                    await asyncio.sleep(60)
            except TimeoutError:
                return "too late"
        """,
        ["too late"],
    ),
    "a time limit in a later step": (
        """
        async def tool():
            import asyncio
            await asyncio.sleep(0)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 0.001)
            except TimeoutError:
                return asyncio.current_task().cancelling()
        """,
        [0],
    ),
    "context variables": (
        """
        from contextvars import ContextVar
        name = ContextVar("name", default="none")
        async def tool():
            name.set("before")
            import asyncio
            async def other():
                return name.get()
            later = asyncio.ensure_future(other())
            await asyncio.sleep(0)
            return [name.get(), await later]
        """,
        [["before", "before"]],
    ),
    "an asynchronous generator of the first step": (
        """
        async def tool():
            import asyncio
            async def numbers():
                try:
                    yield 1
                finally:
                    await asyncio.sleep(0)
                    found.append("closed")
            kept.append(numbers())
            found.append(await anext(kept[0]))
            await asyncio.sleep(0)
            return "answered"
        """,
        [1, "closed", "answered"],
    ),
    "asyncio.run is refused as anywhere": (
        """
        async def tool():
            import asyncio
            async def other():
                return 1
            coroutine = other()
            try:
                asyncio.run(coroutine)
            except RuntimeError as error:
                coroutine.close()
                return str(error)
        """,
        ["asyncio.run() cannot be called from a running event loop"],
    ),
    "a loop of another thread": (
        """
        import threading
        async def tool():
            async def other():
                import asyncio
                await asyncio.sleep(0)
                return 2
            def run():
                import asyncio
                found.append(asyncio.run(other()))
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return 3
        """,
        [2, 3],
    ),
    "a program that looks for asyncio": (
        """
        async def tool():
            import sniffio
            return "asyncio" in sys.modules
        """,
        [True],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("state", ["fresh", "preloaded"])
@pytest.mark.parametrize("name", CASES)
def test_an_async_tool_sees_what_a_loop_would_show_it(tmp_path: Path, name: str, state: str):
    source, expected = CASES[name]
    (tmp_path / "sniffio.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(HEAD + textwrap.dedent(source) + TAIL)
    done = ran(
        [sys.executable, "-W", "ignore", program, str(cell_coroutines.__file__), state],
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == expected

"""Runs a Python skill's async tools, with asyncio from the moment at which the skill imports it.

Loaded by cell_python.py in a cell, with the standard library only. To import asyncio takes 40 ms,
and most tools only await their `context`, which needs no event loop. So a tool begins without a
loop. When something imports asyncio meanwhile, a loop is made and the running step becomes the
first step of a task: what the tool sees is what `asyncio.run` would show it.
"""

from __future__ import annotations

import _thread
import sys
from contextvars import copy_context
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # The modules themselves would cost a megabyte.
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any

USERS = ("anyio", "sniffio")
"""They look for asyncio in `sys.modules`, where it always is when `asyncio.run` runs a program."""


class AsyncioImport:
    """Finds asyncio for the import system, and reports when the skill has imported it."""

    def __init__(self) -> None:
        self.is_done = False
        self.then: Callable[[], None] | None = None
        self.loader: Any = None
        # The cell may have imported it before, which is not the skill's import.
        names = [name for name in sys.modules if name.partition(".")[0] == "asyncio"]
        self.kept = {name: sys.modules.pop(name) for name in names}

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in USERS and not self.is_done:
            __import__("asyncio")
        if name != "asyncio" or self.is_done:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self  # type: ignore[assignment] # As above.
        return spec

    def create_module(self, spec: Any) -> Any:
        return self.kept.get(spec.name)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        if self.kept:
            sys.modules.update(self.kept)
        else:
            self.loader.exec_module(module)
        # A module of this name that is not asyncio is the skill's own affair.
        self.is_done = hasattr(module, "run_coroutine_threadsafe")
        if self.is_done and self.then is not None:
            self.then()


def run(awaitable: Any, imported: AsyncioImport) -> Any:
    """Return what an async tool returns."""

    async def awaited() -> Any:
        return await awaitable

    if imported.is_done:
        asyncio = sys.modules["asyncio"]
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        return completed(loop, loop.create_task(awaited()))
    return FirstStep(awaited()).run(imported)


def completed(loop: Any, task: Any) -> Any:
    """Return a task's result. Other tasks are cancelled; threads end with the process."""
    asyncio = sys.modules["asyncio"]
    try:
        return loop.run_until_complete(task)
    finally:
        if others := asyncio.all_tasks(loop):
            for other in others:
                other.cancel()
            loop.run_until_complete(asyncio.gather(*others, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())


class FirstStep:
    """A coroutine that begins without a loop, and becomes a task where it needs one."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.context = copy_context()
        self.thread = _thread.get_ident()
        self.loop: Any = None
        self.task: Any = None
        self.yielded: Any = None
        self.returned: Any = None
        self.raised: BaseException | None = None
        self.is_over = False

    def run(self, imported: AsyncioImport) -> Any:
        imported.then = self.make_loop
        while not self.is_over:
            self.step()
            if self.loop is not None:
                imported.then = None
                asyncio = sys.modules["asyncio"]
                # For those who extend asyncio; documented as such.
                asyncio.tasks._leave_task(self.loop, self.task)  # noqa: SLF001 - see above.
                asyncio._set_running_loop(None)  # noqa: SLF001 - see above.
                return completed(self.loop, self.task)
        if self.raised is not None:
            raise self.raised
        return self.returned

    def step(self) -> None:
        try:
            self.yielded = self.context.run(self.coroutine.send, None)
        except StopIteration as done:
            self.returned, self.is_over = done.value, True
        except BaseException as error:  # noqa: BLE001 - raised again, in the task if there is one.
            self.raised, self.is_over = error, True

    def make_loop(self) -> None:
        """Make the running step the first step of a task, as `asyncio.Task` does it."""
        if self.loop is not None or _thread.get_ident() != self.thread:
            return
        asyncio = sys.modules["asyncio"]
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        rest = self.rest()
        rest.send(None)
        self.task = asyncio.Task(rest, loop=self.loop, context=self.context)
        asyncio._set_running_loop(self.loop)  # noqa: SLF001 - as above.
        asyncio.tasks._enter_task(self.loop, self.task)  # noqa: SLF001 - as above.
        hooks = ("_asyncgen_firstiter_hook", "_asyncgen_finalizer_hook")
        sys.set_asyncgen_hooks(*(getattr(self.loop, name, None) for name in hooks))

    async def rest(self) -> Any:
        return await RemainingSteps(self)


class RemainingSteps:
    """All steps after the first one."""

    def __init__(self, first: FirstStep) -> None:
        self.first = first

    def __await__(self) -> Generator[Any, Any, Any]:
        first = self.first
        # Until the loop runs, the first step runs outside of the task.
        sent, error = yield from answered(None)
        if first.raised is not None:
            raise first.raised
        if first.is_over:
            if error is not None:
                raise error
            return first.returned
        if error is None:
            sent, error = yield from answered(first.yielded)
        while True:
            try:
                if error is None:
                    value = first.coroutine.send(sent)
                else:
                    value = first.coroutine.throw(error)
            except StopIteration as done:
                return done.value
            sent, error = yield from answered(value)


def answered(value: Any) -> Generator[Any, Any, tuple[Any, BaseException | None]]:
    """Yield a value; return what is then sent, and what is thrown."""
    try:
        return (yield value), None
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - passed on to the tool's coroutine.
        return None, error

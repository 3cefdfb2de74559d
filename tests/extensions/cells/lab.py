"""What the tests of cells share: skills, a core that answers, an executor of each level."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from tests.harness import Need
from tests.sandbox.places import LEVELS

from skillhouse.extensions.cells import CellResult, CellSpec, Executor, RpcError
from skillhouse.floor import tree_digest
from skillhouse.net import EgressProxy
from skillhouse.sandbox import SandboxLevel, SandboxStatus, detect
from skillhouse.sandbox.code_call import OutputPart

T = TypeVar("T")
ENTRIES = {"python": "main.py", "javascript": "index.js"}


class Core:
    """Answers what skills ask, and remembers it."""

    network: EgressProxy | None = None

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.logged: list[str] = []
        self.told: list[tuple[float, str]] = []
        self.parts: list[OutputPart] = []

    async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(("fetch", dict(request)))
        return {"status": 200, "headers": {"Content-Type": "text/plain"}, "body": "[1, 2]"}

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(("sign", dict(request)))
        return {"signature": "0x01"}

    async def read_file(self, path: str) -> str:
        self.asked.append(("read_file", path))
        if path.startswith("../"):
            raise RpcError(-32003, "outside the workspace", reason="path-escape")
        return f"text of {path}"

    def log(self, text: str) -> None:
        self.logged.append(text)

    def output(self, part: OutputPart) -> None:
        self.parts.append(part)

    def files(self) -> dict[str, bytes | str]:
        """Return what came of each file: its bytes, or why it was left out."""
        found: dict[str, Any] = {}
        for part in self.parts:
            found[part.name] = part.left_out or found.get(part.name, b"") + part.data
        return found

    def progress(self, fraction: float, text: str) -> None:
        self.told.append((fraction, text))


def make(place: Path, source: str, *, language: str = "python", **options: Any) -> CellSpec:
    """Write a skill with one file, and return what runs it."""
    directory = place / options.pop("name", "skill")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ENTRIES[language]).write_text(textwrap.dedent(source))
    for name, text in options.pop("files", {}).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(textwrap.dedent(text))
    given = {"skill": "project:skill", "entry": ENTRIES[language], **options}
    return CellSpec(
        digest=tree_digest(directory),
        directory=directory,
        language="python" if language == "python" else "javascript",
        **given,
    )


def status_of(level: SandboxLevel, need: Need) -> SandboxStatus:
    """Return the status of exactly this level, or skip the test (see `places.launcher_at`)."""

    async def find() -> SandboxStatus:
        return await detect(most=level)

    status = anyio.run(find)
    if level is SandboxLevel.RLIMITS and os.geteuid() == 0:
        return SandboxStatus(level=level)
    need(status.level is level, f"no sandbox {level}: {'; '.join(status.reasons)}")
    return status


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another process brings about."""
    with anyio.fail_after(50):
        while not condition():  # noqa: ASYNC110 - nothing tells of it.
            # What waits takes no time from what it waits for.
            await anyio.sleep(0.01)


class Lab:
    """An executor and its place, for one test."""

    def __init__(self, status: SandboxStatus, place: Path) -> None:
        self.status = status
        self.place = place
        self.core = Core()

    @asynccontextmanager
    async def executor(self, **options: Any) -> Any:
        executor = Executor(self.status, state=self.place / "state", **options)
        try:
            yield executor
        finally:
            with anyio.CancelScope(shield=True):
                await executor.close()

    def run(self, work: Callable[[Executor], Awaitable[T]], **options: Any) -> T:
        """Return what `work` returns, given an executor."""

        async def scene() -> T:
            async with self.executor(**options) as executor:
                return await work(executor)

        return anyio.run(scene)

    async def ask(
        self, executor: Executor, spec: CellSpec, tool: str = "tool", **options: Any
    ) -> CellResult:
        given = {"meta": {}, "timeout": 10.0, "host": self.core, **options}
        if "network" in given:
            given["host"] = copy(given["host"])
            given["host"].network = given.pop("network")
        return await executor.execute(spec, tool, given.pop("arguments", {}), **given)

    def call(self, spec: CellSpec, tool: str = "tool", **options: Any) -> CellResult:
        """Return what comes of one call in an executor of its own."""
        made = {name: options.pop(name) for name in ("limits", "max_cells") if name in options}
        return self.run(lambda executor: self.ask(executor, spec, tool, **options), **made)


@pytest.fixture(params=LEVELS)
def lab(request: pytest.FixtureRequest, tmp_path: Path, need: Any) -> Lab:
    """An executor of each level in turn."""
    return Lab(status_of(request.param, need), tmp_path)


@pytest.fixture(params=["python", "javascript"])
def language(request: pytest.FixtureRequest, need: Any) -> str:
    """Each language that cells run, in turn."""
    if request.param == "javascript":
        need(shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"), "no Node.js")
    return str(request.param)

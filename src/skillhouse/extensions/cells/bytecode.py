"""Bytecode of installed Python packages, made once by a cell, so that no call compiles them.

Compiling runs no code of the packages, but it reads it: so it is done in a cell that sees them
read-only and answers with the bytecode. What the answer can do is what the packages could do by
themselves where both are imported, in a cell. Bytecode that came with a package is removed first:
it need not be that of the source beside it.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from skillhouse.extensions.cells.cell import NoHost
from skillhouse.extensions.cells.environment_store import FILES_MAX
from skillhouse.extensions.cells.executor import Executor
from skillhouse.floor import tree_digest
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import Python, SandboxError, SandboxUnavailableError
from skillhouse.sandbox.code_call import CellSpec, Language, RpcError

COMPILER = Path(__file__).with_name("compile_cell.py")
SKILL = "skillhouse:compile"
BATCH_BYTES = 1 << 20
"""Sources of one call, whose answer has to fit a message."""
BATCH_SECONDS = 30.0
SOURCE_MAX = 3 << 20
"""Larger modules have no bytecode: an answer could not hold it."""
ALL_SECONDS = 120.0
"""After this time the rest of an environment has none."""
AT_ONCE = 2
CACHE_NAME = "__pycache__"
_HEADER = 16
_UNCHECKED = 1

logger = logging.getLogger(__name__)


def remove_bytecode(installed: Path) -> None:
    """Remove all that packages brought as bytecode of their sources."""
    for place, directories, files in os.walk(installed):
        for name in (*directories, *files):
            if name == CACHE_NAME:
                path = Path(place, name)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if CACHE_NAME in directories:
            directories.remove(CACHE_NAME)


class RemainingQuota(Struct):
    """What may still be added to an environment."""

    size: int
    files: int

    def take(self, size: int, *, files: int) -> bool:
        if size > self.size or files > self.files:
            return False
        self.size -= size
        self.files -= files
        return True


async def make_bytecode(
    executor: Executor, installed: Path, python: Python, *, max_bytes: int
) -> int:
    """Add bytecode to packages in a directory; return for how many modules it was made.

    A module without it is compiled by each import, so nothing that fails here fails an
    installation.

    Args:
        python: The interpreter that will import them.
        max_bytes: Most bytes of the directory with the bytecode.
    """
    sources, space = await in_thread(lambda: _surveyed(installed, max_bytes))
    if not sources:
        return 0
    with tempfile.TemporaryDirectory(prefix="skillhouse-compile-") as directory:
        spec = compiler_cell(
            COMPILER, directory, installed, skill=SKILL, language="python", python=python
        )
        work = _Compiling(executor, spec, installed, python, space)
        try:
            with anyio.move_on_after(ALL_SECONDS):
                await work.run(list(_batches(sources)))
        except (SandboxError, SandboxUnavailableError, RpcError, OSError) as error:
            logger.warning("no bytecode for the packages in %s: %s", installed, error)
        finally:
            with anyio.CancelScope(shield=True):
                await executor.reload(SKILL)
    return work.made


def compiler_cell(
    compiler: Path,
    directory: str,
    installed: Path,
    *,
    skill: str,
    language: Language,
    python: Python | None = None,
) -> CellSpec:
    """Write the skill that compiles packages, and return what runs it."""
    place, entry = Path(directory).resolve(), f"main{compiler.suffix}"
    (place / entry).write_bytes(compiler.read_bytes())
    return CellSpec(
        skill=skill,
        digest=tree_digest(place),
        directory=place,
        language=language,
        entry=entry,
        dependencies=installed,
        python=python,
        is_single=True,
    )


class _Compiling:
    def __init__(
        self,
        executor: Executor,
        spec: CellSpec,
        installed: Path,
        python: Python,
        space: RemainingQuota,
    ) -> None:
        self.made = 0
        self._executor = executor
        self._spec = spec
        self._installed = installed
        self._tag = "cpython-{}{}".format(*python.version)
        self._space = space

    async def run(self, batches: list[list[str]]) -> None:
        failures: list[Exception] = []

        async def work() -> None:
            try:
                while batches and not failures:
                    batches.extend(await self._compile(batches.pop()))
            except (SandboxError, SandboxUnavailableError, RpcError, OSError) as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(work)
        if failures:
            raise failures[0]

    async def _compile(self, names: list[str]) -> list[list[str]]:
        """Compile files; return what is to be tried again: the halves of what failed as a whole."""
        result = await self._executor.execute(
            self._spec, "compile", {"files": names}, meta={}, timeout=BATCH_SECONDS, host=NoHost()
        )
        if result.kind == "ok" and isinstance(result.value, dict):
            await in_thread(lambda: self._write(names, result.value))
            return []
        logger.debug("cannot compile %d files: %s %s", len(names), result.kind, result.error)
        half = len(names) // 2
        return [names[:half], names[half:]] if half else []

    def _write(self, names: list[str], answer: Mapping[str, Any]) -> None:
        directories = set()
        for name in names:
            data = _bytecode(answer.get(name))
            directory = self._installed / os.path.dirname(name) / CACHE_NAME
            is_new = directory not in directories and not directory.exists()
            if not data or not self._space.take(len(data), files=1 + is_new):
                continue
            directory.mkdir(exist_ok=True)
            directories.add(directory)
            stem = os.path.basename(name).removesuffix(".py")
            (directory / f"{stem}.{self._tag}.pyc").write_bytes(data)
            self.made += 1


def _bytecode(value: object) -> bytes:
    """Return bytecode that an import takes without a look at its source; b"" for anything else."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        return b""
    is_right = len(data) > _HEADER and int.from_bytes(data[4:8], "little") == _UNCHECKED
    return data if is_right else b""


def _surveyed(installed: Path, max_bytes: int) -> tuple[list[tuple[str, int]], RemainingQuota]:
    """Return the modules below a directory with their sizes, and what fits beside all files."""
    sources: list[tuple[str, int]] = []
    space = RemainingQuota(max_bytes, FILES_MAX)
    for place, directories, files in os.walk(installed):
        for name in (*directories, *files):
            path = os.path.join(place, name)
            size = os.lstat(path).st_size if name in files else 0
            space.size -= size
            space.files -= 1
            is_file = name.endswith(".py") and os.path.isfile(path) and not os.path.islink(path)
            if is_file and size <= SOURCE_MAX:
                sources.append((os.path.relpath(path, installed), size))
    return sorted(sources), space


def _batches(sources: list[tuple[str, int]]) -> Iterator[list[str]]:
    batch: list[str] = []
    total = 0
    for name, size in sources:
        if batch and total + size > BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch

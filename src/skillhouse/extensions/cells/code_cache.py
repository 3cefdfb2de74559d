"""What spares calls the compilation of packages, made once where these are installed.

For Python that is bytecode (bytecode.py), for npm packages V8's code cache.

V8 keeps compiled functions once they have run, so the packages are loaded for it: in a cell, as a
call that has nothing to do, after the call that needs them was permitted. The cache belongs to the
packages that made it and is used only where they are: by the cells of skills with the same lock.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

import anyio

from skillhouse.extensions.cells.bytecode import compiler_cell, make_bytecode, remove_bytecode
from skillhouse.extensions.cells.cell import NoHost
from skillhouse.extensions.cells.cell_environment import CODE_CACHE
from skillhouse.extensions.cells.environment_store import FILES_MAX
from skillhouse.extensions.cells.executor import Executor
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import Python, SandboxError, SandboxUnavailableError
from skillhouse.sandbox.code_call import CellResult, RpcError
from skillhouse.sandbox.profile import MIB

COMPILER = Path(__file__).with_name("compile_cell.cjs")
SKILL = "skillhouse:code-cache"
LOAD_SECONDS = 20.0
CACHE_MAX = 4 * MIB
"""A larger cache takes longer to read than it spares, and does not fit a message."""
NAMES_MAX = 100

logger = logging.getLogger(__name__)


class MakeCaches(Protocol):
    async def __call__(
        self, installed: Path, python: Python | None, names: tuple[str, ...], *, max_bytes: int
    ) -> object:
        """Add to installed packages what cells make of them; see `make_caches`."""
        ...


async def make_caches(
    executor: Executor,
    installed: Path,
    python: Python | None,
    names: tuple[str, ...],
    *,
    max_bytes: int,
) -> int:
    """Add bytecode or a code cache to installed packages; nothing that fails here fails them.

    Args:
        python: The interpreter of Python packages; None for npm packages.
        names: The npm packages that the skill itself names.
        max_bytes: Most bytes of the directory with what is added.
    """
    if python is not None:
        return await make_bytecode(executor, installed, python, max_bytes=max_bytes)
    return await make_code_cache(executor, installed, names, max_bytes=max_bytes)


def remove_caches(installed: Path) -> None:
    """Remove what packages brought in the place of ours: it need not be of their sources."""
    remove_bytecode(installed)
    path = installed / CODE_CACHE
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


async def make_code_cache(
    executor: Executor, installed: Path, names: tuple[str, ...], *, max_bytes: int
) -> int:
    """Add a code cache to packages in a `node_modules`; return its bytes, 0 for none.

    Args:
        names: The packages that the skill itself names; what they load is in the cache.
        max_bytes: Most bytes of the directory with the cache.
    """
    result = None
    with tempfile.TemporaryDirectory(prefix="skillhouse-compile-") as directory:
        spec = compiler_cell(COMPILER, directory, installed, skill=SKILL, language="javascript")
        try:
            result = await executor.execute(
                spec,
                "compile",
                {"names": list(names[:NAMES_MAX])},
                meta={},
                timeout=LOAD_SECONDS,
                host=NoHost(),
            )
        except (SandboxError, SandboxUnavailableError, RpcError, OSError) as error:
            logger.warning("no code cache for the packages in %s: %s", installed, error)
        finally:
            with anyio.CancelScope(shield=True):
                await executor.reload(SKILL)
    return 0 if result is None else await in_thread(lambda: _write(installed, result, max_bytes))


def _write(installed: Path, result: CellResult, max_bytes: int) -> int:
    data = _data(result.value)
    sizes = [0 if path.is_dir() else path.lstat().st_size for path in installed.rglob("*")]
    fits = sum(sizes) + len(data) <= max_bytes and len(sizes) < FILES_MAX
    if not data or len(data) > CACHE_MAX or not fits:
        logger.debug("no code cache: %s %s, %d bytes", result.kind, result.error, len(data))
        return 0
    # Exclusively: the packages themselves hold no such file.
    handle = os.open(installed / CODE_CACHE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return len(data)


def _data(value: Any) -> bytes:
    """Return what a cell made, if it begins with an index; b"" for anything else."""
    text = value.get("data") if isinstance(value, dict) else None
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        head, separator, _ = data.partition(b"\n")
        is_index = bool(separator) and isinstance(json.loads(head), dict)
    except (binascii.Error, ValueError, RecursionError):
        return b""
    return data if is_index else b""

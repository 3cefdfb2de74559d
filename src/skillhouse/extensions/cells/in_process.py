"""Runs Python skills that the operator named in this process, without isolation.

Code that does not await cannot be stopped, and sees all that the core sees (S002-4, S002-7).
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType
from typing import Any

import anyio

from skillhouse.extensions.cells.call_channel import ASKED_AT_ONCE
from skillhouse.extensions.cells.cell import timeout_text
from skillhouse.extensions.cells.cell_context import json_bytes
from skillhouse.extensions.cells.cell_output import output_parts
from skillhouse.extensions.cells.frames import claims_of, own_frames
from skillhouse.extensions.cells.rpc import packed
from skillhouse.floor import tree_digest
from skillhouse.floor.call_clock import CallClock
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import SandboxError
from skillhouse.sandbox.code_call import (
    TOOL_SECONDS,
    CellResult,
    CellSpec,
    HostCalls,
    OutputPart,
)


class InProcessAnswer:
    def __init__(self, value: Mapping[str, Any]) -> None:
        self.status = int(value["status"])
        self.headers = {name.lower(): text for name, text in value["headers"].items()}
        self.body = str(value["body"])

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    async def text(self) -> str:
        return self.body

    def json(self) -> Any:
        return json.loads(self.body)


class InProcessContext:
    """The context of a skill's tool; here each capability must be awaited."""

    def __init__(
        self, spec: CellSpec, meta: Mapping[str, Any], host: HostCalls, output: Path
    ) -> None:
        self.output = output
        self.env = dict(spec.env)
        self.meta = dict(meta)
        self._host = host
        self._turns = anyio.Semaphore(ASKED_AT_ONCE)

    async def fetch(self, url: str, options: Any = None, **more: Any) -> InProcessAnswer:
        given = {**(options or {}), **more}
        names = ("method", "headers", "body")
        request = {name: given[name] for name in names if given.get(name) is not None}
        async with self._turns:
            return InProcessAnswer(await self._host.fetch({"url": url, **request}))

    async def sign(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        async with self._turns:
            return await self._host.sign(request)

    async def read_file(self, path: str) -> str:
        async with self._turns:
            return await self._host.read_file(path)

    readFile = read_file  # noqa: N815 - as the published design names it.

    def log(self, *words: object) -> None:
        self._host.log(" ".join(map(str, words)))

    def progress(self, fraction: float, text: str = "") -> None:
        self._host.progress(fraction, text)


class InProcessRunner:
    """Runs only trees whose digests the operator named."""

    def __init__(self, *, trusted: Collection[str] = ()) -> None:
        self._trusted = frozenset(trusted)
        self._loaded: dict[str, Any] = {}

    async def execute(
        self,
        spec: CellSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout: float = TOOL_SECONDS,  # noqa: ASYNC109 - the result reports it.
        host: HostCalls,
    ) -> CellResult:
        """Run a tool of a trusted tree once (else "not-trusted"); see `Executor.execute`."""
        tools = self._tools(spec)
        output = Path(await in_thread(lambda: tempfile.mkdtemp(prefix="skill-output-")))
        context = InProcessContext(spec, meta, host, output)
        try:
            result = await self._run(
                lambda: tools[tool](dict(arguments), context), spec, seconds=timeout
            )
            if result.kind in ("ok", "error"):
                await in_thread(lambda: _send_output(output, host))
            return result
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(lambda: shutil.rmtree(output, ignore_errors=True))

    async def _run(
        self, called: Callable[[], Any], spec: CellSpec, *, seconds: float
    ) -> CellResult:
        began = time.monotonic()
        value: Any = None
        try:
            with CallClock(seconds) as clock:
                value = called()
                if inspect.isawaitable(value):
                    value = await value
                value = json.loads(packed(json.loads(json_bytes(value))))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the skill's own code.
            message = f"{type(error).__name__}: {error}"
            tree = spec.directory.resolve()
            frames = own_frames(claims_of(error), place=str(tree), tree=tree)
            taken = time.monotonic() - began
            return CellResult(kind="error", error=message, frames=frames, seconds=taken)
        taken = time.monotonic() - began
        if clock.is_over:
            return CellResult(kind="timeout", error=timeout_text(seconds), seconds=taken)
        return CellResult(kind="ok", value=value, seconds=taken)

    async def check(self, spec: CellSpec, tool: str) -> None:
        """Raise "not-trusted" for another tree than the operator named; nothing is imported."""
        self._check_trusted(spec)

    async def tool_names(self, spec: CellSpec) -> tuple[str, ...]:
        return tuple(sorted(map(str, self._tools(spec))))

    async def reload(self, skill: str | None) -> None:
        """Let new calls import again; memory of old imports may stay allocated (S002-60)."""
        self._loaded.clear()

    async def close(self) -> None:
        self._loaded.clear()

    def _check_trusted(self, spec: CellSpec) -> None:
        is_named = spec.digest in self._trusted and tree_digest(spec.directory) == spec.digest
        if not is_named or spec.language != "python":
            message = f"expected a Python skill that the operator trusts as it is: `{spec.skill}`"
            raise SandboxError("not-trusted", message)

    def _tools(self, spec: CellSpec) -> Any:
        self._check_trusted(spec)
        if spec.digest not in self._loaded:
            self._loaded[spec.digest] = _load(spec)
        return self._loaded[spec.digest]


def _send_output(output: Path, host: HostCalls) -> None:
    for name, data, left_out in output_parts(str(output)):
        host.output(OutputPart(name=name, data=data, left_out=left_out))


class _SourceLoader(SourceFileLoader):
    """Compiles the source, whatever bytecode is beside it: the digest is about the source."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _SourceHook:
    """A hook of `sys.path_hooks` for all that is in the directories of skills.

    It stays, for code may import at any time.
    """

    def __init__(self) -> None:
        self.bases: set[str] = set()
        loaders = ((_SourceLoader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES))
        self._find = FileFinder.path_hook(*((one, list(ends)) for one, ends in loaders))

    def __call__(self, path: str) -> Any:
        real = os.path.realpath(path)
        for place in itertools.accumulate(real.split(os.sep), lambda a, b: f"{a}{os.sep}{b}"):
            if place in self.bases:
                return self._find(path)
        raise ImportError(f"no directory of a skill: {path}", path=path)


def _find_sources_only(base: str) -> None:
    hook = next((one for one in sys.path_hooks if isinstance(one, _SourceHook)), None)
    if hook is None:
        hook = _SourceHook()
        sys.path_hooks.insert(0, hook)
    hook.bases.add(base)
    for path in tuple(sys.path_importer_cache):
        if path == base or path.startswith(base + os.sep):
            del sys.path_importer_cache[path]


def _load(spec: CellSpec) -> Any:
    base = os.fspath(spec.directory.resolve())
    for name, module in tuple(sys.modules.items()):
        # Modules of an older tree of this directory would be found first.
        if (getattr(module, "__file__", None) or "").startswith(base + os.sep):
            del sys.modules[name]
    path = spec.directory / spec.entry
    name = f"skillhouse_skill_{spec.digest.partition(':')[2][:16]}"
    if path.suffix not in SOURCE_SUFFIXES:
        raise SandboxError("skill-failed", f"expected a Python file: {spec.entry}")
    loader = _SourceLoader(name, str(path))
    module_spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if module_spec is None or module_spec.loader is None:
        raise SandboxError("skill-failed", f"expected a Python file: {spec.entry}")
    _find_sources_only(base)
    module = importlib.util.module_from_spec(module_spec)
    # Bytecode beside the code would change the tree, whose digest is trusted.
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, base)
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise SandboxError("skill-failed", f"`{spec.skill}`: {error}") from error
    finally:
        sys.path.remove(base)
        sys.dont_write_bytecode = kept
    tools = getattr(module, "tools", None)
    if not isinstance(tools, Mapping):
        raise SandboxError("skill-failed", f"expected a mapping `tools` in {spec.entry}")
    return tools

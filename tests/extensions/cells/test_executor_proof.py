"""Tests of what the core has an executor run before it gives it code."""

from __future__ import annotations

import secrets
import subprocess
import sys
from pathlib import Path

import anyio
from tests.harness import Need
from tests.sandbox.places import launcher_at

from skillhouse.extensions.cells.cell import NoHost
from skillhouse.extensions.cells.executor import Executor
from skillhouse.extensions.cells.executor_proof import MANIFEST, SOURCE
from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxLevel, SandboxStatus
from skillhouse.sandbox.code_call import CellSpec

RUN = "import sys; exec(sys.argv[1]); print(tries(eval(sys.argv[2]), None)['found'])"


def found(word: str, directory: Path) -> list[str]:
    """Return what the skill finds in a process of its own that nothing confines."""
    params = {"word": word, "hosts": [], "port": 0}
    code = f"__file__ = {str(directory / 'skill/main.py')!r}\n{SOURCE}"
    argv = [sys.executable, "-c", RUN, code, repr(params)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/tmp", check=True)
    return [one.strip("[]' \n") for one in done.stdout.split(",")]


def test_what_one_call_left_is_found_by_the_next_and_not_by_itself(tmp_path: Path) -> None:
    """In `/tmp` the working directory and /tmp are one place, as in a cell without namespaces."""
    word = f"proof-{secrets.token_hex(8)}"
    try:
        assert "files of an earlier call" not in found(word, tmp_path)
        assert "files of an earlier call" in found(word, tmp_path)
    finally:
        for place in ("/tmp", "/dev/shm", "/var/tmp"):
            Path(place, word).unlink(missing_ok=True)


def test_a_cell_without_namespaces_passes(tmp_path: Path, need: Need) -> None:
    launcher_at(SandboxLevel.LANDLOCK, need, tmp_path)
    tree = tmp_path / "skill"
    tree.mkdir()
    (tree / "pyproject.toml").write_text(MANIFEST)
    (tree / "main.py").write_text(SOURCE)
    spec = CellSpec(
        skill="proof", digest=tree_digest(tree), directory=tree, language="python", entry="main.py"
    )
    word = f"proof-{secrets.token_hex(8)}"

    async def work() -> list[object]:
        executor = Executor(SandboxStatus(level=SandboxLevel.LANDLOCK), state=tmp_path / "state")
        try:
            arguments = {"word": word, "hosts": [], "port": 0}
            return [
                (
                    await executor.execute(
                        spec, "tries", arguments, meta={}, timeout=20, host=NoHost()
                    )
                ).value
                for _ in range(2)
            ]
        finally:
            await executor.close()

    assert anyio.run(work) == [{"word": word, "found": []}] * 2

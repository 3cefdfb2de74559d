"""Tests of extensions/cells/code_cache.py: V8's code cache of npm packages, made by a cell."""

from __future__ import annotations

import base64
import functools
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.cells.lab import Lab, lab, make
from tests.extensions.cells.packages import wheel, written
from tests.extensions.cells.test_environments import PYTHON, python_skill, rules_for, said
from tests.sandbox.places import launcher_at

from skillhouse.extensions.cells import CellResult, EnvironmentRules, Executor, make_caches, prepare
from skillhouse.extensions.cells.cell_environment import CODE_CACHE
from skillhouse.extensions.cells.code_cache import CACHE_MAX, make_code_cache, remove_caches
from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxLevel, SandboxStatus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node", path="/usr/local/bin:/usr/bin:/bin") is None, reason="no Node.js"
    ),
]

__all__ = ["lab"]

MIB = 1 << 20
PACKAGES = {
    # Its top level runs when the cache is made, so that V8 has it compiled.
    "pack/index.js": "'use strict';\nexports.word = 'first';\nexports.more = require('./more');\n",
    "pack/more.js": "#!/usr/bin/env node\nmodule.exports = { dir: __dirname.split('/').pop() };\n",
    "pack/data.json": "[1]\n",
    "whole/index.js": "exports.inner = import ('./inner.mjs').then((one) => one.word);\n",
    "whole/inner.mjs": "export const word = 'module';\n",
    "bad/index.js": "this is no JavaScript\n",
}
USES = """
    import pack from 'pack';
    import whole from 'whole';
    export const tools = {
      tool: async () => [pack.word, pack.more.dir, await whole.inner],
    };
"""


def packages(place: Path, **more: str) -> Path:
    return written(place / "packages", {**PACKAGES, **more})


def made(lab: Lab, directory: Path, *, max_bytes: int = MIB) -> int:
    async def scene(executor: Executor) -> int:
        names = ("pack", "whole", "bad", "missing")
        return await make_code_cache(executor, directory, names, max_bytes=max_bytes)

    return lab.run(scene)


def values(lab: Lab, directory: Path) -> list[Any]:
    """Return what comes of a call by a new process, and by one that has loaded the packages."""
    spec = make(lab.place, USES, language="javascript", dependencies=directory)

    async def scene(executor: Executor) -> list[Any]:
        results = [await lab.ask(executor, spec) for _ in range(2)]
        return [one.value or one.error for one in results]

    return lab.run(scene)


def change_source(directory: Path) -> None:
    """V8 compares only the length of a source, so the old word shows that the cache is used."""
    path = directory / "pack/index.js"
    path.write_text(path.read_text().replace("first", "other"))


def test_calls_take_what_a_cell_compiled(lab: Lab) -> None:
    directory = packages(lab.place)
    assert made(lab, directory) == (directory / CODE_CACHE).stat().st_size
    change_source(directory)
    assert values(lab, directory) == [["first", "pack", "module"]] * 2


def test_without_namespaces_it_is_the_same(tmp_path: Path, need: Any) -> None:
    launcher_at(SandboxLevel.LANDLOCK, need, tmp_path / "launcher")
    lab = Lab(SandboxStatus(level=SandboxLevel.LANDLOCK), tmp_path)
    directory = packages(tmp_path)
    assert made(lab, directory) > 0
    change_source(directory)
    assert values(lab, directory) == [["first", "pack", "module"]] * 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no index",
        b'{"pack/index.js": [0, 9999]}\nshort',
        b'{"pack/index.js": "text"}\n' + bytes(2_000),
        b'{"pack/index.js": [0, 2000]}\n' + bytes(2_000),
        b'{"__proto__": [0, 1], "pack/index.js": null}\n',
    ],
)
def test_a_cache_that_is_none_changes_nothing(lab: Lab, data: bytes) -> None:
    directory = packages(lab.place)
    (directory / CODE_CACHE).write_bytes(data)
    assert values(lab, directory) == [["first", "pack", "module"]] * 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"data": 7},
        {"data": "not base64"},
        {"data": base64.b64encode(b"[1]\ndata").decode()},
        {"data": base64.b64encode(b"{}").decode()},
        {"data": base64.b64encode(b"{}\n" + bytes(CACHE_MAX)).decode()},
        {"data": base64.b64encode(b"[" * 100_000 + b"\n").decode()},
    ],
)
def test_an_answer_that_is_no_cache_is_not_written(
    lab: Lab, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = packages(lab.place)

    async def execute(*_: Any, **__: Any) -> CellResult:
        return CellResult(kind="ok", value=answer, seconds=0.0)

    monkeypatch.setattr(Executor, "execute", execute)
    assert made(lab, directory, max_bytes=64 * MIB) == 0
    assert not (directory / CODE_CACHE).exists()


def test_an_environment_stays_within_its_bytes(lab: Lab) -> None:
    assert made(lab, packages(lab.place), max_bytes=500) == 0


def test_what_a_package_brought_in_the_place_of_the_cache_is_removed(tmp_path: Path) -> None:
    directory = packages(tmp_path)
    before = tree_digest(directory)
    for bring in (
        lambda path: path.write_text("{}\n"),
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: (path / "inner").mkdir(parents=True),
    ):
        bring(directory / CODE_CACHE)
        remove_caches(directory)
        assert tree_digest(directory) == before


def test_an_installation_compiles_what_it_installed(lab: Lab) -> None:
    sha = wheel(lab.place / "wheels", "greet", "1.0", "word = 'hello'")
    skill = python_skill(lab.place, f"greet==1.0 --hash=sha256:{sha}")
    rules: EnvironmentRules = rules_for(lab.place)

    async def scene(executor: Executor) -> list[Any]:
        found = []
        for caches in (None, functools.partial(make_caches, executor)):
            one = await prepare(PYTHON, skill, lab.place / "cache", rules=rules, caches=caches)
            assert one is not None
            found.append(one)
        return found

    plain, compiled = lab.run(scene)
    assert plain.digest != compiled.digest
    program = "import greet; print(greet.word, __import__('os').path.exists(greet.__cached__))"
    assert [said(program, one.path) for one in (plain, compiled)] == ["hello False", "hello True"]
    written = [path for path in compiled.path.rglob("*") if path.stat().st_mode & 0o222]
    assert written == []

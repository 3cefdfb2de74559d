"""Tests of extensions/cells/bytecode.py: bytecode of installed packages, made by a cell."""

from __future__ import annotations

import base64
import importlib.util
import marshal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.cells.lab import Lab, lab, make
from tests.extensions.cells.packages import written

from skillhouse.extensions.cells import CellResult, Executor, bytecode
from skillhouse.extensions.cells.bytecode import make_bytecode, remove_bytecode
from skillhouse.floor import tree_digest
from skillhouse.sandbox import default_python

pytestmark = pytest.mark.slow

__all__ = ["lab"]

MIB = 1 << 20
TAG = "cpython-{}{}".format(*default_python().version)
FILES = {
    "good.py": "word = 'good'\n",
    "inner/__init__.py": "",
    "inner/deep.py": "print('deep was run')\nword = 'deep'\n",
    "old.py": "print 'Python 2'\n",
    "empty.txt": "",
}
USES = """
    import good
    from inner import deep

    def tool(params, context):
        return [good.__cached__.rpartition("/")[2], good.word, deep.word]

    tools = {"tool": tool}
"""


def packages(place: Path, **more: str) -> Path:
    return written(place / "packages", {**FILES, **more})


def bytecode_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.pyc"))


def made(lab: Lab, directory: Path, *, max_bytes: int = MIB) -> int:
    async def scene(executor: Executor) -> int:
        return await make_bytecode(executor, directory, default_python(), max_bytes=max_bytes)

    return lab.run(scene)


def test_modules_get_bytecode_that_imports_take_and_none_is_run(lab: Lab, capfd: Any) -> None:
    directory = packages(lab.place)
    assert made(lab, directory) == 3
    names = ["__pycache__/good", "inner/__pycache__/__init__", "inner/__pycache__/deep"]
    assert bytecode_in(directory) == [f"{name}.{TAG}.pyc" for name in names]
    assert capfd.readouterr().out == ""
    # The source is not compared: the bytecode is what an import takes.
    (directory / "good.py").write_text("word = 'changed'\n")
    result = lab.call(make(lab.place, USES, dependencies=directory))
    assert (result.kind, result.value) == ("ok", [f"good.{TAG}.pyc", "good", "deep"])


def test_what_fails_to_compile_costs_no_other_module_its_bytecode(lab: Lab, monkeypatch) -> None:
    # Python 3.11 and 3.12 die of such a line, later ones refuse it.
    deep = "-" * 400_000 + "1"
    directory = packages(lab.place, **{"deadly.py": f"x = {deep}\n", "huge.py": "#" * 2_000})
    monkeypatch.setattr(bytecode, "SOURCE_MAX", MIB)
    assert made(lab, directory) == 4
    assert f"__pycache__/good.{TAG}.pyc" in bytecode_in(directory)
    assert not [name for name in bytecode_in(directory) if "deadly" in name]


def test_bytecode_never_makes_an_environment_too_large(lab: Lab) -> None:
    directory = packages(lab.place)
    size = sum(len(text) for text in FILES.values())
    assert [made(lab, directory, max_bytes=most) for most in (0, size)] == [0, 0]
    assert 0 < made(lab, directory, max_bytes=size + 400) < 3


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ["good.py"],
        {"good.py": 7},
        {"good.py": "not base64"},
        {"good.py": base64.b64encode(b"short").decode()},
        {"../good.py": "AAAA"},
        # With the time of its source, as PEP 552 has it: an import would look at that.
        {"good.py": base64.b64encode(bytes(8) + bytes(8) + marshal.dumps(None)).decode()},
    ],
)
def test_an_answer_that_is_no_bytecode_is_not_written(
    lab: Lab, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = packages(lab.place)
    before = tree_digest(directory)

    async def execute(*_: Any, **__: Any) -> CellResult:
        return CellResult(kind="ok", value=answer, seconds=0.0)

    monkeypatch.setattr(Executor, "execute", execute)
    assert made(lab, directory) == 0
    assert tree_digest(directory) == before


def test_bytecode_that_a_package_brought_is_removed(tmp_path: Path) -> None:
    directory = packages(tmp_path)
    before = tree_digest(directory)
    brought = directory / "inner/__pycache__"
    brought.mkdir()
    (brought / f"deep.{sys.implementation.cache_tag}.pyc").write_bytes(
        importlib.util.MAGIC_NUMBER + b"\1" + bytes(11)
    )
    (directory / "__pycache__").symlink_to(tmp_path)
    remove_bytecode(directory)
    assert tree_digest(directory) == before
    assert tmp_path.is_dir()

"""Attacks by what programs leave in a skill: bytecode that is not its source, code under a name.

Each forged file is first run by Python as it is, where it works.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.extensions.cells import CellResult
from skillhouse.extensions.cells.in_process import InProcessRunner
from skillhouse.floor import read_tree, tree_digest
from skillhouse.house import Skillhouse, configured
from skillhouse.sandbox import SandboxProfile
from skillhouse.tools import ToolResult
from tests.extensions.cells.lab import Core, Lab, lab, make
from tests.harness import Need, ran
from tests.house.places import make_places, write_skill
from tests.sandbox.places import ALL_LEVELS, launcher_at
from tests.tools.houses import Person

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow

__all__ = ["lab"]
GOOD, EVIL = 'WORD = "good"\n', 'WORD = "evil"\n'
TAG = sys.implementation.cache_tag
MAIN = """
import helper
def tool(params, context):
    return helper.WORD
tools = {"tool": tool}
"""


def forged(source: Path, *, checked: bool = False) -> bytes:
    """Return bytecode that says something else than the source that it pretends to be of."""
    code = marshal.dumps(compile(EVIL, str(source), "exec"))
    if checked:
        info = source.stat()
        stamp = int(info.st_mtime).to_bytes(4, "little") + info.st_size.to_bytes(4, "little")
        return importlib.util.MAGIC_NUMBER + bytes(4) + stamp + code
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code


def _unchecked_hash(place: Path) -> None:
    (place / "__pycache__").mkdir()
    (place / f"__pycache__/helper.{TAG}.pyc").write_bytes(forged(place / "helper.py"))


def _time_and_size(place: Path) -> None:
    (place / "__pycache__").mkdir()
    (place / f"__pycache__/helper.{TAG}.pyc").write_bytes(forged(place / "helper.py", checked=True))


def _sourceless(place: Path) -> None:
    """An import takes it where there is no source; here the source is a package further on."""
    (place / "helper.pyc").write_bytes(forged(place / "helper.py"))
    (place / "later").mkdir()
    (place / "helper.py").rename(place / "later/helper.py")


FORGERIES = (_unchecked_hash, _time_and_size, _sourceless)
"""Each makes `import helper` give the other word; the source is good."""


def source_of(forge: Callable[[Path], None]) -> str:
    later = "import os, sys\nsys.path.append(os.path.dirname(__file__) + '/later')\n"
    return later if forge is _sourceless else ""


def naive(place: Path) -> str:
    """Import the helper as Python does by itself."""
    line = f"import sys; sys.path[:0] = [{str(place)!r}, {str(place / 'later')!r}]; import helper; "
    done = ran([sys.executable, "-B", "-c", f"{line}print(helper.WORD)"], check=True)
    return done.stdout.strip()


def spec_of(place: Path, forge: Callable[[Path], None]) -> Any:
    spec = make(place, source_of(forge) + MAIN, files={"helper.py": GOOD})
    forge(spec.directory)
    assert naive(spec.directory) == "evil"
    return make(place, source_of(forge) + MAIN)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda one: one.__name__.strip("_"))
def test_forged_bytecode_beside_the_code_of_a_skill_never_runs(
    lab: Lab, forge: Callable[[Path], None]
) -> None:
    result = lab.call(spec_of(lab.place, forge))
    assert (result.kind, result.value) == ("ok", "good"), result.error


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda one: one.__name__.strip("_"))
def test_forged_bytecode_never_runs_in_our_own_process(
    tmp_path: Path, forge: Callable[[Path], None]
) -> None:
    spec = spec_of(tmp_path, forge)

    async def call() -> CellResult:
        runner = InProcessRunner(trusted=[spec.digest])
        return await runner.execute(spec, "tool", {}, meta={}, host=Core())

    try:
        for _ in range(2):
            sys.modules.pop("helper", None)
            result = anyio.run(call)
            assert (result.kind, result.value) == ("ok", "good"), result.error
    finally:
        sys.modules.pop("helper", None)


def test_bytecode_in_an_archive_of_modules_never_runs(lab: Lab) -> None:
    source = "import sys, os\nsys.path.insert(0, os.path.dirname(__file__) + '/lib.zip')\n" + MAIN
    spec = make(lab.place, source)
    with zipfile.ZipFile(spec.directory / "lib.zip", "w") as archive:
        archive.writestr("helper.py", GOOD)
        archive.writestr("helper.pyc", forged(Path("helper.py")))
    assert naive(spec.directory / "lib.zip") == "evil"
    result = lab.call(make(lab.place, source))
    assert (result.kind, result.value) == ("ok", "good"), result.error


def test_what_programs_left_is_not_in_the_place_of_a_skills_code(lab: Lab) -> None:
    """Code that takes every file of a directory for a part of it finds none of these."""
    source = """
    import os
    def tool(params, context):
        place = os.path.dirname(__file__)
        return sorted(os.path.relpath(os.path.join(p, f), place)
                      for p, _, fs in os.walk(place) for f in fs)
    tools = {"tool": tool}
    """
    spec = make(lab.place, source, files={"plugins/a.py": GOOD})
    left = ("plugins/._a.py", "plugins/a.py~", ".DS_Store", "plugins/.a.py.swp", "desktop.ini")
    for name in left:
        (spec.directory / name).write_text(EVIL)
    again = make(lab.place, source)
    assert again.digest == spec.digest
    assert lab.call(again).value == ["main.py", "plugins/a.py"]


# Commands that run a skill's scripts.


class Desk:
    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        settings = self.places.home / ".config/skillhouse"
        settings.mkdir(parents=True)
        rule = '[[rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'
        (settings / "config.toml").write_text(rule)
        self.skill = write_skill(self.places.home / ".agents/skills/notes")
        scripts = self.skill / "scripts"
        scripts.mkdir()
        (scripts / "run.py").write_text("import helper\nprint(helper.WORD)\n")
        (scripts / "helper.py").write_text(GOOD)
        self.scripts = scripts

    def run(self, *calls: tuple[str, dict[str, Any]]) -> list[ToolResult]:
        with Skillhouse(configured(self.places), channel=Person([Answer.ONCE] * 50)) as house:
            assert house.call_sync("skill", {"name": "notes"}).status == "ok"
            return [house.call_sync(tool, arguments) for tool, arguments in calls]

    def python(self, path: Path) -> str:
        (result,) = self.run(("exec", {"command": "python3", "params": [str(path)]}))
        return result.content


def system_forged(script: Path, *, checked: bool) -> tuple[str, bytes]:
    """Return the name and content of forged bytecode for the Python that commands have."""
    source = (
        "import importlib.util, marshal, os, sys;"
        f"code = marshal.dumps(compile({EVIL!r}, 'helper.py', 'exec'));"
        f"info = os.stat({str(script)!r});"
        "stamp = int(info.st_mtime).to_bytes(4, 'little') + info.st_size.to_bytes(4, 'little');"
        f"head = bytes(4) + stamp if {checked} else (1).to_bytes(4, 'little') + bytes(8);"
        "print(sys.implementation.cache_tag);"
        "print((importlib.util.MAGIC_NUMBER + head + code).hex())"
    )
    path = "/usr/local/bin:/usr/bin:/bin"
    done = ran(["python3", "-I", "-c", source], env={"PATH": path}, check=True)
    tag, data = done.stdout.split()
    return tag, bytes.fromhex(data)


@pytest.mark.parametrize("kind", ["unchecked", "checked", "sourceless"])
def test_a_script_of_a_skill_never_imports_forged_bytecode(
    tmp_path: Path, need: Need, kind: str
) -> None:
    desk = Desk(tmp_path)
    helper = desk.scripts / "helper.py"
    tag, data = system_forged(helper, checked=kind == "checked")
    if kind == "sourceless":
        helper.rename(desk.scripts / "other.py")
        (desk.scripts / "helper.pyc").write_bytes(data)
    else:
        (desk.scripts / "__pycache__").mkdir()
        (desk.scripts / f"__pycache__/helper.{tag}.pyc").write_bytes(data)
    line = ["python3", "-B", str(desk.scripts / "run.py")]
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = ran(line, env=path, check=True)
    assert done.stdout == "evil\n"
    said = desk.python(desk.scripts / "run.py")
    assert "evil" not in said
    assert ("good" in said) is (kind != "sourceless"), said


def test_a_link_to_bytecode_is_no_way_around(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    tag, data = system_forged(desk.scripts / "helper.py", checked=False)
    (desk.scripts / "cache").mkdir()
    (desk.scripts / "cache/data.bin").write_bytes(data)
    (desk.scripts / "__pycache__").mkdir()
    (desk.scripts / f"__pycache__/helper.{tag}.pyc").symlink_to("../cache/data.bin")
    assert desk.python(desk.scripts / "run.py").startswith("good")
    (desk.scripts / f"__pycache__/helper.{tag}.pyc").unlink()
    (desk.scripts / "__pycache__").rmdir()
    (desk.scripts / "cache/data.bin").rename(desk.scripts / f"cache/helper.{tag}.pyc")
    (desk.scripts / "__pycache__").symlink_to("cache")
    assert desk.python(desk.scripts / "run.py").startswith("good")


LEFT = (
    "scripts/._run.py",
    "scripts/run.py~",
    "scripts/#run.py#",
    "scripts/.run.py.swp",
    "scripts/__pycache__/other.py",
    ".ipynb_checkpoints/run-checkpoint.py",
    ".mypy_cache/other.py",
    ".DS_Store/other.py",
    "__pycache__/sub/other.py",
)


@pytest.mark.parametrize("name", LEFT)
def test_nothing_under_the_name_of_a_leftover_is_read_or_run(tmp_path: Path, name: str) -> None:
    desk = Desk(tmp_path)
    path = desk.skill / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("print('ev' + 'il')\n")
    done = ran([sys.executable, str(path)], check=True)
    assert done.stdout == "evil\n"
    run, read, listed, loaded = desk.run(
        ("exec", {"command": "python3", "params": [str(path)]}),
        ("read", {"path": str(path)}),
        ("list", {"path": str(desk.skill / "scripts")}),
        ("skill", {"name": "notes"}),
    )
    assert "evil" not in run.content
    assert (read.is_error, "'ev'" in read.content) == (True, False)
    assert listed.data == {"entries": ["helper.py", "run.py"]}
    assert name not in loaded.content


@pytest.mark.parametrize(
    "make_it",
    [
        lambda at: (at / ".DS_Store").mkdir() or (at / ".DS_Store/evil.py").write_text(EVIL),
        lambda at: (at / "__pycache__").mkdir() or (at / "__pycache__/evil.py").write_text(EVIL),
        lambda at: (
            (at / "__pycache__/d").mkdir(parents=True)
            or (at / "__pycache__/d/a.pyc").write_text("")
        ),
        lambda at: (
            (at / "__pycache__").mkdir()
            or (at / f"__pycache__/a.{TAG}.pyc").write_text("#!/bin/sh\n")
        ),
        lambda at: (at / ".DS_Store").write_text("#!/bin/sh\nevil\n"),
        lambda at: (at / "._run.py").write_bytes(b"\x7fELF"),
        lambda at: (at / ".mypy_cache").mkdir() or (at / ".mypy_cache/a.py").write_text(EVIL),
        lambda at: (at / ".pytest_cache").mkdir() or (at / ".pytest_cache/a.sh").write_text(EVIL),
        lambda at: (
            (at / ".ipynb_checkpoints").mkdir() or (at / ".ipynb_checkpoints/a.py").write_text(EVIL)
        ),
        lambda at: (at / "4913").write_text(EVIL),
        lambda at: (at / "a.pyc").write_text(""),
        lambda at: (at / "x.swp").write_text(""),
    ],
)
def test_what_no_program_leaves_is_an_edit_as_before(
    tmp_path: Path, make_it: Callable[[Path], object]
) -> None:
    skill = write_skill(tmp_path / "notes")
    before = tree_digest(skill)
    make_it(skill)
    assert tree_digest(skill) != before
    assert read_tree(skill).left == ()


@pytest.mark.parametrize("name", [".DS_Store", "__pycache__", "._a", ".#a", "a~", ".a.swp"])
def test_a_link_of_such_a_name_is_no_leftover(tmp_path: Path, name: str) -> None:
    skill = write_skill(tmp_path / "notes")
    os.symlink("SKILL.md", skill / name)
    with pytest.raises(Exception, match="symbolic link"):
        tree_digest(skill)


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_no_level_shows_bytecode_of_a_skill(tmp_path: Path, need: Need, level: Any) -> None:
    launcher = launcher_at(level, need, tmp_path / "state")
    workspace, skill = tmp_path / "work", tmp_path / "skill"
    inner = workspace / ".agents/skills/one"
    for place in (skill, inner):
        (place / "__pycache__").mkdir(parents=True)
        (place / "sub").mkdir()
        for name in ("__pycache__/a.pyc", "sub/b.pyc", "._c", "sub/plain", "top"):
            (place / name).write_text("seen")
    profile = SandboxProfile(workspace, readable=(skill, inner), skills=(skill, inner))

    def cat(path: Path) -> bytes:
        async def run() -> bytes:
            return (await launcher.run(("cat", str(path)), profile, cwd=workspace)).stdout

        return anyio.run(run)

    for place in (skill, inner):
        for name in ("__pycache__/a.pyc", "sub/b.pyc", "._c"):
            assert cat(place / name) == b"", name
        for name in ("sub/plain", "top"):
            assert cat(place / name) == b"seen", name

"""Tests of own_tmp.py and own_tmp.cjs: /tmp of a call where nothing can be mounted."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.house.coded import coded_house, played, tool, write_code

from skillhouse.sandbox import SandboxLevel, SandboxStatus
from skillhouse.sandbox.status import LANDLOCK_ABI, landlock_abi

pytestmark = pytest.mark.slow
NAMES = ("works", "again", "elsewhere")
OUTPUT = "skill-output"
"""The output folder of a call, which is there at its beginning."""

PYTHON = """
    import io, os, pathlib, shutil, sqlite3, tempfile, zipfile

    def works(params, context):
        found = [sorted(os.listdir(place)) for place in ("/tmp", "/dev/shm")]
        with open("/tmp/text", "w") as file:
            file.write("x")
        os.mkdir("/tmp/one")
        pathlib.Path("/tmp/one/two").mkdir()
        pathlib.Path("/tmp/one/two/file").write_bytes(b"12")
        os.makedirs("/tmp/one/three", exist_ok=True)
        os.rename("/tmp/text", "/tmp/one/moved")
        shutil.copyfile("/tmp/one/moved", b"/tmp/copied")
        with zipfile.ZipFile("/tmp/a.zip", "w") as archive:
            archive.write("/tmp/copied", "copied")
        with tempfile.NamedTemporaryFile(dir="/tmp") as named:
            found.append(os.path.exists(named.name))
        found += [
            os.path.getsize("/tmp/one/two/file"),
            os.access("/tmp/copied", os.R_OK),
            os.access("/tmp/none", os.R_OK),
            os.path.exists("/tmp/none"),
            sorted(os.listdir("/tmp")),
            sorted(name for _, _, names in os.walk("/tmp") for name in names),
            open(os.environ["TMPDIR"] + "/copied").read(),
        ]
        shutil.rmtree("/tmp/one")
        os.unlink("/tmp/copied")
        os.chdir("/tmp")
        found.append(sorted(os.listdir()))
        io.open("/dev/shm/x", "xb").close()
        return found

    def again(params, context):
        return [os.listdir("/tmp"), os.listdir("/dev/shm"), os.path.exists("/tmp/a.zip")]

    def elsewhere(params, context):
        found = []
        for path in params["paths"]:
            try:
                with open(path, "a") as file:
                    file.write("arrived")
                found.append("worked")
            except OSError as error:
                found.append([type(error).__name__, error.filename == path])
        return found

    tools = {"works": works, "again": again, "elsewhere": elsewhere}
"""
NODE = """
    import fs, { writeFileSync } from 'node:fs';
    import { readFile, rm, writeFile } from 'node:fs/promises';
    import { pipeline } from 'node:stream/promises';

    export const tools = {
      works: async () => {
        const found = ['/tmp', '/dev/shm'].map((place) => fs.readdirSync(place));
        writeFileSync('/tmp/text', 'x');
        fs.mkdirSync('/tmp/one/two', { recursive: true });
        await writeFile(new URL('file:///tmp/one/file'), '12');
        fs.renameSync('/tmp/text', Buffer.from('/tmp/one/moved'));
        await pipeline(fs.createReadStream('/tmp/one/moved'), fs.createWriteStream('/tmp/copied'));
        const called = await new Promise((resolve) => {
          fs.readFile('/tmp/copied', 'utf8', (error, text) => resolve(error ? error.code : text));
        });
        const missing = await new Promise((resolve) => {
          fs.readFile('/tmp/none', (error) => resolve(error.code));
        });
        found.push(
          called, missing, await readFile('/tmp/one/file', 'utf8'),
          fs.statSync('/tmp/one/file').size, fs.existsSync('/tmp/copied'),
          fs.existsSync('/tmp/none'), fs.readdirSync('/tmp').sort(),
          fs.readFileSync(`${process.env.TMPDIR}/copied`, 'utf8'),
          await readFile('/tmp/none').catch((error) => error.code),
        );
        fs.rmSync('/tmp/one/two', { recursive: true });
        found.push(fs.readdirSync('/tmp/one').sort());
        await rm('/tmp/one', { recursive: true });
        process.chdir('/tmp');
        found.push(fs.readdirSync('.'));
        fs.writeFileSync('/dev/shm/x', '');
        return found;
      },
      again: async () => ['/tmp', '/dev/shm'].map((place) => fs.readdirSync(place)),
      elsewhere: async (params) => params.paths.map((path) => {
        try {
          fs.appendFileSync(path, 'arrived');
          return 'worked';
        } catch (error) {
          return [error.code, error.path === path];
        }
      }),
    };
"""


@pytest.fixture
def landlock(need: Any) -> SandboxStatus:
    need(landlock_abi() >= LANDLOCK_ABI, "no Landlock of that version here")
    return SandboxStatus(level=SandboxLevel.LANDLOCK)


def answers(tmp_path: Path, status: SandboxStatus, code: str, language: str) -> list[Any]:
    """Return what each tool answers; the last one tries to write beside its own directory."""
    write_code(tmp_path / "skills/one", code, *map(tool, NAMES), language=language)
    (tmp_path / "kept").write_text("as it was")
    paths = [f"{tmp_path}/kept", f"{tmp_path}/made", f"{tmp_path}/skills/one/made"]

    async def scene(house: Any) -> list[Any]:
        results = [await house.call(f"one:{name}", {"paths": paths}) for name in NAMES]
        return [result.data.get("data", result.content) for result in results]

    found = played(coded_house(tmp_path, tmp_path / "skills", status=status), scene)
    assert (tmp_path / "kept").read_text() == "as it was"
    assert [path for path in tmp_path.rglob("made") if path.is_file()] == []
    return found


def test_python_has_a_tmp_of_each_call(tmp_path: Path, landlock: SandboxStatus) -> None:
    works, again, elsewhere = answers(tmp_path, landlock, PYTHON, "python")
    assert works == [
        [OUTPUT], [OUTPUT], True, 2, True, False, False,
        ["a.zip", "copied", "one", OUTPUT],
        ["a.zip", "copied", "file", "moved"],
        "x",
        ["a.zip", OUTPUT],
    ]  # fmt: skip
    assert again == [[OUTPUT], [OUTPUT], False]
    assert elsewhere == [["PermissionError", True]] * 3


def test_node_has_a_tmp_of_each_call(tmp_path: Path, landlock: SandboxStatus, node: None) -> None:
    works, again, elsewhere = answers(tmp_path, landlock, NODE, "javascript")
    assert works == [
        [OUTPUT], [OUTPUT], "x", "ENOENT", "12", 2, True, False, ["copied", "one", OUTPUT], "x",
        "ENOENT", ["file", "moved"], ["copied", OUTPUT],
    ]  # fmt: skip
    assert again == [[OUTPUT], [OUTPUT]]
    assert elsewhere == [["EACCES", True]] * 3


CODE_IN_C = """
    import os, posix

    def works(params, context):
        given = os.environ["TMPDIR"]
        posix.close(posix.open(given + "/file", posix.O_CREAT | posix.O_WRONLY))
        try:
            posix.open("/tmp/skillhouse-own-tmp", posix.O_CREAT | posix.O_WRONLY)
        except OSError as error:
            return [type(error).__name__, os.listdir("/tmp")]

    tools = dict.fromkeys(("works", "again", "elsewhere"), works)
"""


def test_what_does_not_come_through_pythons_functions_finds_its_place_in_tmpdir(
    tmp_path: Path, landlock: SandboxStatus
) -> None:
    found = answers(tmp_path, landlock, textwrap.dedent(CODE_IN_C), "python")
    assert found == [["PermissionError", ["file", OUTPUT]]] * 3
    assert not Path("/tmp/skillhouse-own-tmp").exists()

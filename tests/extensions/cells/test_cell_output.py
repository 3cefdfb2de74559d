"""Files of the output folder: what leaves a cell, in each language and at each level."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Core, Lab, lab, language, make

from skillhouse.extensions.cells import CellResult, Executor, InProcessRunner
from skillhouse.extensions.cells.cell_output import (
    BYTES_MAX,
    DEPTH_MAX,
    ENTRIES_MAX,
    FILES_MAX,
    PART_BYTES,
    output_parts,
)

pytestmark = pytest.mark.slow

__all__ = ["lab", "language"]

WRITES = {
    "python": """
        import os

        def tool(params, context):
            (context.output / "notes.txt").write_text("hello")
            (context.output / "plots").mkdir()
            with open(os.path.join(os.environ["OUTPUT_DIR"], "plots", "a.bin"), "wb") as file:
                file.write(bytes(range(256)) * 2048)
            (context.output / "empty").touch()
            if params.get("asks"):
                context.read_file("notes")
            if params.get("fails"):
                raise ValueError("no")
            return sorted(os.listdir(context.output))

        def silent(params, context):
            return os.listdir(context.output)

        tools = {"tool": tool, "silent": silent}
    """,
    "javascript": """
        const fs = require('fs');
        const path = require('path');

        exports.tools = {
          tool: async (params, context) => {
            fs.writeFileSync(path.join(context.output, 'notes.txt'), 'hello');
            fs.mkdirSync(path.join(process.env.OUTPUT_DIR, 'plots'));
            const bytes = Buffer.alloc(256 * 2048, Buffer.from([...Array(256).keys()]));
            fs.writeFileSync(path.join(context.output, 'plots/a.bin'), bytes);
            fs.writeFileSync(path.join(context.output, 'empty'), '');
            if (params.asks) await context.readFile('notes');
            if (params.fails) throw new Error('no');
            return fs.readdirSync(context.output).sort();
          },
          silent: (params, context) => fs.readdirSync(context.output),
        };
    """,
}
SENT = {"notes.txt": b"hello", "plots/a.bin": bytes(range(256)) * 2048, "empty": b""}
ODD = {
    "python": """
        import os

        def tool(params, context):
            place = os.fspath(context.output)
            os.symlink("/etc/passwd", place + "/link")
            os.symlink("/etc", place + "/directory")
            os.makedirs(place + "/deep" + "/d" * 9)
            with open(place + "/one", "w") as file:
                file.write("one")
            os.link(place + "/one", place + "/two")
            with open(place + "/large", "wb") as file:
                file.truncate(params["large"])
            with open(place + "/last", "w") as file:
                file.write("last")

        tools = {"tool": tool}
    """,
    "javascript": """
        const fs = require('fs');

        exports.tools = {
          tool: (params, context) => {
            const place = context.output;
            fs.symlinkSync('/etc/passwd', `${place}/link`);
            fs.symlinkSync('/etc', `${place}/directory`);
            fs.mkdirSync(`${place}/deep${'/d'.repeat(9)}`, { recursive: true });
            fs.writeFileSync(`${place}/one`, 'one');
            fs.linkSync(`${place}/one`, `${place}/two`);
            fs.closeSync(fs.openSync(`${place}/large`, 'w'));
            fs.truncateSync(`${place}/large`, params.large);
            fs.writeFileSync(`${place}/last`, 'last');
          },
        };
    """,
}


@pytest.mark.parametrize("arguments", [{}, {"asks": True}, {"fails": True}])
def test_files_of_the_output_folder_leave_the_cell(
    lab: Lab, language: str, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    spec = make(tmp_path, WRITES[language], language=language)
    result = lab.call(spec, arguments=arguments)
    assert result.kind == ("error" if "fails" in arguments else "ok"), result.error
    if result.kind == "ok":
        assert result.value == ["empty", "notes.txt", "plots"]
    assert lab.core.files() == SENT
    # Each piece is small, so that the core never takes long for one.
    assert max(len(part.data) for part in lab.core.parts) <= PART_BYTES


def test_each_call_has_an_empty_folder_of_its_own(lab: Lab, language: str, tmp_path: Path) -> None:
    spec = make(tmp_path, WRITES[language], language=language)

    async def work(executor: Executor) -> list[CellResult]:
        return [await lab.ask(executor, spec, tool) for tool in ("tool", "silent", "silent")]

    first, second, third = lab.run(work)
    assert [first.kind, second.value, third.value] == ["ok", [], []]
    assert lab.core.files() == SENT


def test_links_and_what_is_too_large_or_deep_stay_and_are_named(
    lab: Lab, language: str, tmp_path: Path
) -> None:
    spec = make(tmp_path, ODD[language], language=language)
    large = 30 << 20 if lab.status.level == "landlock" else BYTES_MAX + 1
    result = lab.call(spec, arguments={"large": large})
    assert result.kind == "ok", result.error
    found = lab.core.files()
    kept = {name: value for name, value in found.items() if isinstance(value, bytes)}
    assert kept.pop("large", bytes(large)) == bytes(large)
    assert kept == {"last": b"last"}
    assert found["link"] == found["directory"] == "it is no plain file"
    assert found["one"] == found["two"] == "it has several names"
    assert found["deep" + "/d" * (DEPTH_MAX - 1)] == f"it is deeper than {DEPTH_MAX} directories"
    if large > BYTES_MAX:
        assert found["large"] == f"it has {large} bytes, and {BYTES_MAX} are left"


def parts(place: Path) -> dict[str, bytes | str]:
    found: dict[str, Any] = {}
    for name, data, left_out in output_parts(str(place)):
        found[name] = left_out or found.get(name, b"") + data
    return found


def test_pipes_and_names_that_are_not_utf_8_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").write_text("a")
    with open(os.fsencode(tmp_path) + b"/\xff", "w") as file:
        file.write("x")
    assert parts(tmp_path) == {
        "a": b"a",
        "pipe": "it is no plain file",
        "\\udcff": "its name is not UTF-8",
    }


def test_more_files_than_are_sent_end_the_walk(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 2):
        (tmp_path / f"{number:04}").touch()
    found = parts(tmp_path)
    assert len(found) == FILES_MAX + 1
    assert found[""] == f"the output folder has more than {FILES_MAX} files"


def test_more_names_than_are_looked_at_end_the_walk(tmp_path: Path) -> None:
    for number in range(ENTRIES_MAX + 5):
        (tmp_path / f"{number:05}").mkdir()
    assert parts(tmp_path) == {"": f"the output folder has more than {ENTRIES_MAX} names"}


def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    said = {"": "the output folder is no directory any more"}
    assert parts(tmp_path / "link") == parts(tmp_path / "absent") == said


def test_in_this_process_a_call_has_such_a_folder_too(tmp_path: Path) -> None:
    source = """
        def tool(params, context):
            (context.output / "a.txt").write_text("hello")
            return str(context.output)

        tools = {"tool": tool}
    """
    spec, core = make(tmp_path, source), Core()

    async def scene() -> CellResult:
        runner = InProcessRunner(trusted=[spec.digest])
        return await runner.execute(spec, "tool", {}, meta={}, host=core)

    result = anyio.run(scene)
    assert core.files() == {"a.txt": b"hello"}
    assert not Path(result.value).exists()

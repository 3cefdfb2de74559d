"""Calls of skills in both languages, at both levels."""

from __future__ import annotations

from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import pytest
from tests.extensions.cells.lab import Lab, lab, language, make

from skillhouse.extensions.cells import Executor
from skillhouse.extensions.cells.cell_environment import PYTHON_CELL, scripts
from skillhouse.floor import structs
from skillhouse.sandbox import SandboxError, default_python

pytestmark = pytest.mark.slow

__all__ = ["lab", "language"]

ALL = {
    "python": """
        import json

        async def all(params, context):
            answer = await context.fetch("https://a.test/x", method="POST", body="b")
            signed = await context.sign({"type": "message", "data": {"text": "t"}})
            text = await context.read_file("notes.txt")
            context.log("working", 1)
            context.progress(0.5, "half")
            return {
                "params": params,
                "status": answer.status,
                "ok": answer.ok,
                "type": answer.headers["content-type"],
                "values": answer.json(),
                "signed": signed,
                "text": text,
                "env": context.env,
                "meta": context.meta,
            }

        async def refused(params, context):
            try:
                await context.readFile("../secret")
            except Exception as error:
                return [str(error), error.code, error.reason]

        def raises(params, context):
            print("before it")
            raise ValueError("no coin")

        def nothing(params, context):
            return None

        def no_json(params, context):
            return {1, 2}

        def leaves(params, context):
            import os
            os._exit(3)

        def inner(params, context):
            from lib import numbers
            return numbers.ONE

        tools = {"all": all, "refused": refused, "raises": raises, "nothing": nothing,
                 "no_json": no_json, "leaves": leaves, "inner": inner}
    """,
    "javascript": """
        import { ONE } from './lib/numbers.js';
        export const tools = {
          all: async (params, context) => {
            const answer = await context.fetch('https://a.test/x', { method: 'POST', body: 'b' });
            const signed = await context.sign({ type: 'message', data: { text: 't' } });
            const text = await context.readFile('notes.txt');
            context.log('working', 1);
            context.progress(0.5, 'half');
            return {
              params, status: answer.status, ok: answer.ok,
              type: answer.headers.get('content-type'),
              values: await answer.json(), signed, text, env: context.env, meta: context.meta,
            };
          },
          refused: async (params, context) => {
            try { await context.readFile('../secret'); }
            catch (error) { return [error.message, error.code, error.reason]; }
          },
          raises: () => { console.log('before it'); throw new Error('no coin'); },
          nothing: () => null,
          no_json: () => 1n,
          leaves: () => process.exit(3),
          inner: () => ONE,
        };
    """,
}
FILES: dict[str, dict[str, str]] = {
    "python": {"lib/numbers.py": "ONE = 1\n"},
    "javascript": {"lib/numbers.js": "export const ONE = 1;\n"},
}
META = {"skillName": "skill", "toolName": "all", "callId": "1", "userId": "u", "channel": "cli"}


def skill(lab: Lab, language: str, **options: Any) -> Any:
    return make(lab.place, ALL[language], language=language, files=FILES[language], **options)


@pytest.mark.req("S002-5", "S002-31", "S002-37", "S002-41", "S002-42", "S002-43", "S002-44")
@pytest.mark.req("S002-45", "S002-51")
def test_the_context_offers_the_same_in_both_languages(lab: Lab, language: str):
    spec = skill(lab, language, env={"API_KEY": "k"})
    done = lab.call(spec, "all", arguments={"coin": "x", "n": [1, None, 1.5]}, meta=META)
    assert (done.kind, done.error) == ("ok", "")
    assert done.value == {
        "params": {"coin": "x", "n": [1, None, 1.5]},
        "status": 200,
        "ok": True,
        "type": "text/plain",
        "values": [1, 2],
        "signed": {"signature": "0x01"},
        "text": "text of notes.txt",
        "env": {"API_KEY": "k"},
        "meta": META,
    }
    assert lab.core.asked == [
        ("fetch", {"url": "https://a.test/x", "method": "POST", "body": "b"}),
        ("sign", {"type": "message", "data": {"text": "t"}}),
        ("read_file", "notes.txt"),
    ]
    assert (lab.core.logged, lab.core.told) == (["working 1"], [(0.5, "half")])


@pytest.mark.req("S002-50")
def test_what_the_core_refuses_is_an_error_to_catch(lab: Lab, language: str):
    done = lab.call(skill(lab, language), "refused")
    assert done.value == ["outside the workspace", -32003, "path-escape"]


@pytest.mark.req("S002-78")
def test_an_exception_is_an_error_with_its_text(lab: Lab, language: str):
    done = lab.call(skill(lab, language), "raises")
    name = "ValueError" if language == "python" else "Error"
    assert (done.kind, done.error, done.value) == ("error", f"{name}: no coin", None)
    assert done.stdout_tail == "before it\n"


@pytest.mark.req("S002-81")
def test_nothing_is_a_result(lab: Lab, language: str):
    assert lab.call(skill(lab, language), "nothing").kind == "ok"


def test_a_result_that_is_no_json_is_an_error(lab: Lab, language: str):
    done = lab.call(skill(lab, language), "no_json")
    assert done.kind == "error"
    assert done.error.startswith("the result is not JSON: TypeError")


def test_a_process_that_leaves_has_crashed_and_the_next_call_runs(lab: Lab, language: str):
    spec = skill(lab, language)

    async def scene(executor: Executor) -> list[tuple[str, str]]:
        found = [await lab.ask(executor, spec, name) for name in ("leaves", "inner")]
        return [(done.kind, done.error) for done in found]

    error = "the process ended with exit code 3 before it answered"
    assert lab.run(scene) == [("crashed", error), ("ok", "")]


@pytest.mark.req("S002-37")
def test_the_names_are_those_that_the_code_exports(lab: Lab, language: str):
    spec = skill(lab, language)
    names = ("all", "inner", "leaves", "no_json", "nothing", "raises", "refused")
    assert lab.run(lambda executor: executor.tool_names(spec)) == names


def test_a_tool_that_is_not_exported_is_an_error(lab: Lab, language: str):
    done = lab.call(skill(lab, language), "other")
    assert (done.kind, done.error) == ("error", "the skill exports no tool 'other'")


@pytest.mark.req("S002-38")
def test_code_without_tools_is_told(lab: Lab, language: str):
    spec = make(lab.place, "", language=language)

    async def scene(executor: Executor) -> str:
        with pytest.raises(SandboxError, match="tools") as caught:
            await executor.tool_names(spec)
        return caught.value.code

    assert lab.run(scene) == "skill-failed"


@pytest.mark.req("S002-75", "S002-83")
def test_a_call_that_takes_too_long_is_killed(lab: Lab, language: str):
    source = {
        "python": "def tool(p, c):\n    while True:\n        pass\ntools = {'tool': tool}\n",
        "javascript": "export const tools = { tool: () => { for (;;); } };\n",
    }
    done = lab.call(make(lab.place, source[language], language=language), timeout=0.5)
    assert (done.kind, done.error) == ("timeout", "Skill execution timeout (500ms)")
    assert done.seconds < 2.0


@pytest.mark.req("S002-66")
def test_dependencies_are_found_where_they_are_bound(lab: Lab, language: str):
    packages = lab.place / "packages"
    (packages / "one").mkdir(parents=True)
    if language == "python":
        (packages / "one" / "__init__.py").write_text("VALUE = 1\n")
        source = "import one\ntools = {'tool': lambda p, c: one.VALUE}\n"
    else:
        (packages / "one" / "index.js").write_text("exports.VALUE = 1;\n")
        source = "import one from 'one';\nexport const tools = { tool: () => one.VALUE };\n"
    spec = make(lab.place, source, language=language, dependencies=packages)
    assert lab.call(spec).value == 1


@pytest.mark.req("S002-63", "S002-64", "S002-65")
def test_packages_are_looked_for_from_near_to_far(lab: Lab, language: str):
    held = {
        "skill" if language == "python" else "skill/node_modules": ("own", "a"),
        "installed": ("skill", "ab"),
        "place": ("place", "abc"),
        "host": ("host", "abcd"),
    }
    for place, (said, names) in held.items():
        for name in names:
            package = lab.place / place / name
            package.mkdir(parents=True)
            (package / "__init__.py").write_text(f"PLACE = {said!r}\n")
            (package / "index.js").write_text(f"exports.PLACE = {said!r};\n")
    source = {
        "python": "import a, b, c, d\n"
        "tools = {'tool': lambda p, x: [one.PLACE for one in (a, b, c, d)]}\n",
        "javascript": "".join(f"import {name} from '{name}';\n" for name in "abcd")
        + "export const tools = { tool: () => [a, b, c, d].map((one) => one.PLACE) };\n",
    }
    spec = make(
        lab.place,
        source[language],
        language=language,
        dependencies=lab.place / "installed",
        shared=(lab.place / "place", lab.place / "host"),
    )
    assert lab.call(spec).value == ["own", "skill", "place", "host"]


def test_tools_that_use_asyncio_get_a_loop(lab: Lab):
    source = """
        import asyncio

        async def tool(params, context):
            async def one(n):
                await asyncio.sleep(0.01)
                return n + len(await context.read_file("a"))
            return await asyncio.gather(one(1), one(2))

        tools = {"tool": tool}
    """
    assert lab.call(make(lab.place, source)).value == [10, 11]


def test_arguments_and_results_may_be_large(lab: Lab, language: str):
    text = "é" * 1_000_000
    source = {
        "python": "tools = {'tool': lambda p, c: p['text']}\n",
        "javascript": "export const tools = { tool: (params) => params.text };\n",
    }
    spec = make(lab.place, source[language], language=language)
    assert lab.call(spec, arguments={"text": text}).value == text


def test_our_own_interpreter_gets_compiled_code_that_names_no_path_of_this_machine():
    own = scripts(default_python())
    assert all(data.startswith(MAGIC_NUMBER) for data in own.values())
    assert not [path for path, data in own.items() if str(PYTHON_CELL.parent).encode() in data]
    other = structs.replace(default_python(), program=Path("/usr/bin/python3.99"))
    sources = {path: data.decode() for path, data in scripts(other).items()}
    assert sources.keys() == own.keys()
    assert sources["/cell"] == PYTHON_CELL.read_text()

"""The package for the AI SDK and Mastra: its types, its own tests, and what the log has of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.audit import read_records
from tests.guides.pages import blocks
from tests.harness import until
from tests.typescript.service import NodePackage, node_package, served

FILES = ("poem", "other")
MODEL = 'const model = "openai/gpt-5.2";'

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.fixture
def package(tmp_path: Path) -> NodePackage:
    return node_package(tmp_path)


def test_the_package_has_strict_types_and_its_own_tests_pass(
    package: NodePackage, tmp_path: Path
) -> None:
    package.compile("--noEmit")
    with served(tmp_path) as (variables, house):
        tests = sorted(str(file) for file in (package.place / "tests").glob("*.test.ts"))
        package.run("--test", "--test-concurrency=1", *tests, **variables)
        path = house.audit_log.path
        # The call that the AbortSignal ended; what goes on has no outcome.
        (call,) = until(
            lambda: [one for one in read_records(path, tool="exec", limit=9) if one.outcome], 60
        )
        assert call.outcome
        assert call.outcome.error == "cancelled"
        made = [one for one in read_records(path, tool="write", limit=99) if one.status == "ok"]
        targets = [str(one.record.arguments["path"]) for one in made]
        assert sorted(targets) == sorted(set(targets))


@pytest.mark.parametrize("typed", [("y", "y"), ("n", "y")])
def test_the_programs_of_the_guide_ask_and_go_on(
    package: NodePackage, tmp_path: Path, typed: tuple[str, ...]
) -> None:
    package.compile("--project", "tsconfig.build.json")
    targets = json.loads((package.place / "package.json").read_text())["exports"].values()
    assert all((package.place / file).is_file() for one in targets for file in one.values())
    programs = [one.text for one in blocks("docs/guides/typescript.md") if one.language == "ts"]
    files = []
    for number, program in enumerate(programs):
        assert program.count(MODEL) == 1
        # Each in a step of its own: what came before has to be there in the next request.
        calls = ", ".join(
            f'[write("{name}-{number}", "{name}-{number}.txt", "Rain.\\n")]' for name in FILES
        )
        as_theirs = " as never" if "@mastra" in program else ""
        line = 'import { inTurn, write } from "./service.ts";\n'
        scripted = f"const model = inTurn({calls}){as_theirs};"
        files.append(package.place / f"tests/guide-{number}.ts")
        files[number].write_text(line + program.replace(MODEL, scripted))
    if typed[0] == "y":
        package.compile("--noEmit")
    assert len(files) == 2
    with served(tmp_path) as (variables, _):
        for number, script in enumerate(files):
            said = package.run(str(script), typed=typed, **variables)
            for name, answer in zip(FILES, typed, strict=True):
                assert f"{name}-{number}.txt? " in said
                file = Path(variables["SKILLHOUSE_WORKSPACE"]) / f"{name}-{number}.txt"
                assert file.exists() is (answer == "y")

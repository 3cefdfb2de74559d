"""The package for the AI SDK and Mastra: its types, its own tests, and what the log has of them."""

from __future__ import annotations

import json
import tarfile
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


@pytest.mark.parametrize("framework", ["ai-sdk", "mastra"])
def test_an_approval_is_used_by_a_second_process(
    package: NodePackage, tmp_path: Path, framework: str
) -> None:
    """The first has ended before the answer is used; a file is all that they share."""
    kept = str(tmp_path / "kept.json")
    with served(tmp_path) as (variables, house):
        asked = package.run("tests/restart.ts", "ask", framework, kept, **variables)
        assert asked.strip() == "nothing"
        (question,) = house.approvals.pending()
        assert question.request.tool == "write"
        done = package.run("tests/restart.ts", "answer", framework, kept, **variables)
        assert done.strip() == "Rain."
        assert house.approvals.pending() == ()
        # A third process with the same file makes no second call.
        (tmp_path / "project" / f"{framework}-restart.txt").unlink()
        again = package.run("tests/restart.ts", "answer", framework, kept, **variables)
        assert again.strip() == "nothing"
        made = read_records(house.audit_log.path, tool="write", limit=99)
        assert [one.status for one in made].count("ok") == 1


USER_PROGRAM = """\
import { generateText, isStepCount } from "ai";
import { type CallResult, SkillhouseClient } from "@skillhouse/tools";
import { answerDenied, skillhouseTools } from "@skillhouse/tools/ai-sdk";
import { skillhouseTools as mastraTools, type SuspendedAnswer } from "@skillhouse/tools/mastra";

const url = process.env["SKILLHOUSE_URL"] ?? "";
const house = new SkillhouseClient({ url, token: process.env["SKILLHOUSE_TOKEN"] ?? "" });
const names: string[] = Object.keys(await skillhouseTools(house));
const others: string[] = Object.keys(await mastraTools(house));
const result: CallResult = await house.call("skill", { name: "weather" });
export const answer: SuspendedAnswer = { approved: true, nonce: "" };
export const used = [generateText, isStepCount, answerDenied];
console.log(names.includes("write"), others.length === names.length, result.status);
"""
USER_OPTIONS = {
    "target": "es2023",
    "module": "nodenext",
    "types": ["node"],
    "strict": True,
    "skipLibCheck": True,
    "outDir": "dist",
}


def test_the_packed_package_serves_a_project_of_its_own(
    package: NodePackage, tmp_path: Path
) -> None:
    package.compile("--project", "tsconfig.build.json")
    packed = package.pack(tmp_path)
    with tarfile.open(packed) as archive:
        names = sorted(archive.getnames())
    assert {"package/package.json", "package/README.md", "package/dist/client.js"} <= {*names}
    assert not any(name.startswith(("package/src", "package/tests")) for name in names)
    project = package.project(tmp_path / "fresh", packed)
    project.joinpath("package.json").write_text('{"type": "module", "private": true}')
    project.joinpath("tsconfig.json").write_text(
        json.dumps({"compilerOptions": USER_OPTIONS, "files": ["main.ts"]})
    )
    for change, fault in (("house.call(7, {});\n", "TS2345"), ("", "")):
        project.joinpath("main.ts").write_text(USER_PROGRAM + change)
        said = package.checked(project)
        assert (fault in said) if fault else not said, said
    with served(tmp_path) as (variables, _):
        assert package.run(str(project / "dist/main.js"), **variables) == "true true ok\n"


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

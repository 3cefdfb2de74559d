"""What the command line says of skills with code, and of their calls."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.frontends.test_cli_code import enabled as enabled  # noqa: PLC0414 - a fixture.
from tests.house.coded import best_sandbox, tool, write_code

FAILS = """
def inner(value):
    raise ValueError("no such coin")


def tool(params, context):
    print("asked for", params)
    context.log("began")
    return inner(1)


tools = {"tool": tool}
"""


@pytest.mark.slow
def test_a_failing_call_says_where_and_the_log_keeps_what_was_printed(
    run: Run, enabled: Path, need: Any
) -> None:
    best_sandbox(need)
    root = enabled / "skills"
    write_code(root / "one", FAILS)
    code, out, err = run("call", "one:tool", "--root", str(root))
    frames = "  at main.py:3 in inner\n  at main.py:9 in tool\n"
    assert (code, out, err) == (1, "", f"skillhouse: ValueError: no such coin\n{frames}")
    code, out, err = run("call", "one:tool", "--root", str(root), "--verbose")
    kept = "log:\n  | began\noutput:\n  | asked for {}\n"
    assert err.startswith(f"skillhouse: ValueError: no such coin\n{frames}{kept}record: ")
    record = err.split()[-1]
    code, out, err = run("audit", "show", record)
    assert "  output\n    | asked for {}\n" in out
    assert "  frames\n    | main.py:9 in tool\n    | main.py:3 in inner\n" in out
    code, out, err = run("call", "one:tool", "--root", str(root), "--debug", "--json")
    value = json.loads(out)
    assert value["frames"] == ["main.py:9 in tool", "main.py:3 in inner"]
    assert "Traceback (most recent call last):" in value["output"]
    assert "main.py" not in value["content"] + str(value["data"])


@pytest.mark.slow
@pytest.mark.parametrize("template", ["python", "javascript"])
def test_a_template_makes_a_skill_that_is_valid_and_runs(
    run: Run, enabled: Path, need: Any, template: str
) -> None:
    best_sandbox(need)
    about = ("--template", template, "--description", 'Greets "people" \\ others.', "--json")
    code, out, _ = run("new", "greeter", *about)
    made = json.loads(out)
    assert code == 0
    code, out, err = run("validate", made["directoryPath"])
    assert (code, out) == (0, "")
    assert err == f"tool greeter:greet (read), {template}\n1 skill: 0 errors, 0 warnings\n"
    called = run("call", "greeter:greet", "--args", '{"name": "Ann"}')
    assert called == (0, '{"greeting": "Hello, Ann."}\n', "")
    assert run("new", "greeter", *about)[0] == 1


def test_a_template_with_a_script_is_valid(run: Run, place: Path) -> None:
    code, out, err = run(*"new counter --template script --description Counts.".split())
    assert code == 0
    assert "try it: python3 " in err
    directory = re.sub(r".* is at (.*)/SKILL.md\n", r"\1", out)
    assert run("validate", directory) == (0, "", "1 skill: 0 errors, 0 warnings\n")


def test_a_tool_whose_skill_is_broken_says_why(run: Run, enabled: Path) -> None:
    root = enabled / "skills"
    write_code(root / "one", FAILS, tool(level="root"))
    for name in ("one:tool", "one__tool"):
        code, _, err = run("call", name, "--root", str(root))
        assert code == 2
        assert f"unknown tool `{name}`; the skill `one` cannot be loaded: pyproject.toml:" in err
        assert "security.level" in err
    code, _, err = run("call", "two:tool", "--root", str(root))
    assert (code, "known are" in err or "did you mean" in err) == (2, True)


@pytest.mark.slow
def test_code_that_does_not_load_is_remembered_with_its_reason(
    run: Run, enabled: Path, need: Any
) -> None:
    best_sandbox(need)
    root = enabled / "skills"
    write_code(root / "one", "1 / 0\n")
    place = ("--root", str(root))
    assert run("show", "one", *place)[0] == 0
    assert "did not load" not in run("show", "one", *place)[1]
    assert run("reload", *place)[0] == 1
    assert "did not load when it was last tried" in run("show", "one", *place)[1]
    assert "ZeroDivisionError" in run("list", "--findings", *place)[1]
    write_code(root / "one", "tools = {'tool': lambda params, context: 1}\n")
    assert "did not load" not in run("show", "one", *place)[1]


def test_a_skill_of_code_alone_is_shown_listed_and_validated(
    run: Run, enabled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = enabled / "skills"
    tools = (tool("look"), tool("change", "write"))
    write_code(root / "one", FAILS, *tools, env=["PRICE_KEY", "OTHER"])
    text = (root / "one/pyproject.toml").read_text()
    text = text.replace("[project]\n", '[project]\nlicense = "MIT"\nauthors = [{name = "Ann"}]\n')
    (root / "one/pyproject.toml").write_text(text)
    place = ("--root", str(root))
    code, out, _ = run("show", "one", *place)
    assert code == 0
    for line in (
        "code           Python, main.py; on\n",
        "tool           one:look (read) Does look.\n",
        "tool           one:change (write) Does change.\n",
        "env            PRICE_KEY: not named below [skill_code] env\n",
        "author         Ann\n",
        "license        MIT\n",
    ):
        assert line in out
    assert "  one  Python: look (read), change (write)\n" in run("list", *place)[1]
    (listed,) = json.loads(run("list", *place, "--json")[1])["code"]
    assert [one["level"] for one in listed["tools"]] == ["read", "write"]
    assert (listed["author"], listed["license"], listed["language"]) == ("Ann", "MIT", "python")
    files = json.loads(run("files", "one", *place, "--json")[1])
    assert files["types"] == {"main.py": "code", "pyproject.toml": "manifest"}
    code, out, err = run("validate", str(root))
    assert (code, out) == (0, "")
    assert "tool one:change (write), python\n" in err
    assert run("show", "onne", *place)[2].endswith("no skill `onne`; nearest: `one`\n")


@pytest.mark.slow
def test_trust_and_doctor_name_a_projects_code(run: Run, enabled: Path) -> None:
    directory = Path.cwd() / ".agents/skills/one"
    write_code(directory, FAILS, tool("look"), tool("pay", "sign"))
    code, out, _ = run("trust", "--show")
    assert code == 0
    assert "one:pay (sign) Does pay." in out
    assert "did not load" not in out
    run("trust", "--yes")
    code, out, _ = run("doctor")
    assert "skill with code one: Python: look (read), pay (sign)" in out
    (directory / "main.py").unlink()
    code, out, _ = run("doctor")
    assert code == 1
    assert "entry-not-found" in out

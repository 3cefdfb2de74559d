"""Tests of floor/errors.py and floor/errors.py: what callers and authors read."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse import floor
from skillhouse.floor import (
    AmbiguousSkillError,
    ConfigError,
    DecodeError,
    Diagnostic,
    ExposedError,
    InternalFaultError,
    MissingExtraError,
    PathError,
    PlaceError,
    Severity,
    SkillError,
    SkillhouseError,
    StateError,
    TreeError,
    UnknownSkillError,
    UnusableSkillError,
    WireNameError,
    extra_advice,
    package_advice,
)
from skillhouse.floor.errors import _IN_ALL

AT = Path("skills/pdf")

CASES: list[tuple[SkillhouseError, str, dict[str, Any]]] = [
    (
        PathError("path-parent", "../a", AT),
        "path-parent under `skills/pdf`: '../a'",
        {"code": "path-parent", "relative": "../a", "base": AT},
    ),
    (
        TreeError("tree-special", AT, "a symbolic link in a skill"),
        "a symbolic link in a skill: `skills/pdf`",
        {"code": "tree-special", "path": AT},
    ),
    (
        SkillError("yaml-tag", AT, "tag `!x`"),
        "tag `!x`: `skills/pdf`",
        {"code": "yaml-tag", "path": AT},
    ),
    (
        UnknownSkillError("pfd", ("pdf", "pdf-tools")),
        "no skill `pfd`; nearest: `pdf`, `pdf-tools`",
        {"reference": "pfd", "suggestions": ("pdf", "pdf-tools"), "hint": ""},
    ),
    (
        UnknownSkillError("x", ()),
        "no skill `x`",
        {"reference": "x", "suggestions": (), "hint": ""},
    ),
    (
        UnusableSkillError(
            "pdf", state="broken", reason="no `description`", hint="write one", path=AT, line=2
        ),
        "skill `pdf` cannot be used: no `description`; write one (at `skills/pdf:2`)",
        {
            "reference": "pdf",
            "suggestions": (),
            "hint": "write one",
            "state": "broken",
            "reason": "no `description`",
            "path": AT,
            "line": 2,
        },
    ),
    (
        AmbiguousSkillError("pdf", ("project:pdf", "user:pdf")),
        "`pdf` fits 2 skills, name one of: `project:pdf`, `user:pdf`",
        {"reference": "pdf", "candidates": ("project:pdf", "user:pdf")},
    ),
    (
        WireNameError("a___b", ("a", "_b"), ("a_", "b")),
        "wire name `a___b` of `a:_b` is taken by `a_:b`",
        {"wire": "a___b", "pair": ("a", "_b"), "taken_by": ("a_", "b")},
    ),
    (
        ConfigError("unknown key `rots`", path=AT, key="rots", suggestion="roots"),
        "unknown key `rots` in `skills/pdf`; did you mean `roots`",
        {
            "message": "unknown key `rots`",
            "path": AT,
            "key": "rots",
            "suggestion": "roots",
            "known": (),
            "line": None,
        },
    ),
    (
        ConfigError("no home"),
        "no home",
        {
            "message": "no home",
            "path": None,
            "key": "",
            "suggestion": "",
            "line": None,
            "known": (),
        },
    ),
    (StateError("newer than us", AT), "newer than us: `skills/pdf`", {"path": AT}),
    (
        ExposedError("others can read it", AT),
        "others can read it: `skills/pdf`",
        {"problem": "others can read it", "path": AT},
    ),
    (DecodeError("unreadable record"), "unreadable record", {}),
    (
        MissingExtraError("server", "uvicorn"),
        (
            "this needs the optional part `server` (no module `uvicorn`); "
            + floor.extra_advice("server")
        ),
        {"extra": "server", "module": "uvicorn"},
    ),
]


@pytest.mark.parametrize(("error", "message", "facts"), CASES)
def test_an_error_carries_its_facts_and_one_line_of_words(
    error: SkillhouseError, message: str, facts: dict[str, Any]
) -> None:
    assert str(error) == message
    assert vars(error) == facts


def test_every_error_of_the_floor_is_in_the_table_and_under_one_root() -> None:
    offered = (getattr(floor, name) for name in vars(floor)["__all__"])
    errors = {one for one in offered if isinstance(one, type) and issubclass(one, Exception)}
    assert errors == {type(error) for error, *_ in CASES} | {
        SkillhouseError,
        PlaceError,
        floor.LocationError,
        # Its text has a number of its own: test_faults.py.
        InternalFaultError,
    }
    assert all(issubclass(error, SkillhouseError) for error in errors)


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [
        (AT, 3, "skills/pdf:3: warning: no name [name-missing]"),
        (AT, None, "skills/pdf: warning: no name [name-missing]"),
        (None, 3, "warning: no name [name-missing]"),
    ],
)
def test_a_diagnostic_reads_as_compilers_print_theirs(
    path: Path | None, line: int | None, text: str
) -> None:
    found = Diagnostic(
        code="name-missing", severity=Severity.WARNING, message="no name", path=path, line=line
    )
    assert str(found) == text


ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "pydantic-ai-slim[anthropic]"


def prefix_of(base: Path, kind: str) -> Path:
    prefix = base / ".x/env"
    prefix.mkdir(parents=True)
    if kind == "clone":
        (base / "x").write_text("")
    files = {"tool": "uv-receipt.toml", "pipx": "pipx_metadata.json"}
    if kind in files:
        (prefix / files[kind]).write_text("")
    if kind == "pip":
        (prefix / "lib/python3.12/site-packages/pip").mkdir(parents=True)
    return prefix


@pytest.mark.parametrize(
    ("kind", "extra", "package"),
    [
        (
            "clone",
            "run `{b}/.x/uv/bin/uv pip install --python {p}/bin/python -e '{b}[chat]'`",
            "run `{b}/.x/uv/bin/uv pip install --python {p}/bin/python '" + PACKAGE + "'`",
        ),
        (
            "tool",
            "run in the clone `uv tool install --force '.[all]'`",
            f"run in the clone `uv tool install --force --with '{PACKAGE}' '.[all]'`",
        ),
        (
            "pipx",
            "run in the clone `pipx install --force '.[all]'`",
            f"run `pipx inject skillhouse '{PACKAGE}'`",
        ),
        (
            "pip",
            "run in the clone `{p}/bin/python -m pip install '.[chat]'`",
            "run `{p}/bin/python -m pip install '" + PACKAGE + "'`",
        ),
        (
            "uv",
            "run in the clone `uv pip install --python {p}/bin/python '.[chat]'`",
            "run `uv pip install --python {p}/bin/python '" + PACKAGE + "'`",
        ),
    ],
)
def test_the_advice_is_a_command_for_the_environment_that_runs(
    tmp_path: Path, kind: str, extra: str, package: str
) -> None:
    prefix = prefix_of(tmp_path, kind)
    names = {"p": str(prefix), "b": str(tmp_path)}
    found = (extra_advice("chat", prefix), package_advice(PACKAGE, prefix))
    wanted = (extra.format(**names), package.format(**names))
    assert found == wanted


def test_a_framework_is_added_to_all_that_a_tool_has(tmp_path: Path) -> None:
    prefix = prefix_of(tmp_path, "tool")
    assert extra_advice("langchain", prefix).endswith("'.[all,langchain]'`")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tool", "uv tool install --force --with ./signer '.[all]'"),
        ("pipx", "pipx inject skillhouse ./signer"),
    ],
)
def test_the_signer_is_a_distribution_of_its_own(tmp_path: Path, kind: str, said: str) -> None:
    assert extra_advice("signer", prefix_of(tmp_path, kind)) == f"run in the clone `{said}`"


def test_hardware_keys_come_with_the_signer(tmp_path: Path) -> None:
    said = "run in the clone `pipx inject skillhouse './signer[hsm]'`"
    assert extra_advice("hsm", prefix_of(tmp_path, "pipx")) == said


def test_the_extras_of_all_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [whole] = project["optional-dependencies"]["all"]
    assert set(whole.partition("[")[2].rstrip("]").split(",")) == _IN_ALL


def test_in_this_clone_the_programs_of_the_advice_are_there() -> None:
    if Path(sys.prefix) != ROOT / ".x/env":
        pytest.skip("not the environment of ./x")
    command = shlex.split(extra_advice("chat").split("`")[1])
    uv, python = Path(command[0]), Path(command[command.index("--python") + 1])
    assert uv.is_file()
    assert python.is_file()
    assert command[-1] == f"{ROOT}[chat]"

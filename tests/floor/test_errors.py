"""Tests of floor/errors.py and floor/errors.py: what callers and authors read."""

from __future__ import annotations

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
)

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
            "pdf", state="broken", reason="no `description`", mend="write one", path=AT, line=2
        ),
        "skill `pdf` cannot be used: no `description`; write one (at `skills/pdf:2`)",
        {
            "reference": "pdf",
            "suggestions": (),
            "hint": "",
            "state": "broken",
            "reason": "no `description`",
            "mend": "write one",
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
            "line": None,
        },
    ),
    (
        ConfigError("no home"),
        "no home",
        {"message": "no home", "path": None, "key": "", "suggestion": "", "line": None},
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

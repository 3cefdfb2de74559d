"""The frameworks' examples, judges and environments; with SKILLHOUSE_TEST_FRAMEWORKS the runs too.

That names the folder that `python -m tests.interop.agents --folder FOLDER --prepare` made.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from tests.harness import ran
from tests.interop.agents.fake_model import Asked
from tests.interop.agents.protocols import OpenAIChat
from tests.interop.frameworks import environments
from tests.interop.frameworks.environments import example, found, install_words, pins
from tests.interop.frameworks.judging import COLUMNS, judged
from tests.interop.frameworks.run import FrameworkRow, table
from tests.interop.frameworks.scenes import APPROVED, DENIED, LAST, REFUSED, TEXT, Seen
from tests.interop.frameworks.table import FRAMEWORKS, Framework, Way
from tests.own_environments import ROOT

FOLDER = os.environ.get("SKILLHOUSE_TEST_FRAMEWORKS", "")
EVERY = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: str(one.name))


@pytest.mark.heavy
@pytest.mark.skipif(not FOLDER, reason="SKILLHOUSE_TEST_FRAMEWORKS names no folder of frameworks")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: frameworks run offline")
@EVERY
def test_it_does_what_its_guide_says_without_a_network(framework: Framework) -> None:
    words = ("--folder", FOLDER, "--scenes", "calls", "--only", framework.name, "--json")
    done = ran([sys.executable, "-m", "tests.interop.agents", *words])
    seen = json.loads(done.stdout)
    assert {one["framework"] for one in seen} == {framework.name}
    assert [one for one in seen if not one["holds"]] == []
    assert done.returncode == 0, done.stderr[-4000:]


# --- what is run is what the guides say


@EVERY
def test_the_program_is_the_guide_s(framework: Framework) -> None:
    code = example(framework)
    assert code.startswith(framework.begins)
    if framework.way is not Way.PACKAGE:
        ast.parse(code)
        assert install_words(framework)
    changed = code.removeprefix(framework.begins)
    for written, instead in framework.models.items():
        changed = changed.replace(instead, written)
    page = environments.PAGES[framework.way]
    assert changed in (ROOT / page).read_text(encoding="utf-8")


def test_a_guide_that_says_something_else_is_no_program() -> None:
    first = FRAMEWORKS[0]
    with pytest.raises(ValueError, match="expected `## Nothing`"):
        example(replace(first, heading="Nothing"))
    with pytest.raises(ValueError, match="expected `gpt-99` once"):
        example(replace(first, models={"gpt-99": "fake"}))


@EVERY
def test_its_version_is_one_of_those_that_our_tests_use(framework: Framework) -> None:
    # No test of ours uses it, so the newest is the only one.
    if framework.name == "smolagents":
        assert framework.pins == ""
    else:
        assert framework.package in pins(ROOT / framework.pins)


# --- environments


def test_environments_are_found_by_their_versions(tmp_path: Path) -> None:
    framework = FRAMEWORKS[0]
    assert found(framework, tmp_path) == []
    for which, version in (("newest", "2.1"), ("pinned", "2.0")):
        place = tmp_path / framework.name / which
        place.mkdir(parents=True)
        (place / "version.txt").write_text(version)
    assert [(one.which, one.version) for one in found(framework, tmp_path)] == [
        ("newest", "2.1"),
        ("pinned", "2.0"),
    ]
    (tmp_path / framework.name / "pinned/version.txt").write_text("2.1")
    assert [(one.which, one.version) for one in found(framework, tmp_path)] == [("both", "2.1")]


# --- judging


def request(*results: str) -> Asked:
    said: list[dict[str, Any]] = [{"role": "user", "content": "Write. owl1marker"}]
    said += [{"role": "tool", "content": one} for one in results]
    return Asked(speech=OpenAIChat(), body={"messages": said})


def record(tool: str, status: str, number: int, path: str = "") -> dict[str, Any]:
    inner = {"tool": tool, "seq": number, "arguments": {"path": f"/x/{path}"} if path else {}}
    return {"record": {**inner, "detail": {"approval": "5c1f"}}, "status": status}


RESULTS = ("body owl2secret", "wrote 6 bytes", "denied by the user", "denied: owl3reason")
RECORDS = (
    record("skill", "ok", 1),
    record("write", "ok", 2, APPROVED),
    record("write", "denied", 3, REFUSED),
    record("write", "denied", 4, DENIED),
)
GOOD = Seen(
    marker="owl1marker",
    secret="owl2secret",
    reason="owl3reason",
    asked=[request(), request(*RESULTS)],
    questions=["write poem.txt? ", "write other.txt? "],
    files={APPROVED: TEXT},
    records=RECORDS,
    is_log_whole=True,
    said=f"{LAST}.",
)


def test_what_holds_holds() -> None:
    assert judged(GOOD) == dict.fromkeys(COLUMNS, ())


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("lists", {"marker": "another"}),
        ("lists", {"asked": [request(RESULTS[0])]}),
        ("lists", {"asked": []}),
        ("loads", {"asked": [request(), request("no such skill", *RESULTS[1:])]}),
        ("loads", {"records": RECORDS[1:]}),
        ("loads", {"records": (RECORDS[0], *RECORDS)}),
        ("runs", {"questions": []}),
        ("runs", {"early": [APPROVED]}),
        ("runs", {"files": {}}),
        ("runs", {"files": {APPROVED: "other"}}),
        ("runs", {"records": (*RECORDS, RECORDS[1])}),
        ("runs", {"records": (RECORDS[0], *RECORDS[2:])}),
        ("refuses", {"questions": ["one"]}),
        ("refuses", {"questions": ["one", "two", "three"]}),
        ("refuses", {"files": {APPROVED: TEXT, REFUSED: TEXT}}),
        ("refuses", {"records": (*RECORDS, record("write", "ok", 5, REFUSED))}),
        ("denies", {"files": {APPROVED: TEXT, DENIED: TEXT}}),
        ("denies", {"asked": [request(), request(*RESULTS[:3])]}),
        ("denies", {"records": RECORDS[:3]}),
        ("denies", {"records": (*RECORDS, record("write", "ok", 5, DENIED))}),
        ("ends", {"code": 1}),
        ("ends", {"said": "Traceback"}),
        ("ends", {"is_log_whole": False}),
    ],
)
def test_what_is_missing_or_too_much_does_not_hold(column: str, change: dict[str, Any]) -> None:
    values = {name: getattr(GOOD, name) for name in Seen.__slots__}
    assert judged(Seen(**{**values, **change}))[column]


def test_a_framework_holds_only_when_every_column_does() -> None:
    good = FrameworkRow(
        framework=FRAMEWORKS[0], version="2.1", which="newest", faults=dict.fromkeys(COLUMNS, ())
    )
    bad = FrameworkRow(
        framework=FRAMEWORKS[0],
        version="2.0",
        which="pinned",
        faults={**good.faults, "ends": ("x",)},
    )
    absent = FrameworkRow(framework=FRAMEWORKS[1], missing="not installed")
    assert [one.holds for one in (good, bad, absent)] == [True, False, False]
    lines = table([good, bad, absent]).splitlines()[2:]
    yes = " | yes" * len(COLUMNS)
    assert lines[0] == f"| {FRAMEWORKS[0].title} 2.1 | newest | our adapter{yes} |"
    assert lines[1].endswith("| yes | no |")
    assert lines[2].endswith(" | –" * len(COLUMNS) + " |")

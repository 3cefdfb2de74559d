"""The package for the AI SDK and Mastra: its types, its own tests, and what the log has of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.audit import read_records
from tests.harness import until
from tests.typescript.service import node_package, served

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


def test_the_package_has_strict_types_and_its_own_tests_pass(tmp_path: Path) -> None:
    package = node_package(tmp_path)
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

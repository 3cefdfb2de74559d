"""Pytest plugin: writes which requirements each test claims, and how the test ended.

Load it with `-p req_plugin` and give a path in the environment variable `REQ_REPORT`. At the end of the session
that file holds JSON: `{node id: {"ids": ["S003-25"], "outcome": "passed" | "skipped" | "failed"}}`.
"""

import json
import os
from pathlib import Path

import pytest

PROPERTY = "req"
# A test is as good as the worst of its phases; an outcome not named here (a rerun) is not final and is left out.
WORST_LAST = ("passed", "skipped", "failed")


class ReqReport:
    """Gathers the reports of one session and writes them when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[str, list[str]] = {}
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure proves nothing, whether it came or not.
        outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
        if outcome not in WORST_LAST or (outcome == "passed" and report.when != "call"):
            return
        before = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = max(before, outcome, key=WORST_LAST.index)
        ids = [str(value) for name, value in report.user_properties if name == PROPERTY]
        if ids or report.nodeid not in self.ids:
            self.ids[report.nodeid] = ids

    def pytest_sessionfinish(self) -> None:
        found = {node: {"ids": self.ids[node], "outcome": outcome} for node, outcome in sorted(self.outcomes.items())}
        self.path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirements of docs/requirements.toml that the test shows")
    path = os.environ.get("REQ_REPORT")
    # Under pytest-xdist only the controller writes: it sees the reports of all workers.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ReqReport(Path(path)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Properties travel inside the reports, so the ids reach the controller of pytest-xdist.
    for item in items:
        ids = dict.fromkeys(str(value) for marker in item.iter_markers("req") for value in marker.args)
        item.user_properties.extend((PROPERTY, value) for value in ids)

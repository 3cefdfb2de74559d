"""Pytest plugin: writes which tests claim which requirement, for scripts/breaking.py."""

import json
import os
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write `{id: [node ids without parameters]}` to the file that CLAIMS_REPORT names."""
    found: dict[str, dict[str, None]] = {}
    for item in session.items:
        for marker in item.iter_markers("req"):
            for number in marker.args:
                found.setdefault(str(number), {})[item.nodeid.partition("[")[0]] = None
    Path(os.environ["CLAIMS_REPORT"]).write_text(
        json.dumps({number: list(nodes) for number, nodes in found.items()})
    )

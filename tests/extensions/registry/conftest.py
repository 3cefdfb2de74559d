"""A registry that serves, one for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.extensions.registry.hosting.servers import Server, serving


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    with serving(place / "state", "--name", "skills.example.com") as started:
        yield started

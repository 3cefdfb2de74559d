"""The service of a test, and a client that may do everything."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import client_of, make_house

from skillhouse.house import Skillhouse


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    return make_house(tmp_path)


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house)

"""The house of the tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.places import make_places

from skillhouse.house import Skillhouse, configured


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield house

"""Fixtures of states on a server."""

from __future__ import annotations

import pytest
from tests.extensions.postgres.state_servers import new_database
from tests.frontends.conftest import place, run

__all__ = ["place", "run"]


@pytest.fixture
def state_url(postgres_server: str) -> str:
    """Return the URL of an empty database."""
    return new_database(postgres_server)

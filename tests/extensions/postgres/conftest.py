"""Fixtures of states on a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.extensions.postgres.state_servers import new_database, served
from tests.frontends.conftest import place, run

from skillhouse.approval import ApprovalBroker

__all__ = ["place", "run"]


@pytest.fixture
def state_url(postgres_server: str) -> str:
    """Return the URL of an empty database."""
    return new_database(postgres_server)


@pytest.fixture
def machine(tmp_path: Path, state_url: str) -> Iterator[Callable[[str], ApprovalBroker]]:
    """Give the brokers of machines by name; each has a directory of its own and the same state."""
    with ExitStack() as stack:

        def broker(name: str) -> ApprovalBroker:
            stack.enter_context(served(tmp_path / name, state_url))
            made = ApprovalBroker(tmp_path / name)
            stack.callback(made.connections.close)
            return made

        yield broker

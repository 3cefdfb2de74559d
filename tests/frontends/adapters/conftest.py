"""What the frameworks leave behind is cleared away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture
def loop() -> Iterator[None]:
    """An event loop for the frameworks' synchronous calls, which take the thread's and leave it."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()

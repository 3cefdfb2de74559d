"""Tests of house/configured_thread.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from skillhouse.house import ConfiguredThread, configured_thread
from tests.extensions.server.api.place import make_house


class Faulty(ConfiguredThread):
    name = "faulty"
    runs = 0
    again = threading.Event()

    def _is_wanted(self) -> bool:
        return True

    def _run(self) -> None:
        self.runs += 1
        if self.runs == 1:
            raise RuntimeError("a fault")
        self.again.set()
        self._ended.wait()


def test_a_fault_ends_no_thread_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configured_thread, "AGAIN_SECONDS", 0.01)
    with Faulty(make_house(tmp_path)) as thread:
        assert thread.again.wait(30)
    assert thread.runs == 2

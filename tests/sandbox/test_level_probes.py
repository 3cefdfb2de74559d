"""Tests of sandbox/level_probes.py: how a probe's output is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from skillhouse.sandbox import Completed, Launcher, SandboxLevel, level_probes

SHOWN = b"""Traceback (most recent call last):
  File "<string>", line 1, in <module>
    held = [bytearray(1 << 20) for _ in range(256)]; print('survived')
MemoryError
"""
"""Python 3.13 shows the line of a program that was given as a word."""


class Answers:
    level = SandboxLevel.RLIMITS

    def __init__(self, stdout: bytes, stderr: bytes) -> None:
        self.completed = Completed(exit_code=1, stdout=stdout, stderr=stderr, duration_seconds=0)

    async def run(self, *_: Any, **__: Any) -> Completed:
        return self.completed


@pytest.mark.parametrize("probe", ["memory", "processes"])
@pytest.mark.parametrize(
    ("stdout", "stderr", "holds"), [(b"survived\n", b"", False), (b"", SHOWN, True)]
)
def test_a_limit_lacks_only_where_the_program_went_on(
    tmp_path: Path, probe: str, stdout: bytes, stderr: bytes, holds: bool
) -> None:
    ask = getattr(level_probes, f"_{probe}")
    found = anyio.run(ask, cast("Launcher", Answers(stdout, stderr)), tmp_path)
    assert [not fault for fault in found.values()] == [holds]

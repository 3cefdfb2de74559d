"""Tests of tools/forecast_cache.py: forecasts about one moment look once, a call each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from skillhouse.floor import structs
from skillhouse.skill import SkillIndex
from skillhouse.tools import ForecastCache, RefusedError, Session, Workspace
from skillhouse.tools.protection import NoFiles


class CountedFiles(NoFiles):
    looks = 0

    def places(self) -> Iterable[Path]:
        self.looks += 1
        if self.looks == 1:
            raise RefusedError("not now")
        return ()


def test_forecasts_about_one_moment_look_once_and_a_call_each_time(tmp_path: Path) -> None:
    own = CountedFiles()
    workspace = Workspace(tmp_path, own=own)
    call = Session(
        agent="a",
        user="u",
        channel="c",
        visible=SkillIndex(),
        skill_need=lambda skill: pytest.fail(skill.name),
    )
    forecast = structs.replace(call, forecasts=ForecastCache())
    with pytest.raises(RefusedError, match="not now"):
        workspace.check(forecast)
    # A refusal is not kept; the second look is, for forecasts that share it.
    guarded = workspace.check(forecast)
    assert workspace.check(structs.replace(forecast)) is guarded
    assert own.looks == 2
    for _ in range(3):
        workspace.check(call)
    workspace.check(structs.replace(call, forecasts=ForecastCache()))
    assert own.looks == 6

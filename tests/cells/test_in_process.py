"""The same skill's code in this process and in a cell; without the operator's word only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.cells import CellResult, CellSpec, InProcessRunner
from skillhouse.sandbox import SandboxError, SandboxLevel
from tests.cells.lab import Core, Lab, make, status_of

SOURCE = """
    from inner import ONE

    async def price(params, context):
        answer = await context.fetch("https://a.test/" + params["coin"])
        text = await context.read_file("notes.txt")
        signed = await context.sign({"type": "message", "data": {}})
        context.log("done")
        context.progress(1, "all")
        return [ONE, answer.status, answer.ok, answer.headers, await answer.text(),
                answer.json(), text, signed, context.env, context.meta]

    def raises(params, context):
        raise ValueError("no coin")

    async def late(params, context):
        import asyncio
        await asyncio.sleep(60)

    tools = {"price": price, "raises": raises, "late": late}
"""


def spec_of(place: Path) -> CellSpec:
    return make(place, SOURCE, files={"inner.py": "ONE = 1\n"}, env={"KEY": "k"})


def call(spec: CellSpec, tool: str, core: Core, **options: Any) -> CellResult:
    runner = InProcessRunner(trusted=options.pop("trusted", [spec.digest]))

    async def scene() -> CellResult:
        given = {"meta": {"callId": "1"}, "host": core, **options}
        return await runner.execute(spec, tool, {"coin": "x"}, **given)

    return anyio.run(scene)


@pytest.mark.slow
@pytest.mark.req("S002-3", "S002-5")
def test_the_same_code_says_the_same_in_this_process_and_in_a_cell(tmp_path: Path, need: Any):
    spec, core = spec_of(tmp_path), Core()
    here = call(spec, "price", core)
    assert here.kind == "ok"
    lab = Lab(status_of(SandboxLevel.CGROUP, need), tmp_path)
    there = lab.call(spec, "price", arguments={"coin": "x"}, meta={"callId": "1"})
    assert (here.kind, here.value) == (there.kind, there.value)
    assert (core.asked, core.logged, core.told) == (lab.core.asked, lab.core.logged, lab.core.told)


@pytest.mark.req("S002-75", "S002-78")
def test_failures_are_those_of_a_cell(tmp_path: Path):
    spec, core = spec_of(tmp_path), Core()
    raised = call(spec, "raises", core)
    assert (raised.kind, raised.error) == ("error", "ValueError: no coin")
    late = call(spec, "late", core, timeout=0.05)
    assert (late.kind, late.error) == ("timeout", "Skill execution timeout (50ms)")


def test_nothing_runs_here_that_the_operator_has_not_named(tmp_path: Path):
    spec = spec_of(tmp_path)
    with pytest.raises(SandboxError, match="operator trusts"):
        call(spec, "raises", Core(), trusted=[])
    (spec.directory / "inner.py").write_text("ONE = 2\n")
    with pytest.raises(SandboxError, match="operator trusts"):
        call(spec, "raises", Core())

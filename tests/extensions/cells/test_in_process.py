"""The same skill's code in this process and in a cell; without the operator's word only there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.extensions.cells.lab import Core, Lab, make, status_of, until

from skillhouse.extensions.cells import CellResult, CellSpec, InProcessRunner
from skillhouse.extensions.cells.call_channel import ASKED_AT_ONCE
from skillhouse.sandbox import SandboxError, SandboxLevel

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

    async def many(params, context):
        import asyncio
        urls = [f"https://a.test/{n}" for n in range(40)]
        return len(await asyncio.gather(*map(context.fetch, urls)))

    def values(params, context):
        import datetime, decimal, uuid
        day = datetime.date(2026, 1, 2)
        return {"day": day, "amount": decimal.Decimal("1.10"), "id": uuid.UUID(int=1), day: 1}

    def leaves(params, context):
        import sys
        sys.exit(3)

    tools = {"price": price, "raises": raises, "late": late, "many": many, "values": values,
             "leaves": leaves}
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
    left = call(spec, "leaves", core)
    assert (left.kind, left.error) == ("error", "SystemExit: 3")
    late = call(spec, "late", core, timeout=0.05)
    assert (late.kind, late.error) == ("timeout", "Skill execution timeout (50ms)")


def test_requests_run_at_once_up_to_the_bound(tmp_path: Path):
    class Counting(Core):
        open = most = 0

        async def fetch(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
            self.open += 1
            self.most = max(self.most, self.open)
            await until(lambda: self.most == ASKED_AT_ONCE)
            self.open -= 1
            return await super().fetch(request)

    core = Counting()
    assert call(spec_of(tmp_path), "many", core).value == 40
    assert core.most == ASKED_AT_ONCE


def test_dates_and_exact_numbers_become_text(tmp_path: Path):
    assert call(spec_of(tmp_path), "values", Core()).value == {
        "day": "2026-01-02",
        "amount": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "2026-01-02": 1,
    }


def test_nothing_runs_here_that_the_operator_has_not_named(tmp_path: Path):
    spec = spec_of(tmp_path)
    with pytest.raises(SandboxError, match="operator trusts"):
        call(spec, "raises", Core(), trusted=[])
    (spec.directory / "inner.py").write_text("ONE = 2\n")
    with pytest.raises(SandboxError, match="operator trusts"):
        call(spec, "raises", Core())

"""What telemetry costs a call: without OpenTelemetry, with its API alone, and with an SDK.

`./x bench telemetry [--rounds N] [--calls N]` starts fresh processes, rounds interleaved, and
prints medians: of all that a read tells (two spans and two figures), beside the read through the
gate. The SDK samples everything and exports nothing: its row is the cost in the process, not that
of sending.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from _measure import interleaved, markdown_table
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.permission import Decision, Effect, Permission
from skillhouse.tools import (
    CallTelemetry,
    Output,
    PermissionRequest,
    Plan,
    Tool,
    ToolCall,
    ToolResult,
)
from skillhouse.tools.call import EvaluatedPermission
from skillhouse.tools.call_context import CallContext
from skillhouse.tools.telemetry import policy_span

CASES = {
    "absent": "OpenTelemetry not loaded",
    "api": "its API loaded, no SDK",
    "sdk": "an SDK that drops all",
}
TARGET_US = 5.0
"""Most that telling may cost a call where nobody listens ("a few µs")."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure telemetry.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(options.case, options.calls)))
        return
    commands = {
        case: (sys.executable, __file__, "--case", case, "--calls", str(options.calls))
        for case in CASES
    }
    found = interleaved(commands, rounds=options.rounds)
    rows = []
    for case, title in CASES.items():
        said = found[case].said
        target = f"{TARGET_US:g}" if case != "sdk" else ""
        share = f"{100 * said['told_us'] / said['read_us']:.1f} %"
        rows.append((title, f"{said['told_us']:.1f}", target, f"{said['read_us']:.0f}", share))
    header = ("", "told µs a call", "target", "read through the gate µs", "share")
    print(markdown_table(header, rows))


def measured(case: str, calls: int) -> dict[str, float]:
    """Return what one process found, in µs."""
    prepare(case)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory).resolve()
        for name in ("home", "project/.git"):
            (base / name).mkdir(parents=True)
        (base / "project/a.txt").write_text("a line\n")
        places = Locations(
            start=base / "project", home=base / "home", environment={}, managed_file=base / "none"
        )
        with Skillhouse(configured(places)) as house:
            tool = next(tool for tool in house.tools() if tool.name == "read")
            told = timed(telling_of(tool), calls)
            read = anyio.run(reading, house, calls // 10)
    return {"told_us": told, "read_us": read}


def prepare(case: str) -> None:
    """Load what the case has."""
    if case == "absent":
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
        return
    from opentelemetry import metrics, trace  # noqa: PLC0415 - only where the case has it.

    if case == "sdk":
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

        trace.set_tracer_provider(TracerProvider())
        metrics.set_meter_provider(MeterProvider())


def telling_of(tool: Tool) -> Callable[[], object]:
    """Return what tells of one read, as the gate does, and does nothing else."""
    call = ToolCall(name="read", arguments={"path": "a.txt"}, call_id="call-1")
    need = PermissionRequest(
        permission=Permission(action="read", resource="a.txt"), default=Effect.ALLOW, why=""
    )
    output = Output(text="a line\n")
    plan = Plan(needs=(need,), run=never)
    decision = Decision(effect=Effect.ALLOW, layer="default")
    case = CallContext(
        call=call,
        plan=plan,
        evaluated=(EvaluatedPermission(request=need, decision=decision, reason=""),),
    )
    result = ToolResult(content="a line\n")
    telling = CallTelemetry()

    def tell() -> None:
        with telling.of(tool, call) as told:
            told.plan(plan)
            with policy_span() as decided:
                decided(case)
            told.output(output)
            told.ended(result)

    return tell


async def never() -> Output:
    raise AssertionError("this plan is not run")


def timed(work: Callable[[], object], calls: int) -> float:
    """Return the median of ten runs, in µs a call."""
    found = []
    for _ in range(10):
        began = time.perf_counter_ns()
        for _ in range(calls // 10):
            work()
        found.append((time.perf_counter_ns() - began) / 1_000 / (calls // 10))
    return statistics.median(found)


async def reading(house: Skillhouse, calls: int) -> float:
    found = []
    for _ in range(calls):
        began = time.perf_counter_ns()
        await house.call("read", {"path": "a.txt"})
        found.append((time.perf_counter_ns() - began) / 1_000)
    return statistics.median(found)


if __name__ == "__main__":
    main()

"""A command that is about to run: waited for, with its lines as progress, or in the background."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from skillhouse.floor import dataclass
from skillhouse.sandbox import (
    Completed,
    Launcher,
    OutputListener,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
)
from skillhouse.tools.background_command import BackgroundForm
from skillhouse.tools.background_runs import BACKGROUND_SECONDS, BackgroundRuns, value_of
from skillhouse.tools.call import Output, RefusedError, ReportProgress
from skillhouse.tools.command_network import CommandNetwork
from skillhouse.tools.command_output import output_of
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.tool import Session

EARLY_SECONDS = 0.5
"""How long a call waits for a command in the background that fails at once."""
SHOWN_BYTES = 8_192
"""Bytes of its first output that such a call shows."""
LINE_BYTES = 4_096
"""Bytes of a line without an end that are looked at for progress."""
OWN_BYTES = 65_536
"""Bytes of the output of a command in the background that the sandbox keeps for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCommand:
    """A command with all that it runs with, as it was when it was last looked at."""

    launcher: Launcher
    argv: tuple[str, ...]
    profile: SandboxProfile
    way: Callable[[float], AbstractAsyncContextManager[Path | None]]
    """Opens its way to the network, for as many seconds as it may run."""
    network: CommandNetwork

    async def complete(self, hear: OutputListener | None = None) -> Completed:
        async with self.way(self.profile.limits.seconds) as socket:
            run = partial(self.launcher.run, cwd=self.profile.workspace)
            if hear is not None:
                run = partial(run, on_output=hear)
            running = run(self.argv, replace(self.profile, proxy_socket=socket))
            return await command_inside(running, str(self.launcher.level))

    async def awaited(self, report: ReportProgress | None) -> tuple[Completed, Output]:
        """Run it to its end; raises RefusedError where the sandbox cannot."""
        try:
            done = await self.complete(None if report is None else LineReports(report))
        except (SandboxError, SandboxUnavailableError) as error:
            raise RefusedError(str(error)) from error
        level, limits = self.launcher.level, self.profile.limits
        return done, output_of(done, level, limits, network=self.network.word)

    async def started(
        self,
        runs: BackgroundRuns,
        session: Session,
        *,
        title: str,
        form: BackgroundForm,
        look: Callable[[], str],
    ) -> Output:
        """Let it go on in the background; what fails at once fails here."""
        limits = self.profile.limits
        own = replace(limits, output_bytes=OWN_BYTES)
        run = await runs.start(
            session,
            title,
            replace(self, profile=replace(self.profile, limits=own)).complete,
            max_bytes=limits.output_bytes,
            writable=form.writable,
            look=look,
        )
        is_over = await run.wait(EARLY_SECONDS)
        if run.failure:
            raise RefusedError(run.failure)
        _, text, end = run.output.part(0, SHOWN_BYTES, is_whole=is_over)
        hint = (
            f"read it with `exec_output` (id={run.id}, offset={end}), end it with `exec_stop`; "
            f"it ends with this skillhouse, or after {limits.seconds / 3600:.3g} hours"
        )
        said = f"[in the background as {run.id}: {run.state}" + ("]" if is_over else f"; {hint}]")
        is_failed = run.done is not None and run.done.exit_code != 0
        return Output(
            text="\n".join(filter(None, (text, said))),
            data={**value_of(run), "next_offset": end, "output": text},
            failed=is_failed,
            excerpt="ends",
            detail={
                "background": run.id,
                "sandbox": str(self.launcher.level),
                "network": self.network.word,
            },
        )


def seconds_of(asked: int | None, most: float, form: BackgroundForm | None) -> float:
    """Return how long a command may run: as asked, at most as the operator or the form says."""
    bound = most if form is None else BACKGROUND_SECONDS
    return bound if asked is None else min(asked, bound)


class LineReports:
    r"""Reports the newest line of an output as progress, counted.

    >>> said = []
    >>> reports = LineReports(lambda count, line: said.append((count, line)))
    >>> reports(b"one\ntw"); reports(b"o\r\n"); said
    [(1.0, 'one'), (2.0, 'two')]
    """

    def __init__(self, report: ReportProgress) -> None:
        self._report = report
        self._rest = b""
        self._count = 0

    def __call__(self, chunk: bytes) -> None:
        lines = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()[-LINE_BYTES:]
        lines = [line for line in lines if line.strip()]
        if lines:
            self._count += len(lines)
            self._report(float(self._count), lines[-1][:LINE_BYTES].decode("utf-8", "replace"))

"""A command that is about to run: waited for, with its lines as progress, or in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from skillhouse.floor import dataclass
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import (
    Completed,
    Launcher,
    Limits,
    OutputListener,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
)
from skillhouse.tools.background_command import WRITABLE_MAX, BackgroundForm
from skillhouse.tools.background_runs import BACKGROUND_SECONDS, BackgroundRuns, value_of
from skillhouse.tools.call import (
    OUTPUT_MAX,
    Output,
    RefusedError,
    ReportProgress,
    object_schema,
)
from skillhouse.tools.command_network import CommandNetwork
from skillhouse.tools.command_output import output_of
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.tool import Session

T = TypeVar("T")

EARLY_SECONDS = 0.5
"""How long a call waits for a command in the background that fails at once."""
SHOWN_BYTES = 8_192
"""Bytes of its first output that such a call shows."""
LINE_BYTES = 4_096
"""Bytes of a line without an end that are looked at for progress."""
OWN_BYTES = 65_536
"""Bytes of the output of a command in the background that the sandbox keeps for itself."""


class LastLook(Generic[T]):
    """What a run looks at first, or the thread on which it began did right before it."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._found: tuple[T] | RefusedError | OSError | None = None

    def take(self) -> None:
        """Look, for the one `taken` that follows."""
        try:
            self._found = (self._look(),)
        except (RefusedError, OSError) as error:
            self._found = error

    async def taken(self) -> T:
        """Return what was found; raises RefusedError or OSError as the look did."""
        found, self._found = self._found, None
        if found is None:
            return await in_thread(self._look)
        if isinstance(found, Exception):
            raise found
        return found[0]


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
        output = output_of(done, level, limits, network=self.network.word)
        return done, self._with_withheld(output)

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
        output = Output(
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
        return self._with_withheld(output)

    def _with_withheld(self, output: Output) -> Output:
        withheld = self.network.withheld
        return replace(output, text=f"{output.text}\n[{withheld}]") if withheld else output


def limits_of(
    limits: Limits, arguments: Mapping[str, Any], session: Session, form: BackgroundForm | None
) -> Limits:
    """Return the limits of a call: its time as asked, at most as the operator or the form says."""
    most = limits.seconds if form is None else BACKGROUND_SECONDS
    seconds = min(arguments.get("timeout_seconds", most), most)
    # A skill's code gets results whole, in a frame that has a bound of its own.
    kept = min(limits.output_bytes, OUTPUT_MAX) if session.origin_digest else limits.output_bytes
    return replace(limits, seconds=seconds, output_bytes=kept)


def exec_schema(seconds: int) -> Mapping[str, Any]:
    """Return what `exec` takes; `seconds` is the most that a call may ask for."""
    return object_schema(
        {
            "command": {
                "type": "string",
                "minLength": 1,
                "description": "a shell line; with `params` a program's name",
            },
            "params": {
                "type": "array",
                "items": {"type": "string"},
                "description": "the program's arguments, each as it is",
            },
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": seconds},
            "background": {
                "type": "boolean",
                "description": "return at once; the workspace is read-only to it",
            },
            "writable": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": WRITABLE_MAX,
                "description": "directories that a command in the background may write",
            },
        },
        required=("command",),
    )


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

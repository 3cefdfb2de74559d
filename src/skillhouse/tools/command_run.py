"""Runs an approved command: waited for, with its lines as progress, or in the background.

Its result says how it ended, what was withheld from it, and where it could not read a file that is
hidden from commands.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from skillhouse import sandbox
from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.permission import command_resource, read_command
from skillhouse.sandbox import (
    Completed,
    Limits,
    OutputListener,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
    Streams,
)
from skillhouse.tools.background_command import WRITABLE_MAX, BackgroundForm
from skillhouse.tools.background_runs import BACKGROUND_SECONDS, BackgroundRuns, value_of
from skillhouse.tools.call import OUTPUT_MAX, Output, RefusedError, ReportProgress, object_schema
from skillhouse.tools.command_inputs import CommandInputs, changed_files
from skillhouse.tools.command_network import CommandNetwork
from skillhouse.tools.denied_programs import denied_note
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.tool import Session

if TYPE_CHECKING:
    from skillhouse.sandbox import Launcher

SHOWN_MAX = 5
"""Names that a note has for each reason."""
LINES_MAX = 200
"""Lines of an output that are looked at."""
_LINE_CHARACTERS = 4_096
_REFUSED = regex(r"(?i)permission denied|EACCES|cannot open|could not open")
_BEFORE = r"(?<![\w.@%+~-])"
_AFTER = r"(?![\w@%+~-]|\.\w)"
TITLE_MAX = 160
"""Characters of a question's title, beyond which its commands are counted."""
NOT_BOUND = (
    "not bound",
    (
        "without bubblewrap, approved files are compared before and after the run, and the "
        "command cannot change them; another program could meanwhile"
    ),
)
"""What a question says where nothing can be mounted over an approved file."""
_NOT_FOUND = 127
"""How a line ends of which a program is not there (bash(1), "EXIT STATUS")."""
_LEFT_BY_GIT = ("unable to unlink old '", "unable to create file ", "cannot stat '")
"""What git says of a file that it could not write, whatever its exit code (git 2.39, entry.c)."""
T = TypeVar("T")

EARLY_SECONDS = 0.5
"""How long a call waits for a command in the background that fails at once."""
SHOWN_BYTES = 8_192
"""Bytes of its first output that such a call shows."""
LINE_BYTES = 4_096
"""Bytes of a line without an end that are looked at for progress."""
OWN_BYTES = 65_536
"""Bytes of the output of a command in the background that the sandbox keeps for itself."""


def hidden_note(
    done: Completed, root: str, hidden: Sequence[str], why: Callable[[str], str]
) -> str:
    """Return a note about the hidden paths that an output says could not be read, or "".

    Args:
        root: The workspace's real path.
        hidden: What commands cannot read, relative to it.
        why: Returns what hides one of them, in words; "" where there is no such file.
    """
    if not hidden:
        return ""
    text = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    lines = [line[:_LINE_CHARACTERS] for line in text.splitlines() if _REFUSED.search(line)]
    said = "\n".join(lines[:LINES_MAX])
    found = [path for path in hidden if said and _names(said, path, root)]
    # From a directory below the workspace, a program names it by less than its path.
    names = {os.path.basename(path) for path in found}
    found += [
        path
        for path in hidden
        if said and "/" in path and os.path.basename(path) not in names and _ends(said, path)
    ]
    reasons: dict[str, list[str]] = {}
    for path in dict.fromkeys(found):
        if reason := why(path):
            reasons.setdefault(reason, []).append(path)
    parts = []
    for reason, paths in reasons.items():
        shown = first_of([f"`{path}`" for path in paths], SHOWN_MAX)
        verb = "are" if paths[1:] else "is"
        parts.append(f"{shown} {verb} hidden from commands: {reason}")
    return "; ".join(parts)


def _names(said: str, path: str, root: str) -> bool:
    """Whether some lines have a path from the workspace, or something below it."""
    start = rf"(?<![\w.@%+~/-])(?:\./|{re.escape(root)}/)?"
    return path in said and re.search(start + re.escape(path) + _AFTER, said) is not None


def _ends(said: str, path: str) -> bool:
    """Whether they have the end of a path that is relative."""
    name = os.path.basename(path)
    if name not in said:
        return False
    words = re.finditer(rf"([\w.@%+~/-]*){_BEFORE}{re.escape(name)}{_AFTER}", said)
    return any(
        f"/{path}".endswith(f"/{word[0].removeprefix('./')}") for word in words if word[0][0] != "/"
    )


def commands_title(programs: Sequence[tuple[str, ...]]) -> str:
    shown: list[str] = []
    for at, argv in enumerate(programs):
        text = command_resource(argv)
        if shown and sum(map(len, shown)) + len(text) > TITLE_MAX:
            return f"{' ; '.join(shown)} ; and {len(programs) - at} more commands"
        shown.append(text if len(text) <= TITLE_MAX else f"{text[:TITLE_MAX]}…")
    return " ; ".join(shown)


async def usable_launcher(launcher: Callable[[], Awaitable[Launcher]]) -> Launcher:
    """Return what runs commands, after its self-test; RefusedError where nothing can."""
    try:
        return await launcher()
    except (SandboxError, SandboxUnavailableError) as error:
        raise RefusedError(str(error)) from error


def checked_binding(launcher: Launcher, sealed: Collection[str], *, is_said: bool) -> Launcher:
    """Return the launcher, or refuse files that it does not bind if the question did not say so.

    It is not known before the first self-test that bubblewrap, which is there, does not work.
    """
    if sealed and launcher.level == sandbox.SandboxLevel.LANDLOCK and not is_said:
        message = "this sandbox does not bind approved files, and the question did not say so"
        raise RefusedError(f"nothing was done: {message}; try again")
    return launcher


_COMMITTING = frozenset("commit merge rebase cherry-pick revert am tag pull".split())


def unsigned(programs: Sequence[tuple[str, ...]]) -> str:
    """Return that what a person signs was not signed, where git may have made such a thing."""
    for argv in programs:
        meaning = read_command(argv)
        if meaning.program == "git" and not _COMMITTING.isdisjoint(meaning.path[:1]):
            return "not signed: no key is in the sandbox, so commit.gpgSign and the like are off"
    return ""


def notes_of(
    done: Completed,
    programs: Sequence[tuple[str, ...]],
    profile: SandboxProfile,
    why: Callable[[str], str],
) -> Iterator[str]:
    """Yield what a result says of keys, programs and files that a command did not get.

    Args:
        why: Returns what hides a path of the workspace from commands.
    """
    below = profile.below
    hidden = [os.path.join(*one[:2]) for one in below.paths if one[2]] if below else []
    said = (
        unsigned(programs) if profile.tools.git.signs else "",
        _missing(programs, profile) if done.exit_code == _NOT_FOUND else "",
        denied_note(done, profile.denied),
        hidden_note(done, str(profile.workspace), hidden, why),
    )
    yield from (f"[{note}]" for note in said if note)


def _missing(programs: Sequence[tuple[str, ...]], profile: SandboxProfile) -> str:
    """Return where the workspace has a program that a command did not find, or nothing."""
    names = [argv[0] for argv in programs if profile.tools.which(argv[0]) is None]
    return next(filter(None, map(profile.nearby, names)), "")


def with_changes(output: Output, approved: CommandInputs, root: str) -> Output:
    names = ", ".join(changed_files(approved, root))
    return replace(output, text=f"{output.text}\n[changed: {names}]") if names else output


def output_of(done: Completed, level: str, limits: Limits, *, network: str) -> Output:
    stdout = done.stdout.decode("utf-8", "replace")
    stderr = done.stderr.decode("utf-8", "replace")
    if done.limit:
        failure = f"stopped: the limit on {done.limit} was reached{_limit_shown(done, limits)}"
    elif done.signal == signal.SIGXFSZ:
        most = f"a file may have at most {limits.file_bytes} bytes"
        failure = f"ended by signal {done.signal}: {most}, `file_bytes` of `[sandbox]`"
    elif done.signal is not None:
        failure = f"ended by signal {done.signal}"
    elif done.exit_code:
        failure = f"exit code {done.exit_code}"
    else:
        failure = _half_done(stderr)
    notes = "\n".join(f"[{note}]" for note in done.notes)
    changes = f"[written: {', '.join(done.changes)}]" if done.changes else ""
    cut = (
        f"[of the output, {limits.output_bytes} bytes are kept and none of the rest: "
        "write it to a file and read parts of that]"
        if done.left_out
        else ""
    )
    other = "" if done.left_out else _other_encoding(done)
    shown = f"[stderr]\n{stderr}" if stderr else ""
    parts = (failure, stdout, shown, changes, notes, other, cut)
    exit_code = -1 if done.exit_code is None else done.exit_code
    return Output(
        text="\n".join(filter(None, parts)) or "[no output]",
        data={"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "limit": done.limit},
        failed=bool(failure),
        excerpt="ends",
        most=_most(limits),
        has_gaps=done.left_out > 0,
        detail={
            "exit_code": exit_code,
            "limit": done.limit,
            "sandbox": str(level),
            "network": network,
        },
    )


def _other_encoding(done: Completed) -> str:
    """Say that output is no UTF-8, as `\ufffd` alone says nothing."""
    names = []
    for name, data in (("output", done.stdout), ("errors", done.stderr)):
        try:
            data.decode()
        except UnicodeDecodeError as error:
            names.append(f"the {name} from byte {error.start} on")
    if not names:
        return ""
    what = " and ".join(names)
    return f"[not UTF-8: {what}; `iconv -f ENCODING -t UTF-8` makes text of other encodings]"


def _most(limits: Limits) -> int:
    # With room for notices and the names of what was written.
    is_long = limits.output_bytes > OUTPUT_MAX
    return limits.output_bytes + OUTPUT_MAX if is_long else OUTPUT_MAX


def _limit_shown(done: Completed, limits: Limits) -> str:
    if done.limit == "time":
        return f" ({limits.seconds:g} seconds)"
    if done.limit == "memory":
        return f" ({limits.memory_bytes} bytes)"
    return f" ({limits.processes})" if done.limit == "processes" else ""


def _half_done(stderr: str) -> str:
    # Git passes over protected files and ends with 0.
    if not any(text in stderr for text in _LEFT_BY_GIT):
        return ""
    return "half done: git could not write protected files, see below; name the git command itself"


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


class ReadyCommand(Struct, frozen=True, kw_only=True):
    """A command with all that it runs with, as it was when it was last looked at."""

    launcher: Launcher
    argv: tuple[str, ...]
    profile: SandboxProfile
    way: Callable[[float], AbstractAsyncContextManager[Path | None]]
    """Opens its way to the network, for as many seconds as it may run."""
    network: CommandNetwork

    async def complete(
        self, hear: OutputListener | None = None, streams: Streams | None = None
    ) -> Completed:
        async with self.way(self.profile.limits.seconds) as socket:
            run = partial(self.launcher.run, cwd=self.profile.workspace)
            if hear is not None:
                run = partial(run, on_output=hear)
            if streams is not None:
                run = partial(run, streams=streams)
            running = run(self.argv, replace(self.profile, proxy_socket=socket))
            return await command_inside(running, str(self.launcher.level))

    async def awaited(
        self, report: ReportProgress | None, streams: Streams | None = None
    ) -> tuple[Completed, Output]:
        """Run it to its end; raises RefusedError where the sandbox cannot."""
        try:
            hear = None if report is None else LineReports(report)
            done = await self.complete(hear, streams)
        except (SandboxError, SandboxUnavailableError) as error:
            raise RefusedError(str(error)) from error
        level, limits = self.launcher.level, self.profile.limits
        output = output_of(done, level, limits, network=self.network.word)
        return done, self._with_withheld(output)

    async def attached(self, streams: Streams) -> Output:
        """Run it on the streams of another process, which says how long it may take."""
        limits = replace(self.profile.limits, seconds=BACKGROUND_SECONDS)
        argv = self.argv
        if streams.directory is not None and argv[0] == "bash":
            # Only the shell itself knows; in the line of what it runs, nothing is moved.
            argv = (*argv[:-1], f"trap 'pwd -P >&{streams.directory}' EXIT; {argv[-1]}")
        mine = replace(self, argv=argv, profile=replace(self.profile, limits=limits))
        done, output = await mine.awaited(None, streams)
        code = done.exit_code
        if code is None:
            code = 128 + (done.signal or signal.SIGKILL)
        notes = list(done.notes)
        if done.limit:
            notes.insert(0, f"stopped: the limit on {done.limit} was reached")
        if code and self.network.withheld:
            notes.append(self.network.withheld)
        return replace(output, data={**output.data, "exit_code": code, "notes": notes})

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

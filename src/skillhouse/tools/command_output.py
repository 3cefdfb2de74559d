"""What a command's run comes to in words: its title, its result, what was withheld from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

from skillhouse.floor.structs import replace
from skillhouse.permission import command_resource, read_command
from skillhouse.sandbox import (
    Completed,
    Launcher,
    Limits,
    SandboxError,
    SandboxLevel,
    SandboxProfile,
    SandboxUnavailableError,
)
from skillhouse.tools.call import OUTPUT_MAX, Output, RefusedError
from skillhouse.tools.command_inputs import CommandInputs, changed_files
from skillhouse.tools.denied_programs import denied_note
from skillhouse.tools.hidden_notes import hidden_note

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
_LEFT_BY_GIT = ("unable to unlink old '", "unable to create file ", "cannot stat '")
"""What git says of a file that it could not write, whatever its exit code (git 2.39, entry.c)."""


def titled(programs: Sequence[tuple[str, ...]]) -> str:
    shown: list[str] = []
    for at, argv in enumerate(programs):
        text = command_resource(argv)
        if shown and sum(map(len, shown)) + len(text) > TITLE_MAX:
            return f"{' ; '.join(shown)} ; and {len(programs) - at} more commands"
        shown.append(text if len(text) <= TITLE_MAX else f"{text[:TITLE_MAX]}…")
    return " ; ".join(shown)


async def tested(launcher: Callable[[], Awaitable[Launcher]]) -> Launcher:
    """Return what runs commands, after its self-test; RefusedError where nothing can."""
    try:
        return await launcher()
    except (SandboxError, SandboxUnavailableError) as error:
        raise RefusedError(str(error)) from error


def checked_binding(launcher: Launcher, sealed: Collection[str], *, is_said: bool) -> Launcher:
    """Return the launcher, or refuse files that it does not bind if the question did not say so.

    It is not known before the first self-test that bubblewrap, which is there, does not work.
    """
    if sealed and launcher.level == SandboxLevel.LANDLOCK and not is_said:
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
        denied_note(done, profile.denied),
        hidden_note(done, str(profile.workspace), hidden, why),
    )
    yield from (f"[{note}]" for note in said if note)


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

"""What is said about a command: its title in a question, its network, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skillhouse.permission import command_resource
from skillhouse.sandbox import Completed
from skillhouse.tools.call import Output
from skillhouse.tools.command_inputs import CommandInputs, changed_files

TITLE_MAX = 160
"""Characters of a question's title, beyond which its commands are counted."""
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


def withheld_network(programs: Sequence[tuple[str, ...]], granted: Sequence[bool]) -> str:
    """Return why a line has no network though a rule grants it to one of its programs, or ""."""
    if all(granted) or not any(granted):
        return ""
    named: dict[bool, list[str]] = {True: [], False: []}
    for argv, may in zip(programs, granted, strict=True):
        if (name := f"`{argv[0]}`") not in named[may]:
            named[may].append(name)
    yes, no = ", ".join(named[True]), ", ".join(named[False])
    return f"network withheld: rules grant it to {yes} and not to {no}; run each by itself"


def with_changes(output: Output, approved: CommandInputs, root: str) -> Output:
    names = ", ".join(changed_files(approved, root))
    return replace(output, text=f"{output.text}\n[changed: {names}]") if names else output


def output_of(done: Completed, level: str, *, network: str) -> Output:
    stdout = done.stdout.decode("utf-8", "replace")
    stderr = done.stderr.decode("utf-8", "replace")
    ended = ""
    if done.limit:
        ended = f"stopped: the limit on {done.limit} was reached"
    elif done.signal is not None:
        ended = f"ended by signal {done.signal}"
    elif done.exit_code:
        ended = f"exit code {done.exit_code}"
    half = _half_done(stderr) if not ended else ""
    notes = "\n".join(f"[{note}]" for note in done.notes)
    changes = f"[written: {', '.join(done.changes)}]" if done.changes else ""
    parts = [ended or half, stdout, f"[stderr]\n{stderr}" if stderr else "", changes, notes]
    parts = [part for part in parts if part]
    if done.truncated:
        parts.append("[output cut]")
    exit_code = -1 if done.exit_code is None else done.exit_code
    return Output(
        text="\n".join(parts) or "[no output]",
        data={"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "limit": done.limit},
        failed=bool(ended or half),
        detail={
            "exit_code": exit_code,
            "limit": done.limit,
            "sandbox": str(level),
            "network": network,
        },
    )


def _half_done(stderr: str) -> str:
    """Return what to say where git passed over protected files and ended with 0, or nothing."""
    if not any(text in stderr for text in _LEFT_BY_GIT):
        return ""
    return "half done: git could not write protected files, see below; name the git command itself"

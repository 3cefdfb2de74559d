"""The file about an unforeseen fault: enough to fix it, and nothing that is secret.

It has the traceback by file, line and function, the version, the platform and the verb. It has no
environment, no arguments, no values of variables and no lines of source; what looks like a secret
in the text of an exception is hidden, and so is each secret of the environment and each word of the
command line.
"""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

from skillhouse import __version__
from skillhouse.audit.redaction import KnownSecrets, is_secret_name, without_secrets
from skillhouse.floor import InternalFaultError, Locations, make_private, write_atomically
from skillhouse.floor.crash_cleanup import COMMON_NAME
from skillhouse.floor.faults import package_path
from skillhouse.presentation.text import one_line

DIRECTORY = "faults"
"""Of the reports, in the state directory."""
KEPT_MAX = 20
"""Reports that are kept; the oldest go."""
FRAMES_MAX = 200
"""Lines of one traceback: of a deeper one its first and last halves."""
EXCEPTIONS_MAX = 20
"""Exceptions of one report, with their causes and those of groups."""
TEXT_MAX = 2_000
"""Characters of an exception's text."""
_BEGIN, _END = "fault-", ".txt"


def known_secrets(words: Iterable[str], environment: Mapping[str, str]) -> KnownSecrets:
    """Return what no report of this process may hold, prepared for the search."""
    return KnownSecrets(secret_texts(words, environment))


def secret_texts(words: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what a report must not hold: words of the command line, and secrets of its variables.

    >>> list(secret_texts(["--yes", "--token=abc", "pdf"], {"API_KEY": "k", "HOME": "/home/me"}))
    ['abc', 'pdf', 'k']
    """
    for word in words:
        text = word.partition("=")[2] if word.startswith("-") else word
        if text:
            yield text
    yield from (value for name, value in environment.items() if value and is_secret_name(name))


def report_directories() -> Iterator[Path]:
    """Yield where a report goes: below the state directory, or else below that of temporary files.

    The second is for one that cannot be written, or of which nothing is known.
    """
    with contextlib.suppress(OSError, RuntimeError):
        yield Locations.here().state() / DIRECTORY
    uid = os.getuid() if hasattr(os, "getuid") else 0
    yield Path(tempfile.gettempdir()) / f"{COMMON_NAME}{DIRECTORY}-{uid}"


def write_report(text: str, number: str, directories: Iterable[Path]) -> Path | None:
    """Write a report for its owner alone into the first directory that takes it.

    Returns its path, or None where no directory does: what is reported must still be said.
    """
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for directory in directories:
        path = directory / f"{_BEGIN}{moment}-{number}{_END}"
        try:
            make_private(directory)
            if not _is_ours(directory):
                continue
            with write_atomically(path) as file:
                file.write(text.encode("ascii", "backslashreplace"))
            os.chmod(path, 0o600)
            _drop_oldest(directory)
        except OSError:
            continue
        return path
    return None


def _is_ours(directory: Path) -> bool:
    """Whether no other user can have put a link or another file there."""
    info = os.lstat(directory)
    if not stat.S_ISDIR(info.st_mode):
        return False
    return not hasattr(os, "getuid") or (
        info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o022
    )


def _drop_oldest(directory: Path) -> None:
    names = sorted(
        name for name in os.listdir(directory) if name.startswith(_BEGIN) and name.endswith(_END)
    )
    for name in names[:-KEPT_MAX]:
        # Another process may drop the same one.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(directory / name)


def report_text(fault: InternalFaultError, *, verb: str, known: KnownSecrets) -> str:
    """Return a report without `known` and without what looks like a secret."""

    def hide(text: str) -> str:
        return without_secrets(text, known)

    lines = [
        f"report {fault.report} of a fault of skillhouse",
        f"time: {datetime.now(UTC).isoformat(timespec='seconds')}",
        f"version: {__version__}",
        f"python: {platform.python_version()} ({sys.implementation.name})",
        f"platform: {platform.platform()}",
        f"verb: {verb}",
    ]
    for how, error in _exceptions(fault.__cause__):
        kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
        lines += ["", f"{how}{one_line(kind)}: {_text_of(error, hide)}"]
        lines += [f"  {hide(line)}" for line in _frames(error.__traceback__)]
    return "\n".join(lines) + "\n"


def _text_of(error: BaseException, hide: Callable[[str], str]) -> str:
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001 - the code of an exception of others.
        return f"(its text cannot be had: {type(other).__name__})"
    # The whole text is searched before it is cut: half a secret is one, too.
    hidden = one_line(hide(text))
    return hidden if len(hidden) <= TEXT_MAX else f"{hidden[:TEXT_MAX]}…"


def _exceptions(error: BaseException | None) -> Iterator[tuple[str, BaseException]]:
    """Yield an exception with those that led to it, each once."""
    waiting = [("", error)]
    seen: set[int] = set()
    while waiting and len(seen) < EXCEPTIONS_MAX:
        how, one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield how, one
        if isinstance(one, BaseExceptionGroup):
            waiting += [("in the group: ", each) for each in one.exceptions]
        if one.__cause__ is not None:
            waiting.append(("caused by: ", one.__cause__))
        elif not one.__suppress_context__:
            waiting.append(("while handling: ", one.__context__))


def _frames(traceback: TracebackType | None) -> list[str]:
    found = [
        f"{_file(frame.f_code.co_filename)}:{line} in {one_line(frame.f_code.co_name)}"
        for frame, line in walk_tb(traceback)
    ]
    if len(found) <= FRAMES_MAX:
        return found
    half = FRAMES_MAX // 2
    return [*found[:half], f"({len(found) - FRAMES_MAX} more)", *found[-half:]]


def _file(name: str) -> str:
    ours = package_path(name)
    return f"skillhouse/{ours}" if ours else one_line(name)

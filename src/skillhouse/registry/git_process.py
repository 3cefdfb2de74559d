"""The processes of git: one of a command, and one that reads contents until it is closed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from skillhouse.registry.page_addresses import SourceError
from skillhouse.skill import FILE_MAX, ArchiveError

_CHUNK = 65_536


@contextlib.contextmanager
def started(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], errors: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process, all of whose group is ended at the end of the block."""
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"git cannot be started: {error.strerror}") from error
    try:
        yield process
    finally:
        end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def expire(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    # The helper of a transport is a child of git, and outlives it when git alone is killed.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class GitBlobs:
    """Reads contents through one process."""

    def __init__(
        self, command: Sequence[str], directory: Path, variables: Mapping[str, str]
    ) -> None:
        self._stack = contextlib.ExitStack()
        errors: IO[bytes] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._process = self._stack.enter_context(started(command, directory, variables, errors))
        self._lock = threading.Lock()

    def close(self) -> None:
        self._stack.close()

    def read(self, blob: str, size: int) -> Iterator[bytes]:
        """Yield the content of a blob, read whole, so that several readers do not mix."""
        if size > FILE_MAX:
            raise ArchiveError("too-large", f"expected at most {FILE_MAX} bytes in one file")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 both asked for as pipes
        assert stdout is not None  # noqa: S101
        with self._lock:
            stdin.write(f"{blob}\n".encode())
            stdin.flush()
            head = stdout.readline(_CHUNK)
            if head != f"{blob} blob {size}\n".encode():
                raise ArchiveError("archive-broken", f"git has no content of {blob}")
            content = stdout.read(size)
            stdout.read(1)
        yield content

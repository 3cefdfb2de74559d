"""The program git and its processes, as it reads from servers: without hooks, filters, other
transports and prompts.

What a person's own configuration says of addresses, helpers, proxies and certificates holds.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import IO

from msgspec import Struct

from skillhouse import net
from skillhouse.net.proxy_settings import git_variables
from skillhouse.registry.page_addresses import SourceError
from skillhouse.registry.source import Source
from skillhouse.skill import FILE_MAX, ArchiveError

PACK_MAX = 512 * 1024 * 1024
"""Bytes of any file that git may write."""
MEMORY_MAX = 4 * 1024 * 1024 * 1024
"""Bytes of address space of git."""
FETCH_MEMORY_MAX = 256 * 1024 * 1024
"""Bytes of memory of each process that reads what a server says: its list of refs is held in
memory, and a hostile one has no end. What is only reserved does not count (RLIMIT_DATA), as
credential helpers that are made with Go or .NET reserve far more."""
_CONFIGURED = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.symlinks": "false",
    "core.alternateRefsCommand": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    # A repository that moved is asked for by its new address, or its name could be taken over.
    "http.followRedirects": "false",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    # Everything in one pack, whose size is bounded.
    "fetch.unpackLimit": "1",
    "transfer.bundleURI": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "credential.interactive": "false",
    "protocol.allow": "never",
}
_ASKING = ("fetch", "ls-remote")
_SPARING = {
    # What is large is written as it comes, and read through small windows.
    "core.bigFileThreshold": "1m",
    "core.packedGitWindowSize": "8m",
    "core.packedGitLimit": "32m",
    "core.deltaBaseCacheLimit": "16m",
    "pack.threads": "1",
}
_LIMITED = 'ulimit -f "$1" && ulimit -v "$2" && ulimit -d "$3" && shift 3 && exec "$@"'
"""A shell sets the limits, as nothing may run between fork and exec in a process with threads."""


class Git(Struct, frozen=True, kw_only=True):
    """The program, and the environment that it starts in."""

    program: str
    environment: Mapping[str, str]
    """Of this process; what steers git is left out of it."""

    def command(self, transport: str, *arguments: str) -> list[str]:
        is_fetch = arguments[0] in _ASKING
        options = {**_CONFIGURED, f"protocol.{transport}.allow": "always"}
        options |= _SPARING if is_fetch else {}
        flags = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        git = [self.program, *flags, *arguments]
        shell = shutil.which("sh", path=os.defpath)
        if shell is None:
            return git
        # Of a directory, git packs with what it has itself.
        memory = FETCH_MEMORY_MAX if is_fetch and transport != "file" else MEMORY_MAX
        limits = (str(PACK_MAX // 512), str(MEMORY_MAX // 1024), str(memory // 1024))
        return [shell, "-c", _LIMITED, "sh", *limits, *git]

    def variables(self, transport: str) -> dict[str, str]:
        kept = {key: value for key, value in self.environment.items() if not key.startswith("GIT_")}
        ssh = self.environment.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        return {
            **kept,
            "GIT_ALLOW_PROTOCOL": transport,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "",
            "SSH_ASKPASS": "",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_SSH_COMMAND": ssh,
            "LC_ALL": "C.UTF-8",
            **git_variables(self.environment),
        }


_SCP_ADDRESS = re.compile(r"(?:[A-Za-z0-9._][A-Za-z0-9._-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:]+")
_HOSTED = re.compile(
    r"(?:[A-Za-z0-9._][^@/]*@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
)


def transport_of(source: Source, address: str) -> str:
    """Return by which transport git reaches a source.

    Args:
        address: What `url.<base>.insteadOf` of a person's configuration makes of its location, as
            `git ls-remote --get-url` prints it.

    Raises:
        SourceError: the configuration leads to something else than a server of git.
    """
    address = address.removesuffix("\n")
    if address == source.location:
        return source.transport
    reason = ""
    transport = "ssh"
    is_plain = address.isprintable() and not {*" \\"} & {*address}
    if not is_plain or "::" in address.partition("://")[0] or address[:1] in ("", "-"):
        reason = "to no address"
    elif "://" in address:
        transport, _, rest = address.partition("://")
        host = rest.partition("/")[0]
        if transport in ("http", "https"):
            reason = _web_fault(transport, rest)
        elif transport != "ssh" or not _HOSTED.fullmatch(host):
            reason = "to no address of https, http or ssh"
    elif not _SCP_ADDRESS.fullmatch(address):
        reason = "to a path of this machine"
    if reason:
        # INVARIANT: the address is not shown, as it may hold a token.
        message = f"`insteadOf` in the configuration of git leads `{source.location}` {reason}"
        raise SourceError(f"{message}: `git config --show-origin --get-regexp insteadof` has it")
    return transport


def _web_fault(scheme: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    try:
        target = net.parse_url(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}")
    except net.NetError as error:
        return f"to a refused URL: {error}"
    if target.is_address and ip_address(target.host).is_link_local:
        return f"to {target.host}, which is no server of git"
    return ""


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

"""One commit of a Git repository, read without a work tree.

Only objects are fetched and read. No file is checked out, so no hook, filter, attribute, submodule
or link of the repository has an effect, and its configuration is never read. What git says on
stderr meanwhile is read for its progress and, in the end, for what went wrong.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Self

from msgspec import Struct

from skillhouse.floor import is_utf8
from skillhouse.registry.source import Source, SourceError
from skillhouse.registry.source_files import SUBMODULE, SourceFile
from skillhouse.skill import FILE_MAX, ArchiveError, ArchiveMember

GitProgress = Callable[[int, int, str], None]
"""Receives how many are here, of how many, and what they are."""

KEPT = 4_096
"""Bytes of its last words that are kept: a server may say any number."""
_WORDS_CHUNK = 65_536
_UNITS = {
    "remote: Compressing objects": "objects packed by the server",
    "Receiving objects": "objects",
    "Resolving deltas": "deltas",
}
# Only numbers and our own words are shown: the server writes the lines after `remote:`.
_LINE = re.compile(rf"({'|'.join(_UNITS)}): +\d{{1,3}}% \((\d{{1,9}})/(\d{{1,9}})\)")
PACK_MAX = 512 * 1024 * 1024
"""Bytes of any file that git may write."""
MEMORY_MAX = 4 * 1024 * 1024 * 1024
"""Bytes of address space of git."""
FETCH_SECONDS = 300.0
READ_SECONDS = 60.0
LISTING_MAX = 64 * 1024 * 1024
"""Bytes of the list of files: a tree of ten objects can name billions of them."""
ENTRIES_MAX = 200_000
MESSAGE_MAX = 300

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEAD = "refs/skillhouse/head"
_CHUNK = 65_536
_EXECUTABLE, _PLAIN, _LINK = "100755", "100644", "120000"
_LINK_MAX = 4096
"""Bytes of what a link says (PATH_MAX of Linux)."""
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
_LIMITED = 'ulimit -f "$1" && ulimit -v "$2" && shift 2 && exec "$@"'
"""A shell sets the limits, as nothing may run between fork and exec in a process with threads."""


class GitWords:
    """The stderr of one git, read by a thread until its end."""

    def __init__(self, pipe: IO[bytes], progress: GitProgress | None) -> None:
        self._pipe = pipe
        self._progress = progress
        self._last = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last(self) -> bytes:
        """Return the last words, once every process that could say more has ended."""
        self._thread.join()
        return self._last

    def _read(self) -> None:
        line = b""
        while data := os.read(self._pipe.fileno(), _WORDS_CHUNK):
            self._last = (self._last + data)[-KEPT:]
            *lines, line = (line + data)[-_WORDS_CHUNK:].replace(b"\r", b"\n").split(b"\n")
            if self._progress is not None:
                for one in lines:
                    self._report(one, self._progress)

    def _report(self, line: bytes, progress: GitProgress) -> None:
        match = _LINE.match(line[:200].decode("ascii", "replace"))
        if match is not None:
            progress(int(match[2]), int(match[3]), _UNITS[match[1]])


class Git(Struct, frozen=True, kw_only=True):
    """The program, and the environment that it starts in."""

    program: str
    environment: Mapping[str, str]
    """Of this process; what steers git is left out of it."""

    def command(self, transport: str, *arguments: str) -> list[str]:
        options = {**_CONFIGURED, f"protocol.{transport}.allow": "always"}
        flags = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        git = [self.program, *flags, *arguments]
        shell = shutil.which("sh", path=os.defpath)
        if shell is None:
            return git
        limits = (str(PACK_MAX // 512), str(MEMORY_MAX // 1024))
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
        }


class GitRepository:
    """A commit in a temporary directory, which `close` removes."""

    def __init__(
        self,
        git: Git,
        source: Source,
        *,
        fetch_seconds: float = FETCH_SECONDS,
        progress: GitProgress | None = None,
    ) -> None:
        """Fetch a commit of the source, and give `progress` what git says of it.

        Raises:
            SourceError: git is missing, or the repository or its ref cannot be had.
        """
        self._git = git
        self._source = source
        self._progress = progress
        self._directory = Path(tempfile.mkdtemp(prefix="skillhouse-git-"))
        self._blobs: _Blobs | None = None
        try:
            self._run("init", "--quiet", "--bare", "--template=", seconds=READ_SECONDS)
            self.commit = self._fetched(fetch_seconds)
            """The full name of the commit."""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._blobs is not None:
            self._blobs.close()
            self._blobs = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def dated(self) -> str:
        """Return the day on which the commit was made, as its author's side says: YYYY-MM-DD."""
        said = self._run("show", "--no-patch", "--format=%cs", self.commit)
        return said.decode("ascii", "replace").strip()[:10]

    def files(self) -> tuple[SourceFile, ...]:
        """Return what is in the commit; contents are read when they are asked for.

        Raises:
            SourceError: it has too many entries, or cannot be read.
        """
        listing = self._run(
            "ls-tree", "-r", "-z", "-l", "--full-tree", self.commit, seconds=READ_SECONDS
        )
        entries = listing.split(b"\0")[:-1]
        if len(entries) > ENTRIES_MAX:
            raise SourceError(f"expected at most {ENTRIES_MAX} files in a repository")
        self._blobs = _Blobs(self._git, self._directory, self._source.transport)
        return tuple(map(self._file, entries))

    def _file(self, entry: bytes) -> SourceFile:
        head, _, name = entry.partition(b"\t")
        mode, kind, blob, size = head.decode("ascii").split()
        path = os.fsdecode(name)
        if kind != "blob" or self._blobs is None:
            return SourceFile(path=path, member=None, missing=SUBMODULE, is_directory=True)
        if mode == _LINK and int(size) <= _LINK_MAX:
            link = os.fsdecode(b"".join(self._blobs.read(blob, int(size))))
            return SourceFile(path=path, member=None, link=link)
        if mode not in (_PLAIN, _EXECUTABLE):
            return SourceFile(path=path, member=None, missing="no plain file")
        if not is_utf8(path):
            # Never NFC text, so that it is refused where it belongs to a skill.
            path = f"{path.encode('utf-8', 'backslashreplace').decode()}\\"
        member = ArchiveMember(
            path=path,
            is_directory=False,
            is_executable=mode == _EXECUTABLE,
            size=int(size),
            open=partial(self._blobs.read, blob, int(size)),
        )
        return SourceFile(path=path, member=member)

    def _fetched(self, seconds: float) -> str:
        wanted = self._source.ref or "HEAD"
        try:
            self._fetch("--depth=1", f"+{wanted}:{_HEAD}", seconds=seconds)
        except SourceError:
            if not _COMMIT.fullmatch(wanted):
                raise
            # Some servers give no single commits.
            self._fetch(f"+refs/heads/*:{_HEAD}s/*", seconds=seconds)
            name = wanted
        else:
            name = _HEAD
        found = self._run("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        commit = found.decode("ascii", "replace").strip()
        if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(wanted) and commit != wanted):
            raise SourceError(f"expected the commit {wanted[:64]!r}, got {commit[:64]!r}")
        return commit

    def _fetch(self, *arguments: str, seconds: float) -> None:
        *options, refspec = arguments
        quiet = "--quiet" if self._progress is None else "--progress"
        fixed = (quiet, "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head")
        self._run("fetch", *fixed, *options, "--", self._source.location, refspec, seconds=seconds)

    def _run(self, *arguments: str, seconds: float = READ_SECONDS) -> bytes:
        """Return what git prints; SourceError with its last words if it fails or takes too long."""
        command = self._git.command(self._source.transport, *arguments)
        where = self._source.location
        with _started(command, self._directory, self._variables, subprocess.PIPE) as process:
            assert process.stderr is not None  # noqa: S101 asked for as a pipe
            words = GitWords(process.stderr, self._progress)
            expired = threading.Event()
            timer = threading.Timer(seconds, _expire, (process, expired))
            timer.start()
            try:
                assert process.stdout is not None  # noqa: S101 asked for as a pipe
                output = process.stdout.read(LISTING_MAX + 1)
                if len(output) > LISTING_MAX:
                    raise SourceError(f"the list of files at `{where}` is too long")
                code = process.wait()
            finally:
                timer.cancel()
                # Also its helpers, which would keep the pipe open.
                _end(process)
                said = words.last()
            if code == 0:
                return output
            if expired.is_set():
                raise SourceError(f"no answer within {seconds:g} s from `{where}`")
            if self._is_full():
                raise SourceError(f"cannot get `{where}`: it is larger than {PACK_MAX} bytes")
            raise SourceError(f"cannot get `{where}`: {_reason(code, said)}")

    def _is_full(self) -> bool:
        """Whether git came to the bound of a file, of which it says nothing."""
        found = self._directory.rglob("*")
        return any(os.lstat(path).st_size >= PACK_MAX // 512 * 512 for path in found)

    @property
    def _variables(self) -> dict[str, str]:
        variables = self._git.variables(self._source.transport)
        return {**variables, "GIT_DIR": str(self._directory)}


_SAID: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(words), meaning)
    for words, meaning in (
        ("(?i)could not resolve host|temporary failure in name", "its host has no address"),
        ("(?i)host key verification failed", "the host key of its server is not known here"),
        (
            (
                "(?i)could not read (user|pass)|authentication failed|permission denied"
                "|terminal prompts disabled|returned error: 40[13]"
            ),
            "there is no such repository, or it needs a sign-in that git does not have here",
        ),
        (
            (
                "(?i)repository .*not found|returned error: 404|does not appear to be a git"
                "|not a git repository|does not exist"
            ),
            "there is no git repository",
        ),
        (
            "(?i)couldn't find remote ref|remote branch .* not found|not our ref|no such ref",
            "it has no such branch, tag or commit",
        ),
        ("(?i)certificate|ssl", "the certificate of its server is not accepted"),
        (
            (
                "(?i)failed to connect|couldn't connect|connection (refused|timed out|reset)"
                "|could not read from remote|unable to access|timed out"
            ),
            "its server cannot be reached",
        ),
    )
)
"""What git says of a repository, and what that means, the most certain first."""


def _reason(code: int, said: bytes) -> str:
    text = said.decode("utf-8", "replace").replace("\r", "\n")
    for words, meaning in _SAID:
        if words.search(text):
            return meaning
    lines = [line for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    reason = (kept or [f"git ended with {code}"])[0]
    reason = re.sub("^(?:fatal|error): ", "", reason)
    return "".join(c if c.isprintable() else " " for c in reason)[:MESSAGE_MAX]


@contextlib.contextmanager
def _started(
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
        _end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def _expire(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    # The helper of a transport is a child of git, and outlives it when git alone is killed.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Blobs:
    """Reads contents through one process."""

    def __init__(self, git: Git, directory: Path, transport: str) -> None:
        self._stack = contextlib.ExitStack()
        variables = {**git.variables(transport), "GIT_DIR": str(directory)}
        errors: IO[bytes] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        command = git.command(transport, "cat-file", "--batch")
        self._process = self._stack.enter_context(_started(command, directory, variables, errors))
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

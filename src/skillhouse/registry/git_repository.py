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
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Self
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from skillhouse.floor import is_utf8
from skillhouse.floor.structs import replace
from skillhouse.registry import git_program
from skillhouse.registry.git_program import Git, GitBlobs, end, expire, started, transport_of
from skillhouse.registry.page_addresses import SourceError
from skillhouse.registry.source import Source, inside_path, is_ref
from skillhouse.registry.source_files import SUBMODULE, SourceFile
from skillhouse.skill import ArchiveMember, validate_name

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
FETCH_SECONDS = 300.0
READ_SECONDS = 60.0
LISTING_MAX = 64 * 1024 * 1024
"""Bytes of the list of files: a tree of ten objects can name billions of them."""
ENTRIES_MAX = 200_000
MESSAGE_MAX = 300
HISTORY_SECONDS = 30.0
_TRACE_MAX = 1024 * 1024

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HEAD = "refs/skillhouse/head"
_EXECUTABLE, _PLAIN, _LINK = "100755", "100644", "120000"
_LINK_MAX = 4096
"""Bytes of what a link says (PATH_MAX of Linux)."""


class MissingRefError(SourceError):
    """A repository has no such branch, tag or commit."""


class GitHistory(Struct, frozen=True, kw_only=True):
    """The commits that led to one."""

    commits: frozenset[str] = frozenset()
    root: str = ""
    """The commit that its first parents begin with; empty where the history is not known."""
    problem: str = ""
    """Why it is not known."""


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
        self.source = source
        """With `ref` and `path` as the repository divides them."""
        self._transport = source.transport
        self._progress = progress
        self._directory = Path(tempfile.mkdtemp(prefix="skillhouse-git-"))
        self._blobs: GitBlobs | None = None
        self._history: GitHistory | None = None
        self._files: tuple[SourceFile, ...] | None = None
        self._dated = ""
        self.tag = ""
        """What the tag that was asked for names; empty for a branch or a commit."""
        try:
            self._run("init", "--quiet", "--bare", "--template=", seconds=READ_SECONDS)
            address = self._run("ls-remote", "--get-url", "--", source.location)
            self._transport = transport_of(source, address.decode("utf-8", "replace"))
            self.commit = self._commit(fetch_seconds)
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
        if not self._dated:
            said = self._run("show", "--no-patch", "--format=%cs", self.commit)
            self._dated = said.decode("ascii", "replace").strip()[:10]
        return self._dated

    def history(self) -> GitHistory:
        """Return the commits before this one, which are fetched once, without their files."""
        if self._history is None:
            try:
                self._history = self._fetched_history()
            except SourceError as error:
                # A server may not give it, and one may be larger than anything that is kept.
                self._history = GitHistory(problem=str(error))
        return self._history

    def _fetched_history(self) -> GitHistory:
        shallow = self._directory / "shallow"
        if shallow.exists():
            refspec = f"+{self.source.ref or 'HEAD'}:{_HEAD}-history"
            config = self._directory / "config"
            kept = config.read_bytes()
            more = ("--unshallow", "--filter=tree:0")
            try:
                self._fetch(*more, refspec, seconds=HISTORY_SECONDS)
            finally:
                # Else git would fetch what is not there whenever it is asked for.
                config.write_bytes(kept)
            if shallow.exists() and self.commit in shallow.read_text("ascii"):
                raise SourceError(f"`{self.source.location}` gives no history")
        # Two words a line: a commit and its parents. None that is not there is looked for.
        listing = self._run("rev-list", "--parents", "--end-of-options", self.commit)
        first: dict[str, str] = {}
        for line in listing.decode("ascii", "replace").splitlines():
            commit, *parents = line.split()
            first[commit] = parents[0] if parents else ""
        root = self.commit
        while first.get(root):
            root = first[root]
        return GitHistory(commits=frozenset(first), root=root)

    def files(self) -> tuple[SourceFile, ...]:
        """Return what is in the commit; contents are read when they are asked for.

        Raises:
            SourceError: it has too many entries, or cannot be read.
        """
        if self._files is None:
            self._files = self._listed()
        return self._files

    def _listed(self) -> tuple[SourceFile, ...]:
        listing = self._run(
            "ls-tree", "-r", "-z", "-l", "--full-tree", self.commit, seconds=READ_SECONDS
        )
        entries = listing.split(b"\0")[:-1]
        if len(entries) > ENTRIES_MAX:
            raise SourceError(f"expected at most {ENTRIES_MAX} files in a repository")
        self._blobs = GitBlobs(
            self._git.command(self._transport, "cat-file", "--batch"),
            self._directory,
            self._variables,
        )
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

    def _commit(self, seconds: float) -> str:
        try:
            return self._fetched(seconds)
        except MissingRefError:
            if not self.source.is_loose:
                raise
            listed = self._run(
                "ls-remote",
                "--heads",
                "--tags",
                "--refs",
                "--",
                self.source.location,
                seconds=seconds,
            )
            divided = divided_source(self.source, listed)
            if divided is None:
                raise
            self.source = divided
        return self._fetched(seconds)

    def _fetched(self, seconds: float) -> str:
        wanted = self.source.ref or "HEAD"
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
            self.tag = self._tag()
        found = self._run("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        commit = found.decode("ascii", "replace").strip()
        if not _COMMIT.fullmatch(commit) or (_COMMIT.fullmatch(wanted) and commit != wanted):
            raise SourceError(f"expected the commit {wanted[:64]!r}, got {commit[:64]!r}")
        return commit

    def _tag(self) -> str:
        """Return what the tag names that was fetched; empty where it was none."""
        said = (self._directory / "FETCH_HEAD").read_text("utf-8", "replace")
        name, _, kind = said.partition("\t")
        return name if kind.lstrip("\t").startswith("tag ") and _COMMIT.fullmatch(name) else ""

    def _fetch(self, *arguments: str, seconds: float) -> None:
        *options, refspec = arguments
        quiet = "--quiet" if self._progress is None else "--progress"
        fixed = (quiet, "--no-tags", "--no-recurse-submodules")
        self._run("fetch", *fixed, *options, "--", self.source.location, refspec, seconds=seconds)

    def _moved_to(self) -> str:
        """Return where its server says that the repository is by now; empty for no such address."""
        trace = self._directory / "trace"
        traced = {"GIT_TRACE_CURL": str(trace), "GIT_TRACE_CURL_NO_DATA": "1"}
        with contextlib.suppress(SourceError):
            self._run("ls-remote", "--quiet", "--", self.source.location, more=traced)
        with contextlib.suppress(OSError):
            with open(trace, "rb") as file:
                said = file.read(_TRACE_MAX)
            return moved_address(self.source.location, said.decode("utf-8", "replace"))
        return ""

    def _run(
        self,
        *arguments: str,
        seconds: float = READ_SECONDS,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """Return what git prints; SourceError with its last words if it fails or takes too long."""
        command = self._git.command(self._transport, *arguments)
        where = self.source.location
        variables = {**self._variables, **more}
        with started(command, self._directory, variables, subprocess.PIPE) as process:
            assert process.stderr is not None  # noqa: S101 asked for as a pipe
            words = GitWords(process.stderr, self._progress)
            expired = threading.Event()
            timer = threading.Timer(seconds, expire, (process, expired))
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
                end(process)
                said = words.last()
            if code == 0:
                return output
            if expired.is_set():
                raise SourceError(f"no answer within {seconds:g} s from `{where}`")
            if self._is_full():
                raise SourceError(
                    f"cannot get `{where}`: it is larger than {git_program.PACK_MAX} bytes"
                )
            if not more and _REDIRECTED.search(said):
                raise SourceError(_moved(where, self._moved_to()))
            reason = _reason(code, said)
            failed = MissingRefError if reason == _NO_REF else SourceError
            raise failed(f"cannot get `{where}`: {reason}")

    def _is_full(self) -> bool:
        """Whether git came to the bound of a file, of which it says nothing."""
        found = self._directory.rglob("*")
        return any(os.lstat(path).st_size >= git_program.PACK_MAX // 512 * 512 for path in found)

    @property
    def _variables(self) -> dict[str, str]:
        variables = self._git.variables(self._transport)
        return {**variables, "GIT_DIR": str(self._directory)}


def divided_source(source: Source, listed: bytes) -> Source | None:
    """Return a source with the longest beginning that is a branch or tag as its ref.

    None where there is none, unless what would be the ref may be the name of a skill.

    Args:
        listed: What `git ls-remote` prints.
    """
    names = (line.partition(b"\t")[2].decode("utf-8", "replace") for line in listed.splitlines())
    known = {name.removeprefix("refs/heads/").removeprefix("refs/tags/") for name in names}
    words = "/".join(filter(None, (source.ref, source.path))).split("/")
    for count in range(len(words), 0, -1):
        ref = "/".join(words[:count])
        if ref in known and is_ref(ref):
            return replace(source, ref=ref, path=inside_path("/".join(words[count:])))
    is_skill = len(words) == 1 and not source.skill
    if not is_skill or validate_name(source.ref, directory=source.ref):
        return None
    return replace(source, ref="", skill=source.ref)


_NO_REF = "it has no such branch, tag or commit"
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
        ("(?i)out of memory|cannot allocate", "what its server says needs too much memory"),
        (
            "(?i)couldn't find remote ref|remote branch .* not found|not our ref|no such ref",
            _NO_REF,
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


_REDIRECTED = re.compile(rb"returned error: 30[12378]")
_LOCATION = re.compile(r"(?im)<= recv header: location: *([!-~]{1,2000})")


def moved_address(location: str, trace: str) -> str:
    """Return the repository to which a server leads on; empty where it is none for git.

    >>> said = "<= Recv header: Location: https://a.test/new/x.git/info/refs?service=git-upload-pack"
    >>> moved_address("https://a.test/old/x.git", said)
    'https://a.test/new/x.git'
    """
    match = _LOCATION.search(trace)
    if match is None:
        return ""
    try:
        address = urljoin(f"{location}/info/refs", match[1]).partition("/info/refs")[0]
        parts = urlsplit(address)
        is_plain = parts.hostname and not (parts.username or parts.password or parts.query)
    except ValueError:
        return ""
    known = parts.scheme == "https" or (parts.scheme == "http" and location.startswith("http:"))
    return address if known and is_plain and len(address) <= MESSAGE_MAX else ""


def _moved(where: str, to: str) -> str:
    if not to:
        return f"cannot get `{where}`: its server leads elsewhere, which is not followed"
    old, new = (one.removesuffix(".git") for one in (where, to))
    if old == new:
        return f"cannot get `{where}`: its server leads to `{to}`, which is not followed"
    return f"`{old}` moved to `{new}`: install it from there if you mean it"


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

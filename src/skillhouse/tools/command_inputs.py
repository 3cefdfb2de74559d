"""What a command depends on besides its words: files by digest, the workspace by a signature.

An approval is about these bytes too (decision 8). Files that the command names are read; a program
that may load others, which is every program without a table of its options, also binds the
signature of the workspace, which is made by stat, without reading its files.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import itertools
import marshal
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.permission import CommandPlan, SimpleCommand, loads_code, unwrapped

NAMED_FILES_MAX = 1_000
"""Files of one command that are read; beyond, the question says that it is not bound to files."""
NAMED_FILE_MAX = 64 * 1_048_576
"""Bytes of one file that is read; a larger one is bound by its inode, size and times."""
NAMED_BYTES_MAX = 256 * 1_048_576
SEALED_BYTES_MAX = 1_048_576
"""Bytes of a file that is mounted as a sealed copy; a larger one is compared and locked only."""
CHANGES_MAX = 20
"""Changed files that a person is shown by name."""

BETWEEN_WORDS = regex(r"[\s;|&<>()'\"`$={}]+")

INTERPRETERS = regex(
    r"(?:python|pypy)[\d.]*|node(?:js)?|deno|bun|tsx|ts-node|ruby[\d.]*|perl[\d.]*|php[\d.]*|lua[\d.]*"
    r"|luajit|Rscript|julia|tclsh|(?:ba|da|z|k|mk|fi)?sh"
)
"""Programs whose first operand is the script that runs (their manuals, section "Synopsis")."""
BUILD_FILES: Mapping[str, tuple[str, ...]] = {
    # GNU make manual 3.2, "What Name to Give Your Makefile"; BSD make(1) reads the last two.
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb"),
    "ninja": ("build.ninja",),
    "ant": ("build.xml",),
}
"""Files that say what a program runs, and that the program itself does not write. Those that it
does write, such as the package.json of npm, are bound by the signature."""


class InputChangedError(Exception):
    """A file holds other bytes than those that were approved."""


class CommandInputs(Struct, frozen=True, kw_only=True):
    """What a command depended on at one moment."""

    files: Mapping[str, str]
    """Digest of each named file, by its path below the workspace or its absolute path."""
    signature: str = ""
    """Of the files that its programs could load; empty when none of them loads any."""
    unbound: str = ""
    """Why not all of it could be bound; empty when it is."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """Digests of the named files that run and that the command does not write, by real path."""

    def value(self) -> Mapping[str, object]:
        texts = {"signature": self.signature, "unbound": self.unbound}
        return {"files": dict(self.files), **{name: text for name, text in texts.items() if text}}

    def changes(self, before: Mapping[str, object], root: str, since_ns: int) -> str:
        """Return in one line what differs from an earlier `value`, or ""."""
        earlier = before.get("files")
        files = earlier if isinstance(earlier, Mapping) else {}
        names = [n for n in sorted({*files, *self.files}) if files.get(n) != self.files.get(n)]
        if before.get("signature", "") != self.signature:
            names += changed_since(root, since_ns, limit=CHANGES_MAX)
            if not names and (before.get("unbound") or self.unbound):
                names = ["how much of the workspace could be looked at"]
            names = names or ["a file that was removed"]
        names = list(dict.fromkeys(names))
        return first_of(names, CHANGES_MAX)


def inputs_of_plan(plan: CommandPlan, root: str, *, written: Iterable[str]) -> CommandInputs:
    """Return what a plan depends on now; the real paths `written` by it are not sealed."""
    reader = _InputReader(root, os.path.join(root, plan.directory), frozenset(written))
    for command in plan.commands():
        reader.add(command)
    loads = any(loads_code(command.argv) for command in plan.commands())
    return reader.inputs(loads=loads)


def inputs_of_line(line: str, root: str) -> CommandInputs:
    """Return what a line for a shell depends on now: whatever looks like a word."""
    reader = _InputReader(root, root, frozenset())
    reader.read(BETWEEN_WORDS.split(line))
    return reader.inputs(loads=True)


def sealed_copies(approved: CommandInputs) -> Mapping[str, bytes]:
    """Return the approved bytes of the files that run, by real path; raises InputChangedError."""
    copies = {}
    for path, digest in approved.runs.items():
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(SEALED_BYTES_MAX + 1)
        if len(data) > SEALED_BYTES_MAX:
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputChangedError(f"`{path}` has changed since it was approved")
        copies[path] = data
    return copies


def changed_files(approved: CommandInputs, root: str) -> tuple[str, ...]:
    changed = []
    for shown, digest in approved.files.items():
        try:
            now = file_digest(os.path.join(root, shown), NAMED_BYTES_MAX)
        except OSError:
            now = None
        if now is None or now[0] != digest:
            changed.append(shown)
    return tuple(changed)


class _InputReader(Struct):
    """Reads the files that words name, within the bounds."""

    root: str
    directory: str
    written: frozenset[str]
    files: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    unbound: str = ""
    left: int = NAMED_BYTES_MAX

    def add(self, command: SimpleCommand) -> None:
        words = list(_expanded(command, self.directory))
        argv = unwrapped((command.argv[0], *words)) or (command.argv[0], *words)
        self._add_program(argv[0])
        self.read(words)
        self.read(redirect.target for redirect in command.redirects if redirect.kind == "read")
        for path in files_that_run(argv, self.directory):
            real = os.path.realpath(path)
            shown = self._shown(real)
            self.read((path,))
            is_inside = real.startswith(f"{self.root}/")
            if is_inside and real not in self.written and shown in self.files:
                self.runs[real] = self.files[shown]

    def _add_program(self, program: str) -> None:
        """Add a program of the workspace that is named by its path."""
        if "/" not in program:
            return
        # By its real path, so that a link which comes to lead elsewhere is a change.
        real = os.path.realpath(os.path.join(self.directory, program))
        self.read((program,))
        shown = self._shown(real)
        if real.startswith(f"{self.root}/") and real not in self.written and shown in self.files:
            self.runs[real] = self.files[shown]

    def read(self, words: Iterable[str]) -> None:
        for word in words:
            for candidate in candidates(word):
                if self.unbound:
                    return
                self._read(os.path.join(self.directory, candidate))

    def inputs(self, *, loads: bool) -> CommandInputs:
        signature = ""
        if loads:
            signed = sign_workspace(self.root)
            signature, self.unbound = signed.digest, self.unbound or signed.unsigned
        return CommandInputs(
            files=self.files, signature=signature, unbound=self.unbound, runs=self.runs
        )

    def _read(self, path: str) -> None:
        shown = self._shown(os.path.realpath(path))
        if shown in self.files:
            return
        try:
            digest_and_size = file_digest(path, self.left)
        except (OSError, ValueError):
            # Without the right to read it, or with a NUL in its name, it is only a word.
            return
        if digest_and_size is None:
            return
        digest, size = digest_and_size
        self.left -= size
        if len(self.files) == NAMED_FILES_MAX or self.left < 0:
            most = f"{NAMED_FILES_MAX:,} files or {NAMED_BYTES_MAX >> 20} MiB"
            self.unbound = f"it names more than {most}"
            return
        self.files[shown] = digest

    def _shown(self, real: str) -> str:
        return os.path.relpath(real, self.root) if real.startswith(f"{self.root}/") else real


def file_digest(path: str, max_bytes: int) -> tuple[str, int] | None:
    """Return what identifies a regular file's bytes, and how many were read; else None.

    That is its SHA-256 in hex, or its inode, size and times if it is over `NAMED_FILE_MAX`. Of a
    file with more than `max_bytes` only the size counts: the caller has gone over its bound.
    """
    # Some files of /proc are regular and never end, or never begin.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_size > NAMED_FILE_MAX:
            times = f"{info.st_mtime_ns}:{info.st_ctime_ns}"
            return f"{info.st_dev}:{info.st_ino}:{info.st_size}:{times}", 0
        hashed, size = hashlib.sha256(), 0
        while size <= max_bytes and (part := file.read(1_048_576)):
            hashed.update(part)
            size += len(part)
    return hashed.hexdigest(), size


def _expanded(command: SimpleCommand, directory: str) -> Iterator[str]:
    patterns = dict(command.patterns)
    for at, word in enumerate(command.argv[1:], 1):
        names = sorted(glob.glob(patterns[at], root_dir=directory)) if at in patterns else []
        yield from names or (word,)


def candidates(word: str) -> Iterator[str]:
    yield word
    if word.startswith("-") and not word.startswith("--"):
        yield word[2:]
    _, sign, value = word.partition("=")
    if sign:
        yield value
    if "::" in word:
        # A test's id, as pytest and others have it.
        yield word.partition("::")[0]
    if word[:1] == "@":
        yield word[1:]


def files_that_run(argv: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the absolute paths of a program's script, module or makefile."""
    name = os.path.basename(argv[0])
    if INTERPRETERS.fullmatch(name):
        yield from _module(argv, directory)
        operands = (os.path.join(directory, word) for word in argv[1:] if word[:1] != "-")
        script = next(filter(os.path.isfile, operands), None)
        if script is not None:
            yield script
    for file in BUILD_FILES.get(name, ()):
        for place in _build_directories(argv, directory):
            if os.path.isfile(path := os.path.join(place, file)):
                yield path


def _module(argv: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the files of `-m MODULE` in the directory, with those of its packages."""
    at = next((at for at, word in enumerate(argv) if word == "-m"), None)
    if at is None or at + 1 == len(argv):
        return
    parts = argv[at + 1].split(".")
    for end in range(1, len(parts) + 1):
        path = os.path.join(directory, *parts[:end])
        for file in (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"):
            if os.path.isfile(file):
                yield file


def _build_directories(argv: Sequence[str], directory: str) -> Iterator[str]:
    yield directory
    for at, word in enumerate(argv):
        if word in ("-C", "--directory") and at + 1 < len(argv):
            yield os.path.join(directory, argv[at + 1])
        elif word.startswith(("-C", "--directory=")):
            yield os.path.join(directory, word.removeprefix("--directory=").removeprefix("-C"))


ENTRIES_MAX = 100_000
"""Files of a workspace that are signed."""
SECONDS_MAX = 1.0
"""CPU seconds that signing may take (the same issue): how busy the machine is must not change
whether a call is bound."""
WAIT_SECONDS_MAX = 10.0
"""Seconds that it may take with what it waits for."""
TICK_NS = 20_000_000
"""Age below which a change may have the same times as the next one: two ticks of a kernel that
counts 100 a second. Git has the same problem ("racy git")."""

INERT_SUFFIXES = frozenset(
    ".md .markdown .rst .adoc .txt .log .csv .tsv .pdf .doc .docx .odt .png .jpg .jpeg .gif .webp "
    ".svg .ico .bmp .tiff .mp3 .mp4 .wav .ogg .webm .mov .woff .woff2 .ttf .otf .eot".split()
)
"""Documents and media: no interpreter, build tool or test runner executes them by itself. A script
with such a name is still bound when the command names it."""
SKIPPED_DIRECTORIES = frozenset({".git"})
"""Programs that hold no code to load here: its hooks and configuration are read-only to every
call, and an index that `git add` writes changes no command."""

_Entry = tuple[str, int, int, int, int, int, str]


class WorkspaceSignature(Struct, frozen=True, kw_only=True):
    """The files of a workspace at one moment."""

    digest: str
    """SHA-256 in hex; empty when the workspace could not be signed."""
    unsigned: str = ""
    """Why it could not."""


def sign_workspace(
    root: str,
    *,
    now_ns: Callable[[], int] = time.time_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> WorkspaceSignature:
    """Return the signature of every file below a real path that is not inert.

    Two signatures are equal exactly when the same names have the same type, mode, size, times,
    inode and link target. A file that changed within the last tick is waited for, so that a second
    change in that tick has other times.
    """
    for _ in range(2):
        try:
            listing, newest_ns = _listing(root)
        except _TooMuchError as error:
            return WorkspaceSignature(digest="", unsigned=str(error))
        except OSError as error:
            reason = f"the workspace cannot be read: {(error.strerror or '').lower()}"
            return WorkspaceSignature(digest="", unsigned=reason)
        if abs(now_ns() - newest_ns) > TICK_NS:
            break
        sleep(TICK_NS / 1e9)
    return WorkspaceSignature(digest=hashlib.sha256(marshal.dumps(listing, 2)).hexdigest())


def changed_since(root: str, since_ns: int, *, limit: int) -> tuple[str, ...]:
    """Return names of files below `root`, relative to it, whose inode changed after a moment."""
    changed = (
        os.path.relpath(os.path.join(directory, name), root)
        for directory, entries in _directories(root)
        for name, *numbers, _ in entries
        if numbers[3] > since_ns
    )
    found: list[str] = []
    with contextlib.suppress(_TooMuchError):
        found.extend(itertools.islice(changed, limit))
    return tuple(found)


class _TooMuchError(Exception): ...


def _listing(root: str) -> tuple[list[tuple[str, list[_Entry]]], int]:
    listing = []
    count = newest_ns = 0
    for directory, entries in _directories(root):
        count += len(entries)
        if count > ENTRIES_MAX:
            raise _TooMuchError(f"the workspace has more than {ENTRIES_MAX:,} files")
        newest_ns = max(newest_ns, *(entry[4] for entry in entries))
        listing.append((directory, entries))
    return listing, newest_ns


def _directories(root: str) -> Iterator[tuple[str, list[_Entry]]]:
    """Yield directories in a fixed order, each with its files in the order of their names."""
    used_up, deadline = time.thread_time() + SECONDS_MAX, time.monotonic() + WAIT_SECONDS_MAX
    waiting = [root]
    while waiting:
        if time.thread_time() > used_up or time.monotonic() > deadline:
            raise _TooMuchError(f"it takes more than {SECONDS_MAX:.0f} s to look at the workspace")
        directory = waiting.pop()
        entries: list[_Entry] = []
        below = []
        with os.scandir(directory) as scanned:
            for entry in scanned:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_DIRECTORIES:
                        below.append(entry.path)
                elif not _is_inert(entry.name):
                    entries.append(_entry(entry))
        entries.sort()
        below.sort(reverse=True)
        if entries:
            yield directory, entries
        waiting += below


def _entry(entry: os.DirEntry[str]) -> _Entry:
    info = entry.stat(follow_symlinks=False)
    target = os.readlink(entry.path) if stat.S_ISLNK(info.st_mode) else ""
    return (
        entry.name,
        info.st_mode,
        info.st_size,
        info.st_mtime_ns,
        info.st_ctime_ns,
        info.st_ino,
        target,
    )


def _is_inert(name: str) -> bool:
    _, dot, suffix = name.rpartition(".")
    return bool(dot) and f".{suffix.casefold()}" in INERT_SUFFIXES

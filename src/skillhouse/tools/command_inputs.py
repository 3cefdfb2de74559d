"""What a command depends on besides its words: files by digest, the workspace by a signature.

An approval is about these bytes too (decision 8). Files that the command names are read; a program
that may load others, which is every program without a table of its options, also binds the
signature of the workspace.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skillhouse.permission import CommandPlan, SimpleCommand, loads_code, unwrapped
from skillhouse.tools.workspace_signature import changed_since, sign_workspace

NAMED_FILES_MAX = 1_000
"""Files of one command that are read; beyond, the question says that it is not bound to files."""
NAMED_FILE_MAX = 64 * 1_048_576
"""Bytes of one file that is read; a larger one is bound by its inode, size and times."""
NAMED_BYTES_MAX = 256 * 1_048_576
"""Bytes of all of them together, likewise."""
SEALED_BYTES_MAX = 1_048_576
"""Bytes of a file that is mounted as a sealed copy; a larger one is compared and locked only."""
CHANGES_MAX = 20
"""Changed files that a person is shown by name."""

BETWEEN_WORDS = re.compile(r"[\s;|&<>()'\"`$={}]+")

INTERPRETERS = re.compile(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandInputs:
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
        found: dict[str, object] = {"files": dict(self.files)}
        if self.signature:
            found["signature"] = self.signature
        if self.unbound:
            found["unbound"] = self.unbound
        return found


def inputs_of_plan(plan: CommandPlan, root: str, *, written: Iterable[str]) -> CommandInputs:
    """Return what the commands of a plan depend on now.

    Args:
        plan: The commands, and the directory they run in.
        root: Real path of the workspace.
        written: Real paths that the plan writes, which are not sealed.
    """
    directory = os.path.join(root, plan.directory)
    reader = _InputReader(root, directory, frozenset(written))
    for command in plan.commands():
        reader.add(command)
    loads = any(loads_code(command.argv) for command in plan.commands())
    return reader.inputs(loads=loads)


def inputs_of_line(line: str, root: str) -> CommandInputs:
    """Return what a line that only a shell can run depends on now: whatever looks like a word."""
    reader = _InputReader(root, root, frozenset())
    reader.read(BETWEEN_WORDS.split(line))
    return reader.inputs(loads=True)


def changes(before: Mapping[str, object], now: CommandInputs, root: str, since_ns: int) -> str:
    """Return what is different from the inputs of an earlier question, in one line, or nothing.

    Args:
        before: `CommandInputs.value` of then.
        now: The inputs as they are.
        root: Real path of the workspace.
        since_ns: When the earlier question was asked, in nanoseconds since 1970.
    """
    earlier = before.get("files")
    files = earlier if isinstance(earlier, Mapping) else {}
    names = [n for n in sorted({*files, *now.files}) if files.get(n) != now.files.get(n)]
    if before.get("signature", "") != now.signature:
        names += changed_since(root, since_ns, limit=CHANGES_MAX)
        names = names or ["a file that was removed"]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - CHANGES_MAX} more" if len(names) > CHANGES_MAX else ""
    return ", ".join(names[:CHANGES_MAX]) + more


def sealed_copies(approved: CommandInputs) -> Mapping[str, bytes]:
    """Return the approved bytes of the files that run, by real path.

    Raises:
        InputChangedError: a file holds other bytes than those that were approved.
    """
    found = {}
    for path, digest in approved.runs.items():
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(SEALED_BYTES_MAX + 1)
        if len(data) > SEALED_BYTES_MAX:
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputChangedError(f"`{path}` has changed since it was approved")
        found[path] = data
    return found


def changed_files(approved: CommandInputs, root: str) -> tuple[str, ...]:
    found = []
    for shown, digest in approved.files.items():
        try:
            now = file_digest(os.path.join(root, shown), NAMED_BYTES_MAX)
        except OSError:
            now = None
        if now is None or now[0] != digest:
            found.append(shown)
    return tuple(found)


@dataclass(slots=True)
class _InputReader:
    """Reads the files that words name, within the bounds."""

    root: str
    directory: str
    written: frozenset[str]
    files: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    unbound: str = ""
    left: int = NAMED_BYTES_MAX

    def add(self, command: SimpleCommand) -> None:
        """Read what a command names, and note what of it runs."""
        words = list(_expanded(command, self.directory))
        argv = unwrapped((command.argv[0], *words)) or (command.argv[0], *words)
        self.read(words)
        self.read(redirect.target for redirect in command.redirects if redirect.kind == "read")
        for path in _that_run(argv, self.directory):
            real = os.path.realpath(path)
            shown = self._shown(real)
            self.read((path,))
            is_inside = real.startswith(f"{self.root}/")
            if is_inside and real not in self.written and shown in self.files:
                self.runs[real] = self.files[shown]

    def read(self, words: Iterable[str]) -> None:
        for word in words:
            for candidate in candidates(word):
                if self.unbound:
                    return
                self._read(os.path.join(self.directory, candidate))

    def inputs(self, *, loads: bool) -> CommandInputs:
        """Return what was read, with the workspace's signature where a program loads code."""
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
            found = file_digest(path, self.left)
        except (OSError, ValueError):
            # Without the right to read it, or with a NUL in its name, it is only a word.
            return
        if found is None:
            return
        digest, size = found
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
    """Yield the words after the program, file name patterns as they match now."""
    patterns = dict(command.patterns)
    for at, word in enumerate(command.argv):
        if at == 0:
            continue
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


def _that_run(argv: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the absolute paths of the files that a program runs: its script, module or makefile."""
    name = os.path.basename(argv[0])
    if INTERPRETERS.fullmatch(name):
        yield from _module(argv, directory)
        operands = (os.path.join(directory, word) for word in argv[1:] if word[:1] != "-")
        script = next(filter(os.path.isfile, operands), None)
        if script is not None:
            yield script
    for file in BUILD_FILES.get(name, ()):
        for place in _directories(argv, directory):
            if os.path.isfile(path := os.path.join(place, file)):
                yield path


def _module(argv: Sequence[str], directory: str) -> Iterator[str]:
    """Yield the files of `-m MODULE` that lie in the directory, with those of its packages."""
    at = next((at for at, word in enumerate(argv) if word == "-m"), None)
    if at is None or at + 1 == len(argv):
        return
    parts = argv[at + 1].split(".")
    for end in range(1, len(parts) + 1):
        path = os.path.join(directory, *parts[:end])
        for file in (f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"):
            if os.path.isfile(file):
                yield file


def _directories(argv: Sequence[str], directory: str) -> Iterator[str]:
    """Yield where a build tool may look for its file: here, and where `-C` leads."""
    yield directory
    for at, word in enumerate(argv):
        if word in ("-C", "--directory") and at + 1 < len(argv):
            yield os.path.join(directory, argv[at + 1])
        elif word.startswith(("-C", "--directory=")):
            yield os.path.join(directory, word.removeprefix("--directory=").removeprefix("-C"))

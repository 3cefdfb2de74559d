"""Resolves the paths of a command and decides about reading and writing them."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from skillhouse.floor import SECRET_NAMES, PersistentPaths, is_below, is_secret, is_secret_file
from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect
from skillhouse.permission.environment import LineSurroundings
from skillhouse.permission.hazards import DEVICES

PROGRAMS = ("/usr/local/bin", "/usr/bin", "/bin")
"""Directories of programs that every run has."""
HEAD_BYTES = 256
"""Linux reads so much for the first line (`BINPRM_BUF_SIZE`)."""
TEXT_BYTES = 262_144
_VENV_FILE = "pyvenv.cfg"
DEPTH_MAX = 64
"""Directories of a pattern of names; deeper ones cannot be looked for."""
_SYSTEM = ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys")


class PathPolicy:
    """The directories that a command line may use without approval."""

    def __init__(
        self,
        cwd: Path | None = None,
        *,
        writable: Sequence[Path] = (),
        readable: Sequence[Path] = (),
        paths: PersistentPaths = PersistentPaths(),  # noqa: B008 - a frozen value.
        is_open: Callable[[str], bool] = lambda path: False,
        programs: Sequence[str] = PROGRAMS,
        binds_programs: bool = False,
        can_activate: bool = True,
        real: Callable[[Path], str] = os.path.realpath,
    ) -> None:
        """Take the places; without `cwd` links are not followed and only texts are compared.

        A secret that `is_open` knows, by its resolved path, is read like any file. `programs` are
        the directories that names of programs are looked for in, which no command can write.
        `binds_programs` says that whoever runs a command asks about the bytes of its scripts: a
        program of the tree then goes by the rules for its name. `can_activate` says that whoever
        runs a line does what its activation of an environment does. `real` finds the real paths
        of the places given here.
        """
        self.paths = paths
        self._is_open = is_open
        given = {*readable, *writable, *(() if cwd is None else (cwd,))}
        found = {place: real(place) for place in given}
        self._cwd = None if cwd is None else found[cwd]
        self._writable = tuple(found[place] for place in writable)
        self._readable = tuple(found[place] for place in (*readable, *writable))
        self.binds_programs = binds_programs
        self._program_places = programs
        self.directory = ""
        """Where the line has gone by `cd`: relative to `cwd`, or absolute."""
        self.activated = ""
        """The environment that it has activated, by its real path."""
        self._can_activate = can_activate

    @cached_property
    def _programs(self) -> frozenset[str]:
        """The real directories of programs; few commands are compared with them."""
        return frozenset(map(os.path.realpath, self._program_places))

    def surroundings(self, environment: Mapping[str, str]) -> LineSurroundings:
        """Return what a line that is given here is read by."""
        return LineSurroundings(environment=environment, names=self.names, top=self._top)

    def _top(self) -> str:
        if self._cwd is None:
            return ""
        above = (Path(self._cwd), *Path(self._cwd).parents)
        return next((str(place) for place in above if os.path.lexists(place / ".git")), "")

    def environment_of(self, script: str) -> str:
        """Return the virtual environment of the current tree (PEP 405) that a script activates, by
        its real path, or nothing."""
        if self._cwd is None or not self._can_activate:
            return ""
        plain = os.path.normpath(os.path.join(self._cwd, self.directory, script))
        root = plain.removesuffix("/bin/activate")
        is_own = root != plain and self.resolved(script) == plain and is_below(root, self._cwd)
        has_files = is_own and os.path.isfile(plain) and os.path.isfile(f"{root}/{_VENV_FILE}")
        return root if has_files and ":" not in root else ""

    def activated_program(self, name: str) -> str:
        """Return the path of the program that a name means in the activated environment, or
        nothing."""
        path = os.path.join(self.activated, "bin", name)
        is_there = bool(self.activated and name) and "/" not in name and os.path.lexists(path)
        start = os.path.join(self._cwd or "", self.directory)
        return os.path.relpath(path, start) if is_there else ""

    def names(self, pattern: str) -> list[str] | None:
        """Return the names that match a pattern now, sorted; None where no directory is known, or
        the pattern is too deep to look."""
        if self._cwd is None or pattern.count("/") > DEPTH_MAX:
            return None
        return sorted(glob.glob(pattern, root_dir=os.path.join(self._cwd, self.directory)))

    def resolved(self, path: str) -> str:
        """Return the path that a text means: absolute when `cwd` is known, links followed."""
        joined = os.path.join(self.directory, path)
        if self._cwd is not None:
            return os.path.realpath(os.path.join(self._cwd, joined))
        return os.path.normpath(joined) if joined else "."

    def is_plain(self, path: str) -> bool:
        """Whether opening a path to write means what its resolved text does.

        `a/../b` is no file where `a` is no directory, and `b/` never is one.
        """
        if path.rstrip("/") != path or path.rsplit("/", 1)[-1] in (".", ".."):
            return False
        above, sign, _ = path.rpartition("../")
        if not sign or self._cwd is None:
            return True
        return os.path.isdir(os.path.join(self._cwd, self.directory, above, ".."))

    def enter(self, path: str) -> str:
        """Go to a directory, and return why a person should be asked first, or nothing."""
        concern = self.reading(path)
        before, self.directory = self.directory, self.resolved(path)
        if concern or self._cwd is None:
            return concern
        # A shell goes back from a link to where the link is, and prints the link.
        if os.path.normpath(os.path.join(self._cwd, before, path)) != self.directory:
            return f"`{path[:80]}` leads through a link"
        if not os.path.isdir(self.directory):
            return f"`{path[:80]}` is no directory"
        return ""

    def named_program(self, program: str) -> str:
        """Return the name of a program of the system or of PATH that a path names, or nothing.

        >>> PathPolicy().named_program("/usr/bin/python3"), PathPolicy().named_program("./cat")
        ('python3', '')
        """
        directory, _, name = program.rpartition("/")
        is_plain = os.path.isabs(program) and os.path.normpath(program) == program
        return name if is_plain and os.path.realpath(directory) in self._programs else ""

    def program_at(self, path: str) -> str:
        """Return the name of the program of the system or of PATH that a path leads to, `*` for a
        directory of such programs, or nothing. The program of a relative path is one too.

        >>> PathPolicy().program_at("/bin/../bin/rm"), PathPolicy().program_at("/usr/bin")
        ('rm', '*')
        """
        full = os.path.normpath(os.path.join(self._cwd or "", self.directory, path))
        directory, _, name = full.rpartition("/")
        if not os.path.isabs(full):
            return ""
        is_among = os.path.realpath(directory) in self._programs
        return name if is_among else "*" if os.path.realpath(full) in self._programs else ""

    def has_program(self, name: str) -> bool:
        """Whether a plain name is that of a program of the system or of PATH."""
        return "/" not in name and any(
            os.access(os.path.join(place, name), os.X_OK) for place in self._programs
        )

    def program_behind(self, program: str) -> str:
        """Return the name of the file that a program of the system is a link to, or nothing."""
        name = self.named_program(program) if "/" in program else program
        for directory in self._programs if name else ():
            path = os.path.join(directory, name)
            if os.path.islink(path):
                return os.path.basename(os.path.realpath(path))
        return ""

    def interpreter_of(self, program: str) -> str:
        """Return the name of the program that the first line of another says it is run by
        (execve(2), `#!`; env(1), `-S`), or nothing."""
        own = os.path.join(self._cwd or "", self.directory, program)
        named = self.named_program(program) if "/" in program else program
        paths = [os.path.join(place, named) for place in self._programs] if named else [own]
        for path in paths if self._cwd else ():
            first = _start_of(path, HEAD_BYTES).partition(b"\n")[0]
            words = os.fsdecode(first[2:]).split() if first[:2] == b"#!" else []
            names = [
                os.path.basename(word) for word in words if word[:1] != "-" and "=" not in word
            ]
            if names and names[0] == "env":
                names = names[1:]
            if names:
                return names[0]
        return ""

    def text_of(self, path: str) -> str:
        """Return the beginning of a file of the current tree that holds data, or nothing."""
        if self._cwd is None or self.kind_of(path) != "file":
            return ""
        return _start_of(self.resolved(path), TEXT_BYTES).decode("utf-8", "replace")

    def is_own_program(self, program: str) -> bool:
        """Whether a path names a program of the current tree or of a readable place, by its text.

        >>> PathPolicy().is_own_program("./gradlew"), PathPolicy().is_own_program("../x")
        (True, False)
        """
        if "/" not in program or program.startswith("~"):
            return False
        path = os.path.join(self._cwd or "", self.directory, program)
        return self._inside(os.path.normpath(path), self._readable)

    def is_in_tree(self, path: str) -> bool:
        """Whether a path is in the current tree, whose programs go by their bytes."""
        return self.binds_programs and self._inside(self.resolved(os.path.dirname(path)), ())

    def reading(self, path: str) -> str:
        """Return why reading needs approval, or nothing."""
        if path in DEVICES or path == "-":
            return ""
        if path.startswith("~"):
            return f"`{path[:80]}` is in a home directory"
        if not self._inside(self.resolved(path), self._readable):
            return f"`{path[:80]}` is outside the current tree"
        return self.secret(path)

    def secret(self, path: str) -> str:
        """Return why a path may hold a secret, by its name as written or resolved, or nothing."""
        resolved = self.resolved(path)
        is_named = is_secret_file(path, resolved) or is_secret_file(self._below(resolved), resolved)
        if is_named and not self._is_open(resolved):
            return f"`{path[:80]}` has a name that secrets have"
        return ""

    def writing(self, path: str, *, covered: bool = False) -> tuple[Effect, str]:
        """Return the decision about writing to a path, and its reason.

        Args:
            covered: Whether a rule allows the program that writes; a redirection has none.
        """
        if path in DEVICES:
            return Effect.ALLOW, ""
        resolved = path if path.startswith(("~", "$")) else self.resolved(path)
        for text in (path, resolved):
            if self.is_never(text):
                return Effect.DENY, f"`{path[:80]}` is protected"
        if any(resolved == place or resolved.startswith(f"{place}/") for place in _SYSTEM):
            return Effect.DENY, f"`{path[:80]}` belongs to the system"
        if resolved.startswith(("~", "$")):
            return Effect.ASK, f"`{path[:80]}` is expanded by a shell"
        if self._inside(resolved, self._writable, here=covered):
            return Effect.ALLOW, ""
        if self._inside(resolved, ()):
            return Effect.ASK, f"`{path[:80]}` is in no directory that may be written"
        return Effect.ASK, f"`{path[:80]}` is outside the current tree"

    def is_whole(self, path: str) -> bool:
        """Whether a path is the current tree itself, or above it."""
        resolved = self.resolved(path)
        if self._cwd is None:
            return resolved in (".", "..") or resolved.endswith("/..")
        return is_below(self._cwd, resolved)

    def kind_of(self, path: str) -> str:
        """Return "file", "directory" or "code" for a path of the current tree, or "" for no such.

        Code is what can be started: by a right, or by its first bytes. Without a current tree a
        relative path is taken for a file.
        """
        resolved = self.resolved(path)
        if path.startswith("~") or not self._inside(resolved, ()):
            return ""
        if self._cwd is None:
            return "file" if "/" in path else ""
        if os.path.isdir(resolved):
            return "directory"
        try:
            with open(resolved, "rb", opener=_without_waiting) as file:
                is_started = os.fstat(file.fileno()).st_mode & 0o111
                return "code" if is_started or file.read(4).startswith(_STARTED) else "file"
        except FileNotFoundError:
            return ""
        except OSError:
            return "code"  # What cannot be read is not known to be none.

    def _below(self, resolved: str) -> str:
        """Return the part of a path that is below the current tree; its own names are no secret."""
        prefix = f"{self._cwd}/"
        return resolved.removeprefix(prefix) if resolved.startswith(prefix) else ""

    def is_never(self, path: str) -> bool:
        """Whether no command writes a path: by its place below the current tree, whatever the
        directories above that are called."""
        is_inside = self._cwd is not None and f"{path}/".startswith(f"{self._cwd}/")
        return self.paths.is_never(path[len(self._cwd or "") + 1 :] if is_inside else path)

    def _inside(self, resolved: str, places: Sequence[str], *, here: bool = True) -> bool:
        if not os.path.isabs(resolved):
            return here and resolved != ".." and not resolved.startswith("../")
        trees = (*places, self._cwd) if here and self._cwd is not None else places
        return any(is_below(resolved, tree) for tree in trees)


_STARTED = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _start_of(path: str, size: int) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read(size) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""  # It starts nothing either.


def is_protected(path: str) -> bool:
    """Whether a path, or a directory above it, has a protected name anywhere.

    Case is folded: on a file system without case `.GIT/hooks` is `.git/hooks`.
    """
    return PersistentPaths().is_never(path)


_MAGIC = regex(r":(?:\([^)]*\)|[!^/]*)")
_EXCLUDED = regex(r":(?:[!^]|\([a-z,]*\bexclude\b[a-z,]*\))")
"""What git leaves out (gitglossary(7), pathspec)."""
_STAGE = regex(r"[0-3]:")
_WILD = regex(r"[*?\[]")
_EXAMPLES = tuple(name.rpartition("/")[2].replace("*", "x") for name in SECRET_NAMES)


def git_paths(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return every text in the arguments of git that may be a path.

    Of `REV:PATH` that is the path, which is below the top of the repository; of a pattern that
    fits the name of a secret, that name. Words that are no paths are among them, and paths that are
    left out (`:!PATH`) are not.

    >>> git_paths(["show", "HEAD:a/.env"]), git_paths(["log", "-p", "--", ":(top).e*"])[-1]
    (('a/.env',), '.env')
    """
    paths: list[str] = []
    for word in arguments[1:]:
        # `-L1,9:PATH` and `--source=REV:PATH`.
        text = word.partition("=")[2] or word if word.startswith("-") else word
        if _EXCLUDED.match(text):
            continue
        if text.startswith(":"):
            text = _STAGE.sub("", _MAGIC.sub("", text, count=1), count=1)
        elif ":" in text and "://" not in text:
            text = text.partition(":")[2]
        elif text.startswith("-"):
            continue
        if _WILD.search(text):
            text = _secret_that_fits(text) or text
        if text:
            paths.append(text)
    return tuple(dict.fromkeys(paths))


def _secret_that_fits(pattern: str) -> str:
    last = pattern.rpartition("/")[2].casefold()
    return next((n for n in _EXAMPLES if is_secret(n) and fnmatch.fnmatchcase(n, last)), "")

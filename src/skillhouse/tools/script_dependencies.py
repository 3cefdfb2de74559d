"""What a script depends on: the files that it loads, and whether its own line may change them.

An approval of a script holds for the files beside it that it loads by name. It cannot hold where
another command of the line writes one of them, as far as the grammars of the commands say.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission import SimpleCommand, only_reads, read_command, unwrapped
from skillhouse.tools.command_inputs import SEALED_BYTES_MAX

FILES_MAX = 32
"""Files that are bound with one script; each is mounted. What it loads beyond is not bound."""

NOT_BOUND = "what these load, what is loaded from elsewhere or by a computed name, what is read"

_NODE = regex(r"""(?:\brequire\s*\(|\bfrom|\bimport\s*\(?)\s*['"`](\.{1,2}/[^'"`\n]+)['"`]""")
_SHELL = regex(
    r"""^[ \t]*(?:\.|source)[ \t]+["']?(?:\$\(dirname [^)]*\)/)?([\w./-]+)""", re.MULTILINE
)
_RUBY = regex(r"""\brequire_relative\s*\(?\s*['"]([^'"\n]+)['"]""")
_STARTS = regex(
    r"(?:^|[;&|]\s*)(?:(?:python|node|ruby|perl|php|deno run|bun|tsx|ts-node|bash|sh|zsh)[\d.]*)"
    r"(?:\s+-[\w=-]+)*\s+([\w./-]+)"
)
_COMPILED = (".py", ".pyc", ".so", ".abi3.so")
_SHOWING = frozenset(
    "echo printf cat head tail grep rg uniq wc cut tr ls pwd date true false test [ jq nl tac "
    "column basename dirname which".split()
)
_GIT_SHOWS = (("log",), ("status",), ("diff",), ("show",))
_WRITING = frozenset("mkdir touch tee cp mv rm".split())
"""Programs whose grammar says all that they write."""


def files_beside(path: str, data: bytes, root: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the real paths of files of the workspace that a script itself loads by name.

    Of a package.json they are the scripts of the task, and what these load.
    For Python these are the modules of its directory that it imports, and any there that has the
    name of a module of the standard library, which the interpreter would take in its place.

    Args:
        path: The real path of the script.
        data: Its bytes.
        root: The real path of the workspace.
        argv: The command that runs it; of a package.json it names the task.
    """
    found: dict[str, None] = {}
    for name in _loaded(path, data, _first_place(path, argv), argv):
        real = os.path.realpath(name)
        is_other = real != path and real.startswith(f"{root}/")
        if is_other and len(found) < FILES_MAX and os.path.isfile(real):
            found[real] = None
    if os.path.basename(path) == "package.json":
        for script in (one for one in tuple(found) if os.path.basename(one) != "package.json"):
            found |= dict.fromkeys(files_beside(script, bytes_of(script) or b"", root, ()))
    return tuple(found)[:FILES_MAX]


def bytes_of(path: str, most: int = SEALED_BYTES_MAX) -> bytes | None:
    """Return the bytes of a regular file of at most so many; else None."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > most:
                return None
            data = file.read(info.st_size + 1)
    except OSError:
        return None
    return data if len(data) <= most else None


def names_beside(path: str, data: bytes, argv: Sequence[str]) -> Iterator[str]:
    """Yield the paths at which a script would load a file by name, whether there is one or not."""
    directory = _first_place(path, argv)
    yield from _loaded(path, data, directory, argv)
    if path.endswith(".py"):
        for name in sys.stdlib_module_names:
            yield from (f"{directory}/{name}.py", f"{directory}/{name}/__init__.py")


def _first_place(path: str, argv: Sequence[str]) -> str:
    """Return where Python looks first: beside the script, or above the package of `-m`."""
    directory = os.path.dirname(path)
    modules = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "-m"]
    for module in modules[:1]:
        for _ in range(module.count(".") + (os.path.basename(path) == "__main__.py")):
            directory = os.path.dirname(directory)
    return directory


def is_in_place_of_standard(path: str, script: str) -> bool:
    """Whether a file would be loaded in the place of a module of Python's own library.

    >>> is_in_place_of_standard("/w/d/json.py", "/w/d/x.py")
    True
    """
    name = os.path.relpath(path, os.path.dirname(script)).split("/")[0].partition(".")[0]
    return script.endswith(".py") and name in sys.stdlib_module_names


def _loaded(path: str, data: bytes, directory: str, argv: Sequence[str]) -> Iterator[str]:
    text = data.decode(errors="replace")
    name = os.path.basename(path)
    reader = _READERS.get(os.path.splitext(name)[1])
    if name == "package.json":
        yield from _of_tasks(text, path, argv)
    elif reader is not None:
        yield from reader(text, path, directory)
    elif data.startswith(b"#!"):
        head = text.partition("\n")[0]
        for word, of in (("python", _of_python), ("node", _of_node), ("sh", _of_shell)):
            if word in head:
                yield from of(text, path, directory)
                return


def _of_python(text: str, path: str, directory: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(directory, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = directory if not node.level else path
            for _ in range(node.level):
                base = os.path.dirname(base)
            module = node.module or ""
            yield from _modules(base, module)
            for alias in node.names:
                yield from _modules(base, f"{module}.{alias.name}".strip("."))
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in sorted({one.partition(".")[0] for one in names} & sys.stdlib_module_names):
        yield from _modules(directory, name)


def _modules(directory: str, dotted: str) -> Iterator[str]:
    """Yield the files that `import a.b` may run: those of `a`, then those of `a.b`."""
    at = directory
    for part in filter(None, dotted.split(".")):
        at = os.path.join(at, part)
        yield os.path.join(at, "__init__.py")
        yield from (f"{at}{suffix}" for suffix in (*_COMPILED, *_EXTENSIONS))


_EXTENSIONS = tuple(
    f".cpython-{sys.version_info[0]}{minor}-{machine}-linux-gnu.so"
    for minor in range(9, 16)
    for machine in ("x86_64", "aarch64")
)


def _of_node(text: str, path: str, directory: str) -> Iterator[str]:
    for found in _NODE.finditer(text):
        at = os.path.normpath(os.path.join(os.path.dirname(path), found[1]))
        yield at
        yield from (f"{at}.{end}" for end in ("js", "mjs", "cjs", "json", "ts", "node"))
        yield from (f"{at}/index.{end}" for end in ("js", "mjs", "cjs", "ts"))


def _of_shell(text: str, path: str, directory: str) -> Iterator[str]:
    for found in _SHELL.finditer(text):
        yield os.path.join(os.path.dirname(path), found[1].lstrip("/"))


def _of_ruby(text: str, path: str, directory: str) -> Iterator[str]:
    for found in _RUBY.finditer(text):
        at = os.path.join(os.path.dirname(path), found[1])
        yield from (at, f"{at}.rb")


def _of_tasks(text: str, path: str, argv: Sequence[str]) -> Iterator[str]:
    """Yield the scripts that the named tasks of a package.json start, with those before and after
    them (npm, "Pre & Post Scripts")."""
    try:
        content = json.loads(text)
    except ValueError:
        return
    tasks = content.get("scripts") if isinstance(content, dict) else None
    if not isinstance(tasks, dict):
        return
    for word in argv[1:]:
        for name in (word, f"pre{word}", f"post{word}"):
            for found in _STARTS.finditer(str(tasks.get(name, ""))):
                yield os.path.join(os.path.dirname(path), found[1])


_READERS: dict[str, Callable[[str, str, str], Iterator[str]]] = {
    **dict.fromkeys((".py", ".pyw"), _of_python),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"), _of_node),
    **dict.fromkeys((".sh", ".bash", ".zsh"), _of_shell),
    ".rb": _of_ruby,
}


def changed_by(
    commands: Iterable[SimpleCommand],
    paths: Collection[str],
    argv: Sequence[str],
    base: str,
    passed: Collection[tuple[str, ...]] = (),
) -> str:
    """Return why a line itself may decide what a script is, or nothing.

    A sealed copy keeps a file, but not the names of the directories above it, and there is none of
    a file that only comes to be.

    Args:
        commands: Those of the line.
        paths: Where the script is, or would be, and what it loads.
        argv: The command that runs it.
        base: The directory in which they run.
        passed: Commands of which only what they name to write counts.
    """
    seen = False
    for command in commands:
        inner = unwrapped(command.argv) or command.argv
        # A path may have been judged by the name of its program.
        is_same = os.path.basename(inner[0]) == os.path.basename(argv[0])
        is_own = not seen and is_same and inner[1:] == tuple(argv[1:])
        seen = seen or is_own
        written = list(command.redirected) if is_own else _all_written(command)
        if written is None and tuple(command.argv) in passed:
            named = (name for one in read_command(command.argv).chain() for name in one.written)
            written = [*command.redirected, *named]
        if written is None:
            return "another command of the line may change it"
        if any(_covers(target, path, base) for target in written for path in paths):
            return "the line writes it"
    return ""


def may_be_made(path: str, commands: Iterable[SimpleCommand], base: str) -> bool:
    """Whether one of some commands that run in `base` may write a path, as far as is known."""
    for command in commands:
        written = _all_written(command)
        if written is None or any(_covers(target, path, base) for target in written):
            return True
    return False


def _covers(target: str, path: str, base: str) -> bool:
    real = os.path.realpath(os.path.join(base, target))
    return path == real or path.startswith(f"{real}/")


def _all_written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where that is not known."""
    argv = unwrapped(command.argv) or command.argv
    if "/" in argv[0]:
        return None
    if _only_shows(argv):
        return list(command.redirected)
    known = _written(command)
    return None if known is None else [*command.redirected, *known]


def _written(command: SimpleCommand) -> list[str] | None:
    """Return all that a command writes, or None where its grammar does not say."""
    meaning = read_command(unwrapped(command.argv) or command.argv)
    is_known = meaning.is_quiet and not (command.patterns or meaning.directory)
    if not is_known or meaning.program not in _WRITING:
        return None
    if meaning.program in ("mv", "cp") and len(meaning.argv) > 3:
        # With options a link may be copied as one.
        return None
    return list(meaning.written)


def _only_shows(argv: tuple[str, ...]) -> bool:
    meaning = read_command(argv)
    named = meaning.path[:1] in _GIT_SHOWS if meaning.program == "git" else argv[0] in _SHOWING
    return named and only_reads(argv)

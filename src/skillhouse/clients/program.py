"""The words that start our server, and what is wrong with others.

A client starts its servers in the project's folder, before anybody trusts it. So nothing of that
folder may choose or be the program, and Python must import nothing from there.
"""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from skillhouse.floor import ConfigError
from skillhouse.floor.regex import regex

PROBE_SECONDS = 30
"""How long a Python may take to say whether it finds us."""

_PACKAGE = Path(__file__).resolve().parents[1]
_PROBE = "import importlib.util as u; s = u.find_spec('skillhouse'); print(s.origin if s else '')"
_PYTHON = regex(r"python[0-9.]*(\.exe)?")
_OURS = regex(r"skillhouse(\.exe)?(\[[\w,-]*\])?([=@~<>!][\w.*]*)?")
"""Our name, with what installers put behind it."""
_FLAG = regex(r"-[BEIOPdqsu]+")
"""Python's options that take no value."""
_LAUNCHERS = frozenset(
    "uv uvx pipx env sh bash dash zsh fish poetry pdm hatch rye pixi conda mamba micromamba mise "
    "asdf direnv py".split()
)
"""Programs that start ours here; ssh and docker start one elsewhere, in another folder."""
_ELSEWHERE = frozenset("docker podman nerdctl ssh wsl kubectl".split())
_PLAIN = regex(r"[\w@%+=:,./-]+")
_CACHE = regex(r"/uv/(archive|environments|builds)-v\d+/|/pipx/\.cache/|/\.cache/pipx/")
"""Where uvx and `pipx run` keep what they may remove at any time."""
_EXEC = regex(rb"^'''exec' \"?(/[^\"\n ]+)")
"""The second line of a script whose interpreter has too long a path for the first."""


def own_program(project: Path) -> tuple[str, ...]:
    """Return the words that start this program, wherever they are started, or raise `ConfigError`.

    Isolated (`-I`), Python reads no variable that names a folder to import from and has neither
    the current one nor the user's packages. Where we are one of the latter, `-E -P` keeps them.
    """
    reason = f"{sys.executable or 'this Python'} finds it only with variables of this terminal"
    for flags in (("-I",), ("-E", "-P")):
        words = (sys.executable, *flags, "-m", "skillhouse")
        fault = fault_of((*words, "mcp"), project)
        if fault:
            reason = fault
        elif _finds_us((sys.executable, *flags)):
            return words
    raise ConfigError(
        f"no client can start this program: {reason}; install skillhouse, for example in "
        "its clone with `uv tool install '.[all]'`, and use that one",
        key="command",
    )


def arguments_of(words: Sequence[str]) -> list[str] | None:
    """Return what follows our program, from `mcp` on; None when the words start another one.

    >>> arguments_of(["uvx", "--from", "skillhouse[mcp]", "skillhouse", "mcp", "--user", "me"])
    ['mcp', '--user', 'me']
    >>> arguments_of(["/bin/sh", "-c", "exec skillhouse mcp"])
    ['mcp']
    >>> arguments_of(["ssh", "host", "skillhouse", "mcp"]) is None
    True
    """
    name = os.path.basename(words[0])
    if not (_OURS.fullmatch(name) or _PYTHON.fullmatch(name) or name in _LAUNCHERS):
        return None
    parts = [part for word in words for part in _split(word)]
    if not _ELSEWHERE.isdisjoint(map(os.path.basename, parts)):
        return None
    for place in range(1, len(parts)):
        before = parts[place - 1]
        is_code = "-c" in parts[:place] and any("skillhouse" in part for part in parts[:place])
        if parts[place] == "mcp" and (_OURS.fullmatch(os.path.basename(before)) or is_code):
            return parts[place:]
    return None


def fault_of(words: Sequence[str], project: Path) -> str:
    """Return why it is not safe to start our server with these words; empty when it is.

    `arguments_of` says that the words are ours. The files of the project are not trusted.
    """
    program, *arguments = words
    if not os.path.isabs(program):
        return f"`{program}` is looked up when it is started, and a project can bring another one"
    if not os.path.isfile(program) or not os.access(program, os.X_OK):
        return f"there is no program `{program}`"
    if "shims" in Path(program).parts:
        return f"`{program}` is a shim, which asks the current folder what to start"
    if _CACHE.search(program):
        return f"`{program}` is in a cache, and goes when that is emptied"
    fault = _place_fault(program, project)
    name = os.path.basename(program)
    if fault or _OURS.fullmatch(name):
        return fault or _script_fault(program)
    if not _PYTHON.fullmatch(name):
        return f"`{name}` asks the current folder what to start"
    flags = [word for word in arguments if _FLAG.fullmatch(word)]
    letters = set("".join(flags))
    if ("I" in letters or {"E", "P"} <= letters) and arguments[len(flags) :][:1] == ["-m"]:
        return ""
    return "Python imports from the current folder first; `-I` before `-m` prevents it"


def _split(word: str) -> list[str]:
    """Return the words of a shell line, and any other word as it is."""
    if " " not in word:
        return [word]
    try:
        return shlex.split(word)
    except ValueError:
        return word.split()


def are_plain(arguments: Sequence[str], words: Sequence[str]) -> bool:
    """Return whether arguments mean the same outside of the shell line that they may be from."""
    return list(words[-len(arguments) :]) == list(arguments) or all(
        _PLAIN.fullmatch(argument) for argument in arguments
    )


def _finds_us(words: Sequence[str]) -> bool:
    try:
        done = subprocess.run(
            [*words, "-c", _PROBE],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    origin = done.stdout.strip()
    return bool(origin) and Path(origin).resolve().parent == _PACKAGE


def _place_fault(program: str, project: Path) -> str:
    """Return what is wrong with where a program is, by its path and behind its links."""
    is_running = os.path.dirname(program) == os.path.dirname(sys.executable)
    folder, name = os.path.split(program)
    for path in (Path(os.path.realpath(folder), name), Path(os.path.realpath(program))):
        if not is_running and path.is_relative_to(os.path.realpath(project)):
            return f"`{program}` is in the folder of the project"
        for place in (path, *path.parents):
            mode = os.stat(place).st_mode
            # What is in a folder like /tmp belongs to who made it (sticky).
            if os.name == "posix" and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return f"everyone may write to `{place}`, and so replace `{program}`"
    return ""


def _script_fault(program: str) -> str:
    """Return what is wrong with how the first line of a script names its interpreter."""
    with open(program, "rb") as file:
        first, second = file.readline(4096), file.readline(4096)
    if not first.startswith(b"#!"):
        # A launcher of another kind holds the path itself.
        return ""
    named = _EXEC.match(second)
    interpreter = os.fsdecode(named[1] if named else first[2:].strip().partition(b" ")[0])
    is_lookup = os.path.basename(interpreter) == "env" or not os.path.isabs(interpreter)
    if is_lookup or not os.path.isfile(interpreter):
        return f"the first line of `{program}` names no Python by its whole path"
    return ""

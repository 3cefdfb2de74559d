"""Runs a plan of commands without a shell: pipes, redirections, `&&` and `||`, and no more.

Run as a script inside the sandbox, with the standard library only, also of an older Python. Its
argument is the plan as JSON (`permission.CommandPlan.value`); its exit code is that of the last
command that ran, or 128 and the number of the signal that ended it, as a shell's is.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from typing import Any, Sequence  # noqa: UP035 - older Pythons too.

NOT_FOUND, NOT_RUNNABLE, FAILED = 127, 126, 1


def main() -> int:
    plan = json.loads(sys.argv[1])
    if plan["directory"]:
        try:
            os.chdir(plan["directory"])
        except OSError as error:
            return _say(plan["directory"], error)
        os.environ["PWD"] = os.getcwd()
    statuses = [0]
    for pipeline in plan["pipelines"]:
        if pipeline["joined"] == ("||" if statuses[-1] == 0 else "&&"):
            continue
        statuses = run_pipeline(pipeline["commands"], statuses)
    return statuses[-1]


def run_pipeline(commands: list[Any], before: Sequence[int]) -> list[int]:
    """Start all commands, each reading what the one before writes, and return their statuses.

    `before` are those of the pipeline that ran before.
    """
    if len(commands) == 1 and commands[0]["argv"][0] not in SHELL_BUILTINS:
        HASHED.add(commands[0]["argv"][0])
    started = []
    source = -1
    for place, command in enumerate(commands):
        reading, writing = os.pipe() if place + 1 < len(commands) else (-1, -1)
        process = os.fork()
        if process == 0:
            status = FAILED
            try:
                if reading >= 0:
                    os.close(reading)
                status = become(command, source, writing, before)
            finally:
                # Whatever happened: there is one runner only.
                os._exit(status)
        started.append(process)
        for used in (source, writing):
            if used >= 0:
                os.close(used)
        source = reading
    ended = [os.waitpid(process, 0)[1] for process in started]
    return [128 + os.WTERMSIG(e) if os.WIFSIGNALED(e) else os.WEXITSTATUS(e) for e in ended]


def become(command: Any, source: int, sink: int, before: Sequence[int]) -> int:
    """Turn this process into the command; what is returned says that it could not be done."""
    for given, wanted in ((source, 0), (sink, 1)):
        if given >= 0:
            os.dup2(given, wanted)
            os.close(given)
    # POSIX shell 2.9.1.1: words are expanded before redirections make files.
    try:
        argv = with_statuses(command["argv"], command.get("statuses", ()), before)
        argv = expanded(argv, command["patterns"], command.get("guarded", ()))
    except PermissionError as error:
        return _say(command["argv"][0], error)
    for descriptor, kind, target in command["redirects"]:
        try:
            redirect(descriptor, kind, target)
        except OSError as error:
            return _say(target, error)
    if argv[0] in BUILTINS:
        return BUILTINS[argv[0]](argv)
    # Python ignores these two, and what it starts would too.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, {**os.environ, **dict(command["environment"])})
    except FileNotFoundError as error:
        _say(argv[0], error)
        return NOT_FOUND
    except (OSError, ValueError) as error:
        _say(argv[0], error)
        return NOT_RUNNABLE


def redirect(descriptor: int, kind: str, target: str) -> None:
    if kind == "copy":
        os.dup2(int(target), descriptor)
        return
    opened = _filled(target) if kind == "text" else _opened(kind, target)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    else:
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - the parameter has no name.


def _opened(kind: str, target: str) -> int:
    is_device = target.startswith("/dev/")
    flags = os.O_RDONLY if kind == "read" else os.O_WRONLY | os.O_CREAT
    if kind == "append":
        flags |= os.O_APPEND
    # A FIFO would hold the open until another process has its other end.
    flags |= os.O_NONBLOCK
    if not is_device:
        flags |= os.O_NOFOLLOW
    opened = os.open(target, flags, 0o666)
    if is_device:
        os.set_blocking(opened, True)
        return opened
    # INVARIANT: nothing is cut or written before it is sure that the file is the one that was
    # judged; a directory on the way may have become a link meanwhile.
    if os.readlink("/proc/self/fd/%d" % opened) != target:  # noqa: UP031 - older Pythons too.
        raise PermissionError(1, "not the file that was judged")
    mode = os.fstat(opened).st_mode
    if not stat.S_ISREG(mode) and not (kind == "read" and stat.S_ISDIR(mode)):
        raise PermissionError(1, "not a regular file")
    os.set_blocking(opened, True)
    if kind == "write":
        os.ftruncate(opened, 0)
    return opened


def _filled(text: str) -> int:
    """Return a pipe that holds a text, which fits: a line has 8 KiB, and a pipe 64."""
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    return reading


def with_statuses(argv: list[str], places: Sequence[int], before: Sequence[int]) -> list[str]:
    """Return the words with what the pipeline before ended with (bash(1), "Special Parameters")."""
    words = list(argv)
    for place in places:
        words[place] = words[place].replace("$?", str(before[-1]))
        for number, status in enumerate(before):
            words[place] = words[place].replace("${PIPESTATUS[%d]}" % number, str(status))  # noqa: UP031 - older Pythons too.
    return words


def expanded(argv: list[str], patterns: list[Any], guarded: Sequence[int]) -> list[str]:
    """Return the words with each pattern replaced by the names that match, if any do."""
    if not patterns:
        return argv
    import glob  # noqa: PLC0415 - costs as much as starting Python, and few plans need it.

    pattern_of = dict(patterns)
    words = []
    for place, word in enumerate(argv):
        names = sorted(glob.glob(pattern_of[place])) if place in pattern_of else []
        # INVARIANT: none was there when the line was judged.
        options = [name for name in names if name[0] == "-"]
        if options and place in guarded:
            raise PermissionError(1, "a name that is an option matches now: " + options[0])
        words += names or [word]
    return words


# What `command -v` and `type` call their own (bash(1), "RESERVED WORDS" and "SHELL BUILTINS").
KEYWORDS = frozenset(
    "! case coproc do done elif else esac fi for function if in select then until while { } time "
    "[[ ]]".split()
)
SHELL_BUILTINS = frozenset(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare "
    "dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill "
    "let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt "
    "source suspend test times trap true type typeset ulimit umask unalias unset wait".split()
)


HASHED: set[str] = set()
"""Programs that ran, which a shell remembers."""


def found(name: str) -> str | None:
    """Return where PATH has a program."""
    places = os.environ.get("PATH", os.defpath).split(":")
    paths = (os.path.join(place, name) for place in places)
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def look_up(argv: list[str]) -> int:
    """Say what names would start, as `command -v` and `type` do."""
    is_type = argv[0] == "type"
    missing = 0
    names = argv[1:] if is_type else argv[2:]
    for name in names:
        path = None if name in KEYWORDS | SHELL_BUILTINS else found(name)
        if name in KEYWORDS:
            said = f"{name} is a shell keyword" if is_type else name
        elif name in SHELL_BUILTINS:
            said = f"{name} is a shell builtin" if is_type else name
        elif path is not None:
            shown = f"hashed ({path})" if name in HASHED else path
            said = f"{name} is {shown}" if is_type else path
        else:
            missing += 1
            if is_type:
                os.write(2, f"type: {name}: not found\n".encode(errors="replace"))
            continue
        os.write(1, f"{said}\n".encode(errors="replace"))
    # `type` fails with one that is missing, `command -v` with all of them.
    return FAILED if missing and (is_type or missing == len(names)) else 0


BUILTINS = {
    ":": lambda argv: 0,
    "true": lambda argv: 0,
    "false": lambda argv: FAILED,
    "command": look_up,
    "type": look_up,
}


def _say(what: str, error: Exception) -> int:
    reason = getattr(error, "strerror", None) or str(error)
    os.write(2, f"{what}: {reason}\n".encode(errors="replace"))
    return FAILED


if __name__ == "__main__":
    sys.exit(main())

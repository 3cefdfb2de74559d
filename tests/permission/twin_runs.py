"""Runs plans by our runner and lines by bash, in twin directories; run inside bubblewrap only.

Its input is JSON: the source of the runner, a tree of files, the directory to work in, variables,
and cases of a plan and a line each. Its output is what both did: output, exit code and all files.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from typing import Any

SECONDS = 10
FILE_BYTES = 1 << 20


def main() -> None:
    given = json.load(sys.stdin)
    runner: dict[str, Any] = {"__name__": "runner"}
    exec(compile(given["runner"], "runner", "exec"), runner)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    base, place = given["base"], os.path.join(given["base"], given["place"])
    make(base, given["tree"])
    untouched = files(base)

    def ours(plan: Any) -> None:
        sys.argv = ["runner", json.dumps(plan)]
        os._exit(runner["main"]())

    def theirs(line: str) -> None:
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-c", line], given["environment"])

    for case in given["cases"]:
        did = []
        for run, value in ((ours, case["plan"]), (theirs, case["line"])):
            output, code = ran(run, value, place, given["environment"])
            after = files(base)
            changed = {p: after.get(p) for p in after.keys() | untouched.keys()}
            changed = {p: now for p, now in changed.items() if now != untouched.get(p)}
            if changed:
                make(base, given["tree"])
            did.append([code, output, changed])
        print(json.dumps(did), flush=True)


def ran(
    run: Callable[[Any], None], value: Any, place: str, environment: dict[str, str]
) -> tuple[str, int]:
    """Return the output and exit code of a run; 128 and the number of the signal that ended it."""
    output = os.open("/tmp/output", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    process = os.fork()
    if process == 0:
        os.setsid()
        os.chdir(place)
        os.environ.clear()
        os.environ.update(environment)
        nothing = os.open("/dev/null", os.O_RDWR)
        for given, wanted in ((nothing, 0), (output, 1), (nothing, 2)):
            os.dup2(given, wanted)
        os.closerange(3, 64)
        # Python ignores these two, and a shell keeps what it was started with.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        try:
            run(value)
        finally:
            os._exit(99)

    def end(number: int, frame: Any) -> None:
        os.killpg(process, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    _, status = os.waitpid(process, 0)
    signal.alarm(0)
    os.lseek(output, 0, os.SEEK_SET)
    text = os.read(output, FILE_BYTES).decode("utf-8", "backslashreplace")
    os.close(output)
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return text, code


def make(base: str, tree: dict[str, Any]) -> None:
    """Make the tree again from nothing, in the same order and with the same times."""
    for directory, names, _ in os.walk(base):
        for name in names:
            if not os.path.islink(os.path.join(directory, name)):
                os.chmod(os.path.join(directory, name), 0o700)
    for name in os.listdir(base):
        path = os.path.join(base, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    for name, content in tree.items():
        path = os.path.join(base, name)
        if content is None:
            os.mkdir(path)
        elif "link" in content:
            os.symlink(content["link"], path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content["text"])
    for name in tree:
        os.utime(os.path.join(base, name), (1e9, 1e9), follow_symlinks=False)


def files(base: str) -> dict[str, str]:
    found = {}
    waiting = [base]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            name = os.path.relpath(entry.path, base)
            if entry.is_symlink():
                found[name] = f"link {os.readlink(entry.path)}"
            elif entry.is_dir():
                found[name] = f"directory {entry.stat().st_mode & 0o777:o}"
                if os.access(entry.path, os.R_OK | os.X_OK):
                    waiting.append(entry.path)
            elif not os.access(entry.path, os.R_OK):
                found[name] = f"{entry.stat().st_mode & 0o777:o} closed"
            else:
                with open(entry.path, encoding="utf-8", errors="backslashreplace") as file:
                    found[name] = f"{entry.stat().st_mode & 0o777:o} {file.read()}"
    return found


if __name__ == "__main__":
    main()

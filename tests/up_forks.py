"""Starts `skillhouse up` many times: `python -m tests.up_forks` reads the modules once, then forks.

Each line of its input names a server to start or to end, as JSON. A start is answered by the
server's number and the line that it printed; its input's end is the end of all.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle  # noqa: TID251 - values of our own tests.
import signal
import sys
import traceback
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from skillhouse.extensions.server import app, listener, tcp_server
from skillhouse.frontends.cli import main, options
from skillhouse.house import Locations, Skillhouse

READ_BEFORE = (app, listener, tcp_server)
"""What `up` imports when it is called: a fork has it already."""


def run(asked: dict[str, Any], out: int) -> NoReturn:
    """Be `skillhouse up` with the variables, the directory and the arguments asked for."""
    code = 1
    try:
        os.setsid()
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, log)):
            os.dup2(file, number)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update(asked["env"])
        os.chdir(asked["cwd"])
        here = Locations.here.__func__  # type: ignore[attr-defined] # A class method's function.
        managed = Path(asked["managed"])

        def with_managed(cls: type[Locations], start: Path | None = None) -> Locations:
            found = here(cls, start)
            return cls(
                start=found.start,
                home=found.home,
                environment=found.environment,
                managed_file=managed,
            )

        # A machine has one such file; a test has one of its own.
        Locations.here = classmethod(with_managed)  # type: ignore[assignment, method-assign]
        # What the test gave its own `Skillhouse` in the place of the configuration's values.
        overrides = pickle.loads(b64decode(asked["overrides"]))
        setattr(options, "Skillhouse", partial(Skillhouse, **overrides))  # noqa: B010
        code = main(["up", *asked["arguments"]])
    except BaseException:  # noqa: BLE001 - the edge of a process.
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def start(asked: dict[str, Any]) -> dict[str, Any]:
    back, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(back)
        run(asked, out)
    os.close(out)
    # The pipe stays open: what a server prints later has a reader.
    _RUNNING[pid] = reader = os.fdopen(back)
    return {"pid": pid, "line": reader.readline()}


_RUNNING: dict[int, Any] = {}


def end(pid: int, number: int) -> dict[str, Any]:
    os.kill(pid, number)
    _, status = os.waitpid(pid, 0)
    _RUNNING.pop(pid).close()
    return {"code": os.waitstatus_to_exitcode(status)}


def serve() -> None:
    gc.collect()
    gc.freeze()
    try:
        for line in sys.stdin:
            asked = json.loads(line)
            done = end(asked["pid"], asked["end"]) if "end" in asked else start(asked)
            print(json.dumps(done), flush=True)
    finally:
        for pid in list(_RUNNING):
            end(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()

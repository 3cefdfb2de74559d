"""What the self-test runs in a cell for Python skills, as a skill of two tools.

`look` tries what must fail and leaves all that it can; `left` is the next call, and tells what it
finds of that.
"""

import builtins
import contextlib
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "left-by-another-call"
SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - the cell's own.
FIXED = ("/", "/skill", "/usr", "/etc", "/dev", "/proc", "/sys")


def look(params: Any, context: Any) -> dict[str, str]:
    said = {probe.__name__: probe(params) for probe in PROBES}
    leave(params["process"])
    return said


def outside_unreadable(told: Any) -> str:
    for name in (told["canary"], "/etc/shadow", "/proc/1/environ", "/proc/self/mountinfo"):
        if said := _succeeds(f"{name} could be read", lambda: Path(name).read_bytes()):  # noqa: B023
            return said
    return ""


def outside_unwritable(told: Any) -> str:
    # The host says what arrived beside its canary.
    with contextlib.suppress(OSError):
        Path(told["outside"]).write_text("probe")
    for name in FIXED:
        file = Path(name, "probe")
        if said := _succeeds(f"{name} could be written", lambda: file.write_text("probe")):  # noqa: B023
            return said
    own = Path(__file__)
    return _succeeds("the skill could be written", lambda: own.open("a").close())


def network_refused(told: Any) -> str:
    address = ("127.0.0.1", told["tcp"])
    return _succeeds("reached the host", lambda: socket.create_connection(address, 1).close())


def leave(process: list[str]) -> None:
    for place in SCRATCH:
        with contextlib.suppress(OSError):
            Path(place, MARK).touch()
    setattr(builtins, MARK, True)
    with contextlib.suppress(OSError):
        subprocess.Popen(
            process,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def left(params: Any, context: Any) -> dict[str, str]:
    found = [place for place in SCRATCH if Path(place, MARK).exists()]
    if hasattr(builtins, MARK):
        found.append("memory")
    return {"nothing_left": f"of an earlier call: {', '.join(found)}" if found else ""}


def _succeeds(message: str, action: Callable[[], object]) -> str:
    try:
        action()
    except OSError:
        return ""
    return message


PROBES = (outside_unreadable, outside_unwritable, network_refused)
tools = {"look": look, "left": left}

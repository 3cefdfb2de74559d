"""The judge as a process: `once PLACE CLIENT MODE MOMENT DIRECTORY PROJECT`, or `serve PLACE`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.frontends.hooks.judge import HookJudge

LOCK = "judge.lock"
LOCKS = Path("/proc/locks")
LOOKS, LOOK_SECONDS = 3, 0.7
"""How often a judge that does not answer is seen to hold a lock of the state before it is ended."""


def _judge(place: str) -> HookJudge:
    from skillhouse.floor import Locations
    from skillhouse.floor.structs import replace
    from skillhouse.frontends.hooks.judge import HookJudge

    known = Locations.here(Path("/"))
    return HookJudge(Path(place), lambda start: replace(known, start=start))


def _once(place: str, *words: str) -> int:
    import asyncio

    from skillhouse.frontends.hooks.judge import HookAnswer, HookRequest
    from skillhouse.frontends.hooks.judge_client import EVENT_MAX
    from skillhouse.frontends.hooks.tickets import ancestors

    client, mode, moment, directory, project = words
    with os.fdopen(0, "rb") as stream:
        event = stream.read(EVENT_MAX + 1)
    request = HookRequest(
        client=client,
        mode=mode,
        moment=moment,
        directory=directory,
        project=project,
        event=event,
        above_here=ancestors(os.getpid()),
    )
    answer = HookAnswer(code=2, error="skillhouse: the event is too large to be judged\n")
    if len(event) <= EVENT_MAX:
        _end_hung(Path(place))
        answer = asyncio.run(_judge(place).answer(request))
    sys.stdout.write(answer.output)
    sys.stderr.write(answer.error)
    sys.stdout.flush()
    sys.stderr.flush()
    return answer.code


def _end_hung(place: Path) -> None:
    """End the judge that stays where it hangs with a lock without which nothing can be recorded.

    It did not answer in time, or this process would not judge. It writes its records whole, and
    another one is started by the next hook.
    """
    try:
        process = int((place / LOCK).read_bytes() or b"0")
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        # None is there, or this system does not say.
        return
    if b"serve" not in words or os.fsencode(place) not in words:
        return
    for _ in range(LOOKS):
        if not _holds_state(process, place):
            return
        time.sleep(LOOK_SECONDS)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _holds_state(process: int, place: Path) -> bool:
    """Whether a process holds a lock for writing on a file of the state, but that of the judge."""
    files = {one.stat().st_ino for one in place.parent.iterdir() if one.is_file()}
    rows = (line.split() for line in LOCKS.read_text().splitlines())
    return any(
        row[1] != "->" and row[3:5] == ["WRITE", str(process)] and _inode(row[5]) in files
        for row in rows
    )


def _inode(text: str) -> int:
    return int(text.rpartition(":")[2])


def _serve(place: str) -> int:
    """Serve; 1 where another process does. Each hook that finds none in time starts one."""
    from skillhouse.floor import check_private, make_private
    from skillhouse.floor.lock import try_lock

    make_private(Path(place))
    check_private(Path(place))
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    held = os.open(Path(place) / LOCK, flags, 0o600)
    if not try_lock(held):
        return 1
    os.ftruncate(held, 0)
    os.write(held, str(os.getpid()).encode())
    # Not before: it takes a third of a second.
    import asyncio

    from skillhouse.frontends.hooks.server import JudgeServer

    judge = _judge(place)
    gc.enable()
    try:
        asyncio.run(JudgeServer(Path(place), judge).serve())
    finally:
        judge.close()
    return 0


if __name__ == "__main__":
    # Importing makes many objects, all of which stay; looking for cycles among them takes a tenth.
    gc.disable()
    verb, *rest = sys.argv[1:]
    # Threads of the judge may wait for locks: the answer is printed, and nothing else is owed.
    os._exit(_serve(*rest) if verb == "serve" else _once(*rest))

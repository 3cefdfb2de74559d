"""The judge as a process: `once PLACE CLIENT MODE MOMENT DIRECTORY PROJECT`, or `serve PLACE`."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.frontends.hooks.judge import HookJudge

LOCK = "judge.lock"


def _judge(place: str) -> HookJudge:
    from skillhouse.floor import Locations
    from skillhouse.floor.structs import replace
    from skillhouse.frontends.hooks.judge import HookJudge

    known = Locations.here(Path("/"))
    return HookJudge(Path(place), lambda start: replace(known, start=start))


def _once(place: str, *words: str) -> int:
    import asyncio

    from skillhouse.frontends.hooks.hook_client import EVENT_MAX
    from skillhouse.frontends.hooks.judge import HookAnswer, HookRequest

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
    )
    answer = HookAnswer(code=2, error="skillhouse: the event is too large to be judged\n")
    if len(event) <= EVENT_MAX:
        answer = asyncio.run(_judge(place).answer(request))
    sys.stdout.write(answer.output)
    sys.stderr.write(answer.error)
    sys.stdout.flush()
    sys.stderr.flush()
    return answer.code


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

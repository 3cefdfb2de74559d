"""The judge as a process: `once PLACE CLIENT MODE MOMENT DIRECTORY PROJECT`, or `serve PLACE`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from skillhouse.floor import Locations
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.hook_client import EVENT_MAX
from skillhouse.frontends.hooks.judge import HookAnswer, HookJudge, HookRequest


def _judge(place: str) -> HookJudge:
    known = Locations.here(Path("/"))
    return HookJudge(Path(place), lambda start: replace(known, start=start))


def _once(place: str, *words: str) -> int:
    client, mode, moment, directory, project = words
    with sys.stdin.buffer as stream:
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
    # `once`, which a call waits for, needs none of it.
    from skillhouse.frontends.hooks.server import JudgeServer  # noqa: PLC0415

    judge = _judge(place)
    try:
        return 0 if asyncio.run(JudgeServer(Path(place), judge).serve()) else 1
    finally:
        judge.close()


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    # Threads of the judge may wait for locks: the answer is printed, and nothing else is owed.
    os._exit(_serve(*rest) if verb == "serve" else _once(*rest))

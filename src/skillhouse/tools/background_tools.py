"""The tools `exec_output` and `exec_stop`: what a command in the background wrote, and its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.approval import Level
from skillhouse.permission import Effect, Permission
from skillhouse.tools.background_runs import (
    BACKGROUND_MAX,
    BackgroundRun,
    BackgroundRuns,
    Owner,
    owner_of,
    value_of,
)
from skillhouse.tools.call import Output, PermissionRequest, Plan, RefusedError, object_schema
from skillhouse.tools.tool import Session, Tool

PART_BYTES = 24_000
"""Bytes of one part of the output: with what is said of it, less than a model gets at once."""
WAIT_SECONDS = 60
"""Longest wait for output or the end."""
END_SECONDS = 30.0
"""Longest wait for the end of a command that is ended; killing takes some tenths of a second."""
AROUND_BYTES = 131_072
"""Bytes on both sides of a part that are looked through for secrets which its edges cut: the
longest value of a variable (MAX_ARG_STRLEN, execve(2))."""
ACTION = "background"

_ID = {"type": "string", "minLength": 1, "maxLength": 40, "description": "as `exec` gave it"}


class ExecOutputTool(Tool):
    """Returns the output of a command in the background, part by part."""

    name = "exec_output"
    description = (
        "Read what a command that `exec` started with `background` wrote, from `offset` on, and "
        "whether it still runs. Without `id`: which there are."
    )
    durable = False
    reads_only = True
    required_actions = ("exec",)
    listed_with = "exec"
    schema: Mapping[str, Any] = object_schema(
        {
            "id": _ID,
            "offset": {
                "type": "integer",
                "description": "bytes of output to pass over, as the last answer said; a negative "
                "number counts from the end",
            },
            "wait_seconds": {
                "type": "integer",
                "minimum": 0,
                "maximum": WAIT_SECONDS,
                "description": "wait so long for new output or the end",
            },
        }
    )

    def __init__(self, runs: BackgroundRuns, conceal: Callable[[str], str]) -> None:
        self._answers = BackgroundAnswers(runs, conceal)

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        async def run() -> Output:
            return await self._answers.output(arguments, owner_of(session))

        return Plan(needs=(_need(arguments.get("id", "*"), "read"),), run=run)


class ExecStopTool(Tool):
    """Ends a command in the background with all of its processes."""

    name = "exec_stop"
    description = "End a command that `exec` started with `background`, with all its processes."
    required_actions = ("exec",)
    listed_with = "exec"
    schema: Mapping[str, Any] = object_schema({"id": _ID}, required=("id",))

    def __init__(self, runs: BackgroundRuns, conceal: Callable[[str], str]) -> None:
        self._answers = BackgroundAnswers(runs, conceal)

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        async def run() -> Output:
            return await self._answers.stop(arguments, owner_of(session))

        return Plan(needs=(_need(arguments["id"], "write"),), run=run)


class BackgroundAnswers:
    """What is said about the commands in the background, here and to other processes."""

    def __init__(self, runs: BackgroundRuns, conceal: Callable[[str], str]) -> None:
        """`conceal` takes secrets out of a text."""
        self._runs = runs
        self._conceal = conceal

    async def output(self, arguments: Mapping[str, Any], owner: Owner) -> Output:
        """Return a part of the output of one, or all that the caller has; RefusedError for an
        unknown one."""
        if "id" in arguments:
            return await self._about("output", arguments, owner)
        others = await self._runs.ask_others({"what": "list", "owner": owner})
        values = [*self._listed(owner), *(one for other in others for one in other["runs"])]
        lines = [f"{one['id']}  {one['state']}  {one['title']}" for one in values]
        text = "\n".join(lines) or f"[no command is in the background; {BACKGROUND_MAX} may be]"
        return Output(text=text, data={"runs": values})

    async def stop(self, arguments: Mapping[str, Any], owner: Owner) -> Output:
        """End one, and wait for that; RefusedError for an unknown one."""
        return await self._about("stop", arguments, owner)

    async def _about(self, what: str, arguments: Mapping[str, Any], owner: Owner) -> Output:
        question = {"what": what, "owner": owner, "arguments": dict(arguments)}
        run = self._runs.get(arguments["id"], owner)
        found = [await self._said(run, question)] if run else await self._runs.ask_others(question)
        if not found:
            shown = arguments["id"][:40]
            known = (await self.output({}, owner)).data["runs"]
            names = ", ".join(f"`{one['id']}`" for one in known) or "none"
            raise RefusedError(
                f"no command `{shown}` of this caller in the background; known: {names}"
            )
        if fault := found[0].get("fault"):
            raise RefusedError(str(fault))
        return Output(text=found[0]["text"], data=found[0]["data"], excerpt="ends")

    async def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Answer another process; None where it is about a command that is not of this one."""
        agent, user, channel = question["owner"]
        owner = (agent, user, channel)
        if question["what"] == "list":
            return {"runs": self._listed(owner)}
        run = self._runs.get(question["arguments"]["id"], owner)
        return None if run is None else await self._said(run, question)

    async def _said(self, run: BackgroundRun, question: Mapping[str, Any]) -> Mapping[str, Any]:
        if question["what"] == "stop":
            return await _stopped(run)
        arguments = question["arguments"]
        offset = arguments.get("offset", 0)
        await run.wait(arguments.get("wait_seconds", 0), until_output=max(offset, 0))
        return self._part(run, offset)

    def _listed(self, owner: Owner) -> list[Mapping[str, object]]:
        return [{**value_of(run), "title": run.title} for run in self._runs.of(owner)]

    def _part(self, run: BackgroundRun, offset: int) -> Mapping[str, Any]:
        # Before the output is looked at: what it wrote until it ended is there by then.
        is_ended = run.is_ended
        start, text, end = run.output.part(offset, PART_BYTES, is_whole=is_ended)
        text = without_cut_secrets(
            run.output.bytes_of(start - AROUND_BYTES, start).decode("utf-8", "replace"),
            text,
            run.output.bytes_of(end, end + AROUND_BYTES).decode("utf-8", "replace"),
            self._conceal,
        )
        missed = start - offset
        lost = f"; {missed} bytes before are not kept any more" if 0 <= offset < start else ""
        more = "" if is_ended and end == run.output.end else f"; go on with offset {end}"
        data = {**value_of(run), "offset": start, "next_offset": end, "output": text}
        said = f"[{run.id}: {run.state}{lost}{more}]"
        return {"text": "\n".join(filter(None, (text, said))), "data": data}


async def _stopped(run: BackgroundRun) -> Mapping[str, Any]:
    was_running = not run.is_ended
    run.end("by `exec_stop`")
    if not await run.wait(END_SECONDS):
        return {"fault": f"`{run.id}` has not ended in {END_SECONDS:.0f} s; try again"}
    said = run.state if was_running else f"it had ended: {run.state}"
    return {"text": f"[{run.id}: {said}]", "data": value_of(run)}


def _need(run_id: str, level: Level) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action=ACTION, resource=run_id),
        default=Effect.ALLOW,
        why="the command is the caller's own, and was allowed",
        level=level,
    )


def without_cut_secrets(before: str, text: str, after: str, conceal: Callable[[str], str]) -> str:
    """Return a part of a text without secrets, those too that its edges cut through.

    >>> without_cut_secrets("a sec", "ret b", "", lambda text: text.replace("secret", "***"))
    '*** b'
    """
    ahead = conceal(before)
    whole = conceal(before + text + after)
    behind = conceal(after)
    # Of letters, not of the parts of paths.
    start = len(os.path.commonprefix((ahead, whole)))  # noqa: RUF071
    rest = whole[start:]
    end = len(os.path.commonprefix((behind[::-1], rest[::-1])))  # noqa: RUF071
    return rest[: len(rest) - end]

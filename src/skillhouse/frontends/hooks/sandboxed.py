"""Mode `sandbox`: allowed commands of a client are rewritten to run in our sandbox, by tickets."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse.floor import SkillhouseError
from skillhouse.floor.structs import replace
from skillhouse.frontends.hooks.client_rules import (
    RUNNER,
    OwnRules,
    UnreadRulesError,
    runner_words,
    spellings,
    variable_of,
    words_of,
)
from skillhouse.frontends.hooks.hook_clients import (
    HookCall,
    HookClient,
    HookEventError,
    HookRewrite,
)
from skillhouse.frontends.hooks.open_calls import OpenCall, OpenCalls, end_of_run, name_of
from skillhouse.frontends.hooks.run_client import FAILED
from skillhouse.frontends.hooks.tickets import (
    LIFE_SECONDS,
    ProcessId,
    RunEnd,
    Ticket,
    Tickets,
    place_of,
)
from skillhouse.sandbox import Streams
from skillhouse.tools import AttachedRun, RefusedError
from skillhouse.tools.call import failure_text

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse
    from skillhouse.tools.command_inputs import CommandInputs

COMMAND_MAX = 65_536
_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
REASON = "skillhouse runs it in its sandbox"


class Rewriting:
    """One call that is to be rewritten, if the gate allows it."""

    def __init__(
        self,
        client: HookClient,
        call: HookCall,
        *,
        above: tuple[ProcessId, ...],
        tickets: Tickets,
        runner: str,
    ) -> None:
        self._client = client
        self._call = call
        self._above = above
        self._tickets = tickets
        self._runner = runner
        self._kept: tuple[AttachedRun, CommandInputs | None] | None = None

    def keep(self, attached: AttachedRun, approved: CommandInputs | None) -> None:
        """Take what runs it; the gate has allowed it, and its intent is in the log."""
        self._kept = (attached, approved)

    def answer(
        self,
        house: Skillhouse,
        calls: OpenCalls,
        opened: OpenCall,
        session: str,
        loaded: Callable[[], None],
    ) -> str:
        """Return the answer with the rewritten command, which runs once; `loaded` notes the skills
        that it has given the client's model.

        Raises:
            TicketError: too many wait already.
        """
        if self._kept is None:
            raise HookEventError("nothing is known that runs this command")
        attached, approved = self._kept
        rewrite, call = self._client.rewrite, self._call
        if rewrite is None:
            raise HookEventError("its commands cannot be rewritten")
        command = call.given[call.command_name]

        async def run(streams: Streams) -> RunEnd:
            tiers = house.services.enforcement.tier_gate
            stopped = tiers.stopped()
            if stopped is not None:
                return RunEnd(code=FAILED, reason=stopped.message)
            with tiers.running() as running:
                try:
                    output = await attached.run(approved, streams)
                except (RefusedError, SkillhouseError) as error:
                    return RunEnd(code=FAILED, reason=str(error))
                except OSError as error:
                    return RunEnd(code=FAILED, reason=failure_text(call.tool, error))
                if output.failed and "exit_code" not in output.data:
                    return RunEnd(code=FAILED, reason=output.text)
                return RunEnd(
                    code=output.data["exit_code"],
                    notes=tuple(output.data["notes"]),
                    detail=output.detail,
                )
            return RunEnd(code=FAILED, reason=f"stopped: {running.reason}")

        def began() -> None:
            calls.put(session, call.call, replace(opened, has_begun=True))

        def ended(end: RunEnd) -> None:
            if calls.take(session, call.call) is not None:
                end_of_run(house, opened, call, end)
                if opened.skills and end.code == 0:
                    loaded()

        moves = rewrite.keeps_directory and not attached.directory and _MOVES.search(command)
        place = secrets.token_urlsafe(32) if moves else ""
        ticket = Ticket(
            place=place,
            command=command,
            directory=place_of(call.place),
            session=session,
            call=name_of(call.call),
            above=self._above,
            run=run,
            began=began,
            ended=ended,
            expires=time.monotonic() + LIFE_SECONDS,
        )
        line = f"{self._runner} {self._tickets.issue(ticket)} {shlex.quote(command)}"
        if place:
            line = f'{line} && cd -- "$({self._runner} {place})"'
        end = attached.directory
        if rewrite.keeps_directory and end and end != os.path.realpath(call.place):
            line = f"{line} && cd -- {shlex.quote(end)}"
        return _filled(rewrite.answer, {**call.given, call.command_name: line})


class SandboxedCalls:
    """The calls of all clients that are rewritten."""

    def __init__(self, directory: Path, calls: OpenCalls) -> None:
        self._directory = directory
        self._calls = calls
        self.tickets: Tickets | None = None
        """Only a judge that stays has these."""

    def rewriting(
        self, client: HookClient, call: HookCall, above: tuple[ProcessId, ...], home: Path
    ) -> Rewriting | str:
        """Return how a call is rewritten, or why it is only judged.

        Raises:
            HookEventError: it must not run now.
        """
        rewrite = client.rewrite
        command = call.given.get(call.command_name) if call.command_name else None
        if any(RUNNER.name in one for one in spellings(_joined_texts(call.given))):
            # The client lets it out of its own sandbox.
            raise HookEventError(f"only skillhouse itself starts `{RUNNER.name}`")
        if rewrite is None or not isinstance(command, str):
            return "this tool's commands cannot be rewritten"
        if rewrite.modes and call.permission_mode not in rewrite.modes:
            return f"the client is in its mode `{call.permission_mode}`"
        if len(command) > COMMAND_MAX:
            return f"it has more than {COMMAND_MAX} characters"
        if _only_moves(command):
            return "it only changes the directory"
        if self.tickets is None:
            raise HookEventError("the judge that stays is not there yet; repeat the call")
        if not above:
            raise HookEventError("the process of the client is not seen from here")
        try:
            if reason := self._left(client, rewrite, call, command, above, home):
                return reason
        except UnreadRulesError as error:
            return f"what the client goes by is not known: {error}"
        return Rewriting(
            client,
            call,
            above=above,
            tickets=self.tickets,
            runner=shlex.join(runner_words(self._directory)),
        )

    def _left(
        self,
        client: HookClient,
        rewrite: HookRewrite,
        call: HookCall,
        command: str,
        above: tuple[ProcessId, ...],
        home: Path,
    ) -> str:
        """Return why a command is left to the client, or nothing; errors as of `OwnRules`."""
        shape = client.configuration
        given = variable_of(above[0].pid, shape.variable) if shape.variable else ""
        base = (Path(given) if given.startswith("/") else home / shape.unset) / shape.user
        rules = OwnRules(rewrite.rules, base.parent, call.place)
        started = [words_of(one.pid) for one in above if one.pid != 1]
        named = [
            words
            for words in started
            if any(os.path.basename(one).startswith(client.program) for one in words[:2])
        ]
        # The nearest of that name; where a client has another one, whatever is above the hook.
        words = [word for each in named[:1] or started for word in each]
        if reason := rules.reason(command, words, call.record):
            return reason
        if rewrite.exception is not None:
            if not rules.has(rewrite.exception, runner_words(self._directory)):
                return "the client has no exception for the runner; install the hooks again"
            if rewrite.keeps_directory and _MOVES.search(command) and rules.is_boxed():
                return "it changes the directory, and the client's own sandbox is on"
        return ""

    def keeps(self, session: str, name: str) -> bool:
        """Whether the file of that name is of a command that runs, or may begin yet; any other
        never will."""
        return self.tickets is not None and not self.tickets.withdraw(session, name)

    def goes_on(self, session: str, call: str, moment: str) -> bool:
        """Whether the runner of a call will bring its end, and not this event."""
        if self.tickets is None:
            return False
        if self.tickets.is_running(session, name_of(call)):
            return True
        found = self._calls.get(session, call)
        if found is None or not found.has_ticket:
            return False
        if found.is_background and moment == "after":
            # What the client says of it is that it was started.
            self.tickets.note_started(session, name_of(call))
            return True
        return not self.tickets.withdraw(session, name_of(call))


def _only_moves(command: str) -> bool:
    """Whether a line is a `cd` and nothing else: what a shell does itself.

    >>> _only_moves("cd 'a b'"), _only_moves("cd a && make"), _only_moves("cd $(make)")
    (True, False, False)
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    plain = not set("$`;&|<>()\n\\").intersection(command)
    return plain and words[:1] == ["cd"] and len(words) <= 2


def _joined_texts(given: Mapping[str, Any]) -> str:
    return "\n".join(one for one in given.values() if isinstance(one, str))


def _filled(answer: str, given: Mapping[str, Any]) -> str:
    return answer.replace('"{reason}"', json.dumps(REASON)).replace('"{input}"', json.dumps(given))

"""The tool `exec`: a program with its arguments, or a shell line, inside the sandbox.

A line is judged and taken apart; what runs is the plan that was judged, by our own runner. A shell
runs only what nothing else can run, after a yes that holds once.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from skillhouse.floor import PROTECTED_NAMES, digest, encode
from skillhouse.floor.conventions import EXIT_CODE, PROGRAM
from skillhouse.permission import (
    CommandPlan,
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    Permission,
    Places,
    command_resource,
    decide,
    judge_argv,
    judge_line,
    plan_text,
)
from skillhouse.sandbox import (
    Completed,
    Launcher,
    Limits,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
    plan_argv,
    plan_readable,
)
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.command_needs import needs_of, shell_need
from skillhouse.tools.need import Need
from skillhouse.tools.session import Session
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.workspace import Workspace

EXEC_SECONDS = 60
"""Seconds a command may take unless the call says less (DESIGN, bounds)."""
_NETWORK = {False: "none", True: "proxy"}
"""What a person is told and the log keeps of a command's way out; there is no other."""
_SHELLS = ("bash", "sh")
_SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"

WayOut = Callable[[Session, str], AbstractAsyncContextManager[Path]]
"""Opens a filtering proxy for one command of a conversation and gives the socket; the text is the
command, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A call worked out: what it needs, and the argv that does it."""

    needs: tuple[Need, ...]
    argv: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    """The argv of each program, for the rules about the network."""
    facts: tuple[tuple[str, str], ...] = ()
    is_planned: bool = False
    """Whether our own runner runs it."""


class ExecTool:
    """Runs a program or a shell line inside the sandbox."""

    name = "exec"
    description = (
        "Run a command in the workspace, inside a sandbox without network unless the user's rules "
        "grant it; then an HTTP proxy that keeps their list of hosts is the only way out. Give a "
        "shell line as `command`: words, quotes, pipes, redirections, `&&`, `||`, "
        "`;` and `./*` patterns work; variables, substitutions, loops and `&` need a person's yes "
        "each time. Or give a program's name as `command` and its arguments as `params`, which no "
        "shell reads."
    )
    durable = True
    schema: Mapping[str, Any] = object_schema(
        {
            "command": {
                "type": "string",
                "minLength": 1,
                "description": "a shell line; with `params` a program's name",
            },
            "params": {
                "type": "array",
                "items": {"type": "string"},
                "description": "the program's arguments, each as it is",
            },
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": EXEC_SECONDS},
        },
        required=("command",),
    )

    def __init__(
        self,
        workspace: Workspace,
        launcher: Callable[[], Awaitable[Launcher]],
        *,
        layers: Callable[[str], Sequence[Layer]],
        network: Callable[[str, str], bool],
        way_out: WayOut,
        environment: Mapping[str, str],
    ) -> None:
        """Take the place, the sandbox, an agent's rules, who of its commands has network, and the
        only way there is to it."""
        self._workspace = workspace
        self._launcher = launcher
        self._layers = layers
        self._network = network
        self._way_out = way_out
        self._environment = environment

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the command: by its words, or as the line that it is."""
        command: str = arguments["command"]
        params = arguments.get("params")
        rules = LayerRules(self._layers(session.agent))
        places = Places(
            self._workspace.root,
            writable=(self._workspace.root,),
            readable=tuple(session.loaded.values()),
        )
        if params is None:
            verdict = judge_line(command, rules, places)
        else:
            verdict = judge_argv(_checked((command, *params)), rules, places)
        work = self._work(command, verdict, rules, session)
        network = all(self._network(session.agent, command_resource(p)) for p in work.programs)
        command_line = command if params is None else command_resource((command, *params))
        profile = SandboxProfile(
            workspace=self._workspace.root,
            readable=(*session.loaded.values(), *(plan_readable() if work.is_planned else ())),
            protected=(*PROTECTED_NAMES, *self._workspace.protected),
            hidden=self._workspace.hidden,
            environment=self._environment,
            limits=Limits(seconds=arguments.get("timeout_seconds", EXEC_SECONDS)),
        )

        async def run() -> Output:
            if verdict.effect is Effect.DENY:
                raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
            # INVARIANT: what runs is the argv that was worked out here, before anyone was asked.
            way = self._way_out(session, command_line) if network else nullcontext()
            try:
                launcher = await self._launcher()
                async with way as socket:
                    reaching = replace(profile, proxy_socket=socket)
                    running = launcher.run(work.argv, reaching, cwd=self._workspace.root)
                    done = await command_inside(running, str(launcher.level))
            except (SandboxError, SandboxUnavailableError) as error:
                raise RefusedError(str(error)) from error
            output = _output(done, launcher.level, network=_NETWORK[network])
            return replace(output, traits=_traits(work, done))

        facts = (("network", _NETWORK[network]), *work.facts)
        return Plan(needs=(*work.needs, *session.acting.values()), run=run, facts=facts)

    def _work(
        self, line: str, verdict: CommandVerdict, rules: LayerRules, session: Session
    ) -> _Work:
        """Return what a verdict comes to.

        Raises:
            RefusedError: it is denied, or it touches what no command may.
        """
        structure = verdict.structure
        if structure is not None and any("/" in c.argv[0] for c in structure.commands()):
            raise RefusedError("denied: name a program, not a path", denied=True)
        if verdict.effect is Effect.DENY and not self._is_for_the_gate(verdict, session):
            raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
        said = tuple(("judge", reason) for reason in verdict.reasons)
        if structure is None:
            shell = (_shell(), "-c", line)
            return _Work(
                needs=(shell_need(line, verdict),), argv=shell, programs=(shell,), facts=said
            )
        needs = needs_of(structure, verdict, rules, self._workspace, session)
        programs = tuple(found.argv for found in structure.commands())
        plain = structure.plain()
        if plain is not None:
            concerns = said if any(c.scrutiny for c in verdict.commands) else ()
            return _Work(needs=needs, argv=plain, programs=programs, facts=concerns)
        facts = (("plan", plan_text(structure)), ("plan digest", _digest(structure)), *said)
        argv = plan_argv(structure.value())
        return _Work(needs=needs, argv=argv, programs=programs, facts=facts, is_planned=True)

    def _is_for_the_gate(self, verdict: CommandVerdict, session: Session) -> bool:
        """Whether a rule denies a command just as it stands, so that the record names the rule."""
        layers = self._layers(session.agent)
        return verdict.structure is not None and any(
            decide(layers, Permission(action="exec", resource=command_resource(judged.argv))).effect
            is Effect.DENY
            for judged in verdict.commands
        )


def _checked(argv: tuple[str, ...]) -> tuple[str, ...]:
    if "/" in argv[0]:
        raise RefusedError("denied: name a program, not a path", denied=True)
    if any("\0" in word for word in argv):
        raise RefusedError("a NUL in the command")
    return argv


def _shell() -> str:
    """Return the shell that the judge's grammar is of, or the one that is there."""
    return next((s for s in _SHELLS if shutil.which(s, path=_SHELL_PATH)), _SHELLS[-1])


def _digest(plan: CommandPlan) -> str:
    return digest(encode(plan.value()))


def _traits(work: _Work, done: Completed) -> Mapping[str, str | int]:
    """Return what telemetry may know: a program that was there to be run is no content."""
    found: dict[str, str | int] = {} if work.is_planned else {PROGRAM: work.argv[0]}
    return found if done.exit_code is None else {**found, EXIT_CODE: done.exit_code}


def _output(done: Completed, level: str, *, network: str) -> Output:
    stdout = done.stdout.decode("utf-8", "replace")
    stderr = done.stderr.decode("utf-8", "replace")
    ended = ""
    if done.limit:
        ended = f"stopped: the limit on {done.limit} was reached"
    elif done.signal is not None:
        ended = f"ended by signal {done.signal}"
    elif done.exit_code:
        ended = f"exit code {done.exit_code}"
    parts = [part for part in (ended, stdout, f"[stderr]\n{stderr}" if stderr else "") if part]
    if done.truncated:
        parts.append("[output cut]")
    exit_code = -1 if done.exit_code is None else done.exit_code
    return Output(
        text="\n".join(parts) or "[no output]",
        data={"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "limit": done.limit},
        failed=bool(ended),
        detail={
            "exit_code": exit_code,
            "limit": done.limit,
            "sandbox": str(level),
            "network": network,
        },
    )

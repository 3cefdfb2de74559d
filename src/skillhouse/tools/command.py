"""The tool `exec`: a program with its arguments, or a shell line, inside the sandbox.

A line is judged and taken apart; what runs is the plan that was judged, by our own runner. A shell
runs only what nothing else can run, after an approval that holds once.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from skillhouse.floor import PROTECTED_NAMES, digest, encode
from skillhouse.floor.threads import in_thread
from skillhouse.floor.tracing import EXIT_CODE, PROGRAM
from skillhouse.permission import (
    CommandPlan,
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Permission,
    command_resource,
    decide,
    judge_argv,
    judge_line,
    only_reads,
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
from skillhouse.tools.call import Output, PermissionRequest, Plan, RefusedError, object_schema
from skillhouse.tools.command_inputs import (
    CommandInputs,
    InputChangedError,
    changed_files,
    inputs_of_line,
    inputs_of_plan,
    sealed_copies,
)
from skillhouse.tools.command_protection import Writes, kept_files, writes_of
from skillhouse.tools.command_requests import (
    line_needs,
    needs_of,
    shell_need,
    shown_variables,
    uncovered,
    uncovered_need,
)
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.tool import Decide, Session, Tool
from skillhouse.tools.workspace import Workspace

EXEC_SECONDS = 60
"""Seconds a command may take unless the call says less (DESIGN, bounds)."""
_NETWORK = {False: "none", True: "proxy"}
"""A command's network, as a person sees it and the log keeps it; there is no other."""
_SHELLS = ("bash", "sh")
_SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"

WayOut = Callable[[Session, str], AbstractAsyncContextManager[Path]]
"""Opens a filtering proxy for one command of a conversation and gives the socket; the text is the
command, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A planned call: what it needs, and the argv that does it."""

    needs: tuple[PermissionRequest, ...]
    argv: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    """The argv of each program, for the rules about the network."""
    facts: tuple[tuple[str, str], ...] = ()
    writes: Writes = field(default_factory=Writes)
    """What it writes of the files that act later."""
    is_planned: bool = False
    """Whether our own runner runs it."""
    left: int = 0
    """Paths that are not covered; 0 where that is of no account."""


class ExecTool(Tool):
    """Runs a program or a shell line inside the sandbox."""

    name = "exec"
    description = (
        "Run a command in the workspace, inside a sandbox without network unless the user's rules "
        "grant it; then an HTTP proxy that keeps their list of hosts is the only way out. Give a "
        "shell line as `command`: words, quotes, pipes, redirections, `&&`, `||`, `;`, `./*` "
        "patterns and known variables work; substitutions, loops and `&` need a person's yes each "
        "time. Or give a program's name as `command` and its arguments as `params`, which no shell "
        "reads."
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
        decide: Decide,
    ) -> None:
        self._workspace = workspace
        self._launcher = launcher
        self._layers = layers
        self._network = network
        self._way_out = way_out
        self._environment = environment
        self._decide = decide

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the command: by its words, or as the line that it is."""
        command: str = arguments["command"]
        params = arguments.get("params")
        self._workspace.check(session)
        layers = self._layers(session.agent)
        rules = LayerRules(layers)
        paths = PathRules(self._workspace, session, layers, self._decide)
        places = PathPolicy(
            self._workspace.root,
            writable=(self._workspace.root,),
            readable=tuple(session.loaded.values()),
            paths=self._workspace.paths,
            is_open=paths.is_named,
        )
        if params is None:
            shown = shown_variables(self._environment, self._workspace.root)
            verdict = judge_line(command, rules, places, environment=shown)
        else:
            verdict = judge_argv(_checked((command, *params)), rules, places)
        work = self._work(command, verdict, rules, session, paths)
        granted = [self._network(session.agent, command_resource(p)) for p in work.programs]
        network = all(granted)
        withheld = withheld_network(work.programs, granted)
        command_line = command if params is None else command_resource((command, *params))
        profile = SandboxProfile(
            workspace=self._workspace.root,
            readable=(*session.loaded.values(), *(plan_readable() if work.is_planned else ())),
            hidden=self._workspace.hidden,
            paths=self._workspace.paths,
            opened=work.writes.opened,
            environment=self._environment,
            limits=Limits(seconds=arguments.get("timeout_seconds", EXEC_SECONDS)),
        )

        async def run(sealed: Mapping[str, bytes] | None = None) -> Output:
            if verdict.effect is Effect.DENY:
                raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
            # As the files are now, however long a person took to answer.
            own, below = await in_thread(
                lambda: (self._workspace.protected(session), paths.coverage(work.writes.opened))
            )
            if below.left > work.left and uncovered(
                verdict.structure, paths, root, work.writes.opened
            ):
                raise RefusedError("nothing was done: more paths are not covered; try again")
            protected = (*PROTECTED_NAMES, *own)
            # INVARIANT: what runs is the argv that was worked out here, before anyone was asked.
            way = self._way_out(session, command_line) if network else nullcontext()
            try:
                launcher = await self._launcher()
                async with way as socket:
                    reaching = replace(
                        profile,
                        protected=protected,
                        below=below,
                        read_only=paths.freezes_all,
                        proxy_socket=socket,
                        sealed=sealed or {},
                    )
                    running = launcher.run(work.argv, reaching, cwd=self._workspace.root)
                    done = await command_inside(running, str(launcher.level))
            except (SandboxError, SandboxUnavailableError) as error:
                raise RefusedError(str(error)) from error
            output = output_of(done, launcher.level, network=_NETWORK[network])
            text = f"{output.text}\n[{withheld}]" if withheld else output.text
            return replace(output, text=text, span_attributes=_traits(work, done))

        root = str(self._workspace.root)

        def inputs() -> CommandInputs:
            if verdict.structure is None:
                return inputs_of_line(command_line, root)
            asked = (need.permission for need in work.needs)
            return inputs_of_plan(
                verdict.structure, root, written=(p.resource for p in asked if p.action == "write")
            )

        async def run_sealed(approved: CommandInputs) -> Output:
            try:
                copies = await in_thread(lambda: sealed_copies(approved))
            except InputChangedError as error:
                raise RefusedError(f"nothing was done: {error}") from error
            output = await run(copies)
            return await in_thread(lambda: with_changes(output, approved, root))

        kept = kept_files(verdict.structure, work.writes.opened)
        facts = (*work.writes.facts, *kept, ("network", withheld or _NETWORK[network]), *work.facts)
        said = f"{work.left} paths not covered: " if work.left else ""
        return Plan(
            needs=(*work.needs, *session.active_remote_requests.values()),
            run=run,
            run_sealed=run_sealed,
            inputs=inputs,
            changes_workspace=_may_change(verdict.structure),
            facts=facts,
            title=f"{said}exec: {titled(work.programs) if verdict.structure else command_line}",
        )

    def _work(
        self,
        line: str,
        verdict: CommandVerdict,
        rules: LayerRules,
        session: Session,
        paths: PathRules,
    ) -> _Work:
        """Return what a verdict comes to; raises RefusedError where no approval could help."""
        structure = verdict.structure
        if structure is not None and any("/" in c.argv[0] for c in structure.commands()):
            raise RefusedError("denied: name a program, not a path", denied=True)
        if verdict.effect is Effect.DENY and not self._is_for_the_gate(verdict, session):
            raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
        said = tuple(("judge", reason) for reason in verdict.reasons)
        root = str(self._workspace.root)
        if structure is None:
            shell = (_shell(), "-c", line)
            named = tuple(dict.fromkeys(line_needs(line, paths, session, root)))
            left = uncovered(None, paths, root)
            return _Work(
                needs=(shell_need(line, verdict), *named, *uncovered_need(left)),
                argv=shell,
                programs=(shell,),
                facts=said,
                left=left,
            )
        writes = writes_of(structure, self._workspace)
        left = uncovered(structure, paths, root, writes.opened)
        needs = (
            *writes.needs,
            *needs_of(structure, verdict, rules, self._workspace, session, paths),
            *uncovered_need(left),
        )
        plain = structure.plain()
        if plain is None:
            plan_digest = digest(encode(structure.value()))
            facts = (("plan", plan_text(structure)), ("plan digest", plan_digest), *said)
        else:
            facts = said if any(c.scrutiny for c in verdict.commands) else ()
        return _Work(
            needs=tuple(dict.fromkeys(needs)),
            argv=plan_argv(structure.value()) if plain is None else plain,
            programs=tuple(command.argv for command in structure.commands()),
            facts=facts,
            writes=writes,
            is_planned=plain is None,
            left=left,
        )

    def _is_for_the_gate(self, verdict: CommandVerdict, session: Session) -> bool:
        """Whether a rule denies a command as written, so that the record names the rule."""
        layers = self._layers(session.agent)
        return verdict.structure is not None and any(
            decide(
                layers,
                Permission(action="exec", resource=command_resource(judged.argv), argv=judged.argv),
            ).effect
            is Effect.DENY
            for judged in verdict.commands
        )


def _may_change(plan: CommandPlan | None) -> bool:
    return plan is None or any(
        # git refreshes its index also where it only shows something.
        command.argv[0] == "git"
        or not only_reads(command.argv)
        or any(redirect.kind in ("write", "append") for redirect in command.redirects)
        for command in plan.commands()
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


def _traits(work: _Work, done: Completed) -> Mapping[str, str | int]:
    # A program that was there to be run is no content.
    traits: dict[str, str | int] = {} if work.is_planned else {PROGRAM: work.argv[0]}
    return traits if done.exit_code is None else {**traits, EXIT_CODE: done.exit_code}


TITLE_MAX = 160
"""Characters of a question's title, beyond which its commands are counted."""
_LEFT_BY_GIT = ("unable to unlink old '", "unable to create file ", "cannot stat '")
"""What git says of a file that it could not write, whatever its exit code (git 2.39, entry.c)."""


def titled(programs: Sequence[tuple[str, ...]]) -> str:
    shown: list[str] = []
    for at, argv in enumerate(programs):
        text = command_resource(argv)
        if shown and sum(map(len, shown)) + len(text) > TITLE_MAX:
            return f"{' ; '.join(shown)} ; and {len(programs) - at} more commands"
        shown.append(text if len(text) <= TITLE_MAX else f"{text[:TITLE_MAX]}…")
    return " ; ".join(shown)


def withheld_network(programs: Sequence[tuple[str, ...]], granted: Sequence[bool]) -> str:
    if all(granted) or not any(granted):
        return ""
    named: dict[bool, list[str]] = {True: [], False: []}
    for argv, may in zip(programs, granted, strict=True):
        if (name := f"`{argv[0]}`") not in named[may]:
            named[may].append(name)
    yes, no = ", ".join(named[True]), ", ".join(named[False])
    return f"network withheld: rules grant it to {yes} and not to {no}; run each by itself"


def with_changes(output: Output, approved: CommandInputs, root: str) -> Output:
    names = ", ".join(changed_files(approved, root))
    return replace(output, text=f"{output.text}\n[changed: {names}]") if names else output


def output_of(done: Completed, level: str, *, network: str) -> Output:
    stdout = done.stdout.decode("utf-8", "replace")
    stderr = done.stderr.decode("utf-8", "replace")
    if done.limit:
        failure = f"stopped: the limit on {done.limit} was reached"
    elif done.signal is not None:
        failure = f"ended by signal {done.signal}"
    elif done.exit_code:
        failure = f"exit code {done.exit_code}"
    else:
        failure = _half_done(stderr)
    notes = "\n".join(f"[{note}]" for note in done.notes)
    changes = f"[written: {', '.join(done.changes)}]" if done.changes else ""
    cut = "[output cut]" if done.truncated else ""
    parts = (failure, stdout, f"[stderr]\n{stderr}" if stderr else "", changes, notes, cut)
    exit_code = -1 if done.exit_code is None else done.exit_code
    return Output(
        text="\n".join(filter(None, parts)) or "[no output]",
        data={"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "limit": done.limit},
        failed=bool(failure),
        detail={
            "exit_code": exit_code,
            "limit": done.limit,
            "sandbox": str(level),
            "network": network,
        },
    )


def _half_done(stderr: str) -> str:
    # Git passes over protected files and ends with 0.
    if not any(text in stderr for text in _LEFT_BY_GIT):
        return ""
    return "half done: git could not write protected files, see below; name the git command itself"

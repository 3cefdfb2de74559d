"""The tool `exec`: a program with its arguments, or a shell line, inside the sandbox.

A line is judged and taken apart; what runs is the plan that was judged, by our own runner. A shell
runs only what nothing else can run, after an approval that holds once.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from skillhouse.approval import ScriptStore
from skillhouse.floor import PROTECTED_NAMES, dataclass, digest, encode
from skillhouse.floor.threads import in_thread
from skillhouse.floor.tracing import EXIT_CODE, PROGRAM
from skillhouse.permission import (
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
from skillhouse.tools.approved_scripts import (
    ScriptPlaces,
    ScriptRuns,
    keeping,
    script_copies,
    script_runs,
)
from skillhouse.tools.call import (
    OUTPUT_MAX,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    object_schema,
)
from skillhouse.tools.command_inputs import (
    CommandInputs,
    InputChangedError,
    inputs_of_line,
    inputs_of_plan,
    sealed_copies,
)
from skillhouse.tools.command_network import CommandNetwork, WayOut, network_of
from skillhouse.tools.command_output import (
    NOT_BOUND,
    checked_binding,
    output_of,
    tested,
    titled,
    with_changes,
)
from skillhouse.tools.command_protection import (
    Writes,
    kept_files,
    may_change,
    only_looks,
    writes_of,
)
from skillhouse.tools.command_requests import (
    check_program,
    checked_argv,
    is_program,
    line_needs,
    needs_of,
    shell_need,
    shown_variables,
    uncovered,
    uncovered_need,
)
from skillhouse.tools.missing_script import check_scripts
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.telemetry import command_inside
from skillhouse.tools.tool import Decide, Session, Tool
from skillhouse.tools.workspace import Workspace

if TYPE_CHECKING:
    from skillhouse.net import NetPolicy

_SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A planned call: what it needs, and the argv that does it."""

    needs: tuple[PermissionRequest, ...]
    argv: tuple[str, ...]
    programs: tuple[tuple[str, ...], ...]
    """The argv of each program, for the rules about the network."""
    facts: tuple[tuple[str, str], ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    """What the judge says of it, by the rules."""
    writes: Writes = field(default_factory=Writes)
    """What it writes of the files that act later."""
    is_planned: bool = False
    """Whether our own runner runs it."""
    scripts: ScriptRuns = field(default_factory=ScriptRuns)
    left: int = 0
    """Paths that are not covered; 0 where that is of no account."""


class ExecTool(Tool):
    """Runs a program or a shell line inside the sandbox."""

    name = "exec"
    description = (
        "Run a command in the workspace, inside a sandbox without network unless the user's rules "
        "grant it; then an HTTP proxy that keeps their list of hosts is the only way out. For curl "
        "and wget the user can say yes to the hosts that are named. Give a "
        "shell line as `command`: words, quotes, pipes, redirections, `&&`, `||`, `;`, `./*` "
        "patterns and known variables work; substitutions, loops and `&` need a person's yes each "
        "time. Or give a program's name as `command` and its arguments as `params`, which no shell "
        "reads."
    )
    durable = True
    required_actions = ("exec",)

    def __init__(
        self,
        workspace: Workspace,
        launcher: Callable[[], Awaitable[Launcher]],
        *,
        layers: Callable[[str], Sequence[Layer]],
        grants: Callable[[str, str], Effect],
        net_policy: Callable[[], NetPolicy],
        way_out: WayOut,
        environment: Mapping[str, str],
        decide: Decide,
        scripts: ScriptStore,
        has_namespaces: Callable[[], bool] = lambda: True,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self.schema: Mapping[str, Any] = _schema(int(limits.seconds))
        self._has_namespaces = has_namespaces
        self._workspace = workspace
        self._scripts = scripts
        self._launcher = launcher
        self._layers = layers
        self._grants = grants
        self._net_policy = net_policy
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
            variables = shown_variables(self._environment, self._workspace.root)
            verdict = judge_line(command, rules, places, environment=variables)
        else:
            verdict = judge_argv(checked_argv((command, *params), rules), rules, places)
        work = self._work(command, verdict, rules, session, paths)
        network = self._network_of(work, verdict, session)
        command_line = command if params is None else command_resource((command, *params))
        profile = SandboxProfile(
            workspace=self._workspace.root,
            readable=(*session.loaded.values(), *(plan_readable() if work.is_planned else ())),
            skills=tuple(session.loaded.values()),
            hidden=self._workspace.hidden,
            paths=self._workspace.paths,
            opened=work.writes.opened,
            environment=self._environment,
            limits=_limits_of(self._limits, arguments, session),
        )

        async def run(sealed: Mapping[str, bytes] | None = None) -> Output:
            if verdict.effect is Effect.DENY:
                raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
            # As the files are now, however long a person took to answer. On one thread, as each
            # change of threads takes some 0.3 ms.
            own, below, scripts = await in_thread(
                lambda: (
                    self._workspace.protected(session),
                    paths.coverage(work.writes.opened),
                    script_copies(
                        work.scripts, self._script_runs(verdict, rules, paths, session), root
                    ),
                )
            )
            if below.left > work.left and uncovered(
                verdict.structure, paths, root, work.writes.opened
            ):
                raise RefusedError("nothing was done: more paths are not covered; try again")
            protected = (*PROTECTED_NAMES, *own)
            # INVARIANT: what runs is the argv that was worked out here, before anyone was asked.
            named = network.named
            way = self._way_out(session, command_line, named) if network.is_open else nullcontext()
            try:
                launcher = checked_binding(
                    await tested(self._launcher),
                    {*(sealed or {}), *scripts},
                    is_said=NOT_BOUND in facts,
                )
                async with way as socket:
                    reaching = replace(
                        profile,
                        protected=protected,
                        below=below,
                        read_only=paths.freezes_all or only_looks(verdict.structure),
                        proxy_socket=socket,
                        sealed={**(sealed or {}), **scripts},
                    )
                    running = launcher.run(work.argv, reaching, cwd=self._workspace.root)
                    done = await command_inside(running, str(launcher.level))
            except (SandboxError, SandboxUnavailableError) as error:
                raise RefusedError(str(error)) from error
            output = output_of(done, launcher.level, profile.limits, network=network.word)
            text = f"{output.text}\n[{network.withheld}]" if network.withheld else output.text
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
        facts = (
            *(*work.writes.facts, *work.scripts.facts, *kept, network.fact),
            *(() if self._has_namespaces() else (NOT_BOUND,)),
            *work.facts,
        )
        said = f"{work.left} paths not covered: " if work.left else ""
        return Plan(
            needs=(*work.needs, *network.needs(), *session.active_remote_requests.values()),
            run=run,
            check_feasible=partial(tested, self._launcher),
            run_sealed=run_sealed,
            inputs=inputs,
            changes_workspace=may_change(verdict.structure),
            runs_alone=work.scripts.runs_alone,
            approved=keeping(self._scripts, work.scripts, root, session),
            facts=facts,
            remarks=work.remarks,
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
        if structure is not None and verdict.effect is not Effect.DENY:
            check_scripts(
                structure, self._workspace, session, may_be_program=lambda a: is_program(a, rules)
            )
        for command in () if structure is None else structure.commands():
            check_program(command.argv, rules)
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
                remarks=said,
                left=left,
            )
        writes = writes_of(structure, self._workspace, is_hidden=paths.hides)
        scripts = self._script_runs(verdict, rules, paths, session)
        left = uncovered(structure, paths, root, writes.opened)
        needs = (
            *writes.needs,
            *needs_of(structure, verdict, rules, self._workspace, session, paths),
            *scripts.needs,
            *uncovered_need(left),
        )
        plain = structure.plain()
        if plain is not None and "/" in plain[0]:
            # The launcher starts programs of the system only.
            plain = None
        if plain is None:
            plan_digest = digest(encode(structure.value()))
            facts: tuple[tuple[str, str], ...] = (
                ("plan", plan_text(structure)),
                ("plan digest", plan_digest),
            )
        else:
            facts = ()
        is_odd = plain is None or any(command.scrutiny for command in verdict.commands)
        return _Work(
            needs=tuple(dict.fromkeys(needs)),
            argv=plan_argv(structure.value()) if plain is None else plain,
            programs=tuple(command.argv for command in structure.commands()),
            facts=facts,
            remarks=said if is_odd else (),
            writes=writes,
            scripts=scripts,
            is_planned=plain is None,
            left=left,
        )

    def _script_runs(
        self, verdict: CommandVerdict, rules: LayerRules, paths: PathRules, session: Session
    ) -> ScriptRuns:
        if verdict.structure is None:
            return ScriptRuns()
        root = str(self._workspace.root)
        places = ScriptPlaces(
            root=root,
            approved=lambda: self._scripts.of(root, session.user, session.agent),
            is_of_skill=paths.is_of_skill,
        )
        return script_runs(verdict, verdict.structure, rules, places)

    def _network_of(self, work: _Work, verdict: CommandVerdict, session: Session) -> CommandNetwork:
        grants = [self._grants(session.agent, command_resource(p)) for p in work.programs]
        has_own = self._has_namespaces()
        return network_of(work.programs, grants, verdict, self._net_policy, has_namespaces=has_own)

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


def _schema(seconds: int) -> Mapping[str, Any]:
    return object_schema(
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
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": seconds},
        },
        required=("command",),
    )


def _limits_of(limits: Limits, arguments: Mapping[str, Any], session: Session) -> Limits:
    seconds = min(arguments.get("timeout_seconds", limits.seconds), limits.seconds)
    # A skill's code gets results whole, in a frame that has a bound of its own.
    kept = min(limits.output_bytes, OUTPUT_MAX) if session.origin_digest else limits.output_bytes
    return replace(limits, seconds=seconds, output_bytes=kept)


def _shell() -> str:
    """Return the shell that the judge's grammar is of, or the one that is there."""
    return "bash" if shutil.which("bash", path=_SHELL_PATH) else "sh"


def _traits(work: _Work, done: Completed) -> Mapping[str, str | int]:
    # A program that was there to be run is no content.
    traits: dict[str, str | int] = {} if work.is_planned else {PROGRAM: work.argv[0]}
    return traits if done.exit_code is None else {**traits, EXIT_CODE: done.exit_code}

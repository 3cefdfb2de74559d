"""The tool `exec`: a program with its arguments, or a shell line, inside the sandbox.

A line is judged and taken apart; what runs is the plan that was judged, by our own runner. A shell
runs only what nothing else can run, after an approval that holds once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from skillhouse.approval import ScriptStore
from skillhouse.floor import PROTECTED_NAMES
from skillhouse.floor.structs import replace
from skillhouse.floor.threads import in_thread
from skillhouse.permission import (
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    command_resource,
    judge_argv,
    judge_line,
    shell_line,
)
from skillhouse.sandbox import (
    GitFinder,
    Limits,
    SandboxProfile,
    Streams,
    ToolFinder,
    Toolset,
    plan_readable,
)
from skillhouse.tools.approved_scripts import (
    kept_scripts,
    script_copies,
)
from skillhouse.tools.background_command import (
    background_form,
    beside_background,
    check_writes,
    look_of,
    refuse_moving_scripts,
)
from skillhouse.tools.background_runs import BackgroundRuns
from skillhouse.tools.call import AttachedRun, Output, Plan, RefusedError, ReportProgress
from skillhouse.tools.command_context import (
    ExecContext,
    check_program,
    checked_argv,
    may_activate,
    own_programs,
    scripts_of,
    shown_variables,
    tools_now,
)
from skillhouse.tools.command_git import NO_HOOKS, GitConsents, git_now, git_use
from skillhouse.tools.command_inputs import CommandInputs, InputChangedError, sealed_copies
from skillhouse.tools.command_network import CommandNetwork, WayOut, network_of, unbounded_network
from skillhouse.tools.command_protection import kept_files, may_change, only_looks, writes_of
from skillhouse.tools.command_requests import (
    CommandWork,
    inputs_of_work,
    is_for_the_gate,
    needs_of,
    span_attributes_of,
    uncovered,
    uncovered_need,
    work_of_plan,
    work_of_shell,
)
from skillhouse.tools.command_run import (
    NOT_BOUND,
    LastLook,
    ReadyCommand,
    checked_binding,
    commands_title,
    exec_schema,
    limits_of,
    notes_of,
    usable_launcher,
    with_changes,
)
from skillhouse.tools.consequences import (
    check_scripts,
    consequence,
    refuse_outside,
    refuse_replaced,
)
from skillhouse.tools.denied_programs import DeniedPrograms, denied_to
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Decide, Session, Tool
from skillhouse.tools.workspace import Workspace

if TYPE_CHECKING:
    from skillhouse.net import NetPolicy
    from skillhouse.sandbox import Launcher


class ExecTool(Tool):
    """Runs a program or a shell line inside the sandbox."""

    name = "exec"
    description = (
        "Run a command in the workspace, inside a sandbox without network unless the user's rules "
        "grant it; then an HTTP proxy that keeps their list of hosts is the only way out. For curl "
        "and wget the user can say yes to the hosts that are named. Give a "
        "shell line as `command`: words, quotes, pipes, redirections, `&&`, `||`, `;`, `./*` "
        "patterns, known variables and `for` over words work; other substitutions and loops, "
        "and `&`, need a person's yes each time. Or give a program's name as `command` and its "
        "arguments as `params`, which no shell reads. With `background` it goes on by itself, as a "
        "server does: you get an id for `exec_output` and `exec_stop`."
    )
    durable = True
    required_actions = ("exec",)

    def __init__(
        self,
        workspace: Workspace,
        launcher: Callable[[], Awaitable[Launcher]],
        *,
        layers: Callable[[str], Sequence[Layer]],
        network_effect: Callable[[str, str], Effect],
        net_policy: Callable[[], NetPolicy],
        way_out: WayOut,
        environment: Mapping[str, str],
        decide: Decide,
        scripts: ScriptStore,
        has_namespaces: Callable[[], bool] = lambda: True,
        limits: Limits,
        background: BackgroundRuns,
        tools: ToolFinder | None = None,
        listed: tuple[str, ...] | Literal["any"] = "any",
    ) -> None:
        """`network_effect` says what the rules give an agent's command of the network; `listed` are
        the programs that a person may be asked about where no rule names them."""
        self._listed = listed
        self._background = background
        self._limits = limits
        self._tools = tools
        self.schema: Mapping[str, Any] = exec_schema(int(limits.seconds))
        self._has_namespaces = has_namespaces
        self._workspace = workspace
        self._scripts = scripts
        self._launcher = launcher
        self._layers = layers
        self._network_effect = network_effect
        self._net_policy = net_policy
        self._way_out = way_out
        self._environment = environment
        self._decide = decide
        self._denied = DeniedPrograms()
        self._git = GitFinder()

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the command: by its words, or as the line that it is."""
        command: str = arguments["command"]
        params = arguments.get("params")
        self._workspace.check(session)
        root = str(self._workspace.root)
        verdict, context = self._judged(command, params, session)
        (command, params), paths = context.given, context.paths
        form = background_form(arguments, self._workspace, session, paths)
        work = self._work(command, verdict, context)
        if form is not None:
            check_writes(verdict.structure, form, str(self._workspace.root))
        network = self._network_of(work, verdict, context)
        command_line = command if params is None else command_resource((command, *params))
        git = git_use(
            verdict.structure, command_line, self._workspace.root, self._consents(session)
        )
        profile = SandboxProfile(
            workspace=self._workspace.root,
            readable=(*session.readable, *(plan_readable() if work.is_planned else ())),
            skills=tuple(session.loaded.values()),
            hidden=self._workspace.hidden,
            paths=self._workspace.paths,
            opened=work.writes.opened,
            environment={**self._environment, **(NO_HOOKS if git.writes_config else {})},
            limits=limits_of(self._limits, arguments, session, form),
            writable=form.writable if form else (),
            is_lasting=form is not None,
        )
        # As the files are when it begins, however long a person took to answer.
        last_look = LastLook(
            lambda: (
                self._workspace.protected(session),
                git_now(
                    git,
                    paths.coverage(work.writes.opened),
                    self._workspace,
                    lambda shown: paths.of(shown).coverage(),
                ),
                script_copies(work.scripts, scripts_of(verdict, context, self._scripts), root),
                (found := tools_now(self._tools, context)),
                self._denied.found(denied_to(verdict, context.rules), found),
                self._background.written(),
            )
        )

        async def prepared(sealed: Mapping[str, bytes] | None) -> ReadyCommand:
            """Look once more, and return what runs the command."""
            if verdict.effect is Effect.DENY:
                raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
            own, (below, git_places), scripts, now, covered, moved = await last_look.taken()
            if below.left > work.uncovered_count and uncovered(
                verdict.structure, paths, root, work.writes.opened
            ):
                raise RefusedError("nothing was done: more paths are not covered; try again")
            refuse_moving_scripts(scripts, moved)
            protected = (*PROTECTED_NAMES, *own)
            # INVARIANT: what runs is the argv that was worked out here, before anyone was asked.
            launcher = checked_binding(
                await usable_launcher(self._launcher),
                {*(sealed or {}), *scripts},
                is_said=NOT_BOUND in facts,
            )
            is_fixed = form is not None or paths.freezes_all or only_looks(verdict.structure)
            return ReadyCommand(
                launcher=launcher,
                argv=work.argv,
                profile=replace(
                    profile,
                    protected=protected,
                    below=below,
                    git=git_places,
                    read_only=is_fixed,
                    sealed={**(sealed or {}), **scripts},
                    tools=now,
                    denied=covered,
                ),
                way=lambda seconds: (
                    self._way_out(session, command_line, network.named, seconds)
                    if network.is_open
                    else nullcontext()
                ),
                network=network,
            )

        async def run(
            sealed: Mapping[str, bytes] | None = None,
            report: ReportProgress | None = None,
            streams: Streams | None = None,
        ) -> Output:
            ready = await prepared(sealed)
            if streams is not None:
                return await ready.attached(streams)
            if form is not None:
                look = await in_thread(lambda: look_of(self._workspace, paths, form))
                return await ready.started(
                    self._background, session, title=title, form=form, look=look
                )
            done, output = await ready.awaited(report)
            text = "\n".join(
                (output.text, *notes_of(done, work.programs, ready.profile, paths.hidden_by))
            )
            return replace(output, text=text, span_attributes=span_attributes_of(work, done))

        def inputs() -> CommandInputs:
            found = inputs_of_work(work, verdict, command_line, root)
            refuse_replaced(verdict.structure, root, found.runs)
            return beside_background(found, form, self._background.written())

        async def run_sealed(
            approved: CommandInputs,
            report: ReportProgress | None = None,
            streams: Streams | None = None,
        ) -> Output:
            try:
                copies = await in_thread(lambda: sealed_copies(approved))
            except InputChangedError as error:
                raise RefusedError(f"nothing was done: {error}") from error
            output = await run(copies, report, streams)
            return await in_thread(lambda: with_changes(output, approved, root))

        kept = kept_files(verdict.structure, work.writes.opened)
        facts = (
            *consequence(verdict.structure, root, has_network=network.is_open),
            *(*work.writes.facts, *work.scripts.facts, *kept, network.fact),
            *(() if context.is_apart else (NOT_BOUND,)),
            *((form.fact,) if form is not None else ()),
            *work.facts,
        )
        said = f"{work.uncovered_count} paths not covered: " if work.uncovered_count else ""
        how = "exec" if form is None else "exec in the background"
        title = (
            f"{said}{how}: {commands_title(work.programs) if verdict.structure else command_line}"
        )
        is_alone = work.scripts.runs_alone
        more = () if form is None else form.needs_of(command_line, runs_scripts=is_alone)
        return Plan(
            needs=(
                *work.needs,
                *git.needs,
                *more,
                *network.needs(),
                *session.remote_requests(),
            ),
            run=run,
            run_with_progress=lambda report: run(None, report),
            progress_total=None,
            prepare=last_look.take,
            check_feasible=partial(usable_launcher, self._launcher),
            run_sealed=run_sealed,
            inputs=inputs,
            attached=AttachedRun(
                run=lambda approved, streams: (
                    run_sealed(approved, None, streams) if approved else run(streams=streams)
                ),
                directory=os.path.realpath(os.path.join(root, verdict.structure.directory))
                if verdict.structure
                else "",
            )
            if form is None
            else None,
            changes_workspace=form is None and may_change(verdict.structure),
            runs_alone=form is None and is_alone,
            approved=(*kept_scripts(work.scripts, root, session), *git.new),
            facts=facts,
            remarks=work.remarks,
            title=title,
            command=verdict,
        )

    def _judged(
        self, command: str, params: Sequence[str] | None, session: Session
    ) -> tuple[CommandVerdict, ExecContext]:
        """Return the verdict on a line, or on a program with its arguments."""
        seen = session.once
        layers = seen(("layers", self), lambda: self._layers(session.agent))
        rules = seen(("rules", self), lambda: LayerRules(layers))
        paths = PathRules(self._workspace, session, layers, self._decide)
        root = self._workspace.root
        tools_at = self._tools.places if self._tools else lambda *_: Toolset()
        tools = seen(("tools", self), lambda: tools_at(root))
        directories = tools.outside_path.split(":")
        places = paths.policy(directories)
        if params and (inside := shell_line((command, *params), rules, places)):
            command, params = inside, None

        def of_line(places: PathPolicy) -> CommandVerdict:
            variables = shown_variables(self._environment, root, tools)
            return judge_line(command, rules, places, environment=variables)

        if params is None:
            verdict = of_line(places)
            if session.is_handed_over and not may_activate(verdict):
                verdict = of_line(paths.policy(directories, can_activate=False))
        else:
            verdict = judge_argv(checked_argv((command, *params), rules, places), rules, places)
        programs = own_programs(verdict.structure, root)
        if programs:
            tools = seen(("tools", self, programs), lambda: tools_at(root, programs))
        context = ExecContext(
            root=str(root),
            rules=rules,
            session=session,
            paths=paths,
            places=places,
            tools=tools,
            programs=programs,
            given=(command, params),
            is_apart=seen(("namespaces", self), self._has_namespaces),
        )
        return verdict, context

    def _work(self, line: str, verdict: CommandVerdict, context: ExecContext) -> CommandWork:
        """Return what a verdict comes to; raises RefusedError where no approval could help."""
        rules, session, paths = context.rules, context.session, context.paths
        structure = verdict.structure
        if structure is not None and verdict.effect is not Effect.DENY:
            check_scripts(structure, self._workspace, session)
        for command in () if structure is None else structure.commands():
            check_program(command.argv, rules, context.places)
        if verdict.effect is Effect.DENY and not is_for_the_gate(
            verdict, self._layers(session.agent)
        ):
            raise RefusedError(f"denied: {verdict.reasons[0]}", denied=True)
        root = str(self._workspace.root)
        if structure is None:
            return work_of_shell(line, verdict, paths, session, root, listed=self._listed)
        if verdict.effect is not Effect.DENY:
            refuse_outside(structure, root)
        writes = writes_of(structure, self._workspace, is_hidden=paths.hides)
        scripts = scripts_of(verdict, context, self._scripts)
        left = uncovered(structure, paths, root, writes.opened)
        needs = (
            *writes.needs,
            *needs_of(
                structure, verdict, rules, self._workspace, session, paths, listed=self._listed
            ),
            *scripts.needs,
            *uncovered_need(left),
        )
        return work_of_plan(
            structure,
            verdict,
            tuple(dict.fromkeys(needs)),
            writes=writes,
            scripts=scripts,
            uncovered_count=left,
        )

    def _consents(self, session: Session) -> GitConsents:
        return GitConsents(
            store=self._scripts,
            session=session,
            decide=lambda need: self._decide(need, session)[0].effect,
            problem_around=self._workspace.problem_around,
            find=lambda root: session.once(("git", self, root), lambda: self._git.find(root)),
        )

    def _network_of(
        self, work: CommandWork, verdict: CommandVerdict, context: ExecContext
    ) -> CommandNetwork:
        agent, name_of = context.session.agent, context.places.named_program
        named = [(name_of(argv[0]) or argv[0], *argv[1:]) for argv in work.programs]
        effects = [self._network_effect(agent, command_resource(argv)) for argv in named]
        if context.session.is_handed_over:
            return unbounded_network(verdict, effects, self._net_policy)
        is_apart = context.is_apart
        return network_of(
            work.programs, effects, verdict, self._net_policy, has_namespaces=is_apart
        )

"""What one call of `exec` is judged by: rules, conversation, paths, and what names of programs mean
to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.approval import ScriptStore
from skillhouse.audit import is_secret_name
from skillhouse.permission import CommandPlan, CommandVerdict, LayerRules, PathPolicy, unwrapped
from skillhouse.sandbox import ToolFinder, Toolset, known_variables
from skillhouse.tools.approved_scripts import ScriptPlaces, ScriptRuns, approved_in, script_runs
from skillhouse.tools.call import RefusedError
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session


class ExecContext(Struct, frozen=True, kw_only=True):
    """What one call of `exec` is judged by: rules, conversation, paths and programs."""

    root: str
    """Real path of the workspace."""
    rules: LayerRules
    session: Session
    paths: PathRules
    places: PathPolicy
    tools: Toolset
    programs: tuple[str, ...]
    """Programs of the workspace that are named by paths, by absolute paths."""
    activated: str
    """The environment that the line activates, by its real path; or empty."""
    given: tuple[str, Sequence[str] | None]
    """The line, or the program with its arguments, without a shell around it."""
    is_apart: bool
    """Whether runs have mounts and a network of their own, as far as is known."""


def shown_variables(
    environment: Mapping[str, str],
    directory: Path,
    tools: Toolset = Toolset(),  # noqa: B008 - a frozen value.
) -> Mapping[str, str]:
    """Return the variables that a plan may show, of those that a command in a directory gets."""
    known = known_variables(environment, tools)
    shown = {name: value for name, value in known.items() if not is_secret_name(name)}
    return {**shown, "PWD": str(directory)}


def own_programs(plan: CommandPlan | None, root: Path) -> tuple[str, ...]:
    """Return the absolute paths of the programs of the workspace that a plan names by paths."""
    if plan is None:
        return ()
    directory = os.path.join(root, plan.directory)
    argvs = (unwrapped(command.argv) or command.argv for command in plan.commands())
    paths = (os.path.normpath(os.path.join(directory, a[0])) for a in argvs if "/" in a[0])
    return tuple(path for path in paths if path.startswith(f"{root}/"))


def check_program(argv: tuple[str, ...], rules: LayerRules, places: PathPolicy) -> None:
    """Refuse a path to a program that the sandbox does not have: it has those of the workspace, of
    loaded skills, of the system and of PATH."""
    program = argv[0]
    if "/" not in program or places.named_program(program) or places.is_own_program(program):
        return
    if program[0] == "/" or rules.rule(argv).literals == 0:
        shown = f"`{program[:80]}` is no program of the workspace, of a loaded skill or of PATH"
        raise RefusedError(f"denied: {shown}, and the sandbox has no other", denied=True)


def checked_argv(argv: tuple[str, ...], rules: LayerRules, places: PathPolicy) -> tuple[str, ...]:
    """Return the words of a program that may be named so, without a NUL."""
    check_program(argv, rules, places)
    if any("\0" in word for word in argv):
        raise RefusedError("a NUL in the command")
    return argv


def tools_now(finder: ToolFinder | None, context: ExecContext) -> Toolset:
    """Return the tools for a run, with those of environments whose programs it names.

    Raises:
        RefusedError: names would mean other programs than those that were judged.
    """
    planned = context.tools
    if finder is None:
        return planned
    now = finder.find(Path(context.root), context.programs, context.activated)
    if (now.path, now.pinned) != (planned.path, planned.pinned):
        message = "the directories of programs have changed meanwhile; try again"
        raise RefusedError(f"nothing was done: {message}")
    return now


def scripts_of(verdict: CommandVerdict, context: ExecContext, approved: ScriptStore) -> ScriptRuns:
    """Return what the scripts of a verdict's plan need, as the files are now."""
    plan, root, session = verdict.structure, context.root, context.session
    if plan is None:
        return ScriptRuns()
    places = ScriptPlaces(
        root=root,
        approved=lambda: approved_in(approved, root, session),
        is_of_skill=context.paths.is_of_skill,
        is_tool=context.tools.shows,
        which=lambda name: context.tools.own_program(name, root),
        shell_which=_shell_finder(context, plan),
    )
    return script_runs(verdict, plan, context.rules, places)


def _shell_finder(context: ExecContext, plan: CommandPlan) -> Callable[[str], str] | None:
    """Return what finds the program of the workspace that a name leads to in the shell of a client
    that runs the line by itself; None where it does not."""
    session = context.session
    if not session.is_handed_over:
        return None
    places = session.search_path.split(":") if session.search_path else context.tools.path
    if context.activated:
        places = (f"{context.activated}/bin", *places)
    base = os.path.join(context.root, plan.directory)
    paths = [os.path.join(base, place) for place in places]
    return lambda name: context.tools.own_program(name, context.root, paths)

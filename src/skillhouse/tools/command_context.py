"""What one call of `exec` is judged by: rules, conversation, paths, and what names of programs mean
to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.approval import ScriptStore
from skillhouse.audit import is_secret_name
from skillhouse.floor import is_below
from skillhouse.permission import CommandPlan, CommandVerdict, LayerRules, PathPolicy, unwrapped
from skillhouse.sandbox import ToolFinder, Toolset, known_variables
from skillhouse.tools.approved_scripts import (
    ScriptPlaces,
    ScriptRuns,
    approved_in,
    runs_any,
    script_runs,
)
from skillhouse.tools.call import RefusedError
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session

_SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
"""Shells that are taken off a line (`permission.judge`)."""


_INSIDE = frozenset("source . cd echo printf test [ true false : pwd kill type command".split())
"""What a shell does by itself."""


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
    now = finder.find(Path(context.root), context.programs)
    if (now.path, now.pinned) != (planned.path, planned.pinned):
        message = "the directories of programs have changed meanwhile; try again"
        raise RefusedError(f"nothing was done: {message}")
    return now


def scripts_of(verdict: CommandVerdict, context: ExecContext, approved: ScriptStore) -> ScriptRuns:
    """Return what the scripts of a verdict's plan need, as the files are now."""
    plan, root, session = verdict.structure, context.root, context.session
    if plan is None:
        return ScriptRuns()
    is_shell = session.is_handed_over
    places = ScriptPlaces(
        root=root,
        approved=lambda: approved_in(approved, root, session),
        is_of_skill=context.paths.is_of_skill,
        is_tool=context.tools.shows,
        which=lambda name: context.tools.own_program(name, root),
        shell_which=_shell_finder(context, plan),
        shells=tuple(name for name in _SHELLS if name in context.given[0]) if is_shell else (),
    )
    return script_runs(verdict, plan, context.rules, places)


def may_activate(verdict: CommandVerdict) -> bool:
    """Whether a client's shell may run what a line activates: only beside what a rule lets run any
    code of the workspace."""
    is_active = verdict.structure is not None and verdict.structure.activated
    return not is_active or any(map(runs_any, verdict.commands))


def _shell_finder(
    context: ExecContext, plan: CommandPlan
) -> Callable[[str], tuple[str, ...]] | None:
    """Return what finds programs of the workspace in the shell of a client that runs the line by
    itself, by its PATH; None where it does not."""
    session, root = context.session, context.root
    if not session.is_handed_over:
        return None
    base = os.path.join(root, plan.directory)
    places = session.search_path.split(":") if session.search_path else ()
    paths = [os.path.join(base, place) for place in places]
    reals = [os.path.realpath(path) for path in paths]

    def found(name: str) -> tuple[str, ...]:
        candidates = []
        is_sought = "/" not in name and name not in _INSIDE
        for path, real in zip(paths, reals, strict=True) if is_sought else ():
            program = f"{path}/{name}"
            is_there = os.path.isfile(program) and os.access(program, os.X_OK)
            is_own = is_below(real, root)
            led_to = f"{real}/{name}" if is_own else os.path.realpath(program) if is_there else ""
            if is_own or (is_there and is_below(led_to, root)):
                candidates.append(led_to)
            if is_there:
                break
        return tuple(candidates)

    return found

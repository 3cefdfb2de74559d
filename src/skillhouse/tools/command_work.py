"""What a planned command comes to, and by what it is judged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from skillhouse.floor import dataclass, digest, encode
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
    plan_text,
)
from skillhouse.sandbox import Completed, ToolFinder, Toolset, plan_argv
from skillhouse.tools.approved_scripts import ScriptRuns
from skillhouse.tools.call import PermissionRequest, RefusedError
from skillhouse.tools.command_inputs import CommandInputs, inputs_of_line, inputs_of_plan
from skillhouse.tools.command_protection import Writes
from skillhouse.tools.command_requests import (
    line_needs,
    shell_need,
    uncovered,
    uncovered_need,
)
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session

_SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWork:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecContext:
    """By what one call is judged."""

    rules: LayerRules
    session: Session
    paths: PathRules
    places: PathPolicy
    tools: Toolset
    programs: tuple[str, ...]
    """Programs of the workspace that are named by paths, by absolute paths."""
    given: tuple[str, Sequence[str] | None]
    """The line, or the program with its arguments, without a shell around it."""


def inputs_of_work(
    work: CommandWork, verdict: CommandVerdict, line: str, root: str
) -> CommandInputs:
    if verdict.structure is None:
        return inputs_of_line(line, root)
    asked = (need.permission for need in work.needs)
    written = (p.resource for p in asked if p.action == "write")
    return inputs_of_plan(verdict.structure, root, written=written)


def remarks_of(verdict: CommandVerdict) -> tuple[tuple[str, str], ...]:
    """Return what the judge says of a command."""
    return tuple(("judge", reason) for reason in verdict.reasons)


def work_of_plan(
    structure: CommandPlan,
    verdict: CommandVerdict,
    needs: tuple[PermissionRequest, ...],
    *,
    writes: Writes,
    scripts: ScriptRuns,
    left: int,
) -> CommandWork:
    """Return what a line comes to that our own runner runs, or the one plain program of it."""
    plain = structure.plain()
    if plain is not None and "/" in plain[0]:
        # The launcher starts programs of the system only.
        plain = None
    facts: tuple[tuple[str, str], ...] = ()
    if plain is None:
        plan_digest = digest(encode(structure.value()))
        facts = (("plan", plan_text(structure)), ("plan digest", plan_digest))
    is_odd = plain is None or any(command.scrutiny for command in verdict.commands)
    return CommandWork(
        needs=needs,
        argv=plan_argv(structure.value()) if plain is None else plain,
        programs=tuple(command.argv for command in structure.commands()),
        facts=facts,
        remarks=remarks_of(verdict) if is_odd else (),
        writes=writes,
        scripts=scripts,
        is_planned=plain is None,
        left=left,
    )


def work_of_shell(
    line: str,
    verdict: CommandVerdict,
    paths: PathRules,
    session: Session,
    root: str,
    *,
    listed: tuple[str, ...] | Literal["any"],
) -> CommandWork:
    """Return what a line comes to that only a shell can run."""
    shell = (_system_shell(), "-c", line)
    named = tuple(dict.fromkeys(line_needs(line, paths, session, root)))
    left = uncovered(None, paths, root)
    return CommandWork(
        needs=(shell_need(line, verdict, listed), *named, *uncovered_need(left)),
        argv=shell,
        programs=(shell,),
        remarks=remarks_of(verdict),
        left=left,
    )


def _system_shell() -> str:
    """Return the shell that the judge's grammar is of, or the one that is there."""
    return "bash" if shutil.which("bash", path=_SHELL_PATH) else "sh"


def traits_of(work: CommandWork, done: Completed) -> Mapping[str, str | int]:
    # A program that was there to be run is no content.
    traits: dict[str, str | int] = {} if work.is_planned else {PROGRAM: work.argv[0]}
    return traits if done.exit_code is None else {**traits, EXIT_CODE: done.exit_code}


def tools_now(
    finder: ToolFinder | None, planned: Toolset, root: Path, programs: Sequence[str]
) -> Toolset:
    """Return the tools for a run, with those of environments whose programs it names.

    Raises:
        RefusedError: names would mean other programs than those that were judged.
    """
    if finder is None:
        return planned
    now = finder.find(root, programs)
    if (now.path, now.pinned) != (planned.path, planned.pinned):
        message = "the directories of programs have changed meanwhile; try again"
        raise RefusedError(f"nothing was done: {message}")
    return now


def is_for_the_gate(verdict: CommandVerdict, layers: Sequence[Layer]) -> bool:
    """Whether a rule denies a command as written, so that the record names the rule."""
    return verdict.structure is not None and any(
        decide(
            layers,
            Permission(action="exec", resource=command_resource(judged.argv), argv=judged.argv),
        ).effect
        is Effect.DENY
        for judged in verdict.commands
    )

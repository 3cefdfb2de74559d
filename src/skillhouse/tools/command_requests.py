"""What a planned command comes to: its permission requests, and by what they are judged.

There is one request for each thing that a command does, and for the paths that it reads and writes,
as far as its program's table or its words say.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from skillhouse.floor import digest, encode
from skillhouse.floor.errors import first_of
from skillhouse.floor.structs import replace
from skillhouse.floor.tracing import EXIT_CODE, PROGRAM
from skillhouse.permission import (
    Breadth,
    CommandPlan,
    CommandVerdict,
    Effect,
    JudgedCommand,
    Layer,
    LayerRules,
    Permission,
    SimpleCommand,
    command_resource,
    decide,
    git_paths,
    loads_code,
    may_start,
    plan_text,
    read_command,
    standing_bond,
    unwrapped,
)
from skillhouse.sandbox import (
    Completed,
    OpenedProtection,
    find_git_contents,
    plan_argv,
)
from skillhouse.tools.approved_scripts import ScriptRuns
from skillhouse.tools.call import PermissionRequest
from skillhouse.tools.command_inputs import (
    BETWEEN_WORDS,
    CommandInputs,
    candidates,
    inputs_of_line,
    inputs_of_plan,
)
from skillhouse.tools.command_protection import Writes, is_of_file, redirection_needs
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

_SHELL_PATH = "/usr/local/bin:/usr/bin:/bin"


def needs_of(
    plan: CommandPlan,
    verdict: CommandVerdict,
    rules: LayerRules,
    workspace: Workspace,
    session: Session,
    paths: PathRules,
    *,
    listed: tuple[str, ...] | Literal["any"] = "any",
) -> tuple[PermissionRequest, ...]:
    """Return the needs of a plan: its commands, what is odd about it, and its files.

    Args:
        listed: The programs that are asked about where no rule names them; "any" is all.

    Raises:
        RefusedError: a redirection leads to what no tool may touch.
    """
    needs: list[PermissionRequest] = []
    for judged in verdict.commands:
        needs += _command_needs(judged, rules, listed)
    line = "; ".join(command_resource(command.argv) for command in plan.commands())
    covers = [rules.rule(judged.argv).cover for judged in verdict.commands]
    if _may_start_denied(plan, rules) or any(cover is not Breadth.ALL for cover in covers):
        # Whoever allows any command whatever has allowed `env NAME=value command` too, but not
        # what a rule denies in a variable whose value no rule is asked about.
        needs += [_remark(line, concern) for concern in verdict.concerns]
    needs += [_remark(line, concern) for concern in verdict.fenced]
    redirects = [r for command in plan.commands() for r in command.redirects]
    needs += redirection_needs(redirects, workspace, session)
    named = [rules.rule(c.argv).cover is Breadth.EXACT for c in plan.commands()]
    needs += path_needs(plan, paths, session, str(workspace.root), named)
    for redirect in filter(is_of_file, redirects):
        if redirect.kind != "read":
            paths.note_written(redirect.target)
        else:
            needs += paths.reading(redirect.target, session, is_named=False)
    # The same need twice is one question.
    return tuple(dict.fromkeys(needs))


def _may_start_denied(plan: CommandPlan, rules: LayerRules) -> bool:
    variables = (pair for command in plan.commands() for pair in command.environment)
    return rules.has_denials and any(may_start(*pair) for pair in variables)


def uncovered(
    plan: CommandPlan | None,
    paths: PathRules,
    root: str,
    opened: OpenedProtection = OpenedProtection(),  # noqa: B008
) -> int:
    """Return how many paths a command may read or write because they are not covered, at least.

    None of what a program's table says is among them: its paths are needs of their own.
    """
    is_known = plan is not None and not (
        any(loads_code(command.argv) for command in plan.commands()) or sees_contents(plan, root)
    )
    return 0 if is_known else paths.coverage(opened).left


def uncovered_need(left: int) -> tuple[PermissionRequest, ...]:
    """Return the request of running a command that some paths are not covered from."""
    return (_once(f"{left} paths", f"{left} paths not covered"),) if left else ()


def shell_need(
    line: str, verdict: CommandVerdict, listed: tuple[str, ...] | Literal["any"] = "any"
) -> PermissionRequest:
    """Return the request of a line that only a shell can run: an approval of it holds once."""
    return PermissionRequest(
        permission=Permission(action="shell", resource=line),
        default=Effect.ASK if listed == "any" else Effect.DENY,
        why=verdict.reasons[0],
    )


def _command_needs(
    judged: JudgedCommand, rules: LayerRules, listed: tuple[str, ...] | Literal["any"]
) -> list[PermissionRequest]:
    resource = command_resource(judged.argv)
    default = Effect.ASK if judged.needs_rule else Effect.ALLOW
    why = "no rule matches; commands ask by default"
    if judged.needs_rule and listed != "any" and judged.argv[0] not in listed:
        # A name alone is on the list: `./curl` is another program (S000-54).
        default = Effect.DENY
        why = f"`{judged.argv[0][:80]}` is not on the list of commands, and no rule names it"
    needs = [
        PermissionRequest(
            permission=Permission(action="exec", resource=resource, argv=judged.argv),
            default=default,
            why=why,
            argv=judged.argv,
        )
    ]
    # A rule allows the words, but they mean more than it can have meant.
    is_allowed = rules.rule(judged.argv).cover is not Breadth.NONE
    if judged.effect is Effect.ASK and judged.scrutiny and is_allowed:
        remark = _remark(resource, judged.reason)
        needs.append(replace(remark, argv=judged.argv if standing_bond(judged.argv) else ()))
    return needs


def _remark(resource: str, why: str) -> PermissionRequest:
    return replace(_once(resource, why), is_remark=True)


def _once(resource: str, why: str) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action="exec-once", resource=resource), default=Effect.ASK, why=why
    )


EXPANDED_MAX = 1_000
"""Names that the patterns of a command are replaced by; of more the rest is covered only."""
_MOVES = ("mv", "rm", "rmdir", "chmod")
"""Programs that change what is below a directory; a mount could not be moved with it."""
_CONTENTS = frozenset({"grep", "egrep", "fgrep", "rg", "diff", "cp", "git"})
"""Programs of the tables that give the content of what is below a directory."""
SHOWN_MAX = 8
"""Files of the history that are asked about one by one."""
_WITH_PATHS = frozenset({"show", "log", "whatchanged", "diff", "grep", "archive", "format-patch"})
"""Words of git that take what is left out (gitglossary(7), pathspec)."""
_GIT_WRITES = frozenset({"checkout", "restore", "mv", "rm", "apply", "switch"})


def path_needs(
    plan: CommandPlan, rules: PathRules, session: Session, root: str, named: Sequence[bool]
) -> Iterator[PermissionRequest]:
    """Yield what the commands of a plan need beyond the rules about commands.

    `named` says of each command whether a rule names all its words.

    Raises:
        RefusedError: one of them reads a skill that is kept from view.
    """
    directory = os.path.join(root, plan.directory)
    for command, is_named in zip(plan.commands(), named, strict=True):
        reads, writes = _paths(command, directory, rules)
        for path in dict.fromkeys(reads):
            yield from rules.reading(path, session, is_named=is_named)
        if not is_named:
            # What the words name has been asked about by itself.
            yield from _history_needs(command, directory, rules, session, named={*reads})
        for path in dict.fromkeys(writes):
            yield from rules.writing(path)
        argv = unwrapped(command.argv) or command.argv
        if argv[0] in _MOVES:
            yield from _below(rules, (p for p in writes if os.path.isdir(p)))


def paths_read(
    plan: CommandPlan, rules: PathRules, root: str, *, programs: Container[str]
) -> tuple[str, ...]:
    """Return the real paths that are read by those commands of a plan which are of some programs
    and do nothing else with what they name."""
    directory = os.path.join(root, plan.directory)
    argvs = ((command, unwrapped(command.argv) or command.argv) for command in plan.commands())
    quiet = (
        command
        for command, argv in argvs
        if os.path.basename(argv[0]) in programs and read_command(argv).is_quiet
    )
    found = (path for command in quiet for path in _paths(command, directory, rules)[0])
    return tuple(dict.fromkeys(found))


def _history_needs(
    command: SimpleCommand, directory: str, rules: PathRules, session: Session, named: set[str]
) -> Iterator[PermissionRequest]:
    """Yield what a git command needs for the content that it gives of the history."""
    argv = unwrapped(command.argv) or command.argv
    if os.path.basename(argv[0]) != "git":
        return
    place = Path(directory)
    look = partial(find_git_contents, argv, place)
    found = session.once(("git history", argv, place), look)
    paths = (path for path in found.names if path not in named)
    needs = [need for path in paths if (need := rules.printing(path))]
    line = command_resource(tuple(argv))
    why = _history_reason(argv, [rules.relative(n.permission.resource) for n in needs])
    yield from (replace(need, why=why) for need in needs[:SHOWN_MAX])
    if needs[SHOWN_MAX:]:
        yield _once(line, why)
    if not found.is_known:
        said = "gives what the history has of files, and was not found out of which: name commits"
        yield _once(line, f"`{line[:80]}` {said} and paths")


def _history_reason(argv: Sequence[str], names: Sequence[str]) -> str:
    shown = first_of([f"`{name[:80]}`" for name in names], SHOWN_MAX)
    said = f"it gives what the history has of {shown}, which commands cannot read"
    if _WITH_PATHS.isdisjoint(argv) or names[SHOWN_MAX:]:
        return said
    left_out = " ".join(f"':(exclude){name[:80]}'" for name in names)
    return f"{said}; `-- . {left_out}` leaves that out"


def line_needs(
    line: str, rules: PathRules, session: Session, root: str
) -> Iterator[PermissionRequest]:
    """Yield what a line that only a shell can run needs by the paths that it names.

    Raises:
        RefusedError: it names a skill that is kept from view.
    """
    for path in dict.fromkeys(_special(BETWEEN_WORDS.split(line), root, rules)):
        yield from rules.reading(path, session, is_named=False)


def sees_contents(plan: CommandPlan, root: str) -> bool:
    """Whether a command of a plan gives the content of files below a directory."""
    directory = os.path.join(root, plan.directory)
    for command in plan.commands():
        argv = unwrapped(command.argv) or command.argv
        words = [os.path.join(directory, word) for word in argv[1:]]
        if argv[0] in _CONTENTS and (
            any(map(os.path.isdir, words)) or not any(map(os.path.isfile, words))
        ):
            return True
    return False


def _paths(command: SimpleCommand, directory: str, rules: PathRules) -> tuple[list[str], list[str]]:
    argv = unwrapped(command.argv)
    skipped = 0 if argv is None else len(command.argv) - len(argv)
    argv = argv or command.argv
    name, arguments = os.path.basename(argv[0]), argv[1:]
    meaning = read_command(argv)
    at_once = dict(command.patterns)

    def expanded(places: Iterable[int]) -> Iterator[str]:
        for place in places:
            pattern = at_once.get(place + skipped)
            names = glob.iglob(pattern, root_dir=directory) if pattern else iter(())
            words = sorted(word for word, _ in zip(names, range(EXPANDED_MAX), strict=False))
            yield from words or (argv[place],)

    if name == "git":
        named = [w for word in git_paths(arguments) for w in _of_git(word, directory)]
        return named, named if arguments[:1] and _GIT_WRITES & set(arguments[:3]) else []
    if not meaning.is_quiet:
        words = list(expanded(range(1, len(argv))))
        return list(_special(words, directory, rules)), []
    directory = os.path.join(directory, *meaning.directory)
    # An option's value may be a path as well.
    values = _special(meaning.values, directory, rules)
    read = [*expanded(meaning.reads), *meaning.read_values]
    reads = [_real(word, directory) for word in read if word != "-"]
    written = [*expanded(meaning.writes), *meaning.written_values]
    writes = [_real(word, directory, follow=name != "rm") for word in written]
    if name == "mv":
        reads += writes[:-1]
    if name in ("mv", "cp") and writes and os.path.isdir(writes[-1]):
        sources = reads if name == "cp" else writes[:-1]
        writes += [os.path.join(writes[-1], os.path.basename(source)) for source in sources]
    return [*reads, *values], writes


def _of_git(word: str, directory: str) -> Iterator[str]:
    """Yield where a path of a repository is: below its top, or below where git runs."""
    yield _real(word, directory)
    top = directory
    while top != "/" and not os.path.lexists(f"{top}/.git"):
        top = os.path.dirname(top)
    if top not in ("/", directory):
        yield _real(word, top)


def _special(words: Iterable[str], directory: str, rules: PathRules) -> Iterator[str]:
    """Yield the paths that words may name, of those that are not read as a matter of course."""
    for word in words:
        for candidate in candidates(word):
            if candidate and "\0" not in candidate:
                path = _real(candidate, directory)
                if rules.is_special(path):
                    yield path


def _real(word: str, directory: str, *, follow: bool = True) -> str:
    path = os.path.join(directory, word)
    if follow:
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _below(rules: PathRules, directories: Iterable[str]) -> Iterator[PermissionRequest]:
    for directory in directories:
        yield from rules.refused_below(directory)


class CommandWork(Struct, frozen=True, kw_only=True):
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
    uncovered_count: int = 0
    """Paths that the sandbox does not cover; 0 where that does not matter."""


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
    uncovered_count: int,
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
        uncovered_count=uncovered_count,
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
        uncovered_count=left,
    )


def _system_shell() -> str:
    """Return the shell that the judge's grammar is of, or the one that is there."""
    return "bash" if shutil.which("bash", path=_SHELL_PATH) else "sh"


def span_attributes_of(work: CommandWork, done: Completed) -> Mapping[str, str | int]:
    """Return what telemetry may say of a run: the program's name and its exit code."""
    # A program that was there to be run is no content.
    found: dict[str, str | int] = {} if work.is_planned else {PROGRAM: work.argv[0]}
    return found if done.exit_code is None else {**found, EXIT_CODE: done.exit_code}


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

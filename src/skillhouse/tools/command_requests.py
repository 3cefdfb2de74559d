"""What a judged command line needs before it may run: one need for each thing that it does."""

from __future__ import annotations

from skillhouse.permission import (
    Breadth,
    CommandPlan,
    CommandVerdict,
    Effect,
    JudgedCommand,
    LayerRules,
    Permission,
    Redirect,
    command_resource,
    loads_code,
)
from skillhouse.sandbox import Opened
from skillhouse.tools.command_paths import path_needs, sees_contents
from skillhouse.tools.files import read_need, write_need
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.permission_request import PermissionRequest
from skillhouse.tools.session import Session
from skillhouse.tools.workspace import Workspace


def needs_of(
    plan: CommandPlan,
    verdict: CommandVerdict,
    rules: LayerRules,
    workspace: Workspace,
    session: Session,
    paths: PathRules,
) -> tuple[PermissionRequest, ...]:
    """Return the needs of a plan: its commands, what is odd about it, and its files.

    Raises:
        RefusedError: a redirection leads to what no tool may touch.
    """
    needs: list[PermissionRequest] = []
    for judged in verdict.commands:
        needs += _command_needs(judged, rules)
    line = "; ".join(command_resource(found.argv) for found in plan.commands())
    covers = [rules.rule(judged.argv).cover for judged in verdict.commands]
    if any(cover is not Breadth.ALL for cover in covers):
        # Whoever allows any command whatever has allowed `env NAME=value command` too.
        needs += [_once(line, concern) for concern in verdict.concerns]
    redirects = [r for command in plan.commands() for r in command.redirects if _is_file(r)]
    written = {found.target for found in redirects if found.kind != "read"}
    for found in redirects:
        if found.kind != "read":
            needs.append(write_need(workspace, workspace.writable(found.target, session)))
        elif found.target not in written:
            needs.append(read_need("read", workspace.file(found.target, session)))
    named = [rules.rule(c.argv).cover is Breadth.EXACT for c in plan.commands()]
    needs += path_needs(plan, paths, session, str(workspace.root), named)
    for found in redirects:
        if found.kind != "read":
            paths.note_written(found.target)
        else:
            needs += paths.reading(found.target, session, is_named=False)
    # The same need twice is one question.
    return tuple(dict.fromkeys(needs))


def uncovered(
    plan: CommandPlan | None,
    paths: PathRules,
    root: str,
    opened: Opened = Opened(),  # noqa: B008
) -> int:
    """Return how many paths a command may read or write because they are not covered, at least.

    None of what a program's table says is among them: its paths are needs of their own.
    """
    is_known = plan is not None and not (
        any(loads_code(command.argv) for command in plan.commands()) or sees_contents(plan, root)
    )
    return 0 if is_known else paths.coverage(opened).left


def uncovered_need(left: int) -> tuple[PermissionRequest, ...]:
    """Return the need of running a command that some paths are not covered from."""
    return (_once(f"{left} paths", f"{left} paths not covered"),) if left else ()


def shell_need(line: str, verdict: CommandVerdict) -> PermissionRequest:
    """Return the need of a line that only a shell can run: a yes that holds once."""
    return PermissionRequest(
        permission=Permission(action="shell", resource=line),
        default=Effect.ASK,
        why=verdict.reasons[0],
    )


def _command_needs(judged: JudgedCommand, rules: LayerRules) -> list[PermissionRequest]:
    resource = command_resource(judged.argv)
    needs = [
        PermissionRequest(
            permission=Permission(action="exec", resource=resource),
            default=Effect.ASK,
            why="no rule speaks, and commands are asked about",
            argv=judged.argv,
        )
    ]
    # A rule allows the words, but they mean more than it can have meant.
    is_allowed = rules.rule(judged.argv).cover is not Breadth.NONE
    if judged.effect is Effect.ASK and judged.scrutiny and is_allowed:
        needs.append(_once(resource, judged.reason))
    return needs


def _once(resource: str, why: str) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action="exec-once", resource=resource), default=Effect.ASK, why=why
    )


def _is_file(found: Redirect) -> bool:
    return found.kind in ("read", "write", "append") and not found.target.startswith("/dev/")

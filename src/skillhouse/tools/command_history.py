"""What a command line needs to give the content that the history of a repository has of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from skillhouse.permission import CommandPlan, Effect, Permission, command_resource, unwrapped
from skillhouse.sandbox import find_git_contents
from skillhouse.tools.call import PermissionRequest
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session

SHOWN_MAX = 8
"""Files that are asked about one by one."""
_WITH_PATHS = frozenset({"show", "log", "whatchanged", "diff", "grep", "archive", "format-patch"})
"""Words of git that take what is left out (gitglossary(7), pathspec)."""


def history_needs(
    plan: CommandPlan, rules: PathRules, session: Session, root: str, named: Sequence[bool]
) -> Iterator[PermissionRequest]:
    """Yield what the git commands of a plan need for what they give of the history.

    Args:
        named: Of each command, whether a rule names all its words.
    """
    directory = Path(os.path.join(root, plan.directory))
    for command, is_named in zip(plan.commands(), named, strict=True):
        argv = unwrapped(command.argv) or command.argv
        if os.path.basename(argv[0]) != "git":
            continue
        key = ("git history", argv, directory)
        found = session.once(key, partial(find_git_contents, argv, directory))
        needs = [need for path in found.names if (need := rules.printing(path, is_named=is_named))]
        why = _why(argv, [need.permission.resource for need in needs], root)
        yield from (replace(need, why=why) for need in needs[:SHOWN_MAX])
        if needs[SHOWN_MAX:]:
            yield _once(argv, why)
        if not found.is_known and not is_named:
            line = command_resource(tuple(argv))[:80]
            why = (
                f"`{line}` gives what the history has of files, maybe of secrets: it was not found"
            )
            yield _once(argv, f"{why} out of which; name commits and paths")


def _why(argv: Sequence[str], paths: Sequence[str], root: str) -> str:
    names = [path.removeprefix(f"{root}/") for path in paths[:SHOWN_MAX]]
    more = f" and {len(paths) - SHOWN_MAX} more" if paths[SHOWN_MAX:] else ""
    shown = ", ".join(f"`{name[:80]}`" for name in names)
    said = f"it gives what the history has of {shown}{more}, which commands cannot read"
    if _WITH_PATHS.isdisjoint(argv) or more:
        return said
    left_out = " ".join(f"':(exclude){name[:80]}'" for name in names)
    return f"{said}; `-- . {left_out}` leaves that out"


def _once(argv: Sequence[str], why: str) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action="exec-once", resource=command_resource(tuple(argv))),
        default=Effect.ASK,
        why=why,
    )

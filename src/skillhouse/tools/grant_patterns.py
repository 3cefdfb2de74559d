"""What a standing approval of a call would allow: no more than the question shows."""

from __future__ import annotations

import os
from collections.abc import Sequence

from skillhouse import permission
from skillhouse.approval import NEVER_LASTING, Pattern
from skillhouse.floor.secret_names import is_secret
from skillhouse.tools.call import UNBOUND, PermissionRequest


def standing_patterns(
    needs: Sequence[PermissionRequest], workspace_root: str
) -> tuple[Pattern, ...]:
    """Return what a standing approval would allow; nothing if it cannot cover the whole call."""
    patterns: list[Pattern] = []
    for need in needs:
        pattern = standing_pattern(need, workspace_root)
        lasts = need.may_last and need.effective_level != "sign"
        if not pattern or not lasts or need.skill_digest == UNBOUND:
            return ()
        patterns.append(
            Pattern(action=lasting_action(need), pattern=pattern, skill_digest=need.skill_digest)
        )
    return tuple(dict.fromkeys(patterns))


def lasting_action(need: PermissionRequest) -> str:
    """Return the action of the rule that would answer a request from then on.

    What is remarked of a command's words is not, once a rule names all of them.
    """
    return "exec" if need.is_remark and need.argv else need.permission.action


def standing_pattern(need: PermissionRequest, workspace_root: str) -> str:
    """Return the pattern of a standing approval, or "" where there is none.

    A file that is written below a directory of the workspace is covered with the files next to
    it, and any other file alone: the top of the workspace is never covered, and what is read has
    no others with it, since there may be secrets among them.
    """
    action, resource = lasting_action(need), need.permission.resource
    if not resource or action in NEVER_LASTING or "*" in resource or "?" in resource:
        return ""
    if action == "exec":
        return permission.standing_rule(need.argv)
    if action != "write":
        return resource
    directory, _, name = resource.rpartition("/")
    if not (name and directory.startswith(f"{workspace_root}/")):
        return resource
    if is_secret(os.path.relpath(resource, workspace_root)) or os.path.isdir(resource):
        return resource
    return f"{directory}/"

"""The paths that a patch in Codex's form changes (its `apply_patch` tool, and opencode's)."""

from __future__ import annotations

PATHS_MAX = 200
"""Files of one patch; a person cannot look at more."""
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_MARKS = ("*** Begin Patch", "*** End Patch", "*** End of File")


class PatchError(Exception):
    """A text is no such patch; the message says what was expected."""


def patched_paths(text: str) -> tuple[str, ...]:
    r"""Return every path that a patch adds, changes, removes or moves to, in its order.

    >>> patched_paths("*** Begin Patch\n*** Add File: a/b\n+text\n*** End Patch")
    ('a/b',)

    Raises:
        PatchError: it names no file, more than `PATHS_MAX`, or has a head that is not known.
    """
    found: dict[str, None] = {}
    for whole in text.split("\n"):
        # Codex passes over blanks before a head.
        line = whole.strip()
        head = next((one for one in _HEADS if line.startswith(one)), "")
        path = line.removeprefix(head).strip()
        if head and path:
            found[path] = None
        elif whole.startswith("***") and line not in _MARKS:
            raise PatchError(f"expected a head of a patch, got `{line[:80]}`")
    if not found or len(found) > PATHS_MAX:
        raise PatchError(f"expected a patch of 1 to {PATHS_MAX} files, got {len(found)}")
    return tuple(found)

"""One call of a coding agent's own tool: the files that it is about, and the tool by which the gate
decides about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.floor.structs import replace
from skillhouse.permission import unwrapped
from skillhouse.tools.approved_scripts import asked_scripts
from skillhouse.tools.call import ANY_OBJECT, WILL_NOT_WORK, AttachedRun, Output, Plan
from skillhouse.tools.command_inputs import CommandInputs
from skillhouse.tools.tool import Session, Tool

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript

PATHS_MAX = 200
"""Files of one patch; a person cannot look at more."""
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_MARKS = ("*** Begin Patch", "*** End Patch", "*** End of File")


def is_searched(file: str, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a search may look into a file: where a pattern may name it, or, without one, where no
    `.gitignore` of the top, by which clients go, certainly leaves it out."""
    relative = os.path.relpath(file, root)
    name = os.path.basename(file)
    if patterns:
        # What is read in several ways (braces, negations, sets) counts as naming it.
        return any(
            set(one) & set("{}![]")
            or fnmatch(name, one.rpartition("/")[2])
            or fnmatch(relative, one)
            for one in patterns
        )
    try:
        lines = Path(root, ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    is_repository = os.path.exists(os.path.join(root, ".git"))
    plain = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not is_repository or any(line.startswith("!") for line in plain):
        return True
    return not any("/" not in line and fnmatch(name, line) for line in plain)


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


def trees(argv: tuple[str, ...], directory: str) -> list[str]:
    """Return the real paths of the directories of which a command gives everything."""
    argv = unwrapped(argv) or argv
    name, words = os.path.basename(argv[0]), argv[1:]
    real = (os.path.realpath(os.path.join(directory, word)) for word in words)
    places = [path for path in real if os.path.isdir(path)]
    if name in ("diff", "cp"):
        return places
    is_recursive = any(
        word.startswith(("--rec", "--deref", "--dir"))
        or (word[:1] == "-" and word[1:2] != "-" and not {*"rRd"}.isdisjoint(word))
        for word in words
    )
    is_grep = name in ("grep", "egrep", "fgrep")
    return (places or [os.path.realpath(directory)]) if is_grep and is_recursive else []


class NativeCall(Struct, frozen=True, kw_only=True):
    """What a client's data file makes of one call: which kind it is, and where its values are."""

    kind: str
    """exec, read, search, grep, write, edit, patch, fetch, skill, mcp, or record for any other."""
    resource: str = ""
    """Of `mcp` SERVER/TOOL, of `record` the name of the tool."""
    skill_files: tuple[str, ...] | None = None
    """Of `skill`: the files that the client may load by that name; None where that is not known."""
    is_typed_into: bool = False
    """Of `exec`: whether the model can type into the command while it runs, which is not judged."""
    runs_text: bool = False
    """Of `skill`: whether the client runs commands that the text of a skill holds."""
    others: tuple[str, ...] = ()
    """What the resource may be as well, where the client's name of the tool leaves that open: what
    a rule denies of these is denied."""
    may_act: bool = False
    """Of `record`: whether its arguments may hold what is run, reached or changed."""
    is_ours: bool = False
    """Whether our own server gets it, which asks by itself."""
    elsewhere: str = ""
    """Of `skill`: the file that the client may load by this name, where it is not that of ours."""
    directory: str
    """Where the client works at the moment, absolute."""
    values: Mapping[str, Any]
    """By role: command, path, paths, glob, pattern, content, old, new, all, edits, patch, url,
    name and text."""


class NativeTool(Tool):
    """One tool of a client: it is handed over, and what came of it is recorded later."""

    description = "A tool of a coding agent."
    schema = ANY_OBJECT

    def __init__(
        self,
        name: str,
        plan: Callable[[Session], Plan],
        *,
        asks_itself: bool = False,
        keep: Callable[[AttachedRun, CommandInputs | None], None] | None = None,
    ) -> None:
        """`asks_itself` says that the client asks its person where the answer is `ask`. `keep` gets
        what runs an allowed command in our sandbox, with what was approved of its files."""
        self.name = name
        self.asks_itself = asks_itself
        self.asked: tuple[ApprovedScript, ...] = ()
        """What the question about the latest plan is about, and an approval of it would keep."""
        self.loads: tuple[str, ...] = ()
        """The files of the skills that the latest plan loads."""
        self._plan = plan
        self._keep = keep

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        del arguments
        plan = self._plan(session)
        self.asked, self.loads = asked_scripts(plan), plan.loads
        if self._keep is not None and plan.attached is not None:
            return self._kept(plan, plan.attached, self._keep)
        # INVARIANT: nothing of ours runs, and what only our sandbox could not do is no fact here.
        return replace(
            plan,
            run=hand_over,
            run_with_progress=None,
            run_sealed=None,
            prepare=None,
            check_feasible=None,
            changes_workspace=False,
            runs_alone=False,
            facts=tuple(fact for fact in plan.facts if fact[0] != WILL_NOT_WORK),
        )

    def _kept(
        self,
        plan: Plan,
        attached: AttachedRun,
        keep: Callable[[AttachedRun, CommandInputs | None], None],
    ) -> Plan:
        """Return a plan that keeps the run for the client's process, which is to ask for it."""

        async def run(approved: CommandInputs | None = None, _: object = None) -> Output:
            keep(attached, approved)
            return await hand_over()

        return replace(
            plan,
            run=run,
            run_with_progress=None,
            run_sealed=run if plan.run_sealed else None,
            prepare=None,
            changes_workspace=False,
            runs_alone=False,
        )


async def hand_over() -> Output:
    return Output(text="", is_handed_over=True)

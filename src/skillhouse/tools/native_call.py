"""One call of a coding agent's own tool, and the tool by which the gate decides about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.floor.structs import replace
from skillhouse.tools.approved_scripts import asked_scripts
from skillhouse.tools.call import ANY_OBJECT, WILL_NOT_WORK, AttachedRun, Output, Plan
from skillhouse.tools.command_inputs import CommandInputs
from skillhouse.tools.tool import Session, Tool

if TYPE_CHECKING:
    from skillhouse.approval import ApprovedScript


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
    is_sandboxed: bool = False
    """Of `exec`: whether our sandbox runs the command."""
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
    search_path: str = ""
    """Of `exec`: the PATH by which the client's shell finds programs; empty where not known."""
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

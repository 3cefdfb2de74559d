"""Loads the code of skills without calling it; installs its packages ahead of the first call."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from skillhouse.approval import OWNER
from skillhouse.floor import ConfigError, as_error, tree_digest
from skillhouse.floor.threads import in_thread
from skillhouse.house.code_manifests import Lacking, failed_load
from skillhouse.house.house import Skillhouse
from skillhouse.permission import Effect
from skillhouse.sandbox import SandboxError, SandboxUnavailableError
from skillhouse.tools import CodeSkill, SkillCodeTool, cell_of

LOADS_PER_PROCESSOR = 2
"""Loads at one time: half of one is waiting, for a cell to start and to end."""
LOADS_MAX = 16
"""Fewer than there may be cells, so that calls find room beside them."""

AT_FIRST_CALL = "left to its first call"
"""Why code was not loaded of which a list of tools has no room for the tools."""

Progress = Callable[[int, int], None]
"""Receives the number of skills that are done, and of all."""


class LoadedCode(Struct, frozen=True, kw_only=True):
    """What came of loading one skill's code."""

    skill: str
    directory: Path
    tools: tuple[str, ...] = ()
    """Full names of those that are declared; also exported, where the code was loaded."""
    lacking: Lacking | None = None
    """What is declared and not exported, or why it failed. None where the code was not loaded."""
    error: str = ""
    """Why the code cannot be used at all."""
    untried: str = ""
    """Why the code was not run: rules ask about it or deny it, or it is left to its first call."""
    steps: tuple[str, ...] = ()
    """What was done with it here, in its order."""


class Reloaded(Struct, frozen=True, kw_only=True):
    """What came of a reload."""

    loaded: tuple[LoadedCode, ...]
    steps: tuple[tuple[Path, str], ...]
    """What was done with which directory, in its order (S002-52)."""


async def reload_code(
    house: Skillhouse, *, agent: str, progress: Progress | None = None
) -> Reloaded:
    """Reload every manifest and load each skill's code, in all processes of this state.

    Code runs where rules, standing approvals and defaults let the agent call one of its tools, as
    if that only read. Of other code it is said what an earlier call of the same bytes met. Code
    whose tools have no room in a list is loaded at its first call, unless it was before. Other
    processes reload before their next call; running calls finish with the code that they began
    with. Cancelling ends what is being loaded; what was loaded is then not remembered.

    Raises:
        SandboxUnavailableError: no code runs on this machine.
        SandboxError: "stopped", before or meanwhile.
        OSError: the state directory cannot be written, so other processes get no signal.
    """
    code = house.services.skill_code
    known = code.reloads.lacking()
    if code.is_enabled:
        await in_thread(code.reloads.signal_all)
    code.manifests.clear()
    house.refresh()
    await code.reload()
    every = house.tools(agent=agent, every=True)
    tools = [tool for tool in every if isinstance(tool, SkillCodeTool)]
    later = house.view(agent).deferred
    loaded: tuple[LoadedCode, ...] = ()
    gate = house.services.enforcement.tier_gate
    await gate.forget_lifted()
    with gate.running() as running:
        if not running.stopped():
            loaded = await load_code(
                house,
                tools,
                agent=agent,
                known=known,
                progress=progress,
                later=frozenset(later.skills) if later else frozenset(),
            )
    if running.is_ended:
        raise SandboxError("stopped", f"everything is stopped: {running.stopped()}")
    steps = tuple(code.steps)
    lacking = {one.directory: one.lacking for one in loaded if one.lacking is not None}
    if lacking:
        await in_thread(lambda: code.reloads.note(lacking))
    if any(one.tools for one in lacking.values()):
        house.refresh()
    # This process has reloaded already.
    code.reloads.is_new()
    return Reloaded(loaded=loaded, steps=steps)


async def load_code(
    house: Skillhouse,
    tools: Iterable[SkillCodeTool],
    *,
    agent: str,
    known: Callable[[Path], Lacking | None] = lambda _: None,
    progress: Progress | None = None,
    later: Collection[Path] = frozenset(),
) -> tuple[LoadedCode, ...]:
    """Load each skill's code in a cell without host calls, several at once, in their order.

    Failures are in the results; `known` has earlier ones. Of skills in the directories of `later`
    only code that was loaded before is loaded, since it may be other code now.

    Raises:
        SandboxUnavailableError: no code runs on this machine.
    """
    code = house.services.skill_code
    skills: dict[str, list[SkillCodeTool]] = {}
    for tool in tools:
        skills.setdefault(tool.skill.manifest.name, []).append(tool)
    found: dict[str, LoadedCode] = {}
    failures: list[Exception] = []
    waiting = iter(skills.items())

    async def work() -> None:
        for name, own in waiting:
            try:
                if (directory := own[0].skill.directory) in later and known(directory) is None:
                    declared = tuple(tool.full_name for tool in own)
                    found[name] = _found(own[0].skill, declared, None, untried=AT_FIRST_CALL)
                else:
                    found[name] = await _loaded(house, own, agent, known)
            except Exception as error:  # noqa: BLE001 - raised below, by itself and not in a group.
                failures.append(error)
                tasks.cancel_scope.cancel()
                return
            if progress is not None:
                progress(len(found), len(skills))

    async with anyio.create_task_group() as tasks:
        for _ in range(min(at_once(), len(skills))):
            tasks.start_soon(work)
    if failures:
        raise failures[0]
    ordered = tuple(found[name] for name in skills)
    for one in ordered:
        for step in one.steps:
            code.take_step(one.directory, step)
    return ordered


def at_once() -> int:
    is_known = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if is_known else os.cpu_count() or 1
    return min(LOADS_PER_PROCESSOR * processors, LOADS_MAX)


async def _loaded(
    house: Skillhouse,
    tools: Sequence[SkillCodeTool],
    agent: str,
    known: Callable[[Path], Lacking | None],
) -> LoadedCode:
    code, skill = house.services.skill_code, tools[0].skill
    name, directory = skill.manifest.name, skill.directory
    declared = tuple(tool.full_name for tool in tools)
    is_alone = not (skill.shared or skill.manifest.dependencies or code.is_elsewhere)
    earlier = known(directory)
    try:
        digest = tree_digest(directory)
        untried = why_untried(house, tools, digest, agent)
        is_known = earlier is not None and earlier.digest == digest
        if untried:
            lacking = earlier if earlier is not None and is_known else None
            return _found(skill, declared, lacking, untried=untried)
        if is_alone and earlier is not None and earlier == Lacking(digest=digest, tools=()):
            # These very bytes were loaded before, and nothing else decides what they export.
            return _found(skill, declared, earlier, steps=("unchanged since it was imported",))
        runner = await code.runner(digest, skill.manifest.language)
        python, packages = code.python(skill), await code.packages(skill)
        cell = cell_of(skill, digest, packages=packages, agent=agent, user=OWNER, python=python)
        exported = await runner.tool_names(cell)
    except SandboxUnavailableError:
        # One answer for all of them.
        raise
    except SandboxError as error:
        failed = failed_load(digest, error.code, str(error))
        return LoadedCode(skill=name, directory=directory, error=str(error), lacking=failed)
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        return LoadedCode(skill=name, directory=directory, error=str(as_error(error)))
    full = {f"{name}:{tool}" for tool in exported}
    missing = tuple(tool.rpartition(":")[2] for tool in declared if tool not in full)
    # The cell imports the module and refuses one without `tools`.
    steps = ("imported", "exports checked", "registered")
    return _found(skill, declared, Lacking(digest=digest, tools=missing), steps=steps)


def why_untried(house: Skillhouse, tools: Iterable[SkillCodeTool], digest: str, agent: str) -> str:
    """Return why the code may not be imported without a question; "" where it may be.

    It may be where one of the tools may be called so, if that only read.
    """
    reasons = []
    for tool in tools:
        need = tool.need(digest, "read")
        forecast = house.forecast(tool.full_name, {}, need=need, agent=agent)
        if forecast.effect is Effect.ALLOW:
            return ""
        word = "denied" if forecast.effect is Effect.DENY else "asked about"
        reasons.append(word)
    return "asked about" if "asked about" in reasons else "denied"


def _found(
    skill: CodeSkill,
    declared: tuple[str, ...],
    lacking: Lacking | None,
    *,
    untried: str = "",
    steps: tuple[str, ...] = (),
) -> LoadedCode:
    gone = () if lacking is None else lacking.tools
    error = "" if lacking is None else lacking.error
    return LoadedCode(
        skill=skill.manifest.name,
        directory=skill.directory,
        tools=() if error else tuple(n for n in declared if n.rpartition(":")[2] not in gone),
        lacking=lacking,
        error=error,
        untried=untried,
        steps=steps,
    )


async def prepare_code(
    house: Skillhouse, skills: Collection[str], *, say: Callable[[str], None]
) -> tuple[tuple[str, str], ...]:
    """Return each of the skills whose packages could not be installed, with the reason.

    Nothing of a skill is run.

    Args:
        skills: SCOPE:NAME of each; what has no code, or none that runs here, needs none.
        say: Hears what is being installed, once for each skill.
    """
    house.refresh()
    code = house.services.skill_code
    own = {}
    for tool in house.tools():
        if isinstance(tool, SkillCodeTool):
            skill = tool.skill
            if f"{skill.scope}:{skill.directory.name}" in skills:
                own[skill.manifest.name] = skill
    failed: list[tuple[str, str]] = []
    for name, skill in own.items():
        said: set[str] = set()

        def hear(_: float, text: str, name: str = name, said: set[str] = said) -> None:
            if text not in said:
                said.add(text)
                say(f"{name}: {text}")

        try:
            # What compiles the packages is part of what is installed.
            await code.executor(skill.manifest.language)
            await code.packages(skill, say=hear)
        except (SandboxError, SandboxUnavailableError, ConfigError, OSError) as error:
            failed.append((name, str(error)))
    return tuple(failed)

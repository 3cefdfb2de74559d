"""Loads the code of skills without calling it, to say at once what cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.approval import OWNER
from skillhouse.floor import TreeError, tree_digest
from skillhouse.permission import Effect
from skillhouse.runtime.reloads import Lacking
from skillhouse.runtime.skill_code import SkillCode
from skillhouse.sandbox import RpcError, SandboxError, SandboxUnavailableError
from skillhouse.tools import CodeSkill, SkillCodeTool, cell_of

if TYPE_CHECKING:
    from skillhouse.runtime.house import Skillhouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of loading one skill's code."""

    skill: str
    directory: Path
    tools: tuple[str, ...] = ()
    """Full names of those that are declared; also exported, where the code was loaded."""
    lacking: Lacking | None = None
    """What is declared and not exported: it is not offered. None where the code was not loaded."""
    error: str = ""
    """Why the code cannot be used at all."""
    is_tried: bool = True
    """False: the code was not run, because somebody is asked before it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of a reload."""

    loaded: tuple[Loaded, ...]
    steps: tuple[tuple[Path, str], ...]
    """What was done with which directory, in its order (S002-52)."""


async def reload_code(house: Skillhouse, *, agent: str) -> Reloaded:
    """Read every manifest anew and load each skill's code, in all processes of the house.

    Those that run read anew before their next call; calls under way end with the code that they
    began with.

    Raises:
        SandboxUnavailableError: no code runs on this machine.
        OSError: nobody can be told, because the state directory cannot be written.
    """
    code = house.skill_code
    if code.is_enabled:
        code.reloads.tell_all()
    house.refresh()
    await code.reload()
    tools = [tool for tool in house.tools(agent=agent) if isinstance(tool, SkillCodeTool)]
    loaded = await load_code(tools, code, agent=agent)
    steps = tuple(code.steps)
    lacking = {one.directory: one.lacking for one in loaded if one.lacking is not None}
    if lacking:
        code.reloads.note(lacking)
    if any(one.tools for one in lacking.values()):
        house.refresh()
    # This process has done already what it told the others to do.
    code.reloads.is_new()
    return Reloaded(loaded=loaded, steps=steps)


async def load_code(
    tools: Iterable[SkillCodeTool], code: SkillCode, *, agent: str
) -> tuple[Loaded, ...]:
    """Load each skill's code in a cell, where it has nothing to ask and nobody to tell.

    Code of which even reads are asked about is not run. What fails is told by the result.

    Raises:
        SandboxUnavailableError: no code runs on this machine.
    """
    known = code.reloads.lacking()
    skills: dict[str, tuple[CodeSkill, list[str]]] = {}
    for tool in tools:
        name = tool.skill.manifest.name
        skills.setdefault(name, (tool.skill, []))[1].append(tool.full_name)
    return tuple(
        [
            await _loaded(skill, tuple(names), code, agent, known(skill.directory))
            for skill, names in skills.values()
        ]
    )


async def _loaded(
    skill: CodeSkill,
    declared: tuple[str, ...],
    code: SkillCode,
    agent: str,
    known: Lacking | None,
) -> Loaded:
    name, directory = skill.manifest.name, skill.directory
    is_alone = not (skill.shared or skill.manifest.dependencies or code.is_elsewhere)
    if skill.default is not Effect.ALLOW:
        return Loaded(skill=name, directory=directory, tools=declared, is_tried=False)
    try:
        digest = tree_digest(directory)
        whole = Lacking(digest=digest, tools=())
        if is_alone and known == whole:
            # These very bytes were loaded before, and nothing else decides what they export.
            code.take_step(directory, "unchanged since it was imported")
            return Loaded(skill=name, directory=directory, tools=declared, lacking=whole)
        runner = await code.runner(digest)
        packages = await code.packages(skill)
        cell = cell_of(skill, digest, packages=packages, agent=agent, user=OWNER)
        exported = await runner.tool_names(cell)
    except SandboxUnavailableError:
        # One answer for all of them.
        raise
    except (SandboxError, RpcError, TreeError, OSError) as error:
        return Loaded(skill=name, directory=directory, error=str(error))
    # The cell imports the module and refuses one without `tools`.
    code.take_step(directory, "imported")
    code.take_step(directory, "exports checked")
    full = {f"{name}:{tool}" for tool in exported}
    missing = tuple(tool.rpartition(":")[2] for tool in declared if tool not in full)
    code.take_step(directory, "registered")
    return Loaded(
        skill=name,
        directory=directory,
        tools=tuple(tool for tool in declared if tool in full),
        lacking=Lacking(digest=digest, tools=missing),
    )

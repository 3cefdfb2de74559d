"""Loads the code of skills without calling it, to say at once what cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skillhouse.approval import OWNER
from skillhouse.floor import TreeError, tree_digest
from skillhouse.permission import Effect
from skillhouse.sandbox import RpcError, SandboxError
from skillhouse.tools import CodeSkill, SkillCodeTool, Workshop, cell_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came of loading one skill's code."""

    skill: str
    tools: tuple[str, ...] = ()
    """Full names of those that are declared; also exported, where the code was loaded."""
    missing: tuple[str, ...] = ()
    """Full names of those that are declared and not exported: each call of them fails."""
    error: str = ""
    """Why the code cannot be used at all."""
    is_tried: bool = True
    """False: the code was not run, because somebody is asked before it is."""


async def load_code(
    tools: Iterable[SkillCodeTool], workshop: Workshop, *, agent: str
) -> tuple[Loaded, ...]:
    """Load each skill's code in a cell, where it has nothing to ask and nobody to tell.

    Code of which even reads are asked about is not run. What fails is told by the result.

    Raises:
        SandboxUnavailableError: no code runs on this machine.
    """
    skills: dict[str, tuple[CodeSkill, list[str]]] = {}
    for tool in tools:
        name = tool.skill.manifest.name
        skills.setdefault(name, (tool.skill, []))[1].append(tool.full_name)
    if any(skill.default is Effect.ALLOW for skill, _ in skills.values()):
        await workshop.executor()
    return tuple(
        [await _loaded(skill, tuple(names), workshop, agent) for skill, names in skills.values()]
    )


async def _loaded(
    skill: CodeSkill, declared: tuple[str, ...], workshop: Workshop, agent: str
) -> Loaded:
    name = skill.manifest.name
    if skill.default is not Effect.ALLOW:
        return Loaded(skill=name, tools=declared, is_tried=False)
    try:
        digest = tree_digest(skill.directory)
        packages = await workshop.packages(skill)
        cell = cell_of(skill, digest, packages=packages, agent=agent, user=OWNER)
        exported = await (await workshop.executor()).tool_names(cell)
    except (SandboxError, RpcError, TreeError, OSError) as error:
        return Loaded(skill=name, error=str(error))
    full = {f"{name}:{tool}" for tool in exported}
    return Loaded(
        skill=name,
        tools=tuple(tool for tool in declared if tool in full),
        missing=tuple(tool for tool in declared if tool not in full),
    )

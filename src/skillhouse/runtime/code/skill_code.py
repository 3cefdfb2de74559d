"""The tools that skills bring: which there are, and what runs them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from skillhouse import cells, sandbox
from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.floor import Diagnostic, Severity, WireNameError, WireNames
from skillhouse.floor.once import once
from skillhouse.floor.threads import in_thread
from skillhouse.permission import Effect, Permission
from skillhouse.runtime.code.offering import least_levels, levels_of_nothing, without
from skillhouse.runtime.code.reloads import Lacking, Reloads
from skillhouse.runtime.safe_path import safe_path

if TYPE_CHECKING:
    from skillhouse.discovery import Root
    from skillhouse.runtime.agent_view import AgentView
    from skillhouse.runtime.config import Config
    from skillhouse.runtime.policy import Policy
    from skillhouse.runtime.sandbox_provider import SandboxProvider
    from skillhouse.skill import ManifestResult, Profile, SkillManifest

logger = logging.getLogger(__name__)

Call = Callable[..., Awaitable[toolbox.ToolResult]]
"""`Skillhouse.call`."""
Found: TypeAlias = "tuple[tuple[str, ManifestResult], ...]"
"""What lies below the roots, each with the scope of its root."""


class SkillCode:
    """Skills' own code in one house: one executor, and each skill's packages once."""

    def __init__(
        self, config: Config, profile: Profile, policy: Policy, cells: SandboxProvider, call: Call
    ) -> None:
        """Take what says whether code runs, what decides, what runs it and what it asks through."""
        self._config = config
        self._profile = profile
        self._policy = policy
        self._cells = cells
        self._call = call
        self._packages: dict[Path, Path | None] = {}
        self._leases = ExitStack()
        self._executor: toolbox.Runner | None = None
        self._looked_at: set[str] = set()
        self.reloads = Reloads(config.state_directory)
        """What this process and others found out, and were told to read anew."""
        self.steps: list[tuple[Path, str]] = []
        """What was done with each skill's directory since the last look began (S002-52)."""
        self.problems: list[Diagnostic] = []
        """What keeps skills' tools from being offered, as of the last look."""

    @property
    def is_enabled(self) -> bool:
        """Whether skills' own tools are offered at all."""
        told = self._config.skill_code.enabled
        return self._profile.runs_code if told is None else told

    @property
    def is_elsewhere(self) -> bool:
        """Whether an executor elsewhere runs the code, from a directory of its own."""
        return bool(self._config.skill_code.executor)

    @once
    def _here(self) -> cells.InProcessRunner:
        return cells.InProcessRunner(trusted=self._config.skill_code.in_process)

    def found(self, roots: Sequence[Root], is_trusted: bool) -> Found:  # noqa: FBT001 a fact of the look
        """Return what is found below the roots, strongest first; nothing of it is run."""
        if not self.is_enabled:
            return ()
        lacking, self.steps = self.reloads.lacking(), []
        return tuple(
            (root.scope, without(result, lacking(result.directory)))
            for root in roots
            if (root.scope != "project" or is_trusted) and root.path.is_dir()
            for result in skill_package.find_manifests(root.path, told=self.take_step)
        )

    def tools(self, found: Found, view: AgentView) -> tuple[toolbox.SkillCodeTool, ...]:
        """Return an agent's tools of skills.

        The stronger root's skill of a name is in force, and one that a rule denies or a person
        switched off has no tools. Two whose names are one on the wire are both left out:
        `problems` says so.
        """
        in_force = self._in_force(found)
        self.problems += levels_of_nothing(
            self._config.skill_code.levels, [manifest for _, _, manifest in in_force]
        )
        names, clashing = WireNames(), set()
        for _, result, manifest in in_force:
            for spec in manifest.tools:
                try:
                    names.add(manifest.name, spec.name)
                except WireNameError as error:
                    clashing |= {error.pair, error.taken_by}
                    self.problems.append(_clash(error, result.directory))
        return tuple(
            toolbox.SkillCodeTool(
                self._skill(manifest, result.directory, scope), spec, self, self._ask_for
            )
            for scope, result, manifest in in_force
            if not self._is_denied(manifest.name, view.agent)
            and not view.withholds(result.directory)
            for spec in manifest.tools
            if (manifest.name, spec.name) not in clashing
        )

    def _in_force(self, found: Found) -> list[tuple[str, ManifestResult, SkillManifest]]:
        """Return the strongest skill of each name; what is wrong with others goes to problems."""
        in_force: dict[str, tuple[str, ManifestResult, SkillManifest]] = {}
        self.problems = []
        for scope, result in found:
            self.problems += result.diagnostics
            if result.manifest is not None:
                in_force.setdefault(result.manifest.name, (scope, result, result.manifest))
        return list(in_force.values())

    def take_step(self, directory: Path, step: str) -> None:
        """Note what was done with a skill's directory."""
        logger.debug("%s: %s", directory, step)
        self.steps.append((directory, step))

    async def reload_if_signalled(self, refresh: Callable[[], object]) -> None:
        """Look anew, by `refresh`, and let code start anew, where another process reloaded."""
        if self.is_enabled and self.reloads.is_new():
            refresh()
            try:
                await self.reload()
            except cells.RpcError as error:
                # It sees by the digest of each call what is there; and the call says this better.
                logger.warning("the executor elsewhere was not told to reload: %s", error)

    async def runner(self, digest: str) -> toolbox.Runner:
        """Return what runs the code of that digest: this process, if the operator says so.

        Raises:
            SandboxUnavailableError: no code runs on this machine.
        """
        if digest in self._config.skill_code.in_process:
            return self._here
        return await self.executor()

    async def look_at_exports(self, skill: toolbox.CodeSkill, spec: cells.CellSpec) -> None:
        """See which tools the code lacks, once for each digest; each process leaves those out."""
        if spec.digest in self._looked_at:
            return
        self._looked_at.add(spec.digest)
        try:
            exported = await (await self.runner(spec.digest)).tool_names(spec)
            tools = tuple(one.name for one in skill.manifest.tools if one.name not in exported)
            if tools:
                news = {skill.directory: Lacking(digest=spec.digest, tools=tools)}
                await in_thread(lambda: self.reloads.note(news))
        except (sandbox.SandboxError, cells.RpcError, OSError) as error:
            # The call has its answer; whoever reloads is told what is wrong with the code.
            logger.warning("what `%s` exports is not known: %s", skill.manifest.name, error)

    async def executor(self) -> toolbox.Runner:
        """Return what runs the code, here or where the operator says, from the first call on.

        Raises:
            SandboxUnavailableError: no code runs on this machine.
            ConfigError: the executor elsewhere cannot be used as it is configured.
        """
        settings = self._config.skill_code
        if settings.executor:
            # INVARIANT: what fails there fails; nothing that was to run elsewhere runs here.
            if self._executor is None:
                # It brings asyncio and the RPC with it, for the few who run code elsewhere.
                from skillhouse.runtime.code.container import ContainerExecutor  # noqa: PLC0415

                environment = self._config.places.environment
                self._executor = ContainerExecutor(settings, environment)
            return self._executor
        status = await self._cells.status()
        # After the wait: two first calls at once must not make two, of which `close` knows one.
        if self._executor is None:
            state = self._config.state_directory / "cells"
            self._executor = cells.Executor(status, state=state)
        return self._executor

    async def packages(self, skill: toolbox.CodeSkill) -> Path | None:
        """Return the packages of a skill, installed with its first call and kept until `close`.

        Raises:
            SandboxError: they cannot be had.
        """
        if skill.directory not in self._packages:
            cache = self._config.cache_directory or self._config.places.cache()
            found: cells.Environment | None = await cells.prepare(
                skill.manifest, skill.directory, cache / "packages", rules=self._rules(skill.shared)
            )
            leased = None
            if found is not None:
                # A process that installs may hold the lock of the packages.
                hold, lease = self._leases.enter_context, found.lease()
                leased = await in_thread(lambda: hold(lease))
            self._packages[skill.directory] = leased
        return self._packages[skill.directory]

    async def reload(self, skill: str | None = None) -> None:
        """Let new calls start with the code as it is now; those under way end with the old."""
        self._packages.clear()
        await self._here.reload(skill)
        if self._config.skill_code.executor:
            # One elsewhere runs longer than this house does.
            await self.executor()
        if self._executor is not None:
            await self._executor.reload(skill)

    @property
    def background(self) -> cells.Executor | None:
        """What keeps cells between calls, which a stop ends; one elsewhere ends its own calls."""
        found = self._executor
        return found if isinstance(found, cells.Executor) else None

    async def close(self) -> None:
        """Kill what runs and let go of the packages."""
        if self._executor is not None:
            await self._executor.close()
            self._executor = None
        self._packages.clear()
        self._leases.close()

    def _rules(self, shared: tuple[Path, ...]) -> cells.EnvironmentRules:
        settings = self._config.skill_code
        near, far = (*shared, None, None)[:2]
        places = self._config.places
        variables = {**places.environment, "PATH": safe_path(places.environment, places.start)}
        return cells.EnvironmentRules(
            python=Path(sys.executable),
            unhashed=settings.unhashed,
            builds=settings.builds,
            shared=near,
            host=far,
            variables=cells.installer_variables(variables),
        )

    def _skill(self, manifest: SkillManifest, directory: Path, scope: str) -> toolbox.CodeSkill:
        # INVARIANT: a variable is handed over only if the skill declares it and the operator
        # names it for this skill.
        handed = self._config.skill_code.env.get(manifest.name, ())
        environment = self._config.places.environment
        settings = self._config.skill_code
        is_python = manifest.language == "python"
        shared = settings.python_packages if is_python else settings.node_packages
        return toolbox.CodeSkill(
            manifest=manifest,
            directory=directory,
            scope=scope,
            default=self._default(scope),
            env={
                name: environment[name]
                for name in manifest.env
                if name in handed and name in environment
            },
            shared=tuple(map(Path, shared)),
            least=least_levels(settings.levels, manifest.name),
        )

    def _default(self, scope: str) -> Effect:
        """Return what a read meets; a project's code may be new since it was trusted."""
        if scope == "project":
            return Effect.ASK
        return Effect(self._profile.scope(scope).default_effect)

    def _is_denied(self, name: str, agent: str) -> bool:
        wanted = Permission(action="skill", resource=name)
        found = self._policy.explain(wanted, agent=agent, default=Effect.ALLOW)
        return found.decision.effect is Effect.DENY

    def _ask_for(self, session: toolbox.Session) -> toolbox.Ask:
        async def ask(tool: str, arguments: Mapping[str, Any]) -> toolbox.ToolResult:
            return await self._call(
                tool,
                arguments,
                agent=session.agent,
                user=session.user,
                channel=session.channel,
                client=session.client,
                connection=session.connection,
                session_id=session.id,
                origin_digest=session.origin_digest,
            )

        return ask


def _clash(error: WireNameError, directory: Path) -> Diagnostic:
    return Diagnostic(
        code="tool-name-taken",
        severity=Severity.ERROR,
        message=str(error),
        path=directory,
    )

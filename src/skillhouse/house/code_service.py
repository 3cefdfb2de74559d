"""The tools that skills bring: which there are, and what runs them."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from skillhouse import sandbox
from skillhouse import tools as toolbox
from skillhouse.discovery import Root
from skillhouse.extension import OwnPackage, is_installed
from skillhouse.floor import Diagnostic, TreeError, WireNameError, WireNames, git_root, tree_digest
from skillhouse.floor.faults import fault_finding, isolated
from skillhouse.floor.lock import once
from skillhouse.floor.paths import safe_path
from skillhouse.floor.threads import in_thread
from skillhouse.house.agent_view import AgentView
from skillhouse.house.code_manifests import (
    Found,
    Lacking,
    Reloads,
    clash,
    failed_load,
    is_of,
    least_levels,
    levels_of_unknown_tools,
    may_start_early,
    without_missing,
)
from skillhouse.house.code_packages import CodePackages
from skillhouse.house.config import Config
from skillhouse.house.policy import Policy, RulesInUse
from skillhouse.house.sandbox_provider import SandboxProvider
from skillhouse.house.trusted_text import PROJECT
from skillhouse.permission import Effect, Permission
from skillhouse.sandbox import code_call
from skillhouse.skill import (
    ManifestCache,
    ManifestResult,
    Profile,
    SkillManifest,
    find_manifests,
)

cells = OwnPackage("cells")
"""What runs the code; it is loaded for the first call of code only."""

logger = logging.getLogger(__name__)

Call = Callable[..., Awaitable[toolbox.ToolResult]]
"""`Skillhouse.call`."""


class SkillCode:
    """Skills' own code: one executor, and each skill's packages installed once."""

    def __init__(
        self,
        rules: RulesInUse,
        sandboxes: SandboxProvider,
        call: Call,
        executors: Callable[[str], toolbox.Runner] | None = None,
        way_out: Callable[..., toolbox.CodeNetwork] | None = None,
    ) -> None:
        """`rules` gives the configuration and rules in use, also after a reload: cells and packages
        stay, and a variable or package of the new one is for the calls that begin then.
        `executors` gives what an extension runs code with, by the extension's name, `way_out` the
        proxy of a call."""
        self._way_out = way_out
        self._executors = executors
        self._in_use = rules
        self._sandboxes = sandboxes
        self._call = call
        self._in_process_runner: tuple[tuple[str, ...], Any] | None = None
        self._executor: toolbox.Runner | None = None
        self._checked_digests: set[str] = set()
        self._making = threading.Lock()
        self.artifacts = toolbox.Artifacts(
            self._config.state_directory, lambda: self._config.skill_code
        )
        self.is_debugged = False
        """Set before the first call where a person debugs one: `skillhouse call --debug`."""
        self.reloads = Reloads(self._config.state_directory)
        """The reload signal and findings that all processes share."""
        self.manifests = ManifestCache()
        """Those of the last look; a reload clears it."""
        self.steps: list[tuple[Path, str]] = []
        """What was done with each skill's directory since the last look began (S002-52)."""
        self.problems: list[Diagnostic] = []
        """What keeps skills' tools from being offered, as of the last look."""

    @once
    def _packages(self) -> CodePackages:
        return CodePackages()

    @property
    def _policy(self) -> Policy:
        return self._in_use.policy

    @property
    def _config(self) -> Config:
        return self._in_use.policy.config

    @property
    def _profile(self) -> Profile:
        return self._in_use.policy.profile

    @property
    def is_enabled(self) -> bool:
        chosen = self._config.skill_code.enabled
        return self._profile.runs_code if chosen is None else chosen

    @property
    def is_elsewhere(self) -> bool:
        """Whether a remote executor runs the code, from its own copy."""
        return self._config.skill_code.is_elsewhere

    @property
    def _package_store(self) -> Path:
        return (self._config.cache_directory or self._config.places.cache()) / "packages"

    def _in_process(self) -> Any:
        """Return what runs, in this process, the code that the configuration in use names."""
        named = self._config.skill_code.in_process
        if self._in_process_runner is None or self._in_process_runner[0] != named:
            self._in_process_runner = (named, cells.InProcessRunner(trusted=named))
        return self._in_process_runner[1]

    def found(self, roots: Sequence[Root], *, is_trusted: bool) -> Found:
        """Return the manifests below the roots, strongest first; no code is run."""
        if not self.is_enabled:
            return ()
        lacking, self.steps = self.reloads.lacking(), []
        return tuple(
            (root.scope, without_missing(result, lacking(result.directory)))
            for root in roots
            if (root.scope != PROJECT or is_trusted) and root.path.is_dir()
            for result in find_manifests(
                root.path, on_step=self.take_step, look=self.manifests.read
            )
        )

    def tools(self, found: Found, view: AgentView) -> tuple[toolbox.SkillCodeTool, ...]:
        """Return an agent's tools of skills.

        The stronger root's skill of a name is in force, and one that a rule denies or a person
        switched off has no tools. Two whose names are one on the wire are both left out:
        `problems` says so.
        """
        in_force = self._in_force(found)
        self.problems += levels_of_unknown_tools(
            self._config.skill_code.levels, [manifest for _, _, manifest in in_force]
        )
        names, clashing = WireNames(), set()
        for _, result, manifest in in_force:
            for spec in manifest.tools:
                try:
                    names.add(manifest.name, spec.name)
                except WireNameError as error:
                    clashing |= {error.pair, error.taken_by}
                    self.problems.append(clash(error, result.directory))
        made: list[toolbox.SkillCodeTool] = []
        for scope, result, manifest in in_force:
            # INVARIANT: a skill of which a rule cannot be asked has no tools.
            with isolated() as failed:
                its_id = f"{scope}:{manifest.name}"
                is_withheld = view.withholds(result.directory, its_id)
                if is_withheld or self._is_denied(manifest.name, view.agent):
                    continue
                skill = self.configured(manifest, result.directory, scope)
                kept = [one for one in manifest.tools if (manifest.name, one.name) not in clashing]
                made += [toolbox.SkillCodeTool(skill, one, self, self._ask_for) for one in kept]
            self.problems += [fault_finding(error, result.directory) for error in failed]
        return tuple(made)

    def _in_force(self, found: Found) -> list[tuple[str, ManifestResult, SkillManifest]]:
        """Return the strongest skill of each name; findings go to `problems`."""
        in_force: dict[str, tuple[str, ManifestResult, SkillManifest]] = {}
        self.problems = []
        for scope, result in found:
            self.problems += result.diagnostics
            if result.manifest is not None:
                in_force.setdefault(result.manifest.name, (scope, result, result.manifest))
        return list(in_force.values())

    def take_step(self, directory: Path, step: str) -> None:
        logger.debug("%s: %s", directory, step)
        self.steps.append((directory, step))

    async def reload_if_signalled(self, refresh: Callable[[], object]) -> None:
        """Refresh and restart the code if another process has reloaded."""
        if self.is_enabled and self.reloads.is_new():
            refresh()
            try:
                await self.reload()
            except code_call.RpcError as error:
                # It sees by the digest of each call what is there; and the call says this better.
                logger.warning("the remote executor did not reload: %s", error)

    async def runner(self, digest: str, language: code_call.Language) -> toolbox.Runner:
        """Return what runs the code of that digest; SandboxUnavailableError if nothing can."""
        if digest in self._config.skill_code.in_process:
            runner: toolbox.Runner = self._in_process()
            return runner
        return await self.executor(language)

    async def check_exports(self, skill: toolbox.CodeSkill, spec: code_call.CellSpec) -> None:
        """Find the tools that the code does not export, once for each digest."""
        if spec.digest in self._checked_digests:
            return
        self._checked_digests.add(spec.digest)
        try:
            exported = await (await self.runner(spec.digest, spec.language)).tool_names(spec)
            tools = tuple(one.name for one in skill.manifest.tools if one.name not in exported)
            if tools:
                news = {skill.directory: Lacking(digest=spec.digest, tools=tools)}
                await in_thread(lambda: self.reloads.note(news))
        except sandbox.SandboxError as error:
            # The call has its answer; `show`, `list` and `doctor` say it from now on.
            failed = failed_load(spec.digest, error.code, str(error))
            if failed is not None:
                await in_thread(lambda: self.reloads.note({skill.directory: failed}))
        except (code_call.RpcError, OSError) as error:
            logger.warning("what `%s` exports is not known: %s", skill.manifest.name, error)

    async def executor(self, language: code_call.Language | None = None) -> toolbox.Runner:
        """Return what runs the code, here or where the operator says, from the first call on.

        Here, the sandbox has been tested for code of that language.

        Raises:
            SandboxUnavailableError: no code runs on this machine.
            ConfigError: the executor elsewhere cannot be used as it is configured.
        """
        settings = self._config.skill_code
        if settings.is_elsewhere:
            # INVARIANT: what fails there fails; nothing that was to run elsewhere runs here.
            is_extension = bool(settings.executor) and "://" not in settings.executor
            if self._executor is None and self._executors and is_extension:
                self._executor = self._executors(settings.executor)
            elif self._executor is None:
                # Most configurations name none.
                from skillhouse.house.container import ContainerExecutor  # noqa: PLC0415

                environment = self._config.places.environment
                made = ContainerExecutor(settings, environment)
                # Calls and the page that shows executors are on threads of their own.
                with self._making:
                    if self._executor is None:
                        self._executor = made
            return self._executor
        status = await self._sandboxes.status(language)
        # After the wait: two first calls at once must not make two, of which `close` knows one.
        if self._executor is None:
            state = self._config.state_directory / "cells"
            self._executor = cells.Executor(status, state=state)
        elif isinstance(self._executor, cells.Executor):
            self._executor.admit(status)
        return self._executor

    async def executor_states(self) -> Sequence[code_call.ExecutorState]:
        """Return how the executors elsewhere are; ConfigError as of `executor`."""
        if not self._config.skill_code.executor_token:
            return ()
        # Most configurations name none.
        from skillhouse.house.container import ContainerExecutor  # noqa: PLC0415

        found = await self.executor()
        return await found.states() if isinstance(found, ContainerExecutor) else ()

    async def start_early(self, tool: str, found: Found) -> None:
        """Start a cell's process without any skill, while it is decided whether a call may run.

        Only for a Python skill without packages, and where the sandbox need not be tested: a call
        that is refused then costs that process.
        """
        settings = self._config.skill_code
        if settings.is_elsewhere or settings.in_process or not may_start_early(tool, found):
            return
        try:
            if await self._sandboxes.status_if_kept("python") is not None:
                executor = await self.executor("python")
                if isinstance(executor, cells.Executor):
                    await executor.start_early()
        except (sandbox.SandboxError, OSError) as error:
            # The call itself meets it again, and reports it.
            logger.debug("no cell was started early: %s", error)

    async def check_packages(self, skill: toolbox.CodeSkill) -> None:
        """Raise SandboxError where a skill's packages cannot be installed; nothing is installed."""
        if not self._packages.knows(skill.directory) and _needs_packages(skill):
            await cells.check_installable(
                skill.manifest,
                skill.directory,
                self._package_store,
                rules=self._rules(skill),
                compiled=self._caches() is not None,
            )

    async def packages(
        self,
        skill: toolbox.CodeSkill,
        *,
        say: toolbox.ReportProgress = lambda _fraction, _text: None,
        within: float | None = None,
    ) -> Path | None:
        """Return a skill's packages, installed at its first call; SandboxError if they can't be,
        or are not yet after `within` seconds (`CodePackages.get`)."""
        if not _needs_packages(skill):
            return None

        async def install(count: Callable[[int], None]) -> tuple[Path, ExitStack] | None:
            found = await cells.prepare(
                skill.manifest,
                skill.directory,
                self._package_store,
                rules=self._rules(skill),
                caches=self._caches(),
                count=count,
            )
            if found is None:
                return None
            kept, lease = ExitStack(), found.lease()
            # A process that installs may hold the lock of the packages.
            path: Path = await in_thread(lambda: kept.enter_context(lease))
            return path, kept

        return await self._packages.get(skill.directory, install, say=say, within=within)

    def _caches(self) -> Any:
        """Return what compiles packages once: a cell of this machine, where calls have any."""
        executor = self.local_executor
        return None if executor is None else functools.partial(cells.make_caches, executor)

    async def reload(self, skill: str | None = None) -> None:
        """Start new calls with the current code; running calls finish with the old."""
        if "_packages" in vars(self):
            self._packages.forget()
        if is_installed("cells"):
            await self._in_process().reload(skill)
        if self.is_elsewhere:
            # A remote executor outlives this process.
            await self.executor()
        if self._executor is not None:
            await self._executor.reload(skill)

    @property
    def local_executor(self) -> Any:
        """The local executor, whose idle cells a stop ends; a remote one ends its own calls."""
        found = self._executor
        if found is None:
            # `cells.Executor` is loaded for the first call of code only.
            return None
        is_local = is_installed("cells") and isinstance(found, cells.Executor)
        return found if is_local else None

    async def close(self) -> None:
        """Kill running code and release the packages."""
        if self._executor is not None:
            await self._executor.close()
            self._executor = None
        if "_packages" in vars(self):
            await self._packages.close()

    def python(self, skill: toolbox.CodeSkill) -> sandbox.Python | None:
        """Return the interpreter of a skill in Python; SandboxError "python-missing" for none."""
        if skill.manifest.language != "python":
            return None
        places = self._config.places
        # What runs code says so itself where it is missing.
        locked = cells.locked_python(skill.directory) if is_installed("cells") else None
        wanted = (skill.manifest.requires_python, locked)
        # An executor elsewhere runs the Python of its image, and code in this process runs ours.
        return sandbox.choose_python(
            [one for one in wanted if one],
            sandbox.PythonPlaces(places.environment, git_root(places.start) or places.start),
            skill=skill.manifest.name,
            only_default=self.is_elsewhere or self._runs_here(skill.directory),
        )

    def _runs_here(self, directory: Path) -> bool:
        digests = self._config.skill_code.in_process
        try:
            return bool(digests) and tree_digest(directory) in digests
        except (TreeError, OSError):
            return False

    def _rules(self, skill: toolbox.CodeSkill) -> Any:
        settings = self._config.skill_code
        near, far = (*skill.shared, None, None)[:2]
        places = self._config.places
        variables = {**places.environment, "PATH": safe_path(places.environment, places.start)}
        return cells.EnvironmentRules(
            python=self.python(skill),
            unhashed=settings.unhashed,
            builds=settings.builds,
            shared=near,
            host=far,
            variables=cells.installer_variables(variables),
        )

    def handed(self, manifest: SkillManifest) -> tuple[str, ...]:
        """Return the names of the variables that the operator gives to this skill."""
        return self._config.skill_code.env.get(manifest.name, ())

    def load_failure(self, directory: Path) -> str:
        """Return why this very code did not load when it was last tried; "" where it did."""
        lacking = self.reloads.lacking()(directory)
        is_known = lacking is not None and lacking.error and is_of(lacking, directory)
        return lacking.error if lacking is not None and is_known else ""

    def configured(self, manifest: SkillManifest, directory: Path, scope: str) -> toolbox.CodeSkill:
        """Return a skill as this configuration has it."""
        # INVARIANT: a variable is handed over only if the skill declares it and the operator
        # names it for this skill.
        handed = self.handed(manifest)
        environment = self._config.places.environment
        settings = self._config.skill_code
        is_python = manifest.language == "python"
        shared = settings.python_packages if is_python else settings.node_packages
        env = {
            name: environment[name]
            for name in manifest.env
            if name in handed and name in environment
        }
        return toolbox.CodeSkill(
            manifest=manifest,
            directory=directory,
            scope=scope,
            default=self._default(scope),
            env=env,
            reach=self._reach(manifest, directory, env),
            shared=tuple(map(Path, shared)),
            least=least_levels(settings.levels, manifest.name),
            frames_for_models=settings.frames_for_models,
            is_debugged=self.is_debugged,
            is_trusted=lambda digest: (
                scope == PROJECT and self._policy.trusts_code(directory, digest)
            ),
        )

    def _reach(
        self, manifest: SkillManifest, directory: Path, env: Mapping[str, str]
    ) -> toolbox.CodeReach:
        """Return what the SDKs of a skill reach: nothing where its code has no cell of ours."""
        has_cell = not self.is_elsewhere and not self._runs_here(directory)
        if not manifest.hosts or not has_cell or self._way_out is None:
            return toolbox.CodeReach()
        from skillhouse.house.code_network import reach_of  # noqa: PLC0415 - few skills name hosts

        config = self._config
        return reach_of(manifest.hosts, config.net, env, config.places.environment)

    def network(
        self, skill: toolbox.CodeSkill, session: toolbox.Session, call: str, tool: str
    ) -> toolbox.CodeNetwork:
        """Return the way out of one call of a skill that reaches hosts."""
        if self._way_out is None:
            raise RuntimeError("expected what makes a way out")
        return self._way_out(session, hosts=skill.reach.hosts, call=call, tool=tool)

    def _default(self, scope: str) -> Effect:
        """Return what a read meets; a project's code may be new since it was trusted."""
        if scope == PROJECT:
            return Effect.ASK
        return Effect(self._profile.scope(scope).default_effect)

    def _is_denied(self, name: str, agent: str) -> bool:
        wanted = Permission(action="skill", resource=name)
        found = self._policy.explain(wanted, agent=agent, default=Effect.ALLOW)
        return found.decision.effect is Effect.DENY

    def _ask_for(self, session: toolbox.Session) -> toolbox.Ask:
        async def ask(tool: str, arguments: Mapping[str, Any]) -> toolbox.ToolResult:
            caller = {**session.caller_fields(), "parent": session.call_id}
            return await self._call(tool, arguments, **caller, origin_digest=session.origin_digest)

        return ask


def _needs_packages(skill: toolbox.CodeSkill) -> bool:
    """Whether there may be any to install; where not, what installs is not even loaded."""
    manifest = skill.manifest
    return bool(manifest.dependencies) or cells.has_lock(manifest.language, skill.directory)

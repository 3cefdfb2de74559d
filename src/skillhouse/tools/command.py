"""The tool `exec`: one program with its arguments, no shell, inside the sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from skillhouse.permission import Effect, Permission, command_resource
from skillhouse.sandbox import (
    Completed,
    Launcher,
    Limits,
    SandboxError,
    SandboxProfile,
    SandboxUnavailableError,
)
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.need import Need
from skillhouse.tools.session import Session
from skillhouse.tools.workspace import Workspace

EXEC_SECONDS = 60
"""Seconds a command may take unless the call says less (DESIGN, bounds)."""


class ExecTool:
    """Runs a program inside the sandbox."""

    name = "exec"
    description = (
        "Run one program in the workspace, inside a sandbox without network unless the user's "
        "rules grant it. `command` is the program's name, `params` its arguments; there is no "
        "shell, so no pipes, redirections or wildcards."
    )
    durable = True
    schema: Mapping[str, Any] = object_schema(
        {
            "command": {"type": "string", "minLength": 1, "description": "a program's name"},
            "params": {"type": "array", "items": {"type": "string"}, "default": []},
            "timeout_seconds": {"type": "integer", "minimum": 1, "maximum": EXEC_SECONDS},
        },
        required=("command",),
    )

    def __init__(
        self,
        workspace: Workspace,
        launcher: Callable[[], Awaitable[Launcher]],
        *,
        network: Callable[[str, str], bool],
        environment: Mapping[str, str],
    ) -> None:
        """Take the place, the sandbox, and what says whether an agent's command has network."""
        self._workspace = workspace
        self._launcher = launcher
        self._network = network
        self._environment = environment

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the command by its words."""
        argv = (arguments["command"], *arguments.get("params", ()))
        if "/" in argv[0]:
            raise RefusedError("denied: name a program, not a path", denied=True)
        if any("\0" in word for word in argv):
            raise RefusedError("a NUL in the command")
        resource = command_resource(argv)
        network = self._network(session.agent, resource)
        need = Need(
            permission=Permission(action="exec", resource=resource),
            default=Effect.ASK,
            why="no rule speaks, and commands are asked about",
            argv=argv,
        )
        profile = SandboxProfile(
            workspace=self._workspace.root,
            readable=tuple(session.loaded.values()),
            network=network,
            environment=self._environment,
            limits=Limits(seconds=arguments.get("timeout_seconds", EXEC_SECONDS)),
        )

        async def run() -> Output:
            try:
                launcher = await self._launcher()
                done = await launcher.run(argv, profile, cwd=self._workspace.root)
            except (SandboxError, SandboxUnavailableError) as error:
                raise RefusedError(str(error)) from error
            return _output(done, launcher.level, network=network)

        facts = (("network", "the host's" if network else "none"),)
        return Plan(needs=(need, *session.acting.values()), run=run, facts=facts)


def _output(done: Completed, level: str, *, network: bool) -> Output:
    stdout = done.stdout.decode("utf-8", "replace")
    stderr = done.stderr.decode("utf-8", "replace")
    ended = ""
    if done.limit:
        ended = f"stopped: the limit on {done.limit} was reached"
    elif done.signal is not None:
        ended = f"ended by signal {done.signal}"
    elif done.exit_code:
        ended = f"exit code {done.exit_code}"
    parts = [part for part in (ended, stdout, f"[stderr]\n{stderr}" if stderr else "") if part]
    if done.truncated:
        parts.append("[output cut]")
    exit_code = -1 if done.exit_code is None else done.exit_code
    return Output(
        text="\n".join(parts) or "[no output]",
        data={"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "limit": done.limit},
        failed=bool(ended),
        detail={
            "exit_code": exit_code,
            "limit": done.limit,
            "sandbox": str(level),
            "network": "host" if network else "none",
        },
    )

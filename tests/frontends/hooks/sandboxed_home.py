"""A home whose commands run in our sandbox, by a judge in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skillhouse.frontends.hooks.client_rules import runner_words
from skillhouse.frontends.hooks.hook_clients import hook_client
from tests.frontends.hooks.hooked_home import HookedHome

ALLOWS = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "*"
"""


@dataclass(slots=True)
class SandboxedHome(HookedHome):
    """This process is the client: what it starts is of its session."""

    rules: str = ALLOWS

    def __post_init__(self) -> None:
        # Not `super()`: with slots the class is made a second time.
        HookedHome.__post_init__(self)
        self.settings({})

    def settings(self, found: Mapping[str, Any]) -> None:
        """Write Claude Code's settings, with its exception for our runner."""
        rewrite = hook_client("claude-code").rewrite
        assert rewrite is not None
        assert rewrite.exception is not None
        exception = rewrite.exception
        file = self.places.home / ".claude/settings.json"
        file.parent.mkdir(exist_ok=True)
        own = {"excludedCommands": [exception.filled(runner_words(self.directory))]}
        file.write_text(json.dumps({**found, "sandbox": {**own, **found.get("sandbox", {})}}))

    def decided(self, command: str, **more: Any) -> tuple[str, str]:
        """Return what the client is told: its effect, and the line or the reason."""
        given = {"command": command, **more.pop("given", {})}
        event = {"permission_mode": "default", **more}
        done = self.run(self.line(mode="sandbox"), self.event("Bash", given, **event))
        assert done.returncode == 0, done.stderr
        if not done.stdout:
            return "left", ""
        said = json.loads(done.stdout)["hookSpecificOutput"]
        text = said.get("updatedInput", {}).get("command") or said["permissionDecisionReason"]
        return said["permissionDecision"], text

    def rewritten(self, command: str, **more: Any) -> str:
        """Return the line that a client runs instead of a command."""
        effect, line = self.decided(command, **more)
        assert effect == "allow", line
        return line

    def shell(self, line: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a line as a client's shell does."""
        given = {"cwd": self.project, "stdin": subprocess.DEVNULL, **more}
        return subprocess.run(
            ["/bin/bash", "-c", line], capture_output=True, check=False, timeout=60, **given
        )

    def boxed(self, command: str) -> subprocess.CompletedProcess[bytes]:
        """Rewrite a command and run it."""
        return self.shell(self.rewritten(command))

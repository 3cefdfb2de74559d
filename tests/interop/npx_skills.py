"""Runs `skills` of npm, whose users `npx skills add` installs skills for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.harness import ran
from tests.own_environments import own_npm

MAKES = "SKILLHOUSE_NPX_SKILLS"
MISSING = f"no environment for `npx skills`: {MAKES}=1 makes one, with npm and a network"
SECONDS = 120


def program() -> tuple[str, ...] | None:
    """Return the command, or None where there is none."""
    modules = own_npm("skills-cli", makes=MAKES)
    node = shutil.which("node")
    if modules is None or node is None:
        return None
    return node, str(modules / "skills/bin/cli.mjs")


def add(command: tuple[str, ...], source: str, *options: str, home: Path, project: Path) -> Path:
    """Install with `skills add` for Claude Code, by copies; return the directory of its skills."""
    done = ran(
        [*command, "add", source, *options, "--agent", "claude-code", "--yes", "--copy"],
        cwd=project,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DISABLE_TELEMETRY": "1",
            "DO_NOT_TRACK": "1",
            "CI": "1",
            "GIT_TERMINAL_PROMPT": "0",
        },
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return project / ".claude/skills"

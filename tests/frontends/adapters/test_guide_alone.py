"""Each install line of the guide is enough for its example: run where nothing else is installed.

The packages come from uv's cache or a local index; CI and `SKILLHOUSE_ADAPTERS=1` use the network.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.frontends.adapters.guide import CALLS, LAST, example, install_line
from tests.frontends.adapters.loopback import Call, Loopback, listening
from tests.frontends.adapters.test_alone import MAKES
from tests.harness import ran
from tests.own_environments import BIN, ROOT, SUFFIX, UV

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

SECONDS = 600
"""For the packages to come, or for an example to run."""
KEPT = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT")
"""What of this process's environment an example gets."""
TITLES = (
    "Pydantic AI",
    "LangChain and LangGraph",
    "OpenAI Agents SDK",
    "Microsoft Agent Framework",
    "Google ADK",
    "CrewAI",
    "Claude Agent SDK",
    "OpenAI API",
    "Anthropic API",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package as a user installs it."""
    folder = tmp_path_factory.mktemp("wheel")
    made = _run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT
    )
    assert made.returncode == 0, made.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.parametrize("title", TITLES)
def test_an_example_of_the_guide_needs_its_install_line_only(
    title: str, wheel: Path, tmp_path: Path
) -> None:
    python = tmp_path / "env" / BIN / f"python{SUFFIX}"
    _install(python, install_line(title), wheel)
    for name in ("home", "project/.git"):
        (tmp_path / name).mkdir(parents=True)
    code = tmp_path / "example.py"
    code.write_text(example(title), encoding="utf-8")
    with listening(Loopback(calls_of(title), LAST)) as model:
        kept = {name: text for name, text in os.environ.items() if name in KEPT}
        surroundings = {**kept, **keys_of(model.url), "HOME": str(tmp_path / "home")}
        done = _run([str(python), str(code)], tmp_path / "project", surroundings, "y\n" * 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST in done.stdout
    assert (tmp_path / "project/poem.txt").exists()


def calls_of(title: str) -> list[Call]:
    """Return what the model calls; Claude Code has names of its own for tools of a server."""
    if title == "Claude Agent SDK":
        return [(f"mcp__skillhouse__{name}", given) for name, given in CALLS]
    return list(CALLS)


def keys_of(url: str) -> dict[str, str]:
    """Return what leads the providers' packages to a model on loopback."""
    return {
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Root may run Claude Code in a sandbox only.
        "IS_SANDBOX": "1",
    }


def _install(python: Path, line: str, wheel: Path) -> None:
    """Make an environment with what an install line names, and nothing else."""
    words = shlex.split(line)
    assert words[:2] == ["pip", "install"]
    wanted = [f"{word} @ {wheel.as_uri()}" if "skillhouse" in word else word for word in words[2:]]
    with_network = bool(os.environ.get("CI") or os.environ.get(MAKES))
    made = _run([str(UV), "venv", "--quiet", "-p", sys.executable, str(python.parents[1])], ROOT)
    assert made.returncode == 0, made.stderr
    offline = [] if with_network else ["--offline"]
    command = [str(UV), "pip", "install", "--quiet", *offline, "--python", str(python), *wanted]
    done = _run(command, ROOT)
    if done.returncode and not with_network:
        reason = done.stderr.strip().splitlines()[-1]
        pytest.skip(f"not all packages are here, and {MAKES}=1 gets them: {reason}")
    assert done.returncode == 0, done.stderr


def _run(
    command: list[str], cwd: Path, env: Mapping[str, str] | None = None, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    return ran(command, cwd=cwd, env=env, input=typed, timeout=SECONDS)

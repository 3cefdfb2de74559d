"""The four walks of docs/guides/executable-skills.md, each pasted from the guide alone."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cells.packages import npm_package, npm_registry, wheel
from tests.frontends.mcp_peer import environment_of
from tests.runtime.coded import best_sandbox

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[1] / "docs/guides/executable-skills.md"
UV = Path(__file__).parents[1] / ".x/uv/bin/uv"
STEPS = re.compile(r"(?:`([\w./]+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL)
HUMANIZE = "def naturalsize(size):\n    return f'{size / 1e6:.1f} MB'\n"
SEMVER = (
    "const parts = (text) => text.split('.').map(Number);\n"
    "exports.gt = (a, b) => {\n"
    "  const [left, right] = [parts(a), parts(b)];\n"
    "  const at = left.findIndex((part, n) => part !== right[n]);\n"
    "  return at >= 0 && left[at] > right[at];\n"
    "};\n"
)
FILE = "humanize-4.0.0-py3-none-any.whl"
UV_LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "humanize"
version = "4.0.0"
source = {{ registry = "https://packages.invalid/simple" }}
wheels = [{{ url = "https://packages.invalid/{file}", hash = "sha256:{sha}" }}]

[[package]]
name = "sizes"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [{{ name = "humanize" }}]

[package.metadata]
requires-dist = [{{ name = "humanize", specifier = ">=4" }}]
"""


class Author:
    """Somewhere to paste a walk of the guide, command by command."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.at = place
        configuration = self.home / ".config/skillhouse"
        configuration.mkdir(parents=True)
        (configuration / "config.toml").write_text("[skill_code]\nenabled = true\n")
        programs = place / "bin"
        programs.mkdir()
        program = programs / "skillhouse"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skillhouse "$@"\n')
        program.chmod(0o755)
        path = [str(programs), *([str(UV.parent)] if UV.exists() else []), os.environ["PATH"]]
        self.variables = environment_of(self.home) | {"PATH": ":".join(path)}
        self.said = ""

    def walk(self, title: str, **instead: Callable[[], None]) -> list[str]:
        """Do what a section says, and return the outputs; those that the guide shows must be it.

        `instead` are commands, by their first word, that stand in for a registry.
        """
        section = GUIDE.read_text("utf-8").partition(f"### {title}\n")[2]
        section = re.split(r"^##", section, flags=re.MULTILINE)[0]
        found = []
        for name, kind, text in STEPS.findall(section):
            if kind != "console":
                (self.at / name).write_text(text)
                continue
            for step in filter(None, re.split(r"^\$ ", text, flags=re.MULTILINE)):
                command, _, shown = step.partition("\n")
                output = self._step(command, instead)
                found.append(output)
                if shown:
                    assert output.endswith(shown), (command, output)
        return found

    def _step(self, command: str, instead: dict[str, Callable[[], None]]) -> str:
        word, _, rest = command.partition(" ")
        if word == "cd":
            self.at = Path(rest.replace("~", str(self.home)))
            return ""
        if word in instead:
            instead[word]()
            return ""
        ours, theirs = pty.openpty()
        errors = bytearray()

        def answer() -> None:
            asked = 0
            while chunk := os.read(process.stderr.fileno(), 65_536) if process.stderr else b"":
                errors.extend(chunk)
                if errors.count(b"n no)") > asked:
                    # What was typed before the question is not taken.
                    asked += os.write(ours, b"y\n") > 0

        with subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.at,
            env=self.variables,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            answering = threading.Thread(target=answer)
            answering.start()
            output = process.stdout.read().decode() if process.stdout else ""
            answering.join()
        os.close(ours)
        os.close(theirs)
        self.said += errors.decode()
        return output if process.returncode == 0 else errors.decode()


@pytest.fixture
def author(tmp_path: Path, need: Callable[[object, str], None]) -> Author:
    best_sandbox(need)
    return Author(tmp_path)


def test_a_tool_in_python_with_a_dependency(author: Author, tmp_path: Path) -> None:
    sha = wheel(tmp_path / "wheels", "humanize", "4.0.0", HUMANIZE)
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\noffline = true\nfind-links = ["{tmp_path}/wheels"]\n')
    author.variables |= {
        "UV_CONFIG_FILE": str(settings),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
    }

    def lock() -> None:
        (author.at / "uv.lock").write_text(UV_LOCK.format(sha=sha, file=FILE))

    author.walk("A tool in Python with a dependency", uv=lock)
    assert "tool sizes:readable (read), python\n" in author.said
    assert "output:\n  | asked for 1234567\n" in author.said


def test_a_tool_in_javascript_with_a_dependency(
    author: Author, tmp_path: Path, need: Callable[[object, str], None]
) -> None:
    need(shutil.which("npm"), "no npm")
    package = npm_package("semver", "7.0.0", SEMVER)
    with ExitStack() as stack:
        address, asked = stack.enter_context(npm_registry({("semver", "7.0.0"): package}))
        author.variables |= {
            "npm_config_registry": address,
            "npm_config_cache": str(tmp_path / "npm-cache"),
        }
        author.walk("A tool in JavaScript with a dependency")
    assert asked
    assert (author.at / "package-lock.json").is_file()
    assert "tool versions:newer (read), javascript\n" in author.said


def test_several_levels_in_one_skill(author: Author) -> None:
    outputs = author.walk("Several levels in one skill")
    assert len(outputs) == 5
    assert "table:book" in author.said
    done = subprocess.run(
        ["skillhouse", "call", "table:pay", "--args", '{"number": 5}'],
        env=author.variables,
        cwd=author.at,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "not approved yet" in done.stderr


def test_a_script_in_a_markdown_skill(author: Author) -> None:
    author.walk("A script in a Markdown skill")
    assert (author.at / "scripts/count.py").is_file()
    assert "0 errors, 0 warnings" in author.said

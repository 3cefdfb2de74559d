"""An environment of its own, into which a test installs extensions as a person would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import skillhouse

ENTRY = "[skillhouse.extensions]\n{name} = {module}:EXTENSION\n"


class Environment:
    """A virtual environment that has skillhouse and what it needs from the one that runs us."""

    def __init__(self, base: Path) -> None:
        self.base = base
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", base / "env"), check=True)
        self.python = base / "env" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = base / "env" / "lib" / version / "site-packages"
        source = Path(skillhouse.__file__).parent.parent
        ours = [one for one in sys.path if one.endswith("site-packages")]
        (self.site / "skillhouse.pth").write_text("\n".join([str(source), *ours, ""]))
        self.home, self.place = base / "home", base / "project"
        self.home.mkdir()
        (self.place / ".git").mkdir(parents=True)

    def run(
        self, *arguments: str, variables: dict[str, str] | None = None, code: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run skillhouse in the project, or a piece of Python."""
        kept = {"PATH": os.environ["PATH"], "HOME": str(self.home), "COLUMNS": "80"}
        words = ("-c", code) if code else ("-m", "skillhouse", *arguments)
        return subprocess.run(
            (self.python, *words),
            cwd=self.place,
            env={**kept, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )


def install(site: Path, name: str, source: str, *, entry: str | None = None) -> Path:
    """Write a distribution with one module and its entry point; return the module's file."""
    module = f"{name.replace('-', '_')}_extension"
    about = site / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry or ENTRY.format(name=name, module=module))
    file = site / f"{module}.py"
    file.write_text(source)
    return file


def extension(name: str, parts: str = "", before: str = "") -> str:
    """Return the source of a module with an extension."""
    return (
        "from pathlib import Path\n"
        "from skillhouse.extension import ConfigSection, Extension, Hooks, ExtensionPage, Verb\n"
        f"{before}\n"
        f"EXTENSION = Extension(name={name!r}, {parts})\n"
    )


GREET = """
def _greet(options, terminal):
    terminal.line("hello")
    return 0

VERB = Verb("examples:\\n  skillhouse greet", lambda parser: None, _greet, summary="say hello")
"""
"""A verb that says hello."""

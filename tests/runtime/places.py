"""Places made of temporary directories, for the tests of the runtime and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skillhouse.runtime import Locations


def write_skill(directory: Path, description: str = "Does things.", body: str = "Body.\n") -> Path:
    """Write a valid skill named after its directory and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    text = f"---\nname: {directory.name}\ndescription: {description}\n---\n{body}"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    return directory


def make_places(base: Path, environment: Mapping[str, str] | None = None) -> Locations:
    """Return places below `base`: a home, and a project that is a git repository."""
    home, project = base / "home", base / "project"
    home.mkdir(exist_ok=True)
    (project / ".git").mkdir(parents=True, exist_ok=True)
    return Locations(
        start=project,
        home=home,
        environment=environment or {},
        managed_file=base / "managed.toml",
    )

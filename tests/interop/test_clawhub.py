"""`clawhub` finds, installs and updates skills of our registry."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.extensions.registry.hosting.servers import package, serving
from tests.harness import ran
from tests.interop import npx_skills
from tests.own_environments import own_npm

MAKES = "SKILLHOUSE_CLAWHUB"
MISSING = f"no environment for `clawhub`: {MAKES}=1 makes one, with npm and a network"

pytestmark = pytest.mark.slow


def test_the_program_installs_and_updates(tmp_path: Path) -> None:
    modules, node = own_npm("clawhub", makes=MAKES), npx_skills.node()
    if modules is None or node is None:
        pytest.skip(MISSING)
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    with serving(tmp_path / "state", "--name", "skills.example.com") as server:
        admin = server.token("admin")

        def published(name: str, version: str) -> bytes:
            archive = package(tmp_path, name.rpartition("--")[2], version)
            assert server.publish(archive, name, version, admin).status == 201
            return (tmp_path / "packed" / name.rpartition("--")[2] / "SKILL.md").read_bytes()

        def clawhub(*words: str) -> str:
            done = ran(
                [node, str(modules / "clawhub/bin/clawdhub.js"), "--registry", server.url, *words],
                cwd=project,
                env={"PATH": os.environ["PATH"], "HOME": str(home), "CI": "1"},
                stdin=subprocess.DEVNULL,
                timeout=npx_skills.SECONDS,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout + done.stderr

        first = published("notes", "1.0.0")
        published("acme--maps", "2.0.0")
        assert "acme--maps" in clawhub("search", "maps")
        clawhub("install", "notes")
        clawhub("install", "acme--maps")
        clawhub("install", "@acme/maps")
        assert (project / "skills/notes/SKILL.md").read_bytes() == first
        assert (project / "skills/acme--maps/SKILL.md").is_file()
        assert (project / "skills/@acme/maps/SKILL.md").is_file()
        assert "up to date" in clawhub("update", "notes", "--no-input")
        second = published("notes", "1.1.0")
        clawhub("install", "notes", "--version", "1.0.0", "--force")
        assert (project / "skills/notes/SKILL.md").read_bytes() == first
        clawhub("update", "notes", "--no-input")
        assert (project / "skills/notes/SKILL.md").read_bytes() == second != first

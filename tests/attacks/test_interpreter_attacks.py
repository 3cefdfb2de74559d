"""Attacks by way of the interpreter that is chosen for skill code: planted ones, and what it shows.

An interpreter is started on the host once, to learn its version, so that planting one where it is
looked for would be a way out of every sandbox.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.sandbox import (
    PythonPlaces,
    SandboxError,
    choose_python,
    installed_pythons,
    unusable_pythons,
)
from tests.extensions.cells.lab import Lab, lab, make
from tests.harness import Need
from tests.sandbox.places import copied_python

pytestmark = pytest.mark.slow

__all__ = ["lab"]

LOOKS = """
    import os

    def tool(params, context):
        found = []
        for place in params["places"]:
            try:
                with open(place) as file:
                    found.append(file.read())
            except OSError as error:
                found.append(type(error).__name__)
        for place in params["written"]:
            try:
                with open(place, "a") as file:
                    found.append("written")
            except OSError as error:
                found.append(error.strerror)
        return found

    tools = {"tool": tool}
"""


def planted(program: Path, mark: Path) -> Path:
    """Write a program that says that it was run, and that it is a fine Python."""
    program.parent.mkdir(parents=True)
    (program.parent.parent / "lib").mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    return program


def tried(places: PythonPlaces) -> tuple[str, ...]:
    """Look for an interpreter in every way there is; return why those found are not usable."""
    with pytest.raises(SandboxError):
        choose_python([">=3.98"], places, skill="s", only_default=False)
    installed_pythons(places)
    return unusable_pythons(places)


@pytest.mark.parametrize("place", [".pyenv/versions/3.98.0", ".local/share/uv/python/cpython-3.98"])
def test_what_a_command_planted_in_the_workspace_is_not_started(place: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    planted(tmp_path / "home" / place / "bin/python3", mark)
    # Started in the home directory, the workspace is all of it.
    assert any("it is in the workspace" in one
               for one in tried(PythonPlaces({"HOME": str(tmp_path / "home")}, tmp_path / "home"))
               )  # fmt: skip
    assert not mark.exists()
    # The very same is started from elsewhere, or this test would show nothing.
    (tmp_path / "other").mkdir()
    tried(PythonPlaces({"HOME": str(tmp_path / "home")}, tmp_path / "other"))
    assert mark.exists()


def test_a_link_into_the_workspace_is_not_followed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    planted(tmp_path / "project/python/bin/python3", mark)
    versions = tmp_path / "home/.pyenv/versions"
    versions.mkdir(parents=True)
    (versions / "3.98.0").symlink_to(tmp_path / "project/python")
    where = PythonPlaces({"HOME": str(tmp_path / "home")}, tmp_path / "project")
    assert any("it is in the workspace" in one for one in tried(where))
    assert not mark.exists()


def test_a_relative_place_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "ran"
    planted(tmp_path / "here/cpython-3.98.0/bin/python3", mark)
    planted(tmp_path / "versions/3.98.0/bin/python3", mark)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    variables = {"UV_PYTHON_INSTALL_DIR": "here", "PYENV_ROOT": ".", "HOME": ""}
    tried(PythonPlaces(variables, tmp_path / "project"))
    assert not mark.exists()


@pytest.mark.parametrize("place", ["bin", "lib", "", ".."])
def test_what_others_can_change_is_not_started(place: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = planted(tmp_path / "home/.pyenv/versions/3.98.0/bin/python3", mark)
    open_to_all = program.parent.parent / place
    open_to_all.chmod(0o777)
    (tmp_path / "project").mkdir()
    where = PythonPlaces({"HOME": str(tmp_path / "home")}, tmp_path / "project")
    assert any("other users can write the directory" in one for one in tried(where))
    assert not mark.exists()


def test_an_interpreter_in_a_home_shows_and_changes_nothing_else_of_it(
    lab: Lab, tmp_path: Path, need: Need
) -> None:
    prefix = tmp_path / "home/.local"
    python = copied_python(prefix, need)
    secret = prefix / "share/skillhouse/secret"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    neighbour = prefix / "bin/deploy"
    neighbour.write_text("secret")
    inside = Path(python.inside).parent.parent
    library = f"lib/python{python.version[0]}.{python.version[1]}/os.py"
    places = [secret, neighbour, inside / "share/skillhouse/secret", inside / "bin/deploy"]
    arguments = {
        "places": [*map(str, places)],
        "written": [str(inside / library), str(inside / "lib/new.py")],
    }
    result = lab.call(make(tmp_path / "skills", LOOKS, python=python), arguments=arguments)
    assert result.value == [
        *["FileNotFoundError"] * 4,
        *["Read-only file system"] * 2,
    ], result
    assert os.access(prefix / library, os.W_OK)

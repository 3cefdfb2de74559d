"""Tests of sandbox/interpreters.py: which Python runs skill code, and what a cell shows of it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from skillhouse.sandbox import (
    PythonPlaces,
    SandboxError,
    choose_python,
    default_python,
    installed_pythons,
    unusable_pythons,
)
from skillhouse.sandbox.interpreters import examine
from tests.harness import Need
from tests.sandbox.places import copied_python

# Each interpreter that is found is started once.
pytestmark = pytest.mark.slow


def places(tmp_path: Path, **variables: str) -> PythonPlaces:
    """Return places whose only home is in `tmp_path`, beside the workspace."""
    (tmp_path / "workspace").mkdir(exist_ok=True)
    given = {"HOME": str(tmp_path / "home"), **variables}
    return PythonPlaces(given, tmp_path / "workspace")


def test_the_default_is_our_own_where_a_cell_can_show_it() -> None:
    found = default_python()
    if found.origin == "skillhouse":
        assert (found.version, found.prefix) == (sys.version_info[:3], Path(sys.base_prefix))
        assert found.why == "runs skillhouse itself"
    else:
        assert f"skillhouse's own {'.'.join(map(str, sys.version_info[:3]))}" in found.why
    assert not found.program.is_symlink()


@pytest.mark.parametrize(
    ("place", "variable"),
    [
        ("home/.local/share/uv/python/cpython-{}-linux-x86_64-gnu", ""),
        ("data/uv/python/cpython-{}-linux-x86_64-gnu", "XDG_DATA_HOME=data"),
        ("elsewhere/cpython-{}-linux-x86_64-gnu", "UV_PYTHON_INSTALL_DIR=elsewhere"),
        ("home/.pyenv/versions/{}", ""),
        ("root/versions/{}", "PYENV_ROOT=root"),
    ],
)
def test_what_uv_and_pyenv_installed_is_found(
    place: str, variable: str, tmp_path: Path, need: Need
) -> None:
    made = copied_python(tmp_path / "made", need)
    prefix = tmp_path / place.format(made.release)
    prefix.parent.mkdir(parents=True)
    (tmp_path / "made").rename(prefix)
    name, _, value = variable.partition("=")
    where = places(tmp_path, **({name: str(tmp_path / value)} if name else {}))
    found = [one for one in installed_pythons(where) if one.program.is_relative_to(prefix)]
    assert [(one.version, one.prefix) for one in found] == [(made.version, prefix)]
    assert found[0].origin == ("uv" if "cpython" in place else "pyenv")
    chosen = choose_python([f"=={made.release}"], where, skill="s", only_default=False)
    assert chosen.release == made.release


def test_a_requirement_that_nothing_meets_names_what_was_found(tmp_path: Path) -> None:
    old = tmp_path / "home/.pyenv/versions/3.99.0/bin/python3"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\nexit 3\n")
    old.chmod(0o755)
    where = places(tmp_path)
    with pytest.raises(SandboxError) as caught:
        choose_python([">=3.98", "==3.99.*"], where, skill="far", only_default=False)
    text = str(caught.value)
    assert caught.value.code == "python-missing"
    assert text.startswith(f"`far` needs Python >=3.98, ==3.99.*; found {default_python().text}")
    assert f"not usable: `{old}` does not start" in text
    with pytest.raises(SandboxError, match="no other can be taken where this code runs"):
        choose_python([">=3.98"], where, skill="far", only_default=True)


def test_too_old_and_other_builds_are_no_candidates(tmp_path: Path, need: Need) -> None:
    made = copied_python(tmp_path / "home/.pyenv/versions/3.10.1", need)
    ran = tmp_path / "ran"
    pypy = tmp_path / "home/.pyenv/versions/pypy-3.11.9/bin/python3"
    pypy.parent.mkdir(parents=True)
    pypy.write_text(
        f'#!/bin/sh\ntouch {ran}\necho \'["pypy", [3, 11, 9], "{made.prefix}", ".so", []]\'\n'
    )
    pypy.chmod(0o755)
    where = places(tmp_path)
    assert all(one.prefix != made.prefix for one in installed_pythons(where))
    assert any("expected an ordinary build of CPython, got pypy" in one
               for one in unusable_pythons(where))  # fmt: skip
    assert ran.exists()


def test_only_what_an_interpreter_needs_of_its_prefix_is_shown(tmp_path: Path, need: Need) -> None:
    made = copied_python(tmp_path / "home/.local", need)
    (tmp_path / "home/.local/share/keyrings").mkdir(parents=True)
    assert made.readable == (made.program, made.prefix / "lib")
    # Below /tmp, which a cell has of its own, it gets another path inside.
    inside = {inside for _, inside in made.mounts}
    is_covered = made.prefix.is_relative_to("/tmp")
    assert inside == (
        {f"/python/bin/{made.program.name}", "/python/lib"}
        if is_covered
        else {str(path) for path in made.readable}
    )


def test_an_interpreter_that_a_cell_cannot_show_says_why(tmp_path: Path, need: Need) -> None:
    made = copied_python(tmp_path / "made", need)
    library = next((tmp_path / "made/lib").glob("python3.*"))
    library.rename(tmp_path / "library")
    library.symlink_to(tmp_path / "library")
    os.utime(made.program, ns=(1, 1))  # What is known of it is of the file as it was.
    assert "its library is outside" in str(examine(made.program, "uv"))
    shutil.rmtree(tmp_path / "library/encodings")
    os.utime(made.program, ns=(2, 2))
    assert "does not start" in str(examine(made.program, "uv"))
    assert "no such file" in str(examine(tmp_path / "none", "uv"))

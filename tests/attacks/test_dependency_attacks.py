"""Attacks by lock files: each works on an installer that is given them as they are."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from skillhouse.extensions.cells.environments import EnvironmentRules, prepare
from skillhouse.sandbox import SandboxError, default_python
from skillhouse.skill import SkillManifest
from tests.extensions.cells.packages import npm_package, npm_registry, source_package, wheel
from tests.extensions.cells.test_environments import (
    JAVASCRIPT,
    PYTHON,
    UV,
    environment_of,
    npm_skill,
    python_skill,
    rules_for,
    said,
)

NPM = shutil.which("npm")
needs_npm = pytest.mark.skipif(NPM is None, reason="npm is not installed")


def naive(argv: Sequence[str], rules: EnvironmentRules, *, cwd: Path) -> int:
    """Run an installer in the skill's own directory, as a person would."""
    variables = {"HOME": "/nonexistent", **rules.variables}
    done = subprocess.run(
        argv, cwd=cwd, env=variables, capture_output=True, check=False, timeout=60
    )
    return done.returncode


def code_of(manifest: SkillManifest, skill: Path, tmp_path: Path, rules: EnvironmentRules) -> str:
    async def go() -> None:
        await prepare(manifest, skill, tmp_path / "cache", rules=rules)

    with pytest.raises(SandboxError) as caught:
        anyio.run(go)
    return caught.value.code


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--find-links", "--extra-index-url"])
def test_a_requirements_file_that_brings_its_own_packages(option: str, tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    sha = wheel(skill / "own", "greet", "1.0", "word = 'evil'")
    place = f"{skill}/own" if option == "--find-links" else (skill / "own").as_uri()
    lines = f"{option} {place}\ngreet==1.0 --hash=sha256:{sha}\n"
    (skill / "requirements.txt").write_text(lines)
    rules = rules_for(tmp_path)
    if option == "--find-links":
        argv = [
            str(UV),
            "pip",
            "install",
            "--target",
            f"{tmp_path}/naive",
            "-r",
            "requirements.txt",
        ]
        assert naive(argv, rules, cwd=skill) == 0
        assert "evil" in (tmp_path / "naive/greet.py").read_text()
    assert code_of(PYTHON, skill, tmp_path, rules) == "dependencies-line"


@pytest.mark.slow
def test_a_uv_lock_that_brings_its_own_package(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    sha = wheel(skill / "own", "greet", "1.0", "word = 'evil'")
    file = "own/greet-1.0-py3-none-any.whl"
    (skill / "pyproject.toml").write_text(
        '[project]\nname = "s"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["greet"]\n[tool.uv.sources]\ngreet = {{ path = "{file}" }}\n'
    )
    (skill / "uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.11"\n'
        f'[[package]]\nname = "greet"\nversion = "1.0"\nsource = {{ path = "{file}" }}\n'
        f'wheels = [{{ filename = "greet-1.0-py3-none-any.whl", hash = "sha256:{sha}" }}]\n'
        '[[package]]\nname = "s"\nversion = "1"\nsource = { virtual = "." }\n'
        'dependencies = [{ name = "greet" }]\n'
        "[package.metadata]\n"
        f'requires-dist = [{{ name = "greet", path = "{file}" }}]\n'
    )
    rules = rules_for(tmp_path)
    python = str(default_python().program)
    argv = [str(UV), "sync", "--frozen", "--offline", "--no-python-downloads", "--python", python]
    assert naive(argv, rules, cwd=skill) == 0
    assert [path.read_text() for path in skill.glob(".venv/lib/*/site-packages/greet.py")] == [
        "word = 'evil'"
    ]
    assert code_of(PYTHON, skill, tmp_path, rules) == "dependencies-source"


@pytest.mark.slow
def test_a_package_whose_building_runs_code_on_the_host(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    sha = source_package(tmp_path / "wheels", "greet", "1.0", f"open({str(ran)!r}, 'w').close()")
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "requirements.txt").write_text(f"greet==1.0 --hash=sha256:{sha}\n")
    rules = rules_for(tmp_path)
    argv = [str(UV), "pip", "install", "--target", f"{tmp_path}/naive", "-r", "requirements.txt"]
    naive(argv, rules, cwd=skill)
    assert ran.exists()
    ran.unlink()
    assert code_of(PYTHON, skill, tmp_path, rules) == "dependencies-install"
    assert not ran.exists()


@needs_npm
@pytest.mark.slow
async def test_npm_scripts_and_settings_of_the_skill(tmp_path: Path) -> None:
    data = npm_package("greet", "1.0.0", "module.exports = 1;")
    skill = npm_skill(tmp_path, "1.0.0", data)
    served = {("greet", "1.0.0"): data}
    with npm_registry(served) as (address, _), npm_registry(served) as (own, asked):
        rules = rules_for(
            tmp_path, npm_config_registry=address, npm_config_cache=str(tmp_path / "npm-cache")
        )
        # The skill's lock sends npm to a server of its own, and its scripts run.
        lock = json.loads((skill / "package-lock.json").read_text())
        lock["packages"]["node_modules/greet"]["resolved"] = f"{own}greet@1.0.0.tgz"
        (skill / "package-lock.json").write_text(json.dumps(lock))
        (skill / ".npmrc").write_text(f"registry={own}\nignore-scripts=false\n")
        assert naive([str(NPM), "ci"], rules, cwd=skill) == 0
        assert asked
        assert (tmp_path / "ran").exists()
        (tmp_path / "ran").unlink()
        shutil.rmtree(skill / "node_modules")
        shutil.rmtree(tmp_path / "npm-cache")
        asked.clear()
        assert await prepare(JAVASCRIPT, skill, tmp_path / "cache", rules=rules)
    assert asked == []
    assert not (tmp_path / "ran").exists()


def test_a_lock_that_is_a_link_to_a_file_of_the_host(tmp_path: Path) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    (tmp_path / "secret").write_text("password")
    (skill / "requirements.txt").symlink_to(tmp_path / "secret")
    assert "password" in (skill / "requirements.txt").read_text()
    assert code_of(PYTHON, skill, tmp_path, rules_for(tmp_path)) == "dependencies-lock"


def test_an_npm_package_outside_node_modules(tmp_path: Path) -> None:
    skill = npm_skill(tmp_path, "1.0.0", b"x")
    lock = json.loads((skill / "package-lock.json").read_text())
    entry = lock["packages"].pop("node_modules/greet")
    for place in ("../../evil", "node_modules/../../evil", "node_modules/.bin/../x", "packages/a"):
        (skill / "package-lock.json").write_text(
            json.dumps({**lock, "packages": {**lock["packages"], place: entry}})
        )
        assert code_of(JAVASCRIPT, skill, tmp_path, rules_for(tmp_path)) == "dependencies-source"


def test_no_secret_of_the_core_reaches_an_installer(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    spy = tmp_path / "uv"
    spy.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    spy.chmod(0o755)
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "requirements.txt").write_text(f"greet==1.0 --hash=sha256:{'0' * 64}\n")
    os.environ["ALCHEMY_API_KEY"] = "canary-of-the-core"
    try:
        rules = EnvironmentRules(uv=spy, variables={"PATH": os.environ["PATH"]})
        assert code_of(PYTHON, skill, tmp_path, rules) == "dependencies-install"
    finally:
        del os.environ["ALCHEMY_API_KEY"]
    assert "canary-of-the-core" not in seen.read_text()


@pytest.mark.slow
def test_bytecode_in_a_wheel_that_is_not_of_its_source(tmp_path: Path) -> None:
    """The source that anyone reads is harmless; an import would take the bytecode beside it."""
    code = compile("word = 'evil'", "greet.py", "exec")
    data = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)
    wheel(tmp_path / "wheels", "greet", "1.0", "word = 'good'\n")
    path = tmp_path / "wheels" / "greet-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"__pycache__/greet.{sys.implementation.cache_tag}.pyc", data)
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    skill = python_skill(tmp_path, f"greet==1.0 --hash=sha256:{sha}")
    found = environment_of(PYTHON, skill, tmp_path, rules_for(tmp_path))
    assert said("import greet; print(greet.word)", found.path) == "good"

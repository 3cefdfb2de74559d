"""The stock `model_signing` command line accepts our signatures, in an environment of its own.

What it lets pass besides is shown too: that is why we verify ourselves (docs/decisions/0275).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.registry import pem_of, write_bundle
from tests.harness import ran
from tests.own_environments import own_python
from tests.registry.pki import World, issued, make_world, signed

MAKES = "SKILLHOUSE_MODEL_SIGNING"


@pytest.fixture(scope="module")
def program() -> Path:
    python = own_python("model-signing", makes=MAKES)
    if python is None:
        pytest.skip(f"no environment for model_signing: {MAKES}=1 makes one, with a network")
    return python.with_name("model_signing")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def accepts(program: Path, world: World, *options: str) -> bool:
    root = world.directory.parent / "root.crt"
    root.write_bytes(pem_of([world.root.certificate]))
    signature = world.directory / "skill.sig"
    command = [str(program), "verify", "certificate", str(world.directory)]
    command += ["--signature", str(signature), "--certificate_chain", str(root), *options]
    done = ran(command, timeout=120, env={**os.environ, "HOME": str(world.directory.parent)})
    assert ("Verification succeeded" in done.stdout + done.stderr) is (done.returncode == 0)
    return done.returncode == 0


@pytest.mark.slow
def test_it_accepts_what_we_sign(program: Path, world: World) -> None:
    (world.directory / "skill.sig").write_bytes(world.signature())
    assert accepts(program, world, "--no-ignore-git-paths")
    middle = issued(world.root, "")
    bundle = signed(world.directory, issued(middle))
    (world.directory / "skill.sig").write_bytes(write_bundle(bundle))
    assert accepts(program, world, "--no-ignore-git-paths")
    # What it would ignore, we sign and compare; notes of an installer neither of us does.
    (world.directory / ".skill").mkdir()
    (world.directory / ".skill" / "notes").write_text("installed")
    assert accepts(program, world, "--no-ignore-git-paths")


@pytest.mark.slow
def test_it_refuses_changed_files_and_lets_changed_modes_pass(program: Path, world: World) -> None:
    (world.directory / "skill.sig").write_bytes(world.signature())
    (world.directory / "SKILL.md").chmod(0o755)
    assert accepts(program, world)
    (world.directory / "SKILL.md").write_text("other")
    assert not accepts(program, world)

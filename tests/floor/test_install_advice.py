"""Tests of floor/install_advice.py."""

from __future__ import annotations

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from skillhouse.floor import extra_advice, package_advice
from skillhouse.floor.install_advice import _IN_ALL

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "pydantic-ai-slim[anthropic]"


def prefix_of(base: Path, kind: str) -> Path:
    prefix = base / ".x/env"
    prefix.mkdir(parents=True)
    if kind == "clone":
        (base / "x").write_text("")
    files = {"tool": "uv-receipt.toml", "pipx": "pipx_metadata.json"}
    if kind in files:
        (prefix / files[kind]).write_text("")
    if kind == "pip":
        (prefix / "lib/python3.12/site-packages/pip").mkdir(parents=True)
    return prefix


@pytest.mark.parametrize(
    ("kind", "extra", "package"),
    [
        (
            "clone",
            "run `{b}/.x/uv/bin/uv pip install --python {p}/bin/python -e '{b}[chat]'`",
            "run `{b}/.x/uv/bin/uv pip install --python {p}/bin/python '" + PACKAGE + "'`",
        ),
        (
            "tool",
            "run in the clone `uv tool install --force '.[all]'`",
            f"run in the clone `uv tool install --force --with '{PACKAGE}' '.[all]'`",
        ),
        (
            "pipx",
            "run in the clone `pipx install --force '.[all]'`",
            f"run `pipx inject skillhouse '{PACKAGE}'`",
        ),
        (
            "pip",
            "run in the clone `{p}/bin/python -m pip install '.[chat]'`",
            "run `{p}/bin/python -m pip install '" + PACKAGE + "'`",
        ),
        (
            "uv",
            "run in the clone `uv pip install --python {p}/bin/python '.[chat]'`",
            "run `uv pip install --python {p}/bin/python '" + PACKAGE + "'`",
        ),
    ],
)
def test_the_advice_is_a_command_for_the_environment_that_runs(
    tmp_path: Path, kind: str, extra: str, package: str
) -> None:
    prefix = prefix_of(tmp_path, kind)
    names = {"p": str(prefix), "b": str(tmp_path)}
    found = (extra_advice("chat", prefix), package_advice(PACKAGE, prefix))
    wanted = (extra.format(**names), package.format(**names))
    assert found == wanted


def test_a_framework_is_added_to_all_that_a_tool_has(tmp_path: Path) -> None:
    prefix = prefix_of(tmp_path, "tool")
    assert extra_advice("langchain", prefix).endswith("'.[all,langchain]'`")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tool", "uv tool install --force --with ./signer '.[all]'"),
        ("pipx", "pipx inject skillhouse ./signer"),
    ],
)
def test_the_signer_is_a_distribution_of_its_own(tmp_path: Path, kind: str, said: str) -> None:
    assert extra_advice("signer", prefix_of(tmp_path, kind)) == f"run in the clone `{said}`"


def test_the_extras_of_all_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [whole] = project["optional-dependencies"]["all"]
    assert set(whole.partition("[")[2].rstrip("]").split(",")) == _IN_ALL


def test_in_this_clone_the_programs_of_the_advice_are_there() -> None:
    if Path(sys.prefix) != ROOT / ".x/env":
        pytest.skip("not the environment of ./x")
    command = shlex.split(extra_advice("chat").split("`")[1])
    uv, python = Path(command[0]), Path(command[command.index("--python") + 1])
    assert uv.is_file()
    assert python.is_file()
    assert command[-1] == f"{ROOT}[chat]"

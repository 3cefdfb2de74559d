"""Tests of manage/code_reload.py: packages of skills before their first call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillhouse.house import code_packages
from skillhouse.manage.code_reload import prepare_code
from skillhouse.sandbox import SandboxStatus
from skillhouse.tools import SkillCodeTool
from tests.extensions.cells.packages import wheel
from tests.house.coded import coded_house, letting_go, write_code

UV_DIRECTORY = Path(__file__).parents[2] / ".x/uv/bin"
USES = "import greet\ntools = {'tool': lambda params, context: greet.word}\n"


async def test_what_was_prepared_is_not_installed_by_the_first_call(
    status: SandboxStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is said however soon it is done.
    for name in ("QUIET_SECONDS", "WORD_SECONDS"):
        monkeypatch.setattr(code_packages, name, 0.001)
    digest = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    for name in ("sdk", "other"):
        skill = write_code(tmp_path / "root" / name, USES, dependencies=["greet"])
        if name == "sdk":
            (skill / "requirements.txt").write_text(f"greet==1.0 --hash=sha256:{digest}\n")
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\noffline = true\nfind-links = ["{tmp_path}/wheels"]\n')
    made = lambda: coded_house(  # noqa: E731 - the same twice, as in two processes.
        tmp_path, tmp_path / "root", status=status,
        environment={
            "PATH": os.pathsep.join((str(UV_DIRECTORY), os.environ["PATH"])),
            "UV_CONFIG_FILE": str(settings),
            "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        },
    )  # fmt: skip
    said: list[str] = []
    async with letting_go(made()) as house:
        scopes = {t.skill.scope for t in house.tools() if isinstance(t, SkillCodeTool)}
        (scope,) = scopes
        assert await prepare_code(house, [f"{scope}:nothing"], say=said.append) == ()
        assert said == []
        failed = await prepare_code(house, [f"{scope}:sdk", f"{scope}:other"], say=said.append)
        assert [name for name, _ in failed] == ["other"]
        assert "expected uv.lock" in failed[0][1]
        assert said == ["sdk: installing 1 package"]
    # A call of a new process finds them: there is nothing left to install from.
    for file in (tmp_path / "wheels").iterdir():
        file.unlink()
    async with letting_go(made()) as house:
        assert (await house.call("sdk:tool", {})).content == "hello"

"""Tests of house/code_packages.py: one installation for all calls, to its end."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from skillhouse.house import code_packages
from skillhouse.house.code_packages import CodePackages
from skillhouse.sandbox import SandboxError, SandboxStatus
from skillhouse.tools import Progress, skill_code
from tests.extensions.cells.packages import wheel
from tests.house.coded import coded_house, letting_go, write_code

PROGRAMS = os.pathsep.join((str(Path(__file__).parents[2] / ".x/uv/bin"), os.environ["PATH"]))
HERE, THERE = Path("/skills/a"), Path("/skills/b")


class Installer:
    """Installs when it is let go, and counts how often."""

    def __init__(self, packages: int = 13) -> None:
        self.goes = asyncio.Event()
        self.began = 0
        self.let_go = 0
        self._packages = packages

    async def __call__(self, count: Callable[[int], None]) -> tuple[Path, ExitStack]:
        self.began += 1
        count(self._packages)
        await self.goes.wait()
        kept = ExitStack()
        kept.callback(self._released)
        return Path("/packages"), kept

    def _released(self) -> None:
        self.let_go += 1


async def test_who_is_answered_early_finds_it_installed_later() -> None:
    packages, installer = CodePackages(), Installer()
    said: list[tuple[float, str]] = []
    with pytest.raises(SandboxError, match="installing 13 packages goes on: repeat") as caught:
        await packages.get(HERE, installer, say=lambda *word: said.append(word), within=0.3)
    assert caught.value.code == "dependencies-installing"
    assert said
    assert {text for _, text in said} == {"installing 13 packages"}
    # Its words leave the whole scale to the tool's own.
    assert all(0 < fraction < 0.05 for fraction, _ in said)
    assert not packages.knows(HERE)
    installer.goes.set()
    assert await packages.get(HERE, installer) == Path("/packages")
    assert (installer.began, packages.knows(HERE)) == (1, True)
    await packages.close()
    assert installer.let_go == 1


async def test_it_goes_on_although_the_caller_left_and_others_join_it() -> None:
    packages, installer = CodePackages(), Installer()
    with anyio.move_on_after(0.05) as left:
        await packages.get(HERE, installer)
    assert left.cancelled_caught
    found: list[Path | None] = []

    async def join() -> None:
        found.append(await packages.get(HERE, installer))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(join)
        await anyio.lowlevel.checkpoint()
        installer.goes.set()
    assert (found, installer.began) == ([Path("/packages")] * 3, 1)
    await packages.close()


async def test_a_failure_is_for_all_who_wait_and_is_tried_again() -> None:
    packages, calls = CodePackages(), []

    async def fails(count: Callable[[int], None]) -> None:
        calls.append(1)
        raise SandboxError("dependencies-install", "no such wheel")

    for _ in range(2):
        with pytest.raises(SandboxError, match="no such wheel"):
            await packages.get(HERE, fails)
    assert len(calls) == 2


async def test_what_is_here_is_found_without_a_word() -> None:
    packages, said = CodePackages(), []

    async def here(count: Callable[[int], None]) -> None:
        await anyio.lowlevel.checkpoint()

    assert await packages.get(HERE, here, say=lambda *word: said.append(word)) is None
    assert (said, packages.knows(HERE), packages.knows(THERE)) == ([], True, False)
    packages.forget()
    assert not packages.knows(HERE)


async def test_close_ends_what_is_being_installed() -> None:
    packages, installer = CodePackages(), Installer()
    with pytest.raises(SandboxError, match="goes on"):
        await packages.get(HERE, installer, within=0.05)
    await packages.close()
    assert (packages.knows(HERE), installer.let_go) == (False, 0)


async def test_a_client_with_a_time_out_is_answered_and_the_next_call_runs(
    status: SandboxStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_code, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(code_packages, "WORD_SECONDS", 0.05)
    digest = wheel(tmp_path / "wheels", "greet", "1.0", "word = 'hello'")
    uses = "import greet\ntools = {'tool': lambda params, context: greet.word}\n"
    skill = write_code(tmp_path / "root/sdk", uses)
    (skill / "requirements.txt").write_text(f"greet==1.0 --hash=sha256:{digest}\n")
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\noffline = true\nfind-links = ["{tmp_path}/wheels"]\n')
    slow = tmp_path / "bin/uv"
    slow.parent.mkdir()
    # It waits until the test lets it go.
    slow.write_text(
        f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.02; done\n"
        f'exec {shutil.which("uv", path=PROGRAMS)} "$@"\n'
    )
    slow.chmod(0o755)
    house = coded_house(
        tmp_path, tmp_path / "root", status=status,
        environment={
            "PATH": f"{slow.parent}:/usr/bin:/bin",
            "UV_CONFIG_FILE": str(settings),
            "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
        },
    )  # fmt: skip
    said: list[str] = []

    async def hear(progress: Progress) -> None:
        said.append(progress.message)

    async with letting_go(house):
        first = await house.call("sdk:tool", {}, channel="mcp", listener=hear)
        assert first.is_error
        assert "installing 1 package goes on: repeat the call in a moment" in first.content
        assert set(said) == {"installing 1 package"}
        (tmp_path / "go").touch()
        # Another channel waits to the end of the very same installation.
        again = await house.call("sdk:tool", {})
        assert (again.is_error, again.content) == (False, "hello")
        assert (await house.call("sdk:tool", {}, channel="mcp")).content == "hello"

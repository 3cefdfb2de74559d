"""What the pages and the recording need: an installed wheel, on a machine as a newcomer has it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripts.terminal import Terminal, build, install, short_home

from tests.guides.pages import Installed
from tests.house.coded import best_sandbox

FOR_ALL = (Path("/etc/codex/skills"), Path("/etc/claude-code"), Path("/etc/skillhouse"))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return what installs the wheel with extras, and tells where its programs are."""
    place = tmp_path_factory.mktemp("installed")
    wheel = build(place)

    @functools.cache
    def programs_with(extras: tuple[str, ...]) -> Path:
        packages = [one[1:] for one in extras if one.startswith("+")]
        return install(wheel, place / "-".join(("env", *extras)), extras, packages)

    return programs_with


@pytest.fixture(scope="session")
def programs(installed: Installed) -> Path:
    """Return where the programs of the README's first install line are."""
    return installed(("all",))


@pytest.fixture
def terminal(programs: Path) -> Iterator[Terminal]:
    """A terminal in an empty home, with the programs of the README's first install line."""
    with short_home() as home:
        made = Terminal(home, programs)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def newcomer(need: Callable[[object, str], None]) -> None:
    """Skip where commands cannot run, or a client has skills for all users: reports name those."""
    best_sandbox(need)
    common = [path for path in FOR_ALL if path.exists()]
    need(not common, f"clients have settings for all users of this machine: {common}")

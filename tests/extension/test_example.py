"""The extension of examples/ is installed as its guide says, and works."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.extension.environments import Environment
from tests.guides.pages import Names, blocks, steps
from tests.own_environments import UV

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/extension"
GUIDE = "docs/guides/write-an-extension.md"
pytestmark = pytest.mark.slow  # It starts processes.


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the example, editable, without any package index."""
    made = Environment(tmp_path_factory.mktemp("example"))
    words = ("pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation")
    command = (UV, *words, "--python", made.python, "--editable", EXAMPLE)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    program = made.python.with_name("skillhouse")
    program.write_text(
        f"#!{made.python}\nimport sys\nfrom skillhouse.frontends.cli import main\n"
        "sys.exit(main())\n"
    )
    program.chmod(0o755)
    return made


def test_the_guide_shows_the_entry_point_of_the_example() -> None:
    (shown,) = [one.text for one in blocks(GUIDE) if one.language == "toml"]
    about = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    assert tomllib.loads(shown)["project"]["entry-points"] == about["entry-points"]


def test_the_commands_of_the_guide_print_what_it_shows(installed: Environment) -> None:
    (block,) = [one for one in blocks(GUIDE) if one.mark == "run by"]
    assert ROOT / block.reason == Path(__file__)
    names = Names()
    for command, shown in steps(block.text):
        done = subprocess.run(
            ("sh", "-c", command),
            cwd=installed.place,
            env={
                "PATH": f"{installed.python.parent}:/usr/bin:/bin",
                "HOME": str(installed.home),
                "COLUMNS": "80",
            },
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stderr
        assert names.match(shown, done.stdout), done.stdout


@pytest.fixture
def address(installed: Environment) -> Iterator[str]:
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(installed.home)}
    command = (installed.python.with_name("skillhouse"), "up", "--port", "0")
    serving = subprocess.Popen(
        command, cwd=installed.place, env=kept, stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    try:
        yield serving.stdout.readline().strip()
    finally:
        serving.terminate()
        serving.wait(30)
        serving.stdout.close()


def test_its_page_is_shown_to_the_owner_alone_and_as_text(address: str) -> None:
    base, _, token = address.partition("?token=")
    page = f"{base}extensions/tides/"
    with httpx.Client(headers={"authorization": f"Bearer {token}"}) as client:
        assert "north: high at six" in client.get(page).text
        odd = client.get(page, params={"sea": "<b>x</b>"}).text
        assert "&lt;b&gt;x&lt;/b&gt;: not known" in odd
        assert client.get(f"{page}other").status_code == 404
        assert client.post(page).status_code in (403, 405)
    assert httpx.get(page).status_code == 401


def test_its_route_answers_programs_that_may_read_and_is_documented(address: str) -> None:
    base, _, token = address.partition("?token=")
    route = f"{base}api/v1/extensions/tides/tide"
    with httpx.Client(headers={"authorization": f"Bearer {token}"}) as client:
        assert client.get(route).json() == {"sea": "north", "high": "high at six"}
        assert client.get(route, params={"sea": "baltic"}).json()["high"] == "hardly any"
        assert client.get(route, params={"lake": "x"}).status_code == 400
        assert client.post(route).status_code == 405
        paths = client.get(f"{base}api/v1/openapi.json").json()["paths"]
        assert paths["/api/v1/extensions/tides/tide"]["get"]["summary"].startswith("When the tide")
    assert httpx.get(route).status_code == 401


def test_its_section_says_which_sea_its_tool_takes(installed: Environment) -> None:
    file = installed.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[tides]\nsea = "baltic"\n')
    try:
        said = installed.run("call", "tide", "--args", "{}", "--json")
        assert json.loads(said.stdout)["content"] == "hardly any"
        file.write_text('[tides]\nsea = "dead"\n')
        refused = installed.run("list")
        assert (refused.returncode, "expected one of north, baltic" in refused.stderr) == (2, True)
    finally:
        file.unlink()

"""Every entry has the skills and rules of the last good bundle, from the disk and without network.

None of them looks for one: the source is gone when they begin.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from skillhouse.frontends.mcp.server import SkillhouseServer
from skillhouse.frontends.mcp.tool_list import ToolListing
from skillhouse.house import Skillhouse, configured
from tests.bundles import BundlePlace
from tests.extensions.server.api.place import API, client_of
from tests.frontends.conftest import Run
from tests.frontends.hooks.hooked_home import HookedHome
from tests.frontends.test_profiles_everywhere import connected
from tests.house.places import write_skill

RULES = """[[rules]]
effect = "deny"
action = "exec"
pattern = "rm *"
reason = "of bundle {}"

[[rules]]
effect = "allow"
action = "skill"
pattern = "*"
"""
MORE = 'source_rules = "defaults"\n'


@pytest.fixture
def published(tmp_path: Path) -> BundlePlace:
    """A machine with bundle 1, whose source is gone."""
    place = BundlePlace(tmp_path, more=MORE)
    take(place, 1)
    return place


def take(place: BundlePlace, number: int) -> None:
    write_skill(place.skills / "winds", body=f"Wind {number}.\n")
    place.push(number, rules=RULES.format(number))
    assert place.look().status == "taken"
    shutil.rmtree(place.store)


def library(house: Skillhouse) -> tuple[str, str, str]:
    listed = house.catalog().text
    return listed, house.call_sync("skill", {"name": "winds"}).content, denied(house)


def denied(house: Skillhouse) -> str:
    return house.call_sync("exec", {"command": "rm -rf build"}).content


def mcp(house: Skillhouse) -> tuple[str, str, str]:
    async def main() -> tuple[str, str, str]:
        server = SkillhouseServer(house, ToolListing(house, "default"), agent="default", user="me")
        async with connected(server) as client:
            listed = "\n".join(tool.description for tool in (await client.list_tools()).tools)
            loaded = await client.call_tool("skill", {"name": "winds"})
            refused = await client.call_tool("exec", {"command": "rm -rf build"})
        return listed, str(loaded.content), str(refused.content)

    return anyio.run(main)


def http(house: Skillhouse) -> tuple[str, str, str]:
    client = client_of(house)

    def call(name: str, given: dict[str, str]) -> str:
        return client.post(f"{API}/calls", json={"tool": name, "arguments": given}).text

    listed = client.get(f"{API}/catalog").text
    return listed, call("skill", {"name": "winds"}), call("exec", {"command": "rm -rf build"})


ENTRIES: dict[str, Callable[[Skillhouse], tuple[str, str, str]]] = {
    "library": library,
    "mcp": mcp,
    "http": http,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_has_the_last_good_bundle_and_follows_the_next(
    published: BundlePlace, entry: str
) -> None:
    with Skillhouse(configured(published.places)) as house:
        for number in (1, 2):
            if number == 2:
                # Another process of this machine takes it.
                take(published, 2)
            listed, loaded, refused = ENTRIES[entry](house)
            assert "winds" in listed
            assert f"Wind {number}." in loaded
            assert f"of bundle {number}" in refused


def test_each_verb_has_the_last_good_bundle(run: Run, place: Path) -> None:
    made = BundlePlace(place / "made-here", more=MORE)
    take(made, 1)
    # As if this user had taken it: the cache, the state and the configuration.
    home = Path.home()
    for inner in (".config", ".cache", ".local/state"):
        shutil.copytree(made.places.home / inner, home / inner, dirs_exist_ok=True, symlinks=True)
    assert "winds" in run("list")[1]
    assert "Wind 1." in run("load", "winds")[1]
    assert "winds" in run("search", "winds")[1]
    assert "winds" in run("show", "winds")[1]
    assert "winds" in run("rehearse", "the winds of today")[1]
    assert "Wind 1." in run("call", "skill", "--args", json.dumps({"name": "winds"}))[1]
    code, out, err = run("call", "exec", "--args", json.dumps({"command": "rm -rf build"}))
    assert code != 0
    assert "of bundle 1" in out + err
    code, out, _ = run("policy", "explain", "rm -rf build")
    assert (code, "bundle team" in out) == (1, True)


def test_a_hook_judges_by_the_last_good_bundle(published: BundlePlace) -> None:
    home = HookedHome(published.base)
    published.configure(MORE)

    async def main() -> None:
        for number in (1, 2):
            if number == 2:
                take(published, 2)
            effect, reason = await home.effect("Bash", {"command": "rm -rf build"})
            assert (effect, f"of bundle {number}" in reason) == ("deny", True), reason

    try:
        anyio.run(main)
    finally:
        home.end()

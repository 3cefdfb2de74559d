"""What extensions of others add to a house: tools, channels, hooks and an executor."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.floor import ConfigError
from skillhouse.house import Skillhouse
from skillhouse.house.config import load_config
from skillhouse.tools import UnknownToolError
from tests.extension.environments import extension, install
from tests.house.places import make_places

TIDE = """
from skillhouse import tool

@tool(action="tide", resource="sea")
def tide(sea: str) -> str:
    '''Say when the tide is high.'''
    return f"high at the {sea} sea"

def broken(context):
    raise ValueError("no")

def other(context):
    return tide

def stop(context, reason):
    context.state_directory.joinpath("stopped").write_text(reason)

def close(context):
    context.state_directory.joinpath("closed").write_text(str(context.settings))
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Skillhouse]]:
    """Make houses in a place into whose environment a test has installed extensions."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr("skillhouse.extension.load.site_directories", lambda: (str(site),))
    before, made = set(sys.modules), []

    def make(text: str = "", **parts: str) -> Skillhouse:
        for name, said in parts.items():
            install(site, name, extension(name, said, TIDE))
        places = make_places(tmp_path)
        places.user_file.parent.mkdir(parents=True, exist_ok=True)
        places.user_file.write_text(text)
        made.append(Skillhouse(load_config(places)))
        return made[-1]

    yield make
    for one in made:
        one.close()
    for name in set(sys.modules) - before:
        if name.endswith("_extension"):
            del sys.modules[name]


ALLOW = '[[rules]]\neffect = "allow"\naction = "tide"\npattern = "*"\n'


def test_an_unknown_tool_is_looked_for_among_extensions(house) -> None:
    here = house(ALLOW, tides="tools={'tide': other}")

    assert "tides_extension" not in sys.modules
    said = here.call_sync("tide", {"sea": "north"})
    assert (said.content, said.status) == ("high at the north sea", "ok")
    assert "tide" in {one.name for one in here.tools()}
    with pytest.raises(UnknownToolError):
        here.call_sync("ebb", {})


def test_a_tool_of_an_extension_passes_the_gate(house) -> None:
    here = house("", tides="tools={'tide': other}")

    assert here.call_sync("tide", {"sea": "north"}).status == "pending"
    assert here.forecast("tide", {"sea": "north"}).effect == "ask"


def test_a_list_of_tools_may_name_one_of_an_extension(house) -> None:
    here = house('tools = ["tide"]\n' + ALLOW, tides="tools={'tide': other}")

    assert [one.name for one in here.tools()] == ["tide"]
    with pytest.raises(ConfigError, match="ebb"):
        house('tools = ["ebb"]\n')


def test_a_tool_that_cannot_be_made_or_has_another_name_is_left_out(
    house, caplog: pytest.LogCaptureFixture
) -> None:
    here = house(
        ALLOW, tides="tools={'tide': broken}", ebb="tools={'ebb': other}", none="tools={'x': str}"
    )

    with caplog.at_level(logging.ERROR):
        names = {one.name for one in here.tools()}
    assert not names & {"tide", "ebb", "x"}
    said = [one.getMessage() for one in caplog.records if "extension `" in one.getMessage()]
    assert [one.partition(":")[0] for one in said] == [
        "extension `ebb`",
        "extension `none`",
        "extension `tides`",
    ]


def test_no_tool_of_ours_is_replaced(house) -> None:
    here = house("", tides="tools={'exec': other, 'read': other}")

    here.use_extensions()
    assert all(type(one).__module__.startswith("skillhouse.") for one in here.tools())


def test_hooks_are_called_and_one_that_fails_changes_nothing(house, tmp_path: Path) -> None:
    hooks = "hooks=Hooks(on_stop=stop, on_close=close)"
    here = house("", bad="hooks=Hooks(on_stop=broken, on_close=broken)", tides=hooks)
    state = here.config.state_directory

    here.services.enforcement.stop("owner", "storm")
    assert (state / "stopped").read_text() == "storm"
    here.close()
    assert (state / "closed").read_text() == "None"


def test_an_executor_is_chosen_by_the_name_of_its_extension(house) -> None:
    text = '[skill_code]\nenabled = true\nexecutor = "tides"\n'
    here = house(text, tides="executor=lambda context: 'the runner'")

    assert here.services.extensions.executor("tides", here.config) == "the runner"
    with pytest.raises(ConfigError, match="no extension `ebb` runs the code of skills"):
        here.services.extensions.executor("ebb", here.config)

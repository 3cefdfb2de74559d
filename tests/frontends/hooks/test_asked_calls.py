"""A yes in the client's own dialogue: what it holds for, and what it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.frontends.hooks.hook_clients import hook_client
from skillhouse.frontends.hooks.tickets import ProcessId, ancestors
from skillhouse.house import Skillhouse, configured
from tests.frontends.hooks.hooked_home import HookedHome, effect_of

pytestmark = pytest.mark.skipif(not os.path.exists("/proc"), reason="processes are not seen")
ABOVE = ancestors(os.getpid())
RUN = {"command": "python3 tools/recalc.py > totals.txt"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HookedHome]:
    made = HookedHome(tmp_path, rules='policy = "developer"\n')
    (made.project / "tools").mkdir()
    (made.project / "tools/recalc.py").write_text("print(6)\n")
    (made.project / "tools/other.py").write_text("print(7)\n")
    yield made
    made.end()


async def begun(
    home: HookedHome, given: dict[str, str] = RUN, above: tuple[ProcessId, ...] = ABOVE, **more: Any
) -> tuple[str, dict[str, Any]]:
    """Return how a call is decided, and its event."""
    event = home.event("Bash", given, **{"permission_mode": "default", **more})
    return effect_of(await home.ask(event, above=above))[0], event


async def ran(home: HookedHome, event: dict[str, Any], moment: str = "after", **more: Any) -> None:
    await home.ask({**event, "tool_response": "", **more}, moment, above=ABOVE)


async def test_a_yes_holds_for_these_bytes_in_this_session(home: HookedHome) -> None:
    effect, event = await begun(home)
    assert effect == "ask"
    await ran(home, event)
    # Another line that runs the same script, as after an approval of ours.
    assert (await begun(home, {"command": "python3 tools/recalc.py | tail -1"}))[0] == "allow"
    assert (await begun(home))[0] == "allow"
    assert (await begun(home, session_id="s-2"))[0] == "ask"
    assert (await begun(home, {"command": "python3 tools/other.py"}))[0] == "ask"
    (home.project / "tools/recalc.py").write_text("print(8)\n")
    assert (await begun(home))[0] == "ask"
    log = next(home.places.state().rglob("*.jsonl")).read_text()
    assert '"approved":["tools/recalc.py sha256:' in log
    with Skillhouse(configured(home.places)) as house:
        assert house.approvals.scripts.all() == ()


async def test_a_yes_covers_the_bytes_that_were_asked_about(home: HookedHome) -> None:
    effect, event = await begun(home)
    (home.project / "tools/recalc.py").write_text("print(8)\n")
    await ran(home, event)
    assert (effect, (await begun(home))[0]) == ("ask", "ask")


async def test_a_yes_to_a_command_that_keeps_nothing_holds_once(home: HookedHome) -> None:
    given = {"command": "somebodys-program now"}
    effect, event = await begun(home, given)
    await ran(home, event)
    assert (effect, (await begun(home, given))[0]) == ("ask", "ask")


@pytest.mark.parametrize(
    ("moment", "more"),
    [
        ("failed", {}),
        ("after", {"tool_use_id": "another"}),
        ("after", {"tool_input": {"command": "python3 tools/other.py"}}),
        ("after", {"tool_name": "Monitor"}),
        ("after", {"session_id": "s-2"}),
        ("after", {"permission_mode": "bypassPermissions"}),
        ("after", {"permission_mode": ""}),
    ],
)
async def test_what_is_no_yes_approves_nothing(
    home: HookedHome, moment: str, more: dict[str, Any]
) -> None:
    _, event = await begun(home)
    await ran(home, event, moment, **more)
    assert (await begun(home))[0] == "ask"
    await ran(home, {**event, **more})
    assert (await begun(home))[0] == "ask"


@pytest.mark.parametrize("mode", ["bypassPermissions", "auto", "dontAsk", "plan", ""])
async def test_where_no_person_may_have_answered_nothing_is_kept(
    home: HookedHome, mode: str
) -> None:
    _, event = await begun(home, permission_mode=mode)
    await ran(home, event, permission_mode="default")
    assert (await begun(home))[0] == "ask"


async def test_what_was_not_run_when_the_turn_ended_was_no_yes(home: HookedHome) -> None:
    _, event = await begun(home)
    await home.ask({"session_id": "s-1", "cwd": str(home.project)}, "next", above=ABOVE)
    await ran(home, event)
    assert (await begun(home))[0] == "ask"


def test_only_clients_that_were_seen_to_ask_approve_by_it() -> None:
    assert hook_client("claude-code").answered_modes == ("default", "acceptEdits")
    assert hook_client("codex").answered_modes == ()

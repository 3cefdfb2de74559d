"""What an agent writes to the judge as if its person had said yes in the client's dialogue.

A process that reaches the judge's socket is none of our sandbox, and runs as this user: it can run
a script itself. It must not gain that the client runs one for it that it could not run, so that
only what is below the client of a session is heard, and only about what was asked (0473).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillhouse.frontends.hooks import asked_calls
from skillhouse.frontends.hooks.judge import HookJudge
from skillhouse.frontends.hooks.tickets import ProcessId, ancestors, is_alive
from skillhouse.tools.native import NativePlans
from tests.frontends.hooks.hooked_home import HookedHome, effect_of
from tests.harness import until
from tests.house.places import write_skill

pytestmark = pytest.mark.skipif(not os.path.exists("/proc"), reason="processes are not seen")
HARMLESS, EVIL = "python3 tools/harmless.py", "python3 tools/evil.py"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HookedHome]:
    made = HookedHome(tmp_path, rules='policy = "developer"\n')
    (made.project / "tools").mkdir()
    for name in ("harmless", "evil"):
        (made.project / f"tools/{name}.py").write_text(f"print({name!r})\n")
    yield made
    made.end()


@pytest.fixture
def client() -> Iterator[tuple[ProcessId, ...]]:
    """A client that is no process above this one, with a hook below it: what is above the hook."""
    code = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            assert until(lambda: children.read_text().split())
            yield ancestors(int(children.read_text().split()[0]))[:1]
        finally:
            os.killpg(process.pid, 9)


def bash(home: HookedHome, command: str, **more: Any) -> dict[str, Any]:
    return home.event("Bash", {"command": command}, permission_mode="default", **more)


async def effect(home: HookedHome, command: str, above: tuple[ProcessId, ...]) -> str:
    return effect_of(await home.ask(bash(home, command), above=above))[0]


async def test_a_process_of_another_session_says_no_yes(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    forger = ancestors(os.getpid())
    event = bash(home, EVIL)
    assert effect_of(await home.ask(event, above=client))[0] == "ask"
    await home.ask({**event, "tool_response": ""}, "after", above=forger)
    assert await effect(home, EVIL, client) == "ask"


async def test_a_process_elsewhere_forges_no_call_of_its_own(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    forger = ancestors(os.getpid())
    await home.ask({"session_id": "s-1", "cwd": str(home.project)}, "start", above=client)
    for before, after in ((forger, forger), (forger, client), (client, forger), (client, ())):
        event = bash(home, EVIL)
        assert effect_of(await home.ask(event, above=before))[0] == "ask"
        await home.ask({**event, "tool_response": ""}, "after", above=after)
        assert await effect(home, EVIL, client) == "ask", (before, after)


async def test_a_yes_to_one_script_is_not_led_to_another(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    """The id of the call that the person sees, with another command behind it."""
    shown = bash(home, HARMLESS)
    assert effect_of(await home.ask(shown, above=client))[0] == "ask"
    other = {**shown, "tool_input": {"command": EVIL}}
    assert effect_of(await home.ask(other, above=client))[0] == "ask"
    # What the client says after the yes, and what a forger says before it.
    for event in (shown, other):
        await home.ask({**event, "tool_response": ""}, "after", above=client)
    for command in (EVIL, HARMLESS):
        assert await effect(home, command, client) == "ask"


async def test_a_later_event_about_the_same_call_adds_nothing(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    shown = bash(home, HARMLESS)
    await home.ask(shown, above=client)
    await home.ask({**shown, "tool_response": ""}, "after", above=client)
    await home.ask(
        {**shown, "tool_input": {"command": EVIL}, "tool_response": ""}, "after", above=client
    )
    assert await effect(home, EVIL, client) == "ask"
    assert await effect(home, HARMLESS, client) == "allow"


async def test_a_script_that_changes_while_the_dialogue_is_open_is_asked_about_again(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    shown = bash(home, HARMLESS)
    await home.ask(shown, above=client)
    (home.project / "tools/harmless.py").write_text("print('evil')\n")
    await home.ask({**shown, "tool_response": ""}, "after", above=client)
    assert await effect(home, HARMLESS, client) == "ask"


async def test_a_judge_that_sees_no_processes_keeps_nothing(home: HookedHome) -> None:
    shown = bash(home, HARMLESS)
    await home.ask(shown)
    await home.ask({**shown, "tool_response": ""}, "after")
    assert await effect(home, HARMLESS, ()) == "ask"


async def forged(home: HookedHome, above: tuple[ProcessId, ...]) -> None:
    """Ask about a script of one's own and say that it ran, as any process can."""
    event = bash(home, EVIL)
    await home.ask(event, above=above)
    await home.ask({**event, "tool_response": ""}, "after", above=above)


async def begin(home: HookedHome, above: tuple[ProcessId, ...], session: str = "s-1") -> None:
    await home.ask({"session_id": session, "cwd": str(home.project)}, "start", above=above)


async def test_a_session_that_is_older_than_the_judge_has_no_client(
    home: HookedHome, client: tuple[ProcessId, ...]
) -> None:
    """It ends after some idle minutes, and the first event that the next one sees is anyone's."""
    await begin(home, client)
    home.judge.close()
    home.judge = HookJudge(home.directory, lambda start: home.places)
    await forged(home, ancestors(os.getpid()))
    assert await effect(home, EVIL, client) == "ask"


async def test_sessions_without_end_push_no_client_out(
    home: HookedHome, client: tuple[ProcessId, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_calls, "ASKED_MAX", 3)
    forger = ancestors(os.getpid())
    await begin(home, client)
    for number in range(6):
        await begin(home, forger, f"made-up-{number}")
    await forged(home, forger)
    assert await effect(home, EVIL, client) == "ask"


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def test_what_started_a_client_that_has_ended_is_no_client(
    home: HookedHome, sleeping: subprocess.Popen[bytes]
) -> None:
    """Both were started in one terminal, and the judge has outlived the first."""
    mine, child = ancestors(sleeping.pid), ancestors_of(sleeping.pid)[0]
    await begin(home, (child, *mine))
    sleeping.kill()
    sleeping.wait()
    assert not is_alive(child)
    assert is_alive(mine[0])
    await forged(home, mine)
    assert await effect(home, EVIL, mine) == "ask"


def ancestors_of(pid: int) -> tuple[ProcessId, ...]:
    """Return a process and those above it."""
    start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return (ProcessId(pid, start), *ancestors(pid))


async def test_a_link_that_changes_after_the_judgement_loads_no_other_skill(
    home: HookedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = write_skill(home.places.home / ".claude/skills/secret", "Is asked about.")
    (skill / "notes.md").write_text("Notes.")
    ask = '[[rules]]\neffect = "ask"\naction = "skill"\npattern = "secret"\n'
    home.places.user_file.write_text('policy = "developer"\n' + ask)
    link = home.project / "n.md"
    (home.project / "plain.md").write_text("Plain.")
    link.symlink_to("plain.md")
    judged = NativePlans.plan

    def plan(*given: Any) -> Any:
        made = judged(*given)
        link.unlink(missing_ok=True)
        link.symlink_to(skill / "SKILL.md")
        return made

    monkeypatch.setattr(NativePlans, "plan", plan)
    event = bash(home, "cat n.md && echo SKILL.md")
    assert effect_of(await home.ask(event))[0] == "allow"
    await home.ask({**event, "tool_response": ""}, "after")
    monkeypatch.undo()
    assert effect_of(await home.ask(bash(home, f"cat {skill}/notes.md")))[0] == "ask"

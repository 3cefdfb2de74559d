"""Attacks on configurations that change while a process runs.

Each passes for what an editor, a team or an operator does every day, and each would let a call run
under rules that are in no file.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse, configured
from tests.house.places import make_places

pytestmark = pytest.mark.slow

DENY = '[[rules]]\neffect = "deny"\naction = "write"\npattern = "*"\n'
ALLOW = '[[rules]]\neffect = "allow"\naction = "*"\npattern = "*"\n'


class Machine:
    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        self.user = self.places.user_file
        self.user.parent.mkdir(parents=True)

    def start(self, text: str) -> Skillhouse:
        self.user.write_text(text)
        return Skillhouse(configured(self.places))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written(house: Skillhouse, name: str = "a.txt") -> str:
    return house.call_sync("write", {"path": name, "content": "x"}).status


@pytest.mark.parametrize("gap", ["emptied", "moved away"])
def test_no_call_runs_in_the_moment_in_which_an_editor_has_no_rules_in_the_file(
    machine: Machine, gap: str
) -> None:
    """An allow of all is in the managed file; the user's deny is away for 10 ms at each save."""
    machine.places.managed_file.write_text(ALLOW)
    stop = threading.Event()

    def edit() -> None:
        while not stop.is_set():
            if gap == "emptied":
                machine.user.write_text("")
            else:
                machine.user.rename(machine.user.with_name("config.toml~"))
            time.sleep(0.01)
            machine.user.write_text(DENY)
            stop.wait(0.15)

    with machine.start(DENY) as house:
        editor = threading.Thread(target=edit)
        editor.start()
        try:
            found = {written(house) for _ in range(120)}
        finally:
            stop.set()
            editor.join()
    assert found == {"denied"}


def test_no_call_is_decided_by_half_of_each_of_two_configurations(machine: Machine) -> None:
    """Each of the two denies one thing; a mixture would deny none."""
    one = (
        '[[rules]]\neffect = "deny"\naction = "write"\npattern = "*"\n'
        '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
    )
    two = one.replace('"deny"', '"x"').replace('"allow"', '"deny"').replace('"x"', '"allow"')
    stop = threading.Event()

    def swap() -> None:
        for number in range(10_000):
            if stop.is_set():
                return
            new = machine.user.with_name("new")
            new.write_text(two if number % 2 else one)
            os.replace(new, machine.user)
            stop.wait(0.08)

    seen = set()
    with machine.start(one) as house:
        editor = threading.Thread(target=swap)
        editor.start()
        try:
            for _ in range(300):
                layers = house.policy.layers("default")
                seen.add(tuple(str(rule.effect) for layer in layers for rule in layer.rules))
                written(house)
        finally:
            stop.set()
            editor.join()
    assert seen == {("deny", "allow"), ("allow", "deny")}


@pytest.mark.parametrize("key", ["write_gate", "net", "protection", "agents", "approvals"])
def test_a_projects_file_that_appears_loosens_nothing(machine: Machine, key: str) -> None:
    """The agent's project is trusted, and a pull brings a file that sets what only users may."""
    with machine.start(DENY) as house:
        house.project_trust.trust()
        assert written(house) == "denied"
        text = f"[{key}]\n" if key != "agents" else "[agents.default]\nrules = []\n"
        (machine.places.start / "skillhouse.toml").write_text(f"{ALLOW}{text}")
        assert written(house) == "denied"
        assert house.call_sync("exec", {"command": "touch b"}).status == "denied"
        assert house.config_reload.fault


def test_a_projects_broken_file_holds_up_no_deny_of_the_user(machine: Machine) -> None:
    with machine.start('[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n') as house:
        house.project_trust.trust()
        assert written(house) == "ok"
        (machine.places.start / "skillhouse.toml").write_text("[[rules")
        machine.user.write_text(DENY)
        assert written(house) == "denied"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a file away")
def test_the_file_of_another_user_is_not_put_into_use(machine: Machine) -> None:
    with machine.start(DENY) as house:
        assert written(house) == "denied"
        machine.user.write_text(ALLOW)
        os.chown(machine.user, 12345, 12345)
        assert written(house) == "denied"
        assert "user 12345" in house.config_reload.fault


def test_a_file_that_is_a_pipe_keeps_no_call_waiting(machine: Machine) -> None:
    with machine.start(DENY) as house:
        machine.user.unlink()
        os.mkfifo(machine.user)
        assert written(house) == "denied"
        assert "expected a regular file, got a FIFO" in house.config_reload.fault


def test_a_link_that_is_turned_to_a_file_of_the_project_is_as_at_the_start(
    machine: Machine,
) -> None:
    """The model writes a file, and hopes for the configuration to be turned to it."""
    bait = machine.places.start / "bait.toml"
    with machine.start(f'{DENY}[[rules]]\neffect = "allow"\naction = "read"\npattern = "*"\n') as h:
        bait.write_text(ALLOW)
        machine.user.unlink()
        machine.user.symlink_to(bait)
        # Whoever turns the link may turn the rules; what it leads to is protected from then on.
        h.view()
        content = {"path": "bait.toml", "content": ALLOW}
        assert h.call_sync("write", content).status == "denied"

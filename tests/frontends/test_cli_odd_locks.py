"""A lock, a path or an argument that is no text: each verb answers in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill

NO_TEXT = "a\udcff"
"""What Python makes of an argument with the byte FF."""


@pytest.fixture
def lock(run: Run, place: Path) -> Path:
    """The lock of a place in which `pdf` is installed."""
    write_skill(place / "from/pdf")
    assert run("install", str(place / "from/pdf"), "--yes", "--allow-unsigned")[0] == 0
    return place / "home/.config/skillhouse/skills.lock"


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        *(("verify",), ("update",), ("update", "--yes"), ("outdated",), ("info",), ("info", "pdf")),
        *(("pin", "pdf"), ("rollback", "pdf", "--yes"), ("uninstall", "pdf")),
        ("install", "--frozen", "--yes"),
    ],
)
@pytest.mark.parametrize("key", ["version", "resolved", "inside", "accepted", "pin_reason"])
def test_a_lone_surrogate_in_the_lock_is_refused_with_its_line(
    run: Run, lock: Path, call: tuple[str, ...], key: str
) -> None:
    value = json.loads(lock.read_text())
    value["skills"]["pdf"][key] = "\ud800"
    lock.write_text(json.dumps(value, indent=1))
    line = 1 + lock.read_text().partition("\\ud800")[0].count("\n")
    code, _, err = run(*call)
    assert code == 3
    assert f"the lock cannot be used: line {line}: half of a surrogate pair in a text" in err
    assert str(lock) in err


@pytest.mark.slow
@pytest.mark.parametrize("call", [("list",), ("list", "--json"), ("doctor",), ("doctor", "--json")])
def test_list_and_doctor_go_on_with_a_lock_of_no_text(
    run: Run, lock: Path, call: tuple[str, ...]
) -> None:
    original = lock.read_text()
    for key in ("version", "path", "accepted"):
        value = json.loads(original)
        found = value["skills"]["pdf"]
        (found["install"] if key == "path" else found)[key] = "\ud800"
        lock.write_text(json.dumps(value))
        code, out, err = run(*call)
        assert code in (0, 1), err
        assert "Traceback" not in err
        if "--json" in call:
            assert isinstance(json.loads(out), dict)


def test_a_reason_that_is_no_text_is_not_kept(run: Run, lock: Path) -> None:
    before = lock.read_bytes()
    code, _, err = run("pin", "pdf", "--reason", NO_TEXT)
    assert (code, lock.read_bytes()) == (2, before)
    assert "expected UTF-8 in every argument" in err


def test_a_stop_is_given_whatever_its_reason(run: Run, place: Path) -> None:
    assert run("stop", "--reason", NO_TEXT)[0] == 0
    assert run("stop", "--status")[:2] == (1, "stopped: a? (by local)\n")

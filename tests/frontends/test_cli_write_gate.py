"""The verdicts of the write gate, from a call to `audit export --format write-gate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.approval import Issuer
from skillhouse.house import Skillhouse, configured
from tests.frontends.conftest import Run
from tests.house.places import make_places

LISTED = '[write_gate]\nenabled = true\nallow_users = ["local"]\n'
WAITS = '[approvals]\nunattended = "deny"\nwait_seconds = 0.05\n'


@pytest.fixture
def write(run: Run, place: Path) -> Callable[[str], dict[str, str]]:
    """Write a configuration, then make the same call; return its answer."""

    def call(configuration: str) -> dict[str, str]:
        file = place / "home/.config/skillhouse/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(configuration)
        arguments = json.dumps({"path": "a.txt", "content": "private words"})
        found: dict[str, str] = json.loads(run("call", "write", "--args", arguments, "--json")[1])
        return found

    return call


@pytest.mark.slow
@pytest.mark.req("S000-61", "S000-74", "S000-83")
def test_each_published_verdict_is_exported_in_its_own_word(
    run: Run, place: Path, write: Callable[[str], dict[str, str]]
) -> None:
    assert write(LISTED.replace("local", "robin"))["status"] == "denied"
    assert write(LISTED.replace("true", "true\nconfirmation = false"))["status"] == "ok"
    assert write(LISTED + WAITS)["status"] == "denied"
    no = write(LISTED)["approval_id"]
    assert run("approvals", "deny", no)[0] == 0
    assert write(LISTED)["status"] == "denied"
    yes = write(LISTED)["approval_id"]
    with Skillhouse(configured(make_places(place))) as house:
        token = house.services.enforcement.tokens.issue(
            house.approvals.get(yes), Issuer(user="local")
        )
    assert run("approvals", "approve", yes, "--yes", "--token", token)[0] == 0
    assert write(LISTED)["status"] == "ok"
    # What no write gate judged is in the log, and not in its export.
    assert write('[[rules]]\naction = "write"\npattern = "*"\neffect = "allow"\n')["status"] == "ok"
    assert run("call", "read", "--args", '{"path": "a.txt"}')[0] == 0
    lines = run("audit", "export", "--format", "write-gate")[1].splitlines()
    assert [json.loads(line)["result"] for line in lines] == [
        "approved",
        "denied",
        "timeout",
        "confirmation_disabled_allow",
        "not_in_allowlist",
    ]
    with Skillhouse(configured(make_places(place))) as house:
        waited = {
            found.id: found.closed_ms - found.request.opened_ms
            for found in house.approvals.latest()
        }
    (silent,) = waited.keys() - {yes, no}
    expected = [waited[yes], waited[no], waited[silent], 0, 0]
    assert [json.loads(line)["durationMs"] for line in lines] == expected
    assert waited[silent] >= 50
    for line in map(json.loads, lines):
        assert set(line) == {"ts", "tool", "user", "session", "params", "result", "durationMs"}
        assert (line["tool"], line["params"]) == ("write", {"path": "a.txt"})
    assert run("audit", "verify")[0] == 0

"""Tests of tools/gate.py: a forecast is what the gate then answers, and does nothing."""

from __future__ import annotations

import ast
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import skillhouse
from skillhouse.extensions.server.pages.skill_rows import skill_rows
from skillhouse.extensions.server.status import StatusReader
from skillhouse.frontends.adapters.framework_bridge import FrameworkBridge
from skillhouse.house import Skillhouse, configured, explain_loading, rehearse
from skillhouse.permission import Effect, Layer, Permission, Rule
from skillhouse.tools import PermissionRequest, UnknownToolError, WriteGate
from tests.house.places import make_places, write_skill

HIDDEN = "# Notes\n\nHello\U000e0041\U000e0042.\n"

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "a.txt"}),
    ("read", {"path": "../outside.txt"}),
    ("list", {"path": "."}),
    ("write", {"path": "docs/b.txt", "content": "x"}),
    ("write", {"path": ".git/config", "content": "x"}),
    ("edit", {"path": "a.txt", "old": "one", "new": "two"}),
    ("edit", {"path": "a.txt", "old": "missing", "new": "two"}),
    ("exec", {"command": "true"}),
    ("exec", {"command": "rm -rf /"}),
    ("exec", {"command": "echo one > docs/c.txt && cat a.txt | head"}),
    ("exec", {"command": "sh", "params": ["-c", "true"]}),
    ("fetch", {"url": "http://127.0.0.1:9/"}),
    ("skill", {"name": "plain"}),
    ("skill", {"name": "hiding"}),
    ("skill", {"name": "nothing"}),
    ("read", {"nothing": 1}),
    ("write", {}),
]
ACTIONS = ("read", "list", "write", "exec", "fetch", "skill")
PATTERNS = {
    "read": ["*", "*/a.txt"],
    "list": ["*"],
    "write": ["*", "*/docs/*"],
    "exec": ["*", "true", "echo *", "head*"],
    "fetch": ["*"],
    "skill": ["*", "plain", "hiding"],
}
TIERS = [
    "",
    "tools:\n  write: {tier: 2, requireConfirmation: true}\n",
    "tools:\n  exec: {tier: 1}\n",
    "tools:\n  write: {tier: 3, cooldown: {maxPerHour: 1}}\n",
    "tools:\n  skill: {tier: 2, requireConfirmation: true, confirmationChannel: inline}\n",
    "tools: [\n",
]
GATES = [
    WriteGate(),
    WriteGate(enabled=True),
    WriteGate(enabled=True, allow_users=("local",)),
    WriteGate(enabled=True, allow_users=("local",), confirmation=False),
    WriteGate(allow_paths=("docs/",)),
]


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    action = draw(st.sampled_from(ACTIONS))
    return Rule(
        effect=draw(st.sampled_from(list(Effect))),
        action=action,
        pattern=draw(st.sampled_from(PATTERNS[action])),
    )


def house_at(base: Path, layer: tuple[Rule, ...], tiers: str, gate: WriteGate) -> Skillhouse:
    places = make_places(base)
    project = places.start
    (project / "docs").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    (base / "outside.txt").write_text("outside\n")
    write_skill(base / "skills/plain")
    write_skill(base / "skills/hiding", body=HIDDEN)
    if tiers:
        places.policy_file.parent.mkdir(parents=True, exist_ok=True)
        places.policy_file.write_text(f'version: "1"\n{tiers}')
    return Skillhouse(
        configured(places),
        roots=[base / "skills"],
        layers=(Layer(name="user", rules=layer),),
        write_gate=gate,
    )


def everything(base: Path) -> Mapping[str, bytes]:
    """Return every file below a directory."""
    return {
        os.path.join(at, name): Path(at, name).read_bytes()
        for at, _, names in os.walk(base)
        for name in names
        if not name.endswith(("-shm", "-wal"))
    }


@pytest.mark.slow
@settings(max_examples=40)
@given(
    layer=st.lists(rules(), max_size=6).map(tuple),
    tiers=st.sampled_from(TIERS),
    gate=st.sampled_from(GATES),
    stopped=st.sampled_from([False, False, False, True]),
    user=st.sampled_from(["local", "local", "robin"]),
    calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=5),
)
def test_a_forecast_is_what_the_gate_then_answers(
    layer: tuple[Rule, ...],
    tiers: str,
    gate: WriteGate,
    stopped: bool,
    user: str,
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    with (
        tempfile.TemporaryDirectory() as base,
        house_at(Path(base).resolve(), layer, tiers, gate) as house,
    ):
        # The gate notes a changed tier policy when it is first opened.
        house.tools()
        if stopped:
            house.services.enforcement.stop("local", "a test")
        for name, arguments in calls:
            before = everything(Path(base))
            found = house.forecast(name, arguments, user=user)
            assert everything(Path(base)) == before
            result = house.call_sync(name, arguments, user=user)
            if found.effect is Effect.ALLOW:
                # What is allowed may still fail: a command without a sandbox, a closed port.
                assert result.status in ("ok", "error"), (found, result)
                assert found.status == "ok"
            else:
                assert (found.effect is Effect.ASK) is (result.status == "pending"), result
                assert found.status == result.status, (found, result)
            if result.approval_id:
                request = house.approvals.get(result.approval_id).request
                assert request.reasons == found.reasons
                assert request.title.removeprefix("not bound to files: ") == found.title
                assert (request.level, request.out_of_band_only) == (
                    found.level,
                    found.on_page or found.level == "sign",
                )


def test_a_forecast_names_the_rule_of_each_permission(tmp_path: Path) -> None:
    deny = Rule(effect=Effect.DENY, action="write", pattern="*/docs/*", reason="kept")
    with house_at(tmp_path, (deny,), "", WriteGate()) as house:
        found = house.forecast("write", {"path": "docs/b.txt", "content": "x"})
        assert (found.effect, found.status, found.layer) == (Effect.DENY, "denied", "user")
        assert found.reasons == ("rule `write */docs/*` of user policy: kept",)
        assert [j.decision.rule_index for j in found.judged] == [0]
        with pytest.raises(UnknownToolError):
            house.forecast("wrte", {})


@pytest.mark.slow
def test_a_need_alone_meets_the_tiers_as_a_call_does(tmp_path: Path) -> None:
    with house_at(tmp_path, (), TIERS[1], WriteGate(enabled=True)) as house:
        wanted = Permission(action="write", resource="")
        need = PermissionRequest(permission=wanted, default=Effect.ALLOW, why="a test")
        found = house.forecast("write", {}, need=need)
        assert (found.effect, found.layer) == (Effect.DENY, "write gate")
    (tmp_path / "other").mkdir()
    with house_at(tmp_path / "other", (), TIERS[1], WriteGate()) as house:
        found = house.forecast("write", {}, need=need)
        assert (found.effect, found.layer) == (Effect.ASK, "tiers")


@pytest.mark.slow
def test_adapters_ask_where_a_tier_does(tmp_path: Path) -> None:
    """`FrameworkBridge.may_ask` judged by itself, and did not know the tiers (G20)."""
    allow = Rule(effect=Effect.ALLOW, action="write", pattern="*")
    write = ("write", {"path": "docs/b.txt", "content": "x"})
    with house_at(tmp_path, (allow,), TIERS[1], WriteGate()) as house:
        desk = FrameworkBridge(house=house, channel="some-framework")
        assert anyio.run(desk.may_ask, *write)
        assert desk.call_sync(*write).status == "pending"
        assert not anyio.run(desk.may_ask, "list", {"path": "."})
        house.services.enforcement.stop("local", "a test")
        assert anyio.run(desk.may_ask, "list", {"path": "."})


@pytest.mark.slow
def test_a_page_and_a_rehearsal_show_what_loading_a_skill_would_meet(tmp_path: Path) -> None:
    with house_at(tmp_path, (), TIERS[4], WriteGate()) as house:
        skill = house.index.get("plain")
        found = explain_loading(house, skill)
        assert (found.decision.effect, found.decision.layer) == (Effect.ASK, "tiers")
        rehearsal = rehearse(house, "plain")
        assert rehearsal.decision is not None
        assert rehearsal.decision.decision == found.decision
        scan = StatusReader(house, time.monotonic).scan()
        [row] = [row for row in skill_rows(house, scan, {}) if row.name == "plain"]
        assert row.effect == Effect.ASK
        shown = StatusReader(house, time.monotonic).detail(skill.id).explanation
        assert (shown.decision.effect, shown.reason) == (Effect.ASK, found.reason)
        assert house.call_sync("skill", {"name": "plain"}).status == "pending"
        house.services.enforcement.stop("local", "a test")
        assert explain_loading(house, skill).decision.effect is Effect.DENY


def test_a_rehearsal_meets_tiers_and_the_write_gate(tmp_path: Path) -> None:
    allow = tuple(Rule(effect=Effect.ALLOW, action=a, pattern="*") for a in ("exec", "write"))
    body = "Use `write`.\n\n```bash\ntrue\n```\n"
    write_skill(tmp_path / "skills/demo", description="Demonstrates.", body=body)
    with house_at(tmp_path, allow, TIERS[2], WriteGate(enabled=True)) as house:
        found = {m.mention.text: (m.effect, m.layer) for m in rehearse(house, "demo").mentions}
        assert found == {
            "write": (Effect.DENY, "write gate"),
            "true": (Effect.DENY, "write gate"),
        }


DECIDES = {
    *(
        "decide explain explain_skill judge_line judge_argv judged judge strictest LayerRules "
        "WriteGate TierGate Judged"
    ).split()
}
"""Names of what decides; frontends use none of them, but for `EXPLAINING`."""
EXPLAINING = {
    "answers/policy.py": {"explain", "explain_skill"},
}
"""Where one permission is explained by the rules and no call is: `policy explain` at a terminal and
over HTTP."""


def deciding_names(file: Path) -> set[str]:
    """Return the names that a module imports or calls of what decides."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if source.startswith("skillhouse.") and not source.startswith("skillhouse.frontends"):
                found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add(node.func.attr)
    return found & DECIDES


def test_no_frontend_decides_about_a_call() -> None:
    package = Path(skillhouse.__file__).parent
    found = {
        str(file.relative_to(package)): names
        for at in ("answers", "presentation", "frontends", "extensions/chat", "extensions/server")
        for file in sorted((package / at).rglob("*.py"))
        if (names := deciding_names(file))
    }
    assert found == EXPLAINING

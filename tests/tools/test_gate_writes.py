"""Tests of tools/write_gate.py: the list of users, and the confirmation of every change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer, ApprovalRequest, ApprovalSettings, Unattended
from skillhouse.audit import read_records, write_gate_lines
from skillhouse.house import Skillhouse, configured, load_config
from skillhouse.permission import Decision, Effect, Layer, Permission, Rule
from skillhouse.tools import EvaluatedPermission, PermissionRequest, WriteGate
from tests.house.places import make_places
from tests.tools.houses import Person

pytestmark = [pytest.mark.slow, pytest.mark.under("owliabot")]

WRITE = ("write", {"path": "a.txt", "content": "new"})
ALLOW = Rule(effect=Effect.ALLOW, action="*", pattern="*")
DENY = Rule(effect=Effect.DENY, action="write", pattern="*")


def house_with(base: Path, gate: WriteGate, *rules: Rule, **values: Any) -> Skillhouse:
    values.setdefault("channel", Unattended())
    values.setdefault("approvals", ApprovalSettings(unattended="pending"))
    layers = (Layer(name="user", rules=rules),)
    return Skillhouse(configured(make_places(base)), layers=layers, write_gate=gate, **values)


def last(house: Skillhouse) -> tuple[str, str, str]:
    """Return the latest call's status, and the effect and layer of its permission."""
    (entry,) = read_records(house.audit_log.path, limit=1)
    (permission,) = entry.record.permissions
    return entry.status, permission.effect, permission.layer


@pytest.mark.parametrize("users", [(), ("robin",), ("Mika",), ("mika ",), ("mik",)])
@pytest.mark.req("S000-57", "S000-61", "S000-72", "S000-73", "S000-85")
def test_who_is_not_in_the_list_changes_nothing_and_nobody_is_asked(
    tmp_path: Path, users: tuple[str, ...]
) -> None:
    person = Person([Answer.ONCE])
    gate = WriteGate(enabled=True, allow_users=users)
    with house_with(tmp_path, gate, ALLOW, channel=person) as house:
        for tool, arguments in (
            WRITE,
            ("edit", {"path": "b.txt", "old": "x", "new": "y"}),
            ("exec", {"command": "ls"}),
        ):
            (tmp_path / "project/b.txt").write_text("x")
            refused = house.call_sync(tool, arguments, user="mika")
            assert refused.status == "denied"
            assert refused.content == "denied: write operation denied: not_in_allowlist"
            assert last(house) == ("denied", "deny", "write gate")
        assert house.call_sync("read", {"path": "b.txt"}, user="mika").status == "ok"
        assert person.asked == []
        assert not (tmp_path / "project/a.txt").exists()


@pytest.mark.req("S000-61", "S000-74")
def test_without_confirmation_a_listed_user_writes_unasked(tmp_path: Path) -> None:
    person = Person()
    gate = WriteGate(enabled=True, allow_users=("mika",), confirmation=False)
    with house_with(tmp_path, gate, channel=person) as house:
        assert house.call_sync(*WRITE, user="mika").status == "ok"
        assert last(house) == ("ok", "allow", "write gate")
        assert person.asked == []
        # It lifts the default of writing and nothing else: a command is asked about.
        assert house.call_sync("exec", {"command": "gh pr list"}, user="mika").status == "denied"
        assert len(person.asked) == 1
    with house_with(tmp_path, gate, DENY) as strict:
        assert strict.call_sync(*WRITE, user="mika").status == "denied"
    ask = Rule(effect=Effect.ASK, action="write", pattern="*")
    with house_with(tmp_path, gate, ask) as careful:
        assert careful.call_sync(*WRITE, user="mika").status == "denied"


@pytest.mark.parametrize(("word", "status"), [(Answer.ONCE, "ok"), (Answer.NO, "denied")])
@pytest.mark.req("S000-53", "S000-61", "S000-76")
def test_with_confirmation_a_person_is_asked_also_where_a_rule_allows(
    tmp_path: Path, word: Answer, status: str
) -> None:
    person = Person([word])
    gate = WriteGate(enabled=True, allow_users=("mika",))
    with house_with(tmp_path, gate, ALLOW, channel=person) as house:
        assert house.call_sync(*WRITE, user="mika").status == status
        assert len(person.asked) == 1
        assert person.asked[0].reasons == ("every write operation is confirmed",)
        assert (tmp_path / "project/a.txt").exists() is (status == "ok")


@pytest.mark.req("S000-61", "S000-77")
def test_no_reply_is_a_no(tmp_path: Path) -> None:
    class Silent:
        async def ask(self, request: ApprovalRequest) -> None:
            await anyio.sleep_forever()

    assert ApprovalSettings().wait_seconds == 60
    gate = WriteGate(enabled=True, allow_users=("mika",))
    bounds = ApprovalSettings(wait_seconds=0.02)
    with house_with(tmp_path, gate, ALLOW, channel=Silent(), approvals=bounds) as house:
        refused = house.call_sync(*WRITE, user="mika")
        assert refused.status == "denied"
        assert "no answer came within 0.02 seconds" in refused.content
        assert not (tmp_path / "project/a.txt").exists()


def test_a_lasting_yes_is_the_confirmation_of_what_it_covers(tmp_path: Path) -> None:
    person = Person([Answer.SESSION])
    gate = WriteGate(enabled=True, allow_users=("mika",))
    with house_with(tmp_path, gate, ALLOW, channel=person) as house:
        for _ in range(2):
            assert house.call_sync(*WRITE, user="mika").status == "ok"
        assert len(person.asked) == 1


def test_switched_off_it_changes_nothing(tmp_path: Path) -> None:
    with house_with(tmp_path, WriteGate(), ALLOW) as house:
        assert house.call_sync(*WRITE).status == "ok"


def test_the_file_sets_it_and_a_project_does_not(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text('[write_gate]\nenabled = true\nallow_users = ["mika"]\n')
    wanted = WriteGate(enabled=True, allow_users=("mika",))
    assert load_config(places).write_gate == wanted
    (places.start / "skillhouse.toml").write_text("[write_gate]\nenabled = false\n")
    config = load_config(places, project=places.start)
    assert "cannot be set by a project" in config.problems[0].message
    assert config.write_gate == wanted


@pytest.mark.parametrize(
    ("user", "confirmation", "effect"),
    [("robin", True, "deny"), ("mika", True, "ask"), ("mika", False, "ask")],
)
@pytest.mark.req("S000-86")
def test_what_signs_passes_the_same_gate_and_is_never_unasked(
    user: str, confirmation: bool, effect: str
) -> None:
    gate = WriteGate(enabled=True, allow_users=("mika",), confirmation=confirmation)
    need = PermissionRequest(
        permission=Permission(action="sign", resource="tx"),
        default=Effect.ASK,
        why="signing",
        level="sign",
    )
    asked = EvaluatedPermission(
        request=need, decision=Decision(effect=Effect.ASK, layer="default"), reason="signing"
    )
    assert gate.apply(asked, user).decision.effect.value == effect


@pytest.mark.parametrize(
    ("path", "patterns", "expected"),
    [
        ("a.txt", (), True),
        ("a.txt", ("*.txt",), True),
        ("docs/a.txt", ("*.txt",), False),
        ("docs/a.txt", ("**/*.txt",), True),
        ("a.txt", ("**/*.txt",), True),
        ("docs/x/y/a.txt", ("docs/",), True),
        ("docs/x/y/a.txt", ("docs/**",), True),
        ("docs/x/y/a.txt", ("docs/*/a.txt",), False),
        ("docs/x/y/a.txt", ("docs/**/y/?.txt", "b"), True),
        ("docs-old/a.txt", ("docs/",), False),
        ("Docs/a.txt", ("docs/",), False),
        ("a.txt", ("./a.txt",), True),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_list_of_paths_comes_after_the_users_and_before_the_question(
    tmp_path: Path, path: str, patterns: tuple[str, ...], expected: bool, enabled: bool
) -> None:
    person = Person([Answer.ONCE])
    gate = WriteGate(enabled=enabled, allow_users=("mika",), allow_paths=patterns)
    call = ("write", {"path": path, "content": "new"})
    with house_with(tmp_path, gate, channel=person) as house:
        if enabled:
            stranger = house.call_sync(*call, user="noa")
            assert "not_in_allowlist" in stranger.content
        result = house.call_sync(*call, user="mika")
        assert len(person.asked) == int(expected)
        if expected:
            assert result.status == "ok"
        else:
            assert result.content == "denied: write operation denied: path_not_allowed"
            assert last(house) == ("denied", "deny", "write gate")
        line = {"command": f"echo x > {path}"}
        # What a command writes by a redirection is judged like `write`.
        told = house.call_sync("exec", line, user="mika").content
        assert ("path_not_allowed" in told) is not expected
        assert house.call_sync("list", {}, user="mika").status == "ok"


def test_ten_thousand_stars_in_a_list_of_paths_are_read_at_once(tmp_path: Path) -> None:
    gate = WriteGate(allow_paths=("**/" * 10_000 + "*x*" * 1_000,))
    with house_with(tmp_path, gate, ALLOW) as house:
        path = "/".join(["a"] * 60) + "/b.txt"
        assert house.call_sync("write", {"path": path, "content": ""}).status == "denied"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        (None, "a new file of 4 bytes: `a.txt`"),
        (b"one\ntwo\n", "--- a.txt\n+++ a.txt\n@@ -1,2 +1 @@\n-one\n-two\n+new\n"),
        (b"\xff\x00", "replaces a file of 2 bytes that is no text: `a.txt`"),
        (b"new\n", "nothing changes"),
    ],
)
@pytest.mark.req("S000-53")
def test_a_person_is_shown_what_changes(tmp_path: Path, before: bytes | None, shown: str) -> None:
    person = Person([Answer.ONCE])
    gate = WriteGate(enabled=True, allow_users=("mika",))
    with house_with(tmp_path, gate, ALLOW, channel=person) as house:
        if before is not None:
            (tmp_path / "project/a.txt").write_bytes(before)
        call = ("write", {"path": "a.txt", "content": "new\n"})
        assert house.call_sync(*call, user="mika").status == "ok"
    assert dict(person.asked[0].found)["difference"] == shown
    assert (tmp_path / "project/a.txt").read_text() == "new\n"


def test_what_was_shown_as_replaced_is_what_is_replaced(tmp_path: Path) -> None:
    """While the person reads, somebody else saves the file."""

    class Slow(Person):
        async def ask(self, request: ApprovalRequest) -> Answer:
            (tmp_path / "project/a.txt").write_text("saved meanwhile")
            return await super().ask(request)

    gate = WriteGate(enabled=True, allow_users=("mika",))
    with house_with(tmp_path, gate, ALLOW, channel=Slow([Answer.ONCE])) as house:
        (tmp_path / "project/a.txt").write_text("as shown")
        refused = house.call_sync(*WRITE, user="mika")
    assert refused.status == "denied"
    assert (tmp_path / "project/a.txt").read_text() == "saved meanwhile"


@pytest.mark.req("S000-52")
def test_what_only_looks_runs_at_once_and_asks_nobody(tmp_path: Path) -> None:
    person = Person()
    gate = WriteGate(enabled=True)
    with house_with(tmp_path, gate, channel=person) as house:
        (tmp_path / "project/a.txt").write_text("text")
        for tool, arguments in (("read", {"path": "a.txt"}), ("list", {})):
            assert house.call_sync(tool, arguments, user="stranger").status == "ok"
    assert person.asked == []


@pytest.mark.req("S000-61", "S000-83", "S000-84")
def test_the_published_audit_line_of_a_verdict_names_paths_only(tmp_path: Path) -> None:
    gate = WriteGate(enabled=True, allow_users=("mika",))
    with house_with(tmp_path, gate, channel=Person([Answer.ONCE])) as house:
        house.call_sync("write", {"path": "a.txt", "content": "private words"}, user="mika")
        house.call_sync("write", {"path": "b.txt", "content": "private words"}, user="noa")
        house.audit_log.flush()
        lines = list(map(json.loads, write_gate_lines(read_records(house.audit_log.path))))
    assert [line["params"] for line in lines] == [{"path": "b.txt"}, {"path": "a.txt"}]
    assert [line["user"] for line in lines] == ["noa", "mika"]
    assert [line["result"] for line in lines] == ["not_in_allowlist", "approved"]
    for line in lines:
        assert set(line) == {"ts", "tool", "user", "session", "params", "result", "durationMs"}
        assert "private" not in json.dumps(line)

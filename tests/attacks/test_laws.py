"""The laws of the house, for any input, each beside a careless version that breaks it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.approval import Answer, ApprovalBroker, ApprovalRequest, ScriptStore
from skillhouse.audit import AuditLog, read_records, verify_log
from skillhouse.floor import PathError, confine
from skillhouse.net import NetPolicy
from skillhouse.permission import (
    Decision,
    Effect,
    Layer,
    Permission,
    Rule,
    decide,
    matches,
)
from skillhouse.sandbox import (
    Completed,
    Limits,
    OutputListener,
    SandboxLevel,
    SandboxProfile,
    Streams,
)
from skillhouse.skill import SkillIndex
from skillhouse.tools import (
    EvaluatedPermission,
    ExecTool,
    PermissionRequest,
    Session,
    ToolCall,
    Workspace,
    WriteGate,
)
from tests.audit.logs import small_log
from tests.tools.gates import gate_to
from tests.tools.houses import no_background

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

STRICTNESS = (Effect.ALLOW, Effect.ASK, Effect.DENY)
PATTERNS = st.sampled_from(("*", "git *", "git push", "rm *", "?it*", ""))
RULES = st.builds(
    Rule,
    effect=st.sampled_from(STRICTNESS),
    action=st.sampled_from(("exec", "*")),
    pattern=PATTERNS,
)
WANTED = st.builds(
    Permission, action=st.just("exec"), resource=st.sampled_from(("git push", "rm -rf /", ""))
)
EFFECTS = st.sampled_from(STRICTNESS)


def layers(*, trusted: bool) -> st.SearchStrategy[Layer]:
    return st.builds(
        Layer,
        name=st.sampled_from(("managed", "user", "project", "grants")),
        rules=st.lists(RULES, max_size=3).map(tuple),
        trusted=st.just(trusted),
        match=st.sampled_from(("last", "first")),
    )


POLICIES = st.lists(layers(trusted=True), max_size=3)


def naive_decide(policy: Sequence[Layer], wanted: Permission, default: Effect) -> Effect:
    """Decide as some designs do: all rules in a row, and the last that matches counts."""
    rules = [rule for layer in policy for rule in layer.rules]
    fitting = [
        r for r in rules if r.action in ("*", "exec") and matches(r.pattern, wanted.resource)
    ]
    return fitting[-1].effect if fitting else default


def strictness(effect: Effect) -> int:
    return STRICTNESS.index(effect)


def test_the_last_rule_of_a_row_lets_a_project_loosen() -> None:
    deny = Layer(name="user", rules=(Rule(effect=Effect.DENY, action="exec", pattern="rm *"),))
    allow = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    project = Layer(name="project", rules=(allow,), trusted=False)
    wanted = Permission(action="exec", resource="rm -rf /")
    assert naive_decide([deny], wanted, Effect.ASK) is Effect.DENY
    assert naive_decide([deny, project], wanted, Effect.ASK) is Effect.ALLOW
    assert decide([deny, project], wanted).effect is Effect.DENY


@settings(max_examples=300)
@given(
    POLICIES, st.lists(layers(trusted=False), min_size=1, max_size=3), WANTED, EFFECTS, st.data()
)
def test_an_untrusted_layer_never_loosens(
    policy: list[Layer], more: list[Layer], wanted: Permission, default: Effect, data: st.DataObject
) -> None:
    mixed = list(policy)
    for layer in more:
        mixed.insert(data.draw(st.integers(0, len(mixed))), layer)
    before = decide(policy, wanted, default=default).effect
    after = decide(mixed, wanted, default=default).effect
    assert strictness(after) >= strictness(before)


@settings(max_examples=300)
@given(POLICIES, layers(trusted=True), WANTED, EFFECTS, st.booleans(), st.booleans())
def test_deny_is_final(
    policy: list[Layer],
    grants: Layer,
    wanted: Permission,
    default: Effect,
    enabled: bool,
    confirmation: bool,
) -> None:
    """Neither a nearer layer, nor a lasting yes, nor a write gate that is off lifts it."""
    found = decide(policy, wanted, default=default)
    if found.effect is not Effect.DENY or found.layer == "default":
        return
    again = decide([*policy, grants], wanted, default=default)
    assert again.effect is Effect.DENY
    gate = WriteGate(enabled=enabled, allow_users=("mika",), confirmation=confirmation)
    need = PermissionRequest(permission=wanted, default=default, why="")
    judged = gate.apply(EvaluatedPermission(request=need, decision=again, reason=""), "mika", "/w")
    assert judged.decision.effect is Effect.DENY


NAMES = ("a", "b", "c")
TARGETS = st.sampled_from(
    "file directory link:a link:.. link:../b link:../out link:a/../../out link:/ link:c/a".split()
)
TREES = st.dictionaries(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), TARGETS, max_size=7
)
ASKED = st.lists(st.sampled_from((*NAMES, "..", ".", "", "out", "file")), max_size=5).map("/".join)


def plant(base: Path, tree: dict[str, str]) -> Path:
    """Make what of a tree can be made; a secret lies beside."""
    root = base / "root"
    root.mkdir()
    (base / "out").mkdir()
    (base / "out/file").write_text("secret")
    (base / "out/a").write_text("secret")
    for relative, kind in sorted(tree.items()):
        place = root / relative
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Through a link it would be made elsewhere.
            if os.path.realpath(place.parent) != str(place.parent):
                continue
            if kind == "file":
                place.write_text("inside")
            elif kind == "directory":
                place.mkdir(exist_ok=True)
            else:
                place.symlink_to(kind.removeprefix("link:"))
        except OSError:
            continue
    return root


def inside(root: Path, path: str | Path) -> bool:
    return os.path.realpath(path).startswith(f"{root}/")


def test_a_check_of_the_text_leaves() -> None:
    def leaves(case: tuple[dict[str, str], str]) -> bool:
        tree, relative = case
        with TemporaryDirectory() as base:
            root = plant(Path(os.path.realpath(base)), tree)
            path = os.path.normpath(root / relative)
            taken = path.startswith(str(root)) and os.path.isfile(path)
            return taken and not inside(root, path)

    assert leaves(({"a": "link:../out"}, "a/file"))


@settings(max_examples=400)
@given(TREES, ASKED)
def test_confine_never_leaves(tree: dict[str, str], relative: str) -> None:
    with TemporaryDirectory() as base:
        root = plant(Path(os.path.realpath(base)), tree)
        oracle = os.path.realpath(root / relative)
        found, code = None, ""
        try:
            found = confine(root, relative)
        except PathError as error:
            code = error.code
        if found is None:
            # What it refuses has a reason that the oracle sees too.
            plain = relative and ".." not in relative.split("/") and not relative.startswith("/")
            if plain and inside(root, oracle) and os.path.isfile(oracle):
                # Only a path that goes out and comes back, or through a file, is refused besides.
                assert code in ("path-escape", "not-found")
            return
        assert str(found) == oracle
        assert inside(root, found)
        assert found.read_text() == "inside"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    small_log(path).close()
    return path


def naive_verify(data: bytes) -> bool:
    """Whether a log of plain JSON lines, or of lines with a digest each, looks whole."""
    try:
        return all(isinstance(json.loads(line), dict) for line in data.splitlines())
    except ValueError:
        return False


@settings(max_examples=300)
@given(st.data())
def test_any_one_byte_change_of_the_log_is_found(log: Path, data: st.DataObject) -> None:
    before = log.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    after = before[:at] + bytes([before[at] ^ data.draw(st.integers(1, 255))]) + before[at + 1 :]
    try:
        log.write_bytes(after)
        assert verify_log(log).problems != ()
    finally:
        log.write_bytes(before)
    assert verify_log(log).problems == ()


def test_a_log_of_plain_lines_does_not_find_it(log: Path) -> None:
    before = log.read_bytes()
    at = before.index(b"git status")
    assert naive_verify(before[:at] + b"x" + before[at + 1 :])


class Recorder:
    """A launcher that remembers what it was to run."""

    level = SandboxLevel.CGROUP

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []

    async def run(
        self,
        argv: Sequence[str],
        profile: SandboxProfile,
        *,
        cwd: Path,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
        streams: Streams | None = None,
    ) -> Completed:
        self.ran.append(tuple(argv))
        return Completed(exit_code=0, stdout=b"", stderr=b"", duration_seconds=0.0)


class Swapper:
    """A person who says yes, while the agent's other call changes the workspace."""

    def __init__(self, root: Path, change: str) -> None:
        self.root, self.change = root, change
        self.shown: dict[str, str] = {}

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.shown = {"content": request.content, **dict(request.sent), **dict(request.found)}
        apply(self.root, self.change)
        return Answer.ONCE


def no_way_out(*_: object) -> AbstractAsyncContextManager[Path]:
    raise AssertionError("no rule grants the network")


CHANGES = ("none", "new file", "new option", "other bytes", "file is link", "gone")


def apply(root: Path, change: str) -> None:
    if change == "new file":
        (root / "z.txt").write_text("more")
    elif change == "new option":
        (root / "--output=x").write_text("option")
    elif change == "other bytes":
        (root / "run.sh").write_text("echo evil")
    elif change == "file is link":
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to("/etc/passwd")
    elif change == "gone":
        (root / "a.txt").unlink()


LINES = (
    "cat ./*.txt",
    "sort ./*",
    "sh run.sh",
    "cat a.txt | sort > out.txt",
    "cp a.txt b.txt && rm a.txt",
    "wc -l < a.txt",
    "grep -r x . || true",
)


OTHER_WORK = {("sh run.sh", "other bytes")}
"""Where the same line would do something else after the change. A pattern such as `./*.txt` is part
of the plan as it stands, so a yes to it is one to whatever files fit when it runs."""


def asked_and_run(
    line: str, change: str
) -> tuple[str, list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the answer of the door, what it ran, and what it would have run when it asked."""
    with TemporaryDirectory() as base:
        root = Path(os.path.realpath(base), "work")
        root.mkdir()
        (root / "a.txt").write_text("a")
        (root / "run.sh").write_text("echo harmless")
        recorder, planned = Recorder(), Recorder()
        person = Swapper(root, change)
        session = Session(
            agent="default",
            user="local",
            channel="test",
            visible=SkillIndex(()),
            skill_need=lambda _: PermissionRequest(
                permission=Permission(action="skill", resource="x"), default=Effect.ASK, why=""
            ),
        )

        def tool(launcher: Recorder) -> ExecTool:
            async def open_() -> Recorder:
                return launcher

            return ExecTool(
                Workspace(root),
                open_,
                layers=lambda _: (),
                network_effect=lambda _, __: Effect.DENY,
                net_policy=NetPolicy,
                way_out=no_way_out,
                environment={},
                decide=lambda need, _: (Decision(effect=need.default, layer="default"), need.why),
                scripts=ScriptStore(Path(base, "state")),
                limits=Limits(),
                background=no_background(Path(base)),
            )

        anyio.run(tool(planned).plan({"command": line}, session).run)
        gate = gate_to(
            tool(recorder),
            decide=lambda need, _: (Decision(effect=Effect.ASK, layer="default"), need.why),
            approvals=ApprovalBroker(Path(base, "state"), channels=[person]),
            audit=AuditLog(Path(base, "audit.jsonl")),
            workspace_root=str(root),
        )
        result = anyio.run(gate.call, ToolCall(name="exec", arguments={"command": line}), session)
        (entry,) = read_records(Path(base, "audit.jsonl"), limit=1)
        assert entry.status == ("ok" if recorder.ran else result.status)
        return result.status, recorder.ran, planned.ran


@settings(max_examples=len(LINES) * len(CHANGES))
@given(line=st.sampled_from(LINES), change=st.sampled_from(CHANGES))
def test_a_plan_that_runs_is_the_plan_that_was_approved(line: str, change: str) -> None:
    status, ran, planned = asked_and_run(line, change)
    if change == "none":
        assert status == "ok"
    assert ran in ([], planned), "what was shown, or nothing"
    assert (status == "ok") is bool(ran)
    if (line, change) in OTHER_WORK:
        assert ran == []


def test_a_line_that_was_approved_as_text_runs_something_else(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "run.sh").write_text("echo harmless")
    approved = "sh run.sh"
    apply(tmp_path, "other bytes")
    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run((shell, "-c", approved), cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout == b"evil\n"

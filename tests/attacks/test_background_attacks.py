"""A command in the background that outlives its end, writes elsewhere, or waits for a chance."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records, verify_log
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult
from skillhouse.tools.background_runs import BACKGROUND_MAX
from tests.attacks.test_stop_attacks import RULES, STUBBORN, stop, survivors
from tests.extensions.cells.lab import until
from tests.frontends.mcp_peer import Peer, Pipe
from tests.harness import Need
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

ALL = Rule(effect=Effect.ALLOW, action="exec", pattern="*")


def wait(condition: Callable[[], object]) -> None:
    anyio.run(until, condition)


class Ground:
    """A project, and its house with whatever rules."""

    def __init__(self, house: Skillhouse, person: Person) -> None:
        self.house, self.person = house, person
        self.root = Path(os.path.realpath(house.config.places.start))

    def call(self, tool: str, **arguments: Any) -> ToolResult:
        return self.house.call_sync(tool, arguments)

    def begin(self, script: str, *writable: str) -> str:
        """Run a script of a shell in the background, and return its id."""
        result = self.call(
            "exec",
            command="sh",
            params=["-c", script],
            background=True,
            **({"writable": list(writable)} if writable else {}),
        )
        assert result.status == "ok", result.content
        assert result.data is not None
        return str(result.data["id"])

    def state(self, run_id: str) -> str:
        data = self.call("exec_output", id=run_id).data
        assert data is not None
        return str(data["state"])

    def ended(self, run_id: str) -> str:
        """Wait for its end, and return what became of it."""
        wait(lambda: self.state(run_id).startswith("ended"))
        return self.state(run_id)


@pytest.fixture
def ground(tmp_path: Path, need: Need) -> Iterator[Ground]:
    need(shutil.which("bwrap"), "no bubblewrap")
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, ALL, person=person) as house:
        made = Ground(house, person)
        for name in ("dist", "src"):
            (made.root / name).mkdir()
        yield made


def test_it_writes_nothing_but_its_directories(ground: Ground, tmp_path: Path) -> None:
    (ground.root / "dist/link").symlink_to("../src")
    (tmp_path / "outside").mkdir()
    tries = [
        "touch top",
        "touch src/a",
        "touch dist/link/b",
        "touch dist/../c",
        "touch /proc/self/cwd/d",
        "touch /proc/self/root$PWD/src/e",
        "ln -s ../src dist/own && touch dist/own/f",
        "mv dist moved",
        "rmdir src",
        "chmod 777 src",
        "mount -o remount,rw . ",
        f"touch {tmp_path}/outside/g",
        "touch dist/made",
    ]
    lines = [f"({one}) 2>/dev/null && echo did {at}" for at, one in enumerate(tries)]
    (ground.root / "src/tries.sh").write_text("\n".join([*lines, "true\n"]))
    run_id = ground.begin("sh src/tries.sh", "dist")
    ground.ended(run_id)
    assert "did 12" in ground.call("exec_output", id=run_id).content
    names = sorted(str(p.relative_to(ground.root)) for p in ground.root.rglob("*"))
    assert [n for n in names if not n.startswith(".git")] == [
        *("dist", "dist/link", "dist/made", "dist/own", "src", "src/tries.sh"),
    ]
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "expected a directory that exists"),
        ("file", "expected a directory that exists"),
        ("link", "reached through a link"),
        ("link/below", "reached through a link"),
        (".", "is outside the workspace"),
        ("..", "without `..`"),
        ("/tmp", "is outside the workspace"),
        (".git", "is protected; use git"),
        (".claude/agents", "is protected"),
        ("closed", "rule `write"),
    ],
)
def test_a_directory_that_may_not_be_written_is_refused_before_anything_starts(
    tmp_path: Path, need: Need, name: str, why: str
) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    closed = Rule(effect=Effect.DENY, action="write", pattern=f"{tmp_path}/project/closed/*")
    with house_at(tmp_path, ALL, closed) as house:
        root = Path(house.config.places.start)
        for made in ("real/below", ".claude/agents", "closed"):
            (root / made).mkdir(parents=True)
        (root / "link").symlink_to("real")
        (root / "file").write_text("")
        arguments = {"command": "env", "background": True, "writable": [name]}
        result = house.call_sync("exec", arguments)
        assert result.status in ("denied", "error")
        assert why in result.content, result.content


def test_its_end_is_that_of_daemons_too(ground: Ground) -> None:
    word = f"stubborn-{os.getpid()}.py"
    (ground.root / word).write_text(STUBBORN)
    run_id = ground.begin(f"cd dist && python3 ../{word}", "dist")
    wait((ground.root / "dist/BEGUN-2").exists)
    assert len(survivors(word)) >= 2
    assert "by `exec_stop`" in ground.call("exec_stop", id=run_id).content
    assert survivors(word) == []
    other = ground.begin(f"cd dist && python3 ../{word}", "dist")
    wait(lambda: len(survivors(word)) >= 2)
    ground.house.close()
    assert survivors(word) == []
    ends = [
        one.record.detail
        for one in read_records(ground.house.audit_log.path, newest_first=False)
        if one.record.detail.get("event") == "background-end"
    ]
    said = [(end["background"], end["ended_by"]) for end in ends]
    assert said == [(run_id, "by `exec_stop`"), (other, "skillhouse was closed")]
    assert verify_log(ground.house.audit_log.path).problems == ()


def test_it_keeps_no_other_call_waiting_and_needs_no_placeholders(ground: Ground) -> None:
    """An approved call holds the workspace alone, and the last run takes the placeholders away."""
    run_id = ground.begin("sleep 60", "dist")
    before = sorted(os.listdir(ground.root))
    assert before == [".git", "dist", "src"]
    (ground.root / "job.py").write_text("open('src/done', 'w')\n")
    # A question, as a line that only a shell can run is asked about.
    result = ground.call("exec", command="for i in 1; do python3 job.py; done; wait")
    assert result.status == "ok", result.content
    assert "may write" in str(ground.person.asked[-1].found)
    assert sorted(os.listdir(ground.root)) == [".git", "dist", "job.py", "src"]
    assert ground.state(run_id).startswith("running")


def test_a_secret_that_comes_later_ends_it(ground: Ground) -> None:
    (ground.root / ".env").write_text("A=1\n")
    watching = ground.begin("while ! grep . .env late.pem; do sleep 0.1; done; sleep 60")
    (ground.root / "new").write_text("A=2\n")
    os.replace(ground.root / "new", ground.root / ".env")
    assert "`.env` was made or replaced meanwhile" in ground.ended(watching)


def test_what_acts_later_ends_it_and_is_withheld(ground: Ground) -> None:
    run_id = ground.begin("echo obey > dist/AGENTS.md; sleep 60", "dist")
    assert "`dist/AGENTS.md` was made" in ground.ended(run_id)
    assert os.listdir(ground.root / "dist") == ["AGENTS.md.withheld"]


def test_what_others_make_beside_it_stays(ground: Ground) -> None:
    run_id = ground.begin("sleep 60", "dist")
    (ground.root / ".envrc").write_text("mine\n")
    (ground.root / "src/.claude").mkdir()
    (ground.root / "Makefile").write_text("all:\n")
    (ground.root / "link").symlink_to("src")
    ground.call("exec_stop", id=run_id)
    assert sorted(os.listdir(ground.root)) == [".envrc", ".git", "Makefile", "dist", "link", "src"]
    assert os.listdir(ground.root / "src") == [".claude"]


def test_it_cannot_move_an_approved_script_away(tmp_path: Path, need: Need) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="python3 dist/jobs/a.py")
    plain = Rule(effect=Effect.ALLOW, action="exec", pattern="sh *", unbound=True)
    person = Person([Answer.ONCE] * 4)
    with house_at(tmp_path, rule, plain, person=person) as house:
        made = Ground(house, person)
        (made.root / "dist/jobs").mkdir(parents=True)
        (made.root / "dist/jobs/a.py").write_text("print('approved')\n")
        line = "python3 dist/jobs/a.py"
        assert made.call("exec", command=line).content == "approved\n"
        asked = len(person.asked)
        assert made.call("exec", command=line).content == "approved\n"
        assert len(person.asked) == asked, "its bytes are approved"
        run_id = made.begin("sleep 60", "dist")
        assert "may write" in made.call("exec", command=line).content
        made.call("exec_stop", id=run_id)
        assert made.call("exec", command=line).content == "approved\n"
        # In the background nothing keeps what is around a script, so that each run is asked about.
        asked = len(person.asked)
        made.call("exec", command=line, background=True)
        assert len(person.asked) == asked + 1


def test_no_other_caller_reads_or_ends_it(ground: Ground) -> None:
    run_id = ground.begin("echo secret; sleep 60")
    for who in ({"user": "other"}, {"channel": "mcp-open"}):
        for tool in ("exec_output", "exec_stop"):
            result = ground.house.call_sync(tool, {"id": run_id}, **who)  # type: ignore[arg-type]
            assert "no command" in result.content
        assert ground.house.call_sync("exec_output", {}, **who).data == {"runs": []}  # type: ignore[arg-type]
    assert ground.state(run_id).startswith("running")


def test_there_are_four_at_most_in_all_processes(ground: Ground, tmp_path: Path) -> None:
    ids = [ground.begin("sleep 60") for _ in range(BACKGROUND_MAX - 1)]
    with house_at(tmp_path, ALL) as other:
        beside = Ground(other, Person())
        beside.begin("sleep 60")
        again = beside.call("exec", command="sleep 60", background=True)
        assert again.content.startswith("nothing was started: 4 commands are in the background")
    ground.begin("sleep 60")
    ground.call("exec_stop", id=ids[0])
    ground.begin("sleep 60")


def test_an_endless_writer_is_bounded_and_read_by_place(ground: Ground) -> None:
    run_id = ground.begin("yes 0123456789 | head -c 30000000; sleep 60")
    wait(
        lambda: (ground.call("exec_output", id=run_id, offset=-1).data or {})["offset"] > 29_999_998
    )
    first = ground.call("exec_output", id=run_id).data
    assert first is not None
    assert first["offset"] == 30_000_000 - (10 << 20)
    following = ground.call("exec_output", id=run_id, offset=first["next_offset"]).data
    assert following is not None
    assert following["offset"] == first["next_offset"]
    assert following["output"].startswith(("0123456789\n" * 2)[following["offset"] % 11 :][:9])


class Served:
    """`skillhouse mcp` with a command in the background."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe, self.number = pipe, 0

    def call(self, tool: str, **arguments: Any) -> str:
        self.number += 1
        self.pipe.send("tools/call", self.number, name=tool, arguments=arguments)
        return str(self.pipe.receive()["result"]["content"][0]["text"])


@pytest.fixture
def peer(tmp_path: Path, need: Need) -> Peer:
    need(shutil.which("bwrap"), "no bubblewrap")
    peer = Peer(tmp_path)
    peer.configure(RULES.format(url="http://127.0.0.1:1"))
    (peer.project / "dist").mkdir()
    return peer


def test_a_stop_of_another_process_ends_it_with_its_daemons(peer: Peer) -> None:
    word = f"stubborn-{os.getpid()}.py"
    (peer.project / word).write_text(STUBBORN)
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        served = Served(pipe)
        begun = served.call(
            "exec", command=f"cd dist && python3 ../{word}", background=True, writable=["dist"]
        )
        assert "in the background as" in begun
        wait(lambda: len(survivors(word)) >= 2)
        said = stop(peer)
        assert (said["ended"], said["silent"]) == (1, [])
        wait(lambda: not survivors(word))
        assert "everything is stopped" in served.call("exec_output")
    ends = [one.record for one in read_records(peer.log) if one.record.kind == "event"]
    assert any("everything was stopped: a test" in one.reason for one in ends)


def test_a_stop_kills_it_where_its_house_does_not_answer(peer: Peer) -> None:
    seconds = f"60.{os.getpid()}"
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        Served(pipe).call("exec", command=f"sleep {seconds}", background=True)
        wait(lambda: survivors(f"sleep {seconds}"))
        pipe.process.send_signal(signal.SIGSTOP)
        said = stop(peer)
        assert (said["silent"], said["killed"]) == ([pipe.process.pid], 1)
        wait(lambda: not survivors(f"sleep {seconds}"))


@pytest.mark.parametrize("how", ["killed", "end of input"])
def test_it_ends_with_its_house_and_leaves_nothing(peer: Peer, how: str) -> None:
    seconds = f"60.{os.getpid()}"
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        served = Served(pipe)
        begun = served.call("exec", command=f"setsid sleep {seconds}", background=True)
        assert "in the background as" in begun
        wait(lambda: survivors(f"sleep {seconds}"))
        if how == "killed":
            pipe.process.kill()
        else:
            assert pipe.process.stdin is not None
            pipe.process.stdin.close()
        pipe.process.wait(timeout=20)
        wait(lambda: not survivors(f"sleep {seconds}"))
        pipe.process.stdin = pipe.process.stdin if how == "killed" else None
    assert sorted(os.listdir(peer.project)) == [".git", "dist"]
    # Its place is free again.
    again = json.dumps({"command": "true", "background": True})
    assert "exit code 0" in peer.skillhouse("call", "exec", "--args", again)


def test_the_command_line_reaches_it_from_any_process(peer: Peer) -> None:
    seconds = f"60.{os.getpid()}"
    command = {"command": f"echo said && sleep {seconds}", "background": True}
    assert "in the background as" in peer.skillhouse("call", "exec", "--args", json.dumps(command))
    listed = json.loads(peer.skillhouse("call", "exec_output", "--json"))
    (one,) = listed["data"]["runs"]
    assert (one["running"], one["title"][:22]) == (True, "exec in the background")
    assert peer.skillhouse("call", "exec_output", f"id={one['id']}").startswith("said\n")
    assert "by `exec_stop`" in peer.skillhouse("call", "exec_stop", f"id={one['id']}")
    # The process that kept it, too.
    wait(lambda: not survivors(f"sleep {seconds}"))
    assert json.loads(peer.skillhouse("call", "exec_output", "--json"))["data"]["runs"] == []

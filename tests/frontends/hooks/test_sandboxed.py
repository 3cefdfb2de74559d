"""Mode `sandbox`: what is allowed runs in our sandbox, as a client's shell would run it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.house import Skillhouse, configured
from tests.frontends.hooks.sandboxed_home import SandboxedHome
from tests.harness import until
from tests.repositories import git

pytestmark = pytest.mark.usefixtures("bwrap")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SandboxedHome]:
    made = SandboxedHome(tmp_path)
    yield made
    made.end()


SLEEPS = "import time; open('here', 'w').close(); time.sleep(60)"


def outcomes(home: SandboxedHome) -> list[tuple[str, str]]:
    return [(kind, status) for _, kind, status in home.records()]


def test_a_command_runs_in_the_sandbox_with_its_code_and_both_streams(home: SandboxedHome) -> None:
    done = home.boxed("python3 -c 'import sys; print(1); print(2, file=sys.stderr); sys.exit(3)'")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"1\n", b"2\n")
    assert home.boxed("id -u").stdout == b"65534\n"
    assert home.boxed("touch made").returncode == 0
    assert (home.project / "made").exists()
    assert home.boxed("ls missing").returncode == 2
    assert [one for one in outcomes(home) if one[0] == "outcome"] == [
        ("outcome", "error"),
        ("outcome", "ok"),
        ("outcome", "ok"),
        ("outcome", "error"),
    ]


def test_what_the_sandbox_cannot_do_is_refused_only_in_it(home: SandboxedHome) -> None:
    git(home.project, "init", "-q", "-b", "main")
    (home.project / ".env").write_text("KEY=1\n")
    effect, reason = home.decided("git worktree add tree")
    assert (effect, "read-only to every command" in reason) == ("deny", True), reason
    # Its files are hidden there, and there is no network but by a rule.
    assert home.decided("grep -r KEY .")[0] == "allow"
    assert home.decided("curl http://10.0.0.1/")[0] == "allow"
    # In its mode `plan` the client runs it as it is.
    assert home.decided("git worktree add tree", permission_mode="plan")[0] == "ask"
    assert home.decided("curl http://10.0.0.1/", permission_mode="plan")[0] == "ask"


def test_output_comes_while_the_command_runs(home: SandboxedHome) -> None:
    line = home.rewritten("python3 -c 'import sys; print(1, flush=True); sys.stdin.read()'")
    with subprocess.Popen(
        ["/bin/bash", "-c", line], cwd=home.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.communicate()
        assert process.returncode == 0


def test_where_a_command_ends_is_where_the_shell_goes_on(home: SandboxedHome) -> None:
    (home.project / "a b").mkdir()
    line = home.rewritten("cd 'a b' && touch in")
    done = home.shell(f"eval {shlex.quote(line)} && pwd -P")
    assert done.stdout.decode().strip() == str(home.project / "a b")
    assert (home.project / "a b/in").exists()
    # A `cd` alone is left to the shell itself.
    assert home.decided("cd 'a b'") == ("left", "")
    below = str(home.project / "a b")
    line = home.rewritten("touch second", cwd=below)
    assert home.shell(line, cwd=below).returncode == 0
    assert (home.project / "a b/second").exists()


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("mkdir -p sub && cd sub && touch in", "sub"),
        ("mkdir -p 'a b'; cd 'a b'; exit 0", "a b"),
        ("(mkdir sub; cd sub)", ""),
        ("mkdir sub; cd sub; false", ""),
        ("mkdir sub; cd sub; trap : EXIT", ""),
        ("cd /tmp; for x in 1 2; do mkdir $x; cd $x; done", ""),
        ("cd /usr && echo $(pwd)", "/usr"),
    ],
)
def test_where_a_line_ends_that_only_a_shell_can_run(
    home: SandboxedHome, line: str, ends: str
) -> None:
    assert home.decided(line)[0] == "deny"
    with Skillhouse(configured(home.places)) as person:
        (question,) = person.approvals.pending()
        nonce = question.request.nonce
        person.approvals.answer(
            question.id, Answer.ONCE, by="local", channel="terminal", nonce=nonce
        )
    done = home.shell(f"{home.rewritten(line)}; pwd -P")
    expected = ends if ends.startswith("/") else str(home.project / ends)
    assert done.stdout.decode().splitlines()[-1] == expected, done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 7)])
def test_signals_are_passed_on(home: SandboxedHome, number: signal.Signals, code: int) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); "
        "print(1, flush=True); time.sleep(60)"
    )
    line = home.rewritten(f"python3 -c {shlex.quote(program)}")
    with subprocess.Popen(
        ["/bin/bash", "-c", f"exec {line}"], cwd=home.project, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == code


def test_a_background_command_is_recorded_when_it_ends(home: SandboxedHome) -> None:
    given = {"command": "touch here; sleep 1", "run_in_background": True}
    event = home.event("Bash", given, permission_mode="default")
    done = home.run(home.line(mode="sandbox"), event)
    line = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]
    assert line["run_in_background"] is True
    home.run(home.line("after", mode="sandbox"), event)
    assert outcomes(home) == [("intent", "")]
    with subprocess.Popen(["/bin/bash", "-c", line["command"]], cwd=home.project) as process:
        assert until((home.project / "here").exists)
        home.run(home.line("next", mode="sandbox"), {**event, "hook_event_name": "Stop"})
        process.wait(20)
    assert outcomes(home) == [("intent", ""), ("outcome", "ok")]


def test_the_end_of_one_agents_turn_leaves_the_tickets_of_another(home: SandboxedHome) -> None:
    mine = home.rewritten("touch mine", agent_id="sub-1")
    other = home.rewritten("touch other", agent_id="sub-2")
    ended = {"session_id": "s-1", "cwd": str(home.project), "agent_id": "sub-1"}
    home.run(home.line("next", mode="sandbox"), {**ended, "hook_event_name": "SubagentStop"})
    assert home.shell(other).returncode == 0
    assert home.shell(mine).returncode == 125
    assert not (home.project / "mine").exists()
    assert (home.project / "other").exists()


def test_a_background_command_may_begin_when_the_turn_has_ended(home: SandboxedHome) -> None:
    """The client starts it, and the model has nothing more to say."""
    given = {"command": "touch here", "run_in_background": True}
    event = home.event("Bash", given, permission_mode="default")
    done = home.run(home.line(mode="sandbox"), event)
    line = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["command"]
    home.run(home.line("after", mode="sandbox"), event)
    home.run(home.line("next", mode="sandbox"), {**event, "hook_event_name": "Stop"})
    assert outcomes(home) == [("intent", "")]
    assert home.shell(line).returncode == 0
    assert (home.project / "here").exists()
    assert outcomes(home) == [("intent", ""), ("outcome", "ok")]


def test_what_was_not_started_when_the_turn_ended_never_runs(home: SandboxedHome) -> None:
    event = home.event("Bash", {"command": "touch here"}, permission_mode="default")
    done = home.run(home.line(mode="sandbox"), event)
    line = json.loads(done.stdout)["hookSpecificOutput"]["updatedInput"]["command"]
    home.run(home.line("next", mode="sandbox"), {**event, "hook_event_name": "Stop"})
    assert home.shell(line).returncode == 125
    assert not (home.project / "here").exists()
    assert outcomes(home) == [("intent", ""), ("outcome", "denied")]


def _junk(home: SandboxedHome) -> None:
    (home.project / ".claude").mkdir()
    (home.project / ".claude/settings.local.json").write_text("{")


LEFT: list[tuple[str, Callable[[SandboxedHome], None]]] = [
    (
        "a deny rule of the client",
        lambda h: h.settings({"permissions": {"deny": ["Bash(touch *)"]}}),
    ),
    (
        "an ask rule of the client",
        lambda h: h.settings({"permissions": {"ask": ["Bash(touch:*)"]}}),
    ),
    ("a rule for all", lambda h: h.settings({"permissions": {"ask": ["Bash"]}})),
    ("a path", lambda h: h.settings({"permissions": {"deny": ["Edit(./mad*)"]}})),
    ("no rule that is understood", lambda h: h.settings({"permissions": {"deny": ["Bash(a"]}})),
    ("no list", lambda h: h.settings({"permissions": {"deny": "Bash"}})),
    ("junk", _junk),
]


@pytest.mark.parametrize(("name", "prepare"), LEFT)
def test_what_the_clients_own_rules_may_be_about_is_left_to_it(
    home: SandboxedHome, name: str, prepare: Callable[[SandboxedHome], None]
) -> None:
    del name
    prepare(home)
    assert home.decided("touch made") == ("left", "")


def test_what_its_rules_are_not_about_is_rewritten(home: SandboxedHome) -> None:
    rules = ["Bash(git push:*)", "Read(./.env)", "WebFetch(domain:x.org)", "mcp__*"]
    home.settings({"permissions": {"deny": rules, "allow": ["Bash(touch *)"]}})
    assert home.boxed("touch made").returncode == 0
    assert home.decided("touch made", permission_mode="plan") == ("left", "")
    assert home.decided("touch made", permission_mode="dontAsk") == ("left", "")
    home.settings({"sandbox": {"excludedCommands": []}})
    assert home.decided("touch made") == ("left", "")


def test_what_is_asked_waits_and_runs_in_the_sandbox_after_a_yes(tmp_path: Path) -> None:
    home = SandboxedHome(tmp_path, rules="")
    effect, reason = home.decided("touch asked")
    assert (effect, "ask the user to approve" in reason) == ("deny", True)
    home.end()


def test_a_stop_ends_what_runs(home: SandboxedHome) -> None:
    line = home.rewritten(f"python3 -c {shlex.quote(SLEEPS)}")
    later = home.rewritten("touch later")
    with subprocess.Popen(
        ["/bin/bash", "-c", line], cwd=home.project, stderr=subprocess.PIPE
    ) as process:
        assert until((home.project / "here").exists)
        environment = {"HOME": str(home.places.home), "PATH": os.environ["PATH"]}
        words = [sys.executable, "-m", "skillhouse", "stop", "--reason", "owls"]
        subprocess.run(words, env=environment, cwd=home.project, check=True, capture_output=True)
        assert process.wait(20) == 125
        assert process.stderr is not None
        assert b"owls" in process.stderr.read()
    done = home.shell(later)
    assert (done.returncode, b"owls" in done.stderr) == (125, True)

"""What tries to run something by the runner of hooks, or to get out of its sandbox (G17)."""

from __future__ import annotations

import array
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from skillhouse.floor import PersistentPaths
from skillhouse.floor.paths import unix_address
from skillhouse.frontends.hooks.client_rules import RUNNER
from tests.attacks.test_hook_attacks import _judges
from tests.frontends.hooks.hooked_home import HEAVY_MODULES, loaded_beside
from tests.frontends.hooks.sandboxed_home import SandboxedHome
from tests.harness import until

pytestmark = pytest.mark.usefixtures("bwrap")
SLEEPS = "import time; open('here', 'w').close(); time.sleep(60); open('later', 'w').close()"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SandboxedHome]:
    made = SandboxedHome(tmp_path)
    yield made
    made.end()


def _refused(done: subprocess.CompletedProcess[bytes], why: str) -> None:
    assert (done.returncode, done.stdout) == (125, b"")
    assert why in done.stderr.decode()


def test_a_ticket_is_used_once(home: SandboxedHome) -> None:
    line = home.rewritten("python3 -c \"open('made', 'a').write('x')\"")
    assert home.shell(line).returncode == 0
    _refused(home.shell(line), "was used")
    both = home.rewritten("python3 -c \"open('two', 'a').write('x')\"")
    home.shell(f"{both} & {both}; wait")
    assert until((home.project / "two").exists)
    assert [(home.project / name).read_text() for name in ("made", "two")] == ["x", "x"]


@pytest.mark.parametrize("other", ["touch other", "touch mad", "touch made ", "", "touch made; x"])
def test_a_ticket_runs_no_other_bytes(home: SandboxedHome, other: str) -> None:
    line = home.rewritten("touch made")
    words = shlex.split(line)
    assert words[-1] == "touch made"
    _refused(home.shell(shlex.join([*words[:-1], other])), "another command")
    # The attempt used it up.
    _refused(home.shell(line), "was used")
    assert not (home.project / "made").exists()


def test_a_ticket_runs_in_no_other_directory(home: SandboxedHome) -> None:
    (home.project / "below").mkdir()
    line = home.rewritten("touch made")
    _refused(home.shell(line, cwd=home.project / "below"), "another directory")


def test_a_ticket_is_of_no_use_to_another_session(home: SandboxedHome) -> None:
    given = home.event("Bash", {"command": "touch made"}, permission_mode="default")
    client = textwrap.dedent(
        """
        import json, subprocess, sys
        line, event = json.loads(sys.stdin.readline())
        done = subprocess.run(["/bin/sh", "-c", line], input=event.encode(), capture_output=True)
        print(done.stdout.decode(), flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", client],
        cwd=home.project,
        env={"PATH": os.environ["PATH"], "HOME": str(home.places.home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(json.dumps([home.line(mode="sandbox"), json.dumps(given)]) + "\n")
        other.stdin.flush()
        answer = json.loads(other.stdout.readline())["hookSpecificOutput"]
        # This process is another client, which saw the line of the first.
        _refused(home.shell(answer["updatedInput"]["command"]), "another session")
        other.stdin.close()
    assert not (home.project / "made").exists()


@pytest.mark.parametrize("ticket", ["", "x", "A" * 43, "x" * 100_000, "../judge", "\udcff"])
def test_a_ticket_cannot_be_made_up(home: SandboxedHome, ticket: str) -> None:
    words = shlex.split(home.rewritten("touch made"))
    line = shlex.join([*words[:-2], ticket, words[-1]])
    _refused(home.shell(line), "the ticket is not known")
    # Without a command it is a question about an earlier one, and this shell is where it is.
    asked = home.shell(shlex.join([*words[:-2], ticket]))
    assert asked.stdout.decode().strip() == str(home.project)
    for some in (words[:-3], [*words, "more"]):
        assert home.shell(shlex.join(some)).returncode == 125
    assert not (home.project / "made").exists()


def _told(home: SandboxedHome, data: bytes, handles: list[int], *, length: int = -1) -> bytes:
    """Say something to the judge as a runner does."""
    with (
        unix_address(home.directory / "run.sock") as address,
        socket.socket(socket.AF_UNIX) as peer,
    ):
        peer.connect(address)
        head = (len(data) if length < 0 else length).to_bytes(4, "big")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))]
        peer.settimeout(20)
        peer.sendmsg([head], rights if handles else [])
        with suppress(BrokenPipeError, ConnectionResetError):  # It has answered already.
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := peer.recv(65536):
                answer += part
        except ConnectionResetError:  # It did not even read to the end.
            return answer or b"125\0"
        return answer


def test_a_runner_of_the_attackers_own_gets_nothing_more(home: SandboxedHome) -> None:
    here = os.open(home.project, os.O_RDONLY)
    null = os.open("/dev/null", os.O_RDWR)
    for handles in ([], [null], [null] * 3, [null] * 3 + [here] * 3, [null] * 60, [null] * 4):
        words = shlex.split(home.rewritten("touch made"))
        told = f"{words[-2]}\0{words[-1]}".encode()
        assert _told(home, told, handles).startswith(b"125\0"), handles
    # A directory as input would lead out of the sandbox (`fchdir`).
    root = os.open("/", os.O_RDONLY)
    words = shlex.split(home.rewritten("touch made"))
    told = f"{words[-2]}\0{words[-1]}".encode()
    assert b"no directory" in _told(home, told, [root, null, null, here])
    assert _told(home, b"", [null, null, null, here]).startswith(b"125\0")
    assert b"too long" in _told(home, b"x", [null, null, null, here], length=2**31)
    assert not (home.project / "made").exists()
    for one in (here, null, root):
        os.close(one)
    # The judge is there as before, with no descriptor more.
    assert home.boxed("touch made").returncode == 0


def test_no_other_descriptor_of_the_client_comes_in(home: SandboxedHome, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("owl")
    line = home.rewritten("python3 -c \"import os; print(sorted(os.listdir('/proc/self/fd')))\"")
    with secret.open() as file:
        done = home.shell(line, pass_fds=[file.fileno()])
    assert done.stdout.decode().strip() == "['0', '1', '2', '3']"


@pytest.mark.parametrize("what", ["link", "directory link", "file", "silent", "open to others"])
def test_the_runner_goes_to_no_other_socket(home: SandboxedHome, tmp_path: Path, what: str) -> None:
    line = home.rewritten("touch made")
    path = home.directory / "run.sock"
    away = tmp_path / "away"
    away.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    with unix_address(away / "run.sock") as address:
        listener.bind(address)
    listener.listen()
    heard: list[bytes] = []

    def answer() -> None:
        with suppress(OSError):  # It is closed at the end.
            peer, _ = listener.accept()
            with peer:
                heard.append(peer.recv(100))

    threading.Thread(target=answer, daemon=True).start()
    kept = tmp_path / "kept"
    if what == "directory link":
        home.directory.rename(kept)
        home.directory.symlink_to(away)
    elif what == "open to others":
        home.directory.chmod(0o777)
    else:
        path.rename(home.directory / "kept.sock")
        if what == "link":
            path.symlink_to(away / "run.sock")
        elif what == "file":
            path.write_text("0\0")
        else:
            (away / "run.sock").rename(path)
    try:
        done = home.shell(line)
        assert done.returncode == 125
        if what != "silent":
            assert not heard
        assert not (home.project / "made").exists()
    finally:
        if what == "directory link":
            home.directory.unlink()
            kept.rename(home.directory)
        home.directory.chmod(0o700)
        listener.close()


def test_another_user_is_not_heard(home: SandboxedHome, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    words = shlex.split(home.rewritten("touch made"))
    for place in (tmp_path, *home.directory.parents):
        if place.is_relative_to(tmp_path.parents[2]):
            place.chmod(place.stat().st_mode | 0o711)
    home.directory.chmod(0o755)
    (home.directory / "run.sock").chmod(0o777)
    code = textwrap.dedent(
        f"""
        import os, socket, sys
        peer = socket.socket(socket.AF_UNIX)
        os.chdir({str(home.directory)!r})
        os.setgid(65534); os.setuid(65534)
        peer.connect("run.sock")
        told = {f"{words[-2]}".encode()!r} + b"\\0" + {words[-1].encode()!r}
        null = os.open("/dev/null", os.O_RDWR)
        here = os.open("/", os.O_RDONLY)
        try:
            # It may be sent away before it has said anything.
            socket.send_fds(peer, [len(told).to_bytes(4, "big")], [null, null, null, here])
            peer.sendall(told)
            print(peer.recv(100))
        except OSError:
            print(b"")
        """
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout == b"b''\n", done.stderr
    home.directory.chmod(0o700)
    assert home.shell(shlex.join(words)).returncode == 0


def _sleeping(home: SandboxedHome) -> list[int]:
    """Return the processes inside that sleep for this home."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_here = os.readlink(place / "cwd") == str(home.project)
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if is_here and b"time.sleep" in words and b"hook_runner" not in words:
            found.append(int(place.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_ends_with_its_runner(home: SandboxedHome, number: signal.Signals) -> None:
    line = home.rewritten(f"python3 -c {shlex.quote(SLEEPS)}")
    with subprocess.Popen(["/bin/bash", "-c", f"exec {line}"], cwd=home.project) as process:
        assert until((home.project / "here").exists)
        assert _sleeping(home)
        process.send_signal(number)
        process.wait(20)
    assert until(lambda: not _sleeping(home)) is True
    assert until(lambda: len(home.records()) == 2) is True
    assert home.records()[1] == ("Bash", "outcome", "error")


def test_a_command_ends_with_its_judge_and_what_came_of_it_stays_unknown(
    home: SandboxedHome,
) -> None:
    line = home.rewritten(f"python3 -c {shlex.quote(SLEEPS)}")
    with subprocess.Popen(
        ["/bin/bash", "-c", line], cwd=home.project, stderr=subprocess.PIPE
    ) as process:
        assert until((home.project / "here").exists)
        for judge in _judges(home):
            os.kill(judge, signal.SIGKILL)
        assert process.wait(20) == 125
        assert process.stderr is not None
        assert b"the judge of skillhouse ended, and the command with it" in process.stderr.read()
    assert until(lambda: not _sleeping(home)) is True
    # The next judge takes none of its tickets, and the turn's end records no outcome.
    home.run(home.line("next", mode="sandbox"), home.event("", {}, hook_event_name="Stop"))
    assert home.records() == [("Bash", "intent", "")]
    _refused(home.shell(line), "no")


def test_a_judge_that_cannot_stay_lets_nothing_run_as_it_is(home: SandboxedHome) -> None:
    (home.directory / "judge.sock").mkdir()
    effect, reason = home.decided("touch made")
    assert (effect, "repeat the call" in reason) == ("deny", True)
    (home.directory / "judge.sock").rmdir()


@pytest.mark.parametrize(
    "word",
    [
        "'; touch /tmp/E-escaped; '",
        "$(touch escaped)",
        "`touch escaped`",
        '"; touch escaped; "',
        "a\ntouch escaped\n",
        "a'\"'\"'; touch escaped #",
        "\\'; touch escaped; \\'",
        "a && touch escaped",
        "-- 'x' | touch escaped",
    ],
)
def test_no_quoting_leads_out_of_the_rewritten_line(home: SandboxedHome, word: str) -> None:
    command = f"python3 -c 'import sys; print(sys.argv[1:])' {shlex.quote(word)}"
    done = home.shell(f"eval {shlex.quote(home.rewritten(command))}")
    assert done.stdout.decode().strip() == str([word])
    assert not (home.project / "escaped").exists()
    assert not Path("/tmp/E-escaped").exists()


def test_what_the_client_has_in_its_environment_stays_out(home: SandboxedHome) -> None:
    line = home.rewritten("env")
    many = {f"KEY_{number}": "k" * 100_000 for number in range(12)}
    own = {**os.environ, **many, "ANTHROPIC_API_KEY": "owl-key", "LD_PRELOAD": "/none.so"}
    done = home.shell(line, env=own)
    assert done.returncode == 0, done.stderr
    assert b"owl-key" not in done.stdout
    assert b"KEY_" not in done.stdout
    assert b"LD_PRELOAD" not in done.stdout


def test_a_write_and_a_connection_fail_inside_and_succeed_without(
    home: SandboxedHome, tmp_path: Path
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    outside = tmp_path / "outside"
    # The words say nothing of what the programs do.
    (home.project / "w.py").write_text(f"open({str(outside)!r}, 'w')\n")
    connects = f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)\n"
    (home.project / "c.py").write_text(connects)
    # Below /tmp it writes in a directory of its own.
    home.boxed("python3 w.py")
    assert not outside.exists()
    assert home.boxed("python3 c.py").returncode == 1
    for command in ("python3 w.py", "python3 c.py"):
        assert home.shell(command).returncode == 0
    assert outside.exists()
    listener.close()


@pytest.mark.parametrize(
    "command",
    [
        "{runner} x 'touch made'",
        "{quoted} x y",
        "ls && {runner} x y; touch made",
        "python3 -c 'print(1)' {script}",
        "hook_''runner.py",
    ],
)
def test_an_agent_starts_no_runner_itself(home: SandboxedHome, command: str) -> None:
    words = shlex.split(home.rewritten("ls"))[:-2]
    runner = shlex.join(words)
    quoted = runner.replace("hook_runner.py", "hook_'run'ner.py")
    given = command.format(runner=runner, quoted=quoted, script=RUNNER)
    effect, reason = home.decided(given)
    assert (effect, "only skillhouse itself starts" in reason) == ("deny", True)


@pytest.mark.parametrize("relative", [".codex/rules/skillhouse.rules", ".claude/settings.json"])
def test_an_agent_writes_no_exception_of_its_own(home: SandboxedHome, relative: str) -> None:
    assert PersistentPaths().is_never(relative)
    (home.project / relative).parent.mkdir(parents=True)
    (home.project / "w.py").write_text(f"open({relative!r}, 'w').write('x')\n")
    home.boxed("python3 w.py")
    assert not (home.project / relative).exists() or not (home.project / relative).read_text()


def test_the_runner_loads_builtin_modules_alone() -> None:
    assert not loaded_beside(RUNNER, "run_client.py") & HEAVY_MODULES

"""The cases that other sandboxes publish, tried on what runs commands (published_cases.toml)."""

from __future__ import annotations

import ast
import os
import secrets
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from skillhouse.sandbox import Launcher
from tests.harness import ran, until
from tests.sandbox.places import (
    launcher,
    listing,
    own,
    run,
    sh,
    started,
    still_running,
    workspace,
)

pytestmark = pytest.mark.slow

__all__ = ["launcher", "workspace"]

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = tomllib.loads((HERE / "published_cases.toml").read_text())["case"]
DENIED = (
    *(".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile", ".gitconfig", ".gitmodules"),
    *(".ripgreprc", ".mcp.json", ".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json"),
    *(".idea/workspace.xml", ".claude/commands/x.md", ".claude/agents/x.md"),
    ".claude/settings.json",
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['source']}: {case['what']}")
def test_every_published_case_has_its_tests(case: dict[str, Any]) -> None:
    assert set(case) <= {"source", "what", "commands", "cells", "why"}
    assert case["commands"]
    assert case.get("cells") or case["why"]
    named = [(HERE, name) for name in case["commands"]]
    named += [(HERE.parent / "extensions/cells", name) for name in case.get("cells", ())]
    for directory, name in named:
        file, function = name.split("::")
        tree = ast.parse((directory / f"test_{file}.py").read_text(encoding="utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        names = {node.name for node in tree.body if isinstance(node, functions)}
        assert f"test_{function}" in names


def python(launcher: Launcher, workspace: Path, code: str, *words: str, **options: Any) -> str:
    done = run(launcher, workspace, "python3", "-I", "-c", code, *words, **options)
    return (done.stdout + done.stderr).decode()


def test_a_unix_socket_is_not_connected_to(launcher: Launcher, workspace: Path) -> None:
    code = (
        "import socket, sys\n"
        "for address in sys.argv[1:]:\n"
        "    try: socket.socket(socket.AF_UNIX).connect(address.replace('@', '\\0'))\n"
        "    except OSError as error: print(type(error).__name__, error.errno)\n"
        "    else: print('connected')"
    )
    name = f"@published-{secrets.token_hex(6)}"
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(str(workspace / "host.sock"))
        other.bind(name.replace("@", "\0"))
        one.listen()
        other.listen()
        addresses = (str(workspace / "host.sock"), "host.sock", name, "/run/docker.sock")
        outside = ran([sys.executable, "-c", code, *addresses[:3]], cwd=workspace, check=True)
        assert outside.stdout.split() == ["connected"] * 3
        said = python(launcher, workspace, code, *addresses)
        assert said.splitlines() == ["OSError 97"] * 4, "EAFNOSUPPORT"


def test_nothing_is_written_beside_the_workspace(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    places = (tmp_path / "beside", Path("/etc/x"), Path("/usr/x"), Path("/x"), Path("/var/tmp/x"))
    script = (
        'for name; do echo x > "$name" && echo "wrote $name"; done; echo x > ../up; echo x > in'
    )
    done = run(launcher, workspace, "sh", "-c", script, "sh", *map(str, places))
    # In a /tmp of its own there may be room beside the workspace; nothing of it is the host's.
    assert not any(place.exists() for place in (*places, workspace.parent / "up"))
    assert b"wrote /" not in done.stdout.replace(f"wrote {places[0]}".encode(), b"")
    assert (workspace / "in").read_text() == "x\n"


def test_processes_have_their_own_numbers(launcher: Launcher, workspace: Path) -> None:
    with subprocess.Popen(("sleep", "604.25")) as beside:
        script = f"ls -d /proc/[0-9]*; kill -0 {beside.pid} && echo seen; kill -9 -1"
        done = sh(launcher, workspace, script)
        assert b"seen" not in done.stdout
        assert len(done.stdout.split()) <= 4
        assert beside.poll() is None
        beside.kill()


def test_a_symbolic_link_leads_nowhere(launcher: Launcher, workspace: Path, tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    (target / "secret").write_text("canary")
    (workspace / "there").symlink_to(target)
    (workspace / "root").symlink_to("/")
    script = (
        f"ln -s {target} made; ln -s ../outside relative; for d in there made relative root/etc; "
        "do cat $d/secret; echo x > $d/new; rm -f $d/secret; done; cat root/etc/shadow; true"
    )
    done = sh(launcher, workspace, script)
    assert b"canary" not in done.stdout
    assert listing(target) == {"secret"}
    assert (target / "secret").read_text() == "canary"


def test_background_processes_end_with_the_run(launcher: Launcher, workspace: Path) -> None:
    mark = own(605)
    script = (
        "sleep 605.25 & nohup sleep 605.25 >/dev/null 2>&1 & (setsid sleep 605.25 &) ; "
        "(setsid sh -c 'sleep 605.25 & sleep 605.25' >/dev/null 2>&1 &); echo done"
    )
    script = script.replace("605.25", mark)
    assert sh(launcher, workspace, script).stdout == b"done\n"
    assert still_running(mark, seconds=1) == []


CORE = """
import sys, anyio
from pathlib import Path
from skillhouse.sandbox import SandboxLevel, SandboxProfile, SandboxStatus, launcher_for
async def main():
    launcher = launcher_for(SandboxStatus(level=SandboxLevel(sys.argv[1])))
    place = Path(sys.argv[2])
    script = f"trap '' TERM; setsid sleep {sys.argv[3]} & touch begun; sleep {sys.argv[3]}"
    await launcher.run(("sh", "-c", script), SandboxProfile(place), cwd=place)
anyio.run(main)
"""


def test_sigterm_to_the_core_ends_its_runs(launcher: Launcher, workspace: Path) -> None:
    mark = f"606.{secrets.randbelow(10**9):09}"
    with subprocess.Popen((sys.executable, "-c", CORE, launcher.level, workspace, mark)) as core:
        until((workspace / "begun").exists, 20)
        assert started(mark)
        core.send_signal(signal.SIGTERM)
        core.wait(10)
    assert still_running(mark) == []


def test_a_timeout_leaves_no_orphan(launcher: Launcher, workspace: Path) -> None:
    script = "trap '' TERM INT HUP; sleep 607.25 & (setsid sleep 607.25 &); sleep 607.25; echo late"
    mark = own(607)
    done = sh(launcher, workspace, script.replace("607.25", mark), seconds=0.4)
    assert (done.timed_out, done.stdout) == (True, b"")
    assert done.duration_seconds < 5
    assert still_running(mark) == []


def test_privileges_are_not_gained(launcher: Launcher, workspace: Path) -> None:
    code = (
        "import os, subprocess\n"
        "held = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(os.getuid(), os.geteuid(), *(held[name].strip() for name in "
        "('CapEff', 'CapPrm', 'CapBnd', 'CapAmb', 'NoNewPrivs')))\n"
        "for change in (os.setuid, os.setgid, os.seteuid, os.setegid):\n"
        "    try: change(0)\n"
        "    except PermissionError: pass\n"
        "    except OSError as error: assert error.errno == 22, error\n"
        "    else: print('became the superuser')\n"
        "for words in (['su', '-c', 'id'], ['sudo', '-n', 'id'], ['unshare', '-Ur', 'id'],"
        " ['newgrp', 'root'], ['mount', '-t', 'tmpfs', 'x', '/tmp']):\n"
        "    try: done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)\n"
        "    except OSError: continue\n"
        "    print('gained' * (b'uid=0' in done.stdout), end='')\n"
        "print('end', os.getuid())"
    )
    zero = "0000000000000000"
    expected = f"65534 65534 {zero} {zero} {zero} {zero} 1\nend 65534\n"
    assert python(launcher, workspace, code) == expected


def test_no_port_of_the_host_is_reached(launcher: Launcher, workspace: Path) -> None:
    code = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[1:]):\n"
        "    for kind, protocol in ((1, 0), (1, 262), (2, 0)):\n"
        "        s = socket.socket(2, kind, protocol); s.settimeout(2)\n"
        "        try: s.connect(('127.0.0.1', port)); s.send(b'x') ; print('sent', kind)\n"
        "        except OSError as error: print(error.errno)"
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        ports = (tcp.getsockname()[1], udp.getsockname()[1])
        said = python(launcher, workspace, code, *map(str, ports)).split("\n")
        # A datagram is told by nobody; it went to the run's own loopback.
        assert [line for line in said if line] == ["111", "111", "sent 2"] * 2
        tcp.setblocking(False)
        for server in (tcp.accept, lambda: udp.recv(9)):
            with pytest.raises(BlockingIOError):
                server()


PROGRAMS = {
    "curl": "curl -sS --max-time 3 http://URL/",
    "curl, TLS": "curl -sSk --max-time 3 https://URL/",
    "wget": "wget -q -T 3 -t 1 -O - http://URL/",
    "nc": "nc -w 3 ADDRESS PORT </dev/null",
    "ping": "ping -c 1 -W 2 ADDRESS",
    "ssh": "ssh -o BatchMode=yes -o ConnectTimeout=3 -p PORT ADDRESS true",
    "getent": "getent hosts example.com",
    "the shell": "bash -c 'exec 5<>/dev/tcp/ADDRESS/PORT'",
    "git": "git -c http.lowSpeedTime=3 ls-remote http://URL/x.git",
    "perl": "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"URL\") or exit 7'",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_fetch_reach_nothing(
    launcher: Launcher, workspace: Path, name: str, need: Any
) -> None:
    program = "bash" if name == "the shell" else PROGRAMS[name].split()[0]
    need(any(Path(place, program).exists() for place in ("/usr/bin", "/bin")), f"no {program}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = PROGRAMS[name].replace("URL", f"127.0.0.1:{port}").replace("PORT", port)
        done = sh(launcher, workspace, command.replace("ADDRESS", "127.0.0.1"), seconds=15.0)
        if name != "ping":  # The run's own loopback answers, if its own user may ask.
            assert done.exit_code not in (0, 127), done
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    far = PROGRAMS[name].replace("URL", "192.0.2.1:80").replace("PORT", "80")
    done = sh(launcher, workspace, far.replace("ADDRESS", "192.0.2.1"), seconds=15.0)
    assert done.exit_code not in (0, 127), done


def test_special_files(launcher: Launcher, workspace: Path, tmp_path: Path) -> None:
    script = (
        "mknod null c 1 3; mknod disk b 254 0; cp /usr/bin/id id; chmod 4755 id; chmod u+s id; "
        f"install -m 6755 /usr/bin/id also; mkdir -m 2777 dir; mkfifo {tmp_path}/pipe; "
        "mkfifo pipe; for f in null disk; do test -e $f && echo $f; done; true"
    )
    done = sh(launcher, workspace, script)
    assert done.stdout == b""
    assert not (tmp_path / "pipe").exists()
    modes = {path.stat().st_mode & 0o6000 for path in workspace.iterdir()}
    assert modes == {0}
    # A pipe in the workspace holds nothing and nobody up: our readers open without waiting.
    assert {path.name for path in workspace.iterdir() if path.is_fifo()} <= {"pipe"}
    assert not [path for path in workspace.iterdir() if path.is_char_device()]


@pytest.mark.parametrize("name", DENIED)
def test_what_is_always_denied_is_not_changed(
    launcher: Launcher, workspace: Path, name: str
) -> None:
    file = workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("kept\n")
    script = (
        f"echo x >> {name}; echo x > new; mv new {name}; rm -rf {name}; ln -sf /etc/passwd {name}; "
        f"mv $(dirname {name})/$(basename {name}) gone; cp new {name}; sed -i s/kept/x/ {name}; "
        "true"
    )
    sh(launcher, workspace, script)
    assert not file.is_symlink()
    assert file.read_text() == "kept\n"


@pytest.mark.parametrize("name", DENIED)
def test_what_is_always_denied_is_not_made(launcher: Launcher, tmp_path: Path, name: str) -> None:
    place = tmp_path / "new"
    place.mkdir()
    top = name.split("/", maxsplit=1)[0]
    script = (
        f"mkdir -p $(dirname {name}); echo x > {name}; echo x > a; mv a {name}; "
        f"mkdir -p b/$(dirname {name}); echo x > b/{name}; mv b/{top} .; "
        f"ln -s b {top}; ln b/{name} {name}; true"
    )
    sh(launcher, place, script)
    assert not (place / name).exists()
    assert not (place / name).is_symlink()


def test_a_missing_protected_path_is_masked(launcher: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()
    # It is there for the run, empty and closed, and is not there for the host before or after.
    done = sh(launcher, place, "ls -A .codex .agents .git && touch .codex/x .git/x .agents/x")
    assert b"Read-only" in done.stderr or b"denied" in done.stderr
    assert listing(place) == set()


def test_a_git_file_and_its_repository_are_kept(launcher: Launcher, tmp_path: Path) -> None:
    place = tmp_path / "project"
    (place / "store" / "meta" / "hooks").mkdir(parents=True)
    (place / "store" / "meta" / "config").write_text("[core]\n")
    (place / ".git").write_text("gitdir: store/meta\n")
    before = listing(place)
    script = (
        "echo gitdir: evil > .git; rm -f .git; mv .git x; echo x > store/meta/hooks/pre-commit; "
        "echo '[core]fsmonitor=x' >> store/meta/config; mv store/meta store/old; mv store old; "
        "mkdir -p store/meta/hooks && echo x > store/meta/hooks/post-checkout; "
        "mkdir -p store/meta/modules/x; ln -s /tmp store/meta/worktrees; true"
    )
    sh(launcher, place, script)
    assert listing(place) == before
    assert (place / ".git").read_text() == "gitdir: store/meta\n"
    assert (place / "store/meta/config").read_text() == "[core]\n"


@pytest.mark.parametrize(
    "text", ["gitdir: /etc", "gitdir: ..", "gitdir: missing", "gitdir: a\0b", "", "x" * 20_000]
)
def test_a_git_file_that_points_nowhere_harms_nothing(
    launcher: Launcher, tmp_path: Path, text: str
) -> None:
    place = tmp_path / "project"
    place.mkdir()
    (place / ".git").write_text(text)
    assert sh(launcher, place, "echo x > file; cat file").stdout == b"x\n"
    assert listing(place) == {".git", "file"}


def test_without_proc_nothing_of_the_host_is_seen(launcher: Launcher, workspace: Path) -> None:
    # A run has a /proc, of its own processes; where it cannot be mounted the run does not start.
    script = (
        "cat /proc/1/cmdline /proc/1/environ /proc/self/environ; ls /proc/1/fd /proc/1/cwd; true"
    )
    done = sh(launcher, workspace, script)
    assert str(Path.home()).encode() not in done.stdout.replace(str(workspace).encode(), b"")
    done = sh(launcher, workspace, "( : >> /proc/sys/kernel/core_pattern )")
    # What the modes refuse to a user is refused before the mount is looked at.
    refusal = b"Read-only file system" if os.geteuid() == 0 else b"Permission denied"
    assert refusal in done.stderr


def test_what_may_be_written_is(launcher: Launcher, workspace: Path) -> None:
    script = (
        "echo x > /dev/null && echo x > here && mkdir -p deep/er && echo x > deep/er/file && "
        "echo x > $HOME/a && echo x > /dev/shm/b && head -c 4 /dev/urandom | wc -c && echo written"
    )
    assert sh(launcher, workspace, script).stdout.split() == [b"4", b"written"]


def test_locks_between_processes_work(launcher: Launcher, workspace: Path) -> None:
    code = (
        "import multiprocessing\n"
        "def work(lock, queue):\n"
        "    with lock: queue.put(1)\n"
        "context = multiprocessing.get_context('fork')\n"
        "lock, queue = context.Lock(), context.SimpleQueue()\n"
        "made = [context.Process(target=work, args=(lock, queue)) for _ in range(2)]\n"
        "[one.start() for one in made]; [one.join() for one in made]\n"
        "print(queue.get() + queue.get())"
    )
    assert python(launcher, workspace, code) == "2\n"


def test_the_user_has_a_name(launcher: Launcher, workspace: Path) -> None:
    code = "import os, pwd, getpass; print(pwd.getpwuid(os.getuid()).pw_name, getpass.getuser())"
    assert python(launcher, workspace, code) == "nobody nobody\n"


def test_the_directory_that_it_starts_in_gives_no_right(
    launcher: Launcher, workspace: Path, tmp_path: Path
) -> None:
    skill = tmp_path / "skill"
    skill.mkdir()
    done = sh(launcher, workspace, "pwd; touch x", cwd=skill, readable=(skill,))
    assert done.stdout == f"{skill}\n".encode()
    assert b"Read-only file system" in done.stderr
    assert listing(skill) == set()

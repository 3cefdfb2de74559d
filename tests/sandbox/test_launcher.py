"""Tests of sandbox/launcher.py: one run, what it leaves, and killing those of other processes."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import re
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path

import anyio
import pytest

from skillhouse.sandbox import (
    Launcher,
    Limits,
    SandboxError,
    SandboxLevel,
    SandboxProfile,
    SandboxStatus,
    SandboxUnavailableError,
    kill_sandboxes,
    launcher_for,
)
from tests.harness import Need
from tests.sandbox.places import children, launcher, listing, own, run, sh, still_running, workspace

pytestmark = pytest.mark.slow


__all__ = ["launcher", "workspace"]

MIB = 1 << 20


def test_a_program_reads_and_writes_the_workspace(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "cat notes.txt; echo more > new; echo said >&2; exit 3")
    assert (done.exit_code, done.signal, done.stdout, done.stderr) == (
        3,
        None,
        b"notes\n",
        b"said\n",
    )
    assert (done.limit, done.left_out, done.timed_out) == ("", 0, False)
    assert (workspace / "new").read_text() == "more\n"


def test_standard_input_is_passed_however_long(launcher: Launcher, workspace: Path):
    data = os.urandom(3 * MIB)
    done = run(launcher, workspace, "wc", "-c", stdin=data)
    assert done.stdout.split() == [str(len(data)).encode()]


def test_input_that_nobody_reads_holds_nothing_up(launcher: Launcher, workspace: Path):
    done = run(launcher, workspace, "true", stdin=b"x" * MIB)
    assert done.exit_code == 0


def test_without_input_there_is_none(launcher: Launcher, workspace: Path):
    assert run(launcher, workspace, "cat").stdout == b""


def test_a_program_that_needs_a_terminal_has_one_of_its_own(
    launcher: Launcher, workspace: Path, need: Need
):
    need(shutil.which("script"), "no script")
    script = "stty rows 7 cols 31; stty size; tty; echo typed > /dev/tty; exit 3"
    done = run(launcher, workspace, "script", "-qec", script, "/dev/null")
    assert (done.exit_code, done.stdout) == (3, b"7 31\r\n/dev/pts/0\r\ntyped\r\n")
    spawn = "import pty; pty.spawn(['sh', '-c', 'test -t 0 && echo terminal'])"
    assert run(launcher, workspace, "python3", "-I", "-c", spawn).stdout == b"terminal\r\n"


def test_nothing_is_made_beside_the_devices(launcher: Launcher, workspace: Path):
    script = "for name in x shm/x; do echo x > /dev/$name && echo made $name; done; ls /dev"
    made, *names = sh(launcher, workspace, script).stdout.decode().split("\n")
    assert made == "made shm/x"
    assert {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx"} <= set(names)
    assert {"x", "kmsg", "mem", "kvm", "fuse", "loop0"}.isdisjoint(names)


def test_the_environment_is_what_was_declared(launcher: Launcher, workspace: Path):
    done = run(
        launcher, workspace, "env", environment={"NAME": "ä b", "PATH": "/evil", "HOME": "/"}
    )
    assert sorted(done.stdout.decode().splitlines()) == [
        "HOME=/tmp",
        "LANG=C.UTF-8",
        "NAME=ä b",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        f"PWD={workspace}",
    ]


def test_a_skill_is_readable_at_its_own_path_and_nothing_beside_it(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    skill = tmp_path / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("body\n")
    (skill.parent / "other").mkdir()
    script = 'cat SKILL.md; ls ..; touch x || echo refused; echo y > "$0/y"'
    done = run(
        launcher, workspace, "sh", "-c", script, str(workspace), readable=(skill,), cwd=skill
    )
    assert done.stdout == b"body\npdf\nrefused\n"
    assert listing(skill) == {"SKILL.md"}
    assert (workspace / "y").exists()


def test_a_skill_in_the_workspace_is_read_only(launcher: Launcher, workspace: Path):
    skill = workspace / ".skillhouse" / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "run.sh").write_text("echo ran; echo x > .skillhouse/skills/pdf/new || echo refused")
    done = sh(launcher, workspace, "sh .skillhouse/skills/pdf/run.sh", readable=(skill,))
    assert done.stdout == b"ran\nrefused\n"
    assert listing(skill) == {"run.sh"}


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((), "exec-empty"),
        (("",), "exec-empty"),
        (("./run",), "exec-path"),
        (("/bin/sh", "-c", "true"), "exec-path"),
        (("bin/../sh",), "exec-path"),
        (("..",), "exec-path"),
        (("sh", "a\0b"), "exec-nul"),
        (("no-such-program",), "exec-not-found"),
    ],
)
def test_a_program_is_a_plain_name_that_exists(
    launcher: Launcher, workspace: Path, argv: tuple[str, ...], code: str
):
    with pytest.raises(SandboxError) as caught:
        run(launcher, workspace, *argv)
    assert caught.value.code == code


@pytest.mark.parametrize("place", ["/", "/usr", "/etc/ssl", "/tmp", "/proc/self"])
def test_the_system_is_no_workspace(launcher: Launcher, place: str):
    with pytest.raises(SandboxError) as caught:
        run(launcher, Path(place), "true")
    assert caught.value.code == "workspace-refused"


def test_places_must_exist_and_hold_the_current_directory(
    launcher: Launcher, workspace: Path, tmp_path: Path
):
    for options, code in (
        ({"cwd": tmp_path}, "cwd-outside"),
        ({"cwd": workspace / "gone"}, "place-missing"),
        ({"readable": (tmp_path / "gone",)}, "place-missing"),
        ({"environment": {"a=b": "c"}}, "environment-refused"),
    ):
        with pytest.raises(SandboxError) as caught:
            run(launcher, workspace, "true", **options)
        assert caught.value.code == code


def test_a_signal_is_told_from_an_exit_code(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "kill -SEGV $$")
    assert (done.exit_code, done.signal, done.limit) == (None, 11, "")


def test_time_ends_a_run(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "echo begun; trap '' TERM INT; sleep 600", seconds=0.5)
    assert (done.exit_code, done.stdout, done.limit) == (None, b"begun\n", "time")
    assert done.timed_out
    assert 0.5 <= done.duration_seconds < 3


def test_output_beyond_the_limit_loses_its_middle_and_the_program_goes_on(
    launcher: Launcher, workspace: Path
):
    script = "for i in $(seq 60000); do echo line $i; done; echo oops >&2; touch done"
    done = sh(launcher, workspace, script, output_bytes=100_000)
    assert (done.exit_code, done.limit, done.stderr) == (0, "", b"oops\n")
    assert (workspace / "done").exists()
    head, notice, tail = re.split(r"(?m)^(… [0-9]+ bytes left out …\n)", done.stdout.decode())
    whole = "".join(f"line {number}\n" for number in range(1, 60_001))
    assert whole.startswith(head.removesuffix("\n"))
    assert whole.endswith(tail)
    assert 99_000 < len(head) + len(tail) <= 100_001
    assert 0 < done.left_out <= int(notice.split()[1]) <= len(whole) - len(head) - len(tail) + 1


def test_output_can_be_left_to_end_a_run(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "yes & yes >&2", output_bytes=100_000, ends_at_output=True)
    assert (done.exit_code, done.limit) == (None, "output")


def test_writers_without_end_take_no_more_memory_and_no_more_time(
    launcher: Launcher, workspace: Path
):
    done = sh(launcher, workspace, "yes & yes >&2", output_bytes=MIB, seconds=2)
    assert done.limit in ("time", "")
    done = sh(launcher, workspace, "yes & yes >&2 & wait", output_bytes=MIB, seconds=2)
    assert (done.limit, done.timed_out) == ("time", True)
    assert done.duration_seconds < 6
    assert MIB // 3 < len(done.stdout) < MIB
    assert MIB // 3 < len(done.stderr) < MIB
    assert done.left_out > MIB


@pytest.mark.heavy
def test_gigabytes_of_output_are_read_and_not_kept(launcher: Launcher, workspace: Path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    script = "head -c 3G /dev/zero; touch done"
    done = sh(launcher, workspace, script, output_bytes=10 * MIB, seconds=120)
    assert (done.exit_code, done.left_out) == (0, (3 << 30) - 10 * MIB)
    assert (workspace / "done").exists()
    # In KiB: the bound, and copies of it.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize("sign", ["é", "━", "😀"])
def test_no_character_is_cut_where_output_is_left_out(
    launcher: Launcher, workspace: Path, sign: str
):
    for shift in range(4):
        script = f"printf '%0{shift + 1}d' 0; for i in $(seq 3000); do printf {sign * 10}; done"
        done = sh(launcher, workspace, script, output_bytes=20_000)
        assert done.left_out
        assert set(done.stdout.decode()) <= {*"0123456789… bytes left out\n", sign}


def test_what_is_written_after_its_parent_ended_holds_up_nothing(
    launcher: Launcher, workspace: Path
):
    done = sh(launcher, workspace, "(sleep 0.2; yes late) & echo early", output_bytes=MIB)
    assert (done.exit_code, done.limit) == (0, "")
    assert done.stdout.startswith(b"early\n")
    assert done.duration_seconds < 5


def test_output_up_to_the_limit_is_whole(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "head -c 100000 /dev/zero", output_bytes=100_000)
    assert (done.exit_code, len(done.stdout), done.limit) == (0, 100_000, "")


def test_a_file_ends_at_its_limit(launcher: Launcher, workspace: Path):
    done = sh(launcher, workspace, "head -c 3000000 /dev/zero > big", file_bytes=MIB)
    assert done.exit_code != 0 or done.signal
    assert (workspace / "big").stat().st_size == MIB


def test_what_is_left_running_ends_with_the_run(launcher: Launcher, workspace: Path):
    began = time.monotonic()
    # The one in the background holds the output open; that does not hold up the answer.
    mark = own(612)
    script = f"sleep {mark} & setsid sleep {mark} & (sleep {mark} &); echo done"
    done = sh(launcher, workspace, script)
    assert (done.exit_code, done.stdout) == (0, b"done\n")
    assert time.monotonic() - began < 5
    assert still_running(mark) == []


def test_a_cancelled_run_leaves_nothing(launcher: Launcher, workspace: Path):
    before = listing(workspace)

    async def cancelled(seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await launcher.run(
                ("sh", "-c", f"setsid sleep {own(613)} & sleep {own(613)}"),
                SandboxProfile(workspace),
                cwd=workspace,
            )

    for seconds in (0.0, 0.001, 0.003, 0.01, 0.3):
        anyio.run(cancelled, seconds)
        assert still_running(own(613)) == []
    assert listing(workspace) == before


def test_many_runs_at_once_do_not_mix(launcher: Launcher, workspace: Path):
    before = listing(workspace)
    said: dict[int, bytes] = {}

    async def one(number: int) -> None:
        profile = SandboxProfile(workspace, environment={"N": str(number)})
        done = await launcher.run(("sh", "-c", "echo x > .bashrc; echo $N"), profile, cwd=workspace)
        said[number] = done.stdout

    async def all_() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(one, number)

    anyio.run(all_)
    assert said == {number: f"{number}\n".encode() for number in range(12)}
    assert listing(workspace) == before


def test_a_run_leaves_no_descriptor_and_no_group(launcher: Launcher, workspace: Path):
    run(launcher, workspace, "true")
    # What a test before this one left to the collector would be closed at any time.
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run(launcher, workspace, "true")
    assert sorted(os.listdir("/proc/self/fd")) == before
    pattern = f"skillhouse-{os.getpid()}-*"
    assert [*Path("/sys/fs/cgroup").glob(f"*/{pattern}")] == []


def test_a_workspace_that_cannot_be_protected_leaves_nothing_of_the_run(
    launcher: Launcher, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("skillhouse.sandbox.protected_mounts.LOCK_SECONDS", 0.05)
    run(launcher, workspace, "true")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = sorted(os.listdir("/proc/self/fd")), children.read_text()
    handle = os.open(workspace, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(SandboxError) as caught:
            run(launcher, workspace, "touch", "made")
    finally:
        os.close(handle)
    assert caught.value.code == "protect-failed"
    assert not (workspace / "made").exists()
    assert (sorted(os.listdir("/proc/self/fd")), children.read_text()) == before
    pattern = f"skillhouse-{os.getpid()}-*"
    assert [*Path("/sys/fs/cgroup").glob(f"*/{pattern}")] == []


def test_bubblewrap_that_fails_is_an_error_and_no_answer(
    launcher: Launcher, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, script in (("fails", "exit 1"), ("lies", "exit 0"), ("talks", "echo no >&2; exit 2")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(launcher, "_program", program)
        with pytest.raises(SandboxError) as caught:
            run(launcher, workspace, "true")
        assert caught.value.code == "sandbox-failed"


def test_without_a_level_there_is_no_launcher():
    status = SandboxStatus(
        level=SandboxLevel.NONE, reasons=("bubblewrap is not installed",), hint="do it"
    )
    with pytest.raises(SandboxUnavailableError, match="not installed; do it") as caught:
        launcher_for(status)
    assert (caught.value.reasons, caught.value.hint) == (status.reasons, status.hint)


def test_a_run_outlives_the_threads_that_other_work_used(launcher: Launcher, workspace: Path):
    # `--die-with-parent` follows the thread that spawned: it must be the event loop's.
    said = []

    async def call() -> None:
        done = await launcher.run(
            ("sh", "-c", "sleep 0.5; echo lived"),
            SandboxProfile(workspace, limits=Limits(seconds=20)),
            cwd=workspace,
        )
        said.append(done.stdout)

    async def beside() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.to_thread.run_sync(threading.get_ident)

    anyio.run(beside)
    assert said == [b"lived\n"]


def test_the_network_is_granted_on_request_only(launcher: Launcher, workspace: Path):
    script = "wc -l < /proc/net/dev; ls /etc/resolv.conf"
    closed = sh(launcher, workspace, script)
    granted = sh(launcher, workspace, script, network=True)
    interfaces = len(Path("/proc/net/dev").read_text().splitlines())
    assert closed.stdout == b"3\n"  # Two lines of headings, and the loopback.
    assert granted.stdout.splitlines()[0] == str(interfaces).encode()


def test_nothing_is_killed_of_a_process_that_shows_no_file_or_has_no_sandbox(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert kill_sandboxes(os.getpid(), tmp_path) == 0
        with (tmp_path / f"{os.getpid()}-shown").open("w"):
            assert kill_sandboxes(os.getpid(), tmp_path) == 0
        assert child.poll() is None
        child.kill()


def test_a_run_that_finds_no_descriptor_leaves_no_process(
    launcher: Launcher, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = children()
    monkeypatch.setattr(os, "pidfd_open", refused)
    with pytest.raises((OSError, SandboxError), match=r"Too many open files|sandbox"):
        run(launcher, workspace, "true")
    assert children() <= before

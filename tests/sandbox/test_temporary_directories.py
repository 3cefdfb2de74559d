"""The sandbox wherever the directory for temporary files is: long, odd, read-only, full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from skillhouse.sandbox import SandboxLevel, detect
from tests.harness import Need, ran

pytestmark = pytest.mark.slow

LONG = {
    "90 bytes": lambda base: base / ("d" * (89 - len(str(base)))),
    "180 bytes": lambda base: base / ("d" * (179 - len(str(base)))),
    "blanks": lambda base: base / "with blanks  and a tab\t" / ("d" * 70),
    "not ascii": lambda base: base / ("目录-ünï" * 8),
}


@pytest.fixture
def sandboxed(need: Need) -> None:
    status = anyio.run(detect)
    need(status.level is not SandboxLevel.NONE, f"no sandbox: {'; '.join(status.reasons)}")


@pytest.fixture
def short_base() -> Iterator[Path]:
    """Yield a new directory of few bytes, to which the tests add as many as they want."""
    made = subprocess.run(["mktemp", "-d", "/tmp/shXXXX"], capture_output=True, check=True)
    base = Path(made.stdout.decode().strip())
    yield base
    subprocess.run(["rm", "-rf", base], check=True)


def skillhouse(
    home: Path, temporary: Path, *arguments: str, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the program in a new home with a directory for temporary files."""
    home.mkdir(mode=0o700, exist_ok=True)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(temporary)}
    command = [*prefix, sys.executable, "-m", "skillhouse", *arguments]
    return ran(command, cwd=home, env=environment)


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.parametrize("name", LONG)
def test_commands_run_with_a_temporary_directory_of_any_length(short_base: Path, name: str):
    temporary = LONG[name](short_base)
    temporary.mkdir(parents=True)
    home = short_base / "home"
    said = skillhouse(home, temporary, "sandbox", "status").stdout.splitlines()[0]
    assert "none" not in said
    skillhouse(home, temporary, "policy", "allow", "exec", "echo *", "--yes")
    done = skillhouse(home, temporary, "call", "exec", "command=echo here")
    assert (done.returncode, "here" in done.stdout) == (0, True), done.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser may mount a full tmpfs")
def test_a_full_temporary_directory_is_named_and_the_sandbox_is_not_blamed(tmp_path: Path):
    temporary = tmp_path / "full"
    temporary.mkdir()
    # 4 KiB are left: the place can be made, and what the tests need cannot.
    script = 'mount -t tmpfs -o size=64k none "$1" && head -c 61440 /dev/zero >"$1/x"; shift; "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script, "sh", str(temporary))
    said = skillhouse(tmp_path / "home", temporary, "sandbox", "status", prefix=prefix).stdout
    if not said:
        pytest.skip("no mount namespaces here")
    assert f"cannot be tested in `{temporary}`: no space left on device" in said
    assert "this says nothing of the sandbox" in said
    assert "report this" not in said


@pytest.mark.usefixtures("sandboxed")
@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser may mount read-only")
def test_another_directory_is_taken_where_the_given_one_is_read_only(tmp_path: Path):
    temporary = tmp_path / "read-only"
    temporary.mkdir()
    script = 'mount -t tmpfs -o ro none "$1"; shift; "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script, "sh", str(temporary))
    said = skillhouse(tmp_path / "home", temporary, "sandbox", "status", prefix=prefix).stdout
    if not said:
        pytest.skip("no mount namespaces here")
    assert "level: none" not in said

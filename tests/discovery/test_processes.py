"""Several processes that discover the same 10,000 skills at once, over one index."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from skillhouse.discovery.scan import CACHE_FILE
from tests.discovery.trees import Report, probe, probe_command, write_skill

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


SKILLS = 10_000


def start(root: Path, cache: Path, **options: bool) -> subprocess.Popen[bytes]:
    """Start a process that begins when its standard input is closed."""
    return subprocess.Popen(
        probe_command([root], cache=cache, waits=True, **options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_eight_processes_of_which_one_is_killed_writing_the_index_all_find_everything(
    tmp_path: Path,
) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for number in range(SKILLS):
        write_skill(root / f"s{number:05}", description="Does one thing. " * 20)
    expected = probe(root)
    assert len(expected.skills) == SKILLS

    processes = [start(root, cache, **({"doomed": True} if n == 3 else {})) for n in range(8)]
    # The doomed one goes first: should others have written the index by then, it would not write.
    for process in (processes[3], *processes[:3], *processes[4:]):
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        while not (cache / CACHE_FILE).exists():
            time.sleep(0.01)
    ended = [(*process.communicate(timeout=120), process.returncode) for process in processes]

    killed = ended.pop(3)
    assert killed == (b"", b"", -signal.SIGKILL)
    for printed, errors, code in ended:
        assert (errors, code) == (b"", 0)
        assert Report(**json.loads(printed)).everything == expected.everything
    # Whoever came last left an index that can be used, and nothing half-written.
    warm = probe(root, cache=cache)
    assert warm.everything == expected.everything
    assert not any(path.startswith(str(root)) for path in warm.opened)
    assert [path.name for path in cache.iterdir()] == [CACHE_FILE]


def test_an_index_whose_only_writer_was_killed_is_written_by_the_next(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for number in range(5_000):
        write_skill(root / f"s{number:05}", description="Does one thing. " * 40)
    expected = probe(root)
    doomed = start(root, cache, doomed=True)
    doomed.communicate(timeout=60)
    assert doomed.returncode == -signal.SIGKILL
    # More was written than memory holds back, so the file is damaged until it is rolled back.
    assert {path.name for path in cache.iterdir()} == {CACHE_FILE, f"{CACHE_FILE}-journal"}
    assert probe(root, cache=cache).everything == expected.everything
    warm = probe(root, cache=cache)
    assert warm.everything == expected.everything
    assert not any(path.startswith(str(root)) for path in warm.opened)

"""Tests of several processes that search one cache while skills change, or while one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skillhouse.discovery import discover
from skillhouse.retrieval import SearchIndex

SEARCHER = """
import json, sys, time
from pathlib import Path
from skillhouse.discovery import discover
from skillhouse.floor import SkillhouseError
from skillhouse.retrieval import search, skills_of
from skillhouse.skill import load
root, cache, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
searches = stale = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    index = discover([root], cache=cache, clock=lambda: 1 << 62)
    hits = search(index, "zephyr kite", limit=50)
    if not hits:
        sys.exit("nothing was found")
    for skill in skills_of(index, hits):
        try:
            load(skill)
        except (SkillhouseError, OSError):
            # Gone since the discovery: then discovery does not find it again.
            again = discover([root], cache=cache, clock=lambda: 1 << 62)
            stale += any(other.file == skill.file for other in again.skills)
    searches += 1
print(json.dumps([searches, stale]))
"""
BUILDER = """
import sys, time
from pathlib import Path
from skillhouse.discovery import discover
from skillhouse.retrieval import SearchIndex
def slowly(done, total):
    print(done, flush=True)
    time.sleep(0.001)
root, cache = map(Path, sys.argv[1:3])
index = discover([root], cache=cache, clock=lambda: 1 << 62)
SearchIndex.from_skills(index, cache=cache, progress=slowly)
"""


def write(root: Path, number: int, text: str) -> Path:
    file = root / f"kite-{number:03}" / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name("part")
    part.write_text(f"---\nname: kite-{number:03}\ndescription: A kite\n---\n{text}", "utf-8")
    # In one step, as editors and installers do.
    part.replace(file)
    return file


@pytest.mark.slow
def test_eight_processes_search_while_skills_change(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for number in range(120):
        os.utime(write(root, number, "zephyr"), (1, 1))
    command = [sys.executable, "-c", SEARCHER, str(root), str(cache), "4"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)
    ]
    changes = 0
    while any(process.poll() is None for process in processes):
        number = changes % 120
        if changes % 3 == 0:
            (root / f"kite-{number:03}" / "SKILL.md").unlink(missing_ok=True)
        else:
            # Of the past, so that what is written is kept.
            os.utime(write(root, number, f"zephyr {changes}"), (changes, changes))
        changes += 1
        time.sleep(0.01)
    answers = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert [(error, code) for _, error, code in answers] == [(b"", 0)] * 8
    found = [json.loads(answer) for answer, _, _ in answers]
    assert all(searches > 0 for searches, _ in found)
    assert [stale for _, stale in found] == [0] * 8
    assert changes > 8


@pytest.mark.slow
@pytest.mark.parametrize("read", [1, 60, 299])
def test_a_writer_that_is_killed_costs_a_rebuild_at_most(tmp_path: Path, read: int) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    for number in range(300):
        os.utime(write(root, number, f"zephyr {number}"), (1, 1))
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(root), str(cache)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= read:
            process.send_signal(signal.SIGKILL)
            break
    process.wait(30)
    process.stdout.close()
    index = discover([root], cache=cache, clock=lambda: 1 << 62)
    expected = SearchIndex.from_skills(index).search("zephyr 7", limit=9)
    for _ in range(2):
        assert SearchIndex.from_skills(index, cache=cache).search("zephyr 7", limit=9) == expected
    assert list(cache.rglob("*.base"))

"""The embedded package server with many versions: search, metadata, publishing, memory.

Half as many skills as versions; their rows are written by the engine itself, without archives. What
is measured goes through a server process over loopback, and what is published is on the disk
(`synchronous = FULL`, one transaction and one file for each; nothing is batched).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from _measure import markdown_table
from skillhouse.extensions.registry.hosting import new_token, open_repository
from skillhouse.extensions.registry.hosting.release_store import NewRelease
from skillhouse.registry import pack
from skillhouse.registry.releases import Release, index_path

AT = "2026-11-23T12:00:00Z"
SEED = 19
VOCABULARY = 20_000
PUBLISHERS = 4
"""Clients that publish at the same time."""
NEVER = "1000000000"


def server_rows(versions: int, rounds: int) -> str:
    """Measure and return a table."""
    chance = random.Random(SEED)
    words = [_word(chance) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 3) for rank in range(VOCABULARY)]
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        # In memory, and then copied: to wait for the disk 100,000 times takes minutes.
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=memory) as fast:
            names, token = _fill(Path(fast, "state"), versions, chance, words, weights)
            shutil.copytree(Path(fast, "state"), place / "state")
        archives = [
            _package(place, "-".join(chance.choices(words, k=3)), number)
            for number in range(rounds)
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "skillhouse", "registry", "serve", str(place / "state"),
             "--port", "0", "--reads-per-minute", NEVER, "--writes-per-minute", NEVER],
            stdout=subprocess.PIPE, text=True, env={"HOME": made, "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().split()[-1])
            assert address.port is not None
            port = address.port
            queries = [
                "/skills?q=" + quote(" ".join(chance.choices(words, weights, k=count)))
                for count in chance.choices((1, 2, 3, 5), (3, 4, 2, 1), k=rounds)
            ]
            metadata = ["/" + index_path("default", chance.choice(names)) for _ in range(rounds)]
            works: dict[str, Callable[[], tuple[str, ...]]] = {
                "search, 20 results": lambda: _times(port, queries),
                "metadata of a skill": lambda: _times(port, metadata),
                "a page of 200 skills, by name": lambda: _times(port, ["/skills?limit=200"] * 200),
                f"publish, {PUBLISHERS} at once": lambda: _published(port, token, archives),
            }
            rows = []
            for text, work in works.items():
                before = _cpu(process.pid)
                row = work()
                used = (_cpu(process.pid) - before) * 1e3 / int(row[0].replace(",", ""))
                rows.append((text, *row, f"{used:.2f}"))
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
        finally:
            process.terminate()
            process.wait()
        size = (place / "state/registry.sqlite3").stat().st_size / (1 << 20)
    table = markdown_table(
        ("through the server", "requests", "median, ms", "p99, ms", "a second", "CPU, ms"), rows
    )
    facts = f"{versions:,} versions of {len(names):,} skills; peak memory of the server"
    return f"{table}\n\n{facts} {peak:.0f} MiB, database {size:.0f} MiB"


def _cpu(process: int) -> float:
    """Return the seconds of CPU that a process took."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _word(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9)))


def _fill(
    directory: Path,
    versions: int,
    chance: random.Random,
    words: Sequence[str],
    weights: Sequence[float],
) -> tuple[list[str], str]:
    repository = open_repository(directory)
    names = []
    for number in range(versions // 2):
        name = f"{chance.choice(words)}-{chance.choice(words)}-{number}"
        description = " ".join(chance.choices(words, weights, k=25))
        names.append(name)
        for version in ("1.0.0", "1.1.0"):
            mark = hashlib.sha256(f"{name}@{version}".encode()).hexdigest()
            release = Release(
                version=version,
                digest=f"sha256:{mark}",
                tree_digest=f"skilltree1:{mark}",
                size=2_000,
                files=2,
                published_at=AT,
            )
            repository.store.add(
                NewRelease(
                    namespace="default",
                    skill=name,
                    description=description,
                    license="MIT",
                    release=release,
                )
            )
    token, _ = new_token(repository.store, ("publish:*",), datetime.now(UTC))
    repository.store.close()
    return names, token


def _package(place: Path, name: str, number: int) -> tuple[str, bytes]:
    directory = place / "packed" / name
    (directory / "scripts").mkdir(parents=True)
    head = f'---\nname: {name}\ndescription: Number {number}.\nmetadata:\n  version: "1.0.0"\n---\n'
    (directory / "SKILL.md").write_text(head + f"Line {number}.\n" * 300)
    (directory / "scripts/run.py").write_text(f"print({number})\n" * 100)
    return name, pack(directory).archive


def _times(port: int, paths: Sequence[str]) -> tuple[str, ...]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(path: str) -> None:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status} {body[:200]!r}")

    return _row([_timed(lambda path=path: ask(path)) for path in paths])  # type: ignore[misc]


def _published(port: int, token: str, archives: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    times: list[float] = []
    waiting = list(archives)

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while waiting:
            name, archive = waiting.pop()
            before = time.perf_counter()
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("PUT", f"/skills/{name}/1.0.0", archive, headers)
            answer = connection.getresponse()
            value = json.loads(answer.read())
            if answer.status != 201:
                sys.exit(f"{name}: {value}")
            times.append(time.perf_counter() - before)

    threads = [threading.Thread(target=work) for _ in range(PUBLISHERS)]
    before = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _row(times, time.perf_counter() - before)


def _row(times: Sequence[float], seconds: float | None = None) -> tuple[str, ...]:
    ordered = sorted(times)
    middle, high = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
    rate = len(ordered) / (seconds or sum(ordered))
    return f"{len(ordered):,}", f"{middle * 1e3:.2f}", f"{high * 1e3:.2f}", f"{rate:,.0f}"


def _timed(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before

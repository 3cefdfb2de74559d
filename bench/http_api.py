"""Measures the HTTP API of `skillhouse up` with 1,000 skills: pages, searches, readers of events.

The loader is a process of its own on the same machine; its CPU time is named, since it takes the
service's processors too.

    ./x bench http_api               ten seconds for each
    ./x bench http_api --minutes 5   and five minutes of 200 requests a second and 8 readers
    ./x bench browsers --minutes 5   the five minutes, beside 8 pages in Chromium
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKILLS = 1_000
CONNECTIONS = 8
SECONDS = 10.0
READERS = 8
RATE = 200
SAMPLE_SECONDS = 30.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})\n")
WORDS = "merge split rotate convert extract compress annotate translate review deploy".split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    port: int
    token: str
    pid: int

    def request(self, path: str) -> bytes:
        return (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer {self.token}\r\n\r\n"
        ).encode()

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        return int(found[1]) / 1024 if found else 0.0


@contextlib.contextmanager
def started(base: Path, skills: int = SKILLS) -> Iterator[Service]:
    home, project = base / "home", base / "project"
    (project / ".git").mkdir(parents=True)
    for number in range(skills):
        place = home / f".agents/skills/skill-{number:04}"
        place.mkdir(parents=True)
        word, other = WORDS[number % 10], WORDS[number // 10 % 10]
        (place / "SKILL.md").write_text(
            f"---\nname: skill-{number:04}\ndescription: Can {word} and {other} file {number}.\n"
            f"---\nTo {word}, read the file and {other} it.\n"
        )
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": _sources()}
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", "up", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=project,
        env=environment,
    )
    with process:
        try:
            assert process.stdout is not None
            found = ADDRESS.fullmatch(process.stdout.readline())
            assert found
            yield Service(port=int(found[1]), token=found[2], pid=process.pid)
        finally:
            process.terminate()


def _sources() -> str:
    return str(Path(__file__).resolve().parents[1] / "src")


async def _answer(reader: asyncio.StreamReader) -> int:
    """Read one answer and return its status."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = re.search(rb"content-length: (\d+)", head)
    await reader.readexactly(int(length[1]) if length else 0)
    return int(head.split(b" ", 2)[1])


async def _ask(service: Service, paths: list[str], until: float, done: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        at = 0
        while time.monotonic() < until:
            writer.write(service.request(paths[at % len(paths)]))
            done.append(await _answer(reader))
            at += 1
    finally:
        writer.close()


async def throughput(service: Service, name: str, paths: list[str]) -> None:
    # The index and the first scan are made before the clock runs.
    await _ask(service, paths[:1], time.monotonic() + 1.0, [])
    done: list[int] = []
    begun, service_cpu, own_cpu = time.monotonic(), service.cpu_seconds(), _own_cpu()
    until = begun + SECONDS
    shifted = [paths[at:] + paths[:at] for at in range(CONNECTIONS)]
    await asyncio.gather(*(_ask(service, one, until, done) for one in shifted))
    took = time.monotonic() - begun
    wrong = sum(status != 200 for status in done)
    used = service.cpu_seconds() - service_cpu
    # What a request costs says more than the rate where others use the processors too.
    print(
        f"| {name} | {len(done) / took:,.0f} | {wrong} | {1_000 * used / len(done):.2f} | "
        f"{used / took:.0%} | {(_own_cpu() - own_cpu) / took:.0%} |"
    )


async def _follow(service: Service, seen: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    try:
        writer.write(service.request("/api/v1/events"))
        while data := await reader.read(65_536):
            seen.append(data.count(b"\nevent: "))
    finally:
        writer.close()


async def minutes(service: Service, home: Path, length: float, *, readers: int = READERS) -> None:
    """Ask and change a skill for `length` minutes, and print what it took and held."""
    seen: list[list[int]] = [[] for _ in range(readers)]
    tasks = [asyncio.create_task(_follow(service, one)) for one in seen]
    done: list[int] = []
    memory: list[float] = []
    paths = ["/api/v1/skills?limit=50", "/api/v1/search?q=merge", "/api/v1/approvals"]
    begun = time.monotonic()
    pairs = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(CONNECTIONS)]
    number, cpu, own_cpu = 0, service.cpu_seconds(), _own_cpu()
    while time.monotonic() - begun < 60 * length:
        tick = begun + number * CONNECTIONS / RATE
        await asyncio.sleep(max(0.0, tick - time.monotonic()))
        for _, writer in pairs:
            writer.write(service.request(paths[number % len(paths)]))
        done += await asyncio.gather(*(_answer(reader) for reader, _ in pairs))
        if time.monotonic() - begun >= len(memory) * SAMPLE_SECONDS:
            memory.append(service.resident_mib())
        if number % (RATE // CONNECTIONS) == 0:
            (home / ".agents/skills/skill-0000/SKILL.md").write_text(
                f"---\nname: skill-0000\ndescription: Changed {number} times.\n---\nText.\n"
            )
        number += 1
    memory.append(service.resident_mib())
    took = time.monotonic() - begun
    for task in tasks:
        task.cancel()
    wrong = sum(status != 200 for status in done)
    share, own = (service.cpu_seconds() - cpu) / took, (_own_cpu() - own_cpu) / took
    print(
        f"\n{len(done) / took:.0f} requests a second for {took:.0f} s: {wrong} errors; "
        f"service {share:.0%} of a processor, loader {own:.0%}"
    )
    if readers:
        print(f"events for each of {readers} readers: {sorted(map(sum, seen))}")
    curve = " ".join(f"{one:.1f}" for one in memory)
    print(f"resident MiB each {SAMPLE_SECONDS:.0f} s and at the end: {curve}")


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(service: Service, home: Path, length: float) -> None:
    load = os.getloadavg()
    print(f"{SKILLS:,} skills, {CONNECTIONS} connections, {os.cpu_count()} processors, ", end="")
    print(f"load before {load[0]:.1f}\n")
    print("| requests | a second | errors | CPU ms each | service | loader |")
    print("|---|---|---|---|---|---|")
    await throughput(service, "page of 50 skills", ["/api/v1/skills?limit=50"])
    pairs = [(one, other) for one in WORDS for other in WORDS]
    searches = [f"/api/v1/search?q={a}%20{b}%20{n}" for n, (a, b) in enumerate(pairs * 10)]
    await throughput(service, "search, 1,000 different ones", searches)
    await throughput(service, "one skill", ["/api/v1/skills/skill-0007/content"])
    if length:
        await minutes(service, home, length)


def main() -> None:
    length = length_option(__doc__)
    with tempfile.TemporaryDirectory() as base, started(Path(base)) as service:
        asyncio.run(measured(service, Path(base) / "home", length))


def length_option(description: str | None) -> float:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=0.0, metavar="N", help="of steady load")
    minutes: float = parser.parse_args().minutes
    return minutes


if __name__ == "__main__":
    main()

"""What a record costs, beside the write it cannot do without, and how long a log takes to verify.

`./x bench audit [--records N] [--appends N] [--rounds N] [--directory DIR]` measures wall time in
fresh processes, rounds interleaved. DIR says whose disk is measured; without it a temporary one.
The log that is verified is rotated at 50 MB as any other, so most of it stands in archives. Each
call has arguments of its own, and the records come with the checkpoints that belong to them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _measure import interleaved, markdown_table
from skillhouse.audit import AuditDraft, AuditLog, DecidedPermission, verify_log
from skillhouse.floor.structs import replace

LINE = b"x" * 600 + b"\n"
"""As long as a usual record."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the audit log.")
    parser.add_argument("--records", type=int, default=100_000, help="records to verify")
    parser.add_argument("--appends", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the logs are written")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        name, place, count = options.case
        print(json.dumps({"us": CASES[name](Path(place), int(count))}))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        log = Path(directory) / "long.jsonl"
        write_calls(log, options.records)
        counts = dict.fromkeys(CASES, options.appends)
        counts["verify, a record"] = options.records
        found = interleaved(
            {
                name: [sys.executable, __file__, "--case", name, directory, str(count)]
                for name, count in counts.items()
            },
            rounds=options.rounds,
        )
        plain = log.stat().st_size
        files = sorted(log.with_name("long-archive").glob("*.gz"))
        packed = sum(each.stat().st_size for each in files)
        seconds = found["verify, a record"].said["us"] * options.records / 1e6
    rows = [(name, f"{usage.said['us']:.1f}") for name, usage in found.items()]
    print(markdown_table(("case", "µs"), rows))
    print(f"\n{options.records:,} records verify in {seconds:.2f} s: {plain / 1e6:.1f} MB in the")
    print(f"active file, {packed / 1e6:.1f} MB in {len(files)} archives")


def draft_of_a_call(number: int = 0) -> AuditDraft:
    needed = DecidedPermission(
        action="exec", resource=f"git show {number}", effect="allow", layer="user", rule_index=2
    )
    return AuditDraft(
        kind="intent",
        tool="exec",
        agent="default",
        user="someone",
        channel="mcp",
        arguments={"command": f"git show {number}", "cwd": "work/project"},
        permissions=(needed,),
    )


def write_calls(path: Path, count: int) -> None:
    """Write `count` records: intents, each with its outcome."""
    with AuditLog(path) as log:
        for number in range(count // 2):
            draft = draft_of_a_call(number)
            made = log.write(draft, durable=False)
            done = replace(draft, kind="outcome", status="ok", intent=made, duration_ms=12)
            log.write(done, durable=False)


SECRETS = tuple(f"a-secret-of-the-house-{number:04}" for number in range(10))


def append(
    path: Path,
    count: int,
    *,
    durable: bool = False,
    secrets: tuple[str, ...] = (),
    whole: bool = False,
) -> float:
    """Write different calls `count` times; return the microseconds of one."""
    drafts = iter([draft_of_a_call(number) for number in range(count)])
    with AuditLog(path, secrets=lambda: secrets) as log:
        log.write(draft_of_a_call(), durable=durable)
        once = log.append if whole else log.write
        return timed(lambda: once(next(drafts), durable=durable), count)


def write(path: Path, count: int, *, durable: bool = False) -> float:
    """Write a line of the same length without anything around it."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def once() -> None:
        os.write(handle, LINE)
        if durable:
            os.fsync(handle)

    return timed(once, count)


def verify(directory: Path, count: int) -> float:
    start = time.perf_counter()
    found = verify_log(directory / "long.jsonl")
    seconds = time.perf_counter() - start
    assert (found.records - 2 * found.archives, found.problems) == (count, ())
    return seconds / count * 1e6


def timed(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count * 1e6


CASES: dict[str, Callable[[Path, int], float]] = {
    "write": lambda place, count: append(place / "write.jsonl", count),
    "write, ten known secrets": lambda place, count: append(
        place / "secrets.jsonl", count, secrets=SECRETS
    ),
    "append, which returns the record": lambda place, count: append(
        place / "append.jsonl", count, whole=True
    ),
    "write with fsync": lambda place, count: append(place / "sync.jsonl", count, durable=True),
    "write of a line alone": lambda place, count: write(place / "raw", count),
    "write and fsync alone": lambda place, count: write(place / "raw-sync", count, durable=True),
    "verify, a record": verify,
}


if __name__ == "__main__":
    main()

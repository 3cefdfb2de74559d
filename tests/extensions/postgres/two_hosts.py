"""Two hosts on one machine: a network namespace each, joined by a cable that can be pulled.

The second has another boot (a time namespace) and a clock that is wrong, as Python programs read
it: no namespace has a wall clock, and libfaketime breaks `time.sleep`. It takes the superuser.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import Need, ran

WRONG_CLOCK = """
import os, time

_SECONDS = int(os.environ["TEST_CLOCK_SECONDS"])
_real, _real_ns, _get, _get_ns = (
    time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns
)
time.time = lambda: _real() + _SECONDS
time.time_ns = lambda: _real_ns() + _SECONDS * 10**9
time.clock_gettime = lambda clock: _get(clock) + (_SECONDS if clock == time.CLOCK_REALTIME else 0)
time.clock_gettime_ns = lambda clock: (
    _get_ns(clock) + (_SECONDS * 10**9 if clock == time.CLOCK_REALTIME else 0)
)
"""
"""Read by each Python before anything else, as `sitecustomize`."""
ADDRESSES = ("10.99.0.1", "10.99.0.2")
BOOTED_SECONDS = 400_000
"""By how much the second host has run longer than the first."""


class Host:
    def __init__(self, *words: str) -> None:
        script = "ip link set lo up && echo $$ && exec sleep 100000"
        self._holder = subprocess.Popen(
            ["unshare", "--net", *words, "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        line = self._holder.stdout.readline()
        assert line, "no namespace could be made"
        self.process = int(line)
        self.clock: tuple[str, ...] = ()
        """The command that runs a program with the clock of this host."""
        self._spaces = ("--net", *(("--time",) if words else ()))

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command that runs a program on this host."""
        return ("nsenter", "-t", str(self.process), *self._spaces, "--", *self.clock)

    def run(self, *command: str) -> None:
        done = ran([*self.prefix[: -len(self.clock) or None], *command])
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        # The shell is a child of `unshare` where there is a time namespace.
        subprocess.run(["kill", "-9", str(self.process)], check=False, capture_output=True)
        self._holder.kill()
        self._holder.communicate()


class TwoHosts:
    def __init__(self) -> None:
        self.first = Host()
        try:
            self.second = Host("--time", "--boottime", str(BOOTED_SECONDS), "--fork")
        except BaseException:
            self.first.close()
            raise
        self.offset = 0

    def join(self) -> None:
        self.first.run("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable",
                       "netns", str(self.second.process))  # fmt: skip
        for host, address in zip((self.first, self.second), ADDRESSES, strict=True):
            host.run("ip", "address", "add", f"{address}/24", "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")

    def set_clock(self, seconds: int, place: Path) -> None:
        """Have the clock of the second host be wrong by some seconds; `place` takes a file."""
        (place / "sitecustomize.py").write_text(WRONG_CLOCK)
        self.offset = seconds
        path = os.pathsep.join([str(place), *filter(None, sys.path)])
        self.second.clock = ("env", f"TEST_CLOCK_SECONDS={seconds}", f"PYTHONPATH={path}")

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Pull the cable for a block."""
        self.first.run("ip", "link", "set", "cable", "down")
        try:
            yield
        finally:
            self.first.run("ip", "link", "set", "cable", "up")

    def host_of(self, number: int) -> Host:
        """Return the host of a process: every other one is the second's."""
        return (self.first, self.second)[number % 2]

    def close(self) -> None:
        self.first.close()
        self.second.close()


@contextmanager
def two_hosts(need: Need) -> Iterator[TwoHosts]:
    need(os.geteuid() == 0, "two hosts take the superuser")
    tried = ran(["unshare", "--net", "--time", "--fork", "ip", "link", "set", "lo", "up"])
    need(tried.returncode == 0, f"no namespaces of network and time: {tried.stderr.strip()}")
    hosts = TwoHosts()
    try:
        hosts.join()
        yield hosts
    finally:
        hosts.close()

"""Processes of calls that have loaded the skill's code before their call arrives.

Each one serves one call, as any other process of a call, and is in the same confinement from its
first instruction on. It has got nothing of a call until then, so it cannot pass on anything of one.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from skillhouse.cells.call_channel import CHUNK, CellOutput
from skillhouse.cells.cell import CellSpec
from skillhouse.cells.rpc import Frames, RpcError, RpcRequest, framed, message, parse
from skillhouse.sandbox.profile import SandboxError

PREPARE, PREPARED = "cell.prepare", "cell.prepared"
READY_MAX = 4
"""Ready processes of one cell."""
LOADING_MAX = 2
"""Those of them that load at one time."""
QUIET_SECONDS = 10.0
"""After this time in which no call found none, one ready process is enough again."""
LOAD_SECONDS = 10.0
"""Longest time to load a skill's code ahead of a call."""
FAILURES_MAX = 3
"""Processes in a row that did not load; then none is started ahead in this cell."""
NAMES_MAX = 256
"""Modules of the standard library that a cell imports for one skill."""
SKILLS_MAX = 256
"""Skills whose imports are remembered."""
_NAME = re.compile(r"[A-Za-z_]\w{0,63}(\.[A-Za-z_]\w{0,63}){0,5}", re.ASCII)


def prepare_order(env: Mapping[str, str]) -> bytes:
    """Return the message that makes a process load the skill's code and wait."""
    return framed({"jsonrpc": "2.0", "method": PREPARE, "params": {"env": dict(env)}})


def module_names(value: object) -> tuple[str, ...]:
    """Return what looks like names of modules in a cell's report, of which nothing is trusted.

    >>> module_names(["json", "xml.etree.ElementTree", "../x", 7])
    ('json', 'xml.etree.ElementTree')
    """
    if not isinstance(value, list):
        return ()
    names = (name for name in value[:NAMES_MAX] if isinstance(name, str) and _NAME.fullmatch(name))
    return tuple(dict.fromkeys(names))


class LearnedImports:
    """The modules of the standard library that each skill's code imports.

    They come from processes that have loaded the code and have got nothing of any call, so no
    call can leave a sign to a later one by what it imports.
    """

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[str, ...], tuple[str, ...]] = OrderedDict()

    def known(self, spec: CellSpec) -> tuple[str, ...] | None:
        """Return the names; None before a process has reported."""
        return self._names.get(_code_of(spec))

    def learn(self, spec: CellSpec, names: Iterable[str]) -> tuple[str, ...]:
        """Add names to those of a skill, and return the new ones that are kept."""
        key = _code_of(spec)
        before = self._names.pop(key, ())
        kept = tuple(dict.fromkeys((*before, *names)))[:NAMES_MAX]
        self._names[key] = kept
        while len(self._names) > SKILLS_MAX:
            self._names.popitem(last=False)
        return kept[len(before) :]


def _code_of(spec: CellSpec) -> tuple[str, ...]:
    packages = (str(path) for path in (spec.dependencies or "", *spec.shared))
    python = "" if spec.python is None else str(spec.python.program)
    return (spec.digest, spec.entry, python, *packages)


class Demand:
    """How many processes wait for calls: one, and more while calls come faster than those."""

    def __init__(self, *, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._wanted = 1
        self._at = clock()

    def limit(self, most: int) -> None:
        self._most = most

    def miss(self) -> None:
        """Count a call that found no process, or had to wait for one."""
        self._wanted = min(self._most, self.wanted + 1)
        self._at = self._clock()

    @property
    def wanted(self) -> int:
        if self._clock() - self._at >= QUIET_SECONDS:
            self._wanted = 1
        return min(self._most, self._wanted)


@dataclass(slots=True)
class Ending:
    """How the process of one call ended, once it has."""

    done: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    """Exit code, negative for a signal; None when it was not started or is unknown."""
    failed: str = ""


@dataclass(slots=True, eq=False)
class Fork:
    """A process of one call, and our ends of what connects it."""

    number: int
    ending: Ending
    link: socket.socket
    output: CellOutput
    seconds: float
    """Time of a call that its limit of processor time fits."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What it was loaded with."""
    frames: Frames = field(default_factory=Frames)
    """What has been read of its link."""
    is_stopped: bool = False

    @property
    def is_gone(self) -> bool:
        return self.ending.done.is_set()

    def close(self) -> None:
        self.output.close()
        self.link.close()


class Waiting(Protocol):
    """A process of one call, without its call."""

    link: socket.socket
    frames: Frames
    env: Mapping[str, str]
    is_stopped: bool

    @property
    def is_gone(self) -> bool: ...

    @property
    def seconds(self) -> float: ...


P = TypeVar("P", bound=Waiting)


class Owner(Protocol[P]):
    """The cell, which starts and ends the processes."""

    def start_ready(self, seconds: float) -> P: ...

    def drop_ready(self, process: P) -> None:
        """End one that gets no call."""
        ...

    def watch_ready(self, process: P, *, closely: bool) -> None:
        """Check its limits as those of a call, while it loads the code."""
        ...

    def stop_ready(self, process: P) -> None:
        """Give it no processor time until `go_ready`."""
        ...

    def go_ready(self, process: P) -> None: ...

    def take_report(self, report: Mapping[str, Any]) -> None:
        """Use what a process has imported."""
        ...

    def lacks_report(self) -> bool: ...


class ReadyCalls(Generic[P]):
    """The processes of one cell that wait for calls."""

    def __init__(
        self, owner: Owner[P], *, loads: bool = True, keeps: bool = True, max_bytes: int
    ) -> None:
        """
        Args:
            loads: Whether they load the skill's code ahead.
            keeps: False: one process loads the code to report its imports, and none waits.
            max_bytes: Memory of all that wait, as they report it.
        """
        self._owner = owner
        self._loads = loads
        self._keeps = keeps
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._demand = Demand(most=READY_MAX)
        self._waiting: list[P] = []
        self._loading: dict[P, asyncio.TimerHandle] = {}
        self._trim: asyncio.TimerHandle | None = None
        self._failures = 0
        self._seconds = 0.0
        self._has_begun = False

    def take(self, seconds: float, env: Mapping[str, str]) -> P | None:
        """Return a process for a call of so many seconds; None where none fits."""
        found = None
        while self._waiting and found is None:
            process = self._waiting.pop(0)
            self._settle(process)
            fits = process.seconds >= seconds and process.env == env and not process.is_gone
            if fits:
                found = process
            else:
                self._owner.drop_ready(process)
        if found is not None and found.is_stopped:
            self._owner.go_ready(found)
        elif self._has_begun and self._keeps:
            self._demand.miss()
        return found

    def refill(self, seconds: float, env: Mapping[str, str]) -> None:
        """Start what loads the code, if too few processes do or have."""
        self._seconds = max(self._seconds, seconds)
        if self._failures >= FAILURES_MAX:
            return
        while len(self._waiting) < self._wanted() and len(self._loading) < LOADING_MAX:
            try:
                process = self._owner.start_ready(self._seconds)
            except (OSError, SandboxError):
                # Without descriptors, say; the next call starts its own process and says so.
                return
            process.env = dict(env)
            self._begin(process)

    def _wanted(self) -> int:
        if self._keeps:
            return self._demand.wanted
        return int(self._owner.lacks_report())

    def _begin(self, process: P) -> None:
        self._has_begun = True
        self._waiting.append(process)
        if not self._loads:
            self._watch_demand()
            return
        self._loading[process] = self._loop.call_later(LOAD_SECONDS, self._fail, process)
        self._owner.watch_ready(process, closely=True)
        self._loop.add_reader(process.link, self._read, process)
        try:
            process.link.send(prepare_order(process.env))
        except OSError:
            self._fail(process)

    def _read(self, process: P) -> None:
        try:
            data = process.link.recv(CHUNK)
            process.frames.feed(data)
            frame = process.frames.next()
            report = None if frame is None else message(parse(frame))
        except BlockingIOError:
            return
        except (OSError, RpcError):
            self._fail(process)
            return
        if data and report is None:
            return
        if not isinstance(report, RpcRequest) or report.method != PREPARED:
            self._fail(process)
            return
        self._prepared(process, report.params if isinstance(report.params, dict) else {})

    def _prepared(self, process: P, report: Mapping[str, Any]) -> None:
        self._settle(process)
        self._failures = 0
        self._owner.take_report(report)
        size = report.get("bytes")
        if not self._keeps:
            self._remove(process)
            return
        if type(size) is not int or size * len(self._waiting) > self._max_bytes:
            self._remove(process)
            self._keeps = bool(self._waiting)
            self._demand.limit(len(self._waiting))
            return
        # It has no processor time until its call arrives.
        process.is_stopped = True
        self._owner.stop_ready(process)
        self._watch_demand()
        self.refill(self._seconds, process.env)

    def _watch_demand(self) -> None:
        if len(self._waiting) > 1 and self._trim is None:
            self._trim = self._loop.call_later(QUIET_SECONDS, self._trimmed)

    def _trimmed(self) -> None:
        self._trim = None
        while len(self._waiting) > self._demand.wanted:
            self._remove(self._waiting[-1])
        self._watch_demand()

    def _fail(self, process: P) -> None:
        self._failures += 1
        self._remove(process)

    def _remove(self, process: P) -> None:
        self._settle(process)
        self._waiting.remove(process)
        self._owner.drop_ready(process)

    def _settle(self, process: P) -> None:
        """Stop to wait for its report."""
        timer = self._loading.pop(process, None)
        if timer is not None:
            timer.cancel()
            self._loop.remove_reader(process.link)
            self._owner.watch_ready(process, closely=False)

    def close(self) -> None:
        """Drop all; none is started any more."""
        self._failures = FAILURES_MAX
        if self._trim is not None:
            self._trim.cancel()
        for process in tuple(self._waiting):
            self._remove(process)

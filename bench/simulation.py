"""What breaks first when 1,000 agents work on 20 replicas and 200 executors.

`./x bench simulation [--agents N] [--replicas N] [--executors N] [--seed N] [--factors 1,4,…]` has
discrete events and a queue before each part. What a step costs is measured (`COSTS` names the line
of docs/benchmarks.md); how agents behave is assumed (`HABITS`): it says what is full first and by
which factor, and promises no latency. The first table has more agents, the second one fewer parts.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator

from _measure import markdown_table

COSTS: dict[str, tuple[float, str]] = {
    "request": (1.17, "one skill 855"),
    "gate": (0.89, "what the gate adds to an allowed `read`"),
    "command": (7.6, "Processor time of this process for one `exec`"),
    "warm": (8.7, "Python call, warm"),
    "cold": (56.0, "Python, first call"),
    "select": (0.07, "one `SELECT` of the state by bare psycopg"),
    "transaction": (0.55, "a transaction of two statements by bare psycopg"),
}
"""Milliseconds, and words of the line that has the figure."""
HABITS: dict[str, float] = {
    "think_s": 5.0, "code": 0.4, "command": 0.1, "question": 0.02, "answer_s": 60.0,
    "wait_s": 0.3, "run_s": 1.0, "run_cpu_s": 0.2, "skills": 100, "alpha": 1.0,
}  # fmt: skip
"""Assumed: seconds between two calls of an agent; shares of calls that run code or a command, and
that ask; seconds until a person answers, that code waits for others, that a command waits and
works, on the machine of its replica; skills with code, and how uneven their use is (Zipf)."""
CELLS, SLOTS, CONNECTIONS, DATABASE, COMMANDS = 16, 8, 4, 4, 2
"""Warm cells of an executor (the least recently used one goes) and calls at once on it; connections
of a replica; processors of the database, and of a replica's machine for commands."""
PATIENCE, LIMIT = 5.0, 1.0
"""Seconds that a call waits for an executor; and of waiting and work of ours in a call (99th
percentile) from which the place is broken."""
HEAD = "agents|calls/s|replica|its commands|database|executor|cold|ms p50|p99|late|breaks"
Then = Callable[[], None]
Step = tuple[str, "Station | None", float]
"""A step: `take` a station for seconds, `hold` it, `free` it, or `wait`."""


class Station:
    """Serves `many` at once, the others in turn."""

    def __init__(self, many: int) -> None:
        self.many, self.busy, self.worked = many, 0, 0.0
        self.waiting: deque[Then] = deque()


class Executor:
    def __init__(self) -> None:
        self.processor, self.slots = Station(1), Station(SLOTS)
        self.cells: OrderedDict[int, bool] = OrderedDict()

    def cost(self, skill: int) -> float:
        is_warm = self.cells.pop(skill, False)
        self.cells[skill] = True
        if len(self.cells) > CELLS:
            self.cells.popitem(last=False)
        return COSTS["warm" if is_warm else "cold"][0]


class Simulation:
    def __init__(self, agents: int, replicas: int, executors: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.now, self.order = 0.0, itertools.count()
        self.events: list[tuple[float, int, Then]] = []
        parts = (1, CONNECTIONS, COMMANDS)
        self.replicas = [tuple(map(Station, parts)) for _ in range(replicas)]
        self.database = Station(DATABASE)
        self.executors = [Executor() for _ in range(executors)]
        uses = (1 / (1 + n) ** HABITS["alpha"] for n in range(int(HABITS["skills"])))
        self.weights = list(itertools.accumulate(uses))
        self.added: list[float] = []
        self.cold = self.coded = self.late = 0
        for _ in range(agents):
            self.after(self.random.random() * HABITS["think_s"], self._agent(self._life()))

    def after(self, seconds: float, then: Then) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.order), then))

    def run(self, seconds: float) -> None:
        while self.events and self.now <= seconds:
            self.now, _, then = heapq.heappop(self.events)
            then()

    def _agent(self, life: Iterator[Step]) -> Then:
        def go() -> None:
            kind, station, seconds = next(life)
            if station is None:
                self.after(seconds, go)
            elif kind == "free":
                ended(station)
            elif station.busy < station.many:
                begin(station, kind, seconds)
            else:
                station.waiting.append(lambda: begin(station, kind, seconds))

        def begin(station: Station, kind: str, seconds: float) -> None:
            station.busy += 1
            station.worked += seconds
            self.after(seconds, go if kind == "hold" else lambda: ended(station))

        def ended(station: Station) -> None:
            self._free(station)
            go()

        return go

    def _free(self, station: Station) -> None:
        station.busy -= 1
        if station.waiting:
            station.waiting.popleft()()

    def _life(self) -> Iterator[Step]:
        draw, mean = self.random.random, self.random.expovariate
        while True:
            began, idle = self.now, 0.0
            processor, connections, commands = self.random.choice(self.replicas)
            kind, asks = draw(), draw() < HABITS["question"]
            own = COSTS["request"][0] + COSTS["gate"][0]
            own += COSTS["command"][0] * (kind < HABITS["command"])
            state = 3 * COSTS["select"][0]  # Two of a call, and the stop.
            state += 5 * COSTS["select"][0] + 2 * COSTS["transaction"][0] if asks else 0
            yield "take", processor, mean(1_000 / own)
            yield "hold", connections, 0.0
            yield "take", self.database, mean(1_000 / state)
            yield "free", connections, 0.0
            if asks:
                idle += (waits := mean(1 / HABITS["answer_s"]))
                yield "wait", None, waits
            if kind < HABITS["command"]:
                idle += (waits := mean(1 / HABITS["run_s"]))
                idle += (works := mean(1 / HABITS["run_cpu_s"]))
                yield "take", commands, works
                yield "wait", None, waits
            elif kind < HABITS["command"] + HABITS["code"]:
                idle += yield from self._coded()
            self.added.append(self.now - began - idle)
            yield "wait", None, mean(1 / HABITS["think_s"])

    def _coded(self) -> Generator[Step, None, float]:
        skill = self.random.choices(range(len(self.weights)), cum_weights=self.weights)[0]
        # A replica knows its own calls alone: of two, the one with fewer that wait or run.
        two, began = self.random.choices(self.executors, k=2), self.now
        chosen = min(two, key=lambda one: one.slots.busy + len(one.slots.waiting))
        yield "hold", chosen.slots, 0.0
        self.coded += 1
        self.late += self.now - began > PATIENCE
        self.cold += skill not in chosen.cells
        waits = self.random.expovariate(1 / HABITS["wait_s"])
        yield "take", chosen.processor, self.random.expovariate(1_000 / chosen.cost(skill))
        yield "wait", None, waits
        yield "free", chosen.slots, 0.0
        return waits


def outcome(agents: int, replicas: int, executors: int, seed: int, seconds: float) -> list[str]:
    one = Simulation(agents, replicas, executors, seed)
    one.run(seconds)
    added = sorted(one.added)
    shares = {
        "replicas": max(p.worked for p, *_ in one.replicas) / seconds,
        "commands": max(c.worked for *_, c in one.replicas) / seconds / COMMANDS,
        "database": one.database.worked / seconds / DATABASE,
        "executors": max(e.processor.worked for e in one.executors) / seconds,
    }
    p99 = added[len(added) * 99 // 100]
    full = max(shares, key=lambda name: shares[name])
    row = [f"{agents:,}", f"{len(added) / seconds:,.0f}", *(f"{s:.0%}" for s in shares.values())]
    cold, middle = one.cold / max(1, one.coded), added[len(added) // 2] * 1_000
    row += [f"{cold:.0%}", f"{middle:.0f}", f"{p99 * 1_000:,.0f}", f"{one.late:,}"]
    return [*row, f"**{full}**" if p99 > LIMIT or one.late else ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = {"agents": 1_000, "replicas": 20, "executors": 200, "seed": 1, "seconds": 60}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--factors", default="1,4,8,12,16")
    o = parser.parse_args()
    more = [o.agents * int(factor) for factor in o.factors.split(",")]
    rows = [outcome(n, o.replicas, o.executors, o.seed, o.seconds) for n in more]
    print(markdown_table(HEAD.split("|"), rows))
    fewer = [(o.replicas // n, o.executors) for n in (2, 5, 10, 20)]
    fewer += [(o.replicas, o.executors // n) for n in (4, 10, 20, 40)]
    rows = [[f"{r}, {e}", *outcome(o.agents, r, e, o.seed, o.seconds)] for r, e in fewer]
    print("\n" + markdown_table(["replicas, executors", *HEAD.split("|")], rows))


if __name__ == "__main__":
    main()

"""What a chaos test runs on: three servers, three executors, a pair of databases, all of them
behind networks that can be cut."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.chaos_parts import Cut, DatabasePair, EffectCounter, SmallDisk
from tests.executors import RunningWorker, worker
from tests.extensions.postgres.state_servers import database_of, new_database
from tests.harness import until
from tests.house.coded import tool, write_code
from tests.replicas import Replica, RoundRobin, http

ASKED = tuple(f"asked{number:02}" for number in range(24))
"""Tools that are asked about; each waits for a while after three refusals in a row."""
TOOLS = ("mark", "spend", "rare", *ASKED)
SKILL = f"""
def run(params, context):
    # One line of the counter, outside of all that is broken here.
    parts = (params["counter"], params["kind"], params["word"], str(params["wait"]))
    return context.fetch("/".join(parts)).text()

tools = dict.fromkeys({TOOLS!r}, run)
"""
CONFIG = """
server_name = "core-{name}"
roots = ["{base}/skills"]

[state]
url = "{state}"

[approvals]
open_max = 80000
user_open_max = 80000
user_rate = 80000

[net]
hosts = ["GET http://127.0.0.1:{counter}"]
private = ["127.0.0.1/32"]

[skill_code]
enabled = true
executor_token = "file:{base}/token"
callback = "127.0.0.1:0"

[skill_code.executors]
python = [{executors}]

[[rules]]
effect = "ask"
action = "skill_tool"
pattern = "chaos:asked*"

[[rules]]
effect = "allow"
action = "skill_tool"
patterns = ["chaos:mark", "chaos:spend", "chaos:rare"]
"""
POLICY = """
version: "1"
thresholds: {{tier3MaxUsd: 5, tier2MaxUsd: 50, tier2DailyUsd: {day_usd}}}
tools:
  chaos__mark: {{tier: 3}}
{asked}
  fetch: {{tier: 3}}
  chaos__spend: {{tier: 2}}
  chaos__rare: {{tier: 3, cooldown: {{maxPerHour: {rare_max}}}}}
fallback: {{tier: 1}}
"""
TOKEN = "c" * 64


class ChaosLimits(NamedTuple):
    """What the tier policy allows in a day: reached before a run ends, and not at its beginning."""

    day_usd: int
    """Dollars of `spend`, one a call."""
    rare_max: int
    """Successes of `rare`."""

    @classmethod
    def of(cls, seconds: float) -> ChaosLimits:
        return cls(max(25, int(seconds / 3)), max(15, int(seconds / 5)))


class Core:
    """A server with a home, a network to the database, one to its callers, and a chain."""

    def __init__(self, place: ChaosPlace, name: str, disk: SmallDisk | None) -> None:
        self.name = name
        self.disk = disk
        self.cuts = {one: Cut(place.database.socket_of(one)) for one in "ab"}
        self.front = Cut(9)
        """Where callers find it."""
        self._place = place
        self._home = place.base / f"core-{name}" / "home"
        file = self._home / ".config/skillhouse/config.toml"
        file.parent.mkdir(parents=True)
        hosts = ",".join(f"127.0.0.1:{self.cuts[one].port}" for one in "ab")
        address = f"postgresql://tests@{hosts}/{place.database_name}"
        executors = ", ".join(f'"http://127.0.0.1:{one.port}/rpc"' for one in place.executor_cuts)
        file.write_text(
            CONFIG.format(
                name=name,
                base=place.base,
                state=f"{address}?target_session_attrs=read-write",
                counter=place.counter.port,
                executors=executors,
            )
        )
        asked = "\n".join(f"  chaos__{one}: {{tier: 3}}" for one in ASKED)
        (file.parent / "policy.yml").write_text(
            POLICY.format(**place.limits._asdict(), asked=asked)
        )
        self.running: Replica | None = None
        self.ended_at: list[float] = []
        """When one of its processes was killed; what it ran then has no outcome."""
        self.is_full_at: list[tuple[float, float]] = []

    @property
    def said(self) -> Path:
        """File of what it writes to stderr."""
        return self._home.parent / "said"

    @property
    def state(self) -> Path:
        return self.disk.directory if self.disk else self._home / ".local/state/skillhouse"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.front.port}"

    def start(self) -> None:
        options: list[str] = []
        for port in (self._place.balancer.port, self.front.port):
            options += ["--allow-host", f"127.0.0.1:{port}"]
        prefix = self.disk.prefix if self.disk else ()
        if self.disk:
            prefix = (*prefix, str(self._place.base / "project"))
        # A pipe that is read at the end alone would fill, and hold the server up.
        prefix = (*prefix, "sh", "-c", 'exec "$@" 2>> "$0"', str(self.said))
        is_first = self.running is None
        self.running = Replica(self._place.base, *options, prefix=prefix, HOME=str(self._home))
        self.front.target = self.running.port
        if is_first:
            self._place.balancer.add(self.address)

    def start_again(self) -> None:
        """Start it, and again where it could not: the state may be away just then."""
        deadline = time.monotonic() + 60
        while True:
            try:
                self.start()
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.ended_at.append(time.time())

    def close(self) -> None:
        if self.running is not None:
            self.running.kill()


class ChaosPlace:
    """Everything that runs."""

    def __init__(self, base: Path, kept: ExitStack, limits: ChaosLimits, *, has_disk: bool) -> None:
        self.base = base
        self.limits = limits
        self.database = DatabasePair(has_disk=has_disk)
        kept.callback(self.database.close)
        self.state_url = new_database(self.database.server())
        self.database_name = database_of(self.state_url)
        self.counter = EffectCounter(base / "effects")
        kept.callback(self.counter.close)
        tools = [
            tool(name, "write", parameters={"type": "object", "additionalProperties": True})
            for name in TOOLS
        ]
        write_code(base / "skills/chaos", SKILL, *tools)
        (base / "token").write_text(TOKEN)
        self._kept = kept
        self.workers: list[RunningWorker] = []
        self.executor_cuts: list[Cut] = []
        for number in range(3):
            self.workers.append(self._worker(number, 0))
            self.executor_cuts.append(Cut(self.workers[number].port))
            kept.callback(self.executor_cuts[number].close)
        self.balancer = kept.enter_context(RoundRobin([]))
        self.cores: list[Core] = []
        for name in "abc":
            home = base / f"core-{name}/home/.local/state/skillhouse"
            disk = None
            if has_disk and name == "c":
                disk = SmallDisk(home)
                kept.callback(disk.close)
            core = Core(self, name, disk)
            for cut in (core.front, *core.cuts.values()):
                kept.callback(cut.close)
            self.cores.append(core)
            core.start()
            kept.callback(core.close)
        assert until(lambda: len(self.balancer.ready) == len(self.cores), 30)
        self.caller = self._token("caller", "call")
        self.person = self._token("person", "read", "approve")
        self.owner = self._token("owner", "read", "manage")
        self._workers_started = 0

    def _worker(self, number: int, start: int) -> RunningWorker:
        place = self.base / f"executor-{number}-{start}"
        place.mkdir()
        (place / "known").write_text(f"cores {TOKEN}\n")
        words = ("--core", "http://127.0.0.1:9/rpc", "--core", "http://*/rpc")
        return self._kept.enter_context(
            worker(place, *words, token=("--tokens", str(place / "known")))
        )

    def restart_worker(self, number: int) -> None:
        self._workers_started += 1
        self.workers[number] = self._worker(number, self._workers_started)
        self.executor_cuts[number].target = self.workers[number].port

    def _token(self, name: str, *scopes: str) -> str:
        first = self.cores[0].running
        assert first is not None
        body = {"name": name, "scopes": list(scopes)}
        return str(http(first.address, "/api/v1/tokens", first.token, body).value["token"])

"""`--replicas` for tests of an application in their own process: its requests go to two servers.

Where such a test makes the application of a `Skillhouse` and a client of it, the client's requests
go to HAProxy, and from there to two `skillhouse up` that have the same home and state. What the
test does with its own `Skillhouse` is what a third process does.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle  # noqa: TID251 - values of our own tests.
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2
import starlette.testclient

from skillhouse.extensions.server import app as app_module
from skillhouse.extensions.server.guard import RequestGuard
from skillhouse.floor.structs import field_names
from skillhouse.house import Skillhouse
from tests.balanced import balanced, free_port
from tests.extensions.postgres.started import with_state

OPTIONS = tuple(inspect.signature(app_module.make_app).parameters)[1:]
KNOWN = frozenset({"token", "port", "session", "allowed"})
"""Options of an application that `up` takes, or that the client puts others in the place of."""


def overrides_of(house: Skillhouse) -> dict[str, Any]:
    """Return the values that a test gave in the place of the configuration's."""
    config = house.config
    if config.source is None:
        return {}
    loaded = config.source.loaded
    return {
        name: getattr(config, name)
        for name in field_names(config)
        if name not in config.UNCOMPARED and getattr(config, name) != getattr(loaded, name)
    }


class UpForks:
    """Processes of `skillhouse up`, forked from one that has read the modules."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.up_forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Pair:
    """Two servers of a home behind HAProxy, and the keys that open them."""

    def __init__(
        self, forks: UpForks, house: Skillhouse, made: Mapping[str, Any], overrides: bytes
    ) -> None:
        places = house.config.places
        self._forks = forks
        self._stack = ExitStack()
        self._running: list[int] = []
        self.logs: list[Path] = []
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        front = free_port()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
        env = {**kept, **places.environment, "HOME": str(places.home)}
        env = dict(with_state(env) or {})
        own = (f"{name}:{made['port']}" for name in ("127.0.0.1", "localhost"))
        names = (*made["allowed"], *own, f"127.0.0.1:{front}")
        arguments = ["--port", "0", *(one for name in names for one in ("--allow-host", name))]
        addresses = []
        for number in range(2):
            log = self._directory / f"{number}.log"
            found = forks.ask(
                env=env,
                cwd=str(places.start),
                managed=str(places.managed_file),
                arguments=arguments,
                overrides=b64encode(overrides).decode(),
                log=str(log),
            )
            self.logs.append(log)
            self._running.append(found["pid"])
            assert found["line"], log.read_text("utf-8")
            address, _, token = found["line"].strip().partition("/?token=")
            addresses.append(address)
        self.token = token
        self.address = self._stack.enter_context(
            balanced(self._directory, front, (addresses[0], addresses[1]))
        )

    @cached_property
    def cookie(self) -> str:
        """Of a browser that opened the printed address."""
        with httpx2.Client() as opener:
            opened = opener.get(f"{self.address}/", params={"token": self.token})
            (found,) = opened.cookies.values()
        return found

    def end(self) -> None:
        for pid in self._running:
            self._forks.ask(pid=pid, end=9)
        self._stack.close()


class Replicas:
    """The servers of the test that runs."""

    def __init__(self) -> None:
        self._forks: UpForks | None = None
        self._pairs: dict[tuple[Path, Path, int, bytes], Pair] = {}
        self.made: dict[int, tuple[RequestGuard, Skillhouse, Mapping[str, Any]]] = {}
        """What each application was made of."""

    def pair_of(self, app: Any) -> Pair:
        _, house, options = self.made[id(app)]
        other = {name for name, value in options.items() if value and value != "http"} - KNOWN
        assert not other, f"`skillhouse up` has no {other}: mark this test `one_server`"
        places = house.config.places
        overrides = pickle.dumps(overrides_of(house))
        key = (places.home, places.start, options["port"], overrides)
        if key not in self._pairs:
            self._forks = self._forks or UpForks()
            self._pairs[key] = Pair(self._forks, house, options, overrides)
        return self._pairs[key]

    def end_below(self, directory: Path | None) -> None:
        """End the servers of homes below a directory, or all."""
        for key in list(self._pairs):
            if directory is None or key[0].is_relative_to(directory):
                self._pairs.pop(key).end()
        if directory is None and self._forks is not None:
            self._forks.close()


class ReplicaTransport(httpx2.BaseTransport):
    """Sends the requests of a client of an application to the two servers of its home."""

    def __init__(self, replicas: Replicas, app: Any) -> None:
        self._replicas = replicas
        self._app = app
        # Without kept connections: each request may go to another server.
        self._http = httpx2.HTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        pair = self._replicas.pair_of(self._app)
        _, _, options = self._replicas.made[id(self._app)]
        given = request.headers
        if options["token"] in given.get("authorization", ""):
            given["authorization"] = f"Bearer {pair.token}"
        if (session := options["session"]) and session in given.get("cookie", ""):
            given["cookie"] = given["cookie"].replace(session, pair.cookie)
        port = int(pair.address.rpartition(":")[2])
        url = str(request.url).replace(f"token={options['token']}", f"token={pair.token}")
        request.url = httpx2.URL(url).copy_with(scheme="http", host="127.0.0.1", port=port)
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), 60)
        return self._http.handle_request(request)

    def close(self) -> None:
        self._http.close()


@contextmanager
def replicated_applications() -> Iterator[Replicas]:
    """Have clients of applications ask two servers for a block."""
    replicas = Replicas()
    guard = RequestGuard
    client = starlette.testclient.TestClient
    init, enter, leave = client.__init__, client.__enter__, client.__exit__

    def made(*words: Any, **named: Any) -> RequestGuard:
        app = guard(*words, **named)
        # Of `make_app`, which modules of tests have imported by now.
        given = sys._getframe(1).f_locals  # noqa: SLF001 - its arguments.
        options = {name: given[name] for name in OPTIONS}
        replicas.made[id(app)] = (app, given["house"], options)
        return app

    def begun(self: Any, app: Any, *words: Any, **named: Any) -> None:
        init(self, app, *words, **named)
        if id(app) in replicas.made:
            self._transport = ReplicaTransport(replicas, app)

    def entered(self: Any) -> Any:
        # What the application does beside its requests, the servers do.
        return self if id(self.app) in replicas.made else enter(self)

    def left(self: Any, *how: Any) -> None:
        if id(self.app) not in replicas.made:
            leave(self, *how)

    setattr(app_module, "RequestGuard", made)  # noqa: B010 - its name there is not exported.
    client.__init__ = begun  # type: ignore[method-assign]
    client.__enter__, client.__exit__ = entered, left  # type: ignore[method-assign]
    try:
        yield replicas
    finally:
        setattr(app_module, "RequestGuard", guard)  # noqa: B010
        client.__init__ = init  # type: ignore[method-assign]
        client.__enter__, client.__exit__ = enter, leave  # type: ignore[method-assign]
        replicas.end_below(None)

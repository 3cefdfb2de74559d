"""A container engine of the tests' own, and the composition of deploy/ in it.

Everything of it is below one directory, and gone afterwards: its daemon, images, networks and rules
of the firewall. The base image is made from Debian's packages, since no registry is asked.
`SKILLHOUSE_TEST_ENGINE=DIRECTORY` keeps the images there, so that the next run builds what changed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.containers import ROOT
from tests.harness import ran

BASE = "skillhouse-test/base"
SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
KEPT = os.environ.get("SKILLHOUSE_TEST_ENGINE", "")
TOOLS = ("dockerd", "docker", "debootstrap", "iptables-save")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
DAEMON_SECONDS = 60.0


def missing() -> str:
    """Return why no engine can be started here at all; "" if nothing is missing."""
    if os.geteuid() != 0:
        return "an engine is started by root only"
    absent = [name for name in TOOLS if shutil.which(name) is None]
    if not composers():
        absent.append("docker-compose")
    return f"not installed: {', '.join(absent)}" if absent else ""


def composers() -> dict[str, list[str]]:
    """Return the commands that read compose.yaml: Compose 2 or 1.29, as they are installed."""
    found = {}
    for command in (["docker", "compose"], ["docker-compose"]):
        with_version = [*command, "version", "--short"]
        if shutil.which(command[0]) is not None:
            done = ran(with_version)
            if done.returncode == 0:
                found[done.stdout.strip()] = command
    return found


def until(is_so: Callable[[], object], *, seconds: float, otherwise: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.1)


class Engine:
    def __init__(self, base: Path) -> None:
        self.base = base
        foreign = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
        self.environment = {
            **{key: value for key, value in os.environ.items() if key not in foreign},
            "DOCKER_HOST": f"unix://{base}/socket",
            # Compose 1 and clients without buildx have this one.
            "DOCKER_BUILDKIT": "0",
        }
        self._rules: dict[str, bytes] = {}
        self._forwarding = FORWARDING.read_text()
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the daemon; return why it cannot run here, or ""."""
        for family in ("iptables", "ip6tables"):
            done = subprocess.run([f"{family}-save"], capture_output=True, check=False)
            if done.returncode == 0:
                self._rules[family] = done.stdout
        for more in ((), ("--storage-driver", "vfs")):
            if self._is_up(more):
                return ""
        return (self.base / "log").read_text(errors="replace").strip()[-300:]

    def _is_up(self, more: tuple[str, ...]) -> bool:
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        argv = ["dockerd", "--host", self.environment["DOCKER_HOST"], "--bridge", "none", *more]
        for option, name in places.items():
            argv += [f"--{option}", str(self.base / name)]
        with (self.base / "log").open("wb") as log:
            self._daemon = subprocess.Popen(argv, stdout=log, stderr=log)
        end = time.monotonic() + DAEMON_SECONDS
        while self._daemon.poll() is None and time.monotonic() < end:
            if self.run("docker", "version", check=False).returncode == 0:
                return True
            time.sleep(0.2)
        self._end_daemon()
        return False

    def stop(self) -> None:
        self._end_daemon()
        # The daemon leaves what it mounted for networks of containers.
        for line in Path("/proc/self/mounts").read_text().splitlines()[::-1]:
            place = line.split()[1]
            if place.startswith(f"{self.base}/"):
                subprocess.run(["umount", place], check=False)
        for family, rules in self._rules.items():
            subprocess.run([f"{family}-restore"], input=rules, check=False)
        FORWARDING.write_text(self._forwarding)
        if not KEPT:
            shutil.rmtree(self.base)

    def _end_daemon(self) -> None:
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(DAEMON_SECONDS)
            self._daemon = None

    def run(
        self, *argv: str, check: bool = True, timeout: float = 600, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        done = ran(argv, env=self.environment, timeout=timeout, **more)
        assert done.returncode == 0 or not check, f"{argv}\n{(done.stdout + done.stderr)[-3000:]}"
        return done

    def build(self, target: str) -> None:
        """Build an image by the Dockerfile; the base image first, if there is none."""
        if self.run("docker", "image", "inspect", BASE, check=False).returncode != 0:
            self._build_base()
        index = {"PIP_INDEX_URL": _index()}
        given = [f"{key}={value}" for key, value in index.items() if value]
        arguments = [f"--build-arg={text}" for text in (f"BASE={BASE}", *given)]
        file = str(ROOT / "deploy/Dockerfile")
        place = ("--network", "host", "--file", file, "--target", target)
        name = f"skillhouse/{target}"
        self.run("docker", "build", *arguments, *place, "--tag", name, str(ROOT), timeout=1_000)

    def _build_base(self) -> None:
        tree = self.base / "tree"
        self.run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(tree))
        (tree / "usr/bin/python").symlink_to("python3")
        # It trusts whom this machine trusts, such as a proxy of its network.
        shutil.copyfile(f"/{CERTIFICATES}", tree / CERTIFICATES)
        (tree / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as tar:
            self.run("docker", "import", "-", BASE, stdin=tar.stdout)
        shutil.rmtree(tree)


def _index() -> str:
    """Return the index that pip is configured to ask here; "" for its own."""
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"]
    argv = ["pip", "config", "get", "global.index-url"]
    if shutil.which("pip") is None:
        return ""
    return ran(argv).stdout.strip()


@contextmanager
def engine() -> Iterator[Engine | str]:
    """Give a running engine, or why there is none."""
    if why := missing():
        yield why
        return
    with _only_one():
        # A socket's path has at most 107 bytes.
        base = Path(KEPT or tempfile.mkdtemp(prefix="skillhouse-engine-"))
        base.mkdir(exist_ok=True)
        found = Engine(base)
        try:
            yield found.start() or found
        finally:
            found.stop()


@contextmanager
def _only_one() -> Iterator[None]:
    """Wait until no other engine is in this network.

    An engine puts back the firewall as it found it, without the rules that another made since.
    """
    with socket.socket(socket.AF_UNIX) as held:
        while True:
            try:
                # A name of the network and of no file system (unix(7)).
                held.bind("\0skillhouse-test-engine")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(1)
        yield


class Composed:
    """deploy/compose.yaml, running in a copy of its directory with a workspace beside it."""

    NAME = "compose.yaml"
    READY: Mapping[str, str] = {"core": "/?token=", "skill-executor": '"listening"'}
    """What each service says once it takes work."""

    def __init__(self, engine: Engine, base: Path, compose: list[str]) -> None:
        self.engine = engine
        self.base = base
        self._compose = compose
        shutil.copytree(ROOT / "deploy", base / "deploy", ignore=shutil.ignore_patterns("secrets"))
        self.file = base / "deploy" / self.NAME
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        text = self.file.read_text()
        assert "127.0.0.1:8600:8600" in text
        self.file.write_text(text.replace("127.0.0.1:8600:", f"127.0.0.1:{self.port}:"))
        (base / "workspace/skills").mkdir(parents=True)
        (base / "deploy/secrets").mkdir(mode=0o700)
        (base / "deploy/secrets/rpc-token").write_text("f" * 64)
        (base / "deploy/secrets/rpc-token").chmod(0o644)

    def compose(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        files = [f"--file={self.file}"]
        if (self.base / "more.yaml").exists():
            files.append(f"--file={self.base}/more.yaml")
        return self.engine.run(*self._compose, *files, *words, **more)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.compose("up", "-d", "--no-build")
            for service, said in self.READY.items():
                self.wait_for(service, said, times=1)
            yield
        finally:
            self.compose("down", "--volumes", "--timeout", "1")

    def wait_for(self, service: str, said: str, *, times: int) -> None:
        """Wait until a service has said something so many times since it was made."""

        def logs() -> str:
            return self.compose("logs", "--no-color", service).stdout

        until(lambda: logs().count(said) >= times, seconds=60, otherwise=logs)

    def container(self, service: str) -> str:
        return self.compose("ps", "-q", service).stdout.strip()

    def inspect(self, service: str) -> Any:
        found = self.engine.run("docker", "inspect", self.container(service)).stdout
        return json.loads(found)[0]

    def inside(
        self,
        service: str,
        *argv: str,
        variables: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a service's container, as its user."""
        given = [f"--env={key}={value}" for key, value in (variables or {}).items()]
        return self.engine.run(
            "docker", "exec", *given, self.container(service), *argv, check=check, timeout=120
        )

    def call(self, tool: str, variables: Mapping[str, str] | None = None, **arguments: Any) -> Any:
        """Return the result of `skillhouse call` in the core."""
        words = ("skillhouse", "call", tool, "--args", json.dumps(arguments), "--json")
        done = self.inside("core", *words, variables=variables, check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def kill(self, service: str) -> None:
        """End a service's process as a fault does, and wait until the engine has started another.

        By its number on the host: `docker kill` counts as a stop, after which nothing is restarted.
        """
        before = self.inspect(service)
        os.kill(before["State"]["Pid"], signal.SIGKILL)

        def is_another() -> bool:
            now = self.inspect(service)
            is_running: bool = now["State"]["Running"]
            return is_running and now["RestartCount"] > before["RestartCount"]

        until(is_another, seconds=60, otherwise=lambda: str(self.inspect(service)["State"]))

"""The services of deploy/compose.yaml as processes: their own commands, in places like theirs.

There is no container engine for it: bubblewrap gives what compose.yaml asks for, as far as it can
be had without one. A read-only root, a user without capabilities or new privileges, a tmpfs at
/tmp, the volumes and secrets at their places, the names of the other services, and, as docker's
seccomp profile does, no new user namespaces. Not the network of its own, nor the limits of memory
and processors.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skillhouse.skill.yaml_text import read_mapping
from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
COMPOSE = read_mapping((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
TOKEN = "f" * 64
WAIT_SECONDS = 30.0


class Composition:
    """A directory with what the services mount, and the ports that they get instead of theirs."""

    def __init__(self, base: Path, skills: Path) -> None:
        self.base = base
        self.ports = {port: str(_free_port()) for port in ("8600", "8700", "8701")}
        shutil.copytree(skills, base / "workspace/skills")
        for name in ("state", "packages", "secrets"):
            (base / name).mkdir()
        (base / "hosts").write_text("127.0.0.1 localhost core skill-executor\n")
        self.settings = base / "core.toml"
        self.settings.write_text(self.ported((DEPLOY / "core.toml").read_text(encoding="utf-8")))
        for service in COMPOSE["services"]:
            self.token(service, TOKEN)

    def ported(self, text: str) -> str:
        for port, other in self.ports.items():
            text = text.replace(f":{port}", f":{other}")
        return text

    def token(self, service: str, text: str) -> None:
        """Set what a service finds as secret."""
        (self.base / "secrets" / service).write_text(text + "\n")

    def command(self, service: str) -> list[str]:
        """Return the service's own command with other ports."""
        words = [
            self.ports.get(word, self.ported(word))
            for word in COMPOSE["services"][service]["command"]
        ]
        return [str(word) for word in words]

    def argv(
        self, service: str, *words: str, environment: Mapping[str, str], code: str = ""
    ) -> list[str]:
        """Return what runs `skillhouse WORDS`, or Python code, in the place of a service."""
        about = COMPOSE["services"][service]
        assert about["read_only"] == "true"
        assert about["cap_drop"] == ["ALL"]
        variables = {"PATH": os.defpath, **about.get("environment", {}), **environment}
        options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--disable-userns",
                   "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--new-session",
                   "--die-with-parent", "--as-pid-1", "--clearenv"]  # fmt: skip
        for name, value in variables.items():
            options += ["--setenv", name, value]
        for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", *sorted(_python())):
            options += ["--ro-bind-try", path, path]
        for name in ("ld.so.cache", "alternatives", "ssl", "nsswitch.conf"):
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        options += ["--ro-bind", str(self.base / "hosts"), "/etc/hosts"]
        options += ["--dev", "/dev", "--proc", "/proc"]
        for place in about["tmpfs"]:
            options += ["--tmpfs", place]
        for path in sorted(_python()):
            if path.startswith("/tmp/"):
                options += ["--ro-bind", path, path]
        for volume in about["volumes"]:
            options += self._volume(*volume.split(":"))
        options += ["--ro-bind", str(self.base / "secrets" / service), "/run/secrets/rpc-token"]
        for extra in sorted((self.base / "further-secrets").glob("*")):
            options += ["--ro-bind", str(extra), f"/run/secrets/{extra.name}"]
        options += ["--chdir", about.get("working_dir", "/"), "--remount-ro", "/"]
        program = ["-I", "-c", code] if code else ["-m", "skillhouse", *words]
        return ["bwrap", *options, "--", sys.executable, *program]

    def _volume(self, source: str, place: str, mode: str = "rw") -> list[str]:
        found = self.base / source.removeprefix("../").removeprefix("./")
        return ["--ro-bind" if mode == "ro" else "--bind", str(found), place]

    @contextmanager
    def running(self, service: str, *words: str, **environment: str) -> Iterator[Service]:
        """Run a service, with its own command if there are no words."""
        argv = self.argv(service, *(words or self.command(service)), environment=environment)
        found = Service(argv)
        try:
            yield found
        finally:
            found.kill()

    def core(self, *words: str, **environment: str) -> tuple[int, Any, str]:
        """Run one command in the core's place, as `docker compose exec core` does.

        Returns:
            The exit code, what it printed as JSON, and what it said.
        """
        argv = self.argv("core", *words, environment=environment)
        done = ran(argv, timeout=60)
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class Service:
    """A process in its place."""

    def __init__(self, argv: list[str]) -> None:
        self._process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        """What it wrote to stderr, a line each."""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line.rstrip("\n"))

    def first_line(self) -> str:
        """Return what it prints first, once it listens."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "\n".join(self.said)
        return line

    def terminate(self) -> int:
        """Send SIGTERM to the program itself, as an engine does, and return its exit code."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        code = self._process.wait(timeout=WAIT_SECONDS)
        self._reader.join()
        return code

    def kill(self) -> None:
        """Kill it with all that is in its place, if it still runs."""
        self._process.kill()
        self._process.communicate()
        self._reader.join()


def _python() -> set[str]:
    """Return the directories of the interpreter and of skillhouse."""
    import skillhouse  # noqa: PLC0415 - where it lies is asked of it.

    source = Path(str(skillhouse.__file__)).resolve().parents[1]
    places = (sys.prefix, sys.base_prefix, source)
    return {os.path.realpath(place) for place in places} | {str(sys.prefix)}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

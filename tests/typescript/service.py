"""A `skillhouse up` for programs of Node, and the copy of our package that they run in."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from skillhouse.floor import Locations
from skillhouse.house import Skillhouse, configured
from skillhouse.house.access_tokens import AccessScope
from tests.extensions.server.test_http_serve import started
from tests.harness import ran
from tests.house.places import make_places
from tests.interop import npx_skills
from tests.own_environments import ROOT, own_npm_of, run_there

PACKAGE = ROOT / "typescript"
MAKES = "SKILLHOUSE_TYPESCRIPT"
MISSING = f"no environment for the TypeScript package: {MAKES}=1 makes one, with npm and a network"
SECONDS = 300
ASKS = b"? [y/N] "
"""How the programs of the guide end what they ask."""
RULES = """\
[[rules]]
effect = "deny"
action = "write"
pattern = "**/secret.txt"

[[rules]]
effect = "allow"
action = "exec"
pattern = "touch *"

[[rules]]
effect = "allow"
action = "exec"
pattern = "sleep *"
"""


class NodePackage:
    """A copy of the package beside the packages that its lock names."""

    def __init__(self, place: Path, node: str, modules: Path) -> None:
        self.place = place
        self._node = node
        shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("node_modules", "dist"))
        (place / "node_modules").symlink_to(modules)
        self._modules = modules

    def run(self, *arguments: str, typed: Sequence[str] = (), **environment: str) -> str:
        """Run node there, which has to succeed; return what it printed.

        `typed` is what a person types, a line each time that the program asks.
        """
        process = subprocess.Popen(
            (self._node, *arguments),
            cwd=self.place,
            env={"PATH": os.environ["PATH"], "HOME": str(self.place), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        said, lines = b"", list(typed)
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            # A line that is there before the question goes to the terminal that asked before.
            while part := os.read(process.stdout.fileno(), 65_536):
                said += part
                if lines and said.endswith(ASKS):
                    process.stdin.write(lines.pop(0).encode() + b"\n")
                    process.stdin.flush()
        late.cancel()
        assert process.returncode == 0, said.decode()
        assert lines == []
        return said.decode()

    def compile(self, *options: str) -> None:
        self.run("node_modules/typescript/bin/tsc", *options)

    def pack(self, target: Path) -> Path:
        """Return the archive that `npm pack` makes of the compiled package."""
        own = {"HOME": str(self.place), "npm_config_cache": str(self.place / "cache")}
        npm = shutil.which("npm") or "npm"
        said = run_there(
            npm, "pack", "--ignore-scripts", "--offline", "--loglevel=error",
            "--pack-destination", target, cwd=self.place, own=own,
        )  # fmt: skip
        return target / said.split()[-1]

    def project(self, place: Path, packed: Path) -> Path:
        """Make a project that has the packed package, and the other packages beside it."""
        own = place / "node_modules"
        own.mkdir(parents=True)
        for module in self._modules.iterdir():
            if not module.name.startswith("."):
                own.joinpath(module.name).symlink_to(module)
        with tarfile.open(packed) as archive:
            archive.extractall(place / "unpacked", filter="data")
        own.joinpath("@skillhouse").mkdir()
        (place / "unpacked/package").rename(own / "@skillhouse/tools")
        return place

    def checked(self, project: Path) -> str:
        """Compile a project; return what is wrong with it."""
        compiler = self._modules / "typescript/bin/tsc"
        done = ran((self._node, compiler, "-p", project), cwd=project, timeout=SECONDS)
        return "" if done.returncode == 0 else done.stdout + done.stderr


def node_package(base: Path) -> NodePackage:
    """Return the package in a place below `base`, or skip the test."""
    modules, node = own_npm_of(PACKAGE, makes=MAKES), npx_skills.node(MAKES)
    if modules is None or node is None:
        pytest.skip(MISSING)
    return NodePackage(base / "package", node, modules)


@contextlib.contextmanager
def served(base: Path) -> Iterator[tuple[dict[str, str], Skillhouse]]:
    """Run `skillhouse up`; give the variables of a program, and a `Skillhouse` of the same state.

    The program has a token that calls, and another that approves.
    """
    places = make_places(base)
    file = places.home / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(RULES)
    with started(base) as (_, port, _):
        here = Locations(start=places.start, home=places.home, environment={})
        with Skillhouse(configured(here)) as house:
            tokens = house.services.enforcement.access_tokens
            _, calls = tokens.new("calls", (AccessScope.READ, AccessScope.CALL))
            _, answers = tokens.new("answers", (AccessScope.READ, AccessScope.APPROVE))
            variables = {
                "SKILLHOUSE_URL": f"http://127.0.0.1:{port}",
                "SKILLHOUSE_TOKEN": calls,
                "SKILLHOUSE_APPROVAL_TOKEN": answers,
                "SKILLHOUSE_WORKSPACE": str(places.start),
            }
            yield variables, house

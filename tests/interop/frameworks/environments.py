"""Installs the frameworks, each version in an environment of its own, and finds them again.

`prepare` needs the package index; all that follows does not. The newest version is the index's,
whatever bound our extra has: that one of ours is too low is a thing to see. The pinned one comes
with the other versions that our tests use.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness import ran
from tests.interop.frameworks.table import ADAPTERS, MCP, TYPESCRIPT, Framework, Way
from tests.own_environments import BIN, ROOT, UV

SECONDS = 1_200
"""For the packages of one environment to come."""
NEWEST, PINNED = "newest", "pinned"
PAGES = {Way.ADAPTER: ADAPTERS, Way.MCP: MCP, Way.PACKAGE: TYPESCRIPT}
QUIET = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
BUILDING = "typescript"
"""The folder in which our package for Node is built."""


class InstallError(Exception):
    """A command of an installation failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A version of a framework, and where it is."""

    framework: Framework
    which: str
    """newest, pinned, or both."""
    place: Path
    version: str

    @property
    def python(self) -> Path:
        """The Python of one that has Python."""
        return self.place / BIN / "python"


def section(framework: Framework) -> str:
    """Return what the guide says of a framework.

    Raises:
        ValueError: it says nothing of it.
    """
    page = PAGES[framework.way]
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(framework.heading)}\n((?:(?!## ).*\n?)*)", text, re.MULTILINE
    )
    if found is None:
        raise ValueError(f"expected `## {framework.heading}` in {page}")
    return found[1]


def example(framework: Framework) -> str:
    """Return the program of the guide, with a model on loopback in the place of a provider's.

    Raises:
        ValueError: the guide has no program, or another model than is to be replaced.
    """
    language = "ts" if framework.way is Way.PACKAGE else "python"
    found = re.search(rf"^```{language}\n(.*?)^```", section(framework), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"no program of {framework.title} in {PAGES[framework.way]}")
    code = found[1]
    for written, instead in framework.models.items():
        if code.count(written) != 1:
            raise ValueError(f"expected `{written}` once in the program of {framework.title}")
        code = code.replace(written, instead)
    return framework.begins + code


def install_words(framework: Framework) -> tuple[str, ...]:
    """Return what the guide has installed by pip.

    Raises:
        ValueError: the guide does not say it.
    """
    found = re.search(r"^```bash\npip install (.*)\n```", section(framework), re.MULTILINE)
    if found is None:
        raise ValueError(f"no install line of {framework.title} in {PAGES[framework.way]}")
    return tuple(shlex.split(found[1]))


def pins(file: Path) -> dict[str, str]:
    """Return the version of each package in a compiled list, or in a package.json."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        return dict(json.loads(text)["devDependencies"])
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE))


def found(framework: Framework, folder: Path) -> list[Environment]:
    """Return the environments of a framework, the newest first; one where both are the same."""
    environments = []
    for which in (NEWEST, PINNED):
        place = folder / framework.name / which
        stamp = place / "version.txt"
        if stamp.exists():
            version = stamp.read_text(encoding="utf-8").strip()
            environments.append(
                Environment(framework=framework, which=which, place=place, version=version)
            )
    if len({one.version for one in environments}) == 1 and len(environments) > 1:
        first = environments[0]
        return [
            Environment(framework=framework, which="both", place=first.place, version=first.version)
        ]
    return environments


def prepare(framework: Framework, folder: Path) -> None:
    """Install the newest version, and the pinned one where it is another.

    Raises:
        InstallError: a package could not be installed.
    """
    install = _install_node if framework.way is Way.PACKAGE else _install_python
    newest = folder / framework.name / NEWEST
    version = install(framework, newest, pinned={})
    wanted = pins(ROOT / framework.pins) if framework.pins else {}
    pinned = folder / framework.name / PINNED
    shutil.rmtree(pinned, ignore_errors=True)
    if wanted.get(framework.package) == version:
        # Other packages of the environment may be newer than ours: the row is of this one.
        pinned.mkdir(parents=True)
        (pinned / "version.txt").write_text(version)
    elif framework.package in wanted:
        install(framework, pinned, pinned=wanted)


def refresh(environment: Environment, folder: Path, wheel: Path) -> None:
    """Put the skillhouse of this tree into an environment, without a network.

    Raises:
        InstallError: it does not build, or cannot be installed.
    """
    if environment.framework.way is Way.ADAPTER:
        words = ("pip", "install", "--quiet", "--offline", "--no-deps", "--reinstall")
        _do([str(UV), *words, "--python", str(environment.python), str(wheel)], ROOT)
    elif environment.framework.way is Way.PACKAGE:
        building = _building(folder)
        _do([node(environment), f"{building}/node_modules/typescript/bin/tsc"], building, BUILD)
        ours = environment.place / "node_modules/@skillhouse/tools/dist"
        shutil.rmtree(ours, ignore_errors=True)
        shutil.copytree(building / "dist", ours)


BUILD = ("-p", "tsconfig.build.json")


def wheel(folder: Path) -> Path:
    """Return the package as a user installs it, built into `folder`.

    Raises:
        InstallError: it does not build.
    """
    _do([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    return next(folder.glob("*.whl"))


def node(environment: Environment) -> str:
    """Return the Node that is installed in an environment."""
    return str(environment.place / "node_modules" / _node_package() / "bin/node")


def _node_package() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"node-linux-{machine}"


def _install_python(framework: Framework, place: Path, *, pinned: Mapping[str, str]) -> str:
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    _do([str(UV), "venv", "--quiet", "-p", sys.executable, str(place)], ROOT)
    python = place / BIN / "python"
    built = wheel(place)
    wanted = [
        word.replace(".[", "skillhouse[") + f" @ {built.as_uri()}" if word[:1] == "." else word
        for word in install_words(framework)
    ]
    bounds = place / "bounds.txt"
    if pinned:
        # Without our own: those of a tool of development may be older than the example needs.
        bounds.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()))
        limits = ("--constraints", str(bounds))
    else:
        # An override takes the place of what others ask for, with their extras of it.
        named = (word for word in wanted if word.startswith(f"{framework.package}["))
        bounds.write_text(f"{next(named, framework.package)}\n")
        limits = ("--overrides", str(bounds))
    words = ("pip", "install", "--quiet", "--python", str(python), *limits)
    _do([str(UV), *words, *wanted, *framework.more], ROOT)
    asked = f"import importlib.metadata as m; print(m.version({framework.package!r}))"
    version = _do([str(python), "-c", asked], place).strip()
    (place / "version.txt").write_text(version)
    return version


def _install_node(framework: Framework, place: Path, *, pinned: Mapping[str, str]) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("not found: npm")
    building = _building(place.parents[1])
    if not (building / "node_modules").exists():
        _do([npm, "ci", *QUIET], building)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tag = pinned.get(framework.package, "latest")
    mine = [f"{_node_package()}@24", f"{framework.package}@{tag}", *framework.more]
    (place / "package.json").write_text('{"name": "example", "private": true, "type": "module"}')
    _do([npm, "install", "--save-exact", *QUIET, *mine], place)
    _do([npm, "run", "build"], building)
    packed = _do([npm, "pack", "--silent"], building).split()[-1]
    _do([npm, "install", "--save-exact", *QUIET, str(building / packed)], place)
    said = (place / "node_modules" / framework.package / "package.json").read_text("utf-8")
    version = str(json.loads(said)["version"])
    (place / "version.txt").write_text(version)
    return version


def _building(folder: Path) -> Path:
    """Return the folder in which our package for Node is built, with the source of this tree."""
    building = folder / BUILDING
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "typescript", building, ignore=ignored, dirs_exist_ok=True)
    return building


def _do(words: list[str], cwd: Path, more: tuple[str, ...] = ()) -> str:
    done = ran([*words, *more], cwd=cwd, env=dict(os.environ), timeout=SECONDS)
    if done.returncode:
        raise InstallError(f"{' '.join(words[:4])} …: {(done.stderr or done.stdout).strip()}")
    return done.stdout

"""The Python interpreters of this machine that can run skill code, and which of them runs it.

The interpreter in the cell decides which wheels fit, whether a skill's `requires-python` holds and
what an environment's digest covers. Our own comes first, as a skill then meets the Python that
skillhouse is tested with; then the system's; then those that uv and pyenv installed. One whose
files a cell cannot show read-only is left out.

Inside a sandbox it runs our bridge to a proxy, and the runner of plans.
"""

from __future__ import annotations

import functools
import importlib.machinery
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from skillhouse import skill
from skillhouse.floor import directory_problem, structs
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.sandbox.profile import (
    GIT_CONFIG,
    PROGRAM_PATH,
    SandboxError,
    SandboxProfile,
    Toolset,
    with_git_settings,
)

OLDEST_PYTHON = (3, 11)
"""What cell_python.py needs."""
RELOCATED = "/python"
"""Where a cell has an interpreter whose own path the cell's writable directories cover."""
PROBE_SECONDS = 10.0
CANDIDATES_MAX = 64
"""Programs of one kind that are looked at."""
SHOWN_MAX = 3
"""Interpreters that cannot be used which an error names."""

Origin = Literal["skillhouse", "system", "uv", "pyenv"]
ORIGINS: Mapping[Origin, str] = {
    "skillhouse": "runs skillhouse itself",
    "system": "installed with the system",
    "uv": "installed by uv",
    "pyenv": "installed by pyenv",
}

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""What each sandbox shows of the system."""
_COVERED = ("/tmp", "/dev", "/proc", "/python", "/skill", "/packages")  # noqa: S108 - inside.
_TOO_WIDE = ("/", "/var", "/home", "/root")
"""Prefixes whose `lib` holds more than an interpreter's."""
_VERSIONED = regex(r"python3\.\d{1,3}")
_RELEASE = regex(r"(?:\A|-)(\d{1,3})\.(\d{1,3})(?:\.|-|\Z)")
_OTHER_ABI = regex(r"cpython-\d+[a-z]")
"""A free-threaded or debug build, for which there are few wheels."""
_LOADED = regex(r"(?:ld-[^/]*|ld\.so[^/]*|ld64[^/]*|libpython[^/]*|libc[.-][^/]*)\Z")
"""Files that an interpreter cannot start without."""
_PROBE = """
import importlib.machinery, json, sys
with open("/proc/self/maps") as maps:
    mapped = sorted({line.split(None, 5)[5].strip() for line in maps if "/" in line})
print(json.dumps([sys.implementation.name, sys.version_info[:3], sys.base_prefix,
                  importlib.machinery.EXTENSION_SUFFIXES[0], mapped]))
"""


class Python(Struct, frozen=True, kw_only=True):
    """An interpreter on the host."""

    program: Path
    """Without links."""
    prefix: Path
    """Where it is installed, without links."""
    version: tuple[int, int, int]
    suffix: str
    """Of its extension modules, which names the ABI and the platform."""
    origin: Origin
    why: str = ""
    """Why this one was chosen."""

    @property
    def text(self) -> str:
        """
        >>> python = Python(program=Path("/usr/bin/python3.11"), prefix=Path("/usr"),
        ...     version=(3, 11, 2), suffix=".so", origin="system")
        >>> python.text
        '3.11.2 (/usr/bin/python3.11)'
        """
        return f"{self.release} ({self.program})"

    @property
    def release(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def readable(self) -> tuple[Path, ...]:
        """Return what it needs beside the system's directories: never its whole prefix, which may
        be a user's `~/.local` with their files."""
        if _is_shown(self.program) and _is_shown(self.prefix):
            return ()
        parts = (self.program, self.prefix / "lib", self.prefix / "lib64")
        return tuple(path for path in parts if path.exists() and not path.is_symlink())

    @property
    def mounts(self) -> tuple[tuple[Path, str], ...]:
        """Return `readable` with the path of each inside of a cell."""
        return tuple((path, self._inside(path)) for path in self.readable)

    @property
    def inside(self) -> str:
        """The program's path inside of a cell."""
        return self._inside(self.program) if self.readable else str(self.program)

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables that it needs inside of a cell.

        There is no /proc there, by which ld.so(8) finds `$ORIGIN`: uv's look for libpython so.
        """
        return {"LD_ORIGIN_PATH": os.path.dirname(self.inside)} if self.readable else {}

    def _inside(self, path: Path) -> str:
        if not any(self.prefix.is_relative_to(covered) for covered in _COVERED):
            return str(path)
        # Python finds its library from its program's path (sys.prefix).
        return f"{RELOCATED}/{path.relative_to(self.prefix)}"


class PythonPlaces(Struct, frozen=True):
    """Where interpreters beside the default one are looked for."""

    variables: Mapping[str, str]
    """Those of the operator, which say where uv and pyenv install."""
    workspace: Path
    """Nothing of it is run: commands of an agent can write there."""


def own_python() -> tuple[Path, Path]:
    """Return where our own Python is installed, and the program."""
    prefix = Path(sys.base_prefix).resolve()
    version = sys.version_info
    return prefix, prefix / "bin" / f"python{version.major}.{version.minor}"


def interpreter() -> tuple[str, tuple[Path, ...]]:
    """Return the program of the default interpreter on the host, and what it needs beside the
    system's directories."""
    chosen = default_python()
    return str(chosen.program), chosen.readable


@functools.cache
def system_program() -> str | None:
    path = shutil.which("python3", path=PROGRAM_PATH)
    # A link to a file outside the system's directories does not work in the sandbox.
    if path is None or not Path(path).resolve().is_relative_to("/usr"):
        return None
    return path


@functools.cache
def default_python() -> Python:
    """Return the interpreter for code that asks for no other: our own if a cell can show it.

    Without any that fits it is our own all the same; the self-test then says what fails.
    """
    own = _own()
    problem = _problem(own, _own_maps())
    if not problem:
        return replace(own, why=ORIGINS["skillhouse"])
    found = system_program()
    system = examine(Path(found), "system") if found else f"there is none in {PROGRAM_PATH}"
    why = f"skillhouse's own {own.text} does not run in a cell: {problem}"
    if isinstance(system, str):
        return replace(own, why=f"{why}; the system's: {system}")
    return replace(system, why=f"{ORIGINS['system']}; {why}")


def choose_python(
    requirements: Sequence[str], places: PythonPlaces, *, skill: str, only_default: bool
) -> Python:
    """Return the interpreter for a skill: the default, or the newest other one that fits.

    Args:
        requirements: What `requires-python` says in each place; all have to hold.
        only_default: True where another one cannot be taken.

    Raises:
        SandboxError: "python-missing", none fits; the message names those that there are.
    """
    default = default_python()
    if _fits(default, requirements):
        return default
    wanted = ", ".join(dict.fromkeys(requirements))
    others = () if only_default else installed_pythons(places)
    for other in others:
        if _fits(other, requirements):
            why = f"the skill needs Python {wanted}, and the default is {default.release}"
            return replace(other, why=f"{ORIGINS[other.origin]}; {why}")
    found = ", ".join(one.text for one in (default, *others))
    way = (
        "no other can be taken where this code runs"
        if only_default
        else "`uv python install` adds others"
    )
    unusable = () if only_default else unusable_pythons(places)[:SHOWN_MAX]
    left_out = "".join(f"; not usable: {text}" for text in unusable)
    message = f"`{skill}` needs Python {wanted}; found {found}{left_out}; {way}"
    raise SandboxError("python-missing", message)


def installed_pythons(places: PythonPlaces) -> tuple[Python, ...]:
    """Return the interpreters beside the default one that cells can run, newest first."""
    default = default_python()
    found: dict[Path, Python] = {}
    for one in _examined_all(places):
        if isinstance(one, Python) and one.program != default.program:
            why = f"{ORIGINS[one.origin]}; for skills that {default.release} does not fit"
            found.setdefault(one.program, replace(one, why=why))
    return tuple(sorted(found.values(), key=lambda one: one.version, reverse=True))


def unusable_pythons(places: PythonPlaces) -> tuple[str, ...]:
    """Return why cells cannot run each of the other interpreters that there are."""
    return tuple(dict.fromkeys(one for one in _examined_all(places) if isinstance(one, str)))


def _examined_all(places: PythonPlaces) -> Iterator[Python | str]:
    workspace = places.workspace.resolve()
    for path, origin in _candidates(places.variables):
        if Path(os.path.realpath(path)).is_relative_to(workspace):
            # INVARIANT: what a command or a project can have written is not run on the host.
            yield f"`{path}`: it is in the workspace"
        else:
            yield examine(path, origin)


def examine(path: Path, origin: Origin) -> Python | str:
    """Return the interpreter at a path, or why no cell can run it. The program is run for it.

    Only root and the user may be able to change what uv and pyenv installed: it runs on the host.
    """
    try:
        program = Path(os.path.realpath(path, strict=True))
        state = program.stat()
    except OSError as error:
        return f"`{path}`: {(error.strerror or str(error)).lower()}"
    return _examined(program, origin, state.st_mtime_ns)


@functools.cache
def _examined(program: Path, origin: Origin, changed: int) -> Python | str:
    if not _is_shown(program):
        for directory in (program.parent, program.parent.parent / "lib"):
            if problem := directory_problem(directory):
                return f"`{program}`: {problem}"
    try:
        done = subprocess.run(
            (str(program), "-I", "-S", "-c", _PROBE),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            env={},
            timeout=PROBE_SECONDS,
            check=True,
        )
        name, version, prefix, suffix, mapped = json.loads(done.stdout)
        found = Python(
            program=program,
            prefix=Path(prefix).resolve(),
            version=(version[0], version[1], version[2]),
            suffix=suffix,
            origin=origin,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"`{program}` does not start: {str(error)[:200]}"
    problem = _problem(found, mapped)
    if name != "cpython" or _OTHER_ABI.search(suffix):
        problem = f"expected an ordinary build of CPython, got {name} with `{suffix}`"
    return f"`{program}`: {problem}" if problem else found


def _own() -> Python:
    prefix, program = own_python()
    return Python(
        program=program,
        prefix=prefix,
        version=sys.version_info[:3],
        suffix=importlib.machinery.EXTENSION_SUFFIXES[0],
        origin="skillhouse",
    )


def _own_maps() -> tuple[str, ...]:
    """Return the files that this process has mapped (proc(5))."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple({line.split(None, 5)[5] for line in lines if "/" in line})


def _problem(python: Python, mapped: Iterable[str]) -> str:
    """Return why a cell cannot run an interpreter; or nothing."""
    if python.version[:2] < OLDEST_PYTHON:
        return f"expected Python 3.11 or later, got {python.release}"
    if str(python.prefix) in _TOO_WIDE:
        return f"it is installed in `{python.prefix}` itself"
    if not python.program.is_relative_to(python.prefix):
        return f"`{python.program}` is not below `{python.prefix}`"
    library = "python{}.{}".format(*python.version)
    files = [python.prefix / directory / library / "os.py" for directory in ("lib", "lib64")]
    readable = [Path(os.path.realpath(file)) for file in files if os.access(file, os.R_OK)]
    if not readable:
        return f"its library is not readable: `{files[0].parent}`"
    if not _is_shown(readable[0], *python.readable):
        return f"its library is outside of its own directory: `{readable[0].parent}`"
    if not os.access(python.program, os.R_OK | os.X_OK):
        return f"`{python.program}` is not readable"
    for path in mapped:
        place = Path(path)
        if _LOADED.match(place.name) and not _is_shown(place, *python.readable):
            return f"it needs `{path}`, which is outside of its own directory"
    return ""


def _is_shown(path: Path, *more: Path) -> bool:
    return any(path.is_relative_to(place) for place in (*map(Path, _SYSTEM), *more))


def _fits(python: Python, requirements: Sequence[str]) -> bool:
    try:
        return all(skill.python_fits(one, python.version) for one in requirements)
    except ValueError as error:
        raise SandboxError("python-missing", f"`requires-python`: {error}") from error


def _candidates(variables: Mapping[str, str]) -> Iterator[tuple[Path, Origin]]:
    for directory in PROGRAM_PATH.split(":"):
        for name in _names(Path(directory)):
            yield Path(directory, name), "system"
    home = Path(variables.get("HOME", "/nonexistent"))
    data = Path(variables.get("XDG_DATA_HOME") or home / ".local/share")
    uv = Path(variables.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    pyenv = Path(variables.get("PYENV_ROOT") or home / ".pyenv")
    places: tuple[tuple[Path, Origin], ...] = ((uv, "uv"), (pyenv / "versions", "pyenv"))
    for place, origin in places:
        if place.is_absolute():
            for name in _names(place):
                yield place / name / "bin/python3", origin


def _names(directory: Path) -> list[str]:
    """Return the names of interpreters in a directory, but those that say that they are too old."""
    try:
        names = sorted(os.listdir(directory), reverse=True)
    except OSError:
        return []
    kept = []
    for name in names:
        release = _RELEASE.search(name)
        if _VERSIONED.fullmatch(name) or (
            release is not None and (int(release[1]), int(release[2])) >= OLDEST_PYTHON
        ):
            kept.append(name)
    return kept[:CANDIDATES_MAX]


HOME = "/tmp"  # noqa: S108 - the sandbox's own, empty at every start.
BRIDGE_SOCKET = "/run/skillhouse-proxy"
BRIDGE_SCRIPT = "/etc/skillhouse-bridge.py"
PORT = 3128
"""Port of the bridge, inside (the usual one of HTTP proxies)."""

_URL = f"http://127.0.0.1:{PORT}"
_PROXIED = ("http_proxy", "https_proxy", "all_proxy")
_DIRECT = "localhost,127.0.0.1,::1"
"""A run's own servers, which the proxy cannot reach."""


def variables(environment: Mapping[str, str], tools: Toolset = Toolset()) -> Mapping[str, str]:  # noqa: B008
    """Return the variables of a run without a proxy, given those that it is handed."""
    given = with_git_settings({**tools.environment, **environment}, tools.git.forced)
    has_git = tools.git.config or tools.git.attributes
    settings = {"GIT_CONFIG_GLOBAL": GIT_CONFIG} if has_git else {}
    own = {**settings, "PATH": tools.search_path, "HOME": HOME}
    return {"LANG": "C.UTF-8", **given, **own}


def known_variables(environment: Mapping[str, str], tools: Toolset) -> Mapping[str, str]:
    """Return the variables that a run has, whether it gets a proxy or not."""
    proxied = proxy_variables()
    return {n: value for n, value in variables(environment, tools).items() if n not in proxied}


def proxy_variables(url: str = _URL) -> Mapping[str, str]:
    """Return the variables by which programs find the proxy at `url`."""
    names = [spelled for name in _PROXIED for spelled in (name, name.upper())]
    return dict.fromkeys(names, url) | dict.fromkeys(("no_proxy", "NO_PROXY"), _DIRECT)


def bridge_script() -> str:
    return Path(__file__).with_name("bridge_inside.py").read_text(encoding="utf-8")


def with_bridge(profile: SandboxProfile) -> SandboxProfile:
    """Return the profile with what the bridge needs; unchanged without a proxy."""
    if profile.proxy_socket is None:
        return profile
    if profile.network:
        message = "expected either the host's network or a proxy, got both"
        raise SandboxError("network-refused", message)
    path = profile.proxy_socket.resolve()
    if not path.is_socket():
        raise SandboxError("place-missing", f"expected the socket of a proxy: {path}")
    prefix, program = own_python()
    if not os.access(program, os.X_OK):
        raise SandboxError("place-missing", f"expected a Python that runs the bridge: {program}")
    more = () if prefix.is_relative_to("/usr") else (prefix,)
    return structs.replace(profile, proxy_socket=path, readable=(*profile.readable, *more))


def bridged_argv(argv: Sequence[str], seccomp: bytes) -> tuple[str, ...]:
    """Return the command that starts the bridge, and by it `argv` under `seccomp` as well."""
    _, program = own_python()
    return (str(program), "-I", "-S", BRIDGE_SCRIPT, BRIDGE_SOCKET, str(PORT), seccomp.hex(), *argv)


RUNNER = Path(__file__).with_name("plan_runner.py")


def plan_argv(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command that runs a plan, as plain values (`permission.CommandPlan.value`)."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return (runner_program(), "-I", "-S", "-c", _source(), text)


def runner_program() -> str:
    """Return the Python that runs plans: by its path, as `python3` may be another one."""
    return system_program() or str(own_python()[1])


def plan_readable() -> tuple[Path, ...]:
    return () if system_program() else (own_python()[0],)


@functools.cache
def _source() -> str:
    return RUNNER.read_text(encoding="utf-8")

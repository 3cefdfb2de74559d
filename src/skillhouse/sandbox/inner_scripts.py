"""Our own Python inside a sandbox: the bridge to a proxy, and the runner of plans.

The bridge is the only way out of a run with a proxy: a loopback port inside, a Unix socket outside.
The network namespace of the run stays its own and empty. `bridge_inside.py` runs there beside the
command and carries each connection to the bind-mounted socket. It alone may make Unix sockets; the
command gets the whole filter before it starts, and cannot touch the bridge's memory or descriptors.
A plan of several commands is run by `plan_runner.py`, never by a shell.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skillhouse.floor import structs
from skillhouse.sandbox.interpreters import own_python, system_program
from skillhouse.sandbox.profile import SandboxError, SandboxProfile
from skillhouse.sandbox.toolset import GIT_CONFIG, Toolset, with_git_settings

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


def proxy_variables() -> Mapping[str, str]:
    names = [spelled for name in _PROXIED for spelled in (name, name.upper())]
    return dict.fromkeys(names, _URL) | dict.fromkeys(("no_proxy", "NO_PROXY"), _DIRECT)


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

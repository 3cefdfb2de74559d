"""The only way out of a run with a proxy: a loopback port inside, a Unix socket outside.

The network namespace of the run stays its own and empty. `bridge_inside.py` runs there beside the
command and carries each connection to the bind-mounted socket. It alone may make Unix sockets; the
command gets the whole filter before it starts, and cannot touch the bridge's memory or descriptors.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from skillhouse.sandbox.profile import SandboxProfile
from skillhouse.sandbox.sandbox_errors import SandboxError

SOCKET = "/run/skillhouse-proxy"
"""Path of the proxy's socket, inside."""
SCRIPT = "/etc/skillhouse-bridge.py"
PORT = 3128
"""Port of the bridge, inside (the usual one of HTTP proxies)."""

_URL = f"http://127.0.0.1:{PORT}"
_PROXIED = ("http_proxy", "https_proxy", "all_proxy")
_DIRECT = "localhost,127.0.0.1,::1"
"""A run's own servers, which the proxy cannot reach."""


def environment() -> Mapping[str, str]:
    """Return the variables by which programs find the proxy."""
    names = [spelled for name in _PROXIED for spelled in (name, name.upper())]
    return dict.fromkeys(names, _URL) | dict.fromkeys(("no_proxy", "NO_PROXY"), _DIRECT)


def script() -> str:
    return Path(__file__).with_name("bridge_inside.py").read_text(encoding="utf-8")


def prepared(profile: SandboxProfile) -> SandboxProfile:
    """Return the profile with what the bridge needs; unchanged without a proxy.

    Raises:
        SandboxError: "network-refused", it grants the network too; "place-missing", the socket or
            Python is missing.
    """
    if profile.proxy_socket is None:
        return profile
    if profile.network:
        message = "expected either the host's network or a proxy, got both"
        raise SandboxError("network-refused", message)
    try:
        path = profile.proxy_socket.resolve(strict=True)
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except OSError as error:
        message = f"expected the socket of a proxy: {profile.proxy_socket}"
        raise SandboxError("place-missing", message) from error
    if not is_socket:
        raise SandboxError("place-missing", f"expected the socket of a proxy: {path}")
    prefix, program = own_python()
    if not os.access(program, os.X_OK):
        raise SandboxError("place-missing", f"expected a Python that runs the bridge: {program}")
    more = () if prefix.is_relative_to("/usr") else (prefix,)
    return dataclasses.replace(profile, proxy_socket=path, readable=(*profile.readable, *more))


def wrapped(argv: Sequence[str], seccomp: bytes) -> tuple[str, ...]:
    """Return the command that starts the bridge, which starts `argv`.

    Args:
        seccomp: The filter that `argv` gets, on top of the bridge's own.
    """
    _, program = own_python()
    return (str(program), "-I", "-S", SCRIPT, SOCKET, str(PORT), seccomp.hex(), *argv)


def own_python() -> tuple[Path, Path]:
    """Return where our own Python is installed, and the program."""
    prefix = Path(sys.base_prefix).resolve()
    version = sys.version_info
    return prefix, prefix / "bin" / f"python{version.major}.{version.minor}"

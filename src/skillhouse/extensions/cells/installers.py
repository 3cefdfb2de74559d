"""Runs installers of packages on the host, with their own settings and no other variable."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio
from msgspec import Struct

from skillhouse.sandbox import SandboxError

OUTPUT_MAX = 65_536
"""Bytes of an installer's output that are kept, the last ones: they say what went wrong."""

_PASSED = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_PREFIXES = ("uv_", "pip_", "npm_config_")


class InstallerResult(Struct, frozen=True):
    """The end of an installer."""

    code: int
    """Exit code; negative for a signal."""
    output: str
    """Both streams, the end of them."""


class RunTool(Protocol):
    async def __call__(
        self, argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
    ) -> InstallerResult:
        """Run `argv` with just these variables; nothing of it is left afterwards."""
        ...


def installer_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that installers need: paths, proxies and the operator's own settings.

    >>> installer_variables({"PATH": "/bin", "ALCHEMY_API_KEY": "x", "UV_INDEX_URL": "https://u"})
    {'PATH': '/bin', 'UV_INDEX_URL': 'https://u'}
    """
    return {
        name: value
        for name, value in variables.items()
        if name in _PASSED or name.lower() in _PROXIES or name.lower().startswith(_PREFIXES)
    }


async def run_tool(
    argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
) -> InstallerResult:
    """See `RunTool`. The installer runs on the host: it needs the network and the cache."""
    output = bytearray()
    try:
        process = await anyio.open_process(
            argv,
            cwd=cwd,
            env=variables,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        message = f"cannot start `{argv[0]}`: {error.strerror}"
        raise SandboxError("dependencies-tool", message) from error
    try:
        with anyio.move_on_after(seconds) as limit:
            if process.stdout is not None:
                async for chunk in process.stdout:
                    output += chunk
                    del output[:-OUTPUT_MAX]
            await process.wait()
    finally:
        # Whatever is left of the installer's session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if limit.cancelled_caught:
        raise SandboxError("dependencies-time", f"installing took longer than {seconds:g} s")
    code = -1 if process.returncode is None else process.returncode
    return InstallerResult(code, output.decode("utf-8", "replace"))

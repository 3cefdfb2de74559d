"""The installers: how uv, pip and npm are called so that they run nothing of what they install."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc

from skillhouse.sandbox.errors import SandboxError

OUTPUT_MAX = 65_536
"""Bytes of an installer's output that are kept, the last ones: they say what went wrong."""
SHOWN_MAX = 600
"""Characters of it that an error shows."""

_PASSED = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_PREFIXES = ("uv_", "pip_", "npm_config_")


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of an installer."""

    code: int
    """Exit code; negative for a signal."""
    output: str
    """Both streams, the end of them."""


class RunTool(Protocol):
    """Runs an installer to its end."""

    async def __call__(
        self, argv: Sequence[str], *, cwd: Path, variables: Mapping[str, str], seconds: float
    ) -> Ran:
        """Run `argv` in `cwd` with just these variables; nothing of it is left afterwards.

        Raises:
            SandboxError: it cannot be started, or took longer.
        """
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
) -> Ran:
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
            await _gather(process, output)
            await process.wait()
    finally:
        _kill(process.pid)
        with anyio.CancelScope(shield=True):
            await process.wait()
            await process.aclose()
    if limit.cancelled_caught:
        message = f"installing took longer than {seconds:g} s"
        raise SandboxError("dependencies-time", message)
    code = process.returncode
    return Ran(code if code is not None else -1, output.decode("utf-8", "replace"))


async def _gather(process: anyio.abc.Process, output: bytearray) -> None:
    if process.stdout is None:
        return
    async for chunk in process.stdout:
        output += chunk
        del output[:-OUTPUT_MAX]


def _kill(group: int) -> None:
    """End whatever is left of the installer's session."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def find_tool(name: str, given: Path | None, variables: Mapping[str, str]) -> str | None:
    """Return the program to call: the given one, else the one of that name in the PATH."""
    return str(given) if given else shutil.which(name, path=variables.get("PATH", os.defpath))


def uv_argv(
    uv: str, python: Path, target: Path, file: Path, *, hashed: bool, builds: bool
) -> list[str]:
    """Return the call that puts the packages of a requirements file into `target`."""
    return [
        *(uv, "pip", "install", "--quiet", "--no-progress", "--no-python-downloads"),
        *("--python", str(python), "--target", str(target)),
        # Copies: a hard link would share its permissions with the installer's own cache.
        *("--link-mode", "copy"),
        *(("--no-deps", "--require-hashes") if hashed else ()),
        *(() if builds else ("--only-binary", ":all:")),
        *("--requirement", str(file)),
    ]


def pip_argv(python: Path, target: Path, file: Path, *, hashed: bool, builds: bool) -> list[str]:
    """Return the same call for pip."""
    return [
        *(str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--no-compile"),
        *("--disable-pip-version-check", "--no-warn-script-location", "--target", str(target)),
        *(("--no-deps", "--require-hashes") if hashed else ()),
        *(() if builds else ("--only-binary", ":all:")),
        *("--requirement", str(file)),
    ]


def export_argv(uv: str) -> list[str]:
    """Return the call that writes the uv.lock of the current directory as requirements."""
    return [
        *(uv, "export", "--frozen", "--offline", "--no-config", "--no-python-downloads", "--quiet"),
        *("--no-emit-project", "--no-dev", "--no-header", "--no-annotate"),
        *("--format", "requirements.txt", "--output-file", "requirements.txt"),
    ]


def npm_argv(npm: str) -> list[str]:
    """Return the call that installs what the lock file in the current directory says."""
    return [
        *(npm, "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"),
        # Links to programs are of no use in a cell.
        *(
            "--bin-links=false",
            "--install-links=false",
            "--update-notifier=false",
            "--loglevel=error",
        ),
    ]


def check(ran: Ran, what: str) -> None:
    """Raise what an installer said when it failed.

    Raises:
        SandboxError: `dependencies-install`.
    """
    if ran.code != 0:
        said = " ".join(ran.output.split())[-SHOWN_MAX:]
        raise SandboxError("dependencies-install", f"{what} failed ({ran.code}): {said}")

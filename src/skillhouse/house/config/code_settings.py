"""The table `[skill_code]`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from skillhouse.floor import ConfigError
from skillhouse.house.config.secret_places import check_place

DIGEST = r"skilltree1:[0-9a-f]{64}"
EXTENSION_NAME = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
PACKAGES_MAX = 2
ARTIFACT_BOUNDS = {"files": 256, "bytes": 64 << 20, "days": 3_650, "total_bytes": 1 << 40}
"""The most of `artifact_…`; of files and bytes no more leave a cell (`cells.cell_output`)."""


def callback_of(text: str, *, key: str = "callback") -> tuple[str, int]:
    """Return the address and the port of ADDRESS:PORT.

    >>> callback_of("0.0.0.0:8701"), callback_of("[::1]:0")
    (('0.0.0.0', 8701), ('::1', 0))

    Raises:
        ConfigError: the value of `key` is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise ConfigError(f"expected ADDRESS:PORT in `{key}`, got {text!r}", key=key)
    return host, int(port)


class SkillCodeSettings(Struct, frozen=True, kw_only=True):
    """Whether skills' own code runs, and what the operator hands to it."""

    enabled: bool | None = None
    """Whether the tools that skills bring are offered; None is as the profile has it."""
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of this process's variables that a skill gets, by the skill's name: of those that it
    declares. A variable that is not named here is not handed over, whatever a skill declares."""
    unhashed: bool = False
    """Take dependencies without digests."""
    builds: bool = False
    """Build dependencies from source, which runs their code outside of any sandbox."""
    python_packages: tuple[str, ...] = ()
    """Absolute directories in which skills in Python look for modules after their own, nearest
    first: what `site-packages` would hold, for all skills, then of the host (S002-63)."""
    node_packages: tuple[str, ...] = ()
    """Likewise for skills in JavaScript: what `node_modules` would hold."""
    executor: str = ""
    """Address of an executor elsewhere, http://HOST:PORT/rpc, or the name of an extension that runs
    code; "" runs code on this machine."""
    executor_token: str = ""
    """Where the token is by which both know each other, file:PATH or env:NAME; never itself."""
    executors: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Addresses of executors by what they run: a language, or a name that a skill's manifest asks
    for (`requires.executor`). `executor` runs all else."""
    executor_ca: str = ""
    """PEM file of who signed the certificates of executors; "" takes the system's."""
    executor_certificate: str = ""
    """PEM file of the certificate that this process shows executors, with its chain."""
    executor_key: str = ""
    """Its key."""
    callback: str = "127.0.0.1:0"
    """Where this process listens for host calls from there, ADDRESS:PORT; port 0 is a free one."""
    callback_url: str = ""
    """What executors are to call it, http[s]://HOST:PORT/rpc, where several processes share them;
    "" is the address that each executor was started with. With https the certificate is used."""
    levels: Mapping[str, Literal["read", "write", "sign"]] = field(default_factory=dict)
    """The least level of a skill's tools, by SKILL, or of one tool, by SKILL:TOOL: what a manifest
    says of itself counts only where it is stricter (S002-98)."""
    frames_for_models: bool = False
    """Whether a model gets the files and lines of a skill's code that an exception passed through;
    the audit log and `skillhouse call` have them in any case."""
    in_process: tuple[str, ...] = ()
    """Digests of the trees of skills in Python that run in this process, without a sandbox."""
    artifact_files: int = 32
    """Files of a call's output folder that are kept; 0 keeps none."""
    artifact_bytes: int = 16_777_216
    """Bytes of all files of a call that are kept."""
    artifact_days: int = 30
    """Days after which kept files are removed."""
    artifact_total_bytes: int = 1_073_741_824
    """Bytes of the kept files of all calls; beyond it the oldest are removed."""

    def __post_init__(self) -> None:
        """Raise ConfigError for what is no place for packages, no digest, or no executor."""
        for key in ("python_packages", "node_packages"):
            found = getattr(self, key)
            if len(found) > PACKAGES_MAX or not all(os.path.isabs(path) for path in found):
                message = f"expected at most {PACKAGES_MAX} absolute directories in `{key}`"
                raise ConfigError(f"{message}, got {list(found)}", key=key)
        for found in self.in_process:
            if not re.fullmatch(DIGEST, found):
                message = f"expected digests as skilltree1:… in `in_process`, got {found!r}"
                raise ConfigError(message, key="in_process")
        self._check_artifacts()
        self._check_executor()

    def _check_artifacts(self) -> None:
        for key, most in ARTIFACT_BOUNDS.items():
            found = getattr(self, f"artifact_{key}")
            least = 1 if key == "days" else 0
            if not least <= found <= most:
                message = f"expected {least} to {most} as `artifact_{key}`, got {found}"
                raise ConfigError(message, key=f"artifact_{key}")

    def _check_executor(self) -> None:
        if self.executor_token:
            check_place(self.executor_token, key="executor_token")
        is_extension = bool(re.fullmatch(EXTENSION_NAME, self.executor))
        if is_extension and self.executors:
            raise ConfigError("expected no `executors` beside an extension", key="executors")
        is_remote = bool(self.executor) and not is_extension
        if (is_remote or bool(self.executors)) != bool(self.executor_token):
            raise ConfigError("expected `executor` and `executor_token` together", key="executor")
        for name in self.executors:
            if not re.fullmatch(EXTENSION_NAME, name):
                message = f"expected a name of small letters, digits and dashes, got {name[:80]!r}"
                raise ConfigError(message, key="executors")
        if bool(self.executor_certificate) != bool(self.executor_key):
            message = "expected `executor_certificate` and `executor_key` together"
            raise ConfigError(message, key="executor_key")
        if self.callback_url.startswith("https:") and not self.executor_certificate:
            message = "expected `executor_certificate` with a `callback_url` of https"
            raise ConfigError(message, key="callback_url")
        callback_of(self.callback)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the code runs in another process, or by an extension."""
        return bool(self.executor or self.executors)

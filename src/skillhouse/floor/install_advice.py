"""How to add an optional part or package to the environment that this program runs from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_IN_ALL = frozenset("mcp server watch chat telemetry registry hsm postgres".split())
"""The extras that `all` has (pyproject.toml)."""
_DISTRIBUTIONS = {"signer": "signer"}
"""What is a distribution of its own, by its folder in the clone; as an extra it is no more."""
_BIN, _SUFFIX = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")


def extra_advice(extra: str, prefix: Path | None = None) -> str:
    """Return the command that installs an extra of ours; `prefix` is that of the environment.

    It is installed from the clone: no name on a package index is ours.
    """
    place = Path(sys.prefix) if prefix is None else prefix
    if extra in _DISTRIBUTIONS:
        return _distribution_advice(_DISTRIBUTIONS[extra], place)
    if clone := _clone_of(place):
        return _clone_command(place, f"-e '{clone}[{extra}]'")
    # A tool is installed as a whole: with one extra alone the others would go.
    whole = "all" if extra in _IN_ALL else f"all,{extra}"
    if _is_tool(place):
        return f"run in the clone `uv tool install --force '.[{whole}]'`"
    if _is_pipx(place):
        return f"run in the clone `pipx install --force '.[{whole}]'`"
    return f"run in the clone `{_pip(place)} '.[{extra}]'`"


def _distribution_advice(folder: str, place: Path) -> str:
    """Return the command that installs a distribution of the clone beside this program."""
    if clone := _clone_of(place):
        return _clone_command(place, f"-e '{clone / folder}'")
    if _is_tool(place):
        return f"run in the clone `uv tool install --force --with ./{folder} '.[all]'`"
    if _is_pipx(place):
        return f"run in the clone `pipx inject skillhouse ./{folder}`"
    return f"run in the clone `{_pip(place)} ./{folder}`"


def package_advice(package: str, prefix: Path | None = None) -> str:
    """Return the command that installs another package beside this program."""
    place = Path(sys.prefix) if prefix is None else prefix
    if _clone_of(place):
        return _clone_command(place, f"'{package}'")
    if _is_tool(place):
        return f"run in the clone `uv tool install --force --with '{package}' '.[all]'`"
    if _is_pipx(place):
        return f"run `pipx inject skillhouse '{package}'`"
    return f"run `{_pip(place)} '{package}'`"


def _clone_of(prefix: Path) -> Path | None:
    """Return the clone whose `./x` made the environment; None for another one."""
    clone = prefix.parent.parent
    is_ours = prefix.parts[-2:] == (".x", "env") and (clone / "x").is_file()
    return clone if is_ours else None


def _clone_command(prefix: Path, what: str) -> str:
    uv = prefix.parent / "uv" / _BIN / f"uv{_SUFFIX}"
    python = prefix / _BIN / f"python{_SUFFIX}"
    return f"run `{uv} pip install --python {python} {what}`"


def _is_tool(prefix: Path) -> bool:
    return (prefix / "uv-receipt.toml").is_file()


def _is_pipx(prefix: Path) -> bool:
    return (prefix / "pipx_metadata.json").is_file()


def _pip(prefix: Path) -> str:
    """Return how packages get into an environment; one that uv made has no pip."""
    has_pip = any(prefix.glob("[Ll]ib*/**/site-packages/pip"))
    python = prefix / _BIN / f"python{_SUFFIX}"
    return f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"

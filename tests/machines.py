"""Commands as another user, and on a machine that has no bubblewrap: prefixes of a command line.

The process keeps its number, because each program of a prefix replaces itself by the next one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

import skillhouse
from skillhouse.sandbox.status import PROGRAM, surroundings
from tests.harness import Need, ran

SYSTEM_PYTHON = Path(f"/usr/bin/python3.{sys.version_info.minor}")
"""For another user: ours may be in a home that the user cannot enter."""
PACKAGES = os.pathsep.join(
    str(Path(module.__file__ or "").parents[1]) for module in (skillhouse, anyio)
)
"""Where a Python that is not of our environment finds skillhouse and what it imports."""

OWN_MOUNTS = (
    # As a superuser of the namespace, whoever is another one outside would find that nobody whom
    # the namespace knows owns `/`.
    ("unshare", "--user", "--map-root-user", "--mount")
    if os.geteuid() == 0
    else ("unshare", "--user", "--map-current-user", "--keep-caps", "--mount")
)
"""The prefix for a mount namespace in which the program may mount what is its own."""

_COVER = (
    "for program in $PROGRAMS; do mount --bind /dev/null $program || exit 97; done; "
    'unset PROGRAMS; exec "$@"'
)


def as_user(user: int) -> tuple[str, ...]:
    """Return the prefix for a user that has no name, no group and no capability; 0 is ours."""
    if not user:
        return ()
    number = str(user)
    return ("setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--")


def without_bubblewrap() -> tuple[str, ...]:
    """Return the prefix for a mount namespace in which bubblewrap's program cannot be run."""
    places = surroundings().search_path.split(os.pathsep)
    found = {os.path.realpath(f"{place}/{PROGRAM}") for place in places}
    programs = " ".join(sorted(path for path in found if os.path.exists(path)))
    cover = ("env", f"PROGRAMS={programs}", "sh", "-c", _COVER, "sh")
    if os.geteuid() == 0:
        return ("unshare", "--mount", "--propagation", "private", "--", *cover)
    dropped = ("setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--bounding-set=-all", "--")
    return (*OWN_MOUNTS, *cover, *dropped)


def python_of(user: int) -> str:
    """Return an interpreter that the user can run; 0 is ours."""
    return str(SYSTEM_PYTHON) if user else sys.executable


def check_machine(need: Need, *prefixes: Sequence[str]) -> None:
    """Skip the test where commands cannot be run in that way."""
    for prefix in prefixes:
        if prefix:
            done = ran((*prefix, "true"))
            need(done.returncode == 0, f"{prefix[0]} cannot do it: {done.stderr.strip()}")


def check_user(need: Need, user: int) -> None:
    """Skip the test where commands cannot be run as that user; 0 is ours."""
    if not user:
        return
    need(os.geteuid() == 0, "not root")
    check_machine(need, as_user(user))
    code = "import anyio, skillhouse.frontends.cli"
    argv = (*as_user(user), python_of(user), "-c", code)
    done = ran(argv, env={"PYTHONPATH": PACKAGES}, cwd="/")
    need(done.returncode == 0, f"another user cannot run skillhouse: {done.stderr[-200:]}")

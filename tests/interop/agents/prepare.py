"""Installs the newest clients and frameworks into a folder; this alone needs a network."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path

from tests.harness import ran
from tests.interop.agents.clients import CLIENTS
from tests.interop.frameworks import run as frameworks
from tests.interop.frameworks.table import FRAMEWORKS

CLIENTS_FOLDER, FRAMEWORKS_FOLDER = "clients", "frameworks"
COMMANDS = f"{CLIENTS_FOLDER}/node_modules/.bin"
NODE = "node@24"
"""Beside the clients: the newest ones want 22 or later."""
SECONDS = 1_200


def prepare(folder: Path, names: Collection[str]) -> int:
    """Install those of `names`, or all; return the exit code."""
    is_well = True
    clients = [one for one in CLIENTS if not names or one.name in names]
    if clients:
        is_well = _clients(folder / CLIENTS_FOLDER, [one.package for one in clients])
    if not names or {one.name for one in FRAMEWORKS} & set(names):
        is_well = frameworks.prepare(folder / FRAMEWORKS_FOLDER, names) and is_well
    return 0 if is_well else 1


def _clients(place: Path, packages: list[str]) -> bool:
    npm = shutil.which("npm")
    if npm is None:
        print("not found: npm", file=sys.stderr)
        return False
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "package.json").exists():
        (place / "package.json").write_text('{"name": "clients", "private": true}')
    newest = [f"{package.rpartition('@')[0]}@latest" for package in packages]
    steps = [
        *((npm, "install", "--no-audit", "--no-fund", one) for one in (NODE, *newest)),
        # npm 11 holds install scripts back, and without them the commands do nothing.
        (npm, "install-scripts", "approve", "--all"),
        (npm, "rebuild"),
    ]
    for words in steps:
        done = ran(words, cwd=place, env=dict(os.environ), timeout=SECONDS)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            print(f"{' '.join(words[1:])}: {said}", file=sys.stderr)
            return False
        print(f"{' '.join(words[1:])}: done", flush=True)
    return True

"""Private copies of skills' trees, so that the code that was evaluated is the code that runs."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from skillhouse.cells.cell import CellSpec
from skillhouse.floor import TreeError, make_private, tree_digest
from skillhouse.sandbox.sandbox_errors import SandboxError

LEFT_OUT = frozenset({"skill.sig", ".skill"})
"""Names at the top of a skill that are not in its digest (`floor.tree_digest`). What has such a
name and is in the digest, a directory `skill.sig`, is missed there, and the copy is refused."""
_NAME = re.compile(r"cell-(\d+)-.+")


class CodeSnapshots:
    """Copies below one directory; each is removed with its cell."""

    def __init__(self, state: Path) -> None:
        """Use `state`/cells, and remove the copies of processes that no longer exist."""
        self._base = state / "cells"
        make_private(self._base)
        for path in self._base.iterdir():
            owner = _NAME.fullmatch(path.name)
            if owner is not None and not Path("/proc", owner[1]).exists():
                shutil.rmtree(path, ignore_errors=True)

    def take(self, spec: CellSpec) -> Path:
        """Return a copy of the skill's tree with the expected digest.

        Raises:
            SandboxError: "skill-changed", or "skill-unreadable".
        """
        place = Path(tempfile.mkdtemp(prefix=f"cell-{os.getpid()}-", dir=self._base)).resolve()
        tree = place / "skill"
        try:
            # Links stay links, and the digest refuses them.
            shutil.copytree(spec.directory, tree, symlinks=True, ignore=_unbound(spec.directory))
            digest = tree_digest(tree)
        except (OSError, shutil.Error, TreeError) as error:
            self.drop(tree)
            message = f"cannot copy the skill `{spec.skill}`: {str(error)[:200]}"
            raise SandboxError("skill-unreadable", message) from error
        if digest != spec.digest:
            self.drop(tree)
            message = f"the skill `{spec.skill}` is not as it was: expected {spec.digest}"
            raise SandboxError("skill-changed", f"{message}, got {digest}")
        return tree

    def drop(self, tree: Path) -> None:
        shutil.rmtree(tree.parent, ignore_errors=True)


def _unbound(directory: Path) -> Callable[[str, list[str]], set[str]]:
    """Return a filter of names outside the digest: code could load unchecked bytes from them."""

    def ignore(place: str, names: list[str]) -> set[str]:
        return {*names} & LEFT_OUT if Path(place) == directory else set()

    return ignore

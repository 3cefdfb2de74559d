"""The files by which a place decides, and what is wrong with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.floor import (
    Looks,
    StateError,
    check_private,
    directory_problem,
    file_problem,
    trail,
)
from skillhouse.runtime.config import PROJECT_FILE
from skillhouse.runtime.config.resolve import project_of
from skillhouse.runtime.trust import STATE_FILE

if TYPE_CHECKING:
    from skillhouse.runtime.config import Config
    from skillhouse.skill import Skill

AUDIT_FILE = "audit.jsonl"
"""The audit log, in the state directory."""


def check_directories(config: Config) -> None:
    """Do nothing, unless others can use the state's directory or write what is kept for later.

    Raises:
        StateError: they can; the message has the command that mends it.
    """
    check_private(config.state_directory)
    cache = config.cache_directory or config.places.cache()
    if problem := directory_problem(cache):
        raise StateError(f"the cache cannot be used: {problem}", cache)


class ConfiguredFiles:
    """Those of one configuration, each looked at whenever it is asked for."""

    def __init__(self, config: Config, skills: Iterable[Skill] = ()) -> None:
        """Take where they are, and the skills that were found."""
        self._config = config
        # Installers link the files of a program to a cache of theirs (uv), a remote cache its
        # versions to each other.
        self.skill_files = frozenset(
            skill.file for skill in skills if skill.scope not in ("builtin", "remote")
        )
        """See `tools.OwnFiles`."""
        from skillhouse.audit.checkpoints import default_directory  # noqa: PLC0415 - not needed to list skills

        places, state = config.places, config.state_directory
        packages = (*config.skill_code.python_packages, *config.skill_code.node_packages)
        self._files = (places.managed_file, places.user_file, places.policy_file)
        self._profiles = places.profiles
        self._fixed = (
            *(places.user_file.parent, self._profiles, state),
            config.audit_checkpoints or default_directory(state / AUDIT_FILE),
            *map(Path, packages),
            # Programs of servers run on this machine, outside of every sandbox.
            *(Path(w) for s in config.mcp_servers for w in s.command if os.path.isabs(w)),
        )

    def places(self) -> Iterator[Path]:
        """Yield every file and directory that decides, whether it is there or not."""
        yield from self._fixed
        yield from self._settings()
        yield project_of(self._config.places.start) / PROJECT_FILE
        yield from (Path(file) for file in self.skill_files if os.path.islink(file))

    def problem(self, looks: Looks) -> str:
        """Return the first of `problems`, or nothing."""
        found = self.problems(looks)
        return next((f"`{path}` cannot be used: {why}" for path, why in found), "")

    def problems(self, looks: Looks | None = None) -> Iterator[tuple[Path, str]]:
        """Yield each file that is not safe with what mends it."""
        config, looks = self._config, looks or Looks()
        settings = self._settings()
        for path in settings:
            if why := file_problem(path, looks=looks):
                yield path, why
                continue
            real = looks.at(trail(path, looks).real)
            if looks.at(str(path)) and (real is None or stat.S_ISLNK(real[0].st_mode)):
                yield path, "it is a link to nothing; remove it"
        state = config.state_directory
        database = state / STATE_FILE
        if why := directory_problem(state, looks=looks):
            yield state, why
        # A directory that is wider, and as yet without a state, holds no secret.
        elif looks.at(str(database)) and (why := file_problem(database, secret=True, looks=looks)):
            yield database, why
        start = trail(config.places.start, looks).real
        ours = trail(config.places.user_file.parent, looks).real
        if f"{start}/".startswith(f"{ours}/"):
            for path in settings:
                if trail(path, looks).real.startswith(f"{start}/"):
                    yield path, "the workspace is inside the directory of the configuration"

    def _settings(self) -> tuple[Path, ...]:
        try:
            names = sorted(os.listdir(self._profiles))
        except OSError:
            names = []
        return (*self._files, *(self._profiles / name for name in names if name.endswith(".toml")))

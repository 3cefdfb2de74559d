"""The files by which a place decides, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillhouse.audit.checkpoints import default_directory
from skillhouse.floor import StateError, check_private, directory_problem, file_problem, trail
from skillhouse.runtime.config import PROJECT_FILE, Config
from skillhouse.runtime.config.resolve import project_of
from skillhouse.runtime.enforcement import AUDIT_FILE
from skillhouse.runtime.trust import STATE_FILE
from skillhouse.skill import Skill


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

    def places(self) -> Iterator[Path]:
        """Yield every file and directory that decides, whether it is there or not."""
        config, places = self._config, self._config.places
        state = config.state_directory
        yield from (places.user_file.parent, places.profiles, state)
        yield from self._settings()
        yield project_of(places.start) / PROJECT_FILE
        yield config.audit_checkpoints or default_directory(state / AUDIT_FILE)
        for packages in (*config.skill_code.python_packages, *config.skill_code.node_packages):
            yield Path(packages)
        for server in config.mcp_servers:
            # Their programs run on this machine, outside of every sandbox.
            yield from (Path(word) for word in server.command if os.path.isabs(word))
        yield from (Path(file) for file in self.skill_files if os.path.islink(file))

    def problem(self) -> str:
        """Return the first of `problems`, or nothing."""
        return next((f"`{path}` cannot be used: {why}" for path, why in self.problems()), "")

    def problems(self) -> Iterator[tuple[Path, str]]:
        """Yield each file that is not safe with what mends it."""
        config = self._config
        for path in self._settings():
            if why := file_problem(path):
                yield path, why
            elif path.is_symlink() and not path.exists():
                yield path, "it is a link to nothing; remove it"
        state = config.state_directory
        database = state / STATE_FILE
        if why := directory_problem(state):
            yield state, why
        # A directory that is wider, and as yet without a state, holds no secret.
        elif os.path.lexists(database) and (why := file_problem(database, secret=True)):
            yield database, why
        for path in self._settings():
            if self._is_in_our_directory(path):
                yield path, "the workspace is inside the directory of the configuration"

    def _settings(self) -> tuple[Path, ...]:
        places = self._config.places
        try:
            names = sorted(os.listdir(places.profiles))
        except OSError:
            names = []
        profiles = (places.profiles / name for name in names if name.endswith(".toml"))
        return (places.managed_file, places.user_file, places.policy_file, *profiles)

    def _is_in_our_directory(self, path: Path) -> bool:
        """Whether a file is in a workspace that is inside the configuration's own directory."""
        start = os.path.realpath(self._config.places.start)
        ours = os.path.realpath(self._config.places.user_file.parent)
        return f"{start}/".startswith(f"{ours}/") and trail(path).real.startswith(f"{start}/")

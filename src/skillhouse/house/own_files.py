"""The files that decide about calls, which no tool writes, and what is wrong with them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillhouse.audit import AuditLog, Trouble, stuck
from skillhouse.audit.log_end import default_directory
from skillhouse.audit.redaction import Secrets
from skillhouse.audit.state_heads import StateHeads
from skillhouse.floor import (
    ConfigError,
    PathStateCache,
    directory_problem,
    file_problem,
    trail,
)
from skillhouse.floor.structs import replace
from skillhouse.house.config import PROJECT_FILE, Config
from skillhouse.house.config.bundle_files import BUNDLE_POLICY
from skillhouse.house.config.config_files import profile_of, project_of, tier_policy_file
from skillhouse.skill import Skill
from skillhouse.store import STATE_FILE
from skillhouse.tiers import TierPolicy, load_tier_policy, read_tier_policy
from skillhouse.tiers.tier_values import PAGE

KEYSTORE_FILE = "keys.json"
"""Name of the file of the signer's keys, beside the state."""
AUDIT_FILE = "audit.jsonl"


class ConfiguredFiles:
    """Those of one configuration, each looked at whenever it is asked for."""

    def __init__(self, config: Config, skills: Iterable[Skill] = ()) -> None:
        self._config = config
        # Installers link the files of a program to a cache of theirs (uv), a remote cache its
        # versions to each other.
        self.skill_files = frozenset(
            skill.file for skill in skills if skill.scope not in ("builtin", "remote")
        )
        """See `tools.OwnFiles`."""
        places, state = config.places, config.state_directory
        packages = (*config.skill_code.python_packages, *config.skill_code.node_packages)
        own = (places.managed_file, places.user_file, places.policy_file)
        self._files = (*own, places.published_file)
        self._profiles = places.profiles
        self._fixed = (
            *(places.user_file.parent, self._profiles, state),
            config.audit_checkpoints or default_directory(state / AUDIT_FILE),
            *map(Path, packages),
            # Programs of servers run on this machine, outside of every sandbox.
            *(Path(w) for s in config.mcp_servers for w in s.command if os.path.isabs(w)),
            # Rules of a bundle are there.
            *([] if config.bundle is None else [config.bundle.link.parent]),
        )

    def places(self) -> Iterator[Path]:
        """Yield every file and directory that decides, existing or not."""
        yield from self._fixed
        yield from self._settings()
        yield project_of(self._config.places.start) / PROJECT_FILE
        yield from (Path(file) for file in self.skill_files if os.path.islink(file))

    def problem(self, states: PathStateCache) -> str:
        found = self.problems(states)
        return next((f"`{path}` cannot be used: {why}" for path, why in found), "")

    def problems(self, states: PathStateCache | None = None) -> Iterator[tuple[Path, str]]:
        """Yield each unsafe file with its remedy."""
        config, states = self._config, states or PathStateCache()
        settings = self._settings()
        for path in settings:
            if why := file_problem(path, states=states):
                yield path, why
                continue
            real = states.at(trail(path, states).real)
            if states.at(str(path)) and (real is None or stat.S_ISLNK(real[0].st_mode)):
                yield path, "it is a link to nothing; remove it"
        state = config.state_directory
        database = state / STATE_FILE
        if why := directory_problem(state, states=states):
            yield state, why
        # A directory that is wider, and as yet without a state, holds no secret.
        elif states.at(str(database)) and (
            why := file_problem(database, secret=True, states=states)
        ):
            yield database, why
        start = trail(config.places.start, states).real
        ours = trail(config.places.user_file.parent, states).real
        if f"{start}/".startswith(f"{ours}/"):
            for path in settings:
                if trail(path, states).real.startswith(f"{start}/"):
                    yield path, "the workspace is inside the directory of the configuration"

    def _settings(self) -> tuple[Path, ...]:
        try:
            names = sorted(os.listdir(self._profiles))
        except OSError:
            names = []
        return (*self._files, *(self._profiles / name for name in names if name.endswith(".toml")))


def audit_log_of(config: Config, *, secrets: Secrets | None = None) -> AuditLog:
    """Return the log of a configuration; nothing is opened before its first record."""
    state, server = config.state_directory, config.server_name
    return AuditLog(
        state / AUDIT_FILE,
        secrets=secrets,
        checkpoints=config.audit_checkpoints,
        server=server,
        heads=StateHeads(state) if server else None,
    )


def tier_policy_of(config: Config) -> TierPolicy:
    """Return the tier policy; an unusable file allows only reads."""
    file, assignees = tier_policy_file(config), frozenset(config.assignees)
    # A paired device counts as the page does, and the page can always be opened.
    policy = TierPolicy(assignees=assignees, tier1_channel=PAGE)
    if file == config.places.policy_file:
        policy = load_tier_policy(file, assignees=assignees, tier1_channel=PAGE)
    elif file is not None and config.bundle is not None:
        try:
            # Compared with what was signed: it is in a cache.
            data = config.bundle.contents()[BUNDLE_POLICY]
            policy = read_tier_policy(data, file, assignees=assignees, tier1_channel=PAGE)
        except ConfigError as error:
            policy = replace(policy, fault=f"the policy of the bundle cannot be used: {error}")
    profile = profile_of(config)
    return replace(policy, published=profile.tool_names, has_companion=profile.companion_app)


def audit_troubles(config: Config) -> tuple[Trouble, ...]:
    """Return the conditions under which the audit log refuses the next record."""
    path = config.state_directory / AUDIT_FILE
    return stuck(path, config.audit_checkpoints or default_directory(path))


def file_troubles(config: Config) -> tuple[Trouble, ...]:
    """Return the unsafe files among those that decide; a path below home begins with `~`."""
    home = str(config.places.home)
    return tuple(
        Trouble(code="own-file", message=f"`{path}`: {why}".replace(home, "~"))
        for path, why in ConfiguredFiles(config).problems()
    )

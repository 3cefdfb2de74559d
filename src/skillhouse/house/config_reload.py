"""Notices that a configuration file has changed, checks it, and puts it into use as a whole."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from skillhouse.floor import ConfigError, SkillhouseError, digest, read_regular
from skillhouse.floor.structs import field_names, replace
from skillhouse.house.config.bundle_files import BUNDLE
from skillhouse.house.config.config_files import (
    BUNDLE_FAULT,
    configured,
    is_gone_or_empty,
    is_recent,
    is_trusted,
    managed_layers,
    stamp,
)
from skillhouse.house.config.config_lines import CONFIG_FILE_MAX, located
from skillhouse.permission import Rule
from skillhouse.store import STATE_FILE, commit_stamp

if TYPE_CHECKING:
    from skillhouse.house.config import Config
    from skillhouse.house.config.config_values import ConfigSource

SETTLE_SECONDS = 0.02
"""Between two looks at a file that is being written."""
AWAY_SECONDS = 0.3
"""For which a file is empty or away before it counts as such; an editor needs some ms."""
SETTLE_MAX_SECONDS = 0.5
"""Then it is read as it is."""
READ_TRIES = 5
"""Reads of files that are written to meanwhile; then the next call tries again."""
RETRY_SECONDS = 2.0
"""Between two tries of a configuration that cannot be used: what is wrong may be the owner or the
mode of a directory above the file, whose change no date of the file shows."""

RESTART = (
    "state_directory",
    "state",
    "cache_directory",
    "remote_directory",
    "audit_checkpoints",
    "server_name",
)
"""What a running process keeps."""
RESTART_CODE = (
    "executor",
    "executors",
    "executor_token",
    "executor_ca",
    "executor_certificate",
    "executor_key",
    "callback",
    "callback_url",
)
"""Likewise below `[skill_code]`."""

NOTICE = (
    "a changed configuration file cannot be used, so rules that were changed in it do not hold "
    "yet: tell the user (`skillhouse doctor` says what is wrong)"
)
"""For a model and who reads its results. Our words alone: a fault quotes the file."""

logger = logging.getLogger(__name__)


class ConfigNews(Struct, frozen=True, kw_only=True):
    """What became of a changed configuration, for a person."""

    text: str
    is_fault: bool = False
    """A file cannot be used, and what it said before stays in use."""
    files: tuple[tuple[str, str], ...] = ()
    """The files that changed, each with the digest of what it holds, or why there is none."""
    rules: tuple[str, ...] = ()
    """The rules that came (`+`) and went (`-`), each with its layer."""


class Adopted(Struct, frozen=True, kw_only=True):
    """What a tier policy did when a configuration was put into use."""

    tiers_changed: bool = False
    fault: str = ""
    """Why the tier policy from before stays; empty if it does not."""


class ConfigReload:
    """Follows the files of one configuration; one that no file gave never changes."""

    def __init__(
        self,
        config: Config,
        overrides: Mapping[str, Any],
        adopt: Callable[[Config], Adopted],
    ) -> None:
        """Follow the files of `config`, of which `overrides` and replaced values are kept.

        `adopt` puts a configuration into use, or raises SkillhouseError and changes nothing.
        """
        self._config = config
        self._adopt = adopt
        self._source: ConfigSource | None = config.source
        self._kept = _replaced(config, overrides)
        self._state = config.state_directory / STATE_FILE
        self._trust: tuple[int, ...] = ()
        """Stamp of the state when it was last asked whether the project is trusted."""
        self._fault = ""
        self._retry_at = 0.0
        self._listeners: list[Callable[[ConfigNews], None]] = []
        # INVARIANT: held while the configuration is replaced, so that of two calls that come at
        # once neither goes on with the rules from before.
        self._lock = threading.RLock()

    @property
    def fault(self) -> str:
        """Why a file cannot be used, and that its content from before is; or ""."""
        return self._fault

    @property
    def notice(self) -> str:
        """What a model gets to know while there is a fault; or ""."""
        return NOTICE if self._fault else ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that decide, whether they exist or not."""
        return () if self._source is None else tuple(self._source.stamps)

    def subscribe(self, listener: Callable[[ConfigNews], None]) -> Callable[[], None]:
        """Report what becomes of each change until the returned function is called.

        The listener is called on the thread of the call that saw the change.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def is_due(self) -> bool:
        """Whether a file has changed; costs some calls of `stat`."""
        source = self._source
        if source is None:
            return False
        if any(stamp(path) != before for path, before in source.stamps.items()):
            return True
        if self._fault and time.monotonic() >= self._retry_at:
            return True
        try:
            state = commit_stamp(self._state)
            if state == self._trust:
                return False
            if is_trusted(source.loaded) != source.is_trusted:
                return True
        except SkillhouseError:
            # A state that cannot be read trusts nothing more, and the gate refuses every effect.
            return False
        self._trust = state
        return False

    def check(self) -> None:
        """Put changed files into use before this returns; a fault of theirs is reported."""
        if self.is_due():
            with self._lock:
                if self.is_due():
                    self._reload()

    async def check_in_thread(self) -> None:
        """Do what `check` does, and keep no event loop waiting for files."""
        if self.is_due():
            from skillhouse.floor.threads import in_thread  # noqa: PLC0415 - only calls need it.

            await in_thread(self.check)

    def _reload(self) -> None:
        source = self._source
        if source is None:
            return
        changed: tuple[Path, ...] = ()
        try:
            for _ in range(READ_TRIES):
                changed = _settled(source.stamps)
                found = configured(
                    source.loaded.places, source.flags, kept=self._config, is_dry=source.is_dry
                )
                if found.source is not None and _is_unchanged(found.source):
                    break
            else:
                # It is being written all the time: the next call tries again.
                return
        except (SkillhouseError, OSError, ValueError, RecursionError) as error:
            self._refuse(source, changed, located(error))
            return
        before = self._config
        wanted = replace(found, **self._kept)
        config = _with_kept_project(_with_fixed(wanted, before), before)
        try:
            adopted = self._adopt(config)
        except (SkillhouseError, OSError, ValueError) as error:
            self._refuse(source, changed, located(error))
            return
        self._config, self._source = config, found.source
        faults = [f"the project's file has a fault: {one}" for one in _project_faults(found)]
        faults += [one.message for one in found.problems if one.code == BUNDLE_FAULT]
        if adopted.fault:
            faults.append(f"the tier policy from before stays in use: {adopted.fault}")
        is_repaired = bool(self._fault) and not faults
        self._say_fault("; ".join(faults), changed)
        parts = _differences(before, config, tiers=adopted.tiers_changed)
        restart = _needing_restart(before, wanted)
        if parts or restart or is_repaired:
            self._say(_news(changed, parts, restart, _changed_rules(before, config)))

    def _refuse(self, source: ConfigSource, changed: tuple[Path, ...], fault: str) -> None:
        """Keep the configuration, except for managed rules, which no file of a user holds up."""
        self._source = replace(source, stamps={path: stamp(path) for path in source.stamps})
        self._retry_at = time.monotonic() + RETRY_SECONDS
        config = _with_managed(self._config)
        if config is not self._config:
            try:
                self._adopt(config)
            except (SkillhouseError, OSError, ValueError):
                logger.exception("the managed rules could not be put into use")
            else:
                parts = _differences(self._config, config, tiers=False)
                rules = _changed_rules(self._config, config)
                self._config = config
                self._say(_news(changed, parts, (), rules))
        self._say_fault(f"the configuration from before stays in use: {fault}", changed)

    def _say_fault(self, fault: str, changed: tuple[Path, ...]) -> None:
        """Report a fault once, not at each try."""
        before, self._fault = self._fault, fault
        if fault and fault != before:
            self._say(ConfigNews(text=fault, is_fault=True, files=_digests(changed)))

    def _say(self, news: ConfigNews) -> None:
        logger.log(logging.WARNING if news.is_fault else logging.INFO, "%s", news.text)
        for listener in tuple(self._listeners):
            listener(news)


def _is_unchanged(source: ConfigSource) -> bool:
    """Whether no file was written to while it was read; what was read may then be half of it."""
    return all(stamp(path) == before for path, before in source.stamps.items())


def _replaced(config: Config, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the program set, which no file replaces."""
    if config.source is None:
        return {}
    loaded = config.source.loaded
    return {
        name: getattr(config, name)
        for name in field_names(config)
        if name not in config.UNCOMPARED
        and (name in overrides or getattr(config, name) != getattr(loaded, name))
    }


def _settled(before: Mapping[Path, object]) -> tuple[Path, ...]:
    """Wait until the files are written to no more, and return those that have changed.

    Editors empty a file and fill it, or move it away and write another one: without the wait a
    call between the two would find no rules.
    """
    began = time.monotonic()
    while (waited := time.monotonic() - began) < SETTLE_MAX_SECONDS:
        now = {path: stamp(path) for path in before}
        changed = [known for path, known in now.items() if known != before[path]]
        is_away = any(is_gone_or_empty(known) for known in changed)
        if not any(map(is_recent, changed)) and (not is_away or waited >= AWAY_SECONDS):
            break
        time.sleep(SETTLE_SECONDS)
    return tuple(path for path in before if stamp(path) != before[path])


def _with_fixed(wanted: Config, before: Config) -> Config:
    """Return a configuration with what a running process keeps."""
    code = {name: getattr(before.skill_code, name) for name in RESTART_CODE}
    kept = {name: getattr(before, name) for name in RESTART}
    return replace(wanted, **kept, skill_code=replace(wanted.skill_code, **code))


def _needing_restart(before: Config, wanted: Config) -> tuple[str, ...]:
    names = [name for name in RESTART if getattr(before, name) != getattr(wanted, name)]
    names += [
        f"skill_code.{name}"
        for name in RESTART_CODE
        if getattr(before.skill_code, name) != getattr(wanted.skill_code, name)
    ]
    return tuple(names)


def _project_faults(config: Config) -> list[str]:
    return [one.message for one in config.problems if one.code == "project-config"]


def _with_kept_project(config: Config, before: Config) -> Config:
    """Return a configuration with the project's rules from before, if its file is broken now.

    It does not keep the other files from being used: the user's rules are not for a project to
    hold up.
    """
    kept = [layer for layer in before.layers if layer.name == "project"]
    if not kept or not _project_faults(config):
        return config
    others = (layer for layer in config.layers if layer.name != "project")
    return replace(config, layers=(*others, *kept))


def _with_managed(config: Config) -> Config:
    """Return a configuration with the managed rules as they are now, if they can be read."""
    try:
        managed = managed_layers(config.places)
    except (ConfigError, OSError):
        return config
    has_policy = any(layer.is_builtin for layer in managed)
    others = tuple(
        layer
        for layer in config.layers
        if layer.name != "managed" and not (has_policy and layer.is_builtin)
    )
    far = [layer for layer in others if layer.trusted and layer.name.startswith(BUNDLE)]
    layers = (*far, *managed, *(layer for layer in others if layer not in far))
    return config if layers == config.layers else replace(config, layers=layers)


def _differences(before: Config, config: Config, *, tiers: bool) -> list[str]:
    """Return what differs, in a person's words."""
    old, new = _rules(before), _rules(config)
    added, removed = (new - old).total(), (old - new).total()
    parts = [f"rules: +{added} -{removed}"] if added or removed else []
    if tiers:
        parts.append("tier policy")
    if before.agents.keys() != config.agents.keys():
        added = len(config.agents.keys() - before.agents.keys())
        removed = len(before.agents.keys() - config.agents.keys())
        parts.append(f"agents: +{added} -{removed}")
    if _preloaded(before) != _preloaded(config):
        parts.append("preload")
    skipped = {"layers", "agents", "skill_rules", "preload", "problems", "source"}
    parts += [
        name
        for name in field_names(config)
        if name not in skipped and getattr(before, name) != getattr(config, name)
    ]
    return parts


def _preloaded(config: Config) -> dict[str, tuple[str, ...]]:
    return {name: skills for name, skills in config.preload.items() if skills}


def _rules(config: Config) -> Counter[tuple[str, Rule]]:
    # Those of a bundle are called by its digest, too.
    layers = [(layer.name.partition(" ")[0], layer.rules) for layer in config.layers]
    layers += [(f"agent {name}", layer.rules) for name, layer in config.agents.items()]
    layers += [(f"agent {name}", rules) for name, rules in config.skill_rules.items()]
    return Counter((name, rule) for name, rules in layers for rule in rules)


def _changed_rules(before: Config, config: Config) -> tuple[str, ...]:
    old, new = _rules(before), _rules(config)
    signed = [("+", one) for one in (new - old)] + [("-", one) for one in (old - new)]
    return tuple(
        f"{sign} {layer}: {rule.effect} {rule.action} {rule.pattern}"
        for sign, (layer, rule) in signed
    )


def _news(
    changed: tuple[Path, ...], parts: list[str], restart: tuple[str, ...], rules: tuple[str, ...]
) -> ConfigNews:
    paths = ", ".join(f"`{path}`" for path in changed)
    text = f"configuration reloaded: {paths}" if paths else "configuration reloaded"
    if parts:
        text += f" ({', '.join(parts)})"
    if restart:
        names = ", ".join(f"`{name}`" for name in restart)
        text += f"; {names} {'needs' if len(restart) == 1 else 'need'} a restart"
    return ConfigNews(text=text, files=_digests(changed), rules=rules)


def _digests(changed: tuple[Path, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((str(path), _digest(path)) for path in changed)


def _digest(path: Path) -> str:
    try:
        return digest(read_regular(path, CONFIG_FILE_MAX))
    except FileNotFoundError:
        return "gone"
    except (OSError, ConfigError):
        return "unreadable"

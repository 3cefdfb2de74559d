"""The signed bundle of skills that the configuration names: taken whole, or the last one kept.

What was taken is in the cache of other servers' skills, swapped in at once. The highest number that
was taken is in the state, so that a cleared cache forgets none.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from skillhouse import registry, remote
from skillhouse.audit import AuditError
from skillhouse.audit.log import recorded
from skillhouse.floor import (
    ConfigError,
    DecodeError,
    SkillhouseError,
    as_error,
    decode,
    digest,
    encode,
    make_private,
    needs_extra,
    shaped,
    structs,
    tree_digest,
    write_atomically,
)
from skillhouse.floor.digests import canonical_json
from skillhouse.floor.documents import json_value
from skillhouse.floor.lock import locked_file
from skillhouse.house.code_manifests import Reloads
from skillhouse.house.config.allowed_sources import check_source
from skillhouse.house.config.bundle_files import (
    BUNDLE_CONFIG,
    BUNDLE_POLICY,
    NUMBER,
    BundleState,
    TakenBundle,
    bundle_link,
    read_state,
    state_file,
    taken_bundle,
)
from skillhouse.house.config.config_files import bundle_settings
from skillhouse.house.config.secret_places import read_secret
from skillhouse.house.configured_thread import ConfiguredThread
from skillhouse.house.own_files import audit_log_of
from skillhouse.remote import cache_sync
from skillhouse.skill import ARCHIVE_MAX
from skillhouse.skill.archive import write_members
from skillhouse.tiers import TierPolicy, read_tier_policy

if TYPE_CHECKING:
    from skillhouse.house.config import Config
    from skillhouse.house.config.repositories import SkillsSettings
    from skillhouse.remote import ObjectStore, StoreAccess
    from skillhouse.remote.object_store import OpenStore

logger = logging.getLogger(__name__)

POINTER = "current.json"
"""The object that names the current archive."""
POINTER_MAX = 1_024
"""Bytes of it."""
PROBLEM_MAX = 500
FAILED_SECONDS = 30.0
"""Before the next try after one that failed, or `source_seconds` where that is less."""
_SESSION_KEYS = {
    "session_key_ttl_hours": "sessionKeyTtlHours",
    "session_key_max_balance": "sessionKeyMaxBalance",
}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class BundlePointer(Struct, frozen=True, kw_only=True):
    """What `current.json` says. It is not signed: what it names is, with its number."""

    digest: str
    number: int

    @property
    def path(self) -> str:
        """Where the archive is; it never changes there."""
        return archive_path(self.digest)

    def as_json(self) -> bytes:
        return canonical_json(structs.asdict(self))


class BundleLook(Struct, frozen=True, kw_only=True):
    """What came of one look at the source."""

    state: BundleState
    status: Literal["taken", "unchanged", "refused"]


def archive_path(archive_digest: str) -> str:
    """Return the name of an archive in its store.

    >>> archive_path("sha256:" + "0" * 64)[:14]
    'bundles/000000'
    """
    return f"bundles/{archive_digest.removeprefix('sha256:')}.tar.gz"


def bundle_place(config: Config) -> Path:
    """Return the directory of the cache for the configured bundle."""
    return bundle_link(config.remote_directory, config.skills.source).parent


def bundle_skills(config: Config) -> Path:
    """Return the root below which its skills are found; it may not exist yet."""
    return bundle_place(config) / cache_sync.CURRENT / cache_sync.SKILLS


def store_access(settings: SkillsSettings, environment: Mapping[str, str]) -> StoreAccess:
    """Return how the store is reached; ConfigError where a secret is not at its place."""
    return remote.StoreAccess(
        endpoint=settings.source_endpoint,
        region=settings.source_region,
        access_key=read_secret(
            settings.source_access_key,
            "the id of the key for the bucket",
            environment,
            key="skills.source_access_key",
        ),
        secret_key=read_secret(
            settings.source_secret_key,
            "the secret of the key for the bucket",
            environment,
            key="skills.source_secret_key",
        ),
    )


def read_pointer(store: ObjectStore) -> tuple[BundlePointer | None, remote.StoredObject | None]:
    """Return what is current, None for nothing, with the object that says so.

    Raises:
        RemoteError: the store does not answer, or what is there is no pointer.
    """
    found = store.read(POINTER, POINTER_MAX)
    if found is None:
        return None, None
    try:
        pointer = shaped(json_value(found.data), BundlePointer)
    except DecodeError as error:
        raise remote.RemoteError(f"`{POINTER}` cannot be read: {error}") from error
    hexadecimal = pointer.digest.removeprefix("sha256:")
    if len(hexadecimal) != 64 or not set(hexadecimal) <= set("0123456789abcdef"):
        raise remote.RemoteError(f"`{POINTER}` names no archive by its digest")
    return pointer, found


def publish_bundle(store: ObjectStore, archive: bytes, number: int) -> BundlePointer:
    """Store an archive, which nothing changes there, and make it the current one.

    Raises:
        RemoteError: the store does not answer, or has a current one of this number or a later one,
            or another machine published at this moment; the archive may be there, and counts for
            nothing.
    """
    pointer = BundlePointer(digest=digest(archive), number=number)
    before, found = read_pointer(store)
    if before is not None and before.number >= number:
        raise remote.RemoteError(f"bundle {before.number} is published already")
    # INVARIANT: the archive is there, whole, before anything names it.
    if not store.create(pointer.path, archive):
        there = store.read(pointer.path, ARCHIVE_MAX)
        if there is None or digest(there.data) != pointer.digest:
            raise remote.RemoteError(f"`{pointer.path}` is there with other bytes")
    if not store.replace(POINTER, pointer.as_json(), found):
        raise remote.RemoteError("another bundle was published at this moment; try again")
    return pointer


class SkillBundleSource:
    """The bundle of one configuration."""

    def __init__(
        self,
        config: Config,
        *,
        open_store: OpenStore | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """Take the configuration, which names a source; `open_store` and `now` are for tests."""
        self._config = config
        self._settings = config.skills
        self._open_store = open_store or remote.open_store
        self._now = now or (lambda: datetime.now(UTC))
        source, state = config.skills.source, config.state_directory
        self._state_file = state_file(state, config.remote_directory, source)

    def state(self) -> BundleState:
        """Return what was taken; an empty one where nothing was, or the file cannot be read."""
        return read_state(self._state_file, self._settings.source)

    def was_asked(self) -> bool:
        """Whether the source answered well within `source_seconds`, to any process."""
        state = self.state()
        try:
            asked = datetime.strptime(state.asked_at, _TIME).replace(tzinfo=UTC)
        except ValueError:
            return False
        age = (self._now() - asked).total_seconds()
        return not state.problem and 0 <= age < self._settings.source_seconds - 1

    def is_here(self) -> bool:
        """Whether the skills of an accepted bundle are in the cache."""
        state = self.state()
        is_named = state.publisher == self._settings.source_publisher
        return state.has_any and is_named and self._kept_digest() == state.digest

    def trial(self, *, allow_older: bool = False) -> BundleLook:
        """Return what `look` would find now: all is fetched and verified, and nothing written."""
        before = self.state()
        try:
            bundle = self._newer(before, allow_older=allow_older)
        except Exception as error:  # noqa: BLE001 - a stranger's bytes, as in `look`.
            state = structs.replace(before, problem=str(as_error(error))[:PROBLEM_MAX])
            return BundleLook(state=state, status="refused")
        if bundle is None:
            return BundleLook(state=before, status="unchanged")
        return BundleLook(state=self._state_of(bundle, f"{self._now():{_TIME}}"), status="taken")

    def look(self, *, allow_older: bool = False) -> BundleLook:
        """Take the current bundle if it is another one; what is wrong keeps the last good one.

        One process of this state looks at a time; another one waits for it. `allow_older` is a
        person's word that the bundle may have a lower number.

        Raises:
            AuditError: the log cannot be written; nothing was taken.
        """
        make_private(self._state_file.parent)
        # INVARIANT: what is written of a look is over what was read for it, so no number is lost.
        with locked_file(self._state_file.with_name("lock")):
            return self._looked(allow_older=allow_older)

    def _looked(self, *, allow_older: bool) -> BundleLook:
        before = self.state()
        moment = f"{self._now():{_TIME}}"
        try:
            after = self._taken(before, moment, allow_older=allow_older)
        except AuditError:
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's bytes, at the edge of a thread.
            problem = str(as_error(error))[:PROBLEM_MAX]
            state = structs.replace(before, problem=problem, failures=before.failures + 1)
            self._write(state)
            return BundleLook(state=state, status="refused")
        status: Literal["taken", "unchanged"] = (
            "unchanged" if after.digest == before.digest else "taken"
        )
        state = structs.replace(after, asked_at=moment, problem="", failures=0)
        self._write(state)
        return BundleLook(state=state, status=status)

    def _newer(self, before: BundleState, *, allow_older: bool) -> registry.SkillBundle | None:
        """Return the current bundle, verified; None where it is here already."""
        check_source(self._config.registry, self._settings.source)
        access = store_access(self._settings, self._config.places.environment)
        store = self._open_store(self._settings.source, access)
        pointer, _ = read_pointer(store)
        if pointer is None:
            raise remote.RemoteError(f"there is no bundle at `{self._settings.source}`")
        if pointer.digest == before.digest and self._is_whole(before):
            return None
        if not (allow_older or self._settings.source_allow_older):
            # What is swapped in counts, also where the disk was full before it was written down.
            here = self._in_cache()
            if here.directory is not None and here.number > before.number:
                before = structs.replace(before, number=here.number, digest=here.digest)
            _refuse_older(before, pointer.number, pointer.digest)
        found = store.read(pointer.path, ARCHIVE_MAX)
        if found is None:
            raise remote.RemoteError(f"`{POINTER}` names `{pointer.path}`, which is not there")
        if (own := digest(found.data)) != pointer.digest:
            raise remote.RemoteError(f"expected {pointer.digest} at `{pointer.path}`, got {own}")
        bundle = self._opened(found.data)
        if bundle.number != pointer.number:
            message = f"`{POINTER}` says bundle {pointer.number}, signed is {bundle.number}"
            raise remote.RemoteError(message)
        return bundle

    def _state_of(self, bundle: registry.SkillBundle, moment: str) -> BundleState:
        return BundleState(
            source=self._settings.source,
            number=bundle.number,
            digest=bundle.digest,
            publisher=f"{bundle.publisher.handle} of {bundle.publisher.registry}",
            signed_at=bundle.publisher.signed_at,
            taken_at=moment,
            skills=tuple(sorted(bundle.skills)),
            files=tuple(sorted(bundle.files)),
        )

    def _taken(self, before: BundleState, moment: str, *, allow_older: bool) -> BundleState:
        bundle = self._newer(before, allow_older=allow_older)
        if bundle is None:
            return before
        state = self._state_of(bundle, moment)
        log = audit_log_of(self._config)
        arguments = {"source": state.source, "number": state.number, "digest": state.digest}
        with closing(log), recorded(log, "bundle", arguments):
            self._swap_in(bundle)
        self._write(state)
        # Code of skills that runs was read from the files before.
        Reloads(self._config.state_directory).signal_all()
        return state

    def _opened(self, data: bytes) -> registry.SkillBundle:
        """Return the bundle in an archive, by the publisher that is pinned; PublisherError else."""
        with needs_extra("registry"):
            from skillhouse.registry.trust_anchors import AnchorStore  # noqa: PLC0415 - an extra
        now = self._now()
        directory = self._config.state_directory / registry.TRUSTED_DIRECTORY
        anchors = AnchorStore(directory).read(now)
        bundle = registry.open_bundle(data, self._settings.source_name, anchors=anchors, now=now)
        who = f"{bundle.publisher.handle} of {bundle.publisher.registry}"
        if who != self._settings.source_publisher:
            message = f"expected a bundle of `{self._settings.source_publisher}`, `{who}` signed it"
            raise registry.PublisherError("identity", message)
        # INVARIANT: what a bundle may not set is found before any of it is used.
        check_files(bundle.files)
        return bundle

    def _is_whole(self, state: BundleState) -> bool:
        """Whether the cache has the files of an accepted bundle."""
        root = os.path.realpath(bundle_skills(self._config))
        taken = self._in_cache()
        try:
            taken.contents()
        except ConfigError:
            return False
        return (
            taken.directory is not None
            and taken.digest == state.digest
            and not any(
                cache_sync.cache_fault(root, os.path.join(root, name, "")) for name in state.skills
            )
        )

    def _in_cache(self) -> TakenBundle:
        remotes, own = self._config.remote_directory, self._config.state_directory
        return taken_bundle(self._settings, remotes, own)

    def _kept_digest(self) -> str:
        """Return the digest of the archive in the cache, empty for none."""
        try:
            path = bundle_place(self._config) / cache_sync.CURRENT / cache_sync.VERSIONS
            return decode(path.read_bytes(), dict[str, str]).get("", "")
        except (OSError, DecodeError):
            return ""

    def _swap_in(self, bundle: registry.SkillBundle) -> None:
        """Write the files beside those in use, compare them, and replace all at once."""
        place = bundle_place(self._config)
        make_private(place)
        with cache_sync.hold_place(place):
            # Calls that run go on with the files that they found.
            earlier = cache_sync.current_name(place)
            staging = place / f"staging-{secrets.token_hex(8)}"
            try:
                write_members(bundle.members, staging)
                for name, expected in bundle.skills.items():
                    if tree_digest(staging / cache_sync.SKILLS / name) != expected:
                        raise remote.RemoteError(f"`{name}` is not on the disk as it was signed")
                (staging / cache_sync.DIGESTS).write_bytes(encode(dict(bundle.skills)))
                digests = {name: str(digest(data)) for name, data in bundle.files.items()}
                about = {"": str(bundle.digest), NUMBER: str(bundle.number), **digests}
                (staging / cache_sync.VERSIONS).write_bytes(encode(about))
                cache_sync.swap_in(place, staging)
            finally:
                cache_sync.tidy(place, beside=earlier)

    def _write(self, state: BundleState) -> None:
        with write_atomically(self._state_file, durable=True) as file:
            file.write(encode(state))


class BundleRefresh(ConfiguredThread):
    """Looks for a newer bundle while a process runs, from where and as often as is configured."""

    name = "bundle"

    def _is_wanted(self) -> bool:
        return bool(self._house.config.skills.source)

    def _run(self) -> None:
        is_first = True
        while not self._ended.is_set():
            is_changed = self._changed.is_set() and not is_first
            self._changed.clear()
            config = self._house.config
            seconds, is_first = float(config.skills.source_seconds), False
            # Of several processes of this machine, one asks.
            if config.skills.source and (is_changed or not SkillBundleSource(config).was_asked()):
                began = time.monotonic()
                if not self._looked(config):
                    seconds = min(seconds, FAILED_SECONDS)
                seconds = max(seconds - (time.monotonic() - began), 1.0)
            if not self._ended.is_set():
                self._changed.wait(seconds)

    def _looked(self, config: Config) -> bool:
        """Whether one look was well; what was not is logged."""
        try:
            found = SkillBundleSource(config).look()
        except (SkillhouseError, OSError):
            logger.exception("looking for a bundle of skills")
            return False
        state = found.state
        if found.status == "refused":
            logger.warning("bundle `%s`: %s; %s", state.source, state.problem, kept(state))
        elif found.status == "taken":
            many = len(state.skills)
            logger.info("bundle %s of `%s`: %s skills", state.number, state.source, many)
        return found.status != "refused"


def _refuse_older(before: BundleState, number: int, found: str) -> None:
    """Refuse what was replaced already, and a second bundle of one number."""
    if number < before.number:
        message = (
            f"bundle {number} is older than {before.number}, which was taken at {before.taken_at}; "
            "`skillhouse bundle pull --allow-older` takes it"
        )
        raise remote.RemoteError(message)
    if number == before.number and found != before.digest:
        raise remote.RemoteError(f"there is another bundle {number} than the one that was taken")


def check_files(files: Mapping[str, bytes]) -> None:
    """Raise ConfigError for a configuration or a policy that no server takes from a bundle."""
    try:
        bundle_settings(files.get(BUNDLE_CONFIG, b""), None)
        if BUNDLE_POLICY not in files:
            return
        policy = read_tier_policy(files[BUNDLE_POLICY], Path(BUNDLE_POLICY))
    except RecursionError as error:
        raise ConfigError("the configuration of the bundle is nested too deeply") from error
    usual = TierPolicy()
    if policy.emergency_stop != usual.emergency_stop:
        # How this machine is stopped is not for who publishes skills to say.
        message = "key `emergencyStop` cannot be set by a bundle"
        raise ConfigError(message, path=Path(BUNDLE_POLICY), key="emergencyStop")
    for key, published in _SESSION_KEYS.items():
        most = getattr(usual.thresholds, key)
        if getattr(policy.thresholds, key) > most:
            message = f"expected at most {most} as `{published}` of a bundle"
            raise ConfigError(message, path=Path(BUNDLE_POLICY), key=published)


def kept(state: BundleState) -> str:
    """Return what is used instead of a bundle that is refused.

    >>> kept(BundleState(number=7)), kept(BundleState())
    ('bundle 7 is kept', 'there is none yet')
    """
    return f"bundle {state.number} is kept" if state.has_any else "there is none yet"


def bundle_note(config: Config) -> str:
    """Return the fault of the configured bundle in one line; empty for none, or none configured."""
    if not config.skills.source:
        return ""
    source = SkillBundleSource(config)
    state = source.state()
    said = f"bundle `{config.skills.source}`"
    if state.problem:
        return f"{said}: {state.problem}; {kept(state)}"
    if not source.is_here():
        return f"{said} was not taken yet: `up`, `mcp` and `skillhouse bundle pull` do it"
    return ""

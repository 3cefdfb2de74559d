"""Syncs a source into the cache: fetched beside it, checked, then swapped in at once.

The digests of what was synced are kept, and the cache is compared with them when it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import anyio
from msgspec import Struct

from skillhouse.floor import (
    SkillhouseError,
    TreeError,
    as_error,
    decode,
    encode,
    make_private,
    tree_digest,
)
from skillhouse.floor.lock import try_lock
from skillhouse.remote.source import (
    Artifact,
    RemoteError,
    RemoteListing,
    RemoteSkill,
    RemoteSource,
    read_listing,
)
from skillhouse.skill import ARCHIVE_MAX, FILE_MAX, SKILL_FILE, unpack

DIGESTS = "digests"
"""The file beside the skills of one sync with the tree digest of each, swapped in with them."""
SKILLS = "skills"
VERSIONS = "versions"
CURRENT = "current"


def read_digests(synced: Path) -> Mapping[str, str]:
    """Return the digests of one sync, by the name of the skill's directory; none if unreadable."""
    try:
        return decode((synced / DIGESTS).read_bytes(), dict[str, str])
    except (OSError, SkillhouseError):
        return {}


def cache_fault(root: str, file: str) -> str:
    """Return why a cached skill is not what was synced; empty where it is.

    Args:
        root: The directory `skills` of a sync, by its real path.
        file: A file below one of its skills.
    """
    name = os.path.relpath(file, root).split("/", 1)[0]
    expected = read_digests(Path(root).parent).get(name)
    if expected is None:
        return "it is not known which files were synced"
    try:
        digest = tree_digest(Path(root, name))
    except (TreeError, OSError) as error:
        return f"its files cannot be compared with those that were synced: {error}"
    return "" if digest == expected else "its files are not those that were synced"


def place_of(cache: Path, kind: str, address: str) -> Path:
    """Return the directory of the cache for what is at one address."""
    key = hashlib.sha256(f"{kind} {address}".encode()).hexdigest()
    return cache / key[:32]


def cache_place(cache: Path, source: RemoteSource) -> Path:
    return place_of(cache, source.kind, source.url)


def skills_place(cache: Path, source: RemoteSource) -> Path:
    """Return the root below which a source's skills are found; it may not exist yet."""
    return cache_place(cache, source) / CURRENT / SKILLS


def cached(cache: Path, source: RemoteSource) -> Mapping[str, str]:
    """Return the version of each of a source's skills in the cache; none without a valid one."""
    try:
        data = (cache_place(cache, source) / CURRENT / VERSIONS).read_bytes()
        return decode(data, dict[str, str])
    except (OSError, SkillhouseError):
        return {}


INDEX_MAX = 1024 * 1024
"""Bytes of an index."""
PARALLEL = 4
"""Skills that are fetched at a time."""
NAME_SHOWN = 80
"""Characters of a file's name in a message."""


class Fetched(Struct, frozen=True):
    status: int
    url: str
    """Where it came from, after redirects."""
    body: bytes


Fetch = Callable[[str, int], Awaitable[Fetched]]
"""Takes an address and the most bytes to take; raises `SkillhouseError` when there is no answer
or a larger one. Checking where an address leads is its part, not ours."""


class SyncReport(Struct, frozen=True, kw_only=True):
    source: RemoteSource
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Unchanged, or not to be had this time."""
    repaired: tuple[str, ...] = ()
    """Of the same version, and fetched again because the files here were others."""
    problems: tuple[str, ...] = ()


async def sync(source: RemoteSource, cache: Path, fetch: Fetch) -> SyncReport:
    """Bring the cache up to date with a source: all skills in one swap, or nothing.

    A skill that cannot be fetched or checked stays as it was. Fetched files are outside every
    scanned root until they are checked.

    Raises:
        RemoteError: the source has no index that can be read; nothing was changed.
    """
    place = cache_place(cache, source)
    make_private(place)
    with hold_place(place):
        listing = await fetch_listing(source, fetch)
        before = cached(cache, source)
        staging = place / f"staging-{secrets.token_hex(8)}"
        (staging / SKILLS).mkdir(parents=True, mode=0o700)
        try:
            problems = list(listing.problems)
            known = read_digests(place / CURRENT)
            faulty = _faulty(place, before)
            fetched: set[str] = set()
            after = await _staged(
                listing, place, before, staging, fetch, problems, faulty=faulty, fetched=fetched
            )
            # INVARIANT: files that were not fetched now never make a digest that fits them.
            digests = {
                name: tree_digest(staging / SKILLS / name)
                if name in fetched
                else known.get(name, "")
                for name in after
            }
            (staging / VERSIONS).write_bytes(encode(after))
            (staging / DIGESTS).write_bytes(encode(digests))
            if after != before or digests != known or faulty & fetched:
                swap_in(place, staging)
        finally:
            tidy(place)
    same = {name for name in after.keys() & before.keys() if after[name] == before[name]}
    repaired = tuple(sorted(same & faulty & fetched))
    return SyncReport(
        source=source,
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(n for n in after.keys() & before.keys() if after[n] != before[n])),
        removed=tuple(sorted(before.keys() - after.keys())),
        kept=tuple(sorted(n for n in same if n not in repaired)),
        repaired=repaired,
        problems=tuple(problems),
    )


def _faulty(place: Path, versions: Mapping[str, str]) -> frozenset[str]:
    """Return the cached skills that are not what was synced."""
    root = os.path.realpath(place / CURRENT / SKILLS)
    return frozenset(name for name in versions if cache_fault(root, os.path.join(root, name, "")))


async def fetch_listing(source: RemoteSource, fetch: Fetch) -> RemoteListing:
    """Return what a server offers; RemoteError if it has no index that can be read."""
    for address in source.indexes:
        try:
            response = await fetch(address, INDEX_MAX)
        except SkillhouseError as error:
            raise RemoteError(f"cannot reach `{address}`: {error}") from error
        if response.status == 200:
            return read_listing(source, response.body, response.url)
    raise RemoteError(f"no index at {', '.join(f'`{one}`' for one in source.indexes)}")


async def _staged(
    listing: RemoteListing,
    place: Path,
    before: Mapping[str, str],
    staging: Path,
    fetch: Fetch,
    problems: list[str],
    *,
    faulty: frozenset[str],
    fetched: set[str],
) -> dict[str, str]:
    """Put each listed skill into `staging`, new or as it is; return the version of each.

    Those in `faulty` are fetched again; `fetched` receives what came from the server now.
    """
    after: dict[str, str] = {}
    failures: list[OSError] = []
    slots = anyio.CapacityLimiter(PARALLEL)

    async def one(skill: RemoteSkill) -> None:
        old = place / CURRENT / SKILLS / skill.name
        target = staging / SKILLS / skill.name
        is_same = bool(skill.version) and before.get(skill.name) == skill.version
        is_same = is_same and skill.name not in faulty
        try:
            if is_same:
                shutil.copytree(old, target, copy_function=os.link)
                after[skill.name] = skill.version
                return
            async with slots:
                after[skill.name] = await fetch_skill(skill, target, fetch)
                fetched.add(skill.name)
        except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
            problems.append(f"`{skill.name}` not taken: {_said(error)}")
            shutil.rmtree(target, ignore_errors=True)
            if skill.name not in before:
                return
            try:
                shutil.copytree(old, target, copy_function=os.link)
            except OSError as failure:
                # INVARIANT: what is here stays as it was, so without it nothing is swapped in.
                failures.append(failure)
                tasks.cancel_scope.cancel()
                return
            after[skill.name] = before[skill.name]

    async with anyio.create_task_group() as tasks:
        for skill in listing.skills:
            tasks.start_soon(one, skill)
    if failures:
        raise failures[0]
    return after


def _said(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return str(as_error(error))
    name = Path(str(error.filename or "")).name[:NAME_SHOWN]
    return error.strerror.lower() + (f": `{name}`" if name else "")


async def fetch_skill(skill: RemoteSkill, target: Path, fetch: Fetch) -> str:
    """Fetch and check one skill into the new directory `target`.

    Return its version, or a digest of what came without one.

    Raises:
        RemoteError, ArchiveError: it cannot be had, or is not what was listed.
    """
    content = hashlib.sha256()
    left = ARCHIVE_MAX
    for artifact in skill.artifacts:
        body = await _body(artifact, fetch, left)
        left -= len(body)
        content.update(f"{artifact.path} {len(body)} ".encode())
        content.update(body)
        if not artifact.path:
            if SKILL_FILE not in unpack(body, target):
                raise RemoteError(f"no {SKILL_FILE} at the top of the archive")
            continue
        _write(target / artifact.path, body)
    return skill.version or f"sha256:{content.hexdigest()}"


def _write(file: Path, body: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "xb") as handle:
            handle.write(body)
    except (FileExistsError, NotADirectoryError) as error:
        raise RemoteError(f"`{file.name}` is a file and a directory at once") from error


async def _body(artifact: Artifact, fetch: Fetch, left: int) -> bytes:
    limit = min(left, FILE_MAX if artifact.path else ARCHIVE_MAX)
    try:
        response = await fetch(artifact.url, limit)
    except SkillhouseError as error:
        raise RemoteError(f"cannot fetch `{artifact.url}`: {error}") from error
    if response.status != 200:
        raise RemoteError(f"status {response.status} at `{artifact.url}`")
    if len(response.body) > limit:
        raise RemoteError(f"expected at most {limit} bytes at `{artifact.url}`")
    # INVARIANT: nothing whose digest differs is written at all.
    digest = f"sha256:{hashlib.sha256(response.body).hexdigest()}"
    if artifact.digest and artifact.digest != digest:
        raise RemoteError(f"expected {artifact.digest} at `{artifact.url}`, got {digest}")
    return response.body


def swap_in(place: Path, staging: Path) -> None:
    """Make `staging` current by replacing one symbolic link, which readers see whole or not."""
    link = place / f"next-{secrets.token_hex(8)}"
    link.symlink_to(staging.name)
    os.replace(link, place / CURRENT)


def current_name(place: Path) -> str:
    """Return the name of the directory that is current; empty for none."""
    current = place / CURRENT
    return os.readlink(current) if current.is_symlink() else ""


def tidy(place: Path, *, beside: str = "") -> None:
    """Remove everything but what is current, and `beside`; whoever reads an old file keeps it
    open."""
    kept = {CURRENT, "lock", current_name(place), beside}
    for entry in os.scandir(place):
        if entry.name in kept:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


@contextlib.contextmanager
def hold_place(place: Path) -> Iterator[None]:
    """Hold a source for this process: two that sync at once would undo each other."""
    with open(place / "lock", "wb") as file:
        if not try_lock(file.fileno()):
            raise RemoteError("another process is syncing this source; try again later")
        yield

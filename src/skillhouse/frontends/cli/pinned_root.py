"""`skillhouse keys trust --repository`: pins the root of a repository that a person looked at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from skillhouse.floor import SkillhouseError, needs_extra, read_regular
from skillhouse.frontends.answers.signatures import KeyChangeAnswer
from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.question import confirmed
from skillhouse.frontends.presentation.text import counted, shown
from skillhouse.install.pinned_roots import keep_root, kept_roots
from skillhouse.install.repositories import Repositories, read_token, repository_at
from skillhouse.registry.owners import FIRST_ROOT, METADATA_DIRECTORY

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.house.config import RepositorySettings

_ROOT_MAX = 512_000


def add_pin_options(trust: argparse.ArgumentParser) -> None:
    """Add to `keys trust` what is about the root of a repository."""
    group = trust.add_argument_group("the root of a repository")
    group.add_argument(
        "--repository",
        metavar="NAME",
        help="pin FILE, a root or its https address, for it; without FILE, the root it has now",
    )
    group.add_argument(
        "--fingerprint", metavar="sha256:…", help="that the root must have; do not ask"
    )


def pin_root(
    house: Skillhouse, options: argparse.Namespace, terminal: Terminal
) -> tuple[KeyChangeAnswer, str]:
    """Pin a root once a person agreed to its fingerprint; return a value and its text.

    Raises:
        UsageError: no one can be asked, and no fingerprint is given.
        SkillhouseError: it is another root, none, or no person agreed.
    """
    if options.remove is not None or options.use != "skills":
        raise UsageError("--repository pins a root: it goes with FILE and --fingerprint only")
    state = house.config.state_directory
    settings = Repositories(house.config, house.services.network).named(options.repository)
    data = _given(house, settings, options.file)
    with needs_extra("registry"):
        # python-tuf is an optional part, which takes 0.1 s to load.
        from skillhouse.registry.signed_targets import read_root
    root = read_root(data)
    before = kept_roots(state).get(settings.name, "")
    terminal.note(f"root {root.version} of `{settings.name}`, {shown(settings.url)}")
    terminal.note(f"  fingerprint  {root.digest}")
    keys = counted(root.keys, "key")
    terminal.note(f"  signed by    {root.threshold} of {keys}, until {root.ends:%Y-%m-%d}")
    if before not in ("", root.digest):
        terminal.note(f"  in place of  {before}")
    if not _agreed(root.digest, options.fingerprint, terminal):
        raise SkillhouseError("nothing was pinned")
    keep_root(settings, data, state)
    value = KeyChangeAnswer(repository=settings.name, root=root.digest)
    return value, f"pinned for `{settings.name}`: {root.digest}"


def _agreed(found: str, wanted: str | None, terminal: Terminal) -> bool:
    if wanted is None:
        question = "Did its owner give you this fingerprint, by another way than the repository?"
        return confirmed(question, terminal, instead="say --fingerprint sha256:…")
    if found.removeprefix("sha256:") != wanted.lower().removeprefix("sha256:"):
        raise SkillhouseError(f"expected a root with the fingerprint {wanted}, got {found}")
    return True


def _given(house: Skillhouse, settings: RepositorySettings, name: str | None) -> bytes:
    """Return the bytes of the root that is meant."""
    if name is None:
        token = read_token(settings, house.config.places.environment)
        repository = repository_at(house.services.network, settings.url, token=token)
        data = repository.read(f"{METADATA_DIRECTORY}/{FIRST_ROOT}", _ROOT_MAX)
        if data is None:
            raise SkillhouseError(f"`{settings.name}` has no root: its metadata is not signed")
        return data
    if "://" not in name:
        return read_regular(Path(name).expanduser(), _ROOT_MAX)
    fetch = house.services.network.download_for(name)
    answer = anyio.run(fetch, name, _ROOT_MAX)
    if answer.status != 200:
        raise SkillhouseError(f"status {answer.status} at `{name}`")
    return bytes(answer.body)

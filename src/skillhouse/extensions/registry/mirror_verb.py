"""`skillhouse registry mirror`: a copy of a repository that needs no server of its own."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.answers.json_form import Count, JsonAnswer
from skillhouse.frontends.cli.options import add_common, house_of, positive
from skillhouse.house import Skillhouse
from skillhouse.install import Repositories, read_token, repository_at
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal


class MirrorAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What was read of a registry, and what was new."""

    source: str
    directory: str
    skills: Count
    changed: Count
    archives: Count
    bytes: Count
    problems: tuple[str, ...]


_GIB = 1024**3


def configure_mirror(mirror: argparse.ArgumentParser) -> None:
    add = mirror.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="the name of a configured repository, an address, or a mirror",
    )
    add(
        "directory",
        metavar="DIRECTORY",
        help="an empty directory, or the mirror to bring up to date",
    )
    add("--skill", dest="skills", action="append", default=[], metavar="NAME",
        help="only this one, `pdf` or `@acme/pdf`; may be repeated")  # fmt: skip
    add(
        "--check", action="store_true", help="read every archive here again, and compare everything"
    )
    add("--max-gib", type=positive, default=registry.MIRROR_BYTES_MAX // _GIB, metavar="N",
        help="the most that all archives may take (50)")  # fmt: skip
    add_common(mirror)


def run_mirror(options: argparse.Namespace, terminal: Terminal) -> int:
    """Bring a mirror up to date; 1 when something of the source could not be mirrored."""
    directory = Path(options.start or ".", options.directory).absolute()
    with house_of(options) as house:
        address, token = _source(options, house)
        opened = partial(repository_at, house.services.network, address, token=token)
        with registry.MirrorDirectory(directory) as mirror:
            done = registry.update_mirror(
                mirror,
                opened,
                skills=options.skills,
                check=options.check,
                max_bytes=options.max_gib * _GIB,
                report=lambda line: terminal.note(shown(line)),
            )
    for problem in done.problems:
        terminal.error(problem)
    text = (
        f"{counted(done.looked_at, 'skill')} read, {done.changed} with something new: "
        f"{counted(done.archives, 'archive')}, {done.bytes} bytes"
    )
    value = MirrorAnswer(
        source=address,
        directory=str(directory),
        skills=done.looked_at,
        changed=done.changed,
        archives=done.archives,
        bytes=done.bytes,
        problems=tuple(done.problems),
    )
    terminal.answer(value, text, as_json=options.json)
    return 1 if done.problems else 0


def _source(options: argparse.Namespace, house: Skillhouse) -> tuple[str, str]:
    """Return the address and the token of a source; a configured one has its own token."""
    text: str = options.source
    if "://" in text:
        return text, ""
    if text.startswith((".", "/", "~")):
        return str(Path(options.start or ".", Path(text).expanduser()).absolute()), ""
    settings = Repositories(house.config, house.services.network).named(text)
    return settings.url, read_token(settings, house.config.places.environment)

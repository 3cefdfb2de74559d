"""What a person sees of a skill before it is in force: whose it is, and what it would do here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from skillhouse import net
from skillhouse.floor import EXECUTABLE_MODE, PersistentPaths, Tree
from skillhouse.floor.regex import regex
from skillhouse.house.house import Skillhouse
from skillhouse.house.rehearsal import MentionVerdict, judged_mentions
from skillhouse.install.build_origins import AttestedBuild
from skillhouse.install.repositories import RepositoryOffer
from skillhouse.permission import Effect, Permission
from skillhouse.registry import (
    InstallPlace,
    LockEntry,
    Publisher,
    SkillFacts,
    TreeChanges,
    is_older,
)
from skillhouse.skill import UnjudgedBlock, hidden_text
from skillhouse.tools import ForecastCache, PermissionRequest, UnknownToolError

HOSTS_MAX = 50
"""Hosts that are listed; of more the number is given."""
TEXT_MAX = 1024 * 1024
"""Bytes of a file that is searched for hosts and hidden text."""

UNREADABLE = "an address that cannot be read"
"""What is said of an address that leads to no host which could be reached."""

_ADDRESS = regex(
    r"(?<![A-Za-z0-9])(https?)://+(?=([^\s/?#\\\"'<>`|{}()]+))",
    re.IGNORECASE,
)
"""A scheme, and what a client would take for the authority (RFC 3986, 3.2), but for the signs that
surround an address in Markdown, HTML, JSON and a shell. It is looked at and not passed over: the
next address may begin in it."""
_HOST = regex(r"(?:\[[0-9A-Fa-f:.%]*\]|[^\W_](?:[\w.%\u3002\uff0e\uff61-]*[^\W_])?)(?::\d+)?")
"""An address in brackets, or a name up to its last letter or digit, and a port. The three signs
beyond ASCII are full stops of names, too (UTS #46)."""


class HostVerdict(Struct, frozen=True, kw_only=True):
    """A host that the files mention, and what a request to it would meet."""

    origin: str
    files: tuple[str, ...]
    effect: Effect
    reason: str


class SkillEffects(Struct, frozen=True, kw_only=True):
    """What a skill would do here, as far as its files say so."""

    mentions: tuple[MentionVerdict, ...] = ()
    unjudged: tuple[UnjudgedBlock, ...] = ()
    hosts: tuple[HostVerdict, ...] = ()
    hosts_omitted: int = 0
    hidden: tuple[tuple[str, str], ...] = ()
    """Files that hide text from people, and what is hidden."""
    executables: tuple[str, ...] = ()
    obeyed: tuple[tuple[str, str], ...] = ()
    """Files that other programs act on where the skill is, and which programs."""


class InstallReport(Struct, frozen=True, kw_only=True):
    """Everything that is shown of one skill before it is installed."""

    facts: SkillFacts
    tree: Tree
    publisher: Publisher | None
    entry: LockEntry
    """What the lock would have."""
    inside: str
    """The directory in the source."""
    source: str
    """As the operator's rules about sources name it."""
    place: InstallPlace
    effects: SkillEffects
    offer: RepositoryOffer | None = None
    """What its repository says of it; None for other sources."""
    installed: LockEntry | None = None
    """What is installed now."""
    changes: TreeChanges | None = None
    """From what is installed, where both are known."""
    difference: tuple[str, ...] = ()
    """The same as lines of a diff."""
    lacking: tuple[str, ...] = ()
    """Files that its source names and does not hold, each with the reason."""
    held: str = ""
    """How long an update is still held back because it is new; empty where it is not."""
    waiting: str = ""
    """A newer version than this one that is held back, and until when; empty for none."""
    near: str = ""
    """Which other skill its name may be taken for; empty for none, and for an installed one."""
    rewritten: str = ""
    """What its repository did to the commit that is installed; empty where that is in its past."""
    attested: AttestedBuild | None = None
    """Where it was built; None where that is not asked: another source, or just these files."""
    unexpected: str = ""
    """How it is not built as earlier versions were; empty where it is."""
    also_at: tuple[str, ...] = ()
    """Other directories at its source that hold a skill of this name, where it moved."""

    @property
    def name(self) -> str:
        """What it is called here; its SKILL.md may say a name that no directory can have."""
        return self.entry.path.rpartition("/")[2]

    @property
    def moved_from(self) -> str:
        """The directory at its source that it is installed from, where that is another one."""
        before = self.installed
        if before is None or before.repository != self.entry.repository:
            return ""
        return "" if before.inside == self.inside else before.inside or "."

    @property
    def is_same(self) -> bool:
        """Whether just these files are installed, with just this signature."""
        return self.installed is not None and self.installed.is_same_as(self.entry)

    @property
    def is_signed_again(self) -> bool:
        """Whether just these files are installed, with another signature."""
        installed = self.installed
        return (
            installed is not None and installed.tree_digest == self.tree.digest and not self.is_same
        )

    @property
    def is_untrusted(self) -> bool:
        """Whether a person must agree to the repository that it is from."""
        return self.offer is not None and not self.offer.settings.trusted

    @property
    def is_obeyed(self) -> bool:
        """Whether a person must agree to files that other programs act on."""
        return bool(self.effects.obeyed)

    @property
    def is_downgrade(self) -> bool:
        """Whether a newer version is installed."""
        return self.installed is not None and is_older(self.entry.version, self.installed.version)


def judged_hosts(
    house: Skillhouse, texts: Iterable[tuple[str, str]], lines: ForecastCache | None = None
) -> tuple[HostVerdict, ...]:
    """Return the hosts that texts mention, by their files, with the verdict of each."""
    seen = lines or ForecastCache()
    found: dict[str, set[str]] = {}
    for name, text in texts:
        for origin in hosts_in(text):
            found.setdefault(origin, set()).add(name)
    return tuple(_host(house, origin, sorted(found[origin]), seen) for origin in sorted(found))


def hosts_in(text: str) -> frozenset[str]:
    """Return where the addresses in a text lead: origins, and `UNREADABLE` for what is none.

    Total: any text has an answer.

    >>> sorted(hosts_in("[https://react.dev](https://react.dev) and HTTP://[::1]:80/x"))
    ['http://[::1]', 'https://react.dev']
    >>> sorted(hosts_in("https://[port]/"))
    ['an address that cannot be read']
    """
    return frozenset(_origin(scheme, authority) for scheme, authority in _ADDRESS.findall(text))


def _origin(scheme: str, authority: str) -> str:
    # A client goes to what follows the last `@`, whatever the name before it seems to be.
    place = authority.rpartition("@")[2]
    host = _HOST.match(place)
    # Clients leave out signs that are not seen, so the name may go on after one.
    if host is None or not place[host.end() :][:1].isprintable():
        return UNREADABLE
    try:
        return net.parse_url(f"{scheme.lower()}://{host[0]}").origin
    except net.NetError:
        return UNREADABLE


def _host(house: Skillhouse, origin: str, files: list[str], seen: ForecastCache) -> HostVerdict:
    effect, reason = seen.once(("host", origin), lambda: _reached(house, origin))
    return HostVerdict(origin=origin, files=tuple(files), effect=effect, reason=reason)


def _reached(house: Skillhouse, origin: str) -> tuple[Effect, str]:
    """Return what a request to a host would meet, and why."""
    if origin == UNREADABLE:
        return Effect.DENY, "no request leads there"
    need = PermissionRequest(
        permission=Permission(action="fetch", resource=f"GET {origin}/"),
        default=Effect.ASK,
        why="",
    )
    try:
        forecast = house.forecast("fetch", {}, need=need)
    except UnknownToolError as error:
        return Effect.DENY, str(error)
    return forecast.effect, forecast.reasons[0]


def texts_of(directory: Path, tree: Tree) -> Iterable[tuple[str, str]]:
    """Yield the files that are text, with their paths."""
    for one in tree.files:
        if one.size > TEXT_MAX:
            continue
        try:
            text = (directory / one.path).read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if "\0" not in text:
            yield one.path, text


def files_hiding(texts: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the files with hidden text and what it is."""
    found = ((name, hidden_text(text)) for name, text in texts)
    return tuple((name, hidden.summary) for name, hidden in found if hidden is not None)


def obeyed_files(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the files of a skill that no tool may write, or that agents take orders from, with
    the reason. What builds and packages use is ordinary in a skill.

    >>> [path for path, _ in obeyed_files(["SKILL.md", ".claude/settings.json", "package.json"])]
    ['.claude/settings.json']
    """
    known = PersistentPaths()
    for path in paths:
        group = known.group(path)
        if group is not None and (known.is_never(path) or "obey" in group.why):
            yield path, group.why


def skill_effects(
    house: Skillhouse,
    directory: Path,
    tree: Tree,
    facts: SkillFacts,
    lines: ForecastCache | None = None,
) -> SkillEffects:
    """Return what the skill in `directory` would do here; `lines` is shared by several."""
    texts = tuple(texts_of(directory, tree))
    mentions, unjudged = judged_mentions(house, facts.body, directory, lines=lines)
    hosts = judged_hosts(house, texts, lines)
    return SkillEffects(
        mentions=mentions,
        unjudged=unjudged,
        hosts=hosts[:HOSTS_MAX],
        hosts_omitted=max(0, len(hosts) - HOSTS_MAX),
        hidden=files_hiding(texts),
        executables=tuple(one.path for one in tree.files if one.mode == EXECUTABLE_MODE),
        obeyed=tuple(obeyed_files(one.path for one in tree.files)),
    )

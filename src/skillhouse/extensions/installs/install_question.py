"""What a person is asked of a skill that a model wants installed, and what is never asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse.floor import SkillhouseError, digest, structs
from skillhouse.house.config.allowed_sources import rule_for
from skillhouse.install import UNSIGNED, UNTRUSTED, agreements
from skillhouse.install.source_policy import first_seen, held_back, required_age
from skillhouse.presentation.install_words import report_pairs
from skillhouse.presentation.text import cut
from skillhouse.registry import entry_value
from skillhouse.tools import one_line

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse
    from skillhouse.install import Installer, InstallReport, StagedSkill
    from skillhouse.skill import Skill

ONE_APPROVAL = frozenset({UNSIGNED, UNTRUSTED})
"""What one approval agrees to, since the question says it first; all else needs a typed word."""
FACT_CHARS = 600
DESCRIPTION_CHARS = 300
"""Characters of one fact, and of what a skill or a repository says of a skill."""
VERDICTS_SHOWN = 20
"""Commands and hosts, each, whose verdicts are shown."""


class NotAskedError(SkillhouseError):
    """A skill is not installed for a model, whatever a person would answer."""

    code = "not-asked"


class InstallQuestion(Struct, frozen=True, kw_only=True):
    """One skill as a person is asked about it."""

    name: str
    version: str
    repository: str
    """As the lock has it: a repository's name with a namespace, or an address."""
    tree_digest: str
    resolved: str
    title: str
    binding: str
    """Digest of all that is installed: files, signature, source and place."""
    agreed: tuple[str, ...]
    """The words of `install_policy` that one approval covers."""
    shown: tuple[tuple[str, str], ...]
    """The report of an install. Verdicts of rules are in it, so that no approval is bound to it."""
    description: str
    """The skill's own words."""

    @property
    def detail(self) -> dict[str, str]:
        """What the audit record of the call has."""
        return {
            "name": self.name,
            "version": self.version,
            "digest": self.tree_digest,
            "source": self.resolved,
        }


def question_of(house: Skillhouse, installer: Installer, staged: StagedSkill) -> InstallQuestion:
    """Return what a person is asked of a staged skill.

    Raises:
        NotAskedError: it is refused without a question, or a skill of its name is there already.
        InstallError: `policy` or `place`, as of `Installer.install`.
    """
    report = staged.report
    _check_place(house, report)
    words = agreements(report)
    _check_asked(report, words)
    installer.check_allowed(staged, agreed=words)
    _check_age(house, report)
    installer.check(staged)
    entry = report.entry
    version = bounded_line(entry.version, 60)
    said = ["it is unsigned"] * (report.publisher is None)
    said += ["its repository is not trusted"] * report.is_untrusted
    head = f"install the skill `{report.name}`" + (f" {version}" if version else "")
    return InstallQuestion(
        name=report.name,
        version=version,
        repository=entry.repository,
        tree_digest=entry.tree_digest,
        resolved=entry.resolved,
        title="; ".join([f"{head} from {bounded_line(entry.repository, 120)}", *said]),
        binding=_binding(report, words),
        agreed=words,
        shown=tuple(_shown(report)),
        description=bounded_line(report.facts.description, DESCRIPTION_CHARS),
    )


def bounded_line(text: str, chars: int) -> str:
    """Return untrusted text on one line without what cannot be seen, of at most so many columns."""
    return cut(one_line(text[: 8 * chars]), chars)


def _check_place(house: Skillhouse, report: InstallReport) -> None:
    """Refuse a name that a skill has, from wherever that is: the new one would hide it, be hidden,
    or replace it, and each is for a person to choose."""
    name = report.name
    here = next((one.id for one in skills_called(house, name)), "")
    if report.installed is not None:
        raise NotAskedError(
            f"`{name}` is installed already; load it with the skill tool, or tell the user that "
            f"`skillhouse update {name}` brings a newer version"
        )
    if here:
        raise NotAskedError(
            f"a skill `{name}` is here already, as {here}: another one of this name is for the "
            "user to install"
        )


def skills_called(house: Skillhouse, name: str) -> Iterator[Skill]:
    """Yield the skills that are here under a name or in a directory of it, shadowed ones too."""
    index = house.index
    for skill in (*index.skills, *index.shadowed, *house.view().waiting.values()):
        if name.casefold() in (skill.name.casefold(), skill.directory.name.casefold()):
            yield skill


def _check_asked(report: InstallReport, words: tuple[str, ...]) -> None:
    """Refuse what a person looks at by a word of its own, or what no one can read."""
    name = report.name
    by_hand = f"the user may look at it with `skillhouse install {bounded_line(name, 80)}`"
    further = [word for word in words if word not in ONE_APPROVAL]
    if further:
        raise NotAskedError(
            f"`{name}` needs more than one approval ({', '.join(further)}); {by_hand}"
        )
    if report.effects.hidden:
        where = bounded_line(report.effects.hidden[0][0], 120)
        raise NotAskedError(f"`{name}` hides text in `{where}`; {by_hand}")
    errors = [one for one in report.facts.diagnostics if one.severity.value == "error"]
    if errors:
        text = bounded_line(errors[0].message, 200)
        raise NotAskedError(f"`{name}` is not well-formed: {text}; {by_hand}")


def _check_age(house: Skillhouse, report: InstallReport) -> None:
    """Refuse a version that is younger than what is configured.

    A person who installs chose the version now; a model that finds one has not. Where nothing is
    configured, only the date of a trusted repository counts: the first sight of this machine would
    hold back everything that was never asked for.
    """
    settings, offer = house.config.registry, report.offer
    rule = rule_for(settings.sources, report.source)
    is_set = bool((rule.min_release_age if rule else "") or settings.min_release_age)
    age = required_age(settings, report.source, report.entry.requested, offer)
    if not age or not (is_set or (offer is not None and offer.settings.trusted)):
        return
    now = datetime.now(UTC)
    seen = first_seen(house.config.state_directory, report.entry, offer, now)
    if held := held_back(seen, age, now):
        raise NotAskedError(f"`{report.name}` is held back: {held}")


def _binding(report: InstallReport, words: tuple[str, ...]) -> str:
    publisher, offer = report.publisher, report.offer
    # The day of what has no date is today.
    entry = structs.replace(report.entry, dated="")
    content = {
        "entry": entry_value(entry),
        "place": str(report.place.target(report.name)),
        "agreed": list(words),
        "warnings": [] if publisher is None else list(publisher.warnings),
        "owners": None if offer is None or offer.owners is None else list(offer.owners),
        "published": "" if offer is None else offer.release.published_at,
        "lacking": list(report.lacking),
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return digest(text.encode())


def _shown(report: InstallReport) -> Iterator[tuple[str, str]]:
    for label, value in report_pairs(report):
        yield label, bounded_line(value, FACT_CHARS)
    effects = report.effects
    commands = [f"{one.effect}: {one.mention.text}" for one in effects.mentions]
    hosts = [f"{one.effect}: {one.origin}" for one in effects.hosts]
    for label, found, more in (
        ("commands and tools that it mentions", commands, len(effects.unjudged)),
        ("hosts that its files mention", hosts, effects.hosts_omitted),
    ):
        omitted = max(0, len(found) - VERDICTS_SHOWN) + more
        lines = [bounded_line(one, 120) for one in found[:VERDICTS_SHOWN]]
        lines += [f"and {omitted} more"] * bool(omitted)
        if lines:
            yield label, "; ".join(lines)

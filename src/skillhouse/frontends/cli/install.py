"""The verb that brings skills: `install`, also from another installer's lock."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from skillhouse import registry
from skillhouse.answers.installs import FrozenSkillAnswer, RestoredAnswer, locked_skill
from skillhouse.answers.packages import (
    RepositoriesAnswer,
    candidate_answer,
    installed_answer,
    package_answer,
)
from skillhouse.floor import SkillError, isolated
from skillhouse.frontends.cli.install_answers import (
    InstallAnswers,
    add_agreement,
    add_scope,
    installing,
    scope_of,
)
from skillhouse.frontends.cli.options import Parser, UsageError, Verb
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import can_ask, confirmed, need_terminal
from skillhouse.frontends.cli.tick_rows import TickRow, tick
from skillhouse.house import Skillhouse
from skillhouse.install import (
    ChangedSourceError,
    Installer,
    UnsignedError,
    UntrustedError,
    is_users_lock,
    named_entries,
    restored,
)
from skillhouse.install.change_plan import by_source, chosen_candidates
from skillhouse.install.install_steps import install_step
from skillhouse.install.public_collections import collections
from skillhouse.install.repository_search import judged_listing
from skillhouse.presentation.library import FIT_TEXTS, why
from skillhouse.presentation.text import counted, cut, one_line, shown
from skillhouse.registry import SourceError
from skillhouse.registry.repository import LISTED_MAX
from skillhouse.retrieval import Fit

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import OpenSource, RestoredSkill
    from skillhouse.registry import Candidate, InstallPlace, LockEntry, OtherEntry

_INSTALL_EXAMPLES = """examples:
  skillhouse install pdf                               from the configured repositories
  skillhouse install pdf@^1.2                          the newest version of a range
  skillhouse install @acme/pdf --repository official   of a namespace, from this repository
  skillhouse install --search "read pdf"               what the repositories have
  skillhouse install --search pdf --public             what public collections have
  skillhouse install anthropics/skills --list          what is there
  skillhouse install anthropics/skills --skill pdf     one of them
  skillhouse install acme/tools/skills/deploy@v2       a directory, at a tag or commit
  skillhouse install https://git.example/team/skills.git//deploy@main
  skillhouse install https://github.com/acme/tools/tree/main/skills/deploy
  skillhouse install https://example.com/pdf-1.2.tar.gz --digest sha256:...
  skillhouse install https://example.com               its .well-known/agent-skills
  skillhouse install mcp:docs/pdf                      of a configured MCP server
  skillhouse install ./my-skill --project
  skillhouse install acme/tools --skill charts --prepare  with the packages of its code
  skillhouse install --frozen --project                all of skills.lock, exactly
  skillhouse install --from-lock skills-lock.json      what `npx skills` or clawhub installed

Everything about a skill is shown before it is in force. An unsigned one needs a person who
types `unsigned`, or --yes --allow-unsigned; one of a repository that is not trusted a person who
types `untrusted`, or --yes --accept-untrusted; one with files that agents and other programs
obey, such as CLAUDE.md, a person who types `obeyed`, or --yes --accept-obeyed; one whose name may
be taken for that of another skill a person who types `near`, or --yes --accept-near.
"""


def configure_install(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", nargs="?", help="NAME@RANGE, owner/repo, an address, or ./directory"
    )
    parser.add_argument(
        "--repository", default="", metavar="NAME", help="look for the name in this one alone"
    )
    parser.add_argument(
        "--public", action="store_true", help="look for the name in public collections of GitHub"
    )
    parser.add_argument("--search", metavar="TEXT", help="list the skills of the repositories")
    parser.add_argument(
        "--skill", action="append", default=[], metavar="NAME", help="this one; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="every skill of the source")
    parser.add_argument("--list", action="store_true", help="list the skills, install nothing")
    parser.add_argument(
        "--digest", default="", metavar="SHA256", help="what the archive's digest must be"
    )
    parser.add_argument("--frozen", action="store_true", help="what the lock has, and nothing else")
    parser.add_argument(
        "--from-lock", metavar="FILE", help="the skills of another installer's lock"
    )
    parser.add_argument(
        "--allow-changed", action="store_true", help="with --yes: other files than that lock's, too"
    )
    parser.add_argument("--offline", action="store_true", help="with --frozen: ask no source")
    parser.add_argument("--client", metavar="LIST", help="also put it where these clients read")
    parser.add_argument(
        "--prepare", action="store_true", help="also install the packages of its code, ahead"
    )
    add_scope(parser)
    add_agreement(parser)
    if isinstance(parser, Parser):
        parser.shorten_help(*_FIRST_PAGE)


_FIRST_PAGE = "skill all list search project frozen yes allow_unsigned dry_run json".split()
"""Options of a first day; with `--help` and `--help-all` they are twelve."""


def install(options: argparse.Namespace, terminal: Terminal) -> int:
    """Install skills of one source; 1 when one of them is refused."""
    changes_nothing = options.list or options.dry_run
    if not changes_nothing and not options.frozen:
        refuse_agents("install")
    with installing(options, terminal) as (house, installer):
        if options.search is not None or (
            options.list and not (options.source or options.from_lock)
        ):
            return _search(options, terminal, installer)
        place = installer.installed.place(scope_of(options, installer))
        if options.frozen:
            if options.source or options.from_lock:
                raise UsageError("--frozen takes everything from the lock, and no source")
            return _install_lock(options, terminal, installer, place)
        if options.from_lock:
            return install_from_lock(options, terminal, house, installer, place)
        if not options.source:
            message = "expected a source, or --frozen to install what the lock has"
            raise UsageError(f"{message}; see `skillhouse install --help`")
        found = _open(options, terminal, installer, place)
        for problem in found.problems:
            terminal.error(problem)
        if options.list:
            return _list(found, options, terminal)
        done = InstallAnswers(options, terminal, house)
        chosen = _chosen(found, options, terminal)
        stage = partial(installer.staged, found, place=place, requested=options.source)
        if len(chosen) > 1:
            done.take_set(installer, [(one.label, partial(stage, one)) for one in chosen])
            return done.end()
        for candidate in chosen:
            with done.each(candidate.label):
                done.take(installer, done.enter(stage(candidate)))
        return done.end()


def _open(
    options: argparse.Namespace, terminal: Terminal, installer: Installer, place: InstallPlace
) -> OpenSource:
    with install_step("source"):
        is_name = installer.sources.parse(options.source).kind == "name"
        if options.public and not is_name:
            raise UsageError("--public takes the name of a skill, or --search")
        if is_name and _looks_in_public(options, terminal, installer):
            options.source = installer.public().place(options.source)
    return installer.opened(
        options.source, expected=options.digest, repository=options.repository, place=place
    )


SEARCHED_MAX = 50
"""Skills of each repository that a search lists."""


def _search(options: argparse.Namespace, terminal: Terminal, installer: Installer) -> int:
    """List what the repositories have, each in turn; 1 when that is nothing."""
    limit = SEARCHED_MAX if options.search else LISTED_MAX
    text = options.search or ""
    problems: list[str] = []
    if _looks_in_public(options, terminal, installer):
        listed = installer.public().listed(problems.append)
        found, weak = judged_listing(listed, text)
        # Here are all skills of the collections, of which no server chose some.
        found = [one for one in found if not text or one.hit is not None][:limit]
    else:
        offered = installer.sources.repositories.listed(
            text, only=options.repository, limit=limit, problem=problems.append
        )
        found, weak = judged_listing(list(offered), text)
    for problem in problems:
        terminal.error(problem)
    if options.json:
        more = RepositoriesAnswer(weak=weak, problems=problems or UNSET)
        terminal.json_list("skills", list(map(package_answer, found)), more)
        return 1 if problems else 0
    if weak:
        # Names and descriptions say too little to say that nothing fits.
        terminal.note(FIT_TEXTS[Fit.WEAK])
    for settings, skill, hit in found:
        latest = f" {shown(skill.latest)}" if skill.latest else ""
        reason = f" ({why(hit)})" if hit is not None else ""
        about = one_line(skill.description)
        terminal.line(f"{settings.name}  {skill.typed}{latest}  {about}{reason}")
    if not found and not problems:
        terminal.note("no skill of the repositories fits")
    return 1 if problems else 0


def _looks_in_public(options: argparse.Namespace, terminal: Terminal, installer: Installer) -> bool:
    """Whether to look into the public collections: an option says so, or a person who is asked."""
    if options.public:
        if options.repository:
            raise UsageError("--public looks into public collections, and into no repository")
        return True
    is_configured = bool(installer.sources.repositories.all or options.repository)
    if is_configured or options.yes or options.json or not can_ask():
        return False
    names = ", ".join(collections())
    question = f"No repository is configured. Look into public collections of GitHub: {names}?"
    return confirmed(question, terminal, instead="use --public")


DESCRIPTION_SHOWN = 100
"""Columns of a description in a list."""


def _list(found: OpenSource, options: argparse.Namespace, terminal: Terminal) -> int:
    def line(one: Candidate) -> str:
        said = [f"refused: {shown(one.fault)}"] * bool(one.fault)
        said += [f"installed as {one.installed_as}"] * bool(one.installed_as)
        said += [f"without {shown(text)}" for text in one.lacking[:1]]
        said += [f"and {counted(len(one.lacking) - 1, 'file')} more"] * (len(one.lacking) > 1)
        said += [f"also at {shown(', '.join(one.links))}"] * bool(one.links)
        said += ["inside another skill"] * one.is_inner
        is_named = one.name and one.name != one.label.rpartition("/")[2]
        name = f" ({shown(one.name)})" if is_named and not one.installed_as else ""
        about = [cut(one_line(one.description), DESCRIPTION_SHOWN)] * bool(one.description)
        return "  ".join([f"{shown(one.label)}{name}", *said, *about])

    if found.git is not None:
        terminal.note(f"commit {found.git.commit} of {found.dated}")
    for text in found.unheld:
        terminal.note(shown(text))
    nothing = "no skill is there"
    return terminal.listing(
        found.candidates,
        candidate_answer,
        line,
        name="skills",
        as_json=options.json,
        nothing=nothing,
    )


def _chosen(
    found: OpenSource, options: argparse.Namespace, terminal: Terminal
) -> Sequence[Candidate]:
    """Return the skills that a person wants; `UsageError` where that is not known."""
    try:
        chosen = chosen_candidates(found, options.skill, everything=options.all)
    except SourceError as error:
        raise UsageError(str(error)) from error
    if chosen:
        others = len(found.candidates) - len(chosen)
        if others and not options.skill:
            more = counted(others, "more skill")
            terminal.note(f"{more} inside it: --list shows them, --skill or --all installs them")
        return chosen
    every = found.candidates
    names = ", ".join(one.label for one in every[:20])
    more = f" and {len(every) - 20} more" if len(every) > 20 else ""
    need_terminal(f"{len(every)} skills are there, name one with --skill: {names}{more}")
    rows = [TickRow(label=one.label, fault=one.fault) for one in every]
    return [every[place] for place in tick("Which ones?", rows, terminal)]


def _install_lock(
    options: argparse.Namespace, terminal: Terminal, installer: Installer, place: InstallPlace
) -> int:
    """Install exactly what the lock has; what is here already stays."""
    found: list[FrozenSkillAnswer] = []
    for at, name, entry in by_source(installer.installed.entries()):
        if at.scope != place.scope:
            continue
        status = "error"
        problem: str | UnsetType = UNSET
        with isolated() as failed:
            status = _install_locked(options, installer, name, entry, at)
        for error in failed:
            problem = str(error)
            terminal.error(f"{name}: {error}")
        installed = installed_answer(name, at.scope, entry)
        found.append(FrozenSkillAnswer(installed=installed, status=status, error=problem))
        if not options.json:
            terminal.line(f"{shown(name)}: {status}")
    if options.json:
        terminal.json_list("skills", found)
    return 1 if any(one.status == "error" for one in found) else 0


def _install_locked(
    options: argparse.Namespace,
    installer: Installer,
    name: str,
    entry: LockEntry,
    place: InstallPlace,
) -> str:
    state = installer.installed.state(name, entry, place)
    if state.is_well:
        return "as locked"
    if state.state != "missing" and not options.force:
        message = f"{state.problem}; `skillhouse verify {name}` shows more"
        raise SkillError("local-edits", place.target(name), message)
    with installer.locked(name, entry, place, offline=options.offline) as staged:
        if options.dry_run:
            return "would be installed"
        if staged.report.publisher is None and not options.allow_unsigned:
            raise UnsignedError("it is unsigned: use --allow-unsigned")
        if staged.report.is_untrusted and not options.accept_untrusted:
            message = f"`{entry.repository}` is not trusted: use --accept-untrusted"
            raise UntrustedError(message)
        if staged.report.is_obeyed and not options.accept_obeyed:
            raise UntrustedError("it brings files that other programs obey: use --accept-obeyed")
        installer.restore(staged, entry, force=options.force)
    return "installed"


_COMPARED = {
    "same": "its files are those that the lock has the hash of",
    "different": "its files are NOT those that the lock has the hash of",
    "unknown": "the lock has no hash that its files can be compared with",
}


def install_from_lock(
    options: argparse.Namespace,
    terminal: Terminal,
    house: Skillhouse,
    installer: Installer,
    place: InstallPlace,
) -> int:
    """Install what the lock names; 1 when one of them cannot be restored or is refused."""
    if options.source or options.digest or options.all:
        raise UsageError("--from-lock takes sources from the lock; --skill NAME picks some of them")
    path = house.config.places.start / Path(options.from_lock).expanduser()
    lock = registry.read_other_lock(path)
    entries = _wanted_entries(lock.entries, options.skill)
    if options.list:
        return _list_locked(entries, options, terminal)
    terminal.note(f"{shown(str(path))} ({lock.kind}): {counted(len(entries), 'skill')}")
    for entry in entries:
        terminal.note(f"  {_locked_line(entry)}")
    is_typed = is_users_lock(path, house.config.places)
    done = InstallAnswers(options, terminal, house)
    for entry in entries:
        with done.each(shown(entry.name)):
            found = done.enter(restored(installer, entry, place, is_typed=is_typed))
            _warn_of_change(found, options, terminal)
            compared = RestoredAnswer(lock_hash=found.comparison, note=entry.note)
            if done.take(installer, found.staged, restored=compared) and entry.pinned:
                installer.installed.pin(entry.name, scope=place.scope, reason=entry.pin_reason)
                terminal.note(f"{shown(entry.name)}: pinned, as in the lock")
    return done.end()


def _wanted_entries(entries: Sequence[OtherEntry], names: Sequence[str]) -> Sequence[OtherEntry]:
    try:
        return named_entries(entries, names)
    except registry.SourceError as error:
        raise UsageError(f"{error}; --list shows what is there") from error


def _warn_of_change(found: RestoredSkill, options: argparse.Namespace, terminal: Terminal) -> None:
    name = shown(found.staged.name)
    said = _COMPARED[found.comparison]
    if found.comparison != "different":
        terminal.note(f"{name}: {said}")
    elif options.yes and not options.allow_changed and not options.dry_run:
        raise ChangedSourceError(f"{said}; look at it at a terminal, or use --allow-changed")
    else:
        terminal.error(f"{name}: {said}")


def _list_locked(
    entries: Sequence[OtherEntry], options: argparse.Namespace, terminal: Terminal
) -> int:
    nothing = "no skill is in the lock"
    return terminal.listing(
        entries, locked_skill, _locked_line, name="skills", as_json=options.json, nothing=nothing
    )


def _locked_line(entry: OtherEntry) -> str:
    name = shown(entry.name[:80])
    if entry.fault:
        return f"{name}  cannot be restored: {one_line(entry.fault)}"
    inside = f"  in {shown(entry.inside)}" if entry.inside else ""
    note = f"  ({one_line(entry.note)})" if entry.note else ""
    return f"{name}  from {shown(entry.source)}{inside}{note}"


_SKILL_EXAMPLES = """examples:
  skillhouse skill install crypto-balance
  skillhouse skill install crypto-balance --profile owliabot-js     into workspace/skills

The same as `skillhouse install`, which has all the examples.
"""


def _configure_skill(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    configure_install(verbs.add_parser("install", help="install skills, as `skillhouse install`"))


VERBS = {
    "install": Verb(_INSTALL_EXAMPLES, configure_install, install),
    # The command as design 002 prints it.
    "skill": Verb(_SKILL_EXAMPLES, _configure_skill, install),
}

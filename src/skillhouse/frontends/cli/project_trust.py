"""The verb `trust`: shows a project's skills, and trusts them as they were shown."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.answers.trust import RevokedTrustAnswer, TrustView, trust_view
from skillhouse.floor import structs
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.presentation.skill_answers import facts_rows
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_TRUST_EXAMPLES = """examples:
  skillhouse trust --show        what would be trusted, and what changed since
  skillhouse trust               show them, ask, and trust them as they are now
  skillhouse trust --yes         without the question
  skillhouse trust --revoke

One trust is for the project: it shows and covers every skill that a client finds in it. It is
kept outside the project and bound to its path and to the digest of each skill: what is new or
changed later is asked about again. A git worktree of a trusted repository is trusted for the
same skills, until the trust of either is revoked.
"""


def note_untrusted(house: Skillhouse, terminal: Terminal, *, count: int = 1) -> None:
    """Say what new skills of the project wait for."""
    is_trusted = house.project_trust.report().is_trusted
    it, its = ("it", "it is") if count == 1 else ("them", "they are")
    what = f"sees what {its} for, or loads {it} without asking," if is_trusted else f"sees {it}"
    terminal.note(f"no agent {what} until you run `skillhouse trust`")


def _configure_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", nargs="?", metavar="DIR", help="the project (default: here)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="only show how the skills stand")
    what.add_argument("--revoke", action="store_true", help="take the trust back")
    what.add_argument("--list", action="store_true", help="list all trusted projects")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_common(parser)


def _trust(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.project and not Path(options.project).is_dir():
        raise UsageError(f"expected a directory, got `{options.project}`")
    options.start = options.project or options.start
    house = house_of(options)
    if options.list:
        return terminal.listing(
            house.services.trust_store.projects(),
            str,
            shown,
            name="projects",
            as_json=options.json,
            nothing="no project is trusted",
        )
    if options.revoke:
        shared = house.services.trust_store.shared(house.project)
        revoked = house.project_trust.revoke()
        project = str(house.project)
        others = [place for place in shared if place != os.path.realpath(project)]
        text = f"{shown(project)} {'no longer trusted' if revoked else 'was not trusted'}"
        value = RevokedTrustAnswer(project=project, revoked=revoked, others=tuple(others))
        terminal.answer(value, text, as_json=options.json)
        for place in others:
            terminal.note(f"nor is {shown(place)}, of the same repository")
        return 0 if revoked else 1
    if not options.show:
        refuse_agents("trust")
        if not options.yes:
            # What is trusted is shown before the question.
            need_terminal("use --yes, or --show to look", as_json=options.json)
    view = trust_view(house)
    if not options.show and not options.yes:
        _print_trust(view, terminal)
        question = "Trust this project and these skills as they are now"
        if view.replaced:
            named = ", ".join(f"`{shown(other)}`" for other in view.replaced.values())
            question += f", and use its skills in place of {named}"
        if not confirmed(f"{question}?", terminal):
            terminal.note("nothing was trusted")
            return 1
        house.project_trust.trust(view.report)
        terminal.line(f"{shown(str(view.report.project))}: trusted")
        return 0
    if not options.show:
        view = structs.replace(view, report=house.project_trust.trust(view.report))
    if options.json:
        terminal.json(view.answer())
    else:
        _print_trust(view, terminal)
    return 0


def _print_trust(view: TrustView, terminal: Terminal) -> None:
    _print_skills(view, terminal)
    for finding in view.findings:
        terminal.line(finding_line(finding, terminal))
    if view.replaced:
        terminal.line()
        terminal.heading("used in place of others of the same name")
        terminal.rows([(shown(name), shown(other)) for name, other in view.replaced.items()])


def _print_skills(view: TrustView, terminal: Terminal) -> None:
    report, code = view.report, view.code
    what = counted(len(report.skills), "skill")
    if code:
        what += f", {len(code)} with tools of their own"
    word = "trusted" if report.is_trusted else "not trusted"
    terminal.line(f"{shown(str(report.project))}: {word}, {what}")
    for place in report.through:
        terminal.line(f"trusted as a worktree of the same repository: {shown(place)}")
    if report.skills:
        terminal.line()
    for found in report.skills:
        state = found.state if not found.problem else f"{found.state} ({one_line(found.problem)})"
        terminal.rows([(f"{shown(found.skill.name)}", f"{state}  {shown(found.directory)}")])
        # Models are shown what a person sees here, so it is whole.
        terminal.indented(one_line(found.skill.description), 4)
        earlier = found.earlier
        if earlier is not None and earlier.name != found.skill.name:
            terminal.indented(f"its name was: {one_line(earlier.name)}", 4)
        if earlier is not None and earlier.description != found.skill.description:
            terminal.indented(f"it was: {one_line(earlier.description)}", 4)
        for target in found.targets:
            terminal.indented(f"a link leads out of the project, to {shown(target)}", 4)
        if found.finders:
            terminal.indented(f"not found here, but by {', '.join(found.finders)}", 4)
        for reading in found.other_readings:
            said = f"`{one_line(reading.text.name)}`, {one_line(reading.text.description)}"
            terminal.indented(f"to {', '.join(reading.profiles)} it is: {said}", 4)
    if not code:
        return
    terminal.line()
    if view.reads_run:
        what = "those of level read run without a question once trusted, while the code is the same"
    else:
        what = "each asked about until a rule allows it"
    terminal.heading(f"with tools of their own, {what}")
    for facts in code:
        terminal.heading(f"  {shown(facts.name)}")
        for label, text in facts_rows(facts):
            terminal.pair(f"    {label}", text, label_width=18)
        for finding in facts.problems:
            terminal.line(f"    {finding_line(finding, terminal)}")


VERBS = {"trust": Verb(_TRUST_EXAMPLES, _configure_trust, _trust)}

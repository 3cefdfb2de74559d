"""Shows skills that are to be installed, and gets a person's answer about each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
from msgspec import UNSET, UnsetType

from skillhouse.answers.installs import (
    InstallRowAnswer,
    InstallStatus,
    RestoredAnswer,
    report_answer,
)
from skillhouse.clients import Action, Exporter, ExportRequest, ExportState
from skillhouse.floor import isolated, structs
from skillhouse.frontends.cli.install_review import print_report
from skillhouse.frontends.cli.install_set import NAMES_SHOWN, print_set
from skillhouse.frontends.cli.options import UsageError, add_common, house_of
from skillhouse.frontends.cli.progress import TransferProgress
from skillhouse.frontends.cli.project_trust import note_untrusted
from skillhouse.frontends.cli.question import need_terminal, typed
from skillhouse.frontends.cli.reload import reload_house
from skillhouse.house import Skillhouse, export_source
from skillhouse.install import Installer, dry_run_config
from skillhouse.install.change_plan import is_in_force
from skillhouse.install.install_policy import (
    NEAR,
    OBEYED,
    PROVENANCE,
    REWRITTEN,
    UNSIGNED,
    UNTRUSTED,
    agreements,
)
from skillhouse.presentation.text import counted, shown, some_names

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import InstallReport, StagedSkill

T = TypeVar("T")


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", action="store_true", help="in this project, not for the user")


def add_agreement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask about signed skills")
    parser.add_argument("--allow-unsigned", action="store_true", help="with --yes: unsigned, too")
    parser.add_argument(
        "--accept-untrusted",
        action="store_true",
        help="with --yes: of repositories that are not trusted, too",
    )
    parser.add_argument(
        "--accept-obeyed",
        action="store_true",
        help="with --yes: also with files that agents and other programs obey",
    )
    parser.add_argument(
        "--accept-near",
        action="store_true",
        help="with --yes: also of a name that may be taken for another one",
    )
    parser.add_argument(
        "--accept-rewritten",
        action="store_true",
        help="with --yes: also where a repository has another history, or a tag was moved",
    )
    parser.add_argument(
        "--accept-provenance",
        action="store_true",
        help="with --yes: also where a version was not built as earlier ones were",
    )
    parser.add_argument(
        "--force", action="store_true", help="also over local edits, which are kept for a rollback"
    )
    parser.add_argument("--dry-run", action="store_true", help="show it, install nothing")
    parser.add_argument("--full", action="store_true", help="show all changes")
    add_common(parser)


def scope_of(
    options: argparse.Namespace, installer: Installer | None = None
) -> Literal["user", "project"]:
    """Return the scope that is meant; a profile without the user's has the project's alone."""
    if options.project or (installer is not None and not installer.installed.has_place("user")):
        return "project"
    return "user"


@contextmanager
def trial_house(options: argparse.Namespace) -> Iterator[Skillhouse]:
    """Give what `house_of` does, with a copy of the state."""
    with (
        house_of(options) as real,
        dry_run_config(real) as config,
        Skillhouse(config) as house,
    ):
        yield house


@contextmanager
def installing(
    options: argparse.Namespace, terminal: Terminal
) -> Iterator[tuple[Skillhouse, Installer]]:
    progress = TransferProgress(terminal)

    def report(line: str) -> None:
        progress.begin()
        terminal.note(shown(line))

    with (
        trial_house(options) if getattr(options, "dry_run", False) else house_of(options) as house,
        Installer(house, report=report, progress=progress) as installer,
    ):
        try:
            yield house, installer
        finally:
            terminal.clear_status()


REASON_NAMES = 5
_FLAGS = {
    UNSIGNED: ("--allow-unsigned", "it is unsigned"),
    UNTRUSTED: ("--accept-untrusted", "its repository is not trusted"),
    OBEYED: ("--accept-obeyed", "it brings files that other programs obey"),
    NEAR: ("--accept-near", "its name may be taken for another one"),
    REWRITTEN: ("--accept-rewritten", "its source has another history, or its tag was moved"),
    PROVENANCE: ("--accept-provenance", "it was not built as earlier versions were"),
}
"""What a person types about a skill, with the flag and the reason of each word."""


class InstallAnswers:
    """Shows each skill, gets the person's answer, and keeps what came of it."""

    def __init__(self, options: argparse.Namespace, terminal: Terminal, house: Skillhouse) -> None:
        self._options = options
        self._terminal = terminal
        self._house = house
        self._rows: list[InstallRowAnswer] = []
        self._ids: list[str] = []
        self._placed: list[Path] = []
        self._failed = False
        self._brings_code = False
        self._untrusted = 0
        self._stack = ExitStack()

    @contextmanager
    def each(self, what: str) -> Iterator[None]:
        """Go on with the next skill after one that is refused, or at which something went wrong."""
        before = len(self._rows)
        # How the command was typed is about all of them.
        with isolated(passing=(UsageError,)) as failed, self._stack:
            yield
        for error in failed:
            self._failed = True
            self._terminal.error(f"{what}: {error}")
            # What was staged before it was refused has its row already.
            row = InstallRowAnswer() if len(self._rows) == before else self._rows.pop()
            status = row.status if row.status is UNSET else "refused"
            self._rows.append(structs.replace(row, status=status, source=what, error=str(error)))

    def _mark(self, status: InstallStatus) -> None:
        self._rows[-1] = structs.replace(self._rows[-1], status=status)

    def enter(self, staged: AbstractContextManager[T]) -> T:
        return self._stack.enter_context(staged)

    def take(
        self,
        installer: Installer,
        staged: StagedSkill,
        *,
        restored: RestoredAnswer | UnsetType = UNSET,
    ) -> bool:
        """Show a staged skill and install it if the person agrees; return whether it is in force.

        Args:
            restored: How it compares with the lock of another installer.
        """
        options, terminal, report = self._options, self._terminal, staged.report
        if not self._is_new(installer, staged, restored=restored):
            terminal.note(f"{shown(staged.name)}: just these files are installed already")
            return True
        if not options.json:
            print_report(report, terminal, full=options.full)
        if options.dry_run:
            return False
        installer.check(staged, force=options.force)
        words = agreements(report)
        if not self._is_agreed(words):
            self._mark("declined")
            terminal.note(f"{shown(staged.name)}: nothing was installed")
            self._failed = True
            return False
        # What was agreed to is this very report.
        installer.install(
            staged,
            agreed=words,
            ignore_age=getattr(options, "ignore_age", False),
            force=options.force,
        )
        self._installed(staged, len(self._rows) - 1)
        if not options.json:
            target = shown(str(report.place.target(staged.name)))
            terminal.line(f"{shown(staged.name)} is installed at {target}")
        return True

    def _is_new(
        self,
        installer: Installer,
        staged: StagedSkill,
        *,
        restored: RestoredAnswer | UnsetType = UNSET,
    ) -> bool:
        """Begin the row of a skill; return whether it is to be installed."""
        report = staged.report
        self._rows.append(InstallRowAnswer(report=report_answer(report), restored=restored))
        if not is_in_force(installer, staged):
            self._mark("shown")
            return True
        self._mark("unchanged")
        self._placed_at(staged)
        return False

    def _placed_at(self, staged: StagedSkill) -> None:
        place = staged.report.place
        self._ids.append(f"{place.scope}:{staged.name}")
        self._placed.append(place.target(staged.name))

    def _installed(self, staged: StagedSkill, row: int) -> None:
        report = staged.report
        self._rows[row] = structs.replace(self._rows[row], status="installed")
        self._placed_at(staged)
        if report.place.scope == "project":
            placed = report.place.target(staged.name)
            # A profile that runs skills' code has its tools from the install on (S002-102).
            if self._house.policy.reads_by_trust and self._house.project_trust.accept(placed):
                self._brings_code = True
            else:
                self._untrusted += 1

    def take_set(
        self,
        installer: Installer,
        each: Iterable[tuple[str, Callable[[], AbstractContextManager[StagedSkill]]]],
    ) -> None:
        """Stage skills of one source, show them together, and install them if the person agrees.

        Args:
            each: What is said of a skill that is refused, and what stages it.
        """
        options, terminal = self._options, self._terminal
        ready: list[tuple[int, StagedSkill]] = []
        unchanged = 0
        with ExitStack() as stack:
            for label, stage in each:
                with self.each(label):
                    staged = stack.enter_context(stage())
                    if not self._is_new(installer, staged):
                        unchanged += 1
                        continue
                    installer.check(staged, force=options.force)
                    installer.reserve(staged)
                    ready.append((len(self._rows) - 1, staged))
            if unchanged:
                many = counted(unchanged, "skill")
                terminal.note(f"{many}: just these files are installed already")
            if ready:
                self._take_ready(installer, ready)

    def _take_ready(self, installer: Installer, ready: Sequence[tuple[int, StagedSkill]]) -> None:
        options, terminal = self._options, self._terminal
        reports = [staged.report for _, staged in ready]
        if not options.json:
            self._show(reports)
        if options.dry_run:
            return
        words: dict[str, list[str]] = {}
        for report in reports:
            for word in agreements(report):
                words.setdefault(word, []).append(report.name)
        if not self._is_agreed(tuple(words), {} if len(ready) == 1 else words):
            for row, _ in ready:
                self._rows[row] = structs.replace(self._rows[row], status="declined")
            terminal.note("nothing was installed")
            self._failed = True
            return
        # What was agreed to are these very reports.
        every = [staged for _, staged in ready]
        faults = installer.install_all(
            every,
            agreed=words,
            ignore_age=getattr(options, "ignore_age", False),
            force=options.force,
        )
        done: list[str] = []
        for (row, staged), fault in zip(ready, faults, strict=True):
            if fault is None:
                self._installed(staged, row)
                done.append(staged.name)
                continue
            self._failed = True
            terminal.error(f"{staged.name}: {fault}")
            self._rows[row] = structs.replace(
                self._rows[row], status="refused", source=staged.name, error=str(fault)
            )
        if done and not options.json:
            verb = "is" if len(done) == 1 else "are"
            root = shown(str(reports[0].place.root))
            terminal.line(f"{some_names(done, NAMES_SHOWN)} {verb} installed in {root}")

    def _show(self, reports: Sequence[InstallReport]) -> None:
        options, terminal = self._options, self._terminal
        if not options.full and len(reports) > 1:
            here = {one.name for one in self._house.index.skills}
            print_set(reports, here - {one.name for one in reports}, terminal)
            return
        for report in reports:
            print_report(report, terminal, full=options.full)

    def _is_agreed(
        self, words: Sequence[str], of: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> bool:
        """Whether a person agrees to each of the words, which flags say elsewhere.

        Args:
            of: The skills of a set of which each is said; a person types their number, too.
        """
        options = self._options
        said = {
            UNSIGNED: options.allow_unsigned,
            UNTRUSTED: options.accept_untrusted,
            OBEYED: options.accept_obeyed,
            NEAR: options.accept_near,
            REWRITTEN: options.accept_rewritten,
            PROVENANCE: options.accept_provenance,
        }
        if options.yes and all(said[word] for word in words):
            return True
        flags = " ".join(("--yes", *(_FLAGS[word][0] for word in words)))
        reasons = [
            _FLAGS[word][1] + (f" ({some_names(of[word], REASON_NAMES)})" if word in of else "")
            for word in words
        ]
        kind = " and ".join(reasons) or "a person must agree"
        instead = f"use {flags}: {kind}"
        need_terminal(instead)
        asked = [f"{word} {len(of[word])}" if word in of else word for word in words or ("yes",)]
        return all(typed(word, self._terminal, instead=instead) for word in asked)

    def end(self) -> int:
        """Put what was installed where other clients read, write the JSON, and return the code."""
        if self._ids and not self._options.dry_run:
            clients = getattr(self._options, "client", None) or ""
            with self.each("copies"):
                self._export(tuple(filter(None, (name.strip() for name in clients.split(",")))))
        if self._brings_code:
            with self.each("reload"):
                self._failed |= not reload_house(self._house, self._terminal)
        if getattr(self._options, "prepare", False) and self._ids and not self._options.dry_run:
            with self.each("prepare"):
                self._prepare()
        if self._untrusted:
            note_untrusted(self._house, self._terminal, count=self._untrusted)
        if self._options.json:
            self._terminal.json_list("skills", self._rows)
        return 1 if self._failed else 0

    def _prepare(self) -> None:
        """Install the packages of what was installed; what fails is said of each."""
        if not self._house.services.skill_code.is_enabled:
            self._terminal.note("skills' own code is off: there is nothing to prepare")
            return
        for name, error in anyio.run(_prepared, self._house, self._ids, self._terminal.note):
            self._failed = True
            self._terminal.error(f"{shown(name)}: {shown(error)}")

    def _export(self, clients: tuple[str, ...]) -> None:
        """Write the copies for clients that were named, and again those of earlier exports."""
        self._house.refresh()
        exporter = Exporter(export_source(self._house))
        if clients:
            where = scope_of(self._options)
            request = ExportRequest(references=tuple(self._ids), clients=clients, where=where)
            for item in exporter.export(request):
                # The state is that of before.
                done = "already there" if item.action is Action.NONE else "written"
                word = done if item.is_well else item.reason
                self._terminal.note(f"{shown(', '.join(item.clients))}: {shown(word)}")
                self._failed = self._failed or not item.is_well
        for item in exporter.follow(*self._placed):
            names = shown(", ".join(item.clients)) or "copies"
            if item.done:
                self._terminal.note(f"{names}: its copy is updated, too: {shown(item.target)}")
            elif not item.is_well:
                said = item.reason or "the copy was changed there, and stays as it is"
                parts = (names, shown(item.target), shown(said))
                self._terminal.error(": ".join(filter(None, parts)))
                self._failed |= item.state is not ExportState.CHANGED_THERE


async def _prepared(
    house: Skillhouse, ids: Sequence[str], note: Callable[[str], None]
) -> tuple[tuple[str, str], ...]:
    from skillhouse.manage.code_reload import prepare_code

    try:
        return await prepare_code(house, ids, say=lambda text: note(shown(text)))
    finally:
        await house.release_loop()

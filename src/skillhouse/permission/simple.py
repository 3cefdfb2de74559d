"""Judges one simple command: its words, its variables and its redirections."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from skillhouse.floor.rules import Effect
from skillhouse.floor.structs import replace
from skillhouse.permission import hazards
from skillhouse.permission.command_paths import CommandPaths, found_commands, piped_command
from skillhouse.permission.command_reader import DEPTH_MAX, only_reads, read_command
from skillhouse.permission.command_rules import CommandRules, RuleOutcome
from skillhouse.permission.environment import setting_of
from skillhouse.permission.fence import Fence
from skillhouse.permission.grammar import CommandMeaning
from skillhouse.permission.hard_denies import HardDenies
from skillhouse.permission.path_policy import PROGRAMS, PathPolicy
from skillhouse.permission.patterns import (
    Breadth,
    guarded_patterns,
    pattern_concern,
    pattern_remarks,
)
from skillhouse.permission.plan import JudgedCommand, Redirect, SimpleCommand
from skillhouse.permission.raw_line import RawCommand, RawRedirect, Word
from skillhouse.permission.unknown_program import (
    BY_HAND,
    WORDS_MAX,
    possible_commands,
    runs_at_its_place,
    shape_concern,
    unlisted,
)

if TYPE_CHECKING:
    from skillhouse.permission.active_environment import ActiveEnvironment

Remark = tuple[Effect, str]


class SimpleVerdict(Struct):
    """The verdict on one simple command, and its place in a plan."""

    argv: tuple[str, ...]
    judged: JudgedCommand | None
    """None for what only sets variables."""
    remarks: list[Remark] = field(default_factory=list)
    """About its variables and patterns, and where it goes."""
    redirected: list[Remark] = field(default_factory=list)
    """About the files of its redirections."""
    simple: SimpleCommand | None = None
    """None for a `cd`, which the plan has done, and for what sets variables."""
    shell: str = ""
    """What only a shell can do about it."""


class CommandJudge:
    """Judges commands one after the other by the same rules and places."""

    def __init__(
        self, rules: CommandRules, places: PathPolicy, search_path: str = ":".join(PROGRAMS)
    ) -> None:
        self._rules = rules
        self._places = places
        self._search_path = search_path
        self._active: ActiveEnvironment | None = None
        """Once a command was seen that activates one."""
        self._refusals = HardDenies(rules, places)
        self._fence = Fence(
            rules,
            places,
            self._refusals,
            words=self.words,
            started=self._started,
            shape=self._shape,
        )

    def refusal(self, raw: RawCommand) -> Remark:
        """Return what denies a command of a line that only a shell can run, or an allow."""
        return self._refusals.of(raw)

    def command(self, raw: RawCommand, *, can_enter: bool) -> SimpleVerdict:
        """Judge a command of a plan.

        Args:
            can_enter: Whether a `cd` here surely happens before all that follows.
        """
        if _is_plain_command(raw.words):
            # It is no program, and means: not a function or alias, of which we have none.
            raw.words = raw.words[1:]
        argv = tuple(word.text for word in raw.words)
        if raw.only_sets:
            return self._setting(raw, argv)
        if raw.activates and (shell := self._entered(raw)) is not None:
            return SimpleVerdict(argv, self._without_rule(argv), shell=shell)
        active = self._active
        is_led = active is not None and active.lead(raw)
        argv = tuple(word.text for word in raw.words)
        judged = self._over_names(argv, raw) or self.words(argv, patterns=raw.words)
        verdict = SimpleVerdict(argv, judged)
        verdict.shell = _needs_shell(argv) or _shell_reason(active, judged, is_led=is_led)
        verdict.judged = self._after_variables(judged, raw, verdict)
        redirects = [self._redirect(redirect, verdict) for redirect in raw.redirects]
        if any(word.tilde for word in raw.words):
            verdict.shell = "`~` is expanded by a shell"
        if argv[0] == "cd":
            self._enter(raw, verdict, can_enter=can_enter)
            return verdict
        guarded = guarded_patterns(raw.words, self._places.names)
        verdict.simple = SimpleCommand(
            argv=argv,
            guarded=guarded,
            patterns=tuple((at, word.pattern) for at, word in enumerate(raw.words) if word.pattern),
            environment=self._variables_of(raw, judged),
            redirects=tuple(one for pair in redirects for one in pair),
            statuses=tuple(at for at, word in enumerate(raw.words) if word.holds_status),
        )
        verdict.remarks += pattern_remarks(raw.words, guarded)
        return verdict

    def _entered(self, raw: RawCommand) -> str | None:
        """Take an activation, as `ActiveEnvironment.entered` does."""
        # Loaded for a line that has one.
        from skillhouse.permission.active_environment import ActiveEnvironment  # noqa: PLC0415

        self._active = self._active or ActiveEnvironment(self._places, self._search_path)
        return self._active.entered(raw)

    def _variables_of(self, raw: RawCommand, judged: JudgedCommand) -> tuple[tuple[str, str], ...]:
        """Return the variables of a command: of an active environment, and those of its line."""
        found = self._active.variables(judged) if self._active is not None else {}
        return tuple({**found, **dict((*raw.exported, *raw.assignments))}.items())

    def _after_variables(
        self, judged: JudgedCommand, raw: RawCommand, verdict: SimpleVerdict
    ) -> JudgedCommand:
        """Judge the variables before a command; return the verdict on the command with them."""
        is_own = verdict.argv[0] == "cd" or not judged.needs_rule
        for place, (name, value) in enumerate((*raw.exported, *raw.assignments)):
            is_refused, concern = self._fence.variable_concern(judged, name, value)
            # What was exported for another command says nothing of what the runner of plans does
            # itself, of `echo`, and, if it is a setting, of what only reads.
            is_unheeded = (
                concern
                and not is_refused
                and place < len(raw.exported)
                and (is_own or (setting_of(name, value) is not None and only_reads(verdict.argv)))
            )
            if concern and not is_unheeded:
                verdict.remarks.append((Effect.DENY if is_refused else Effect.ASK, concern))
            argv = verdict.argv
            if judged.effect is Effect.ALLOW and self._rules.rule(argv).cover is Breadth.ALL:
                # Whoever runs the plan asks about it too, though `*` covers other variables.
                judged = self._fence.variable(argv, name, value) or judged
        return judged

    def _over_names(self, argv: tuple[str, ...], raw: RawCommand) -> JudgedCommand | None:
        """Return the verdict on what runs with names that are found, where all of it is allowed."""
        inner = piped_command(argv, raw.before)
        commands = (inner,) if inner else found_commands(argv)
        has_patterns = any(word.pattern or word.tilde for word in raw.words)
        if not commands or has_patterns or self._refusals.of_words(argv):
            return None
        ruling = self._rules.rule(argv)
        verdicts = [self.words(words) for words in commands]
        is_allowed = all(one.effect is Effect.ALLOW for one in verdicts)
        # INVARIANT: what the answer leaves out is no code of the workspace.
        is_plain = not any(one.scripts or one.unbound for one in verdicts[:-1])
        is_against = ruling.denied or ruling.asked
        return verdicts[-1] if is_allowed and is_plain and not is_against else None

    def _setting(self, raw: RawCommand, argv: tuple[str, ...]) -> SimpleVerdict:
        """Judge what only sets variables; what they mean is judged with the commands they reach."""
        verdict = SimpleVerdict(argv, self._without_rule(argv) if argv else None)
        for name, value in raw.assignments:
            is_refused, concern = self._refusals.variable_concern(name, value)
            if is_refused:
                verdict.remarks.append((Effect.DENY, concern))
        return verdict

    def _without_rule(self, argv: tuple[str, ...]) -> JudgedCommand:
        """Return the verdict on a command that needs no rule, though one may forbid it."""
        ruling = self._rules.rule(argv)
        if reason := ruling.denied or self._refusals.of_words(argv):
            return JudgedCommand(argv=argv, effect=Effect.DENY, reason=reason)
        if ruling.asked:
            return _asked(argv, ruling.asked, scrutiny=ruling.asked)
        return JudgedCommand(argv=argv, effect=Effect.ALLOW, needs_rule=False)

    def words(
        self,
        argv: tuple[str, ...],
        *,
        patterns: Sequence[Word] = (),
        depth: int = 0,
        is_guess: bool = False,
    ) -> JudgedCommand:
        """Judge the words of a command; a plain wrapper is judged by its inner command.

        With `is_guess` they may be one, and what their words may be is not tried again.
        """
        by_name = (
            self._by_name(argv, patterns, depth, is_guess=is_guess) if "/" in argv[0] else None
        )
        return by_name or self._words(argv, patterns, depth, is_guess=is_guess)

    def _words(
        self, argv: tuple[str, ...], patterns: Sequence[Word], depth: int, *, is_guess: bool
    ) -> JudgedCommand:
        if depth == 0 and not is_guess:
            refused = self._refusals.of_words(argv)
            if refused:
                return JudgedCommand(argv=argv, effect=Effect.DENY, reason=refused)
        name, ruling = argv[0], self._rules.rule(argv)
        if ruling.denied or depth > DEPTH_MAX:
            reason = ruling.denied or f"more than {DEPTH_MAX} wrappers"
            return JudgedCommand(argv=argv, effect=Effect.DENY, reason=reason)
        if ruling.asked:
            return _asked(argv, ruling.asked, scrutiny=ruling.asked)
        if name[:1] in ("", "-") or unicodedata.normalize("NFKC", name) != name:
            return _asked(argv, "the program's name is not what it seems", scrutiny="its name")
        if ruling.cover is Breadth.NONE and hazards.looks_up(argv):
            return self._without_rule(argv)
        return self._by_meaning(ruling, read_command(argv), patterns, depth, is_guess=is_guess)

    def _by_meaning(
        self,
        ruling: RuleOutcome,
        meaning: CommandMeaning,
        patterns: Sequence[Word],
        depth: int,
        *,
        is_guess: bool,
    ) -> JudgedCommand:
        """Judge a command that no rule is against by what its words mean."""
        argv = meaning.argv
        scripts = tuple(script for at in meaning.chain() for script in at.scripts)
        allowed = JudgedCommand(
            argv=argv, effect=Effect.ALLOW, scripts=scripts, unbound=ruling.unbound
        )
        if ruling.cover is Breadth.EXACT:
            return allowed
        if ruling.cover is Breadth.ALL:
            return (None if is_guess else self._fence.behind(meaning, patterns, depth)) or allowed
        if set_variables := self._variables(meaning, patterns, depth, is_guess=is_guess):
            return set_variables
        scrutiny = self._scrutiny(meaning, ruling, patterns)
        if not (scrutiny or is_guess or ruling.cover is Breadth.NONE):
            scrutiny = self._unlisted(meaning, ruling)
        if meaning.inner and not (meaning.unknown or scrutiny):
            rest = patterns[meaning.inner :]
            inner = argv[meaning.inner :]
            judged = self.words(inner, patterns=rest, depth=depth + 1, is_guess=is_guess)
            return self._within(argv, judged) if "/" in argv[0] else judged
        if ruling.cover is Breadth.NONE and not scrutiny and argv[0] in _SAYING:
            return self._without_rule(argv)
        if ruling.cover is Breadth.NONE:
            said = f"no rule covers `{_shown(argv)}`{hazards.without_shell(argv)}"
            return _asked(argv, said, scrutiny=scrutiny, scripts=scripts)
        if scrutiny:
            said = f"`{_shown(argv)}`: {scrutiny}"
            return _asked(argv, said, scrutiny=scrutiny, scripts=scripts)
        return allowed

    def _by_name(
        self, argv: tuple[str, ...], patterns: Sequence[Word], depth: int, *, is_guess: bool
    ) -> JudgedCommand | None:
        """Return the verdict on a program that a path names by the name that it has, if it is one
        of the system or of PATH, or if a rule covers it; None where its path is judged.

        A program of the workspace is one of its scripts besides, whose bytes are asked about.
        """
        ruling = self._rules.rule(argv)
        is_said = ruling.denied or ruling.asked or ruling.cover is not Breadth.NONE
        if is_said or self._refusals.of_words(argv):
            return None
        name = self._places.named_program(argv[0])
        if name and not self._places.is_in_tree(argv[0]):
            named, inside = (name, *argv[1:]), max(depth, 1)
            return self.words(named, patterns=patterns, depth=inside, is_guess=is_guess)
        last = argv[0].rpartition("/")[2]
        inner = (last, *argv[1:])
        is_own = self._places.binds_programs and self._places.is_own_program(argv[0])
        if not (last and is_own) or hazards.looks_up(inner):
            return None
        if _needs_shell(inner) or self._rules.rule(inner).literals == 0:
            return None
        judged = self.words(inner, patterns=patterns, depth=max(depth, 1), is_guess=is_guess)
        if judged.effect is not Effect.ALLOW or judged.argv != inner:
            return None
        return replace(judged, scripts=((argv[0],), *judged.scripts), is_own=True)

    def _within(self, argv: tuple[str, ...], judged: JudgedCommand) -> JudgedCommand:
        """Return the verdict on a command in what has the name of a wrapper, and may be code."""
        is_of_system = self._places.named_program(argv[0]) and not self._places.is_in_tree(argv[0])
        if judged.effect is not Effect.ALLOW or is_of_system:
            return judged
        if not (self._places.binds_programs and self._places.is_own_program(argv[0])):
            said = f"`{argv[0][:60]}` is named by a path, and may be another program"
            return _asked(argv, said, scrutiny=said)
        return replace(judged, scripts=((argv[0],), *judged.scripts), is_own=True)

    def _variables(
        self, meaning: CommandMeaning, patterns: Sequence[Word], depth: int, *, is_guess: bool
    ) -> JudgedCommand | None:
        """Return the verdict on a variable that a wrapper sets; None where all are harmless."""
        if not any(self._refusals.variable_concern(*pair)[1] for pair in meaning.environment):
            return None
        inner, rest = meaning.argv[meaning.inner :], patterns[meaning.inner :]
        judged = None
        if meaning.inner and not meaning.unknown:
            judged = self.words(inner, patterns=rest, depth=depth + 1, is_guess=is_guess)
        for variable, value in meaning.environment:
            is_refused, concern = self._fence.variable_concern(judged, variable, value)
            if concern:
                effect = Effect.DENY if is_refused else Effect.ASK
                return JudgedCommand(
                    argv=meaning.argv, effect=effect, reason=concern, scrutiny=concern
                )
        return None

    def fed(self, raws: Sequence[RawCommand]) -> list[str]:
        """Return why a text that a pipeline gives a program to read may start what is denied."""
        return self._fence.fed(raws)

    def _unlisted(self, meaning: CommandMeaning, ruling: RuleOutcome) -> str:
        """Return why a wildcard does not cover what it leaves open of a program without a table."""
        at, is_limited = unlisted(meaning)
        if at is None:
            return ""
        after = len(at.argv) - len(ruling.unnamed)
        concern = self._started(at.argv, after, in_texts=is_limited)
        return concern or (self._shape(at, ruling.unnamed) if is_limited else "")

    def _shape(self, meaning: CommandMeaning, words: Sequence[str]) -> str:
        program = meaning.argv[0]
        if "/" in program and not program.startswith(("/", "~")):
            return (
                ""  # It is code of the workspace, whatever its words are, and asked about as such.
            )
        return shape_concern(words, self._places)

    def _started(self, argv: Sequence[str], after: int = 1, *, in_texts: bool = True) -> str:
        """Return why words of a command would need approval as programs at their places.

        Args:
            argv: The program, and the words that it could start something by.
            after: Place of the first that no rule names; those before are asked about only where
                a rule asks.
            in_texts: Whether parts of words are tried too.
        """
        if len(argv) > WORDS_MAX:
            return f"more than {WORDS_MAX} words, each of which may be a program"
        for place, words, is_whole in possible_commands(argv):
            ruling = self._rules.rule(words)
            if ruling.denied or ruling.asked:
                return ruling.denied or ruling.asked
            is_tried = place >= after and (is_whole or in_texts)
            # Of an unknown program the first word may be what it starts, as that of `nice` is.
            is_first = is_whole and in_texts and all(word[:1] == "-" for word in argv[1:place])
            if is_tried and (runs_at_its_place(words) or (is_first and self._is_effective(words))):
                verdict = self.words(words, is_guess=True)
                if verdict.effect is not Effect.ALLOW:
                    return f"`{words[0][:60]}` is a program there: {verdict.reason}"
        return ""

    def _is_effective(self, words: tuple[str, ...]) -> bool:
        """Whether words name a program that is there and does more than read."""
        return self._places.has_program(words[0]) and not only_reads(words)

    def _scrutiny(
        self, meaning: CommandMeaning, ruling: RuleOutcome, patterns: Sequence[Word]
    ) -> str:
        """Return why a wildcard does not cover a command, or nothing."""
        argv = meaning.argv
        if hazards.base_name(argv[0]) in hazards.PRIVILEGED:
            return "it changes who runs it"
        if "/" in argv[0] and ruling.literals == 0 and ruling.cover is not Breadth.NONE:
            return "its program is named by a path, which no wildcard covers"
        if meaning.grammar is None and (said := hazards.running(argv[0])):
            return said
        if meaning.unknown:
            return meaning.unknown
        if meaning.path == ("checkout",) and ruling.literals < 2:
            words = meaning.words(meaning.operands)
            if len(words) == 1 and not meaning.options and self._places.kind_of(words[0]):
                return f"`{words[0][:60]}` is overwritten, with what is not committed"
        if ruling.literals < 2 and (said := self._overwritten(meaning)):
            return said
        left = ruling.left
        if ruling.cover is Breadth.NONE and meaning.hazards:
            left = meaning.hazards[0].said
        return (
            left
            or pattern_concern(meaning, patterns)
            or CommandPaths(self._places).concern(meaning, patterns)
        )

    def _overwritten(self, meaning: CommandMeaning) -> str:
        """Return which file is replaced by a program that mostly looks, or makes no such files."""
        is_looking = meaning.program in _LOOKING or meaning.argv[:2] == ("git", "archive")
        if meaning.program in _EDITING and not is_looking:
            return ""
        # Where it reads nothing besides, its purpose is to change what its words name.
        is_second = is_looking or bool(meaning.reads or meaning.read_values)
        for path in meaning.written if is_second else meaning.written_values:
            is_meant = not (is_looking or BY_HAND.fullmatch(path))
            if not is_meant and self._places.kind_of(path) in ("file", "code"):
                return f"`{path[:60]}` is overwritten"
        return ""

    def _redirect(self, raw: RawRedirect, verdict: SimpleVerdict) -> tuple[Redirect, ...]:
        if isinstance(raw.target, str):
            return (Redirect(descriptor=raw.descriptor, kind=raw.kind, target=raw.target),)
        path = raw.target.text
        if raw.target.tilde:
            verdict.shell = "`~` is expanded by a shell"
        if raw.kind == "read":
            concern = self._places.reading(path)
            effect = Effect.ASK if concern else Effect.ALLOW
        else:
            effect, concern = self._places.writing(path)
        if concern:
            verdict.redirected.append((effect, concern))
        elif not self._places.is_plain(path):
            verdict.redirected.append((Effect.ASK, f"`{path[:80]}` is perhaps no file"))
        target = path if path in hazards.DEVICES else self._places.resolved(path)
        made = Redirect(descriptor=raw.descriptor, kind=raw.kind, target=target)
        if not raw.both:
            return (made,)
        return made, Redirect(descriptor=2, kind="copy", target="1")

    def _enter(self, raw: RawCommand, verdict: SimpleVerdict, *, can_enter: bool) -> None:
        plain = len(raw.words) == 2 and not raw.redirects and not raw.assignments
        if not (plain and can_enter) or raw.words[1].pattern or raw.words[1].text[:1] in ("", "-"):
            verdict.shell = "a `cd` that is not the first command, or not to one directory"
        elif concern := self._places.enter(raw.words[1].text):
            verdict.remarks.append((Effect.ASK, f"`{_shown(verdict.argv)}`: {concern}"))
        ruling = self._rules.rule(verdict.argv)
        if ruling.cover is Breadth.NONE and not (verdict.shell or verdict.remarks):
            verdict.judged = self._without_rule(verdict.argv)


def _shell_reason(active: ActiveEnvironment | None, judged: JudgedCommand, *, is_led: bool) -> str:
    return "" if active is None else active.shell_reason(judged, is_led=is_led)


def _is_plain_command(words: Sequence[Word]) -> bool:
    return len(words) > 1 and words[0].text == "command" and words[1].text[:1] != "-"


_LOOKING = frozenset(
    "uniq shuf iconv tree xmllint xsv gettext ffprobe identify time ss journalctl nvidia-smi psql "
    "mysql pip".split()
)
"""Programs that mostly print, and can write what they print to a file instead."""
_EDITING = frozenset(
    "cp mv ln install tee touch truncate sed perl patch dd rm rmdir mkdir chmod chown chgrp git "
    "hg svn jj".split()
)
"""Programs that change the files which their words name; others make what no person writes."""
_SAYING = frozenset(("echo", "printf", "true", "false", ":", "test", "[", "which"))
"""Programs that need no rule: they print their words, or test a file of the workspace."""
_INFORMING = frozenset(("--help", "--version"))


def _needs_shell(argv: tuple[str, ...]) -> str:
    """Return why only a shell can run some words, or nothing."""
    name = argv[0]
    if (name in hazards.BUILTINS or name == "command") and not hazards.looks_up(argv):
        return f"`{name}` means something to a shell only"
    # A shell has these inside, and they differ from the programs in this.
    if name in (*_SAYING, "pwd") and name != "which" and not _INFORMING.isdisjoint(argv[1:2]):
        return f"`{name} {argv[1]}` is a shell's own"
    if argv == ("printf",):
        return "`printf` without words is a shell's own"
    is_escaped = name == "echo" and any(re.fullmatch("-[neE]*e[neE]*", word) for word in argv[1:])
    if is_escaped and any(re.search(r"\\[uUE]", word) for word in argv[2:]):
        return "`echo -e` is a shell's own"
    if name == "[" and argv[-1] != "]":
        return "`[` has no `]`"
    return ""


def _asked(
    argv: tuple[str, ...],
    reason: str,
    *,
    scrutiny: str = "",
    scripts: tuple[tuple[str, ...], ...] = (),
) -> JudgedCommand:
    return JudgedCommand(
        argv=argv, effect=Effect.ASK, reason=reason, scrutiny=scrutiny, scripts=scripts
    )


def _shown(argv: Sequence[str]) -> str:
    return " ".join(argv)[:120]

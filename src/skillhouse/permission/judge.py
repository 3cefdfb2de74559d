"""Judges a command line: allow, ask a person, or deny.

INVARIANT: every command is checked for a denial, also after a reason to ask was found, and the
strictest verdict wins.

`bash -lc 'LINE'` is judged and run as the line.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import STRICTNESS, Effect, strictest
from skillhouse.permission.command_rules import ArgumentRules, CommandRules
from skillhouse.permission.path_policy import DEPTH_MAX, PROGRAMS, PathPolicy
from skillhouse.permission.patterns import Breadth
from skillhouse.permission.plain_line import read_line
from skillhouse.permission.plan import (
    CommandPlan,
    CommandVerdict,
    JudgedCommand,
    Pipeline,
    SimpleCommand,
)
from skillhouse.permission.raw_line import Reading, UnreadableError
from skillhouse.permission.simple import CommandJudge

_READING = frozenset((("-c",), ("-lc",), ("-cl",), ("-l", "-c")))
_SAME = regex(r"[A-Za-z0-9_ ./:@%+,\"'&|;\n-]*")
"""Texts that every shell reads as bash does: no patterns, variables, braces or backslashes."""
_OTHERS = frozenset(("sh", "dash", "zsh", "ksh"))


def shell_line(argv: Sequence[str], rules: CommandRules, places: PathPolicy) -> str:
    """Return the line that a shell would read, or nothing where the command is not only that.

    A rule about the shell's own words that forbids, asks or names them all comes first.
    """
    name, options, text = argv[0], tuple(argv[1:-1]), argv[-1]
    if options not in _READING or not text.strip():
        return ""
    is_same = (
        name in _OTHERS
        and _SAME.fullmatch(text)
        and "|&" not in text
        and "source" not in text
        and _is_plain(text)
    )
    if name != "bash" and not is_same:
        return ""
    ruling = rules.rule(tuple(argv))
    is_ruled = ruling.denied or ruling.asked or ruling.cover >= Breadth.EXACT
    is_denied = CommandJudge(rules, places).words(tuple(argv)).effect is Effect.DENY
    return "" if is_ruled or is_denied else text


def _is_plain(text: str) -> bool:
    try:
        return bool(read_line(text).pipelines)
    except UnreadableError:
        return False


BYTES_MAX = 8_192
"""Bytes of a command line."""
SHELLS_MAX = 3
"""Shells around a line that are taken off."""

_ORDINARY = regex(r"[\n\t -~]*")


def judge_command(
    command: str,
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    cwd: Path | None = None,
    writable: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> CommandVerdict:
    """Return the verdict on a shell command line, and its plan when it has one.

    Args:
        command: One line, or several, of a shell.
        allow: Rules by argument: a final `*` matches any further words, a rule without one is
            the exact command. A command that no rule covers asks.
        deny: Rules of the same grammar, which are final.
        cwd: Where it would run; without it a path outside the current tree is asked about by its
            text alone.
        writable: Directories that redirections may write to.
        environment: The variables that its programs get. One whose value has only letters, digits
            and `_./:@%+-` is put in place of `$NAME`; a line with any other needs a shell.

    Raises:
        CommandRuleError: a rule cannot be read.

    >>> judge_command("git status; rm -rf build", allow=["git status"]).effect.value
    'ask'
    """
    places = PathPolicy(cwd, writable=writable)
    return judge_line(command, ArgumentRules(allow, deny), places, environment=environment)


def judge_line(
    line: str,
    rules: CommandRules,
    places: PathPolicy,
    *,
    environment: Mapping[str, str] | None = None,
) -> CommandVerdict:
    """Return the verdict on a line under any rules and path policy.

    `environment` is that of `judge_command`; it must be what the plan's programs get.
    """
    try:
        reading = _read(line, rules, places, environment or {})
    except UnreadableError as error:
        return _refused(str(error))
    judged = _Verdicts()
    if reading.calls_itself:
        judged.say(Effect.DENY, "a function that calls itself without end")
    one = CommandJudge(rules, places, (environment or {}).get("PATH", ":".join(PROGRAMS)))
    if not reading.pipelines:
        for raw in reading.commands:
            effect, reason = one.refusal(raw)
            if effect is Effect.DENY:
                judged.say(effect, reason)
        judged.say(Effect.ASK, f"only a shell can run it: {reading.shell_reason}")
        return judged.verdict(None, needs_shell=True)
    pipelines, plan = _planned(reading, one, judged)
    if judged.shell:
        return judged.verdict(None, needs_shell=True)
    structure = CommandPlan(
        directory=places.directory, pipelines=tuple(pipelines), activated=places.activated
    )
    return judged.verdict(tuple(plan), structure=structure)


def _planned(
    reading: Reading, one: CommandJudge, judged: _Verdicts
) -> tuple[list[Pipeline], list[tuple[str, ...]]]:
    """Judge each command; return the pipelines of the plan, and the argv of each command."""
    pipelines: list[Pipeline] = []
    plan: list[tuple[str, ...]] = []
    entering, went = True, False
    for joined, raws in reading.pipelines:
        if entering and went and joined == "||":
            judged.shell = "`||` after `cd`"
        verdicts = [one.command(raw, can_enter=entering and len(raws) == 1) for raw in raws]
        judged.fence(one.fed(raws))
        for each in verdicts:
            judged.add(each.judged, each.redirected)
            judged.remark(each.remarks)
            judged.shell = judged.shell or each.shell
            if each.argv:
                plan.append(each.argv)
            went = went or each.argv[:1] == ("cd",)
        commands = tuple(each.simple for each in verdicts if each.simple is not None)
        if commands:
            # After a `cd` the plan is in its directory, or has stopped.
            pipelines.append(Pipeline(joined="" if entering else joined, commands=commands))
            entering = False
    return pipelines, plan


def _read(
    line: str, rules: CommandRules, places: PathPolicy, environment: Mapping[str, str]
) -> Reading:
    """Return the meaning of a line, without the shells around it."""
    around = places.surroundings(environment)
    found: Reading | None = None
    for _ in range(SHELLS_MAX):
        if fault := _text_fault(line):
            raise UnreadableError(fault)
        try:
            reading = read_line(line, around)
        except UnreadableError as error:
            raise UnreadableError(f"unparseable: {error}") from error
        _refuse_deep_patterns(reading)
        if found is not None and not reading.pipelines:
            return found  # The shell itself is a program that can be run, after a question.
        found, line = reading, _inside(reading, rules, places)
        if not line:
            break
    return reading


def _refuse_deep_patterns(reading: Reading) -> None:
    """Raise UnreadableError for a pattern so deep that looking for its names does not end."""
    words = (word for _, raws in reading.pipelines for raw in raws for word in raw.words)
    if any(word.pattern.count("/") > DEPTH_MAX for word in words if word.pattern):
        raise UnreadableError(f"a pattern of more than {DEPTH_MAX} directories")


def _inside(reading: Reading, rules: CommandRules, places: PathPolicy) -> str:
    """Return the line that a line is only the shell of, or nothing."""
    commands = [raw for _, raws in reading.pipelines for raw in raws]
    if len(commands) != 1:
        return ""
    only = commands[0]
    is_bare = not (only.assignments or only.redirects or only.exported)
    is_text = not any(word.pattern or word.tilde for word in only.words)
    words = [word.text for word in only.words]
    return shell_line(words, rules, places) if is_bare and is_text else ""


def judge_argv(argv: Sequence[str], rules: CommandRules, places: PathPolicy) -> CommandVerdict:
    """Return the verdict on one program with its arguments, which no shell has read."""
    command = CommandJudge(rules, places).words(tuple(argv))
    judged = _Verdicts()
    judged.add(command, ())
    structure = CommandPlan(
        directory="",
        pipelines=(Pipeline(joined="", commands=(SimpleCommand(argv=tuple(argv)),)),),
    )
    return judged.verdict((tuple(argv),), structure=structure)


class _Verdicts(Struct):
    """Collects the verdicts on the parts of a line."""

    remarks: list[tuple[Effect, str]] = field(default_factory=list)
    commands: list[JudgedCommand] = field(default_factory=list)
    concerns: list[str] = field(default_factory=list)
    fenced: list[str] = field(default_factory=list)
    shell: str = ""
    """Why nothing but a shell can run the line; empty when a plan can."""

    def say(self, effect: Effect, reason: str) -> None:
        self.remarks.append((effect, reason))

    def add(self, judged: JudgedCommand | None, remarks: Sequence[tuple[Effect, str]]) -> None:
        if judged is not None:
            self.commands.append(judged)
            if judged.effect is not Effect.ALLOW:
                self.say(judged.effect, judged.reason)
        self.remarks += remarks

    def remark(self, remarks: Sequence[tuple[Effect, str]]) -> None:
        self.remarks += remarks
        self.concerns += [reason for effect, reason in remarks if effect is Effect.ASK]

    def fence(self, reasons: Sequence[str]) -> None:
        self.remarks += [(Effect.ASK, reason) for reason in reasons]
        self.fenced += reasons

    def verdict(
        self,
        plan: tuple[tuple[str, ...], ...] | None,
        *,
        structure: CommandPlan | None = None,
        needs_shell: bool = False,
    ) -> CommandVerdict:
        if self.shell:
            self.say(Effect.ASK, f"only a shell can run it: {self.shell}")
        effect = strictest(found for found, _ in self.remarks)
        ordered = sorted(self.remarks, key=lambda remark: -STRICTNESS.index(remark[0]))
        return CommandVerdict(
            effect=effect,
            plan=plan,
            reasons=tuple(dict.fromkeys(reason for _, reason in ordered)),
            structure=structure,
            commands=tuple(self.commands),
            concerns=tuple(dict.fromkeys(self.concerns)),
            fenced=tuple(dict.fromkeys(self.fenced)),
            needs_shell=needs_shell and effect is not Effect.DENY,
        )


def _refused(reason: str) -> CommandVerdict:
    return CommandVerdict(effect=Effect.DENY, plan=None, reasons=(reason,))


def _text_fault(line: str) -> str:
    """Return the fault of the text itself: its length, or a hidden character."""
    if len(line) > BYTES_MAX or (
        not line.isascii() and len(line.encode(errors="replace")) > BYTES_MAX
    ):
        return f"expected at most {BYTES_MAX} bytes of command"
    if not line.strip():
        return "there is no command"
    if _ORDINARY.fullmatch(line):
        return ""
    for sign in line:
        kind = unicodedata.category(sign)
        hidden = kind in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") or (kind == "Zs" and sign != " ")
        if hidden and sign not in "\n\t":
            return f"the character U+{ord(sign):04X} is invisible or shown as something else"
    return ""

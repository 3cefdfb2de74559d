"""Denials that no rule lifts, also inside wrappers and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

from skillhouse.floor.rules import Effect
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import DEPTH_MAX, read_command, unwrap
from skillhouse.permission.command_rules import CommandRules
from skillhouse.permission.environment import environment_concern, may_start
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.plain_line import read_line
from skillhouse.permission.raw_line import RawCommand, UnreadableError
from skillhouse.permission.unknown_program import possible_commands, unlisted

WORDS_MAX = 256
"""Words of a command that starts another one; of more each would have to be tried as a program."""

_STARTING = (
    frozenset(
        "xargs parallel flock watch script strace ltrace perf valgrind rlwrap unbuffer chroot "
        "unshare nsenter setpriv capsh systemd-run ssh mosh runcon firejail bwrap proot fakeroot "
        "taskset chrt numactl prlimit cgexec dbus-run-session xvfb-run start-stop-daemon ld.so "
        "npx bunx pnpx uvx pipx entr busybox toybox exec builtin coproc time nohup setsid stdbuf "
        "ionice nice timeout env command docker podman kubectl uv poetry npm".split()
    )
    | hazards.PRIVILEGED
)
_SCRIPTED = (
    frozenset({"eval", "watch", "script", "env", "xargs", "parallel", "flock", "ssh", "trap"})
    | hazards.SHELLS
    | hazards.PRIVILEGED
)
FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""Options of find behind which a command is (find(1))."""


class HardDenies:
    """Finds the reason to deny a command, if there is one."""

    def __init__(self, rules: CommandRules, places: PathPolicy) -> None:
        self._rules = rules
        self._places = places

    def of(self, raw: RawCommand) -> tuple[Effect, str]:
        """Return a deny and its reason, or an allow."""
        reason = self.of_words(tuple(word.text for word in raw.words)) if raw.words else ""
        if reason:
            return Effect.DENY, reason
        for name, value in raw.assignments:
            is_refused, concern = self.variable_concern(name, value)
            if is_refused:
                return Effect.DENY, concern
        for redirect in raw.redirects:
            if redirect.kind in ("write", "append") and not isinstance(redirect.target, str):
                effect, concern = self._places.writing(redirect.target.text)
                if effect is Effect.DENY:
                    return effect, concern
        return Effect.ALLOW, ""

    def variable_concern(self, name: str, value: str) -> tuple[bool, str]:
        """Return what `environment_concern` does, with a denial of what the variable would start,
        as in `GIT_PAGER='rm -r x'`."""
        is_refused, concern = environment_concern(name, value)
        reason = self._script(value, 0) if may_start(name, value) else ""
        return is_refused or bool(reason), concern if is_refused else reason or concern

    def of_words(self, argv: tuple[str, ...], depth: int = 0) -> str:
        if not argv or not argv[0]:
            return ""
        if depth > DEPTH_MAX:
            return f"more than {DEPTH_MAX} commands inside one another"
        program = hazards.base_name(argv[0])
        is_starting = program in _STARTING | hazards.SHELLS or not FIND_RUNS.isdisjoint(argv)
        if is_starting and len(argv) > WORDS_MAX:
            return f"`{program}` with more than {WORDS_MAX} words"
        if program in _STARTING and self._is_too_deep(argv):
            return f"more than {DEPTH_MAX} wrappers"
        for inner in self._commands(argv, program):
            if reason := self._plain(inner):
                return reason
        if reason := self._possible(argv):
            return reason
        for script in self._scripts(argv, program):
            if reason := self._script(script, depth):
                return reason
        return ""

    def _possible(self, argv: tuple[str, ...]) -> str:
        """Return why something is denied that a program without a table could start."""
        at, _ = unlisted(read_command(argv))
        if at is None or hazards.base_name(argv[0]) in hazards.BUILTINS:
            return ""
        for _, words, is_whole in possible_commands(at.argv):
            # A word of a text, as in `say "ask a super user"`, is not its program.
            if not is_whole and hazards.base_name(words[0]) in hazards.PRIVILEGED:
                continue
            if reason := self._plain(words):
                return reason
        return ""

    def _commands(self, argv: tuple[str, ...], program: str) -> Iterator[tuple[str, ...]]:
        yield argv
        if program in _STARTING:
            for at in range(1, len(argv)):
                if argv[at][:1] not in ("-", ""):
                    yield argv[at:]
        elif program == "find":
            for at, word in enumerate(argv[:-1]):
                if word in FIND_RUNS:
                    yield argv[at + 1 :]

    def _scripts(self, argv: tuple[str, ...], program: str) -> Iterator[str]:
        """Yield the words that are read as shell text."""
        if program == "eval":
            yield " ".join(argv[1:])
        elif program in _SCRIPTED or any(word in FIND_RUNS for word in argv[1:]):
            for word in argv[1:]:
                if " " in word or ";" in word or "\n" in word:
                    yield word
            # `env -Srm …` and `--split-string=rm …`.
            for word in argv[1:]:
                if word[:2] == "-S" or word.startswith("--split-string="):
                    yield word.partition("=")[2] if word[1] == "-" else word[2:]
        elif program in _STARTING:
            for at, word in enumerate(argv):
                if hazards.base_name(word) in hazards.SHELLS:
                    yield from self._scripts(argv[at:], hazards.base_name(word))
                    return

    def _script(self, text: str, depth: int) -> str:
        if not text.strip():
            return ""
        try:
            commands = read_line(text).commands
        except UnreadableError:
            # It is asked about anyway: no rule with a wildcard covers what runs shell text.
            return ""
        for raw in commands:
            argv = tuple(word.text for word in raw.words)
            if reason := self.of_words(argv, depth + 1):
                return reason
        return ""

    def _plain(self, argv: tuple[str, ...]) -> str:
        """Return why a command is denied for its own words, however it is spelt."""
        if self._rules.has_denials and (reason := self._denied(argv)):
            return reason
        program = hazards.base_name(argv[0])
        if program in hazards.PRIVILEGED:
            return f"`{program}` changes who runs it"
        if reason := hazards.destruction(argv):
            return f"no rule allows this: {reason}"
        for word in _written(program, argv[1:]):
            effect, concern = self._places.writing(word, covered=True)
            if effect is Effect.DENY:
                return concern
        return ""

    def _denied(self, argv: tuple[str, ...]) -> str:
        spellings = {argv, (argv[0].rsplit("/", 1)[-1], *argv[1:])}
        if any(map(str.startswith, argv[1:], repeat("-"))):
            plain = tuple(word for word in argv[1:] if word[:1] != "-")
            spellings |= {(spelt[0], *plain) for spelt in tuple(spellings)}
        for spelt in sorted(spellings):
            if spelt[0] and (reason := self._rules.denies(spelt)):
                return reason
        return ""

    @staticmethod
    def _is_too_deep(argv: tuple[str, ...]) -> bool:
        depth, inner = 0, argv
        while inner and (wrapped := unwrap(inner)) is not None:
            inner, depth = wrapped.inner, depth + 1
            if depth > DEPTH_MAX:
                return True
        return False


_WRITING = frozenset(
    "tee touch mkdir rm rmdir mv truncate shred cp ln install rsync scp dd chmod chown "
    "chgrp".split()
)


def _written(program: str, arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments that some well-known programs write to."""
    if program not in _WRITING:
        return ()
    operands = [word for word in arguments if word[:1] != "-"]
    if program in ("tee", "touch", "mkdir", "rm", "rmdir", "mv", "truncate", "shred"):
        return operands
    if program in ("cp", "ln", "install", "rsync", "scp"):
        return operands[-1:]
    if program == "dd":
        return [word[3:] for word in arguments if word.startswith("of=")]
    return operands[1:]

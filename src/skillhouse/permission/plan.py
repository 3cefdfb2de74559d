"""The plan of a judged command line, as values: a person approves it, and exactly it then runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.floor.rules import Effect

_QUOTED = regex(r"[\s'\"]")
Joined = Literal["", "&&", "||"]
RedirectKind = Literal["read", "write", "append", "copy", "text"]

REDIRECTS: dict[str, tuple[RedirectKind, int]] = {
    "<": ("read", 0),
    ">": ("write", 1),
    ">|": ("write", 1),
    ">>": ("append", 1),
    "&>": ("write", 1),
    "&>>": ("append", 1),
    ">&": ("copy", 1),
    "<&": ("copy", 0),
    "<<": ("text", 0),
    "<<<": ("text", 0),
}
"""What a sign of bash redirects, and which descriptor where no number is before it (bash(1))."""
BUILTINS = (":", "command", "type")
"""What the runner of plans does itself."""


class Redirect(Struct, frozen=True, kw_only=True):
    """One redirected descriptor of a command."""

    descriptor: int
    kind: RedirectKind
    target: str
    """A path as it was judged; for "copy" the number of another descriptor, for "text" the text."""


class SimpleCommand(Struct, frozen=True, kw_only=True):
    """One program with its arguments."""

    argv: tuple[str, ...]
    """Final words; a file name pattern is kept as it was written."""
    patterns: tuple[tuple[int, str], ...] = ()
    """Places in `argv` that are replaced by the names that match, and the pattern of each; its
    literal characters are in brackets."""
    guarded: tuple[int, ...] = ()
    """Those of them that matched no name that is an option when they were judged."""
    environment: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    statuses: tuple[int, ...] = ()
    """Places in `argv` whose `$?` and `${PIPESTATUS[N]}` are what the commands before end with."""

    @property
    def redirected(self) -> tuple[str, ...]:
        """Files that its redirections write."""
        return tuple(one.target for one in self.redirects if one.kind in ("write", "append"))


class Pipeline(Struct, frozen=True, kw_only=True):
    """Commands, each of which reads the output of the one before."""

    joined: Joined
    """On what the pipeline before must have done for this one to run; "" for whatever."""
    commands: tuple[SimpleCommand, ...]


class CommandPlan(Struct, frozen=True, kw_only=True):
    """A whole line that runs without a shell."""

    directory: str
    """Where it runs: absolute, or relative to where the line was given ("" for there)."""
    pipelines: tuple[Pipeline, ...]
    activated: str = ""
    """The environment whose programs come first, by its real path; empty without one."""

    def commands(self) -> Iterator[SimpleCommand]:
        for pipeline in self.pipelines:
            yield from pipeline.commands

    def plain(self) -> tuple[str, ...] | None:
        """Return the argv of a plan that is one program and nothing else, or None."""
        commands = list(self.commands())
        if len(commands) != 1 or self.directory:
            return None
        (only,) = commands
        # `true` and `false` are programs as well, which do the same.
        is_ours = only.argv[0] in BUILTINS and only.argv[0] not in ("true", "false")
        bare = not (only.patterns or only.environment or only.redirects or is_ours)
        return only.argv if bare else None

    def value(self) -> Mapping[str, Any]:
        """Return the plan as plain JSON values, the same for the same plan."""
        # What was approved before environments were activated is the same value.
        activated = {"activated": self.activated} if self.activated else {}
        return {
            **activated,
            "directory": self.directory,
            "pipelines": [
                {"joined": p.joined, "commands": [_command_value(c) for c in p.commands]}
                for p in self.pipelines
            ],
        }


def command_resource(argv: Sequence[str]) -> str:
    """Return the words of a command joined by blanks; a word that holds one is quoted.

    Quoting keeps `rm "a b"` and `rm a b` apart for a rule without wildcards.

    >>> command_resource(["curl", "-s", "wttr.in/Tokyo?format=3"])
    'curl -s wttr.in/Tokyo?format=3'
    """
    return " ".join(
        shlex.quote(word) if not word or _QUOTED.search(word) else word for word in argv
    )


def plan_text(plan: CommandPlan) -> str:
    """Return a plan as lines that a person can read, each word as the program gets it."""
    lines = [f"in {plan.directory}"] if plan.directory else []
    lines += [f"with the environment {plan.activated}"] if plan.activated else []
    for pipeline in plan.pipelines:
        joined = {"": "", "&&": "if that succeeds: ", "||": "if that fails: "}[pipeline.joined]
        lines.append(joined + " | ".join(map(_command_text, pipeline.commands)))
    return "\n".join(lines)


def _command_text(command: SimpleCommand) -> str:
    words = [f"{name}={value}" for name, value in command.environment]
    words.append(json.dumps(list(command.argv), ensure_ascii=False))
    signs = {"read": "<", "write": ">", "append": ">>", "copy": ">&", "text": "<<"}
    words += [f"{r.descriptor}{signs[r.kind]} {json.dumps(r.target)}" for r in command.redirects]
    return " ".join(words)


def _command_value(command: SimpleCommand) -> dict[str, Any]:
    # What was approved before there were exit codes is the same value.
    statuses = {"statuses": list(command.statuses)} if command.statuses else {}
    return {
        **statuses,
        "argv": list(command.argv),
        "patterns": [list(pattern) for pattern in command.patterns],
        "guarded": list(command.guarded),
        "environment": [list(pair) for pair in command.environment],
        "redirects": [[r.descriptor, r.kind, r.target] for r in command.redirects],
    }


class JudgedCommand(Struct, frozen=True, kw_only=True):
    """The verdict on one simple command."""

    argv: tuple[str, ...]
    """The words that rules are asked about: the inner command of a plain wrapper."""
    effect: Effect
    reason: str = ""
    """Why it is not allowed; empty when it is."""
    scrutiny: str = ""
    """Why a rule with a wildcard does not cover it, whatever the rules say."""
    scripts: tuple[tuple[str, ...], ...] = ()
    """Files that it runs, relative to where it runs: of each tuple the first that exists. Whoever
    runs it asks about each whose digest was not approved."""
    needs_rule: bool = True
    """False for what is allowed where no rule is about it: it prints, tests or goes to a
    directory of the workspace (decision 210)."""
    is_own: bool = False
    """Whether it is a program of the workspace, the first of `scripts`, that goes by its name."""
    unbound: bool = False
    """Whether it runs whatever code the workspace holds, and must have no network."""


class CommandVerdict(Struct, frozen=True, kw_only=True):
    """The answer to a whole command line."""

    effect: Effect
    plan: tuple[tuple[str, ...], ...] | None
    """The argv of each command, in order; None when only a shell could run the line."""
    reasons: tuple[str, ...]
    """Why it is not simply allowed, the reasons of the strictest verdict first."""
    structure: CommandPlan | None = None
    """The plan with its pipes, redirections and conditions."""
    commands: tuple[JudgedCommand, ...] = ()
    concerns: tuple[str, ...] = ()
    """Reasons to ask that are about no command's words and no redirection: variables, patterns
    and directories, to which no rule applies."""
    fenced: tuple[str, ...] = ()
    """Those to which an allow of everything does not apply either: texts that a program reads or
    that are written as one, and copies of programs (decision 385)."""
    needs_shell: bool = False
    """Whether the line is sound but nothing short of a shell can run it."""

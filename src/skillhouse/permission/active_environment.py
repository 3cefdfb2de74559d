"""What the names of programs mean in a line that has activated an environment of the workspace.

`source X/bin/activate` puts `X/bin` first on PATH and sets `VIRTUAL_ENV` (Python's documentation of
venv, "How venvs work"). A plan names the programs of X by their paths, and only what runs any code
of the workspace gets these variables: an agent can write X (decision 0595).
"""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.floor.rules import Effect
from skillhouse.floor.structs import replace
from skillhouse.permission import hazards
from skillhouse.permission.command_reader import only_reads, read_command
from skillhouse.permission.path_policy import PathPolicy
from skillhouse.permission.plan import JudgedCommand
from skillhouse.permission.raw_line import RawCommand

_INSIDE = frozenset("echo printf test [ true false : cd pwd kill command type".split())
"""What a shell does by itself, whichever programs there are."""


class ActiveEnvironment:
    """The environment that the commands of a line so far have activated, if one."""

    def __init__(self, places: PathPolicy, search_path: str) -> None:
        """Make one; `search_path` is the PATH of commands."""
        self._places = places
        self._search_path = search_path

    def entered(self, raw: RawCommand) -> str | None:
        """Take an activation; return why it needs a shell, "" where it does not, and None where the
        command activates no environment of the workspace."""
        found = self._places.environment_of(raw.words[1].text) if raw.activates else ""
        if not found:
            return None
        before = self._places.activated
        self._places.activated = found
        return "more than one environment" if before not in ("", found) else ""

    def lead(self, raw: RawCommand) -> bool:
        """Have the first name of a program of the environment mean that, by its path; return
        whether there is one."""
        at = 0
        while self._places.activated and at < len(raw.words):
            word = raw.words[at]
            name = "" if word.text in _INSIDE or word.pattern else word.text
            if path := self._places.activated_program(name):
                raw.words = [*raw.words[:at], replace(word, text=path), *raw.words[at + 1 :]]
                return True
            meaning = read_command(tuple(word.text for word in raw.words[at:]))
            at += meaning.inner if meaning.inner and not meaning.unknown else len(raw.words)
        return False

    def shell_reason(self, judged: JudgedCommand, *, is_led: bool) -> str:
        """Return why only a shell can run a command, or nothing.

        What it starts by itself and what it looks up would be those of the environment.
        """
        name = judged.argv[0]
        is_looking_up = name == "which" or hazards.looks_up(judged.argv)
        is_quiet = name == "cd" or not judged.needs_rule or only_reads(judged.argv)
        is_done = is_led or _runs_any(judged) or (is_quiet and not is_looking_up)
        needs_none = is_done or not self._places.activated
        return "" if needs_none else f"`{name[:60]}` in an environment that is active"

    def variables(self, judged: JudgedCommand) -> Mapping[str, str]:
        """Return the variables of a command that the environment sets."""
        place = self._places.activated
        if not (place and _runs_any(judged)):
            return {}
        return {"VIRTUAL_ENV": place, "PATH": f"{place}/bin:{self._search_path}"}


def _runs_any(judged: JudgedCommand) -> bool:
    return judged.unbound and judged.effect is Effect.ALLOW

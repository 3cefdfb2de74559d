"""Variables whose value is known while a line is read."""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.floor.regex import regex

_PLAIN = regex(r"[A-Za-z0-9_./:@%+-]+")
_OWN = regex(
    r"_|BASH.*|COMP_.*|DIRSTACK|EPOCH.*|EUID|FUNCNAME|GROUPS|HIST.*|HOST(NAME|TYPE)|IFS|LINENO|"
    r"MACHTYPE|MAILCHECK|MAPFILE|OPT(ARG|ERR|IND)|OSTYPE|PIPESTATUS|POSIXLY_CORRECT|PPID|PS[0-4]|"
    r"RANDOM|READLINE_.*|REPLY|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|COLUMNS|LINES"
)
"""What bash sets or reads itself (bash(1), "Shell Variables")."""
_DIRECTORIES = ("PWD", "OLDPWD")


class KnownVariables:
    """The variables of a shell, as far as a line says.

    >>> known = KnownVariables({"HOME": "/home/u", "X": "a b"})
    >>> known.plain("HOME"), known.plain("X"), known.plain("Y")
    ('/home/u', None, None)
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.values = dict(environment)
        self._environment = frozenset(environment)
        self._exported: dict[str, str] = {}

    def plain(self, name: str) -> str | None:
        """Return a value that stays one word, without a pattern, wherever it is put, or None."""
        value = self.values.get(name)
        is_plain = value is not None and _PLAIN.fullmatch(value) and not _OWN.fullmatch(name)
        return value if is_plain else None

    def is_settable(self, name: str) -> bool:
        return not _OWN.fullmatch(name) and name not in _DIRECTORIES

    def set(self, name: str, value: str, *, exports: bool) -> None:
        """Take an assignment, which reaches later commands where the name is or gets exported."""
        self.values[name] = value
        if exports or name in self._environment or name in self._exported:
            self._exported[name] = value

    def enter(self) -> None:
        """Take a `cd`."""
        for name in _DIRECTORIES:
            self.values.pop(name, None)

    def exported(self) -> tuple[tuple[str, str], ...]:
        """Return the variables of later commands that are not as in the environment."""
        return tuple(self._exported.items())

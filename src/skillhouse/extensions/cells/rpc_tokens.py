"""The tokens that callers of an RPC server may show: named, several at a time, read again from
their files, and kept as digests."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from skillhouse.floor import digest

TOKEN_MIN = 16
"""Fewest characters of a token."""
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What a token may be called: a name goes into records and file names, never into a header."""
FILE_BYTES = 65_536
TOKENS_MAX = 1_000
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


class TokenCaller(Struct, frozen=True, kw_only=True):
    """Who called, by the token that it showed."""

    name: str
    """The token's name; "" where there is only one, without a name."""
    token: str
    """The token itself, for answers on a connection of their own. It is not in `repr`."""

    def __repr__(self) -> str:
        return f"Caller(name={self.name!r})"


class TokenCheck(Protocol):
    def caller(self, token: str) -> TokenCaller | None:
        """Return whose token it is, at this moment; None for one that is not valid."""
        ...


class FixedTokens:
    """Tokens without names that a program holds itself."""

    def __init__(self, *tokens: str) -> None:
        for token in tokens:
            check_token(token)
        self._tokens = tokens

    def caller(self, token: str) -> TokenCaller | None:
        is_right = False
        for one in self._tokens:
            is_right |= hmac.compare_digest(one.encode(), token.encode())
        return TokenCaller(name="", token=token) if is_right else None


class TokenFiles:
    """Named tokens in a file or a directory, which is looked at for each call.

    A file has a line for each, `NAME TOKEN` or `NAME sha256:HEX`; a line without a name has the
    name "core". In a directory, as a Secret is
    mounted, each file is one token or its digest, by the file's name. What is taken away is refused
    from the next call on, without a restart; a line that is none is left out.
    """

    def __init__(self, path: Path, report: Callable[[str], None] = lambda _: None) -> None:
        """Take the place; `report` gets what is wrong there, once for each change."""
        self._path = path
        self._report = report
        self._stamp: object = None
        self._digests: Mapping[str, str] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of the valid tokens."""
        self._look()
        return tuple(self._digests)

    def caller(self, token: str) -> TokenCaller | None:
        self._look()
        shown = digest_of(token)
        found = ""
        for name, kept in self._digests.items():
            if hmac.compare_digest(kept, shown):
                found = name
        return TokenCaller(name=found, token=token) if found else None

    def _look(self) -> None:
        lines: tuple[str, ...] = ()
        why = ""
        try:
            # Before the files are read: what changes meanwhile is read again at the next look.
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                lines = tuple(_lines(self._path))
        except OSError as error:
            # INVARIANT: where the tokens cannot be read, none is valid.
            stamp = (type(error).__name__, error.errno)
            why = f"no token is valid: cannot read {self._path}: {error.strerror}"
        if stamp != self._stamp:
            self._stamp = stamp
            self._digests = self._read(lines)
            if why:
                self._report(why)

    def _read(self, lines: Iterable[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            # A token may have the sign in it.
            text = line.split()
            if not text or text[0].startswith("#"):
                continue
            text = ["core", *text] if len(text) == 1 else text
            kept = _digest_at(text)
            if not kept or text[0] in found or len(found) >= TOKENS_MAX:
                # The line may hold a token, so it is not shown.
                self._report(f"a token was left out: line {number} of {self._path}")
                continue
            found[text[0]] = kept
        return found


def _digest_at(words: list[str]) -> str:
    if len(words) != 2 or not TOKEN_NAME.fullmatch(words[0]):
        return ""
    if _DIGEST.fullmatch(words[1]):
        return words[1]
    try:
        check_token(words[1])
    except ValueError:
        return ""
    return digest_of(words[1])


def _stamp(path: Path) -> object:
    files = sorted(_files(path)) if path.is_dir() else [path]
    return tuple(
        (str(one), info.st_ino, info.st_mtime_ns, info.st_size)
        for one in files
        for info in (one.stat(),)
    )


def _files(directory: Path) -> list[Path]:
    # Kubernetes keeps the versions of a mounted Secret below names that begin with dots.
    return [one for one in directory.iterdir() if not one.name.startswith(".") and one.is_file()]


def _lines(path: Path) -> Iterable[str]:
    if not path.is_dir():
        yield from _text(path).splitlines()
        return
    for one in sorted(_files(path)):
        yield f"{one.name} {_text(one).strip()}"


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(FILE_BYTES).decode("ascii", "replace")


def digest_of(token: str) -> str:
    """Return what is kept of a token.

    >>> digest_of("a-token-of-enough-letters")[:15]
    'sha256:8d06f985'
    """
    return digest(token.encode())


def check_token(token: str) -> None:
    """Raise `ValueError` for a token that is too short, or not valid in a header."""
    if len(token) < TOKEN_MIN or not token.isascii() or not token.isprintable() or " " in token:
        message = f"expected a token of at least {TOKEN_MIN} printable ASCII characters"
        raise ValueError(f"{message} without blanks")

"""Finds the secrets that we know in a text, in the forms in which they travel."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "[REDACTED]"
MIN_SECRET = 8
"""Characters below which a value is not searched for: it would be found in ordinary words."""
MAX_SECRETS = 1_000
"""Values that are searched for; an environment has fewer, and each costs time in every record."""
_MIN_LINE = 16
"""Characters of a line of a longer secret, such as a key file, that is a secret by itself."""
_DECODINGS = 3
"""Times that a text is percent-decoded, so that one encoded twice is found as well."""
_BASE64_EDGE = "[A-Za-z0-9+/_-]?"

Secrets = Callable[[], Iterable[str]]
"""Returns the values that must not be recorded, as they are now."""


class KnownSecrets:
    """A set of secrets, ready to be looked for."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Take the values; those under `MIN_SECRET` characters are left out."""
        self.values = tuple(values)
        self.words: dict[str, str] = {}
        """Clean forms of short texts that come again and again; see `clean_word`."""
        raw = {value for value in self.values if len(value) >= MIN_SECRET}
        raw |= {line for value in raw for line in value.split() if len(line) >= _MIN_LINE}
        # The longest first: a part of a secret may be one itself.
        self._raw = tuple(sorted(raw, key=lambda value: (-len(value), value))[:MAX_SECRETS])
        self._plain = _unique(form for value in self._raw for form in _plain_forms(value))
        self._hex = _unique(value.encode("utf-8", "replace").hex() for value in self._raw)
        self._base64 = _unique(form for value in self._raw for form in _base64_forms(value))
        forms = [*self._plain, *self._hex, *self._base64]
        self._shortest = min(map(len, forms), default=0)
        self.longest = max(map(len, forms), default=0)
        """Characters of the longest form."""

    def __bool__(self) -> bool:
        return bool(self._raw)

    def hide(self, text: str) -> str:
        """Return `text` with each known secret replaced, or all of it where it is woven in.

        >>> KnownSecrets(["correct-horse"]).hide("x correct-horse y Y29ycmVjdC1ob3JzZQ== z")
        'x [REDACTED] y [REDACTED]== z'
        """
        if len(text) < self._shortest or not self._raw:
            return text
        for form in self._plain:
            if form in text:
                text = text.replace(form, HIDDEN)
        for form in self._base64:
            if form in text:
                # The characters beside it hold the secret's first and last bits.
                text = re.sub(_BASE64_EDGE + re.escape(form) + _BASE64_EDGE, HIDDEN, text)
        lower = text.lower()
        for form in self._hex:
            if form in lower:
                text = re.sub(form, HIDDEN, text, flags=re.IGNORECASE)
        return HIDDEN if self._is_woven_in(text) else text

    def _is_woven_in(self, text: str) -> bool:
        """Whether a secret shows once the text is decoded or its lines are joined."""
        if "\n" in text:
            joined = "".join(text.split())
            lower = joined.lower()
            if any(form in joined for form in (*self._raw, *self._base64)):
                return True
            if any(form in lower for form in self._hex):
                return True
        decoded = plus = text
        for _ in range(_DECODINGS):
            if "%" not in decoded and "+" not in plus:
                return False
            decoded, plus = unquote(decoded), unquote_plus(plus)
            if any(value in decoded or value in plus for value in self._raw):
                return True
        return False


def _plain_forms(value: str) -> Iterable[str]:
    yield value
    yield quote(value, safe="", errors="replace")
    yield quote(value, errors="replace")
    yield quote_plus(value, errors="replace")
    # As part of JSON or of a Python text.
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _base64_forms(value: str) -> Iterable[str]:
    """Yield what base64 makes of a value at each place in a longer text, without the edges."""
    data = value.encode("utf-8", "replace")
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        # A character that holds bits of a neighbour is not always the same.
        end = len(coded) - 1 if (before + len(data)) % 3 else len(coded)
        inner = coded[(0, 2, 3)[before] : end]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


def _unique(forms: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(forms))


NO_SECRETS = KnownSecrets()

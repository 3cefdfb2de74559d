"""Takes secrets out of what is recorded, and keeps it short enough to read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from skillhouse.floor.regex import regex

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
    """A set of secrets, prepared for the search."""

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

CUT = "...[truncated]"
MAX_TEXT = 200
"""Characters of a text that is kept whole (S000-123)."""
LONG_TEXT = 16_384
"""Characters of a text that is no record, such as a line of a service's log."""
KEPT_TEXT = 50
"""Characters that stay of a longer one (S000-123)."""
MAX_KEY = 64
"""Characters of a key that is kept whole."""
MAX_DEPTH = 16
"""Nesting of maps and lists; deeper values are cut."""
MAX_ITEMS = 256
"""Entries of one map or list; the rest is counted."""
MAX_VALUES = 1_000
"""Values in all, so that a large call does not cost seconds; those after them are cut."""

_MAX_WORDS = 1_024
"""Names whose clean form is remembered."""
_SHORTEST = 6
"""Characters of the shortest text that a pattern fits: `a://b@`."""
_LOOKED_AT = 4_096
"""Characters that are searched for secrets: more than any secret that begins in the kept part."""

SECRET_NAMES = frozenset(
    "privatekey apikey secretkey accesskey seed mnemonic secret secrets password passwords passwd "
    "passphrase token auth authorization cookie cookies credential credentials".split()
)
"""Last words of a name whose value is hidden, written together (S000-121)."""

_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_VALUES = regex(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)"
    r"|\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\b(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{8,}"
    r"|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\b(?:npm|hf|dop_v1|shpat)_[A-Za-z0-9]{16,}|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{16,}"
    r"|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|\bAGE-SECRET-KEY-1[A-Z0-9]{16,}"
    r"|\b[0-9]{8,10}:[A-Za-z0-9_-]{35}\b"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r"|(?<=://)[^/\s@]+(?=@)",
    re.DOTALL,
)
_VALUE_MARKS = (
    "-----BEGIN sk- gh _pat_ AKIA xox xapp- glpat- npm_ hf_ dop_v1_ shpat_ k_live_ k_test_ AIza "
    "ya29. SG. AGE- eyJ :"
).split()
"""Every text that matches `_VALUES` contains one of these."""
_MARKS_OF_ONE_WORD = ("AKIA", "AIza")
"""Those of patterns that need neither a hyphen nor an underscore, colon or full stop."""
_ASSIGNED = regex(
    r"(?<![A-Za-z0-9_-])(-{0,2})"
    r"([A-Za-z0-9_-]{0,48}(?:key|seed|mnemonic|secrets?|passw(?:or)?ds?|passphrase|token"
    r"|auth|authorization|cookies?|credentials?))"
    r"(\\{0,7}['\"]?\s{0,3}[=:]\s{0,3}|\s{1,3})",
    re.IGNORECASE,
)
# Quotes may be escaped, in JSON within a shell's word, and then end as they began.
_ASSIGNED_VALUE = regex(
    r"(?:(?:Bearer|Basic|Token)\s{1,3})?"
    r"(?:(?P<quote>\\{0,7}['\"])(?:(?!(?<!\\)(?P=quote)).)*(?:(?P=quote))?|[^\s&;,'\"]+)",
    re.IGNORECASE | re.DOTALL,
)
_BRACKETS = regex(r"\"(?:[^\"\\]|\\.)*\"?|[\[{]|[\]}]", re.DOTALL)
_NAME_MARKS = "key seed mnemonic secret passw passphrase token auth cookie credential".split()
# Line separators and direction marks, which would let one record look like two in a viewer.
_UNSEEN = regex("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def redacted(
    arguments: Mapping[str, object], *, known: KnownSecrets = NO_SECRETS
) -> dict[str, object]:
    """Return a preview of `arguments`: without secrets, with long texts cut, JSON types only.

    A value is hidden when the last words of its key are a secret name (`SECRET_NAMES`), whatever
    the case and the way words are joined; a part of a word does not count.

    >>> redacted({"apiKey": "x", "github_token": "x", "author": "a", "tokenAddress": "0x1"})
    {'apiKey': '[REDACTED]', 'github_token': '[REDACTED]', 'author': 'a', 'tokenAddress': '0x1'}
    """
    return _Preview(known).map(arguments, 1)


def clean_text(
    text: str, *, limit: int = MAX_TEXT, kept: int = KEPT_TEXT, known: KnownSecrets = NO_SECRETS
) -> str:
    """Return `text` without what looks like a secret; over `limit` characters only its beginning.

    >>> clean_text("curl -H 'Authorization: Bearer abc' https://me:pw@example.org/?api_key=abc&q=1")
    "curl -H 'Authorization: [REDACTED]' https://[REDACTED]@example.org/?api_key=[REDACTED]&q=1"
    """
    long = len(text) > limit
    # A secret that begins in the kept part is seen whole.
    found = text[: max(_LOOKED_AT, limit + known.longest)] if long else text
    if known:
        found = known.hide(found)
    if len(found) >= _SHORTEST:
        found = _without_patterns(found)
    if long:
        found = found[:kept] + CUT
    if found.isascii() and "\x7f" not in found:
        return found
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", found)


def without_secrets(text: str, known: KnownSecrets = NO_SECRETS) -> str:
    """Return the whole of `text` without what looks like a secret and without those that we know.

    >>> without_secrets("use --token abc, then sk-0123456789abcdefXYZ")
    'use --token [REDACTED], then [REDACTED]'
    """
    if known:
        text = known.hide(text)
    return _without_patterns(text) if len(text) >= _SHORTEST else text


def clean_word(text: str, known: KnownSecrets) -> str:
    """Return a short text as `clean_text` does; names come again and again, so it is remembered."""
    found = known.words.get(text)
    if found is None:
        found = clean_text(text, known=known)
        if len(text) <= MAX_KEY:
            if len(known.words) >= _MAX_WORDS:
                known.words.clear()
            known.words[text] = found
    return found


def _without_patterns(text: str) -> str:
    # Most texts hold none of these, and looking for plain texts costs a tenth of the patterns.
    joined = "-" in text or "_" in text or ":" in text or "." in text
    for mark in _VALUE_MARKS if joined else _MARKS_OF_ONE_WORD:
        if mark in text:
            text = _VALUES.sub(HIDDEN, text)
            break
    if "=" in text or ":" in text or "-" in text:
        lower = text.lower()
        for mark in _NAME_MARKS:
            if mark in lower:
                return _without_assigned(text)
    return text


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is hidden.

    >>> [is_secret_name(n) for n in ("X-Api-Key", "PRIVATE_KEY", "author", "max_tokens", "monkey")]
    [True, True, False, False, False]
    """
    return _is_secret_name(name[-MAX_TEXT:])


@lru_cache(maxsize=1_024)
def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return any("".join(words[-count:]) in SECRET_NAMES for count in (1, 2) if words)


def _without_assigned(text: str) -> str:
    """Return `text` without what is assigned to a secret name, as in `"token": [x]`."""
    parts: list[str] = []
    done = at = 0
    while match := _ASSIGNED.search(text, at):
        dashes, name, between = match.groups()
        # A value that stays is looked into: it may hold an assignment of its own.
        at = match.end(2)
        # `--password x` is an option with its value; `password x` may be any sentence.
        if not (between.strip() or dashes) or not is_secret_name(name):
            continue
        if value := _ASSIGNED_VALUE.match(text, match.end()):
            is_nested = text[value.start()] in "[{"
            at = _closing(text, value.start()) if is_nested else value.end()
            parts += text[done : value.start()], HIDDEN
            done = at
    return "".join((*parts, text[done:]))


def _closing(text: str, start: int) -> int:
    """Return the place after the bracket that closes the one at `start`; the end if none does."""
    depth = 0
    for match in _BRACKETS.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text)


class _Preview:
    """One preview in the making, which stops looking when it has seen enough."""

    def __init__(self, known: KnownSecrets) -> None:
        self._left = MAX_VALUES
        self._known = known

    def map(self, values: Mapping[str, object], depth: int) -> dict[str, object]:
        kept: dict[str, object] = {}
        for place, (key, value) in enumerate(values.items()):
            if place == MAX_ITEMS or self._left <= 0:
                kept[CUT] = len(values) - place
                break
            text = str(key)
            name = clean_word(text, self._known) if len(text) <= MAX_KEY else None
            if name is None:
                name = clean_text(text, limit=MAX_KEY, known=self._known)
            if not name.isascii():
                name = name.encode("ascii", "backslashreplace").decode()
            kept[name] = HIDDEN if is_secret_name(text) else self._value(value, depth)
        return kept

    def _list(self, values: Sequence[object], depth: int) -> list[object]:
        kept: list[object] = []
        after_option = False
        for place, value in enumerate(values):
            if place == MAX_ITEMS or self._left <= 0:
                kept.append(f"{len(values) - place} more{CUT}")
                break
            kept.append(HIDDEN if after_option else self._value(value, depth))
            # An argv carries `--password` and its value as two items.
            after_option = (
                isinstance(value, str)
                and value.startswith("-")
                and is_secret_name(value)
                and not set(value) & set("=: ")
            )
        return kept

    def _value(self, value: object, depth: int) -> object:
        self._left -= 1
        if isinstance(value, str):
            return clean_text(value, known=self._known)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            bits = value.bit_length()
            if bits > MAX_TEXT:
                return f"{bits} bits{CUT}"
            return HIDDEN if self._known and self._known.hide(str(value)) != str(value) else value
        if isinstance(value, float):
            return clean_text(repr(value), known=self._known)
        if isinstance(value, Mapping | list | tuple) and depth >= MAX_DEPTH:
            return CUT
        if isinstance(value, Mapping):
            return self.map(value, depth + 1)
        if isinstance(value, list | tuple):
            return self._list(value, depth + 1)
        return f"<{type(value).__name__}>"

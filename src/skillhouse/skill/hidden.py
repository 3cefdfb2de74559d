"""Characters that a person does not see and a model does (vectors/README.md, stage 4)."""

from __future__ import annotations

import re

_SUSPECT = re.compile(
    "[\u180e\u200b\u200c\u200d\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_JOINER = "\u200d"
_VARIATION = "\ufe0f"


def find_hidden(text: str) -> int | None:
    """Return the offset of the first hidden character, or None.

    U+200D is hidden except between two emoji, where a skin tone or U+FE0F may stand before it.

    >>> find_hidden("a\\u200bb")
    1
    """
    if text.isascii():
        return None
    for match in _SUSPECT.finditer(text):
        at = match.start()
        if text[at] != _JOINER or not _joins_emoji(text, at):
            return at
    return None


def _joins_emoji(text: str, at: int) -> bool:
    before = at - 1
    if before >= 1 and (text[before] == _VARIATION or _is_skin_tone(text[before])):
        before -= 1
    return (
        before >= 0 and at + 1 < len(text) and _is_emoji(text[before]) and _is_emoji(text[at + 1])
    )


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_emoji(character: str) -> bool:
    """Whether the character can take part in a joined emoji (Unicode blocks, not a full table)."""
    code = ord(character)
    return (
        0x1F000 <= code <= 0x1FAFF
        or 0x2190 <= code <= 0x21FF
        or 0x2300 <= code <= 0x23FF
        or 0x25A0 <= code <= 0x27BF
        or 0x2B00 <= code <= 0x2BFF
    ) and not _is_skin_tone(character)

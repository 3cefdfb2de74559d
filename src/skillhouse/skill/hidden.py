"""Characters that a person does not see and a model does: found, described, shown as escapes.

`find_hidden` is the rule of the vectors, for names, descriptions and findings (vectors/README.md,
stage 4). `hidden_text` is wider and judges what a model is about to get: what may spell an
instruction asks a person first, whatever the rules allow (docs/decisions/0151-hidden-text.md).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise

from msgspec import Struct

from skillhouse.floor.regex import regex

SIGNS_MAX = 8
"""Invisible signs of one text from which on it may hide an instruction: as bits they are a letter.
Of 1,367 published SKILL.md files none has a single one."""
COUNTED_MAX = 10_000
"""Hidden characters that are counted; there may be a million."""
SPELLED_MAX = 400
"""Characters of what tag characters spell that are kept."""

# `find_hidden` judges those by their neighbours that spelling needs somewhere.
_SUSPECT = regex(
    "[\u180e\u200b\u200c\u200d\u2060-\u2064\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
_INVISIBLE = regex(
    # Controls but tab and the ends of lines and pages, then what Unicode has as
    # Default_Ignorable_Code_Point (DerivedCoreProperties.txt), and annotation marks.
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_CONCEALING = regex("(?:\x1b\\[|\x9b)(?:[0-9]+;)*8[;m]")
"""Has a terminal write in a way that is not seen (ECMA-48, 8.3.117, parameter 8)."""
_ASCII_SEEN = bytes([9, 10, 12, 13, *range(32, 127)])
_JOINER = "\u200d"
_NON_JOINER = "\u200c"
_VARIATION = "\ufe0f"
_BLACK_FLAG = "\U0001f3f4"
_FLAGS = tuple(
    _BLACK_FLAG + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""England, Scotland, Wales: the tag sequences that Unicode recommends (emoji-sequences.txt)."""


class HiddenText(Struct, frozen=True, kw_only=True):
    """What a text hides from people."""

    kinds: tuple[tuple[str, int], ...]
    """What it is, as a noun, with its number; the most frequent first."""
    line: int
    """Line of the first, from 1."""
    example: str
    """The first one as an escape."""
    asks: bool
    """Whether it may hide an instruction, so that a person is asked before a model gets it."""
    spelled: str = ""
    """What tag characters among it spell, in ASCII: as untrusted as the text."""

    @property
    def summary(self) -> str:
        """What was found, such as `171 tag characters from line 12`; it has no text of a file."""
        counts = ", ".join(
            f"{count} {kind}" if count == 1 else f"{count} {kind}s" for kind, count in self.kinds
        )
        most = "at least " if sum(count for _, count in self.kinds) >= COUNTED_MAX else ""
        return f"{most}{counts} from line {self.line}"

    @property
    def notice(self) -> str:
        """The first line of a text that is handed over with them as escapes."""
        return f"[hidden characters: {self.summary}, shown as escapes such as {self.example}]"


def find_hidden(text: str) -> int | None:
    """Return the offset of the first hidden character by the rule of the vectors, or None.

    What the script of its neighbours demands is text: see `is_demanded`.
    """
    if text.isascii():
        return None
    for match in _SUSPECT.finditer(text):
        at = match.start()
        if not is_demanded(text, at):
            return at
    return None


def is_demanded(text: str, at: int) -> bool:
    """Whether spelling needs an invisible character where it is, so that it is text.

    A joiner of emoji, a tag of the flags of England, Scotland and Wales, U+200C and U+200D where
    Arabic or Indic spelling has them, U+200B between words of scripts that have no blanks.
    """
    sign = text[at]
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    if sign == _JOINER:
        return _joins_emoji(text, at) or _shapes(before, after)
    if sign == _NON_JOINER:
        return _parts_arabic(before, after) or _shapes_indic(before, after)
    if sign == "\u200b":
        return _parts_words(before, after)
    return _is_tag(sign) and _is_in_flag(text, at)


def hidden_text(text: str, *, is_part: bool = False) -> HiddenText | None:
    """Return what of a text, or of a part of one, a person does not see; None for nothing.

    Signs that belong to what is seen do not count: those of emoji, of the flags of England,
    Scotland and Wales, of Arabic, Indic and South-East Asian spelling, of Chinese variants, and the
    byte order mark that editors put before a whole text.
    """
    if text.isascii() and not text.encode().translate(None, _ASCII_SEEN):
        return None
    begin = 0 if is_part else text.startswith("\ufeff")
    found = (match.start() for match in _INVISIBLE.finditer(text, begin))
    places = list(islice((at for at in found if not _is_seen(text, at)), COUNTED_MAX))
    if not places:
        return None
    kinds: Counter[str] = Counter()
    for sign, count in Counter(text[at] for at in places).items():
        kinds[_kind(sign)] += count
    tags = (chr(ord(text[at]) - 0xE0000) for at in places if kinds[_TAG] and _is_tag(text[at]))
    return HiddenText(
        kinds=tuple(kind for kind in kinds.most_common() if kind[1]),
        line=text.count("\n", 0, places[0]) + 1,
        example=_escape(text[places[0]]),
        asks=_asks(kinds, places) or _CONCEALING.search(text) is not None,
        spelled="".join(sign for sign in tags if " " <= sign <= "~")[:SPELLED_MAX],
    )


def _asks(kinds: Counter[str], places: Sequence[int]) -> bool:
    # Soft hyphens are spelling, and hide nothing as long as other characters separate them.
    signs = kinds.total() - kinds[_SOFT_HYPHEN]
    runs = any(after - before == 1 for before, after in pairwise(places))
    return runs or signs >= SIGNS_MAX or any(kinds[kind] for kind in _ASKING)


def revealed(text: str) -> str:
    """Return a text with what a person does not see of it as escapes; its lines stay the same."""
    if text.isascii():
        # No control character is ever seen, and output of programs may have millions.
        controls = set(text.encode().translate(None, _ASCII_SEEN))
        return text.translate({sign: _escape(chr(sign)) for sign in controls}) if controls else text
    return _INVISIBLE.sub(
        lambda found: found[0] if _is_seen(text, found.start()) else _escape(found[0]), text
    )


def handed_over(text: str) -> str:
    """Return a text for a model: hidden characters as escapes, and the first line says so."""
    hidden = hidden_text(text)
    return text if hidden is None else f"{hidden.notice}\n{revealed(text)}"


_OF_EMOJI = frozenset({"So", "Sm", "Sk", "Po", "Pd", "Nd"})
"""Categories of characters that have an emoji form, but for U+2139, which is a letter."""
_TAG = "tag character"
_BIDI = "bidirectional control"
_SOFT_HYPHEN = "soft hyphen"
_ASKING = frozenset({_TAG, _BIDI})
"""Kinds of which one is enough: each hides or reorders what is around it."""

_KINDS = (
    ("\U000e0000\U000e007f", _TAG),
    ("\u202a\u202e\u2066\u2069", _BIDI),
    ("\u00ad\u00ad", _SOFT_HYPHEN),
    ("\ufe00\ufe0f\U000e0100\U000e01ef\u180b\u180d\u180f\u180f", "variation selector"),
    ("\u200e\u200f\u061c\u061c", "direction mark"),
    ("\u200b\u200d\u2060\u2064\u180e\u180e\ufeff\ufeff", "zero-width sign"),
    ("\x00\x1f\x7f\x9f", "control character"),
)
"""Ranges of characters, each as its first and last, and what they are called."""


def _kind(character: str) -> str:
    for ranges, kind in _KINDS:
        pairs = zip(ranges[::2], ranges[1::2], strict=True)
        if any(first <= character <= last for first, last in pairs):
            return kind
    return "invisible sign"


def _is_tag(character: str) -> bool:
    return "\U000e0000" <= character <= "\U000e007f"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _is_seen(text: str, at: int) -> bool:
    """Whether an invisible character does what it is for, so that a person sees what it does."""
    sign = text[at]
    if "\x00" <= sign <= "\x9f":
        return False
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    if is_demanded(text, at):
        return True
    if sign in "\u200c\u200d":
        return _shapes_letter(before) and not _INVISIBLE.match(after)
    if sign == "\u200b":
        return False
    if sign in "\u200e\u200f\u061c":
        return _is_right_to_left(before) or _is_right_to_left(after)
    if "\ufe00" <= sign <= "\ufe0f" or "\U000e0100" <= sign <= "\U000e01ef":
        return before != "" and _varies(before, sign)
    if sign in "\u180b\u180c\u180d\u180f":
        return "\u1820" <= before <= "\u18aa"
    return False


def _is_in_flag(text: str, at: int) -> bool:
    flag = text.rfind(_BLACK_FLAG, max(0, at - 6), at)
    return flag >= 0 and text.startswith(_FLAGS, flag)


_VIRAMA = 9
"""The combining class of signs that join consonants (UAX #44, "Canonical_Combining_Class")."""


def _shapes(before: str, after: str) -> bool:
    """Whether U+200D decides a form: of Arabic letters and Indic conjuncts.

    The Unicode Standard, sections 9.2 ("Cursive Joining") and 12.1 ("Explicit Half-Consonants");
    RFC 5892, A.2, has the second for names of domains.
    """
    is_arabic = _is_arabic(before) and (_is_arabic(after) or not _is_letter(after))
    return (is_arabic and not _is_invisible(after)) or _shapes_indic(before, after)


def _parts_arabic(before: str, after: str) -> bool:
    """Whether U+200C is between Arabic letters, or between another word and its Arabic ending.

    Persian writes prefixes and suffixes so, at Latin words too (the Unicode Standard, section 9.2;
    RFC 5892, A.1, for names of domains).
    """
    return _is_arabic(after) and before != "" and (_is_letter(before) or before in ")]»”’")


def _shapes_indic(before: str, after: str) -> bool:
    """Whether a joiner is beside a virama, after a letter of an Indic script (section 12.1)."""
    if _is_indic(before) and unicodedata.combining(before) == _VIRAMA:
        return not _is_invisible(after)
    return _is_indic(before) and after != "" and unicodedata.combining(after) == _VIRAMA


def _parts_words(before: str, after: str) -> bool:
    """Whether U+200B is between words of a script without blanks (section 23.2)."""
    return _is_spaceless(before) and _is_spaceless(after)


def _is_letter(character: str) -> bool:
    return character != "" and unicodedata.category(character)[0] in "LMN"


def _is_invisible(character: str) -> bool:
    return character != "" and _INVISIBLE.match(character) is not None


def _is_arabic(character: str) -> bool:
    """Whether it is a letter or mark of the Arabic script, or of the scripts that join as it."""
    # Arabic, Syriac, Thaana, N'Ko and the Arabic extensions: blocks 0600 to 08FF and those of
    # presentation forms, without Samaritan and Hebrew.
    is_block = "\u0600" <= character <= "\u07ff" or "\u0840" <= character <= "\u08ff"
    is_form = "\ufb50" <= character <= "\ufdff" or "\ufe70" <= character <= "\ufefc"
    return (is_block or is_form) and unicodedata.category(character)[0] in "LM"


def _is_indic(character: str) -> bool:
    """Whether it is a letter or mark of a script with a virama, of India or beside it."""
    return (
        "\u0900" <= character <= "\u0dff"
        or "\u1000" <= character <= "\u109f"
        or "\u1b00" <= character <= "\u1bbf"
        or "\ua8e0" <= character <= "\ua8ff"
        or "\ua980" <= character <= "\ua9df"
    ) and unicodedata.category(character)[0] in "LM"


def _is_spaceless(character: str) -> bool:
    """Whether it is of a script of class SA (LineBreak.txt): Thai, Lao, Burmese, Khmer, Tai."""
    return (
        "\u0e00" <= character <= "\u0eff"
        or "\u1000" <= character <= "\u109f"
        or "\u1780" <= character <= "\u17ff"
        or "\u1950" <= character <= "\u19df"
        or "\u1a20" <= character <= "\u1aad"
        or "\ua9e0" <= character <= "\ua9fe"
        or "\uaa60" <= character <= "\uaadf"
    )


def _varies(base: str, selector: str) -> bool:
    """Whether the character may have the variant that a selector asks for (UTS #37, UTS #51)."""
    code = ord(base)
    is_ideograph = 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or code >= 0x20000
    if selector > "\ufe0f":
        return is_ideograph and code < 0xE0000
    if selector >= "\ufe0e":
        return base == "\u2139" or unicodedata.category(base) in _OF_EMOJI
    return (
        (is_ideograph and code < 0xE0000)
        or base == "0"
        or 0x2200 <= code <= 0x22FF
        or 0x2A00 <= code <= 0x2AFF
        or 0x1000 <= code <= 0x109F
        or 0xA840 <= code <= 0xA87F
        or 0x3000 <= code <= 0x303F
        or 0xFF01 <= code <= 0xFF60
    )


def _shapes_letter(character: str) -> bool:
    """Whether joiners decide how the character looks: of Arabic, Indic and related scripts."""
    return (
        ("\u0600" <= character <= "\u08ff" or "\ufb50" <= character <= "\ufefc")
        or "\u0900" <= character <= "\u0dff"
        or "\u0f00" <= character <= "\u109f"
        or "\u1780" <= character <= "\u18af"
    ) and unicodedata.category(character)[0] in "LM"


def _is_right_to_left(character: str) -> bool:
    return character != "" and unicodedata.bidirectional(character) in ("R", "AL", "AN")


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


def one_line(text: str) -> str:
    r"""Return a text on one line, without what cannot be seen.

    >>> one_line("half\n\x1b[31mdone")
    'half [31mdone'
    """
    shown = (
        letter if letter.isprintable() or is_demanded(text, at) else " "
        for at, letter in enumerate(text)
    )
    return " ".join("".join(shown).split())

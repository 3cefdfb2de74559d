"""The value of a match by BM25F, and its form in one byte."""

from __future__ import annotations

import math
from collections.abc import Iterable

WEIGHTS = (6.0, 4.0, 1.0)
"""Weight of a match in name, description and body."""
B = (0.3, 0.5, 0.6)
"""How much a field's length beyond the average lessens a match in it."""
K1 = 2.5
"""How fast repeated matches level off. All three: decision record 0300."""

FIELD_BITS = ((13, 0x7), (9, 0xF), (0, 0x1FF))
"""Shift and largest value of the times that a word occurs in name, description and body: what is
beyond counts no more, and hardly would (BM25 levels off)."""
LENGTH_BITS = ((23, 0x1FF), (12, 0x7FF), (0, 0xFFF))
"""Shift and largest value of the number of stems in name, description and body."""

USUAL_LENGTHS = (3.0, 39.0, 460.0)
"""Stems in the fields of a published skill, on average. Impacts are computed with them, so that
they are the same in every segment, whatever else it has."""
IMPACT_MAX = 255
_NAME_BITS, _DESCRIPTION_BITS, _BODY_BITS = 3, 4, 4
_STEP = math.log(1.35)


def field_norm(field: int, length: float, average: float) -> float:
    """Return by what the matches of a field are divided."""
    return 1.0 - B[field] + B[field] * length / average


class Impacts(dict[int, int]):
    """The impact of a match, from 1 to `IMPACT_MAX`, by its packed counts and `length_class`."""

    def __missing__(self, key: int) -> int:
        often = 0.0
        lengths = _class_lengths(key >> 16)
        for field, (shift, most) in enumerate(FIELD_BITS):
            if count := key >> shift & most:
                norm = field_norm(field, lengths[field], USUAL_LENGTHS[field])
                often += WEIGHTS[field] * count / norm
        value = self[key] = max(1, round(IMPACT_MAX * often / (often + K1)))
        return value


def length_classes(packed: Iterable[int]) -> list[int]:
    """Return the class of the lengths of each document, above the sixteen bits of counts."""
    # Lengths in classes of a third, so that few impacts are ever computed.
    return [_length_class(lengths) for lengths in packed]


def _length_class(packed: int) -> int:
    name, description, body = (packed >> shift & most for shift, most in LENGTH_BITS)
    of_name = min(name, (1 << _NAME_BITS) - 1)
    of_description = _step(description / 8, _DESCRIPTION_BITS)
    of_body = _step(body / 16, _BODY_BITS)
    classes = (of_name << _DESCRIPTION_BITS | of_description) << _BODY_BITS | of_body
    return classes << 16


def _step(ratio: float, bits: int) -> int:
    return min(int(math.log(ratio) / _STEP + 1.0), (1 << bits) - 1) if ratio >= 1.0 else 0


def _class_lengths(classes: int) -> tuple[float, float, float]:
    """Return lengths in the middle of their classes."""
    body = classes & (1 << _BODY_BITS) - 1
    description = classes >> _BODY_BITS & (1 << _DESCRIPTION_BITS) - 1
    middle = math.exp(-_STEP / 2)
    return (
        float(classes >> _BODY_BITS + _DESCRIPTION_BITS),
        8 * math.exp(_STEP * description) * middle,
        16 * math.exp(_STEP * body) * middle,
    )

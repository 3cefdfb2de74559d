"""Numbers the documents of several segments in one order, and finds them by name."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from skillhouse.retrieval.hits import Head
from skillhouse.retrieval.rank import Part, Ranking
from skillhouse.retrieval.segment import Segment
from skillhouse.retrieval.stubs import is_stub
from skillhouse.retrieval.tokens import name_keys

PIN_LEAST = 3
"""Letters of a query from which skills whose name begins with it come first."""
PINS_MAX = 20
"""Skills that come first so; the beginning of more names is a common word."""

_BREAK = "\n"
"""Between keys, which have no blanks."""


class IndexRows:
    """Documents of several segments, in the order of equal scores."""

    def __init__(self, segments: Sequence[tuple[Segment, Sequence[Head | None]]]) -> None:
        """Take the segments, each with the heads of its documents; None for one that is hidden."""
        # Equal scores keep the order of the rows, so the rows are sorted by id.
        order = sorted(
            (head, segment.ties[number], part, number)
            for part, (segment, heads) in enumerate(segments)
            for number, head in enumerate(heads)
            if head is not None
        )
        self.heads = [head for head, *_ in order]
        rows = [array("i", [-1]) * len(heads) for _, heads in segments]
        for row, (_, _, part, number) in enumerate(order):
            rows[part][number] = row
        parts = [Part(segment, rows[part]) for part, (segment, _) in enumerate(segments)]
        self.ranking = Ranking(parts, len(order))
        self._stubs: dict[int, bool] = {}
        self.of_key: dict[str, list[int]] = {}
        ids = name_keys([head.id for head in self.heads])
        names = name_keys([head.name for head in self.heads])
        for row, keys in enumerate(zip(ids, names, strict=True)):
            for key in {*keys} - {""}:
                self.of_key.setdefault(key, []).append(row)
        # One text is searched in a tenth of the time that the keys take.
        self._ids, self._names = (
            _BREAK.join(("", *(key for key in self.of_key if (":" in key) == is_id), ""))
            for is_id in (True, False)
        )

    def begun(self, key: str, *, parts: bool) -> list[int]:
        """Return the rows whose name or id begins with a key, if they are few.

        Args:
            parts: Whether the key has to end where a word of the name does.
        """
        if len(key) < PIN_LEAST:
            return []
        keys = self._ids if ":" in key else self._names
        wanted = _BREAK + key + ("-" if parts else "")
        rows: set[int] = set()
        at = keys.find(wanted)
        while at >= 0 and len(rows) <= PINS_MAX:
            end = keys.index(_BREAK, at + 1)
            # The beginning of every id, such as `user:`, is none of a name.
            if ":" not in keys[at + 1 + len(key) : end]:
                rows.update(self.of_key[keys[at + 1 : end]])
            at = keys.find(wanted, end)
        if len(rows) > PINS_MAX:
            return []
        return [row for row in sorted(rows) if not self.is_stub(row)]

    def is_stub(self, row: int) -> bool:
        found = self._stubs.get(row)
        if found is None:
            head = self.heads[row]
            found = self._stubs[row] = is_stub(head.name, head.description)
        return found

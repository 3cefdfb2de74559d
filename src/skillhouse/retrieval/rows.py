"""Numbers the documents of several segments in one order, and finds them by name."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
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


class _Keys:
    """Keys of rows in alphabetical order: made sooner than a dictionary, and half as large."""

    def __init__(self, ids: Sequence[str], names: Sequence[str], *, are_ids: bool) -> None:
        """Take, of the keys of the id and of the name of each row, those that are like ids."""
        keys = [*ids, *names]
        chosen = [at for at, key in enumerate(keys) if (":" in key) == are_ids]
        # Rows are in the order of ids, so there is little to sort.
        chosen.sort(key=keys.__getitem__)
        self._keys = [keys[at] for at in chosen]
        self._rows = array("I", [at % len(ids) for at in chosen])

    def named(self, key: str) -> set[int]:
        """Return the rows with a key."""
        first = bisect_left(self._keys, key)
        return set(self._rows[first : bisect_right(self._keys, key, first)])

    def begun(self, beginning: str, key: str) -> set[int]:
        """Return rows with a name that begins so, or an id, not many more than `PINS_MAX`."""
        rows: set[int] = set()
        for at in range(bisect_left(self._keys, beginning), len(self._keys)):
            if not self._keys[at].startswith(beginning) or len(rows) > PINS_MAX:
                break
            # The beginning of every id, such as `user:`, is none of a name.
            if ":" not in self._keys[at][len(key) :]:
                rows.add(self._rows[at])
        return rows


class IndexRows:
    """Documents of several segments, in the order of equal scores."""

    def __init__(self, segments: Sequence[tuple[Segment, Sequence[Head | None]]]) -> None:
        """Take the segments, each with the heads of its documents; None for one that is hidden."""
        everything = [head for _, heads in segments for head in heads]
        of_document = {at: head for at, head in enumerate(everything) if head is not None}
        # Equal scores keep the order of the rows, so the rows are sorted by id.
        order = sorted(of_document, key=lambda at: of_document[at].id)
        if len({head.id for head in of_document.values()}) < len(order):
            ties = [tie for segment, _ in segments for tie in segment.ties]
            order.sort(key=lambda at: (of_document[at], ties[at], at))
        self.heads = [of_document[at] for at in order]
        rows = array("i", [-1]) * len(everything)
        for row, at in enumerate(order):
            rows[at] = row
        parts: list[Part] = []
        first = 0
        for segment, heads in segments:
            parts.append(Part(segment, rows[first : first + len(heads)]))
            first += len(heads)
        self.ranking = Ranking(parts, len(order))
        self._stubs: dict[int, bool] = {}
        ids = name_keys([head.id for head in self.heads])
        names = name_keys([head.name for head in self.heads])
        self._ids, self._names = (_Keys(ids, names, are_ids=are_ids) for are_ids in (True, False))

    def named(self, key: str) -> list[int]:
        """Return the rows whose name or id has a key."""
        return sorted((self._ids if ":" in key else self._names).named(key)) if key else []

    def begun(self, key: str, *, parts: bool) -> list[int]:
        """Return the rows whose name or id begins with a key, if they are few.

        Args:
            parts: Whether the key has to end where a word of the name does.
        """
        if len(key) < PIN_LEAST:
            return []
        keys = self._ids if ":" in key else self._names
        rows = keys.begun(key + ("-" if parts else ""), key)
        if len(rows) > PINS_MAX:
            return []
        return [row for row in sorted(rows) if not self.is_stub(row)]

    def is_stub(self, row: int) -> bool:
        found = self._stubs.get(row)
        if found is None:
            head = self.heads[row]
            found = self._stubs[row] = is_stub(head.name, head.description)
        return found

"""Tests of tools/call.py: the values of a call."""

from __future__ import annotations

import msgspec

from skillhouse.floor.structs import replace
from skillhouse.tools import ToolResult


def test_how_a_result_is_cut_is_neither_shown_nor_compared() -> None:
    whole = ToolResult(content="a", data={"lines": 1})
    cut = replace(whole, excerpt="ends", most=7, has_gaps=True)
    shown = "ToolResult(content='a', status='ok', data={'lines': 1}, approval_id=None)"
    assert (repr(whole), repr(cut)) == (shown, shown)
    assert whole == cut
    assert cut != replace(cut, content="b")
    assert whole != ("a", "ok", {"lines": 1}, None)
    assert hash(replace(whole, data=None)) == hash(replace(cut, data=None))
    assert (cut.excerpt, cut.most, cut.has_gaps) == ("ends", 7, True)
    assert msgspec.json.decode(msgspec.json.encode(cut))["excerpt"] == "ends"

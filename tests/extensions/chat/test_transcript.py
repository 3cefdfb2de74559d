"""Transcripts: what a crash, damage and secrets leave of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.audit import KnownSecrets
from skillhouse.extensions.chat.stored_messages import kept_form
from skillhouse.extensions.chat.transcript import ChatError, Transcript, Transcripts
from skillhouse.floor import StateError

ONE, TWO = {"kind": "request", "parts": []}, {"kind": "response", "parts": []}


def begun(base: Path) -> tuple[Transcripts, Transcript]:
    kept = Transcripts(base)
    return kept, kept.begin(place="/p", agent="default", model="m")


def test_what_was_added_is_read_back_and_private(tmp_path: Path) -> None:
    kept, made = begun(tmp_path)
    made.add("messages", messages=[ONE, TWO])
    made.add("undone", count=1)
    made.add("activations", activations={"version": 1})
    made.close()
    assert made.path.stat().st_mode & 0o777 == 0o600
    again, found = kept.resume(kept.find("", place="/p"))
    again.close()
    assert (found.messages, found.activations, found.torn) == ([ONE], {"version": 1}, 0)


def test_every_cut_of_the_end_is_survived_and_nothing_is_lost(tmp_path: Path) -> None:
    kept, made = begun(tmp_path)
    made.add("messages", messages=[ONE])
    whole = made.path.read_bytes()
    made.add("messages", messages=[TWO])
    made.close()
    data = made.path.read_bytes()
    for length in range(len(whole) + 1, len(data) - 1):
        made.path.write_bytes(data[:length])
        again, found = kept.resume(made.path)
        assert (found.messages, found.torn) == ([ONE], 1)
        again.add("messages", messages=[TWO])
        again.close()
        later, found = kept.resume(made.path)
        later.close()
        assert (found.messages, found.torn) == ([ONE, TWO], 1)
        assert made.path.read_bytes().startswith(data[:length])


@pytest.mark.parametrize(
    ("line", "new", "message"),
    [
        (1, b'{"kind": "messages", "messages": [1]}', "line 2 of the transcript is damaged"),
        (1, b"{", "line 2 of the transcript is damaged"),
        (0, b"{", "the beginning of the transcript is damaged"),
        (0, b'{"kind": "chat", "schema": 99}', "newer than this program"),
    ],
)
def test_damage_and_newer_files_are_errors_that_change_nothing(
    tmp_path: Path, line: int, new: bytes, message: str
) -> None:
    kept, made = begun(tmp_path)
    made.add("messages", messages=[ONE])
    made.add("messages", messages=[TWO])
    made.close()
    lines = made.path.read_bytes().split(b"\n")
    lines[line] = new
    made.path.write_bytes(b"\n".join(lines))
    before = made.path.read_bytes()
    with pytest.raises(StateError, match=message):
        kept.resume(made.path)
    assert made.path.read_bytes() == before


def test_one_program_at_a_time_writes(tmp_path: Path) -> None:
    kept, made = begun(tmp_path)
    with pytest.raises(ChatError, match="open in another program"):
        kept.resume(made.path)
    made.close()


def test_secrets_are_not_kept_and_arguments_stay_json() -> None:
    known = KnownSecrets(["correct-horse-battery"])
    parts = [
        {"part_kind": "user-prompt", "content": "use correct-horse-battery"},
        {"part_kind": "tool-call", "args": '{"password": "x", "n": ["sk-0123456789abcdefgh"]}'},
        {"part_kind": "thinking", "content": "correct-horse-battery", "signature": "s"},
    ]
    made = kept_form({"kind": "request", "parts": parts}, known)["parts"]
    assert [part.get("content", part.get("args")) for part in made] == [
        "use [REDACTED]",
        '{"password": "[REDACTED]", "n": ["[REDACTED]"]}',
        "[REDACTED]",
    ]
    assert made[2]["signature"] is None

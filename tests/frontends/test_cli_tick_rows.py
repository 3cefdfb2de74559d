"""The list in which a person ticks skills: its keys, its lines, and both at a real terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.frontends.cli.tick_rows import FILTER_MAX, KEYS, TickList, TickRow
from skillhouse.presentation.text import width_of
from tests.frontends.terminals import Seat
from tests.registry.sources import make_skill

HOSTILE = "x\x1b[2J\x1b]0;owned\x07\u202e\r\nall"


def plain(text: str, _: str) -> str:
    return text


def pressed(rows: list[TickRow], *keys: str, height: int = 24) -> TickList:
    found = TickList("Which ones?", rows)
    for key in keys:
        # As the terminal does it: a key is pressed on what is drawn.
        found.lines(80, height, plain)
        found.press(key)
    return found


def rows(*labels: str) -> list[TickRow]:
    return [TickRow(label=label) for label in labels]


FRUIT = rows("apple", "banana", "cherry", "Date")


@pytest.mark.parametrize(
    ("keys", "ticked"),
    [
        ((" ",), {0}),
        ((" ", "up", " "), set()),
        (("down", "down", " ", "up", "up", " "), {2, 1}),
        (("up", " "), {0}),
        (("end", " ", " "), set()),
        (("page-down", " "), {3}),
        (("end", "home", " "), {0}),
        (("ctrl-a",), {0, 1, 2, 3}),
        (("ctrl-a", "ctrl-a"), set()),
        (("a", "n", " "), {1}),
        (("A", "ctrl-a", "ctrl-u", "down", "down", " "), {0, 1, 3} | {2}),
        (("z", "z", " ", "backspace", "backspace", " "), {0}),
        (("c", " ", "escape", "up", "up", " "), {2, 0}),
        (("unknown", "\x00", "\u202e"), set()),
    ],
)
def test_keys_move_tick_and_filter(keys: tuple[str, ...], ticked: set[int]) -> None:
    assert pressed(FRUIT, *keys).ticked == ticked


def test_enter_needs_something_ticked_and_escape_ends_the_filter_first() -> None:
    found = pressed(FRUIT, "enter")
    assert not found.is_over
    assert found.lines(80, 24, plain)[-1].startswith("nothing is ticked yet")
    found.press(" ")
    found.press("enter")
    assert (found.is_over, found.is_cancelled) == (True, False)
    found = pressed(FRUIT, "a", "escape")
    assert not found.is_over
    found.press("escape")
    assert (found.is_over, found.is_cancelled) == (True, True)


def test_what_is_refused_cannot_be_ticked_and_says_why() -> None:
    some = [TickRow(label="bad", fault="archive-link: \x1b[31mx"), TickRow(label="good")]
    found = pressed(some, " ")
    assert found.ticked == set()
    assert found.lines(80, 24, plain)[-1] == "refused: archive-link: \\x1b[31mx"
    found.press("ctrl-a")
    assert found.ticked == {1}
    assert found.lines(80, 24, plain)[1] == "> [-] bad"


def test_what_is_shown() -> None:
    assert pressed(FRUIT, "down", " ").lines(80, 24, plain) == [
        "Which ones? 1 of 4 ticked",
        "  [ ] apple",
        "  [x] banana",
        "> [ ] cherry",
        "  [ ] Date",
        KEYS,
        "",
    ]
    found = pressed(FRUIT, "d").lines(80, 24, plain)
    assert found[1:-1] == ["> [ ] Date", "", "", "", "filter: d_  (1 found)"]


def test_a_long_list_moves_through_its_window() -> None:
    many = rows(*(f"skill-{number:03}" for number in range(500)))
    found = pressed(many, *["down"] * 30, height=10)
    lines = found.lines(80, 10, plain)
    assert len(lines) == 9
    assert lines[0] == "Which ones? 0 of 500 ticked, 494 more with the arrows"
    assert lines[6] == "> [ ] skill-030"
    found.press("home")
    assert found.lines(80, 10, plain)[1] == "> [ ] skill-000"
    for key in "499":
        found.press(key)
    assert found.lines(80, 10, plain)[1] == "> [ ] skill-499"


@pytest.mark.parametrize("columns", [20, 33, 80])
def test_no_line_is_wider_than_the_terminal_or_holds_a_code(columns: int) -> None:
    some = rows("技能" * 40, "e\u0301" * 90, HOSTILE, "x" * 300, "🧰" * 50)
    found = pressed(some, *"x" * (FILTER_MAX + 5))
    assert pressed(some).lines(columns, 24, plain)[3].lstrip().startswith("[ ] x\\x1b[2J")
    for one in (found, pressed(some, " ", "down")):
        for line in one.lines(columns, 24, plain):
            assert line.isprintable()
            assert width_of(line) < columns


def many(place: Path, *names: str) -> str:
    for name in names:
        make_skill(place / "many" / name)
    return str(place / "many")


def tried(place: Path, *names: str) -> tuple[str, ...]:
    return ("install", many(place, *names), "--dry-run", "--json")


def names_in(text: str) -> list[str]:
    value = json.loads(text[text.index("{") :])
    return [one["name"] for one in value["skills"]]


@pytest.mark.slow
def test_skills_are_ticked_with_keys(place: Path) -> None:
    seat = Seat(place, *tried(place, "one", "two", "three"))
    seat.until("space ticks")
    assert seat.is_raw()
    seat.type("\x1b[B\x1b[B ")
    seat.until("1 of 3 ticked")
    seat.type("\x1b[A\x1bOA \r")
    assert seat.end() == 0
    assert names_in(seat.text) == ["one", "two"]


@pytest.mark.slow
def test_an_arrow_that_arrives_in_pieces_is_no_escape(place: Path) -> None:
    seat = Seat(place, *tried(place, "one", "two"))
    seat.until("space ticks")
    for piece in ("\x1b", "[", "B", " "):
        seat.type(piece)
    seat.until("1 of 2 ticked")
    seat.type("\x1bx\x1b[99;9u\r")
    assert seat.end() == 0
    assert names_in(seat.text) == ["two"]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "code"), [("\x1b", 2), ("\x04", 2), ("\x03", 130)])
def test_the_terminal_is_as_before_after_the_end(place: Path, key: str, code: int) -> None:
    seat = Seat(place, *tried(place, "one", "two"))
    seat.until("space ticks")
    seat.type(key)
    seat.until("skillhouse: ")
    assert not seat.is_raw()
    assert seat.end() == code
    assert not (place / "home/.agents/skills").exists()


@pytest.mark.slow
def test_what_was_typed_before_the_list_was_there_is_no_answer(place: Path) -> None:
    arguments = tried(place, "one", "two")
    seat = Seat(place, *arguments)
    seat.type(" \r unsigned\r")
    seat.until("0 of 2 ticked")
    seat.type("\x1b")
    assert seat.end() == 2


@pytest.mark.slow
def test_a_terminal_that_becomes_narrow_and_one_without_colours(place: Path) -> None:
    seat = Seat(place, *tried(place, "one", "a" * 60), columns=70, NO_COLOR="1")
    seen = seat.until("space ticks")
    assert "a" * 60 in seen
    assert "\x1b[1m" not in seen
    seat.resize(30, 12)
    seen = seat.until("space ticks")
    assert f"[ ] {'a' * 22}…" in seen
    # Two lines are folded to three each: eight lines are below the first one.
    assert "\x1b[8A\x1b[J" in seen
    seat.type("\x1b")
    assert seat.end() == 2


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"columns": 19}, {"lines": 4}])
def test_a_plain_or_tiny_terminal_has_numbers(place: Path, more: dict[str, int]) -> None:
    arguments = tried(place, "one", "two", "three")
    seat = Seat(place, *arguments, **more)  # type: ignore[arg-type] # Some are variables.
    seen = seat.until("or `all`)")
    assert "   2  three" in seen
    assert not seat.is_raw()
    seat.type("1 3\n")
    assert seat.end() == 0
    assert names_in(seat.text) == ["one", "two"]
    seat = Seat(place, *arguments, **more)  # type: ignore[arg-type] # Some are variables.
    seat.until("or `all`)")
    seat.type("1 9\n")
    assert seat.end() == 2

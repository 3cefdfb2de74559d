"""What keeping skills in a context costs, and what searching notes costs.

`./x bench context [--rounds N]` measures wall time in one process and one event loop, rounds
interleaved, medians. The floor of attaching skills again is loading them one by one; that of a
search of notes is reading the files.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import anyio

from _measure import Case, in_turns
from skillhouse.house import Conversation, Locations, MemorySettings, Skillhouse, configured
from skillhouse.tools import Attachment

SKILLS = 5
RESULTS = 200
"""Results of calls in a context."""
NOTES = 50
"""Files of notes, of about 4 KB each."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what outlives a context.")
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory, house_in(Path(directory).resolve()) as house:
        found = anyio.run(interleaved, cases_of(house), rounds)
    loading, attaching = found["skills loaded one by one"], found["the same attached again"]
    reading, searching = found["notes read by hand"], found["notes searched again"]
    print(f"{rounds} rounds; {SKILLS} skills of 8 KB, {RESULTS} results, {NOTES} files of notes\n")
    print("| case | median |", "| --- | --: |", sep="\n")
    print(*(f"| {name} | {us:,.0f} µs |" for name, us in found.items()), sep="\n")
    print(f"| attached again beside loaded | {attaching / loading:.2f} × |")
    print(f"| searched again beside read | {searching / reading:.2f} × |")
    first = found["notes searched after a change"]
    print(f"| searched after a change beside read | {first / reading:.2f} × |")


def house_in(base: Path) -> Skillhouse:
    """Return a house with skills and notes."""
    for name in ("home", "project/.git", "project/memory"):
        (base / name).mkdir(parents=True)
    for number in range(SKILLS):
        skill = base / f"skills/bird-{number}"
        skill.mkdir(parents=True)
        head = f"---\nname: bird-{number}\ndescription: A bird.\n---\n"
        (skill / "SKILL.md").write_text(head + "A line of instructions.\n" * 330)
    chosen = random.Random(1)
    for number in range(NOTES):
        words = (f"word{chosen.randrange(2_000)}" for _ in range(480))
        text = "".join(word + ("\n\n" if at % 60 == 59 else " ") for at, word in enumerate(words))
        (base / f"project/memory/{number:03}.md").write_text(text)
    places = Locations(
        start=base / "project", home=base / "home", environment={}, managed_file=base / "none"
    )
    memory = MemorySettings(enabled=True)
    return Skillhouse(configured(places), roots=[base / "skills"], memory=memory)


def cases_of(house: Skillhouse) -> dict[str, Case]:
    notes = sorted((house.config.places.start / "memory").iterdir())
    ids = [f"call-{number}" for number in range(RESULTS)]

    def talk() -> Conversation:
        return house.conversation(session_id="a")

    async def loaded() -> None:
        for one in talk().activations.newest():
            talk().activations.unload(one.file)
        for number in range(SKILLS):
            name = {"name": f"bird-{number}"}
            result = await house.call("skill", name, call_id=f"call-{number}", session_id="a")
            assert not result.is_error

    async def attached() -> None:
        talk().activations.last = Attachment()
        found = await talk().reattachment([])
        assert len(found.activations) == SKILLS

    async def looked() -> None:
        await loaded_once()
        assert (await talk().reattachment(ids)).text == ""

    async def loaded_once() -> None:
        kept = talk().activations
        for one in kept.newest():
            kept.note(one, call_id=f"call-{one.name[-1]}")

    async def read() -> None:
        assert sum(len(file.read_text()) for file in notes) > NOTES * 1_000

    async def searched() -> None:
        result = await house.call("memory_search", {"query": "word17 and word23"})
        assert not result.is_error

    async def changed() -> None:
        os.utime(notes[0], ns=(time.time_ns(), time.time_ns()))
        await searched()

    return {
        "skills loaded one by one": loaded,
        "the same attached again": attached,
        "a request that lost nothing": looked,
        "notes read by hand": read,
        "notes searched again": searched,
        "notes searched after a change": changed,
    }


async def interleaved(cases: Mapping[str, Case], rounds: int) -> dict[str, float]:
    """Return the median microseconds of each case."""
    taken = await in_turns(cases, rounds)
    return {name: statistics.median(times) for name, times in taken.items()}


if __name__ == "__main__":
    main()

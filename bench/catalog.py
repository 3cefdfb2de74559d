"""What listing skills costs a house that is warm: each style, and the budgets.

`./x bench catalog [--skills N] [--rounds N]` makes the tree of `bench/discovery.py` and measures in
one process, CPU time of the thread, the middle of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from discovery import WORDS, make_tree
from skillhouse.discovery import catalog_under, render_catalog
from skillhouse.floor.structs import replace
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.skill import DEFAULT_PROFILE, CatalogRule

BAR_MS = 5.0
"""What a catalog of 1,000 skills may take from a warm house."""
REQUEST = " ".join(WORDS[:4])
"""Words of nearly every skill, which take longest to rank."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the catalog.")
    parser.add_argument("--skills", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=51)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        tree = make_tree(place / "tree", options.skills)
        (place / "project").mkdir()
        (place / "home").mkdir()
        places = Locations(
            start=place / "project",
            home=place / "home",
            environment={},
            managed_file=place / "managed.toml",
        )
        with Skillhouse(configured(places), roots=[tree]) as house:
            print(f"{options.skills} skills, {options.rounds} rounds, bar {BAR_MS} ms for xml\n")
            print("| what | ms |\n|---|---:|")
            for name, work in cases(house).items():
                rounds = 5 if "files" in name or "bodies" in name else options.rounds
                print(f"| {name} | {measured(work, rounds):.2f} |", flush=True)


def cases(house: Skillhouse) -> dict[str, Callable[[], object]]:
    """Return what is measured, by what it is called in the table."""
    index = house.view().visible
    length = len(house.catalog().text)

    def within(overflow: str) -> Callable[[], object]:
        rule = CatalogRule(budget_chars=length // 2, overflow=overflow)  # type: ignore[arg-type]
        profile = replace(DEFAULT_PROFILE, catalog=rule)
        return lambda: catalog_under(profile, index)

    return {
        "the house's catalog, xml": house.catalog,
        "a search that gives five": lambda: house.search(REQUEST),
        "for a request, xml": lambda: house.catalog(request=REQUEST),
        "compact": lambda: house.catalog(style="compact"),
        "for a request, compact": lambda: house.catalog(request=REQUEST, style="compact"),
        "tool": lambda: render_catalog(index, style="tool"),
        "titled": lambda: render_catalog(index, style="titled"),
        "opencode": lambda: render_catalog(index, style="opencode"),
        "awareness, which lists files": lambda: render_catalog(index, style="awareness"),
        "direct, which reads bodies": lambda: render_catalog(index, style="direct"),
        "xml, half the room, omitting": within("omit"),
        "xml, half the room, dropping descriptions": within("drop_descriptions"),
        "xml, half the room, shortening": within("shorten"),
        "the system prompt": lambda: house.view().system_prompt(["read"]),
    }


def measured(work: Callable[[], object], rounds: int) -> float:
    """Return the middle of the milliseconds that `work` took, after one run that is not counted."""
    work()
    took = []
    for _ in range(rounds):
        began = time.thread_time()
        work()
        took.append((time.thread_time() - began) * 1_000)
    return statistics.median(took)


if __name__ == "__main__":
    main()

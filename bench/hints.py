"""Measures hints: how often the right skill is named, and how often one is named where none fits.

`./x bench hints [--folder FOLDER] [--speed]`, three minutes; it needs numpy. Libraries of 60, 300
and 1,294 skills are drawn from the development set. All that is fitted, the bound too, is of the
other folds: of owners of skills, and of kinds of everyday requests (decision record 0452).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from _measure import markdown_table
from _relevance import FOLDS, Query, load, parsed
from _robustness import everyday
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.house.skill_hints import BOUND, SKILLS_MAX, WEIGHTS, SkillHints, clues
from skillhouse.retrieval import Hit, SearchIndex
from skillhouse.retrieval.confidence import UNFIT

SIZES = {60: 6, 300: 4, 1_294: 3}
FITTED = 1_294
WRITTEN = ("evals", "hand_en", "hand_zh")
"""Requests that people wrote; the others are cut out of a skill's own text."""
FALSE_SHARES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.08, 0.12)
AIM = 0.04
"""Share of everyday requests that have a hint: below 5 %, as it is another share elsewhere."""
_ROUNDS, _RIDGE = 40, 1e-3


class Example(NamedTuple):
    group: str
    """`written` or `cut`, which a skill fits; `everyday`; `trade`: its skill is not in the library,
    another one may fit."""
    kind: str
    size: int
    fold: int
    clues: tuple[float, ...]
    is_named: bool
    """Whether the right skill would be among those that a hint names."""
    milliseconds: float


def named(hits: Sequence[Hit], relevance: dict[str, int]) -> bool:
    fitting = [hit for hit in hits[:SKILLS_MAX] if hit.confidence >= UNFIT]
    return any({hit.id, *hit.alike} & relevance.keys() for hit in fitting)


def examples(folder: Path) -> list[Example]:
    collection = load(folder)
    documents = {document[0]: document for document in collection.documents}
    written = [query for query in collection.queries if query.type in WRITTEN]
    kinds = sorted({kind for _, kind, _ in everyday()})
    found = []
    for size, libraries in SIZES.items():
        for number in range(libraries):
            chance = random.Random(1_000 * number + size)
            chosen = _library(list(documents), written, size, chance)
            index = SearchIndex.from_documents(d for key, d in documents.items() if key in chosen)

            def example(
                group: str,
                kind: str,
                fold: int,
                query: str,
                relevance: dict[str, int],
                index: SearchIndex = index,
                size: int = size,
            ) -> Example:
                start = time.process_time()
                hits = index.search(query, limit=5, collapse=True)
                spent = 1_000 * (time.process_time() - start)
                values = clues(hits) if hits else (-10.0, 0.0, 0.0)
                return Example(group, kind, size, fold, values, named(hits, relevance), spent)

            for query in collection.queries:
                fits = {key: grade for key, grade in query.relevance.items() if key in chosen}
                group = "written" if query.type in WRITTEN else "cut"
                if fits:
                    found.append(example(group, query.type, query.fold, query.text, fits))
                elif chance.random() < 0.15:
                    found.append(example("trade", query.type, query.fold, query.text, {}))
            for lang, kind, text in everyday():
                fold = kinds.index(kind) % FOLDS
                found.append(example("everyday", f"{lang} {kind}", fold, text, {}))
    return found


def _library(
    documents: Sequence[str], written: Sequence[Query], size: int, chance: random.Random
) -> set[str]:
    """Return ids, of which at most half answer requests that people wrote."""
    chosen: set[str] = set()
    for query in chance.sample(written, len(written)):
        best = {key for key, grade in query.relevance.items() if grade == 2}
        if len(chosen | best) <= size // 2:
            chosen |= best
    rest = sorted(set(documents) - chosen)
    return chosen | set(chance.sample(rest, size - len(chosen)))


def weights(found: Sequence[Example]) -> list[float]:
    """Return weights by logistic regression: is the right skill named, or was nothing right."""
    import numpy as np  # noqa: PLC0415 - search by words does not need it.

    kept = [e for e in found if e.group != "trade"]
    rows = np.array([(*e.clues, 1.0) for e in kept])
    right = np.array([e.is_named for e in kept], float)
    counts = [max((right == one).sum(), 1) for one in (0, 1)]
    shares = np.where(right > 0, 0.5 / counts[1], 0.5 / counts[0])
    fitted = np.zeros(rows.shape[1])
    ridge = _RIDGE * np.eye(len(fitted))
    for _ in range(_ROUNDS):
        said = 1 / (1 + np.exp(-np.clip(rows @ fitted, -30, 30)))
        slope = rows.T @ (shares * (said - right)) + ridge @ fitted
        curve = (rows * (shares * said * (1 - said))[:, None]).T @ rows + ridge
        fitted = fitted - np.linalg.solve(curve, slope)
    return [float(weight) for weight in fitted[:-1]]


def summed(weighing: Sequence[float], each: Example) -> float:
    return sum(weight * clue for weight, clue in zip(weighing, each.clues, strict=True))


def bound(weighing: Sequence[float], found: Sequence[Example], share: float) -> float:
    """Return the sum from which so many everyday requests have a hint."""
    sums = sorted(summed(weighing, e) for e in found if e.group == "everyday")
    return sums[min(math.ceil((1 - share) * len(sums)), len(sums) - 1)]


Hinted = Callable[[Example], bool]


def by_folds(found: Sequence[Example], share: float) -> Hinted:
    """Return who has a hint, by what was fitted on the other folds, at 1,294 skills."""
    made = []
    for fold in range(FOLDS):
        others = [e for e in found if e.fold != fold and e.size == FITTED]
        weighing = weights(others)
        made.append((weighing, bound(weighing, others, share)))
    return lambda each: summed(made[each.fold][0], each) > made[each.fold][1]


def shares(found: Sequence[Example], hinted: Hinted) -> tuple[float, float]:
    """Return the percentages that have a hint, and one that names the right skill."""
    has = [each for each in found if hinted(each)]
    count = max(len(found), 1)
    return 100 * len(has) / count, 100 * sum(e.is_named for e in has) / count


def curve(found: Sequence[Example]) -> str:
    rows = []
    of_size = [e for e in found if e.size == FITTED]
    for share in FALSE_SHARES:
        hinted = by_folds(found, share)
        line = [f"{100 * share:.0f} %"]
        for groups in (("written", "cut"), ("written",), ("cut",)):
            some = [e for e in of_size if e.group in groups]
            line.append(f"{shares(some, hinted)[1]:.1f}")
        line += [
            f"{shares([e for e in of_size if e.group == group], hinted)[0]:.1f}"
            for group in ("everyday", "trade")
        ]
        rows.append(line)
    header = ("false hints aimed at", "right, all", "written", "cut", "false, everyday", "trade")
    return markdown_table(header, rows)


def by_kind(found: Sequence[Example], hinted: Hinted) -> str:
    """Return a row for each kind of request and size: has a hint, and the right skill named."""
    keys = sorted(
        {(e.group, e.kind.split(" ")[0] if e.group == "trade" else e.kind) for e in found}
    )
    groups = [("written", ""), ("cut", ""), ("everyday", ""), ("trade", "")]
    rows = []
    for group, kind in [*groups, *(key for key in keys if key[0] != "trade")]:
        line = [f"{group} {kind}".strip()]
        for size in SIZES:
            some = [e for e in found if (e.group, e.size) == (group, size) and kind in ("", e.kind)]
            given, right = shares(some, hinted)
            line.append(f"{given:.1f} / {right:.1f} of {len(some)}" if some else "–")
        rows.append(line)
    return markdown_table(("hint / right, %", *(f"{size:,}" for size in SIZES)), rows)


def warm(folder: Path) -> str:
    """Return how long a whole hint takes with 1,294 skills on disk, its checks included."""
    collection = load(folder)
    chance = random.Random(FITTED)
    chosen = chance.sample(list(collection.documents), FITTED)
    with tempfile.TemporaryDirectory() as base:
        home, start = Path(base, "home"), Path(base, "work")
        start.mkdir()
        for number, (_, _, description, body) in enumerate(chosen):
            directory = home / ".agents/skills" / f"skill-{number}"
            directory.mkdir(parents=True)
            head = json.dumps({"name": directory.name, "description": description[:1_024]})
            (directory / "SKILL.md").write_text(f"---\n{head}\n---\n{body}", encoding="utf-8")
        places = Locations(
            start=start, home=home, environment={}, managed_file=Path(base, "managed.toml")
        )
        with Skillhouse(configured(places)) as house:
            house.view().search.index()
            hints = SkillHints(house)
            texts = [query.text for query in chance.sample(list(collection.queries), 300)]
            lines = []
            for client in ("", "claude-code"):
                hints.hint(texts[0], client=client)
                spent = []
                for text in texts:
                    begun = time.perf_counter(), time.process_time()
                    hints.hint(text, client=client)
                    spent.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
                wall, cpu = (sorted(1_000 * one[at] for one in spent) for at in (0, 1))
                parts = [f"{one[150]:.1f} and {one[296]:.1f}" for one in (wall, cpu)]
                said = f"{parts[0]} ms, CPU {parts[1]} ms"
                lines.append(
                    f"warm, {FITTED:,} skills, client {client or 'ours'}: p50 and p99 {said}"
                )
    return "\n".join(lines)


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="hints: right ones, and false ones")
    parser.add_argument("--speed", action="store_true", help="only how long a hint takes")
    options = parsed(parser)
    if options.speed:
        print(warm(options.folder))
        return 0
    found = examples(options.folder)
    print(f"by folds, {FITTED:,} skills\n\n{curve(found)}\n", flush=True)
    print(f"by folds, {100 * AIM:.0f} % aimed at\n\n{by_kind(found, by_folds(found, AIM))}\n")
    whole = [e for e in found if e.size == FITTED]
    weighing = weights(whole)
    print("fitted on all:", ", ".join(f"{weight:.2f}" for weight in weighing), end="; ")
    print(f"bound {bound(weighing, whole, AIM):.2f}; shipped: {WEIGHTS}, {BOUND}")
    shipped = by_kind(found, lambda each: summed(WEIGHTS, each) >= BOUND)
    print(f"\nas shipped\n\n{shipped}\n")
    spent = sorted(e.milliseconds for e in whole)
    middle, high = (spent[int(part * len(spent))] for part in (0.5, 0.99))
    print(f"search alone, {FITTED:,} skills: CPU p50 {middle:.1f} ms, p99 {high:.1f} ms")
    print(warm(options.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())

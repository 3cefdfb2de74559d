"""How well a beginning of a description tells which of twenty skills fits a request.

`./x bench beginnings` takes requests and skills of `../shared/data/retrieval-dev`. For each request
the right skill is put among 19 others, and each is shown as its name and a beginning of so many
characters; a skill is chosen by the rarity of the words that it shares with the request. A model is
no count of words, but it has no others either. It compares the plain beginning, the first sentence
and what the lists show (`Descriptions`), and lists of several sizes within 2,000 tokens. It fails
where a group is worse by more than a point than the plain beginning. Without the development set
it is skipped.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from _measure import markdown_table
from _relevance import FOLDER, rows
from skillhouse.discovery import render_catalog
from skillhouse.discovery.catalog_text import Descriptions, clipped, most, plain_text, sentences
from skillhouse.floor import encode
from skillhouse.skill import Skill, SkillIndex

GROUPS = {"evals": "evals", "hand_en": "by hand", "bullet": "bullets", "quoted": "quoted"}
LENGTHS = (60, 100, 160)
AMONG = 20
WORSE_MOST = 1.0
"""Points by which a group may be worse than with the plain beginning."""
STEM = re.compile(r"(?<=\w{4})(?:ing|ies|es|ed|s)$")

Shown = Callable[[Skill, Descriptions], str]


def words(text: str) -> set[str]:
    return {STEM.sub("", word) for word in re.findall(r"[^\W_]+", text.lower())}


class Requests:
    """The requests, each with its skill and others."""

    def __init__(self, folder: Path, rounds: int, size: int) -> None:
        documents = [row for row in rows(folder / "corpus.jsonl") if row["lang"] == "en"]
        self.skills = {
            row["id"]: Skill(
                name=row["name"],
                description=row["description"],
                scope="user",
                file=f"/home/me/.claude/skills/{row['id']}/SKILL.md",
                root="/home/me/.claude/skills",
                packed_fields=encode({}),
            )
            for row in documents
        }
        counts = Counter(
            word for one in self.skills.values() for word in words(f"{one.name} {one.description}")
        )
        total = len(self.skills)
        self.rarity = lambda word: math.log((total + 1) / (counts[word] + 1))
        self._right: dict[str, dict[str, int]] = defaultdict(dict)
        for row in rows(folder / "qrels.jsonl"):
            self._right[row["qid"]][row["doc_id"]] = row["relevance"]
        self._asked = [row for row in rows(folder / "queries.jsonl") if row["type"] in GROUPS]
        self._rounds, self._size = rounds, size

    def libraries(self) -> Iterator[tuple[str, str, list[Skill]]]:
        """Yield the group, the request, and skills of which the first is right."""
        ids = sorted(self.skills)
        for number in range(self._rounds):
            chance = random.Random(number)
            for row in self._asked:
                right = self._right[row["qid"]]
                target = max(sorted(right), key=lambda one: right[one])
                others = chance.sample(ids, self._size + len(right))
                if target in self.skills:
                    found = [one for one in others if one not in right][: self._size - 1]
                    yield (
                        GROUPS[row["type"]],
                        row["text"],
                        [self.skills[one] for one in (target, *found)],
                    )

    def chosen(self, request: str, texts: Sequence[str]) -> float:
        """Return how surely the first text is chosen for a request."""
        asked = words(request)
        scores = [sum(map(self.rarity, sorted(words(text) & asked))) for text in texts]
        best = [at for at, score in enumerate(scores) if score == max(scores)]
        return (0 in best) / len(best)


def shares(requests: Requests, shown: Shown) -> dict[str, float]:
    """Return the percent of each group for which the right skill is chosen."""
    found: dict[str, list[float]] = defaultdict(list)
    for group, request, skills in requests.libraries():
        descriptions = Descriptions(skills)
        texts = [f"{one.name} {shown(one, descriptions)}" for one in skills]
        found[group].append(requests.chosen(request, texts))
    return {group: 100 * fmean(values) for group, values in found.items()}


def in_catalog(requests: Requests, style: str, *, first_sentence: bool = False) -> dict[str, float]:
    """Return the same for lists within 2,000 tokens, of which 20 are chosen among."""
    found: dict[str, list[float]] = defaultdict(list)
    for group, request, skills in requests.libraries():
        if first_sentence:
            shown = first_sentences(skills)
        else:
            text = render_catalog(SkillIndex(skills), style=style, budget_tokens=2_000).text
            shown = lines_of(text, skills)
        texts = [f"{one.name} {shown[one.file]}" for one in skills[:AMONG]]
        found[group].append(requests.chosen(request, texts))
    return {group: 100 * fmean(values) for group, values in found.items()}


def first_sentences(skills: Sequence[Skill]) -> dict[str, str]:
    """Return the first sentences by file, cut to the length at which all fit 2,000 tokens."""
    whole = {one.file: (sentences(plain_text(one.description)) or [""])[0] for one in skills}

    def fits(limit: int) -> bool:
        lines = (f"{one.name}: {clipped(whole[one.file], limit)}" for one in skills)
        return len("\n".join(lines).encode()) <= 8_000

    limit = most(1, 2_000, fits)
    return {file: clipped(text, limit) for file, text in whole.items()}


def lines_of(text: str, skills: Sequence[Skill]) -> dict[str, str]:
    """Return what a list says of each skill."""
    entry = re.compile(r"<name>(.*?)</name>\n\s*<description>(.*?)</description>")
    said = dict(entry.findall(text))
    said |= dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    return {one.file: said.get(one.name, "") for one in skills}


def whole_of(skill: Skill, descriptions: Descriptions) -> str:
    return descriptions.line(skill)


def plain_of(length: int, skill: Skill, descriptions: Descriptions) -> str:
    return clipped(descriptions.line(skill), length)


def first_of(length: int, skill: Skill, descriptions: Descriptions) -> str:
    return clipped((sentences(descriptions.line(skill)) or [""])[0], length)


def listed_of(length: int, skill: Skill, descriptions: Descriptions) -> str:
    return descriptions.beginning(skill, length)


def main() -> int:
    """Print the tables; 1 where a group is worse than with the plain beginning."""
    parser = argparse.ArgumentParser(description="what beginnings of descriptions tell")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--rounds", type=int, default=5, help="draws of the other skills")
    parser.add_argument("--sizes", default="20,43,72,200", help="skills in the lists")
    options = parser.parse_args()
    if not (options.folder / "corpus.jsonl").is_file():
        print(f"skipped: no development set in `{options.folder}`", file=sys.stderr)
        return 0
    requests = Requests(options.folder, options.rounds, AMONG)
    lines = []
    worst = 0.0

    def line(what: str, found: dict[str, float]) -> None:
        lines.append((what, *(f"{found[group]:.1f}" for group in GROUPS.values())))

    line("whole", shares(requests, whole_of))
    for length in LENGTHS:
        plain = shares(requests, partial(plain_of, length))
        line(f"{length}: plain beginning", plain)
        line(f"{length}: first sentence", shares(requests, partial(first_of, length)))
        ours = shares(requests, partial(listed_of, length))
        line(f"{length}: as listed", ours)
        worst = max(worst, *(plain[group] - ours[group] for group in plain))
    print(markdown_table(("characters", *GROUPS.values()), lines))
    lines.clear()
    for size in map(int, options.sizes.split(",")):
        sized = Requests(options.folder, options.rounds, size)
        line(f"{size}: first sentences, 2,000 tokens", in_catalog(sized, "", first_sentence=True))
        line(f"{size}: compact, 2,000 tokens", in_catalog(sized, "compact"))
        line(f"{size}: xml, 2,000 tokens", in_catalog(sized, "xml"))
    print()
    print(markdown_table(("skills in a list", *GROUPS.values()), lines))
    print(f"\nworse than the plain beginning by {worst:.1f} points at most")
    return 1 if worst > WORSE_MOST else 0


if __name__ == "__main__":
    sys.exit(main())

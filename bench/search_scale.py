"""What search costs by the number of skills: made by mutation of the development set.

`./x bench search_scale [--skills N ...] [--folder FOLDER] [--semantic]` writes N skills, and
measures in fresh processes: making the kept index, and discovery, opening it and the first search,
then the requests of the set. Times are CPU. Without the set the measurement is skipped.
`--semantic` adds searches with encoders, in the environment that
`SKILLHOUSE_ENCODERS=1 ./x test tests/extensions/meaning` makes; copies have vectors of originals.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from _measure import ROOT, markdown_table
from _relevance import Document, load, parsed, rows
from _shipped import CACHE, HOUR, encoders_python
from skillhouse.discovery import discover
from skillhouse.extensions.meaning import encoders_of
from skillhouse.extensions.meaning.meanings import load_numpy
from skillhouse.retrieval import QUERY_TERMS_MAX, SearchIndex
from skillhouse.retrieval.votes import encoded

REQUESTS = 400
_CHANGED = 0.1
"""Share of the words of a copy that are another skill's."""
_ROOT_SKILLS = 50_000
"""Skills of a root: discovery enters at most 100,000 directories of one."""
_NAME = re.compile("[a-z0-9-]{1,64}")
_PROGRESS = 10_000
"""Skills that are written between two lines of progress."""


def main() -> int:
    """Print a table with a column for each number of skills."""
    parser = argparse.ArgumentParser(description="search by the number of skills")
    parser.add_argument("--skills", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--semantic", action="store_true", help="with the encoders too")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parsed(parser)
    if options.child:
        part, place = options.child
        print(json.dumps(PARTS[part](Path(place), options.folder)))
        return 0
    for count in options.skills:
        with tempfile.TemporaryDirectory() as directory:
            write_skills(Path(directory) / "library", load(options.folder).documents, count)
            parts = [part for part in PARTS if part != "ask by meaning" or options.semantic]
            found: dict[str, float] = {}
            for part in parts:
                found |= child(part, directory, options)
        lines = [(name, f"{value:,.1f}") for name, value in found.items()]
        print(markdown_table((f"{count:,} skills", ""), lines) + "\n", flush=True)
    return 0


def child(part: str, place: str, options: argparse.Namespace) -> dict[str, float]:
    """Return what a fresh process measured."""
    python, path = sys.executable, [str(ROOT / "src"), *filter(None, sys.path)]
    if part == "ask by meaning" and (found := encoders_python()) is not None:
        python, path = str(found), path[:1]
    command = [python, __file__, "--folder", str(options.folder), "--child", part, place]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def write_skills(library: Path, documents: Sequence[Document], count: int) -> None:
    """Write skills: the documents, then copies with a tenth of the words from another one.

    Each copy has its own name, the original's with a number: a request that is a name makes the
    search judge all rows of that name, which in a real library are few.
    """
    chance = random.Random(5)
    words = [[text.split(" ") for text in document[2:]] for document in documents]
    for number in range(count):
        if number % _PROGRESS == 0:
            print(f"writing skill {number:,} of {count:,}", file=sys.stderr, flush=True)
        copy, original = divmod(number, len(documents))
        _, name, about, body = documents[original]
        if copy:
            others = chance.choice(words)
            about, body = map(_mutated, words[original], others, repeat(chance))
            name = f"{name}-{copy}"
        shelf = library / f"root{number // _ROOT_SKILLS}" / f"s{number % 997:03}"
        skill = shelf / name
        # A directory of another name is a warning, which discovery would have of each skill.
        if not _NAME.fullmatch(name) or skill.exists():
            skill = shelf / f"skill-{number:07}"
        skill.mkdir(parents=True)
        # YAML cannot read a sign that JSON writes as two escapes.
        shown = [json.dumps(text, ensure_ascii=False) for text in (name, about)]
        head = "---\nname: {}\ndescription: {}\n---\n".format(*shown)
        (skill / "SKILL.md").write_text(head + body, "utf-8", errors="replace")


def _mutated(words: Sequence[str], others: Sequence[str], chance: random.Random) -> str:
    """Return a text of which one slice is replaced by as long a slice of another."""
    size = min(int(len(words) * _CHANGED), len(others))
    at = chance.randrange(len(words) - size + 1)
    start = chance.randrange(len(others) - size + 1)
    return " ".join((*words[:at], *others[start : start + size], *words[at + size :]))


def roots(place: Path) -> list[Path]:
    """Return the roots of the skills that were written."""
    return sorted((place / "library").iterdir())


def build(place: Path, _: Path) -> dict[str, float]:
    """Make the index that is kept."""
    found = discover(roots(place), cache=place / "cache", clock=lambda: 1 << 62)
    began, wall = time.process_time(), time.perf_counter()
    index = SearchIndex.from_skills(found, cache=place / "cache")
    spent = time.process_time() - began
    size = sum(path.stat().st_size for path in (place / "cache" / "words").iterdir())
    return {
        "skills": len(index),
        "build, s CPU": spent,
        "build, s wall": time.perf_counter() - wall,
        "build, peak MiB": _peak_mib(),
        "kept, MB": size / 1e6,
    }


def ask(place: Path, folder: Path) -> dict[str, float]:
    """Open the index and search it: the requests of the set, and long ones of common words."""
    queries, texts = requests(folder)
    english = " ".join(query["text"] for query in queries if query["lang"] == "en").casefold()
    common = Counter(word for word in english.split() if word.isalpha() and len(word) > 3)
    long = " ".join(word for word, _ in common.most_common(QUERY_TERMS_MAX))
    began = time.process_time()
    found = discover(roots(place), cache=place / "cache", clock=lambda: 1 << 62)
    len(found.skills)  # They are read here and not in the index's time.
    discovered = time.process_time()
    index = SearchIndex.from_skills(found, cache=place / "cache")
    opened = time.process_time()
    index.search(texts[0])
    first = time.process_time()
    spent = sorted(_cpu_ms(index, text) for text in texts)
    return {
        "discovery, ms": 1_000 * (discovered - began),
        "open the index, ms": 1_000 * (opened - discovered),
        "first search, ms": 1_000 * (first - opened),
        "request, p50 ms": spent[len(spent) // 2],
        "request, p99 ms": spent[int(len(spent) * 0.99)],
        f"request of {QUERY_TERMS_MAX} words, ms": _cpu_ms(index, long),
        "peak MiB": _peak_mib(),
    }


def ask_by_meaning(place: Path, folder: Path) -> dict[str, float]:
    """Search with encoders; nothing where they are not installed."""
    encoders = encoders_of("auto")
    if encoders is None:
        print("search by meaning: skipped, the extra is not installed", file=sys.stderr)
        return {}
    load_numpy()
    from _copied_vectors import copying  # noqa: PLC0415 - it needs numpy.

    originals = [encoded(name, about) for _, name, about, _ in load(folder).documents]
    copies = copying(encoders, originals, CACHE)
    found = discover(roots(place), cache=place / "cache", clock=lambda: 1 << 62)
    began = time.process_time()
    index = SearchIndex.from_skills(found, cache=place / "cache", encoders=copies)
    assert index.meanings is not None
    index.meanings.wait(HOUR)
    index.close()
    opening = time.process_time()
    index = SearchIndex.from_skills(found, cache=place / "cache", encoders=copies)
    assert index.meanings is not None
    index.meanings.wait(HOUR)
    opened = time.process_time()
    _, texts = requests(folder)
    spent = sorted(_cpu_ms(index, text) for text in texts)
    return {
        "encoders: make and keep vectors of copies, s": opening - began,
        "encoders: open, s": opened - opening,
        "encoders: request, p50 ms": spent[len(spent) // 2],
        "encoders: request, p99 ms": spent[int(len(spent) * 0.99)],
        "encoders: peak MiB": _peak_mib(),
    }


def requests(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return all requests of the set, and the texts of those that are timed."""
    queries = list(rows(folder / "queries.jsonl"))
    chosen = random.Random(3).sample(queries, min(REQUESTS, len(queries)))
    return queries, [query["text"] for query in chosen]


PARTS = {"build": build, "ask": ask, "ask by meaning": ask_by_meaning}


def _cpu_ms(index: SearchIndex, text: str) -> float:
    began = time.process_time()
    index.search(text)
    return 1_000 * (time.process_time() - began)


def _peak_mib() -> float:
    # A process starts with the `ru_maxrss` of its parent, which holds the whole set.
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines())
        return int(lines["VmHWM"].split()[0]) / 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


if __name__ == "__main__":
    sys.exit(main())

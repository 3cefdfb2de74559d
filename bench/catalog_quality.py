"""Which requests find their skill in a list, and which by searching.

`./x bench catalog_quality` takes the requests and skills of `../shared/data/retrieval-dev`, writes
libraries of 43 and of 1,294 skills (the built-in ones counted) and lets a scripted model look for
the right skill of each request. The model knows only what it is shown: it reads the list, calls
`search_skills` through the gate where the list does not have the skill, and loads what it found.
A real model may overlook what it reads, so these shares are upper bounds.

Each request is asked once for each size, in a library that has its skill; the other skills of the
library are random ones. Without the development set the measurement is skipped.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from statistics import fmean
from typing import Any

from _measure import markdown_table
from _relevance import groups, parsed, rows
from skillhouse.discovery import Catalog
from skillhouse.discovery.catalog import BY_NAME
from skillhouse.house import Locations, Skillhouse, configured
from skillhouse.skill import Skill, tokens_of

SIZES = (43, 1_294)
BUILT_IN = frozenset({"github", "weather", "web-search"})

FIELDS = ("name", "description")

LIST, MCP, SEARCH = "list", "MCP", "search"
REQUEST, REQUEST_COMPACT = "list for it", "compact for it"
COLUMNS = {
    LIST: "the list, 2,000 tokens of XML",
    MCP: "the skill tool's description and the instructions over MCP",
    SEARCH: "the first five of `search_skills`",
    f"{LIST} or {SEARCH}": "either",
    f"{MCP} or {SEARCH}": "either",
    REQUEST: "`catalog --for REQUEST`, 2,000 tokens of XML",
    REQUEST_COMPACT: "`catalog --for REQUEST --style compact`, 2,000 tokens",
}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, and the ids of the documents that are right."""

    request: Row
    right: frozenset[str]


@dataclass(slots=True)
class Library:
    documents: dict[str, Row] = field(default_factory=dict)
    """By the name of the skill in small letters: of two with one name a list shows one."""
    asked: list[Asked] = field(default_factory=list)

    def takes(self, document: Row, most: int) -> bool:
        """Add a document if there is room for it, and whether it is there."""
        name = document["name"].casefold()
        if len(self.documents) < most and name not in BUILT_IN:
            self.documents.setdefault(name, document)
        return self.documents.get(name) is document


def libraries(folder: Path, size: int) -> list[Library]:
    """Return libraries of so many skills, the same at every call."""
    documents = {row["id"]: row for row in rows(folder / "corpus.jsonl")}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows(folder / "qrels.jsonl"):
        relevance[row["qid"]][row["doc_id"]] = row["relevance"]
    of_target: dict[str, list[Asked]] = defaultdict(list)
    for request in rows(folder / "queries.jsonl"):
        right = relevance[request["qid"]]
        target = max(sorted(right), key=lambda document: right[document])
        of_target[target].append(Asked(request=request, right=frozenset(right)))
    chance = random.Random(1)
    most = size - len(BUILT_IN)
    found: list[Library] = []
    for target in chance.sample(sorted(of_target), len(of_target)):
        if documents[target]["name"].casefold() in BUILT_IN:
            continue
        library = next((one for one in found if one.takes(documents[target], most)), None)
        if library is None:
            found.append(library := Library())
            library.takes(documents[target], most)
        library.asked += of_target[target]
    for library in found:
        for document in chance.sample(sorted(documents), len(documents)):
            library.takes(documents[document], most)
    return found


class ScriptedModel:
    """Finds a skill as a model could, by the texts that it is given."""

    def __init__(self, house: Skillhouse) -> None:
        self._house = house
        tools = {tool.name: tool for tool in house.tools()}
        self.texts = {
            LIST: house.catalog().text,
            MCP: f"{tools['skill'].description}\n{house.view().prompts().instructions()}",
        }

    def shown(self, request: str) -> dict[str, str]:
        """Return everything that it can read for a request, by the column of the table."""
        answer = self._house.call_sync("search_skills", {"query": request})
        assert answer.status == "ok", answer.content
        return {
            **self.texts,
            SEARCH: answer.content,
            REQUEST: self._asked_for(request, "xml").text,
            REQUEST_COMPACT: self._asked_for(request, "compact").text,
        }

    def loads(self, name: str, session_id: str) -> bool:
        """Whether a name that it read is one that the skill tool takes."""
        result = self._house.call_sync("skill", {"name": name}, session_id=session_id)
        return result.status == "ok"

    def _asked_for(self, request: str, style: str) -> Catalog:
        return self._house.catalog(request=request, style=style)


def names_skill(text: str, name: str) -> bool:
    """Whether a list or an answer of the search has an entry of that name."""
    if name in (unescape(tag) for tag in re.findall(r"<name>(.*?)</name>", text)):
        return True
    lines = text.split("\n")
    bare = [line.removeprefix(BY_NAME).split(", ") for line in lines if line.startswith(BY_NAME)]
    return any(line == name or line.startswith(f"{name}: ") for line in lines) or any(
        name in named for named in bare
    )


@dataclass(slots=True)
class Results:
    found: dict[str, list[Mapping[str, bool]]] = field(default_factory=lambda: defaultdict(list))
    """What each column found, by the lines of the table."""
    tokens: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    loaded: int = 0
    refused: int = 0


def ask(library: Library, place: Path, results: Results) -> None:
    """Let the model look for the skill of every request of a library."""
    write(library, place / "skills")
    with house_of(place) as house:
        house.view().search.index()
        names = {skill.directory.name: label(skill) for skill in house.view().visible.skills}
        missing = {document["id"] for document in library.documents.values()} - names.keys()
        assert not missing, f"not loaded: {missing}"
        model = ScriptedModel(house)
        for asked in library.asked:
            right = [names[document] for document in asked.right if document in names]
            shown = model.shown(asked.request["text"])
            found = {
                column: any(names_skill(text, name) for name in right)
                for column, text in shown.items()
            }
            for one in (LIST, MCP):
                found[f"{one} or {SEARCH}"] = found[one] or found[SEARCH]
            for group in ("all", *groups(asked.request["type"], asked.request["lang"])):
                results.found[group].append(found)
            for column, text in shown.items():
                results.tokens[column].append(tokens_of(text))
            chosen = next(
                (name for text in shown.values() for name in right if names_skill(text, name)), None
            )
            if chosen is not None:
                is_loaded = model.loads(chosen, asked.request["qid"])
                results.loaded += is_loaded
                results.refused += not is_loaded


def label(skill: Skill) -> str:
    """Return a skill's name as lists write it."""
    return " ".join(skill.name.split())


def write(library: Library, root: Path) -> None:
    for document in library.documents.values():
        skill = root / document["id"]
        skill.mkdir(parents=True)
        # JSON is YAML, but for the escapes of characters beyond the first plane.
        fields = {key: json.dumps(document[key], ensure_ascii=False) for key in FIELDS}
        head = "".join(f"{key}: {value}\n" for key, value in fields.items())
        (skill / "SKILL.md").write_text(f"---\n{head}---\n{document['body']}\n", "utf-8")


def house_of(place: Path) -> Skillhouse:
    for name in ("home", "project"):
        (place / name).mkdir()
    places = Locations(
        start=place / "project",
        home=place / "home",
        environment={},
        managed_file=place / "managed.toml",
    )
    return Skillhouse(configured(places), roots=[place / "skills"])


def report(size: int, libraries_asked: int, results: Results) -> str:
    """Return the tables of one size."""
    lines: list[Sequence[str]] = []
    for group in sorted(results.found, key=lambda name: (name == "all", " " in name, name)):
        found = results.found[group]
        shares = (100 * fmean(one[column] for one in found) for column in COLUMNS)
        lines.append((group, str(len(found)), *(f"{share:.1f}" for share in shares)))
    tokens = ("tokens", "", *_token_cells(results))
    table = markdown_table(("requests", "n", *COLUMNS), [*lines, tokens])
    chosen = results.loaded + results.refused
    return (
        f"{size:,} skills, {libraries_asked} libraries, percent of the requests:\n\n{table}\n\n"
        f"of {chosen} skills that were found, {results.loaded} could be loaded by the name shown"
    )


def _token_cells(results: Results) -> Iterator[str]:
    for column in COLUMNS:
        tokens = results.tokens.get(column)
        yield f"{fmean(tokens):,.0f}" if tokens else ""


def main() -> int:
    """Print the report, or why there is none."""
    parser = argparse.ArgumentParser(description="what a list and a search find")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parsed(parser)
    print("\n".join(f"{column}: {meaning}" for column, meaning in COLUMNS.items()))
    for size in options.sizes:
        results = Results()
        found = libraries(options.folder, size)
        for library in found:
            with tempfile.TemporaryDirectory() as directory:
                ask(library, Path(directory).resolve(), results)
        print(f"\n{report(size, len(found), results)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

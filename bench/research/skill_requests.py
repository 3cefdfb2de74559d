"""Finds requests in skills: phrases that a skill says it is for, without that phrase in its text.

They are what the adapter of `granite` is fitted to (`adapter_fit.py`). A skill's own text is the
only source of its requests, so whoever leaves out an owner's skills leaves out their requests.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _relevance import fold_of, owner, rows
from skillhouse.retrieval.votes import encoded

_FREE = re.compile("MIT|Apache|BSD|3 clause BSD|CC-BY-4", re.IGNORECASE)
"""Licences of the skills that requests are taken from, as their collections give them."""
_QUOTED = re.compile(
    r"""["“]([^"“”\n]{6,160})["”]|(?<!\w)'([^'\n]{8,120})'(?!\w)"""
)  # fmt: skip
_HEADING = re.compile(r"#{1,5}\s*(.*)$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s+(.*)$")
_USES = re.compile(
    "when|use|trigger|example|scenario|capabilit|what (this|it)|can do|purpose|overview|activat"
    "|prompt|request|task|feature",
    re.IGNORECASE,
)
"""Headings whose items say what a skill is for."""
_LEAD = re.compile(
    r"""(use\ (this\ skill\ |it\ |this\ )?(when|for|to|if)(\ you|\ the\ user)?
    (\ need\ to|\ want\ to|\ wants\ to|\ asks?\ (to|for|about))?
    |(this\ skill\ )?(should\ be\ used|is\ used|activates?)\ when(\ the\ user)?
    (\ asks?\ (to|for|about))?
    |(the\ )?user\ (asks?|wants?|needs?|requests?|says?)\ (to|for|about)?
    |when\ (the\ )?(user|you)(\ asks?|\ wants?|\ needs?)?(\ to|\ for|\ about)?
    |triggers?(\ on)?:?)\s*""",
    re.IGNORECASE | re.VERBOSE,
)
"""What precedes a request in the text of a skill, and not in a person's."""
_CODE = re.compile(r"[{}<>=$\\]|https?:|/\w+/\w")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"[*`]|__")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+(?=[A-Z\"])")
_REQUEST_CHARS = 300
_SKILLS_MAX = 2
"""A request that more skills have says nothing of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, and the text of the skill that it is about."""

    kind: str
    text: str
    skill: str
    """Id of the skill."""
    name: str
    owner: str
    fold: int
    encoded: str
    """The text by which the skill is encoded, without the request."""


def requests(folder: Path) -> list[Request]:
    """Return the requests of the English skills of a collection under a free licence."""
    chance = random.Random(4)
    found: list[Request] = []
    seen: Counter[str] = Counter()
    for row in rows(folder / "corpus.jsonl"):
        if row["lang"] != "en":
            continue
        of_skill = _distinct(row, chance)
        seen.update(request.text.lower() for request in of_skill)
        if _FREE.match(row["license"]):
            found += of_skill
    return [request for request in found if seen[request.text.lower()] <= _SKILLS_MAX]


def _distinct(row: dict[str, Any], chance: random.Random) -> list[Request]:
    found: dict[str, Request] = {}
    owned = owner(row["source"])
    for kind, text, about in (*_of_description(row["description"]), *_of_body(row)):
        if kind in ("item", "prompt") and chance.random() < 0.5:
            text = _without_lead(text) or text
        is_latin = sum(letter.isascii() for letter in text) > 0.9 * len(text)
        if not is_latin or len(text) < 6 or text.lower() in found:
            continue
        found[text.lower()] = Request(
            kind=kind,
            text=text[:_REQUEST_CHARS],
            skill=row["id"],
            name=row["name"],
            owner=owned,
            fold=fold_of(owned),
            encoded=encoded(row["name"], about),
        )
    return [*found.values()]


def _of_description(about: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, request and the rest of the description."""
    quoted = list(_QUOTED.finditer(about))
    texts = [(each, (each[1] or each[2]).strip(" ,.")) for each in quoted]
    for each, text in [pair for pair in texts if len(pair[1].split()) >= 2][:8]:
        yield "quoted", text, about[: each.start()] + about[each.end() :]
    sentences = [each.strip() for each in _SENTENCE.split(about) if each.strip()]
    for at, sentence in enumerate(sentences[:4] if len(sentences) > 1 else ()):
        rest = " ".join(sentences[:at] + sentences[at + 1 :])
        text = _without_lead(_plain(sentence))
        if len(text.split()) >= 4 and len(rest) >= 40:
            yield "sentence", text[:240], rest


def _of_body(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield kind, request and the description: quoted prompts, items of uses, the first prose."""
    about: str = row["description"]
    heading, prompts, items = "", 0, 0
    is_code = has_prose = False
    for line in row["body"].split("\n"):
        if line.strip().startswith("```"):
            is_code = not is_code
            continue
        if is_code:
            continue
        if match := _HEADING.match(line):
            heading = match[1]
        for quoted in _QUOTED.finditer(line):
            text = (quoted[1] or "").strip()
            if prompts < 5 and 4 <= len(text.split()) <= 40 and not _CODE.search(text):
                yield "prompt", text, about
                prompts += 1
        item = _ITEM.match(line)
        if item and items < 8 and _USES.search(heading):
            text = _plain(item[1])
            if 3 <= len(text.split()) <= 40 and not _CODE.search(text):
                yield "item", text, about
                items += 1
        text = _plain(line)
        is_prose = not match and not item and len(text.split()) >= 8
        if is_prose and not has_prose and text[:60] not in about:
            has_prose = True
            text = _without_lead(re.split(r"(?<=[.!?])\s", text)[0])
            if 6 <= len(text.split()) <= 45:
                yield "prose", text, about


def _plain(text: str) -> str:
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", text)).split()).strip(" -–—:;,.")


def _without_lead(text: str) -> str:
    match = _LEAD.match(text)
    return text[match.end() :] if match else text


def kinds(found: Sequence[Request]) -> str:
    """Return how many requests there are of each kind."""
    counts = Counter(request.kind for request in found)
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())

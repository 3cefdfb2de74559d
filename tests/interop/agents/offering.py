"""What a model is shown of the skills in a client's first request, however many there are."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.agents.fake_model import Asked
from tests.interop.agents.judging import described, words_of

SHOWN_LEAST = 20
"""Skills that a model sees by name, where there are as many."""
STARTS_CHARS = 12
"""Characters of a description behind a skill's name, at least: less is no sentence."""

_LINE = re.compile(r"^[-*> \t]*[`*]*([\w:.-]+)[`*]*: (.+)$", re.MULTILINE)
_XML = re.compile(r"<name>([^<]+)</name>\s*<description>([^<]*)(</description>)?")
_NAMES = re.compile(r"[\w:.-]+(?:, [\w:.-]+){3,}")
_REST = re.compile(r"\d[\d,]* more\b.*search_skills")
_MARKS = ("…", "...", "]")
"""How a text ends that says itself that it was cut."""
_ENDS = (".", "!", "?", "。", "！", "？", '"', "”", ")", "`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one first request holds of ours."""

    skills: int
    """How many there are."""
    tools: int = 0
    """Our tools that the model knows by name."""
    deferred: int = 0
    """Those of them without description and parameters, until the model asks for them."""
    description_chars: int = 0
    """Of all our tools' descriptions together."""
    catalog_chars: int = 0
    """Of what names skills: names and sentences."""
    shown: int = 0
    """Skills with their name and at least the beginning of their description."""
    bare: int = 0
    """Skills with their name alone."""
    instructions_chars: int = 0
    """Of our server's instructions, as far as they arrived."""
    faults: tuple[str, ...] = ()


def offer(
    asked: Sequence[Asked],
    prefix: str,
    known: Mapping[str, str],
    sent: Mapping[str, str],
    tools: Sequence[str],
) -> Offer:
    """Read the first request that names our tools.

    Args:
        asked: Every request, oldest first.
        prefix: What the client puts before our tools' names.
        known: Description of each skill by its name.
        sent: What our server sends: `instructions`, and the description of each tool by its name.
        tools: The names of the house's tools.
    """
    found = next(((one, names) for one in asked if (names := described(one, prefix))), None)
    if found is None:
        return Offer(skills=len(known), faults=("the model was offered none of our tools",))
    first, names = found
    words = words_of(first)
    catalog = {name: text for name, text in _listed(words) if _is_of(text, known.get(name))}
    bare = {name for line in _NAMES.findall(words) for name in line.split(", ")} & {*known}
    arrived = _arrived(sent.get("instructions", ""), words)
    faults = [f"`{name}` is not named" for name in tools if name not in names]
    least = min(SHOWN_LEAST, len(known))
    by_name = len({*catalog} | bare)
    if by_name < least:
        faults.append(f"expected at least {least} skills by name, got {by_name}")
    if by_name < len(known) and not _REST.search(words):
        faults.append("how the other skills are found is not said")
    faults += [
        f"cut without a mark: {n}: {t[-40:]!r}" for n, t in catalog.items() if _cut(t, known[n])
    ]
    if arrived not in (0, len(sent.get("instructions", ""))):
        faults.append(f"the instructions are cut after {arrived} characters")
    faults += [
        f"the description of `{name}` is cut: {len(text):,} of {len(sent[name]):,} characters"
        for name, text in names.items()
        if text and name in sent and _flat(text) != _flat(sent[name])
    ]
    return Offer(
        skills=len(known),
        tools=len(names),
        deferred=sum(not text for text in names.values()),
        description_chars=sum(map(len, names.values())),
        catalog_chars=sum(len(name) + len(text) for name, text in catalog.items()),
        shown=len(catalog),
        bare=len(bare - {*catalog}),
        instructions_chars=arrived,
        faults=tuple(faults),
    )


def named_only(
    asked: Sequence[Asked], group: str, known: Mapping[str, str], sent: Mapping[str, str]
) -> Offer:
    """Read the first request of a client that names our tools as a group, until the model searches.

    It has the first line of our instructions, which must arrive whole, name at least one skill and
    say how many others there are.

    Args:
        asked: Every request, oldest first.
        group: What the client calls our tools together.
        known: Description of each skill by its name.
        sent: What our server sends, as `offer` has it.
    """
    first = next((one for one in asked if group in one.speech.deferred(one.body)), None)
    if first is None:
        return Offer(skills=len(known), faults=("the model was not given our name",))
    line = sent.get("instructions", "").partition("\n")[0]
    shown = re.findall(r"[\w-]+", line.rpartition(": ")[2])
    names = [name for name in shown if name in known]
    faults = []
    if f"{group}: {line}\n" not in words_of(first):
        faults.append("the first line of the instructions is cut")
    if not names:
        faults.append("no skill is named")
    if len(names) < len(known) and f"{len(known) - len(names):,} more" not in line:
        faults.append("how many others there are is not said")
    return Offer(
        skills=len(known),
        catalog_chars=sum(map(len, names)),
        shown=len(names),
        instructions_chars=len(line),
        faults=tuple(faults),
    )


def _listed(words: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line that may be a skill's."""
    for found in _LINE.finditer(words):
        yield found[1], found[2]
    for found in _XML.finditer(words):
        yield found[1].strip(), found[2].strip()


def _is_of(text: str, description: str | None) -> bool:
    if description is None:
        return False
    start = _flat(text).rstrip(".")[:STARTS_CHARS]
    return bool(start) and start in _flat(description)


def _cut(text: str, description: str) -> bool:
    """Whether a text ends within its description and neither with a sentence nor with a mark."""
    text = _flat(text)
    return not (_flat(description).endswith(text) or text.endswith((*_MARKS, *_ENDS)))


def _arrived(text: str, words: str) -> int:
    """Return how many characters of a text are among the words, from its first on."""
    text = re.sub(r"\n[ \t]+", "\n", text)
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[:middle] in words else (low, middle - 1)
    return low if low > STARTS_CHARS else 0


def _flat(text: str) -> str:
    # Claude Code writes three full stops for `…`.
    return " ".join(text.replace("`", "").replace("*", "").replace("…", "...").split())


# --- skills to be shown

_SUBJECTS = ("invoices", "harbour tides", "test reports", "photo albums", "release notes", "maps")
_VERBS = ("Sorts", "Checks", "Summarises", "Translates", "Draws", "Compares", "Files")


def made_up(count: int) -> Iterator[tuple[str, str]]:
    """Yield name and text of as many skills, the same ones each time."""
    for number in range(count):
        verb, subject = _VERBS[number % len(_VERBS)], _SUBJECTS[number % len(_SUBJECTS)]
        name = f"{verb.lower()}-{subject.replace(' ', '-')}-{number}"
        description = (
            f"{verb} {subject} of the {number}th office and writes down what is missing or wrong "
            f"in them, with a reason for each. Use when the user asks about {subject} there."
        )
        yield name, f"---\nname: {name}\ndescription: {description}\n---\nDo it.\n"


def sampled(file: Path, count: int) -> Iterator[tuple[str, str]]:
    """Yield as many real skills whose name is their folder's, of a file of JSON lines.

    Each line has `path` and `skill_md_b64`.
    """
    seen: set[str] = set()
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line)
            name = Path(value["path"]).parent.name
            text = base64.b64decode(value["skill_md_b64"]).decode("utf-8", "replace")
            is_plain = re.search(rf"^name: *{re.escape(name)} *$", text, re.MULTILINE)
            if is_plain and name not in seen and len(seen) < count:
                seen.add(name)
                yield name, text

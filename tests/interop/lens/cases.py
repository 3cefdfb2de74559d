"""The files that the programs are asked about: real ones by strata, and hard ones that are made."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from skillhouse.skill import parse

SEED = 18


class Case(NamedTuple):
    """One SKILL.md and the directory that it is in."""

    directory: str
    data: bytes
    stratum: str


def real_files(sample: Path) -> list[Case]:
    """Return every file of a sample once by directory and name, with its stratum.

    The stratum is what we find in the file; a plain one has none.
    """
    found: list[Case] = []
    taken: set[str] = set()
    with gzip.open(sample, "rt", encoding="utf-8") as lines:
        for line in lines:
            value = json.loads(line)
            data = base64.b64decode(value["skill_md_b64"])
            directory = Path(value["path"]).parent.name
            result = parse(data, directory=directory)
            names = {directory, result.skill.name if result.skill else directory}
            if not directory or names & taken:
                # One name would hide the other in some of the clients.
                continue
            taken |= names
            codes = sorted({one.code for one in result.diagnostics})
            found.append(Case(directory, data, "+".join(codes) or "plain"))
    return found


def stratified(files: list[Case], count: int) -> list[Case]:
    """Return `count` files: from each stratum the same number, as far as it has them, the same
    ones each time.
    """
    strata: dict[str, list[Case]] = defaultdict(list)
    for case in files:
        strata[case.stratum].append(case)
    order = random.Random(SEED)
    for group in strata.values():
        order.shuffle(group)
    chosen: list[Case] = []
    while len(chosen) < count and any(strata.values()):
        for stratum in sorted(strata):
            if strata[stratum] and len(chosen) < count:
                chosen.append(strata[stratum].pop())
    return chosen


FIRST_SIGNS = "[]{}<>|*&!@%#`~^=+-_?:,;.\\/()$\"'0"
"""What a value is begun with, each before a word and before a word with a colon."""
HIDDEN = {"bom": "\ufeff", "zero-width": "\u200b", "joiner": "\u2060", "tag": "\U000e0041"}
_VALUES = {
    "one-line-folded": "> Folds text.",
    "one-line-literal": "| Keeps text.",
    "one-line-chomped": ">- Folds text.",
    "one-line-colon": "> Use when: asked.",
    "folded": ">\n  Folds\n  text.",
    "literal": "|\n  Keeps\n  text.",
    "literal-colon": "|\n  Use when: asked.",
    "folded-flush": ">\nNot indented.",
    "colon": "Use when: asked.",
    "colon-end": "Use when asked:",
    "colons": "A: b: c",
    "comment": "Text # and a comment",
    "list": "[one, two]",
    "list-text": "[Beta] Folds text.",
    "list-colon": "[Beta] Use when: asked.",
    "braces": "{{name}}",
    "braces-text": "{{name}} is kept.",
    "mapping": "{a: b}",
    "stars": "**Bold** text.",
    "at": "@name does it.",
    "backtick": "`code` runs.",
    "dash": "- an item",
    "percent": "%d files",
    "anchor": "&name text",
    "alias": "*name",
    "alias-text": "*name* text",
    "tag": "!tag text",
    "bang": "! text",
    "question": "? text",
    "quoted-then-text": '"Quoted" and more.',
    "quoted-then-colon": '"Quoted": and more.',
    "single-then-text": "'Quoted' and more.",
    "unclosed-double": '"Never closed.',
    "unclosed-single": "'Never closed.",
    "apostrophe": "It's here.",
    "double-inside": 'Says "yes: no".',
    "escape": '"a\\tb"',
    "bad-escape": '"a\\qb"',
    "number": "12345",
    "float": "1.5",
    "octal": "0o17",
    "true": "true",
    "yes": "yes",
    "null": "null",
    "tilde": "~",
    "date": "2026-01-01",
    "empty": "",
    "empty-quoted": '""',
    "blank-quoted": '" "',
    "tab-in-value": "A\tb.",
    "tab-first": "\tText.",
    "two-lines": "One\n  two.",
    "two-lines-colon": "Use when: one\n  and two.",
    "long-1024": "x" * 1_024,
    "long-1025": "x" * 1_025,
    "long-1537": "y" * 1_537,
    "long-9000": "z " * 4_500,
    "emoji": "Sorts \U0001f389 things.",
    "html": "<b>Bold</b> & more",
    "nbsp": "A\u00a0b.",
    "line-separator": "A\u2028b.",
    "next-line": "A\u0085b.",
    "control": "A\x07b.",
}
"""A description after `description: ` each."""
_NAMES = {
    "number": "12345",
    "true": "true",
    "null": "null",
    "date": "2026-01-01",
    "list": "[a]",
    "empty": "",
    "upper": "Upper-Name",
    "blanks": "two words here",
    "dotted": "a.b_c",
    "long-64": "n" * 64,
    "long-65": "m" * 65,
    "chinese": "天气",
    "quoted": '"quoted-name"',
    "colon": "a: b",
    "bracket": "[x] y",
    "at": "@x",
}
_WHOLE = {
    "no-name": "---\ndescription: MARK\n---\nBody.\n",
    "no-description": "---\nname: NAME\n---\nFirst line.\n",
    "no-frontmatter": "# Title\n\nFirst line.\n",
    "empty-file": "",
    "empty-frontmatter": "---\n---\nBody.\n",
    "blank-frontmatter": "---\n\n---\nBody.\n",
    "comment-only": "---\n# only\n---\nBody.\n",
    "list-frontmatter": "---\n- a\n- b\n---\nBody.\n",
    "text-frontmatter": "---\nonly text\n---\nBody.\n",
    "unclosed": "---\nname: NAME\ndescription: MARK\n",
    "closed-at-end": "---\nname: NAME\ndescription: MARK\n---",
    "bom": "\ufeff---\nname: NAME\ndescription: MARK\n---\nBody.\n",
    "blank-line-first": "\n---\nname: NAME\ndescription: MARK\n---\nBody.\n",
    "blank-first": " ---\nname: NAME\ndescription: MARK\n---\nBody.\n",
    "fence-blanks": "---  \nname: NAME\ndescription: MARK\n---\nBody.\n",
    "closing-blanks": "---\nname: NAME\ndescription: MARK\n---  \nBody.\n",
    "closing-text": "---\nname: NAME\ndescription: MARK\n--- x\nBody.\n",
    "closing-indented": "---\nname: NAME\ndescription: MARK\n ---\nBody.\n",
    "four-dashes": "----\nname: NAME\ndescription: MARK\n----\nBody.\n",
    "closing-four": "---\nname: NAME\ndescription: MARK\n----\nBody.\n",
    "dots": "---\nname: NAME\ndescription: MARK\n...\nBody.\n",
    "dashes-inside": "---\nname: NAME\ndescription: MARK --- more\n---\nBody.\n",
    "rule-in-body": "---\nname: NAME\ndescription: MARK\n---\nBody.\n---\nMore.\n",
    "crlf": "---\r\nname: NAME\r\ndescription: MARK\r\n---\r\nBody.\r\n",
    "cr": "---\rname: NAME\rdescription: MARK\r---\rBody.\r",
    "twice-key": "---\nname: NAME\ndescription: first\ndescription: MARK\n---\nBody.\n",
    "twice-name": "---\nname: x\nname: NAME\ndescription: MARK\n---\nBody.\n",
    "upper-keys": "---\nName: NAME\nDescription: MARK\n---\nBody.\n",
    "quoted-keys": '---\n"name": NAME\n"description": MARK\n---\nBody.\n',
    "indented-keys": "---\n  name: NAME\n  description: MARK\n---\nBody.\n",
    "no-blank-after-colon": "---\nname:NAME\ndescription:MARK\n---\nBody.\n",
    "blank-before-colon": "---\nname : NAME\ndescription : MARK\n---\nBody.\n",
    "tab-after-colon": "---\nname:\tNAME\ndescription:\tMARK\n---\nBody.\n",
    "tab-indented": "---\nname: NAME\ndescription: MARK\nmetadata:\n\ta: b\n---\nBody.\n",
    "other-field-bad": "---\nname: NAME\ndescription: MARK\nhint: [x] y\n---\nBody.\n",
    "other-field-colon": "---\nname: NAME\ndescription: MARK\nhint: a: b\n---\nBody.\n",
    "other-field-quoted": '---\nname: NAME\ndescription: MARK\nhint: "a" b\n---\nBody.\n',
    "hyphen-field-bad": "---\nname: NAME\ndescription: MARK\nargument-hint: <a: b> c\n---\nBody.\n",
    "nested-bad": "---\nname: NAME\ndescription: MARK\nmetadata:\n  a: b: c\n---\nBody.\n",
    "metadata-list": "---\nname: NAME\ndescription: MARK\nmetadata: [a, b]\n---\nBody.\n",
    "metadata-text": "---\nname: NAME\ndescription: MARK\nmetadata: a\n---\nBody.\n",
    "short-list": "---\nname: NAME\ndescription: MARK\nmetadata:\n  short-description: [a]\n---\n",
    "tools-list": "---\nname: NAME\ndescription: MARK\nallowed-tools: [Read, Bash]\n---\nBody.\n",
    "anchors": "---\nname: &n NAME\ndescription: MARK\nother: *n\n---\nBody.\n",
    "merge": "---\nname: NAME\ndescription: MARK\nmetadata:\n  <<: {a: b}\n---\nBody.\n",
    "second-document": "---\nname: NAME\ndescription: MARK\n--- \nname: other\n---\nBody.\n",
    "stray-line": "---\nname: NAME\ndescription: MARK\nstray line\n---\nBody.\n",
    "list-below": "---\nname: NAME\ndescription:\n  - one\n  - two\n---\nBody.\n",
    "map-below": "---\nname: NAME\ndescription:\n  a: one\n---\nBody.\n",
    "flow-many": "---\n{name: NAME, description: MARK}\n---\nBody.\n",
    "manual": "---\nname: NAME\ndescription: MARK\ndisable-model-invocation: true\n---\nBody.\n",
    "not-invocable": "---\nname: NAME\ndescription: MARK\nuser-invocable: false\n---\nBody.\n",
}


def hard_files() -> Iterator[Case]:
    """Yield the files that are made, each with a name of its own."""
    for at, sign in enumerate(FIRST_SIGNS):
        for kind, text in (("word", "word here"), ("colon", "word: here")):
            yield _case(f"sign-{at:02}-{kind}", f"{sign}{text}")
            yield _case(f"sign-{at:02}-{kind}-blank", f"{sign} {text}")
    for key, value in _VALUES.items():
        yield _case(f"value-{key}", value)
    for key, sign in HIDDEN.items():
        yield _case(f"hidden-{key}", f"Hidden{sign} in it.")
        yield _case(f"hidden-first-{key}", f"{sign}Hidden first.")
        directory = f"hidden-name-{key}"
        text = f"---\nname: hidden{sign}-{key}\ndescription: Does it.\n---\nBody.\n"
        yield Case(directory, text.encode(), "hidden")
    for key, name in _NAMES.items():
        text = f"---\nname: {name}\ndescription: Named oddly.\n---\nBody.\n"
        yield Case(f"name-{key}", text.encode(), "name")
    for key, text in _WHOLE.items():
        directory = f"whole-{key}"
        whole = text.replace("NAME", directory).replace("MARK", f"Does {key}.")
        yield Case(directory, whole.encode(), "whole")
    plain = b"---\nname: %s\ndescription: Does it.\n---\n"
    for key, data in (
        ("utf-16", (plain % b"odd-utf-16").decode().encode("utf-16")),
        ("latin-1", plain % b"odd-latin-1" + "Blässe".encode("latin-1")),
        ("latin-1-field", b"---\nname: odd-latin-1-field\ndescription: Bl\xe4sse.\n---\n"),
        ("nul", plain % b"odd-nul" + b"a\0b\n"),
        ("nul-field", b"---\nname: odd-nul-field\ndescription: a\0b\n---\n"),
        ("large-300k", plain % b"odd-large-300k" + b"x" * 300_000),
        ("large-1100k", plain % b"odd-large-1100k" + b"x" * 1_100_000),
        ("large-11m", plain % b"odd-large-11m" + b"x" * 11_000_000),
        ("long-head", b"---\nname: odd-long-head\ndescription: x\nh: %s\n---\n" % (b"h" * 70_000)),
    ):
        yield Case(f"odd-{key}", data, "bytes")


def _case(directory: str, value: str) -> Case:
    text = f"---\nname: {directory}\ndescription: {value}\n---\nBody.\n"
    return Case(directory, text.encode(), "value")


_SIGNS = (
    *("[", "]", "{", "}", ":", ": ", "#", " #", "'", '"', "- ", "*", "&", "!", "|", ">", "%", "@"),
    *("`", "\t", "  ", "---", "\\", ",", "?", "~", "null", "\u00a0", "\u200b", "…", "<"),
)


def mutated(files: list[Case], count: int, seed: int) -> Iterator[Case]:
    """Yield `count` files made from real ones by one to three changes of their frontmatter."""
    order = random.Random(seed)
    for number in range(count):
        case = order.choice(files)
        text = case.data.decode("utf-8", "replace")
        end = text.find("\n---", 3)
        directory = f"mutated-{number:04}"
        head = text[: end if end > 0 else 400]
        # A name of its own before the changes: two of one name would hide each other.
        lines = re.sub(r"(?m)^name:.*$", f"name: {directory}", head, count=1).split("\n")
        for _ in range(order.randint(1, 3)):
            _mutate(lines, order)
        changed = "\n".join(lines) + "\n---\nBody.\n"
        yield Case(directory, changed.encode("utf-8", "replace"), "mutated")


def _mutate(lines: list[str], order: random.Random) -> None:
    at = order.randrange(len(lines))
    line = lines[at]
    place = order.choice([0, len(line), line.find(":") + 2, order.randrange(len(line) + 1)])
    kind = order.randrange(8)
    if kind < 4:
        lines[at] = line[:place] + order.choice(_SIGNS) + line[place:]
    elif kind == 4:
        lines[at] = order.choice(("  ", " ", "\t")) + line
    elif kind == 5:
        lines[at] = line[:place] + line[place + order.randint(1, 3) :]
    elif kind == 6:
        lines.insert(at, order.choice((line, "", "stray line", "# comment", "other: value")))
    elif len(lines) > 1:
        del lines[at]


def write(cases: list[Case], root: Path) -> None:
    """Write each file below a directory of skills."""
    for case in cases:
        file = root / case.directory / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_bytes(case.data)

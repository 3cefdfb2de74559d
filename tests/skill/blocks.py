"""Makes YAML blocks, plain and nasty, that look like frontmatter or once did.

Run as a program it reads many of them in both ways: `python -m tests.skill.blocks SEED COUNT`.
That is a process of its own, because the parsers are native code and a fault ends the process.
"""

from __future__ import annotations

import sys
from random import Random

from skillhouse.skill.source import FileRefusedError
from skillhouse.skill.yaml_text import plain_mapping, read_mapping
from tests.skill.plain_blocks import line_block

REAL = (
    """name: pdf-tools
description: Fill, merge and split PDF forms. Use when a user asks about PDFs.
license: Apache-2.0
metadata:
  author: example-org
  version: "1.0"
""",
    """name: weather
description: >-
  Current weather and forecasts.
  Use for: rain, wind, temperature.

  Not for climate history.
version: 1.0.0
tags: [weather, forecast, wttr.in]
allowed-tools: Bash(curl:*), Read
""",
    """name: github
description: "Issues and pull requests: list, create, comment"
homepage: https://cli.example.com/#top
metadata: {"clawdbot": {"emoji": "🐙", "requires": {"bins": ["gh"]}}}
""",
    """name: deploy-数据
description: |
  部署服务：先检查，再发布。
    kubectl apply -f x.yaml
  Uses `make` @ 100% # not a comment
author: 'it''s me'
triggers:
- deploy
- roll back
- on: push
  if: ok
created: 2026-01-01
enabled: yes
argument-hint: <topic> [--fast]
""",
    """# A comment first
name:   spaced
description:   Spaced out.   # and one behind
compatibility: Needs python 3.11+, git & make
model: ~
empty:
metadata:

  short-description: x
  steps:
    - run: a
      then: b
    -
    - - deep
      - er
""",
)

KEYS = (
    *(
        "name description license version metadata allowed-tools tags x y on no 1 1.0 ~ null << ="
    ).split(),
    *("'q'", '"q"', "k k", "k:k", "k#k", "?k", "-k", ":k", "[k]", "é", "%k", "@k", "`k", ""),
    *("a" * 1_023, "a" * 1_024, "a" * 1_025, "é" * 1_023, "é" * 1_025, '"' + "a" * 1_022 + '"'),
)
COMMON_KEYS = KEYS[:9]

SCALARS = (
    *(
        "a 1 1.0 +1 0x1F 017 1e3 .inf .nan true no Off ~ null 2026-01-01 12:30:45 = << @a %a `a`"
    ).split(),
    *(
        "",
        "b c",
        "a: b",
        "a:b",
        "a :b",
        "a #b",
        "a#b",
        "# c",
        "a:",
        "::",
        ": a",
        ":",
        "- a",
        "-a",
        "-",
        "--",
    ),
    *(
        "'x'",
        '"x"',
        '"x: y"',
        "'a''b'",
        "'",
        '"',
        "'a' b",
        '"a" b',
        "'a'#b",
        "'a' #b",
        "a ' b",
        'a " b',
    ),
    *(
        '"a\\nb"',
        '"\\x41\\u263a"',
        '"\\ud83d\\ude00"',
        '"\\z"',
        '"\\0"',
        '"\\N\\_\\L"',
        '"a\\\n  b"',
        "'a\n  b'",
    ),
    *(
        "|",
        ">",
        "> a",
        "| a",
        "|\n  a\n  b",
        ">\n  a\n\n  b",
        ">-\n  a\n   b\n  c",
        "|+\n  a\n\n",
        "|2\n   a\n  b",
    ),
    *(
        "|\n   a\n  b",
        ">1-\n a",
        "|\n\n  a",
        "| # c\n  a",
        "|#c\n  a",
        "a\n  b",
        "a\n  b: c",
        "a\nb",
        "a|",
        "<a>",
    ),
    *(
        "[a, b]",
        "[]",
        "{}",
        "{a: b}",
        "[a, 'b']",
        "[1, 2]",
        "[a: b]",
        "{a, b}",
        "[a b, ]",
        "[?]",
        "[? a]",
        "[:a]",
    ),
    *(
        "[-]",
        "[- a]",
        "[a,\n  b]",
        "[[a],\n  b]",
        "{a: b,\n  c: d}",
        "{a:b}",
        "[a#b, c]",
        "[a]b",
        "[a] b",
        "a [b]",
    ),
    *(
        "? a",
        "?a",
        "?",
        "*a",
        "&a",
        "&a b",
        "!a",
        "!!str a",
        "a!",
        "a & b",
        "a * b",
        "...",
        "... a",
        "---",
        "--- a",
    ),
    *(
        "é",
        "日本",
        "😀",
        "a\u2028b",
        "a\x85b",
        "a\tb",
        "\ta",
        "a\t",
        "\xa0",
        "a\ufeff",
        "\x01",
        "a\x7f",
        "a\r",
        "a\\",
    ),
    *("x" * 2_000, "x y " * 600, "http://a.example/b#c", "C:\\a", "$(a)", "${{ a }}", "{{a}}"),
)

SIMPLE = (
    "a",
    "b c",
    "a, b",
    "x-1",
    "'x: y'",
    '"x"',
    "http://a.example/b",
    ">-\n  a\n  b",
    "[a, b]",
)

FRAGMENTS = (
    *(
        "\n",
        "\n\n",
        "\n ",
        "\n  ",
        "\n    ",
        " ",
        "  ",
        ":",
        ": ",
        "- ",
        "-",
        "? ",
        "#",
        " #",
        ",",
        "'",
        '"',
        "\\",
    ),
    *(
        "|",
        ">",
        "|\n",
        ">\n",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "!a ",
        "%",
        "@",
        "`",
        "~",
        "...",
        "\n...\n",
        "\n--- ",
    ),
    *(
        "%a\n",
        "\t",
        "\r",
        "\x01",
        "\x85",
        "\u2028",
        "\ufeff",
        "\u200b",
        "é",
        "日",
        "a",
        "a: b",
        "\n- a",
        "\na: b\n",
    ),
)


def random_block(random: Random) -> str:
    """Return a block, ending in a newline as they all do between fences."""
    kind = random.randrange(10)
    if kind < 4:
        block = _mapping(random, 0, 0)
    elif kind < 8:
        block = _mutated(random, random.choice(REAL))
    elif kind < 9:
        block = "".join(random.choice(FRAGMENTS) for _ in range(random.randint(1, 14)))
    else:
        depth = random.choice((10, 15, 16, 17, 40))
        opener = random.choice(("k:\n", "-\n"))
        block = "".join(" " * level + opener for level in range(depth)) + " " * depth + "a: b"
    return block if block.endswith("\n") else block + "\n"


def _mapping(random: Random, level: int, indent: int) -> str:
    lines = []
    for _ in range(random.randint(1, 4)):
        key = random.choice(KEYS if random.random() < 0.2 else COMMON_KEYS)
        start = " " * indent + key + random.choice((": ", ": ", ": ", ": ", ":", " : ", ":  "))
        kind = random.random()
        if level < 3 and kind < 0.2:
            inner = _mapping(random, level + 1, indent + random.choice((1, 2, 2, 2, 4)))
            lines.append(f"{start.rstrip()}{random.choice(('', ' ', ' # c'))}\n{inner}")
        elif level < 3 and kind < 0.35:
            lines.append(start.rstrip() + "\n" + _sequence(random, level, indent))
        elif kind < 0.4:
            lines.append(random.choice((" " * indent + "# c", "", "   ", "#c: d")))
        else:
            value = _scalar(random).replace("\n", "\n" + " " * indent)
            lines.append(start + value + random.choice(("", "", "", " ", " # c", "#c")))
    return "\n".join(lines)


def _sequence(random: Random, level: int, indent: int) -> str:
    pad = " " * (indent + random.choice((0, 1, 2, 2)))
    items = []
    for _ in range(random.randint(1, 3)):
        if random.random() < 0.3:
            items.append(f"{pad}- {_mapping(random, level + 1, len(pad) + 2).lstrip(' ')}")
        else:
            value = _scalar(random).replace("\n", "\n" + pad)
            items.append(pad + random.choice(("- ", "- ", "-   ", "- - ", "-")) + value)
    return "\n".join(items)


def _mutated(random: Random, block: str) -> str:
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        at = random.randint(0, len(block))
        lines = block.split("\n")
        line = random.randrange(len(lines))
        kind = random.randrange(6)
        if kind < 2:
            block = block[:at] + random.choice(FRAGMENTS) + block[at:]
        elif kind == 2:
            block = block[:at] + block[at + random.choice((1, 1, 2, 5)) :]
        elif kind == 3:
            key = lines[line].partition(":")[0]
            lines[line] = f"{key}: {_scalar(random)}"
            block = "\n".join(lines)
        elif kind == 4:
            lines[line] = random.choice((" ", "  ", "- ", "#", "...")) + lines[line]
            block = "\n".join(lines)
        else:
            lines.insert(
                line, random.choice(("", "  ", "# c", "  # c", "...", "x", random.choice(lines)))
            )
            block = "\n".join(lines)
    return block


def _scalar(random: Random) -> str:
    return random.choice(SCALARS if random.random() < 0.4 else SIMPLE)


def outcome(block: str, *, fast: bool) -> object:
    """Return what a block is read as, keys in their order, or the finding that refuses it."""
    try:
        return repr(read_mapping(block, fast=fast))
    except FileRefusedError as refusal:
        return refusal.finding


def main(seed: int, count: int) -> None:
    """Read `count` blocks in both ways and print how many of them were plain."""
    random = Random(seed)
    plain = 0
    for _ in range(count):
        block = random.choice((random_block, line_block))(random)
        slow = outcome(block, fast=False)
        if plain_mapping(block) is not None:
            plain += 1
            if outcome(block, fast=True) != slow:
                raise SystemExit(f"the two ways of reading differ: {block!r}")
    print(plain)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

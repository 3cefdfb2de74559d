"""The law of decision 13: where the Rust parser is used, it reads what PyYAML's events read."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillhouse.skill import ParsePolicy, parse

WORDS = st.sampled_from(
    [
        *(
            "a",
            "no",
            "yes",
            "null",
            "~",
            "1.0",
            "0x1F",
            "1e3",
            "2026-01-01",
            "12:30",
            "1_000",
            ".5",
        ),
        *("true", "on", "word two", "a: b", "a:b", "a #b", "a#b", "'q'", '"d\\n"', "it's", "%x"),
        *("@x", "`x`", "- a", "-", "?", "? a", ": a", "[a, b]", "{a: b}", "[a", "]", "{", "}", "|"),
        *(">", "> text", "|-", "*x", "&x y", "!x y", "é", "数据", "a\tb", "…", "...", "--- a", ""),
        *("'a", '"a', "a'b", 'a"b', ",", "a, b", "#c", "\\", "<<", "=", "[]", "{}", "['a']", "[:]"),
    ]
)
KEYS = st.sampled_from(
    ["name", "description", "metadata", "x", "'q'", '"d"', "1", "no", "a b", "?"]
)
INDENTS = st.sampled_from(["", "", "", " ", "  ", "    ", "- ", "  - ", "? "])
LINES = st.one_of(
    st.builds(lambda i, k, v: f"{i}{k}: {v}", INDENTS, KEYS, WORDS),
    st.builds(lambda i, k: f"{i}{k}:", INDENTS, KEYS),
    st.builds(lambda i, v: f"{i}{v}", INDENTS, WORDS),
    st.builds(lambda i, k, v: f"{i}{k}:{v}", INDENTS, KEYS, WORDS),
    st.sampled_from(["", "# comment", "   ", "x: |", "x: >-", "x: |2", "  text", "\ttab"]),
)
BLOCKS = st.lists(LINES, min_size=1, max_size=6).map(lambda lines: "\n".join(lines) + "\n")


def outcome(block: str, *, fast: bool) -> tuple[object, ...]:
    """Return all that reading a block says, so that two ways can be compared whole."""
    data = f"---\n{block}---\n".encode()
    policy = ParsePolicy(yaml_fast_path=fast)
    result = parse(data, directory="a", policy=policy)
    skill = result.skill
    fields = None if skill is None else skill.frontmatter.fields
    return fields, result.diagnostics


@settings(max_examples=600)
@given(block=BLOCKS)
@example(block="name: a\ndescription: 1.0\n")
@example(block="name: a\ndescription: no\nx: 2026-01-01\n")
@example(block="name: a\ndescription: b\nx: |\n\ny: c\n")
@example(block="name: a\ndescription: b\nx: [a, 'b: c']\n")
def test_both_paths_read_a_block_alike(block: str) -> None:
    assert outcome(block, fast=True) == outcome(block, fast=False)


@settings(max_examples=300)
@given(text=st.text(max_size=60))
def test_both_paths_read_any_text_alike(text: str) -> None:
    block = f"name: a\ndescription: {text}\n"
    assert outcome(block, fast=True) == outcome(block, fast=False)


FUZZ = """
import random, sys
from skillhouse.skill import parse
random.seed(int(sys.argv[1]))
alphabet = "ab:-[]{}#&*!|>'\\"%@`?,. \\n\\t\\\\0~"
for _ in range(4000):
    block = "".join(random.choice(alphabet) for _ in range(random.randint(1, 200)))
    parse(f"---\\n{block}\\n---\\n".encode(), directory="a")
print("survived")
"""


def test_the_native_parsers_survive_a_fuzzer() -> None:
    """In a process of its own, because a native crash ends the process."""
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", FUZZ, seed],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "survived\n", "")

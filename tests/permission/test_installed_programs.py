"""The tables against what the installed programs say of themselves, where they are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

import pytest

from skillhouse.permission.grammar import CommandTable, all_grammars, grammar_of, names_of
from tests.harness import ran

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
NOWHERE = (
    "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
    "--unshare-all", "--die-with-parent", "--chdir", "/tmp",
)  # fmt: skip
SHORT_HELP = {"git"}
"""Programs whose `SUB --help` opens a manual."""
SLOW = {"aws"}
"""Programs that take a second for each sub-command's help."""
MISLEADING = {
    ("stat", "-c"): "its help prints `-c  --format=FORMAT`; -c takes the format as well",
    ("curl", "--help"): "the category is optional, and a word behind it is read as an address",
    ("dos2unix", "--convmode"): "its help names the value on another line",
    ("unzip", "-x"): "its help shows the list of names on another line",
    ("zip", "-x"): "its help shows the list of names on another line",
    ("wget", "--hsts-file"): "the value is in the description",
    ("wget", "--max-redirect"): "the value is in the description",
    ("wget", "--backups"): "the number is optional (manual, 2.3 Logging)",
    ("gpg", "--print-md"): "the algorithm is an operand of the command in its help",
    ("git", "--abbrev"): "the number is optional (git-diff-tree(1))",
    ("git", "--contains"): "the commit is optional (git-branch(1)), and read as an operand",
    ("git", "--no-contains"): "as --contains",
    ("git", "--merged"): "as --contains",
    ("git", "--no-merged"): "as --contains",
    ("git", "--points-at"): "as --contains",
    ("git", "--min-parents"): "the number is taken in the same word only",
    ("git", "--max-parents"): "the number is taken in the same word only",
}
"""Options of which the help text does not say what the program does, with the reason."""
SILENT = frozenset({"[", "test", "command", "type", "time", "echo", "true", "false", ":"})
"""Their `--help` is that of a shell's own command, or a word like any other."""


@cache
def said(*argv: str) -> str:
    """Return what a program prints, its pager off; "" when it fails to start or waits.

    It runs where it can change nothing: `git bisect start -h` starts a bisection.
    """
    quiet = {**os.environ, "PAGER": "cat", "GIT_PAGER": "cat", "NO_COLOR": "1", "COLUMNS": "200"}
    try:
        done = ran(
            (*NOWHERE, *argv), errors="replace", timeout=30, stdin=subprocess.DEVNULL, env=quiet
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def contradicted(table: CommandTable, text: str) -> dict[str, str]:
    """Return the options of a table that take another value than a help text shows.

    What is wrong there is dangerous: a word would be taken for a value that is an operand, or the
    other way round. An option that the text does not have is refused by the program.
    """
    wrong = {}
    for name, rule in table.options.items():
        shown = {takes for line in shown_with(name, text) if (takes := value_in(line)) is not None}
        # `--x` and `--x=V` take one word both, so that one may be shown for the other.
        one_word = rule.takes != "=" and bool(shown & {"", "=?"})
        if shown and rule.takes not in shown and not one_word:
            wrong[name] = f"{rule.takes!r}, and the program shows {sorted(shown)}"
    return wrong


def shown_with(name: str, text: str) -> list[str]:
    """Return what follows an option at the beginning of lines that describe options."""
    found = re.finditer(rf"^\s*(?:-\w,? +)?{re.escape(name)}(?![\w-])(.*)$", text, re.MULTILINE)
    return [match[1] for match in found]


def value_in(rest: str) -> str | None:
    """Return what a line says of the value, or None where that is not plain."""
    if rest.startswith("[="):
        return "=?"
    if rest.startswith(("=", " <", " =")):
        return "="
    return "" if not rest or rest.startswith("  ") else None


@pytest.mark.parametrize("stem", all_grammars())
def test_the_options_of_a_table_are_those_of_the_program(stem: str) -> None:
    name = next((n for n in names_of(stem) if n not in SILENT and shutil.which(n)), "")
    if not name:
        pytest.skip("not installed")
    grammar = grammar_of(name, module=True)
    assert grammar is not None
    version = VERSION.search(grammar.source)
    installed = VERSION.search(said(name, "--version"))
    if version is None or installed is None or installed[0] != version[0]:
        pytest.skip(f"the table is of another version: {grammar.source[:40]}")
    help_of = "-h" if name in SHORT_HELP else "--help"
    general = said(name, "--help")
    wrong = {}
    waiting: list[tuple[tuple[str, ...], CommandTable]] = [((), grammar.program)]
    while waiting:
        words, table = waiting.pop()
        if stem not in SLOW and table.options:
            text = said(name, *words, help_of) + (general if grammar.anywhere else "")
        else:
            text = general if not words else ""
        contradictions = {
            option: said_
            for option, said_ in contradicted(table, text).items()
            if (stem, option) not in MISLEADING
        }
        if contradictions:
            wrong[" ".join(words)] = contradictions
        waiting += [((*words, word), inner) for word, inner in table.commands.items()]
    assert not wrong, wrong

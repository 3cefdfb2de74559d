"""Writes the generated pages of docs/reference: the help of every verb.

`python scripts/docs.py` writes them, `--check` only says whether they would change.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from skillhouse.frontends.cli import main
from skillhouse.frontends.cli.verbs import VERBS

PAGE = Path("docs/reference/commands.md")


def help_of(*arguments: str) -> str:
    """Return what the command line prints for these words."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main(arguments)
    return output.getvalue().strip()


def page() -> str:
    """Return the page of commands."""
    head = (
        "# Commands\n\nGenerated from the help texts by `./x docs`; do not edit.\n\n"
        "Exit codes: 0 ok, 1 finding or refusal, 2 usage, 3 environment, 70 "
        "[a fault of skillhouse](json.md#a-fault-of-skillhouse). Data goes to stdout, everything "
        "else to stderr.\n\n"
        f"```text\n{help_of('--help')}\n```\n"
    )
    parts = [head]
    for verb in VERBS:
        words = ("policy", "explain") if verb == "policy" else (verb,)
        parts.append(f"\n## {' '.join(words)}\n\n```text\n{help_of(*words, '--help')}\n```\n")
    return "".join(parts)


def write_or_check(*, check: bool) -> int:
    """Write the page, or return 1 when it is not what it would be."""
    text = page()
    if check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{PAGE} is not up to date: run ./x docs", file=sys.stderr)
        return 0 if same else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(check="--check" in sys.argv[1:]))

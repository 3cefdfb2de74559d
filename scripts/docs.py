"""Writes every generated page and file: `./x docs [NAME...]`; `--check` says which would change.

- commands: docs/reference/commands.md, the help of every verb
- profiles: docs/reference/profiles.md, the fields of a profile and the shipped ones
- contract: tests/data/contract.json, what the public contract has; what is new is added
- recording: docs/images/first-minutes.svg, the first minutes in a terminal

Exit code 1 when something of the contract is gone or changed, and with `--check` when a file is not
what it would be. Not here: docs/requirements.md is of `./x reqs`, which runs the tests; the table
in docs/concepts/security.md is of scripts/sandbox_table.py, which needs self-tests of two accounts;
requirements/*.txt are of `./x pins`, which needs the network; docs/images/pages are photographs of
a browser (scripts/page_pictures.py).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts import contract, profile_reference, recording
from scripts.terminal import install

from skillhouse.frontends.cli import main as run
from skillhouse.frontends.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[1]


def help_of(*arguments: str) -> str:
    """Return what the command line prints for these words."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        run(arguments)
    return output.getvalue().strip()


def commands_page() -> str:
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


def contract_list() -> str:
    """Return the list of the contract; BrokenContractError has it when something is broken."""
    text, breaks, _ = contract.updated()
    if breaks:
        raise contract.BrokenContractError(breaks, text)
    return text


def first_minutes() -> str:
    """Return the picture of the first minutes."""
    with tempfile.TemporaryDirectory() as place:
        return recording.drawn(recording.record(install(Path(place))))


@dataclass(frozen=True, slots=True)
class Generated:
    """A file, and what writes it."""

    file: str
    text: Callable[[], str]


GENERATED = {
    "commands": Generated("docs/reference/commands.md", commands_page),
    "profiles": Generated("docs/reference/profiles.md", profile_reference.rendered),
    "contract": Generated("tests/data/contract.json", contract_list),
    "recording": Generated("docs/images/first-minutes.svg", first_minutes),
}


def write_or_check(names: list[str], *, check: bool, root: Path = ROOT) -> int:
    """Write some files, or say which are not what they would be; return the exit code."""
    code = 0
    for name in names:
        generated = GENERATED[name]
        file = root / generated.file
        try:
            text = generated.text()
        except contract.BrokenContractError as error:
            print(error, file=sys.stderr)
            text, code = error.text, 1
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if check:
            print(f"{generated.file} is not up to date: run ./x docs", file=sys.stderr)
            code = 1
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"wrote {generated.file}", file=sys.stderr)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description="Write every generated page and file.")
    parser.add_argument("--check", action="store_true", help="only say which would change")
    parser.add_argument("names", nargs="*", choices=[*GENERATED, []], metavar="NAME")
    options = parser.parse_args()
    return write_or_check(options.names or list(GENERATED), check=options.check)


if __name__ == "__main__":
    sys.exit(main())

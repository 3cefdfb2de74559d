#!/usr/bin/env python3
"""Compare two text files: `compare.py [--summary] [--ignore-blanks] OLD NEW`.

Exit code 0: equal. 1: they differ. 2: they could not be compared.
"""

import argparse
import difflib
import sys
from pathlib import Path

FILE_MAX = 4_000_000
LINES_MAX = 2_000


def main():
    parser = argparse.ArgumentParser(description="Compare two text files line by line.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--summary", action="store_true", help="print only how many lines changed")
    parser.add_argument(
        "--ignore-blanks", action="store_true", help="pass over blanks at the ends of lines"
    )
    options = parser.parse_args()
    old, new = lines_of(options.old), lines_of(options.new)
    if options.ignore_blanks:
        old, new = ([line.rstrip() + "\n" for line in lines] for lines in (old, new))
    found = list(difflib.unified_diff(old, new, str(options.old), str(options.new)))
    # The first two lines name the files.
    added = sum(line.startswith("+") for line in found[2:])
    removed = sum(line.startswith("-") for line in found[2:])
    if options.summary or not found:
        print(f"{added} added, {removed} removed" if found else "equal")
    else:
        for line in found[:LINES_MAX]:
            print(line.removesuffix("\n"))
            if not line.endswith("\n"):
                print("\\ No newline at end of file")
        if len(found) > LINES_MAX:
            print(f"[cut: {len(found) - LINES_MAX} more lines]")
    return 1 if found else 0


def lines_of(path):
    """Return the lines of a text file with their ends."""
    try:
        if path.stat().st_size > FILE_MAX:
            sys.exit(refusal(f"expected at most {FILE_MAX} bytes: {path}"))
        return path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        sys.exit(refusal(f"expected a text in UTF-8: {path}"))
    except OSError as error:
        sys.exit(refusal(f"{error.strerror}: {path}"))


def refusal(message):
    """Say why nothing was compared and return the exit code for it."""
    print(message)
    return 2


if __name__ == "__main__":
    sys.exit(main())

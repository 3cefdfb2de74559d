"""Runs every check that needs no test: `./x lint`; `--fix` first fixes what ruff can fix.

All checks run, whatever the others find. Exit code 1 if one of them finds something.

`--lower-bars` lowers each bar of scripts/bars.toml to what the tree has, and raises none;
`--set-bars` writes what the tree has, for a merge. Both do nothing else.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from scripts.size import counted

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
LINES_MAX, CODE_MAX = 600, 400
"""Longest file of src, and how many of its lines may be code as scripts/size.py counts it, from
STYLE.md ("Shape")."""
BARS = {"--lower-bars": "--lower", "--set-bars": "--set"}

# In pieces, so that this file does not name what it forbids.
HOSTS = ("pypi" + ".org", "python" + "hosted", "registry.npm" + "js")
MACHINE_PATHS = ("/wo" + "rk/", "/tmp" + "/v/")
FORBIDDEN = re.compile(
    "|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.]){path}" for path in MACHINE_PATHS)])
)
FOLDERS = ("src", "signer", "tests", "bench", "scripts")

FIXES: tuple[tuple[str | Path, ...], ...] = (
    (BIN / "ruff", "check", "--fix-only", "--quiet", "."),
    (BIN / "ruff", "format", "--quiet", "."),
)


def commands() -> dict[str, list[str | Path]]:
    """Return each tool's command by its name, those of a second first."""
    # mypy refuses a folder without Python files, and not every folder has some from the start.
    typed = [name for name in FOLDERS if any(ROOT.glob(f"{name}/**/*.py"))]
    return {
        "ruff format": [BIN / "ruff", "format", "--check", "--output-format=concise", "."],
        "ruff check": [BIN / "ruff", "check", "--output-format=concise", "--quiet", "."],
        "words": [sys.executable, "-m", "scripts.words"],
        "mypy": [BIN / "mypy", "--no-error-summary", *typed, "conftest.py", "x"],
        "source": [sys.executable, "-m", "pytest", "-q", "tests/test_source.py"],
        "lint-imports": [BIN / "lint-imports", "--no-cache", "--no-logo"],
        "bars": [sys.executable, "-m", "scripts.bars"],
    }


def length_finding(text: str) -> str | None:
    """Return what is wrong with the length of a file of src.

    >>> length_finding("x = 1" + chr(10)), length_finding("x = 1" + chr(10) * 700)
    (None, 'expected at most 600 lines, got 700: split it by idea')
    """
    lines = len(text.splitlines())
    if lines > LINES_MAX:
        return f"expected at most {LINES_MAX} lines, got {lines}: split it by idea"
    # Most files are too short to have too much code.
    if lines > CODE_MAX and (code := counted(text).code) > CODE_MAX:
        return f"expected at most {CODE_MAX} lines of code, got {code}: split it by idea"
    return None


def tree_findings(root: Path = ROOT) -> list[str]:
    """Return a message for each file that is too long, or names a machine's path or a registry."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    findings = []
    for name in sorted(filter(None, listed.decode().split("\0"))):
        path = root / name
        if not path.is_file():  # Deleted but not yet committed, or a link to a folder.
            continue
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:  # A sandbox may hide one, as skillhouse's own hides `.env`.
            findings.append(f"{name}: cannot be read: {error.strerror}")
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if found := FORBIDDEN.search(line):
                findings.append(f"{name}:{number}: names a machine path or a registry: {found[0]}")
        if name.startswith("src/") and name.endswith(".py") and (finding := length_finding(text)):
            findings.append(f"{name}: {finding}")
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="./x lint", description=__doc__)
    parser.add_argument("--fix", action="store_true", help="fix what ruff can before")
    for option, bars in BARS.items():
        parser.add_argument(option, action="store_true", help=f"run `scripts.bars {bars}` alone")
    parser.parse_args()
    for option in BARS.keys() & set(sys.argv[1:]):
        change = [sys.executable, "-m", "scripts.bars", BARS[option]]
        return subprocess.run(change, cwd=ROOT, check=False).returncode
    if "--fix" in sys.argv[1:]:
        for fix in FIXES:
            subprocess.run(fix, cwd=ROOT, check=False)
    failed = []
    print("== tree", file=sys.stderr, flush=True)
    try:
        findings = tree_findings()
    except (OSError, subprocess.CalledProcessError):
        findings = ["expected a git checkout, in which `git ls-files` names the files to look at"]
    if findings:
        failed.append("tree")
        print(*findings, sep="\n", flush=True)
    for name, command in commands().items():
        print(f"== {name}", file=sys.stderr, flush=True)
        # Output is shown only on a finding; lint-imports says much when all is well.
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(name)
            print(done.stdout, done.stderr, sep="", end="", flush=True)
        elif name == "bars":  # What could not be measured on this machine.
            print(done.stderr, file=sys.stderr, end="", flush=True)
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: all is well", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

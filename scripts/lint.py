"""Runs every check that needs no test: `./x lint`; `--fix` first mends what ruff can mend.

All checks run, whatever the others find. Exit code 1 if one of them finds something.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
LINES_MAX = 400
"""Longest file of src, from STYLE.md ("Shape")."""

# In pieces, so that this file does not name what it forbids.
HOSTS = ("pypi" + ".org", "python" + "hosted", "registry.npm" + "js")
MACHINE_PATHS = ("/wo" + "rk/", "/tmp" + "/v/")
FORBIDDEN = re.compile(
    "|".join([*map(re.escape, HOSTS), *(rf"(?<![\w.]){path}" for path in MACHINE_PATHS)])
)
FOLDERS = ("src", "tests", "bench", "scripts")

FIXES: tuple[tuple[str | Path, ...], ...] = (
    (BIN / "ruff", "check", "--fix-only", "--quiet", "."),
    (BIN / "ruff", "format", "--quiet", "."),
)


def commands() -> dict[str, list[str | Path]]:
    """Return each tool's command by its name."""
    # mypy refuses a folder without Python files, and not every folder has some from the start.
    typed = [name for name in FOLDERS if any(ROOT.glob(f"{name}/**/*.py"))]
    return {
        "ruff format": [BIN / "ruff", "format", "--check", "--output-format=concise", "."],
        "ruff check": [BIN / "ruff", "check", "--output-format=concise", "--quiet", "."],
        "mypy": [BIN / "mypy", "--no-error-summary", *typed, "conftest.py", "x"],
        "words": [sys.executable, "-m", "scripts.words"],
        "source": [sys.executable, "-m", "pytest", "-q", "tests/test_source.py"],
        "lint-imports": [BIN / "lint-imports", "--no-cache", "--no-logo"],
    }


def tree_findings() -> list[str]:
    """Return a message for each file that is too long, or names a machine's path or a registry."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    findings = []
    for name in sorted(filter(None, listed.decode().split("\0"))):
        path = ROOT / name
        if not path.is_file():  # Deleted but not yet committed, or a link to a folder.
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if found := FORBIDDEN.search(line):
                findings.append(f"{name}:{number}: names a machine path or a registry: {found[0]}")
        if name.startswith("src/") and name.endswith(".py") and len(lines) > LINES_MAX:
            findings.append(f"{name}: expected at most {LINES_MAX} lines, got {len(lines)}")
    return findings


def main() -> int:
    if "--fix" in sys.argv[1:]:
        for fix in FIXES:
            subprocess.run(fix, cwd=ROOT, check=False)
    failed = []
    for name, command in commands().items():
        print(f"== {name}", file=sys.stderr, flush=True)
        # Output is shown only on a finding; lint-imports says much when all is well.
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(name)
            print(done.stdout, done.stderr, sep="", end="", flush=True)
    print("== tree", file=sys.stderr, flush=True)
    try:
        findings = tree_findings()
    except (OSError, subprocess.CalledProcessError):
        findings = ["expected a git checkout, in which `git ls-files` names the files to look at"]
    if findings:
        failed.append("tree")
        print(*findings, sep="\n")
    print(f"lint: failed: {', '.join(failed)}" if failed else "lint: all is well", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

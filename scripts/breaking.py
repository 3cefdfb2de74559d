"""Draws requirements at random and breaks the code that their tests cover, to see the tests fail.

Run it from the project root in its environment: `python scripts/breaking.py [--count 30] [ID ...]`.
The checkout is never touched: each break is made in a copy. A break changes the meaning of one
covered expression (a comparison, a condition, a constant, a returned value); a requirement counts
as shown when a break makes one of its tests fail. Exit codes: 0 all shown; 1 some not; 3 the tests
could not be run.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
TRIES = 12
"""Breaks that are tried for one requirement before it counts as not shown."""
TIMEOUT_SECONDS = 120
FLIPS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One expression and what is put in its place."""

    file: Path
    line: int
    start: int
    end: int
    """Offsets in the file's bytes."""
    new: str
    old: str


def run(
    tests: list[str], *, source: Path, plugins: list[str], extra: dict[str, str] | None = None
) -> int:
    """Return pytest's exit code for these tests with the package read from `source`."""
    paths = [str(source), str(ROOT / "scripts"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = (
        os.environ
        | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        | (extra or {})
    )
    command = [*plugins, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    try:
        finished = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT, env=environment, capture_output=True, check=False, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 1  # A test that hangs is a test that does not pass.
    return finished.returncode


def claims() -> dict[str, list[str]]:
    """Return the tests of each requirement, without running them."""
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "claims.json"
        code = run(
            ["--collect-only", "-m", "req", "-p", "breaking_plugin", "tests"],
            source=ROOT / "src", plugins=[], extra={"CLAIMS_REPORT": str(target)},
        )  # fmt: skip
        if code or not target.exists():
            print(f"the tests could not be collected: pytest exit code {code}", file=sys.stderr)
            raise SystemExit(3)
        found: dict[str, list[str]] = json.loads(target.read_bytes())
        return found


def covered(tests: list[str], source: Path) -> dict[Path, set[int]]:
    """Return the lines of the package that the tests run, none if they do not pass as they are."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "coverage"
        plugins = [
            "-m",
            "coverage",
            "run",
            f"--data-file={data}",
            f"--source={source / 'skillhouse'}",
        ]
        if run(tests, source=source, plugins=plugins) or not data.exists():
            return {}
        measured = coverage.CoverageData(str(data))
        measured.read()
        return {Path(file): set(measured.lines(file) or ()) for file in measured.measured_files()}


def breaks(file: Path, lines: set[int]) -> Iterator[Break]:
    """Yield every break of an expression on a covered line inside a function."""
    text = file.read_bytes()
    starts = [0]
    for row in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    seen: set[int] = set()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            line = int(getattr(node, "lineno", 0))
            if line <= function.lineno or line not in lines or id(node) in seen:
                continue
            seen.add(id(node))
            for target, new in replaced(node):
                start = starts[target.lineno - 1] + target.col_offset
                end = starts[(target.end_lineno or target.lineno) - 1] + (
                    target.end_col_offset or 0
                )
                yield Break(
                    file=file,
                    line=line,
                    start=start,
                    end=end,
                    new=new,
                    old=text[start:end].decode(),
                )


def replaced(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield an expression and what means something else in its place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in FLIPS:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        yield node, f"({left} {FLIPS[type(node.ops[0])]} {right})"
    elif isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, f"({word.join(ast.unparse(value) for value in node.values)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"bool({ast.unparse(node.operand)})"
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(
        node.test, ast.Compare | ast.BoolOp
    ):
        yield node.test, f"(not ({ast.unparse(node.test)}))"
    elif (
        isinstance(node, ast.Return)
        and node.value is not None
        and not isinstance(node.value, ast.Constant)
    ):
        yield node.value, "None"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield node, str(node.value + 1)


def shown(number: str, tests: list[str], copy: Path, chance: random.Random) -> str:
    """Break covered code until a test fails; return what was broken, or nothing."""
    source = copy / "src"
    found = [one for file, lines in covered(tests, source).items() for one in breaks(file, lines)]
    chance.shuffle(found)
    for one in found[:TRIES]:
        kept = one.file.read_bytes()
        try:
            one.file.write_bytes(kept[: one.start] + one.new.encode() + kept[one.end :])
            if run(tests, source=source, plugins=[]) == 1:
                place = f"{one.file.relative_to(source / 'skillhouse')}:{one.line}"
                return (
                    f"{number}  {place}  `{flat(one.old)}` -> `{flat(one.new)}`  fails {tests[0]}"
                )
        finally:
            one.file.write_bytes(kept)
    return ""


def flat(text: str) -> str:
    """Return a text in one short line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def main() -> int:
    """Draw, break and print one line a requirement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="these requirements instead of drawn ones"
    )
    parser.add_argument(
        "--among", default="", help="draw only ids that begin so, separated by commas"
    )
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    known = claims()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    chance = random.Random(seed)
    among = sorted(number for number in known if number.startswith(tuple(options.among.split(","))))
    drawn = options.ids or chance.sample(among, min(options.count, len(among)))
    print(f"seed {seed}: {len(drawn)} of {len(among)} requirements", flush=True)
    missing = []
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(
            ROOT / "src", Path(directory) / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
        for number in drawn:
            tests = sorted(known.get(number, []))
            line = shown(number, tests, Path(directory), chance) if tests else ""
            print(line or f"{number}  NOT SHOWN by {tests or 'any test'}", flush=True)
            if not line:
                missing.append(number)
    print(f"{len(drawn) - len(missing)} of {len(drawn)} shown to fail")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())

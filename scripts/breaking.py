"""Draws requirements at random and breaks the code that is their own, to see their tests fail.

Run it from the project root: `./x py -m scripts.breaking [--count 30] [--tree DIR] [ID ...]`.
The checkout is never touched: each break is made in a copy. A break changes the meaning of one
expression (a comparison, a condition, a constant, a returned value) on a line that the tests of the
requirement run, and that neither its neighbours' tests run nor a fixture that several tests share.
Neighbours are the nearest requirements of the same design, one before and one after, that have
tests of their own. A requirement counts as shown when a break makes an assertion of one of its
tests fail. A run that does not end in time shows nothing, nor does a crash: an exception of the
package, at its import or within the test, says only that the line is run. What tests start with an
environment of their own is not measured. Exit codes: 0 all shown; 1 some not; 3 no test could be
run.
"""

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import coverage
from scripts.breaking_plugin import SHARED

TRIES = 40
"""Breaks that are tried for one requirement before it counts as not shown."""
TIMEOUT_SECONDS = (30, 5, 200)
"""Of a run with a break: these seconds and five times those of its tests, at the most the last,
which is less than what a hanging test has (`conftest.py`)."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the tests that matter do while nothing is broken."""

    lines: dict[str, dict[Path, set[int]]]
    """By test, or `SHARED`, the lines of the copy that it runs."""
    seconds: dict[str, float]
    """Of each test that passes."""

    def own(self, tests: list[str], others: set[str]) -> dict[tuple[Path, int], list[str]]:
        """Return by line which of `tests` run it, quickest first; no line that `others` run."""
        theirs = {
            (file, line)
            for test in (*others, SHARED, "")
            for file, lines in self.lines.get(test, {}).items()
            for line in lines
        }
        found: dict[tuple[Path, int], list[str]] = {}
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            for file, lines in self.lines.get(test, {}).items():
                for line in lines:
                    if (file, line) not in theirs:
                        found.setdefault((file, line), []).append(test)
        return found


class Tree:
    """A checkout, and the copy of its package in which the breaks are made."""

    def __init__(self, root: Path, work: Path) -> None:
        self.root = root
        self.work = work
        self.source = work / "src"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src", self.source, ignore=ignored)

    def run(
        self, tests: list[str], *options: str, timeout: float | None = None, **variables: str
    ) -> int | None:
        """Return pytest's exit code with the package read from the copy; None: not in time."""
        scripts = Path(__file__).parent
        paths = [str(self.source), str(scripts), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | variables
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*command, f"--basetemp={self.work / 'tests'}", *options, *tests],
            cwd=self.root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def claims(self) -> dict[str, list[str]]:
        """Return the tests of each requirement, without running them."""
        target = self.work / "claims.json"
        options = ("--collect-only", "-m", "req", "-p", "breaking_plugin")
        code = self.run(["tests"], *options, BREAKING_CLAIMS=str(target))
        if code or not target.exists():
            print(f"the tests could not be collected: pytest exit code {code}", file=sys.stderr)
            raise SystemExit(3)
        found: dict[str, list[str]] = json.loads(target.read_bytes())
        return found

    def measured(self, tests: list[str]) -> Measured:
        """Run the tests once, in processes that they start too, and return what they run."""
        data, settings, outcomes = (self.work / name for name in ("data", "settings", "outcomes"))
        settings.write_text(
            f"[run]\ndata_file = {data}\nsource = {self.source / 'skillhouse'}\n"
            "parallel = true\nsigterm = true\ncontext = ${BREAKING_TEST-}\n"
        )
        self.run(
            tests, "-p", "breaking_plugin",
            COVERAGE_PROCESS_START=str(settings), BREAKING_OUTCOMES=str(outcomes),
        )  # fmt: skip
        if not outcomes.exists():
            print("the tests did not come to an end", file=sys.stderr)
            raise SystemExit(3)
        ended: dict[str, tuple[bool, float]] = json.loads(outcomes.read_bytes())
        measured = coverage.Coverage(data_file=str(data), config_file=False)
        measured.combine([str(self.work)])
        lines: dict[str, dict[Path, set[int]]] = {}
        for file in measured.get_data().measured_files():
            for line, contexts in measured.get_data().contexts_by_lineno(file).items():
                for context in contexts:
                    lines.setdefault(context, {}).setdefault(Path(file), set()).add(line)
        return Measured(
            lines=lines,
            seconds={test: seconds for test, (passed, seconds) in ended.items() if passed},
        )


def neighbours(number: str, known: dict[str, list[str]]) -> set[str]:
    """Return the tests of the nearest requirement on either side that are not this one's."""
    design, _, place = number.partition("-")
    same = [one for one in known if one.partition("-")[0] == design and one != number]
    found: set[str] = set()
    for side in (-1, 1):
        distances = {one: side * (int(one.partition("-")[2]) - int(place)) for one in same}
        for one in sorted((one for one in same if distances[one] > 0), key=distances.__getitem__):
            if others := set(known[one]) - set(known[number]):
                found |= others
                break
    return found


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


def shown(
    tree: Tree, measured: Measured, own: list[str], others: set[str], chance: random.Random
) -> str:
    """Break lines of a requirement's own until a test fails; return what was broken, or why not."""
    passing = [test for test in own if test in measured.seconds]
    if not passing:
        return "NOT SHOWN: no test of it passes here"
    lines = measured.own(passing, others)
    files: dict[Path, set[int]] = {}
    for file, line in sorted(lines):
        files.setdefault(file, set()).add(line)
    found = [one for file in files for one in breaks(file, files[file])]
    chance.shuffle(found)
    # What most of its tests run is what the requirement is about; one alone runs much else.
    found.sort(key=lambda one: -len(lines[one.file, one.line]))
    late = crashed = 0
    proof = tree.work / "proof"
    for one in found[:TRIES]:
        tests = lines[one.file, one.line]
        least, factor, most = TIMEOUT_SECONDS
        timeout = min(most, least + factor * sum(measured.seconds[test] for test in tests))
        kept = one.file.read_bytes()
        proof.unlink(missing_ok=True)
        try:
            write(one.file, kept[: one.start] + one.new.encode() + kept[one.end :])
            code = tree.run(
                tests, "-p", "breaking_plugin", timeout=timeout, BREAKING_PROOF=str(proof)
            )
        finally:
            write(one.file, kept)
        if code is not None and proof.exists():
            place = f"{one.file.relative_to(tree.source / 'skillhouse')}:{one.line}"
            failed = json.loads(proof.read_bytes())
            what = f"fails {failed['test']}: {flat(failed['assertion'])}"
            return f"{place}  `{flat(one.old)}` -> `{flat(one.new)}`  {what}"
        late += code is None
        crashed += code not in (0, None)
    tried = f"{min(TRIES, len(found))} breaks tried, {late} not in time, {crashed} crashed"
    return f"NOT SHOWN: {len(lines)} own lines, {tried}"


def write(file: Path, text: bytes) -> None:
    """Write a file so that bytecode of what it held before is never taken for its own."""
    stamp = file.stat().st_mtime_ns + 2_000_000_000  # Bytecode knows seconds.
    file.write_bytes(text)
    os.utime(file, ns=(stamp, stamp))


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
    parser.add_argument(
        "--tree", type=Path, default=Path(__file__).resolve().parents[1], help="another checkout"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tree = Tree(options.tree.resolve(), Path(directory).resolve())
        known = tree.claims()
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
        among = sorted(one for one in known if one.startswith(tuple(options.among.split(","))))
        drawn = options.ids or random.Random(seed).sample(among, min(options.count, len(among)))
        print(f"seed {seed}: {len(drawn)} of {len(among)} requirements", flush=True)
        claimed = [number for number in drawn if number in known]
        others = {number: neighbours(number, known) for number in claimed}
        tests = {test for number in claimed for test in (*known[number], *others[number])}
        measured = tree.measured(sorted(tests))
        missing = len(drawn)
        for number in drawn:
            said = "NOT SHOWN: no test claims it"
            if number in known:
                # Each has its own chances, so that it does not matter which others are drawn.
                chance = random.Random(f"{seed} {number}")
                said = shown(tree, measured, known[number], others[number], chance)
            print(f"{number}  {said}", flush=True)
            missing -= not said.startswith("NOT SHOWN")
    print(f"{len(drawn) - missing} of {len(drawn)} shown to fail")
    return 1 if missing else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""What was recorded of each file of tests: its cost, and the files of src that it enters.

tests/suite.json holds it, written by `./x py -m scripts.suite_tracer`. Costs are seconds of CPU of
the test's process and of those that it waited for. A file that is not there yet counts as cheap,
and `./x test changed` always runs it. Portions are cut by tests/suite_seconds.json where it has a
part: seconds on the clock, beside the others, written by `./x test PART --keep-seconds`.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "tests" / "suite.json"
SECONDS = ROOT / "tests" / "suite_seconds.json"
SOURCE = "src/skillhouse/"
SIGNER = "signer/src/skillhouse_signer/"
"""Its files are recorded as `signer/NAME`."""
FILE_SECONDS = 0.05
"""What reading a file of tests costs, and what an unrecorded one is taken to cost."""
ALL_SLOW = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.(slow|heavy)\b", re.MULTILINE)
ALL_HEAVY = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.heavy\b", re.MULTILINE)
EACH_CHANGE = ("tests/attacks/", "tests/extensions/postgres/test_suites_on_")
"""What CI runs though `./x test` leaves it: attacks, and a part of the suites on a server."""
EVERYTHING = ("pyproject.toml", "conftest.py", "tests/conftest.py", "requirements/", "x", ".ci/")
"""What every test may depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of tests; costs are in seconds of CPU by mark."""

    fast: float
    slow: float
    heavy: float
    sources: frozenset[str]
    """Files below src/skillhouse of which a function is entered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is recorded of the suite."""

    by_file: Mapping[str, FileRecord]
    later: frozenset[str]
    """Files and tests that the default part leaves to `all` and `changed`: dear for what only they
    reach."""
    left_by_ci: frozenset[str] = frozenset()
    """Those of them that CI leaves as well, but for `EACH_CHANGE`: it takes twice as long."""
    not_fast: frozenset[str] = frozenset()
    """Files and tests without the mark `slow` that are too dear for `fast` all the same."""
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By part and file: seconds on the clock."""

    @classmethod
    @functools.cache
    def read(cls) -> Record:
        """Return the record of this tree; an empty one where there is none."""
        found: dict[str, Any] = json.loads(PLACE.read_text()) if PLACE.exists() else {}
        names: list[str] = found.get("sources", [])
        by_file = {
            name: FileRecord(fast=fast, slow=slow, heavy=heavy, sources=_unpacked(bits, names))
            for name, (fast, slow, heavy, bits) in found.get("files", {}).items()
        }
        kinds = ("later", "left_by_ci", "not_fast")
        later, left, not_fast = (frozenset(found.get(kind, ())) for kind in kinds)
        seconds = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
        return cls(
            by_file=by_file,
            later=later | left,
            left_by_ci=left,
            not_fast=not_fast,
            seconds=seconds,
        )

    @property
    def after_ci(self) -> frozenset[str]:
        """What CI leaves as well of what can wait."""
        return frozenset(name for name in self.left_by_ci if not name.startswith(EACH_CHANGE))

    def files(self) -> list[str]:
        """Return every file that has tests or examples, sorted by path."""
        tests = (path for path in (ROOT / "tests").rglob("test_*.py"))
        examples = (path for path in (ROOT / "src").rglob("*.py") if ">>>" in _text(path))
        return sorted(path.relative_to(ROOT).as_posix() for path in (*tests, *examples))

    def has_any(self, file: str, part: str) -> bool:
        """Whether a part has tests of a file."""
        text = _text(ROOT / file)
        if part == "fast":
            return file not in self.not_fast and not ALL_SLOW.search(text)
        waiting = {"default": self.later, "ci": self.after_ci}.get(part)
        return waiting is None or (file not in waiting and not ALL_HEAVY.search(text))

    def is_reach_known(self, file: str) -> bool:
        """Whether a recording has said what a file's tests enter."""
        return file in self.by_file and bool(self.by_file[file].sources)

    def cost(self, file: str, part: str) -> float:
        """Return the seconds that a part spends on a file: on the clock, or else of CPU."""
        if (kept := self.seconds.get(part, {}).get(file)) is not None:
            return FILE_SECONDS + kept
        record = self.by_file.get(file)
        if record is None:
            return FILE_SECONDS
        cost = record.fast + (record.slow if part != "fast" else 0)
        return FILE_SECONDS + cost + (record.heavy if part == "all" else 0)


def keep_seconds(part: str, walls: Mapping[str, float]) -> None:
    """Keep the seconds on the clock of each test of a part, by file."""
    kept = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    sums: dict[str, float] = defaultdict(float)
    for node, wall in walls.items():
        sums[node.partition("::")[0]] += wall
    kept[part] = {file: round(wall, 1) for file, wall in sorted(sums.items())}
    text = json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False)
    SECONDS.write_text(f"{text}\n", encoding="utf-8")


def packed(sources: Iterable[str], names: Sequence[str]) -> str:
    """Return a set of names as hexadecimal bits of their places in a list.

    >>> packed({"b"}, ["a", "b"])
    '2'
    """
    places = {name: place for place, name in enumerate(names)}
    return format(sum(1 << places[name] for name in set(sources)), "x")


def _unpacked(bits: str, names: Sequence[str]) -> frozenset[str]:
    number = int(bits, 16)
    return frozenset(name for place, name in enumerate(names) if number >> place & 1)


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def changed_files(base: str | None = None) -> list[str]:
    """Return the paths that differ from `base`, uncommitted and new ones included.

    Without a base that is where this branch left `main`; on `main` itself, what was last fetched of
    it, or the last commit.
    """
    if base is None:
        branch = _git("rev-parse", "--abbrev-ref", "HEAD").strip()
        against = "main" if branch != "main" else "origin/main"
        base = _git("merge-base", "HEAD", against, check=False).strip() or "HEAD"
    listed = _git("diff", "--name-only", "-z", base)
    listed += _git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted(set(filter(None, listed.split("\0"))))


def _git(*arguments: str, check: bool = True) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=check)
    return done.stdout if done.returncode == 0 else ""


def reaching(changed: Iterable[str], record: Record, everything: Sequence[str]) -> list[str]:
    """Return the files of tests that changed paths concern, sorted.

    A file of src concerns the tests that were seen to enter it; one that is new, those of the
    files that name it. Anything else concerns the tests that name it. What is not recorded runs.
    """
    found: set[str] = set()
    for path in changed:
        if path.startswith(EVERYTHING):
            return list(everything)
        found.update(_concerned(path, record, everything))
    if found:
        found.update(file for file in everything if not record.is_reach_known(file))
    return [file for file in everything if file in found]


def _concerned(path: str, record: Record, everything: Sequence[str]) -> Iterator[str]:
    if path in everything:
        yield path
    if path.startswith(SIGNER):
        yield from _entering({f"signer/{path.removeprefix(SIGNER)}"}, record)
        yield from (file for file in everything if file.startswith("tests/signer/"))
    if path.startswith(SOURCE):
        yield from _entering({path.removeprefix(SOURCE)}, record)
        known = {source for one in record.by_file.values() for source in one.sources}
        if path.removeprefix(SOURCE) not in known:
            yield from _entering(_neighbours(path), record)
            mirrored = "tests/" + path.removeprefix(SOURCE).rpartition("/")[0]
            yield from (file for file in everything if file.startswith(mirrored + "/"))
    elif path.startswith("tests/") and path.endswith("conftest.py"):
        yield from (f for f in everything if f.startswith(path.removesuffix("conftest.py")))
    elif path.startswith("docs/guides/") or path == "README.md":
        yield from (file for file in everything if file.startswith("tests/guides/"))
    if path not in everything or not path.startswith("tests/"):
        word = Path(path).stem if path.endswith(".py") else Path(path).name
        names = re.compile(rf"\b{re.escape(word)}\b")
        tests = (file for file in everything if file.startswith("tests/"))
        if not path.startswith(SOURCE) or not path.endswith(".py"):
            yield from (file for file in tests if names.search(_text(ROOT / file)))


def _entering(sources: set[str], record: Record) -> Iterator[str]:
    yield from (file for file, one in record.by_file.items() if sources & one.sources)


def _neighbours(path: str) -> set[str]:
    """Return the files of src that name a module, or stand beside a file that is none."""
    if not path.endswith(".py"):
        folder = ROOT / SOURCE / Path(path).parent
        beside = [*folder.glob("*.py")] or [*folder.parent.glob("*.py")]
        return {one.relative_to(ROOT / SOURCE).as_posix() for one in beside}
    names = re.compile(rf"\b{re.escape(Path(path).stem)}\b")
    files = (ROOT / SOURCE).rglob("*.py")
    return {f.relative_to(ROOT / SOURCE).as_posix() for f in files if names.search(_text(f))}

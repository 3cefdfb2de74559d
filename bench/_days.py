"""A day in real repositories: each command outside any sandbox and through the gate, compared.

Every file of bench/data/days makes one repository (`# make`) and has the commands of a day
(`# day`), a line each. A line runs in a copy of the repository as it is, at the same path, outside
and then as an agent's `exec`; what must agree is the exit code, the files and what git
says of the repository. The day is then as it was outside, so that one difference makes no others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skillhouse import Answer, ApprovalRequest, Locations, Skillhouse
from skillhouse.house import configured, policy_text
from skillhouse.tools import ToolResult

DAYS = Path(__file__).parent / "data/days"
TIMEOUT_SECONDS = 120
BUILT = {"target", "__pycache__", ".cache", ".pnpm-task-run-state-v1", ".pnpm-store"}
"""Directories whose bytes differ from run to run."""
DATED = {".modules.yaml", ".pnpm-workspace-state-v1.json"}
"""Files in node_modules that hold the time of a run, and where pnpm has its store."""
GIT_SAYS = (
    "status --porcelain=v1 --branch",
    "for-each-ref --format=%(refname)%09%(tree)%09%(contents:subject)",
    "log --all --format=%T%x09%s%x09%an%x09%ae%x09%P",
    "stash list --format=%gs",
    "config --local --list",
)


@dataclass(frozen=True, slots=True)
class Day:
    """One file of bench/data/days."""

    name: str
    work: str
    """The workspace, relative to the repository."""
    needs: tuple[str, ...]
    make: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one line, and whether that is what happens outside."""

    line: str
    kind: str
    """`same`, `refused` before anything ran, `denied` by a person's no, `different`, `half` done or
    without `effect`."""
    why: str
    questions: int
    seconds: float
    bare_seconds: float


@dataclass(slots=True)
class Person:
    """Says yes to every question: here and for longer where that is offered."""

    asked: list[ApprovalRequest] = field(default_factory=list)

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return Answer.PROJECT if request.always else Answer.ONCE


def days() -> Iterator[Day]:
    """Yield the days by name."""
    for path in sorted(DAYS.glob("*.sh")):
        head, _, rest = path.read_text(encoding="utf-8").partition("# make\n")
        make, _, lines = rest.partition("# day\n")
        needs = re.search(r"^# needs (.+)$", head, re.MULTILINE)
        work = re.search(r"^# work (.+)$", head, re.MULTILINE)
        yield Day(
            name=path.stem,
            work=work[1] if work else ".",
            needs=tuple(needs[1].split()) if needs else (),
            make=make,
            lines=tuple(lines.splitlines()),
        )


def lived(day: Day, base: Path, *, policy: str, times: int = 2) -> list[Outcome]:
    """Live a day several times in new repositories at one path; return the last one's outcomes.

    What was answered for longer on one day holds on the next.
    """
    home = base / "home"
    home.mkdir(parents=True)
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        # The home of a day is a new one, and these are below the person's own.
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
        "HOME": str(home),
    }
    rules = home / ".config/skillhouse/config.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text(policy_text(policy), encoding="utf-8")
    found: list[Outcome] = []
    for _ in range(times):
        shutil.rmtree(base / "work", ignore_errors=True)
        repository = base / "work/repository"
        repository.mkdir(parents=True)
        made = bare(day.make, repository, environment, options=("-e",))
        if made.returncode:
            raise SystemExit(f"{day.name}: cannot be made: {made.stdout}")
        found = list(spent(day, base, environment))
    return found


def spent(day: Day, base: Path, environment: Mapping[str, str]) -> Iterator[Outcome]:
    """Yield what becomes of each line of one day."""
    tree, before, after = (base / name for name in ("work", "before", "after"))
    workspace = tree / "repository" / day.work
    places = Locations(
        start=workspace, home=base / "home", environment=environment, managed_file=base / "none"
    )
    person = Person()
    for line in day.lines:
        copied(tree, before)
        state = said_of(tree, environment)
        began = time.perf_counter()
        outside = bare(line, workspace, environment)
        bare_seconds = time.perf_counter() - began
        wanted = said_of(tree, environment)
        moved(tree, after)
        moved(before, tree)
        asked = len(person.asked)
        with Skillhouse(configured(places), channel=person) as house:
            began = time.perf_counter()
            result = house.call_sync("exec", {"command": line})
            seconds = time.perf_counter() - began
        kind, why = compared(result, outside.returncode, state, wanted, said_of(tree, environment))
        if kind == "different":
            why += f"\n    outside: {outside.stdout[-300:]!r}"
        if kind == "same":
            why = "; ".join(f"{one.reasons[:2]}" for one in person.asked[asked:])
        moved(after, tree)
        yield Outcome(line, kind, why, len(person.asked) - asked, seconds, bare_seconds)


def compared(result: ToolResult, code: int, state: str, wanted: str, got: str) -> tuple[str, str]:
    """Return the kind of an outcome, and how it differs."""
    ended = result.data.get("exit_code") if result.data else None
    if ended is None:
        kind = "refused" if got == state else "half"
        return kind, f"{result.status}: {result.content[:400]}"
    if ended == code and got == wanted:
        return "same", ""
    if ended == 0 and got == state != wanted:
        return "effect", "exit code 0, and nothing changed"
    differing = [one for one in set(got.split("\n")) ^ set(wanted.split("\n")) if one]
    why = f"exit code {ended}, not {code}; {result.content[-300:]!r}; {differing[:4]}"
    return ("half" if got not in (state, wanted) else "different"), why


def bare(
    line: str, place: Path, environment: Mapping[str, str], options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a line outside."""
    return subprocess.run(
        ["bash", *options, "-c", line], cwd=place, env=dict(environment), text=True, check=False,
        errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip


def copied(tree: Path, to: Path) -> None:
    """Copy a tree with its times and links."""
    subprocess.run(["cp", "-a", tree, to], check=True)


def moved(tree: Path, to: Path) -> None:
    """Put a tree in the place of another."""
    shutil.rmtree(to, ignore_errors=True)
    tree.rename(to)


def said_of(tree: Path, environment: Mapping[str, str]) -> str:
    """Return the files of a tree by their digests, and what git says of each repository in it."""
    rows, repositories = [], []
    for directory, names, files in os.walk(tree):
        if ".git" in (*names, *files):
            repositories.append(directory)
        names[:] = sorted(name for name in names if name != ".git" and name not in BUILT)
        for name in sorted(set(files) - DATED - {".git"}):
            path = Path(directory, name)
            is_plain = path.is_file() and not path.is_symlink()
            content = path.read_bytes() if is_plain else os.readlink(path).encode()
            digest = hashlib.sha256(content).hexdigest()[:12]
            if name.endswith((".jar", ".tgz")):
                digest = "archive"
            mode = os.lstat(path).st_mode & 0o111
            rows.append(f"{path.relative_to(tree)} {mode:o} {digest}")
    for directory in repositories:
        for said in GIT_SAYS:
            found = subprocess.run(
                ["git", *said.split()], cwd=directory, env=dict(environment), text=True,
                capture_output=True, check=False,
            ).stdout  # fmt: skip
            # Names of commits hold the time, and the parents' number is enough. They also decide
            # the order of commits of one second, such as the two of a stash.
            lines = found.split("\n") if said[:3] != "log" else sorted(found.split("\n"))
            rows += [f"{directory} {re.sub(r'[0-9a-f]{7,40}', '#', line)}" for line in lines]
    return "\n".join(rows)

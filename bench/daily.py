"""What a day's work meets: real command lines under rules, and real days in real repositories.

The lines are those of the fenced shell blocks in ../shared/data/skill-files whose first word is one
of 65 programs, without placeholders: 2,500 drawn at random, less those that `bash -n` refuses.
Scripts count as approved, and variables as known where their own block sets them before.

`./x bench daily [--lines] [--policy NAME]` prints allow, ask and deny, why most lines are asked
about, and what judging a line costs. `--lines` lists each line with its verdict. Then each day of
bench/data/days (_days.py) is lived twice, and what its second one meets is counted: `--days NAME`
lives only some, `--days none` none.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _days import Day, Outcome, days, lived
from _measure import ROOT, markdown_table
from policy import hostile_cases, measured
from skillhouse.house import POLICY_NAMES, starting_rules
from skillhouse.permission import (
    CommandRules,
    CommandVerdict,
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_line,
)

SAMPLE = ROOT.parent / "shared/data/skill-files/sample.jsonl.gz"
PROGRAMS = tuple(
    "git npm npx pnpm yarn node bun deno python python3 pip pip3 poetry uv uvx pytest cargo go "
    "make docker docker-compose kubectl helm terraform gh curl wget jq cat ls cd cp mv rm mkdir "
    "touch chmod ln find grep rg sed awk head tail sort uniq wc tr xargs tee diff tar zip unzip "
    "ssh scp rsync echo printf which env bash sh brew".split()
)
"""The 65 of the measure: the most usual of the sample."""
DRAWN, SEED = 2_500, 5

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL
)
_LANGUAGES = ("bash", "sh", "shell", "zsh", "console")
_PLACEHOLDER = re.compile(r"<[^<>\n]*>|…|\.\.\.|\[[^\]\n]*\.\.[^\]\n]*\]|YOUR_|path/to")
_SETS = re.compile(r"""(?:export\s+)?([A-Za-z_]\w*)=("[^"$`\\]*"|'[^']*'|[^\s"'$`\\;&|]*)\s*""")


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and the variables that its block has set before it."""

    text: str
    known: Mapping[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge real command lines.")
    parser.add_argument("--lines", action="store_true", help="list each line with its verdict")
    parser.add_argument("--policy", choices=POLICY_NAMES, default="developer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--days", nargs="*", metavar="NAME", help="live these only")
    options = parser.parse_args()
    if options.days in (None, ["none"]):
        print_lines(options)
    if options.days != ["none"]:
        print_days(options.policy, options.days, is_listed=options.lines)


def print_lines(options: argparse.Namespace) -> None:
    """Print what the lines of the sample meet."""
    if not SAMPLE.exists():
        print(f"skipped: no {SAMPLE.name} beside the project")
        return
    if shutil.which("bash") is None:
        print("skipped: no bash to say which lines it reads")
        return
    found = [line for line in drawn() if is_read_by_bash(line.text)]
    simple = Layer(name="user", rules=tuple(map(of_program, PROGRAMS)))
    starting = Layer(name="user", rules=starting_rules(options.policy))
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        make_directories(found, place)
        print(f"{len(found):,} lines of {len(PROGRAMS)} programs\n")
        rows, verdicts = [], []
        for name, layer in (("`program *`", simple), (options.policy, starting)):
            rules = LayerRules([layer])
            verdicts = [judged(line, rules, place) for line in found]
            rows.append((name, *shares([verdict.effect for verdict in verdicts])))
        print(markdown_table(("policy", "allow", "ask", "deny"), rows))
        if options.lines:
            for line, verdict in zip(found, verdicts, strict=True):
                print(f"{verdict.effect}\t{line.text!r}\t{'; '.join(verdict.reasons)}")
            return
        print_reasons(found, verdicts)
        print_times(found, LayerRules([starting]), place, options.rounds)


def print_days(policy: str, names: Sequence[str] | None, *, is_listed: bool) -> None:
    """Print what each day met, and every line that did not do what it does outside."""
    rows, total = [], list[Outcome]()
    for day in days():
        if names and day.name not in names:
            continue
        if missing := [program for program in day.needs if shutil.which(program) is None]:
            print(f"{day.name}: skipped, no {', '.join(missing)}")
            continue
        found = outcomes(day, policy)
        total += found
        rows.append((day.name, *summary(found)))
        for one in found:
            if one.kind != "same" or (is_listed and one.questions):
                print(f"{day.name}: {one.kind}: {one.line}\n    {one.why}")
    rows.append(("all", *summary(total)))
    head = ("day", "lines", "as outside", "refused before", "otherwise", "questions", "time, ratio")
    print(f"\ndays under `policy init {policy}`\n")
    print(markdown_table(head, rows))


def outcomes(day: Day, policy: str) -> list[Outcome]:
    # Not below /tmp, of which a command has its own.
    place = ROOT / ".x"
    with tempfile.TemporaryDirectory(prefix="day-", dir=place) as directory:
        return lived(day, Path(directory).resolve(), policy=policy)


def summary(found: Sequence[Outcome]) -> list[str]:
    counts = Counter(one.kind for one in found)
    others = {k: n for k, n in counts.items() if k not in ("same", "refused")}
    bare = sum(one.bare_seconds for one in found)
    return [
        str(len(found)),
        f"{100 * counts['same'] / max(1, len(found)):.0f} %",
        str(counts["refused"]),
        ", ".join(f"{n} {k}" for k, n in sorted(others.items())) or "0",
        str(sum(one.questions for one in found)),
        f"{sum(one.seconds for one in found) / bare:.1f}" if bare else "",
    ]


def of_program(program: str) -> Rule:
    return Rule(effect=Effect.ALLOW, action="exec", pattern=f"{program} *")


def drawn() -> list[Line]:
    """Return the lines that were drawn, in the order of the draw."""
    lines = list(lines_of_sample())
    return random.Random(SEED).sample(lines, min(DRAWN, len(lines)))


def lines_of_sample() -> Iterator[Line]:
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as file:
        for row in file:
            text = base64.b64decode(json.loads(row)["skill_md_b64"]).decode(errors="replace")
            for block in _FENCE.finditer(text):
                if block[2].lower() in _LANGUAGES:
                    yield from lines_of_block(block[3])


def lines_of_block(block: str) -> Iterator[Line]:
    """Yield the lines of a block: continued ones joined, prompts and comments left out."""
    known: dict[str, str] = {}
    for raw in block.replace("\\\n", " ").split("\n"):
        line = raw.strip().removeprefix("$ ").strip()
        words = line.split()
        if words and words[0] in PROGRAMS and not _PLACEHOLDER.search(line):
            yield Line(line, dict(known))
        if sets := _SETS.fullmatch(line.partition(" #")[0]):
            known[sets[1]] = sets[2].strip("\"'")


def is_read_by_bash(line: str) -> bool:
    return not subprocess.run(
        ["bash", "-n", "-c", line], capture_output=True, check=False
    ).returncode


def make_directories(lines: Sequence[Line], place: Path) -> None:
    """Make the directories that lines go to, as if the work had begun before."""
    for line in lines:
        found = re.match(r"cd ([\w{}./-]+)(?: |$)", line.text)
        if found and found[1][0] not in "/~" and ".." not in found[1]:
            (place / found[1]).mkdir(parents=True, exist_ok=True)


def judged(line: Line, rules: CommandRules, place: Path) -> CommandVerdict:
    places = PathPolicy(place, writable=(place,))
    return judge_line(line.text, rules, places, environment=line.known)


def shares(effects: Sequence[Effect]) -> list[str]:
    counts = Counter(effects)
    return [
        f"{100 * counts[effect] / len(effects):.1f} %"
        for effect in (Effect.ALLOW, Effect.ASK, Effect.DENY)
    ]


def print_reasons(lines: Sequence[Line], verdicts: Sequence[CommandVerdict]) -> None:
    """Print why lines are not allowed, without their own words, and by which program."""
    reasons: Counter[str] = Counter()
    programs: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()
    for line, verdict in zip(lines, verdicts, strict=True):
        program = line.text.split()[0]
        totals[program] += 1
        if verdict.effect is not Effect.ALLOW:
            reason = kind_of(verdict.reasons[0])
            reasons[reason] += 1
            programs.setdefault(program, Counter())[reason] += 1
    print("\nreasons, most common first\n")
    print(markdown_table(("reason", "lines"), [(r, str(n)) for r, n in reasons.most_common(25)]))
    rows = [
        (
            program,
            f"{found.total()} of {totals[program]}",
            ", ".join(f"{reason} ({count})" for reason, count in found.most_common(3)),
        )
        for program, found in sorted(programs.items(), key=lambda pair: -pair[1].total())[:25]
    ]
    print("\nlines not allowed, by program\n")
    print(markdown_table(("program", "lines", "why"), rows))


def kind_of(reason: str) -> str:
    """Return a reason with the words of its line taken out."""
    reason = re.sub(r"^`.*?`: ", "", reason, flags=re.DOTALL)
    return re.sub(r"`[^`]*`?", "`…`", reason)


def print_times(lines: Sequence[Line], rules: CommandRules, place: Path, rounds: int) -> None:
    times = []
    for _ in range(rounds):
        for line in lines:
            began = time.perf_counter_ns()
            judged(line, rules, place)
            times.append((time.perf_counter_ns() - began) / 1_000)
    worst = {name: max(found) for name, found in measured(hostile_cases(), 3).items()}
    slowest = max(worst, key=lambda name: worst[name])
    print("\ntime of a judgement\n")
    rows = [
        ("median over the lines", f"{statistics.median(times):,.0f} µs", "100 µs"),
        (f"8 KiB, slowest: {slowest}", f"{worst[slowest] / 1000:,.1f} ms", "30 ms"),
    ]
    print(markdown_table(("case", "time", "target"), rows))


if __name__ == "__main__":
    main()

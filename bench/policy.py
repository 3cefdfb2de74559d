"""What the policy costs: a decision, a judged command line, and the worst that 8 KiB can do.

`./x bench policy [--rounds N]` measures CPU time in one process, rounds interleaved, medians; of
the hostile lines the slowest of all rounds counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from _measure import ROOT, markdown_table
from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Permission,
    Rule,
    decide,
    judge_command,
    judge_line,
    lint_rules,
)

DECIDE_TARGET_US = 50
"""Most for a decision with 5 layers of 20 rules."""
HOSTILE_TARGET_MS = 30
"""Most for any line of 8 KiB."""
SIZE = 8_192
VECTORS = ROOT / "tests/vectors/commands.jsonl"

Case = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the policy.")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    decisions = measured(decide_cases(), options.rounds)
    lines = measured(vector_cases(None), options.rounds)
    placed = measured(vector_cases(Path.cwd()), options.rounds)
    hostile = measured(hostile_cases(), max(3, options.rounds // 10))
    rows = [row("decide, 5 layers of 20 rules, a rule of the farthest speaks", decisions["far"])]
    rows.append(row("decide, 5 layers of 20 rules, none speaks", decisions["none"]))
    rows.append(row("lint of 5 layers of 20 rules", decisions["lint"]))
    rows.append(row("judge with 5 layers of 20 rules, `git log -5 | head`", decisions["line"]))
    for title, found in (("vectors", lines), ("vectors, with a directory", placed)):
        middles = [statistics.median(times) for times in found.values()]
        text = f"{statistics.median(middles):,.0f} µs"
        rows.append((f"judge_command, median over {len(found)} {title}", text, "100 µs"))
        rows.append((f"judge_command, slowest of the {title}", f"{max(middles):,.0f} µs", ""))
    worst = sorted(((max(times), name) for name, times in hostile.items()), reverse=True)
    for us, name in worst:
        rows.append((f"8 KiB: {name}", f"{us / 1000:,.2f} ms", f"{HOSTILE_TARGET_MS} ms"))
    print(f"{options.rounds} rounds\n")
    print(markdown_table(("case", "time", "target"), rows))


def row(title: str, times: list[float]) -> tuple[str, str, str]:
    target = f"{DECIDE_TARGET_US} µs" if title.startswith("decide") else ""
    return title, f"{statistics.median(times):,.1f} µs", target


def measured(cases: Mapping[str, Case], rounds: int) -> dict[str, list[float]]:
    """Return the CPU times of each case in µs, each round starting with another case."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    names = list(cases)
    for case in cases.values():
        case()
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            began = time.process_time_ns()
            cases[name]()
            found[name].append((time.process_time_ns() - began) / 1_000)
    return found


def layers() -> list[Layer]:
    """Return five layers of twenty rules of ordinary forms."""
    names = ("managed", "user", "project", "agent", "grants")
    programs = "ls cat head tail wc sort uniq grep find git gh npm cargo make uv pip docker".split()
    patterns = [f"{program} *" for program in programs] + ["git log *", "git diff *", "rm -rf *"]
    return [
        Layer(
            name=name,
            rules=tuple(
                Rule(
                    effect=Effect.DENY if pattern.startswith("rm") else Effect.ALLOW,
                    action="exec",
                    pattern=pattern,
                )
                for pattern in patterns
            ),
        )
        for name in names
    ]


def decide_cases() -> dict[str, Case]:
    far = layers()
    near = [Layer(name=layer.name, rules=layer.rules[:-1]) for layer in far[1:]]
    filled = [far[0], *near]
    rules = LayerRules(far)
    wanted = Permission(action="exec", resource="rm -rf build")
    silent = Permission(action="exec", resource="python3 scripts/make_the_report.py --all")
    return {
        "far": lambda: decide(filled, wanted),
        "none": lambda: decide(far, silent),
        "lint": lambda: lint_rules(far),
        "line": lambda: judge_line("git log -5 | head", rules, PathPolicy()),
    }


def vector_cases(cwd: Path | None) -> dict[str, Case]:
    found: dict[str, Case] = {}
    # Not splitlines: a vector holds a line separator of Unicode.
    for line in VECTORS.read_text(encoding="utf-8").strip().split("\n"):
        vector = json.loads(line)
        given = vector["given"]

        def case(command: str = given["command"], allow: list[str] = given["allowlist"]) -> object:
            return judge_command(command, allow=allow, cwd=cwd)

        found[vector["id"]] = case
    return found


def hostile_lines() -> dict[str, str]:
    """Return lines of 8 KiB of what costs a parser or a walker most."""
    repeated = {
        "separators": "a;",
        "and-lists": "a&&",
        "pipes": "a|",
        "words": "a ",
        "quotations": "'a'",
        "joined quotations": "\"a\"'b'",
        "open quotes": '"',
        "quotes and blanks": "\" '",
        "escapes": "\\a",
        "escaped newlines": "\\\n",
        "redirections": ">a ",
        "descriptors": "2>&1 ",
        "here-documents": "<<a ",
        "assignments": "a=b ",
        "parentheses": "(",
        "closed parentheses": "()",
        "brackets": "[",
        "stars": "*",
        "brackets with a star": "[a]*",
        "braces": "{",
        "braces with commas": "{a,b}",
        "substitutions": "$(",
        "closed substitutions": "$(a)",
        "old substitutions": "`",
        "expansions": "${a:-",
        "arithmetic": "$((",
        "variables": "$a",
        "wrappers": "env ",
        "timeouts": "timeout 1 ",
        "starters": "xargs ",
        "shells": "sh -c ",
        "branches": "if a;then ",
        "loops": "for a in b;do ",
        "cases": "case a in b) ",
        "functions": "a(){ ",
        "newlines": "a\n",
        "comments": "#\n",
        "negations": "! ",
        "tests": "[[ a ",
        "options": "-a ",
        "slashes": "/",
        "parents": "../",
        "tildes": "~",
        "equals": "=",
        "signs": "<>&|;",
        "letters beyond ASCII": "é",
        "dollars": "$",
        "matching signs": "a =~ ",
    }
    found = {name: (text * SIZE)[:SIZE] for name, text in repeated.items()}
    for name, text in repeated.items():
        signs = sum(map(text.count, "()[]{}|&;<>"))
        if signs:
            # As many as are looked at, and blanks or words for the rest.
            most = 320 if set(text) & set("()[]{}") else 768
            few = text * (most // signs)
            found[f"few {name}"] = few + " " * (SIZE - len(few))
            found[f"few {name}, then words"] = (few + " a" * SIZE)[:SIZE]
    for name in ("words", "options", "slashes", "parents", "stars", "brackets with a star"):
        found[f"ls and {name}"] = f"ls {found[name]}"[:SIZE]
    for name in ("words", "options", "wrappers"):
        found[f"xargs and {name}"] = f"xargs {found[name]}"[:SIZE]
    found["64 commands of many words"] = " ; ".join(["ls " + "a " * 60] * 64)[:SIZE]
    found["finds that run finds"] = ("find . -exec " * SIZE)[:SIZE]
    found["64 finds that run"] = " ; ".join(["find . -exec rm {} + " * 5] * 64)[:SIZE]
    found["a shell in a shell"] = ("sh -c '" + "sh -c a;" * SIZE)[: SIZE - 1] + "'"
    found["eval of commands"] = ("eval '" + "rm a;" * SIZE)[: SIZE - 1] + "'"
    found["sed script"] = ("sed '" + "s/a/b/" * SIZE)[: SIZE - 1] + "'"
    found["sed slashes"] = ("sed '/" + "/" * SIZE)[: SIZE - 1] + "'"
    return {name: text[:SIZE] for name, text in found.items()}


def hostile_cases() -> dict[str, Case]:
    allow = ["ls *", "find *", "sed *", "xargs *", "sh *", "env *", "a *"]
    deny = ["rm *", "curl *", "git push *"]

    def case_of(text: str) -> Case:
        return lambda: judge_command(text, allow=allow, deny=deny)

    return {name: case_of(text) for name, text in hostile_lines().items()}


if __name__ == "__main__":
    main()

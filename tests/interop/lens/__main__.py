"""Compares the lens with the programs, and lists where they disagree.

    ./x py -m tests.interop.lens --agents PINNED/node_modules/.bin --sample FILE

Without `--sample` only the hard files are asked about. The exit code is 0 where the lens agrees on
at least 99 % of the real files and 99 % of all, for each program.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skillhouse.clients import LensState, compare
from skillhouse.discovery import default_roots, discover
from skillhouse.skill import load_profile, revealed
from tests.interop.lens.cases import (
    SEED,
    Case,
    hard_files,
    mutated,
    real_files,
    stratified,
    write,
)
from tests.interop.lens.listing import PROGRAMS, Listed, Program, make_place

INSIDE = "SKILLHOUSE_LENS_INSIDE"
REAL_COUNT = 300
LEAST = 0.99
"""Of the files, for the lens to be called right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    directory: str
    stratum: str
    client: str
    """What the program lists; "-" for nothing."""
    lens: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How one program and the lens agree."""

    program: str
    real: int
    hard: int
    found: Mapping[str, Listed]
    """What the program lists, by directory."""
    wrong: tuple[Disagreement, ...]
    """Listed or not, or under another name."""
    texts: tuple[Disagreement, ...]
    """Listed by both, with different descriptions."""

    def share(self, *, hard: bool) -> float:
        """Return the share of files on which both agree."""
        wrong = sum((one.stratum in HARD) == hard for one in self.wrong)
        return 1 - wrong / max(1, self.hard if hard else self.real)


HARD = frozenset({"value", "hidden", "name", "whole", "bytes", "mutated"})


def main() -> int:
    """Run the comparison; arguments are in the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.lens")
    parser.add_argument("--agents", action="append", type=Path, required=True)
    parser.add_argument("--sample", type=Path)
    parser.add_argument("--count", type=int, default=REAL_COUNT)
    parser.add_argument("--mutated", type=int, default=0, help="files made from real ones")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", choices=[program.profile for program in PROGRAMS])
    parser.add_argument("--record", type=Path, help="write what is listed of the hard files here")
    parser.add_argument("--keep", type=Path, help="an empty directory for the trees and lists")
    given = parser.parse_args()
    if INSIDE not in os.environ:
        return _in_namespace()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    real = stratified(real_files(given.sample), given.count) if given.sample else []
    cases = [*real, *hard_files()]
    if given.mutated:
        cases += mutated(real, given.mutated, given.seed)
    base = given.keep or Path(tempfile.mkdtemp(prefix="lens-"))
    results: dict[str, Agreement] = {}
    for agents in given.agents:
        for program in PROGRAMS:
            binary = agents.absolute() / program.command
            if (given.only or program.profile) == program.profile and binary.exists():
                title = f"{program.profile} {_version(binary)}"
                if title not in results:
                    results[title] = _compared(title, program, binary, cases, base)
    if given.record:
        given.record.write_text(record(results), encoding="utf-8")
    if given.keep is None:
        shutil.rmtree(base)
    _report(results)
    shares = [one.share(hard=hard) for one in results.values() for hard in (False, True)]
    return 0 if shares and min(shares) >= LEAST else 1


def _in_namespace() -> int:
    again = [sys.executable, "-m", "tests.interop.lens", *sys.argv[1:]]
    words = ["unshare", "--map-root-user", "--net", *again]
    return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode


def _version(binary: Path) -> str:
    with tempfile.TemporaryDirectory() as home:
        path = f"{binary.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        said = subprocess.run(
            [str(binary), "--version"],
            env={"HOME": home, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    return found[0] if found else "?"


def _compared(
    title: str, program: Program, binary: Path, cases: list[Case], base: Path
) -> Agreement:
    place = make_place(base / title.replace(" ", "-"), binary)
    write(cases, place.project / program.root)
    found: dict[str, Listed] = {}
    for path, listed in program.ask(place):
        if path.startswith(program.root):
            found[Path(path).parent.name] = listed
    (place.home.parent / "listed.json").write_text(json.dumps(found, ensure_ascii=False, indent=1))
    said, reasons = lens_of(program, place.home, place.project)
    wrong, texts = [], []
    for case in cases:
        client, ours = found.get(case.directory), said.get(case.directory)
        if (client and revealed(client.name)) != (ours and ours.name):
            wrong.append(_disagreement(case, client, ours, reasons))
        elif (
            client
            and ours
            and not same_text(client.description, ours.description, program.shown_chars)
        ):
            texts.append(_disagreement(case, client, ours, reasons))
    hard = sum(case.stratum in HARD for case in cases)
    return Agreement(
        program=title,
        real=len(cases) - hard,
        hard=hard,
        found=found,
        wrong=tuple(wrong),
        texts=tuple(texts),
    )


RECORDED_CHARS = 60
"""Characters of a description that are recorded."""


def record(results: Mapping[str, Agreement]) -> str:
    """Return what each program lists of the hard files as JSON, for tests/profiles; of two
    versions of a program the later one's."""
    lines = []
    latest = {title.split(" ")[0]: one for title, one in results.items()}
    for profile, one in latest.items():
        rows = [
            json.dumps([case.directory, *_recorded(one.found.get(case.directory))])
            for case in hard_files()
        ]
        head = json.dumps({"program": one.program})[1:-1]
        joined = ",\n  ".join(rows)
        lines.append(f' {json.dumps(profile)}: {{{head}, "listed": [\n  {joined}\n ]}}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _recorded(listed: Listed | None) -> list[str]:
    return [] if listed is None else [listed.name, listed.description[:RECORDED_CHARS]]


def lens_of(
    program: Program, home: Path, project: Path
) -> tuple[Mapping[str, Listed], Mapping[str, str]]:
    """Return what `doctor` says is listed, with the description that `list --profile` has, by
    directory; and the code of every verdict.

    That the two verbs give one answer is checked on the way.
    """
    profile = load_profile(program.profile)
    lens = compare(start=project, home=home, environment={}, profiles=[profile], trusted=False)
    roots = default_roots(start=project, home=home, environment={}, profile=profile)
    index = discover(roots, profile=profile)
    described = {skill.file: skill for skill in index.skills}
    said, reasons = {}, {}
    for row in lens.skills:
        if not row.file.startswith(f"{project / program.root}/"):
            # A skill that the client brought.
            continue
        verdict = row.verdicts[0]
        directory = Path(row.file).parent.name
        reasons[directory] = f"{verdict.state} {verdict.code} {verdict.reason}".strip()
        seen = verdict.state in (LensState.SEEN, LensState.MANUAL)
        if seen != (row.file in described):
            reasons[directory] += "; `list --profile` disagrees"
        if verdict.state is LensState.SEEN:
            skill = described.get(row.file)
            said[directory] = Listed(verdict.name, skill.description if skill else "")
    return said, reasons


def same_text(client: str, ours: str, shown_chars: int) -> bool:
    """Whether a description is the same, but for how a client writes it.

    Of one that it cuts, which ends with dots, so many characters are compared.

    Claude Code 2.1.330 writes `&lt;` for `<`, a blank for a control, and `...` for `…`.
    """
    left, right = (
        " ".join(_CONTROL.sub("", unicodedata.normalize("NFKC", html.unescape(text))).split())
        for text in (client, _ESCAPE.sub("", ours))
    )
    if left.endswith("...") and len(left) > shown_chars:
        return right.startswith(left[:shown_chars])
    # Claude Code shows `when_to_use` behind the description.
    return left == right or left.startswith(f"{right} - ")


_ESCAPE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2})")
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)


def _disagreement(
    case: Case, client: Listed | None, ours: Listed | None, reasons: Mapping[str, str]
) -> Disagreement:
    return Disagreement(
        directory=case.directory,
        stratum=case.stratum,
        client="-" if client is None else f"{client.name}: {client.description[:60]!r}",
        lens="-" if ours is None else f"{ours.name}: {ours.description[:60]!r}",
        reason=reasons.get(case.directory, "no verdict"),
    )


def _report(results: Mapping[str, Agreement]) -> None:
    print("| client | real files | agree | hard files | agree | descriptions differ |")
    print("|---|--:|--:|--:|--:|--:|")
    for one in results.values():
        shares = [f"{one.share(hard=hard):.1%}" for hard in (False, True)]
        print(
            f"| {one.program} | {one.real} | {shares[0]} | {one.hard} | {shares[1]} "
            f"| {len(one.texts)} |"
        )
    for one in results.values():
        for title, found in (("listed otherwise", one.wrong), ("described otherwise", one.texts)):
            if found:
                print(f"\n{one.program}, {title}:")
            for each in found:
                print(
                    f"- {each.directory} ({each.stratum}): client {each.client}; "
                    f"lens {each.lens}; {each.reason}"
                )


if __name__ == "__main__":
    sys.exit(main())

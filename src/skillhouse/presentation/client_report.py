"""What each client makes of skills, for issues and as JSON, and its profile as TOML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillhouse.clients import Cut, LensState
from skillhouse.floor import structs
from skillhouse.presentation.text import counted, cut_middle, one_line, width_of, wrapped
from skillhouse.skill import CAUSES

if TYPE_CHECKING:
    from skillhouse.clients import (
        ClientColumn,
        ClientReport,
        ReportedProblem,
        ReportedSkill,
        Verdict,
    )
    from skillhouse.skill import Profile

COLUMNS = 80
"""What an issue, a mail and a terminal show without breaking lines."""
SKILLS_MAX = 6
PROBLEMS_MAX = 30
CLIENTS_BRIEF, PROBLEMS_BRIEF = 5, 2
BRIEF_LINES = 10
COLUMNS_MAX = 20
"""Clients that have a column in the table."""
ROWS_MAX = 40
"""Skills named with a problem, problems, and rows of the table; `--all` shows every one."""

_LETTERS = {
    "+": "seen",
    "f": "in a folder of it; how it is read is not known",
    "m": "listed, but read differently",
    "p": "for people only",
    "c": "description shortened",
    "n": "name without description",
    "o": "left out by the budget",
    "s": "overridden by another of its name",
    "x": "not loaded",
    "u": "project not trusted",
    "-": "not in its folders",
}
_OF_STATE = {
    LensState.SEEN: "+",
    LensState.FOLDER: "f",
    LensState.MANUAL: "p",
    LensState.SHADOWED: "s",
    LensState.DROPPED: "x",
    LensState.UNTRUSTED: "u",
    LensState.UNSEEN: "-",
}
_OF_CUT = {Cut.SHORTENED: "c", Cut.NO_DESCRIPTION: "n", Cut.OMITTED: "o"}
WHOLE = frozenset("+f")
"""Letters of a skill of which nothing is known to be amiss."""
_KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def letter(verdict: Verdict) -> str:
    if verdict.cut is not Cut.NOTHING:
        return _OF_CUT[verdict.cut]
    if verdict.state is LensState.SEEN and verdict.code:
        return "m"
    return _OF_STATE[verdict.state]


def report_lines(
    report: ClientReport,
    problems: Sequence[ReportedProblem],
    *,
    machine: str,
    everything: bool = False,
) -> Iterator[str]:
    """Yield the lines of a report, none longer than `COLUMNS`; `machine` is its first."""
    yield cut_middle(one_line(machine), COLUMNS)
    yield from _indented(f"place: {report.tilde(report.start)}", 0, 2)
    yield ""
    yield from _clients(report)
    yield ""
    yield f"{counted(len(problems), 'problem')}" if problems else "no problems"
    shown = problems if everything else problems[:PROBLEMS_MAX]
    for number, problem in enumerate(shown, 1):
        yield ""
        yield from _problem(report, number, problem, everything=everything)
    if len(problems) > len(shown):
        yield ""
        yield f"and {counted(len(problems) - len(shown), 'more problem')}: --all"
    uneven = [skill for skill in report.skills if not _is_whole(skill)]
    if uneven:
        yield ""
        yield "skills that not every client sees in full"
        yield from table(report, uneven, everything=everything)
    yield ""
    seen = len(report.skills) - len(uneven)
    yield f"{counted(len(report.skills), 'skill')}, {seen} of them seen in full by every client"


def brief(report: ClientReport, problems: Sequence[ReportedProblem], *, more: int) -> Iterator[str]:
    """Yield at most `BRIEF_LINES` lines about the skills here; `more` counts other findings."""
    whole = sum(map(_is_whole, report.skills))
    yield f"{counted(len(report.skills), 'skill')}, {whole} of them seen in full by every client"
    names = [one_line(client.name) for client in report.clients]
    shown = len(names) if len(names) <= CLIENTS_BRIEF else CLIENTS_BRIEF - 1
    width = min(max(map(width_of, names), default=0), 16)
    for place, name in enumerate(names[:shown]):
        yield cut_middle(f"  {_padded(name, width)}  {_counts(report, place)}", COLUMNS)
    if len(names) > shown:
        yield f"  and {len(names) - shown} more clients"
    yield counted(len(problems) + more, "problem") if problems or more else "no problems"
    titles = [f"  {one_line(one.title)} [{one.code}]" for one in problems]
    for title in titles[:PROBLEMS_BRIEF]:
        yield cut_middle(title, COLUMNS)
    yield "skillhouse doctor: which skill, why, and how to fix it"


def table(
    report: ClientReport, skills: Sequence[ReportedSkill], *, everything: bool = False
) -> Iterator[str]:
    """Yield one row a skill with a letter a client, and the legend.

    Of many clients those that fare alike in every row share a column.
    """
    alike = _alike(report, skills)
    names = _keys(report.clients)
    columns = list(alike)[:COLUMNS_MAX]
    keys = " ".join(names[place] for place in columns)
    most = COLUMNS - 2 - len(keys) - 2
    rows = [
        ([letter(skill.verdicts[place]) for place in alike], report.short(skill.directory))
        for skill in skills
    ]
    if len(rows) > ROWS_MAX and not everything:
        rows = _gathered(report, skills, alike)
    shown = rows if everything else rows[:ROWS_MAX]
    if shown:
        yield f"  {keys}"
    for letters, where in shown:
        padded = " ".join(
            sign.ljust(len(key)) for sign, key in zip(letters, keys.split(), strict=False)
        )
        yield f"  {padded}  {cut_middle(one_line(where), most)}"
    if len(rows) > len(shown):
        yield f"  and {len(rows) - len(shown)} more rows: --all"
    if skills:
        for place in columns:
            if others := ", ".join(names[other] for other in alike[place]):
                yield from _indented(f"{names[place]} is also {others}", 2, 4)
    if len(alike) > COLUMNS_MAX:
        yield f"  {counted(len(alike) - COLUMNS_MAX, 'more column')}: --json"
    used = {letter(verdict) for skill in skills for verdict in skill.verdicts}
    legend = ", ".join(f"{sign} {words}" for sign, words in _LETTERS.items() if sign in used)
    yield from _indented(legend, 2, 2)


def _alike(report: ClientReport, skills: Sequence[ReportedSkill]) -> dict[int, list[int]]:
    """Return the place of each client that has a column, with those that the column is also of."""
    found: dict[int, list[int]] = {}
    of_column: dict[tuple[str, ...], int] = {}
    for place in range(len(report.clients)):
        column = tuple(letter(skill.verdicts[place]) for skill in skills)
        first = of_column.setdefault(column, place)
        if first == place or len(report.clients) <= COLUMNS_MAX:
            found[place] = []
        else:
            found[first].append(place)
    return found


def _gathered(
    report: ClientReport, skills: Sequence[ReportedSkill], columns: Iterable[int]
) -> list[tuple[list[str], str]]:
    """Return one row for all skills of a directory that fare alike."""
    groups: dict[tuple[str, tuple[str, ...]], list[ReportedSkill]] = {}
    places = list(columns)
    for skill in skills:
        letters = tuple(letter(skill.verdicts[place]) for place in places)
        groups.setdefault((skill.root, letters), []).append(skill)
    return [
        (
            list(letters),
            report.short(found[0].directory)
            if len(found) == 1
            else f"{report.short(root)}: {len(found):,} skills",
        )
        for (root, letters), found in groups.items()
    ]


def difference(report: ClientReport, skill: ReportedSkill) -> Iterator[str]:
    """Yield what clients make of one file, those of one mind together, and why."""
    yield ""
    yield from _indented(one_line(report.short(skill.directory)), 0, 2)
    minds: dict[str, list[str]] = {}
    for client, verdict in zip(report.clients, skill.verdicts, strict=True):
        minds.setdefault(verdict_text(report, verdict), []).append(client.name)
    for mind, names in minds.items():
        yield from _indented(one_line(f"{', '.join(names)}: {mind}"), 2, 4)


def verdict_text(report: ClientReport, verdict: Verdict) -> str:
    """Return what a client makes of a skill, and why, in a few words."""
    words = _LETTERS[letter(verdict)]
    mind = f"{words} as `{verdict.name}`" if letter(verdict) == "+" else words
    return ": ".join(filter(None, [mind, verdict_reason(report, verdict)]))


def verdict_reason(report: ClientReport, verdict: Verdict) -> str:
    """Return why a client does not see a skill as it is, with the line of its file; or nothing."""
    cause = CAUSES.get(verdict.code)
    if verdict.other:
        return f"`{report.short(verdict.other)}`"
    if cause is not None and cause.title:
        return cause.title + ("" if verdict.line is None else f" (line {verdict.line})")
    return "it reads nothing there" if verdict.code == "no-root" else ""


def _is_whole(skill: ReportedSkill) -> bool:
    return WHOLE.issuperset(map(letter, skill.verdicts))


def _clients(report: ClientReport) -> Iterator[str]:
    names = [one_line(client.name) for client in report.clients]
    programs = [_program(client) for client in report.clients]
    keys = _keys(report.clients)
    first = max(map(len, keys), default=1)
    second = min(max(map(width_of, names), default=0), 16)
    third = min(max(map(width_of, programs), default=0), 22)
    for place in range(len(report.clients)):
        head = (
            f"  {keys[place].ljust(first)}  {_padded(names[place], second)}  "
            f"{_padded(programs[place], third)}  "
        )
        lines = wrapped(_counts(report, place), COLUMNS - width_of(head))
        yield head + lines[0]
        yield from (" " * width_of(head) + line for line in lines[1:])
    days = sorted({client.profile.checked for client in report.clients if client.profile.checked})
    if days:
        yield from _indented(
            f"compared with these versions on {' and '.join(map(one_line, days))}, whatever is "
            "installed; `skillhouse profiles show NAME` has the facts",
            2,
            2,
        )


def _program(client: ClientColumn) -> str:
    return one_line(client.profile.client or "skillhouse")


def _counts(report: ClientReport, place: int) -> str:
    found = Counter(letter(skill.verdicts[place]) for skill in report.skills)
    listed = sum(found[sign] for sign in "+mcn")
    if report.clients[place].profile.folders_only:
        return f"has {found['f']} in its folders, {found['-']} not"
    parts = [f"sees {listed}"]
    for sign, words in (
        ("c", "shortened"),
        ("n", "without description"),
        ("o", "left out"),
        ("m", "read differently"),
        ("p", "for people only"),
        ("s", "shadowed"),
        ("x", "dropped"),
        ("u", "not trusted"),
        ("-", "not in its folders"),
    ):
        if found[sign]:
            parts.append(f"{found[sign]} {words}")
    return ", ".join(parts)


def _problem(
    report: ClientReport, number: int, problem: ReportedProblem, *, everything: bool
) -> Iterator[str]:
    yield from _indented(f"{number}. {one_line(problem.title)} [{problem.code}]", 0, 3)
    if problem.clients and problem.code != "no-root":
        everyone = len(problem.clients) == len(report.clients) > 1
        whose = "in every client" if everyone else f"in {', '.join(problem.clients)}"
        yield from _indented(one_line(problem.effect or whose), 3, 3)
    shown = problem.skills if everything else problem.skills[:SKILLS_MAX]
    for line in shown:
        yield from _indented(one_line(line), 5, 7)
    if len(problem.skills) > len(shown):
        yield f"     and {len(problem.skills) - len(shown)} more: --all"
    for place, step in enumerate(problem.fix.split("; ")):
        words, command, rest = one_line(step).partition("ln -s ")
        yield from _indented(f"{'fix: ' if place == 0 else 'and: '}{words.rstrip()}", 3, 8)
        # A command has a line of its own, so that it can be copied whole.
        yield from _indented(command + rest, 8, 10) if command else ()


def _indented(text: str, first: int, rest: int) -> Iterator[str]:
    """Yield a text in lines of the page; what is too long for a line is broken anywhere."""
    lines = wrapped(text, COLUMNS - max(first, rest))
    yield " " * first + lines[0]
    yield from (" " * rest + line for line in lines[1:])


def _keys(clients: Sequence[ClientColumn]) -> list[str]:
    """Return a letter for each client, or a number where there are not enough."""
    if len(clients) <= len(_KEYS):
        return list(_KEYS[: len(clients)])
    return [str(number) for number in range(1, len(clients) + 1)]


def _padded(text: str, columns: int) -> str:
    text = cut_middle(text, columns)
    return text + " " * (columns - width_of(text))


def as_toml(profile: Profile, *, unlike: Profile | None = None) -> str:
    """Return a profile as a file that `read_profile` takes.

    With `unlike`, what that profile has too and what only people need is left out: no such file.
    """
    values = {name: getattr(profile, name) for name in structs.field_names(profile)}
    if unlike is None:
        # The file's name is the profile's: a copy under another name must not hold the old one.
        del values["name"]
    else:
        shown = {"name", "title", "facts", "client", "checked"}
        values = {
            key: value
            for key, value in values.items()
            if key not in shown and value != getattr(unlike, key)
        }
    # In TOML, tables come after the plain values.
    plain = {key: value for key, value in values.items() if not _is_table(value)}
    lines = [f"{key} = {_written(value)}" for key, value in plain.items() if value is not None]
    for key, value in values.items():
        if key in plain:
            continue
        if isinstance(value, tuple):
            for item in value:
                lines += ["", f"[[{key}]]", *_fields(item, None)]
        else:
            base = None if unlike is None else getattr(unlike, key)
            lines += ["", f"[{key}]", *_fields(value, base)]
    return "\n".join(lines).strip("\n") + "\n"


def _is_table(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and structs.is_struct(value[0])
    return structs.is_struct(value) or isinstance(value, Mapping)


def _fields(value: Any, base: Any) -> Iterator[str]:
    """Yield the lines of a table; None has no form in TOML and is what it is when left out."""
    if isinstance(value, Mapping):
        yield from (f"{json.dumps(key)} = {_written(item)}" for key, item in value.items())
        return
    for name in structs.field_names(value):
        item = getattr(value, name)
        if item is not None and (base is None or item != getattr(base, name)):
            yield f"{name} = {_written(item)}"


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return _written(sorted(value))
    if isinstance(value, tuple | list):
        items = [_written(item) for item in value]
        line = f"[{', '.join(items)}]"
        return (
            line if len(line) <= 70 else "[\n" + "".join(f"    {item},\n" for item in items) + "]"
        )
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_written(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        # A basic string of TOML takes JSON's escapes; it has none for DEL, which JSON leaves.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)

"""Shows a person a set of skills that is to be installed: what is unusual first, the rest folded.

A page each of a hundred skills is read by no one: `--full` writes them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skillhouse.frontends.cli.install_review import print_pair
from skillhouse.permission import Effect
from skillhouse.presentation.install_words import publisher_text
from skillhouse.presentation.text import counted, cut, one_line, shown, some_names
from skillhouse.registry.near_names import name_key, near_keys

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.install import InstallReport

UNUSUAL_SHOWN = 12
"""Skills of which is said what is unusual, without --full."""
NAMES_SHOWN = 40
HOSTS_SHOWN = 12
_ITEMS_SHOWN = 3
_ITEM_COLUMNS = 60

# The sum of what a skill has decides its place; one of a kind outweighs many of the next.
_HIDDEN, _OBEYED, _REWRITTEN, _NEAR, _DENIED = 100_000, 50_000, 50_000, 20_000, 1_000
_EXECUTABLE, _LACKING, _HOST = 100, 100, 10


def print_set(reports: Sequence[InstallReport], names: Collection[str], terminal: Terminal) -> None:
    """Write what is known of skills of one source, sorted by what is unusual.

    Args:
        names: Skills that are here already, beside whose names another one may be mistaken.
    """
    known = Counter(host.origin for one in reports for host in one.effects.hosts)
    keys = {name: name_key(name) for name in names}
    judged = [
        (sum(weight for weight, _ in found), number, found)
        for number, found in enumerate(list(_unusual(one, keys, known)) for one in reports)
    ]
    judged.sort(key=lambda one: (-one[0], one[1]))
    unusual = [(reports[number], found) for weight, number, found in judged if weight]
    plain = [reports[number] for weight, number, _ in judged if not weight]
    first = reports[0]
    terminal.heading(counted(len(reports), "skill"))
    for label, value in _pairs(reports):
        print_pair(label, value, terminal)
    print_pair("goes to", shown(str(first.place.root)), terminal)
    if unusual:
        terminal.line(f"  unusual in {len(unusual)} of them")
    for report, found in unusual[:UNUSUAL_SHOWN]:
        texts = [text for _, text in sorted(found, key=lambda one: -one[0])]
        terminal.indented(f"{shown(report.name)}: {'; '.join(texts)}", 6, "    ")
    more = unusual[UNUSUAL_SHOWN:]
    if more:
        said = f"… and {len(more)} more, less unusual: {_names([one for one, _ in more])}"
        terminal.indented(said, 6, "    ")
    if plain:
        said = f"nothing unusual in {len(plain)}: {_names(plain)}"
        terminal.indented(said, 2)
    terminal.line("  --full shows all of each")


def _pairs(reports: Sequence[InstallReport]) -> Iterator[tuple[str, str]]:
    for resolved in dict.fromkeys(one.entry.resolved for one in reports):
        yield "source", shown(resolved)
    first = reports[0]
    if first.offer is None and first.entry.resolved.startswith(("http://", "git+http://")):
        yield "connection", "not encrypted: others on the way could have changed it"
    publishers = Counter(publisher_text(one) for one in reports)
    for text, count in publishers.most_common():
        yield "publisher", f"{text} ({counted(count, 'skill')})"
    size = sum(one.tree.size for one in reports)
    files = sum(len(one.tree.files) for one in reports)
    yield "size", f"{size} bytes in {counted(files, 'file')}"
    yield from _said_pairs(reports)
    faults = Counter(code for one in reports for code in {f.code for f in one.facts.diagnostics})
    if faults:
        named = [f"{shown(code)} in {count}" for code, count in faults.most_common()]
        yield "form", f"of their SKILL.md is not as specified: {some_names(named, HOSTS_SHOWN)}"
    changed = sum(one.installed is not None for one in reports)
    if changed:
        yield "replaces", f"{counted(changed, 'skill')} with other files"


def _said_pairs(reports: Sequence[InstallReport]) -> Iterator[tuple[str, str]]:
    """Yield what their texts mention."""
    effects = Counter(one.effect.value for report in reports for one in report.effects.mentions)
    if effects:
        words = ", ".join(f"{effects[one]} {one}" for one in Effect if effects[one])
        yield "commands", f"that their texts mention: {words}"
    hosts = Counter(host.origin for one in reports for host in one.effects.hosts)
    if hosts:
        named = some_names([origin for origin, _ in hosts.most_common()], HOSTS_SHOWN)
        yield "hosts", f"that their files mention: {named}"


def _unusual(
    report: InstallReport, keys: Mapping[str, str], known: Counter[str]
) -> Iterator[tuple[int, str]]:
    """Yield what is unusual of a skill, each with its weight: all that a person must agree to too.

    Args:
        keys: Of each skill that is here already, by its name, the key that near names share.
        known: How many skills of the set name each host.
    """
    effects = report.effects
    for path, hidden in effects.hidden[:_ITEMS_SHOWN]:
        yield _HIDDEN, f"hidden text in {shown(path)}: {shown(hidden)}"
    if effects.obeyed:
        yield _OBEYED, f"files that other programs obey: {_some(one for one, _ in effects.obeyed)}"
    for text in filter(None, (report.rewritten, report.unexpected)):
        yield _REWRITTEN, shown(text)
    if report.near:
        yield _NEAR, shown(report.near)
    elif near := _near_names(report.name, keys):
        yield _NEAR, f"a name that is nearly {_some(near)}"
    denied = [one.mention.text for one in effects.mentions if one.effect is Effect.DENY]
    if denied:
        yield _DENIED * len(denied), f"{counted(len(denied), 'denied command')}: {_some(denied)}"
    if effects.executables:
        yield _EXECUTABLE, f"executable {_some(effects.executables)}"
    if report.lacking:
        yield _LACKING, f"not there: {_some(report.lacking)}"
    hosts = [
        one.origin
        for one in effects.hosts
        if one.effect is Effect.DENY or (one.effect is Effect.ASK and known[one.origin] == 1)
    ]
    if hosts:
        yield _HOST * len(hosts), f"hosts of it alone: {_some(hosts)}"
    for tool in report.facts.tools[:1]:
        yield _EXECUTABLE, f"tools of its own, such as {shown(tool.name)}"


def _near_names(name: str, keys: Mapping[str, str]) -> list[str]:
    near = near_keys(name)
    return sorted(other for other, key in keys.items() if other != name and key in near)


def _some(texts: Collection[str] | Iterator[str]) -> str:
    every = list(texts)
    kept = ", ".join(cut(one_line(one), _ITEM_COLUMNS) for one in every[:_ITEMS_SHOWN])
    return f"{kept} and {len(every) - _ITEMS_SHOWN} more" if len(every) > _ITEMS_SHOWN else kept


def _names(reports: Sequence[InstallReport]) -> str:
    return some_names([one.name for one in reports], NAMES_SHOWN)

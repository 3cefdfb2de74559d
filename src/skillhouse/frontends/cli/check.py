"""The verbs that check and change nothing: `validate` and `rehearse`."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse.answers.findings import (
    DeclaredToolAnswer,
    FixedFileAnswer,
    ValidationAnswer,
    diagnostic_answers,
)
from skillhouse.answers.rehearsal import rehearsal_answer
from skillhouse.discovery import (
    LinkPlaces,
    Root,
    default_roots,
    discover,
    skills_below,
)
from skillhouse.floor import Diagnostic, Severity, fault_finding, git_root, is_utf8, isolated
from skillhouse.floor.structs import replace
from skillhouse.frontends.cli.install_review import print_mentions
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_json,
    house_of,
    positive,
)
from skillhouse.frontends.cli.progress import prepare_search
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.frontends.cli.validate_fix import FileFix, fix
from skillhouse.house import Locations, configured, rehearse
from skillhouse.presentation.findings import counts, folded_lines
from skillhouse.presentation.library import FIT_TEXTS, unlisted, why_parts
from skillhouse.presentation.text import counted, one_line, shown
from skillhouse.skill import (
    DEFAULT_PROFILE,
    JAVASCRIPT_FILE,
    MANIFEST_FILES,
    PYTHON_FILE,
    SKILL_FILE,
    has_manifest,
    read_manifest,
    validate,
)

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Rehearsal
    from skillhouse.skill import ManifestResult, SkillIndex

_VALIDATE_EXAMPLES = """examples:
  skillhouse validate ./my-skill
  skillhouse validate skills/          every skill below a directory
  skillhouse validate . --lenient      only what agents would complain about
  skillhouse validate . --fix          fix what is safe, after a difference and a question
"""


def _configure_validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="a skill, or a directory of skills"
    )
    parser.add_argument(
        "--lenient", action="store_true", help="judge as an agent does, not as the specification"
    )
    parser.add_argument("--all", action="store_true", help="fold no findings")
    parser.add_argument(
        "--fix",
        action="store_true",
        help="show what can be fixed with the meaning kept, and write it if you agree",
    )
    parser.add_argument("--yes", action="store_true", help="with --fix: write without asking")
    add_json(parser)


def _validate(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print all findings; 1 when one of them is an error."""
    if options.yes and not options.fix:
        raise UsageError("expected --fix with --yes")
    inside: list[Diagnostic] = []
    directories = [place for path in options.paths for place in _skills_below(Path(path), inside)]
    directories = list(dict.fromkeys(directories))
    fixed = fix(directories, terminal, yes=options.yes, quiet=options.json) if options.fix else []
    manifests = {place: read_manifest(place) for place in directories}
    findings = [
        found
        for place, manifest in manifests.items()
        for found in _found(place, manifest, strict=not options.lenient)
    ]
    findings += inside
    tools = [one for result in manifests.values() for one in _declared(result)]
    hosts = _hosts(manifests.values())
    if options.json:
        fixes = [FixedFileAnswer(path=str(one.file), codes=tuple(one.codes)) for one in fixed]
        more = ValidationAnswer(
            skills=len(directories),
            tools=tools,
            hosts=hosts or UNSET,
            fixed=fixes if options.fix else UNSET,
        )
        terminal.json_list("diagnostics", diagnostic_answers(findings), more)
    else:
        _print_text(fixed, findings, tools, terminal, everything=options.all)
        for host, said in hosts.items():
            terminal.note(f"host {shown(host)}: {said}")
        if directories or findings:
            terminal.note(f"{counted(len(directories), 'skill')}: {counts(findings)}")
        else:
            terminal.note(_nothing_in(options.paths))
    return 1 if any(found.severity is Severity.ERROR for found in findings) else 0


def _print_text(
    fixed: Sequence[FileFix],
    findings: Sequence[Diagnostic],
    tools: Sequence[DeclaredToolAnswer],
    terminal: Terminal,
    *,
    everything: bool,
) -> None:
    for one in fixed:
        terminal.note(f"fixed {shown(str(one.file))}: {', '.join(one.codes)}")
    lines = folded_lines(
        findings, lambda found: finding_line(found, terminal), everything=everything
    )
    for line in lines:
        terminal.line(line)
    for tool in tools:
        terminal.note(f"tool {shown(tool.full_name)} ({tool.level}), {tool.language}")


def _found(place: Path, manifest: ManifestResult, *, strict: bool) -> tuple[Diagnostic, ...]:
    """Return the findings of one skill of many; a fault is one of them."""
    with isolated() as failed:
        return _findings(place, manifest, strict=strict)
    return (fault_finding(failed[0], place),)


def _findings(place: Path, manifest: ManifestResult, *, strict: bool) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a skill: with its SKILL.md, its manifest, or both."""
    if not has_manifest(place):
        return validate(place, strict=strict)
    # A skill of code alone needs no SKILL.md.
    text = validate(place, strict=strict) if (place / SKILL_FILE).exists() else ()
    return (*text, *manifest.diagnostics)


def _nothing_in(paths: list[str]) -> str:
    """Say that no skill is there, and how a package that is there would be one."""
    claims = {JAVASCRIPT_FILE: "field `owliabot`", PYTHON_FILE: "table `[tool.skillhouse]`"}
    lacks = [
        f"its {file} has no {claim}"
        for file, claim in claims.items()
        if len(paths) == 1 and os.path.lexists(Path(paths[0], file))
    ]
    return "; ".join(("no skill is here", *lacks))


def _hosts(results: Iterable[ManifestResult]) -> dict[str, str]:
    """Return what the configuration here grants of the hosts that manifests name."""
    from skillhouse.house.code_network import host_states

    named = [one for result in results if result.manifest for one in result.manifest.hosts]
    if not named:
        return {}
    with isolated():
        return host_states(list(dict.fromkeys(named)), configured(Locations.here()).net)
    return dict.fromkeys(named, "not known: the configuration cannot be read")


def _declared(result: ManifestResult) -> list[DeclaredToolAnswer]:
    manifest = result.manifest
    if manifest is None:
        return []
    return [
        DeclaredToolAnswer(
            full_name=f"{manifest.name}:{tool.name}",
            level=tool.level,
            language=manifest.language,
        )
        for tool in manifest.tools
    ]


MANIFEST_DIRECTORIES_MAX = 100_000
"""Skills of code alone that are judged, as many as `discover` enters directories."""
MANIFEST_DEPTH = 12
"""Directories down to which they are looked for, as `discover` does for a root that is named."""
_NOT_ENTERED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})


def _as_given(found: Diagnostic, path: Path, real: Path) -> Diagnostic:
    """Return a finding with its path as the directory was given, and not by its real path."""
    if found.path is None or not found.path.is_relative_to(real):
        return found
    return replace(found, path=path / found.path.relative_to(real))


def _skills_below(path: Path, inside: list[Diagnostic]) -> list[Path]:
    """Return the directory itself when it holds a skill or nothing does, and all skills below.

    An ordinary project without skills has none, not even itself. `inside` receives an info for each
    skill inside the directory of another one.
    """
    if not path.is_dir():
        return [path]
    index = _index_of(path)
    every = (*index.skills, *index.shadowed)
    real = path.resolve()
    found_inside = skills_below(every, known={skill.file for skill in every})
    inside += (_as_given(one, path, real) for one in found_inside)
    inside += (one for one in index.diagnostics if one.code in _SAID_ALONE)
    places = {Path(skill.link or skill.file).parent for skill in every}
    places |= {
        found.path.parent
        for found in index.diagnostics
        if found.path is not None
        and found.path.name == SKILL_FILE
        and found.code not in _SAID_ALONE
    }
    places |= set(itertools.islice(_code_below(real, places), MANIFEST_DIRECTORIES_MAX))
    below = sorted(path / place.relative_to(real) for place in places if place != real)
    is_skill = real in places or os.path.lexists(path / SKILL_FILE) or has_manifest(path)
    if is_skill or not (below or _is_ordinary(path)):
        return [path, *below]
    return below


_SAID_ALONE = frozenset(
    {"link-broken", "link-cycle", "link-escape", "link-owner", "link-untrusted", "wrong-case"}
)
"""Findings of a listing about what is no SKILL.md that could be judged."""


def _index_of(path: Path) -> SkillIndex:
    """Return the skills of a directory, with the links that a listing of it follows."""
    start, home = Path.cwd(), Path.home()
    roots = default_roots(start=start, home=home, environment={}, profile=DEFAULT_PROFILE)
    real, top = os.path.realpath(path), git_root(path.resolve())
    own = [root for root in roots if root.scope == "user"]
    scopes = (os.path.realpath(root.path) for root in own)
    if any(real == root or real.startswith(f"{root}/") for root in scopes):
        return discover([Root(path, "explicit", symlinks="own", places=own[0].places)])
    if top is None:
        return discover([path])
    places = LinkPlaces(project=str(top))
    return discover([Root(path, "explicit", symlinks="within_project", places=places)])


def _code_below(root: Path, known: Container[Path]) -> Iterator[Path]:
    """Yield the directories below `root` whose manifest says that they are skills, none in another.

    Agents look for them directly in a root; a repository may have its roots further down.
    """
    for at, names, files in os.walk(root):
        place = Path(at)
        depth = len(place.relative_to(root).parts)
        if depth and place in known:
            names.clear()
        elif depth and not set(MANIFEST_FILES).isdisjoint(files) and has_manifest(place):
            names.clear()
            yield place
        is_last = depth == MANIFEST_DEPTH
        entered = () if is_last else (n for n in names if n not in _NOT_ENTERED and is_utf8(n))
        names[:] = sorted(entered)


_PROJECT_MARKS = (".git", *MANIFEST_FILES, "setup.py", "setup.cfg", "requirements.txt")


def _is_ordinary(path: Path) -> bool:
    """Whether a directory without a skill is a project, and not a skill whose SKILL.md is missing.

    A file of nearly that name is a mistake wherever it is.
    """
    has_marks = any(os.path.lexists(path / mark) for mark in _PROJECT_MARKS)
    misnamed = SKILL_FILE.casefold() in {name.casefold() for name in os.listdir(path)}
    return has_marks and not misnamed


_REHEARSE_EXAMPLES = """examples:
  skillhouse rehearse "What's the weather in Tokyo?"
  skillhouse rehearse "open a pull request" --full
  skillhouse rehearse "merge PDFs" --root ./skills --json

No model and no network are used.
"""

CATALOG_LINES = 12
BODY_LINES = 16
"""Lines shown of the catalog and of the body without --full."""


def _configure_rehearse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", nargs="+", help="what a user would ask")
    parser.add_argument("--limit", type=positive, default=5, metavar="N", help="most hits (5)")
    parser.add_argument("--full", action="store_true", help="show catalog and body whole")
    add_common(parser)


def _rehearse(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the walk; 1 when no skill fits the request."""
    with house_of(options) as house:
        prepare_search(house, terminal)
        rehearsal = rehearse(house, " ".join(options.request), limit=options.limit)
    if options.json:
        terminal.json(rehearsal_answer(rehearsal))
    else:
        _print_rehearsal(rehearsal, terminal, full=options.full)
    return 0 if rehearsal.skill is not None or rehearsal.code else 1


def _print_rehearsal(rehearsal: Rehearsal, terminal: Terminal, *, full: bool) -> None:
    terminal.line(f"Request: {shown(rehearsal.request)}")
    terminal.line()
    _print_catalog(rehearsal.catalog, rehearsal.hidden, terminal, full=full)
    _print_ranking(rehearsal, terminal)
    if rehearsal.skill is None or rehearsal.decision is None:
        return
    terminal.heading("3 Permission to load it")
    effect = terminal.effect(rehearsal.decision.decision.effect)
    terminal.line(f"  {effect}  skill {shown(rehearsal.skill.name)}")
    terminal.line(f"  {shown(rehearsal.decision.reason)}")
    terminal.line()
    _print_body(rehearsal, terminal, full=full)
    _print_mentions(rehearsal, terminal)
    _print_sandbox(rehearsal, terminal)


def _print_catalog(catalog: Catalog, hidden: int, terminal: Terminal, *, full: bool) -> None:
    terminal.heading("1 Catalog the model sees")
    _print_excerpt(catalog.text, CATALOG_LINES, terminal, full=full)
    facts = f"{counted(len(catalog.included), 'skill')}, about {catalog.tokens} tokens"
    if catalog.omitted:
        facts += f", {len(catalog.omitted)} left out by the budget"
    if hidden:
        facts += f", {hidden} denied by rules"
    terminal.line(f"  {facts}")
    terminal.line()


def _print_ranking(rehearsal: Rehearsal, terminal: Terminal) -> None:
    terminal.heading("2 Skills that fit, best first")
    rows = [
        ("" if at else f"{hit.score:6.2f}  {shown(hit.name)}", part)
        for hit, mark in zip(rehearsal.hits, rehearsal.marks, strict=True)
        for at, part in enumerate([*unlisted(mark), *why_parts(hit)])
    ]
    if text := FIT_TEXTS[rehearsal.fit]:
        terminal.line(f"  {text}")
    if rows:
        terminal.rows(rows, most=40)
    else:
        terminal.line("  none")
    terminal.line()
    if rehearsal.code_verdicts:
        terminal.heading("  Tools of skills' own code that fit, which the model has anyway")
        for one in rehearsal.code_verdicts:
            effect = terminal.effect(one.effect)
            terminal.line(f"  {effect}  {shown(one.tool)} ({one.level})")
            terminal.indented(one_line(one.description), 9)
            terminal.indented(shown(one.reason), 9)
        terminal.line()


def _print_body(rehearsal: Rehearsal, terminal: Terminal, *, full: bool) -> None:
    terminal.heading("4 Body")
    content = rehearsal.content
    if content is None:
        terminal.indented(f"not read: {shown(rehearsal.fault) or 'the skill is denied'}", 2)
        terminal.line()
        return
    _print_excerpt(content.body, BODY_LINES, terminal, full=full)
    files = len(content.resources) + content.resources_omitted
    terminal.line(f"  about {content.tokens} tokens, {counted(files, 'other file')}")
    for found in content.diagnostics:
        terminal.line(f"  {found.severity}: {shown(found.message)} [{found.code}]")
    terminal.line()


def _print_mentions(rehearsal: Rehearsal, terminal: Terminal) -> None:
    terminal.heading("5 Commands and tools it mentions")
    if rehearsal.content is None:
        terminal.line("  not judged: the body was not read")
        return
    if not rehearsal.mentions:
        terminal.line("  no command was recognised in blocks and inline code")
    print_mentions(rehearsal.mentions, rehearsal.unjudged, terminal, indent=2)


def _print_sandbox(rehearsal: Rehearsal, terminal: Terminal) -> None:
    terminal.line()
    terminal.heading("6 Where its commands would run")
    status = rehearsal.sandbox
    if status is not None:
        level = "no sandbox, so no command runs" if status.level == "none" else status.level
        terminal.line(f"  {level}; network only where a rule grants it")
        for text in (*status.reasons, status.hint):
            if text:
                terminal.indented(text, 2)
    terminal.line("  writable: the workspace, except")
    terminal.indented(" ".join(rehearsal.protected), 4)


def _print_excerpt(text: str, most: int, terminal: Terminal, *, full: bool) -> None:
    lines = text.strip("\n").split("\n") if text.strip() else []
    bar = terminal.style("│", "dim")
    kept = lines if full or len(lines) <= most + 1 else lines[:most]
    for line in kept:
        for piece in terminal.wrapped(shown(line), 4):
            terminal.line(f"  {bar} {piece}".rstrip())
    if len(kept) < len(lines):
        terminal.line(f"  {bar} … {len(lines) - len(kept)} more lines: --full")


VERBS = {
    "validate": Verb(_VALIDATE_EXAMPLES, _configure_validate, _validate),
    "rehearse": Verb(_REHEARSE_EXAMPLES, _configure_rehearse, _rehearse),
}

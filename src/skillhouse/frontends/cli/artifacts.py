"""The verb `artifacts`: the files that calls of skills' code wrote to their output folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.answers.tools import artifact_set_answer, saved_artifact
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.presentation.text import counted, moment, one_line, shown

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.tools import Artifacts, ArtifactSet

_EXAMPLES = """examples:
  skillhouse artifacts list
  skillhouse artifacts show 3fa9
  skillhouse artifacts save 3fa9                     below the current directory
  skillhouse artifacts save 3fa9 chart.png --to ~/charts
  skillhouse artifacts remove 3fa9
  skillhouse artifacts remove --all

A call of a skill's code may write files to `context.output`, or to the directory that the variable
OUTPUT_DIR names. They are kept with the call, bounded by `artifact_…` below `[skill_code]`. What is
in them is the skill's own: look at a file before you open it with a program. `save` writes over no
file that is there.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list the calls whose files are kept, newest first")
    listing.add_argument("--tool", metavar="SKILL:TOOL", help="only calls of this tool")
    show = verbs.add_parser("show", help="show the files of one call")
    save = verbs.add_parser("save", help="write the files of one call to a directory")
    remove = verbs.add_parser("remove", help="remove the files of one call, or of all")
    for one in (show, save):
        one.add_argument("id", metavar="ID", help="the id, or its beginning")
    save.add_argument("names", nargs="*", metavar="NAME", help="only these files")
    save.add_argument("--to", default=".", metavar="DIR", help="the directory, which has to exist")
    remove.add_argument("id", nargs="?", metavar="ID", help="the id, or its beginning")
    remove.add_argument("--all", action="store_true", help="of every call")
    for one in (listing, show, save, remove):
        add_common(one)


def _artifacts(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.action == "remove":
        refuse_agents("artifacts remove")
        if bool(options.id) == options.all:
            raise UsageError("expected an id, or --all")
    with house_of(options) as house:
        store = house.services.artifacts
        if options.action == "list":
            wanted = options.tool
            return terminal.listing(
                [one for one in store.sets() if wanted in (None, one.tool)],
                artifact_set_answer,
                _line,
                name="artifacts",
                as_json=options.json,
                nothing="no files are kept",
            )
        if options.action == "remove":
            found = list(store.sets()) if options.all else [store.find(options.id)]
            return terminal.listing(
                [store.remove(one.id) for one in found],
                artifact_set_answer,
                lambda one: f"removed: {_line(one)}",
                name="removed",
                as_json=options.json,
                nothing="no files are kept",
            )
        found_set = store.find(options.id)
        if options.action == "show":
            _show(found_set, terminal, as_json=options.json)
            return 0
        return _save(store, found_set, options, terminal)


def _line(found: ArtifactSet) -> str:
    names = ", ".join(one.name for one in found.files)
    size = sum(one.bytes for one in found.files)
    files = counted(len(found.files), "file")
    when = moment(found.made)
    said = one_line(f"{found.tool}: {files}, {size} bytes: {names}")
    return f"{found.id[:8]}  {when}  {said}"


def _show(found: ArtifactSet, terminal: Terminal, *, as_json: bool) -> None:
    if as_json:
        terminal.json(artifact_set_answer(found))
        return
    terminal.pair("  made", moment(found.made), label_width=12)
    for label in ("id", "tool", "agent", "user", "channel"):
        terminal.pair(f"  {label}", one_line(getattr(found, label)), label_width=12)
    for one in found.files:
        terminal.line(f"{shown(one.name)}: {one.bytes} bytes, {one.media_type}")
        terminal.line(f"  {one.digest}")


def _save(
    store: Artifacts, found: ArtifactSet, options: argparse.Namespace, terminal: Terminal
) -> int:
    names = options.names or [one.name for one in found.files]
    return terminal.listing(
        [store.save(found.id, name, Path(options.to)) for name in names],
        lambda one: saved_artifact(*one),
        lambda one: f"saved: {shown(str(one[1]))} ({one[0].bytes} bytes)",
        name="saved",
        as_json=options.json,
    )


VERBS = {"artifacts": Verb(_EXAMPLES, _configure, _artifacts, without="list")}

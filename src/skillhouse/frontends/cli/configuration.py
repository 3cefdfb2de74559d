"""The verb `config`, and the verbs of `policy` that write a rule into the configuration."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from skillhouse.answers.configuration import (
    AddedRuleAnswer,
    ConfigCheckAnswer,
    ConfigFileAnswer,
    ConfigKeyAnswer,
    ConfigTextAnswer,
    RepositorySettingsAnswer,
    bundle_text,
    commented,
)
from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.json_form import copied
from skillhouse.answers.policy import rule_finding
from skillhouse.frontends.cli.options import UsageError, Verb, add_json, places_of
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.house import Skillhouse, configured, project_of, usable_config
from skillhouse.house.config import keys_in_use
from skillhouse.house.config.bundle_files import BUNDLE_CONFIG
from skillhouse.manage import checked_addition, only_editor, rule_value, write_user_text
from skillhouse.permission import (
    ACTIONS,
    UNKNOWN_ACTION,
    Effect,
    Rule,
    lint_rules,
)
from skillhouse.presentation.rule_changes import with_example, written
from skillhouse.presentation.rule_findings import finding_lines
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skillhouse.floor import Locations
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house.config import KeyInUse, RepositorySettings

OWN_VARIABLES = {
    "PATH": "commands have a PATH of their own, to which `path` of `[sandbox]` adds directories",
    "HOME": "the home of commands is a temporary directory",
}
"""Variables that no `exec_environment` sets, and why."""
_CONFIG_EXAMPLES = """examples:
  skillhouse config path       where each file is, and whether it is there
  skillhouse config show       the text of your own file
  skillhouse config show tool_count sandbox    what these keys are, and what sets them
  skillhouse config check      what is wrong with the files
  skillhouse config repositories   where packages are looked for by name
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("path", "list the files of the configuration (default)"),
        ("show", "print your own file, or the values of keys that are in use"),
        ("check", "list what is wrong with the files"),
        ("repositories", "list the repositories of packages, in their order"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("-C", dest="start", metavar="DIR", help="work as if started in DIR")
        add_json(verb)
        if name == "show":
            verb.add_argument("keys", nargs="*", metavar="KEY", help="such as tool_count")


def _config(options: argparse.Namespace, terminal: Terminal) -> int:
    places = places_of(options)
    if options.verb == "show" and options.keys:
        return _show_keys(keys_in_use(places, options.keys), terminal, as_json=options.json)
    if options.verb == "show":
        return _show(places, terminal, as_json=options.json)
    if options.verb == "check":
        return _check(places, terminal, as_json=options.json)
    if options.verb == "repositories":
        return _repositories(configured(places).repositories, options, terminal)
    files = {
        "managed": places.managed_file,
        "user": places.user_file,
        "project": project_of(places.start) / "skillhouse.toml",
        "policy": places.policy_file,
        "published": places.published_file,
        "profiles": places.profiles,
    }
    bundle = usable_config(places).config.bundle
    if bundle is not None:
        files["bundle"] = bundle.link / BUNDLE_CONFIG
    found = [
        ConfigFileAnswer(name=name, path=str(path), exists=path.exists())
        for name, path in files.items()
    ]
    if options.json:
        terminal.json_list("files", found)
        return 0
    for one in found:
        mark = "" if one.exists else "  (not there)"
        terminal.line(f"  {one.name:<9} {shown(one.path)}{mark}")
    return 0


def _check(places: Locations, terminal: Terminal, *, as_json: bool) -> int:
    """List what is wrong with the files; 1 where they have faults."""
    config, faults = usable_config(places)
    unknown = [
        f"{found.layer} {found.rule_index + 1}: {found.message}"
        for found in lint_rules(config.layers)
        if found.code == UNKNOWN_ACTION
    ]
    void = [one for one in lint_rules(config.layers) if one.code == "rule-no-effect"]
    unused = [name for name in config.exec_environment if name in OWN_VARIABLES]
    if as_json:
        rules = list(map(rule_finding, void))
        more = ConfigCheckAnswer(unknown_actions=unknown, void_rules=rules, void_variables=unused)
        terminal.json_list("files", diagnostic_answers(faults), more)
    else:
        for message in unknown:
            terminal.line(f"rule {shown(message)} [{UNKNOWN_ACTION}]")
        for line in finding_lines(void):
            terminal.line(line)
        for name in unused:
            terminal.line(f"exec_environment: `{name}` has no effect: {OWN_VARIABLES[name]}")
        for fault in faults:
            terminal.line(finding_line(fault, terminal))
        also = f", and {counted(len(void), 'rule')} without effect" if void else ""
        terminal.note(f"the configuration has {counted(len(faults), 'fault')}{also}")
    return 1 if faults else 0


def _repositories(
    found: Sequence[RepositorySettings], options: argparse.Namespace, terminal: Terminal
) -> int:
    def line(one: RepositorySettings) -> str:
        words = ["trusted" if one.trusted else "not trusted"]
        words += [f"token at {one.token}"] * bool(one.token)
        words += ["signatures required"] * one.require_signature
        words += [f"root {one.root[:19]}…"] * bool(one.root)
        return f"{one.name}  {shown(one.url)}  {shown(', '.join(words))}"

    return terminal.listing(
        found,
        lambda one: copied(RepositorySettingsAnswer, one),
        line,
        name="repositories",
        as_json=options.json,
        nothing="no repository is configured",
    )


def _show(places: Locations, terminal: Terminal, *, as_json: bool) -> int:
    """Print the user's file, and what a bundle sets besides; 1 when there is no file."""
    path = places.user_file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = None
    except UnicodeDecodeError as error:
        raise UsageError(f"expected UTF-8 text in `{path}`") from error
    bundle = bundle_text(usable_config(places).config)
    if as_json:
        terminal.json(ConfigTextAnswer(path=str(path), text=text, bundle=bundle))
    elif text is None:
        terminal.note(f"there is no {path}: every value is the default")
    else:
        terminal.document(text)
    if bundle is not None and not as_json:
        terminal.document(commented(bundle, bundle.text, bundle.policy))
    return 1 if text is None else 0


def _show_keys(found: Sequence[KeyInUse], terminal: Terminal, *, as_json: bool) -> int:
    if as_json:
        terminal.json_list("keys", [ConfigKeyAnswer(**one._asdict()) for one in found])
        return 0
    for one in found:
        if one.set_by:
            value = shown(json.dumps(_without_nulls(one.value), ensure_ascii=False))
            terminal.line(f"{one.key} = {value}  (set by: {', '.join(one.set_by)})")
        else:
            terminal.line(f"{one.key} is not set: the default holds")
    return 0


def _without_nulls(value: Any) -> Any:
    """Return a table without what is not set in it."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def configure_rule(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `policy allow`, `ask` and `deny`."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help="such as exec or skill")
    parser.add_argument("pattern", metavar="PATTERN", help="such as 'git log *'")
    parser.add_argument("--reason", default="", metavar="TEXT", help="shown with each decision")
    parser.add_argument(
        "--match", action="append", default=[], metavar="TEXT", help="an example it must match"
    )
    parser.add_argument(
        "--not-match", action="append", default=[], metavar="TEXT", help="one it must not match"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)
    parser.set_defaults(start=None)


def write_rule(options: argparse.Namespace, terminal: Terminal) -> int:
    """Add one rule to the user's file once the person confirms; 1 when nothing was written."""
    refuse_agents(f"policy {options.verb}")
    places = places_of(options)
    rule = Rule(
        effect=Effect(options.verb),
        action=options.action,
        pattern=options.pattern,
        reason=options.reason,
        match=tuple(options.match),
        not_match=tuple(options.not_match),
    )
    text = text_of(rule)
    checked_addition(places, text)
    if not options.yes:
        need_terminal("use --yes", as_json=options.json)
        terminal.document(text)
        if not confirmed(f"Add this rule to {shown(str(places.user_file))}?", terminal):
            terminal.note("nothing was written")
            return 1
    with Skillhouse(configured(places)) as house:
        path = add_rule(house, rule)
    said = f"added to {shown(str(path))}: {options.verb} {rule.action} {shown(rule.pattern)}"
    terminal.answer(AddedRuleAnswer(path=str(path), rule=text), said, as_json=options.json)
    return 0


def text_of(rule: Rule) -> str:
    """Return a rule as the user's file gets it, with an example where one follows from it."""
    return written(with_example(rule))


def add_rule(house: Skillhouse, rule: Rule) -> Path:
    """Add a rule to the user's file and return its path; errors of `checked_addition`."""
    places = house.config.places
    # What the file says now: the person had time to change it.
    with only_editor(places, house.config.state_directory):
        whole = checked_addition(places, text_of(rule))
        return write_user_text(house.audit_log, places, whole, "rule-add", rule_value(rule))


VERBS = {"config": Verb(_CONFIG_EXAMPLES, _configure, _config, without="path")}

"""The verb `policy`: sets a policy to begin with, explains decisions and checks rules."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from skillhouse.answers.configuration import (
    ChosenPolicyAnswer,
    PolicyTextAnswer,
    bundle_text,
    commented,
)
from skillhouse.answers.findings import diagnostic_answers
from skillhouse.answers.policy import (
    RuleFilesAnswer,
    RuleLintAnswer,
    explained,
    explanation_answer,
    line_answer,
    rule_answers,
    rule_finding,
)
from skillhouse.frontends.cli.configuration import configure_rule, write_rule
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_json,
    house_of,
    places_of,
)
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.frontends.cli.policy_suggest import configure_suggest, suggest
from skillhouse.frontends.cli.question import confirmed, need_terminal
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.house import (
    POLICY_NAMES,
    POLICY_SUMMARIES,
    Skillhouse,
    configured,
    judged_line,
    load_config,
    policy_text,
    starting_rules,
    usable_config,
)
from skillhouse.manage import only_editor, write_user_text
from skillhouse.manage.rule_editor import user_text, with_policy, without_copies
from skillhouse.permission import ACTIONS, Effect, beyond, command_resource, lint_rules
from skillhouse.permission.grammar import grammar_of
from skillhouse.presentation.rule_findings import (
    finding_lines,
    rule_scope_answers,
    rule_scopes,
)
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.answers.configuration import BundleTextAnswer
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import (
        Config,
        Explanation,
        JudgedLine,
        Locations,
        ReadCommand,
        UsableConfig,
    )
    from skillhouse.permission import CommandReading, MatchedRule

_POLICY_EXAMPLES = """examples:
  skillhouse policy init developer            says what it allows, asks, and sets it
  skillhouse policy init careful --stdout     only prints its rules
  skillhouse policy show                      prints the rules of the policy in force
  skillhouse policy explain "git log -5 | head > top.txt"
  skillhouse policy explain exec rm -rf build
  skillhouse policy explain skill weather
  skillhouse policy list
  skillhouse policy allow exec "git log *"    shows the rule, asks, and adds it
  skillhouse policy ask exec "git push *" --reason "others see it"
  skillhouse policy deny read "*.pem" --match id.pem --not-match id.pub
  skillhouse policy lint
  skillhouse policy lint --covers             what each rule covers beyond what it names
  skillhouse policy suggest                   rules for what you allow again and again
  skillhouse policy suggest --days 30 --yes 1 3
"""


def _configure_policy(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    rules = verbs.add_parser("list", help="list the rules, by layer (default)")
    add_common(rules)
    explain = verbs.add_parser(
        "explain", help="decide one permission and show every rule that matches"
    )
    explain.add_argument("action", help="skill, read, write, exec, …; or a command line by itself")
    explain.add_argument("resource", nargs="*", help="a skill's name, a path, a command")
    explain.add_argument("--agent", default="default", metavar="NAME", help="as for this agent")
    add_common(explain)
    for effect in Effect:
        configure_rule(verbs.add_parser(effect.value, help=f"add a rule that says {effect.value}"))
    configure_suggest(
        verbs.add_parser("suggest", help="suggest rules for what you allow again and again")
    )
    lint = verbs.add_parser("lint", help="find rules that have no effect, or more than they seem")
    lint.add_argument(
        "--covers", action="store_true", help="say for each rule what it covers beyond its words"
    )
    add_common(lint)
    show = verbs.add_parser("show", help="print the rules of the policy in force, or of another")
    show.add_argument("name", nargs="?", choices=POLICY_NAMES, help="(the one in force)")
    add_common(show)
    init = verbs.add_parser("init", help="set a policy to begin with in your configuration")
    init.add_argument(
        "name", nargs="?", choices=POLICY_NAMES, default="developer", help="(developer)"
    )
    how = init.add_mutually_exclusive_group()
    how.add_argument("--stdout", action="store_true", help="only print its rules")
    how.add_argument("--write", "--yes", action="store_true", help="set it without asking")
    init.add_argument(
        "--drop-copies", action="store_true", help="take copies of its rules out of the file"
    )
    add_json(init)
    init.set_defaults(start=None)


def _init(options: argparse.Namespace, terminal: Terminal) -> int:
    """Set the policy in the user's file once the person confirms; 1 when nothing was."""
    name: str = options.name
    if options.stdout:
        return _show(name, terminal, is_json=options.json)
    places = places_of(options)
    refuse_agents("policy init")
    text, copies = _planned(options, places)
    file = shown(str(places.user_file))
    is_set = text == user_text(places)
    if not is_set and not options.write:
        instead = "use --write, or --stdout to look"
        need_terminal(instead, as_json=options.json)
        for line in summary_lines(name):
            terminal.line(line)
        question = f'Set `policy = "{name}"` in {file}? Rules of your own count beside it.'
        if not confirmed(question, terminal, instead=instead):
            terminal.note("nothing was written")
            return 1
    if not is_set:
        changed: dict[str, object] = {"policy": name}
        if options.drop_copies and copies:
            changed["dropped copies"] = copies
        config = configured(places)
        with Skillhouse(config) as house, only_editor(places, config.state_directory):
            # What the file says now: the person had time to change it.
            text, copies = _planned(options, places)
            write_user_text(house.audit_log, places, text, "policy", changed)
    used = load_config(places).policy
    said = [f'{file} {"already has" if is_set else "has"} `policy = "{name}"`']
    said += summary_lines(name) if options.write or is_set else ()
    if copies and not options.drop_copies:
        said.append(
            f"{counted(copies, 'rule')} of that file are copies of its rules, which no update of "
            f"skillhouse changes; `skillhouse policy init {name} --drop-copies` takes them out"
        )
    elif copies:
        said.append(f"{counted(copies, 'copy', 'copies')} of its rules went out of that file")
    if used != name:
        said.append(f'the managed file sets `policy = "{used}"`, which counts instead')
    value = ChosenPolicyAnswer(
        policy=name,
        path=str(places.user_file),
        rules=len(starting_rules(name)),
        written=not is_set,
        copies=copies,
        used=used,
    )
    terminal.answer(value, "\n".join(said), as_json=options.json)
    return 0


def _planned(options: argparse.Namespace, places: Locations) -> tuple[str, int]:
    """Return the text of the user's file as it is wanted, and how many rules there are copies."""
    text = with_policy(places, options.name)
    without, copies = without_copies(text, options.name)
    return (without if options.drop_copies else text), copies


def _show(
    name: str | None,
    terminal: Terminal,
    *,
    is_json: bool,
    bundle: BundleTextAnswer | None = None,
) -> int:
    """Print the rules of a policy as its file has them, and what a bundle says besides."""
    text = "" if name is None else policy_text(name)
    if is_json:
        terminal.json(PolicyTextAnswer(policy=name, text=text, bundle=bundle))
        return 0
    terminal.write(text)
    if bundle is not None:
        terminal.document(commented(bundle, bundle.text, bundle.policy))
    return 0


def _show_used(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the policy that is named, or the one in force with what a bundle says."""
    config = usable_config(places_of(options)).config
    used = options.name or config.policy
    bundle = None if options.name else bundle_text(config)
    if used is None and bundle is None:
        raise UsageError("no policy is in force; `skillhouse policy init` sets one")
    return _show(used, terminal, is_json=options.json, bundle=bundle)


def summary_lines(name: str) -> list[str]:
    """Return what a policy allows, asks about and denies."""
    effects = (Effect.ALLOW, Effect.ASK, Effect.DENY)
    pairs = zip(effects, POLICY_SUMMARIES[name], strict=True)
    return [f"  {effect.value:<5}  {said}" for effect, said in pairs]


def _policy(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the decision, or the findings; 1 when it is deny, or there are some."""
    if options.verb in list(Effect):
        return write_rule(options, terminal)
    if options.verb == "suggest":
        return suggest(options, terminal)
    if options.verb == "init":
        return _init(options, terminal)
    if options.verb == "show":
        return _show_used(options, terminal)
    if options.verb == "list":
        return _list_rules(usable_config(places_of(options)), terminal, is_json=options.json)
    if options.verb == "lint":
        usable = usable_config(places_of(options))
        return _lint(usable, terminal, is_json=options.json, is_full=options.covers)
    with house_of(options) as house:
        resource = " ".join(options.resource)
        is_program = grammar_of(options.action) is not None
        if options.action not in ACTIONS and (is_program or " " in options.action or not resource):
            resource = " ".join((options.action, *options.resource))
            options.action = "exec"
        if not resource:
            raise UsageError(f"expected what `{options.action}` is about")
        if options.action == "exec":
            judged = judged_line(house, resource, agent=options.agent)
            if options.json:
                terminal.json(line_answer(judged))
            else:
                _print_line(judged, terminal)
            return 1 if judged.effect is Effect.DENY else 0
        found = explained(house, options.action, resource, options.agent)
    if options.json:
        terminal.json(explanation_answer(found))
    else:
        _print_explanation(found, terminal)
    return 1 if found.decision.effect is Effect.DENY else 0


def _quoted(arguments: list[str]) -> list[str]:
    """Mark where the words of a command begin: after its program they are not options of ours.

    A last `--json` stays ours. A command in quotes is one word, and options may follow it.

    >>> _quoted(["explain", "exec", "rm", "-rf", "/"])
    ['explain', '--', 'exec', 'rm', '-rf', '/']
    >>> _quoted(["explain", "exec", "rm -rf /", "--agent", "planner"])
    ['explain', 'exec', 'rm -rf /', '--agent', 'planner']
    """
    if arguments[:1] != ["explain"] or "--" in arguments:
        return arguments
    at = 1
    while at < len(arguments) and arguments[at].startswith("-"):
        # Options in front of the action; each but the switches takes a value.
        has_value = "=" not in arguments[at] and arguments[at] in _WITH_VALUE
        at += 2 if has_value else 1
    words = arguments[at:]
    program = words[1:2] if words and words[0] in ACTIONS else words[:1]
    if not program or " " in program[0] or (words[0] in ACTIONS and words[0] != "exec"):
        return arguments
    last = ["--json"] if words[-1] == "--json" else []
    return [*arguments[:at], *last, "--", *(words[:-1] if last else words)]


_WITH_VALUE = frozenset({"--agent", "-C", "--root", "--profile"})


def _print_explanation(found: Explanation, terminal: Terminal) -> None:
    wanted = f"{found.permission.action} {found.permission.resource}"
    terminal.line(f"{terminal.effect(found.decision.effect)}  {shown(wanted)}")
    terminal.line(f"  {shown(found.reason)}")
    if found.matched:
        terminal.line()
        terminal.heading("rules that match")
        _print_rules(found.matched, terminal)


def _print_rules(rules: Sequence[MatchedRule], terminal: Terminal) -> None:
    for matched in rules:
        mark = "decides" if matched.decided else "counts in its layer" if matched.is_verdict else ""
        rule = f"{matched.rule.effect} {matched.rule.action} {matched.rule.pattern}"
        terminal.line(f"  {matched.layer} {matched.rule_index + 1}: {shown(rule)}  {mark}".rstrip())


def _print_line(judged: JudgedLine, terminal: Terminal) -> None:
    terminal.line(f"{terminal.effect(judged.effect)}  {shown(f'exec {judged.line}')}")
    for reason in judged.reasons:
        terminal.line(f"  {shown(reason)}")
    many = len(judged.matched) > 1
    if any(rules for _, rules in judged.matched):
        terminal.line()
        terminal.heading("rules that match")
    for command, rules in judged.matched:
        if many and rules:
            terminal.line(f"  {shown(command)}")
        _print_rules(rules, terminal)
    if judged.commands:
        terminal.line()
        terminal.heading("how it was read")
    for one in judged.commands:
        _print_command(one, terminal)


def _print_command(command: ReadCommand, terminal: Terminal) -> None:
    effect = terminal.effect(command.judged.effect)
    terminal.line(f"  {effect}  {shown(command_resource(command.reading.argv))}")
    rows = list(_reading_rows(command.reading))
    rows.insert(1, ("variables", _assigned(command.variables)))
    rows.append(
        ("redirects", ", ".join(f"{r.descriptor} {r.kind} {r.target}" for r in command.redirects))
    )
    if command.rule is not None:
        rule = command.rule
        marks = [name for name in ("unbound", "scripts") if getattr(rule, name)]
        said = (
            f"{command.layer} {command.rule_index + 1}: {rule.effect} {rule.action} {rule.pattern}"
        )
        rows.append(("rule", " ".join((said, *(f"({mark})" for mark in marks)))))
        rows.append(("covers", beyond(rule)))
    elif command.judged.reason:
        rows.append(("rule", f"none: {command.judged.reason}"))
    for label, text in rows:
        if text:
            terminal.indented(shown(text), 16, f"    {label:<12}")


def _reading_rows(found: CommandReading) -> Iterator[tuple[str, str]]:
    yield (
        "program",
        f"{found.program} ({found.source})" if found.source else f"{found.program} (no grammar)",
    )
    yield "sets", _assigned(found.variables)
    yield "command", " ".join(found.sub_command)
    yield "options", ", ".join(n if v is None else f"{n} {v}" for n, v in found.options)
    yield "operands", ", ".join(found.operands)
    yield "works in", ", ".join(found.directories)
    yield "reads", ", ".join(found.reads)
    yield "writes", ", ".join(found.writes)
    yield "scripts", ", ".join(" or ".join(paths) for paths in found.scripts)
    yield "to be named", "; ".join(found.hazards)
    yield "not read", found.unknown
    if found.starts is not None:
        yield "starts", command_resource(found.starts.argv)
        yield from _reading_rows(found.starts)


def _assigned(variables: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables)


def _list_rules(usable: UsableConfig, terminal: Terminal, *, is_json: bool) -> int:
    """Print every rule of every layer; 1 when a file could not be used."""
    config, faults = usable
    layers = (*config.layers, *config.agents.values())
    if is_json:
        rules = rule_answers(layers)
        more = RuleFilesAnswer(files=diagnostic_answers(faults)) if faults else None
        terminal.json_list("rules", rules, more)
        return 1 if faults else 0
    for fault in faults:
        terminal.line(finding_line(fault, terminal))
    for layer in layers:
        if layer.is_builtin:
            terminal.heading(layer.name)
            of = f"{counted(len(layer.rules), 'rule')} of this program"
            terminal.line(f"  {of}; `skillhouse policy show` prints them")
            continue
        if layer.rules:
            terminal.heading(shown(layer.name))
        for index, rule in enumerate(layer.rules):
            text = f"{rule.effect} {rule.action} {rule.pattern}"
            why = f"  ({one_line(rule.reason)})" if rule.reason else ""
            terminal.line(f"  {index + 1}: {shown(text)}{why}")
    count = sum(len(layer.rules) for layer in layers)
    hint = "" if count else "; `skillhouse policy init` sets a policy to begin with"
    terminal.note(f"{counted(count, 'rule')}{hint}")
    return 1 if faults else 0


def _lint(usable: UsableConfig, terminal: Terminal, *, is_json: bool, is_full: bool = False) -> int:
    """Print what is odd about rules, and which files cannot be used; 1 when there is something.

    Notes about rules that say `unbound = true` are no findings.
    """
    config, faults = usable
    layers = (*config.layers, *config.agents.values())
    findings = lint_rules(layers)
    notes = sum(found.is_note for found in findings)
    code = 1 if len(findings) > notes or faults else 0
    if is_json:
        more = RuleLintAnswer(
            covers=rule_scope_answers(layers) if is_full else UNSET,
            files=diagnostic_answers(faults) if faults else UNSET,
        )
        terminal.json_list("findings", [rule_finding(found) for found in findings], more)
        return code
    for fault in faults:
        terminal.line(finding_line(fault, terminal))
    for line in finding_lines(findings):
        terminal.line(line)
    for _, rule, said in rule_scopes(layers) if is_full else ():
        terminal.line(f"{shown(rule.pattern)}: {shown(said)}")
    rules = sum(len(layer.rules) for layer in layers)
    said = f"{counted(rules, 'rule')}: {counted(len(findings) - notes, 'finding')}"
    if notes:
        said += f", {counted(notes, 'note')}"
    if faults:
        said += f", {counted(len(faults), 'fault')} of files: not every rule was read"
    terminal.note(said)
    for name, count in _copied(config).items():
        terminal.note(
            f"{counted(count, 'rule')} are copies of the policy {name}; `skillhouse policy init "
            f"{name} --drop-copies` has it by its name, so that updates reach it"
        )
    return code


def _copied(config: Config) -> dict[str, int]:
    """Return the policies whose rules are in the user's file, and how many each has there."""
    rules = {rule for layer in config.layers if layer.name == "user" for rule in layer.rules}
    found = {}
    for name in POLICY_NAMES if len(rules) >= COPIES_MIN else ():
        known = set(starting_rules(name))
        if 2 * len(copies := rules & known) > len(known):
            found[name] = len(copies)
    # Those of a smaller policy are rules of the larger one too.
    most = max(found, key=found.__getitem__, default="")
    return {most: found[most]} if most else {}


COPIES_MIN = 20
"""Rules of a person below which no policy is looked for among them."""


VERBS = {
    "policy": Verb(_POLICY_EXAMPLES, _configure_policy, _policy, without="list", adapt=_quoted)
}

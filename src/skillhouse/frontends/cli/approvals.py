"""`skillhouse approvals`, and its part about devices that may answer."""

from __future__ import annotations

import argparse
import json as json_text
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skillhouse.answers.approvals import (
    PairedDeviceAnswer,
    UnpairedDeviceAnswer,
    WithdrawnAnswer,
    approval_answer,
    device_answer,
    device_text,
)
from skillhouse.approval import CODE_SECONDS, OWNER, Answer, ApprovalError, Issuer, rule_text
from skillhouse.frontends.cli.options import UsageError, Verb, add_common, house_of, positive
from skillhouse.frontends.cli.person import note_changes, refuse_agents, show_request
from skillhouse.frontends.cli.question import need_terminal, typed
from skillhouse.presentation.pairing_code import (
    DEFAULT_PAGE,
    code_answer,
    page_of,
    terminal_picture,
    why_no_key,
)
from skillhouse.presentation.question import ANSWER_WORDS, question_title
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.approval import Approval, ApprovedScript, Grant
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

_EXAMPLES = """examples:
  skillhouse approvals list
  skillhouse approvals show 3fa9
  skillhouse approvals approve 3fa9
  skillhouse approvals approve 3fa9 --project
  skillhouse approvals approve 3fa9 --always --rule "exec git log *"
  skillhouse approvals approve 3fa9 --yes --token TOKEN   for a script; the page gives the token
  skillhouse approvals deny 3fa9 --message "write it to notes/ instead"
  skillhouse approvals grants
  skillhouse approvals grants --sort ends    the first to end comes first
  skillhouse approvals scripts
  skillhouse approvals revoke 81c0
  skillhouse approvals pair phone            prints the secret of the device, once
  skillhouse approvals pair phone --app      a code for the companion app, also as a picture
  skillhouse approvals devices
  skillhouse approvals unpair 5d2e

An approval is for the exact call, once: the agent repeats the call, and it runs.
`approve` and `pair` ask for a word at a terminal, and refuse inside a coding agent.
What signs is decided on the page of `skillhouse up` or on a paired device only.
"""

_COLOURS = {
    "open": "yellow",
    "approved": "green",
    "used": "green",
    "denied": "red",
    "expired": "dim",
}
_GRANT_ORDERS: Mapping[str, Callable[[Grant], Any]] = {
    "made": lambda _: 0,
    "ends": lambda grant: grant.expires_ms,
    "rule": lambda grant: (grant.action, grant.pattern),
    "place": lambda grant: grant.place,
}
"""What standing approvals are sorted by; equal ones stay in the order in which they are kept."""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    found = verbs.add_parser("list", help="list the open requests, oldest first")
    found.add_argument("--all", action="store_true", help="include answered ones")
    found.add_argument("--limit", type=positive, default=50, metavar="N", help="most of --all (50)")
    show = verbs.add_parser("show", help="show everything that an approval would cover")
    approve = verbs.add_parser("approve", help="approve once")
    lasting = approve.add_mutually_exclusive_group()
    for answer, words in (
        (Answer.SESSION, "also what is like it, until the client's connection ends"),
        (Answer.PROJECT, "also later"),
        (Answer.ALWAYS, "also later"),
    ):
        lasting.add_argument(
            f"--{answer.value}",
            dest="answer",
            action="store_const",
            const=answer,
            help=f"{ANSWER_WORDS[answer]}: {words}",
        )
    approve.add_argument(
        "--rule",
        dest="rules",
        action="append",
        default=[],
        metavar="RULE",
        help="with a lasting answer: what it allows, at most what `show` says (again for more)",
    )
    approve.add_argument(
        "--yes", action="store_true", help="without a terminal: with a token, and once only"
    )
    approve.add_argument(
        "--token", default="", metavar="T", help="one-time token of the page or a paired device"
    )
    deny = verbs.add_parser("deny", help="deny")
    deny.add_argument("--message", default="", metavar="TEXT", help="message for the agent")
    grants = verbs.add_parser("grants", help="list the standing approvals")
    grants.add_argument(
        "--sort",
        choices=list(_GRANT_ORDERS),
        default="made",
        help="the oldest first (default), or by when they end, by what they allow, or by where",
    )
    scripts = verbs.add_parser("scripts", help="list the approved scripts")
    revoke = verbs.add_parser("revoke", help="revoke a standing approval or an approved script")
    for parser_of_verb in (show, approve, deny, revoke):
        parser_of_verb.add_argument("id", help="an id or its beginning")
    for parser_of_verb in (found, show, approve, deny, grants, scripts, revoke):
        add_common(parser_of_verb)
    _configure_devices(verbs)


def _run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List or answer permission requests; 1 when nothing was approved."""
    if options.verb == "approve":
        _refuse_options(options)
    with house_of(options) as house:
        note_changes(house.config.state_directory, terminal)
        if options.verb in _DEVICE_VERBS:
            return _change_devices(house, options, terminal)
        if options.verb == "grants":
            return terminal.listing(
                sorted(house.approvals.listed_grants(), key=_GRANT_ORDERS[options.sort]),
                lambda one: one,
                lambda grant: f"{grant.id}  {one_line(_words(grant))}",
                name="grants",
                as_json=options.json,
                nothing="no standing approvals",
            )
        if options.verb == "scripts":
            return terminal.listing(
                house.approvals.scripts.all(),
                lambda one: one,
                lambda script: f"{script.id}  {one_line(_script_words(script))}",
                name="scripts",
                as_json=options.json,
                nothing="no approved scripts",
            )
        if options.verb == "revoke":
            return _revoke(house, options.id, terminal, json=options.json)
        if options.verb == "list":
            return _list(house, options, terminal)
        try:
            found = house.approvals.get(options.id)
        except ApprovalError as error:
            raise UsageError(f"{error}; see `skillhouse approvals list`") from error
        if options.verb == "show":
            _show(found, terminal, json=options.json)
            return 0
        answer = Answer.NO if options.verb == "deny" else options.answer or Answer.ONCE
        issuer = Issuer(user=OWNER)
        if options.verb == "approve" and options.token:
            issuer = house.services.enforcement.tokens.take(found, options.token)
        elif options.verb == "approve" and not _wants(found, answer, options.rules, terminal):
            terminal.note("nothing was approved")
            return 1
        answered = house.approvals.answer(
            found.id,
            answer,
            by=issuer.user,
            channel="cli",
            nonce=found.request.nonce,
            message=getattr(options, "message", ""),
            rules=getattr(options, "rules", ()),
            device=issuer.device,
            device_name=issuer.device_name,
        )
    word = "refused" if answer is Answer.NO else f"approved ({answer.value})"
    text = f"{answered.id} {word}: {question_title(answered.request.title)}"
    terminal.answer(approval_answer(answered), text, as_json=options.json)
    return 0


def _refuse_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together, and for an agent that approves."""
    refuse_agents("approvals approve")
    if options.yes != bool(options.token):
        raise UsageError("expected `--yes` and `--token` together; the page gives a token")
    if options.token and options.answer:
        raise UsageError(f"a token approves once: leave out `--{options.answer.value}`")
    if options.rules and not options.answer:
        raise UsageError("expected `--session`, `--project` or `--always` with `--rule`")


def _wants(found: Approval, answer: Answer, rules: Sequence[str], terminal: Terminal) -> bool:
    instead = "answer it on the page, or use --yes with a --token of the page"
    need_terminal(instead)
    show_request(found.request, terminal.note_rows)
    terminal.note(f"  your answer: {answer.value}")
    for rule in rules:
        terminal.note(f"  rule: {one_line(rule)}")
    return typed("approve", terminal, instead=instead)


def _list(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    approvals = house.approvals
    found = approvals.latest(options.limit) if options.all else approvals.pending()

    def line(approval: Approval) -> str:
        state = terminal.style(approval.state.value, _COLOURS[approval.state.value])
        by = f"  by {one_line(device_text(approval))}" if approval.device else ""
        # Not cut to the terminal: its end may be the command that matters.
        title = question_title(approval.request.title)
        return terminal.framed(f"{approval.id}  {state}  {_left(approval)}  {title}{by}")

    return terminal.listing(
        found,
        approval_answer,
        line,
        name="approvals",
        as_json=options.json,
        nothing="no questions",
    )


def _left(approval: Approval) -> str:
    """Return how long a question can still be answered, in eight columns."""
    if approval.closed_ms:
        return " " * 8
    minutes = max(0, approval.request.expires_ms / 1000 - time.time()) / 60
    return f"{minutes:>4.0f} min"


def _show(found: Approval, terminal: Terminal, *, json: bool) -> None:
    if json:
        terminal.json(approval_answer(found))
        return
    request = found.request
    show_request(request, terminal.line_rows)
    pairs = [
        ("state", found.state.value),
        ("agent", request.agent),
        ("user", request.user),
        ("client", request.client),
        ("channel", request.channel),
        ("place", request.place),
        ("level", request.level),
        ("asked", _moment(request.opened_ms)),
        ("ends", _moment(request.expires_ms)),
        ("answer", found.answer),
        ("answered by", found.by),
        ("answered on", found.channel),
        ("device", device_text(found)),
        ("message", found.message),
        ("digest", request.content_digest),
    ]
    for label, value in pairs:
        if value:
            terminal.line_rows(f"  {label:<14}{one_line(value)}")
    terminal.line("  exactly:")
    for line in _pretty(request.content).split("\n"):
        terminal.line_rows(f"    {shown(line)}")


def _pretty(content: str) -> str:
    return json_text.dumps(json_text.loads(content), indent=2, ensure_ascii=True)


def _words(grant: Grant) -> str:
    place = f"in {grant.place}" if grant.place else "everywhere"
    who = "" if grant.agent == "default" else f" for agent {grant.agent}"
    digest = f" at {grant.skill_digest[:19]}" if grant.skill_digest else ""
    by = f", granted by {device_text(grant)}" if grant.device else ""
    who += " for one session" if grant.session else ""
    until = _moment(grant.expires_ms)
    return f"{rule_text(grant.action, grant.pattern)}{digest} {place}{who} until {until}{by}"


def _script_words(script: ApprovedScript) -> str:
    who = "" if script.agent == "default" else f" for agent {script.agent}"
    since = _moment(script.approved_ms)
    return f"{script.path} in {script.workspace}{who} at sha256:{script.digest[:12]} since {since}"


def _revoke(house: Skillhouse, prefix: str, terminal: Terminal, *, json: bool) -> int:
    grants = house.approvals.listed_grants()
    matching = [grant for grant in grants if grant.id.startswith(prefix)]
    scripts = [one for one in house.approvals.scripts.all() if one.id.startswith(prefix)]
    if len(matching) + len(scripts) != 1:
        count = len(matching) + len(scripts) or "no"
        see = "see `skillhouse approvals grants` and `skillhouse approvals scripts`"
        raise UsageError(f"{count} grants or scripts begin with `{prefix}`; {see}")
    if scripts:
        house.approvals.scripts.revoke(scripts[0].id)
        return terminal.listing(
            scripts,
            lambda one: one,
            lambda script: f"revoked: {one_line(_script_words(script))}",
            name="scripts",
            as_json=json,
        )
    house.approvals.revoke(matching[0].id)
    return terminal.listing(
        matching,
        lambda one: one,
        lambda grant: f"revoked: {one_line(_words(grant))}",
        name="grants",
        as_json=json,
    )


def _moment(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_DEVICE_VERBS = ("pair", "devices", "unpair")


def _configure_devices(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pair = verbs.add_parser("pair", help="let a device answer, with a secret of its own")
    pair.add_argument("name", help="what to call it")
    pair.add_argument("--user", default=OWNER, metavar="NAME", help="as whom it answers (local)")
    pair.add_argument(
        "--app", action="store_true", help="a code for the companion app, which makes its own key"
    )
    pair.add_argument(
        "--url",
        default="",
        metavar="ADDRESS",
        help="where the device opens the page (approvals.page_url, or this machine)",
    )
    devices = verbs.add_parser("devices", help="the paired devices")
    unpair = verbs.add_parser("unpair", help="let a device answer no more")
    unpair.add_argument("id", help="the device's id")
    for parser in (pair, devices, unpair):
        add_common(parser)


def _change_devices(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    devices = house.services.enforcement.devices
    if options.verb == "pair":
        refuse_agents("approvals pair")
        if options.url and not options.app:
            raise UsageError("expected `--app` with `--url`")
        need_terminal("run it at a terminal of your own")
        terminal.note(f"`{one_line(options.name)}` could answer as {one_line(options.user)}")
        if not typed("pair", terminal, instead="run it at a terminal of your own"):
            terminal.note("nothing was paired")
            return 1
        if options.app:
            return _show_code(house, options, terminal)
        device = devices.pair(options.name, user=options.user)
        if options.json:
            shown = device_answer(device)
            terminal.json(PairedDeviceAnswer(device=shown, secret=device.secret))
        else:
            terminal.line(f"device: {device.id}")
            terminal.line(f"secret: {device.secret}")
            terminal.note("the secret is not shown again")
        return 0
    if options.verb == "unpair":
        begun = options.id or "-"  # Nothing is the beginning of no id.
        found = [one.id for one in devices.all() if one.id.startswith(begun)]
        ended = devices.unpair(found[0]) if len(found) == 1 else None
        if ended is None:
            which = "two devices begin with" if len(found) > 1 else "no device"
            raise UsageError(f"{which} `{options.id}`; see `skillhouse approvals devices`")
        gone = WithdrawnAnswer(approvals=ended.approvals, grants=ended.grants)
        value = UnpairedDeviceAnswer(id=found[0], withdrawn=gone)
        unused = counted(ended.approvals, "unused approval")
        standing = counted(ended.grants, "standing approval")
        text = f"unpaired: {found[0]}; withdrawn: {unused}, {standing}"
        terminal.answer(value, text, as_json=options.json)
        return 0
    return terminal.listing(
        devices.all(),
        device_answer,
        lambda one: f"{one.id}  {one_line(one.name)}, answers as {one_line(one.user)}",
        name="devices",
        as_json=options.json,
        nothing="no devices",
    )


def _show_code(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    """Print a code that pairs the companion app once, with the address that has it."""
    asked = options.url or house.config.approvals.page_url or DEFAULT_PAGE
    page = page_of(asked)
    if not page:
        raise UsageError(f"expected an address such as https://house.example, got `{asked}`")
    code = house.services.companion.codes.issue(options.name, user=options.user)
    made = code_answer(page, code, minutes=CODE_SECONDS // 60)
    if options.json:
        terminal.json(made)
        return 0
    for line in terminal_picture(made.address).splitlines():
        terminal.line(line)
    terminal.line(f"address: {made.address}")
    terminal.line(f"code: {made.code}")
    terminal.note(
        f"it pairs one device within {made.minutes} minutes, while `skillhouse up` runs there"
    )
    if why := why_no_key(page):
        terminal.note(why)
    return 0


VERBS = {"approvals": Verb(_EXAMPLES, _configure, _run, without="list")}

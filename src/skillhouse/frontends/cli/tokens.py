"""The verb `tokens`: named tokens of the HTTP service, and the browsers that opened its page."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from skillhouse.answers.service import NewTokenAnswer, RevokedTokenAnswer, token_answer
from skillhouse.frontends.cli.options import Verb, add_common, house_of, natural
from skillhouse.frontends.cli.person import refuse_agents
from skillhouse.house.access_tokens import TOKEN_DAYS, Access, AccessScope
from skillhouse.presentation.text import one_line

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

_EXAMPLES = """examples:
  skillhouse tokens list
  skillhouse tokens new dashboard --scope read
  skillhouse tokens new ci --scope read --scope call --agent builder --days 30
  skillhouse tokens new phone --scope read --scope approve
  skillhouse tokens revoke ci

A program sends the token to `skillhouse up` as `Authorization: Bearer TOKEN`. It is printed once,
and only a digest of it is kept. Scopes: read (skills, rules, questions, the log), manage (skills,
rules, reload, stop), call (tools, through the gate), approve (questions). No token has both call
and approve: a program must not answer its own questions. The list also has the browsers that
opened the page; one that is revoked needs the printed address again.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list the tokens and browsers")
    new = verbs.add_parser("new", help="make a token and print it, once")
    new.add_argument("name", help="what it is for")
    new.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        required=True,
        choices=[scope.value for scope in AccessScope],
        help="what it may do; may be repeated",
    )
    new.add_argument(
        "--agent", default="default", metavar="NAME", help="whose rules hold for its calls"
    )
    new.add_argument("--user", default="local", metavar="NAME", help="on whose behalf (local)")
    new.add_argument(
        "--days",
        type=natural,
        default=TOKEN_DAYS,
        metavar="N",
        help=f"how long it holds ({TOKEN_DAYS}; 0: always)",
    )
    revoke = verbs.add_parser("revoke", help="end a token or browser at once")
    revoke.add_argument("name", help="its name or id")
    for one in (listing, new, revoke):
        add_common(one)


def _tokens(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.action == "new":
        refuse_agents("tokens new")
    with house_of(options) as house:
        tokens = house.services.enforcement.access_tokens
        if options.action == "list":
            return terminal.listing(
                tokens.all(),
                token_answer,
                _line,
                name="tokens",
                as_json=options.json,
                nothing="no tokens",
            )
        if options.action == "revoke":
            ended = tokens.revoke(options.name)
            terminal.answer(
                RevokedTokenAnswer(access=token_answer(ended)),
                f"revoked: {one_line(ended.name)} ({ended.id})",
                as_json=options.json,
            )
            return 0
        if options.agent not in house.config.agents:
            house.view(options.agent)  # Says which agents there are.
        scopes = [AccessScope(scope) for scope in options.scopes]
        access, token = tokens.new(
            options.name, scopes, agent=options.agent, user=options.user, days=options.days
        )
    if options.json:
        terminal.json(NewTokenAnswer(access=token_answer(access), token=token))
    else:
        terminal.line(token)
        terminal.note(f"{_line(access)}; the token is not shown again")
    return 0


def _line(access: Access) -> str:
    what = "browser of the page" if access.kind == "browser" else " ".join(sorted(access.scopes))
    agent = "" if access.agent == "default" else f", agent {one_line(access.agent)}"
    ends = f", until {_day(access.expires_ms)}" if access.expires_ms else ""
    used = f", used {_day(access.used_ms)}" if access.used_ms else ""
    return f"{access.id}  {one_line(access.name)}: {what}{agent}{ends}{used}"


def _day(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d}"


VERBS = {"tokens": Verb(_EXAMPLES, _configure, _tokens, without="list")}

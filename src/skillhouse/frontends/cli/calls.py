"""The verbs about tools, `tools`, `call` and `invoke`, with the arguments of a call."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import tools as toolbox
from skillhouse.answers.audit import PARTS, code_lists, detail_of, recorded_call
from skillhouse.answers.tools import (
    CodeCallAnswer,
    code_answer,
    result_answer,
    tool_answer,
)
from skillhouse.frontends.cli.event_loop import run_in_loop
from skillhouse.frontends.cli.kept_process import Kept, keep_running
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_skill,
    add_tools,
    add_user,
    house_of,
)
from skillhouse.frontends.cli.person import TerminalChannel, note_changes
from skillhouse.frontends.cli.wait import WaitingChannel
from skillhouse.presentation.text import counted, one_line, shown

if TYPE_CHECKING:
    from skillhouse.audit import AuditEntry
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse
    from skillhouse.tools import ArtifactFile, Progress, SkillCodeTool, ToolResult

FIRST_SHARE = 0.01
"""The least share of a call that is shown as one."""
QUIET_SECONDS = 1.0
"""How long a command goes on after a line before that is shown as progress."""
_TOOLS_EXAMPLES = """examples:
  skillhouse tools list
  skillhouse tools list --agent planner --json
  skillhouse tools list --tools skills     what a client gets of `mcp --tools skills`

Tools that are not offered, and those that rules deny wholly, are not listed.
A tool that a skill brings is called SKILL:TOOL; a model sees SKILL__TOOL. Skills' own code is off
unless the profile or `[skill_code] enabled = true` turns it on.
"""


def _configure_tools(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = verbs.add_parser("list", help="list the tools that an agent is offered")
    listing.add_argument("--agent", default="default", metavar="NAME", help="of this agent")
    add_tools(listing)
    add_common(listing)


def _tools(options: argparse.Namespace, terminal: Terminal) -> int:
    with house_of(options) as house:
        tools = house.tools(agent=options.agent, every=True)
    if options.json:
        terminal.json_list("tools", [tool_answer(tool) for tool in tools])
        return 0
    brought = [tool for tool in tools if isinstance(tool, toolbox.SkillCodeTool)]
    own = [tool for tool in tools if not isinstance(tool, toolbox.SkillCodeTool)]
    terminal.heading("built in")
    terminal.rows([(shown(tool.name), one_line(tool.description)) for tool in own])
    terminal.line()
    if brought:
        terminal.heading("of skills")
        terminal.rows([(shown(tool.full_name), _described(tool)) for tool in brought])
        terminal.line()
    terminal.line(f"{counted(len(tools), 'tool')}, {len(brought)} of skills")
    problems = len(house.services.skill_code.problems)
    if problems:
        what = counted(problems, "finding")
        terminal.note(f"{what} about skills' code: `skillhouse reload`")
    return 0


def _described(tool: SkillCodeTool) -> str:
    return f"{tool.level}: {one_line(tool.description)}"


_CALL_EXAMPLES = """examples:
  skillhouse call read path=README.md
  skillhouse call exec command=git 'params=["status"]'
  skillhouse call skill name=weather --json
  skillhouse call exec command='npm run dev' background=true
  skillhouse call exec_output
  skillhouse call exec --args '{"command": "git", "params": ["status"]}'
  skillhouse call dex-swap:swap --args @swap.json --wait-seconds 600
  skillhouse call crypto-price:get_price coin=bitcoin --verbose
  skillhouse call crypto-price:get_price coin=bitcoin --debug

A command in the background goes on in a process of its own: `exec_output` and
`exec_stop` of any process find it. It ends with 8 hours, `exec_stop` or `skillhouse stop`.
A VALUE is text where the tool takes text, and JSON elsewhere.
A call that needs approval asks on the terminal: y once, s this connection,
p this project, a every project; anything else denies it. Without a terminal the request
stays open: answer it with `skillhouse approvals` and repeat the call, or wait with --wait.
What signs is decided on the page of `skillhouse up` or a paired device; --wait waits for
both questions of a tool that signs, and its code runs once. Ctrl-C withdraws what is open.
An exception of a skill's code comes with the files and lines of the skill, on stderr.
`--verbose` adds what the code logged and printed; `skillhouse audit show` has both later.
`--debug` also gives one call an hour and prints the whole traceback.
"""


def _configure_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", help="the tool's name")
    parser.add_argument("words", nargs="*", metavar="NAME=VALUE", help="an argument of the tool")
    parser.add_argument(
        "--args", default="{}", metavar="JSON", help="arguments as one JSON object, or @FILE"
    )
    parser.add_argument("--agent", default="default", metavar="NAME", help="call as this agent")
    add_user(parser)
    add_tools(parser)
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for answers that are given elsewhere"
    )
    parser.add_argument(
        "--wait-seconds",
        type=float,
        metavar="SECONDS",
        help="wait at most this long in all; implies --wait",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="also show what a skill's code logged and printed"
    )
    parser.add_argument(
        "--debug", action="store_true", help="the same, with an hour's time and a full traceback"
    )
    add_common(parser)


def _call(options: argparse.Namespace, terminal: Terminal) -> int:
    """Make one gated call; 1 when it was refused or failed."""
    arguments = parse_object(options.args)
    if arguments.get("background") is True or "background=true" in options.words:
        return keep_running(lambda kept: _call_and_print(options, terminal, arguments, kept))
    return _call_and_print(options, terminal, arguments, None)


def _call_and_print(
    options: argparse.Namespace,
    terminal: Terminal,
    arguments: dict[str, Any],
    kept: Kept | None,
) -> int:
    request = secrets.token_hex(8)
    is_shown = options.verbose or options.debug
    entry = None
    at_terminal = TerminalChannel(sys.stdin, terminal)
    waits = options.wait or options.wait_seconds is not None
    waiting = WaitingChannel(at_terminal, terminal, options.wait_seconds) if waits else None
    with house_of(options, channel=waiting or at_terminal) as house:
        given = parse_words(options.words, lambda: _schema(house, options))
        if twice := sorted(given.keys() & arguments.keys()):
            raise UsageError(f"argument `{twice[0]}` is given twice")
        arguments |= given
        if options.debug:
            house.services.skill_code.is_debugged = True
        try:
            result = run_in_loop(_make_call, house, options, arguments, terminal, request, waiting)
        except toolbox.UnknownToolError as error:
            raise UsageError(str(error)) from error
        except KeyboardInterrupt:
            if waiting:
                waiting.withdraw(house.approvals)
            raise
        if is_shown or (result.status == "error" and _may_be_of_skill(options.tool)):
            entry = recorded_call(house.audit_log, request)
        code = _print_call(options, terminal, result, entry, is_shown=is_shown)
        if kept is not None and house.services.has_background:
            kept.detach(code)
            run_in_loop(house.services.background.wait, toolbox.BACKGROUND_SECONDS)
            if house.services.background.has_unread:
                kept.linger()
    return code


def _print_call(
    options: argparse.Namespace,
    terminal: Terminal,
    result: ToolResult,
    entry: AuditEntry | None,
    *,
    is_shown: bool,
) -> int:
    if options.json:
        terminal.json(CodeCallAnswer(result=result_answer(result), code=code_answer(entry)))
        return 1 if result.is_error else 0
    code = _print_result(result, terminal, as_json=False)
    for file in result.artifacts:
        terminal.note(f"kept: {shown(file.name)} ({file.bytes} bytes): {_how_to_save(file)}")
    for line in result.artifacts_left_out:
        terminal.note(f"not kept: {shown(line)}")
    if entry is None:
        return code
    _print_code(detail_of(entry), terminal, names=() if is_shown else ("frames",))
    if is_shown:
        terminal.note(f"record: {entry.record.id}")
    return code


def _how_to_save(file: ArtifactFile) -> str:
    """Return the command that writes a kept file, where its name is one plain word."""
    only = f" {shlex.quote(file.name)}" if file.name.isascii() else ""
    return f"skillhouse artifacts save {file.set_id[:8]}{only}"


def _schema(house: Skillhouse, options: argparse.Namespace) -> Mapping[str, Any]:
    """Return what the tool takes; of a tool that is unknown the call itself says so."""
    tools = house.tools(agent=options.agent, every=True)
    names = {name: tool for tool in tools for name in (tool.own_name, tool.name)}
    names |= {tool.full_name: tool for tool in tools if isinstance(tool, toolbox.SkillCodeTool)}
    found = names.get(options.tool)
    return found.schema if found else {}


def _print_code(
    detail: Mapping[str, object], terminal: Terminal, *, names: Sequence[str] = ()
) -> None:
    """Write the lists to stderr, each line behind a mark that no text of a skill can write.

    Args:
        names: Only these; all without.
    """
    found = code_lists(detail)
    for name in PARTS:
        lines = found.get(name)
        if not lines or (names and name not in names):
            continue
        if name == "frames":
            # The innermost first, as a person looks for it.
            for line in reversed(lines):
                terminal.note(f"  at {shown(line)}")
            continue
        terminal.note(f"{name}:")
        for line in lines:
            terminal.note(f"  | {shown(line)}")


def _may_be_of_skill(name: str) -> bool:
    return ":" in name or "__" in name


async def _make_call(
    house: Skillhouse,
    options: argparse.Namespace,
    arguments: dict[str, Any],
    terminal: Terminal,
    request: str,
    waiting: WaitingChannel | None,
) -> ToolResult:
    timers: list[asyncio.TimerHandle] = []
    newest = ""

    async def show_progress(progress: Progress) -> None:
        nonlocal newest
        share = progress.progress / progress.total if progress.total else 0.0
        # What counts no hundredth yet only says that it goes on.
        if progress.total and (share >= FIRST_SHARE or not progress.progress):
            terminal.note(f"{share:.0%} {shown(progress.message)}".rstrip())
            return
        line = f"  … {shown(progress.message)}"
        if not progress.total or line != newest:
            # What is over soon is shown whole at its end, however long its start took.
            loop = asyncio.get_running_loop()
            timers.append(loop.call_later(QUIET_SECONDS, terminal.note, line))
        newest = line

    try:
        if _may_be_of_skill(options.tool):
            # Before what decides about the call is loaded, which takes as long as the start.
            await house.services.skill_code.start_early(options.tool, house.snapshot.code)
        note_changes(house.config.state_directory, terminal)
        if waiting:
            waiting.attach(house.approvals)
        return await house.call(
            options.tool,
            arguments,
            agent=options.agent,
            user=options.user,
            channel="cli",
            approval_id=options.approval,
            listener=show_progress,
            message_id=request,
        )
    finally:
        for timer in timers:
            timer.cancel()
        await house.release_loop()


_INVOKE_EXAMPLES = """examples:
  skillhouse invoke                           what you can start here
  skillhouse invoke fix-issue 123
  skillhouse invoke fix-issue "12 13" --json
  skillhouse invoke deploy -- --dry-run

Prints the skill as a model would get it. Its places for arguments are filled, and its
commands run (each asked about as any command is), where the profile or your
configuration turns that on.
"""


def _configure_invoke(parser: argparse.ArgumentParser) -> None:
    add_skill(parser, nargs="?")
    parser.add_argument("arguments", nargs="*", help="arguments of the skill")
    parser.add_argument("--agent", default="default", metavar="NAME", help="beside this agent")
    add_user(parser)
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    add_common(parser)


def _invoke(options: argparse.Namespace, terminal: Terminal) -> int:
    """Start a skill, or list what can be started; 1 when it was refused or failed."""
    with house_of(options, channel=TerminalChannel(sys.stdin, terminal)) as house:
        if options.skill is None:
            return _list_invocable(house, options, terminal)
        result = run_in_loop(_start, house, options)
    return _print_result(result, terminal, as_json=options.json)


async def _start(house: Skillhouse, options: argparse.Namespace) -> ToolResult:
    return await house.invoke(
        options.skill,
        shlex.join(options.arguments),
        approval_id=options.approval,
        agent=options.agent,
        user=options.user,
        channel="cli",
    )


def _list_invocable(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    found = house.invocable(options.agent)
    if options.json:
        terminal.json_list("skills", found)
        return 0
    for entry in found:
        terminal.line(one_line(f"{entry.name} {entry.argument_hint}".strip()))
        terminal.line(f"  {one_line(entry.description)}")
    if not found:
        terminal.note("nothing can be started here")
    return 0


def _print_result(result: ToolResult, terminal: Terminal, *, as_json: bool) -> int:
    if as_json:
        terminal.json(result_answer(result))
    elif result.is_error:
        terminal.error(result.content)
    else:
        terminal.document(result.content)
    return 1 if result.is_error else 0


Schema = Mapping[str, Any]


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object of `text`, or of the file that it names as `@FILE`."""
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected JSON after --args: {error}") from error
    if not isinstance(value, dict):
        raise UsageError('expected a JSON object after --args, such as {"path": "README.md"}')
    return value


def parse_words(words: Sequence[str], schema_of: Callable[[], Schema]) -> dict[str, Any]:
    """Return the arguments that `NAME=VALUE` words give, each as the tool's schema has it.

    A value is text where the schema takes text; elsewhere it is JSON, and text if it is none.

    >>> parse_words(["n=3", "name=3"], lambda: {"properties": {"name": {"type": "string"}}})
    {'n': 3, 'name': '3'}
    """
    found: dict[str, Any] = {}
    properties = schema_of().get("properties", {}) if words else {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not is_given or not name:
            raise UsageError(
                f"expected NAME=VALUE, got `{word}`: try path=README.md, or --args JSON"
            )
        if name in found:
            raise UsageError(f"argument `{name}` is given twice")
        found[name] = value if _takes_text(properties.get(name)) else _json_or_text(value)
    return found


def _takes_text(schema: object) -> bool:
    kinds = schema.get("type") if isinstance(schema, Mapping) else None
    return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


VERBS = {
    "tools": Verb(_TOOLS_EXAMPLES, _configure_tools, _tools, without="list"),
    "call": Verb(_CALL_EXAMPLES, _configure_call, _call),
    "invoke": Verb(_INVOKE_EXAMPLES, _configure_invoke, _invoke),
}

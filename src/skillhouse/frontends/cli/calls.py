"""The verbs about tools and the code behind them, from `tools` and `call` to `sandbox`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from skillhouse import cells
from skillhouse.discovery import git_root
from skillhouse.floor import Severity
from skillhouse.frontends.cli.options import (
    UsageError,
    Verb,
    add_common,
    add_json,
    add_skill,
    add_tools,
    house_of,
)
from skillhouse.frontends.cli.person import TerminalChannel, note_changes
from skillhouse.frontends.cli.terminal import finding_line
from skillhouse.frontends.presentation.json_values import (
    python_value,
    pythons_value,
    sandbox_value,
)
from skillhouse.frontends.presentation.text import counted, one_line, shown
from skillhouse.sandbox import PythonPlaces, SandboxLevel
from skillhouse.tools import SkillCodeTool, UnknownToolError

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.runtime import Skillhouse
    from skillhouse.runtime.code_reload import Loaded, Reloaded
    from skillhouse.sandbox import SandboxStatus
    from skillhouse.tools import Progress, Tool, ToolResult

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
        tools = house.tools(agent=options.agent)
    if options.json:
        terminal.json({"tools": [tool_value(tool) for tool in tools]})
        return 0
    brought = [tool for tool in tools if isinstance(tool, SkillCodeTool)]
    own = [tool for tool in tools if not isinstance(tool, SkillCodeTool)]
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


def tool_value(tool: Tool) -> dict[str, Any]:
    """Return a tool as plain values; `skill` and `level` are null for a built-in tool."""
    code = tool if isinstance(tool, SkillCodeTool) else None
    return {
        "name": tool.name,
        "full_name": code.full_name if code else tool.name,
        "skill": code.skill.manifest.name if code else None,
        "level": code.level if code else None,
        "python": python_value(code) if code else None,
        "description": tool.description,
        "parameters": dict(tool.schema),
    }


def _described(tool: SkillCodeTool) -> str:
    return f"{tool.level}: {one_line(tool.description)}"


_CALL_EXAMPLES = """examples:
  skillhouse call read --args '{"path": "README.md"}'
  skillhouse call exec --args '{"command": "git", "params": ["status"]}'
  skillhouse call skill --args '{"name": "weather"}' --json

A call that needs approval asks on the terminal: y once, s for this session, p in this
project, a always; anything else denies it. Without a terminal the request stays open:
answer it with `skillhouse approvals` and repeat the call.
"""


def _configure_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", help="the tool's name")
    parser.add_argument(
        "--args", default="{}", metavar="JSON", help="the arguments as one JSON object, or @FILE"
    )
    parser.add_argument("--agent", default="default", metavar="NAME", help="call as this agent")
    add_tools(parser)
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    add_common(parser)


def _call(options: argparse.Namespace, terminal: Terminal) -> int:
    """Make one gated call; 1 when it was refused or failed."""
    arguments = _parse_arguments(options.args)
    with house_of(options, channel=TerminalChannel(sys.stdin, terminal)) as house:
        note_changes(house.approvals, terminal)
        try:
            result = anyio.run(_make_call, house, options, arguments, terminal)
        except UnknownToolError as error:
            raise UsageError(str(error)) from error
    return _print_result(result, terminal, as_json=options.json)


async def _make_call(
    house: Skillhouse, options: argparse.Namespace, arguments: dict[str, Any], terminal: Terminal
) -> ToolResult:
    async def tell(progress: Progress) -> None:
        share = progress.progress / progress.total if progress.total else 0.0
        terminal.note(f"{share:.0%} {shown(progress.message)}".rstrip())

    try:
        return await house.call(
            options.tool,
            arguments,
            agent=options.agent,
            channel="cli",
            approval_id=options.approval,
            listener=tell,
        )
    finally:
        await house.services.release_loop()


def _parse_arguments(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"expected JSON after --args: {error}") from error
    if not isinstance(value, dict):
        raise UsageError('expected a JSON object after --args, such as {"path": "README.md"}')
    return value


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
    parser.add_argument(
        "--approval", default="", metavar="ID", help="use this approval, once it is answered"
    )
    add_common(parser)


def _invoke(options: argparse.Namespace, terminal: Terminal) -> int:
    """Start a skill, or list what can be started; 1 when it was refused or failed."""
    with house_of(options, channel=TerminalChannel(sys.stdin, terminal)) as house:
        if options.skill is None:
            return _list_invocable(house, options, terminal)
        result = anyio.run(
            lambda: house.invoke(
                options.skill,
                shlex.join(options.arguments),
                approval_id=options.approval,
                agent=options.agent,
                channel="cli",
            )
        )
    return _print_result(result, terminal, as_json=options.json)


def _list_invocable(house: Skillhouse, options: argparse.Namespace, terminal: Terminal) -> int:
    found = house.invocable(options.agent)
    if options.json:
        terminal.json({"skills": [dataclasses.asdict(entry) for entry in found]})
        return 0
    for entry in found:
        terminal.line(one_line(f"{entry.name} {entry.argument_hint}".strip()))
        terminal.line(f"  {one_line(entry.description)}")
    if not found:
        terminal.note("nothing can be started here")
    return 0


def _print_result(result: ToolResult, terminal: Terminal, *, as_json: bool) -> int:
    if as_json:
        terminal.json(
            {
                "status": result.status,
                "content": result.content,
                "data": result.data,
                "approval_id": result.approval_id,
            }
        )
    elif result.is_error:
        terminal.error(result.content)
    else:
        terminal.document(result.content)
    return 1 if result.is_error else 0


_RELOAD_EXAMPLES = """examples:
  skillhouse reload
  skillhouse reload --json

Reads every manifest again and loads the code of each skill in a cell, without calling a tool. Code
that needs approval before it runs is not loaded. A tool that the manifest declares and the code
does not export is no longer offered. Running `up`, `mcp` and `chat` processes reload before their
next call; calls in progress finish with the code that they began with.
"""

_PROGRESS_SECONDS = 1.0


def _configure_reload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", default="default", metavar="NAME", help="as this agent")
    add_common(parser)


def _reload(options: argparse.Namespace, terminal: Terminal) -> int:
    """Say which tools of skills can be used; 1 when something cannot."""
    with house_of(options) as house:
        done = anyio.run(_reloaded, house, options.agent, _reload_progress(terminal))
    found = done.loaded
    problems = house.services.skill_code.problems
    failed = _failed(found) + [
        (str(problem.path or ""), problem.message)
        for problem in problems
        if problem.severity is Severity.ERROR
    ]
    if options.json:
        terminal.json(
            {
                "loaded": [name for skill in found for name in skill.tools],
                "not_tried": [skill.skill for skill in found if not skill.is_tried],
                "failed": [{"name": name, "error": error} for name, error in failed],
                "steps": [
                    {"directory": str(directory), "step": step} for directory, step in done.steps
                ],
            }
        )
        return 1 if failed else 0
    if not house.services.skill_code.is_enabled:
        terminal.note("skills' own code is off: set `enabled = true` below `[skill_code]`")
    for skill in found:
        for name in skill.tools:
            terminal.line(shown(name) + ("" if skill.is_tried else " (asked about, not loaded)"))
    for name, error in _failed(found):
        terminal.line(f"{shown(name)}: {terminal.style('failed', 'red')}: {shown(error)}")
    for problem in problems:
        terminal.line(finding_line(problem, terminal))
    loaded = sum(len(skill.tools) for skill in found)
    terminal.note(f"{counted(loaded, 'tool')} of skills, {len(failed)} failed")
    return 1 if failed else 0


async def _reloaded(
    house: Skillhouse, agent: str, progress: Callable[[int, int], None]
) -> Reloaded:
    from skillhouse.runtime.code_reload import reload_code

    try:
        return await reload_code(house, agent=agent, progress=progress)
    finally:
        await house.services.release_loop()


def _reload_progress(terminal: Terminal) -> Callable[[int, int], None]:
    said_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now >= said_at + _PROGRESS_SECONDS and sys.stderr.isatty():
            said_at = now
            terminal.note(f"loaded {done} of {counted(of, 'skill')}")

    return tell


def _failed(found: tuple[Loaded, ...]) -> list[tuple[str, str]]:
    whole = [(skill.skill, skill.error) for skill in found if skill.error]
    single = [
        (f"{skill.skill}:{tool}", "the manifest declares it, and the code does not export it")
        for skill in found
        if skill.lacking is not None
        for tool in skill.lacking.tools
    ]
    return whole + single


_SANDBOX_EXAMPLES = """examples:
  skillhouse sandbox status
  skillhouse sandbox status --json
"""


def _configure_sandbox(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    status = verbs.add_parser("status", help="which level commands run at, tested now")
    add_json(status)


def _sandbox(options: argparse.Namespace, terminal: Terminal) -> int:
    """Test the sandbox and print its level; 3 when commands cannot run here."""
    status = anyio.run(cells.self_test)
    if options.json:
        terminal.json({**sandbox_value(status), **pythons_value(_python_places())})
    else:
        _print_status(status, terminal)
        _print_pythons(terminal)
    return 3 if status.level is SandboxLevel.NONE else 0


def _print_status(status: SandboxStatus, terminal: Terminal) -> None:
    terminal.line(f"level: {status.level}")
    for reason in status.reasons:
        terminal.line(f"  {reason}")
    if status.hint:
        terminal.line(f"  {status.hint}")
    if status.probes:
        terminal.line()
    for probe in status.probes:
        word = "holds" if probe.passed else terminal.style("fails", "red")
        terminal.line(
            f"  {probe.name:<36}{word}{'  ' + shown(probe.detail) if probe.detail else ''}"
        )


def _python_places() -> PythonPlaces:
    start = Path.cwd()
    return PythonPlaces(os.environ, git_root(start) or start)


def _print_pythons(terminal: Terminal) -> None:
    terminal.line()
    terminal.line("Python of skill code, the default first:")
    found = pythons_value(_python_places())
    for python in found["pythons"]:
        terminal.line(f"  {python['version']:<9}{shown(python['program'])}  {shown(python['why'])}")
    for reason in found["unusable_pythons"]:
        terminal.line(f"  not usable: {shown(reason)}")


VERBS = {
    "tools": Verb(_TOOLS_EXAMPLES, _configure_tools, _tools),
    "call": Verb(_CALL_EXAMPLES, _configure_call, _call),
    "invoke": Verb(_INVOKE_EXAMPLES, _configure_invoke, _invoke),
    "reload": Verb(_RELOAD_EXAMPLES, _configure_reload, _reload),
    "sandbox": Verb(_SANDBOX_EXAMPLES, _configure_sandbox, _sandbox),
}

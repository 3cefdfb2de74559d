"""The command line: finds the verb, loads its module, and turns errors into exit codes."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import skillhouse
from skillhouse.frontends.cli.verbs import (
    ALIASES,
    NO_VERBS,
    SHOWN,
    VERBS,
    arguments_of,
    extension_verbs,
    parser_of,
)

if TYPE_CHECKING:
    from skillhouse.frontends.cli.terminal import Terminal

__all__ = ["main"]

OK, FINDING, USAGE, ENVIRONMENT = 0, 1, 2, 3
"""Exit codes (docs/reference/commands.md)."""
INTERRUPTED = 128 + signal.SIGINT
FAULT = 70
"""An unforeseen fault (EX_SOFTWARE of sysexits.h); there is a report."""
EXTRAS = {
    "cryptography": "registry",
    "rfc3161_client": "registry",
    "keyring": "registry",
    "tuf": "registry",
    "securesystemslib": "registry",
    "eth_account": "signer",
    "skillhouse_signer": "signer",
    "pkcs11": "hsm",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "starlette": "server",
    "uvicorn": "server",
    "jinja2": "server",
    "structlog": "server",
    "markdown_it": "server",
    "nh3": "server",
    "watchfiles": "watch",
    "pydantic_ai": "chat",
    "openai": "chat",
    "opentelemetry": "telemetry",
    "psycopg": "postgres",
    "numpy": "semantic",
}
"""The extra that brings a package which a part imports without a word of its own."""
OBJECTS_PER_COLLECTION = 100_000
"""New objects after which cycles are looked for: importing makes many, all of which stay."""

_INTRODUCTION = """usage: skillhouse VERB [OPTIONS]

Finds, checks and runs the skills of AI agents.

"""
_CLOSING = """examples:
  skillhouse list
  skillhouse rehearse "What's the weather in Tokyo?"
  skillhouse validate ./my-skill

`skillhouse help VERB` explains a verb. Every listing verb takes --json.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 ok, 1 finding, 2 usage, 3 environment, 70 fault.

    Without `argv` the command is that of this process, which ends with it.
    """
    if argv is not None:
        return _guarded(list(argv))
    _open_closed_streams()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    try:
        code = _guarded(sys.argv[1:])
    finally:
        # What is here goes with the process: looking through it for cycles first took 50 ms.
        gc.freeze()
    _leave(code)
    return code


def _open_closed_streams() -> None:
    """Put the null device where stdin, stdout or stderr was closed before we began (`<&-`).

    The next file that is opened would take its number, and get what others print into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is given: this one. Programs that we start get it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _leave(code: int) -> None:
    """End the process without taking its modules apart, which takes 10 ms; return if it may not.

    What is registered for the end of a process runs first. Where a thread goes on or the output
    cannot be written, the interpreter ends in its own way.
    """
    if threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out, and nothing else has them.
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def _guarded(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # The shell expects the code of a process that the signal ended.
        _terminal().error("stopped")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; that is no fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:  # noqa: BLE001 - the edge of the process.
        # Before the verb ran, or while this module was loaded: `_call` reports its own.
        return _failed(arguments, error)


def _failed(arguments: list[str], error: Exception) -> int:
    """Say in one line what went wrong, with the place of a report; without, where none is made."""
    from skillhouse.floor import InternalFaultError
    from skillhouse.frontends.cli.faults import fault_reports

    terminal = _terminal()
    # What is no verb may be anything, and so is not in a report.
    verb = arguments[0] if arguments and arguments[0] in VERBS else "skillhouse"
    fault = error if isinstance(error, InternalFaultError) else InternalFaultError(error)
    with fault_reports(verb, arguments[1:], os.environ, terminal.note) as reports:
        terminal.error(reports.line(fault))
    if _wants_json(arguments):
        from skillhouse.answers.errors import error_answer

        terminal.json(error_answer(fault, terminal.last_error, exit_code=FAULT))
    return FAULT


def _run(arguments: list[str]) -> int:
    """Answer what needs no verb; nothing else of the program is loaded for that."""
    if len(arguments) > 1 and arguments[0] == "help" and arguments[1] != "--all":
        # `help policy explain` is `policy explain --help`.
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_help(everything="--all" in arguments))
        return OK
    verb = ALIASES.get(arguments[0], arguments[0])
    if verb in ("-V", "--version"):
        sys.stdout.write(f"skillhouse {skillhouse.__version__}\n")
        return OK
    if verb == "--complete":
        # What a completion script asks for; as little as possible is loaded.
        from skillhouse.frontends.cli.candidates import complete

        return complete(arguments[1:])
    _load_msgspec()
    terminal = _terminal()
    error: Exception | None
    # A stop is given whatever its reason says.
    unreadable = [one for one in arguments if not one.isascii() and not _is_utf8(one)]
    if unreadable and verb != "stop":
        terminal.error(f"expected UTF-8 in every argument, got `{unreadable[0]}`")
        code, error = USAGE, _UnreadableArgumentError(terminal.last_error)
    elif verb not in VERBS and (verb in NO_VERBS or verb not in extension_verbs()):
        message = _unknown(verb)
        terminal.error(message)
        code, error = USAGE, _UnknownVerbError(message)
    else:
        code, error = _call(verb, arguments[1:], terminal)
    if _wants_json(arguments) and not terminal.has_json and (error is not None or code):
        from skillhouse.answers.errors import error_answer

        # INVARIANT: with --json, stdout holds one JSON object, also of what is refused.
        terminal.json(error_answer(error, terminal.last_error, exit_code=code))
    return code


def _load_msgspec() -> None:
    """Load msgspec as if `typing_extensions` were not there: `typing` has the same, and sooner."""
    if sys.modules.keys() & {"msgspec", "typing_extensions"}:
        return
    # For `import` this is "not there".
    sys.modules["typing_extensions"] = None  # type: ignore[assignment] # No module, as it says.
    try:
        importlib.import_module("msgspec")
    finally:
        del sys.modules["typing_extensions"]


class _UnknownVerbError(Exception):
    """The first word of the command line is no verb."""

    code = "unknown-verb"


class _UnreadableArgumentError(Exception):
    """An argument is no text: what it names cannot be kept or shown."""

    code = "unreadable-argument"


def _is_utf8(argument: str) -> bool:
    from skillhouse.floor import is_utf8

    return is_utf8(argument)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` is among the arguments, also where these could not be parsed."""
    return "--json" in arguments[: arguments.index("--") if "--" in arguments else None]


def _terminal() -> Terminal:
    from skillhouse.frontends.cli.terminal import Terminal

    return Terminal(sys.stdout, sys.stderr, os.environ)


def _missing_extra(error: Exception) -> Exception | None:
    """Return what to say where a part of an extra is not installed; None for any other fault."""
    from skillhouse.floor import MissingExtraError

    name = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    extra = EXTRAS.get(name.partition(".")[0])
    return MissingExtraError(extra, name) if extra is not None else None


def _call(verb: str, arguments: list[str], terminal: Terminal) -> tuple[int, Exception | None]:
    """Parse the verb's arguments and run it; our own errors become messages.

    Returns the exit code, and the error if there was one.
    """
    from skillhouse.floor import (
        ConfigError,
        InternalFaultError,
        MissingExtraError,
        SkillhouseError,
        StateError,
    )
    from skillhouse.floor.faults import is_of_interrupt
    from skillhouse.frontends.cli.faults import fault_reports
    from skillhouse.frontends.cli.options import UsageError

    with fault_reports(verb, arguments, os.environ, terminal.note) as reports:
        try:
            command, parser = parser_of(verb)
            code = command.run(parser.parse_args(arguments_of(command, arguments)), terminal)
            sys.stdout.flush()
        except (UsageError, ConfigError) as error:
            terminal.error(str(error))
            return USAGE, error
        except (StateError, MissingExtraError) as error:
            terminal.error(str(error))
            return ENVIRONMENT, error
        except InternalFaultError as error:
            terminal.error(reports.line(error))
            return FAULT, error
        except SkillhouseError as error:
            terminal.error(str(error))
            # A password that cannot be asked for is a question like the others.
            return USAGE if getattr(error, "code", "") == "no-terminal" else FINDING, error
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.filename is None and (gone := _gone()) is not None:
                # What is asked for no name is where we are.
                terminal.error(str(gone))
                return ENVIRONMENT, gone
            terminal.error(_said(error, verb))
            return ENVIRONMENT, error
        except Exception as error:
            if is_of_interrupt(error):
                raise KeyboardInterrupt from error
            if (missing := _missing_extra(error)) is not None:
                terminal.error(str(missing))
                return ENVIRONMENT, missing
            fault = InternalFaultError(error)
            terminal.error(reports.line(fault))
            return FAULT, fault
    return code, None


def _said(error: OSError, verb: str) -> str:
    """Return the line about a fault of the system, with what to set where a home is read-only."""
    from skillhouse.floor import LocationError, Locations

    said = f"{(error.strerror or str(error)).lower()}: `{error.filename or verb}`"
    try:
        advice = Locations.here().advice(error)
    except LocationError:
        return said
    return f"{said}; {advice}" if advice else said


def _gone() -> Exception | None:
    """Return the error of a current directory that was removed; None while it is there."""
    from skillhouse.floor import LocationError, Locations

    try:
        Locations.here()
    except LocationError as error:
        return error
    return None


def _unknown(verb: str) -> str:
    from skillhouse.floor import nearest
    from skillhouse.tools.tool_set import BUILTIN_TOOLS

    close = nearest(verb, VERBS)
    hint = f"did you mean `{close[0]}`" if close else "`skillhouse help --all` lists the verbs"
    hint = f"it is a tool: `skillhouse call {verb}`" if verb in BUILTIN_TOOLS else hint
    hint = NO_VERBS.get(verb, hint)
    return f"unknown verb `{verb}`; {hint}"


def _help(*, everything: bool = False) -> str:
    """Return the verbs of a first day by task, or all."""
    width = max(map(len, VERBS)) + 2
    groups = {"verbs": tuple(VERBS)} if everything else SHOWN
    lines = []
    for title, verbs in groups.items():
        lines += [f"{title}:\n", *(f"  {one:<{width}}{VERBS[one][1]}\n" for one in verbs), "\n"]
    lines += _extension_lines(width)
    others = "" if everything else f"`skillhouse help --all` lists all {len(VERBS)} verbs.\n"
    return _INTRODUCTION + "".join(lines) + _CLOSING + others


def _extension_lines(width: int) -> list[str]:
    """Return the verbs that extensions of others add; nothing where there is none."""
    verbs = extension_verbs()
    if not verbs:
        return []
    from skillhouse.presentation.text import one_line

    lines = ["of extensions:\n"]
    for name, (extension, verb) in verbs.items():
        text = f"{one_line(verb.summary)} ({extension.name})"
        lines.append(f"  {name:<{width - 1}} {text}\n")
    return [*lines, "\n"]

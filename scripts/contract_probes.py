"""What `scripts/contract.py` runs in a process of its own: `contract_probes.py NAME` prints JSON.

The working directory is a project and HOME an empty home, both thrown away afterwards. Little here
imports a module below `skillhouse`: only its public names, the installed command, and libraries.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import enum
import importlib.metadata
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from scripts import contract_table as table
from scripts.config_reference import documents

import skillhouse
from skillhouse.floor import Locations, StateError, structs
from skillhouse.store import STATE_FILE, forget_state

main: Callable[[Sequence[str]], int] = next(
    iter(importlib.metadata.entry_points(group="console_scripts", name="skillhouse"))
).load()
"""The command line as it is installed."""

UNKNOWN_VERB = 2


class _ParserSeenError(BaseException):
    """Carries the parser of a verb out of the command line."""


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it printed on stdout."""
    output = io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(sys, "stdin", io.StringIO()),
    ):
        try:
            code = main(arguments)
        except SystemExit as ended:  # argparse ends `--help` so.
            code = int(ended.code or 0)
    return code, output.getvalue()


def verbs() -> list[str]:
    """Return the verbs: the words that begin an indented line of the help and are one."""
    words = re.findall(r"^  ([a-z][a-z-]*)\b", run("--help", "--all")[1], re.MULTILINE)
    return [word for word in dict.fromkeys(words) if run(word, "--help")[0] != UNKNOWN_VERB]


def command_line() -> dict[str, Any]:
    """Return each verb with what may follow it, from the parser that it makes."""
    return {verb: described_parser(parser_of(verb)) for verb in verbs()}


def parser_of(verb: str) -> argparse.ArgumentParser:
    """Return the parser that the command line makes for a verb."""

    def seen(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise _ParserSeenError(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", seen):
        try:
            main([verb])
        except _ParserSeenError as found:
            parser: argparse.ArgumentParser = found.args[0]
            return parser
    raise SystemExit(f"`{verb}` makes no parser of argparse")


def described_parser(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the arguments, options and words below a parser."""
    described: dict[str, Any] = {"arguments": {}, "options": {}, "verbs": {}}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them.
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            described["verbs"] = {
                name: described_parser(below) for name, below in action.choices.items()
            }
        elif action.option_strings:
            value = described_action(action)
            for option in action.option_strings:
                described["options"][option] = value
        else:
            # By its place: the name of an argument is a word of the help, and may get better.
            number = len(described["arguments"])
            described["arguments"][str(number)] = described_action(action)
    return {key: value for key, value in described.items() if value}


def described_action(action: argparse.Action) -> str | dict[str, Any]:
    """Return what an option or argument takes, in one line; beside it the words to choose from."""
    parts = [f"takes {action.nargs if action.nargs is not None else 1}"]
    if type(action).__name__ == "_AppendAction":
        parts.append("may be repeated")
    if action.required and action.option_strings:
        parts.append("required")
    plain = isinstance(action.default, (str, int, float))
    if plain and action.default not in (False, argparse.SUPPRESS):
        parts.append(f"default {action.default}")
    text = ", ".join(parts)
    if action.choices is None:
        return text
    return {"takes": text, "choices": dict.fromkeys(map(str, action.choices), "yes")}


def exit_codes() -> dict[str, int]:
    """Return the exit code of each command of the table, and of two over broken files."""
    found = {" ".join(line): run(*line)[0] for line in table.COMMANDS}
    file = _user_file()
    file.write_text("nonsense = 1", encoding="utf-8")
    found["list, with an unknown key in the configuration"] = run("list")[0]
    file.unlink()
    state = Path.home() / ".local/state/skillhouse/state.sqlite3"
    state.write_bytes(b"this is no database" * 100)
    found["list, with a state that is broken"] = run("list")[0]
    return found


def _user_file() -> Path:
    file = Path.home() / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def json_output() -> dict[str, Any]:
    """Return the keys of what the listing verbs print with `--json`."""
    run("trust", "--yes")
    for call in table.CALLED:
        run(*call)
    found = {}
    for line in table.LISTINGS:
        value = json.loads(run(*line, "--json")[1])
        found[" ".join(line)] = dict.fromkeys(sorted(set(keys_of(value))), "yes")
    return found


def keys_of(value: object, before: str = "") -> list[str]:
    """Return the paths of the keys in a JSON value; `[]` is any item of a list."""
    if isinstance(value, dict):
        is_free = before in table.FREE_KEYS
        below = [(f"{before}.{'*' if is_free else key}", item) for key, item in value.items()]
        return [path for at, item in below for path in keys_of(item, at)] or [before]
    if isinstance(value, list) and value and before not in table.MACHINES_LISTS:
        return [path for item in value for path in keys_of(item, f"{before}[]")]
    return [before]


def public_names() -> dict[str, str]:
    """Return what each name of the face is."""
    return {name: kind_of(getattr(skillhouse, name)) for name in vars(skillhouse)["__all__"]}


def kind_of(value: object) -> str:
    """Return the kind of a public name: what a program may do with it."""
    if not isinstance(value, type):
        return "function" if inspect.isfunction(value) else "type"
    if issubclass(value, BaseException):
        bases = [base.__name__ for base in value.__mro__ if base.__module__ == "builtins"]
        return "error" if issubclass(value, skillhouse.SkillhouseError) else f"error: {bases[0]}"
    return "enumeration" if issubclass(value, enum.Enum) else "class"


def members() -> dict[str, dict[str, str]]:
    """Return the documented members of public classes, and the words of enumerations."""
    found: dict[str, dict[str, str]] = {}
    for name, words in table.MEMBERS.items():
        cls = getattr(skillhouse, name)
        fields = set(structs.field_names(cls)) if _is_data(cls) else set()
        known = fields | set(dir(cls)) | set(getattr(cls, "__annotations__", ()))
        known |= _set_by(cls)
        found[name] = {word: "there" if word in known else "missing" for word in words.split()}
    for cls in (skillhouse.Effect, skillhouse.Severity):
        found[cls.__name__] = {member.name: str(member.value) for member in cls}
    return found


def _is_data(cls: type) -> bool:
    return structs.is_struct(cls)


def _set_by(cls: type) -> set[str]:
    """Return the attributes that the constructors of an ordinary class set on `self`."""
    source = "".join(
        inspect.getsource(vars(base)["__init__"])
        for base in cls.__mro__
        if inspect.isfunction(vars(base).get("__init__")) and not _is_data(base)
    )
    return set(re.findall(r"\bself\.(\w+)\b", source))


def calls() -> dict[str, str]:
    """Return whether each documented way of calling fits the signature."""
    return {line: _fits(line) for line in table.CALLS}


def _fits(line: str) -> str:
    path, _, words = line.removesuffix(")").partition("(")
    value: Any = skillhouse
    for part in path.split("."):
        value = getattr(value, part)
    given = [word for word in words.replace(",", " ").split() if not word.endswith("=")]
    keywords = {word[:-1]: None for word in words.replace(",", " ").split() if word.endswith("=")}
    if "." in path and inspect.isfunction(value):
        given.insert(0, "self")
    try:
        inspect.signature(value).bind(*given, **keywords)
    except TypeError as error:
        return f"refused: {error}"
    return "accepted"


def configuration() -> dict[str, dict[str, str]]:
    """Return for each key whether it is accepted, and whether the same misspelled is refused."""
    file = _user_file()
    found: dict[str, dict[str, str]] = {}
    for key, written in documents(table.SETTINGS).items():
        text = written.replace("@STATE@", str(Path.home()))
        found[key] = {"as written": _configured(file, text)}
        last = key.rpartition(".")[2]
        wrong = re.sub(rf"(?m)^{re.escape(last)}\b(?=.*= )", f"{last}_x", text)
        if wrong != text:
            found[key]["misspelled"] = _configured(file, wrong)
    file.unlink()
    for name, written in table.VARIABLES.items():
        value = written.replace("@STATE@", str(Path.home()))
        found[name] = {
            "as written": _with_variable(name, value),
            "misspelled": _with_variable(f"{name}_X", value),
        }
    project = Path("skillhouse.toml")
    run("trust", "--yes")
    for key, text in table.PROJECT_SETTINGS.items():
        project.write_text(text, encoding="utf-8")
        is_refused = any(each.code == "project-config" for each in _house_problems())
        found[f"project: {key}"] = {"as written": "refused" if is_refused else "accepted"}
    project.unlink()
    return found


def _configured(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    return _built()


def _with_variable(name: str, value: str) -> str:
    with mock.patch.dict(os.environ, {name: value}):
        return _built()


def _built() -> str:
    try:
        with skillhouse.Skillhouse():
            return "accepted"
    except skillhouse.ConfigError:
        return "refused"
    except StateError:
        # Of `[state]`: no server answers at that address.
        return "accepted"
    finally:
        forget_state(Locations.here().state() / STATE_FILE)


def _house_problems() -> Sequence[skillhouse.Diagnostic]:
    with skillhouse.Skillhouse() as house:
        return house.index.diagnostics


def profiles() -> dict[str, Any]:
    """Return what each shipped profile publishes: its words, and the tools under it."""
    names = [each["name"] for each in json.loads(run("profiles", "list", "--json")[1])["profiles"]]
    return {name: published(name) for name in names}


def published(name: str) -> dict[str, Any]:
    """Return the words of a profile, its tools' schemas, and what tools answer to a wrong name."""
    shown = json.loads(run("profiles", "show", name, "--json")[1])
    with skillhouse.Skillhouse(profile=name) as house:
        tools = {
            tool.name: {"schema": without_texts(tool.schema), "answer": _wrong(house, tool)}
            for tool in house.tools()
        }
    # The other values are behaviour: tests/profiles tries them.
    words = {key: shown[key] for key in ("messages", "metadata", "result", "load_style")}
    return {**words, "tools": tools}


def _wrong(house: skillhouse.Skillhouse, tool: skillhouse.Tool) -> Any:
    """Return the answer to a name that no skill has, where the profile's own tools ask for one."""
    if house.config.profile == "default" or "name" not in tool.schema.get("properties", {}):
        return None
    result = house.call_sync(tool.name, {"name": "no-such-skill"})
    return {"content": result.content, "status": result.status, "data": result.data}


def without_texts(schema: Any) -> Any:
    """Return a JSON Schema without its descriptions, which are text for a model."""
    if isinstance(schema, Mapping):
        return {
            key: without_texts(value)
            for key, value in schema.items()
            if not (key in ("description", "title") and isinstance(value, str))
        }
    return [without_texts(item) for item in schema] if isinstance(schema, list) else schema


def routes() -> None:
    """Run `skillhouse up`, but print the routes of its application instead of serving it."""
    import starlette.applications  # noqa: PLC0415 - only this probe needs the extra.
    import uvicorn  # noqa: PLC0415

    made: list[starlette.applications.Starlette] = []
    build = starlette.applications.Starlette.__init__

    def remembered(self: Any, *arguments: Any, **options: Any) -> None:
        build(self, *arguments, **options)
        made.append(self)

    async def served(*_: object, **__: object) -> None:
        await asyncio.sleep(0)

    with (
        mock.patch.object(starlette.applications.Starlette, "__init__", remembered),
        mock.patch.object(uvicorn.Server, "serve", served),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        main(["up", "--port", "0"])
    found = {}
    for route in [each for app in made for each in app.routes]:
        methods = sorted(getattr(route, "methods", None) or {"any"})
        found[f"{' '.join(methods)} {getattr(route, 'path', '?')}"] = "yes"
    print(json.dumps(found))


PROBES: dict[str, Callable[[], Any]] = {
    "command line": command_line,
    "exit codes": exit_codes,
    "json output": json_output,
    "public names": public_names,
    "members": members,
    "calls": calls,
    "configuration": configuration,
    "profiles": profiles,
}


if __name__ == "__main__":
    if sys.argv[1] == "routes":
        routes()
    else:
        print(json.dumps(PROBES[sys.argv[1]]()))

"""The example of docs/guides/python.md runs and is typed; public signatures show public names."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import skillhouse
from skillhouse import Config, ConfigFields, Skillhouse
from skillhouse.floor.structs import field_names
from tests.harness import ran

GUIDE = Path(__file__).parents[1] / "docs/guides/python.md"
LINES_MAX = 25
"""Lines of the program."""


def example(place: int = 0) -> str:
    return str(re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)[place])


@pytest.mark.slow
def test_the_program_of_the_guide_asks_is_denied_and_finds_all_in_the_log(tmp_path: Path):
    assert sum(bool(line.strip()) for line in example().splitlines()) <= LINES_MAX
    done = ran(
        [sys.executable, "-c", example()],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    asked, denied, refused, *logged = done.stdout.splitlines()
    assert asked == "ok 1.4 runs in staging"
    assert denied == "denied denied: rule `deploy prod*` of user policy"
    assert refused.startswith("denied not approved: no rule matches; `deploy` asks by default")
    assert logged == [
        f"{status} {{'environment': '{place}', 'version': '1.4'}}"
        for status, place in (("ok", "staging"), ("denied", "production"), ("denied", "test"))
    ]


@pytest.mark.slow
def test_the_second_program_of_the_guide_runs(tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = ran([sys.executable, "-c", example(1)], cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "ok 1.3, 1.4\n"), done.stderr


PROGRAM = Path(__file__).parent / "builder_program.py"


@pytest.mark.slow
def test_a_program_over_all_that_a_builder_uses_runs(tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = ran([sys.executable, str(PROGRAM)], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    pending = "no value, the call is `pending`\n"
    assert done.stdout == f"{pending}2 ['ok', 'pending', 'ok']\n1.3, 1.4\n"


def for_another_loop() -> str:
    """Return the second program of the guide with its line for another loop."""
    (line,) = re.findall(r"`(anyio\.run\(partial\(.*?\)\))`", GUIDE.read_text("utf-8"))
    program = example(1).replace(
        "import asyncio\n", "import anyio\nfrom functools import partial\n"
    )
    head, _, _ = program.partition("async def main()")
    sync = "with Skillhouse(tools=[versions]) as house:\n"
    return f"{head}{sync}    result = {line}\n    for each in result.value:\n        each.title()\n"


@pytest.mark.slow
def test_the_line_of_the_guide_for_another_loop_runs(tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = ran([sys.executable, "-c", for_another_loop()], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


SLIPS = {
    "first": (
        lambda: example(0),
        (
            ("layers=", "layer=", 'Unexpected keyword argument "layer" for "Skillhouse"'),
            ("tools=[deploy]", "tools=[print]", "List item 0 has incompatible type"),
            ('"deploy", {', '"deploy", 7, {', "Too many positional arguments"),
        ),
    ),
    "second": (
        lambda: example(1),
        (
            ('versions("production")', "versions(7)", 'expected "str"'),
            ("await versions", "versions", "Non-overlapping equality check"),
            ("join(result.value)", "join(result.value[0].real)", 'has no attribute "real"'),
            ("result.value)", "7, result.value)", "Too many arguments"),
            ("user=", "usr=", 'did you mean "user"'),
            ("wait=60", 'wait="long"', 'expected "float"'),
            ("Skillhouse.open(tools=", "Skillhouse.open(tool=", 'did you mean "tools"'),
        ),
    ),
    "loop": (for_another_loop, (("each.title", "each.real", 'has no attribute "real"'),)),
    "builder": (
        lambda: PROGRAM.read_text("utf-8"),
        (
            ("wait=5", "waits=5", 'did you mean "wait"'),
            ("done.value, int", "done.value, str", 'Expression is of type "int", not "str"'),
            ("asyncio.run(main())", "asyncio.run(main)", "incompatible type"),
            ("-> Answer | None", "-> str", "Incompatible types in assignment"),
            ("async with Skillhouse.open", "with Skillhouse.open", "has no attribute"),
            ("again.value) ==", "again.valu) ==", 'maybe "value"'),
            ("Answer.ONCE, by=", "'once', by=", 'expected "Answer"'),
            (", nonce=request.nonce", "", 'Missing named argument "nonce"'),
            ('session_id="first"', "session=1", "Unexpected keyword argument"),
            ("house.call_sync(versions", "house.call_sync(print", "incompatible type"),
        ),
    ),
}
"""By program: slips as what they replace by what, and what mypy says of each."""


@pytest.mark.slow
def test_mypy_finds_each_slip_in_the_programs_and_no_other_fault(tmp_path: Path):
    faults: dict[str, str] = {}
    for name, (read, slips) in SLIPS.items():
        text = read()
        for number, (old, new, fault) in enumerate((("", "", ""), *slips)):
            assert old in text, old
            faults[file := f"{name}_{number}.py"] = fault
            program = text.replace(old, new, 1) if old else text
            (tmp_path / file).write_text(program, encoding="utf-8")
    # One run, which reads the package once.
    files = sorted(str(tmp_path / file) for file in faults)
    done = ran([sys.executable, "-m", "mypy", "--strict", "--no-incremental", *files], cwd=tmp_path)
    for file, fault in faults.items():
        said = [line for line in done.stdout.splitlines() if file in line]
        assert any(fault in line for line in said) if fault else said == [], (file, said)


def test_the_keywords_of_a_house_are_the_fields_of_its_configuration():
    # `source` is where a configuration was read from, and no part of it.
    assert set(ConfigFields.__annotations__) == {*field_names(Config)} - {"source"}


HANDED = ("Skillhouse", "Tool", "Channel", "Reply", "Forecast", "ToolCall", "ToolResult", "Caller")
CLASSES = (*HANDED, "ApprovalRequest", "Config", "Layer", "Rule", "PermissionRequest", "Catalog")
PARTS = {"AgentView", "ConfigSource", "ForecastCache", "HouseSnapshot", "Policy"}
"""What frontends take from a `Skillhouse`, or keep in it; no program needs one to call it."""


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    for name in vars(skillhouse)["__all__"]:
        if inspect.isfunction(found := getattr(skillhouse, name)):
            yield name, found
    for name in CLASSES:
        for key, member in vars(getattr(skillhouse, name)).items():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and (key == "__init__" or not key.startswith("_")):
                yield f"{name}.{key}", function


def classes_of(kind: Any) -> Iterator[type]:
    if isinstance(kind, list):
        for one in kind:
            yield from classes_of(one)
    elif typing.get_args(kind):
        for one in typing.get_args(kind):
            yield from classes_of(one)
    elif inspect.isclass(kind):
        yield kind


def scope(function: Callable[..., object]) -> dict[str, Any]:
    """Return what the annotations of a function may name, those for type checkers included."""
    module = sys.modules[function.__module__]
    names = dict(vars(module))
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            if alias.name in names:
                continue
            source = importlib.import_module(str(node.module))
            if not hasattr(source, alias.name):
                importlib.import_module(f"{node.module}.{alias.name}")
            names[alias.name] = getattr(source, alias.name)
    return names


@pytest.mark.parametrize("name", [name for name, _ in functions()])
def test_what_a_public_signature_shows_is_public(name: str):
    function = dict(functions())[name]
    hints = typing.get_type_hints(function, scope(function))
    public = {getattr(skillhouse, one) for one in CLASSES} | {
        found
        for one in vars(skillhouse)["__all__"]
        if inspect.isclass(found := getattr(skillhouse, one))
    }
    shown = {kind for hint in hints.values() for kind in classes_of(hint)}
    ours = {kind for kind in shown if kind.__module__.startswith("skillhouse")}
    assert {kind.__name__ for kind in ours - public} <= PARTS


def test_no_keyword_of_a_house_takes_anything():
    for key in ("__init__", "call", "call_sync", "forecast", "invoke", "conversation"):
        function = getattr(Skillhouse, key)
        assert "Any" not in str(inspect.signature(function)), key

"""Pytest plugin: writes which requirements each test claims, how it came to them, and how it ended.

Load it with `-p req_plugin` and give a path in the environment variable `REQ_REPORT`; `REQ_ONLY` may name ids, with
commas between them, and then only the tests that claim one of them run. At the end of the session that
file holds JSON: `{node id: {"ids": ["S003-25"], "entries": ["library"], "profiles": ["openseed"], "outcome": "passed"}}`,
the outcome being passed, skipped or failed.

An entry point is what a user has: a function of the package's face or a method of its classes ("library"), or the
start of a frontend. Every call during a test that claims a line is watched, also in its threads; a process that is
started counts by its command line. What the package itself calls of its face is no entry.

A profile is noted when something comes to work by it: a house, a scan, a manager, a file that is read by its rules; see
`req_child/sitecustomize.py`, which looks for it in processes that a test starts, too.
"""

import functools
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import skillhouse
from skillhouse.skill import ParsePolicy, load_profile

CHILD = Path(__file__).resolve().parent / "req_child"
# Python may have imported another module of that name, which it takes at its own start.
_found = importlib.util.spec_from_file_location("req_child", CHILD / "sitecustomize.py")
if _found is None or _found.loader is None:
    raise ImportError(CHILD)
_child = importlib.util.module_from_spec(_found)
_found.loader.exec_module(_child)

PACKAGE = f"{Path(skillhouse.__file__).parent}{os.sep}"
PROPERTY = "req"
ENTRY = "entry"
PROFILE = "profile"
DESIGNS = ("owliabot", "opencode", "owliabot-js", "openseed", "claude-desktop")
FACES = ("skillhouse", "skillhouse.house", "skillhouse.install", "skillhouse.manage")
FRONTENDS = {
    "command line": ("skillhouse.frontends.cli", "main"),
    "MCP": ("skillhouse.frontends.mcp.server", "SkillhouseServer.__init__"),
    "HTTP": ("skillhouse.extensions.server.app", "make_app"),
    "chat": ("skillhouse.extensions.chat.conversation", "ChatConversation.__init__"),
    "executor": ("skillhouse.extensions.cells.worker.executor", "run_executor"),
    "adapter": ("skillhouse.frontends.adapters.framework_bridge", "FrameworkBridge.prompt"),
}
VERBS = {"mcp": "MCP", "up": "HTTP", "chat": "chat", "worker": "executor"}
# A test is as good as the worst of its phases; an outcome not named here (a rerun) is not final and is left out.
WORST_LAST = ("passed", "skipped", "failed")


class ReqReport:
    """Gathers the reports of one session and writes them when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[str, list[str]] = {}
        self.outcomes: dict[str, str] = {}
        self.entries: dict[str, list[str]] = {}
        self.profiles: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure proves nothing, whether it came or not.
        outcome = "skipped" if hasattr(report, "wasxfail") else report.outcome
        if outcome not in WORST_LAST or (outcome == "passed" and report.when != "call"):
            return
        before = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = max(before, outcome, key=WORST_LAST.index)
        ids = [str(value) for name, value in report.user_properties if name == PROPERTY]
        if ids or report.nodeid not in self.ids:
            self.ids[report.nodeid] = ids
        self.entries[report.nodeid] = [str(value) for name, value in report.user_properties if name == ENTRY]
        self.profiles[report.nodeid] = [str(value) for name, value in report.user_properties if name == PROFILE]

    def pytest_sessionfinish(self) -> None:
        found = {
            node: {
                "ids": self.ids[node],
                "entries": self.entries[node],
                "profiles": self.profiles[node],
                "outcome": outcome,
            }
            for node, outcome in sorted(self.outcomes.items())
        }
        self.path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "req(*ids): the requirements of docs/requirements.toml that the test shows")
    path = os.environ.get("REQ_REPORT")
    # Under pytest-xdist only the controller writes: it sees the reports of all workers.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ReqReport(Path(path)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Properties travel inside the reports, so the ids reach the controller of pytest-xdist.
    only = {*filter(None, os.environ.get("REQ_ONLY", "").split(","))}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        ids = dict.fromkeys(str(value) for marker in item.iter_markers("req") for value in marker.args)
        item.user_properties.extend((PROPERTY, value) for value in ids)
        (left_out if only and only.isdisjoint(ids) else kept).append(item)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


@functools.cache
def entry_codes() -> Mapping[CodeType, str]:
    """Return the code of every entry point with its name."""
    found: dict[CodeType, str] = {}
    for face in FACES:
        module = importlib.import_module(face)
        for name in module.__all__:
            for function in _functions(getattr(module, name)):
                found[function.__code__] = "library"
    for label, (place, path) in FRONTENDS.items():
        value: Any = importlib.import_module(place)
        for part in path.split("."):
            value = getattr(value, part)
        found[value.__code__] = label
    return found


def _is_value(cls: type) -> bool:
    return is_dataclass(cls) or hasattr(cls, "__struct_fields__")


def _functions(value: Any) -> Iterator[Any]:
    """Yield a function, or the public methods of a class that is more than a value."""
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value) and not _is_value(value) and not issubclass(value, BaseException):
        for name, member in vars(value).items():
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not name.startswith("_") and inspect.isfunction(function):
                yield function


class EntryWatch:
    """Notes which entry points and profiles are used while it is on, and which programs of ours are started."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.profiles: set[str] = set()
        self._of_profiles = _child.ProfileWatch(self.profiles.add)
        self._codes = entry_codes()
        self._popen = subprocess.Popen.__init__

    def __enter__(self) -> "EntryWatch":
        watch, popen = self, self._popen

        handle, self._report = tempfile.mkstemp(prefix="req-")
        os.close(handle)

        def started(process: Any, args: Any, *rest: Any, **more: Any) -> None:
            words = [str(word) for word in args] if isinstance(args, list | tuple) else str(args).split()
            for at, word in enumerate(words):
                if word == "skillhouse" or word.endswith("/skillhouse"):
                    watch.found.add(next((VERBS[w] for w in words[at + 1 :] if w in VERBS), "command line"))
                    given = os.environ if more.get("env") is None else more["env"]
                    path = os.pathsep.join(filter(None, (os.fspath(CHILD), given.get("PYTHONPATH", ""))))
                    more["env"] = {**given, "REQ_CHILD": self._report, "PYTHONPATH": path}
            popen(process, args, *rest, **more)

        subprocess.Popen.__init__ = started  # type: ignore[assignment, method-assign]
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        subprocess.Popen.__init__ = self._popen  # type: ignore[method-assign]
        self.profiles.update(Path(self._report).read_text(encoding="utf-8").split())
        os.unlink(self._report)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        self._of_profiles.called(frame, event, None)
        if not (label := self._codes.get(frame.f_code)):
            return
        caller = frame.f_back
        if label != "library" or caller is None or not caller.f_code.co_filename.startswith(PACKAGE):
            self.found.add(label)
            for value in frame.f_locals.values():
                if isinstance(value, ParsePolicy):
                    self.profiles.update(name for name, policy in parse_policies().items() if policy == value)


@functools.cache
def parse_policies() -> Mapping[str, ParsePolicy]:
    return {name: load_profile(name).parse_policy for name in DESIGNS}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("req") is None:
        return (yield)
    with EntryWatch() as watch:
        try:
            return (yield)
        finally:
            item.user_properties.extend((ENTRY, label) for label in sorted(watch.found))
            item.user_properties.extend((PROFILE, name) for name in sorted(watch.profiles))

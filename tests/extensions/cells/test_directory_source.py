"""Tests of the skills that an executor serves, and of what a call may say about itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.house.coded import ROOTS, tool, write_code

from skillhouse.extensions.cells import (
    CellResult,
    CellSpec,
    DirectorySource,
    RpcError,
    executor_methods,
)
from skillhouse.floor import tree_digest

KEY = "0" * 64


class Runs:
    """Stands where an executor does, and says whose code it was asked to run."""

    def __init__(self) -> None:
        self.specs: list[CellSpec] = []

    async def execute(self, spec: CellSpec, name: str, *_: Any, **__: Any) -> CellResult:
        self.specs.append(spec)
        return CellResult(kind="ok", value=name, seconds=0.0)

    async def reload(self, skill: str | None) -> None:
        """Nothing runs."""

    def health(self) -> Mapping[str, Any]:
        return {"status": "ok", "cells": 3}


class Quiet:
    async def ended(self) -> None:
        """Nothing was kept back."""


def asked(shelf: DirectorySource, method: str, params: Any, runs: Any, **more: Any) -> Any:
    """Return the answer of a method, after the skills were read."""

    async def scene() -> Any:
        host: Any = lambda context: Quiet()  # noqa: E731
        return await executor_methods(runs, shelf, host, **more)[method](params)

    return anyio.run(scene)


def read(*roots: Path) -> tuple[DirectorySource, Any]:
    shelf = DirectorySource(roots, shared={})
    return shelf, anyio.run(shelf.reload)


@pytest.mark.req("S002-17", "S002-18", "S002-57", "S002-58", "S002-61")
def test_what_is_there_is_served_and_what_is_broken_is_named(tmp_path: Path) -> None:
    write_code(tmp_path / "a/one", "", tool("b"), tool("a"), env=("KEY",))
    write_code(tmp_path / "b/one", "", tool("other"))
    write_code(tmp_path / "b/two", "", tool())
    (tmp_path / "b/broken").mkdir()
    (tmp_path / "b/broken/package.json").write_text('{"owliabot": {')
    shelf, (loaded, failed) = read(tmp_path / "a", tmp_path / "b", tmp_path / "missing")
    assert loaded == ["one", "two"]
    assert [name for name, _ in failed] == ["broken"]
    assert [one.name for one in shelf.tools()] == ["one:b", "one:a", "two:tool"]
    assert shelf.tools()[0].env == ("KEY",)
    assert shelf.tools()[0].info() == {
        "name": "one:b",
        "skill": "one",
        "description": "Does b.",
        "parameters": {"type": "object"},
        "security": {"level": "read"},
    }
    shutil.rmtree(tmp_path / "a/one")
    again = asked(shelf, "skill.reload", {}, Runs())
    assert again["loaded"] == ["one", "two"]
    assert [one.name for one in shelf.tools()] == ["one:other", "two:tool"]


@pytest.mark.req("S002-47", "S002-48")
def test_a_call_brings_declared_variables_only(tmp_path: Path) -> None:
    write_code(tmp_path / "one", "", tool(), env=("KEY",))
    shelf, _ = read(tmp_path)
    runs = Runs()
    context = {"env": {"KEY": "v"}, "meta": {"userId": "mika"}, "permissions": "default"}
    assert asked(shelf, "tool.execute", {"tool": "one:tool", "context": context}, runs) == {
        "success": True,
        "data": "tool",
    }
    [spec] = runs.specs
    assert (spec.env, spec.user, spec.permissions) == ({"KEY": "v"}, "mika", "default KEY")
    for name in ("PATH", "NODE_OPTIONS", "OTHER"):
        with pytest.raises(RpcError, match=f"does not declare `{name}`"):
            asked(shelf, "tool.execute", {"tool": "one:tool", "context": {"env": {name: ""}}}, runs)
    assert len(runs.specs) == 1


def test_code_that_was_not_judged_is_not_run_by_its_name(tmp_path: Path) -> None:
    skill = write_code(tmp_path / "one", "old = 1", tool())
    shelf, _ = read(tmp_path)
    runs = Runs()
    (skill / "main.py").write_text("new = 1")
    new = tree_digest(skill)
    params = {"tool": "one:tool", "context": {"digest": new}}
    asked(shelf, "tool.execute", params, runs)
    assert shelf.tools()[0].spec.digest == new
    # One that is not there goes to the executor as it is asked for, which copies and compares.
    params = {"tool": "one:tool", "context": {"digest": "skilltree1:gone"}}
    asked(shelf, "tool.execute", params, runs)
    assert [spec.digest for spec in runs.specs] == [new, "skilltree1:gone"]
    with pytest.raises(RpcError, match="unknown tool `one:other`"):
        asked(shelf, "tool.execute", {"tool": "one:other"}, runs)


@pytest.mark.parametrize(
    "context",
    [
        [], {"port": -1}, {"port": 65_536}, {"port": True}, {"port": "1"}, {"env": {"A": 1}},
        {"env": []}, {"meta": None}, {"capability": 1}, {"packages": "../x"}, {"packages": KEY[1:]},
        {"packages": f"{KEY}\n"}, {"other": ""}, {"digest": None},
    ],
)  # fmt: skip
def test_a_context_that_is_none_is_refused(tmp_path: Path, context: Any) -> None:
    write_code(tmp_path / "one", "", tool())
    shelf, _ = read(tmp_path)
    with pytest.raises(RpcError) as caught:
        asked(shelf, "tool.execute", {"tool": "one:tool", "context": context}, Runs())
    assert caught.value.code == -32602


def test_packages_come_from_the_store_or_not_at_all(tmp_path: Path) -> None:
    write_code(tmp_path / "skills/one", "", tool())
    shelf, _ = read(tmp_path / "skills")
    runs, params = Runs(), {"tool": "one:tool", "context": {"packages": KEY}}
    with pytest.raises(RpcError, match="this executor has no packages"):
        asked(shelf, "tool.execute", params, runs)
    with pytest.raises(RpcError, match="are not there"):
        asked(shelf, "tool.execute", params, runs, packages=tmp_path)
    place = tmp_path / KEY / "packages"
    place.mkdir(parents=True)
    asked(shelf, "tool.execute", params, runs, packages=tmp_path)
    assert [spec.dependencies for spec in runs.specs] == [place]


@pytest.mark.req("S002-19", "S002-120")
def test_the_methods_are_those_of_the_design_and_two_more(tmp_path: Path) -> None:
    shelf, _ = read(ROOTS["python"])
    methods = executor_methods(Runs(), shelf, lambda context: Quiet())  # type: ignore[arg-type,return-value]
    named = ["tool.execute", "tool.check", "tool.list", "skill.reload", "skill.load", "health"]
    assert list(methods) == named
    assert asked(shelf, "health", None, Runs()) == {"status": "ok"}
    names = [one["name"] for one in asked(shelf, "tool.list", None, Runs())]
    assert names == ["crypto-balance:get_balance", "crypto-price:get_price"]

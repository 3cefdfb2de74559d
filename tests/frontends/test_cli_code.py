"""Tests of `tools list` and `reload`."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.frontends.mcp_peer import environment_of
from tests.house.coded import ROOTS, best_sandbox, tool, write_code

GIVES = "tools = {'tool': lambda params, context: 1}\n"


@pytest.fixture
def enabled(place: Path) -> Path:
    """A place whose user turned skills' code on."""
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[skill_code]\nenabled = true\n[agents.plain]\n")
    return place


@pytest.mark.req("S002-17", "S002-71")
def test_every_tool_is_listed_with_both_its_names_and_its_level(run: Run, enabled: Path) -> None:
    root = str(ROOTS["python"])
    code, out, err = run("tools", "list", "--root", root, "--json")
    assert (code, err) == (0, "")
    tools = {found["full_name"]: found for found in json.loads(out)["tools"]}
    price = tools["crypto-price:get_price"]
    assert (price["name"], price["skill"], price["level"]) == (
        *("crypto-price__get_price", "crypto-price", "read"),
    )
    assert price["description"] == "Get current price of a cryptocurrency"
    assert price["parameters"]["required"] == ["coin"]
    assert (tools["read"]["name"], tools["read"]["skill"]) == ("read", None)
    code, out, err = run("tools", "list", "--root", root, "--agent", "plain")
    assert (code, err) == (0, "")
    assert "crypto-price:get_price" in out
    assert "read: Get current price of a cryptocurrency" in out
    assert out.endswith(f"{len(tools)} tools, 2 of skills\n")
    assert run("tools", "list", "--agent", "nobody")[0] == 2


def test_code_that_is_off_is_not_listed_and_reload_says_how_to_turn_it_on(
    run: Run, place: Path
) -> None:
    root = ("--root", str(ROOTS["python"]))
    assert run("tools", "list", *root)[1].endswith(", 0 of skills\n")
    code, out, err = run("reload", *root)
    assert (code, out) == (0, "")
    assert "`enabled = true` below `[skill_code]`" in err


@pytest.mark.slow
@pytest.mark.req("S002-18", "S002-38", "S002-40", "S002-52", "S002-54", "S002-61")
def test_reload_says_what_can_be_used_and_what_fails(run: Run, enabled: Path, need: Any) -> None:
    best_sandbox(need)
    root = enabled / "skills"
    write_code(root / "good", GIVES)
    write_code(root / "less", GIVES, tool("tool"), tool("absent"))
    write_code(root / "broken", "1 / 0\n")
    write_code(root / "empty", "value = 1\n")
    write_code(root / "wrong", GIVES, tool(level="root"))
    code, out, _ = run("reload", "--root", str(root), "--json")
    found = json.loads(out)
    assert (code, found["loaded"]) == (1, ["good:tool", "less:tool"])
    steps = [(Path(one["directory"]).name, one["step"]) for one in found["steps"]]
    read = ["read", "parsed", "validated"]
    assert {name: [step for of, step in steps if of == name] for name, _ in steps} == {
        "good": [*read, "imported", "exports checked", "registered"],
        "less": [*read, "imported", "exports checked", "registered"],
        # Read well, and then refused: by the cell, and by what its manifest says.
        "broken": read,
        "empty": read,
        "wrong": ["read", "parsed"],
    }
    failed = {failure["name"]: failure["error"] for failure in found["failed"]}
    manifest = str(root / "wrong/pyproject.toml")
    assert sorted(failed) == sorted(["broken", "empty", "less:absent", manifest])
    assert "ZeroDivisionError" in failed["broken"]
    assert "tools" in failed["empty"]
    code, out, err = run("reload", "--root", str(root))
    assert code == 1
    assert "good:tool\n" in out
    assert f"{manifest}:" in out
    assert err == "2 tools of skills, 4 failed\n"
    code, out, err = run("tools", "list", "--root", str(root))
    assert "less:tool" in out
    assert "less:absent" not in out


@pytest.mark.slow
def test_a_long_reload_says_how_far_it_is_and_ends_with_ctrl_c(enabled: Path, need: Any) -> None:
    best_sandbox(need)
    for name, seconds in (("quick", 0), ("slow", 2), ("slowest", 9)):
        write_code(enabled / "skills" / name, f"import time\ntime.sleep({seconds})\n{GIVES}")
    ours, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "skillhouse", "reload", "--root", str(enabled / "skills")],
        env=environment_of(enabled / "home"),
        cwd=enabled / "project",
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    try:
        assert re.fullmatch(rb"loaded [12] of 3 skills\r\n", os.read(ours, 1_000))
        copies = enabled / "home/.local/state/skillhouse/cells/cells"
        assert {path.name.split("-")[1].split(".")[0] for path in copies.iterdir()} == {
            f"{process.pid:x}"
        }
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == ""
        assert process.returncode == 128 + signal.SIGINT
        assert list(copies.iterdir()) == []
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def test_code_that_is_asked_about_is_not_run_to_see_whether_it_loads(
    run: Run, enabled: Path
) -> None:
    write_code(enabled / "project/.agents/skills/local", "1 / 0\n")
    run("trust", "--yes")
    code, out, err = run("reload")
    assert (code, out) == (0, "local:tool (asked about, not loaded)\n")
    assert err == "1 tool of skills, 0 failed\n"


@pytest.mark.slow
def test_a_call_says_on_stderr_how_far_it_is(run: Run, enabled: Path, need: Any) -> None:
    best_sandbox(need)
    tells = """
        def tool(params, context):
            context.progress(0.5, "half\\x1b[2J")
            return "done"

        tools = {"tool": tool}
    """
    write_code(enabled / "skills/one", tells)
    called = run("call", "one:tool", "--root", str(enabled / "skills"))
    assert called == (0, "done\n", "50% half [2J\n")


def test_code_alone_is_found_rehearsed_switched_and_listed(run: Run, enabled: Path) -> None:
    skills = enabled / "home/.config/skillhouse/skills"
    write_code(skills / "prices", GIVES, tool("now"), tool("buy", "write"))
    (write_code(skills / "wrong", GIVES) / "pyproject.toml").write_text(
        '[project]\nname = "wrong"\n[[tool.skillhouse.tools]]\nname = "x"\n'
    )
    code, out, _ = run("search", "prices")
    assert code == 0
    assert "prices:now (read), prices:buy (write)" in " ".join(out.split())
    code, out, _ = run("search", "prices", "--json")
    assert [(one["id"], one["tools"]) for one in json.loads(out)["code"]] == [
        ("user:prices", ["prices:now", "prices:buy"])
    ]
    code, out, _ = run("rehearse", "prices", "--json")
    assert [(one["tool"], one["level"], one["effect"]) for one in json.loads(out)["code"]] == [
        ("prices:now", "read", "allow"),
        ("prices:buy", "write", "ask"),
    ]
    assert re.search(r"ask\s+prices:buy \(write\)", run("rehearse", "prices")[1])
    found = json.loads(run("list", "--json")[1])
    assert found["listings"] == {"listed": 3, "tools": 1}
    assert found["states"] == {"in-use": 4, "broken": 1}
    # It has the same id in each verb.
    assert run("disable", "prices")[1] == "user:prices is disabled\n"
    assert json.loads(run("search", "prices", "--json")[1])["code"] == []
    code, out, _ = run("list")
    assert "disabled: 1\n  user:prices" in out
    assert "with tools of their own" not in out
    code, out, _ = run("list", "--problem", "broken")
    assert (code, "wrong" in out) == (1, True)
    assert json.loads(run("show", "user:prices", "--json")[1])["code"]["name"] == "prices"
    assert run("enable", "user:prices")[1] == "user:prices is enabled\n"
    assert "prices  Python: now (read), buy (write)" in run("list")[1]


def test_where_code_is_off_a_list_says_so_and_nothing_is_wrong(run: Run, place: Path) -> None:
    write_code(place / "home/.config/skillhouse/skills/prices", GIVES)
    _, out, _ = run("list")
    assert "prices  Python: tool (read); off" in out
    assert run("list", "--problem")[0] == 0
    _, out, _ = run("list", "--problem", "code-off")
    assert "not offered: skills' code is off: 1" in out
    assert "set `enabled = true` below `[skill_code]`" in " ".join(out.split())

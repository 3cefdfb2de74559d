"""Tests of `artifacts`: list, show, save and remove what skills' code wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.house.coded import best_sandbox, write_code

pytestmark = pytest.mark.slow

CHART = """
    def tool(params, context):
        (context.output / "plots").mkdir()
        (context.output / "plots/chart.png").write_bytes(b"png")
        (context.output / "a b.txt").write_text("hello")
        return 1

    tools = {"tool": tool}
"""


@pytest.fixture
def kept(run: Run, place: Path, need: Any) -> str:
    """A call whose files are kept; the id of them."""
    best_sandbox(need)
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    write_code(place / "skills/kite", CHART)
    file.write_text(f'roots = ["{place}/skills"]\n[skill_code]\nenabled = true\n')
    code, out, err = run("call", "kite:tool", "--json")
    assert code == 0, err
    files = json.loads(out)["artifacts"]
    sizes = {one["name"]: one["bytes"] for one in files}
    assert sizes == {"a b.txt": 5, "plots/chart.png": 3}
    found = str(files[0]["uri"].split("/")[3])
    assert len(found) == 32
    return found


def test_a_call_says_what_it_kept_and_how_to_save_it(run: Run, kept: str) -> None:
    code, out, err = run("call", "kite:tool")
    assert (code, out) == (0, "1\n")
    first, second = err.splitlines()
    assert first.startswith("kept: a b.txt (5 bytes): skillhouse artifacts save ")
    assert first.endswith(" 'a b.txt'")
    assert second.endswith(" plots/chart.png")


def test_the_list_has_each_call_newest_first(run: Run, kept: str) -> None:
    code, out, _ = run("artifacts", "--json")
    listed = json.loads(out)
    (one,) = listed["artifacts"]
    assert (code, listed["total"], one["id"], one["tool"]) == (0, 1, kept, "kite:tool")
    assert (one["agent"], one["user"], one["channel"]) == ("default", "local", "cli")
    code, out, _ = run("artifacts", "list")
    assert code == 0
    assert out.startswith(kept[:8])
    assert out.endswith("  kite:tool: 2 files, 8 bytes: a b.txt, plots/chart.png\n")
    assert run("artifacts", "list", "--tool", "other:tool")[1:] == ("", "no files are kept\n")


def test_show_has_digests_and_takes_the_beginning_of_an_id(run: Run, kept: str) -> None:
    code, out, _ = run("artifacts", "show", kept[:6])
    assert code == 0
    assert "plots/chart.png: 3 bytes, image/png\n  sha256:" in out
    code, out, _ = run("artifacts", "show", kept, "--json")
    assert [one["media_type"] for one in json.loads(out)["files"]] == ["text/plain", "image/png"]
    code, out, _ = run("artifacts", "show", "ffffffff", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (1, "unknown-artifact")


def test_save_writes_below_a_directory_and_over_nothing(run: Run, kept: str, place: Path) -> None:
    target = place / "saved"
    target.mkdir()
    code, _, err = run("artifacts", "save", kept[:8], "--to", str(target))
    assert (code, err) == (0, "")
    assert (target / "plots/chart.png").read_bytes() == b"png"
    assert (target / "a b.txt").read_text() == "hello"
    (target / "a b.txt").write_text("mine")
    code, _, err = run("artifacts", "save", kept[:8], "a b.txt", "--to", str(target))
    assert code == 1
    assert "is there already" in err
    assert (target / "a b.txt").read_text() == "mine"
    code, _, err = run("artifacts", "save", kept[:8], "none.txt", "--to", str(target))
    assert (code, "has no file `none.txt`" in err) == (1, True)


def test_save_goes_through_no_link(run: Run, kept: str, place: Path) -> None:
    target = place / "saved"
    target.mkdir()
    (place / "elsewhere").mkdir()
    os.symlink(place / "elsewhere", target / "plots")
    code, _, _ = run("artifacts", "save", kept, "plots/chart.png", "--to", str(target))
    assert code != 0
    assert list((place / "elsewhere").iterdir()) == []


def test_remove_takes_one_call_or_all(run: Run, kept: str) -> None:
    assert run("artifacts", "remove")[0] == 2
    code, out, _ = run("artifacts", "remove", kept[:8])
    assert (code, out.startswith(f"removed: {kept[:8]}")) == (0, True)
    assert run("artifacts", "remove", kept)[0] == 1
    run("call", "kite:tool")
    run("call", "kite:tool")
    code, out, _ = run("artifacts", "remove", "--all", "--json")
    assert (code, json.loads(out)["total"]) == (0, 2)
    assert json.loads(run("artifacts", "--json")[1])["artifacts"] == []

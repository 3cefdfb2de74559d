"""Tests of frontends/cli/progress.py, and of the verbs that use it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from skillhouse.frontends.cli.progress import ReadingProgress
from skillhouse.frontends.cli.terminal import Terminal
from tests.frontends.conftest import Run
from tests.harness import Screen
from tests.house.places import write_skill

TEXT = "reading skills for the search index"


def shown(errors: io.StringIO, times: list[float]) -> str:
    """Return what is written when a skill is read at each of these times."""
    clock = iter([0.0, *times])
    progress = ReadingProgress(Terminal(io.StringIO(), errors, {}), clock=lambda: next(clock))
    for done in range(len(times)):
        progress(done, len(times))
    progress.end()
    return errors.getvalue()


def test_what_is_soon_done_needs_no_word() -> None:
    assert shown(Screen(), [0.1, 0.5, 0.9]) == ""


def test_a_terminal_has_a_bar_that_goes_away() -> None:
    assert shown(Screen(), [0.5, 1.0, 1.05, 1.1]) == (
        f"\r[#####...............] {TEXT}: 1 of 4\x1b[K"
        f"\r[###############.....] {TEXT}: 3 of 4\x1b[K"
        "\r\x1b[K"
    )


def test_a_log_has_a_line_now_and_then() -> None:
    assert shown(io.StringIO(), [0.5, 1.0, 9.0, 11.0]) == f"{TEXT}: 1 of 4\n{TEXT}: 3 of 4\n"


@pytest.mark.parametrize("verb", ["search", "rehearse"])
def test_a_library_that_was_read_once_is_not_read_again(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """Review D2: `search` and `rehearse` read and indexed every body at each call."""
    monkeypatch.setattr("skillhouse.discovery.scan.FRESH_NANOSECONDS", 0)
    root = tmp_path / "root"
    for number in range(9):
        write_skill(root / f"kite-{number}", body="Needs gravel.\n")
    code, first, _ = run(verb, "gravel", "--root", str(root))
    assert code == 0
    monkeypatch.setattr("skillhouse.retrieval.index.load_body", pytest.fail)
    assert run(verb, "gravel", "--root", str(root))[:2] == (0, first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", ["", "🎉", "\0", '" OR NEAR( * ^', "طائرة \u202e", "kite " * 20_000, "数据" * 16_000]
)
def test_no_query_fails_in_a_terminal(run: Run, tmp_path: Path, query: str) -> None:
    write_skill(tmp_path / "root/kite")
    code, _, error = run("search", query, "--root", str(tmp_path / "root"))
    # 1 is that nothing was found.
    assert (code in (0, 1), "Traceback" in error) == (True, False), error

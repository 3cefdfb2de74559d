"""Downloads of `install` as a person sees them: bars, logs, Ctrl-C, and what the next run does."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillhouse.frontends.cli.progress import TransferProgress
from skillhouse.frontends.cli.terminal import Terminal
from skillhouse.registry import GitRepository, pack, parse_source
from tests.frontends.conftest import Run
from tests.frontends.terminals import Seat
from tests.frontends.test_cli_repositories import configure
from tests.harness import Screen
from tests.loopback_http import QuietHandler, served
from tests.registry.repositories import StaticRepository
from tests.registry.sources import git_server, make_repository, make_skill
from tests.registry.test_git_repository import program

AGREED = ("--yes", "--allow-unsigned")


def shown(
    errors: io.StringIO,
    steps: Sequence[tuple[float, int, int, str]],
    monkeypatch: pytest.MonkeyPatch,
    columns: int = 80,
) -> str:
    """Return what is written when so much has arrived at each of these times."""
    monkeypatch.setenv("COLUMNS", str(columns))
    clock = iter([0.0, 0.0, *(time for time, *_ in steps)])
    progress = TransferProgress(Terminal(io.StringIO(), errors, {}), clock=lambda: next(clock))
    progress.begin()
    for _, done, total, unit in steps:
        progress(done, total, unit)
    return errors.getvalue()


def test_a_bar_shows_size_and_rate_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(0.5, 0, 48_000_000, "bytes"), (2.0, 12_000_000, 48_000_000, "bytes")]
    said = shown(Screen(), steps, monkeypatch)
    assert said == "\r[#####...............] 12.0 MB of 48.0 MB, 6.0 MB/s\x1b[K"


def test_what_an_earlier_run_left_does_not_count_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(0.1, 40_000_000, 48_000_000, "bytes"), (2.0, 42_000_000, 48_000_000, "bytes")]
    assert "42.0 MB of 48.0 MB, 1.0 MB/s" in shown(Screen(), steps, monkeypatch)


def test_an_unknown_size_has_no_bar_and_a_narrow_terminal_none_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = shown(Screen(), [(2.0, 0, 0, "bytes"), (3.0, 900, 0, "bytes")], monkeypatch)
    assert said.endswith("\r900 bytes, 300 bytes/s\x1b[K")
    said = shown(Screen(), [(2.0, 5, 10, "objects")], monkeypatch, columns=20)
    assert said == "\r5 of 10 objects\x1b[K"
    said = shown(Screen(), [(2.0, 10**12, 10**12, "bytes")], monkeypatch, columns=20)
    assert len(said) <= len("\r\x1b[K") + 19


def test_a_log_gets_lines_and_no_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(time, time * 1_000, 60_000, "bytes") for time in range(1, 31)]
    assert shown(io.StringIO(), steps, monkeypatch).splitlines() == [
        "1.0 kB of 60.0 kB, 0 bytes/s",
        "11.0 kB of 60.0 kB, 909 bytes/s",
        "21.0 kB of 60.0 kB, 952 bytes/s",
    ]


class Slow:
    """A server that sends the first part of an archive, and the rest when it is let go."""

    def __init__(self, data: bytes, first: int) -> None:
        self.data = data
        self.first = first
        self.go = threading.Event()
        self.asked: list[str] = []

    @contextmanager
    def served(self) -> Iterator[str]:
        outer = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                span = self.headers.get("Range", "")
                outer.asked.append(span)
                start = int(span.removeprefix("bytes=").rstrip("-") or 0)
                body = outer.data[start:]
                self.send_response(206 if span else 200)
                self.send_header("ETag", '"one"')
                self.send_header("Content-Length", str(len(body)))
                if span:
                    end = len(outer.data) - 1
                    self.send_header("Content-Range", f"bytes {start}-{end}/{end + 1}")
                self.end_headers()
                head = max(0, outer.first - start)
                self.wfile.write(body[:head])
                self.wfile.flush()
                outer.go.wait()
                self.wfile.write(body[head:])

        with served(Handler) as address:
            try:
                yield address
            finally:
                self.go.set()


@pytest.fixture
def large(tmp_path: Path) -> bytes:
    skill = make_skill(tmp_path / "sources/notes")
    (skill / "noise.bin").write_bytes(os.urandom(2_000_000))
    return pack(skill).archive


def left_over(place: Path) -> list[str]:
    """Return what an install that was stopped left below the home, but for logs and caches."""
    home = place / "home"
    places = (home / ".agents", home / ".config/skillhouse")
    return sorted(str(one.relative_to(home)) for top in places for one in top.rglob("*"))


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_in_force_and_the_next_run_goes_on(
    run: Run, place: Path, large: bytes
) -> None:
    slow = Slow(large, 1_000_000)
    before = left_over(place)
    with slow.served() as address:
        url = f"{address}/notes.tar.gz"
        seat = Seat(place, "install", url, *AGREED)
        seat.until("1.0 MB of 2.0 MB")
        seat.type("\x03")
        assert seat.end() == 130
        assert seat.text.endswith("\r\x1b[K\x1b[31mskillhouse: \x1b[0mstopped\r\n")
        assert left_over(place) == before
        (kept,) = (place / "home/.cache/skillhouse/downloads").iterdir()
        assert kept.stat().st_size > 1_000_000
        slow.go.set()
        code, out, err = run("install", url, *AGREED)
        assert code == 0, err
    assert slow.asked == ["", "bytes=1000000-"]
    assert "notes is installed" in out
    assert not kept.exists()
    assert run("verify", "notes")[0] == 0


def test_json_is_alone_on_stdout(run: Run, place: Path, large: bytes) -> None:
    slow = Slow(large, 0)
    slow.go.set()
    with slow.served() as address:
        code, out, err = run("install", f"{address}/notes.tar.gz", "--json", *AGREED)
    assert code == 0
    assert json.loads(out)["skills"][0]["status"] == "installed"
    assert "fetching" in err
    assert "\x1b" not in err


def test_a_cut_archive_is_continued_within_one_run(run: Run, place: Path, large: bytes) -> None:
    asked: list[str | None] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            span = self.headers.get("Range")
            asked.append(span)
            start = int((span or "bytes=0-")[6:-1])
            end = min(start + 800_000, len(large))
            headers = {
                "ETag": '"one"',
                "Content-Length": str(len(large) - start),
                "Content-Range": f"bytes {start}-{len(large) - 1}/{len(large)}",
            }
            self.answer(206 if span else 200, large[start:end], headers)

    with served(Handler) as address:
        assert run("install", f"{address}/notes.tar.gz", *AGREED)[0] == 0
    assert asked == [None, "bytes=800000-", "bytes=1600000-"]


def test_git_says_how_far_it_is(place: Path) -> None:
    make_repository(make_skill(place / "repos/origin/notes").parent)
    steps: list[tuple[int, int, str]] = []
    with served(git_server(place / "repos")) as address:
        source = parse_source(f"{address}/origin/.git", place, home=place)

        def progress(done: int, total: int, unit: str) -> None:
            steps.append((done, total, unit))

        with GitRepository(program(), source, progress=progress) as repository:
            assert [one.path for one in repository.files()] == [
                "notes/SKILL.md",
                "notes/scripts/run.sh",
            ]
    assert {unit for _, _, unit in steps} == {"objects", "objects packed by the server"}
    assert steps[-1] == (6, 6, "objects")


def test_an_archive_of_a_repository_is_continued_as_well(run: Run, place: Path) -> None:
    repository = StaticRepository(place / "official")
    skill = make_skill(place / "sources/notes")
    (skill / "noise.bin").write_bytes(os.urandom(1_000_000))
    repository.publish(skill)
    asked: list[tuple[str, str]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            file = place / "official" / self.path.lstrip("/")
            data = file.read_bytes() if file.is_file() else b""
            span = self.headers.get("Range", "")
            is_blob = self.path.startswith("/blobs/")
            if is_blob:
                asked.append((span, self.headers.get("If-Range", "")))
            start = int(span.removeprefix("bytes=").rstrip("-") or 0)
            headers = {
                "ETag": '"one"',
                "Content-Length": str(len(data) - start),
                "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}",
            }
            part = data[start : start + 600_000] if is_blob else data
            self.answer(206 if span else 200 if data else 404, part, headers)

    with served(Handler) as address:
        configure(place, ("official", address, True))
        code, _, err = run("install", "notes", *AGREED)
    assert code == 0, err
    assert asked == [("", ""), ("bytes=600000-", '"one"')]

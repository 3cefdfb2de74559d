"""Attacks on the files of long results: other sessions, links, secrets, floods, leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.house import SandboxSettings, Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.tools import OUTPUT_MAX, RESULT_MAX, ResultFiles, ToolResult
from skillhouse.tools.call import Excerpt
from skillhouse.tools.delivery import CONCEALED_FACTOR, Delivery
from skillhouse.tools.result_files import SESSION_FILES, TOTAL_FILES
from tests.house.places import make_places
from tests.house.test_network import SECRET as NET_SECRET
from tests.house.test_network import house_with, table
from tests.tools.houses import Person, house_at
from tests.tools.test_result_files import kept_path, paths, session

RUN = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
SECRET = "TOKEN-0123456789-abcdefghij"
MASK = "[secret KEY]"


def spilled(house: Skillhouse, **caller: str) -> str:
    return kept_path(house.call_sync("exec", {"command": "seq 1 20000"}, **caller))  # type: ignore[arg-type]


@pytest.mark.slow
def test_no_other_session_agent_user_or_client_reads_a_result(tmp_path: Path) -> None:
    with house_at(tmp_path, RUN) as house:
        path = spilled(house, client="a", connection="1", session_id="s")
        own = house.call_sync("read", {"path": path}, client="a", connection="1", session_id="s")
        assert own.content.startswith("1\n2\n")
        for other in (
            {"client": "b", "connection": "1", "session_id": "s"},
            {"client": "a", "connection": "2", "session_id": "s"},
            {"client": "a", "connection": "1", "session_id": "t"},
            {"client": "a", "connection": "1", "session_id": "s", "user": "eve"},
            {"client": "a", "connection": "1", "session_id": "s", "channel": "chat"},
        ):
            result = house.call_sync("read", {"path": path}, **other)  # type: ignore[arg-type]
            assert result.status == "error"
            assert "no result of this conversation" in result.content


@pytest.mark.slow
def test_a_foreign_result_and_a_guess_get_the_same_answer(tmp_path: Path) -> None:
    with house_at(tmp_path, RUN) as house:
        path = Path(spilled(house, session_id="mine"))
        guess = path.with_name("0" * 32 + ".txt")
        foreign, guessed = (
            house.call_sync("read", {"path": str(p)}).content.replace(p.name, "")
            for p in (path, guess)
        )
        assert foreign == guessed


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["{path}/../{name}", "{directory}/./{name}", "/{path}", "{directory}", "{link}"]
)
def test_no_other_spelling_of_the_path_opens_it(tmp_path: Path, way: str) -> None:
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, RUN, person=person) as house:
        path = Path(spilled(house, session_id="mine"))
        link = tmp_path / "project/link.txt"
        link.symlink_to(path)
        wanted = way.format(path=path, name=path.name, directory=path.parent, link=link)
        result = house.call_sync("read", {"path": wanted})
        assert result.is_error
        assert "\n2\n" not in result.content


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["exec", "write", "edit", "list"])
def test_no_other_tool_opens_a_result(tmp_path: Path, tool: str) -> None:
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, RUN, person=person) as house:
        path = spilled(house)
        arguments = {
            "exec": {"command": f"cat {path}"},
            "write": {"path": path, "content": "x"},
            "edit": {"path": path, "old": "2\n", "new": "x"},
            "list": {"path": path},
        }[tool]
        result = house.call_sync(tool, arguments)
        assert result.is_error
        assert "\n2\n" not in result.content
        assert Path(path).read_text().startswith("1\n2\n")


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["link", "other", "appended", "shorter", "gone", "fifo"])
def test_a_replaced_file_is_not_given(tmp_path: Path, planted: str) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("private")
    with house_at(tmp_path, RUN) as house:
        path = Path(spilled(house))
        text = path.read_text()
        path.unlink()
        if planted == "link":
            path.symlink_to(outside)
        elif planted == "fifo":
            os.mkfifo(path)
        elif planted != "gone":
            path.write_text({"other": "private", "appended": text + "x", "shorter": "1\n"}[planted])
        result = house.call_sync("read", {"path": str(path)})
        assert result.status == "error"
        assert "was changed or removed; make the call again" in result.content
        assert "private" not in result.content


def masked(text: str) -> str:
    return text.replace(SECRET, MASK)


def delivered(results: ResultFiles, text: str, excerpt: Excerpt) -> ToolResult:
    delivery = Delivery(masked, results, has_read=lambda: True)
    result = ToolResult(content=text, data={"text": text}, excerpt=excerpt)
    return anyio.run(delivery.delivered, result, session())


@pytest.mark.parametrize("excerpt", ["head", "ends"])
@pytest.mark.parametrize(
    "size", [RESULT_MAX + 1, OUTPUT_MAX + 1, CONCEALED_FACTOR * OUTPUT_MAX + 1]
)
@pytest.mark.parametrize("shift", [0, 9, 18])
def test_a_secret_across_a_cut_is_in_neither_part(
    tmp_path: Path, size: int, shift: int, excerpt: Excerpt
) -> None:
    # Wherever a text of these is cut, it is in the middle of one.
    results = ResultFiles(tmp_path)
    result = delivered(results, "x" * shift + SECRET * (4 * size // len(SECRET)), excerpt)
    (path,) = paths(results)
    everything = result.content + str(result.data) + path.read_text()
    assert MASK in result.content
    assert not any(SECRET[at : at + 9] in everything for at in range(len(SECRET) - 8))


@pytest.mark.slow
def test_no_file_holds_a_secret_that_no_record_may_hold(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"SERVICE_TOKEN": SECRET})
    rules = (Layer(name="user", rules=(RUN,)),)
    with Skillhouse(configured(places), channel=Person(), layers=rules) as house:
        shown = "x" * (RESULT_MAX // 2 - 330) + SECRET
        (places.start / "a.txt").write_text(f"{SECRET}\n{shown}\n" + "line\n" * 20_000)
        result = house.call_sync("exec", {"command": "cat a.txt"})
        text = Path(kept_path(result)).read_text()
    everything = result.content + str(result.data) + text
    assert not any(SECRET[at : at + 9] in everything for at in range(len(SECRET) - 8))
    assert text.startswith("[REDACTED]\n")


@pytest.mark.slow
def test_a_secret_across_what_is_left_out_of_an_output_is_in_neither_part(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"SERVICE_TOKEN": SECRET})
    rules = (Layer(name="user", rules=(RUN,)),)
    limits = SandboxSettings(output_bytes=1 << 20)
    (places.start / "a.txt").write_text(SECRET * (3 * (1 << 20) // len(SECRET)))
    with Skillhouse(
        configured(places), channel=Person(), layers=rules, sandbox_limits=limits
    ) as house:
        result = house.call_sync("exec", {"command": "cat a.txt"})
        text = Path(kept_path(result)).read_text()
    everything = result.content + str(result.data) + text
    assert " bytes left out …" in text
    assert not any(SECRET[at : at + 9] in everything for at in range(len(SECRET) - 8))


@pytest.mark.parametrize("column", [1, 9, 12, 29_400])
def test_a_secret_across_pages_is_on_neither(tmp_path: Path, column: int) -> None:
    text = table(hosts=["https://a.example"])
    text += NET_SECRET.format(name="KEY", env="HOUSE_KEY", host="https://a.example")
    with house_with(tmp_path, text, {"HOUSE_KEY": SECRET}) as house:
        line = f"value = {SECRET}" + "x" * (29_390 - 8 - len(MASK)) + SECRET + "y" * 9_000
        (house.config.places.start / "a.txt").write_text(line)
        result = house.call_sync("read", {"path": "a.txt", "column": column})
    assert result.status == "ok"
    assert not any(SECRET[at : at + 9] in result.content for at in range(len(SECRET) - 8))


def test_the_file_holds_what_is_shown_with_hidden_characters_as_escapes(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    delivered(results, f"{SECRET}\x1b[8m\u202e" + "x" * RESULT_MAX, "head")
    text = paths(results)[0].read_text()
    assert text.startswith(MASK)
    assert not {"\x1b", "\u202e"} & {*text}


@pytest.mark.slow
def test_a_huge_result_is_given_in_part_and_its_size_is_said(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    text = "0123456789" * 10_000_000
    result = delivered(results, text, "head")
    assert len(result.content) <= RESULT_MAX
    (path,) = paths(results)
    assert path.stat().st_size <= OUTPUT_MAX + 100
    assert f"[cut: {len(text) - OUTPUT_MAX} more characters; ask for a part of it]" in (
        path.read_text()
    )


@pytest.mark.slow
def test_ten_thousand_results_leave_the_newest_of_each_session(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    for at in range(10_000):
        results.keep(session(id=str(at % 3)), str(at))
    assert len(paths(results)) == 3 * SESSION_FILES
    for at in range(2_000):
        results.keep(session(id=f"s{at}"), str(at))
    assert len(paths(results)) == TOTAL_FILES


KEEPS = """
import sys, time
from pathlib import Path
from skillhouse.tools import ResultFiles
from tests.tools.test_result_files import session
results = ResultFiles(Path(sys.argv[1]))
print(results.keep(session(), "text").path, flush=True)
sys.stdin.read()
"""


def first_line(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_and_that_of_a_live_one_stays(
    tmp_path: Path,
) -> None:
    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", KEEPS, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    with started() as killed, started() as live:
        left, kept = first_line(killed), first_line(live)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.exists()
        own = ResultFiles(tmp_path)
        mine = own.keep(session(), "own").path
        ResultFiles(tmp_path).sweep()
        assert not left.parent.exists()
        assert kept.exists()
        assert Path(mine).exists()
        live.communicate("")
    # One that ended by itself has removed its own.
    assert not kept.parent.exists()
    assert [p.name for p in own.directory.iterdir() if p.is_dir()] == [Path(mine).parent.name]


def test_a_sweep_follows_no_link(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("stays")
    results.directory.mkdir()
    (results.directory / "1-a").symlink_to(outside)
    (results.directory / "1-a.lock").touch()
    (results.directory / "2-b.lock").symlink_to(outside / "file.txt")
    results.sweep()
    assert (outside / "file.txt").read_text() == "stays"

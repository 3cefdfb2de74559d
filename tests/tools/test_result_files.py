"""Tests of tools/result_files.py and tools/files.py: long results, and reading on in them."""

from __future__ import annotations

import os
import re
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.skill import SkillIndex
from skillhouse.tools import RESULT_MAX, RefusedError, ResultFiles, Session, ToolResult
from tests.house.places import write_skill
from tests.tools.houses import house_at

RUN = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
NEXT = re.compile(r"read on with `offset` (\d+)(?: and `column` (\d+))?\]$")


def session(
    *,
    agent: str = "a",
    user: str = "u",
    connection: str = "",
    id: str = "",  # noqa: A002
) -> Session:
    return Session(
        agent=agent,
        user=user,
        channel="library",
        connection=connection,
        id=id,
        visible=SkillIndex(()),
        skill_need=lambda skill: pytest.fail(skill.name),
    )


def paths(results: ResultFiles) -> list[Path]:
    return sorted(results.directory.glob("*/*.txt"))


def kept_path(result: ToolResult) -> str:
    assert result.data is not None
    path: str = result.data["cut"]["path"]
    assert f"the whole result is in `{path}`" in result.content
    return path


def test_a_file_is_private_and_given_to_its_session_alone(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    mine = session(connection="1")
    kept = results.keep(mine, "text é")
    assert results.text(mine, kept.path) == "text é"
    assert kept.size == 7
    if sys.platform != "win32":
        modes = [stat.S_IMODE(os.stat(p).st_mode) for p in (kept.path, Path(kept.path).parent)]
        assert modes == [0o600, 0o700]
    others = [{"connection": "2"}, {"connection": "1", "agent": "b"}, {"id": "x"}, {"user": "v"}]
    for other in others:
        with pytest.raises(RefusedError, match="no result of this conversation"):
            results.text(session(**other), kept.path)


def test_the_oldest_go_first_those_of_the_session_before_others(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path, session_files=3, total_files=5)
    one, two = session(id="1"), session(id="2")
    of_two = [results.keep(two, "t").path for _ in range(2)]
    of_one = [results.keep(one, f"{at}").path for at in range(5)]
    assert [str(p) for p in paths(results)] == sorted([*of_two, *of_one[2:]])
    with pytest.raises(RefusedError, match="only the newest 3 are kept"):
        results.text(one, of_one[0])
    three = results.keep(session(id="3"), "t").path
    assert [str(p) for p in paths(results)] == sorted([of_two[1], *of_one[2:], three])


def test_bytes_are_bounded_too_and_the_newest_stays(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path, session_bytes=10, total_bytes=15)
    one, two = session(id="1"), session(id="2")
    results.keep(one, "12345")
    results.keep(one, "123456")
    assert [p.read_text() for p in paths(results)] == ["123456"]
    results.keep(two, "x" * 100)
    assert [p.read_text() for p in paths(results)] == ["x" * 100]


def test_files_end_with_their_session_connection_and_process(tmp_path: Path) -> None:
    results = ResultFiles(tmp_path)
    one, two, three = (session(id="1", connection=str(at)) for at in range(3))
    for each in (one, two, three):
        results.keep(each, "text")
    results.end(one)
    results.end_connection("1")
    assert len(paths(results)) == 1
    results.close()
    assert list(results.directory.iterdir()) == []
    # A program may go on after it closed what it used.
    assert results.text(one, results.keep(one, "again").path) == "again"


@pytest.mark.slow
def test_a_long_result_of_a_command_keeps_head_and_tail(tmp_path: Path) -> None:
    with house_at(tmp_path, RUN) as house:
        result = house.call_sync("exec", {"command": "seq 1 20000"})
        assert result.status == "ok"
        assert len(result.content) <= RESULT_MAX
        # On the first line, since clients cut again.
        first, _, rest = result.content.partition("\n")
        assert first.startswith("[cut: the whole result is in `")
        assert rest.startswith("1\n2\n")
        assert result.content.rstrip().endswith("19999\n20000")
        assert result.data is not None
        assert len(result.data["stdout"]) <= RESULT_MAX
        path = kept_path(result)
        middle = house.call_sync("read", {"path": path, "offset": 10_000, "limit": 2})
        assert middle.content == "10000\n10001\n"
        assert read_all(house, path) == "".join(f"{at}\n" for at in range(1, 20_001))
    assert not Path(path).exists()


def read_all(house: Skillhouse, path: str) -> str:
    """Read a file as a model does, by what each page says."""
    parts: list[str] = []
    place = {"offset": 1, "column": 1}
    while True:
        page = house.call_sync("read", {"path": path, **place})
        assert (page.status, len(page.content) <= RESULT_MAX) == ("ok", True)
        cut = NEXT.search(page.content)
        if cut is None:
            return "".join([*parts, page.content])
        end = page.content.rindex("[cut: ")
        parts.append(page.content[: end - 1 if cut[2] else end])
        place = {"offset": int(cut[1]), "column": int(cut[2] or 1)}


@pytest.mark.parametrize(("client", "most"), [("copilot-cli 1.0", 20_480), ("other", RESULT_MAX)])
def test_a_client_gets_no_more_of_a_result_than_it_lets_through(
    tmp_path: Path, client: str, most: int
) -> None:
    text = "é\n" * 40_000
    with house_at(tmp_path) as house:
        (tmp_path / "project/a.txt").write_text(text)
        page = house.call_sync("read", {"path": "a.txt"}, client_info=client)
        size = len(page.content.encode() if client != "other" else page.content)
        assert most - 8_000 < size <= most
        assert NEXT.search(page.content)


def test_a_page_of_a_large_file_fits_and_no_copy_is_made(tmp_path: Path) -> None:
    text = "x" * 70_000 + "\n" + "line\n" * 10_000
    with house_at(tmp_path) as house:
        (tmp_path / "project/a.txt").write_text(text)
        assert read_all(house, "a.txt") == text
        first = house.call_sync("read", {"path": "a.txt"})
        assert first.data == {"path": str(tmp_path / "project/a.txt"), "lines": 10_001}
        assert not house.services.results.directory.exists()


def test_a_skill_is_given_whole_by_its_tool_and_by_its_path(tmp_path: Path) -> None:
    body = "Do this.\n" * 10_000
    skill = write_skill(tmp_path / "skills/long", body=body)
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        for tool, arguments in (
            ("skill", {"name": "long"}),
            ("read", {"path": str(skill / "SKILL.md")}),
        ):
            assert body in house.call_sync(tool, arguments).content
        # Another file of it is one like any.
        (skill / "table.md").write_text(body)
        other = house.call_sync("read", {"path": str(skill / "table.md")})
        assert len(other.content) <= RESULT_MAX
        assert NEXT.search(other.content)


@pytest.mark.slow
def test_a_rule_denies_reading_a_result_as_any_file(tmp_path: Path) -> None:
    deny = Rule(effect=Effect.DENY, action="read", pattern="*.txt")
    with house_at(tmp_path, RUN, deny) as house:
        path = kept_path(house.call_sync("exec", {"command": "seq 1 20000"}))
        assert house.call_sync("read", {"path": path}).status == "denied"


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["cli", "library"])
def test_a_command_line_gets_the_whole_result(tmp_path: Path, channel: str) -> None:
    with house_at(tmp_path, RUN) as house:
        result = house.call_sync("exec", {"command": "seq 1 20000"}, channel=channel)
    assert ("\n10000\n" in result.content) is (channel == "cli")


@pytest.mark.slow
def test_where_nothing_can_be_written_the_result_comes_all_the_same(tmp_path: Path) -> None:
    with house_at(tmp_path, RUN) as house:
        house.call_sync("list", {})
        house.services.results.directory.write_text("no directory")
        result = house.call_sync("exec", {"command": "seq 1 20000"})
    assert result.status == "ok"
    assert "the rest is not kept (file exists): ask for a part of it" in result.content
    assert result.content.rstrip().endswith("20000")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_half_a_file_is_removed(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - not on every system
    import signal  # noqa: PLC0415

    results = ResultFiles(tmp_path)
    results.keep(session(), "text")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            results.keep(session(), "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [p.read_text() for p in paths(results)] == ["text"]


@pytest.mark.slow
def test_many_calls_at_once_each_keep_their_own(tmp_path: Path) -> None:
    with house_at(tmp_path, RUN) as house, ThreadPoolExecutor(8) as pool:

        def call(at: int) -> tuple[int, ToolResult]:
            return at, house.call_sync("exec", {"command": f"seq {at} {at + 9_000}"})

        for at, result in pool.map(call, range(1, 17)):
            first = house.call_sync("read", {"path": kept_path(result), "limit": 1})
            assert first.content == f"{at}\n"

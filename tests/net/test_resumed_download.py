"""Tests of net/resumed_download.py: what is cut is continued, and only that."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from skillhouse.net import HttpResponse, NetError, NetLimits, download
from skillhouse.net.resumed_download import KEPT_FILES, KEPT_MIN, Partial
from tests.net.servers import Answer, Server, ok, policy_for, redirect, serving

WHOLE = bytes(range(256)) * 4_096
"""A MiB."""
DIGEST = f"sha256:{hashlib.sha256(WHOLE).hexdigest()}"
CUT = KEPT_MIN + 1_000
ETAG = 'ETag: "one"'


def cut(at: int, *headers: str, status: str = "200 OK", body: bytes = WHOLE) -> Answer:
    """Answer with all of the head, and the body up to a place."""
    whole = ok(body, *headers, status=status)
    return whole[: len(whole) - len(body) + at]


def part(start: int, *headers: str, body: bytes = WHOLE) -> bytes:
    span = f"Content-Range: bytes {start}-{len(body) - 1}/{len(body)}"
    return ok(body[start:], span, *headers, status="206 Partial Content")


def got(
    *answers: Answer, digest: str = "", directory: Path | None = None, most: int = 8 << 20
) -> tuple[HttpResponse | NetError, list[tuple[str, str]], list[tuple[int, int]]]:
    """Return the answer or the error, the Range and If-Range of each request, and the progress."""
    steps: list[tuple[int, int]] = []

    async def main() -> tuple[HttpResponse | NetError, Server]:
        async with serving(*answers) as server:
            policy = policy_for(server, limits=NetLimits(body_bytes=most))
            try:
                found: HttpResponse | NetError = await download(
                    f"{server.url}/a",
                    policy=policy,
                    digest=digest,
                    directory=directory,
                    pauses=(0, 0, 0, 0),
                    progress=lambda done, total: steps.append((done, total)),
                )
            except NetError as error:
                found = error
            return found, server

    found, server = anyio.run(main)
    return found, [asked(head) for head in server.seen], steps


def asked(head: bytes) -> tuple[str, str]:
    def value(name: str) -> str:
        match = re.search(rf"(?im)^{name}: (.*?)\r$", head.decode())
        return match[1] if match else ""

    return value("Range"), value("If-Range")


def body_of(found: HttpResponse | NetError) -> bytes:
    assert isinstance(found, HttpResponse), found
    assert found.status == 200
    return found.body


def test_a_whole_answer_is_one_request_and_leaves_nothing(tmp_path: Path) -> None:
    found, ranges, steps = got(ok(WHOLE, ETAG), directory=tmp_path)
    assert body_of(found) == WHOLE
    assert ranges == [("", "")]
    assert (steps[0], steps[-1]) == ((0, len(WHOLE)), (len(WHOLE), len(WHOLE)))
    assert list(tmp_path.iterdir()) == []


def test_a_cut_stream_is_continued_where_it_was_cut(tmp_path: Path) -> None:
    found, ranges, _ = got(cut(CUT, ETAG), part(CUT, ETAG), directory=tmp_path)
    assert body_of(found) == WHOLE
    assert ranges == [("", ""), (f"bytes={CUT}-", '"one"')]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_has_another_version_by_now_sends_it_whole(tmp_path: Path) -> None:
    found, ranges, _ = got(cut(CUT, ETAG), ok(b"new" + WHOLE, 'ETag: "two"'), directory=tmp_path)
    assert body_of(found) == b"new" + WHOLE
    assert len(ranges) == 2


@pytest.mark.parametrize(
    ("headers", "digest", "second"),
    [
        ((), "", ("", "")),
        (('ETag: W/"one"',), "", ("", "")),
        (('ETag: "o"ne"',), "", ("", "")),
        (("Last-Modified: Mon, 23 Nov 2026 00:00:00 GMT",), "", ("", "")),
        ((), DIGEST, (f"bytes={CUT}-", "")),
    ],
)
def test_without_a_strong_validator_or_a_digest_it_begins_again(
    headers: tuple[str, ...], digest: str, second: tuple[str, str]
) -> None:
    then = part(CUT) if digest else ok(WHOLE)
    found, ranges, _ = got(cut(CUT, *headers), then, digest=digest)
    assert body_of(found) == WHOLE
    assert ranges[1] == second


def test_the_next_run_continues_what_one_left(tmp_path: Path) -> None:
    found, ranges, _ = got(cut(CUT, ETAG), b"", directory=tmp_path)
    assert isinstance(found, NetError)
    assert len(ranges) == 5
    (kept,) = tmp_path.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    # The port, and with it the address, is another now: only a digest says that it is the same.
    kept.unlink()
    got(cut(CUT), b"", directory=tmp_path, digest=DIGEST)
    found, ranges, steps = got(part(CUT), directory=tmp_path, digest=DIGEST)
    assert body_of(found) == WHOLE
    assert ranges == [(f"bytes={CUT}-", "")]
    assert steps[0] == (CUT, len(WHOLE))
    assert list(tmp_path.iterdir()) == []


def test_pieces_that_do_not_fit_the_digest_are_got_again_as_a_whole(tmp_path: Path) -> None:
    other = b"x" * len(WHOLE)
    got(cut(CUT, body=other), b"", directory=tmp_path, digest=DIGEST)
    found, ranges, _ = got(part(CUT), ok(WHOLE), directory=tmp_path, digest=DIGEST)
    assert body_of(found) == WHOLE
    assert ranges == [(f"bytes={CUT}-", ""), ("", "")]


@pytest.mark.parametrize(
    "answer",
    [
        part(CUT - 1, ETAG),
        part(0, ETAG),
        part(CUT, 'ETag: "two"'),
        ok(WHOLE[CUT:], ETAG, status="206 Partial Content"),
        ok(WHOLE[CUT:], "Content-Range: bytes x", ETAG, status="206 Partial Content"),
        part(CUT, ETAG, body=WHOLE + b"more"),
        part(CUT, ETAG, "Content-Encoding: gzip"),
        ok(b"", "Content-Range: bytes */3", status="416 Range Not Satisfiable"),
    ],
)
def test_another_part_than_the_one_asked_for_is_never_put_behind_ours(answer: bytes) -> None:
    found, ranges, _ = got(cut(CUT, ETAG), answer, ok(WHOLE, ETAG))
    assert body_of(found) == WHOLE
    assert ranges[2] == ("", "")


def test_a_part_that_was_not_asked_for_is_no_answer() -> None:
    found, _, _ = got(part(0, ETAG))
    assert isinstance(found, NetError)
    assert found.code == "protocol-error"


def test_the_number_of_tries_is_bounded_and_those_that_bring_nothing_end_it() -> None:
    found, ranges, _ = got(cut(10, ETAG), b"")
    assert isinstance(found, NetError)
    assert len(ranges) == 5
    found, ranges, _ = got(cut(0, ETAG))
    assert isinstance(found, NetError)
    assert len(ranges) == 1


@pytest.mark.parametrize(
    "answer", [ok(WHOLE, ETAG), cut(10, ETAG), b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE]
)
def test_more_than_the_bound_is_refused_at_once(answer: bytes, tmp_path: Path) -> None:
    found, ranges, _ = got(answer, directory=tmp_path, most=CUT)
    assert isinstance(found, NetError)
    assert (found.code, len(ranges)) == ("too-large", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_earlier_run_that_is_too_large_is_not_used(tmp_path: Path) -> None:
    got(cut(CUT), b"", directory=tmp_path, digest=DIGEST)
    found, ranges, _ = got(ok(b"x"), directory=tmp_path, digest=DIGEST, most=1_000)
    assert body_of(found) == b"x"
    assert ranges == [("", "")]


def test_an_error_is_an_answer_and_leaves_what_was_kept(tmp_path: Path) -> None:
    found, _, _ = got(ok(b"gone", status="404 Not Found"))
    assert isinstance(found, HttpResponse)
    assert (found.status, found.body) == (404, b"gone")


def test_a_redirect_is_asked_for_the_same_part() -> None:
    found, ranges, _ = got(cut(CUT, ETAG), redirect("/b"), part(CUT, ETAG))
    assert body_of(found) == WHOLE
    assert ranges[1:] == [(f"bytes={CUT}-", '"one"')] * 2


def linked(file: Path) -> None:
    file.unlink()
    file.symlink_to("/etc/passwd")


def made_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: list[Callable[[Path], object]] = [
    lambda file: file.write_bytes(b""),
    lambda file: file.write_bytes(b"no json\n" + WHOLE),
    lambda file: file.write_bytes(b'{"etag": 1, "total": "x"}\n' + WHOLE),
    lambda file: file.write_bytes(b"[" * 4_000 + b"\n"),
    linked,
    made_a_directory,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_only_means_that_it_begins_again(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    got(cut(CUT), b"", directory=tmp_path, digest=DIGEST)
    (kept,) = tmp_path.iterdir()
    damage(kept)
    found, ranges, _ = got(ok(WHOLE), directory=tmp_path, digest=DIGEST)
    assert body_of(found) == WHOLE
    assert ranges == [("", "")]


def test_a_full_disk_keeps_nothing_and_stops_nothing(tmp_path: Path) -> None:
    name = tmp_path / "one.part"
    name.write_bytes(b"")
    with FileIO("/dev/full", "r+b") as full:
        partial = Partial(file=full, name=name)
        partial.add(WHOLE)
        partial.add(b"more")
    assert partial.data == WHOLE + b"more"
    assert not name.exists()
    found, _, _ = got(ok(WHOLE, ETAG), directory=Path("/dev/full/below"))
    assert body_of(found) == WHOLE


def test_a_stream_that_only_trickles_ends_with_the_time_of_one_try(tmp_path: Path) -> None:
    requests = 0

    async def trickle(stream: SocketStream) -> None:
        nonlocal requests
        requests += 1
        await stream.send(ok(WHOLE, ETAG)[: -len(WHOLE)])
        while True:
            await stream.send(b"x")
            await anyio.sleep(0.02)

    async def main() -> NetError:
        async with serving(trickle) as server:
            policy = policy_for(server, limits=NetLimits(seconds=0.5))
            with pytest.raises(NetError) as caught:
                await download(f"{server.url}/a", policy=policy, directory=tmp_path)
            return caught.value

    assert anyio.run(main).code == "timeout"
    assert requests == 1


async def test_a_second_process_downloads_for_itself(tmp_path: Path) -> None:
    inner: list[bytes] = []

    async def slow(stream: SocketStream) -> None:
        await stream.send(ok(WHOLE, ETAG)[:CUT])
        await nested()
        await stream.send(ok(WHOLE, ETAG)[CUT:])

    async def nested() -> None:
        policy = policy_for(server, limits=NetLimits(body_bytes=8 << 20))
        done = await download(f"{server.url}/a", policy=policy, digest=DIGEST, directory=tmp_path)
        inner.append(done.body)

    async with serving(slow, ok(WHOLE)) as server:
        policy = policy_for(server, limits=NetLimits(body_bytes=8 << 20))
        found = await download(f"{server.url}/a", policy=policy, digest=DIGEST, directory=tmp_path)
        assert found.body == WHOLE
    assert inner == [WHOLE]


def test_few_and_recent_beginnings_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT_FILES + 5):
        file = tmp_path / f"{number:032}.part"
        file.write_bytes(b"x")
        os.utime(file, (2e9 + number, 2e9 + number))
    (tmp_path / "other").write_text("stays")
    old = tmp_path / "old.part"
    old.write_bytes(b"x")
    os.utime(old, (1e9, 1e9))
    got(ok(b"x"), directory=tmp_path)
    assert len(list(tmp_path.glob("*.part"))) == KEPT_FILES
    assert not old.exists()
    assert (tmp_path / "other").exists()

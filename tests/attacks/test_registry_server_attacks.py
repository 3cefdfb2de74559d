"""Attacks on a registry: what is sent to it, and what it would show to others.

Each is first let loose on a naive registry (`NaiveRegistry`), where it works. Ours answers with a
refusal, and nothing of it is kept.
"""

from __future__ import annotations

import concurrent.futures
import gzip
import hmac
import io
import json
import os
import re
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
import pytest

from skillhouse.extensions.registry import registry_app, writes
from skillhouse.extensions.registry.hosting import access_of, new_token, open_repository
from skillhouse.registry import pack
from skillhouse.registry.releases import blob_path
from skillhouse.skill import ARCHIVE_MAX
from tests.attacks.test_archive_attacks import unfiltered
from tests.extensions.registry.hosting.servers import Answer, Server, package, serving
from tests.registry.sources import make_skill, skill_text
from tests.remote.servers import tar_of

pytestmark = pytest.mark.slow

TOKEN = "secret"


class NaiveRegistry:
    """A registry as one writes it in an hour: it believes what it is sent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.unpacking = threading.Lock()  # Python's own `makedirs` races, which is not the point
        directory.mkdir()

    def put(self, path: str, archive: bytes, token: str = TOKEN) -> int:
        if token != TOKEN:
            return 401
        target = self.directory / unquote(path).removeprefix("/skills/")
        if target.exists():
            return 409
        self.before_writing()
        target.mkdir(parents=True, exist_ok=True)
        with self.unpacking, tarfile.open(fileobj=io.BytesIO(archive)) as found:
            unfiltered(found, target)
        return 201

    def before_writing(self) -> None:
        """Let a test come between the question and the answer."""

    def page(self) -> str:
        names = "".join(f"<li>{path.name}" for path in self.directory.iterdir())
        return f"<h1>Skills</h1>{names}"

    def text(self, name: str) -> str:
        found: str = next(self.directory.glob(f"{name}/*/SKILL.md")).read_text()
        return found


@pytest.fixture
def naive(tmp_path: Path) -> NaiveRegistry:
    return NaiveRegistry(tmp_path / "naive")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    with serving(place / "state") as started:
        yield started


@pytest.fixture(scope="module")
def publisher(server: Server) -> str:
    return server.token("publish:*", "yank:*", "publish:acme/*")


def kept(server: Server) -> list[str]:
    """Return what the registry has on its disk, but for its logs."""
    logs = ("registry.sqlite3", "requests.jsonl")
    found = server.directory.rglob("*")
    return sorted(str(one) for one in found if not one.name.startswith(logs))


def refused(
    server: Server, send: Callable[..., Answer], *arguments: Any, **options: Any
) -> tuple[int, str]:
    """Return how a request is refused; nothing of it may be left."""
    files, changes = kept(server), server.ask("/changes?limit=1000").json
    answer = send(*arguments, **options)
    assert answer.status >= 400, answer.body
    assert b"Traceback" not in answer.body
    assert str(server.directory).encode() not in answer.body
    assert (kept(server), server.ask("/changes?limit=1000").json) == (files, changes)
    return answer.status, answer.code


def skill_tar(
    name: str = "pdf", version: str = "1.0.0", more: dict[str, bytes] | None = None
) -> bytes:
    return tar_of({"SKILL.md": skill_text(name, version=version).encode(), **(more or {})})


@pytest.mark.parametrize(
    ("name", "version", "code"), [("evil", "1.0.0", "name"), ("pdf", "0.9.0", "version")]
)
def test_the_archive_of_another_skill_or_version_is_refused(
    naive: NaiveRegistry, server: Server, publisher: str, name: str, version: str, code: str
) -> None:
    archive = skill_tar(name, version)
    assert naive.put("/skills/pdf/1.0.0", archive) == 201
    assert f"name: {name}" in naive.text("pdf")

    assert refused(server, server.publish, archive, "pdf", "1.0.0", publisher) == (422, code)


ROUTES = (
    "/skills/{}/1.0.0 /skills/{} /skills/pdf/{} /{}/.well-known/agent-skills/index.json "
    "/blobs/sha256/ab/{} /blobs/sha256/{}/ab /index/aa/bb/default/{} "
    "/index/aa/bb/{}/pdf.json /skills/pdf/channels/{} /skills/{}/channels/beta"
).split()
TRICKS = (
    *("..", ".", "../../registry.sqlite3", "%2e%2e%2fregistry.sqlite3", "%252e%252e", "\\..\\x"),
    *("pdf\0", "pdf%00", "pdf%2f..", "pdf\r\nX-Evil:1", "1.0.0/../../x", "latest/.."),
    *("PDF", "-pdf", "pdf-", "a--b--c", "@acme", "@acme%2fpdf", "con", "x" * 300),
    *("\uff50df", "p\u200bdf"),
)


@pytest.mark.parametrize("route", ROUTES)
def test_no_part_of_an_address_leads_to_another_file(
    naive: NaiveRegistry, server: Server, publisher: str, route: str
) -> None:
    naive.put("/skills/../../outside/1.0.0", skill_tar())
    assert (naive.directory.parent.parent / "outside/1.0.0/SKILL.md").exists()
    archive = skill_tar()
    for trick in TRICKS:
        path = route.format(quote(trick, safe="%/@.-"))
        for method, body in (("GET", None), ("PUT", archive), ("POST", b"{}")):

            def send(path: str = path, method: str = method, body: Any = body) -> Answer:
                return server.ask(path, method, body, token=publisher)

            status, _ = refused(server, send)
            assert 400 <= status < 500, (path, method)


def test_a_database_is_no_blob(server: Server, publisher: str) -> None:
    for path in ("/registry.sqlite3", "/blobs/../registry.sqlite3", "/uploads/", "/publishers/"):
        assert server.ask(path, token=publisher).status == 404


def test_a_bomb_is_refused_before_it_goes_off(
    naive: NaiveRegistry, server: Server, publisher: str
) -> None:
    bomb = tar_of({"SKILL.md": skill_text("pdf").encode(), "big": bytes(64 << 20)})
    assert len(bomb) < 1 << 20
    naive.put("/skills/pdf/1.0.0", bomb)
    assert (naive.directory / "pdf/1.0.0/big").stat().st_size == 64 << 20
    layers = gzip.compress(gzip.compress(bytes(1 << 24)))
    for archive in (bomb, layers, gzip.compress(bytes(200 << 20), 1)):

        def send(archive: bytes = archive) -> Answer:
            return server.publish(archive, "pdf", "1.0.0", publisher)

        assert refused(server, send) == (422, "archive")
    (line,) = re.findall(
        r"VmHWM:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text()
    )
    assert int(line) < 300 << 10, "kB of memory that the server ever had"


@pytest.mark.parametrize(
    "archive",
    [
        pytest.param(skill_tar(more={"../../evil": b"x"}), id="climbs"),
        pytest.param(skill_tar(more={"/evil": b"x"}), id="absolute"),
        pytest.param(skill_tar(more={".git/hooks/post-checkout": b"x"}), id="git"),
        pytest.param(skill_tar(more={"skill.md": b"x"}), id="case"),
        pytest.param(skill_tar(more={"con.txt": b"x"}), id="reserved"),
        pytest.param(skill_tar() + b"PK\x05\x06" + bytes(18), id="two formats"),
        pytest.param(skill_tar() + skill_tar(), id="two members"),
        pytest.param(skill_tar()[:-9], id="cut"),
        pytest.param(tar_of({f"f{n}": b"" for n in range(1_001)}), id="too many"),
    ],
)
def test_an_archive_that_no_one_could_install_is_not_published(
    server: Server, publisher: str, archive: bytes
) -> None:
    assert refused(server, server.publish, archive, "pdf", "1.0.0", publisher) == (422, "archive")


HIDDEN = skill_text("pdf", version="1.0.0").replace("About", "About\u202e").encode()


@pytest.mark.parametrize(
    ("archive", "code"),
    [
        (b"", "media-type"),
        (b"MZ\x90\x00" + bytes(100), "media-type"),
        (b"<html>", "media-type"),
        (tar_of({"README.md": b"x"}), "skill"),
        (tar_of({"pdf/SKILL.md": skill_text("pdf", version="1.0.0").encode()}), "skill"),
        (tar_of({"SKILL.md": HIDDEN}), "skill"),
    ],
)  # fmt: skip
def test_what_is_no_skill_is_refused(
    server: Server, publisher: str, archive: bytes, code: str
) -> None:
    assert refused(server, server.publish, archive, "pdf", "1.0.0", publisher)[1] == code


def test_a_signature_of_others_is_never_passed_on(server: Server, publisher: str) -> None:
    archive = skill_tar(more={"skill.sig": b"{}"})

    assert refused(server, server.publish, archive, "pdf", "1.0.0", publisher) == (422, "signature")


def test_a_body_that_is_too_large_is_cut_off(server: Server, publisher: str) -> None:
    def declared() -> Answer:
        headers = {"Content-Length": str(ARCHIVE_MAX + 1)}
        return server.ask("/skills/pdf/1.0.0", "PUT", b"", token=publisher, headers=headers)

    assert refused(server, declared) == (413, "too-large")
    block = bytes(1 << 20)
    with socket.create_connection(server.place, timeout=30) as client:
        head = (
            f"PUT /skills/pdf/1.0.0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {publisher}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        client.sendall(head.encode())
        sent = 0
        try:
            while sent <= 2 * ARCHIVE_MAX:
                client.sendall(b"100000\r\n" + block + b"\r\n")
                sent += len(block)
        except OSError:
            pass  # It hung up.
        assert sent <= ARCHIVE_MAX + (16 << 20)
    assert not list((server.directory / "uploads").iterdir())


async def asked(app: Any, path: str, token: str, receive: Any) -> tuple[int, dict[str, Any]]:
    """Send a request to the application itself; return status and problem."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": "PUT",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {token}".encode())],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "http_version": "1.1",
        "root_path": "",
    }
    await app(scope, receive, send)
    body = b"".join(one.get("body", b"") for one in sent)
    return sent[0]["status"], json.loads(body)


async def test_a_body_that_stops_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "PAUSE_SECONDS", 0.05)
    repository = open_repository(tmp_path / "state")
    token, _ = new_token(repository.store, ("admin",), datetime.now(UTC))
    pieces = [{"type": "http.request", "body": b"\x1f\x8b", "more_body": True}]

    async def receive() -> Any:
        if not pieces:
            await anyio.sleep_forever()
        return pieces.pop()

    status, problem = await asked(registry_app(repository), "/skills/pdf/1.0.0", token, receive)
    assert (status, problem["code"]) == (400, "bad-request")
    assert not list((tmp_path / "state/uploads").iterdir())
    repository.store.close()


async def test_a_body_that_trickles_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "UPLOAD_SECONDS", 0.2)
    repository = open_repository(tmp_path / "state")
    token, _ = new_token(repository.store, ("admin",), datetime.now(UTC))

    async def receive() -> Any:
        await anyio.sleep(0.01)
        return {"type": "http.request", "body": b"\x1f", "more_body": True}

    status, problem = await asked(registry_app(repository), "/skills/pdf/1.0.0", token, receive)
    assert (status, problem["detail"]) == (400, "the package came too slowly")
    repository.store.close()


@pytest.mark.parametrize(
    "body",
    [
        b'{"reason": "ok", "reason": "<evil>"}',
        b'{"reason": 1}',
        b'{"reason": NaN}',
        b'["reason"]',
        b"reason=x",
        b"[" * 5_000,
        b'{"reason": "' + b"x" * 20_000 + b'"}',
        b'{"reason": "\\u001b[2J"}',
        b'{"reason": "a\\nb"}',
        b'{"reason": "\\ud800"}',
        b"\xff",
    ],
)
def test_a_body_with_two_meanings_is_refused(
    server: Server, place: Path, publisher: str, body: bytes
) -> None:
    server.publish(package(place, "bodies"), "bodies", "1.0.0", publisher)

    status, code = refused(
        server, server.ask, "/skills/bodies/1.0.0/yank", "POST", body, token=publisher
    )
    assert (status, code) in [(400, "bad-request"), (413, "too-large")]
    assert server.ask("/skills/bodies").json["versions"][0]["state"] == "published"


def test_a_guess_of_a_token_takes_as_long_as_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = open_repository(tmp_path / "state")
    secret, token = new_token(repository.store, ("admin",), datetime.now(UTC))
    compared: list[int] = []
    as_ever = hmac.compare_digest

    def compare(first: str, second: str) -> bool:
        compared.append(len(first) + len(second))
        return as_ever(first, second)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    guesses = ("", "x", f"skr_{'0' * 12}_{'A' * 43}", f"skr_{token.id}_{'A' * 43}", secret[:-1])
    for guess in guesses:
        assert access_of(repository.store, guess, datetime.now(UTC)) is None
    # Digests are compared, whole and in constant time, whether the token is known or not.
    assert compared == [128] * len(guesses)
    repository.store.close()


def test_guesses_are_slowed_down_and_lock_no_one_out(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        token = server.token("read")
        seen = [server.ask("/registry.json", token=f"skr_{'0' * 12}_{'A' * 43}") for _ in range(40)]
        assert {one.status for one in seen[:30]} == {401}
        assert {one.status for one in seen[35:]} == {429}
        assert int(seen[-1].headers["retry-after"]) >= 1
        assert server.ask("/registry.json", token=token).status == 200
        assert server.ask("/registry.json").status == 200
        # A header of one's own makes no other address.
        spoofed = {"X-Forwarded-For": "203.0.113.9", "Authorization": "Bearer x"}
        assert server.ask("/registry.json", headers=spoofed).status == 429


def test_each_address_behind_a_proxy_has_its_own_limit(tmp_path: Path) -> None:
    options = ("--proxy", "127.0.0.1", "--reads-per-minute", "2")
    with serving(tmp_path / "state", *options) as server:

        def statuses(forwarded: str) -> list[int]:
            headers = {"X-Forwarded-For": forwarded}
            return [server.ask("/registry.json", headers=headers).status for _ in range(3)]

        assert statuses("203.0.113.9") == [200, 200, 429]
        assert statuses("203.0.113.10") == [200, 200, 429]
        # What the client wrote itself comes first, and counts for nothing.
        assert statuses("198.51.100.1, 203.0.113.9") == [429, 429, 429]
        # One customer has a whole network of 64 bits.
        assert statuses("2001:db8::1") == [200, 200, 429]
        assert statuses("2001:db8::2") == [429, 429, 429]
        # INVARIANT: those whose address is not known share no bucket: there is none.
        assert statuses("unknown") == [400, 400, 400]


@pytest.mark.parametrize(
    ("scopes", "path", "method", "status"),
    [
        (("publish:pdf",), "/skills/pdf-x/1.0.0", "PUT", 403),
        (("publish:pdf",), "/skills/acme--pdf/1.0.0", "PUT", 403),
        (("publish:acme/pdf",), "/skills/pdf/1.0.0", "PUT", 403),
        (("publish:acme/*",), "/skills/pdf/1.0.0", "PUT", 403),
        (("publish:acme/*",), "/skills/acme2--pdf/1.0.0", "PUT", 403),
        (("publish:acme/*",), "/skills/acme--x--pdf/1.0.0", "PUT", 422),
        (("publish:acme/*",), "/skills/@acme%2fpdf/1.0.0", "PUT", 404),
        (("read",), "/skills/pdf/1.0.0", "PUT", 403),
        (("yank:*",), "/skills/pdf/1.0.0", "PUT", 403),
        (("publish:*",), "/skills/scoped/1.0.0/yank", "POST", 403),
        (("publish:*",), "/skills/scoped/1.0.0/revoke", "POST", 403),
        (("publish:*", "yank:*"), "/skills/acme--pdf/1.0.0/revoke", "POST", 403),
        (("yank:*",), "/skills/scoped/channels/beta", "PUT", 403),
        (("publish:*", "yank:*"), "/revocations.json", "PUT", 403),
    ],
)
def test_a_token_does_what_its_scopes_say_only(
    server: Server,
    place: Path,
    publisher: str,
    scopes: tuple[str, ...],
    path: str,
    method: str,
    status: int,
) -> None:
    server.publish(package(place, "scoped"), "scoped", "1.0.0", publisher)
    token = server.token(*scopes)
    body = b'{"version": "1.0.0"}' if "channels" in path else b"{}"
    body = skill_tar() if path.endswith("1.0.0") else body

    assert refused(server, server.ask, path, method, body, token=token)[0] == status


@pytest.mark.parametrize("header", ["Basic {}", "bearer{}", "Bearer {} {}", "{}", "Bearer"])
def test_a_token_is_sent_in_one_way(server: Server, publisher: str, header: str) -> None:
    fields = {"Authorization": header.format(publisher, "x")}
    answer = server.ask("/skills/pdf/1.0.0", "PUT", skill_tar(), headers=fields)
    assert (answer.status, answer.code) == (401, "unauthorized")
    in_query = server.ask(f"/skills/pdf/1.0.0?token={publisher}", "PUT", skill_tar())
    assert in_query.status == 401


def test_of_two_publishers_of_one_version_one_succeeds(
    naive: NaiveRegistry, server: Server, place: Path, publisher: str
) -> None:
    archives = [package(place, "raced", body=f"Body {n}.") for n in range(8)]
    both = threading.Barrier(2, timeout=20)
    naive.before_writing = both.wait  # type: ignore[method-assign, assignment]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        path = "/skills/raced/1.0.0"
        assert list(threads.map(lambda one: naive.put(path, one), archives[:2])) == [201, 201]
        answers = list(
            threads.map(lambda one: server.publish(one, "raced", "1.0.0", publisher), archives)
        )
    assert sorted(one.status for one in answers) == [201, *[409] * 7]
    (won,) = [n for n, answer in enumerate(answers) if answer.status == 201]
    assert server.ask("/skills/raced/1.0.0").body == archives[won]
    digest = answers[won].json["digest"]
    assert {one.json["digest"] for one in answers} == {digest}


def test_the_page_and_the_problems_run_nothing(
    naive: NaiveRegistry, server: Server, publisher: str
) -> None:
    script = "<script>alert(1)</script>"
    (naive.directory / script.replace("/", "\\")).mkdir()
    assert "<script>" in naive.page()
    text = skill_text("page", version="1.0.0").replace("About page", script)
    assert (
        server.publish(tar_of({"SKILL.md": text.encode()}), "page", "1.0.0", publisher).status
        == 201
    )
    for headers in ({}, {"Host": f"x{script}"}, {"Host": 'x"><img src=x onerror=alert(1)>'}):
        page = server.ask("/", headers=headers)
        assert b"<script" not in page.body
        assert b"<img" not in page.body
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
    for path in (
        f"/{quote(script)}",
        f"/skills/{quote(script)}",
        f"/skills?cursor={quote(script)}",
    ):
        answer = server.ask(path)
        assert answer.headers["content-type"] == "application/problem+json"
    found = server.ask("/skills?q=alert")
    assert found.json["skills"][0]["name"] == "page"
    assert found.headers["content-type"] == "application/json"
    got = server.ask("/skills/page/1.0.0")
    assert got.headers["content-disposition"].startswith("attachment")


def test_no_other_origin_reads_or_writes(server: Server) -> None:
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
        answer = server.ask("/skills", method, headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "part", ["x%0d%0aX-Evil:%201", "x%0aX-Evil:1", "x%00", "1.0.0%0d%0a%0d%0a<html>"]
)
def test_nothing_sent_becomes_a_header(server: Server, publisher: str, part: str) -> None:
    for path in (f"/skills/{part}/latest", f"/skills/pdf/{part}", f"/skills/pdf/channels/{part}"):
        for method in ("GET", "PUT"):
            answer = server.ask(path, method, b'{"version": "1.0.0"}', token=publisher)
            assert "x-evil" not in answer.headers
            assert answer.status in (404, 405, 415, 422, 400)


@pytest.mark.parametrize(
    "text",
    [
        *("'", '"', "'; DROP TABLE skill; --", "a' OR '1'='1", "%", "_", "\0"),
        *("NEAR(a b)", "name:a", "a*", "^a", "{a b}:", "-a", "AND", "a AND", "(", ")"),
        *("x" * 5_000, "a " * 4_000, "\U0001d482", "\u06f1\u06f2", "../..", "\u00ed\u00a0"),
    ],
)
def test_a_query_is_words_and_no_syntax(server: Server, text: str) -> None:
    for name in ("q", "publisher"):
        answer = server.ask(f"/skills?{name}={quote(text)}")
        assert answer.status == 200
    answer = server.ask(f"/skills?cursor={quote(text)}")
    assert answer.status == 400


def test_many_ranges_cost_no_more_than_the_file(
    server: Server, place: Path, publisher: str
) -> None:
    server.publish(package(place, "many-ranges"), "many-ranges", "1.0.0", publisher)
    size = len(server.ask("/skills/many-ranges/1.0.0").body)
    ranges = ",".join(f"{n}-{size - 1}" for n in range(1_000))
    before = time.process_time()
    answer = server.ask("/skills/many-ranges/1.0.0", headers={"Range": f"bytes={ranges}"})
    assert answer.status in (200, 206, 400, 416, 431)
    assert len(answer.body) <= 2 * size
    assert time.process_time() - before < 10


def test_a_name_like_another_is_refused(
    naive: NaiveRegistry, server: Server, place: Path, publisher: str
) -> None:
    assert server.publish(package(place, "weather"), "weather", "1.0.0", publisher).status == 201
    names = ("wheather", "weather1", "weath3r", "wea-ther", "weathers")
    # Whoever may publish all of a namespace could publish `weather` itself.
    squatter = server.token(*(f"publish:{name}" for name in names))
    for name in names:
        archive = package(place, name)
        assert naive.put(f"/skills/{name}/1.0.0", archive) == 201

        def send(name: str = name, archive: bytes = archive) -> Answer:
            return server.publish(archive, name, "1.0.0", squatter)

        assert refused(server, send) == (422, "name")


def test_a_link_in_the_place_of_a_blob_is_not_followed_outside(tmp_path: Path) -> None:
    """Whoever can write the directory owns the registry; a stray link still replaces nothing."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    made = pack(make_skill(tmp_path / "pdf", version="1.0.0"))
    with serving(tmp_path / "state") as server:
        blob = server.directory / blob_path(made.digest)
        blob.parent.mkdir(parents=True)
        os.symlink(outside, blob)
        assert server.publish(made.archive, "pdf", "1.0.0", server.token("admin")).status == 201
        assert server.ask("/skills/pdf/1.0.0").body == made.archive
    assert outside.read_bytes() == b"mine"

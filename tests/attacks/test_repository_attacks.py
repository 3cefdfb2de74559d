"""Attacks of a repository, or of who sits before it, on who installs by name.

Each is first let loose on a naive client, where it works: it believes the index, follows wherever
it is led with its token, and unpacks what it gets. Ours names the step that refuses; nothing is on
the disk or in the lock.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from skillhouse.floor import structs
from skillhouse.registry import Revocation, next_list, pem_of, sign_list
from skillhouse.registry.releases import DOCUMENT_MAX, blob_path, encode_document, index_path
from tests.frontends.conftest import Run, place, publisher, publisher_template, run
from tests.frontends.test_cli_repositories import configure, lock_of, official
from tests.loopback_http import QuietHandler, served
from tests.registry.pki import Party, make_root
from tests.registry.publisher_skill import LOCKED
from tests.registry.repositories import StaticRepository, static_server
from tests.registry.sources import make_skill

__all__ = ["official", "place", "publisher", "publisher_template", "run"]
AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")
TOKEN = "a-long-secret-word"


class NaiveClient:
    """Installs by name as one would write it in an hour."""

    def __init__(self, place: Path, *addresses: str) -> None:
        self.skills = place / "naive/skills"
        self.skills.mkdir(parents=True, exist_ok=True)
        self.lock: dict[str, str] = {}
        self._addresses = addresses

    def get(self, address: str, path: str) -> bytes:
        asked = urllib.request.Request(f"{address}/{path}", headers={"Authorization": TOKEN})
        with urllib.request.urlopen(asked) as response:
            found: bytes = response.read()
        return found

    def install(self, name: str, version: str = "latest") -> Path:
        """Take the highest version of any repository, whatever is installed."""
        namespace, _, skill = f"default--{name}".rpartition("--")
        path = index_path(namespace.removeprefix("default--") or "default", skill)
        best: tuple[str, str, Mapping[str, Any]] = ("", "", {})
        for address in self._addresses:
            try:
                found = json.loads(self.get(address, path))
            except OSError:
                continue
            wanted = (found.get("channels") or {}).get(version, version)
            wanted = found["latest"] if wanted == "latest" else wanted
            for release in found["versions"]:
                if release["version"] == wanted and wanted > best[0]:
                    best = (wanted, address, {**release, "skill": found["skill"]})
        wanted, address, release = best
        data = self.get(address, blob_path(release["digest"]))
        target: Path = self.skills / release["skill"] / release["version"]
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(target, filter="tar")
        self.lock[name] = wanted
        return target


def naive(place: Path, *repositories: StaticRepository) -> NaiveClient:
    return NaiveClient(place, *(one.address for one in repositories))


def refused(run: Run, place: Path, *arguments: str) -> str:
    """Return what `install` says; it must refuse, and leave nothing at all."""
    before = lock_of(place)
    files = sorted((place / "home/.agents").rglob("*"))
    code, out, err = run("install", *arguments, *AGREED)
    assert code == 1, out + err
    assert sorted((place / "home/.agents").rglob("*")) == files
    assert lock_of(place) == before
    assert "\x1b" not in out + err
    return err.removeprefix("skillhouse: ").strip()


def text_of(directory: Path) -> str:
    return (directory / "SKILL.md").read_text()


def test_a_swapped_archive(run: Run, place: Path, official):
    new, old = official.skills["notes"].versions
    official.write(blob_path(new.digest), official.archives[old.digest])
    assert "Version 1.0.0" in text_of(naive(place, official).install("notes", "1.1.0"))
    assert f"digest: expected {new.digest}, got {old.digest}" in refused(run, place, "notes")


def test_the_index_of_another_skill(run: Run, place: Path, official):
    official.make("1.0.0", "other")
    official.index().write_bytes(encode_document(official.skills["other"]))
    assert "name: other" in text_of(naive(place, official).install("notes"))
    said = refused(run, place, "notes")
    assert "source: repository `official`: " in said
    assert "expected the versions of `notes`, got those of 'other'" in said


def test_the_archive_of_another_skill(run: Run, place: Path, official):
    other = official.make("1.1.0", "other")
    official.change("notes", "1.1.0", digest=other.digest, size=other.size)
    assert "name: other" in text_of(naive(place, official).install("notes"))
    assert "skill: expected the skill `notes`" in refused(run, place, "notes")


def test_a_channel_that_leads_back(run: Run, place: Path, official):
    """The newest one is installed, and `latest` and a channel name a version with a hole."""
    for wanted in ("notes@stable", "notes"):
        official.put(structs.replace(official.skills["notes"], channels={"stable": "1.1.0"}))
        assert run("install", wanted, *AGREED)[0] == 0
        back = {"stable": "1.0.0", "latest": "1.0.0"}
        found = structs.replace(official.skills["notes"], channels=back, latest="1.0.0")
        official.put(found)
        assert naive(place, official).install("notes", "stable").name == "1.0.0"
        code, _, err = run("update", *AGREED)
        if wanted == "notes":
            # What the repository calls the latest is not believed.
            assert code == 0
        else:
            assert (code, "`notes` would go back from 1.1.0 to 1.0.0" in err) == (1, True)
        assert lock_of(place)["notes"]["version"] == "1.1.0"
        assert run("uninstall", "notes")[0] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("publisher")
def test_an_old_unsigned_version_in_the_place_of_a_signed_one(run: Run, place: Path):
    official = StaticRepository(place / "official")
    configure(place, ("official", official.address, True))
    unsigned = make_skill(place / "old/pdf", version="1.0.0")
    official.publish(unsigned, state="yanked")
    assert run("sign", "pdf", *LOCKED)[0] == 0
    official.publish(Path("pdf"))
    assert run("install", "pdf@*", "--yes")[0] == 0
    # The repository gives the yanked version back under a number that is new.
    replayed = make_skill(place / "new/pdf", version="1.3.0")
    official.publish(replayed)
    assert naive(place, official).install("pdf").name == "1.3.0"
    code, _, err = run("update", *AGREED)
    assert (code, "policy: `pdf` is installed as signed by acme" in err) == (1, True)
    assert "this one is unsigned" in err
    assert "yanked" in refused(run, place, "pdf@1.0.0")
    assert lock_of(place)["pdf"]["version"] == "1.2.0"


@pytest.mark.slow
@pytest.mark.usefixtures("publisher")
def test_a_package_that_is_signed_for_another_repository(run: Run, place: Path):
    """A publisher of one registry did not mean what another one offers in their name."""
    evil = StaticRepository(place / "evil", "evil.example.com")
    configure(place, ("official", evil.address, True))
    assert run("sign", "pdf", *LOCKED)[0] == 0
    evil.publish(Path("pdf"))
    assert naive(place, evil).install("pdf").name == "1.2.0"
    said = refused(run, place, "pdf")
    assert said.startswith("pdf: signature: identity: expected the repository `evil.example.com`")


def test_the_same_name_with_a_higher_version_elsewhere(run: Run, place: Path, official):
    """Dependency confusion: a public repository gets the name of a private skill."""
    public = StaticRepository(place / "public", "public.example")
    public.make("99.0.0")
    configure(place, ("official", official.address, True), ("public", public.address, True))
    assert naive(place, official, public).install("notes").name == "99.0.0"
    assert run("install", "notes", *AGREED)[0] == 0
    assert lock_of(place)["notes"]["repository"] == "official"
    # The first one is held up, or has lost the name.
    official.index().unlink()
    assert "no skill `notes` in `official`" in refused(run, place, "notes")
    code, _, err = run("update", *AGREED)
    assert (code, "no skill `notes` in `official`" in err) == (1, True)
    assert "locked to official" in refused(run, place, "notes", "--repository", "public")
    assert lock_of(place)["notes"]["version"] == "1.1.0"


def test_a_lock_of_a_project_leads_nowhere_else(run: Run, place: Path, official):
    """Whoever writes the lock of a project chooses among the configured repositories alone."""
    evil = StaticRepository(place / "evil", "evil.example")
    evil.make("5.0.0")
    assert run("install", "notes@1.0.0", "--project", *AGREED)[0] == 0
    lock = place / "project/skills.lock"
    value = json.loads(lock.read_text())
    entry = value["skills"]["notes"]
    release = evil.skills["notes"].versions[0]
    for repository in ("evil", "official", evil.address):
        # Nothing of it is kept on this machine.
        entry |= {
            "repository": repository,
            "resolved": f"{evil.address}/skills/notes/5.0.0",
            "requested": f"{evil.address}/{blob_path(release.digest)}#.tar.gz",
            "version": "5.0.0",
            "digest": release.digest,
            "tree_digest": release.tree_digest,
        }
        lock.write_text(json.dumps(value))
        files = place / "project/.agents/skills/notes"
        if files.exists():
            files.rename(place / "away")
        code, _, err = run("install", "--frozen", "--project", *AGREED)
        assert (code, files.exists()) == (1, False), err


class Leading(QuietHandler):
    """Sends whoever asks to another server."""

    target = ""
    only = ""

    def do_GET(self) -> None:
        if self.only in self.path:
            self.answer(302, headers={"Location": f"{self.target}{self.path}"})
        else:
            self.answer(404)


def test_documents_of_another_server(run: Run, place: Path, official, monkeypatch):
    monkeypatch.setenv("REPOSITORY_ACCESS", TOKEN)
    inner = static_server(official.place)
    with served(inner) as target:
        handler = type("Leading", (Leading,), {"target": target})
        with served(handler) as address:
            configure(place, ("official", address, True), more='token = "env:REPOSITORY_ACCESS"\n')
            NaiveClient(place, address).install("notes")
            assert TOKEN in inner.credentials  # type: ignore[attr-defined]
            inner.asked.clear()  # type: ignore[attr-defined]
            said = refused(run, place, "notes")
    assert f"{target}" in said
    assert "no rule allows" in said
    assert inner.asked == []  # type: ignore[attr-defined]


def test_an_archive_of_another_server_gets_no_token(run: Run, place: Path, official, monkeypatch):
    """Archives may be elsewhere, but not on this machine or in its network."""
    monkeypatch.setenv("REPOSITORY_ACCESS", TOKEN)
    inner = static_server(official.place)

    def lead(handler: QuietHandler) -> bool:
        if handler.path.startswith("/blobs/"):
            handler.answer(302, headers={"Location": f"{target}{handler.path}"})
            return True
        return False

    with served(inner) as target, served(static_server(official.place, lead)) as address:
        configure(place, ("official", address, True), more='token = "env:REPOSITORY_ACCESS"\n')
        NaiveClient(place, address).install("notes")
        assert TOKEN in inner.credentials  # type: ignore[attr-defined]
        inner.asked.clear()  # type: ignore[attr-defined]
        assert "leads to" in refused(run, place, "notes")
    assert inner.asked == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["index", "registry.json", "blobs"])
def test_a_document_without_an_end(run: Run, place: Path, official, where):
    def endless(handler: QuietHandler) -> bool:
        if where not in handler.path:
            return False
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b" " * 65_536)
        handler.close_connection = True
        return True

    with served(static_server(official.place, endless)) as address:
        configure(place, ("official", address, True))
        with urllib.request.urlopen(f"{address}/{where}/x.json") as response:
            assert len(response.read(2 * DOCUMENT_MAX)) == 2 * DOCUMENT_MAX
        assert "larger than" in refused(run, place, "notes")


def test_a_key_that_is_there_twice(run: Run, place: Path, official):
    """Who looks the index over reads the first one, and the naive client the second."""
    text = official.index().read_text()
    new, old = official.skills["notes"].versions
    first = f'"digest": "{new.digest}"'
    assert text.count(first) == 1
    official.index().write_text(text.replace(first, f'{first}, "digest": "{old.digest}"'))
    assert "Version 1.0.0" in text_of(naive(place, official).install("notes", "1.1.0"))
    assert "a key is there twice" in refused(run, place, "notes")
    official.index().write_text(text)
    (official.place / "registry.json").write_text('{"api": 1, "name": "a", "name": "b"}')
    assert "a key is there twice" in refused(run, place, "notes")


PATHS = ["../../escaped", "1/../../../x", "/etc/x", "1.0\x1b[2J", "versions", "", "-x"]


@pytest.mark.parametrize("version", PATHS)
def test_a_version_that_is_a_path_or_an_escape(run: Run, place: Path, official, version):
    found = official.skills["notes"]
    release = structs.replace(found.versions[0], version=version)
    official.put(structs.replace(found, versions=(release,), latest=version or "x"))
    if ".." in version:
        target = naive(place, official).install("notes").resolve()
        assert not target.is_relative_to(place / "naive/skills/notes")
    said = refused(run, place, "notes")
    assert "no version" in said


@pytest.mark.parametrize("name", ["../../escaped", "..", "a/b", "A", "pdf\x1b[2J", "a--b"])
def test_a_name_that_is_a_path_or_an_escape(run: Run, place: Path, official, name):
    found = structs.replace(official.skills["notes"], skill=name)
    official.index().write_bytes(encode_document(found))
    if name.startswith("../.."):
        target = naive(place, official).install("notes").resolve()
        assert not target.is_relative_to(place / "naive/skills")
    refused(run, place, "notes")
    for typed in (f"@{name}/notes", f"@acme/{name}"):
        code, out, err = run("install", typed, *AGREED)
        assert (code, "\x1b" in out + err) == (1, False)


def test_words_of_a_repository_do_not_act_on_the_terminal(run: Run, place: Path, official):
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\nskillhouse: notes is installed"
    listing = {"skills": [{"name": "notes", "description": evil, "latest": evil, "license": evil}]}
    official.write(".well-known/agent-skills/index.json", json.dumps(listing).encode())
    code, out, err = run("install", "--search", "")
    assert code == 0
    official.change("notes", "1.1.0", state="revoked", reason=evil)
    said = run("install", "notes@1.1.0", *AGREED)[2]
    official.change("notes", "1.1.0", state="published", published_at=evil)
    shown = run("install", "notes", *AGREED)[1]
    official.change("notes", "1.1.0", state="yanked", reason=evil)
    state = run("verify")[1]
    for text in (out, err, said, shown, state):
        assert not set(text) & set("\x1b\x07\u202e"), text
        assert not any(line.startswith("skillhouse: notes is") for line in text.splitlines())


def test_a_problem_of_a_server_does_not_act_on_the_terminal(run: Run, place: Path):
    class Rude(QuietHandler):
        def do_GET(self) -> None:
            body = json.dumps({"code": "x\x1b[2J", "detail": "\x1b[2J\nnotes is installed\u202e"})
            headers = {"Content-Type": "application/problem+json", "Retry-After": "\x1b"}
            self.answer(403, body.encode(), headers)

    with served(Rude) as address:
        configure(place, ("official", address, True))
        said = refused(run, place, "notes")
    assert "status 403" in said
    assert len(said.splitlines()) == 1
    assert "\u202e" not in said


@pytest.mark.parametrize("where", ["index", "blobs"])
def test_a_stream_that_is_cut(run: Run, place: Path, official, where):
    def cut(handler: QuietHandler) -> bool:
        if where not in handler.path:
            return False
        body = (official.place / unquote(handler.path).lstrip("/")).read_bytes()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.close_connection = True
        return True

    with served(static_server(official.place, cut)) as address:
        configure(place, ("official", address, True))
        refused(run, place, "notes")
    configure(place, ("official", official.address, True))
    assert run("install", "notes", *AGREED)[0] == 0


@pytest.mark.parametrize("where", ["index", "blobs"])
def test_a_stream_that_does_not_end(run: Run, place: Path, official, where, monkeypatch):
    monkeypatch.setattr("skillhouse.house.network.SYNC_SECONDS", 0.5)

    def stop(handler: QuietHandler) -> bool:
        if where not in handler.path:
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"{")
        # Until the other side ends it.
        handler.rfile.read(1)
        return True

    with served(static_server(official.place, stop)) as address:
        configure(place, ("official", address, True))
        assert "no whole answer in 0.5 s" in refused(run, place, "notes")


@pytest.mark.parametrize("path", ["registry.json", "index", "blobs", "document", "blob"])
def test_a_mirror_that_leads_out_by_a_link(run: Run, place: Path, official, path):
    release = official.skills["notes"].versions[0]
    found = {
        "document": index_path("default", "notes"),
        "blob": blob_path(release.digest),
    }.get(path, path)
    secret = place / "elsewhere"
    (official.place / found).rename(secret)
    (official.place / found).symlink_to(secret)
    assert naive(place, official).install("notes").name == "1.1.0"
    assert "path-link" in refused(run, place, "notes")


def test_an_older_list_of_versions_takes_nothing_away(run: Run, place: Path, official):
    """A mirror that is held back: what is installed stays, and the older one is no update."""
    before = official.index().read_bytes()
    official.make("1.2.0")
    assert run("install", "notes", *AGREED)[0] == 0
    official.index().write_bytes(before)
    assert naive(place, official).install("notes").name == "1.1.0"
    code, _, err = run("update", *AGREED)
    assert (code, "would go back from 1.2.0 to 1.1.0" in err) == (1, True)
    assert "is not in its repository any more" in run("verify")[1]


@pytest.fixture
def root(run: Run, place: Path) -> Party:
    """A root that this user trusts."""
    made = make_root(now=datetime.now(UTC))
    (place / "root.crt").write_bytes(pem_of([made.certificate]))
    assert run("keys", "trust", str(place / "root.crt"))[0] == 0
    return made


def signed_list(by: Party, number: int) -> bytes:
    content = None
    for _ in range(number):
        entry = Revocation(release=f"evil@{number}", reason="steals keys")
        content = next_list(content, [entry], datetime.now(UTC))
    assert content is not None
    return sign_list(content, key=by.key, issuer=by.chain)


def kept_lists(place: Path) -> list[bytes]:
    lists = place / "home/.local/state/skillhouse/publishers/trusted/revocations"
    return [path.read_bytes() for path in sorted(lists.glob("*.json"))]


def test_an_older_list_of_revocations(run: Run, place: Path, official, root):
    """Who holds back what was revoked keeps a revoked publisher's skills in use."""
    new, old = signed_list(root, 2), signed_list(root, 1)
    official.write("revocations.json", new)
    assert run("install", "notes", *AGREED)[0] == 0
    assert kept_lists(place) == [new]
    official.write("revocations.json", old)
    assert naive(place, official).get(official.address, "revocations.json") == old
    code, out, _ = run("verify")
    assert (code, kept_lists(place)) == (0, [new])
    assert "has an older list of revocations than is here, which stays" in out


def test_a_list_of_revocations_of_another_root(run: Run, place: Path, official, root):
    """Whoever may revoke stops what they like: only a root that is trusted here may."""
    official.write("revocations.json", signed_list(make_root(now=datetime.now(UTC)), 5))
    code, _, err = run("install", "notes", *AGREED)
    assert code == 0
    assert "is not taken over: no root that is trusted here signed it" in err
    assert kept_lists(place) == []


def test_a_list_of_revocations_that_was_changed(run: Run, place: Path, official, root):
    data = signed_list(root, 1)
    value = json.loads(data)
    payload = base64.b64decode(value["dsseEnvelope"]["payload"]).replace(b"evil@1", b"good@1")
    value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    for broken in (json.dumps(value).encode(), data[:-20], b"{}", b"[" * 100_000):
        official.write("revocations.json", broken)
        said = refused(run, place, "notes")
        assert "the revocations of `official`" in said
    assert kept_lists(place) == []


def test_a_package_that_is_led_elsewhere_while_it_is_published(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
):
    """A server that was taken over collects packages, and tokens, for another one."""
    monkeypatch.setenv("REPOSITORY_ACCESS", TOKEN)
    got: list[tuple[str, bytes]] = []

    class Collector(QuietHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers.get("Authorization", ""), body))
            self.answer(201, b"{}")

    class Taken(Leading):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(307, headers={"Location": f"{self.target}{self.path}"})

    source = make_skill(place / "notes", version="1.0.0")
    with served(Collector) as target:
        handler = type("Taken", (Taken,), {"target": target, "only": "nothing"})
        with served(handler) as address:
            configure(place, ("official", address, True), more='token = "env:REPOSITORY_ACCESS"\n')
            asked = urllib.request.Request(f"{target}/x", b"x", method="PUT")
            urllib.request.urlopen(asked).close()
            assert got.pop() == ("", b"x")
            code, _, err = run("publish", str(source), "--yes", "--allow-unsigned")
    assert (code, got) == (1, []), err
    assert "redirect" in err


def test_a_server_that_says_that_it_published_something_else(run: Run, place: Path, monkeypatch):
    release = {
        "version": "1.0.0",
        "digest": "sha256:" + "0" * 64,
        "tree_digest": "skilltree1:" + "0" * 64,
        "size": 1,
        "published_at": "",
    }

    class Liar(QuietHandler):
        def do_GET(self) -> None:
            self.answer(404)

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(201, json.dumps(release).encode())

    source = make_skill(place / "notes", version="1.0.0")
    with served(Liar) as address:
        configure(place, ("official", address, True))
        code, _, err = run("publish", str(source), "--yes", "--allow-unsigned")
    assert (code, "says that it published sha256:000" in err) == (1, True)

"""A bundle of skills of a test: who signs, where it is, who takes it; and a small S3."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from skillhouse import registry, remote
from skillhouse.house import Config, configured
from skillhouse.house.skill_bundle import (
    BundleLook,
    BundlePointer,
    SkillBundleSource,
    bundle_skills,
    publish_bundle,
)
from tests.house.places import make_places, write_skill
from tests.loopback_http import QuietHandler, serving_http
from tests.registry.pki import NOW, Party, issued, make_root
from tests.registry.publisher_skill import REGISTRY

NAME = "team"
PUBLISHER = f"acme of {REGISTRY}"


class BundlePlace:
    """A store in a directory, a publisher, and a machine that takes bundles from there."""

    def __init__(self, base: Path, *, source: str = "", more: str = "") -> None:
        """`more` are further lines of `[skills]`."""
        self.base = base
        self.store = base / "store" / NAME
        self.source = source or f"file://{self.store}"
        self.skills = base / "made"
        write_skill(self.skills / "pdf", body="First.\n")
        self.files: dict[str, bytes] = {}
        """What is published beside the skills."""
        self.root = make_root()
        self.developer = issued(self.root)
        self.places = make_places(base, {"S3_ID": "id", "S3_SECRET": "secret"})
        self.configure(more)
        trusted = self.config.state_directory / registry.TRUSTED_DIRECTORY
        registry.AnchorStore(trusted).add_root(self.root.certificate)

    def configure(self, more: str = "", *, before: str = "") -> None:
        """Write the user's configuration file."""
        file = self.places.user_file
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = f'[skills]\nsource = "{self.source}"\nsource_publisher = "{PUBLISHER}"\n'
        file.write_text(before + lines + more)
        self.config: Config = configured(self.places)

    def packed(self, number: int, *, by: Party | None = None, name: str = NAME) -> bytes:
        """Return the skills as a signed archive."""
        who = by or self.developer
        found = registry.pack_bundle(
            self.skills,
            name,
            number,
            key=who.key,
            chain=who.chain,
            now=NOW,
            files=self.files,
        )
        return found.archive

    def packed_with(self, number: int, files: dict[str, bytes]) -> bytes:
        """Return the skills with other files beside them, as a signed archive."""
        self.files = files
        return self.packed(number)

    def push(self, number: int, *, rules: str = "", policy: str = "") -> BundlePointer:
        """Publish the skills as they are now, with a configuration and a tier policy if given."""
        given = {"config.toml": rules.encode(), "policy.yml": policy.encode()}
        self.files = {name: data for name, data in given.items() if data}
        store = remote.open_store(f"file://{self.store}", remote.StoreAccess())
        return publish_bundle(store, self.packed(number), number)

    def put(self, archive: bytes, number: int) -> None:
        """Store any bytes as an attacker who can write the bucket does."""
        pointer = BundlePointer(digest=registry_digest(archive), number=number)
        path = self.store / pointer.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive)
        (self.store / "current.json").write_bytes(pointer.as_json())

    @property
    def bundle(self) -> SkillBundleSource:
        return SkillBundleSource(self.config, now=lambda: NOW)

    def look(self) -> BundleLook:
        return self.bundle.look()

    def taken(self) -> dict[str, str]:
        """Return the text of each skill that is in the cache."""
        found = sorted(bundle_skills(self.config).glob("*/SKILL.md"))
        return {one.parent.name: one.read_text().rpartition("---\n")[2] for one in found}


def registry_digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


S3_FAULTS = {
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "ExpiredToken": 400,
    "RequestTimeTooSkewed": 403,
    "NoSuchBucket": 404,
    "SlowDown": 503,
    "InternalError": 500,
}
"""Codes of S3's errors, with the status of the answer."""


class SmallS3(ThreadingHTTPServer):
    """Keeps objects in memory: GET, and PUT with `If-None-Match` and `If-Match`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _S3Handler)
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.manner = ""
        """How it answers GET: "endless", "slow", "silent", "cut" in the middle, by the code of an
        error of S3, or as it should."""
        self.is_about = ""
        """What part of an object's name that is for; empty for all."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def settings(self) -> str:
        """Lines of `[skills]` that lead here."""
        return (
            f'source_endpoint = "{self.address}"\nsource_region = "us-east-1"\n'
            'source_access_key = "env:S3_ID"\nsource_secret_key = "env:S3_SECRET"\n'
        )

    @property
    def access(self) -> remote.StoreAccess:
        return remote.StoreAccess(
            endpoint=self.address,
            region="us-east-1",
            access_key="id",
            secret_key="secret",
            seconds=1.0,
        )


class _S3Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: SmallS3

    def do_GET(self) -> None:
        if self.server.manner and self.server.is_about in self.path:
            self._misbehave()
            return
        found = self.server.objects.get(self.path)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self.answer(200, found, self._about(found))

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            found = self.server.objects.get(self.path)
            wanted = self.headers.get("If-Match")
            is_new = self.headers.get("If-None-Match") == "*"
            tag = "" if found is None else self._about(found)["ETag"]
            if (is_new and found is not None) or (wanted is not None and wanted != tag):
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            self.server.objects[self.path] = data
        self.answer(200, b"", self._about(data))

    def _about(self, data: bytes) -> dict[str, str]:
        tag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return {"ETag": f'"{tag}"', "Last-Modified": "Mon, 23 Nov 2026 12:00:00 GMT"}

    def _misbehave(self) -> None:
        if self.server.manner == "silent":
            self.server.ended.wait(20)
            return
        if self.server.manner in S3_FAULTS:
            text = f"<Error><Code>{self.server.manner}</Code><Message>said</Message></Error>"
            self.answer(S3_FAULTS[self.server.manner], text.encode())
            return
        if self.server.manner == "cut":
            found = self.server.objects[self.path]
            self.send_response(200)
            for name, value in {**self._about(found), "Content-Length": str(len(found))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found[: len(found) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        self.send_response(200)
        about = self._about(b"")
        for name, value in {**about, "Content-Length": str(1 << 40)}.items():
            self.send_header(name, value)
        self.end_headers()
        is_slow = self.server.manner == "slow"
        until = time.monotonic() + 20
        try:
            while time.monotonic() < until and not self.server.ended.is_set():
                self.wfile.write(b" " if is_slow else b" " * 65_536)
                if is_slow:
                    self.server.ended.wait(0.2)
        except OSError:
            self.close_connection = True


@contextmanager
def small_s3() -> Iterator[SmallS3]:
    """Serve one while the block runs."""
    server = SmallS3()
    with serving_http(server):
        try:
            yield server
        finally:
            server.ended.set()

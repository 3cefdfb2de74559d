"""The signed roles of a registry: python-tuf's own client is the judge of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.registry.rooted import RootedRegistry
from tuf.api.exceptions import DownloadHTTPError
from tuf.api.metadata import Metadata, Snapshot
from tuf.api.serialization.json import CanonicalJSONSerializer
from tuf.ngclient import Updater
from tuf.ngclient.fetcher import FetcherInterface

from skillhouse.extensions.registry.hosting import HostingError, checked_address
from skillhouse.extensions.registry.hosting.offline_roles import new_signer
from skillhouse.extensions.registry.hosting.online_roles import KEPT_SECONDS, canonical
from skillhouse.registry import encode_document
from skillhouse.registry.releases import index_path

PDF = index_path("default", "pdf")


class FileFetcher(FetcherInterface):
    """Reads what a server of files would serve, and keeps what was asked."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.asked: list[str] = []

    def _fetch(self, url: str) -> Iterator[bytes]:
        self.asked.append(url)
        try:
            yield (self.place / url).read_bytes()
        except FileNotFoundError:
            raise DownloadHTTPError(url, 404) from None


def read(registry: RootedRegistry, path: str, state: str = "client") -> tuple[bytes, list[str]]:
    """Return a document by python-tuf's client, nothing for none, and what it asked for."""
    place, fetcher = registry.place / state, FileFetcher(registry.directory)
    (place / "targets").mkdir(parents=True, exist_ok=True)
    root = (registry.directory / "metadata/1.root.json").read_bytes()
    updater = Updater(
        str(place), "metadata/", str(place / "targets"), "targets/", fetcher, bootstrap=root
    )
    found = updater.get_targetinfo(path)
    data = Path(updater.download_target(found)).read_bytes() if found else b""
    return data, fetcher.asked


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RootedRegistry]:
    made = RootedRegistry(tmp_path)
    yield made
    made.close()


def test_each_document_is_a_target_that_python_tuf_accepts(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0", "acme")
    releases = encode_document(registry.hosted.releases("pdf"))
    assert read(registry, PDF)[0] == releases
    assert b'"name": "skills.example.com"' in read(registry, "registry.json")[0]
    assert b"BEGIN CERTIFICATE" in read(registry, "publishers.pem")[0]
    assert read(registry, index_path("default", "other"))[0] == b""


def test_a_publish_writes_one_bin_the_snapshot_and_the_timestamp(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0")
    place = registry.directory / "metadata"
    before = {path.name for path in place.iterdir()}
    registry.publish("pdf", "1.1.0")
    new = {path.name.partition(".")[2] for path in place.iterdir() if path.name not in before}
    assert {name.partition("-")[0] for name in new} == {"snapshot.json", "bin"}
    assert len(new) == 2
    first, again = read(registry, PDF)[1], read(registry, PDF)[1]
    assert (len(first), again[:2]) == (7, ["metadata/2.root.json", "metadata/timestamp.json"])


@pytest.mark.parametrize("state", ["yanked", "revoked"])
def test_a_takedown_and_a_channel_are_signed(registry: RootedRegistry, state):
    registry.publish("pdf", "1.0.0")
    registry.hosted.set_channel("pdf", "beta", "1.0.0")
    assert b'"beta": "1.0.0"' in read(registry, PDF)[0]
    registry.hosted.set_state(checked_address("pdf", "1.0.0"), state, "steals keys")
    assert f'"state": "{state}"'.encode() in read(registry, PDF)[0]


def test_what_a_crash_left_unsigned_is_signed_next(registry: RootedRegistry, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(registry.hosted, "sign_changes", lambda: None)
        registry.publish("pdf", "1.0.0")
    assert read(registry, PDF)[0] == b""
    registry.publish("csv", "1.0.0")
    assert b'"name": "pdf"' in read(registry, PDF)[0]


def test_the_timestamp_is_signed_again_after_an_hour(registry: RootedRegistry):
    registry.age = timedelta(minutes=-50)
    assert not registry.hosted.roles().sign()
    registry.age = timedelta(minutes=-70)
    assert registry.hosted.roles().sign()


def test_bins_are_signed_again_before_they_end(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0")
    registry.age = timedelta(days=-80)
    assert registry.hosted.roles().sign()
    snapshot = Metadata[Snapshot].from_file(
        str(max((registry.directory / "metadata").glob("*snapshot*")))
    )
    versions = {one.version for name, one in snapshot.signed.meta.items() if "bin-" in name}
    assert versions == {2, 3}


def test_files_that_were_replaced_go_after_a_day(registry: RootedRegistry, monkeypatch):
    registry.publish("pdf", "1.0.0")
    registry.publish("pdf", "1.1.0")
    count = len(list((registry.directory / "targets").rglob("*.pdf.json")))
    monkeypatch.setattr("time.time", lambda: registry.now.timestamp() + KEPT_SECONDS + 3_600)
    registry.age = timedelta(hours=-2)
    registry.publish("pdf", "1.2.0")
    left = len(list((registry.directory / "targets").rglob("*.pdf.json")))
    snapshots = len(list((registry.directory / "metadata").glob("*.snapshot.json")))
    assert (count, left, snapshots) == (2, 1, 1)
    assert read(registry, PDF)[0]


def test_a_root_needs_its_threshold(registry: RootedRegistry):
    registry.roles.rotate(remove=[registry.keys[0].public_key.keyid])
    registry.sign(registry.keys[1])
    assert not (registry.directory / "metadata/2.root.json").exists()
    registry.sign(registry.keys[2])
    assert (registry.directory / "metadata/2.root.json").exists()
    assert read(registry, "registry.json")[0]


def test_a_rotation_is_accepted_by_who_pinned_the_first_root(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0")
    read(registry, PDF)
    other = new_signer(registry.place / "d.pem")
    registry.roles.rotate(
        add=[other.public_key], remove=[registry.keys[0].public_key.keyid], online=True
    )
    with pytest.raises(HostingError, match="none of the root's"):
        registry.roles.sign(new_signer(registry.place / "e.pem"))
    registry.sign(registry.keys[0], registry.keys[1], other)
    registry.publish("pdf", "1.1.0")
    for state in ("client", "fresh"):
        data, asked = read(registry, PDF, state)
        assert b'"1.1.0"' in data
        assert "metadata/2.root.json" in asked


def test_an_owned_name_takes_its_owners_signatures_alone(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0", "acme")
    registry.publish("csv", "1.0.0", "evil")
    registry.give({"pdf": ("acme",)})
    for signer in ("evil", ""):
        with pytest.raises(HostingError, match="`pdf` belongs to acme") as caught:
            registry.publish("pdf", "1.0.1", signer)
        assert caught.value.code == "signature"
    registry.publish("pdf", "1.0.2", "acme")
    registry.publish("csv", "1.0.1", "acme")


def test_signatures_about_older_owners_are_dropped(registry: RootedRegistry):
    registry.roles.set_owners({"pdf": ("acme",)})
    registry.roles.sign(registry.keys[0])
    registry.roles.set_owners({"pdf": ("evil",)})
    registry.sign(registry.keys[1])
    assert registry.roles.owners().of("default", "pdf") == ()
    registry.sign(registry.keys[0])
    assert registry.roles.owners().of("default", "pdf") == ("evil",)


def test_our_canonical_form_is_that_of_python_tuf(registry: RootedRegistry):
    registry.publish("pdf", "1.0.0")
    for path in (registry.directory / "metadata").glob("*.json"):
        found = Metadata.from_file(str(path)).signed
        wanted = CanonicalJSONSerializer().serialize(found)
        assert canonical(found) == wanted

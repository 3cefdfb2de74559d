"""Tests of backup.py."""

from __future__ import annotations

import json
import shutil
import tarfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.registry.sources import make_skill

from skillhouse.extensions.registry.hosting import (
    TokenAccess,
    access_of,
    checked_address,
    new_token,
    open_repository,
    utc_text,
)
from skillhouse.extensions.registry.hosting.backup import (
    BackupError,
    back_up,
    restore,
    served,
)
from skillhouse.registry import pack
from skillhouse.registry.releases import blob_path

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
ADMIN = TokenAccess("a", ("admin",))


def publish(directory: Path, name: str, version: str = "1.0.0") -> str:
    """Publish a small skill and return the digest of its archive."""
    archive = pack(make_skill(directory.parent / version / name, version=version)).archive
    with closing(open_repository(directory, name="skills.example.com").store) as _:
        repository = open_repository(directory)
        upload = repository.blobs.new_upload()
        file = upload / "archive.part"
        file.write_bytes(archive)
        release = repository.publish(checked_address(name, version), file, access=ADMIN)
        repository.blobs.end_upload(upload)
        repository.store.close()
    return release.digest


def names(directory: Path) -> list[str]:
    store = open_repository(directory).store
    with closing(store):
        return [one.skill for one in store.newest("default", 100)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "registry"
    publish(place, "pdf")
    (place / "publishers/trusted").mkdir(parents=True)
    (place / "publishers/trusted/root.crt").write_text("root")
    return place


@pytest.mark.parametrize("target", ["backup.tar", "backup"])
def test_a_backup_makes_the_registry_again_elsewhere(directory: Path, tmp_path: Path, target: str):
    facts = back_up(directory, tmp_path / target, NOW)
    assert (facts.registry, facts.last_change, facts.archives) == ("skills.example.com", 1, 1)
    digest = publish(directory, "csv")
    assert back_up(directory, tmp_path / target, NOW).last_change == 2
    shutil.rmtree(directory)
    found, former = restore(tmp_path / target, directory, NOW)
    assert (found.last_change, former) == (2, "")
    assert names(directory) == ["csv", "pdf"]
    assert (directory / blob_path(digest)).is_file()
    assert (directory / "publishers/trusted/root.crt").read_text() == "root"
    assert publish(directory, "txt")
    for name in ("registry.sqlite3", "publishers/trusted/root.crt", "blobs"):
        assert (directory / name).stat().st_mode & 0o077 == 0


def test_a_backup_is_made_while_a_server_runs_and_not_brought_back(directory: Path, tmp_path: Path):
    with served(directory):
        back_up(directory, tmp_path / "backup.tar", NOW)
        with served(directory), pytest.raises(BackupError, match="stop it first") as caught:
            restore(tmp_path / "backup.tar", directory, NOW)
    assert caught.value.code == "served"
    restore(tmp_path / "backup.tar", directory, NOW)


def test_an_older_backup_is_brought_back_by_a_word_and_revokes_what_was_revoked(
    directory: Path, tmp_path: Path
):
    publish(directory, "bad")
    repository = open_repository(directory)
    secret, token = new_token(repository.store, ("admin",), NOW)
    back_up(directory, tmp_path / "backup.tar", NOW)
    repository.set_state(checked_address("bad", "1.0.0"), "revoked", "steals keys")
    repository.store.revoke_token(token.id, utc_text(NOW))
    repository.store.close()
    publish(directory, "later")
    with pytest.raises(BackupError, match="clients saw change 4, and it ends with 2") as caught:
        restore(tmp_path / "backup.tar", directory, NOW)
    assert caught.value.code == "behind"
    assert names(directory) == ["later", "pdf"]
    _, former = restore(tmp_path / "backup.tar", directory, NOW, go_back=True)
    assert Path(former).is_file()
    assert names(directory) == ["pdf"]
    again = open_repository(directory)
    with closing(again.store):
        # What is followed goes on after what was seen, with every skill.
        changes = again.store.changes(4, 10)
        assert [(one.seq, one.kind, one.name) for one in changes] == [
            (5, "restore", "pdf"),
            (6, "restore", "bad"),
            (7, "revoke", "bad"),
        ]
        assert again.release("bad", "1.0.0").state == "revoked"
        assert access_of(again.store, secret, NOW) is None


def test_what_clients_saw_is_known_from_elsewhere_too(directory: Path, tmp_path: Path):
    back_up(directory, tmp_path / "backup.tar", NOW)
    shutil.rmtree(directory)
    with pytest.raises(BackupError, match="clients saw change 9"):
        restore(tmp_path / "backup.tar", directory, NOW, seen=9)
    assert not (directory / "registry.sqlite3").exists()
    restore(tmp_path / "backup.tar", directory, NOW, seen=9, go_back=True)
    with closing(open_repository(directory).store) as store:
        assert [one.seq for one in store.changes(1, 10)] == [10]


def test_signed_metadata_that_clients_saw_is_not_gone_behind(directory: Path, tmp_path: Path):
    signed = directory / "metadata/timestamp.json"
    signed.parent.mkdir()
    signed.write_text(json.dumps({"signed": {"version": 7}}))
    back_up(directory, tmp_path / "backup", NOW)
    signed.write_text(json.dumps({"signed": {"version": 8}}))
    with pytest.raises(BackupError, match="signed metadata 8, and it has 7"):
        restore(tmp_path / "backup", directory, NOW)
    restore(tmp_path / "backup", directory, NOW, go_back=True)
    assert json.loads(signed.read_text())["signed"]["version"] == 8


def test_a_damaged_database_is_replaced(directory: Path, tmp_path: Path):
    back_up(directory, tmp_path / "backup.tar", NOW)
    (directory / "registry.sqlite3").write_bytes(b"damaged" * 4096)
    restore(tmp_path / "backup.tar", directory, NOW)
    assert names(directory) == ["pdf"]


def test_what_is_no_backup_is_left_alone(directory: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    with pytest.raises(BackupError, match="no backup"):
        back_up(directory, tmp_path / "mine", NOW)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
    with pytest.raises(BackupError, match=r"backup\.json"):
        restore(tmp_path / "mine", directory, NOW)
    (tmp_path / "text.tar").write_text("text")
    with pytest.raises(BackupError, match="no backup"):
        restore(tmp_path / "text.tar", directory, NOW)
    assert names(directory) == ["pdf"]
    assert not list(directory.glob(".restore-*"))


def test_a_backup_without_an_archive_or_with_another_is_refused(directory: Path, tmp_path: Path):
    digest = publish(directory, "csv")
    back_up(directory, tmp_path / "backup", NOW)
    archive = tmp_path / "backup" / blob_path(digest)
    archive.write_bytes(b"other")
    with pytest.raises(BackupError, match=digest):
        restore(tmp_path / "backup", directory, NOW)
    archive.unlink()
    with pytest.raises(BackupError, match=digest):
        restore(tmp_path / "backup", directory, NOW)


@pytest.mark.parametrize("name", ["../outside", "/outside", "link/outside", "backup.json"])
def test_a_backup_writes_nothing_outside(directory: Path, tmp_path: Path, name: str):
    back_up(directory, tmp_path / "backup.tar", NOW)
    made = tmp_path / "made.tar"
    with tarfile.open(tmp_path / "backup.tar") as tar, tarfile.open(made, "w") as evil:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        if name.startswith("link"):
            evil.addfile(link)
        for one in tar:
            evil.addfile(one, tar.extractfile(one))
        other = tarfile.TarInfo(name)
        evil.addfile(other)
    with pytest.raises(BackupError):
        restore(made, directory, NOW)
    assert not (tmp_path / "outside").exists()
    assert names(directory) == ["pdf"]

"""Attacks on what a registry says is current, and on whose a name is (the TUF paper's, and two).

Each comes by a mirror, or by who broke into the server, and is tried on a user who installed from
the registry before and on one who never did. Both pinned the root. Each is shown to work first: on
one who pins nothing, or with the check taken out where it is against the root itself.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tuf.api.metadata import Metadata, Snapshot, Timestamp

from skillhouse.extensions.registry.hosting import HostedRepository, checked_address
from skillhouse.extensions.registry.hosting.offline_roles import highest
from skillhouse.registry import (
    DirectoryAccess,
    RepositoryAnswer,
    Revocation,
    encode_document,
    next_list,
    pack,
    sign_list,
)
from skillhouse.registry.releases import REVOCATIONS_FILE, blob_path, index_path
from skillhouse.registry.signed_targets import SignedTargets
from skillhouse.store import STATE_FILE
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.registry.rooted import RootedRegistry
from tests.registry.sources import make_skill

__all__ = ["place", "run"]
AGREED = ("--yes", "--allow-unsigned", "--accept-untrusted")
PDF = index_path("default", "pdf")
SHORTER = 2_000_000
"""Bytes that are more than any role may have, and that a test can read."""
USERS = pytest.mark.parametrize("user", ["existing", "fresh"])


@pytest.fixture
def registry(place: Path) -> Iterator[RootedRegistry]:
    made = RootedRegistry(place)
    made.publish("pdf", "1.0.0", "acme")
    made.give({"pdf": ("acme",)})
    yield made
    made.close()


class Victim:
    """Installs `pdf` from wherever the address of the registry leads."""

    def __init__(self, run: Run, place: Path, registry: RootedRegistry, user: str) -> None:
        self.run, self.place, self.registry, self.user = run, place, registry, user
        if user == "existing":
            self.reaches(registry.directory)
            assert self.install()[0] == 0
            self.version = str(lock_of(place)["pdf"]["version"])

    def reaches(self, directory: Path, *, pinned: bool = True, more: str = "") -> None:
        root = f'root = "{self.registry.root}"\n' if pinned else ""
        configure(self.place, ("official", directory.as_uri(), True), more=root + more)

    def install(self, *words: str) -> tuple[int, str]:
        code, out, err = self.run("install", *(words or ("pdf",)), *AGREED)
        return code, out + err

    def refuses(self, directory: Path, *expected: str) -> None:
        """Both ways in are refused, and nothing changes."""
        self.reaches(directory)
        before = lock_of(self.place)
        ways = [("install", "pdf"), ("update", "pdf")][: 1 + (self.user == "existing")]
        for words in ways:
            code, out, err = self.run(*words, *AGREED)
            assert code == 1, out + err
            assert any(one in out + err for one in expected), out + err
        assert lock_of(self.place) == before


@pytest.fixture
def victim(run: Run, place: Path, registry: RootedRegistry, user: str) -> Victim:
    return Victim(run, place, registry, user)


def unpinned_falls(
    victim: Victim, directory: Path, version: str, asked: str = "pdf", *, trusts: str = ""
) -> str:
    """Show the attack at work on who pins nothing; who has the skill is not asked again.

    Args:
        trusts: The certificate of a publishers' root that this user trusts besides the registry's.

    Returns:
        What the install said.
    """
    if victim.user == "existing":
        return ""
    victim.reaches(directory, pinned=False)
    with trusted(victim, trusts):
        code, said = victim.install(asked)
        assert code == 0, said
        assert lock_of(victim.place)["pdf"]["version"] == version
        assert victim.run("uninstall", "pdf")[0] == 0
    return said


@contextmanager
def trusted(victim: Victim, also: str = "") -> Iterator[None]:
    """Let a user trust the publishers of a registry by hand, as one does who pins no root."""
    for number, pem in enumerate(filter(None, (victim.registry.publishers, also))):
        file = victim.place / f"trusted-{number}.crt"
        file.write_text(pem)
        assert victim.run("keys", "trust", str(file))[0] == 0
    yield
    for one in json.loads(victim.run("keys", "trust", "--json")[1])["roots"]:
        assert victim.run("keys", "trust", "--remove", one["certificate"])[0] == 0


def forget_seen(place: Path) -> None:
    """Forget what this machine saw of repositories, as a new machine has seen nothing."""
    shutil.rmtree(place / "home/.local/state/skillhouse/repositories", ignore_errors=True)


@USERS
def test_1_arbitrary_software(victim: Victim, registry: RootedRegistry):
    """A mirror puts another package, unsigned, where the newest version is named."""
    mirror = registry.copied("mirror")
    made = pack(make_skill(registry.place / "evil/pdf", "Evil.", version="6.6.6"))
    before = registry.hosted.releases("pdf")
    found = json.loads(encode_document(before))
    release = {
        **found["versions"][0],
        "version": "6.6.6",
        "digest": made.digest,
        "tree_digest": made.tree.digest,
        "size": len(made.archive),
        "signature": None,
    }
    document = json.dumps({**found, "versions": [release], "latest": "6.6.6"}).encode()
    for path in (PDF, blob_path(made.digest)):
        (mirror / path).parent.mkdir(parents=True, exist_ok=True)
    (mirror / PDF).write_bytes(document)
    (mirror / blob_path(made.digest)).write_bytes(made.archive)
    (mirror / "registry.json").write_bytes(b'{"api": 1, "name": "skills.example.com"}')
    unpinned_falls(victim, mirror, "6.6.6")
    for target in (mirror / "targets").rglob("*.pdf.json"):
        target.write_bytes(document)
    forget_seen(victim.place)
    victim.refuses(mirror, "is not as its root signed it")


@USERS
def test_2_wrong_software(victim: Victim, registry: RootedRegistry, monkeypatch):
    """Who broke into the server adds a version signed by another publisher of the registry."""
    with monkeypatch.context() as patch:
        patch.setattr(HostedRepository, "_refuse_signer", lambda *_: None)
        registry.publish("pdf", "1.0.5", "evil")
    unpinned_falls(victim, registry.copied("naive"), "1.0.5")
    victim.refuses(registry.directory, "`pdf` belongs to acme, and this one is signed by evil")


@USERS
def test_3_cross_repository_confusion(victim: Victim, registry: RootedRegistry, place: Path):
    """The mirror of one registry serves another one, which has a root of its own."""
    (place / "other").mkdir()
    other = RootedRegistry(place / "other")
    other.publish("pdf", "2.0.0", "acme")
    mirror = other.copied("mirror")
    unpinned_falls(victim, mirror, "2.0.0", trusts=other.publishers)
    victim.refuses(mirror, "not the pinned one", "is not as its root signed it")
    if victim.user == "existing":
        shutil.rmtree(place / "home/.local/state/skillhouse/repositories")
        victim.refuses(mirror, "not the pinned one")
    configure(
        place,
        ("official", registry.directory.as_uri(), True),
        more=f'root = "{registry.root}"\nregistry = "public.example"\n',
    )
    code, said = victim.install()
    assert code == 1
    assert "expected the registry `public.example`" in said
    other.close()


@USERS
def test_4_rollback(victim: Victim, registry: RootedRegistry, user: str):
    """A mirror, or a server from its backup, goes back to before a hole was closed."""
    old = registry.copied("old")
    registry.publish("pdf", "1.0.1", "acme")
    victim.reaches(registry.directory)
    if user == "existing":
        assert victim.run("update", "pdf", *AGREED)[0] == 0
        # Who pins nothing goes back with a word of warning.
        victim.reaches(old, pinned=False)
        assert victim.install()[0] == 0
        assert lock_of(victim.place)["pdf"]["version"] == "1.0.0"
        victim.reaches(registry.directory)
        assert victim.run("update", "pdf", *AGREED)[0] == 0
        victim.refuses(old, "is older than what was seen here before")
        return
    unpinned_falls(victim, old, "1.0.0")
    # What cannot be known: this copy is not a day old, and nothing newer was ever seen.
    victim.reaches(old)
    assert victim.install()[0] == 0
    assert lock_of(victim.place)["pdf"]["version"] == "1.0.0"


@USERS
@pytest.mark.parametrize("days", [3, 12])
def test_5_indefinite_freeze(run: Run, place: Path, user: str, days: int):
    """A mirror stays as it was: it is said with its age, and refused a week later."""
    registry = RootedRegistry(place, age=timedelta(days=days))
    registry.publish("pdf", "1.0.0", "acme")
    frozen = registry.copied("frozen")
    registry.age = timedelta()
    registry.hosted.sign_changes()
    victim = Victim(run, place, registry, user)
    # Who pins nothing is told nothing of its age.
    assert "ended" not in unpinned_falls(victim, frozen, "1.0.0")
    forget_seen(place)
    if days == 12:
        victim.refuses(frozen, "ended more than 7 days ago")
        return
    victim.reaches(frozen)
    words = ("outdated",) if user == "existing" else ("install", "pdf", *AGREED)
    code, out, err = run(*words)
    assert "is current ended 2 days ago: a newer version, or a takedown" in out + err
    assert code == 0
    victim.reaches(frozen, more="stale_days = 0\n")
    assert "ended more than 0 hours ago" in victim.install()[1]
    registry.close()


@USERS
@pytest.mark.parametrize("part", ["bin", "target", "snapshot"])
def test_6_mix_and_match(victim: Victim, registry: RootedRegistry, part: str):
    """A mirror serves a new state with a part of an older one."""
    old = registry.copied("old")
    registry.publish("pdf", "1.0.1", "acme")
    mirror = registry.copied("mirror")
    # Who pins nothing takes a newer document of the repository with an older one of the skill.
    naive = registry.copied("naive")
    shutil.copy(old / PDF, naive / PDF)
    unpinned_falls(victim, naive, "1.0.0")
    kinds = {"bin": "bin-", "target": ".pdf.json", "snapshot": ".snapshot"}
    place = "targets" if part == "target" else "metadata"
    before = sorted(path for path in (old / place).rglob("*.json") if kinds[part] in path.name)
    new = [
        path
        for path in (mirror / place).rglob("*.json")
        if kinds[part] in path.name and not (old / path.relative_to(mirror)).exists()
    ]
    assert new
    for path in new:
        role = path.name.partition(".")[2]
        same = [one for one in before if one.name.endswith(role)]
        path.write_bytes(same[-1].read_bytes())
    victim.refuses(mirror, "is not as its root signed it", "is older than what was seen")


@USERS
def test_7_fast_forward(victim: Victim, registry: RootedRegistry):
    """A stolen server's key counts to a million; the next root and key take all of it back."""
    mirror = registry.copied("mirror")
    signer = registry.roles.online_signer(registry.roles.required("root").signed)
    snapshot = Metadata[Snapshot].from_file(str(highest(mirror / "metadata", "snapshot")))
    timestamp = Metadata[Timestamp].from_file(str(mirror / "metadata/timestamp.json"))
    snapshot.signed.version = timestamp.signed.version = 1_000_000
    timestamp.signed.snapshot_meta.version = 1_000_000
    for found, name in ((snapshot, "1000000.snapshot.json"), (timestamp, "timestamp.json")):
        found.sign(signer)
        found.to_file(str(mirror / "metadata" / name))
    victim.reaches(mirror)
    assert victim.install()[0] == 0
    # The attack works: what is current is refused. Only signed metadata has numbers that can be
    # counted up, so there is none against who pins no root; what has to hold is the way back.
    victim.refuses(registry.directory, "is older than what was seen here before")
    registry.roles.rotate(online=True)
    registry.sign()
    registry.publish("pdf", "1.0.1", "acme")
    victim.reaches(registry.directory)
    assert victim.run("update", "pdf", *AGREED)[0] == 0
    assert lock_of(victim.place)["pdf"]["version"] == "1.0.1"


@USERS
def test_8_stripped_and_replayed_revocations(victim: Victim, registry: RootedRegistry):
    """A mirror serves no list of what was revoked, or the one before."""
    party, lists = registry.authority, []
    content = None
    for entries in ((), (Revocation(release="pdf@1.0.0", reason="steals keys"),)):
        content = next_list(content, entries, registry.now)
        lists.append(sign_list(content, key=party.key, issuer=party.chain))
        registry.hosted.put_revocations(lists[-1])
    for name, data in (("stripped", None), ("replayed", lists[0])):
        mirror = registry.copied(name)
        listed = mirror / REVOCATIONS_FILE
        listed.unlink() if data is None else listed.write_bytes(data)
        unpinned_falls(victim, mirror, "1.0.0")
        for path in (mirror / "targets").glob("*.revocations.json"):
            path.unlink() if data is None else path.write_bytes(data)
        victim.refuses(mirror, "is not as its root signed it")
    victim.refuses(registry.directory, "the release was revoked (steals keys)")


@USERS
@pytest.mark.parametrize("file", ["metadata/timestamp.json", "metadata/2.root.json"])
def test_9_endless_data(victim: Victim, registry: RootedRegistry, file: str, monkeypatch):
    """A mirror sends more than any role may have; it is not read to its end."""
    mirror = registry.copied("mirror")
    with (mirror / file).open("wb") as endless:
        endless.truncate(1 << 40)
    victim.refuses(mirror, "expected at most")
    # With the bounds taken out it is read to its end; of what has a length that is harmless here.
    with (mirror / file).open("wb") as shorter:
        shorter.truncate(SHORTER)
    taken = []

    def unbounded(_: object, path: str, max_bytes: int, **_more: object) -> RepositoryAnswer:
        found = mirror / path
        if not found.is_file():
            return RepositoryAnswer(status=404)
        taken.append(len(data := found.read_bytes()))
        assert max_bytes < SHORTER
        return RepositoryAnswer(status=200, body=data)

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryAccess, "__call__", unbounded)
        victim.refuses(mirror, "expected at most")
    assert max(taken) == SHORTER


@USERS
def test_10_a_publishers_stolen_key(victim: Victim, registry: RootedRegistry):
    """A thief signs 999.0.0 as the owner; the takedown is signed, and a mirror cannot hide it."""
    registry.publish("pdf", "999.0.0", "acme")
    before = registry.copied("before")
    victim.reaches(before)
    if victim.user == "existing":
        assert victim.run("update", "pdf", *AGREED)[0] == 0
    registry.hosted.set_state(checked_address("pdf", "999.0.0"), "revoked", "stolen key")
    # A mirror from before hides the takedown from who pins nothing.
    unpinned_falls(victim, before, "999.0.0")
    victim.reaches(registry.directory)
    code, said = victim.install("pdf@999.0.0")
    assert (code, "revoked" in said) == (1, True), said
    if victim.user == "existing":
        code, out, err = victim.run("verify", "pdf")
        assert "stolen key" in out + err
        victim.refuses(before, "is older than what was seen here before")


@USERS
def test_11_a_stolen_key_of_the_root(victim: Victim, registry: RootedRegistry):
    """One key of three makes no root; the others take it out, and no person pins again."""
    mirror = registry.copied("mirror")
    forged = registry.roles.required("root")
    forged.signed.version = 2
    forged.signed.roles["root"].threshold = 1
    forged.sign(registry.keys[2])
    forged.to_file(str(mirror / "metadata/2.root.json"))
    one_key_is_a_root(victim)
    victim.refuses(mirror, "is not as its root signed it")
    registry.roles.rotate(remove=[registry.keys[2].public_key.keyid])
    registry.sign()
    registry.publish("pdf", "1.0.1", "acme")
    victim.reaches(registry.directory)
    assert victim.install()[0] == 0
    assert lock_of(victim.place)["pdf"]["version"] == "1.0.1"


def one_key_is_a_root(victim: Victim) -> None:
    """Show the attack at work where one key is enough, on who saw nothing of that registry."""
    (victim.place / "weak").mkdir()
    weak = RootedRegistry(victim.place / "weak", threshold=1)
    weak.publish("pdf", "1.0.0", "acme")
    mirror = weak.copied("mirror")
    forged = weak.roles.required("root")
    forged.signed.version = 2
    forged.sign(weak.keys[2])
    forged.to_file(str(mirror / "metadata/2.root.json"))
    read = SignedTargets(
        DirectoryAccess(mirror),
        address="weak",
        root=weak.root,
        state=victim.place / "weak-state",
        stale_days=0,
    )
    assert read.read(PDF) is not None
    taken = victim.place / "weak-state/root_history/2.root.json"
    assert taken.read_bytes() == (mirror / "metadata/2.root.json").read_bytes()
    weak.close()


@USERS
def test_12_backdating(victim: Victim, registry: RootedRegistry):
    """The server's key before the last rotation signs an older state as one of today."""
    old = registry.copied("old")
    signer = registry.roles.online_signer(registry.roles.required("root").signed)
    timestamp = Metadata[Timestamp].from_file(str(old / "metadata/timestamp.json"))
    timestamp.signed.version = 9_000
    timestamp.sign(signer)
    timestamp.to_file(str(old / "metadata/timestamp.json"))
    # While the root has that key, it works, and nothing newer is seen any more.
    victim.reaches(old)
    assert victim.install()[0] == 0
    assert lock_of(victim.place)["pdf"]["version"] == "1.0.0"
    registry.roles.rotate(online=True)
    registry.sign()
    registry.publish("pdf", "1.0.1", "acme")
    for root in (registry.directory / "metadata").glob("*.root.json"):
        shutil.copy(root, old / "metadata")
    victim.refuses(old, "is not as its root signed it")


@USERS
def test_13_clock_skew(run: Run, place: Path, user: str, monkeypatch):
    """A clock that is behind makes old things look new: what is signed for later says so."""
    registry = RootedRegistry(place)
    registry.publish("pdf", "1.0.0", "acme")
    victim = Victim(run, place, registry, user)
    registry.age = timedelta(days=-4)
    registry.hosted.sign_changes()
    with monkeypatch.context() as patch:
        patch.setattr(SignedTargets, "_refuse_early", lambda *_: None)
        victim.reaches(registry.directory)
        assert victim.install()[0] == 0, "without the check it is taken as current"
    victim.refuses(registry.directory, "check the clock")
    registry.close()


def test_nothing_of_a_pinned_repository_is_read_without_tuf(
    run: Run, place: Path, registry: RootedRegistry, monkeypatch
):
    monkeypatch.delitem(sys.modules, "skillhouse.registry.signed_targets", raising=False)
    for name in ("tuf", "tuf.api", "tuf.ngclient"):
        monkeypatch.setitem(sys.modules, name, None)
    victim = Victim(run, place, registry, "fresh")
    victim.reaches(registry.directory)
    code, said = victim.install()
    assert (code, "needs the optional part `registry`" in said) == (1, True), said


@pytest.mark.parametrize("user", ["existing"])
def test_a_takedown_has_the_number_of_what_was_signed(
    victim: Victim, registry: RootedRegistry, place: Path
) -> None:
    """By it a later signed word lifts it, and no earlier one."""
    address = checked_address("pdf", "1.0.0")
    registry.hosted.set_state(address, "revoked", "steals keys")
    code, out, err = victim.run("verify")
    assert code == 1, out + err
    (state,) = place.rglob(STATE_FILE)
    with closing(sqlite3.connect(state)) as rows:
        ((signed,),) = rows.execute("SELECT signed FROM takedown").fetchall()
    snapshot = json.loads((registry.directory / "metadata/timestamp.json").read_bytes())
    assert signed == snapshot["signed"]["meta"]["snapshot.json"]["version"] > 0

"""Attacks on what this machine keeps of publishers and repositories.

What was verified stays good once a certificate or a list has ended, and what was taken down stays
down. So an attacker claims a verified time, or has a takedown forgotten.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from skillhouse.floor import SIGNATURE_FILE, structs
from skillhouse.house.installed_check import InstalledCheck, Judgement
from skillhouse.registry import (
    TRUSTED_DIRECTORY,
    AnchorStore,
    LockEntry,
    SkillReleases,
    TrustMemory,
    fingerprint,
    next_list,
    read_lock,
    revoked_certificate,
    sign_list,
)
from skillhouse.registry.lock import Lock
from skillhouse.registry.trust_memory import TAKEDOWNS_MAX
from skillhouse.store import STATE, STATE_FILE, close_pooled, pooled
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import UNSIGNED, configure
from tests.registry.pki import NOW, World, make_world
from tests.registry.repositories import StaticRepository

__all__ = ["place", "run"]

ENDED = NOW + timedelta(days=400)
"""After the end of every certificate of a developer."""


class Home:
    """A user with a signed skill that is installed, and a clock that can be set."""

    def __init__(self, place: Path, world: World) -> None:
        self.now = NOW
        self.place = place
        self.state = place / "state"
        self.state.mkdir(parents=True, mode=0o700)
        self.skill = place / "home/skills/pdf"
        shutil.copytree(world.directory, self.skill)
        (self.skill / SIGNATURE_FILE).write_bytes(world.signature())
        self.anchors = AnchorStore(self.state / TRUSTED_DIRECTORY)
        self.anchors.add_root(world.root.certificate)
        self.entry = LockEntry(
            tree_digest=world.tree.digest,
            repository="official",
            resolved="x",
            path="skills/pdf",
            digest=f"sha256:{'1' * 64}",
        )
        self.lock = place / "home/skills.lock"
        self.lock.write_bytes(Lock(skills={"pdf": self.entry}).encode())

    def check(self, *, refuses_ended: bool = False) -> InstalledCheck:
        """Return what another process would judge by."""
        return InstalledCheck(
            self.state,
            {"user": (self.lock, self.lock.parent)},
            refuses_ended=refuses_ended,
            now=lambda: self.now,
        )

    def fault(self, now: datetime | None = None) -> str:
        self.now = now or self.now
        return self.check().fault(self.skill, "user")

    def judged(self, now: datetime) -> Judgement:
        self.now = now
        return self.check().judge(self.skill, self.entry)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path / "world")


@pytest.fixture
def home(tmp_path: Path, world: World) -> Iterator[Home]:
    made = Home(tmp_path / "own", world)
    yield made
    close_pooled(made.state / STATE_FILE)


def test_what_was_verified_stays_good_and_is_warned_of_in_time(home: Home) -> None:
    """Both cliffs of the review (F6): an ended certificate, and a list that nobody renewed."""
    assert home.judged(NOW) == Judgement("ok")
    assert "certificate of acme ends on 2027-11-23" in home.judged(NOW + timedelta(340)).ending
    ended = home.judged(ENDED)
    assert (ended.state, ended.reason) == ("ok", "")
    assert "expired on 2027-11-23" in ended.ending
    assert "verified these files on 2026-11-23" in ended.ending
    home.now = ENDED
    strict = home.check(refuses_ended=True)
    assert "expired on 2027-11-23" in strict.fault(home.skill, "user")


def test_an_ended_list_warns_of_what_was_verified_and_refuses_what_is_new(
    home: Home, world: World
) -> None:
    assert home.fault(NOW) == ""
    home.anchors.add_list(listed(world), NOW)
    assert "list is of 2026-11-23" in home.judged(NOW + timedelta(days=10)).ending
    ended = home.judged(NOW + timedelta(days=31))
    assert (ended.state, "the list ended on 2026-12-23" in ended.ending) == ("ok", True)
    home.now = NOW + timedelta(days=31)
    assert "the list ended" in home.check(refuses_ended=True).fault(home.skill, "user")
    fresh = Home(home.place.parent / "fresh", world)
    fresh.anchors.add_list(listed(world), NOW)
    assert "the list ended" in fresh.fault(NOW + timedelta(days=31))


def listed(world: World, *, revoked: bool = False, now: datetime = NOW) -> bytes:
    root = world.root.certificate
    entries = [revoked_certificate(world.developer.certificate, root)] if revoked else []
    before = next_list(None, [], NOW) if revoked else None
    return sign_list(next_list(before, entries, now), key=world.root.key, issuer=[root])


@pytest.mark.parametrize("moment", [NOW + timedelta(days=1), ENDED, ENDED + timedelta(days=60)])
def test_a_revoked_certificate_is_refused_whenever_the_files_were_verified(
    home: Home, world: World, moment: datetime
) -> None:
    assert home.fault(NOW) == ""
    later = NOW + timedelta(hours=1)
    home.anchors.add_list(listed(world, revoked=True, now=later), later)
    # By an ended list, too.
    assert "the certificate was revoked" in home.fault(moment)


def test_a_lock_that_claims_a_verified_time(home: Home, world: World) -> None:
    """A project's lock is a stranger's file: whatever it says, this machine verified nothing."""
    value = json.loads(home.lock.read_text())
    claimed = {"verified_at": "2026-11-24T00:00:00Z", "dated": "2026-11-24"}
    value["skills"]["pdf"] |= claimed | {
        "signature": {
            "publisher": "acme",
            "cert_sha256": fingerprint(world.developer.certificate),
            "signed_at": "2026-11-24T00:00:00Z",
        }
    }
    home.lock.write_text(json.dumps(value))
    assert "pdf" in read_lock(home.lock).skills
    assert "expired on 2027-11-23" in home.fault(ENDED)


def test_a_state_copied_from_another_home(home: Home, world: World) -> None:
    """The times of another machine or user are not those of this one."""
    assert home.fault(NOW) == ""
    close_pooled(home.state / STATE_FILE)
    other = Home(home.place.parent / "other", world)
    shutil.copy(home.state / STATE_FILE, other.state / STATE_FILE)
    assert "expired on 2027-11-23" in other.fault(ENDED)
    assert home.fault(ENDED) == ""
    # On another machine, at the same place.
    elsewhere = home.place / "machine-id"
    elsewhere.write_text("another\n")
    signature = hashlib.sha256((home.skill / SIGNATURE_FILE).read_bytes()).hexdigest()
    assert TrustMemory(home.state).verified_at(world.tree.digest, signature) == NOW
    memory = TrustMemory(home.state, machine_id=elsewhere)
    assert memory.verified_at(world.tree.digest, signature) is None


def test_a_clock_that_is_set_back_makes_nothing_verified(home: Home, world: World) -> None:
    """A stolen key whose certificate ended signs, and the victim's clock is set back to its time.

    While the clock is wrong the signature holds, as for anybody; nothing of that stays.
    """
    assert home.fault(NOW) == ""
    with pooled(home.state / STATE_FILE, STATE) as store, store.transaction() as connection:
        connection.execute("UPDATE verified_tree SET at_ms = ?", (int(ENDED.timestamp() * 1000),))
    stolen = Home(home.place / "stolen", world)
    shutil.rmtree(stolen.state)
    stolen.state = home.state
    (stolen.skill / "SKILL.md").write_text((stolen.skill / "SKILL.md").read_text() + "More.\n")
    (stolen.skill / SIGNATURE_FILE).unlink()
    forged = World(world.root, world.developer, stolen.skill)
    (stolen.skill / SIGNATURE_FILE).write_bytes(forged.signature())
    stolen.entry = structs.replace(stolen.entry, tree_digest=forged.tree.digest)
    stolen.lock.write_bytes(Lock(skills={"pdf": stolen.entry}).encode())
    assert stolen.fault(NOW) == ""
    assert "expired on 2027-11-23" in stolen.fault(ENDED)


def test_a_clock_that_was_ahead_for_a_while_costs_nothing_afterwards(home: Home) -> None:
    assert home.fault(NOW) == ""
    assert home.judged(NOW + timedelta(days=9_000)).state == "ok"
    assert home.judged(NOW + timedelta(days=1)) == Judgement("ok")


def test_a_list_of_a_time_to_come_refuses_until_the_clock_is_right(
    home: Home, world: World
) -> None:
    assert home.fault(NOW) == ""
    home.anchors.add_list(listed(world), NOW)
    assert "check the clock" in home.fault(NOW - timedelta(days=300))
    assert home.fault(NOW + timedelta(days=1)) == ""


class TestTakedowns:
    """What a repository took down, seen once by any verb."""

    @pytest.fixture
    def official(self, place: Path, run: Run) -> StaticRepository:
        made = StaticRepository(place / "official")
        made.make("1.0.0")
        configure(place, ("official", made.address, True))
        assert run("install", "notes", *UNSIGNED)[0] == 0
        return made

    def load(self, run: Run) -> tuple[int, str]:
        code, out, err = run("call", "skill", "--args", '{"name": "notes"}')
        return code, out + err

    @pytest.mark.parametrize(
        "verb", [("verify",), ("update", *UNSIGNED), ("outdated",), ("install", "notes", *UNSIGNED)]
    )
    def test_it_binds_at_load_whichever_verb_saw_it(self, run: Run, place, official, verb) -> None:
        """Review F7: `verify` said refused, and the next call handed it to the model."""
        assert self.load(run)[0] == 0
        official.change("notes", "1.0.0", state="revoked", reason="steals\nkeys\x1b[31m")
        run(*verb)
        shutil.rmtree(place / "official")
        code, said = self.load(run)
        assert (code, "it was revoked by its repository: steals keys" in said) == (1, True), said
        assert "\x1b" not in said
        assert "Version 1.0.0" not in run("catalog", "--style", "direct")[1]
        assert "Version 1.0.0" not in run("load", "notes")[1]
        code, out, _ = run("verify", "--offline")
        assert (code, "refused: it was revoked by its repository" in out) == (1, True)
        assert "it was revoked by its repository: steals keys" in " ".join(run("list")[1].split())

    @pytest.mark.parametrize("how", ["left out", "published", "gone", "yanked"])
    def test_a_mirror_that_strips_it_lifts_nothing(self, run: Run, official, how) -> None:
        official.change("notes", "1.0.0", state="revoked", reason="steals keys")
        assert run("verify")[0] == 1
        if how == "gone":
            official.index().unlink()
        elif how == "left out":
            official.put(structs.replace(official.skills["notes"], versions=(), latest=""))
        else:
            official.change("notes", "1.0.0", state=how, reason="")
        assert run("verify")[0] == 1
        assert self.load(run)[0] == 1
        run("update", *UNSIGNED)
        assert self.load(run)[0] == 1
        # A person lifts it where the repository names the release, and says something else of it.
        code, _, err = run("verify", "notes", "--lift")
        if how in ("published", "yanked"):
            assert (code, "not revoked any more: notes 1.0.0 of official" in err) == (0, True)
            assert self.load(run)[0] == 0
        else:
            assert (code, "nothing is lifted" in err) == (1, True)
            assert self.load(run)[0] == 1

    def test_an_agent_lifts_nothing(self, run: Run, official, monkeypatch) -> None:
        official.change("notes", "1.0.0", state="revoked", reason="steals keys")
        assert run("verify")[0] == 1
        official.change("notes", "1.0.0", state="published", reason="")
        monkeypatch.setenv("CLAUDECODE", "1")
        assert run("verify", "notes", "--lift")[0] != 0
        monkeypatch.delenv("CLAUDECODE")
        assert self.load(run)[0] == 1

    def test_it_comes_back_by_no_other_way(self, run: Run, place, official) -> None:
        official.change("notes", "1.0.0", state="revoked", reason="steals keys")
        assert run("verify")[0] == 1
        assert run("uninstall", "notes")[0] == 0
        official.change("notes", "1.0.0", state="published", reason="")
        code, _, err = run("install", "notes", *UNSIGNED)
        assert (code, "it was revoked by its repository" in err) == (1, True)
        assert run("verify", "notes", "--lift")[0] == 0
        assert run("install", "notes", *UNSIGNED)[0] == 0

    def test_another_repository_takes_down_none_of_ours(self, run: Run, place, official) -> None:
        """The same name, version, and even the same bytes, of another repository."""
        evil = StaticRepository(place / "evil", "evil.example")
        (release,) = official.skills["notes"].versions
        evil.put(
            structs.replace(
                official.skills["notes"],
                versions=(structs.replace(release, state="revoked", reason="no"),),
            )
        )
        configure(place, ("official", official.address, True), ("evil", evil.address, True))
        run("install", "notes", "--repository", "evil", *UNSIGNED)
        memory = TrustMemory(place / "home/.local/state/skillhouse")
        assert [one.repository for one in memory.of_skill("notes")] == ["evil"]
        assert self.load(run)[0] == 0
        assert run("verify")[0] == 0


def test_a_flood_of_takedowns_is_bounded_and_forgets_none(tmp_path: Path, home: Home) -> None:
    official = StaticRepository(tmp_path / "official")
    release = official.make("1.0.0", state="revoked", reason="steals keys")
    skill = official.skills["notes"]
    memory = TrustMemory(home.state)
    assert memory.hear("official", skill, now=NOW) == ""
    ours = structs.replace(home.entry, digest=release.digest)
    assert memory.taken_down(ours) is not None

    def others(start: int, count: int) -> SkillReleases:
        return structs.replace(
            skill,
            versions=tuple(
                structs.replace(
                    release,
                    version=f"2.{number}",
                    digest=f"sha256:{number:064x}",
                    tree_digest=f"skilltree1:{number:064x}",
                    reason="x" * 5_000,
                )
                for number in range(start, start + count)
            ),
        )

    said = [
        memory.hear("official", others(start, 5_000), now=NOW) for start in range(0, 15_000, 5_000)
    ]
    assert [bool(text) for text in said] == [False, True, True]
    assert len(memory.of_skill("notes")) == TAKEDOWNS_MAX
    assert memory.taken_down(ours) is not None
    # What is installed is kept all the same, and another repository has room of its own.
    late = structs.replace(home.entry, digest=f"sha256:{14_999:064x}")
    assert memory.taken_down(late) is None
    memory.hear("official", others(14_000, 1_000), installed=late, now=NOW)
    assert memory.taken_down(late) is not None
    assert memory.hear("second", others(0, 10), now=NOW) == ""
    assert (home.state / STATE_FILE).stat().st_size < 16 * 1024 * 1024


def test_only_a_later_signed_word_of_the_same_repository_lifts(tmp_path: Path, home: Home) -> None:
    official = StaticRepository(tmp_path / "official")
    release = official.make("1.0.0", state="revoked", reason="steals keys")
    memory = TrustMemory(home.state)
    entry = structs.replace(home.entry, digest=release.digest)
    # First by an unsigned word: the later signed one counts, and a replay before it does not.
    memory.hear("official", official.skills["notes"], now=NOW)
    memory.hear("official", official.skills["notes"], signed=7, now=NOW)
    official.change("notes", "1.0.0", state="published")
    good = official.skills["notes"]
    for repository, signed in (("official", 0), ("official", 7), ("official", 3), ("evil", 99)):
        memory.hear(repository, good, signed=signed, now=NOW)
        assert memory.taken_down(entry) is not None
    empty = structs.replace(good, versions=())
    memory.hear("official", empty, signed=9, now=NOW)
    assert memory.taken_down(entry) is not None
    memory.hear("official", good, signed=8, now=NOW)
    assert memory.taken_down(entry) is None

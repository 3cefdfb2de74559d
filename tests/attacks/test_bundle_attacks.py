"""Attacks on bundles of skills: who can write the bucket, who answers for it, and a project.

Each is tried on a naive server first, which checks that the archive is the one that the pointer
names and unpacks it, as a sync by digest does: what it takes is marked.
"""

from __future__ import annotations

import errno
import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from skillhouse import remote
from skillhouse.floor import SkillhouseError
from skillhouse.house import Skillhouse, configured
from skillhouse.house.config import PROJECT_FILE
from skillhouse.house.config.config_keys import CONFIG_KEYS, bundle_keys
from skillhouse.house.skill_bundle import POINTER, SkillBundleSource, bundle_place
from skillhouse.registry import SkillIdentity, pack, sign_tree, write_archive, write_bundle
from skillhouse.registry.package import member_tree
from skillhouse.skill import ArchiveMember, read_archive
from tests.bundles import BundlePlace, registry_digest, small_s3
from tests.house.places import write_skill
from tests.registry.pki import NOW, issued, make_root
from tests.registry.publisher_skill import REGISTRY


def naive(place: BundlePlace) -> bool:
    """Whether a server takes it that compares the digest of the pointer and unpacks with `tarfile`,
    as root's `tar` would; nothing is written."""
    pointer = json.loads((place.store / POINTER).read_bytes())
    name = pointer["digest"].removeprefix("sha256:")
    data = (place.store / f"bundles/{name}.tar.gz").read_bytes()
    if registry_digest(data) != pointer["digest"]:
        return False
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return bool(archive.getmembers())


def members_of(archive: bytes) -> list[ArchiveMember]:
    return [one for one in read_archive(archive) if not one.is_directory]


def with_text(members: list[ArchiveMember], path: str, text: bytes) -> list[ArchiveMember]:
    """Return the members with another content of one file, or one more."""
    new = ArchiveMember(path, False, False, len(text), lambda: iter([text]))
    return [*(one for one in members if one.path != path), new]


def another_root(place: BundlePlace) -> None:
    """Sign with a key of a publisher of the same name below a root of one's own."""
    place.put(place.packed(2, by=issued(make_root())), 2)


def another_publisher(place: BundlePlace) -> None:
    """Sign with a key that the trusted root vouches for, of somebody else."""
    place.put(place.packed(2, by=issued(place.root, "mallory")), 2)


def a_changed_tree(place: BundlePlace) -> None:
    """Change a file behind the signature."""
    members = members_of(place.packed(2))
    place.put(write_archive(with_text(members, "skills/pdf/SKILL.md", b"evil")), 2)


def a_file_more(place: BundlePlace) -> None:
    """Add a script to a signed skill."""
    members = members_of(place.packed(2))
    place.put(write_archive(with_text(members, "skills/pdf/scripts/run.py", b"evil")), 2)


def another_mode(place: BundlePlace) -> None:
    """Make a signed text executable."""
    members = members_of(place.packed(2))
    changed = [
        ArchiveMember(one.path, False, one.path != "skill.sig", one.size, one.open)
        for one in members
    ]
    place.put(write_archive(changed), 2)


def no_signature(place: BundlePlace) -> None:
    members = members_of(place.packed(2))
    place.put(write_archive([one for one in members if one.path != "skill.sig"]), 2)


def a_package_of_one_skill(place: BundlePlace) -> None:
    """Pass off what the publisher signed as one skill, laid out like a bundle."""
    inner = place.base / "inner/skills"
    write_skill(inner / "skills" / "pdf")
    write_skill(inner)
    package = pack(inner)
    identity = SkillIdentity(name="skills", version="2", repository="skills.example.com")
    who = place.developer
    bundle = sign_tree(package.tree, identity, key=who.key, chain=who.chain, now=NOW)
    members = with_text(members_of(package.archive), "skill.sig", write_bundle(bundle))
    place.put(write_archive([one for one in members if one.path != "SKILL.md"]), 2)


def a_bundle_of_another_name(place: BundlePlace) -> None:
    """Put what was signed for the machines of tests where those of production look."""
    place.put(place.packed(2, name="tests"), 2)


def an_older_bundle(place: BundlePlace) -> None:
    """Move the pointer back to the bundle before, which was signed well."""
    place.put(place.first, 1)  # type: ignore[attr-defined]


def an_older_bundle_under_a_new_number(place: BundlePlace) -> None:
    """Say in the pointer, which nobody signs, that the bundle before is the next one."""
    place.put(place.first, 9)  # type: ignore[attr-defined]


def another_bundle_of_the_same_number(place: BundlePlace) -> None:
    """Show one machine another bundle 1 than the rest."""
    write_skill(place.skills / "pdf", body="Other.\n")
    place.put(place.packed(1), 1)


def rules_of_the_bundle_before(place: BundlePlace) -> None:
    """Put the signed rules of bundle 1 into bundle 2, whose own are stricter."""
    place.files = {"config.toml": b"catalog_budget_tokens = 1\n"}
    old = members_of(place.packed(1))
    place.files = {"config.toml": b"catalog_budget_tokens = 2\n"}
    (rules,) = [one for one in old if one.path == "config.toml"]
    members = with_text(members_of(place.packed(2)), "config.toml", b"".join(rules.read()))
    place.put(write_archive(members), 2)


def rules_that_were_not_signed(place: BundlePlace) -> None:
    """Add a configuration to a bundle that has none."""
    members = members_of(place.packed(2))
    place.put(write_archive(with_text(members, "config.toml", b"tool_count = 1\n")), 2)


def no_rules_where_some_were_signed(place: BundlePlace) -> None:
    place.files = {"config.toml": b"tool_count = 1\n"}
    members = members_of(place.packed(2))
    place.files = {}
    place.put(write_archive([one for one in members if one.path != "config.toml"]), 2)


def tar_with(change: Callable[[tarfile.TarFile], object]) -> Callable[[BundlePlace], None]:
    """Return an attack by an archive with the signed files and one entry more."""

    def attack(place: BundlePlace) -> None:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for one in members_of(place.packed(2)):
                info = tarfile.TarInfo(one.path)
                info.size = one.size
                archive.addfile(info, io.BytesIO(b"".join(one.read())))
            change(archive)
        place.put(out.getvalue(), 2)

    return attack


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


ATTACKS: dict[str, Callable[[BundlePlace], None]] = {
    **{
        one.__name__: one
        for one in (
            another_root,
            another_publisher,
            a_changed_tree,
            a_file_more,
            another_mode,
            no_signature,
            a_package_of_one_skill,
            a_bundle_of_another_name,
            an_older_bundle,
            an_older_bundle_under_a_new_number,
            another_bundle_of_the_same_number,
            rules_of_the_bundle_before,
            rules_that_were_not_signed,
            no_rules_where_some_were_signed,
        )
    },
    "a_link_out": tar_with(
        lambda tar: tar.addfile(entry("skills/pdf/x", tarfile.SYMTYPE, "/etc/passwd"))
    ),
    "a_hard_link": tar_with(
        lambda tar: tar.addfile(entry("skills/pdf/x", tarfile.LNKTYPE, "/etc/passwd"))
    ),
    "a_device": tar_with(lambda tar: tar.addfile(entry("skills/pdf/x", tarfile.CHRTYPE))),
    "a_path_above": tar_with(lambda tar: tar.addfile(entry("skills/../../x"))),
    "an_absolute_path": tar_with(lambda tar: tar.addfile(entry("/tmp/x"))),
    "the_digests_of_the_cache": tar_with(lambda tar: tar.addfile(entry("digests"))),
    "a_directory_of_rules": tar_with(lambda tar: tar.addfile(entry("config.toml/x"))),
    "rules_that_are_a_link": tar_with(
        lambda tar: tar.addfile(
            entry("config.toml", tarfile.SYMTYPE, "/etc/skillhouse/config.toml")
        )
    ),
    "rules_above": tar_with(lambda tar: tar.addfile(entry("skills/../../config.toml"))),
    "a_file_beside_the_skills": tar_with(lambda tar: tar.addfile(entry("skills/x"))),
}


REASONS = {
    "another_root": "chain: ",
    "another_publisher": "`mallory of skills.example.com` signed it",
    "a_changed_tree": "files: changed: skills/pdf/SKILL.md",
    "a_file_more": "files: not signed: skills/pdf/scripts/run.py",
    "another_mode": "files: with another mode: skills/pdf/SKILL.md",
    "no_signature": "unsigned: ",
    "a_package_of_one_skill": "identity: expected the skill `bundle/team`",
    "a_bundle_of_another_name": "it signs `bundle/tests`",
    "an_older_bundle": "bundle 1 is older than 2",
    "an_older_bundle_under_a_new_number": "says bundle 9, signed is 1",
    "another_bundle_of_the_same_number": "another bundle 1 than the one that was taken",
    "rules_of_the_bundle_before": "files: changed: config.toml",
    "rules_that_were_not_signed": "files: not signed: config.toml",
    "no_rules_where_some_were_signed": "files: missing: config.toml",
    "a_directory_of_rules": "got 'config.toml/x'",
    "rules_that_are_a_link": "no plain file: 'config.toml'",
    "rules_above": "refused name 'skills/../../config.toml'",
    "a_link_out": "no plain file: 'skills/pdf/x'",
    "a_hard_link": "no plain file: 'skills/pdf/x'",
    "a_device": "no plain file: 'skills/pdf/x'",
    "a_path_above": "refused name 'skills/../../x'",
    "an_absolute_path": "refused name '/tmp/x'",
    "the_digests_of_the_cache": "got 'digests'",
    "a_file_beside_the_skills": "got 'skills/x'",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_who_writes_the_bucket_puts_there_is_not_taken(tmp_path: Path, name: str) -> None:
    place = BundlePlace(tmp_path)
    place.first = place.packed(1)  # type: ignore[attr-defined]
    place.push(1)
    assert place.look().status == "taken"
    if "older" in name:
        write_skill(place.skills / "pdf", body="Repaired.\n")
        place.push(2)
        place.look()
    before = place.taken()
    ATTACKS[name](place)
    assert naive(place)
    found = place.look()
    assert found.status == "refused", found
    assert REASONS[name] in found.state.problem
    assert place.taken() == before
    # The next good one is taken as ever.
    number = found.state.number + 1
    write_skill(place.skills / "pdf", body="Next.\n")
    place.put(place.packed(number), number)
    assert place.look().status == "taken"
    assert place.taken()["pdf"] == "Next.\n"


FORBIDDEN = sorted(CONFIG_KEYS - bundle_keys())
ALLOW = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
BOMB = "a: &a [x]\n" + "".join(
    f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}]\n" for n in range(40)
)
BAD_FILES: dict[str, tuple[str, bytes, str]] = {
    **{
        f"key_{key}": ("config.toml", f'{key} = "x"\n'.encode(), f"key `{key}` cannot be set by a")
        for key in FORBIDDEN
    },
    "no_signature": (
        "config.toml",
        b"[registry]\nrequire_signature = false\n",
        "key `registry` cannot be set by a bundle",
    ),
    "another_publisher": (
        "config.toml",
        b'[skills]\nsource_publisher = "mallory of evil.example"\n',
        "key `skills` cannot be set by a bundle",
    ),
    "more_power": (
        "config.toml",
        b'[skills]\nsource_rules = "defaults"\nsource_allow_older = true\n',
        "key `skills` cannot be set by a bundle",
    ),
    "unknown_key": ("config.toml", b"catalog_budget = 3\n", "unknown key `catalog_budget`"),
    "unknown_key_of_a_rule": (
        "config.toml",
        ALLOW.encode() + b"final = true\n",
        "unknown rule key `final`",
    ),
    "negative": ("config.toml", b"tool_count = -1\n", "expected 0 or more"),
    "wrong_example": (
        "config.toml",
        ALLOW.replace('"*"', '"ls *"').encode() + b'match = ["rm x"]\n',
        "rm x",
    ),
    "no_text": ("config.toml", b"\xff\xfe\0", "config.toml"),
    "deep_toml": ("config.toml", b"rules = " + b"[" * 60_000 + b"]" * 60_000, "config.toml"),
    "dotted_toml": ("config.toml", b".".join([b"a"] * 60_000) + b" = 1\n", "config.toml"),
    "huge": ("config.toml", b"#" * 262_145, "at most 262144 bytes"),
    "huge_policy": ("policy.yml", b"#" * 262_145, "at most 262144 bytes"),
    "yaml_bomb": ("policy.yml", BOMB.encode(), "policy.yml"),
    "deep_yaml": ("policy.yml", b"[" * 60_000, "policy.yml"),
    "no_stop": (
        "policy.yml",
        b'version: "1"\nemergencyStop:\n  enabled: false\n',
        "key `emergencyStop` cannot be set by a bundle",
    ),
    "long_session_keys": (
        "policy.yml",
        b'version: "1"\nthresholds:\n  sessionKeyTtlHours: 900\n',
        "expected at most 24 as `sessionKeyTtlHours`",
    ),
    "unknown_policy": ("policy.yml", b'version: "1"\nfinal: yes\n', "final"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_a_publisher_may_not_say_of_a_machine_is_not_taken(tmp_path: Path, name: str) -> None:
    """Signed by the right key: a publisher whose key was stolen, or who wants more than skills."""
    place = BundlePlace(tmp_path)
    place.push(1, rules="tool_count = 7\n")
    place.look()
    file, data, said = BAD_FILES[name]
    place.put(signed_by_hand(place, 2, {file: data}), 2)
    assert naive(place)
    began = time.monotonic()
    found = place.look()
    assert (found.status, found.state.number) == ("refused", 1)
    assert said in found.state.problem
    assert time.monotonic() - began < 5
    assert configured(place.places).tool_count == 7
    # The next one without it is taken.
    place.put(place.packed_with(3, {"config.toml": b"tool_count = 8\n"}), 3)
    assert place.look().status == "taken"
    assert configured(place.places).tool_count == 8


def signed_by_hand(place: BundlePlace, number: int, files: Mapping[str, bytes]) -> bytes:
    """Return an archive with a good signature over files of any size."""
    inner = place.packed_with(number, {})
    members = [one for one in members_of(inner) if one.path != "skill.sig"]
    for path, data in files.items():
        members = with_text(members, path, data)
    identity = SkillIdentity(name="bundle/team", version=str(number), repository=REGISTRY)
    who = place.developer
    signature = sign_tree(member_tree(members), identity, key=who.key, chain=who.chain, now=NOW)
    return write_archive(with_text(members, "skill.sig", write_bundle(signature)))


def after_two_bundles(place: BundlePlace) -> bytes:
    """Have two bundles taken, one after the other, and return the first."""
    first = place.packed(1)
    place.push(1)
    place.look()
    write_skill(place.skills / "pdf", body="Second.\n")
    place.push(2)
    place.look()
    return first


def test_a_cleared_cache_forgets_no_number(tmp_path: Path) -> None:
    """Whoever can empty the cache, and move the pointer, does not bring an old bundle back."""
    place = BundlePlace(tmp_path)
    old = after_two_bundles(place)
    (bundle_place(place.config) / "current").unlink()
    place.put(old, 1)
    assert naive(place)
    assert place.look().status == "refused"
    assert place.taken() == {}
    assert not place.bundle.is_here()


def test_a_full_disk_forgets_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was swapped in, and could not be written down, does not make way for the one before."""
    place = BundlePlace(tmp_path)
    old = place.packed(1)
    place.put(old, 1)
    place.look()
    write_skill(place.skills / "pdf", body="Second.\n")
    place.push(2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SkillBundleSource, "_write", full)
        with pytest.raises(OSError, match="No space"):
            place.look()
    assert place.taken() == {"pdf": "Second.\n"}
    place.put(old, 1)
    assert naive(place)
    assert place.look().status == "refused"
    assert place.taken() == {"pdf": "Second.\n"}


def test_looks_at_one_moment_lose_no_number(tmp_path: Path) -> None:
    """A look that fails writes over what it read: without a lock, over a newer number."""
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    entered, go_on = threading.Event(), threading.Event()

    def failing(address: str, access: remote.StoreAccess) -> remote.ObjectStore:
        entered.set()
        go_on.wait(10)
        raise remote.RemoteError(f"no answer of {address} with {access}")

    slow = SkillBundleSource(place.config, open_store=failing, now=lambda: NOW)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.look)
        assert entered.wait(10)
        write_skill(place.skills / "pdf", body="Second.\n")
        place.push(2)
        second = pool.submit(place.look)
        # The naive version ends here, and the slow look then writes number 1.
        assert not wait([second], 0.3).done
        go_on.set()
        assert (first.result(10).status, second.result(10).status) == ("refused", "taken")
    assert place.bundle.state().number == 2


def test_only_a_person_allows_the_way_back(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    old = after_two_bundles(place)
    place.put(old, 1)
    assert place.look().status == "refused"
    place.configure("source_allow_older = true\n")
    assert place.look().status == "taken"
    assert place.taken() == {"pdf": "First.\n"}


def test_a_half_upload_is_never_seen(tmp_path: Path) -> None:
    """A pointer to an archive that is cut short, or not there yet."""
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    write_skill(place.skills / "pdf", body="Second.\n")
    archive = place.packed(2)
    name = registry_digest(archive)
    pointer = {"digest": name, "number": 2}
    (place.store / POINTER).write_text(json.dumps(pointer))
    assert place.look().status == "refused"
    path = place.store / "bundles" / f"{name.removeprefix('sha256:')}.tar.gz"
    path.write_bytes(archive[: len(archive) // 2])
    assert place.look().status == "refused"
    assert place.taken() == {"pdf": "First.\n"}
    path.write_bytes(archive)
    assert place.look().status == "taken"


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "sha256:" + "../" * 22, "sha256:0"])
def test_a_pointer_that_is_a_path_reads_nothing(tmp_path: Path, digest: str) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    (place.store / POINTER).write_text(json.dumps({"digest": digest, "number": 2}))
    found = place.look()
    assert (found.status, "names no archive" in found.state.problem) == ("refused", True)


def test_a_skill_of_a_bundle_takes_no_name_from_one_of_this_machine(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    own = write_skill(place.places.home / ".agents/skills/pdf", body="Mine.\n")
    place.push(1)
    place.look()
    with Skillhouse(place.config) as house:
        (winner,) = [one for one in house.index.skills if one.name == "pdf"]
        assert winner.directory == own
        assert [one.scope for one in house.index.shadowed] == ["remote"]


def test_a_project_names_no_source(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    written = place.places.user_file.read_text()
    place.places.user_file.write_text("")
    with Skillhouse(configured(place.places)) as house:
        file = place.places.start / PROJECT_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written)
        house.project_trust.trust(house.project_trust.report())
    config = configured(place.places)
    assert config.source is not None
    assert config.source.is_trusted
    assert config.skills.source == ""
    assert any("skills" in one.message for one in config.problems)


def test_a_source_outside_of_the_allowed_ones_gives_nothing(tmp_path: Path) -> None:
    place = BundlePlace(tmp_path)
    place.push(1)
    place.look()
    place.configure(before='[[registry.sources]]\nsource = "https://github.com/acme/*"\n')
    assert place.look().status == "refused"
    with Skillhouse(place.config) as house:
        assert all(one.scope != "remote" for one in house.index.skills)


@pytest.mark.parametrize("manner", ["endless", "slow", "silent"])
def test_a_bucket_that_answers_without_end_costs_bounded_time_and_bytes(
    tmp_path: Path, manner: str
) -> None:
    with small_s3() as server:
        source = "s3://acme-skills/team"
        place = BundlePlace(tmp_path, source=source, more=server.settings)
        server.manner = manner
        bundle = SkillBundleSource(
            place.config,
            open_store=lambda address, _: remote.open_store(address, server.access),
            now=lambda: NOW,
        )
        began = time.monotonic()
        found = bundle.look()
        took = time.monotonic() - began
    assert found.status == "refused"
    assert took < 12


def test_no_message_has_a_secret_of_the_bucket(tmp_path: Path) -> None:
    with small_s3() as server:
        access = server.access
    assert "secret" not in repr(access)
    place = BundlePlace(tmp_path, source="s3://acme-skills/team", more=server.settings)
    store = remote.open_store(place.source, access)
    with pytest.raises(SkillhouseError) as caught:
        store.read(POINTER, 1_000)
    assert "secret" not in str(caught.value)

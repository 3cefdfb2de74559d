"""Attacks on what says where a version was built: stripped, of others, replayed, too large.

A naive client shows what a bundle says of itself, and takes any update without one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import digest
from skillhouse.registry import attestation_path, pack
from skillhouse.registry.attestations import ATTESTATION_MAX, ATTESTATIONS_MAX
from tests.extensions.registry.hosting.servers import package, serving
from tests.frontends.conftest import Run, place, run, typing
from tests.frontends.test_cli_repositories import configure, lock_of
from tests.registry.build_root import RELEASE, REPOSITORY, BuildRoot, statement
from tests.registry.repositories import StaticRepository
from tests.registry.sources import make_skill

__all__ = ["place", "run", "typing"]

AGREED = ("--yes", "--allow-unsigned")
WORD = "--accept-provenance"
BUILT = "built by acme/skills at c0ffee00, by workflow release"
EVIL = "https://github.com/evil/skills"


class Attested:
    """A trusted repository whose versions have attestations, and a root that vouches for them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = BuildRoot()
        self.repository = StaticRepository(place / "official")
        configure(place, ("official", self.repository.address, True))
        self.trust(self.root)

    def trust(self, root: BuildRoot) -> None:
        name = root.write(self.place / "builds.json")
        file = self.place / "home/.config/skillhouse/config.toml"
        text = file.read_text().partition("[registry]")[0]
        file.write_text(f'{text}[registry]\nsigstore_roots = ["{name}"]\n')

    def make(self, version: str, *, by: BuildRoot | None = None, **says: Any) -> str:
        """Publish a version with an attestation over its archive; return the digest of that."""
        source = self.place / "made/default" / version / "notes"
        make_skill(source, f"Version {version} of default.", version=version)
        archive = pack(source).digest
        over = says.pop("over", archive)
        bundle = (by or self.root).bundle(over, **says)
        self.repository.write(attestation_path(digest(bundle)), bundle)
        self.repository.publish(source, attestations=(digest(bundle),))
        return digest(bundle)

    @property
    def text(self) -> str:
        return (self.place / "home/.agents/skills/notes/SKILL.md").read_text()


@pytest.fixture
def attested(place: Path) -> Attested:
    made = Attested(place)
    made.make("1.0.0")
    return made


def test_where_a_skill_was_built_is_shown_and_kept(run: Run, place: Path, attested: Attested):
    code, out, err = run("install", "notes", *AGREED)
    assert (code, BUILT in " ".join(out.split())) == (0, True), out + err
    build = lock_of(place)["notes"]["build"]
    assert isinstance(build, dict)
    assert (build["repository"], build["workflow"]) == (REPOSITORY, RELEASE)
    for verb in (("info",), ("info", "notes"), ("verify",)):
        code, out, err = run(*verb)
        assert (code, BUILT in " ".join(out.split())) == (0, True), out + err
    (found,) = json.loads(run("info", "--json")[1])["skills"]
    assert found["build"] == build
    # The next one of the same workflow is no question.
    attested.make("1.1.0", commit="1" * 40)
    assert run("update", *AGREED)[0] == 0
    assert lock_of(place)["notes"]["version"] == "1.1.0"


def stripped(attested: Attested) -> None:
    attested.repository.make("1.1.0")


def withheld(attested: Attested) -> None:
    bundle = attested.make("1.1.0")
    (attested.repository.place / attestation_path(bundle)).unlink()


def exchanged(attested: Attested) -> None:
    bundle = attested.make("1.1.0")
    attested.repository.write(attestation_path(bundle), attested.root.bundle("sha256:" + "0" * 64))


def ten_megabytes(attested: Attested) -> None:
    bundle = attested.make("1.1.0")
    attested.repository.write(attestation_path(bundle), b" " * (10 << 20))


def a_thousand_subjects(attested: Attested) -> None:
    many = [f"sha256:{number:064x}" for number in range(1_000)]
    bundle = attested.root.bundle(payload=statement(*many))
    attested.repository.write(attestation_path(digest(bundle)), bundle)
    attested.repository.make("1.1.0", attestations=(digest(bundle),))


def of_another_archive(attested: Attested) -> None:
    attested.make("1.1.0", over="sha256:" + "0" * 64)


def of_another_repository(attested: Attested) -> None:
    attested.make("1.1.0", repository=EVIL)


def of_another_workflow(attested: Attested) -> None:
    attested.make("1.1.0", workflow=".github/workflows/pull-request.yml")


def of_a_name_that_was_given_up(attested: Attested) -> None:
    attested.make("1.1.0", repository_id="1")


def of_an_unknown_root(attested: Attested) -> None:
    attested.make("1.1.0", by=BuildRoot())


def of_another_issuer(attested: Attested) -> None:
    attested.make("1.1.0", issuer="https://issuer.example.com")


ATTACKS: dict[Callable[[Attested], None], str] = {
    stripped: "this version has no attestation",
    withheld: "does not have sha256:",
    exchanged: "expected sha256:",
    ten_megabytes: "expected at most 131072 bytes",
    a_thousand_subjects: "about at most 100 files",
    of_another_archive: "is about sha256:",
    of_another_repository: "built by evil/skills",
    of_another_workflow: "by workflow pull-request",
    of_a_name_that_was_given_up: "another repository of that name",
    of_an_unknown_root: "is not verified",
    of_another_issuer: "is not configured",
}


@pytest.mark.parametrize(("attack", "said"), ATTACKS.items(), ids=lambda one: getattr(
    one, "__name__", ""))  # fmt: skip
def test_an_update_that_is_not_built_as_before_is_a_question(
    run: Run,
    typing: Callable[..., tuple[int, str, str]],
    place: Path,
    attested: Attested,
    attack: Callable[[Attested], None],
    said: str,
):
    assert run("install", "notes", *AGREED)[0] == 0
    attack(attested)
    # A naive client goes by the number of the version.
    assert attested.repository.skills["notes"].latest == "1.1.0"
    code, out, err = run("update", *AGREED)
    assert code == 2, out + err
    assert f"use --yes --allow-unsigned {WORD}" in err
    assert "warning: `notes` was built by acme/skills" in " ".join(out.split())
    assert said in " ".join(out.split())
    assert "Version 1.0.0" in attested.text
    # A person who types another word has agreed to nothing.
    assert typing("unsigned\nunsigned", "update")[0] == 1
    assert "Version 1.0.0" in attested.text
    assert run("outdated")[0] == 1
    assert typing("unsigned\nprovenance", "update")[0] == 0
    assert "Version 1.1.0" in attested.text


def test_who_uninstalls_or_edits_the_lock_is_still_asked(run: Run, place: Path, attested: Attested):
    assert run("install", "notes", *AGREED)[0] == 0
    attested.make("1.1.0", repository=EVIL)
    file = place / "home/.config/skillhouse/skills.lock"
    value = json.loads(file.read_text())
    value["skills"]["notes"]["build"]["repository"] = EVIL
    file.write_text(json.dumps(value))
    assert run("update", *AGREED)[0] == 2
    assert run("uninstall", "notes")[0] == 0
    code, _, err = run("install", "notes", *AGREED)
    assert (code, WORD in err) == (2, True)
    assert run("install", "notes", *AGREED, WORD)[0] == 0
    # From then on that is what is expected.
    attested.make("1.2.0", repository=EVIL)
    assert run("update", *AGREED)[0] == 0


def test_an_attestation_without_the_library_says_what_brings_it(
    run: Run, attested: Attested, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "skillhouse.registry.attestation_check", raising=False)
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    code, out, err = run("install", "notes", *AGREED)
    assert code == 0, err
    said = " ".join(out.split())
    assert "an attestation that this machine cannot verify" in said
    assert "skillhouse[sigstore]" in said or "sigstore" in said.partition("cannot verify")[2]
    assert "built by" not in said


def test_a_server_refuses_what_is_no_attestation_of_the_archive(tmp_path: Path):
    root = BuildRoot()
    with serving(tmp_path / "state") as server:
        token = server.token("publish:default/*")
        archive = package(tmp_path)
        over = digest(archive)
        good = root.bundle(over)
        many = [f"sha256:{number:064x}" for number in range(1_000)]

        def put(*bundles: bytes, sizes: str = "") -> tuple[int, str]:
            listed = sizes or ",".join(str(len(one)) for one in bundles)
            body = archive + b"".join(bundles)
            found = server.publish(body, "pdf", "1.0.0", token, query=f"?attestations={listed}")
            return found.status, found.code

        assert put(root.bundle("sha256:" + "0" * 64)) == (422, "attestation")
        assert put(b"{}") == (422, "attestation")
        thousand = root.bundle(payload=statement(over, *many))
        assert put(thousand) == (422, "attestation")
        # Refused by what it says of its size, before it is read.
        assert put(good, sizes="9999999") == (413, "too-large")
        assert put(good + b" " * ATTESTATION_MAX) == (413, "too-large")
        assert put(*[good] * (ATTESTATIONS_MAX + 1)) == (413, "too-large")
        assert put(good, sizes="99999") == (422, "attestation")
        assert put(good, sizes="x") == (400, "bad-request")
        # What does not say its size is a part of the archive.
        found = server.publish(archive + good, "pdf", "1.0.0", token)
        assert found.status == 422
        assert server.ask("/skills/pdf").status == 404
        assert put(good) == (201, "")
        (release,) = server.ask("/skills/pdf").json["versions"]
        assert (release["digest"], release["attestations"]) == (over, [digest(good)])
        assert server.ask(f"/{attestation_path(digest(good))}").body == good
        for path in (f"/{attestation_path(over)}", "/attestations/sha256/..%2f/x"):
            assert server.ask(path).status == 404


def test_publish_sends_no_attestation_of_another_archive(run: Run, place: Path, attested: Attested):
    source = make_skill(place / "made/publish/notes", version="2.0.0")
    archive = pack(source).digest
    other, right, lines = (place / name for name in ("other.json", "right.json", "lines.jsonl"))
    other.write_bytes(attested.root.bundle("sha256:" + "0" * 64))
    right.write_bytes(attested.root.bundle(archive))
    lines.write_bytes(b"\n".join([right.read_bytes()] * (ATTESTATIONS_MAX + 1)) + b"\n")

    def refused(*files: Path) -> str:
        options = [word for file in files for word in ("--attestation", str(file))]
        code, out, err = run("publish", str(source), "--repository", "official", *AGREED, *options)
        assert code != 0, out
        return " ".join(f"{out} {err}".split())

    assert "is about sha256:0000" in refused(right, other)
    assert f"expected at most {ATTESTATIONS_MAX} attestations" in refused(lines)
    assert "no such file" in refused(place / "none.json")
    # The right one gets as far as the repository, which is a directory here.
    assert "1 attestation over this archive" in refused(right)

"""Attestations: what a bundle must be, and whose word on a build counts."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from skillhouse.registry import AttestationError, BuildOrigin, read_attestation
from skillhouse.registry.attestation_check import AttestationVerifier
from skillhouse.registry.attestations import (
    ATTESTATION_MAX,
    PUBLIC_GOOD,
    SUBJECTS_MAX,
    sizes_of,
    split_upload,
)
from tests.registry.build_root import (
    COMMIT,
    ISSUER,
    RELEASE,
    REPOSITORY,
    BuildRoot,
    changed,
    statement,
)
from tests.registry.pki import TimestampAuthority

RECORDED = Path(__file__).parents[1] / "data/attestations"
ARCHIVE, OTHER = (f"sha256:{one * 32}" for one in ("ab", "cd"))
PUBLIC = "sha256:49a3aa6075e0f49f82843e74b5baa614ad2a588e6675612bf108a0a008c5ac25"
OTHER_ISSUER = "sha256:afa27b44d43b02a9fea41d13cedc2e4016cfcf87c5dbf990e593669aa8ce286d"
PRIVATE = "sha256:ae57936def59bc4c75edd3a837d89bcefc6d3a5e31d55a6fa7a71624f92c3c3b"
ACME = BuildOrigin(
    issuer=ISSUER,
    repository=REPOSITORY,
    workflow=RELEASE,
    repository_id="804070735",
    commit=COMMIT,
    ref="refs/tags/v1.0.0",
)


@pytest.fixture(params=["logged", "timestamped"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> BuildRoot:
    stamps = TimestampAuthority(tmp_path / "tsa") if request.param == "timestamped" else None
    return BuildRoot(stamps=stamps)


def verifier(tmp_path: Path, *roots: BuildRoot) -> AttestationVerifier:
    names = [one.write(tmp_path / f"root-{number}.json") for number, one in enumerate(roots)]
    return AttestationVerifier(names, [ISSUER])


def refused(found: AttestationVerifier, bundle: bytes, archive: str = ARCHIVE) -> tuple[str, str]:
    with pytest.raises(AttestationError) as caught:
        found.verify(bundle, archive)
    return caught.value.code, str(caught.value)


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.sigstore.json").read_bytes()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a verification asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_an_attestation_of_github_is_verified_offline_by_the_root_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    found = AttestationVerifier([PUBLIC_GOOD], [ISSUER]).verify(recorded("public"), PUBLIC)
    assert found == BuildOrigin(
        issuer=ISSUER,
        repository="https://github.com/malancas/attest-demo",
        workflow=".github/workflows/shared.yml",
        repository_id="804070735",
        commit="95baf27389e83e6a5c48f42e190d48d7abcea19e",
        ref="refs/heads/main",
    )
    assert found.text == "built by malancas/attest-demo at 95baf273, by workflow shared"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_network")
def test_both_kinds_of_root_say_where_an_archive_was_built(tmp_path: Path, root: BuildRoot):
    found = verifier(tmp_path, BuildRoot(), root)
    assert found.verify(root.bundle(ARCHIVE), ARCHIVE) == ACME
    assert found.verify(root.bundle(OTHER, ARCHIVE), ARCHIVE) == ACME


def test_an_issuer_that_is_not_configured_is_refused(tmp_path: Path, root: BuildRoot):
    public = AttestationVerifier([PUBLIC_GOOD], [ISSUER])
    code, said = refused(public, recorded("other-issuer"), OTHER_ISSUER)
    assert (code, "hammer-time" in said) == ("issuer", True)
    enterprise = f"{ISSUER}/hammer-time"
    allowed = AttestationVerifier([PUBLIC_GOOD], [enterprise])
    assert allowed.verify(recorded("other-issuer"), OTHER_ISSUER).issuer == enterprise
    bundle = root.bundle(ARCHIVE, issuer="https://issuer.example.com")
    assert refused(verifier(tmp_path, root), bundle)[0] == "issuer"


def test_an_attestation_of_private_code_needs_a_root_without_a_log(tmp_path: Path):
    public = AttestationVerifier([PUBLIC_GOOD], [ISSUER])
    code, said = refused(public, recorded("private"), PRIVATE)
    assert (code, "registry.sigstore_roots" in said) == ("root", True)
    other = BuildRoot(stamps=TimestampAuthority(tmp_path / "tsa"))
    code, said = refused(verifier(tmp_path, other), recorded("private"), PRIVATE)
    assert (code, "no timestamp authority" in said) == ("root", True)


def test_another_root_and_one_that_ended_vouch_for_nothing(tmp_path: Path, root: BuildRoot):
    stamps = None if root.stamps is None else TimestampAuthority(tmp_path / "other-tsa")
    assert refused(verifier(tmp_path, BuildRoot(stamps=stamps)), root.bundle(ARCHIVE))[0] == "root"
    ended = BuildRoot(stamps=root.stamps, age=timedelta(days=400))
    # Signed today, or by its log then, with a certificate of a time at which it was not valid.
    late = ended.bundle(ARCHIVE, start=ended.now + timedelta(days=399))
    assert refused(verifier(tmp_path, ended), late)[0] == "root"


def test_what_was_changed_is_not_verified(tmp_path: Path, root: BuildRoot):
    found, bundle = verifier(tmp_path, root), root.bundle(OTHER)
    value = json.loads(bundle)
    again = json.loads(root.bundle(payload=statement(ARCHIVE)))
    envelope = {**value["dsseEnvelope"], "payload": again["dsseEnvelope"]["payload"]}
    assert refused(found, changed(bundle, dsseEnvelope=envelope))[0] == "root"
    material = again["verificationMaterial"]
    assert refused(found, changed(root.bundle(ARCHIVE), verificationMaterial=material))[0] == "root"


def test_a_second_certificate_in_a_bundle_says_nothing(tmp_path: Path):
    """The library verifies one certificate; a reader that took the other would be lied to."""
    root, evil = BuildRoot(), BuildRoot()
    value = json.loads(root.bundle(ARCHIVE, repository="https://github.com/evil/skills"))
    material = value["verificationMaterial"]
    forged = json.loads(evil.bundle(ARCHIVE))["verificationMaterial"]["certificate"]
    old = {**material, "x509CertificateChain": {"certificates": [material["certificate"]]}}
    old["certificate"] = forged
    media_type = "application/vnd.dev.sigstore.bundle+json;version=0.2"
    bundle = changed(json.dumps(value).encode(), mediaType=media_type, verificationMaterial=old)
    # A reader that takes what is there first takes the forged one.
    read = x509.load_der_x509_certificate(read_attestation(bundle, ARCHIVE).certificate)
    assert read.issuer == evil.certificate.subject
    code, said = refused(verifier(tmp_path, root), bundle)
    assert (code, "Exactly one of" in said) == ("root", True)


@pytest.mark.parametrize(
    ("says", "part"),
    [
        ({"config": "https://github.com/acme/skills-evil/release.yml@x"}, "names no workflow"),
        ({"repository": "", "config": RELEASE}, "names no workflow"),
        ({"commit": "a\n\x1b[2Jb"}, "cannot be shown"),
    ],
)
def test_a_certificate_must_name_a_workflow_of_its_repository(
    tmp_path: Path, says: dict[str, Any], part: str
):
    root = BuildRoot()
    code, said = refused(verifier(tmp_path, root), root.bundle(ARCHIVE, **says))
    assert (code, part in said) == ("identity", True)


def test_a_workflow_of_gitlab_has_its_path(tmp_path: Path):
    root, issuer = BuildRoot(), "https://gitlab.com"
    found = AttestationVerifier([root.write(tmp_path / "root.json")], [issuer])
    config = "https://gitlab.com/acme/skills//.gitlab-ci.yml@refs/heads/main"
    bundle = root.bundle(
        ARCHIVE, issuer=issuer, repository="https://gitlab.com/acme/skills", config=config
    )
    assert found.verify(bundle, ARCHIVE).workflow == ".gitlab-ci.yml"


def test_a_statement_that_says_something_else_is_no_evidence(tmp_path: Path):
    root = BuildRoot()
    payload = statement(ARCHIVE, predicate_type="https://spdx.dev/Document/v2.3")
    assert refused(verifier(tmp_path, root), root.bundle(payload=payload))[0] == "identity"


def test_reading_refuses_what_is_no_bundle_over_the_archive():
    bundle = BuildRoot().bundle(ARCHIVE)
    value = json.loads(bundle)
    assert read_attestation(bundle, ARCHIVE).subjects == ("ab" * 32,)
    many = [f"sha256:{number:064x}" for number in range(SUBJECTS_MAX)]
    root = BuildRoot()
    cases = [
        (b"", "bundle"),
        (b"{}", "bundle"),
        (b"[]", "bundle"),
        (b"{" * 100_000, "bundle"),
        (bundle[:-1] + b',"mediaType":"x"}', "bundle"),
        (changed(bundle, mediaType="text/plain"), "bundle"),
        (changed(bundle, dsseEnvelope={**value["dsseEnvelope"], "payloadType": "x"}), "bundle"),
        (changed(bundle, dsseEnvelope={**value["dsseEnvelope"], "signatures": []}), "bundle"),
        (changed(bundle, verificationMaterial={}), "bundle"),
        (bundle + b" " * ATTESTATION_MAX, "size"),
        (root.bundle(OTHER), "subject"),
        (root.bundle(ARCHIVE, *many), "subject"),
        (root.bundle(payload=b'{"_type": "x"}'), "bundle"),
        (root.bundle(payload=statement(ARCHIVE).replace(b'"digest":{', b'"digest":7,"x":{')),
         "bundle"),
    ]  # fmt: skip
    for data, code in cases:
        with pytest.raises(AttestationError) as caught:
            read_attestation(data, ARCHIVE)
        assert caught.value.code == code, data[:80]


def test_roots_are_read_from_json_and_from_lines_of_it(tmp_path: Path):
    first, second = BuildRoot(), BuildRoot()
    texts = [json.dumps(one.trusted_root()) for one in (first, second)]
    (tmp_path / "lines.jsonl").write_text("\n".join(texts) + "\n")
    (tmp_path / "whole.json").write_text(json.dumps(first.trusted_root(), indent=1))
    both = AttestationVerifier([f"file:{tmp_path / 'lines.jsonl'}"], [ISSUER])
    assert both.verify(second.bundle(ARCHIVE), ARCHIVE) == ACME
    whole = AttestationVerifier([f"file:{tmp_path / 'whole.json'}"], [ISSUER])
    assert whole.verify(first.bundle(ARCHIVE), ARCHIVE) == ACME
    for name, data in (("none.json", None), ("bad.json", "{}"), ("big.json", " " * 2_000_000)):
        if data is not None:
            (tmp_path / name).write_text(data)
        with pytest.raises(AttestationError, match=name):
            AttestationVerifier([f"file:{tmp_path / name}"], [ISSUER])


def test_an_upload_is_divided_by_the_sizes_that_it_says():
    assert split_upload(b"zip{}", sizes_of("2")) == (b"zip", (b"{}",))
    with pytest.raises(AttestationError, match="shorter"):
        split_upload(b"zip", (4,))
    for text in ("0", "1,", "-1", "1" * 9, "x", ",".join("1" * 9), str(ATTESTATION_MAX + 1)):
        with pytest.raises(AttestationError):
            sizes_of(text)


def test_the_same_workflow_at_another_commit_is_the_same_origin():
    def other(**changes: str) -> BuildOrigin:
        names = {one: getattr(ACME, one) for one in ACME.__struct_fields__}
        return BuildOrigin(**{**names, **changes})

    assert ACME.is_same_as(
        other(commit="1" * 40, ref="refs/tags/v2", repository=REPOSITORY.upper())
    )
    for changes in (
        {"issuer": "https://gitlab.com"},
        {"repository": "https://github.com/evil/skills"},
        {"repository_id": "1"},
        {"workflow": ".github/workflows/other.yml"},
    ):
        assert not ACME.is_same_as(other(**changes))


def test_an_authority_of_a_root_vouches_while_it_was_in_use(tmp_path: Path):
    root = BuildRoot(stamps=TimestampAuthority(tmp_path / "tsa"))
    bundle = root.bundle(ARCHIVE)
    path = tmp_path / "root.json"
    for key in ("certificateAuthorities", "timestampAuthorities"):
        value = root.trusted_root()
        value[key][0]["validFor"]["end"] = f"{root.now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
        path.write_text(json.dumps(value))
        assert refused(AttestationVerifier([f"file:{path}"], [ISSUER]), bundle)[0] == "root"
        value[key][0]["validFor"]["end"] = f"{root.now + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        path.write_text(json.dumps(value))
        assert AttestationVerifier([f"file:{path}"], [ISSUER]).verify(bundle, ARCHIVE) == ACME

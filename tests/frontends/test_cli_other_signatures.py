"""Tests of signatures that other programs made in the same format: refused, and it is said why."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillhouse.floor import read_tree
from skillhouse.registry import write_bundle
from tests.frontends.conftest import Run
from tests.registry.pki import NOW, Party, Traits, forged, make_root, signed, with_payload
from tests.registry.publisher_skill import make_skill


def stock_payload(directory: Path) -> bytes:
    """Return what the stock program signs for a directory: no object `skill`."""
    files = read_tree(directory).files
    root = hashlib.sha256(b"".join(bytes.fromhex(one.sha256) for one in files)).hexdigest()
    value = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": directory.name, "digest": {"sha256": root}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [".git", ".gitignore", "skill.oms.sig"],
            },
            "resources": [
                {"algorithm": "sha256", "digest": one.sha256, "name": one.path} for one in files
            ],
        },
    }
    return json.dumps(value).encode()


def stock_signature(directory: Path, by: Party) -> bytes:
    return write_bundle(with_payload(signed(directory, by), stock_payload(directory), by.key))


@pytest.fixture
def skill(place: Path) -> Path:
    return make_skill(Path())


def test_one_below_a_root_of_another_program_is_refused_with_the_reason(
    run: Run, skill: Path
) -> None:
    root = make_root()
    traits = Traits(uris=("https://vendor.example.com",), uses=(ExtendedKeyUsageOID.CODE_SIGNING,))
    (skill / "skill.sig").write_bytes(stock_signature(skill, forged(traits, root)))
    why = "signatures of other programs in the Model Signing format are not accepted"
    code, _, err = run("verify", "./pdf")
    assert (code, "chain: no root certificate is trusted here" in err, why in err) == (
        1,
        True,
        True,
    )
    ours = make_root(days=30)
    Path("ours.crt").write_bytes(ours.certificate.public_bytes(Encoding.PEM))
    # A root of the same name, with another key.
    assert run("keys", "trust", "ours.crt")[0] == 0
    code, _, err = run("install", "./pdf", "--yes", "--allow-unsigned")
    assert (code, "signature: " in err) == (1, True)


@pytest.mark.slow
def test_one_by_a_developer_of_ours_says_that_the_object_is_missing(run: Run, skill: Path) -> None:
    root = make_root()
    Path("root.crt").write_bytes(root.certificate.public_bytes(Encoding.PEM))
    assert run("keys", "trust", "root.crt")[0] == 0
    (skill / "skill.sig").write_bytes(stock_signature(skill, forged(Traits(start=NOW), root)))
    for words in (("verify", "./pdf"), ("install", "./pdf", "--yes", "--allow-unsigned")):
        code, _, err = run(*words)
        assert (code, "statement: has no object `skill`: another program" in err) == (1, True), err
        assert "has to sign it with `skillhouse sign`" in err
    assert not Path.home().joinpath(".agents/skills/pdf").exists()


def test_a_file_of_another_program_beside_is_named_where_there_is_no_signature_of_ours(
    run: Run, skill: Path
) -> None:
    (skill / "skill.oms.sig").write_bytes(base64.b64encode(b"any"))
    code, _, err = run("verify", "./pdf")
    assert (code, "`skill.oms.sig` is of another program" in err) == (1, True)

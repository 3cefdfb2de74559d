"""Tests of the documents of a repository."""

import json

import pytest

from skillhouse.floor import DecodeError, structs
from skillhouse.registry.releases import (
    Release,
    SkillReleases,
    decode_skill,
    encode_document,
    split_name,
)

RELEASE = Release(
    version="1.2.0",
    digest="sha256:" + "0" * 64,
    tree_digest="skilltree1:" + "0" * 64,
    size=10,
    published_at="2026-11-23T12:00:00Z",
)
SKILL = SkillReleases(
    name="acme--pdf",
    namespace="acme",
    skill="pdf",
    description="Reads PDF files.",
    latest="1.2.0",
    versions=(RELEASE,),
)


def test_a_document_comes_back_as_it_was():
    assert decode_skill(encode_document(SKILL), namespace="acme", skill="pdf") == SKILL


@pytest.mark.parametrize(
    "changed",
    [
        {"namespace": "evil"},
        {"skill": "docx"},
        {"name": "pdf"},
        {"versions": (RELEASE, RELEASE)},
        {"versions": (structs.replace(RELEASE, version="../../etc"),)},
        {"versions": (structs.replace(RELEASE, version="versions"),)},
        {"versions": (structs.replace(RELEASE, version="\x1b[2J"),)},
        {"versions": (structs.replace(RELEASE, digest="sha256:../../x"),)},
        {"versions": (structs.replace(RELEASE, digest="md5:0"),)},
        {"versions": (structs.replace(RELEASE, tree_digest="skilltree2:" + "0" * 64),)},
        {"versions": (structs.replace(RELEASE, size=-1),)},
    ],
)
def test_a_document_that_could_lead_elsewhere_is_refused(changed):
    data = encode_document(structs.replace(SKILL, **changed))
    with pytest.raises(DecodeError):
        decode_skill(data, namespace="acme", skill="pdf")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"[" * 100_000, b'{"name": 1}', b"\xff"])
def test_what_is_no_document_is_refused(data):
    with pytest.raises(DecodeError):
        decode_skill(data, namespace="acme", skill="pdf")


def test_a_state_that_is_unknown_is_refused():
    value = json.loads(encode_document(SKILL))
    value["versions"][0]["state"] = "fine"
    with pytest.raises(DecodeError):
        decode_skill(json.dumps(value).encode(), namespace="acme", skill="pdf")


@pytest.mark.parametrize("text", ["", "@acme", "@/pdf", "a--b--c", "A", "@a/b/c", "../x", "a/b"])
def test_no_name_of_a_skill(text):
    with pytest.raises(DecodeError):
        split_name(text)

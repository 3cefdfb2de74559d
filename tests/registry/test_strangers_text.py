"""What a registry's readers make of any bytes: a value, or an error that says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillhouse.floor import InternalFaultError, isolated, read_tree
from skillhouse.registry import (
    PublisherCheck,
    PublisherError,
    compare_trees,
    directory_members,
    read_facts,
    text_changes,
)
from tests.odd_text import odd_texts

HEAD = b"---\nname: pdf\ndescription: Reads PDF.\n---\n"


def encoded(text: str) -> bytes:
    """Return the bytes of a text: a lone surrogate is the byte that Python reads as one, if any."""
    return text.encode("utf-8", "surrogatepass")


def odd_bytes() -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=200), odd_texts().map(encoded))


@given(head=st.one_of(odd_bytes(), st.just(HEAD)), body=odd_bytes(), package=odd_bytes())
@example(head=HEAD, body=b"\xed\xa0\x80", package=b"\x00")
@example(head=b'---\nname: pdf\ndescription: "\\ud800"\n---\n', body=b"", package=b"{}")
def test_any_bytes_have_facts_or_a_reason(head: bytes, body: bytes, package: bytes) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        (directory / "SKILL.md").write_bytes(head + body)
        (directory / "package.json").write_bytes(package)
        with isolated() as failed:
            facts = read_facts(directory, "pdf")
            assert facts.name.isascii()
            facts.description.encode("utf-8")
    assert not any(isinstance(error, InternalFaultError) for error in failed)


@given(text=odd_bytes(), name=st.sampled_from(["package.json", "pyproject.toml"]))
def test_a_manifest_of_any_bytes_alone_has_facts_or_a_reason(text: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / name).write_bytes(text)
        with isolated() as failed:
            read_facts(Path(made), "pdf")
    assert not any(isinstance(error, InternalFaultError) for error in failed)


@given(signature=odd_bytes())
@example(signature=b"")
@example(signature=b"[" * 100_000)
@example(signature=b'{"mediaType": "\\ud800"}')
def test_a_signature_of_any_bytes_is_refused_with_its_step(signature: bytes) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made, "pdf")
        directory.mkdir()
        (directory / "SKILL.md").write_bytes(HEAD)
        (directory / "skill.sig").write_bytes(signature)
        with pytest.raises(PublisherError) as raised:
            PublisherCheck(Path(made, "state")).publisher_of(directory, read_tree(directory))
        assert raised.value.step


@given(before=odd_bytes(), after=odd_bytes())
def test_any_two_files_have_a_difference(before: bytes, after: bytes) -> None:
    with tempfile.TemporaryDirectory() as made:
        sides = []
        for name, data in (("old", before), ("new", after)):
            directory = Path(made, name)
            directory.mkdir()
            (directory / "a.md").write_bytes(data)
            sides.append(directory_members(directory))
        (old, first), (new, second) = sides
        lines = list(text_changes(compare_trees(old, new), first, second))
        assert bool(lines) == (before != after) or before.splitlines() == after.splitlines()

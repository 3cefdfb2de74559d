"""What a person sees of a stranger's skill, whatever its files hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given

from skillhouse.floor import read_tree
from skillhouse.house import Skillhouse, configured
from skillhouse.house.rehearsal import judged_mentions
from skillhouse.install.install_report import (
    UNREADABLE,
    files_hiding,
    hosts_in,
    judged_hosts,
    skill_effects,
)
from skillhouse.permission import Effect
from skillhouse.registry import SkillFacts
from tests.house.places import make_places
from tests.odd_text import LONG_TEXTS, odd_texts


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Skillhouse]:
    with Skillhouse(configured(make_places(tmp_path_factory.mktemp("house")))) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("[https://react.dev](https://react.dev)", {"https://react.dev"}),
        ("[docs](https://react.dev/learn#x), <https://a.example>", {"https://react.dev", "https://a.example"}),
        ("**https://react.dev**, _http://a.example_", {"https://react.dev", "http://a.example"}),
        ("https://a.example,https://b.example;", {"https://a.example", "https://b.example"}),
        ("[https://a.example:8443]", {"https://a.example:8443"}),
        ("HTTPS://A.Example.", {"https://a.example"}),
        ("git+https://a.example/x", {"https://a.example"}),
        ("https:///a.example", {"https://a.example"}),
        ("http://[::1]:8080/ and http://[::1", {"http://[::1]:8080", UNREADABLE}),
        ("https://me:secret@b.example/x", {"https://b.example"}),
        ("https://a.example,@b.example", {"https://b.example"}),
        ("https://a.example\\@b.example", {"https://a.example"}),
        ("https://bücher.example", {"https://xn--bcher-kva.example"}),
        ("https://b。example", {"https://b.example"}),
        ("https://a.example\u200b.b.example", {UNREADABLE}),
        ("https://a.example\x00.b.example", {UNREADABLE}),
        ("https://[port]/", {UNREADABLE}),
        ("https://[", {UNREADABLE}),
        ("https://a:99999/", {UNREADABLE}),
        ("https://a:0/", {UNREADABLE}),
        ("https://%65vil.example", {UNREADABLE}),
        ("https://0x7f.1/", {UNREADABLE}),
        ("https://$HOST/", {UNREADABLE}),
        ("https://\ud800.example", {UNREADABLE}),
        ("begins with https:// or <https://HOST>", {"https://host"}),
        ("no address here, nor xhttps://a.example", set()),
    ],
)  # fmt: skip
def test_the_hosts_of_a_text_are_where_a_client_would_go(text: str, origins: set[str]) -> None:
    assert hosts_in(text) == origins


def test_an_address_that_cannot_be_read_is_said_and_denied(house: Skillhouse) -> None:
    (found,) = judged_hosts(house, [("a.md", "https://[port]/"), ("b.md", "https://[")])
    assert (found.origin, found.files, found.effect) == (
        "an address that cannot be read",
        ("a.md", "b.md"),
        Effect.DENY,
    )


@given(text=odd_texts())
@example(text="[https://react.dev](https://react.dev)")
@example(text="https://[port]/")
@example(text="https://[")
@example(text="https://[::ffff:1.2.3.4%25\ud800]:65536")
def test_any_text_has_hosts(house: Skillhouse, text: str) -> None:
    for found in judged_hosts(house, [("SKILL.md", text)]):
        assert found.origin == UNREADABLE or found.origin.startswith(("http://", "https://"))


@given(text=odd_texts())
def test_any_text_has_mentions(house: Skillhouse, text: str) -> None:
    mentions, _ = judged_mentions(house, text)
    assert all(one.reason for one in mentions)


@given(text=odd_texts())
def test_any_line_of_a_shell_has_a_verdict(house: Skillhouse, text: str) -> None:
    mentions, _ = judged_mentions(house, f"```sh\n{text}\n```")
    assert all(one.reason for one in mentions)


@given(text=odd_texts())
def test_any_text_hides_something_or_nothing(text: str) -> None:
    for name, what in files_hiding([("a.md", text)]):
        assert name == "a.md"
        assert what.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: ascii(text[:9]))
def test_a_line_of_a_mebibyte_is_read_in_a_few_seconds(house: Skillhouse, text: str) -> None:
    began = time.process_time()
    hosts_in(text)
    files_hiding([("a.md", text)])
    judged_mentions(house, text)
    judged_mentions(house, f"```sh\n{text}\n```")
    assert time.process_time() - began < 20


def test_a_skill_of_any_bytes_has_effects(house: Skillhouse, tmp_path: Path) -> None:
    for place, data in enumerate(
        (b"", b"\xff\xfe", b"\x00" * 9, b"https://[x", b"\xed\xa0\x80https://[")
    ):
        (tmp_path / f"{place}.md").write_bytes(data)
    facts = SkillFacts(name="odd", description="", body="`\ud800 https://[`")
    found = skill_effects(house, tmp_path, read_tree(tmp_path), facts)
    assert [one.origin for one in found.hosts] == [UNREADABLE]

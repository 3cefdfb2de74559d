"""Tests of tools/code_network.py: what is said where code did not reach a host."""

from __future__ import annotations

from typing import Any

import pytest

from skillhouse.sandbox.code_call import CellResult
from skillhouse.skill import SkillManifest
from skillhouse.tools.code_network import network_hint

REFUSED = "no rule allows https://other.test; …"


class Way:
    """The way out of a call that has ended."""

    proxy: Any = None
    connections = ()

    def __init__(self, refused: str = "") -> None:
        self.refused = refused


def manifest(language: Any, *hosts: str) -> SkillManifest:
    return SkillManifest(
        name="sdk", version="1", description="", language=language, entry="main.py", env=(),
        tools=(), hosts=hosts,
    )  # fmt: skip


def failed(unreached: str = "python", **more: Any) -> CellResult:
    return CellResult(**{"kind": "error", "seconds": 0.1, "unreached": unreached, **more})


@pytest.mark.parametrize(
    ("language", "result", "network", "said"),
    [
        ("python", failed(""), None, ""),
        ("python", failed("", has_way=True), Way(), ""),
        ("python", failed("", has_way=True), Way(REFUSED), REFUSED),
        ("python", failed("", has_way=True, kind="ok"), Way(REFUSED), ""),
        ("python", failed(), None, "no network but `context.fetch`"),
        ("javascript", failed("node 24.1.0"), None, "requires.hosts"),
        ("python", failed(), Way(), "this sandbox gives the code of skills no network"),
        ("python", failed(has_way=True), Way(), "only what uses the proxy of HTTPS_PROXY"),
        ("javascript", failed("node 20.20.2", has_way=True), Way(), "Node 20.20.2 does not use"),
        ("javascript", failed("node 22.21.0", has_way=True), Way(), "only what uses the proxy"),
    ],
)  # fmt: skip
def test_the_error_of_a_host_says_what_to_write(
    language: str, result: CellResult, network: Any, said: str
) -> None:
    found = network_hint(manifest(language), result, network)
    assert bool(found) == bool(said)
    assert said in found


def test_a_host_that_the_manifest_names_is_only_asked_of_the_operator() -> None:
    found = network_hint(manifest("python", "http://lan.test:8080"), failed(), None)
    assert '`hosts = ["http://lan.test:8080"]` below `[net]`' in found
    assert "requires.hosts" not in found

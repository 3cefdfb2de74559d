"""Tests of tools/command_network.py: what a command names, as the question shows it."""

from __future__ import annotations

import shlex

import pytest

from skillhouse.tools.command_network import named_by


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("curl -s wttr.in/Tokyo?format=3", ["GET http://wttr.in"]),
        ("curl -sL https://a.example/x", ["CONNECT https://a.example"]),
        (
            "curl http://a.example:8080/x http://b.example",
            [
                "GET http://a.example:8080",
                "GET http://b.example",
            ],
        ),
        ("curl --url http://a.example", ["GET http://a.example"]),
        ("curl -XDELETE http://a.example", ["DELETE http://a.example"]),
        ("curl -d a=1 http://a.example", ["POST http://a.example"]),
        ("curl --data-binary @f http://a.example", ["POST http://a.example"]),
        ("curl -G -d a=1 http://a.example", ["GET http://a.example"]),
        ("curl -T f http://a.example", ["PUT http://a.example"]),
        ("curl -I http://a.example", ["HEAD http://a.example"]),
        ("curl -o notes.md -H 'X: b.example' wttr.in", ["GET http://wttr.in"]),
        ("wget -qO- http://a.example/f", ["GET http://a.example"]),
        ("wget --post-data=x http://a.example", ["POST http://a.example"]),
        ("curl -X 'GET http://good.example' http://a.example", []),
        ("curl http://user:pw@a.example", []),
        ("curl file:///etc/passwd", []),
        ("curl --version", []),
        ("cat http://a.example", []),
        ("python3 -c 'http://a.example'", []),
    ],
)
def test_the_requests_that_words_name(line: str, named: list[str]) -> None:
    assert [request.resource for request in named_by(tuple(shlex.split(line)))] == named

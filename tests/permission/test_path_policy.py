"""Tests of permission/path_policy.py, and of what rooms that do not know each other must share."""

from __future__ import annotations

import pytest

from skillhouse.approval import NEVER_LASTING
from skillhouse.floor import ONE_TIME
from skillhouse.permission import Effect, Layer, PathPolicy, Permission, Rule, decide
from skillhouse.permission.path_policy import is_protected


@pytest.mark.parametrize("action", sorted(ONE_TIME))
def test_no_rule_and_no_lasting_yes_allows_what_is_allowed_once(action: str) -> None:
    wanted = Permission(action=action, resource="x")
    rules = tuple(Rule(effect=Effect.ALLOW, action=a, pattern="*") for a in ("*", action))
    layers = [Layer(name=name, rules=rules) for name in ("managed", "user", "grants")]
    assert decide(layers, wanted).effect is Effect.ASK
    assert action in NEVER_LASTING
    deny = Layer(name="user", rules=(Rule(effect=Effect.DENY, action=action, pattern="*"),))
    assert decide([*layers, deny], wanted).effect is Effect.DENY


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".git/hooks/pre-commit", True),
        (".GIT//./hooks", True),
        ("sub/.git/config", True),
        ("/home/u/.bashrc", True),
        (".env.local", True),
        ("keys/a.pem", True),
        ("git/hooks", False),
        (".gitignore", False),
        ("bashrc", False),
        ("environment", False),
    ],
)
def test_protected_names_are_known_at_any_depth(path: str, expected: bool) -> None:
    assert is_protected(path) is expected


@pytest.mark.parametrize(
    ("path", "effect"),
    [
        ("/dev/null", Effect.ALLOW),
        ("/dev/sda", Effect.DENY),
        ("/etc/passwd", Effect.DENY),
        ("a/../../x", Effect.ASK),
        ("/outside/x", Effect.ASK),
        ("a.txt", Effect.ASK),
        (".bashrc", Effect.DENY),
        ("~/x", Effect.ASK),
    ],
)
def test_writing_by_the_text_of_a_path(path: str, effect: Effect) -> None:
    assert PathPolicy().writing(path)[0] is effect

"""Tests of tools/consequences.py."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_command,
    judge_line,
)
from skillhouse.tools.call import RefusedError
from skillhouse.tools.consequences import consequence, refuse_outside
from tests.tools.houses import Person, house_at

NO_NETWORK = "no network is granted: this will fail"
ALL = (Layer(name="user", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern="*"),)),)


def said(line: str, root: Path, *, has_network: bool = False) -> str:
    plan = judge_line(line, LayerRules(ALL), PathPolicy(root, writable=(root,))).structure
    assert plan is not None, line
    return "".join(value for _, value in consequence(plan, str(root), has_network=has_network))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("npm install lodash", NO_NETWORK),
        ("npm ci", NO_NETWORK),
        ("npm install --offline lodash", ""),
        ("npm install ./packages/a", ""),
        ("npm run build", ""),
        ("pip install -r requirements.txt", NO_NETWORK),
        ("python3 -m pip install requests", NO_NETWORK),
        ("pip install --no-index -f wheels a", ""),
        ("pip list", ""),
        ("timeout 60 cargo update", NO_NETWORK),
        ("cargo build", ""),
        ("git push", NO_NETWORK),
        ("git push origin main", NO_NETWORK),
        ("git -C . fetch", NO_NETWORK),
        ("git status", ""),
        ("git clone https://a.example/b.git", NO_NETWORK),
        ("git clone git@a.example:b.git", NO_NETWORK),
        ("git clone ./b c", ""),
        ("gh pr view 1", NO_NETWORK),
        ("gh --version", ""),
        ("curl -s http://127.0.0.1:3000/health", NO_NETWORK),
        ("ls && git push && echo done", "no network is granted: `git push` will fail"),
        ("docker ps", "no container engine can be reached from the sandbox: this will fail"),
        ("docker --version", ""),
        ("ls", ""),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(tmp_path: Path, line: str, expected: str) -> None:
    config = '[remote "origin"]\n\turl = https://a.example/b.git\n'
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(config)
    (tmp_path / "packages/a").mkdir(parents=True)
    assert said(line, tmp_path) == expected
    if "network" in expected:
        assert said(line, tmp_path, has_network=True) == ""


def test_a_remote_that_is_a_directory_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text('[remote "origin"]\n\turl = ../other\n')
    assert said("git push", tmp_path) == ""


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("python3 run.py && rm run.py", True),
        ("python3 run.py; mv run.py old.py", True),
        ("python3 sub/run.py && rm -r sub", True),
        ("python3 sub/run.py && mv sub other", True),
        ("sed -i s/0/1/ run.py && python3 run.py", True),
        ("python3 run.py && rm other.py", False),
        ("python3 run.py > out.txt", False),
        ("echo 'print(1)' > run.py && python3 run.py", False),
        ("echo 'print(1)' > new.py && python3 new.py && rm new.py", False),
        ("rm run.py", False),
    ],
)
def test_a_line_that_removes_what_it_runs_is_refused_before_a_question(
    tmp_path: Path, line: str, is_refused: bool
) -> None:
    """The approved bytes are mounted there; `rm` would fail after the script has run."""
    person = Person([Answer.NO])
    with house_at(tmp_path, person=person) as house:
        (tmp_path / "project/sub").mkdir()
        for name in ("run.py", "sub/run.py", "other.py"):
            (tmp_path / "project" / name).write_text("print(0)\n")
        content = house.call_sync("exec", {"command": line}).content
    assert bool(person.asked) is not is_refused, content
    if is_refused:
        assert "run.py` runs as it was approved while the line runs" in content
        assert content.endswith("nothing was done: do it in a call of its own")


def test_a_question_shows_arguments_as_they_are_sent(tmp_path: Path) -> None:
    person = Person([Answer.NO])
    words = ["log", "--format=%s", "an 'é'\n\u202e"]
    with house_at(tmp_path, person=person) as house:
        call = {"command": "git", "params": words, "timeout_seconds": 5}
        house.call_sync("exec", call)
    (asked,) = person.asked
    assert asked.facts[:3] == (
        ("command", "git"),
        ("params", '["log", "--format=%s", "an \'é\'\\n\u202e"]'),
        ("timeout_seconds", "5"),
    )


def test_a_question_says_it_first(tmp_path: Path) -> None:
    person = Person([Answer.NO])
    with house_at(tmp_path, person=person) as house:
        house.call_sync("exec", {"command": "npm install lodash"})
    (asked,) = person.asked
    facts = [fact for fact in asked.facts if fact[0] != "command"]
    assert facts[0] == ("will not work", NO_NETWORK)


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("tar czf ../out.tgz sub", True),
        ("cp a ../b", True),
        ("cp a /home/x", True),
        ("cp a /tmp/x", False),
        ("cp ../a b", False),
        ("cd sub && cp a ../b", False),
        ("touch /dev/null", False),
        ("git archive -o ../x.tar HEAD", False),
    ],
)
def test_what_is_written_outside_is_refused(line: str, is_refused: bool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    plan = judge_command(line, allow=["*"], cwd=tmp_path).structure
    assert plan is not None
    with pytest.raises(RefusedError, match="outside") if is_refused else nullcontext():
        refuse_outside(plan, str(tmp_path))

"""Tests of permission/environment.py: variables before a command."""

from __future__ import annotations

import pytest

from skillhouse.permission import (
    Effect,
    Layer,
    LayerRules,
    PathPolicy,
    Rule,
    judge_command,
    judge_line,
)

ALLOW = ["git log *", "git diff *", "git commit *", "python *", "node *", "make *", "ls *"]

CALM = [
    "GIT_PAGER=cat git diff",
    "GIT_PAGER= git diff",
    "PAGER=cat git log",
    "PAGER=\"cat\" GIT_PAGER='cat' git log -3",
    "env PAGER=cat git log",
    "export PAGER=cat; git log",
    "GIT_EDITOR=true git log",
    "EDITOR=: git log",
    "GIT_AUTHOR_NAME='Ada Lovelace' GIT_AUTHOR_EMAIL=ada@example.org git log",
    "GIT_AUTHOR_DATE='2024-01-02 03:04:05 +0100' GIT_COMMITTER_DATE=@1700000000 git log",
    "NODE_OPTIONS=--max-old-space-size=4096 ls",
    "NODE_OPTIONS='--no-warnings --max-old-space-size=512' ls",
    "PYTHONWARNINGS=ignore ls",
    "PYTHONWARNINGS=error,ignore::DeprecationWarning ls",
    "CARGO_BUILD_JOBS=4 MAKEFLAGS=-j8 OMP_NUM_THREADS=1 ls",
    "GOFLAGS=-mod=vendor CGO_ENABLED=0 GOOS=linux GOTOOLCHAIN=local GOWORK=off ls",
    "GOFLAGS='-count=1 -race -tags=a,b' GO111MODULE=on GOPROXY=off ls",
    "GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true CI=1 TZ=Europe/Berlin ls",
]
ASKED = [
    "GIT_PAGER='cat;rm' git diff",
    "GIT_PAGER='cat --x' git diff",
    "GIT_PAGER=./cat git diff",
    "GIT_PAGER=/bin/cat git diff",
    "PAGER='less -k' git log",
    "PAGER=less git log",
    "PAGER=$(echo cat) git log",
    "git_pager=cat git diff",
    "Git_Pager=cat git diff",
    "GIT_EDITOR=./x git log",
    "GIT_EDITOR='true; rm x' git log",
    "GIT_EDITOR='true #' git log",
    "env GIT_EDITOR=./x git log",
    "export GIT_EDITOR=./x; git log",
    "PAGER=cat GIT_PAGER=./x git log",
    "GIT_AUTHOR_NAME='`id`' git log",
    "GIT_AUTHOR_DATE='../x' git log",
    "GIT_AUTHOR_NAME=a/b git log",
    "PYTHONPATH=src ls",
    "PYTHONPATH=. ls",
    "PYTHONWARNINGS=ignore::evil.Warning ls",
    "PYTHONWARNINGS='ignore::a.b' ls",
    "GIT_SSH_COMMAND=x git log",
    "GIT_DIR=x git log",
    "GIT_TRACE=/tmp/x git log",
    "HOME=. git log",
    "MAKEFLAGS='--eval=x' ls",
    "JOBS=./x ls",
    "GOFLAGS=-toolexec=./x ls",
    "GOFLAGS='-mod=vendor -toolexec=./x' ls",
    "GOFLAGS='-tags=a -overlay=x' ls",
    "GOFLAGS=-modfile=x ls",
    "GOTOOLCHAIN=go1.99 ls",
    "GOPROXY=https://example.org ls",
    "GOWORK=./x ls",
    "CGO_ENABLED=./x ls",
    "CC=./x ls",
    "FOO=1 ls",
]
DENIED = [
    "PATH=. ls",
    "PAGER=cat PATH=. git log",
    "LD_PRELOAD=./x.so ls",
    "LD_LIBRARY_PATH=. ls",
    "DYLD_INSERT_LIBRARIES=x ls",
    "BASH_ENV=x ls",
    "ENV=x ls",
    "env LD_PRELOAD=x ls",
    "export LD_PRELOAD=x; ls",
    "PYTHONSTARTUP=x ls",
    "NODE_OPTIONS='--max-old-space-size=1 --require ./x.js' ls",
    "NODE_OPTIONS=--require=./x.js ls",
    "NODE_OPTIONS=--import=./x.js ls",
    "PERL5OPT=-Mx ls",
    "RUBYOPT=-rx ls",
    "JAVA_TOOL_OPTIONS=-javaagent:x ls",
    "GIT_EXEC_PATH=. git log",
    "GIT_CONFIG_COUNT=1 git log",
    "GIT_CONFIG_GLOBAL=x git log",
]


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        *((line, "allow") for line in CALM),
        *((line, "ask") for line in ASKED),
        *((line, "deny") for line in DENIED),
    ],
)
def test_a_variable_is_harmless_asked_about_or_denied(line: str, effect: str) -> None:
    assert judge_command(line, allow=ALLOW).effect.value == effect


@pytest.mark.parametrize(
    "line",
    [
        "GIT_PAGER='rm -r x' git log",
        "GIT_PAGER='cat; rm x' git log",
        "GIT_EDITOR='sh -c \"rm x\"' git log",
        "export GIT_EDITOR='rm x'; git log",
        "GIT_EDITOR='rm x'; git log",
        "env PAGER='rm x' git log",
        "GIT_SSH_COMMAND='env rm x' git log",
    ],
)
def test_what_a_variable_starts_is_denied_as_a_command_is(line: str) -> None:
    assert judge_command(line, allow=ALLOW, deny=["rm *"]).effect.value == "deny"


@pytest.mark.parametrize(
    ("rule", "line", "effect"),
    [
        ("env PYTHONPATH=src python run.py", "env PYTHONPATH=src python run.py", "allow"),
        ("env PYTHONPATH=src python run.py", "env PYTHONPATH=lib python run.py", "ask"),
        ("env PYTHONPATH=src python run.py", "PYTHONPATH=src python run.py", "ask"),
        ("env FOO=bar ls *", "env FOO=bar ls a", "ask"),
        ("FOO=bar ls *", "FOO=bar ls a", "ask"),
        ("PYTHONPATH=src python run.py", "PYTHONPATH=src python run.py", "ask"),
        ("PATH=bin:/usr/bin eslint .", "PATH=bin:/usr/bin eslint .", "deny"),
        ("env LD_PRELOAD=x ls *", "env LD_PRELOAD=x ls", "deny"),
    ],
)
def test_a_rule_names_a_variable_by_env_and_all_words_alone(
    rule: str, line: str, effect: str
) -> None:
    layer = Layer(name="user", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern=rule),))
    assert judge_line(line, LayerRules([layer]), PathPolicy()).effect.value == effect

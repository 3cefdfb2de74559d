"""Tests of permission/environment.py: variables before a command."""

from __future__ import annotations

from pathlib import Path

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
from skillhouse.permission.command_rules import GRANTS

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
    "RUSTFLAGS='-D warnings -C debuginfo=0 -Ctarget-cpu=native' ls",
    "RUSTDOCFLAGS='--cfg docsrs -D rustdoc::all' ls",
    "CFLAGS='-O2 -g -Wall -Wextra -Wshadow=2 -std=c11 -DNDEBUG -fPIC -march=x86-64-v3' ls",
    "NODE_OPTIONS='--openssl-legacy-provider --trace-uncaught' RUBYOPT=-W:no-deprecated ls",
    "CXXFLAGS=-fsanitize=address,undefined CPPFLAGS=-DX=1 ls",
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
    "RUSTFLAGS='-C linker=./x' ls",
    "RUSTFLAGS='-D warnings -Clink-arg=-fuse-ld=./x' ls",
    "RUSTFLAGS='-Zunstable-options' ls",
    "RUSTFLAGS=-L../x ls",
    "RUSTFLAGS='-C incremental=/x' ls",
    "CFLAGS=-fplugin=./x.so ls",
    "CFLAGS='-O2 -B./x' ls",
    "CFLAGS=-specs=x ls",
    "CFLAGS='-include ../x' ls",
    "CFLAGS=-I/x ls",
    "CFLAGS=-Wl,-x ls",
    "CFLAGS=-Wa,-x ls",
    "CFLAGS=-Wp,-x ls",
    "CFLAGS=@file ls",
    "LDFLAGS=-fuse-ld=./x ls",
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
    "RUBYOPT='-W0 -rx' ls",
    "NODE_OPTIONS=--experimental-loader=./x.js ls",
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


UNBOUND = [
    ("PYTHONPATH=src pytest -q", "allow"),
    ("PYTHONPATH=src:tests/lib: pytest", "allow"),
    ("PYTHONPATH=. python -m pytest tests", "allow"),
    ("DJANGO_SETTINGS_MODULE=app.settings pytest", "allow"),
    ("DATABASE_URL=sqlite:///test.db FOO=a,b:1 pytest", "allow"),
    ("RUSTFLAGS='-C debuginfo=0' cargo test", "allow"),
    ("APP_LEVEL=debug TEST_TIMEOUT=60 cargo test", "allow"),
    ("FOO= pytest", "allow"),
    ("RUN_SLOW=yes CUDA_VISIBLE_DEVICES=-1 pytest", "allow"),
    ("DATABASE_URL=sqlite:// pytest", "allow"),
    ("DATABASE_URL=sqlite:///./test.db pytest", "allow"),
    ("DATABASE_URL=sqlite+aiosqlite:///:memory: pytest", "allow"),
    ("FOO=1 npx jest", "allow"),
    ("NODE_OPTIONS=--experimental-vm-modules npx jest", "allow"),
    ("uv run pytest", "allow"),
    ("TEST_DB=x uv run pytest", "allow"),
    ("export FOO=1 && cd src && pytest", "allow"),
    ("export FOO=1; echo hi; pytest", "allow"),
    ("FOO=1 npm test", "allow"),
    ("FOO=1 .venv/bin/pytest -q", "allow"),
    ("env FOO=1 PYTHONPATH=src pytest", "allow"),
    ("timeout 60 env FOO=1 pytest", "allow"),
    ("export FOO=1; pytest && cargo test", "allow"),
    ("FOO=1 pytest -q 2>&1 | tail -5", "allow"),
    # A file of tasks is approved by its bytes, and a variable may lead to another.
    ("MAKEFILES=x make test", "ask"),
    ("MAKEFLAGS='-f x' make", "ask"),
    ("FOO=1 make test", "ask"),
    ("FOO=1 npm run build", "ask"),
    # What leads out of the workspace, and what other programs read before the code runs.
    ("PYTHONPATH=/tmp/x pytest", "ask"),
    ("PYTHONPATH=.. pytest", "ask"),
    ("PYTHONPATH=src:../x pytest", "ask"),
    ("PYTHONPATH=~/x pytest", "ask"),
    ("PYTHONPATH=out pytest", "ask"),
    # Its words are asked about as well, and a client may run it without a sandbox.
    ("PYTEST_ADDOPTS=--basetemp=/home/u pytest", "ask"),
    ("PYTEST_ADDOPTS=-pevil pytest", "ask"),
    ("FOO=--x pytest", "ask"),
    ("FOO='a b' pytest", "ask"),
    ("FOO='sudo id' pytest", "ask"),
    ("FOO=/etc/passwd pytest", "ask"),
    ("FOO=a:/etc/passwd pytest", "ask"),
    ("FOO=../x pytest", "ask"),
    ("FOO=a/../../x pytest", "ask"),
    ("FOO=.env pytest", "ask"),
    ("FOO=a/.env pytest", "ask"),
    ("FOO=out/x pytest", "ask"),
    ("FOO=http://evil.example pytest", "ask"),
    ("DATABASE_URL=postgresql://evil.example/x pytest", "ask"),
    ("DATABASE_URL=sqlite:////etc/x pytest", "ask"),
    ("RUSTC_WRAPPER=evil cargo test", "ask"),
    ("CARGO_TARGET_DIR=x cargo test", "ask"),
    ("CARGO_TARGET_X_RUNNER='sh -c x' cargo test", "ask"),
    ("COVERAGE_FILE=package.json pytest", "ask"),
    ("SSLKEYLOGFILE=x pytest", "ask"),
    ("OPENSSL_CONF=x pytest", "ask"),
    ("UV_ENV_FILE=x uv run pytest", "ask"),
    ("npm_config_script_shell=x npm test", "ask"),
    ("NPM_CONFIG_REGISTRY=x npm test", "ask"),
    ("HTTPS_PROXY=x pytest", "ask"),
    ("RUSTFLAGS='-C linker=./x' cargo test", "ask"),
    ("PYTHONPATH=- pytest", "allow"),
    ("PYTHONPATH=dash pytest", "ask"),
    # What installs, sends, or runs elsewhere is not the code of the workspace.
    ("FOO=1 pip install x", "ask"),
    ("DOCKER_HOST=x docker build .", "ask"),
    ("FOO=1 docker build .", "ask"),
    # A variable of any name is a property of MSBuild.
    ("RunAnalyzers=false dotnet test", "ask"),
    # What is there, what is a program, and what an agent may not make.
    ("FOO=src pytest", "ask"),
    ("FOO=run.py pytest", "ask"),
    ("FOO=a,run.py pytest", "ask"),
    ("FOO=python3 pytest", "ask"),
    ("FOO=.git/config pytest", "ask"),
    ("FOO=CLAUDE.md pytest", "ask"),
    ("FOO=a,package.json pytest", "ask"),
    ("DATABASE_URL=sqlite:///out/x.db pytest", "ask"),
    ("DATABASE_URL=sqlite:///run.py pytest", "ask"),
    ("PLAYWRIGHT_HTML_REPORT=x npm test", "ask"),
    ("SUNPRO_DEPENDENCIES=x cargo test", "ask"),
    ("CC_x86_64_unknown_linux_gnu=x cargo test", "ask"),
    # POSIX: what is before a special built-in stays.
    ("EDITOR=evil : && ls", "ask"),
    ("FOO=1 : ; ls", "ask"),
    ("FOO=1 npm publish", "ask"),
    ("FOO=1 deploy now", "ask"),
    # The bytes of this module are approved, and PYTHONSAFEPATH takes it away.
    ("PYTHONSAFEPATH=1 PYTHONPATH=src python -m mytool", "ask"),
    ("GIT_SSH_COMMAND=x pytest", "ask"),
    ("HOME=. pytest", "ask"),
    ("https_proxy=http://x pytest", "ask"),
    ("PYTHONSTARTUP=x pytest", "deny"),
    ("LD_PRELOAD=./x.so pytest", "deny"),
    ("PATH=. pytest", "deny"),
    ("env LD_PRELOAD=./x.so pytest", "deny"),
    # A variable of a line reaches its other commands too, of which no rule says that.
    ("export FOO=1; pytest; ls", "allow"),
    ("export FOO=1 && pytest -q 2>&1 | tail -20", "allow"),
    ("export GIT_PAGER=x; ls", "ask"),
    ("export GIT_SSH_COMMAND='sudo x'; echo hi", "deny"),
    ("FOO=1 ls", "ask"),
    ("PYTHONPATH=src python run.py", "ask"),
    ("FOO=1 pytest --exact", "ask"),
]


@pytest.mark.parametrize(("line", "effect"), UNBOUND)
def test_before_what_runs_any_code_of_the_workspace_a_variable_is_no_more(
    line: str, effect: str, tmp_path: Path
) -> None:
    for name in ("src", "tests/lib"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("out", "dash"):
        (tmp_path / name).symlink_to("/usr")
    (tmp_path / "mytool").mkdir()
    (tmp_path / "mytool/__main__.py").write_text("")
    (tmp_path / "run.py").write_text("")
    own = tmp_path / ".venv/bin/pytest"
    own.parent.mkdir(parents=True)
    own.write_text("#!/usr/bin/python3\n")
    own.chmod(0o755)
    patterns = (
        "pytest *",
        "python -m pytest *",
        "make *",
        "make test *",
        "cargo test *",
        "npm test *",
        "npm run build *",
        "python -m mytool *",
        "uv run pytest *",
        *("pip install *", "docker build *", "npm publish *", "deploy *", "npx jest *"),
        "dotnet test *",
    )
    rules = [
        *(Rule(effect=Effect.ALLOW, action="exec", pattern=one, unbound=True) for one in patterns),
        *(Rule(effect=Effect.ALLOW, action="exec", pattern=one) for one in ("ls *", "tail *")),
        Rule(effect=Effect.ALLOW, action="exec", pattern="python run.py *"),
    ]
    if "--exact" in line:
        rules = [Rule(effect=Effect.ALLOW, action="exec", pattern="pytest --exact")]
    layer = Layer(name="user", rules=tuple(rules))
    places = PathPolicy(tmp_path, readable=[tmp_path], binds_programs=True)
    found = judge_line(line, LayerRules([layer]), places)
    assert found.effect.value == effect, found.reasons


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("FOO='rm -rf x' pytest", "ask"),
        ("FOO=rm pytest", "ask"),
        ("CC='rm x' cargo test", "ask"),
        ("FOO=1 pytest", "allow"),
        ("PYTHONPATH=src pytest", "allow"),
    ],
)
def test_beside_a_denial_a_value_that_may_name_it_is_asked_about(
    line: str, effect: str, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    rules = (
        Rule(effect=Effect.ALLOW, action="exec", pattern="pytest *", unbound=True),
        Rule(effect=Effect.ALLOW, action="exec", pattern="cargo test *", unbound=True),
        Rule(effect=Effect.DENY, action="exec", pattern="rm *"),
    )
    layer = Layer(name="user", rules=rules)
    found = judge_line(line, LayerRules([layer]), PathPolicy(tmp_path, readable=[tmp_path]))
    assert found.effect.value == effect, found.reasons


def test_a_standing_approval_of_an_install_covers_no_variable() -> None:
    one = Rule(effect=Effect.ALLOW, action="exec", pattern="pip install -r requirements.txt")
    layer = Layer(name=GRANTS, rules=(one,))
    rules = LayerRules([layer])
    line = "pip install -r requirements.txt"
    assert judge_line(line, rules, PathPolicy()).effect is Effect.ALLOW
    for value in ("PIP_INDEX_URL=http://evil", "PIP_FIND_LINKS=x", "FOO=1"):
        assert judge_line(f"{value} {line}", rules, PathPolicy()).effect is Effect.ASK

"""Tests of tools/consequences.py; a missing script is refused before anyone is asked."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
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
from tests.house.places import write_skill
from tests.tools.houses import Person, house_at

NO_NETWORK = "this will fail: no network is granted"
ALL = (Layer(name="user", rules=(Rule(effect=Effect.ALLOW, action="exec", pattern="*"),)),)
MISSING = [
    "python3 scripts/x.py",
    "python3 -u ./scripts/x.py a b",
    "python3 -W ignore scripts/x.py",
    "node -r ./there.js scripts/x.py",
    "python scripts/x.py > out.txt",
    "bash scripts/x.py",
    "node scripts/x.py",
    "ruby scripts/x.py",
    "./scripts/x.py",
    "env A=1 timeout 5 python3 scripts/x.py",
    "uv run x.py",
    "npx tsx scripts/x.py",
    "cat a.txt | python3 scripts/x.py | wc -l",
    "mkdir -p out && python3 scripts/x.py --to out",
    "python3 scripts/x.py && rm -r build",
    "cd sub && python3 scripts/x.py",
    "python3 /nowhere/x.py",
    "echo one; python3 x.py",
    "bash -lc 'python3 scripts/x.py --all'",
    "sh -c 'cd sub; bash -c \"python3 scripts/x.py\"'",
    "bash -c 'for one in a b; do python3 x.py $one; done'",
    "chmod +x scripts/x.py && ./scripts/x.py",
    "npm exec -- node scripts/x.py",
]
LEFT_TO_THE_RUN = [
    "cp a.txt b.sh && sh b.sh",
    "cp a.txt scripts && python3 scripts/x.py",
    "git clone https://a.example/r && sh r/run.sh",
    "curl -o x.sh https://a.example/x && sh x.sh",
    "echo 'print(1)' > x.py && python3 x.py",
    "echo 'print(1)' | tee x.py; python3 x.py",
    "make x.py && python3 x.py",
    "tar xf a.tar && sh configure.sh",
    "python3 a.py || python3 b.py",
    "test -f x.py && python3 x.py",
    "python3 -m x",
    "python3 - < a.txt",
    "python3 scripts/*.py",
    'python3 "$UNKNOWN/x.py"',
    "bash -c 'cp a.txt x.py && python3 x.py'",
    "cp a.txt x.py; bash -c 'python3 x.py'",
    "bash -c 'for one in $(ls); do python3 x.py $one; done'",
    "bash -c 'python3 sub/there.py'",
    "cat > x.py <<'END'\nprint(1)\nEND\npython3 x.py",
    "sh ls",
    "node server",
    "bun run build",
    "go run example.com/x@latest",
    "deno run https://a.example/x.ts",
    "docker run image python3 x.py",
    "env -C sub python3 x.py",
    "python3 -c 'import sys' 80 /a",
    "python3 -cpass scripts/x.py",
    "node -e 1 scripts/x.py",
    "perl -pe s/a/b/ none.txt",
    "php -r 1 none.php",
    "sh -s none.sh",
    "sh there.sh",
    "bash +x there.sh",
    "bash +o history there.sh",
    "ssh host ./x.sh",
    "ssh -p 22 user@host bash none.sh",
    "ssh -t host 'cd /srv && ./deploy.sh'",
    "docker exec c sh none.sh",
    "kubectl exec p -- sh none.sh",
    "pnpm --filter x exec node none.js",
    "npm -w x exec -- node none.js",
    "pnpm -r exec node none.js",
    "yarn workspace x node none.js",
    "go run ./...",
    "go run ./cmd/tool/...",
    "chmod +x none.sh > x.py && python3 x.py",
    "node there",
    "python3 sub/there.py",
    "cd sub && python3 there.py",
]


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
        ("ls && git push && echo done", "`git push` will fail: no network is granted"),
        ("timeout 60 sh -ec 'npm ci && ls'", "`npm ci` will fail: no network is granted"),
        ("env A=1 bash -c 'git push'", NO_NETWORK),
        ("bash -c 'ls | wc -l'", ""),
        ("docker ps", "this will fail: no container engine can be reached from the sandbox"),
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
    assert asked.sent == (
        ("command", "git"),
        ("params", '["log", "--format=%s", "an \'é\'\\n\u202e"]'),
        ("timeout_seconds", "5"),
    )


def test_a_question_says_it_first(tmp_path: Path) -> None:
    person = Person([Answer.NO])
    with house_at(tmp_path, person=person) as house:
        house.call_sync("exec", {"command": "npm install lodash"})
    (asked,) = person.asked
    assert asked.found[0] == ("will not work", NO_NETWORK)


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


def project(base: Path) -> Path:
    """Make a project, and a skill `pdf` with a script."""
    root = base / "project"
    (root / "sub").mkdir(parents=True)
    for name in ("a.txt", "there.sh", "there.js", "sub/there.py"):
        (root / name).write_text("")
    skill = write_skill(base / "skills/pdf", body="Run `python3 scripts/x.py`.\n")
    (skill / "scripts").mkdir()
    (skill / "scripts/x.py").write_text("print('hello')\n")
    return skill


@pytest.mark.slow
@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("command", MISSING)
def test_the_right_path_is_said_and_no_one_is_asked(
    tmp_path: Path, command: str, is_loaded: bool
) -> None:
    skill, person = project(tmp_path), Person()
    with house_at(tmp_path, person=person, roots=[tmp_path / "skills"]) as house:
        if is_loaded:
            house.call_sync("skill", {"name": "pdf"})
        result = house.call_sync("exec", {"command": command})
        (last, *_) = read_records(house.audit_log.path)
    whose = "of skill `pdf`" if is_loaded else "of skill `pdf`, load it first"
    assert result.status == "error"
    assert result.content.startswith("no such file: `")
    assert result.content.endswith(f"; did you mean `{skill}/scripts/x.py` ({whose})")
    assert person.asked == []
    assert last.record.kind == "refusal"


@pytest.mark.slow
@pytest.mark.parametrize("command", LEFT_TO_THE_RUN)
def test_what_may_be_there_when_it_runs_is_asked_about_as_before(
    tmp_path: Path, command: str
) -> None:
    project(tmp_path)
    person = Person()
    with house_at(tmp_path, person=person, roots=[tmp_path / "skills"]) as house:
        result = house.call_sync("exec", {"command": command})
    assert "no such file" not in result.content
    assert len(person.asked) == 1


def test_the_words_of_an_argv_are_looked_at_too(tmp_path: Path) -> None:
    skill = project(tmp_path)
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        result = house.call_sync("exec", {"command": "python3", "params": ["scripts/x.py"]})
    assert f"`{skill}/scripts/x.py`" in result.content


def test_without_a_file_of_that_name_the_place_is_said(tmp_path: Path) -> None:
    project(tmp_path)
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        result = house.call_sync("exec", {"command": "cd sub; sh none.sh"})
    where = tmp_path / "project/sub"
    assert result.content == f"no such file: `none.sh`; relative paths begin at `{where}`"


def test_a_path_as_program_is_looked_for_where_a_rule_names_it(tmp_path: Path) -> None:
    project(tmp_path)
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="./gen.sh *")
    with house_at(tmp_path, rule) as house:
        named = house.call_sync("exec", {"command": "./gen.sh a"})
        other = house.call_sync("exec", {"command": "./other.sh a"})
    assert named.content.startswith("no such file: `./gen.sh`; relative paths begin at ")
    assert other.content.startswith("no such file: `./other.sh`; relative paths begin at ")


def test_the_skill_that_was_loaded_last_is_named_first_then_the_workspace(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "project/scripts").mkdir()
    for directory in ("project", "skills/aaa", "skills/zzz"):
        if directory != "project":
            write_skill(tmp_path / directory)
            (tmp_path / directory / "scripts").mkdir()
        (tmp_path / directory / "scripts/run.py").write_text("")
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        house.call_sync("skill", {"name": "zzz"})
        result = house.call_sync("exec", {"command": "cd sub && python3 run.py"})
    at = [result.content.index(f"{tmp_path}/{p}/scripts") for p in ("skills/zzz", "skills/aaa")]
    assert at == sorted(at)
    assert f"`{tmp_path}/project/scripts/run.py` (in the workspace)" in result.content


@pytest.mark.slow
def test_a_deny_comes_first_and_a_denied_skill_is_not_named(tmp_path: Path) -> None:
    project(tmp_path)
    hidden = Rule(effect=Effect.DENY, action="skill", pattern="pdf")
    denied = Rule(effect=Effect.DENY, action="exec", pattern="ruby *")
    with house_at(tmp_path, hidden, denied, roots=[tmp_path / "skills"]) as house:
        result = house.call_sync("exec", {"command": "python3 scripts/x.py"})
        assert "pdf" not in result.content
        assert result.status == "error"
        # Whether a file is there in what is kept from view is not said.
        within = [
            house.call_sync("exec", {"command": f"python3 {tmp_path}/skills/pdf/scripts/{name}"})
            for name in ("x.py", "y.py")
        ]
        assert len({r.content.replace("y.py", "x.py") for r in within}) == 1
        ruby = house.call_sync("exec", {"command": "ruby none.rb"})
        assert ruby.status == "denied"
        assert "rule `exec ruby *`" in ruby.content


def test_a_link_out_of_a_skill_is_not_suggested(tmp_path: Path) -> None:
    skill = project(tmp_path)
    (tmp_path / "outside.py").write_text("")
    (skill / "scripts/out.py").symlink_to(tmp_path / "outside.py")
    with house_at(tmp_path, roots=[tmp_path / "skills"]) as house:
        result = house.call_sync("exec", {"command": "python3 scripts/out.py"})
    assert "did you mean" not in result.content

"""Attacks on the rules about paths and skills by other ways than the file tools.

The naive version asks the rules where a file tool is called, and lets a command that is allowed
read and write all of the workspace. Here each way either is refused or gives nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from skillhouse.approval import Answer, ApprovalRequest, Unattended
from skillhouse.floor import is_secret
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule, judge_command
from tests.harness import Need, copy
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

CONTENT = "the-content-of-it"
READS = [
    "cat private/x",
    "cat ./private/../private/x",
    "cat ./p*/x",
    "cat < private/x",
    "cat link",
    "cat hard",
    "cd sub && cat up",
    "cp private/x pub",
    "cp -r private pub",
    "cp -r . /tmp/all && cat /tmp/all/private/x",
    "mv private pub",
    "mv private/x pub",
    "sed -n 1p private/x",
    "grep -r . private",
    "grep -r . .",
    "rg . private",
    "rg .",
    "diff private/x a",
    "base64 -w0 private/x",
    "timeout 5 cat private/x",
    "env cat private/x",
    "nice head -n 1 private/x",
    "find private -type f -exec cat {} +",
    "find . -name x -exec cat {} +",
    "echo private/x | xargs cat",
    "tar cf - private",
    "tar cf - .",
    "zip -q -r - private",
    "ln -s private/x to && cat to",
    "ln private/x to && cat to",
    "ln hard to && cat to",
    "python3 -c 'print(open(\"private/x\").read())'",
    "python3 -c 'print(open(\"hard\").read())'",
    'python3 -c \'import os; os.rename("private", "pub"); print(open("pub/x").read())\'',
    "python3 read.py private/x",
    "python3 read.py --file=private/x",
    'node -e \'console.log(require("fs").readFileSync("private/x", "utf8"))\'',
    "make t",
    "sh -c 'cat private/x'",
    "sh -c 'cd private && cat x'",
    "git diff --no-index a private/x",
    "git show HEAD:private/x",
    "git cat-file -p HEAD:private/x",
    "git log -p -- private",
    "git grep . HEAD -- private",
    "git grep the- HEAD",
    "git archive HEAD private",
    "git archive HEAD",
    "git checkout HEAD -- private/x",
    "git blame private/x",
]
WRITES = [
    "cp a locked/x",
    "cp a locked",
    "mv a locked/x",
    "mv locked free",
    "echo 1 | tee locked/y",
    "echo 1 > locked/y",
    "touch locked/y",
    "mkdir locked/y",
    "rm locked/x",
    "rm -r locked",
    "truncate -s 0 locked/x",
    "chmod 777 locked/x",
    "cd locked && touch y",
    "timeout 5 touch locked/y",
    "sed -i s/t/u/ locked/x",
    'python3 -c \'open("locked/y", "w").write("1")\'',
    'python3 -c \'import os; os.rename("locked", "free")\'',
    "python3 -c 'import os; os.unlink(\"locked/x\")'",
    "sh -c 'echo 1 > locked/y'",
    "make w",
    "find locked -delete",
    "tar xf t.tar",
    "git mv locked/x locked/y",
    "git rm -q locked/x",
]
RULES = (
    Rule(effect=Effect.ALLOW, action="exec", pattern="*"),
    Rule(effect=Effect.DENY, action="read", pattern="*/private/*"),
    Rule(effect=Effect.DENY, action="write", pattern="*/locked/*"),
)


class Yes(Person):
    """Approves whatever is asked."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return Answer.ONCE


def git(project: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=project, check=True, capture_output=True)


def fill(project: Path, files: Mapping[str, str]) -> None:
    texts = {
        "a": "an ordinary file\n",
        "private/x": CONTENT,
        "locked/x": "text",
        "sub/y": "",
        "read.py": "import sys\nprint(open(sys.argv[1].split('=')[-1]).read())\n",
        "Makefile": "t:\n\tcat private/x\nw:\n\techo 1 > locked/y\n",
        **files,
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    packing = ["tar", "cf", "t.tar", "--transform=s/a/locked\\/y/", "a"]
    subprocess.run(packing, cwd=project, check=True)
    shutil.rmtree(project / ".git", ignore_errors=True)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        git(project, *words)
    (project / "link").symlink_to("private/x")
    (project / "sub/up").symlink_to("../private/x")
    os.link(project / "private/x", project / "hard")


def house_of(
    base: Path,
    rules: Sequence[Rule],
    person: Person | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Skillhouse:
    places = make_places(base)
    if files or os.listdir(places.start) != [".git"]:
        fill(places.start, files)
    else:
        copy(base.parent / "way", lambda place: fill(place, {}), places.start)
    return Skillhouse(
        configured(places),
        layers=(Layer(name="user", rules=tuple(rules)),),
        channel=person or Unattended(),
        roots=[base / "project/.agents/skills"],
    )


@pytest.mark.parametrize("approves", [False, True], ids=["unasked", "approved"])
@pytest.mark.parametrize("line", READS)
def test_what_a_rule_denies_to_read_no_command_gives(
    tmp_path: Path, bwrap: None, line: str, approves: bool
) -> None:
    """G3: the rule holds for each way, also after a person has approved the command."""
    with house_of(tmp_path, RULES, Yes() if approves else None) as house:
        told = house.call_sync("exec", {"command": line})
        assert CONTENT not in told.content, told.content
        assert "dGhlLWNvbnRlbn" not in told.content
        for name in ("pub", "to"):
            copy = tmp_path / "project" / name
            assert not copy.is_file() or CONTENT not in copy.read_text()
            assert not (copy / "x").is_file() or CONTENT not in (copy / "x").read_text()
    assert (tmp_path / "project/private/x").read_text() == CONTENT


@pytest.mark.parametrize("approves", [False, True], ids=["unasked", "approved"])
@pytest.mark.parametrize("line", WRITES)
def test_what_a_rule_denies_to_write_no_command_changes(
    tmp_path: Path, bwrap: None, line: str, approves: bool
) -> None:
    """G3: the same for writing."""
    with house_of(tmp_path, RULES, Yes() if approves else None) as house:
        house.call_sync("exec", {"command": line})
    locked = tmp_path / "project/locked"
    assert [path.name for path in locked.iterdir()] == ["x"]
    assert (locked / "x").read_text() == "text"
    assert (locked / "x").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("approves", [False, True], ids=["unasked", "approved"])
@pytest.mark.parametrize("line", ["git bundle create to HEAD", "git archive -o to HEAD"])
def test_r7_no_file_of_git_carries_what_a_rule_denies_to_read(
    tmp_path: Path, bwrap: None, line: str, approves: bool
) -> None:
    """Bytes are packed there, so that what the attacks above look for is not to be seen."""
    with house_of(tmp_path, RULES, Yes() if approves else None) as house:
        told = house.call_sync("exec", {"command": line})
        assert told.content == "denied: rule `read */private/*` of user policy"
    assert not (tmp_path / "project/to").exists()


@pytest.mark.parametrize("line", ["grep -r ordinary .", "rg ordinary ."])
def test_r7_a_search_beside_a_masked_file_finds_the_rest(
    tmp_path: Path, need: Need, bwrap: None, line: str
) -> None:
    need(shutil.which(line.split(maxsplit=1)[0], path="/usr/bin:/bin"), "no such program")
    with house_of(tmp_path, RULES) as house:
        told = house.call_sync("exec", {"command": line})
    # Both programs end with 2 where a file cannot be read, and say which.
    assert told.content.startswith("exit code 2\n./a:an ordinary file\n")
    assert "./private: Permission denied" in told.content
    assert CONTENT not in told.content


def test_the_rule_is_named_where_a_command_names_the_path(tmp_path: Path, bwrap: None) -> None:
    with house_of(tmp_path, RULES) as house:
        for line in ("cat private/x", "grep -r . private", "git show HEAD:private/x"):
            told = house.call_sync("exec", {"command": line})
            rule = "rule `read */private/*` of user policy"
            assert (told.status, told.content) == ("denied", f"denied: {rule}"), line
        told = house.call_sync("exec", {"command": "cp a locked/x"})
        rule = "rule `write */locked/*` of user policy"
        assert (told.status, told.content) == ("denied", f"denied: {rule}")


def test_what_no_rule_is_about_goes_on_without_a_question(tmp_path: Path, bwrap: None) -> None:
    person = Person()
    allowed = ("cat *", "cp *", "grep *", "tee *", "ls *", "git *", "find *")
    rules = [Rule(effect=Effect.ALLOW, action="exec", pattern=pattern) for pattern in allowed]
    with house_of(tmp_path, [*rules, *RULES[1:]], person) as house:
        for line in (
            "cat a",
            "cp a b",
            "cat a | tee c",
            "grep -r ordinary a sub",
            "ls -R sub",
            "find sub -name y",
            "git show HEAD:a",
            "git log -p -- a",
            "git diff",
            "git stash -q",
        ):
            told = house.call_sync("exec", {"command": line})
            assert told.status == "ok", (line, told.content)
    assert person.asked == []


def test_a_rule_that_asks_is_answered_once_and_opens_the_path(tmp_path: Path, bwrap: None) -> None:
    ask = Rule(effect=Effect.ASK, action="read", pattern="*/private/*")
    person = Yes()
    with house_of(tmp_path, [RULES[0], ask], person) as house:
        for line in ("cat private/x", "python3 read.py private/x"):
            told = house.call_sync("exec", {"command": line})
            assert (told.status, told.content.strip()) == ("ok", CONTENT)
        hidden = house.call_sync("exec", {"command": "python3 -c 'open(\"private/x\")'"})
        assert "Permission" in hidden.content or "No such file" in hidden.content
    assert [question.asked[0].resource for question in person.asked] == [
        str(tmp_path / "project/private/x")
    ] * 2


@pytest.mark.parametrize(
    ("rules", "files", "was", "now"),
    [
        ([("read", "*/project/sub/kept/*")], {"sub/kept/x": CONTENT}, "sub", "to/kept/x"),
        ([("read", "*/project/sub/kept")], {"sub/kept": CONTENT}, "sub", "to/kept"),
        ([], {"sub/.aws/credentials": CONTENT}, "sub/.aws", "to/credentials"),
        ([("skill", "s")], {}, ".agents/skills", "to/s/SKILL.md"),
    ],
)
def test_a_directory_above_cannot_be_renamed_to_leave_the_rule(
    tmp_path: Path,
    bwrap: None,
    rules: Sequence[tuple[str, str]],
    files: Mapping[str, str],
    was: str,
    now: str,
) -> None:
    write_skill(tmp_path / "project/.agents/skills/s", body=f"{CONTENT}\n")
    denied = [Rule(effect=Effect.DENY, action=action, pattern=p) for action, p in rules]
    with house_of(tmp_path, [RULES[0], *denied], files={"private/x": "", **files}) as house:
        for line in (
            f'python3 -c \'import os; os.rename("{was}", "to")\'',
            f"mv {was} to",
            f"python3 -c 'print(open(\"{now}\").read())'",
        ):
            assert CONTENT not in house.call_sync("exec", {"command": line}).content
    assert not (tmp_path / "project" / now).exists()


def test_an_approved_write_is_made_and_no_other_one(tmp_path: Path, bwrap: None) -> None:
    ask = Rule(effect=Effect.ASK, action="write", pattern="*/locked/*")
    person = Yes()
    with house_of(tmp_path, [RULES[0], ask], person) as house:
        for line in ("cp a locked/y", "echo 1 > locked/z", "touch locked/w"):
            told = house.call_sync("exec", {"command": line})
            assert told.status == "ok", (line, told.content)
        assert len(person.asked) == 3
        house.call_sync("exec", {"command": 'python3 -c \'open("locked/v", "w")\''})
        house.call_sync("exec", {"command": "cp a locked/u && sh -c 'echo 1 > locked/x'"})
    locked = tmp_path / "project/locked"
    assert sorted(path.name for path in locked.iterdir()) == ["u", "w", "x", "y", "z"]
    assert (locked / "x").read_text() == "text"


def test_an_approval_of_one_file_does_not_open_its_directory(tmp_path: Path, bwrap: None) -> None:
    files = {".ssh/config": "host", ".ssh/deep/er/key": CONTENT}
    with house_of(tmp_path, RULES[:1], Yes(), files) as house:
        told = house.call_sync("exec", {"command": "python3 read.py .ssh/config"})
        assert (told.status, told.content) == ("ok", "host\n")
        told = house.call_sync("exec", {"command": "cat .ssh/config && sh -c 'cat .ssh/deep/er/*'"})
        assert "host" in told.content
        assert CONTENT not in told.content


SKILL_READS = [
    "cat .agents/skills/s/SKILL.md",
    "cat .agents/skills/s/more.md",
    "cat ./.agents/skills/*/SKILL.md",
    "grep -r . .agents",
    "cp -r .agents copy && cat copy/skills/s/SKILL.md",
    "sh -c 'cat .agents/skills/s/SKILL.md'",
    "python3 -c 'print(open(\".agents/skills/s/SKILL.md\").read())'",
    "cd .agents/skills/s && cat SKILL.md",
    "git show HEAD:.agents/skills/s/SKILL.md",
    "tar cf - .agents",
]


@pytest.mark.parametrize("effect", [Effect.DENY, Effect.ASK])
@pytest.mark.parametrize("line", SKILL_READS)
def test_a_withheld_skill_is_given_by_no_command(
    tmp_path: Path, bwrap: None, line: str, effect: Effect
) -> None:
    """G3: `deny skill s`, and a skill that must be asked about."""
    skill = write_skill(tmp_path / "project/.agents/skills/s", body=f"{CONTENT}\n")
    (skill / "more.md").write_text(CONTENT)
    rules = (RULES[0], Rule(effect=effect, action="skill", pattern="s"))
    with house_of(tmp_path, rules, files={"private/x": ""}) as house:
        assert CONTENT not in house.call_sync("exec", {"command": line}).content


SECRETS = (
    ".env prod.env .envrc .aws/credentials .kube/config .docker/config.json "
    ".git-credentials .pypirc .pgpass .vault-token .config/gh/hosts.yml store.p12 "
    "secrets.json sub/service-account-1.json sub/Credentials.json"
).split()
MORE_SECRETS = (
    "token.txt password.txt cookies.txt terraform.tfvars gcp-key.json firebase-adminsdk.json "
    "auth.json config/database.yml wp-config.php env.production"
).split()
"""Those that a later review read unasked."""
ORDINARY = (
    ".env.example .env.sample example.env .docker/Dockerfile .kube/readme.md id_rsa.pub "
    "id_map.py package.json config.json secrets.py environment.yml key.ts"
).split()


def test_names_of_secrets() -> None:
    """G13, R7."""
    assert [name for name in (*SECRETS, *MORE_SECRETS) if not is_secret(name)] == []
    assert [name for name in ORDINARY if is_secret(name)] == []


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_read_by_no_way_unasked(tmp_path: Path, bwrap: None, name: str) -> None:
    """G13: by the tool, by a program with a table, by history, by any other program."""
    allow = [
        Rule(effect=Effect.ALLOW, action="exec", pattern=pattern)
        for pattern in ("cat *", "git *", "python3 read.py *", "grep *", "rg *", "cp *", "make t")
    ]
    files = {"private/x": "", name: CONTENT, "Makefile": f"t:\n\tcat {name}\n"}
    with house_of(tmp_path, allow, files=files) as house:
        assert house.call_sync("read", {"path": name}).is_error
        for line in (
            f"cat {name}",
            f"git show HEAD:{name}",
            f"git cat-file -p HEAD:{name}",
            f"git log -p -- {name}",
            f"git checkout HEAD -- {name}",
            f"cp {name} to",
        ):
            told = house.call_sync("exec", {"command": line})
            assert told.content.startswith("not approved"), (line, told.content)
        for line in ("grep -r . .", "make t"):
            assert CONTENT not in house.call_sync("exec", {"command": line}).content


@pytest.mark.parametrize(
    "line",
    [
        "git show HEAD:.env",
        "git show HEAD~2:sub/.env",
        "git show :.env",
        "git show :0:.env",
        "git cat-file -p main:.aws/credentials",
        "git grep x -- .env",
        "git grep x HEAD -- ':(top).env'",
        "git log -p -- '*.pem'",
        "git log -p -- .e*",
        "git log -L1,5:.env",
        "git diff HEAD~1 -- sub/.env",
        "git blame .env",
        "git archive HEAD .env",
        "git restore --source=HEAD~1 .env",
        "git checkout HEAD .env",
        "git --no-pager show HEAD:.env",
    ],
)
def test_a_secret_in_the_history_is_a_secret(line: str) -> None:
    """G13: `git show HEAD:.env` was allowed."""
    allow = ["git *", f"{' '.join(line.split()[:2])} *"]
    assert judge_command(line, allow=allow).effect is Effect.ASK


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (("read", "*/.env"), "cat .env"),
        (("read", "*/.env"), "python3 read.py .env"),
        (("read", "*/.env"), "sh -c 'cat .env'"),
        (("read", "*/.env"), "git show HEAD:.env"),
        (("exec", "cat .env"), "cat .env"),
    ],
)
def test_a_rule_that_names_a_secret_opens_it(
    tmp_path: Path, bwrap: None, rule: tuple[str, str], line: str
) -> None:
    opening = Rule(effect=Effect.ALLOW, action=rule[0], pattern=rule[1])
    rules = [] if rule[0] == "exec" else [RULES[0]]
    with house_of(tmp_path, [*rules, opening], files={".env": CONTENT}) as house:
        told = house.call_sync("exec", {"command": line})
        assert (told.status, told.content.strip()) == ("ok", CONTENT)


@pytest.mark.parametrize("line", ["cat .env", "python3 read.py .env", "git show HEAD:.env"])
def test_an_approval_that_names_a_secret_opens_it_for_that_run(
    tmp_path: Path, bwrap: None, line: str
) -> None:
    with house_of(tmp_path, (), Yes(), {".env": CONTENT}) as house:
        told = house.call_sync("exec", {"command": line})
        assert (told.status, told.content.strip()) == ("ok", CONTENT)
        again = house.call_sync("exec", {"command": "python3 -c 'print(open(\".env\").read())'"})
        assert CONTENT not in again.content


def test_what_cannot_be_covered_is_asked_about_first(tmp_path: Path, bwrap: None) -> None:
    """Beyond 48 paths and 500 directories secrets were there to be read, without a word."""
    many = {f"d{n:03}/.npmrc": CONTENT for n in range(240)}
    person = Person()
    with house_of(tmp_path, RULES, person, many) as house:
        line = "python3 -c 'print(open(\"d239/.npmrc\").read())'"
        assert CONTENT not in house.call_sync("exec", {"command": line}).content
        assert person.asked[0].title.startswith("43 paths not covered: exec: python3")
        for line in ("cat a", "ls", "echo x"):
            assert house.call_sync("exec", {"command": line}).status == "ok"
        assert len(person.asked) == 1
        assert CONTENT not in house.call_sync("exec", {"command": "grep -r . ."}).content


def test_many_directories_are_covered(tmp_path: Path, bwrap: None) -> None:
    many = {f"d{n:03}/a": "" for n in range(600)}
    with house_of(tmp_path, RULES, files={**many, "d599/e/.env": CONTENT}) as house:
        line = "cat d599/e/.env || python3 -c 'print(open(\"d599/e/.env\").read())'"
        told = house.call_sync("exec", {"command": f"sh -c '{line.replace(chr(39), chr(34))}'"})
        assert CONTENT not in told.content


def test_masked_files_are_not_deleted_for_git(tmp_path: Path, bwrap: None) -> None:
    """A directory that looked empty would be committed as removed."""
    with house_of(tmp_path, RULES) as house:
        house.call_sync("exec", {"command": "git add -u"})
    staged = subprocess.run(
        ["git", "diff", "--cached", "--name-only"],
        cwd=tmp_path / "project",
        capture_output=True,
        check=True,
    )
    assert staged.stdout == b""

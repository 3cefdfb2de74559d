"""Tests of tools/command.py in the real sandbox."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records, verify_log
from skillhouse.house import SandboxSettings, Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import Limits, SandboxLevel, SandboxStatus, detect
from skillhouse.tools import Progress
from tests.house.places import make_places, write_skill
from tests.sandbox.places import launcher_at
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

ALLOW_EXEC = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
BWRAP = Path("/usr/bin/bwrap")


@pytest.fixture(autouse=True)
def sandboxed(need: Any) -> None:
    need(anyio.run(detect).level is not SandboxLevel.NONE, "no usable sandbox")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    with house_at(tmp_path, ALLOW_EXEC, roots=[tmp_path / "skills"]) as made:
        yield made


def sh(house: Skillhouse, script: str, **more: Any) -> Any:
    return house.call_sync("exec", {"command": "sh", "params": ["-c", script], **more})


def newest_detail(house: Skillhouse) -> dict[str, Any]:
    """Return what the log says about the outcome of the last call."""
    outcome = read_records(house.audit_log.path, limit=1)[0].outcome
    assert outcome is not None
    return dict(outcome.detail)


NOT_UTF8 = """[not UTF-8: the output from byte 1 on and the errors from byte 0 on; \
`iconv -f ENCODING -t UTF-8` makes text of other encodings]"""


FILE_BYTES = "`file_bytes` of `[sandbox]`"


def test_what_a_command_says_and_how_it_ends_is_the_result(house: Skillhouse) -> None:
    cases = {
        "echo said": ("ok", "said\n", (0, "said\n", "", "")),
        "true": ("ok", "[no output]", (0, "", "", "")),
        "echo said; echo oops >&2; exit 3": (
            "error",
            "exit code 3\nsaid\n\n[stderr]\noops\n",
            (3, "said\n", "oops\n", ""),
        ),
        "echo oops >&2": ("ok", "[stderr]\noops\n", (0, "", "oops\n", "")),
        "kill -SEGV $$": ("error", "ended by signal 11", (-1, "", "", "")),
        "kill -XFSZ $$": (
            "error",
            f"ended by signal 25: a file may have at most {4 << 30} bytes, {FILE_BYTES}",
            (-1, "", "", ""),
        ),
        "printf 'a\\377'; printf '\\326\\320' >&2": (
            "ok",
            f"a�\n[stderr]\n��\n{NOT_UTF8}",
            (0, "a�", "��", ""),
        ),
    }
    found = {script: sh(house, script) for script in cases}
    assert {
        script: (
            result.status,
            result.content,
            tuple(result.data[key] for key in ("exit_code", "stdout", "stderr", "limit")),
        )
        for script, result in found.items()
    } == cases


def test_a_command_that_takes_too_long_is_stopped(house: Skillhouse) -> None:
    result = sh(house, "echo begun; sleep 600", timeout_seconds=1)
    assert (result.status, result.data["limit"]) == ("error", "time")
    assert result.content == "stopped: the limit on time was reached (1 seconds)\nbegun\n"
    assert newest_detail(house)["limit"] == "time"


def test_output_without_end_is_left_out_in_the_middle(house: Skillhouse) -> None:
    result = house.call_sync("exec", {"command": "yes", "timeout_seconds": 2})
    assert result.status == "error"
    notice, _, said = result.content.partition("\n")
    assert notice.startswith("[cut: the whole result is in `")
    assert said.startswith("stopped: the limit on time was reached (2 seconds)\ny\n")
    assert said.endswith(
        "\n[of the output, 10485760 bytes are kept and none of the rest: "
        "write it to a file and read parts of that]"
    )


def test_ten_megabytes_of_output_are_in_the_file_and_the_program_ends(
    house: Skillhouse, tmp_path: Path
) -> None:
    script = "seq 1000000; touch done"
    result = sh(house, script)
    assert result.status == "ok"
    assert (tmp_path / "project/done").exists()
    (path,) = re.findall(r"the whole result is in `([^`]+)`", result.content)
    assert Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 1_000_001))


def test_the_limits_without_a_setting_are_those_of_a_build(house: Skillhouse) -> None:
    limits = Limits()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (limits.seconds, limits.output_bytes, limits.processes) == (600, 10 << 20, 1_024)
    assert limits.memory_bytes == min(8 << 30, memory // 2)
    (tool,) = [one for one in house.tools() if one.name == "exec"]
    assert tool.schema["properties"]["timeout_seconds"]["maximum"] == 600
    code = (
        "import threading as t; end = t.Event(); all = [t.Thread(target=end.wait) for _ in "
        "range(400)]; [one.start() for one in all]; print(t.active_count()); end.set()"
    )
    result = house.call_sync("exec", {"command": "python3", "params": ["-c", code]})
    assert (result.status, result.content) == ("ok", "401\n")


def test_the_operators_limits_hold_and_bound_what_a_call_may_ask(tmp_path: Path) -> None:
    limits = SandboxSettings(seconds=2, output_bytes=1 << 20, processes=8, tmp_bytes=1 << 20)
    with Skillhouse(
        configured(make_places(tmp_path)),
        layers=(Layer(name="user", rules=(ALLOW_EXEC,)),),
        sandbox_limits=limits,
    ) as house:
        (tool,) = [one for one in house.tools() if one.name == "exec"]
        assert tool.schema["properties"]["timeout_seconds"]["maximum"] == 2
        asked = sh(house, "true", timeout_seconds=3)
        assert (asked.status, "timeout_seconds" in asked.content) == ("error", True)
        late = sh(house, "sleep 30")
        assert late.content == "stopped: the limit on time was reached (2 seconds)"
        many = sh(house, "for i in $(seq 30); do sleep 1 & done; wait")
        assert many.is_error
        level = anyio.run(house.services.sandbox.status).level
        if level is not SandboxLevel.LANDLOCK:
            assert sh(house, "head -c 3000000 /dev/zero > /tmp/big").is_error


def test_the_workspace_is_where_it_runs_and_writes(house: Skillhouse, tmp_path: Path) -> None:
    project = tmp_path / "project"
    assert sh(house, "pwd; echo made > made.txt").content == f"{project}\n"
    assert (project / "made.txt").read_text() == "made\n"
    result = sh(house, f"echo x > {tmp_path}/escaped.txt; cat {tmp_path}/home/.bashrc; exit 1")
    assert result.is_error
    assert not (tmp_path / "escaped.txt").exists()


def test_a_skill_is_readable_once_it_is_loaded_and_never_writable(
    house: Skillhouse, tmp_path: Path
) -> None:
    pdf = write_skill(tmp_path / "skills/pdf")
    write_skill(tmp_path / "skills/other")
    (pdf / "scripts").mkdir()
    (pdf / "scripts/run.sh").write_text("echo ran\n")
    script = {"command": "sh", "params": [str(pdf / "scripts/run.sh")]}
    assert house.call_sync("exec", script).is_error
    house.call_sync("skill", {"name": "pdf"})
    assert house.call_sync("exec", script).content == "ran\n"
    assert sh(house, f"echo evil > {pdf}/SKILL.md").is_error
    assert sh(house, f"rm -rf {pdf}/scripts").is_error
    assert sh(house, f"cat {tmp_path}/skills/other/SKILL.md").is_error
    assert (pdf / "scripts/run.sh").read_text() == "echo ran\n"


def test_only_declared_variables_are_given(tmp_path: Path) -> None:
    places = make_places(tmp_path, {"EDITOR": "vi", "HIDDEN": "canary", "PATH": "/evil"})
    with Skillhouse(
        configured(places),
        exec_environment=("EDITOR", "MISSING"),
        layers=(Layer(name="user", rules=(ALLOW_EXEC,)),),
    ) as house:
        result = house.call_sync("exec", {"command": "env"})
    # Those of caches are in the person's cache (tests/sandbox/test_tool_finder.py).
    given = (
        line
        for line in result.content.splitlines()
        if "/.cache/skillhouse/tools/" not in line and "_store_dir=" not in line
    )
    assert sorted(given) == [
        "EDITOR=vi",
        "HOME=/tmp",
        "LANG=C.UTF-8",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        f"PWD={tmp_path}/project",
    ]


def test_the_log_says_what_held_the_command(house: Skillhouse) -> None:
    house.call_sync("exec", {"command": "false"})
    level = anyio.run(house.services.sandbox.status).level
    assert newest_detail(house) == {
        "exit_code": 1,
        "limit": "",
        "sandbox": str(level),
        "network": "none",
    }
    assert verify_log(house.audit_log.path).problems == ()


def test_a_program_that_is_not_there_is_an_answer(house: Skillhouse) -> None:
    result = house.call_sync("exec", {"command": "no-such-program"})
    assert (result.status, "no program 'no-such-program'" in result.content) == ("error", True)
    assert read_records(house.audit_log.path, limit=1)[0].status == "error"


HIDDEN = """
import json, sys
from pathlib import Path
from skillhouse.permission import Effect, Rule
from tests.tools.houses import Person, house_at


allow = Rule(effect=Effect.ALLOW, action="exec", pattern="*")
with house_at(Path(sys.argv[1]), allow, sandbox=sys.argv[2]) as house:
    result = house.call_sync("exec", {"command": sys.argv[3], "params": sys.argv[4:]})
print(json.dumps([result.status, result.content]))
"""


def without_bubblewrap(tmp_path: Path, need: Any, *words: str) -> tuple[str, str]:
    """Return the status and content of a command where the search for bubblewrap finds nothing.

    It passes PATH over, so the program is hidden in a mount namespace.
    """
    need(BWRAP.exists(), "bubblewrap is somewhere else")
    tmp_path.mkdir(exist_ok=True)
    empty = tmp_path / "empty"
    empty.touch()
    repository = Path(__file__).resolve().parents[2]
    hiding = (str(BWRAP), "--dev-bind", "/", "/", "--ro-bind", str(empty), str(BWRAP))
    done = subprocess.run(
        (*hiding, sys.executable, "-c", HIDDEN, str(tmp_path), *words),
        cwd=repository,
        env={**os.environ, "PYTHONPATH": f"{repository / 'src'}{os.pathsep}{repository}"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    status, content = json.loads(done.stdout)
    return status, content


def test_without_a_sandbox_nothing_runs_and_the_hint_says_what_to_do(
    tmp_path: Path, need: Any
) -> None:
    status, content = without_bubblewrap(tmp_path, need, "bubblewrap", "touch", "made")
    assert status in ("error", "denied")
    assert "bubblewrap is not installed" in content
    assert "apt-get install bubblewrap" in content
    assert not (tmp_path / "project/made").exists()


def test_without_bubblewrap_a_command_runs_behind_landlock(tmp_path: Path, need: Any) -> None:
    launcher_at(SandboxLevel.LANDLOCK, need, tmp_path)
    assert without_bubblewrap(tmp_path, need, "any", "echo", "said") == ("ok", "said\n")
    status, content = without_bubblewrap(tmp_path / "more", need, "any", "touch", "made")
    assert status == "error"
    assert "[sandbox level landlock: nothing can be made" in content


ALLOW_WRITE = Rule(effect=Effect.ALLOW, action="write", pattern="*")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Skillhouse]:
    """A house that allows any program, and writing, with files to work on."""
    with house_at(tmp_path, ALLOW_EXEC, ALLOW_WRITE) as made:
        (tmp_path / "project/a.txt").write_text("c\na\nb\n")
        (tmp_path / "project/sub").mkdir()
        (tmp_path / "project/sub/x.py").write_text("1\n")
        yield made


@pytest.mark.parametrize(
    ("line", "status", "content"),
    [
        ("sort a.txt | head -n 2", "ok", "a\nb\n"),
        ("false || echo no; true && echo yes", "ok", "no\nyes\n"),
        ("false && echo no", "error", "exit code 1"),
        ("sort a.txt > out.txt && cat out.txt", "ok", "a\nb\nc\n"),
        ("echo d >> a.txt; wc -l < a.txt", "ok", "4\n"),
        ("cat <<'EOF'\n$HOME `id`\nEOF", "ok", "$HOME `id`\n"),
        ("cd sub && ls", "ok", "x.py\n"),
        ("echo ./*.txt ./*.none", "ok", "./a.txt ./*.none\n"),
        ("ls none 2>&1 | wc -l", "ok", "1\n"),
        ("LANG=C env | grep LANG", "ok", "LANG=C\n"),
        ("yes | head -n 1", "ok", "y\n"),
        ("no-such-program && echo no", "error", "exit code 127\n[stderr]\n"),
        ("echo '$(id)' ';' '|' | cat", "ok", "$(id) ; |\n"),
        (": && command echo yes", "ok", "yes\n"),
        ("printf ab | cat | cat", "ok", "ab"),
        ("FOO=1 env | grep FOO", "ok", "FOO=1\n"),
        ("ls *.txt", "ok", "a.txt\n"),
    ],
)
def test_a_line_runs_as_its_plan_without_a_shell(
    shop: Skillhouse, line: str, status: str, content: str
) -> None:
    result = shop.call_sync("exec", {"command": line})
    assert result.status == status
    assert result.content.startswith(content)


def test_each_command_of_a_line_needs_a_rule_of_its_own(tmp_path: Path) -> None:
    ls = Rule(effect=Effect.ALLOW, action="exec", pattern="ls *")
    person = Person([Answer.ONCE])
    with house_at(tmp_path, ls, person=person) as house:
        result = house.call_sync("exec", {"command": "ls . && touch made | cat > out.txt"})
        assert result.status == "ok"
        (asked,) = person.asked
        assert asked.always == (
            "exec touch made",
            "exec cat *",
            f"write {tmp_path}/project/out.txt",
        )
        record = read_records(house.audit_log.path, limit=1)[0].record
        assert [(p.action, p.resource, p.effect) for p in record.permissions] == [
            ("exec", "ls .", "allow"),
            ("exec", "touch made", "ask"),
            ("exec", "cat", "ask"),
            ("write", f"{tmp_path}/project/out.txt", "ask"),
        ]
        facts = dict(asked.found)
        assert facts["plan"].splitlines() == [
            '["ls", "."]',
            f'if that succeeds: ["touch", "made"] | ["cat"] 1> "{tmp_path}/project/out.txt"',
        ]
        assert facts["plan digest"].startswith("sha256:")
    assert (tmp_path / "project/made").exists()


@pytest.mark.parametrize(
    ("line", "questions"),
    [
        ("GIT_PAGER=cat PYTHONWARNINGS=ignore touch a", 0),
        ("FOO=1 touch a", 0),
        ("GIT_PAGER=./x touch a", 1),
        ("HOME=. touch a", 1),
    ],
)
def test_a_variable_that_may_start_something_asks_also_where_all_but_a_denial_is_allowed(
    tmp_path: Path, line: str, questions: int
) -> None:
    person = Person([Answer.ONCE] * 3)
    deny = Rule(effect=Effect.DENY, action="exec", pattern="rm *")
    with house_at(tmp_path, ALLOW_EXEC, deny, person=person) as house:
        assert house.call_sync("exec", {"command": line}).status == "ok"
        assert len(person.asked) == questions
        refused = house.call_sync("exec", {"command": "GIT_PAGER='rm -r a' git log"})
        assert (refused.status, len(person.asked)) == ("denied", questions)


def test_r3_tests_below_a_directory_of_modules_are_asked_about_and_run(tmp_path: Path) -> None:
    """The rule with `unbound = true` runs what the workspace holds anyway (decision 593)."""
    person = Person([])
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="python3 -m unittest *", unbound=True)
    with house_at(tmp_path, rule, person=person) as house:
        (tmp_path / "project/src").mkdir()
        (tmp_path / "project/src/mod.py").write_text("ONE = 1\n")
        test = "import mod, unittest\nclass T(unittest.TestCase):\n    def test_one(self):\n"
        (tmp_path / "project/test_mod.py").write_text(f"{test}        assert mod.ONE == 1\n")
        result = house.call_sync("exec", {"command": "PYTHONPATH=src python3 -m unittest"})
        assert (result.status, "Ran 1 test" in result.content) == ("ok", True)
        assert person.asked == []
        outside = house.call_sync("exec", {"command": "PYTHONPATH=.. python3 -m unittest"})
        (asked,) = person.asked
        assert asked.reasons == ("`PYTHONPATH` lets whatever code is there be loaded",)
        assert outside.status == "denied"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo x > .git/config", "`.git/config` is protected"),
        ("echo x > ../out.txt", "is outside the workspace"),
        ("echo x > /tmp/out.txt", "is outside the workspace"),
        ("ls; rm -rf /", "no rule allows this: `rm` of `/`"),
        ("echo $(sudo id)", "`sudo` changes who runs it"),
        ("ls | ../tool", "no such file: `../tool`"),
        ("ls | /var/tmp", "is no program of the workspace, of a loaded skill or of PATH"),
        ("echo 'unclosed", "unparseable"),
        ("LD_PRELOAD=./evil.so ls", "`LD_PRELOAD` decides what programs run or load"),
    ],
)
def test_what_no_yes_can_allow_is_refused_without_a_question(
    tmp_path: Path, line: str, message: str
) -> None:
    person = Person([Answer.ONCE] * 3)
    with house_at(tmp_path, ALLOW_EXEC, ALLOW_WRITE, person=person) as house:
        result = house.call_sync("exec", {"command": line})
        assert (result.is_error, person.asked) == (True, [])
        assert message in result.content


def test_a_shell_runs_only_after_a_yes_that_holds_once(tmp_path: Path) -> None:
    everything = Rule(effect=Effect.ALLOW, action="*", pattern="*")
    person = Person([Answer.ALWAYS, Answer.ONCE])
    line = "for word in $(echo a b); do echo $word > /outside; echo $word; done; touch made; id -u"
    with house_at(tmp_path, everything, person=person) as house:
        for _ in range(2):
            result = house.call_sync("exec", {"command": line})
            # The shell is in the sandbox like everything else.
            assert result.content.startswith("a\nb\n65534\n")
        assert [asked.always for asked in person.asked] == [(), ()]
        assert [asked.title for asked in person.asked] == [f"exec: {line}"] * 2
        record = read_records(house.audit_log.path, limit=1)[0].record
        assert [(p.action, p.effect) for p in record.permissions] == [("shell", "ask")]


def test_a_wildcard_does_not_cover_what_it_cannot_have_meant(tmp_path: Path) -> None:
    rules = [
        Rule(effect=Effect.ALLOW, action="exec", pattern=pattern)
        for pattern in ("python3 *", "sort *", "env *", "python3 exact.py")
    ]
    person = Person([Answer.ONCE] * 9)
    with house_at(tmp_path, *rules, person=person) as house:
        (tmp_path / "project/exact.py").write_text("print('exact')\n")
        (tmp_path / "project/a.txt").write_text("a\n")
        calls: list[tuple[dict[str, Any], list[str]]] = [
            ({"command": "python3 exact.py"}, ["script"]),
            ({"command": "python3 exact.py"}, []),
            ({"command": "sort -r a.txt"}, []),
            ({"command": "python3", "params": ["-c", "print(1)"]}, ["exec-once"]),
            ({"command": "python3 -c 'print(1)'"}, ["exec-once"]),
            ({"command": "sort --outp=b.txt a.txt"}, ["exec-once"]),
            ({"command": "env FOO=1 sort a.txt"}, ["exec-once"]),
            ({"command": "env cat a.txt"}, ["exec"]),
            ({"command": "FOO=1 sort a.txt"}, ["exec-once"]),
        ]
        for arguments, expected in calls:
            house.call_sync("exec", arguments)
            record = read_records(house.audit_log.path, limit=1)[0].record
            asked = [p.action for p in record.permissions if p.effect == "ask"]
            assert (arguments, asked) == (arguments, expected)


def test_an_ask_among_the_rules_is_not_lifted_by_a_later_allow(tmp_path: Path) -> None:
    """Decision 6: for commands the strictest of all rules wins; only a lasting yes answers it."""
    rules = [
        Rule(effect=Effect.ASK, action="exec", pattern="git push *"),
        Rule(effect=Effect.ALLOW, action="exec", pattern="git *"),
    ]
    person = Person([Answer.ONCE])
    with house_at(tmp_path, *rules, person=person) as house:
        house.call_sync("exec", {"command": "git log -1"})
        assert person.asked == []
        house.call_sync("exec", {"command": "git push origin"})
        assert person.asked[0].reasons == ("rule `exec git push *` of user policy",)


def test_a_file_that_became_a_link_is_not_written_through(tmp_path: Path) -> None:
    """The plan names the file that was judged; a link put there by the plan itself is not it."""
    with house_at(tmp_path, ALLOW_EXEC, ALLOW_WRITE) as house:
        project = tmp_path / "project"
        (project / "kept.txt").write_text("kept\n")
        result = house.call_sync("exec", {"command": "ln -s kept.txt out; echo evil > out"})
        assert result.is_error
        (project / "dir").mkdir()
        (project / "dir/kept.txt").write_text("kept\n")
        line = "mv dir gone; ln -s gone dir; echo evil > dir/kept.txt"
        assert house.call_sync("exec", {"command": line}).is_error
        assert (project / "kept.txt").read_text() == "kept\n"
        assert (project / "gone/kept.txt").read_text() == "kept\n"


def test_network_is_for_a_line_only_when_each_of_its_commands_has_it(tmp_path: Path) -> None:
    network = Rule(effect=Effect.ALLOW, action="network", pattern="echo *")
    with house_at(tmp_path, ALLOW_EXEC, network) as house:
        for line, recorded in (("echo a; echo b", "proxy"), ("echo a | cat", "none")):
            house.call_sync("exec", {"command": line})
            assert newest_detail(house)["network"] == recorded


def test_where_no_command_can_run_nobody_is_asked(tmp_path: Path) -> None:
    person = Person([Answer.ONCE])
    with house_at(tmp_path, person=person) as house:
        nothing = SandboxStatus(level=SandboxLevel.NONE, reasons=("no way here",))
        house.services.sandbox.adopt(nothing)
        result = house.call_sync("exec", {"command": "mkdir made"})
    assert (result.status, "no way here" in result.content, person.asked) == ("error", True, [])


def test_lines_are_progress_while_a_command_runs(house: Skillhouse) -> None:
    heard: list[tuple[float, float | None, str]] = []

    async def hear(now: Progress) -> None:
        heard.append((now.progress, now.total, now.message))

    script = "echo one; echo two >&2; sleep 0.5; printf 'half\\r\\033[31mred\\n'"
    result = house.call_sync("exec", {"command": "sh", "params": ["-c", script]}, listener=hear)
    assert result.status == "ok"
    assert heard[-1] == (4.0, None, " [31mred")
    assert len(heard) >= 2

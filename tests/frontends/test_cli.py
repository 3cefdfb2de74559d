"""Tests of the command line, each verb in this process and the edges in a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor.structs import replace
from skillhouse.frontends.cli.verbs import ALIASES, SHOWN, VERBS
from tests.audit.logs import intent, log_at
from tests.frontends.conftest import Run
from tests.harness import ran
from tests.house.places import readers_of, write_skill


def test_list_groups_skills_by_scope_within_80_columns(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/notes", description="记录会议内容。" * 20)
    code, out, err = run("list")
    assert code == 0
    lines = out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        f"user  ~/.agents/skills (also read by {readers_of()})",
        "builtin",
        "4 skills",
    ]
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("  notes  记录会议内容。")
    assert lines[1].endswith("…")
    assert err == ""


def test_list_sorted_by_name_has_one_list_with_scopes(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/notes")
    code, out, err = run("list", "--sort", "name")
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith("  ")]
    expected = [["github", "builtin"], ["notes", "user"], ["weather", "builtin"]]
    assert (code, err) == (0, "")
    assert rows == [*expected, ["web-search", "builtin"]]
    _, out, _ = run("list", "--sort", "name", "--json")
    assert [skill["name"] for skill in json.loads(out)["skills"]] == [row[0] for row in rows]
    _, by_scope, _ = run("list")
    assert run("list", "--sort", "scope")[1] == by_scope
    assert run("list", "--sort", "age")[0] == 2


def test_list_sorted_by_size_has_the_largest_first_with_sizes(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/notes", body="x" * 30_000)
    write_skill(place / "home/.agents/skills/tiny", "x", body="")
    code, out, err = run("list", "--sort", "size")
    rows = [line.split()[:4] for line in out.splitlines() if line.startswith("  ")]
    assert (code, err) == (0, "")
    assert rows[0] == ["notes", "user", "30.0", "kB"]
    assert rows[-1] == ["tiny", "user", "34", "bytes"]
    _, out, _ = run("list", "--sort", "size", "--json")
    found = json.loads(out)["skills"]
    assert [skill["name"] for skill in found] == [row[0] for row in rows]
    sizes = [Path(skill["location"]).stat().st_size for skill in found]
    assert sizes == sorted(sizes, reverse=True)


def test_list_sorted_by_description_has_the_longest_first_with_characters(
    run: Run, place: Path
) -> None:
    for name, text in {"short": "x", "long": "记录会议内容。" * 20, "brief": "y"}.items():
        write_skill(place / f"home/.agents/skills/{name}", text)
    code, out, err = run("list", "--sort", "description", "--scope", "user")
    rows = [line.split()[:4] for line in out.splitlines() if line.startswith("  ")]
    assert (code, err) == (0, "")
    assert rows == [
        ["long", "user", "140", "characters"],
        ["brief", "user", "1", "character"],
        ["short", "user", "1", "character"],
    ]
    _, out, _ = run("list", "--sort", "description", "--scope", "user", "--json")
    found = json.loads(out)["skills"]
    assert [skill["name"] for skill in found] == [row[0] for row in rows]
    assert [len(skill["description"]) for skill in found] == [140, 1, 1]


@pytest.mark.parametrize("order", ["scope", "name", "size", "description"])
def test_list_reversed_has_the_last_one_first(run: Run, place: Path, order: str) -> None:
    write_skill(place / "home/.agents/skills/notes", body="x" * 30_000)
    found = []
    for options in ((), ("--reverse",)):
        code, out, _ = run("list", "--sort", order, "--json", *options)
        assert code == 0
        found.append([skill["name"] for skill in json.loads(out)["skills"]])
    assert found[1] == found[0][::-1]
    assert len(found[0]) == 4
    code, out, err = run("list", "--sort", order, "--reverse", "--limit", "1")
    rows = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert (code, rows) == (0, found[1][:1])
    assert err.endswith("page 1 of 4, 4 skills\n")


def test_list_sorted_by_change_has_the_latest_first_with_days(run: Run, place: Path) -> None:
    days = {"older": 86_400, "latest": 9 * 10**9, "middle": 10**9}
    for name, seconds in days.items():
        write_skill(place / f"home/.agents/skills/{name}")
        os.utime(place / f"home/.agents/skills/{name}/SKILL.md", (seconds, seconds))
    code, out, err = run("list", "--sort", "changed", "--scope", "user")
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith("  ")]
    assert (code, err) == (0, "")
    assert rows == [
        ["latest", "user", "2255-03-14"],
        ["middle", "user", "2001-09-09"],
        ["older", "user", "1970-01-02"],
    ]
    _, out, _ = run("list", "--sort", "changed", "--scope", "user", "--json")
    assert [skill["name"] for skill in json.loads(out)["skills"]] == ["latest", "middle", "older"]


def test_list_sorted_by_use_has_the_latest_first_with_days(run: Run, place: Path) -> None:
    for name in ("never", "older", "unused", "latest"):
        write_skill(place / f"home/.agents/skills/{name}")
    code, out, err = run("list", "--sort", "used", "--scope", "user", "--limit", "1")
    assert (code, out.split()[:3]) == (0, ["latest", "user", "never"])
    log = log_at(place / "home/.local/state/skillhouse/audit.jsonl")
    for name in ("older", "latest"):
        log.append(replace(intent("skill"), skill=name), durable=True)
    log.close()
    code, out, err = run("list", "--sort", "used", "--scope", "user")
    rows = [line.split()[:3] for line in out.splitlines() if line.startswith("  ")]
    assert (code, err) == (0, "")
    assert rows == [
        ["latest", "user", "2026-01-01"],
        ["older", "user", "2026-01-01"],
        ["never", "user", "never"],
        ["unused", "user", "never"],
    ]
    _, out, _ = run("list", "--sort", "used", "--scope", "user", "--json")
    assert [skill["name"] for skill in json.loads(out)["skills"]] == [row[0] for row in rows]
    assert run("call", "skill", "name=unused")[0] == 0
    _, out, _ = run("list", "--sort", "used", "--scope", "user", "--limit", "1")
    assert out.split()[0] == "unused"


def test_list_unused_has_what_no_call_used_since_that_time(run: Run, place: Path) -> None:
    for name in ("never", "lately", "before"):
        write_skill(place / f"home/.agents/skills/{name}")
    broken = place / "home/.agents/skills/broken/SKILL.md"
    broken.parent.mkdir()
    broken.write_text("---\nname: [x\n---\n")

    def names(*options: str) -> list[str]:
        code, out, err = run("list", "--json", "--unused", *options)
        assert code == 0, err
        found = json.loads(out)
        listed = [one["name"] for one in found["skills"] if one["scope"] == "user"]
        return [*listed, *(one["name"] for one in found["absent"])]

    assert names("30d") == ["before", "lately", "never", "broken"]
    log = log_at(place / "home/.local/state/skillhouse/audit.jsonl")
    for name in ("before", "broken"):
        log.append(replace(intent("skill"), skill=name), durable=True)
    log.close()
    assert run("call", "skill", "name=lately")[0] == 0
    assert names("2026-01-01") == ["never"]
    assert names("2026-01-02", "e") == ["before", "never", "broken"]
    assert names("2026-01-02", "--sort", "used", "--reverse") == ["never", "before", "broken"]
    code, out, _ = run("list", "--unused", "2026-01-02")
    assert code == 0
    assert "5 skills of 6" in out
    code, _, err = run("list", "--unused", "ever")
    assert code == 2
    assert "expected a time such as 2026-01-31" in err


def test_list_since_has_what_changed_since_that_time(run: Run, place: Path) -> None:
    days = {"older": 86_400, "latest": 9 * 10**9, "middle": 10**9}
    for name, seconds in days.items():
        write_skill(place / f"home/.agents/skills/{name}")
        os.utime(place / f"home/.agents/skills/{name}/SKILL.md", (seconds, seconds))

    def names(*options: str) -> list[str]:
        code, out, _ = run("list", "--scope", "user", "--json", *options)
        assert code == 0
        return [skill["name"] for skill in json.loads(out)["skills"]]

    assert names("--since", "2001-09-09") == ["latest", "middle"]
    assert names("--since", "2001-09-09T01:46:40") == ["latest", "middle"]
    assert names("--since", "2001-09-09T01:46:41Z") == ["latest"]
    assert names("--since", "1970") == ["latest", "middle", "older"]
    assert names("--since", "7d", "middle") == []
    code, out, _ = run("list", "--since", "2200")
    assert code == 0
    assert "1 skill of 6" in out
    code, _, err = run("list", "--since", "lately")
    assert code == 2
    assert "expected a time such as 2026-01-31" in err


def test_list_since_leaves_out_what_is_broken_since_long(run: Run, place: Path) -> None:
    for name, seconds in {"old": 86_400, "new": 9 * 10**9}.items():
        file = place / f"home/.agents/skills/{name}/SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text("---\nname: [x\n---\n")
        os.utime(file, (seconds, seconds))
    code, out, _ = run("list", "--problem", "broken", "--since", "2200")
    assert code == 1
    assert "skills/new/SKILL.md" in out
    assert "skills/old/SKILL.md" not in out


def test_list_names_what_was_not_read_and_how_to_change_it(run: Run, place: Path) -> None:
    write_skill(place / "project/.agents/skills/pdf")
    (place / "home/.agents/skills/bad").mkdir(parents=True)
    (place / "home/.agents/skills/bad/SKILL.md").write_text("---\nname: 'x\n---\n")
    _, _, err = run("list")
    assert "skillhouse trust" in err
    assert "1 finding about files: `skillhouse list --findings`" in err
    code, out, _ = run("list", "--findings")
    assert code == 0
    assert "bad/SKILL.md:2: error: `name`: a quote that is not closed" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--json"),
        ("catalog", "--json"),
        ("catalog", "--for", "weather", "--json"),
        ("show", "weather", "--json"),
        ("search", "weather", "--json"),
        ("load", "weather", "--json"),
        ("files", "weather", "--json"),
        ("validate", "--json"),
        ("trust", "--show", "--json"),
        ("trust", "--list", "--json"),
        ("rehearse", "weather", "--json"),
        ("policy", "explain", "exec", "git", "status", "--json"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_listing_verb_prints_one_json_value_on_stdout(
    run: Run, arguments: tuple[str, ...]
) -> None:
    _, out, _ = run(*arguments)
    json.loads(out)


def test_catalog_prints_the_list_and_notes_what_is_left_out(run: Run) -> None:
    code, out, err = run("catalog")
    tokens = -(-(len(out.encode()) - 1) // 4)
    assert (code, out.count("<skill>"), err) == (0, 3, f"3 skills, about {tokens} tokens\n")
    code, out, err = run("catalog", "--for", "rain in Tokyo", "--style", "compact")
    assert (code, out.split(":")[0], len(out.splitlines())) == (0, "weather", 3)
    code, out, err = run("catalog", "--for", "rain in Tokyo", "--budget", "130")
    assert [line.split(":")[0] for line in out.splitlines()] == ["weather", "github", "web-search"]
    # What fits best is described in full, and the others share what is left.
    assert [line.endswith("…") for line in out.splitlines()] == [False, True, True]
    assert err.startswith("3 skills, about ")
    assert err.splitlines()[1] == "weather: description: rain; body: tokyo"
    code, out, err = run("catalog", "--budget", "10")
    assert out == "3 more: `search_skills`\n"
    assert "tokens; left out: 3 skills, `skillhouse search` finds them" in err
    code, out, err = run("catalog", "--budget", "0")
    assert (code, out) == (0, "")
    assert err.startswith("0 skills, about 0 tokens; left out: 3 skills")


def test_catalog_for_a_request_as_json_and_as_an_agent(run: Run, place: Path) -> None:
    config = place / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        '[[agents.planner.rules]]\neffect = "deny"\naction = "skill"\npattern = "weather"\n'
    )
    _, out, _ = run("catalog", "--for", "weather, ÿ", "--style", "compact", "--json")
    value = json.loads(out)
    assert value.pop("text").startswith("weather: Current weather")
    assert value.pop("tokens") > 0
    hits = value.pop("hits")
    assert [(hit["id"], hit["matches"]["name"]) for hit in hits] == [
        ("builtin:weather", ["weather"])
    ]
    assert value == {
        "meaning": None,
        "weak": False,
        "nothing_fits": False,
        "agent": "default",
        "request": "weather, ÿ",
        "style": "compact",
        "budget_tokens": 2_000,
        "included": ["builtin:weather", "builtin:github", "builtin:web-search"],
        "omitted": [],
    }
    _, out, _ = run("catalog", "--for", "weather", "--agent", "planner", "--budget", "9", "--json")
    value = json.loads(out)
    assert (value["agent"], value["budget_tokens"]) == ("planner", 9)
    assert value["text"] == "by name alone: github, web-search"
    assert value["included"] == ["builtin:github", "builtin:web-search"]


def test_show_and_load_print_the_skill(run: Run) -> None:
    code, out, _ = run("show", "weather")
    assert code == 0
    for expected in ("builtin:weather", "skilltree1:", "allow: no rule matches"):
        assert expected in out
    code, out, _ = run("load", "builtin:weather")
    assert (code, out.splitlines()[1]) == (0, "# Weather")
    code, out, _ = run("load", "weather", "--raw")
    assert out.startswith("---\nname: weather\n")


def test_an_unknown_skill_names_the_nearest(run: Run) -> None:
    assert run("show", "wether") == (
        1,
        "",
        "skillhouse: no skill `wether`; nearest: `weather`\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lst",), "unknown verb `lst`; did you mean `list`"),
        (("exec", "ls"), "unknown verb `exec`; it is a tool: `skillhouse call exec`"),
        (("zzz",), "`skillhouse help --all` lists the verbs"),
        (("edit", "weather"), "`skillhouse show NAME` prints where a skill is"),
        (("skills",), "`skillhouse list` lists the skills"),
        (("list", "--jsn"), "unknown argument `--jsn`; did you mean `--json`"),
        (("show",), "the following arguments are required: skill"),
        (("search", "x", "--limit", "0"), "expected a number from 1, got `0`"),
        (("catalog", "--budget", "-1"), "expected a number from 0, got `-1`"),
        (("catalog", "--budget", "x"), "expected a number from 0, got `x`"),
        (("catalog", "--style", "xlm"), "unknown catalog style `xlm`; did you mean `xml`"),
        (("catalog", "--agent", "planer"), "unknown agent `planer`"),
        (("up", "--port", "99999"), "expected a port from 0 to 65535, got `99999`"),
        (("list", "--root", "/no/such"), "expected a directory after --root, got `/no/such`"),
        (("list", "-C", "/no/such"), "expected a directory after -C, got `/no/such`"),
        (("list", "--profile", "defalt"), "unknown profile `defalt`; did you mean `default`"),
    ],
)
def test_bad_arguments_are_usage_errors_that_name_the_right_one(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_validate_judges_one_skill_or_all_below_a_directory(run: Run, place: Path) -> None:
    good = write_skill(place / "skills/good")
    assert run("validate", str(good)) == (0, "", "1 skill: 0 errors, 0 warnings\n")
    bad = write_skill(place / "skills/bad")
    (bad / "SKILL.md").write_text("---\nname: Bad\ndescription: x\n---\n")
    code, out, err = run("validate", str(place / "skills"))
    assert code == 1
    assert "[name-invalid]" in out
    assert "[name-mismatch]" in out
    assert err == "2 skills: 2 errors, 0 warnings\n"
    assert run("validate", str(place / "skills"), "--lenient")[0] == 0
    assert run("validate", str(place / "nowhere"))[0] == 1


def test_trust_shows_gives_and_takes_back(run: Run, place: Path) -> None:
    write_skill(place / "project/.agents/skills/pdf")
    assert "not trusted, 1 skill" in run("trust", "--show")[1]
    assert "trusted, 1 skill" in run("trust", "--yes")[1]
    assert "project:pdf" in run("list", "--json")[1]
    assert run("trust", "--revoke")[0] == 0
    assert run("trust", "--revoke")[0] == 1


def test_policy_explain_prints_every_rule_that_spoke(run: Run, place: Path) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[[rules]]\neffect = "ask"\naction = "*"\npattern = "*"\n'
        '[[rules]]\neffect = "deny"\naction = "exec"\npattern = "rm *"\nreason = "use the bin"\n'
    )
    code, out, _ = run("policy", "explain", "exec", "rm -r x")
    assert code == 1
    assert "deny  exec rm -r x" in out
    assert "rule `exec rm *` of user policy: use the bin" in out
    assert "user 1: ask * *" in out
    assert "user 2: deny exec rm *  decides" in out


def test_rehearse_prints_all_five_steps(run: Run) -> None:
    code, out, err = run("rehearse", "What's the weather in Tokyo?")
    assert (code, err) == (0, "")
    for step in ("1 Catalog", "2 Skills", "3 Permission", "4 Body", "5 Commands"):
        assert f"\n{step}" in out
    # Paths stay whole, however long that of this checkout is.
    checkout = os.path.realpath(Path(__file__).parents[2])
    assert all(len(line.replace(checkout, "")) <= 80 for line in out.splitlines())
    assert run("rehearse", "zzzz qqqq")[0] == 1


def test_an_unusable_configuration_is_an_error_and_not_a_traceback(run: Run, place: Path) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("profil = 'x'\n")
    code, out, err = run("list")
    assert (code, out) == (2, "")
    assert err == f"skillhouse: line 1: unknown key `profil` in `{file}`; did you mean `profile`\n"


def test_a_corrupt_trust_store_stops_the_house_and_is_kept(run: Run, place: Path) -> None:
    file = place / "home/.local/state/skillhouse/state.sqlite3"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not a database, not at all" * 100)
    code, out, err = run("list")
    assert (code, out) == (3, "")
    assert "the state cannot be used" in err
    assert file.read_bytes() == b"not a database, not at all" * 100


def test_hostile_text_reaches_a_terminal_as_text(run: Run, place: Path) -> None:
    directory = place / "home/.agents/skills/evil"
    directory.mkdir(parents=True)
    escape = '"\\e]0;owned\\a\\e[2J gone"'
    (directory / "SKILL.md").write_text(f"---\nname: evil\ndescription: {escape}\n---\n")
    for arguments in (("list",), ("show", "evil"), ("rehearse", "evil"), ("list", "--json")):
        _, out, _ = run(*arguments)
        assert "\x1b" not in out
        assert "\x07" not in out


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "skillhouse", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_fault(place: Path) -> None:
    for number in range(300):
        write_skill(place / f"home/.agents/skills/s{number:03}", description="word " * 150)
    process = start("list", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(20), errors) == (0, b"")


@pytest.mark.slow
def test_help_and_version_need_no_house(place: Path) -> None:
    for arguments in ((), ("--help",), ("list", "--help"), ("--version",)):
        process = start(*arguments, env={**os.environ, "SKILLHOUSE_NONSENSE": "1"})
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, b"")
        assert out


def test_help_shows_a_first_day_and_all_on_request(run: Run) -> None:
    first, everything = run("--help")[1], run("help", "--all")[1]
    shown = re.findall(r"^  (\w+)  +\S", first, re.MULTILINE)
    assert shown == [verb for verbs in SHOWN.values() for verb in verbs]
    assert len(set(shown)) == len(shown) == 12
    assert f"all {len(VERBS)} verbs" in first
    assert re.findall(r"^  (\w+)  +\S", everything, re.MULTILINE) == list(VERBS)


@pytest.mark.parametrize(("word", "verb"), ALIASES.items())
def test_a_word_of_other_programs_is_the_verb(run: Run, word: str, verb: str) -> None:
    assert word not in VERBS
    code, _, err = run(word, "--nonsense")
    assert (code, err) == (2, run(verb, "--nonsense")[2])


def test_a_stream_that_was_closed_before_the_start_is_no_fault() -> None:
    closing = ("sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "skillhouse")
    done = subprocess.run([*closing, "--version"], stdout=subprocess.PIPE, timeout=20, check=True)
    assert done.stdout.startswith(b"skillhouse ")


@pytest.mark.slow
def test_what_is_registered_for_the_end_of_the_process_runs_before_it_leaves() -> None:
    code = (
        "import atexit, sys\n"
        "from skillhouse.frontends import cli\n"
        "class Seen:\n"
        "    def __del__(self): print('taken apart')\n"
        "seen = Seen()\n"
        "atexit.register(print, 'the end')\n"
        "sys.argv = ['skillhouse', *sys.argv[1:]]\n"
        "sys.exit(cli.main())"
    )
    for arguments, expected in ((("--version",), 0), (("nonsense",), 2)):
        command = [sys.executable, "-c", code, *arguments]
        done = ran(command, timeout=20)
        assert (done.returncode, done.stdout.endswith("the end\n")) == (expected, True)


@pytest.mark.slow
def test_ctrl_c_ends_with_the_code_of_the_signal() -> None:
    code = (
        "import os, signal\n"
        # What a shell starts in the background ignores this signal from the beginning.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from skillhouse.frontends import cli\n"
        "from skillhouse.frontends.cli import list_verb\n"
        "from skillhouse.frontends.cli.options import Verb\n"
        "stop = lambda *_: os.kill(os.getpid(), signal.SIGINT) or 0\n"
        "list_verb.VERBS['list'] = Verb('', lambda parser: None, stop)\n"
        "raise SystemExit(cli.main(['list']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=20, check=False
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == b"skillhouse: stopped\n"


def test_load_shows_hidden_characters_and_says_so_first(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/notes", body="Take notes.\n\U000e0041\u200b\n")
    shown = "Take notes.\n\\U000e0041\\u200b\n"
    notice = "1 tag character, 1 zero-width sign from line"
    code, out, _ = run("load", "notes")
    first = f"[hidden characters: {notice} 2, shown as escapes such as \\U000e0041]"
    assert (code, out) == (0, f"{first}\n{shown}")
    code, out, _ = run("load", "notes", "--raw")
    assert out.splitlines()[0].startswith("[hidden characters: ")
    value = json.loads(run("load", "notes", "--json")[1])
    assert (value["body"], value["hidden_text"]) == (shown, f"{notice} 6")
    assert "ask  skill notes" in run("policy", "explain", "skill", "notes")[1]

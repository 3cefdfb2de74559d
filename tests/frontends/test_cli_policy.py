"""Tests of `skillhouse policy`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.house import policy_text, starting_rules
from tests.frontends.conftest import Run

RULES = """
[[rules]]
effect = "allow"
action = "exec"
pattern = "git *"
[[rules]]
effect = "allow"
action = "exec"
pattern = "head *"
[[rules]]
effect = "deny"
action = "exec"
pattern = "rm *"
reason = "use the bin"
"""


def configure(place: Path, text: str) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_explain_shows_each_command_of_a_line_with_its_rules(run: Run, place: Path) -> None:
    configure(place, RULES)
    code, out, _ = run("policy", "explain", "exec", "git log -5 | head -n 2")
    assert (code, out.splitlines()[0]) == (0, "allow  exec git log -5 | head -n 2")
    assert "  git log -5" in out
    assert "user 1: allow exec git *  decides" in out
    assert "user 2: allow exec head *  decides" in out


def test_explain_gives_every_reason(run: Run, place: Path) -> None:
    configure(place, RULES)
    code, out, _ = run("policy", "explain", "exec", "git -c a.b=c log; touch x; rm y")
    assert code == 1
    assert out.startswith("deny  exec git -c a.b=c log; touch x; rm y\n")
    for reason in (
        "rule `exec rm *` of user policy: use the bin",
        "`git -c a.b=c log`: `-c a.b=c` runs a program or code",
        "no rule covers `touch x`",
    ):
        assert f"  {reason}\n" in out


def test_explain_as_json_has_the_plan(run: Run, place: Path) -> None:
    configure(place, RULES)
    code, out, _ = run("policy", "explain", "exec", "git status; echo $x", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["effect"], found["needs_shell"], found["plan"]) == ("ask", True, None)
    _, out, _ = run("policy", "explain", "exec", "git", "status", "--json")
    found = json.loads(out)
    assert (found["effect"], found["layer"], found["rule_index"]) == ("allow", "user", 0)
    assert found["plan"]["pipelines"][0]["commands"][0]["argv"] == ["git", "status"]


def test_lint_is_content_with_sound_rules(run: Run, place: Path) -> None:
    configure(place, RULES)
    assert run("policy", "lint") == (0, "", "3 rules: 0 findings\n")
    code, out, _ = run("policy", "lint", "--json")
    assert (code, json.loads(out)) == (0, {"list": "findings", "total": 0, "findings": []})


def test_lint_names_the_rules_that_have_no_effect(run: Run, place: Path) -> None:
    everything = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
    agent = '[[agents.helper.rules]]\neffect = "allow"\naction = "exec"\npattern = "ls*"\n'
    configure(place, RULES + everything + agent)
    code, out, err = run("policy", "lint")
    assert code == 1
    assert "user 3: deny exec rm *" in out
    assert "rule 4 (`allow exec *`) matches all that it matches" in out
    assert "[rule-allows-all]" in out
    assert "agent 1: allow exec ls*" in out
    assert err == "5 rules: 5 findings\n"
    code, out, _ = run("policy", "lint", "--json")
    codes = [(f["layer"], f["rule_index"], f["code"]) for f in json.loads(out)["findings"]]
    assert codes == [
        ("user", 0, "rule-unreachable"),
        ("user", 1, "rule-unreachable"),
        ("user", 2, "rule-unreachable"),
        ("user", 3, "rule-allows-all"),
        ("agent", 0, "rule-open-word"),
    ]


@pytest.mark.slow
def test_lint_folds_what_it_finds_a_hundred_times(run: Run, place: Path) -> None:
    configure(place, policy_text("developer"))
    code, out, _ = run("policy", "lint")
    assert (code, len(out.splitlines())) == (0, 7)
    assert "  `make *` may run whatever code the workspace holds" in out
    found = json.loads(run("policy", "lint", "--json")[1])["findings"]
    assert f"user: {len(found) - 3} rules more [rule-unbound]; --json has all\n" in out


def test_a_line_by_itself_is_explained_with_what_its_words_mean(run: Run, place: Path) -> None:
    configure(place, RULES)
    code, out, _ = run("policy", "explain", "A=1 git -C sub log -n 5 README.md > top.txt")
    assert code == 0
    for text in (
        "    variables   A=1",
        "    command     log",
        "    options     -C sub, -n 5",
        "    works in    sub",
        "    reads       README.md",
        "    redirects   1 write",
        "    rule        user 1: allow exec git *",
    ):
        assert text in out
    assert "    program     git (git 2.39.5" in out


def test_explain_names_what_no_wildcard_covers(run: Run, place: Path) -> None:
    configure(place, RULES)
    code, out, _ = run("policy", "explain", "git push && timeout 5 python3 x.py", "--json")
    first, second = json.loads(out)["commands"]
    assert (code, first["effect"], first["pattern"]) == (0, "ask", None)
    assert first["hazards"] == ["`git push` sends to another place"]
    assert (second["program"], second["starts"]["scripts"]) == ("timeout", [["x.py"]])


def test_init_sets_the_policy_by_name_and_says_what_it_does(run: Run, place: Path) -> None:
    file = place / "home/.config/skillhouse/config.toml"
    code, out, _ = run("policy", "init", "careful", "--stdout")
    assert (code, file.exists()) == (0, False)
    assert out == policy_text("careful")
    assert run("policy", "init", "careful")[0] == 2
    assert not file.exists()
    configure(place, "cache = true\n")
    code, out, _ = run("policy", "init", "developer", "--write")
    assert code == 0
    assert out == (
        f'{file} has `policy = "developer"`\n'
        "  allow  reading, editing, commits, builds, tests, the project's own scripts\n"
        "  ask    installing, pushing, deleting branches, code in a command, other programs\n"
        "  deny   force pushes, publishing packages, applying terraform\n"
    )
    assert file.read_text() == 'policy = "developer"\n\ncache = true\n'
    assert file.stat().st_mode & 0o777 == 0o600
    code, again, _ = run("policy", "init", "--write")
    assert (code, again) == (0, out.replace("has", "already has"))
    assert run("policy", "init", "locked", "--write")[0] == 0
    assert file.read_text() == 'policy = "locked"\n\ncache = true\n'
    assert run("policy", "show")[1] == policy_text("locked")
    assert run("policy", "show", "careful")[1] == policy_text("careful")


def test_a_rule_of_a_policy_is_shown_by_its_name(run: Run, place: Path) -> None:
    assert run("policy", "show")[0] == 2
    run("policy", "init", "--write")
    code, out, _ = run("policy", "explain", "git push --force")
    assert code == 1
    assert "  rule `exec git push --force *` of developer policy: it rewrites" in out
    assert run("policy", "list")[1] == (
        "developer\n"
        f"  {len(starting_rules('developer'))} rules of this program; "
        "`skillhouse policy show` prints them\n"
    )
    rules = json.loads(run("policy", "list", "--json")[1])["rules"]
    assert {rule["layer"] for rule in rules} == {"developer"}
    code, out, err = run("policy", "lint")
    assert (code, out) == (0, "")
    assert "0 findings" in err


def test_a_copy_of_a_policy_goes_on_to_work_and_can_be_changed_over(run: Run, place: Path) -> None:
    configure(place, f"{policy_text('developer')}\n{RULES}")
    file = place / "home/.config/skillhouse/config.toml"
    assert run("policy", "explain", "git push --force")[0] == 1
    count = len(starting_rules("developer"))
    said = "copies of the policy developer; `skillhouse policy init developer --drop-copies`"
    assert f"{count} rules are {said}" in run("policy", "lint")[2]
    out = run("policy", "init", "--write")[1]
    assert "`skillhouse policy init developer --drop-copies` takes them out" in out
    out = run("policy", "init", "--write", "--drop-copies")[1]
    # Two of our own are the policy's too.
    assert f"{count + 2} copies of its rules went out of that file" in out
    assert "git push" not in file.read_text()
    assert 'reason = "use the bin"' in file.read_text()
    assert run("policy", "explain", "rm x")[0] == 1


def test_what_a_person_changes_of_rules_is_in_the_log(run: Run, place: Path) -> None:
    run("policy", "init", "--write")
    run("policy", "init", "careful", "--write")
    run("policy", "allow", "exec", "git push *", "--reason", "mine \x1b[2J", "--yes")
    records = json.loads(run("audit", "list", "--json")[1])["records"]
    file = str(place / "home/.config/skillhouse/config.toml")
    assert [one["about"] for one in records] == [
        f"rule-add: allow exec git push *, reason mine \x1b[2J, at {file}",
        f"policy: careful, at {file}",
        f"policy: developer, at {file}",
    ]
    assert [one["record"]["arguments"] for one in records] == [
        {
            "effect": "allow",
            "action": "exec",
            "pattern": "git push *",
            "reason": "mine \x1b[2J",
            "path": file,
        },
        {"policy": "careful", "path": file},
        {"policy": "developer", "path": file},
    ]
    assert {one["status"] for one in records} == {"ok"}
    assert "\x1b" not in run("audit", "list")[1]


def test_init_adds_nothing_for_a_coding_agent(run: Run, place: Path, monkeypatch) -> None:
    monkeypatch.setenv("CLAUDECODE", "1")
    assert run("policy", "init", "developer", "--write")[0] == 1
    assert not (place / "home/.config/skillhouse/config.toml").exists()


@pytest.mark.parametrize("line", ["python3 x.py", "bash gone.sh -v", "node lib/x.js; ls"])
def test_a_script_that_is_not_there_is_a_mistake_and_no_denial(
    run: Run, place: Path, line: str
) -> None:
    code, out, _ = run("policy", "explain", line)
    first, second, *_ = out.splitlines()
    assert (code, first) == (0, f"ask  exec {line}")
    assert second.startswith("  no such file: `")
    code, out, _ = run("policy", "explain", f"{line}; rm -rf /")
    assert (code, out.splitlines()[0][:4]) == (1, "deny")


def test_lint_says_what_each_rule_covers_beyond_its_words(run: Run, place: Path) -> None:
    rules = (("allow", "git log *"), ("allow", "frobnicate *"), ("allow", "ls"), ("deny", "rm *"))
    text = '[[rules]]\neffect = "{}"\naction = "exec"\npattern = "{}"\n'
    configure(place, "".join(text.format(*one) for one in rules))
    code, out, _ = run("policy", "lint", "--covers")
    assert code == 0
    assert "git log *: harmless options and operands of `git log`\n" in out
    assert "frobnicate *: `frobnicate` has no grammar: plain words" in out
    assert "ls:" not in out
    assert "covers      `frobnicate` has no grammar" in run("policy", "explain", "frobnicate a")[1]

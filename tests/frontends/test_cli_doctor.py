"""Tests of `skillhouse doctor` and `skillhouse profiles`: what people paste into issues."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from skillhouse.clients import known_clients
from skillhouse.discovery import watcher
from skillhouse.presentation.client_report import BRIEF_LINES
from skillhouse.presentation.text import width_of
from skillhouse.skill import load_profile, profile_names, read_profile
from tests.frontends.conftest import Run
from tests.house.places import write_skill

Typing = Run

FENCED = re.compile(r"```text\n(.*?)```\n", re.DOTALL)
GUIDE = Path(__file__).parents[2] / "docs/guides/doctor.md"
MACHINE = re.compile(r"^skillhouse \S+, .*, Python \S+$", re.MULTILINE)


def write_raw(file: Path, text: str, encoding: str = "utf-8") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(encoding))


def install(place: Path, monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """Put commands on the path, and nothing else."""
    for program in programs:
        write_raw(place / "bin" / program, "#!/bin/sh\n")
        (place / "bin" / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(place / "bin"))


@pytest.fixture
def machine(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Skills in four clients' folders, with the faults that people report most."""
    home, project = place / "home", place / "home/src/api"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    install(place, monkeypatch, "claude", "codex", "gemini", "opencode")
    write_skill(home / ".claude/skills/pdf", "Reads PDF files. Use when a PDF is mentioned.")
    write_skill(home / ".agents/skills/pdf", "An older copy of it.")
    write_skill(home / ".agents/skills/sheets", "Works on tables. " * 90)
    write_skill(home / ".codex/skills/lint", "Lints Python.")
    write_raw(home / ".gemini/skills/translate/SKILL.md", "---\ndescription: Translates.\n---\n")
    write_skill(project / ".claude/skills/deploy", "Deploys the service.")
    write_skill(project / ".claude/skills/web/styles", "Writes style sheets.")
    named = "---\nname: release_notes\ndescription: Writes release notes.\n---\n"
    write_raw(project / ".claude/skills/release/SKILL.md", named)
    block = "---\nname: review\ndescription: > Reviews a change.\n---\n"
    write_raw(project / ".agents/skills/review/SKILL.md", block)
    marked = "\ufeff---\nname: minutes\ndescription: Writes minutes of meetings.\n---\n"
    write_raw(project / ".agents/skills/minutes/SKILL.md", marked)
    write_raw(project / ".agents/skills/draft/skill.md", "---\nname: draft\n---\n")
    write_skill(project / ".opencode/skill/notes", "Takes notes.")
    return place


@pytest.mark.slow
def test_the_report_is_the_one_in_the_guide(run: Run, machine: Path) -> None:
    code, out, err = run("doctor")
    assert (code, err) == (1, "")
    report = MACHINE.sub("skillhouse 0.1.0, Linux 6.8.0 x86_64, Python 3.12.1", out)
    page = GUIDE.read_text(encoding="utf-8")
    [shown] = [text for text in FENCED.findall(page) if text.startswith("skillhouse 0.1.0")]
    # What is behind it is of the machine.
    report, _, programs = report.partition("programs that commands find\n")
    assert report == shown
    assert "  git: " in programs


@pytest.mark.slow
def test_an_entry_that_starts_us_unsafely_is_a_problem(run: Run, place: Path) -> None:
    entry = {"command": "uvx", "args": ["skillhouse", "mcp"]}
    write_raw(place / "home/.claude.json", json.dumps({"mcpServers": {"house": entry}}))
    code, out, _ = run("doctor", "--client", "codex")
    said = " ".join(out.split())
    assert (code, "claude-code: the entry `house` starts skillhouse unsafely" in said) == (1, True)
    found = json.loads(run("doctor", "--client", "codex", "--json")[1])
    assert [(one["client"], one["name"]) for one in found["entries"]] == [("claude-code", "house")]


def test_a_log_that_cannot_be_written_is_a_problem(run: Run, place: Path) -> None:
    log = place / "home/.local/state/skillhouse/audit.jsonl"
    log.mkdir(parents=True)
    log.parent.chmod(0o700)  # With another mode doctor names the directory.
    code, out, _ = run("doctor", "--client", "codex")
    assert code == 1
    assert "the audit log cannot be written (is a directory)" in out.replace("\n", " ")
    assert ".local/state" not in out
    found = json.loads(run("doctor", "--client", "codex", "--json")[1])
    assert [one["code"] for one in found["audit"]] == ["log-unwritable"]


@pytest.mark.slow
def test_no_line_is_longer_than_80_columns_whatever_names_and_paths_are(
    run: Run, machine: Path
) -> None:
    deep = machine / "home/.agents/skills" / "group" / ("x" * 150) / ("技能" * 40)
    write_raw(deep / "SKILL.md", f"---\nname: {'n' * 300}\ndescription: Does.\n---\n")
    write_raw(
        machine / "home/.agents/skills/evil\x1b]0;owned\x07/SKILL.md",
        f'---\nname: "\\e[2J{"技" * 90}"\ndescription: "a\\u202eb"\n---\n',
    )
    for arguments in (("doctor",), ("doctor", "--all"), ("profiles", "compare", "--all")):
        code, out, _ = run(*arguments)
        assert code == 1
        assert [line for line in out.splitlines() if width_of(line) > 80] == []
        assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.slow
def test_neither_home_nor_content_is_told(run: Run, machine: Path) -> None:
    secret = "sk-live-0123456789abcdef"
    write_skill(machine / "home/.claude/skills/keys", f"Uses {secret}.", body=secret)
    home = str(machine / "home")
    for arguments in (("doctor",), ("doctor", "--json"), ("profiles", "compare", "--json")):
        _, out, _ = run(*arguments)
        assert home not in out
        assert secret not in out


@pytest.mark.slow
def test_json_holds_every_verdict_and_every_problem(run: Run, machine: Path) -> None:
    code, out, err = run("doctor", "--json")
    assert (code, err) == (1, "")
    value = json.loads(out)
    names = [client["name"] for client in value["clients"]]
    assert names == ["claude-code", "codex", "gemini-cli", "opencode-cli", "default"]
    assert {tuple(skill["clients"]) for skill in value["skills"]} == {tuple(names)}
    verdicts = {
        skill["file"]: {name: found["state"] for name, found in skill["clients"].items()}
        for skill in value["skills"]
    }
    assert verdicts[".agents/skills/minutes/SKILL.md"] == {
        "claude-code": "unseen",
        "codex": "dropped",
        "gemini-cli": "dropped",
        "opencode-cli": "seen",
        "default": "untrusted",
    }
    codes = [problem["code"] for problem in value["problems"]]
    assert {"bom", "one-line-block", "name-missing", "too-deep", "wrong-case"} <= set(codes)
    assert {"name-mismatch", "duplicate", "no-root", "project-untrusted"} <= set(codes)
    assert all(problem["fix"] for problem in value["problems"])


@pytest.mark.slow
def test_more_directories_than_are_watched_are_polled_and_doctor_says_so(
    run: Run, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = json.loads(run("doctor", "--json")[1])["watches"]
    assert before["polls"] is False
    assert before["needed"] > 5
    assert 0 < before["free"] <= before["most"]
    assert "polls them" not in run("doctor")[1]
    monkeypatch.setattr(watcher, "WATCHES_MAX", 5)
    assert json.loads(run("doctor", "--json")[1])["watches"]["polls"] is True
    said = " ".join(run("doctor")[1].split())
    assert f"a program that watches these {before['needed']} directories polls them" in said
    assert "at most 5 are watched" in said


def test_nothing_wrong_is_exit_code_0(run: Run, place: Path) -> None:
    write_skill(place / "home/.agents/skills/pdf")
    link = place / "home/.claude/skills/pdf"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../.agents/skills/pdf")
    code, out, _ = run("doctor", "--client", "claude-code", "--client", "codex")
    assert code == 0
    assert "1 skill, 1 of them seen in full by every client\n" in out
    assert "no problems" in out


def test_following_the_advice_ends_the_problem(run: Run, place: Path) -> None:
    """The command that the report gives is run as it stands."""
    write_skill(place / "home/.agents/skills/pdf")
    code, out, _ = run("doctor", "--client", "claude-code", "--client", "codex")
    assert code == 1
    told = re.search(r"ln -s (\S+)/NAME (~\S+)/NAME", " ".join(out.split()))
    assert told is not None
    link = place / "home" / told[2].removeprefix("~/") / "pdf"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"{told[1]}/pdf")
    assert run("doctor", "--client", "claude-code", "--client", "codex")[0] == 0


@pytest.mark.slow
def test_trust_lets_our_own_eye_read_the_project(run: Run, machine: Path) -> None:
    assert "[project-untrusted]" in run("doctor")[1]
    run("trust", "--yes")
    assert "[project-untrusted]" not in run("doctor")[1]


def test_an_unknown_client_names_the_nearest(run: Run, place: Path) -> None:
    code, out, err = run("doctor", "--client", "codx")
    assert (code, out) == (2, "")
    assert "unknown client `codx`, `skillhouse profiles list` has them; did you mean `codex`" in err


@pytest.mark.slow
def test_a_profile_of_ones_own_is_a_client_too(run: Run, machine: Path) -> None:
    own = machine / "home/.config/skillhouse/profiles"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text('client = "Mine 1.0.0"\nwalk = "none"\n')
    assert re.search(r"mine +Mine 1\.0\.0 +sees", run("doctor")[1])


@pytest.mark.slow
def test_many_skills_that_fare_alike_are_one_row(run: Run, place: Path) -> None:
    for number in range(60):
        write_skill(place / f"home/.agents/skills/s{number:02}")
    code, out, _ = run("doctor", "--client", "claude-code", "--client", "codex")
    assert code == 1
    assert "  - +  ~/.agents/skills: 60 skills" in out.splitlines()
    everything = run("doctor", "--client", "claude-code", "--client", "codex", "--all")[1]
    assert (
        sum(line.startswith("  - +  ~/.agents/skills/s") for line in everything.splitlines()) == 60
    )


@pytest.mark.slow
def test_compare_tells_only_what_differs_and_why(run: Run, machine: Path) -> None:
    code, out, _ = run("profiles", "compare", "codex", "gemini-cli")
    assert code == 1
    text = " ".join(out.split())
    assert "~/.codex/skills/lint codex: seen as `lint` gemini-cli: not in its folders" in text
    assert "~/.gemini/skills/translate codex: not in its folders" in text
    assert "gemini-cli: not loaded: it has no name (line 1)" in text
    assert ".agents/skills/minutes codex, gemini-cli: not loaded" not in text
    code, out, _ = run("profiles", "compare", "codex", "codex", "--json")
    assert (code, json.loads(out)["differing"]) == (0, [])


@pytest.mark.slow
def test_list_names_every_profile_and_the_program_it_was_compared_with(run: Run) -> None:
    code, out, _ = run("profiles", "list")
    assert code == 0
    profiles, _, folders = out.partition("\n\n")
    names = [line.split()[0] for line in profiles.splitlines()]
    assert sorted(names) == sorted(profile_names())
    assert folders.startswith("clients of which only folders are known: ")
    # Those of real clients come before those of designs.
    assert names.index("roo") < names.index("openseed")
    assert "Codex 0.169.0, compared on 2026-11-22" in out
    assert len(json.loads(run("profiles", "list", "--json")[1])["profiles"]) == len(profile_names())


@pytest.mark.parametrize("name", profile_names())
def test_show_as_toml_is_a_template_that_means_the_same(
    run: Run, name: str, tmp_path: Path
) -> None:
    code, out, _ = run("profiles", "show", name, "--toml")
    assert code == 0
    file = tmp_path / f"{name}.toml"
    file.write_text(out)
    assert read_profile(file) == load_profile(name)


def test_show_tells_the_values_and_every_fact(run: Run, place: Path) -> None:
    code, out, _ = run("profiles", "show", "codex")
    assert code == 0
    assert all(width_of(line) <= 80 for line in out.splitlines())
    assert 'duplicates = "keep_all"' in out
    text = " ".join(out.split())
    assert all(" ".join(fact.split()) in text for fact in load_profile("codex").facts)
    assert json.loads(run("profiles", "show", "codex", "--json")[1])["client"] == "Codex 0.169.0"


@pytest.mark.slow
def test_doctor_is_about_what_is_installed(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(place / "home/.agents/skills/pdf")
    install(place, monkeypatch, "codex")
    value = json.loads(run("doctor", "--json")[1])
    assert [client["name"] for client in value["clients"]] == ["codex", "default"]
    said = " ".join(run("doctor")[1].split())
    clients = [name for name in profile_names() if load_profile(name).client]
    others = ", ".join(name for name in clients if name != "codex")
    assert f"not installed here: {others}" in said
    named = json.loads(run("doctor", "--client", "goose", "--json")[1])
    assert [client["name"] for client in named["clients"]] == ["goose"]
    everyone = json.loads(run("doctor", "--client", "all", "--json")[1])
    assert [client["name"] for client in everyone["clients"]] == [*clients, "default"]


@pytest.mark.slow
def test_doctor_finds_a_client_by_what_it_leaves_at_home(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch)
    assert "no client that we know is installed here" in " ".join(run("doctor")[1].split())
    write_raw(place / "home/.claude.json", "{}")
    value = json.loads(run("doctor", "--json")[1])
    assert [client["name"] for client in value["clients"]] == ["claude-code", "default"]


@pytest.mark.slow
def test_where_only_folders_of_clients_are_doctor_is_about_these(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place, monkeypatch)
    write_skill(place / "home/.claude/skills/pdf")
    write_skill(place / "home/.cursor/skills/csv")
    said = " ".join(run("doctor")[1].split())
    assert "no client that we know is installed here; those above have a folder here" in said
    assert "cursor Cursor has 2 in its folders, 0 not" in said
    value = json.loads(run("doctor", "--json")[1])
    assert [client["name"] for client in value["clients"]] == ["claude-code", "cursor", "default"]
    states = {one["name"]: one["clients"]["cursor"]["state"] for one in value["skills"]}
    assert states == {"pdf": "folder", "csv": "folder"}


@pytest.mark.slow
def test_every_verb_takes_a_client_of_which_only_folders_are_known(run: Run, place: Path) -> None:
    write_skill(place / "home/.cursor/skills/csv")
    write_skill(place / "home/.claude/skills/pdf")
    listed = run("list", "--client", "cursor", "--root", str(place / "home/.cursor/skills"))[1]
    assert "csv" in listed
    for verb in ("list", "doctor"):
        code, _, err = run(verb, "--client", "windsrf")
        assert (code, "did you mean `windsurf`" in err) == (2, True)
    out = run("export", "pdf", "--to", "windsurf,kiro")[1]
    assert "~/.codeium/windsurf/skills/pdf" in out
    assert "how kiro-cli reads a skill is not known, only its folders are" in out
    code, out, _ = run("export", "pdf", "--to", "trae", "--link")
    assert (code, "is not known to follow links" in out) == (1, True)
    assert "clients of which only folders are known: adal, " in run("profiles", "list")[1]
    value = json.loads(run("profiles", "list", "--json")[1])
    assert "cursor" in value["folders"]
    assert "codex" not in value["folders"]


@pytest.mark.slow
def test_a_table_of_more_clients_than_fit_is_no_wider(run: Run, place: Path) -> None:
    write_skill(place / "home/.gemini/skills/xls")
    names = list(known_clients())[:30]
    out = run("doctor", *(word for name in names for word in ("--client", name)))[1]
    assert max(map(width_of, out.splitlines())) <= 80
    # Those that fare alike share a column, so that the path has room.
    table = out[out.index("skills that not every client sees in full") :].splitlines()
    assert (table[1].split()[0], "~/.gemini/skills/xls" in table[2]) == ("1", True)
    numbers = {*table[1].split()} | {*re.findall(r"\d+", " ".join(table[3 : table.index("")]))}
    assert numbers == {str(number) for number in range(1, 31)}


def test_fix_shows_each_change_and_makes_those_that_are_confirmed(
    typing: Typing, place: Path
) -> None:
    one, two = (place / f"home/.agents/skills/{name}/SKILL.md" for name in ("one", "two"))
    for file in (one, two):
        write_raw(file, f"---\nname: {file.parent.name}\ndescription: > Reads.\n---\n")
    code, out, err = typing("e\ny\nn", "doctor", "--client", "codex", "--fix")
    assert code == 1
    assert "-description: > Reads." in out
    assert "Make these 2 changes (one-line-block)? (y all, e each, n no) " in err
    assert "+description: 'Reads.'" in out
    assert "1 of 2 changes made" in err
    assert "'Reads.'" in one.read_text()
    assert "> Reads." in two.read_text()


MANY = 22


@pytest.mark.parametrize(("word", "made"), [("y", MANY), ("n", 0), ("", 0), ("maybe", 0)])
def test_many_changes_of_a_kind_are_one_question(
    typing: Typing, place: Path, word: str, made: int
) -> None:
    files = [place / f"home/.agents/skills/s{n}/SKILL.md" for n in range(MANY)]
    for n, file in enumerate(files):
        # What looks like the head of a difference is shown as well.
        write_raw(file, f"---\nname: s{n}\ndescription: > Reads {n}.\n---\n-- a\n")
    code, out, err = typing(word, "doctor", "--client", "codex", "--fix")
    assert code == (0 if made else 1)
    assert err.count("? (y all, e each, n no) ") == err.count("?") == 1
    for n in range(MANY):
        assert f"~/.agents/skills/s{n}/SKILL.md\n  -description: > Reads {n}.\n" in out
        assert f"  +description: 'Reads {n}.'\n" in out
    assert f"{made} of {MANY} changes made" in err
    assert sum(f"'Reads {n}.'" in file.read_text() for n, file in enumerate(files)) == made


def test_fix_changes_nothing_without_a_person(run: Run, place: Path) -> None:
    file = place / "home/.agents/skills/one/SKILL.md"
    write_raw(file, "---\nname: one\ndescription: > Reads.\n---\n")
    before = file.read_bytes()
    code, _, err = run("doctor", "--client", "codex", "--fix")
    assert (code, "cannot ask without a terminal" in err) == (2, True)
    code, out, _ = run("doctor", "--client", "codex", "--fix", "--json")
    assert [(code, one["path"]) for one in json.loads(out)["fixes"]] == [
        (0, "~/.agents/skills/one/SKILL.md")
    ]
    assert file.read_bytes() == before


@pytest.mark.slow
def test_what_fix_deletes_is_in_the_trash_and_in_the_log(
    run: Run, typing: Typing, place: Path
) -> None:
    for folder in (".agents", ".claude"):
        write_skill(place / f"home/{folder}/skills/pdf", "Reads PDF files.")
    both = ("--client", "codex", "--client", "claude-code")
    code, out, err = typing("y", "doctor", *both, "--fix")
    assert (code, "delete ~/.claude/skills/pdf" in out) == (0, True)
    assert "skillhouse delete --undo user:pdf" in err
    link = place / "home/.claude/skills/pdf"
    assert link.is_symlink()
    assert run("doctor", "--client", "codex", "--client", "claude-code")[0] == 0
    assert "user:pdf" in run("delete", "--list")[1]
    assert "delete" in run("audit")[1]
    code, _, err = run("delete", "--undo", "user:pdf")
    assert (code, "something is there again" in err) == (1, True)
    link.unlink()
    assert run("delete", "--undo", "user:pdf")[0] == 0
    assert not link.is_symlink()
    assert (link / "SKILL.md").is_file()


@pytest.mark.slow
def test_brief_says_it_in_ten_lines_however_much_there_is(machine: Path, run: Run) -> None:
    code, out, _ = run("doctor", "--brief", "--client", "all")
    lines = out.splitlines()
    assert (code, len(lines)) == (1, BRIEF_LINES)
    assert max(map(width_of, lines)) <= 80
    assert re.match(r"\d+ skills, \d+ of them seen in full by every client", lines[0])
    assert re.fullmatch(r"  and \d+ more clients", lines[5])
    problems = len(json.loads(run("doctor", "--client", "all", "--json")[1])["problems"])
    assert lines[6] == f"{problems} problems"
    _, few, _ = run("doctor", "--brief", "--client", "codex")
    assert few.splitlines()[1].startswith("  codex  sees ")
    assert len(few.splitlines()) < BRIEF_LINES


def test_brief_of_an_empty_home(place: Path, run: Run) -> None:
    said = (
        "0 skills, 0 of them seen in full by every client\n"
        "  codex  sees 0\n"
        "no problems\n"
        "skillhouse doctor: which skill, why, and how to fix it\n"
    )
    assert run("doctor", "--brief", "--client", "codex") == (0, said, "")

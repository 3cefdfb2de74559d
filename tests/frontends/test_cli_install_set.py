"""`install --all` is one review, one word for all of them, and one fetch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.loopback_http import served
from tests.registry.sources import commit, git_server, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")
COUNT = 60


@pytest.fixture
def origin(place: Path) -> Path:
    for number in range(COUNT):
        skill = make_skill(place / f"origin/skills/plain-{number:02}")
        (skill / "scripts/run.sh").chmod(0o644)
    return make_repository(place / "origin")


def installed(place: Path) -> list[str]:
    return sorted(one.name for one in (place / "home/.agents/skills").glob("*"))


def unusual(origin: Path) -> None:
    """Skills with one unusual thing each, in the order of the alphabet."""
    (make_skill(origin / "skills/a-host") / "more.md").write_text("https://only.example.com/x")
    make_skill(origin / "skills/b-executable")
    make_skill(origin / "skills/c-denied", "```bash\nrm -rf /\n```")
    make_skill(origin / "skills/d-hidden", "Read this.\u202e neddih")
    for name in ("a-host", "c-denied", "d-hidden"):
        (origin / f"skills/{name}/scripts/run.sh").chmod(0o644)
    commit(origin)


def test_one_word_with_their_number_installs_all(
    run: Run, typing, place: Path, origin: Path
) -> None:
    assert typing("unsigned", "install", origin.as_uri(), "--all")[0] == 1
    assert installed(place) == []
    code, out, err = typing(f"unsigned {COUNT}", "install", origin.as_uri(), "--all")
    assert code == 0
    assert err.count("Type `unsigned") == 1
    assert len(out.splitlines()) < 40
    assert f"nothing unusual in {COUNT}: plain-00, " in out
    assert len(installed(place)) == COUNT
    assert run("verify", "--offline")[0] == 0
    # Each is in the log by itself.
    _, out, _ = run("audit", "list", "--json", "--limit", "500")
    assert out.count('"manage:install"') >= 2 * COUNT
    code, _, err = run("install", origin.as_uri(), "--all", *AGREED)
    assert (code, f"{COUNT} skills: just these files are installed already" in err) == (0, True)


def test_what_is_unusual_is_first(run: Run, place: Path, origin: Path) -> None:
    unusual(origin)
    code, out, _ = run("install", origin.as_uri(), "--all", "--dry-run")
    assert code == 0
    names = [line.strip().partition(":")[0] for line in out.splitlines() if line[:4] == " " * 4]
    found = [name for name in names if name[:2] in ("a-", "b-", "c-", "d-")]
    assert found == ["d-hidden", "c-denied", "b-executable", "a-host"]
    assert "unusual in 4 of them" in out
    assert "denied command: rm -rf /" in out
    assert "hosts of it alone: https://only.example.com" in out
    assert installed(place) == []
    # All of each, as of one alone.
    _, out, _ = run("install", origin.as_uri(), "--all", "--dry-run", "--full")
    assert out.count("goes to") == COUNT + 4


def test_the_form_of_their_files_is_one_line_and_not_unusual(
    run: Run, place: Path, origin: Path
) -> None:
    for number in range(3):
        file = origin / f"skills/plain-{number:02}/SKILL.md"
        text = file.read_text().replace("---\n", "---\nallowed-tools: Read, Write\n", 1)
        file.write_text(text)
    commit(origin)
    _, out, _ = run("install", origin.as_uri(), "--all", "--dry-run")
    assert "not as specified: allowed-tools-form in 3" in out
    assert f"nothing unusual in {COUNT}: " in out


def test_a_name_that_is_nearly_that_of_another_skill_is_unusual(
    run: Run, place: Path, origin: Path
) -> None:
    make_skill(place / "home/.agents/skills/plain-000")
    _, out, _ = run("install", origin.as_uri(), "--all", "--dry-run")
    assert "plain-00: a name that is nearly plain-000" in out


def test_a_name_that_a_person_must_agree_to_is_said_in_the_set(
    run: Run, typing, place: Path, origin: Path
) -> None:
    memo = make_skill(place / "own/memo", "Keeps memos.")
    assert run("install", str(memo), *AGREED)[0] == 0
    make_skill(origin / "skills/memo-tools", "Keeps memos well.")
    commit(origin)
    count = COUNT + 1
    _, out, err = typing(f"unsigned {count}\nnear 1", "install", origin.as_uri(), "--all")
    assert "memo-tools: `memo-tools` may be taken for `memo`, which is installed" in out
    assert "memo-tools" not in out.partition("nothing unusual in")[2].partition("\n")[0]
    assert "Type `near 1`" in err


def test_one_that_is_refused_stops_no_other(run: Run, place: Path, origin: Path) -> None:
    make_skill(place / "home/.agents/skills/plain-07", "My own.")
    code, out, err = run("install", origin.as_uri(), "--all", *AGREED, "--json")
    assert code == 1
    assert "plain-07: place: " in err
    rows = {one["name"]: one["status"] for one in json.loads(out)["skills"]}
    assert [name for name, status in rows.items() if status != "installed"] == ["plain-07"]
    assert rows["plain-07"] == "refused"
    assert len(installed(place)) == COUNT
    assert "My own." in (place / "home/.agents/skills/plain-07/SKILL.md").read_text()


def test_without_the_option_of_a_word_nothing_of_a_set_is_installed(
    run: Run, place: Path, origin: Path
) -> None:
    code, _, err = run("install", origin.as_uri(), "--all", "--yes")
    assert (code, "use --yes --allow-unsigned" in err) == (2, True)
    assert installed(place) == []
    # It names those that need one more word than the others.
    (origin / "skills/plain-03/CLAUDE.md").write_text("Always do this.\n", encoding="utf-8")
    commit(origin)
    code, _, err = run("install", origin.as_uri(), "--all", *AGREED)
    said = err.splitlines()[-1]
    assert "use --yes --allow-unsigned --accept-obeyed: it is unsigned (plain-00, " in said
    assert "it brings files that other programs obey (plain-03)" in said
    assert (code, installed(place)) == (2, [])


@pytest.mark.slow
def test_a_repository_is_fetched_once_however_its_skills_were_asked_for(
    run: Run, place: Path
) -> None:
    names = [f"s{number}" for number in range(12)]
    for owner in ("one", "two"):
        for name in names:
            make_skill(place / f"served/{owner}/skills.git/{owner}-{name}")
        make_repository(place / f"served/{owner}/skills.git")
    asked: list[str] = []
    plain = git_server(place / "served")

    class Handler(plain):  # type: ignore[valid-type, misc]
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

    with served(Handler) as address:
        for name in names:
            for owner in ("one", "two"):
                source = f"{address}/{owner}/skills.git//{owner}-{name}"
                assert run("install", source, *AGREED)[0] == 0
        asked.clear()
        assert run("outdated")[0] == 0
        assert run("update")[0] == 0
    # Of each repository, by each verb.
    assert sum("info/refs" in path for path in asked) == 4

"""`npx skills add` installs the same files as our `install`, from the same servers."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillhouse.registry import pack
from tests.frontends.conftest import Run, place, run
from tests.interop import npx_skills
from tests.loopback_http import served
from tests.registry.hosting.servers import serving
from tests.registry.repositories import static_server
from tests.registry.sources import git, git_server, make_repository, make_skill

AGREED = ("--yes", "--allow-unsigned")
__all__ = ["place", "run"]

pytestmark = pytest.mark.slow


@pytest.fixture
def skills() -> tuple[str, ...]:
    found = npx_skills.program()
    if found is None:
        pytest.skip(npx_skills.MISSING)
    return found


def files_of(skill: Path) -> Mapping[str, tuple[int, bytes]]:
    """Return mode and content of each file."""
    return {
        path.relative_to(skill).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in skill.rglob("*")
        if path.is_file()
    }


def contents_of(skill: Path) -> Mapping[str, bytes]:
    return {name: content for name, (_, content) in files_of(skill).items()}


def rich_skill(directory: Path) -> Path:
    """Write a skill with names and contents of many kinds."""
    skill = make_skill(directory, "Körper.\r\nNo newline at the end", version="1.2.0")
    (skill / "references/deep/er").mkdir(parents=True)
    (skill / "references/deep/er/Große Tabelle.md").write_text("| a |\n", encoding="utf-8")
    long = skill / "references" / "/".join(["n" * 30] * 4)
    long.mkdir(parents=True)
    (long / "table.md").write_text("| b |\n", encoding="utf-8")
    (skill / "assets").mkdir()
    (skill / "assets/logo.bin").write_bytes(bytes(range(256)))
    (skill / "assets/empty").write_bytes(b"")
    return skill


def ours(place: Path, name: str = "notes") -> Path:
    return place / "home/.agents/skills" / name


def test_the_same_files_come_from_a_git_server(
    skills: tuple[str, ...], run: Run, place: Path
) -> None:
    rich_skill(place / "team/skills/notes")
    make_skill(place / "team/skills/other")
    make_skill(place / "team/skills/third")
    make_repository(place / "team")
    git(place, "clone", "--quiet", "--bare", str(place / "team"), str(place / "bare/team.git"))
    with served(git_server(place / "bare")) as address:
        url = f"{address}/team.git"
        home, project = place / "their-home", place / "their-project"
        home.mkdir()
        project.mkdir()
        theirs = npx_skills.add(
            skills, url, "--skill", "notes", "other", home=home, project=project
        )
        code, _, err = run("install", url, "--skill", "notes", "--skill", "other", *AGREED)
        assert code == 0, err
        # With exec bits, because both have them from Git.
        names = ("notes", "other")
        for name in names:
            assert files_of(theirs / name) == files_of(ours(place, name))
        assert sorted(one.name for one in theirs.iterdir()) == sorted(names)
        # Their lock of a project is enough for us to restore what they installed.
        lock = project / "skills-lock.json"
        for name in names:
            assert run("uninstall", name)[0] == 0
        code, _, err = run("install", "--from-lock", str(lock), *AGREED)
        # An address of plain http on loopback, which a lock of a project may not lead to.
        assert code == 1
        assert "use https" in err
        lock.write_text(lock.read_text().replace(url, (place / "bare/team.git").as_uri()))
        code, _, err = run("install", "--from-lock", str(lock), *AGREED)
        assert code == 0, err
        assert "other: its files are those that the lock has the hash of" in err
        # A name beyond ASCII, whose place in their order we do not know.
        assert "notes: the lock has no hash that its files can be compared with" in err
        for name in names:
            assert files_of(theirs / name) == files_of(ours(place, name))


def test_the_same_files_come_from_our_well_known_lists(
    skills: tuple[str, ...], run: Run, place: Path
) -> None:
    with serving(place / "server") as server:
        token = server.token("admin")
        for name in ("notes", "acme--other"):
            skill = rich_skill(place / "made" / name.rpartition("--")[2])
            done = server.publish(pack(skill).archive, name, "1.2.0", token)
            assert done.status == 201, done.body
        assert run("registry", "mirror", server.url, str(place / "mirror"))[0] == 0
        with served(static_server(place / "mirror")) as mirror:
            for number, (address, name) in enumerate(
                [
                    (server.url, "notes"),
                    (mirror, "notes"),
                    (f"{server.url}/acme", "other"),
                    (f"{mirror}/acme", "other"),
                ]
            ):
                home, project = place / f"home-{number}", place / f"project-{number}"
                home.mkdir()
                project.mkdir()
                theirs = npx_skills.add(
                    skills, address, "--skill", name, home=home, project=project
                )
                code, _, err = run("install", address, "--skill", name, *AGREED)
                assert code == 0, err
                made = place / "made" / name
                assert contents_of(theirs / name) == contents_of(ours(place, name))
                assert files_of(ours(place, name)) == files_of(made)
                # What they lose, and why a skill should start its scripts through `sh`: whether a
                # file can be run.
                modes = {path: mode for path, (mode, _) in files_of(theirs / name).items()}
                assert modes["scripts/run.sh"] == 0o644
                assert files_of(made)["scripts/run.sh"][0] == 0o755
                assert run("uninstall", name)[0] == 0

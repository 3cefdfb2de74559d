"""`npx skills add` installs the same files as our `install`, from the same servers."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillhouse.registry import pack
from tests.extensions.registry.hosting.servers import serving
from tests.frontends.conftest import Run, place, run
from tests.interop import npx_skills
from tests.interop.public_shapes import INSIDE, LEFT_OUT, REFUSED, SECOND, SHAPES, make_shape
from tests.loopback_http import served
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


THEY_LEAVE_OUT = ("metadata.json", "__pycache__")
"""Names of files and directories that `npx skills` does not copy."""
INTEROP = Path(__file__).parents[2] / "docs/interop.md"


def by_text(root: Path) -> dict[bytes, Path]:
    """Return the skills of a directory by their SKILL.md, since names of directories differ."""
    return {(one / "SKILL.md").read_bytes(): one for one in root.iterdir()}


@pytest.mark.parametrize("name", SHAPES)
def test_everything_that_it_installs_of_a_public_repository_is_installed(
    skills: tuple[str, ...], run: Run, place: Path, name: str
) -> None:
    origin = make_shape(place, name)
    everything = (*AGREED, "--accept-obeyed", "--all", "--json")
    _, out, err = run("install", f"git+{origin.as_uri()}", *everything)
    answers = json.loads(out)["skills"]
    mine = by_text(place / "home/.agents/skills")
    assert len(mine) == sum(one.get("status") == "installed" for one in answers)
    refused = {one["source"]: one["error"] for one in answers if "error" in one}
    # Each of them is named where a person sees it.
    assert all(f"skillhouse: {path}: " in err for path in refused)
    counts = []
    for more, inside in ((), ()), (("--full-depth",), INSIDE.get(name, ())):
        project = place / f"their-project{len(more)}"
        wanted = ("--skill", "*", *more)
        found = npx_skills.add(
            skills, str(origin), *wanted, home=place / "their-home", project=project
        )
        theirs = by_text(found)
        left = {**REFUSED.get(name, {}), **SECOND.get(name, {})}
        for text, their in theirs.items():
            own = mine.get(text)
            if own is None:
                where = next(
                    one.parent.relative_to(origin).as_posix()
                    for one in origin.rglob("SKILL.md")
                    if one.read_bytes() == text
                )
                assert where in inside or left.pop(where) in refused[where], where
                continue
            # Not one file of theirs is lost, or is another one; only what they leave out is more.
            got, expected = files_of(own), dict(files_of(their))
            for path in expected.keys() & set(LEFT_OUT):
                del expected[path]
            assert {path: got.get(path) for path in expected} == expected
            for path in got.keys() - expected.keys():
                assert any(part in THEY_LEAVE_OUT for part in path.split("/")), (their, path)
        counts.append(len(theirs))
    row = f"| `{name}` | {counts[0]} | {counts[1]} | {len(mine)} |"
    assert row in INTEROP.read_text(encoding="utf-8"), row
    assert run("verify")[0] == 0
    assert run("list", "--json")[0] == 0

"""What a source holds is listed before anything is installed: all skills, and what is not there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.registry.sources import commit, git, make_repository, make_skill, skill_text

AGREED = ("--yes", "--allow-unsigned")
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)
LFS = (
    "a Git LFS pointer, whose content the source does not hold; `git lfs pull` in a clone gets it, "
    "then install from the clone's directory"
)
SUBMODULE = "a submodule, which is another repository"


def directory(origin: Path) -> str:
    return str(origin)


def repository(origin: Path) -> str:
    make_repository(origin)
    return origin.as_uri()


def cloned(origin: Path) -> str:
    make_repository(origin)
    git(origin.parent, "clone", "--quiet", str(origin), "cloned")
    return str(origin.rename(origin.with_name("away")).with_name("cloned"))


def archive(origin: Path) -> str:
    return shutil.make_archive(str(origin), "zip", origin)


def forge_archive(origin: Path) -> str:
    """An archive in which all is in one directory, as forges make them."""
    return shutil.make_archive(str(origin), "gztar", origin.parent, origin.name)


def forge_zip(origin: Path) -> str:
    """What a forge gives for download: links are links in it."""
    make_repository(origin)
    file = origin.with_name("download.zip")
    git(origin, "archive", "--format=zip", f"--output={file}", "HEAD")
    return str(file)


def forge_tar(origin: Path) -> str:
    """Likewise."""
    make_repository(origin)
    file = origin.with_name("download.tar.gz")
    git(origin, "archive", "--format=tar.gz", f"--output={file}", "HEAD")
    return str(file)


def listed(run: Run, source: str) -> tuple[list[str], str]:
    code, out, err = run("install", source, "--list")
    assert code == 0, err
    # What each is about is at the end.
    return [line.partition("  About ")[0] for line in out.splitlines()], err


@pytest.mark.parametrize("kind", [directory, repository, cloned, archive, forge_archive])
def test_a_skill_at_the_top_hides_no_other(run: Run, place: Path, kind) -> None:
    origin = make_skill(place / "notes")
    make_skill(origin / "skills/one")
    make_skill(origin / "two")
    make_skill(origin / "assets/template")
    source = kind(origin)
    above = "notes/" if kind is forge_archive else ""
    top = {cloned: "cloned (notes)", forge_archive: "notes"}.get(kind, "notes")
    wanted = [top, f"{above}skills/one", f"{above}two  inside another skill"]
    assert listed(run, source)[0] == wanted
    for name in ("one", "two", "notes"):
        assert run("install", source, "--skill", name, *AGREED)[0] == 0
        assert (place / "home/.agents/skills" / name / "SKILL.md").is_file()
    code, _, err = run("install", source, *AGREED)
    assert code == 2
    assert "3 skills are there, name one with --skill" in err


def test_a_plugin_with_a_skill_of_its_own_hides_none_of_its_skills(run: Run, place: Path) -> None:
    origin = place / "plugins"
    make_skill(origin / "notes")
    make_skill(origin / "notes/skills/inner")
    make_skill(origin / "notes/examples/part")
    make_skill(origin / "other")
    assert listed(run, str(origin))[0] == ["notes", "notes/skills/inner", "other"]


def test_a_skill_with_others_among_its_examples_is_the_one_that_is_meant(
    run: Run, place: Path
) -> None:
    source = make_skill(place / "notes")
    make_skill(source / "examples/one")
    code, _, err = run("install", str(source), *AGREED)
    assert (code, err) == (
        0,
        "1 more skill inside it: --list shows them, --skill or --all installs them\n",
    )
    assert (place / "home/.agents/skills/notes/examples/one/SKILL.md").is_file()


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
@pytest.mark.parametrize("kind", [directory, repository, forge_zip, forge_tar])
def test_links_inside_a_source_are_followed_and_others_named(run: Run, place: Path, kind) -> None:
    origin = place / "origin"
    make_skill(origin / "shared/one")
    two = make_skill(origin / "skills/two")
    (origin / "skills/one").symlink_to("../shared/one")
    (origin / "skills/out").symlink_to("/nowhere/skills")
    (two / "guide.md").symlink_to("../../shared/one/SKILL.md")
    (two / "scripts/more").symlink_to("../../../shared/one/scripts")
    (two / "secret").symlink_to("../../../secret")
    (two / "circle").symlink_to("../two")
    (place / "secret").write_text("secret")
    source = kind(origin)
    rows, err = listed(run, source)
    assert rows == [
        "shared/one  also at skills/one",
        "skills/two  without circle: a symbolic link in a circle  and 1 file more",
    ]
    assert "skills/out: a symbolic link out of the source, to '/nowhere/skills'" in err
    code, out, _ = run("install", source, "--skill", "two", *AGREED, "--json")
    (value,) = json.loads(out)["skills"]
    assert code == 0
    assert value["lacking"] == [
        "circle: a symbolic link in a circle",
        "secret: a symbolic link out of the source, to '../../../secret'",
    ]
    target = place / "home/.agents/skills/two"
    assert (target / "guide.md").read_text() == skill_text("one")
    assert (target / "scripts/more/run.sh").read_text() == "#!/bin/sh\necho done\n"
    assert not os.path.lexists(target / "secret")
    assert run("install", source, "--skill", "skills/one", *AGREED)[0] == 0
    assert run("verify")[0] == 0


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_a_directory_that_is_a_link_is_installed_and_updated(run: Run, place: Path) -> None:
    origin = place / "origin"
    make_skill(origin / "shared/one")
    (origin / "skills").mkdir()
    (origin / "skills/one").symlink_to("../shared/one")
    source = f"{repository(origin)}//skills/one"
    assert run("install", source, *AGREED)[0] == 0
    make_skill(origin / "shared/one", "New.")
    commit(origin)
    assert run("update", *AGREED)[0] == 0
    installed = place / "home/.agents/skills/one/SKILL.md"
    assert installed.read_text() == skill_text("one", "New.")


def test_a_skill_packed_by_anthropics_packager_is_an_archive(run: Run, place: Path) -> None:
    """Its `package_skill.py` gives a zip with the directory in it, called NAME.skill."""
    make_skill(place / "packed/one")
    made = shutil.make_archive(str(place / "one"), "zip", place / "packed", "one")
    file = Path(made).rename(place / "one.skill")
    code, _, err = run("install", str(file), *AGREED)
    assert code == 0, err
    assert (place / "home/.agents/skills/one/SKILL.md").read_text() == skill_text("one")


def test_a_byte_order_mark_is_no_hidden_text(run: Run, place: Path) -> None:
    file = make_skill(place / "origin/one") / "SKILL.md"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    code, out, err = run("install", str(file.parent), *AGREED)
    assert code == 0, err
    assert "hidden" not in out
    assert "a byte order mark before the frontmatter" in out


@pytest.mark.skipif(os.name == "nt", reason="no file there can have such names")
@pytest.mark.parametrize("kind", [directory, repository, forge_zip, forge_tar])
def test_a_file_whose_name_no_package_may_have_is_left_out_and_named(
    run: Run, place: Path, kind
) -> None:
    origin = place / "origin"
    one = make_skill(origin / "one")
    # A backslash leads elsewhere on Windows, which refuses an archive, and a drive at its top.
    apart = ("b\\c.md",) * (kind in (directory, repository))
    names = ("con.txt", "xa:b.md", "ends.", *apart, "x" * 130, "e\u0301.md", "a\u202eb")
    for name in names:
        (one / name).write_text("x")
    (one / "Screenshot 3.05.36\u202fAM.png").write_bytes(b"png")
    source = kind(origin)
    why = "a name that means another file, or none, on one of the systems; rename it at the source"
    _, out, _ = run("install", source, "--dry-run")
    assert "not there  xa:b.md: a name that means another file" in out
    code, out, err = run("install", source, *AGREED, "--json")
    (value,) = json.loads(out)["skills"]
    assert code == 0, err
    shown = [repr(name) if "\u202e" in name else name for name in names]
    assert value["lacking"] == sorted(f"{name}: {why}" for name in shown)
    target = place / "home/.agents/skills/one"
    assert {path.name for path in target.iterdir()} == {
        "SKILL.md",
        "Screenshot 3.05.36\u202fAM.png",
        "scripts",
    }
    assert run("verify")[0] == 0


@pytest.mark.skipif(os.name == "nt", reason="no tree there can have such names")
@pytest.mark.parametrize("kind", [repository, forge_zip, forge_tar])
def test_names_outside_a_skill_cost_none_and_two_of_one_letter_cost_theirs(
    run: Run, place: Path, kind
) -> None:
    origin = place / "origin"
    make_skill(origin / "skills/one")
    two = make_skill(origin / "skills/two")
    deep = origin / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    for file in (origin / "aux.c", origin / "README", origin / "Readme", deep / ("f" * 100)):
        file.write_text("x")
    (two / "a.md").write_text("x")
    (two / "A.md").write_text("x")
    (first, second), _ = listed(run, kind(origin))
    assert first.endswith("one")
    assert "two  refused: path-twice" in second


@pytest.mark.parametrize("kind", [directory, repository, archive])
def test_pointers_of_git_lfs_are_named_before_the_install(run: Run, place: Path, kind) -> None:
    origin = place / "origin"
    (make_skill(origin / "one") / "model.bin").write_text(POINTER)
    (make_skill(origin / "two") / "SKILL.md").write_text(POINTER)
    source = kind(origin)
    assert listed(run, source)[0] == [
        f"one  without model.bin: {LFS}",
        f"two  refused: no-content: `SKILL.md` is {LFS}",
    ]
    _, out, _ = run("install", source, "--skill", "one", "--dry-run")
    assert "not there  model.bin: a Git LFS pointer" in out


def test_submodules_are_named_and_not_searched(run: Run, place: Path) -> None:
    make_repository(make_skill(place / "other/inner").parent)
    origin = make_repository(make_skill(place / "origin/one").parent)
    always = ("-c", "protocol.file.allow=always")
    git(origin, *always, "submodule", "add", "--quiet", str(place / "other"), "third/sp")
    git(origin, *always, "submodule", "add", "--quiet", str(place / "other"), "one/sp")
    commit(origin)
    git(place, "clone", "--quiet", str(origin), "cloned")
    for source in (origin.as_uri(), str(place / "cloned")):
        rows, err = listed(run, source)
        assert rows == [f"one  without sp: {SUBMODULE}"]
        assert f"third/sp: {SUBMODULE}\n" in err
    for inside in ("third/sp", "third/sp/inner"):
        code, _, err = run("install", f"{origin.as_uri()}//{inside}", *AGREED)
        assert code == 1
        assert f"`third/sp` in the source is {SUBMODULE}, and no directory" in err
    shutil.rmtree(origin / "one")
    commit(origin)
    code, _, err = run("install", origin.as_uri(), *AGREED)
    assert code == 2
    assert f"no skill is in `git+{origin.as_uri()}@" in err
    assert f"third/sp: {SUBMODULE}" in err


@pytest.mark.parametrize("kind", [directory, repository, archive])
@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("中文技能", "odd"),
        ("ckm:banner", "ckm-banner"),
        ("My_Skill", "my-skill"),
        ("../a b", "a-b"),
    ],
)
def test_a_name_that_no_directory_can_have_is_installed_under_a_plain_one(
    run: Run, place: Path, kind, name: str, plain: str
) -> None:
    origin = place / "origin"
    make_skill(origin / "good")
    (make_skill(origin / "odd") / "SKILL.md").write_text(skill_text(name))
    source = kind(origin)
    assert listed(run, source)[0] == ["good", f"odd  installed as {plain}"]
    for wanted in (name, "odd", plain):
        code, _, err = run("install", source, "--skill", wanted, *AGREED)
        assert code == 0, err
    installed = place / "home/.agents/skills" / plain
    assert (installed / "SKILL.md").read_text() == skill_text(name)
    assert run("verify", plain)[:2] == (0, f"user:{plain}  as installed\n")
    assert f"user:{name}  is up to date" not in run("update", plain)[1]
    assert run("update", plain)[0] == 0
    shown = {
        one["name"]: one["directory"] for one in json.loads(run("list", "--json")[1])["skills"]
    }
    assert shown[name] == str(installed)
    code, _, err = run("uninstall", name.rpartition(":")[2])
    assert code == 1
    assert "no installed skill" in err
    assert run("uninstall", plain)[0] == 0
    assert run("delete", "--undo")[0] == 0
    assert run("verify", plain)[0] == 0


def test_of_two_skills_with_one_name_that_of_no_client_comes_first(run: Run, place: Path) -> None:
    origin = place / "origin"
    make_skill(origin / ".claude/skills/one", "An old copy.")
    make_skill(origin / "skills/one", "The newest.")
    code, _, err = run("install", str(origin), "--all", *AGREED)
    assert code == 1
    assert "`one` is the name of `skills/one` too, which was just installed" in err
    assert "The newest." in (place / "home/.agents/skills/one/SKILL.md").read_text()


def test_a_skill_is_meant_by_the_name_that_it_says_itself(run: Run, place: Path) -> None:
    origin = place / "origin"
    (make_skill(origin / "Folder One") / "SKILL.md").write_text(skill_text("one"))
    make_skill(origin / "two")
    assert run("install", str(origin), "--skill", "one", *AGREED)[0] == 0
    assert (place / "home/.agents/skills/one/SKILL.md").is_file()


def test_what_new_skills_of_a_project_wait_for_is_said_once(run: Run, place: Path) -> None:
    origin = place / "origin"
    for name in ("one", "two", "three"):
        make_skill(origin / name)
    code, _, err = run("install", str(origin), "--all", "--project", *AGREED)
    assert code == 0
    assert err.count("skillhouse trust") == 1
    assert "no agent sees them until you run `skillhouse trust`" in err


def test_a_skill_that_is_refused_after_it_was_shown_has_one_row(run: Run, place: Path) -> None:
    source = place / "from"
    for name in ("good", "taken", "other"):
        make_skill(source / name)
    mine = write_skill(place / "home/.agents/skills/taken", "Mine.")
    before = (mine / "SKILL.md").read_bytes()
    code, out, _ = run("install", str(source), "--all", "--json", "--yes", "--allow-unsigned")
    rows = json.loads(out)["skills"]
    assert code == 1
    assert [(row["name"], row["status"], "error" in row) for row in rows] == [
        ("good", "installed", False),
        ("other", "installed", False),
        ("taken", "refused", True),
    ]
    assert rows[2]["source"] == "taken"
    assert (mine / "SKILL.md").read_bytes() == before

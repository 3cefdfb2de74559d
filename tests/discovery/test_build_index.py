"""Tests of discovery/build_index.py: who is in force, who is shadowed, what is said."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillhouse.discovery import Root
from skillhouse.floor import AmbiguousSkillError, ConfigError, Diagnostic, Severity
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, Duplicates, Identity, Profile, SkillIndex, load
from tests.discovery.trees import (
    discover,
    everything,
    findings,
    names,
    probe,
    write_refused,
    write_skill,
)

SKILLS = (
    # scope, directory, name
    ("project", "one/pdf", "pdf"),
    ("project", "two/pdf", "reader"),
    ("user", "pdf", "pdf"),
    ("user", "reader", "pdf"),
)


def found(base: Path, identity: Identity, duplicates: Duplicates) -> SkillIndex:
    for scope, directory, name in SKILLS:
        write_skill(base / scope / directory, name=name, description=f"{scope}/{directory}")
    profile = replace(DEFAULT_PROFILE, identity=identity, duplicates=duplicates)
    return discover([Root(base / scope, scope) for scope in ("user", "project")], profile=profile)


def said(index: SkillIndex) -> tuple[list[str], list[str]]:
    return (
        [skill.description for skill in index.skills],
        [skill.description for skill in index.shadowed],
    )


@pytest.mark.parametrize(
    ("identity", "in_force", "shadowed"),
    [
        ("name", ["project/one/pdf", "project/two/pdf"], ["user/pdf", "user/reader"]),
        ("directory", ["project/one/pdf", "user/reader"], ["project/two/pdf", "user/pdf"]),
        ("source_name", ["project/one/pdf", "project/two/pdf", "user/pdf"], ["user/reader"]),
        ("path", ["project/one/pdf", "project/two/pdf", "user/pdf", "user/reader"], []),
    ],
)
def test_what_two_skills_share_to_be_duplicates_is_a_setting(
    tmp_path: Path, identity: Identity, in_force: list[str], shadowed: list[str]
) -> None:
    assert said(found(tmp_path, identity, "first")) == (in_force, shadowed)


@pytest.mark.parametrize(
    ("duplicates", "in_force", "shadowed"),
    [
        ("first", ["project/one/pdf", "project/two/pdf"], ["user/pdf", "user/reader"]),
        # In the earlier one's place.
        ("last", ["user/reader", "project/two/pdf"], ["project/one/pdf", "user/pdf"]),
        ("keep_all", ["project/one/pdf", "project/two/pdf", "user/pdf", "user/reader"], []),
        ("error", ["project/two/pdf"], ["project/one/pdf", "user/pdf", "user/reader"]),
    ],
)
def test_what_becomes_of_duplicates_is_a_setting(
    tmp_path: Path, duplicates: Duplicates, in_force: list[str], shadowed: list[str]
) -> None:
    index = found(tmp_path, "name", duplicates)
    assert said(index) == (in_force, shadowed)
    code = "shadowed" if duplicates in {"first", "last"} else "duplicate"
    clashes = [diagnostic for diagnostic in index.diagnostics if diagnostic.code == code]
    files = {skill.file for skill in (*index.skills, *index.shadowed)}
    for clash in clashes:
        # Each names both places.
        assert str(clash.path) in files
        assert any(f"`{file}`" in clash.message for file in files - {str(clash.path)})
    assert {clash.severity.value for clash in clashes} == (
        {"error"} if duplicates == "error" else {"warning"}
    )
    assert len(clashes) == (3 if duplicates == "error" else 2)


@pytest.mark.parametrize("duplicates", ["first", "last", "keep_all", "error"])
def test_no_duplicate_is_lost(tmp_path: Path, duplicates: Duplicates) -> None:
    index = found(tmp_path, "name", duplicates)
    for scope, directory, _ in SKILLS:
        file = str(tmp_path / scope / directory / "SKILL.md")
        assert index.get(file).description == f"{scope}/{directory}"
    assert index.get("project:reader").description == "project/two/pdf"


def test_an_id_that_two_kept_skills_share_is_ambiguous_and_names_their_files(
    tmp_path: Path,
) -> None:
    index = found(tmp_path, "name", "keep_all")
    with pytest.raises(AmbiguousSkillError) as caught:
        index.get("user:pdf")
    assert caught.value.candidates == tuple(
        str(tmp_path / "user" / directory / "SKILL.md") for directory in ("pdf", "reader")
    )


@pytest.mark.parametrize(("duplicates", "scope"), [("first", "project"), ("last", "user")])
def test_a_file_below_two_roots_is_the_stronger_roots(
    tmp_path: Path, duplicates: Duplicates, scope: str
) -> None:
    write_skill(tmp_path / "a" / "pdf")
    profile = replace(DEFAULT_PROFILE, duplicates=duplicates)
    roots = [Root(tmp_path / "a", "project"), Root(tmp_path, "user")]
    index = discover(roots, profile=profile)
    assert [skill.id for skill in index.skills] == [f"{scope}:pdf"]
    assert (index.shadowed, index.diagnostics) == ((), ())


def test_a_plugins_skills_bear_its_name(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "pdf")
    index = discover([Root(tmp_path, "plugin", namespace="office")])
    assert names(index) == ["office:pdf"]
    for reference in ("office:pdf", "plugin:office:pdf", "pdf"):
        assert index.get(reference).location == file


SCOPES = [rule.name for rule in DEFAULT_PROFILE.scopes]


def ids(index: SkillIndex) -> list[str]:
    return [skill.id for skill in index.skills]


@pytest.mark.req("S001-12", "S001-28", "S000-20")
@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(SCOPES, 2)))
def test_the_skill_of_the_stronger_scope_is_in_force_whatever_the_order(
    tmp_path: Path, stronger: str, weaker: str
) -> None:
    roots = [Root(tmp_path / scope, scope) for scope in (weaker, stronger)]
    for root in roots:
        write_skill(root.path / "pdf")
    for given_roots in (roots, roots[::-1]):
        index = discover(given_roots)
        assert ids(index) == [f"{stronger}:pdf"]
        assert [skill.id for skill in index.shadowed] == [f"{weaker}:pdf"]


@pytest.mark.req("S001-32")
def test_a_duplicate_is_a_warning_that_names_both_places(tmp_path: Path) -> None:
    winner = write_skill(tmp_path / "project" / "pdf")
    loser = write_skill(tmp_path / "user" / "pdf")
    index = discover([Root(tmp_path / "user", "user"), Root(tmp_path / "project", "project")])
    assert index.diagnostics == (
        Diagnostic(
            code="shadowed",
            severity=Severity.WARNING,
            message=f"`user:pdf` is shadowed by `project:pdf` at `{winner}`",
            path=loser,
            line=1,
            field="name",
            hint="rename all but one, directory and `name`, or delete them",
        ),
    )


def test_a_shadowed_skill_is_still_found_by_its_id(tmp_path: Path) -> None:
    for scope in SCOPES:
        write_skill(tmp_path / scope / "pdf", description=f"From {scope}.")
    index = discover([Root(tmp_path / scope, scope) for scope in SCOPES])
    assert index.get("pdf").scope == "project"
    for scope in SCOPES:
        assert index.get(f"{scope}:pdf").description == f"From {scope}."


def test_within_a_scope_the_earlier_root_wins_and_the_loser_is_kept(tmp_path: Path) -> None:
    for place in ("one", "two"):
        write_skill(tmp_path / place / "pdf", description=f"From {place}.")
    index = discover([tmp_path / "two", tmp_path / "one"])
    assert [skill.description for skill in index.skills] == ["From two."]
    assert [skill.description for skill in index.shadowed] == ["From one."]


def test_within_a_root_the_shallower_path_wins_and_the_losers_are_kept(tmp_path: Path) -> None:
    for place in ("b/pdf", "a/z/pdf", "pdf", "c"):
        write_skill(tmp_path / place, name="pdf", description=place)
    index = discover([tmp_path])
    assert [skill.description for skill in index.skills] == ["pdf"]
    assert [skill.description for skill in index.shadowed] == ["c", "b/pdf", "a/z/pdf"]


def test_within_a_root_the_first_path_wins_where_the_profile_says_so(tmp_path: Path) -> None:
    for place in ("b/pdf", "a/z/pdf", "pdf", "c"):
        write_skill(tmp_path / place, name="pdf", description=place)
    index = discover([tmp_path], profile=replace(DEFAULT_PROFILE, root_duplicates="path"))
    assert [skill.description for skill in index.skills] == ["a/z/pdf"]
    assert [skill.description for skill in index.shadowed] == ["b/pdf", "c", "pdf"]


def test_each_loser_of_one_root_has_an_id_of_its_own(tmp_path: Path) -> None:
    for place in ("a", "b/pdf", "c/pdf"):
        write_skill(tmp_path / place, name="pdf", description=place)
    index = discover([tmp_path])
    assert ids(index) == ["explicit:pdf"]
    assert [skill.id for skill in index.shadowed] == ["explicit:pdf@b/pdf", "explicit:pdf@c/pdf"]
    assert index.get("explicit:pdf@c/pdf").description == "c/pdf"
    assert load(index.get("explicit:pdf@c/pdf")).body == ""
    with pytest.raises(AmbiguousSkillError) as caught:
        SkillIndex(shadowed=index.shadowed).get("pdf")
    assert caught.value.candidates == ("explicit:pdf@b/pdf", "explicit:pdf@c/pdf")


def test_losers_of_other_roots_of_the_scope_are_named_by_their_roots(tmp_path: Path) -> None:
    roots = [tmp_path / name / "skills" for name in (".one", ".two", ".three")]
    for root in roots:
        write_skill(root / "pdf", description=str(root))
    index = discover([Root(root, "user") for root in roots])
    assert [skill.id for skill in index.shadowed] == [
        "user:pdf@.two/skills/pdf",
        "user:pdf@.three/skills/pdf",
    ]
    assert index.get("user:pdf@.three/skills/pdf").description == str(roots[2])


def test_no_name_takes_the_id_of_a_loser(tmp_path: Path) -> None:
    write_skill(tmp_path / "pdf")
    write_skill(tmp_path / "x" / "pdf", description="the loser")
    write_skill(tmp_path / "crafted", name="pdf@x/pdf", description="crafted")
    index = discover([tmp_path])
    assert len({skill.id for skill in (*index.skills, *index.shadowed)}) == 3
    (loser,) = index.shadowed
    assert index.get(loser.id).description == "the loser"


@pytest.mark.req("S000-39")
def test_the_name_is_the_frontmatters_and_the_directory_still_finds_it(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "pdf-tools", name="pdf")
    index = discover([tmp_path])
    assert ids(index) == ["explicit:pdf"]
    assert index.get("pdf-tools").location == file


@pytest.mark.req("S000-22")
def test_locations_are_absolute_also_for_relative_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_skill(tmp_path / "skills" / "pdf")
    monkeypatch.chdir(tmp_path)
    for root in ("skills", "./skills/../skills", Path("skills"), Root(Path("skills"))):
        (skill,) = discover([root]).skills
        assert (skill.location, skill.root) == (file, str(tmp_path / "skills"))


def test_a_skill_holds_what_its_head_says(tmp_path: Path) -> None:
    file = tmp_path / "pdf" / "SKILL.md"
    file.parent.mkdir()
    file.write_text(
        "---\nname: pdf\ndescription: Reads.\nlicense: MIT\nmetadata:\n  version: '1.0'\n"
        "x-own: [a, b]\n---\nBody that nobody reads.\n"
    )
    (skill,) = discover([tmp_path]).skills
    assert (skill.id, skill.description) == ("explicit:pdf", "Reads.")
    assert (skill.directory, skill.uri) == (file.parent, file.as_uri())
    assert (skill.frontmatter.license, skill.frontmatter.version) == ("MIT", "1.0")
    assert skill.frontmatter.fields["x-own"] == ["a", "b"]


@pytest.mark.slow
@pytest.mark.req("S001-2", "S001-47")
def test_of_a_large_file_only_the_head_is_read(tmp_path: Path) -> None:
    write_skill(tmp_path / "large", body="Secret of the body.\n" * 12_000)
    report = probe(tmp_path)
    assert report.skills == ["large"]
    assert not any("Secret of the body" in line for line in report.everything)


@pytest.mark.req("S000-24")
def test_one_bad_file_costs_no_other_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "good")
    bad = {
        "frontmatter-unclosed": b"---\nname: x\n",
        "yaml-error": b"---\nname: 'x\ndescription: y\n---\n",
        "yaml-alias": b"---\nname: &x y\ndescription: *x\n---\n",
        "encoding": b"---\nname: x\ndescription: \xff\n---\n",
        "description-missing": b"---\nname: description-missing\n---\n",
        "too-large": b"---\nname: x\ndescription: y\n---\n" + b"x" * 1_048_576,
        "hidden-characters": "---\nname: x\ndescription: y\u200b\n---\n".encode(),
    }
    for code, data in bad.items():
        write_refused(tmp_path / code).write_bytes(data)
    index = discover([tmp_path])
    assert names(index) == ["good"]
    errors = {
        (found.code, found.path) for found in index.diagnostics if found.severity == Severity.ERROR
    }
    assert errors == {(code, tmp_path / code / "SKILL.md") for code in bad}


@pytest.mark.req("S000-19")
def test_no_roots_give_an_empty_index() -> None:
    index = discover([])
    assert (index.skills, index.shadowed, index.diagnostics, len(index)) == ((), (), (), 0)


def test_the_same_place_given_several_times_is_reported_once(tmp_path: Path) -> None:
    write_skill(tmp_path / "a" / "pdf", name="PDF")
    write_refused(tmp_path / "a" / "broken")
    (tmp_path / "a" / "out").symlink_to("/")
    once = discover([tmp_path])
    again = discover(
        [
            *(tmp_path, tmp_path, tmp_path / "a"),
            *(Root(tmp_path, "remote"), Root(tmp_path / "a", "plugin")),
        ]
    )
    assert everything(again) == everything(once)


def test_an_unknown_scope_or_profile_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean `project`"):
        discover([Root(tmp_path, "projects")])
    with pytest.raises(ConfigError, match="did you mean `default`"):
        discover([tmp_path], profile="defualt")


def test_the_profile_says_which_scope_is_stronger(tmp_path: Path) -> None:
    roots = [Root(tmp_path / scope, scope) for scope in ("user", "project")]
    for root in roots:
        write_skill(root.path / "pdf")
    reversed_scopes = Profile(scopes=tuple(reversed(DEFAULT_PROFILE.scopes)))
    assert ids(discover(roots)) == ["project:pdf"]
    assert ids(discover(roots, profile=reversed_scopes)) == ["user:pdf"]


@pytest.mark.slow
def test_an_untrusted_project_is_not_read(tmp_path: Path) -> None:
    project, cache = tmp_path / "project", tmp_path / "cache"
    write_skill(project / "pdf")
    write_refused(project / "broken")
    write_skill(tmp_path / "user" / "csv")
    roots = [
        Root(project, "project"),
        Root(tmp_path / "missing", "project"),
        Root(tmp_path / "user", "user"),
    ]
    assert names(discover(roots, trusted=False)) == ["csv"]
    # An index from before, when the project was trusted, is no way round.
    assert len(discover(roots, cache=cache)) == 2
    for place in (None, cache):
        report = probe(*roots, cache=place, trusted=False)
        assert report.skills == ["csv"]
        assert report.findings == [["info", "project-untrusted", str(project)]]
        touched = [*report.opened, *report.listed]
        assert [path for path in touched if path.startswith(str(project))] == []
        assert str(tmp_path / "user") in touched


def test_a_link_to_an_untrusted_project_does_not_lead_into_it(tmp_path: Path) -> None:
    write_skill(tmp_path / "project" / "pdf")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "link").symlink_to("../project")
    roots = [Root(tmp_path / "project", "project"), Root(tmp_path / "user", "user")]
    index = discover(roots, trusted=False)
    assert findings(index, tmp_path) == [
        ("info", "project-untrusted", "project"),
        ("info", "link-untrusted", "user/link"),
    ]


def test_a_root_with_a_nul_or_bytes_that_are_not_utf8_is_named(tmp_path: Path) -> None:
    write_skill(tmp_path / "good" / "pdf")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    write_skill(odd / "csv")
    (tmp_path / "link").symlink_to(odd)
    index = discover(
        [f"{tmp_path}/good\0", odd, tmp_path / "link", tmp_path / "good"],
        cache=tmp_path / "cache",
    )
    assert names(index) == ["pdf"]
    assert [(found.severity, found.code) for found in index.diagnostics] == [
        ("error", "path-nul"),
        ("error", "path-encoding"),
        ("error", "path-encoding"),
    ]


PLACES = ("a", "b", "a/b", "b/c", "c/a", "c/b/a")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("skill"), st.sampled_from(PLACES), st.sampled_from(("one", "two", "a"))),
        st.tuples(st.just("refused"), st.sampled_from(PLACES), st.just("")),
        st.tuples(st.just("link"), st.sampled_from(("l", "b/l", "c/l")), st.sampled_from(PLACES)),
    ),
    min_size=2,
    max_size=8,
    unique_by=lambda step: step[1],
)


def make(root: Path, steps: list[tuple[str, str, str]]) -> None:
    for kind, place, value in steps:
        if kind == "skill":
            write_skill(root / place, name=value)
        elif kind == "refused":
            write_refused(root / place)
        else:
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).symlink_to(root / value)


@pytest.mark.slow
@pytest.mark.req("S001-28")
@given(data=st.data(), steps=STEPS)
def test_the_order_in_which_directories_were_made_changes_nothing(
    data: st.DataObject, steps: list[tuple[str, str, str]]
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "root"
        make(root, steps)
        first = everything(discover([root]))
        shutil.rmtree(root)
        make(root, data.draw(st.permutations(steps)))
        assert everything(discover([root])) == first


@pytest.mark.slow
@pytest.mark.req("S001-28")
@settings(max_examples=4)
@given(seeds=st.lists(st.integers(0, 999), min_size=2, max_size=2), steps=STEPS)
def test_the_order_in_which_directories_are_listed_changes_nothing(
    seeds: list[int], steps: list[tuple[str, str, str]]
) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "root"
        make(root, steps)
        expected = everything(discover([root]))
        for seed in seeds:
            assert probe(root, shuffled=seed).everything == expected


@pytest.mark.req("S001-34")
def test_a_second_look_at_an_index_asks_no_file(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_skill(root / "pdf")
    write_refused(root / "broken")
    index = discover([root])
    first = everything(index)
    shutil.rmtree(root)
    assert everything(index) == first
    assert index.skills is index.skills


@pytest.mark.req("S001-36")
def test_without_a_cache_directory_nothing_outlives_an_index(tmp_path: Path) -> None:
    for description in ("First.", "Again."):
        write_skill(tmp_path / "pdf", description=description)
        assert [skill.description for skill in discover([tmp_path]).skills] == [description]


@pytest.mark.req("S001-4")
def test_finding_a_skill_runs_nothing_of_it(tmp_path: Path) -> None:
    trap = f"touch {tmp_path}/sprung"
    text = f"Do !`{trap}` $({trap}) `{trap}`"
    directory = write_skill(tmp_path / "root" / "pdf", description=text, body=text).parent
    for name in ("install.sh", "scripts/main.sh", "SKILL.sh"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(f"#!/bin/sh\n{trap}\n")
        (directory / name).chmod(0o755)
    assert names(discover([tmp_path / "root"])) == ["pdf"]
    assert not (tmp_path / "sprung").exists()


@pytest.mark.req("S000-18")
@pytest.mark.parametrize("scope", SCOPES)
def test_a_skill_that_only_one_scope_has_is_in_force(tmp_path: Path, scope: str) -> None:
    write_skill(tmp_path / scope / "only")
    index = discover([Root(tmp_path / other, other) for other in SCOPES])
    assert ids(index) == [f"{scope}:only"]

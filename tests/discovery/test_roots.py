"""Tests of discovery/roots.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from skillhouse.discovery import LinkPlaces, Root, default_roots, discover
from skillhouse.discovery.roots import GLOB_MAX, LINK_DIRECTORIES_MAX, following_of, project_of
from skillhouse.floor import ConfigError, git_root
from skillhouse.floor.structs import replace
from skillhouse.skill import DEFAULT_PROFILE, Profile, RootRule, SkillIndex, load
from tests.discovery.trees import findings, names, write_skill

PLACES = (".skillhouse/skills", ".agents/skills", ".claude/skills")


def roots_of(
    start: Path,
    home: Path,
    *,
    environment: Mapping[str, str] | None = None,
    profile: Profile = DEFAULT_PROFILE,
    explicit: Sequence[Path] = (),
    builtin: Path | None = None,
) -> list[tuple[str, str]]:
    """Return the roots as (scope, path), paths below the parent of `home` relative to it."""
    found = default_roots(
        start=start,
        home=home,
        environment=environment or {},
        profile=profile,
        explicit=explicit,
        builtin=builtin,
    )
    return [(root.scope, os.path.relpath(root.path, home.parent)) for root in found]


def project_roots(start: Path, profile: Profile = DEFAULT_PROFILE) -> list[Path]:
    found = default_roots(start=start, home=Path("/home/me"), environment={}, profile=profile)
    return [root.path for root in found if root.scope == "project"]


def repository(base: Path, below: str = "") -> Path:
    """Make a git repository and return a directory in it."""
    (base / "repo" / ".git").mkdir(parents=True)
    (base / "repo" / below).mkdir(parents=True, exist_ok=True)
    return base / "repo" / below


@pytest.mark.req("S001-8", "S001-9", "S001-11", "S001-12")
def test_the_scopes_come_strongest_first_and_their_roots_in_order(tmp_path: Path) -> None:
    assert roots_of(
        repository(tmp_path),
        tmp_path / "home",
        environment={"SKILLHOUSE_SKILLS_DIR": f"{tmp_path}/one{os.pathsep}{tmp_path}/two"},
        explicit=[tmp_path / "given"],
        builtin=tmp_path / "builtin",
    ) == [
        ("project", "repo/.skillhouse/skills"),
        ("project", "repo/.agents/skills"),
        ("project", "repo/.claude/skills"),
        ("explicit", "given"),
        ("explicit", "one"),
        ("explicit", "two"),
        ("user", "home/.config/skillhouse/skills"),
        ("user", "home/.agents/skills"),
        ("user", "home/.claude/skills"),
        ("builtin", "builtin"),
    ]


@pytest.mark.req("S001-13")
def test_a_start_below_finds_the_roots_of_each_directory_up_to_the_git_root(
    tmp_path: Path,
) -> None:
    start = repository(tmp_path, "packages/app")
    expected = [tmp_path / "repo" / at / place for at in ("packages/app", "packages", "")
                for place in PLACES]  # fmt: skip
    assert project_roots(start) == expected


def test_outside_git_only_the_start_directory_is_a_project(tmp_path: Path) -> None:
    start = tmp_path / "a" / "b"
    start.mkdir(parents=True)
    assert project_roots(start) == [start / place for place in PLACES]


def test_the_nearest_git_root_ends_the_project(tmp_path: Path) -> None:
    inner = repository(tmp_path, "vendor/lib")
    (inner / ".git").write_text("gitdir: ../../.git/modules/lib")  # As a submodule has it.
    assert git_root(inner / "src") == inner
    assert git_root(tmp_path / "repo" / "vendor") == tmp_path / "repo"


def test_a_broken_link_named_git_ends_the_project_too(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to(tmp_path / "nowhere")
    assert git_root(tmp_path / "src") == tmp_path


def test_there_is_no_git_root_where_no_directory_has_one() -> None:
    assert git_root(Path("/nowhere/at/all")) is None


def test_a_relative_start_is_taken_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository(tmp_path, "src"))
    assert project_roots(Path())[3] == tmp_path / "repo" / PLACES[0]


def test_empty_parts_of_the_variable_are_passed_over(tmp_path: Path) -> None:
    for value in ("", os.pathsep, f"{os.pathsep}{tmp_path}/one{os.pathsep}"):
        found = roots_of(tmp_path, tmp_path / "home", environment={"SKILLHOUSE_SKILLS_DIR": value})
        explicit = [path for scope, path in found if scope == "explicit"]
        assert explicit == (["one"] if "one" in value else [])


def test_a_root_named_twice_is_listed_once_with_its_stronger_scope(tmp_path: Path) -> None:
    found = roots_of(
        tmp_path / "start",
        tmp_path / "home",
        explicit=[tmp_path / "home/.agents/skills", tmp_path / "x/../home/.agents/skills"],
    )
    assert [scope for scope, path in found if path == "home/.agents/skills"] == ["explicit"]


@pytest.mark.parametrize("git", [True, False], ids=["a repository", "no repository"])
def test_at_home_the_users_own_roots_stay_the_users(tmp_path: Path, git: bool) -> None:
    home = tmp_path / "home"
    (home / ".git" if git else home).mkdir(parents=True)
    assert roots_of(home, home) == [
        ("project", "home/.skillhouse/skills"),
        ("user", "home/.config/skillhouse/skills"),
        ("user", "home/.agents/skills"),
        ("user", "home/.claude/skills"),
    ]


def test_a_directory_of_the_project_that_a_person_named_is_explicit(tmp_path: Path) -> None:
    start = repository(tmp_path)
    found = roots_of(start, tmp_path / "home", explicit=[start / ".claude/skills"])
    assert [scope for scope, path in found if path == "repo/.claude/skills"] == ["explicit"]


def test_the_profile_says_where_to_look_and_in_which_order(tmp_path: Path) -> None:
    profile = Profile(
        scopes=tuple(reversed(DEFAULT_PROFILE.scopes)),
        roots=(
            RootRule(scope="project", path="skills"),
            RootRule(scope="user", path="~/mine"),
            RootRule(scope="explicit", path="${ELSEWHERE}"),
            RootRule(scope="user", path="/opt/skills"),
        ),
    )
    environment = {"ELSEWHERE": str(tmp_path / "x"), "SKILLHOUSE_SKILLS_DIR": str(tmp_path / "y")}
    found = default_roots(
        start=tmp_path, home=tmp_path / "home", environment=environment, profile=profile
    )
    assert found == (
        Root(tmp_path / "home" / "mine", "user"),
        Root(Path("/opt/skills"), "user"),
        Root(tmp_path / "x", "explicit"),
        Root(tmp_path / "skills", "project"),
    )


def rules_of(*rules: RootRule, **changes: Any) -> Profile:
    return replace(DEFAULT_PROFILE, roots=rules, **changes)


def test_a_variable_can_have_a_value_for_when_it_is_unset_and_more_of_a_path(
    tmp_path: Path,
) -> None:
    profile = rules_of(
        RootRule(scope="user", path="${HOUSE:-~/.house}/skills"),
        RootRule(scope="explicit", path="${MORE}/skills"),
    )
    home = tmp_path / "home"
    assert roots_of(tmp_path, home, profile=profile) == [("user", "home/.house/skills")]
    environment = {"HOUSE": f"{tmp_path}/house", "MORE": f"{tmp_path}/a{os.pathsep}{tmp_path}/b"}
    assert roots_of(tmp_path, home, profile=profile, environment=environment) == [
        ("explicit", "a/skills"),
        ("explicit", "b/skills"),
        ("user", "house/skills"),
    ]


@pytest.mark.parametrize(
    ("walk", "expected"),
    [
        ("none", ["home/repo/app"]),
        ("git_root", ["home/repo/app", "home/repo"]),
        ("home", ["home/repo/app", "home/repo", "home"]),
    ],
)
@pytest.mark.parametrize("order", ["nearest", "farthest"])
def test_a_walk_ends_where_the_profile_says_both_ends_included(
    tmp_path: Path, walk: Any, order: Any, expected: list[str]
) -> None:
    home = tmp_path / "home"
    start = repository(home, "app")
    profile = rules_of(RootRule(scope="project", path="s"), walk=walk, walk_order=order)
    found = [path for _, path in roots_of(start, home, profile=profile)]
    assert found == [f"{at}/s" for at in (expected if order == "nearest" else expected[::-1])]


def test_a_walk_to_the_root_of_the_file_system_looks_at_it_too(tmp_path: Path) -> None:
    profile = rules_of(RootRule(scope="project", path="s"), walk="fs_root")
    assert project_roots(tmp_path, profile) == [at / "s" for at in (tmp_path, *tmp_path.parents)]
    elsewhere = rules_of(RootRule(scope="project", path="s"), walk="home")
    # Where home is not above the start.
    assert project_roots(tmp_path, elsewhere)[-1] == Path("/s")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("scope", ["project:a/x", "project:a/y", "project:x", "project:y", "user:u", "user:v"]),
        ("written", ["user:u", "project:a/x", "project:a/y", "project:x", "project:y", "user:v"]),
    ],
)
def test_the_roots_of_one_directory_stand_together_in_either_order(
    tmp_path: Path, order: Any, expected: list[str]
) -> None:
    profile = rules_of(
        RootRule(scope="user", path=f"{tmp_path / 'repo'}/u"),
        RootRule(scope="project", path="x"),
        RootRule(scope="project", path="y"),
        RootRule(scope="user", path=f"{tmp_path / 'repo'}/v"),
        root_order=order,
    )
    found = roots_of(repository(tmp_path, "a"), tmp_path / "home", profile=profile)
    assert [f"{scope}:{path.removeprefix('repo/')}" for scope, path in found] == expected


def test_a_rule_can_have_a_walk_a_depth_and_a_treatment_of_links_of_its_own(
    tmp_path: Path,
) -> None:
    start = repository(tmp_path, "app")
    profile = rules_of(
        RootRule(scope="project", path="x", walk="none", max_depth=1, symlinks="follow"),
        RootRule(scope="project", path="y"),
    )
    found = default_roots(start=start, home=tmp_path, environment={}, profile=profile)
    assert found == (
        Root(start / "x", "project", "", 1, "follow"),
        Root(start / "y", "project"),
        Root(start.parent / "y", "project"),
    )


def test_a_depth_and_a_treatment_of_its_own_hold_for_a_root_alone(tmp_path: Path) -> None:
    for root in ("one", "two"):
        write_skill(tmp_path / root / f"{root}-flat")
        write_skill(tmp_path / root / "group" / f"{root}-nested")
        write_skill(tmp_path / "out" / f"{root}-linked")
        (tmp_path / root / "link").symlink_to(tmp_path / "out" / f"{root}-linked")
    roots = [
        Root(tmp_path / "one", "user", max_depth=1, symlinks="follow"),
        Root(tmp_path / "two", "user", symlinks="within_root"),
    ]
    assert names(discover(roots)) == ["one-flat", "one-linked", "two-flat", "two-nested"]


def plugins(tmp_path: Path, pattern: str = "~/cache/*/*/skills") -> tuple[Root, ...]:
    profile = rules_of(RootRule(scope="plugin", path=pattern, namespace=1))
    return default_roots(start=tmp_path, home=tmp_path, environment={}, profile=profile)


def test_a_star_stands_for_any_directory_and_one_of_them_names_the_plugin(
    tmp_path: Path,
) -> None:
    for at in ("pdf/2", "pdf/1", "web/1", ".hidden/1", "web/.tmp"):
        (tmp_path / "cache" / at / "skills").mkdir(parents=True)
    (tmp_path / "cache" / "file").write_text("no directory")
    assert plugins(tmp_path) == tuple(
        Root(tmp_path / "cache" / at / "skills", "plugin", at.split("/")[0])
        for at in ("pdf/1", "pdf/2", "web/1")
    )
    assert plugins(tmp_path / "elsewhere") == ()


def test_a_star_fits_a_link_only_if_that_stays_in_the_place(tmp_path: Path) -> None:
    (tmp_path / "cache" / "pdf" / "1").mkdir(parents=True)
    (tmp_path / "secret" / "1").mkdir(parents=True)
    (tmp_path / "cache" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "cache" / "pdf" / "latest").symlink_to("1")
    (tmp_path / "cache" / "pdf" / "circle").symlink_to("circle")
    found = [root.path.relative_to(tmp_path).as_posix() for root in plugins(tmp_path)]
    assert found == ["cache/pdf/1/skills", "cache/pdf/latest/skills"]
    write_skill(tmp_path / "cache" / "pdf" / "1" / "skills" / "read")
    # The same place by two ways is one.
    assert names(discover(plugins(tmp_path))) == ["pdf:read"]


@pytest.mark.slow
def test_what_a_star_leaves_out_beyond_its_bound_is_said(tmp_path: Path) -> None:
    for number in range(GLOB_MAX + 1):
        (tmp_path / "cache" / f"{number:04}").mkdir(parents=True)
    found = plugins(tmp_path, "~/cache/*/skills")
    assert len(found) == GLOB_MAX
    index = discover(found[-1:])
    assert [(said.severity, said.code) for said in index.diagnostics] == [("warning", "root-limit")]
    assert "more than 2000 directories fit `~/cache/*/skills`" in index.diagnostics[0].message


def test_a_star_in_what_a_person_named_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = roots_of(
        tmp_path,
        tmp_path / "home",
        environment={"SKILLHOUSE_SKILLS_DIR": f"{tmp_path}/*"},
        explicit=[tmp_path / "*" / "x"],
    )
    explicit = [path for scope, path in found if scope == "explicit"]
    assert explicit == ["*/x", "*"]


def test_of_a_root_named_twice_the_stronger_is_kept_also_where_the_last_wins(
    tmp_path: Path,
) -> None:
    profile = rules_of(
        RootRule(scope="builtin", path=f"{tmp_path}/x"),
        RootRule(scope="user", path=f"{tmp_path}/y"),
        RootRule(scope="explicit", path="{explicit}"),
        root_order="written",
        duplicates="last",
    )
    found = roots_of(tmp_path, tmp_path / "home", profile=profile, explicit=[tmp_path / "x"])
    assert found == [("user", "y"), ("explicit", "x")]


def test_a_link_to_the_users_own_skills_leaves_them_the_users(tmp_path: Path) -> None:
    start, home = repository(tmp_path), tmp_path / "home"
    (home / ".claude" / "skills").mkdir(parents=True)
    (start / ".claude").symlink_to(home / ".claude")
    found = roots_of(start, home)
    assert ("project", "repo/.claude/skills") not in found
    assert ("user", "home/.claude/skills") in found


def test_a_rule_of_a_scope_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown scope `usr`; did you mean `user`"):
        roots_of(tmp_path, tmp_path, profile=rules_of(RootRule(scope="usr", path="~/x")))


@pytest.mark.parametrize(
    "rule",
    [
        {"path": ""},
        {"path": "~/a\0b"},
        {"path": "skills"},
        {"path": "${X:-relative}"},
        {"path": "{elsewhere}"},
        {"path": "~/*", "namespace": 2},
        {"path": "~/x", "namespace": 1},
        {"path": "~/x", "max_depth": 0},
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|NUL"):
        RootRule(scope="user", **rule)


def own(root: Path, **places: object) -> SkillIndex:
    """Discover a person's own folder."""
    return discover([Root(root, "user", places=LinkPlaces(**places))])  # type: ignore[arg-type]


def linked(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_the_scope_says_which_links_are_followed() -> None:
    scopes = ("user", "project", "explicit", "builtin")
    assert [following_of("by_scope", scope) for scope in scopes] == [
        "own",
        "within_project",
        "within_root",
        "within_root",
    ]
    assert following_of("ignore", "user") == "ignore"


@pytest.mark.parametrize("form", ["absolute", "relative", "chain", "parent"])
def test_a_link_of_a_person_is_followed(tmp_path: Path, form: str) -> None:
    root, real = tmp_path / "skills", write_skill(tmp_path / "src/dev").parent
    if form == "absolute":
        linked(root / "dev", real)
    elif form == "relative":
        linked(root / "dev", Path("../src/dev"))
    elif form == "chain":
        linked(root / "dev", linked(tmp_path / "one", linked(tmp_path / "two", real)))
    else:
        linked(root / "all", real.parent)
    index = own(root)
    (skill,) = index.skills
    assert (skill.name, skill.file, skill.root) == ("dev", f"{real}/SKILL.md", str(root))
    assert skill.link == f"{root}/{'all/dev' if form == 'parent' else 'dev'}/SKILL.md"
    assert (skill.scope, findings(index, tmp_path)) == ("user", [])
    assert load(skill).body == ""


def test_a_skill_file_and_its_resources_may_be_links(tmp_path: Path) -> None:
    package = tmp_path / "dotfiles/skills/pdf"
    write_skill(package, body="Read references/a.md.\n")
    (package / "references").mkdir()
    (package / "references/a.md").write_text("a")
    linked(tmp_path / "skills/pdf/SKILL.md", Path("../../dotfiles/skills/pdf/SKILL.md"))
    linked(tmp_path / "skills/pdf/references", Path("../../dotfiles/skills/pdf/references"))
    index = own(tmp_path / "skills")
    (skill,) = index.skills
    assert skill.file == skill.link == f"{tmp_path}/skills/pdf/SKILL.md"
    content = load(skill)
    assert (content.body, content.resources) == ("Read references/a.md.\n", ("references/a.md",))


def test_one_real_place_is_one_skill_under_its_first_name(tmp_path: Path) -> None:
    write_skill(tmp_path / "agents/pdf")
    write_skill(tmp_path / "dotfiles/csv")
    linked(tmp_path / "claude/pdf", tmp_path / "agents/pdf")
    linked(tmp_path / "claude/csv", tmp_path / "dotfiles/csv")
    linked(tmp_path / "agents/csv", Path("../dotfiles/csv"))
    linked(tmp_path / "other/csv/SKILL.md", tmp_path / "dotfiles/csv/SKILL.md")
    index = discover([Root(tmp_path / name, "user") for name in ("agents", "claude", "other")])
    assert [(skill.id, skill.file) for skill in index.skills] == [
        ("user:csv", f"{tmp_path}/dotfiles/csv/SKILL.md"),
        ("user:pdf", f"{tmp_path}/agents/pdf/SKILL.md"),
    ]
    assert (index.shadowed, findings(index, tmp_path)) == ((), [])


def test_what_is_wrong_with_a_place_is_said_once(tmp_path: Path) -> None:
    write_skill(tmp_path / "agents/pdf", name="PDF_tools")
    linked(tmp_path / "claude/pdf", tmp_path / "agents/pdf")
    linked(tmp_path / "claude/more", tmp_path / "src/bad")
    (tmp_path / "src/bad").mkdir(parents=True)
    (tmp_path / "src/bad/SKILL.md").write_bytes(b"---\nname: 'x\n---\n")
    index = discover([Root(tmp_path / name, "user") for name in ("agents", "claude")])
    assert findings(index, tmp_path) == [
        ("warning", "name-invalid", "agents/pdf/SKILL.md"),
        ("warning", "name-mismatch", "agents/pdf/SKILL.md"),
        ("error", "yaml-error", "claude/more/SKILL.md"),
    ]


def test_behind_a_link_two_directories_deep_is_looked(tmp_path: Path) -> None:
    for depth in ("a", "a/b", "a/b/c"):
        write_skill(tmp_path / "src" / depth / f"at-{depth.count('/') + 1}")
    linked(tmp_path / "skills/src", tmp_path / "src")
    index = own(tmp_path / "skills")
    assert names(index) == ["at-1"]
    assert findings(index, tmp_path) == [("warning", "depth-limit", "skills/src")]
    below = f"{tmp_path}/skills/src/a/b"
    assert index.left_out[0].paths == (f"{below}/at-2", f"{below}/c")


def test_behind_a_link_a_bound_of_directories_counts(tmp_path: Path) -> None:
    for number in range(LINK_DIRECTORIES_MAX + 2):
        (tmp_path / "src" / f"d{number:03}").mkdir(parents=True)
    write_skill(tmp_path / "src/d499")
    write_skill(tmp_path / "src/d501")
    write_skill(tmp_path / "skills/z-own")
    linked(tmp_path / "skills/src", tmp_path / "src")
    index = own(tmp_path / "skills")
    assert names(index) == ["d499", "z-own"]
    assert findings(index, tmp_path) == [("warning", "scan-limit", "skills/src")]
    assert index.left_out[0].paths == (f"{tmp_path}/skills/src/d500", f"{tmp_path}/skills/src/d501")


@pytest.mark.parametrize("place", ["target", "above", "file"])
def test_what_other_users_can_write_is_not_followed(tmp_path: Path, place: str) -> None:
    file = write_skill(tmp_path / "shared/team/pdf")
    linked(tmp_path / "skills/pdf", file.parent)
    linked(tmp_path / "skills/file/SKILL.md", file)
    changed = {"target": file.parent, "above": file.parent.parent, "file": file}[place]
    changed.chmod(0o777)
    index = own(tmp_path / "skills")
    assert names(index) == []
    said = [
        path.removesuffix("/SKILL.md")
        for _, code, path in findings(index, tmp_path)
        if code == "link-owner"
    ]
    assert said == ["skills/file", "skills/pdf"]
    assert "other users can write " in index.diagnostics[0].message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_someone_else_is_not_followed(tmp_path: Path) -> None:
    file = write_skill(tmp_path / "theirs/pdf")
    os.chown(file.parent, 4_242, -1)
    linked(tmp_path / "skills/pdf", file.parent)
    index = own(tmp_path / "skills")
    assert (names(index), [one.code for one in index.diagnostics]) == ([], ["link-owner"])
    assert "belongs to user 4242" in index.diagnostics[0].message


def test_a_target_in_the_project_waits_for_its_trust_and_is_of_its_scope(tmp_path: Path) -> None:
    work, root = tmp_path / "work", tmp_path / "skills"
    linked(root / "dev", write_skill(work / "tools/dev").parent)
    linked(root / "file/SKILL.md", write_skill(work / "tools/file"))
    linked(root / "made", write_skill(tmp_path / "cache/made").parent)
    places = LinkPlaces(project=str(work), written=(str(tmp_path / "cache"),))
    roots = [Root(root, "user", places=places)]
    refused = discover(roots, trusted=False)
    assert names(refused) == []
    assert [(code, place) for _, code, place in findings(refused, tmp_path)] == [
        ("link-untrusted", "skills/dev"),
        ("link-untrusted", "skills/file/SKILL.md"),
        ("link-untrusted", "skills/made"),
    ]
    trusted = discover(roots)
    assert [skill.id for skill in trusted.skills] == ["project:dev", "project:file", "project:made"]


def test_in_a_home_that_is_no_project_links_are_a_persons(tmp_path: Path) -> None:
    assert project_of(tmp_path, tmp_path, None) == ""
    assert project_of(tmp_path / "a", tmp_path / "a/home", None) == ""
    assert project_of(tmp_path / "work/src", tmp_path, tmp_path / "work") == str(tmp_path / "work")


def test_in_a_project_a_link_stays_in_it_unless_the_trust_names_the_target(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    linked(work / ".agents/skills/in", write_skill(work / "packages/in").parent)
    outside = write_skill(tmp_path / "outside/out").parent
    linked(work / ".agents/skills/out", outside)
    options = {"start": work, "home": tmp_path / "home", "environment": {}}
    for targets, listed in ((frozenset(), ["in"]), (frozenset({str(outside)}), ["in", "out"])):
        roots = default_roots(**options, profile=DEFAULT_PROFILE, targets=targets)  # type: ignore[arg-type]
        index = discover([root for root in roots if root.scope == "project"])
        assert names(index) == listed
        assert {skill.scope for skill in index.skills} == {"project"}
    roots = default_roots(**options, profile=DEFAULT_PROFILE)  # type: ignore[arg-type]
    (found,) = discover([root for root in roots if root.scope == "project"]).diagnostics
    assert (found.code, found.path) == ("link-escape", work / ".agents/skills/out")
    assert "out of the project" in found.message


def test_other_profiles_keep_their_links(tmp_path: Path) -> None:
    linked(tmp_path / "skills/dev", write_skill(tmp_path / "src/dev").parent)
    for symlinks, found in (("within_root", []), ("ignore", []), ("follow", ["dev"])):
        profile = replace(DEFAULT_PROFILE, symlinks=symlinks)  # type: ignore[arg-type]
        assert names(discover([Root(tmp_path / "skills", "user")], profile=profile)) == found
